//! The values of answers, and of locks and times in both directions: plain data with names.

use std::time::Duration;

/// A moment, as seconds and nanoseconds since 1970; before that, seconds are negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// 0 to 999,999,999 beyond them.
    pub nanoseconds: u32,
}

/// What a time is to be set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock.
    Now,
    /// This moment.
    At(Time),
}

/// What stat(2) tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The inode's number.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub accessed: Time,
    /// Last change of the bytes.
    pub modified: Time,
    /// Last change of the inode.
    pub changed: Time,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device node: which.
    pub device: u32,
    /// The best size for reads and writes.
    pub block_size: u32,
}

/// A name's inode, with how long the kernel may believe it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry {
    /// 0 says: there is no such name, and that may be believed for `entry_valid`.
    pub inode: u64,
    /// Tells lives of one inode number apart.
    pub generation: u64,
    /// Its attributes.
    pub attributes: Attributes,
    /// How long the name leads there without asking again.
    pub entry_valid: Duration,
    /// How long the attributes hold without asking again.
    pub attributes_valid: Duration,
}

impl Entry {
    /// A name that is known not to be there.
    pub fn absent(entry_valid: Duration) -> Self {
        Self { entry_valid, ..Self::default() }
    }
}

/// An opened file or directory, and how the kernel is to treat it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the interface")]
pub struct Opened {
    /// The server's number for it; comes back with each operation.
    pub handle: u64,
    /// Reads and writes come here, not to the page cache.
    pub direct: bool,
    /// What the page cache has of it stays.
    pub keep_cache: bool,
    /// A directory's listing may be kept by the kernel.
    pub cache_dir: bool,
    /// Closing it needs no `Flush`.
    pub no_flush: bool,
    /// lseek(2) is refused.
    pub not_seekable: bool,
    /// There is no position at all.
    pub stream: bool,
    /// Direct writes to one inode may come at the same time.
    pub parallel_direct_writes: bool,
    /// Reads, writes and mappings go to this file, past us.
    pub backing: Option<BackingId>,
}

/// A file that the kernel reads and writes in place of asking; made by `Backings::open`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackingId(pub(crate) u32);

/// What statfs(2) tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statfs {
    /// All blocks, of `fragment_size` bytes.
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Free ones for an ordinary user.
    pub blocks_available: u64,
    /// All inodes.
    pub files: u64,
    /// Free ones.
    pub files_free: u64,
    /// The best size for reads and writes.
    pub block_size: u32,
    /// The longest name.
    pub name_bytes_max: u32,
    /// The unit of the blocks above.
    pub fragment_size: u32,
}

/// The kinds of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None: what is held goes.
    Unlock,
}

/// A lock on a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lock {
    /// The first byte.
    pub start: u64,
    /// The last byte; `u64::MAX >> 1` is to the end of the file, however long.
    pub end: u64,
    /// Of which kind.
    pub kind: LockKind,
    /// The process that holds it, for `F_GETLK`.
    pub pid: u32,
}

/// What statx(2) tells beside the attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statx {
    /// What stat(2) tells.
    pub attributes: Attributes,
    /// When it was made, where that is known.
    pub born: Option<Time>,
    /// Bits `STATX_ATTR_*` that are set ...
    pub flags: u64,
    /// ... of those that are told at all.
    pub flags_mask: u64,
}
