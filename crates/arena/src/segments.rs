//! The arena's memory as shared-memory segments, for processes that map it.

use std::io;
use std::os::fd::OwnedFd;

use store::{RecvBuffer, SegmentPosition, SharedMemory, WriteSegment};

use crate::Arena;
use crate::arena::top_order;
use crate::recv_buffer::RecvBlock;
use crate::write_segment::WriterHandle;

impl SharedMemory for Arena {
    fn lengths(&self) -> Vec<u64> {
        self.pool.backing().lengths().collect()
    }

    fn length(&self, segment: u32) -> Option<u64> {
        let own = self.pool.backing().lengths().nth(segment as usize);
        own.or_else(|| Some(self.pool.lock_state().offers.memory(segment)?.mapped.bytes()))
    }

    fn open(&self, segment: u32) -> io::Result<OwnedFd> {
        let memory = self.pool.lock_state().offers.memory(segment).cloned();
        memory.map_or_else(|| self.pool.backing().reopen(segment as usize), |memory| memory.mapped.reopen(false))
    }

    fn locate(&self, bytes: &[u8]) -> Option<SegmentPosition> {
        if let Some((segment, offset)) = self.pool.backing().find(bytes) {
            return Some(SegmentPosition { segment: u32::try_from(segment).ok()?, offset: offset as u64 });
        }
        self.pool.write_segments.locate(bytes)
    }

    fn closed_segments(&self) -> u64 {
        self.pool.write_segments.closed()
    }

    fn create_write_segment(&self) -> io::Result<Box<dyn WriteSegment>> {
        Ok(Box::new(WriterHandle::new(&self.pool, top_order(self.stripe_bytes))?))
    }

    fn recv_buffer(&self, length: u32) -> Option<Box<dyn RecvBuffer>> {
        Some(Box::new(RecvBlock::new(&self.pool, length, top_order(self.stripe_bytes))?))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Arena, ArenaOptions};
    use placement::{FileId, PartitionId, StripeNo};
    use std::{fs::File, os::unix::fs::FileExt};
    use store::{Generation, SharedMemory, StripeKey};

    #[test]
    fn the_bytes_of_a_view_are_at_its_position_in_a_read_only_segment() {
        let arena = Arena::new(ArenaOptions { stripe_bytes: 1 << 16, ..ArenaOptions::with_capacity(8 << 20) }).unwrap();
        let files: Vec<_> = (0..).zip(arena.lengths()).map(|(at, _)| File::from(arena.open(at).unwrap())).collect();
        for stripe in 0..40_u8 {
            let key = StripeKey { partition: PartitionId(0), file: FileId(7), stripe: StripeNo(stripe.into()) };
            arena.write(key, Generation(0), 0, &vec![stripe; 50_000]).unwrap();
            let view = arena.read(key, 10_000, 40_000).unwrap();
            let place = arena.locate(&view[5..]).unwrap();
            let mut there = vec![0xff; 39_995];
            files[place.segment as usize].read_exact_at(&mut there, place.offset).unwrap();
            assert_eq!(there, vec![stripe; 39_995]);
        }
        assert!(files.iter().all(|file| file.write_at(b"x", 0).is_err()), "they are for reading only");
        assert_eq!(arena.locate(b"elsewhere"), None);
        assert_eq!(arena.locate(&[]), None);
    }
}
