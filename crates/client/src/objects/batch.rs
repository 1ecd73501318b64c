//! Bulk operations: independent calls, as many in flight as the limits allow.

use super::{Condition, ObjectMeta, Objects, Value, Version};
use bytes::Bytes;
use futures_util::{StreamExt, future::join_all, stream::FuturesOrdered};
use wire::Outcome;

/// Most calls of one bulk operation that are begun and not returned.
const IN_FLIGHT_MAX: usize = 256;

/// Up to this many calls are all polled whenever one of them makes progress: that is cheaper than
/// to track which.
const JOIN_ALL_MAX: usize = 30;

/// Runs all calls; returns their results in order.
async fn run_all<F: Future>(calls: impl ExactSizeIterator<Item = F>) -> Vec<F::Output> {
    if calls.len() <= JOIN_ALL_MAX {
        return join_all(calls).await;
    }
    let (mut in_flight, mut ended) = (FuturesOrdered::new(), Vec::with_capacity(calls.len()));
    for call in calls {
        if in_flight.len() >= IN_FLIGHT_MAX {
            ended.extend(in_flight.next().await);
        }
        in_flight.push_back(call);
    }
    while let Some(done) = in_flight.next().await {
        ended.push(done);
    }
    ended
}

impl Objects {
    /// Puts each, as [`Objects::put`]; results are in order. Of two with one key either may be the
    /// later.
    pub async fn put_many(&self, objects: &[(&[u8], Bytes, Condition)]) -> Vec<Outcome<Version>> {
        run_all(objects.iter().map(|(key, bytes, condition)| self.put(key, bytes.clone(), *condition))).await
    }

    /// Like [`Self::put_many`], each through an [`Objects`] of its own, for instance of
    /// [`Objects::with_attributes`].
    pub async fn put_each(objects: &[(Self, &[u8], Bytes, Condition)]) -> Vec<Outcome<Version>> {
        run_all(objects.iter().map(|(objects, key, bytes, condition)| objects.put(key, bytes.clone(), *condition)))
            .await
    }

    /// Gets each, as [`Objects::get`], in order.
    pub async fn get_many(&self, keys: &[&[u8]]) -> Vec<Outcome<Value>> {
        run_all(keys.iter().map(|key| self.get(key))).await
    }

    /// Gets ranges, as [`Objects::get_range`] (key, offset, length), in order.
    pub async fn get_ranges(&self, ranges: &[(&[u8], u64, u64)]) -> Vec<Outcome<Value>> {
        run_all(ranges.iter().map(|(key, offset, length)| self.get_range(key, *offset, *length))).await
    }

    /// Gets the metadata of each, as [`Objects::head`], in order.
    pub async fn head_many(&self, keys: &[&[u8]]) -> Vec<Outcome<ObjectMeta>> {
        run_all(keys.iter().map(|key| self.head(key))).await
    }

    /// Deletes each, as [`Objects::delete`] without a condition, in order.
    pub async fn delete_many(&self, keys: &[&[u8]]) -> Vec<Outcome<()>> {
        run_all(keys.iter().map(|key| self.delete(key, Condition::Always))).await
    }
}
