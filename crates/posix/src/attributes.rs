//! Calls that read and change attributes: stat, access, chmod, chown, times, truncate.

use crate::access::{self, WRITE};
use crate::fd_table::OpenDescription;
use crate::resolve::{Destination, LastMode};
use crate::{Caller, Errno, PathArg, PathBase, PosixProcess};
use placement::FileId;
use rustix::fs::{Access, AtFlags, FileType, OFlags, Timespec, UTIME_NOW, UTIME_OMIT};
use rustix::thread::CapabilitySet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use wire::{Attributes, Changes, Kind, TimeChange, Timestamp};

/// Flags by which every call here can name a file.
const LOOKUP_FLAGS: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::EMPTY_PATH);
/// Device number of the pool: of the anonymous devices (major 0), a minor that the kernel will not
/// assign soon.
const DEVICE: (u32, u32) = (0, 0x7_d1de);
/// `st_blksize`, by which programs size their buffers; a mount of the pool reports the same.
const PREFERRED_BYTES: u32 = 128 << 10;
/// Unit of `st_blocks` on every file system, in bytes.
const BLOCK_BYTES: u64 = 512;

/// Attributes that stat(2) and statx(2) return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Device: major and minor.
    pub device: (u32, u32),
    /// Inode number: the file's id.
    pub inode: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Device number of a device file.
    pub special: (u32, u32),
    /// Size in bytes.
    pub size: i64,
    /// Preferred size of reads and writes, in bytes.
    pub block_bytes: u32,
    /// Allocated blocks of 512 bytes.
    pub blocks: i64,
    /// Time of the last read: seconds and nanoseconds.
    pub accessed: (i64, i64),
    /// Time of the last change of the bytes.
    pub modified: (i64, i64),
    /// Time of the last change of bytes or attributes.
    pub changed: (i64, i64),
    /// Creation time; 0 for a file of the host.
    pub created: (i64, i64),
}

impl From<&Attributes> for Stat {
    fn from(found: &Attributes) -> Self {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let time = |time: Timestamp| (time.secs, i64::from(time.nanos));
        let special = match found.kind {
            Kind::CharDevice(number) | Kind::BlockDevice(number) => {
                (rustix::fs::major(number.into()), rustix::fs::minor(number.into()))
            }
            _ => (0, 0),
        };
        Self {
            device: DEVICE,
            inode: found.file.0,
            mode: file_type(found.kind).as_raw_mode() | (found.mode & 0o7777),
            links: found.links,
            uid: found.owner.uid,
            gid: found.owner.gid,
            special,
            size: signed(found.size),
            block_bytes: PREFERRED_BYTES,
            blocks: signed(found.allocated.div_ceil(BLOCK_BYTES)),
            accessed: time(found.accessed),
            modified: time(found.modified),
            changed: time(found.changed),
            created: time(found.created),
        }
    }
}

impl From<&rustix::fs::Stat> for Stat {
    fn from(found: &rustix::fs::Stat) -> Self {
        let nanos = |nanos: u64| i64::try_from(nanos).unwrap_or(0);
        Self {
            device: (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev)),
            inode: found.st_ino,
            mode: found.st_mode,
            links: u32::try_from(found.st_nlink).unwrap_or(u32::MAX),
            uid: found.st_uid,
            gid: found.st_gid,
            special: (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev)),
            size: found.st_size,
            block_bytes: u32::try_from(found.st_blksize).unwrap_or(PREFERRED_BYTES),
            blocks: found.st_blocks,
            accessed: (found.st_atime, nanos(found.st_atime_nsec)),
            modified: (found.st_mtime, nanos(found.st_mtime_nsec)),
            changed: (found.st_ctime, nanos(found.st_ctime_nsec)),
            created: (0, 0),
        }
    }
}

/// Returns the file type of a kind. A kind that a later version of the pool adds shows as a regular
/// file.
pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice(_) => FileType::CharacterDevice,
        Kind::BlockDevice(_) => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// Times for utimensat(2): seconds and nanoseconds, which may be `UTIME_NOW` or `UTIME_OMIT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileTimes {
    /// Time of the last read.
    pub accessed: (i64, i64),
    /// Time of the last change of the bytes.
    pub modified: (i64, i64),
}

const SPECIAL_NANOS: (i64, i64) = (UTIME_NOW, UTIME_OMIT);

