//! Results of statfs(2) and statvfs(3) for the pool. The file system type is that of tmpfs, so that
//! programs that adapt to it choose their simplest method.

use libc::{c_ulong, statfs, statvfs};
use posix::Room;

const TMPFS_MAGIC: i64 = 0x0102_1994;
const NAME_BYTES_MAX: i64 = 255;

/// Converts to the structure of statfs(2).
pub fn as_statfs(room: &Room) -> statfs {
    // SAFETY: a structure of plain numbers, for which zero is valid.
    let mut told: statfs = unsafe { std::mem::zeroed() };
    told.f_type = TMPFS_MAGIC;
    told.f_bsize = i64::try_from(room.block_bytes).unwrap_or(4096);
    told.f_frsize = told.f_bsize;
    told.f_blocks = room.blocks;
    (told.f_bfree, told.f_bavail) = (room.free_blocks, room.free_blocks);
    (told.f_files, told.f_ffree) = (room.files, room.free_files);
    told.f_namelen = NAME_BYTES_MAX;
    told
}

/// Converts to the structure of statvfs(3).
pub fn as_statvfs(room: &Room) -> statvfs {
    // SAFETY: a structure of plain numbers, for which zero is valid.
    let mut told: statvfs = unsafe { std::mem::zeroed() };
    told.f_bsize = room.block_bytes;
    told.f_frsize = room.block_bytes;
    told.f_blocks = room.blocks;
    (told.f_bfree, told.f_bavail) = (room.free_blocks, room.free_blocks);
    (told.f_files, told.f_ffree, told.f_favail) = (room.files, room.free_files, room.free_files);
    told.f_namemax = c_ulong::try_from(NAME_BYTES_MAX).unwrap_or(0);
    told
}
