//! Translates between the kernel's types and the pool's: attributes, kinds, times, flags.

use fuse_transport::{SetTime, Setattr, Time};
use placement::FileId;
use rustix::fs::{OFlags, RenameFlags};
use wire::{Attributes, Changes, Kind, Object, OpenFlags, Outcome, Refusal, RenameMode, TimeChange, Timestamp};

/// Preferred I/O size (`st_blksize`), bytes. Libraries size their buffers by it, and each of their
/// writes is a round trip to this process. A larger one would be wasted on programs that read a
/// little here and there.
const PREFERRED_BYTES: u32 = 128 << 10;
/// Unit of `st_blocks`, which is independent of the file system.
const BLOCK_BYTES: u64 = 512;
/// The twelve permission bits of a mode.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// File id of an inode number; they are equal.
pub(crate) fn file(inode: u64) -> FileId {
    FileId(inode)
}

/// Attributes as `stat` shows them.
pub(crate) fn attributes(found: &Attributes) -> fuse_transport::FuseAttributes {
    fuse_transport::FuseAttributes {
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

/// Type bits of `st_mode`.
pub(crate) fn kind_bits(kind: Kind) -> u32 {
    file_type(kind).as_raw_mode()
}

/// Type of an inode. A kind that a later version of the pool adds counts as a regular file.
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

/// Kind of the inode that mknod(2) makes, by the type bits of `mode`.
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

/// Flags of open(2) that matter to the pool.
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

/// Mode of a renameat2(2). Whiteouts, which only overlay file systems use, are refused.
pub(crate) fn rename_mode(flags: u32) -> Outcome<RenameMode> {
    let flags = RenameFlags::from_bits_retain(flags);
    match flags {
        _ if flags.is_empty() => Ok(RenameMode::Replace),
        RenameFlags::NOREPLACE => Ok(RenameMode::NoReplace),
        RenameFlags::EXCHANGE => Ok(RenameMode::Exchange),
        _ => Err(Refusal::invalid(Object::Pool, "a rename either keeps or exchanges what is there")),
    }
}

/// Changes by chmod, chown, utimens and truncate.
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

/// Converts a time to the kernel's type.
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
