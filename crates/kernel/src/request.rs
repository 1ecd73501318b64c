//! What the kernel asks: one request with its caller, and the operation with its fields by name.
//!
//! A request borrows the buffer that it was read into: names and data to write are slices of it, and live as long as
//! `Serve::serve` runs. Who parks a request copies what it needs, or keeps its [`Data`].

use crate::{
    memory::Data,
    values::{Lock, SetTime, Time},
};

/// The inode number that the root of each mount has.
pub const ROOT: u64 = 1;

/// One request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The kernel's number of this request; never used again in the life of the connection.
    pub unique: u64,
    /// What it is about: the directory for operations on names, else the object itself.
    pub inode: u64,
    /// The caller's user for file access.
    pub uid: u32,
    /// The caller's group for file access.
    pub gid: u32,
    /// The caller's process; 0 where the kernel asks by itself, or where it has no number in our name space.
    pub pid: u32,
    /// What is to be done.
    pub operation: Operation<'a>,
}

/// What is to be done. `flags` of opens are those of open(2).
#[derive(Debug)]
#[expect(
    missing_docs,
    reason = "fields are named as in the manual pages of the calls; what differs is said at the variant"
)]
pub enum Operation<'a> {
    /// Which inode has this name? Answered by `entry`, which counts as one lookup. `.` is the inode itself, of whatever kind, and `..` the directory above: so the
    /// kernel finds again what a file handle means (`open_by_handle_at(2)`).
    Lookup { name: &'a [u8] },
    /// Answered by `attributes`.
    Getattr { handle: Option<u64> },
    /// Answered by `attributes`.
    Setattr(Setattr),
    /// Answered by `data`.
    Readlink,
    /// Answered by `entry`.
    Symlink { name: &'a [u8], target: &'a [u8] },
    /// Answered by `entry`.
    Mknod { name: &'a [u8], mode: u32, umask: u32, device: u32 },
    /// Answered by `entry`.
    Mkdir { name: &'a [u8], mode: u32, umask: u32 },
    /// Answered by `done`.
    Unlink { name: &'a [u8] },
    /// Answered by `done`.
    Rmdir { name: &'a [u8] },
    /// Flags are those of renameat2(2). Answered by `done`.
    Rename { name: &'a [u8], new_parent: u64, new_name: &'a [u8], flags: u32 },
    /// A further name, in the request's directory, for `inode`. Answered by `entry`.
    Link { inode: u64, new_name: &'a [u8] },
    /// `kill_set_id`: the set-id bits go, as the file is truncated by one who may not keep them. Answered by `opened`.
    Open { flags: u32, kill_set_id: bool },
    /// Answered by `created`.
    Create { name: &'a [u8], flags: u32, mode: u32, umask: u32, kill_set_id: bool },
    /// A file without a name, to be made beside this directory's files; it may be linked unless flags have `O_EXCL`. Answered by `created`.
    Tmpfile { flags: u32, mode: u32, umask: u32 },
    /// `flags` are those of the open file now; `lock_owner` comes with what a program reads past the cache, and not with what the
    /// kernel reads to fill it. Answered by `data`; shorter than asked means end of file.
    Read { handle: u64, offset: u64, size: u32, lock_owner: Option<u64>, flags: u32 },
    /// `from_cache`: the kernel writes back pages of a mapping, and the handle is a guess. Answered by `written`.
    Write {
        handle: u64,
        offset: u64,
        data: Data<'a>,
        lock_owner: Option<u64>,
        flags: u32,
        kill_set_id: bool,
        from_cache: bool,
    },
    /// The last user of the handle is gone. Answered by `done`; nobody hears an error.
    Release { handle: u64, flags: u32, lock_owner: u64, flush: bool, flock_unlock: bool },
    /// One descriptor of the handle was closed: locks of this owner go. Answered by `done`.
    Flush { handle: u64, lock_owner: u64 },
    /// Answered by `done`.
    Fsync { handle: u64, data_only: bool },
    /// Answered by `opened`, or by ENOSYS: then the kernel never asks again, and keeps directories' listings.
    Opendir { flags: u32 },
    /// Answered by `done`.
    Releasedir { handle: u64, flags: u32 },
    /// Answered by `done`.
    Fsyncdir { handle: u64, data_only: bool },
    /// `plus`: with each entry's attributes, which count as a lookup. Answered by `listing`.
    Readdir { handle: u64, offset: u64, size: u32, plus: bool },
    /// Answered by `statfs`.
    Statfs,
    /// `flags` are those of setxattr(2); `kill_set_group_id`: an ACL is set by one who may not keep that bit. Answered by `done`.
    Setxattr { name: &'a [u8], value: &'a [u8], flags: u32, kill_set_group_id: bool },
    /// Size 0 asks for the length alone, answered by `xattr_size`; else answered by `data`, or ERANGE.
    Getxattr { name: &'a [u8], size: u32 },
    /// Names, each ended by NUL; sizes as with `Getxattr`.
    Listxattr { size: u32 },
    /// Answered by `done`.
    Removexattr { name: &'a [u8] },
    /// Which lock stands in the way of this one? Answered by `lock`.
    Getlk { handle: u64, owner: u64, lock: Lock, flock: bool },
    /// Answered by `done`, or EAGAIN; `wait`: only when it is held, or EINTR when interrupted.
    Setlk { handle: u64, owner: u64, lock: Lock, flock: bool, wait: bool },
    /// Mask of access(2). Answered by `done`.
    Access { mask: u32 },
    /// `mode` is that of fallocate(2). Answered by `done`.
    Fallocate { handle: u64, offset: u64, length: u64, mode: u32 },
    /// Only data and holes are asked for. Answered by `offset`.
    Lseek { handle: u64, offset: u64, whence: u32 },
    /// Answered by `copied`.
    CopyFileRange {
        handle: u64,
        offset: u64,
        new_inode: u64,
        new_handle: u64,
        new_offset: u64,
        length: u64,
        flags: u64,
    },
    /// `flags` and `mask` are those of statx(2). Answered by `statx`, or by ENOSYS: then the kernel asks by `Getattr`.
    Statx { handle: Option<u64>, flags: u32, mask: u32 },
    /// Answered by `done`.
    Syncfs,
    /// `wake`: tell when it changes. Answered by `polled`, or by ENOSYS: always ready.
    Poll { handle: u64, kernel_handle: u64, events: u32, wake: bool },
    /// Answered by `ioctl`.
    Ioctl { handle: u64, flags: u32, command: u32, argument: u64, data: &'a [u8], out_size: u32 },
    /// An operation that this crate does not know, by its code: to be answered by ENOSYS.
    Unknown(u32),
}

/// Which attributes are to be changed; what is `None` stays.
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
    /// Last read.
    pub accessed: Option<SetTime>,
    /// Last change of the bytes.
    pub modified: Option<SetTime>,
    /// Last change of the inode.
    pub changed: Option<Time>,
    /// The open file through which it is changed.
    pub handle: Option<u64>,
    /// Whose locks the truncation respects.
    pub lock_owner: Option<u64>,
    /// The set-id bits go, as the file is truncated or its owner changed by one who may not keep them.
    pub kill_set_id: bool,
}
