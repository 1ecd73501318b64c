//! Encoding of replies into fixed-length arrays on the stack.

use std::time::Duration;

use crate::{
    abi::fopen,
    types::{FuseAttributes, FuseEntry, FuseLock, FuseLockKind, FuseOpen, Statfs, Statx, Time},
};

/// Length of an encoded entry.
pub(crate) const ENTRY: usize = 128;
/// Length of an encoded open.
pub(crate) const OPENED: usize = 16;
/// Length of encoded attributes with their validity.
pub(crate) const ATTRIBUTES: usize = 104;
/// Length of an encoded statfs.
pub(crate) const STATFS: usize = 80;
/// Length of an encoded lock.
pub(crate) const LOCK: usize = 24;
/// Length of an encoded statx.
pub(crate) const STATX: usize = 288;

/// Bits of the statx mask: the fields of stat(2), and the birth time.
const STATX_BASIC: u32 = 0x7ff;
const STATX_BORN: u32 = 0x800;

/// An array that is filled from the front; the rest stays zero.
pub(crate) struct FixedBuf<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> FixedBuf<N> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], length: 0 }
    }

    pub(crate) fn put(mut self, value: &[u8]) -> Self {
        self.bytes[self.length..self.length + value.len()].copy_from_slice(value);
        self.length += value.len();
        self
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.put(&value.to_ne_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.put(&value.to_ne_bytes())
    }

    pub(crate) fn i32(self, value: i32) -> Self {
        self.put(&value.to_ne_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.put(&value.to_ne_bytes())
    }

    pub(crate) fn i64(self, value: i64) -> Self {
        self.put(&value.to_ne_bytes())
    }

    /// Returns the whole array, including the zero part.
    pub(crate) fn finish(self) -> [u8; N] {
        self.bytes
    }
}

/// Encodes the header of a reply. A notification has its code in `error` and 0 in `unique`.
pub(crate) fn header(length: u32, error: i32, unique: u64) -> [u8; 16] {
    FixedBuf::new().u32(length).i32(error).u64(unique).finish()
}

pub(crate) fn entry(value: &FuseEntry) -> [u8; ENTRY] {
    put_attributes(put_entry(FixedBuf::new(), value), &value.attributes).finish()
}

pub(crate) fn created(value: &FuseEntry, opened_as: &FuseOpen) -> [u8; ENTRY + OPENED] {
    put_attributes(put_entry(FixedBuf::new(), value), &value.attributes).put(&opened(opened_as)).finish()
}

fn put_entry<const N: usize>(to: FixedBuf<N>, value: &FuseEntry) -> FixedBuf<N> {
    to.u64(value.inode)
        .u64(value.generation)
        .u64(value.entry_valid.as_secs())
        .u64(value.attributes_valid.as_secs())
        .u32(value.entry_valid.subsec_nanos())
        .u32(value.attributes_valid.subsec_nanos())
}

pub(crate) fn attributes(value: &FuseAttributes, valid: Duration) -> [u8; ATTRIBUTES] {
    put_attributes(FixedBuf::new().u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0), value).finish()
}

#[expect(clippy::cast_sign_loss, reason = "the kernel reads seconds before 1970 back as negative")]
fn put_attributes<const N: usize>(to: FixedBuf<N>, value: &FuseAttributes) -> FixedBuf<N> {
    to.u64(value.inode)
        .u64(value.size)
        .u64(value.blocks)
        .u64(value.accessed.seconds as u64)
        .u64(value.modified.seconds as u64)
        .u64(value.changed.seconds as u64)
        .u32(value.accessed.nanoseconds)
        .u32(value.modified.nanoseconds)
        .u32(value.changed.nanoseconds)
        .u32(value.mode)
        .u32(value.links)
        .u32(value.uid)
        .u32(value.gid)
        .u32(value.device)
        .u32(value.block_size)
        .u32(0)
}

pub(crate) fn opened(value: &FuseOpen) -> [u8; OPENED] {
    let flags = [
        (value.direct, fopen::DIRECT_IO),
        (value.keep_cache, fopen::KEEP_CACHE),
        (value.not_seekable, fopen::NONSEEKABLE),
        (value.cache_dir, fopen::CACHE_DIR),
        (value.stream, fopen::STREAM),
        (value.no_flush, fopen::NOFLUSH),
        (value.parallel_direct_writes, fopen::PARALLEL_DIRECT_WRITES),
        (value.backing.is_some(), fopen::PASSTHROUGH),
    ];
    let flags = flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
    FixedBuf::new().u64(value.handle).u32(flags).u32(value.backing.map_or(0, |backing| backing.0)).finish()
}

pub(crate) fn statfs(value: &Statfs) -> [u8; STATFS] {
    FixedBuf::new()
        .u64(value.blocks)
        .u64(value.blocks_free)
        .u64(value.blocks_available)
        .u64(value.files)
        .u64(value.files_free)
        .u32(value.block_size)
        .u32(value.name_bytes_max)
        .u32(value.fragment_size)
        .finish()
}

pub(crate) fn lock(value: &FuseLock) -> [u8; LOCK] {
    FixedBuf::new().u64(value.start).u64(value.end).u32(lock_number(value.kind)).u32(value.pid).finish()
}

/// Returns the number of `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
fn lock_number(kind: FuseLockKind) -> u32 {
    match kind {
        FuseLockKind::Read => 0,
        FuseLockKind::Write => 1,
        FuseLockKind::Unlock => 2,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a mode has 16 bits")]
pub(crate) fn statx(value: &Statx, valid: Duration) -> [u8; STATX] {
    let attributes = &value.attributes;
    let mask = STATX_BASIC | if value.born.is_some() { STATX_BORN } else { 0 };
    let to = FixedBuf::new().u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0).u64(0).u64(0);
    let to = to
        .u32(mask)
        .u32(attributes.block_size)
        .u64(value.flags)
        .u32(attributes.links)
        .u32(attributes.uid)
        .u32(attributes.gid);
    let to = to
        .u16(attributes.mode as u16)
        .u16(0)
        .u64(attributes.inode)
        .u64(attributes.size)
        .u64(attributes.blocks)
        .u64(value.flags_mask);
    [attributes.accessed, value.born.unwrap_or_default(), attributes.changed, attributes.modified]
        .iter()
        .fold(to, put_time)
        .u32(device_major(attributes.device))
        .u32(device_minor(attributes.device))
        .finish()
}

fn put_time<const N: usize>(to: FixedBuf<N>, time: &Time) -> FixedBuf<N> {
    to.i64(time.seconds).u32(time.nanoseconds).u32(0)
}

/// Extracts the major number from the kernel's 32-bit device number: 12 bits of major number, and
/// 20 bits of minor number in two parts.
fn device_major(device: u32) -> u32 {
    (device >> 8) & 0xfff
}

fn device_minor(device: u32) -> u32 {
    (device & 0xff) | ((device >> 12) & 0xf_ff00)
}

#[cfg(test)]
#[path = "encode_test.rs"]
mod tests;
