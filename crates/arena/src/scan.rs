//! A walk over all stripes of an arena: shard by shard.

use std::sync::Arc;
use std::vec;

use store::{StoreCompletion, StripeEntry, StripeKey, StripeScan};

use crate::arena::Shard;

/// A walk. The keys of a shard are copied when the walk comes to it, so the shard's lock is held
/// once, and a stripe that is made there later is not found.
pub struct ArenaScan {
    shards: Arc<[Shard]>,
    /// The number of the shard whose keys are in `keys`, plus 1.
    reached: usize,
    keys: vec::IntoIter<StripeKey>,
}

impl ArenaScan {
    pub fn new(shards: Arc<[Shard]>) -> Self {
        Self { shards, reached: 0, keys: Vec::new().into_iter() }
    }

    /// The next key with its shard; goes on to the next shard after the last key of one.
    fn next_key(&mut self) -> Option<(&Shard, StripeKey)> {
        loop {
            if let Some(key) = self.keys.next() {
                return Some((&self.shards[self.reached - 1], key));
            }
            let shard = self.shards.get(self.reached)?;
            self.keys = shard.read().keys().copied().collect::<Vec<_>>().into_iter();
            self.reached += 1;
        }
    }
}

impl StripeScan for ArenaScan {
    fn next_page(&mut self, limit: usize) -> StoreCompletion<Option<Vec<StripeEntry>>> {
        let mut page = Vec::new();
        while page.len() < limit
            && let Some((shard, key)) = self.next_key()
        {
            let stripe = shard.read().get(&key).cloned();
            page.extend(stripe.and_then(|stripe| stripe.lock().map(|state| state.entry(key))));
        }
        Ok((!page.is_empty()).then_some(page)).into()
    }
}
