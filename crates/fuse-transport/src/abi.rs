//! Constants of the kernel's FUSE interface, version 7.45 (`include/uapi/linux/fuse.h`).
//!
//! The layouts of messages are in `decode` (requests) and `encode` (replies). All integers of the
//! interface are in native byte order.

/// The major protocol version.
pub(crate) const MAJOR: u32 = 7;
/// The newest supported minor version.
pub(crate) const MINOR: u32 = 45;
/// The oldest supported minor version: the first whose INIT reply has all fields that we need
/// (Linux 4.20).
pub(crate) const MINOR_MIN: u32 = 28;
/// The first minor version with passthrough.
pub(crate) const MINOR_PASSTHROUGH: u32 = 40;
/// The first minor version with `NOTIFY_INC_EPOCH`.
pub(crate) const MINOR_EPOCH: u32 = 44;
/// The first minor version with `NOTIFY_PRUNE`.
pub(crate) const MINOR_PRUNE: u32 = 45;

/// Length of the header of each request.
pub(crate) const IN_HEADER: usize = 40;
/// Length of the header of each reply.
pub(crate) const OUT_HEADER: usize = 16;
/// Bytes of a buffer beyond the largest write: enough for the headers.
pub(crate) const BESIDE_WRITE: usize = 4096;
/// The smallest buffer that the kernel accepts for a read.
pub(crate) const BUFFER_MIN: usize = 8192;

/// Operation codes.
pub(crate) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const POLL: u32 = 40;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// Notification codes, sent in the error field with the unique number 0.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const STORE: i32 = 4;
    pub(crate) const DELETE: i32 = 6;
    pub(crate) const INC_EPOCH: i32 = 8;
    pub(crate) const PRUNE: i32 = 9;
}

/// Flags of INIT; those above bit 31 are in `flags2`.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const PASSTHROUGH: u64 = 1 << 37;
}

/// Flags of the reply to OPEN.
pub(crate) mod fopen {
    pub(crate) const DIRECT_IO: u32 = 1;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const NONSEEKABLE: u32 = 1 << 2;
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
    pub(crate) const STREAM: u32 = 1 << 4;
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    pub(crate) const PASSTHROUGH: u32 = 1 << 7;
}

/// Bits of SETATTR's `valid`.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const LOCKOWNER: u32 = 1 << 9;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flags of single request types.
pub(crate) mod bit {
    pub(crate) const GETATTR_FH: u32 = 1;
    pub(crate) const OPEN_KILL_SUIDGID: u32 = 1;
    pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
    pub(crate) const WRITE_CACHE: u32 = 1;
    pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;
    pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
    pub(crate) const RELEASE_FLUSH: u32 = 1;
    pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
    pub(crate) const FSYNC_FDATASYNC: u32 = 1;
    pub(crate) const LK_FLOCK: u32 = 1;
    pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;
    pub(crate) const POLL_SCHEDULE_NOTIFY: u32 = 1;
}

/// Error numbers of the transport itself.
pub(crate) mod errno {
    pub(crate) const EIO: i32 = 5;
    pub(crate) const EAGAIN: i32 = 11;
    /// The largest error number that the kernel accepts in a reply.
    pub(crate) const MAX: i32 = 511;
}
