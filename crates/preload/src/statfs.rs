//! Results of statfs(2) and statvfs(3) for the pool. The file system type is that of tmpfs, so that
//! programs that adapt to it choose their simplest method.

use libc::{c_ulong, statfs, statvfs};
use posix::StatFs;

const TMPFS_MAGIC: i64 = 0x0102_1994;
const NAME_BYTES_MAX: i64 = 255;

/// Converts to the structure of statfs(2).
pub fn as_statfs(statfs: &StatFs) -> statfs {
    // SAFETY: a structure of plain numbers, for which zero is valid.
    let mut out: statfs = unsafe { std::mem::zeroed() };
    out.f_type = TMPFS_MAGIC;
    out.f_bsize = i64::try_from(statfs.block_bytes).unwrap_or(4096);
    out.f_frsize = out.f_bsize;
    out.f_blocks = statfs.blocks;
    (out.f_bfree, out.f_bavail) = (statfs.free_blocks, statfs.free_blocks);
    (out.f_files, out.f_ffree) = (statfs.files, statfs.free_files);
    out.f_namelen = NAME_BYTES_MAX;
    out
}

/// Converts to the structure of statvfs(3).
pub fn as_statvfs(statfs: &StatFs) -> statvfs {
    // SAFETY: a structure of plain numbers, for which zero is valid.
    let mut out: statvfs = unsafe { std::mem::zeroed() };
    out.f_bsize = statfs.block_bytes;
    out.f_frsize = statfs.block_bytes;
    out.f_blocks = statfs.blocks;
    (out.f_bfree, out.f_bavail) = (statfs.free_blocks, statfs.free_blocks);
    (out.f_files, out.f_ffree, out.f_favail) = (statfs.files, statfs.free_files, statfs.free_files);
    out.f_namemax = c_ulong::try_from(NAME_BYTES_MAX).unwrap_or(0);
    out
}
