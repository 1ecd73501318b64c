//! Cold stripes of the upper store, by the second-chance algorithm.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::vec;

use super::PAGE_STRIPES;
use crate::{StripeEntry, StripeKey, StripeScan, StripeStore};

/// Bits for stripes that were used, by hash: 128 KiB. Stripes that share a bit are used together;
/// then one sinks later than it could.
const BITS: usize = 1 << 20;

/// The stripes that were used since the finder of cold stripes came past.
pub struct RecentStripes(Box<[AtomicU64]>);

impl RecentStripes {
    pub fn new() -> Self {
        Self((0..BITS / 64).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn add(&self, key: StripeKey) {
        let (word, bit) = self.bit(key);
        // A load first: the word then stays in the caches of all processors.
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Forgets the stripe; returns whether it was used.
    fn take(&self, key: StripeKey) -> bool {
        let (word, bit) = self.bit(key);
        word.fetch_and(!bit, Relaxed) & bit != 0
    }

    fn bit(&self, key: StripeKey) -> (&AtomicU64, u64) {
        let number = key.mixed() >> (64 - BITS.trailing_zeros());
        (&self.0[(number / 64) as usize], 1 << (number % 64))
    }
}

/// Goes round and round over the stripes of the upper store.
pub struct ColdFinder {
    scan: Box<dyn StripeScan>,
    page: vec::IntoIter<StripeEntry>,
}

impl ColdFinder {
    pub fn new(upper: &dyn StripeStore) -> Self {
        Self { scan: upper.scan(), page: Vec::new().into_iter() }
    }

    /// The next stripe that has bytes and was not used for a round; `None` when that many rounds
    /// have ended.
    pub fn next(
        &mut self,
        upper: &dyn StripeStore,
        recent: &RecentStripes,
        rounds_left: &mut u32,
    ) -> Option<StripeEntry> {
        loop {
            let cold = self.page.find(|found| found.length > 0 && !recent.take(found.key));
            if cold.is_some() {
                return cold;
            }
            if let Some(page) = self.scan.next_page(PAGE_STRIPES).now().ok()? {
                self.page = page.into_iter();
            } else {
                self.scan = upper.scan();
                *rounds_left = rounds_left.checked_sub(1)?;
            }
        }
    }
}
