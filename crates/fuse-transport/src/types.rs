//! Value types of replies, locks and times.

use std::time::Duration;

/// A time in seconds and nanoseconds since 1970; earlier times have negative seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds beyond the seconds: 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// A new value of a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The present time of the server's clock.
    Now,
    /// The given time.
    At(Time),
}

/// The attributes of an inode, as in stat(2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FuseAttributes {
    /// The inode's number.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Time of the last read.
    pub accessed: Time,
    /// Time of the last change of the bytes.
    pub modified: Time,
    /// Time of the last change of the inode.
    pub changed: Time,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for a device node.
    pub device: u32,
    /// Preferred size of reads and writes in bytes.
    pub block_size: u32,
}

/// The inode of a name, with its cache validity in the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FuseEntry {
    /// The inode's number; 0 means that the name does not exist, valid for `entry_valid`.
    pub inode: u64,
    /// Distinguishes successive inodes with the same number.
    pub generation: u64,
    /// Its attributes.
    pub attributes: FuseAttributes,
    /// Time for which the kernel may cache the name.
    pub entry_valid: Duration,
    /// Time for which the kernel may cache the attributes.
    pub attributes_valid: Duration,
}

impl FuseEntry {
    /// A negative entry: the name does not exist.
    pub fn absent(entry_valid: Duration) -> Self {
        Self { entry_valid, ..Self::default() }
    }
}

/// An opened file or directory, and its caching options.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the interface")]
pub struct FuseOpen {
    /// The server's handle, passed with each operation on it.
    pub handle: u64,
    /// Direct I/O: reads and writes bypass the page cache.
    pub direct: bool,
    /// Keep the cached pages of the file.
    pub keep_cache: bool,
    /// Let the kernel cache the directory's listing.
    pub cache_dir: bool,
    /// Send no `Flush` on close.
    pub no_flush: bool,
    /// Refuse lseek(2).
    pub not_seekable: bool,
    /// The file is a stream, without a position.
    pub stream: bool,
    /// Allow concurrent direct writes to the inode.
    pub parallel_direct_writes: bool,
    /// The backing file for passthrough of reads, writes and mappings.
    pub backing: Option<BackingId>,
}

/// A registered backing file; see `Backings::open`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackingId(pub(crate) u32);

/// The usage of a file system, as in statfs(2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Number of blocks of `fragment_size` bytes.
    pub blocks: u64,
    /// Number of free blocks.
    pub blocks_free: u64,
    /// Number of free blocks for unprivileged users.
    pub blocks_available: u64,
    /// Number of inodes.
    pub files: u64,
    /// Number of free inodes.
    pub files_free: u64,
    /// Preferred size of reads and writes in bytes.
    pub block_size: u32,
    /// Maximum length of a name in bytes.
    pub name_bytes_max: u32,
    /// The block size of the block counts.
    pub fragment_size: u32,
}

/// The kinds of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FuseLockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// Releases held locks.
    Unlock,
}

/// A lock on a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FuseLock {
    /// The first byte.
    pub start: u64,
    /// The last byte; `u64::MAX >> 1` means to the end of the file, however long.
    pub end: u64,
    /// The kind of lock.
    pub kind: FuseLockKind,
    /// The process that holds it, for `F_GETLK`.
    pub pid: u32,
}

/// The attributes of statx(2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statx {
    /// The attributes of stat(2).
    pub attributes: FuseAttributes,
    /// Creation time, if known.
    pub born: Option<Time>,
    /// `STATX_ATTR_*` bits that are set.
    pub flags: u64,
    /// `STATX_ATTR_*` bits that are supported.
    pub flags_mask: u64,
}
