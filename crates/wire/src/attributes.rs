//! What is known of a file besides its bytes, and what of it may be changed.

use crate::Extent;
use placement::FileId;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Who a file belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Kind {
    /// Bytes.
    File,
    /// Entries.
    Directory,
    /// A path.
    Symlink,
    /// A named pipe; its bytes never reach the pool.
    Fifo,
    /// A Unix socket's name.
    Socket,
    /// A character device with its number (major and minor as in `st_rdev`).
    CharDevice(u32),
    /// A block device with its number.
    BlockDevice(u32),
}

/// A moment of the wall clock; before 1970 the seconds are negative and the nanoseconds still count forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "TimestampAsRead")]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01 UTC.
    pub secs: i64,
    /// Nanoseconds after that, below 1,000,000,000.
    pub nanos: u32,
}

/// A moment as it stands in a message, not yet checked.
#[derive(Deserialize)]
#[serde(rename = "Timestamp")]
struct TimestampAsRead {
    secs: i64,
    nanos: u32,
}

impl TryFrom<TimestampAsRead> for Timestamp {
    type Error = &'static str;

    fn try_from(TimestampAsRead { secs, nanos }: TimestampAsRead) -> Result<Self, Self::Error> {
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

/// `back` before 1970, as seconds that are rounded down.
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

/// What `stat` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The file itself; its number is the inode number.
    pub file: FileId,
    /// What it is.
    pub kind: Kind,
    /// Length in bytes; of a directory, its number of entries.
    pub size: u64,
    /// Bytes of the pool that it holds, about (whole 4 KiB pages of written stripes; 0 for a bound file).
    pub allocated: u64,
    /// Permission bits, 07777.
    pub mode: u32,
    /// Names that refer to it; of a directory, 2 and one for each directory in it.
    pub links: u32,
    /// Whose it is.
    pub owner: Owner,
    /// Last read, as `relatime` keeps it.
    pub accessed: Timestamp,
    /// Last change of the bytes or entries.
    pub modified: Timestamp,
    /// Last change of anything.
    pub changed: Timestamp,
    /// When it was made.
    pub created: Timestamp,
    /// Grows with each change of the bytes or entries; of a split directory, 0. Changes that are made one right after the other have one time,
    /// and each its own number.
    pub version: u64,
    /// Where all its bytes are, when it is whole. Size, `allocated` and times are then what the extent said a moment ago.
    pub whole: Option<Extent>,
    /// Whoever asked may keep them until they are recalled.
    pub lasting: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeChange {
    /// The moment at which the node does it.
    Now,
    /// This one.
    At(Timestamp),
}

/// Attributes to change at once; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Permission bits, 07777.
    pub mode: Option<u32>,
    /// User id.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Length in bytes: truncates, or extends by a hole.
    pub size: Option<u64>,
    /// Last read.
    pub accessed: Option<TimeChange>,
    /// Last change of the bytes.
    pub modified: Option<TimeChange>,
    /// Takes the set-id bits away: who asks is not trusted with them. A change of the owner leaves the set-group-id bit where
    /// the group may not run the file.
    pub kill_set_id: bool,
}

/// How a file is opened.
#[expect(clippy::struct_excessive_bools, reason = "the flags of open(2), one each")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpenFlags {
    /// `O_RDONLY`, `O_RDWR`.
    pub read: bool,
    /// `O_WRONLY`, `O_RDWR`.
    pub write: bool,
    /// `O_APPEND`: every write goes to the end, wherever it was meant to go.
    pub append: bool,
    /// `O_TRUNC`.
    pub truncate: bool,
    /// `O_EXCL`: creating refuses what exists.
    pub exclusive: bool,
    /// The caller can use a backing file (`vfs.backing`): a new file, and a small one opened for writing, shall be whole if
    /// the node has an extent for it.
    pub whole: bool,
    /// Truncating by this open takes the set-id bits away, as [`Changes::kill_set_id`] does.
    pub kill_set_id: bool,
}

impl OpenFlags {
    /// For reading only.
    pub const READ: Self = Self {
        read: true,
        write: false,
        append: false,
        truncate: false,
        exclusive: false,
        whole: false,
        kill_set_id: false,
    };
    /// For writing only.
    pub const WRITE: Self = Self { read: false, write: true, ..Self::READ };
    /// For reading and writing.
    pub const READ_WRITE: Self = Self { write: true, ..Self::READ };
    /// For writing at the end.
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