impl FileTimes {
    /// Sets both times to now.
    pub const NOW: Self = Self { accessed: (0, SPECIAL_NANOS.0), modified: (0, SPECIAL_NANOS.0) };

    fn changes(self) -> Result<(Option<TimeChange>, Option<TimeChange>), Errno> {
        Ok((time_change(self.accessed)?, time_change(self.modified)?))
    }

    fn host(self) -> rustix::fs::Timestamps {
        let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
        rustix::fs::Timestamps { last_access: time(self.accessed), last_modification: time(self.modified) }
    }
}

fn time_change((secs, nanos): (i64, i64)) -> Result<Option<TimeChange>, Errno> {
    match nanos {
        _ if nanos == SPECIAL_NANOS.0 => Ok(Some(TimeChange::Now)),
        _ if nanos == SPECIAL_NANOS.1 => Ok(None),
        0..=999_999_999 => Ok(Some(TimeChange::At(Timestamp { secs, nanos: u32::try_from(nanos).unwrap_or(0) }))),
        _ => Err(Errno::INVAL),
    }
}

/// File that an attribute call refers to: one of the pool, or a path of the host that a symlink led
/// to.
enum AttrTarget {
    Pool(Attributes),
    Host(std::ffi::CString),
}

impl PosixProcess {
    /// stat(2), lstat(2) and fstat(2): `SYMLINK_NOFOLLOW` for lstat, `EMPTY_PATH` for an open file.
    ///
    /// # Errors
    /// As the calls it implements.
    pub fn stat(&self, arg: PathArg<'_>, flags: AtFlags) -> Result<Stat, Errno> {
        crate::check_flags(
            flags,
            LOOKUP_FLAGS | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_FORCE_SYNC | AtFlags::STATX_DONT_SYNC,
        )?;
        let caller = Caller::effective();
        self.wait(async {
            match self.attr_target(&caller, arg, flags).await? {
                AttrTarget::Pool(found) => Ok(Stat::from(&found)),
                AttrTarget::Host(path) => {
                    rustix::fs::statat(rustix::fs::CWD, path, flags).map(|found| Stat::from(&found))
                }
            }
        })
    }

    /// access(2) for the real user, or for the effective user with `EACCESS`.
    ///
    /// # Errors
    /// As faccessat(2).
    pub fn access(&self, arg: PathArg<'_>, wanted: Access, flags: AtFlags) -> Result<(), Errno> {
        crate::check_flags(flags, LOOKUP_FLAGS | AtFlags::EACCESS)?;
        let caller = if flags.contains(AtFlags::EACCESS) { Caller::effective() } else { Caller::real() };
        self.wait(async {
            match self.attr_target(&caller, arg, flags).await? {
                AttrTarget::Pool(found) => self.resolver(&caller).check_access(&found, wanted.bits() & 7).await,
                AttrTarget::Host(path) => rustix::fs::accessat(rustix::fs::CWD, path, wanted, flags),
            }
        })
    }

    /// chmod(2) and fchmod(2).
    ///
    /// # Errors
    /// As fchmodat(2).
    pub fn chmod(&self, arg: PathArg<'_>, mode: u32, flags: AtFlags) -> Result<(), Errno> {
        crate::check_flags(flags, LOOKUP_FLAGS)?;
        let caller = Caller::effective();
        self.wait(async {
            if let Some(open) =
                self.privileged_open(&caller, arg, flags, CapabilitySet::FOWNER | CapabilitySet::FSETID)?
            {
                return self
                    .set_attributes(open.file, Changes { mode: Some(mode & 0o7777), ..Changes::default() })
                    .await;
            }
            let found = match self.attr_target(&caller, arg, flags).await? {
                AttrTarget::Pool(found) => found,
                AttrTarget::Host(path) => {
                    return rustix::fs::chmodat(rustix::fs::CWD, path, mode.into(), AtFlags::empty());
                }
            };
            if found.kind == Kind::Symlink {
                return Err(Errno::OPNOTSUPP);
            }
            let mode = access::new_mode(&found, &caller, mode)?;
            self.set_attributes(found.file, Changes { mode: Some(mode), ..Changes::default() }).await
        })
    }

