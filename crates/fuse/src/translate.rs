//! Between the kernel's words and the pool's: attributes, kinds, times, flags.

use std::time::{SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, OpenAccMode, RenameFlags, TimeOrNow};
use placement::FileId;
use wire::{Attributes, Kind, Object, OpenFlags, Outcome, Owner, Refusal, RenameMode, TimeChange, Timestamp};

/// What `st_blksize` says: libraries size their buffers by it, and every write of theirs is a round trip to us. Larger ones are
/// wasted on programs that read a little here and there.
const PREFERRED_BYTES: u32 = 128 << 10;
/// `st_blocks` counts in these, whatever the file system.
const BLOCK_BYTES: u64 = 512;

/// `O_APPEND`, `O_TRUNC`, `O_EXCL` of Linux.
const APPEND: i32 = rustix::fs::OFlags::APPEND.bits().cast_signed();
const TRUNCATE: i32 = rustix::fs::OFlags::TRUNC.bits().cast_signed();
const EXCLUSIVE: i32 = rustix::fs::OFlags::EXCL.bits().cast_signed();

/// Inode numbers are file ids.
pub(crate) fn file(inode: INodeNo) -> FileId {
    FileId(inode.0)
}

/// Whose a new file is: the caller's.
pub(crate) fn owner(request: &fuser::Request) -> Owner {
    Owner { uid: request.uid(), gid: request.gid() }
}

/// What `stat` shows.
pub(crate) fn attributes(found: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(found.file.0),
        size: found.size,
        blocks: found.allocated.div_ceil(BLOCK_BYTES),
        atime: found.accessed.into(),
        mtime: found.modified.into(),
        ctime: found.changed.into(),
        crtime: found.created.into(),
        kind: kind(found.kind),
        perm: u16::try_from(found.mode & 0o7777).expect("twelve bits fit"),
        nlink: found.links,
        uid: found.owner.uid,
        gid: found.owner.gid,
        rdev: device(found.kind),
        blksize: PREFERRED_BYTES,
        flags: 0,
    }
}

/// The type as the kernel names it. What a later version of the pool adds shows as a file.
pub(crate) fn kind(kind: Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice(_) => FileType::CharDevice,
        Kind::BlockDevice(_) => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn device(kind: Kind) -> u32 {
    match kind {
        Kind::CharDevice(number) | Kind::BlockDevice(number) => number,
        _ => 0,
    }
}

/// What mknod(2) is asked to make, by the type bits of `mode`.
pub(crate) fn node_kind(mode: u32, device: u32) -> Outcome<Kind> {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::RegularFile => Ok(Kind::File),
        rustix::fs::FileType::Fifo => Ok(Kind::Fifo),
        rustix::fs::FileType::Socket => Ok(Kind::Socket),
        rustix::fs::FileType::CharacterDevice => Ok(Kind::CharDevice(device)),
        rustix::fs::FileType::BlockDevice => Ok(Kind::BlockDevice(device)),
        _ => Err(Refusal::invalid(Object::Pool, "mknod makes files, pipes, sockets and devices")),
    }
}

/// The flags of open(2) that matter to the pool.
pub(crate) fn open_flags(flags: i32) -> OpenFlags {
    let mode = fuser::OpenFlags(flags).acc_mode();
    OpenFlags {
        read: mode != OpenAccMode::O_WRONLY,
        write: mode != OpenAccMode::O_RDONLY,
        append: flags & APPEND != 0,
        truncate: flags & TRUNCATE != 0,
        exclusive: flags & EXCLUSIVE != 0,
        whole: false,
        kill_set_id: false,
    }
}

/// What renameat2(2) was asked for. Whiteouts belong to overlays.
pub(crate) fn rename_mode(flags: RenameFlags) -> Outcome<RenameMode> {
    match flags {
        _ if flags.is_empty() => Ok(RenameMode::Replace),
        RenameFlags::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        RenameFlags::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        _ => Err(Refusal::invalid(Object::Pool, "a rename either keeps or exchanges what is there")),
    }
}

/// A time to set.
pub(crate) fn time_change(time: TimeOrNow) -> TimeChange {
    match time {
        TimeOrNow::Now => TimeChange::Now,
        TimeOrNow::SpecificTime(time) => TimeChange::At(timestamp(time)),
    }
}

/// fuser makes the time -2 s + 0.3 s as 1970 minus 2.3 s, so before 1970 seconds and nanoseconds are taken apart as it put
/// them together.
fn timestamp(time: SystemTime) -> Timestamp {
    match UNIX_EPOCH.duration_since(time) {
        Ok(before) if !before.is_zero() => {
            Timestamp { secs: -before.as_secs().cast_signed(), nanos: before.subsec_nanos() }
        }
        _ => time.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_time_before_1970_arrives_as_it_was_sent() {
        // As fuser 0.18 hands over tv_sec = -2, tv_nsec = 300,000,000.
        let handed = UNIX_EPOCH - Duration::new(2, 300_000_000);
        assert_eq!(
            time_change(TimeOrNow::SpecificTime(handed)),
            TimeChange::At(Timestamp { secs: -2, nanos: 300_000_000 })
        );
        let after = UNIX_EPOCH + Duration::new(2, 300_000_000);
        assert_eq!(
            time_change(TimeOrNow::SpecificTime(after)),
            TimeChange::At(Timestamp { secs: 2, nanos: 300_000_000 })
        );
    }

    #[test]
    fn open_flags_say_what_open_was_asked() {
        let flags = open_flags(1 | APPEND | EXCLUSIVE);
        assert_eq!(flags, OpenFlags { exclusive: true, ..OpenFlags::APPEND });
        assert_eq!(open_flags(0), OpenFlags::READ);
        assert_eq!(open_flags(2 | TRUNCATE), OpenFlags { truncate: true, ..OpenFlags::READ_WRITE });
    }
}
