//! Decoding of requests. All reads are bounds-checked; a malformed message gives `None`, never a
//! panic.
//!
//! The kernel is trusted, but a message that is not understood must fail one operation (EIO), not
//! the mount.

use crate::{
    abi::{IN_HEADER, bit, fattr, op},
    buffer_pool::WriteData,
    request::{FuseOp, FuseRequest, Setattr},
    types::{FuseLock, FuseLockKind, SetTime, Time},
};

/// The header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) inode: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl Header {
    /// Splits a message into header and body. `None` if the length field differs from the length
    /// read.
    pub(crate) fn split(message: &[u8]) -> Option<(Self, &[u8])> {
        let mut from = Fields(message);
        let length = from.u32()? as usize;
        let header = Self {
            opcode: from.u32()?,
            unique: from.u64()?,
            inode: from.u64()?,
            uid: from.u32()?,
            gid: from.u32()?,
            pid: from.u32()?,
        };
        from.u32()?;
        debug_assert_eq!(message.len() - from.0.len(), IN_HEADER, "the header's length");
        (length == message.len()).then_some((header, from.0))
    }

    /// Decodes the request; `None` if the body does not match the opcode.
    pub(crate) fn request(self, body: &[u8]) -> Option<FuseRequest<'_>> {
        let Self { opcode, unique, inode, uid, gid, pid } = self;
        Some(FuseRequest { unique, inode, uid, gid, pid, operation: operation(opcode, body)? })
    }
}

/// A reader that takes fields from the front of a message.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    fn bytes(&mut self, length: u32) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        Some(first)
    }

    /// Takes a name terminated by NUL; `None` if it is empty.
    fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let (name, rest) = (&self.0[..end], &self.0[end + 1..]);
        self.0 = rest;
        (!name.is_empty()).then_some(name)
    }
}

fn operation(opcode: u32, body: &[u8]) -> Option<FuseOp<'_>> {
    let mut from = Fields(body);
    let from = &mut from;
    Some(match opcode {
        op::LOOKUP => FuseOp::Lookup { name: from.name()? },
        op::GETATTR => getattr(from)?,
        op::SETATTR => FuseOp::Setattr(setattr(from)?),
        op::READLINK => FuseOp::Readlink,
        op::SYMLINK => FuseOp::Symlink { name: from.name()?, target: from.name()? },
        op::MKNOD => mknod(from)?,
        op::MKDIR => {
            let (mode, umask) = (from.u32()?, from.u32()?);
            FuseOp::Mkdir { name: from.name()?, mode, umask }
        }
        op::UNLINK => FuseOp::Unlink { name: from.name()? },
        op::RMDIR => FuseOp::Rmdir { name: from.name()? },
        op::RENAME => rename(from, false)?,
        op::RENAME2 => rename(from, true)?,
        op::LINK => FuseOp::Link { inode: from.u64()?, new_name: from.name()? },
        op::OPEN => FuseOp::Open { flags: from.u32()?, kill_set_id: from.u32()? & bit::OPEN_KILL_SUIDGID != 0 },
        op::CREATE => create(from)?,
        op::TMPFILE => tmpfile(from)?,
        op::READ => read(from)?,
        op::WRITE => write(from)?,
        op::STATFS => FuseOp::Statfs,
        op::RELEASE => release(from)?,
        op::RELEASEDIR => FuseOp::Releasedir { handle: from.u64()?, flags: from.u32()? },
        op::FSYNC => FuseOp::Fsync { handle: from.u64()?, data_only: from.u32()? & bit::FSYNC_FDATASYNC != 0 },
        op::FSYNCDIR => FuseOp::Fsyncdir { handle: from.u64()?, data_only: from.u32()? & bit::FSYNC_FDATASYNC != 0 },
        op::FLUSH => {
            let handle = from.u64()?;
            from.u64()?;
            FuseOp::Flush { handle, lock_owner: from.u64()? }
        }
        op::SETXATTR => setxattr(from)?,
        op::GETXATTR => {
            let size = from.u32()?;
            from.u32()?;
            FuseOp::Getxattr { name: from.name()?, size }
        }
        op::LISTXATTR => FuseOp::Listxattr { size: from.u32()? },
        op::REMOVEXATTR => FuseOp::Removexattr { name: from.name()? },
        op::OPENDIR => FuseOp::Opendir { flags: from.u32()? },
        op::READDIR => readdir(from, false)?,
        op::READDIRPLUS => readdir(from, true)?,
        op::GETLK => {
            let (handle, owner, lock, flock) = lock_fields(from)?;
            FuseOp::Getlk { handle, owner, lock, flock }
        }
        op::SETLK | op::SETLKW => {
            let (handle, owner, lock, flock) = lock_fields(from)?;
            FuseOp::Setlk { handle, owner, lock, flock, wait: opcode == op::SETLKW }
        }
        op::ACCESS => FuseOp::Access { mask: from.u32()? },
        op::FALLOCATE => {
            FuseOp::Fallocate { handle: from.u64()?, offset: from.u64()?, length: from.u64()?, mode: from.u32()? }
        }
        op::LSEEK => FuseOp::Lseek { handle: from.u64()?, offset: from.u64()?, whence: from.u32()? },
        op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => copy_file_range(from)?,
        op::STATX => statx(from)?,
        op::SYNCFS => FuseOp::Syncfs,
        op::POLL => poll(from)?,
        op::IOCTL => ioctl(from)?,
        unknown => FuseOp::Unknown(unknown),
    })
}

