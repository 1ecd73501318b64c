//! Between the kernel's words and the pool's: attributes, kinds, times, flags.

use kernel::{SetTime, Setattr, Time};
use placement::FileId;
use rustix::fs::{OFlags, RenameFlags};
use wire::{Attributes, Changes, Kind, Object, OpenFlags, Outcome, Refusal, RenameMode, TimeChange, Timestamp};

/// What `st_blksize` says: libraries size their buffers by it, and every write of theirs is a round trip to us. Larger ones are
/// wasted on programs that read a little here and there.
const PREFERRED_BYTES: u32 = 128 << 10;
/// `st_blocks` counts in these, whatever the file system.
const BLOCK_BYTES: u64 = 512;
/// The twelve bits of a mode that are permissions.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// Inode numbers are file ids.
pub(crate) fn file(inode: u64) -> FileId {
    FileId(inode)
}

/// What `stat` shows.
pub(crate) fn attributes(found: &Attributes) -> kernel::Attributes {
    kernel::Attributes {
        inode: found.file.0,
        size: found.size,
        blocks: found.allocated.div_ceil(BLOCK_BYTES),
        accessed: time(found.accessed),
        modified: time(found.modified),
        changed: time(found.changed),
        mode: kind_bits(found.kind) | (found.mode & PERMISSIONS),
        links: found.links,
        uid: found.owner.uid,
        gid: found.owner.gid,
        device: device(found.kind),
        block_size: PREFERRED_BYTES,
    }
}

/// The type as `st_mode` holds it.
pub(crate) fn kind_bits(kind: Kind) -> u32 {
    file_type(kind).as_raw_mode()
}

/// What a later version of the pool adds shows as a file.
fn file_type(kind: Kind) -> rustix::fs::FileType {
    match kind {
        Kind::Directory => rustix::fs::FileType::Directory,
        Kind::Symlink => rustix::fs::FileType::Symlink,
        Kind::Fifo => rustix::fs::FileType::Fifo,
        Kind::Socket => rustix::fs::FileType::Socket,
        Kind::CharDevice(_) => rustix::fs::FileType::CharacterDevice,
        Kind::BlockDevice(_) => rustix::fs::FileType::BlockDevice,
        _ => rustix::fs::FileType::RegularFile,
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
pub(crate) fn open_flags(flags: u32) -> OpenFlags {
    let flags = OFlags::from_bits_retain(flags);
    let mode = flags & OFlags::RWMODE;
    OpenFlags {
        read: mode != OFlags::WRONLY,
        write: mode != OFlags::RDONLY,
        append: flags.contains(OFlags::APPEND),
        truncate: flags.contains(OFlags::TRUNC),
        exclusive: flags.contains(OFlags::EXCL),
        ..OpenFlags::default()
    }
}

/// What renameat2(2) was asked for. Whiteouts belong to overlays.
pub(crate) fn rename_mode(flags: u32) -> Outcome<RenameMode> {
    let flags = RenameFlags::from_bits_retain(flags);
    match flags {
        _ if flags.is_empty() => Ok(RenameMode::Replace),
        RenameFlags::NOREPLACE => Ok(RenameMode::NoReplace),
        RenameFlags::EXCHANGE => Ok(RenameMode::Exchange),
        _ => Err(Refusal::invalid(Object::Pool, "a rename either keeps or exchanges what is there")),
    }
}

/// What chmod, chown, utimens and truncate change.
pub(crate) fn changes(wanted: &Setattr) -> Changes {
    Changes {
        mode: wanted.mode.map(|mode| mode & PERMISSIONS),
        uid: wanted.uid,
        gid: wanted.gid,
        size: wanted.size,
        accessed: wanted.accessed.map(time_change),
        modified: wanted.modified.map(time_change),
        kill_set_id: wanted.kill_set_id,
    }
}

fn time_change(time: SetTime) -> TimeChange {
    match time {
        SetTime::Now => TimeChange::Now,
        SetTime::At(Time { seconds, nanoseconds }) => TimeChange::At(Timestamp { secs: seconds, nanos: nanoseconds }),
    }
}

/// A moment in the kernel's words.
pub(crate) fn time(moment: Timestamp) -> Time {
    Time { seconds: moment.secs, nanoseconds: moment.nanos }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_1970_arrives_as_it_was_sent() {
        let sent = Time { seconds: -2, nanoseconds: 300_000_000 };
        let moment = Timestamp { secs: -2, nanos: 300_000_000 };
        assert_eq!(time_change(SetTime::At(sent)), TimeChange::At(moment));
        assert_eq!(time(moment), sent);
    }

    #[test]
    fn open_flags_say_what_open_was_asked() {
        let flags = open_flags((OFlags::WRONLY | OFlags::APPEND | OFlags::EXCL).bits());
        assert_eq!(flags, OpenFlags { exclusive: true, ..OpenFlags::APPEND });
        assert_eq!(open_flags(0), OpenFlags::READ);
        let flags = open_flags((OFlags::RDWR | OFlags::TRUNC).bits());
        assert_eq!(flags, OpenFlags { truncate: true, ..OpenFlags::READ_WRITE });
    }

    #[test]
    fn a_mode_has_type_and_permissions() {
        assert_eq!(kind_bits(Kind::Directory), 0o040_000);
        assert_eq!(kind_bits(Kind::File), 0o100_000);
        assert_eq!(node_kind(0o010_644, 0), Ok(Kind::Fifo));
        assert!(node_kind(0o040_755, 0).is_err());
    }
}