    /// chown(2), lchown(2) and fchown(2). An id with all bits set leaves the owner or group
    /// unchanged.
    ///
    /// # Errors
    /// As fchownat(2).
    pub fn chown(&self, arg: PathArg<'_>, uid: u32, gid: u32, flags: AtFlags) -> Result<(), Errno> {
        crate::check_flags(flags, LOOKUP_FLAGS)?;
        let caller = Caller::effective();
        let (uid, gid) = (Some(uid).filter(|uid| *uid != u32::MAX), Some(gid).filter(|gid| *gid != u32::MAX));
        self.wait(async {
            if let Some(open) = self.privileged_open(&caller, arg, flags, CapabilitySet::CHOWN)? {
                let kill_set_id = open.kind != crate::FdKind::Directory;
                return self.set_attributes(open.file, Changes { uid, gid, kill_set_id, ..Changes::default() }).await;
            }
            let found = match self.attr_target(&caller, arg, flags).await? {
                AttrTarget::Pool(found) => found,
                AttrTarget::Host(path) => {
                    let (uid, gid) = (uid.map(rustix::fs::Uid::from_raw), gid.map(rustix::fs::Gid::from_raw));
                    return rustix::fs::chownat(rustix::fs::CWD, path, uid, gid, flags);
                }
            };
            access::check_chown(&found, &caller, uid, gid)?;
            let kill_set_id = found.kind != Kind::Directory;
            self.set_attributes(found.file, Changes { uid, gid, kill_set_id, ..Changes::default() }).await
        })
    }

    /// utimensat(2) and futimens(3).
    ///
    /// # Errors
    /// As the calls it implements.
    pub fn set_times(&self, arg: PathArg<'_>, times: FileTimes, flags: AtFlags) -> Result<(), Errno> {
        crate::check_flags(flags, LOOKUP_FLAGS)?;
        let caller = Caller::effective();
        let (accessed, modified) = times.changes()?;
        self.wait(async {
            if let Some(open) = self.privileged_open(&caller, arg, flags, CapabilitySet::FOWNER)? {
                return self.set_attributes(open.file, Changes { accessed, modified, ..Changes::default() }).await;
            }
            let found = match self.attr_target(&caller, arg, flags).await? {
                AttrTarget::Pool(found) => found,
                AttrTarget::Host(path) => return rustix::fs::utimensat(rustix::fs::CWD, path, &times.host(), flags),
            };
            if accessed.is_none() && modified.is_none() {
                return Ok(());
            }
            if !access::is_owner(&found, &caller) {
                let both_now = accessed == Some(TimeChange::Now) && modified == Some(TimeChange::Now);
                if !both_now {
                    return Err(Errno::PERM);
                }
                self.resolver(&caller).check_access(&found, WRITE).await?;
            }
            self.set_attributes(found.file, Changes { accessed, modified, ..Changes::default() }).await
        })
    }

