//! The node's knowledge of the partition map: which requests it serves, refuses, or lets wait.
//!
//! ```text
//!   the request's epoch   the partition   the request
//!   equal                 is here         is served
//!   equal                 is handed over  waits for the next entry
//!   later                                 waits for that entry
//!   earlier, or equal     is elsewhere    is refused as `Moved`, with the entry
//! ```

use crate::{Node, ReplyFuture, now, sleep_until};
use placement::{Epoch, NodeId, PartitionEntry, PartitionId, PartitionMap};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};
use wire::{Failure, MovedPartition, Object, Refusal, Request};

/// Longest time that a request waits for an entry of the map. Its client asks again then.
const LEARN_WAIT: Duration = Duration::from_secs(1);

/// The decision about a request for a partition.
pub enum EntryCheck {
    Serve,
    Wait,
    Refuse(Refusal),
}

impl Node {
    /// Decides what to do with a request that was sent by the entry of this epoch.
    pub(crate) fn check_entry(&self, partition: PartitionId, epoch: Epoch) -> EntryCheck {
        let Some(known) = self.partitions.epoch(partition) else { return EntryCheck::Refuse(self.moved(partition)) };
        if epoch == known && self.partitions.serves(partition) {
            return EntryCheck::Serve;
        }
        let is_on_its_way = || self.map.read().node(partition) == Some(self.id());
        if epoch > known || epoch == known && is_on_its_way() {
            return EntryCheck::Wait;
        }
        EntryCheck::Refuse(self.moved(partition))
    }

    /// Answers a request when the entry that it needs is known.
    pub(crate) fn wait_for_entry(self: &Arc<Self>, request: Request) -> ReplyFuture {
        let node = self.clone();
        if self.partitions.epoch(request.partition).is_some_and(|known| known < request.epoch) {
            self.behind.notify_one();
        }
        ReplyFuture::deferred(async move {
            let mut patience = pin!(sleep_until(now() + LEARN_WAIT));
            loop {
                let mut learned = pin!(node.learned.notified());
                // Nothing that is learned from now on is missed.
                learned.as_mut().enable();
                if !matches!(node.check_entry(request.partition, request.epoch), EntryCheck::Wait) {
                    return node.answer(request).await;
                }
                let is_over = poll_fn(|context| match learned.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(false),
                    Poll::Pending => patience.as_mut().poll(context).map(|()| true),
                });
                if is_over.await {
                    return Err(Failure::Refused(node.moved(request.partition)));
                }
            }
        })
    }

    /// Waits until a request knows a later entry of the map than this node. One caller may wait.
    pub async fn is_behind(&self) {
        self.behind.notified().await;
    }

    /// Returns the epoch of the entry of a partition that this node serves.
    pub fn served_epoch(&self, partition: PartitionId) -> Option<Epoch> {
        self.partitions.epoch(partition).filter(|_| self.partitions.serves(partition))
    }

    /// True if this node serves a partition.
    pub fn serves_any(&self) -> bool {
        self.partitions.count_served() > 0
    }

    /// True if a node has left the pool.
    pub fn has_departed(&self, node: NodeId) -> bool {
        self.map.read().departed().any(|departed| departed == node)
    }

    /// Returns the entry of a partition, as far as this node knows.
    pub fn entry(&self, partition: PartitionId) -> Option<PartitionEntry> {
        self.map.read().entry(partition).cloned()
    }

    /// Takes an entry of the map, if it is newer than the one that is known. A partition that has
    /// arrived is served from now on, and one that waits here is not any more.
    pub fn learn(&self, partition: PartitionId, entry: &PartitionEntry) {
        // Entries come with reports and at once, from several threads.
        let _learning = self.learning.lock();
        if Arc::make_mut(&mut *self.map.write()).learn(partition, entry.clone()) {
            self.end_departure(partition, entry);
            if entry.server == self.id() {
                self.finish_arrival(partition, entry.epoch);
            } else {
                self.cancel_arrival(partition, entry.epoch);
            }
            self.partitions.set_epoch(partition, entry.epoch);
            self.learned.notify_waiters();
        }
    }

    /// Takes the entries of a map that are newer, and the addresses of nodes.
    pub fn learn_map(&self, map: &PartitionMap) {
        let newer =
            |id: &PartitionId| map.entry(*id).is_some_and(|entry| self.partitions.epoch(*id) < Some(entry.epoch));
        Arc::make_mut(&mut *self.map.write()).learn_nodes(map);
        let last = u16::try_from(map.partitions() - 1).unwrap_or(u16::MAX);
        for id in (0..=last).map(PartitionId).filter(newer) {
            if let Some(entry) = map.entry(id) {
                self.learn(id, entry);
            }
        }
    }

    /// The map, as far as this node knows.
    pub fn known_map(&self) -> Arc<PartitionMap> {
        self.map.read().clone()
    }

    /// The refusal of a request for a partition that is not served here, or not as of its epoch; it
    /// names the node that serves.
    pub(crate) fn moved(&self, partition: PartitionId) -> Refusal {
        match self.map.read().entry(partition) {
            None => Refusal::invalid(Object::Pool, "the pool has no such partition"),
            Some(entry) => Refusal::Moved(Box::new(MovedPartition { partition, entry: entry.clone() })),
        }
    }
}
