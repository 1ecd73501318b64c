//! The arena's memory, for processes that map it themselves.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use store::{Place, Segments};

use crate::block::Pool;

/// The memory of a pool of blocks.
pub struct Shared(pub Arc<Pool>);

impl Segments for Shared {
    fn lengths(&self) -> Vec<u64> {
        self.0.memory().lengths().collect()
    }

    fn open(&self, segment: u32) -> io::Result<OwnedFd> {
        self.0.memory().reopen(segment as usize)
    }

    fn place(&self, bytes: &[u8]) -> Option<Place> {
        let (segment, offset) = self.0.memory().find(bytes)?;
        Some(Place { segment: u32::try_from(segment).ok()?, offset: offset as u64 })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Shared").field("lengths", &self.lengths()).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Arena, Options};
    use placement::{FileId, StripeNo};
    use std::{fs::File, os::unix::fs::FileExt};
    use store::{Engine, Generation, StripeKey};

    #[test]
    fn what_a_view_shows_is_at_its_place_for_who_may_only_read() {
        let arena = Arena::new(Options { stripe_bytes: 1 << 16, ..Options::of_capacity(8 << 20) }).unwrap();
        let segments = arena.segments().unwrap();
        let files: Vec<_> =
            (0..).zip(segments.lengths()).map(|(at, _)| File::from(segments.open(at).unwrap())).collect();
        for stripe in 0..40_u8 {
            let key = StripeKey { file: FileId(7), stripe: StripeNo(stripe.into()) };
            arena.write(key, Generation(0), 0, &vec![stripe; 50_000]).unwrap();
            let view = arena.read(key, 10_000, 40_000).unwrap();
            let place = segments.place(&view[5..]).unwrap();
            let mut there = vec![0xff; 39_995];
            files[place.segment as usize].read_exact_at(&mut there, place.offset).unwrap();
            assert_eq!(there, vec![stripe; 39_995]);
        }
        assert!(files.iter().all(|file| file.write_at(b"x", 0).is_err()), "they are for reading only");
        assert_eq!(segments.place(b"elsewhere"), None);
        assert_eq!(segments.place(&[]), None);
    }
}