    /// truncate(2).
    ///
    /// # Errors
    /// As truncate(2).
    pub fn truncate(&self, arg: PathArg<'_>, bytes: i64) -> Result<(), Errno> {
        let caller = Caller::effective();
        let size = u64::try_from(bytes).map_err(|_| Errno::INVAL)?;
        self.wait(async {
            let found = match self.attr_target(&caller, arg, AtFlags::empty()).await? {
                AttrTarget::Pool(found) => found,
                AttrTarget::Host(path) => {
                    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, 0.into())?;
                    return rustix::fs::ftruncate(file, size);
                }
            };
            match found.kind {
                Kind::File => {}
                Kind::Directory => return Err(Errno::ISDIR),
                _ => return Err(Errno::INVAL),
            }
            self.resolver(&caller).check_access(&found, WRITE).await?;
            self.set_length(&caller, &found, size).await
        })
    }

    /// Sets the size, without a permission check.
    pub(crate) async fn set_length(&self, caller: &Caller, found: &Attributes, size: u64) -> Result<(), Errno> {
        let kill_set_id = !caller.can(CapabilitySet::FSETID);
        self.set_attributes(found.file, Changes { size: Some(size), kill_set_id, ..Changes::default() }).await
    }

    async fn set_attributes(&self, file: FileId, changes: Changes) -> Result<(), Errno> {
        let changed = self.client.change_attributes(file, changes).await;
        changed.map(drop).map_err(|refusal| crate::errno(&refusal))
    }

    /// Returns the open file if the call refers to a descriptor and the caller has capability
    /// `may`, which permits the change on any file. The file's attributes need not be queried then.
    fn privileged_open(
        &self,
        caller: &Caller,
        arg: PathArg<'_>,
        flags: AtFlags,
        may: CapabilitySet,
    ) -> Result<Option<Arc<OpenDescription>>, Errno> {
        match arg.base {
            PathBase::Descriptor(descriptor)
                if arg.path.is_empty() && flags.contains(AtFlags::EMPTY_PATH) && caller.can(may) =>
            {
                self.table.get(descriptor).map(Some)
            }
            _ => Ok(None),
        }
    }

    async fn attr_target(&self, caller: &Caller, arg: PathArg<'_>, flags: AtFlags) -> Result<AttrTarget, Errno> {
        if arg.path.is_empty() && flags.contains(AtFlags::EMPTY_PATH) {
            let found = match arg.base {
                PathBase::Descriptor(descriptor) => self.stat_open(descriptor).await?,
                base => self.resolver(caller).attributes(&self.start(base)?).await?,
            };
            return Ok(AttrTarget::Pool(found));
        }
        match self
            .resolve(
                caller,
                arg,
                if flags.contains(AtFlags::SYMLINK_NOFOLLOW) { LastMode::NoFollow } else { LastMode::Follow },
            )
            .await?
        {
            Destination::Pool(resolved) => resolved.existing().map(|found| AttrTarget::Pool(*found)),
            Destination::Host(path) => Ok(AttrTarget::Host(path)),
        }
    }

    /// Returns the attributes of an open file, which may have no name any more.
    pub(crate) async fn stat_open(&self, descriptor: BorrowedFd<'_>) -> Result<Attributes, Errno> {
        self.stat_description(&*self.table.get(descriptor)?).await
    }

    pub(crate) async fn stat_description(&self, open: &OpenDescription) -> Result<Attributes, Errno> {
        self.client.stat(open.file).await.map_err(|refusal| crate::errno(&refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_has_the_type_bits_of_its_kind_and_the_numbers_of_a_device() {
        let device = u32::try_from(rustix::fs::makedev(5, 300)).unwrap();
        let cases = [
            (Kind::File, 0o100_000, (0, 0)),
            (Kind::Directory, 0o040_000, (0, 0)),
            (Kind::Symlink, 0o120_000, (0, 0)),
            (Kind::Fifo, 0o010_000, (0, 0)),
            (Kind::Socket, 0o140_000, (0, 0)),
            (Kind::CharDevice(device), 0o020_000, (5, 300)),
            (Kind::BlockDevice(device), 0o060_000, (5, 300)),
        ];
        for (kind, type_bits, special) in cases {
            let stat = Stat::from(&Attributes { kind, mode: 0o177_751, ..attributes() });
            assert_eq!((stat.mode, stat.special), (type_bits | 0o7751, special), "{kind:?}");
        }
    }

    #[test]
    fn a_stat_rounds_blocks_up_and_limits_sizes_to_those_of_the_system() {
        for (bytes, blocks) in [(0, 0), (1, 1), (512, 1), (513, 2), (u64::MAX, 1 << 55)] {
            assert_eq!(Stat::from(&Attributes { allocated: bytes, ..attributes() }).blocks, blocks, "{bytes}");
        }
        for (bytes, size) in [(7, 7), (i64::MAX.cast_unsigned(), i64::MAX), (u64::MAX, i64::MAX)] {
            assert_eq!(Stat::from(&Attributes { size: bytes, ..attributes() }).size, size, "{bytes}");
        }
    }

    #[test]
    fn a_time_is_now_or_omitted_or_has_nanoseconds_below_a_second() {
        let time = |secs, nanos| Ok(Some(TimeChange::At(Timestamp { secs, nanos })));
        let cases = [
            ((5, UTIME_NOW), Ok(Some(TimeChange::Now))),
            ((5, UTIME_OMIT), Ok(None)),
            ((-5, 0), time(-5, 0)),
            ((i64::MAX, 999_999_999), time(i64::MAX, 999_999_999)),
            ((0, 1_000_000_000), Err(Errno::INVAL)),
            ((0, -1), Err(Errno::INVAL)),
        ];
        for (asked, expected) in cases {
            assert_eq!(time_change(asked), expected, "{asked:?}");
        }
    }

    fn attributes() -> Attributes {
        let never = Timestamp::default();
        Attributes {
            file: FileId(7),
            kind: Kind::File,
            size: 0,
            allocated: 0,
            mode: 0,
            links: 1,
            owner: wire::Owner { uid: 1, gid: 2 },
            accessed: never,
            modified: never,
            changed: never,
            created: never,
            version: 0,
            extent: None,
            cacheable: false,
        }
    }
}