fn getattr<'a>(from: &mut Fields<'a>) -> Option<FuseOp<'a>> {
    let flags = from.u32()?;
    from.u32()?;
    let handle = from.u64()?;
    Some(FuseOp::Getattr { handle: (flags & bit::GETATTR_FH != 0).then_some(handle) })
}

fn setattr(from: &mut Fields<'_>) -> Option<Setattr> {
    let valid = from.u32()?;
    let has = |flag: u32| valid & flag != 0;
    from.u32()?;
    let (handle, size, lock_owner) = (from.u64()?, from.u64()?, from.u64()?);
    let seconds = [from.u64()?, from.u64()?, from.u64()?];
    let nanoseconds = [from.u32()?, from.u32()?, from.u32()?];
    let mode = from.u32()?;
    from.u32()?;
    let (uid, gid) = (from.u32()?, from.u32()?);
    let time = |at: usize| Time { seconds: seconds[at].cast_signed(), nanoseconds: nanoseconds[at] };
    let set = |at: usize, flag: u32, now: u32| {
        has(flag | now).then(|| if has(now) { SetTime::Now } else { SetTime::At(time(at)) })
    };
    Some(Setattr {
        mode: has(fattr::MODE).then_some(mode),
        uid: has(fattr::UID).then_some(uid),
        gid: has(fattr::GID).then_some(gid),
        size: has(fattr::SIZE).then_some(size),
        accessed: set(0, fattr::ATIME, fattr::ATIME_NOW),
        modified: set(1, fattr::MTIME, fattr::MTIME_NOW),
        changed: has(fattr::CTIME).then(|| time(2)),
        handle: has(fattr::FH).then_some(handle),
        lock_owner: has(fattr::LOCKOWNER).then_some(lock_owner),
        kill_set_id: has(fattr::KILL_SUIDGID),
    })
}

fn mknod<'a>(from: &mut Fields<'a>) -> Option<FuseOp<'a>> {
    let (mode, device, umask) = (from.u32()?, from.u32()?, from.u32()?);
    from.u32()?;
    Some(FuseOp::Mknod { name: from.name()?, mode, umask, device })
}

fn rename<'a>(from: &mut Fields<'a>, with_flags: bool) -> Option<FuseOp<'a>> {
    let new_parent = from.u64()?;
    let flags = if with_flags { from.u64()? & u64::from(u32::MAX) } else { 0 };
    let (name, new_name) = (from.name()?, from.name()?);
    Some(FuseOp::Rename { name, new_parent, new_name, flags: u32::try_from(flags).ok()? })
}

fn create<'a>(from: &mut Fields<'a>) -> Option<FuseOp<'a>> {
    let (flags, mode, umask, open) = (from.u32()?, from.u32()?, from.u32()?, from.u32()?);
    let kill_set_id = open & bit::OPEN_KILL_SUIDGID != 0;
    Some(FuseOp::Create { name: from.name()?, flags, mode, umask, kill_set_id })
}

/// Decodes TMPFILE, which has the layout of CREATE. Its name is a constant of the kernel and
/// ignored.
fn tmpfile<'a>(from: &mut Fields<'a>) -> Option<FuseOp<'a>> {
    Some(FuseOp::Tmpfile { flags: from.u32()?, mode: from.u32()?, umask: from.u32()? })
}

fn read<'a>(from: &mut Fields<'a>) -> Option<FuseOp<'a>> {
    let (handle, offset, size, bits) = (from.u64()?, from.u64()?, from.u32()?, from.u32()?);
    let (owner, flags) = (from.u64()?, from.u32()?);
    let lock_owner = (bits & bit::READ_LOCKOWNER != 0).then_some(owner);
    Some(FuseOp::Read { handle, offset, size, lock_owner, flags })
}

