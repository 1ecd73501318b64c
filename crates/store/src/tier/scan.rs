//! A scan of a tier: the upper store, then the lower one.
//!
//! A stripe that sinks meanwhile is found at least once. One that rose could be missed, so nothing
//! rises as long as there is a scan.

use std::sync::{Arc, Mutex};

use super::{StripePlace, StripePlaces};
use crate::completion::lock;
use crate::{StoreCompletion, StripeEntry, StripeScan, StripeStore};

/// A walk over the stripes of both stores.
pub struct TierScan {
    scan: Box<dyn StripeScan>,
    /// The lower store, until the upper one is done.
    lower: Option<Arc<dyn StripeStore>>,
    places: Arc<StripePlaces>,
    scans: Arc<Mutex<u64>>,
}

impl TierScan {
    pub fn new(
        upper: &Arc<dyn StripeStore>,
        lower: &Arc<dyn StripeStore>,
        places: &Arc<StripePlaces>,
        scans: &Arc<Mutex<u64>>,
    ) -> Self {
        *lock(scans) += 1;
        Self { scan: upper.scan(), lower: Some(lower.clone()), places: places.clone(), scans: scans.clone() }
    }
}

impl StripeScan for TierScan {
    fn next_page(&mut self, limit: usize) -> StoreCompletion<Option<Vec<StripeEntry>>> {
        let page = self.scan.next_page(limit);
        if self.lower.is_some() && !matches!(page, StoreCompletion::Ready(Ok(None))) {
            return page;
        }
        let page = match self.lower.take() {
            Some(lower) => {
                self.scan = lower.scan();
                self.scan.next_page(limit)
            }
            None => page,
        };
        let places = Arc::clone(&self.places);
        let own = move |page: Option<Vec<StripeEntry>>| page.map(|page| without_old_copies(&places, page));
        match page {
            StoreCompletion::Ready(page) => page.map(own).into(),
            StoreCompletion::Pending(page) => StoreCompletion::Pending(Box::pin(async { page.await.map(own) })),
        }
    }
}

impl Drop for TierScan {
    fn drop(&mut self) {
        *lock(&self.scans) -= 1;
    }
}

fn without_old_copies(places: &StripePlaces, mut page: Vec<StripeEntry>) -> Vec<StripeEntry> {
    page.retain(|found| {
        let is_here = |place: &StripePlace| matches!(place, StripePlace::Below { .. } | StripePlace::Rising { .. });
        places.read(found.key).get(&found.key).is_some_and(is_here)
    });
    page
}
