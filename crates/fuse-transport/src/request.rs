//! Requests of the kernel: the caller, and the operation with named fields.
//!
//! A request borrows the buffer that it was read into: names and write data are slices of it and
//! live as long as `Handler::handle` runs. To defer a request, copy what it needs, or keep its
//! [`WriteData`].

use crate::{
    buffer_pool::WriteData,
    types::{FuseLock, SetTime, Time},
};

/// The inode number of the root of each mount.
pub const ROOT: u64 = 1;

/// A request.
#[derive(Debug)]
pub struct FuseRequest<'a> {
    /// The kernel's number of this request, unique in the life of the connection.
    pub unique: u64,
    /// The inode of the operation: the directory for operations on names, else the object itself.
    pub inode: u64,
    /// The caller's user for file access.
    pub uid: u32,
    /// The caller's group for file access.
    pub gid: u32,
    /// The caller's process; 0 for requests of the kernel itself, or of a process outside our PID
    /// namespace.
    pub pid: u32,
    /// The operation.
    pub operation: FuseOp<'a>,
}

/// Operations, each with the method of `FuseReply` that answers it. `flags` of opens are those of
/// open(2).
#[derive(Debug)]
#[expect(
    missing_docs,
    reason = "fields are named as in the manual pages of the calls; what differs is said at the variant"
)]
pub enum FuseOp<'a> {
    /// Looks up a name. Answered by `entry`, which counts as one lookup. `.` is the inode itself,
    /// of any type, and `..` its parent directory: the kernel uses them to resolve file handles
    /// (`open_by_handle_at(2)`).
    Lookup { name: &'a [u8] },
    /// Reads attributes. Answered by `attributes`.
    Getattr { handle: Option<u64> },
    /// Changes attributes. Answered by `attributes`.
    Setattr(Setattr),
    /// Reads a link's target. Answered by `data`.
    Readlink,
    /// Creates a symbolic link. Answered by `entry`.
    Symlink { name: &'a [u8], target: &'a [u8] },
    /// Creates a file or device node. Answered by `entry`.
    Mknod { name: &'a [u8], mode: u32, umask: u32, device: u32 },
    /// Creates a directory. Answered by `entry`.
    Mkdir { name: &'a [u8], mode: u32, umask: u32 },
    /// Removes a name. Answered by `done`.
    Unlink { name: &'a [u8] },
    /// Removes a directory. Answered by `done`.
    Rmdir { name: &'a [u8] },
    /// Renames; `flags` are those of renameat2(2). Answered by `done`.
    Rename { name: &'a [u8], new_parent: u64, new_name: &'a [u8], flags: u32 },
    /// Adds a name for `inode` to the request's directory. Answered by `entry`.
    Link { inode: u64, new_name: &'a [u8] },
    /// Opens a file. `kill_set_id`: clear the set-id bits, since an unprivileged caller truncates
    /// the file. Answered by `opened`.
    Open { flags: u32, kill_set_id: bool },
    /// Creates and opens a file. Answered by `created`.
    Create { name: &'a [u8], flags: u32, mode: u32, umask: u32, kill_set_id: bool },
    /// Creates and opens a file without a name in this file system; it may be linked later unless
    /// `flags` has `O_EXCL`. Answered by `created`.
    Tmpfile { flags: u32, mode: u32, umask: u32 },
    /// Reads bytes. `flags` are the present ones of the open file. `lock_owner` is set for reads
    /// that bypass the page cache, not for those that fill it. Answered by `data`; fewer bytes than
    /// requested mean end of file.
    Read { handle: u64, offset: u64, size: u32, lock_owner: Option<u64>, flags: u32 },
    /// Writes bytes. `from_cache`: the kernel writes back pages of a mapping, and the handle is a
    /// guess. Answered by `written`.
    Write {
        handle: u64,
        offset: u64,
        data: WriteData<'a>,
        lock_owner: Option<u64>,
        flags: u32,
        kill_set_id: bool,
        from_cache: bool,
    },
    /// Closes a handle after its last user. Answered by `done`; errors are ignored.
    Release { handle: u64, flags: u32, lock_owner: u64, flush: bool, flock_unlock: bool },
    /// Reports the close of one descriptor of the handle: releases the locks of this owner.
    /// Answered by `done`.
    Flush { handle: u64, lock_owner: u64 },
    /// Syncs a file. Answered by `done`.
    Fsync { handle: u64, data_only: bool },
    /// Opens a directory. Answered by `opened`, or by ENOSYS: the kernel then sends no further
    /// `Opendir` and caches listings.
    Opendir { flags: u32 },
    /// Closes a directory. Answered by `done`.
    Releasedir { handle: u64, flags: u32 },
    /// Syncs a directory. Answered by `done`.
    Fsyncdir { handle: u64, data_only: bool },
    /// Lists a directory. `plus`: with the attributes of each entry, which count as a lookup.
    /// Answered by `listing`.
    Readdir { handle: u64, offset: u64, size: u32, plus: bool },
    /// Reads the usage of the file system. Answered by `statfs`.
    Statfs,
    /// Sets an extended attribute; `flags` are those of setxattr(2). `kill_set_group_id`: clear
    /// that bit, since an unprivileged caller sets an ACL. Answered by `done`.
    Setxattr { name: &'a [u8], value: &'a [u8], flags: u32, kill_set_group_id: bool },
    /// Reads an extended attribute. Size 0 requests only the length, answered by `xattr_size`;
    /// other sizes are answered by `data`, or ERANGE.
    Getxattr { name: &'a [u8], size: u32 },
    /// Lists the names of extended attributes, each terminated by NUL; `size` as for `Getxattr`.
    Listxattr { size: u32 },
    /// Removes an extended attribute. Answered by `done`.
    Removexattr { name: &'a [u8] },
    /// Queries the lock that conflicts with this one. Answered by `lock`.
    Getlk { handle: u64, owner: u64, lock: FuseLock, flock: bool },
    /// Sets or releases a lock. Answered by `done`, or EAGAIN on conflict. With `wait`, answered
    /// only when the lock is granted, or by EINTR when interrupted.
    Setlk { handle: u64, owner: u64, lock: FuseLock, flock: bool, wait: bool },
    /// Checks access; `mask` is that of access(2). Answered by `done`.
    Access { mask: u32 },
    /// Allocates or punches space; `mode` is that of fallocate(2). Answered by `done`.
    Fallocate { handle: u64, offset: u64, length: u64, mode: u32 },
    /// Seeks data or a hole; the kernel handles the other kinds. Answered by `offset`.
    Lseek { handle: u64, offset: u64, whence: u32 },
    /// Copies bytes to another file. Answered by `copied`.
    CopyFileRange {
        handle: u64,
        offset: u64,
        new_inode: u64,
        new_handle: u64,
        new_offset: u64,
        length: u64,
        flags: u64,
    },
    /// Reads the attributes of statx(2); `flags` and `mask` are its arguments. Answered by `statx`,
    /// or by ENOSYS: the kernel then uses `Getattr`.
    Statx { handle: Option<u64>, flags: u32, mask: u32 },
    /// Syncs the file system. Answered by `done`.
    Syncfs,
    /// Polls for events. `wake`: notify on a change. Answered by `polled`, or by ENOSYS: always
    /// ready.
    Poll { handle: u64, kernel_handle: u64, events: u32, wake: bool },
    /// Performs an ioctl. Answered by `ioctl`.
    Ioctl { handle: u64, flags: u32, command: u32, argument: u64, data: &'a [u8], out_size: u32 },
    /// An operation with an unknown opcode. To be answered by ENOSYS.
    Unknown(u32),
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Setattr {
    /// Permission and type bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Time of the last read.
    pub accessed: Option<SetTime>,
    /// Time of the last change of the bytes.
    pub modified: Option<SetTime>,
    /// Time of the last change of the inode.
    pub changed: Option<Time>,
    /// The open file through which the change is made.
    pub handle: Option<u64>,
    /// The owner of locks that the truncation respects.
    pub lock_owner: Option<u64>,
    /// Clear the set-id bits, since an unprivileged caller truncates the file or changes its owner.
    pub kill_set_id: bool,
}