fn write<'a>(from: &mut Fields<'a>) -> Option<FuseOp<'a>> {
    let (handle, offset, size, bits) = (from.u64()?, from.u64()?, from.u32()?, from.u32()?);
    let (owner, flags) = (from.u64()?, from.u32()?);
    from.u32()?;
    Some(FuseOp::Write {
        handle,
        offset,
        data: WriteData::new(from.bytes(size)?),
        lock_owner: (bits & bit::WRITE_LOCKOWNER != 0).then_some(owner),
        flags,
        kill_set_id: bits & bit::WRITE_KILL_SUIDGID != 0,
        from_cache: bits & bit::WRITE_CACHE != 0,
    })
}

fn release<'a>(from: &mut Fields<'a>) -> Option<FuseOp<'a>> {
    let (handle, flags, bits, lock_owner) = (from.u64()?, from.u32()?, from.u32()?, from.u64()?);
    let (flush, flock_unlock) = (bits & bit::RELEASE_FLUSH != 0, bits & bit::RELEASE_FLOCK_UNLOCK != 0);
    Some(FuseOp::Release { handle, flags, lock_owner, flush, flock_unlock })
}

/// Decodes the extended form of SETXATTR. The handshake refuses kernels without `SETXATTR_EXT`.
fn setxattr<'a>(from: &mut Fields<'a>) -> Option<FuseOp<'a>> {
    let (size, flags, bits) = (from.u32()?, from.u32()?, from.u32()?);
    from.u32()?;
    let (name, value) = (from.name()?, from.bytes(size)?);
    Some(FuseOp::Setxattr { name, value, flags, kill_set_group_id: bits & bit::SETXATTR_ACL_KILL_SGID != 0 })
}

fn readdir<'a>(from: &mut Fields<'a>, plus: bool) -> Option<FuseOp<'a>> {
    Some(FuseOp::Readdir { handle: from.u64()?, offset: from.u64()?, size: from.u32()?, plus })
}

fn lock_fields(from: &mut Fields<'_>) -> Option<(u64, u64, FuseLock, bool)> {
    let (handle, owner, start, end) = (from.u64()?, from.u64()?, from.u64()?, from.u64()?);
    let kind = match from.u32()? {
        0 => FuseLockKind::Read,
        1 => FuseLockKind::Write,
        2 => FuseLockKind::Unlock,
        _ => return None,
    };
    let (pid, bits) = (from.u32()?, from.u32()?);
    Some((handle, owner, FuseLock { start, end, kind, pid }, bits & bit::LK_FLOCK != 0))
}

fn copy_file_range<'a>(from: &mut Fields<'a>) -> Option<FuseOp<'a>> {
    Some(FuseOp::CopyFileRange {
        handle: from.u64()?,
        offset: from.u64()?,
        new_inode: from.u64()?,
        new_handle: from.u64()?,
        new_offset: from.u64()?,
        length: from.u64()?,
        flags: from.u64()?,
    })
}

fn statx<'a>(from: &mut Fields<'a>) -> Option<FuseOp<'a>> {
    let bits = from.u32()?;
    from.u32()?;
    let (handle, flags, mask) = (from.u64()?, from.u32()?, from.u32()?);
    Some(FuseOp::Statx { handle: (bits & bit::GETATTR_FH != 0).then_some(handle), flags, mask })
}

fn poll<'a>(from: &mut Fields<'a>) -> Option<FuseOp<'a>> {
    let (handle, kernel_handle, bits, events) = (from.u64()?, from.u64()?, from.u32()?, from.u32()?);
    Some(FuseOp::Poll { handle, kernel_handle, events, wake: bits & bit::POLL_SCHEDULE_NOTIFY != 0 })
}

fn ioctl<'a>(from: &mut Fields<'a>) -> Option<FuseOp<'a>> {
    let (handle, flags, command, argument) = (from.u64()?, from.u32()?, from.u32()?, from.u64()?);
    let (in_size, out_size) = (from.u32()?, from.u32()?);
    Some(FuseOp::Ioctl { handle, flags, command, argument, data: from.bytes(in_size)?, out_size })
}

/// Decodes the unique number of the request that an INTERRUPT refers to.
pub(crate) fn interrupted(body: &[u8]) -> Option<u64> {
    Fields(body).u64()
}

/// Decodes the number of lookups that a FORGET drops.
pub(crate) fn forgotten(body: &[u8]) -> Option<u64> {
    Fields(body).u64()
}

/// Decodes pairs of inode and lookups of a `BATCH_FORGET`; stops at the end of the bytes.
pub(crate) fn batch_forgotten(body: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let mut from = Fields(body);
    let count = from.u32().unwrap_or(0);
    from.u32();
    (0..count).map_while(move |_| Some((from.u64()?, from.u64()?)))
}

#[cfg(test)]
#[path = "decode_test.rs"]
mod tests;
