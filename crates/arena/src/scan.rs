//! A walk over all stripes of an arena: shard by shard.

use std::sync::Arc;
use std::vec;

use placement::PartitionId;
use store::{StoreCompletion, StripeEntry, StripeKey, StripeScan};

use crate::arena::Shard;

/// A walk. The keys of a shard are copied when the walk comes to it, so the shard's lock is held
/// once, and a stripe that is made there later is not found.
pub struct ArenaScan {
    shards: Arc<[Shard]>,
    /// The partition, if only the stripes of one are wanted.
    partition: Option<PartitionId>,
    /// The number of the shard after the last one.
    end: usize,
    /// The number of the shard whose keys are in `keys`, plus 1.
    reached: usize,
    keys: vec::IntoIter<StripeKey>,
}

impl ArenaScan {
    pub fn new(shards: Arc<[Shard]>) -> Self {
        let end = shards.len();
        Self { shards, partition: None, end, reached: 0, keys: Vec::new().into_iter() }
    }

    /// A walk over the stripes of a partition, which are in this shard.
    pub fn of_partition(shards: Arc<[Shard]>, shard: usize, partition: PartitionId) -> Self {
        let keys = Vec::new().into_iter();
        Self { shards, partition: Some(partition), end: shard + 1, reached: shard, keys }
    }

    /// The next key with its shard; goes on to the next shard after the last key of one.
    fn next_key(&mut self) -> Option<(&Shard, StripeKey)> {
        loop {
            if let Some(key) = self.keys.next() {
                return Some((&self.shards[self.reached - 1], key));
            }
            let shard = self.shards.get(self.reached).filter(|_| self.reached < self.end)?;
            let wanted = self.partition;
            let is_wanted = |key: &StripeKey| wanted.is_none_or(|partition| key.partition == partition);
            self.keys = shard.read().keys().copied().filter(is_wanted).collect::<Vec<_>>().into_iter();
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
