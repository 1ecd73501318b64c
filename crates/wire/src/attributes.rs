//! Attributes of a file, and changes of them.

use crate::Extent;
use placement::FileId;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Owner of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe; its bytes never reach the pool.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device with its number (major and minor as in `st_rdev`).
    CharDevice(u32),
    /// A block device with its number.
    BlockDevice(u32),
}

/// A time of the wall clock. Before 1970 the seconds are negative, and the nanoseconds still count
/// forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawTimestamp")]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01 UTC.
    pub secs: i64,
    /// Nanoseconds after that, below 1,000,000,000.
    pub nanos: u32,
}

/// A time in a message, not yet validated.
#[derive(Deserialize)]
#[serde(rename = "Timestamp")]
struct RawTimestamp {
    secs: i64,
    nanos: u32,
}

impl TryFrom<RawTimestamp> for Timestamp {
    type Error = &'static str;

    fn try_from(RawTimestamp { secs, nanos }: RawTimestamp) -> Result<Self, Self::Error> {
        if nanos < 1_000_000_000 { Ok(Self { secs, nanos }) } else { Err("a second has fewer nanoseconds") }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self { secs: after.as_secs().cast_signed(), nanos: after.subsec_nanos() },
            Err(before) => before_epoch(before.duration()),
        }
    }
}

/// Returns the time `back` before 1970, with the seconds rounded down.
fn before_epoch(back: Duration) -> Timestamp {
    let secs = -back.as_secs().cast_signed();
    match back.subsec_nanos() {
        0 => Timestamp { secs, nanos: 0 },
        nanos => Timestamp { secs: secs - 1, nanos: 1_000_000_000 - nanos },
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let secs = Duration::from_secs(time.secs.unsigned_abs());
        let base = if time.secs < 0 { UNIX_EPOCH.checked_sub(secs) } else { UNIX_EPOCH.checked_add(secs) };
        base.and_then(|base| base.checked_add(Duration::from_nanos(time.nanos.into()))).unwrap_or(UNIX_EPOCH)
    }
}

/// Attributes of an inode, as `stat` reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The inode; its number is the inode number.
    pub file: FileId,
    /// Type of the inode.
    pub kind: Kind,
    /// Length in bytes; of a directory, its number of entries.
    pub size: u64,
    /// Space that it uses in the pool, approximately, bytes: the whole 4 KiB pages of written
    /// stripes; 0 for a bound file.
    pub allocated: u64,
    /// Permission bits, 07777.
    pub mode: u32,
    /// Link count; of a directory, 2 plus the number of its subdirectories.
    pub links: u32,
    /// Owner.
    pub owner: Owner,
    /// Last read (atime), updated as `relatime` does.
    pub accessed: Timestamp,
    /// Last change of the bytes or entries (mtime).
    pub modified: Timestamp,
    /// Last change of anything (ctime).
    pub changed: Timestamp,
    /// Creation time.
    pub created: Timestamp,
    /// Version: grows with each change of the bytes or entries; 0 for a split directory. Changes in
    /// quick succession may have the same time, but each has its own version.
    pub version: u64,
    /// The extent that holds all bytes of an extent file. Size, `allocated` and times were then
    /// read from the extent a moment ago.
    pub extent: Option<Extent>,
    /// True if the caller may cache the attributes until they are invalidated.
    pub cacheable: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeChange {
    /// The node's clock when it applies the change.
    Now,
    /// This time.
    At(Timestamp),
}

/// Attributes to change at once; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Permission bits, 07777.
    pub mode: Option<u32>,
    /// User id.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Length in bytes: truncates the file, or extends it by a hole.
    pub size: Option<u64>,
    /// Last read (atime).
    pub accessed: Option<TimeChange>,
    /// Last change of the bytes (mtime).
    pub modified: Option<TimeChange>,
    /// Clears the set-id bits: the caller is not privileged. A change of the owner keeps the
    /// set-group-id bit if the group may not execute the file.
    pub kill_set_id: bool,
}

/// Flags of an open.
#[expect(clippy::struct_excessive_bools, reason = "the flags of open(2), one each")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpenFlags {
    /// `O_RDONLY`, `O_RDWR`.
    pub read: bool,
    /// `O_WRONLY`, `O_RDWR`.
    pub write: bool,
    /// `O_APPEND`: every write goes to the end of the file, whatever its offset.
    pub append: bool,
    /// `O_TRUNC`.
    pub truncate: bool,
    /// `O_EXCL`: creating fails if the file exists.
    pub exclusive: bool,
    /// True if the caller can use a backing file (`vfs.backing`). A new file, or a small one opened
    /// for writing, then becomes an extent file if the node has a free extent.
    pub use_extent: bool,
    /// True if truncating by this open clears the set-id bits, as [`Changes::kill_set_id`] does.
    pub kill_set_id: bool,
}

impl OpenFlags {
    /// Read only.
    pub const READ: Self = Self {
        read: true,
        write: false,
        append: false,
        truncate: false,
        exclusive: false,
        use_extent: false,
        kill_set_id: false,
    };
    /// Write only.
    pub const WRITE: Self = Self { read: false, write: true, ..Self::READ };
    /// Read and write.
    pub const READ_WRITE: Self = Self { write: true, ..Self::READ };
    /// Append only.
    pub const APPEND: Self = Self { append: true, ..Self::WRITE };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_survive_the_way_to_the_system_and_back() {
        for time in [(0, 0), (1, 5), (-1, 999_999_999), (-1, 0), (1_700_000_000, 123_456_789)] {
            let time = Timestamp { secs: time.0, nanos: time.1 };
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
    }
}
