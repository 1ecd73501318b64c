//! Operations on space: of a file's ranges, and of the pool.

use fuse_transport::{FuseOp, FuseReply, Statfs};
use rustix::io::Errno;
use vfs::Handle;
use wire::{AllocateMode, NAME_BYTES_MAX, SeekTo, SpaceUsage};

use super::{FuseFs, RequestContext};

/// Block size of statfs, bytes.
const STATFS_BLOCK_BYTES: u32 = 4096;
/// `FALLOC_FL_KEEP_SIZE`, `FALLOC_FL_PUNCH_HOLE` (which needs the first) and
/// `FALLOC_FL_ZERO_RANGE`.
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;
/// `SEEK_DATA` and `SEEK_HOLE`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Length limit of one copy request, bytes: its caller cannot be interrupted meanwhile.
const COPY_BYTES_MAX: u64 = 64 << 20;

impl FuseFs {
    pub(super) fn space(&self, _: RequestContext, operation: &FuseOp<'_>, reply: FuseReply) {
        let vfs = &self.vfs;
        match *operation {
            FuseOp::Fallocate { handle, offset, length, mode } => match allocate_mode(mode) {
                Some(mode) => {
                    let allocated = vfs.allocate(Handle(handle), offset, length, mode);
                    self.serve("fallocate", allocated, reply, |reply, ()| reply.done());
                }
                None => reply.error(Errno::OPNOTSUPP.raw_os_error()),
            },
            FuseOp::Lseek { handle, offset, whence } => match seek_to(whence) {
                Some(to) => {
                    let found = vfs.seek(Handle(handle), offset, to);
                    self.serve("lseek", found, reply, FuseReply::offset);
                }
                None => reply.error(Errno::INVAL.raw_os_error()),
            },
            FuseOp::CopyFileRange { handle, offset, new_handle, new_offset, length, .. } => {
                let (from, to) = ((Handle(handle), offset), (Handle(new_handle), new_offset));
                let copied = vfs.copy_range(from, to, length.min(COPY_BYTES_MAX));
                self.serve("copy_file_range", copied, reply, FuseReply::copied);
            }
            FuseOp::Statfs => {
                self.serve("statfs", vfs.query_usage(), reply, |reply, usage| reply.statfs(&statfs(&usage)));
            }
            _ => unreachable!("only operations on space come here"),
        }
    }
}

/// Mode of a fallocate(2); `None` for collapsing, inserting and unsharing ranges.
fn allocate_mode(mode: u32) -> Option<AllocateMode> {
    const PUNCH_AND_KEEP: u32 = PUNCH_HOLE | KEEP_SIZE;
    const ZERO_AND_KEEP: u32 = ZERO_RANGE | KEEP_SIZE;
    Some(match mode {
        0 => AllocateMode::Extend,
        KEEP_SIZE => AllocateMode::KeepSize,
        PUNCH_AND_KEEP => AllocateMode::PunchHole,
        ZERO_RANGE => AllocateMode::ZeroRange,
        ZERO_AND_KEEP => AllocateMode::ZeroRangeKeepSize,
        _ => return None,
    })
}

fn seek_to(whence: u32) -> Option<SeekTo> {
    match whence {
        SEEK_DATA => Some(SeekTo::Data),
        SEEK_HOLE => Some(SeekTo::Hole),
        _ => None,
    }
}

fn statfs(usage: &SpaceUsage) -> Statfs {
    let block = u64::from(STATFS_BLOCK_BYTES);
    let free = usage.capacity.saturating_sub(usage.used) / block;
    Statfs {
        blocks: usage.capacity / block,
        blocks_free: free,
        blocks_available: free,
        // Inodes share the memory with bytes; the free ones are counted as if each took a block.
        files: usage.files.saturating_add(free),
        files_free: free,
        block_size: STATFS_BLOCK_BYTES,
        name_bytes_max: u32::try_from(NAME_BYTES_MAX).expect("a name's length fits"),
        fragment_size: STATFS_BLOCK_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_collapses_or_inserts_is_not_supported() {
        assert_eq!(allocate_mode(KEEP_SIZE | PUNCH_HOLE), Some(AllocateMode::PunchHole));
        assert_eq!(allocate_mode(PUNCH_HOLE), None, "a hole that moves the end makes no sense");
        assert_eq!(allocate_mode(0x08), None);
        assert_eq!(allocate_mode(0x20), None);
    }

    #[test]
    fn what_is_free_is_what_is_not_used() {
        let reply = statfs(&SpaceUsage { capacity: 1 << 30, used: 1 << 28, files: 7, ..SpaceUsage::default() });
        assert_eq!(reply.blocks - reply.blocks_free, (1 << 28) / u64::from(STATFS_BLOCK_BYTES));
        assert_eq!(reply.files - reply.files_free, 7);
    }
}
