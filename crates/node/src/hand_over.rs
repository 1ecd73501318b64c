//! The hand-over of a partition to another node, while clients use it.
//!
//! ```text
//!   old node                                            new node
//!   takes the partition out: requests wait
//!   waits for acks of its invalidations
//!   snapshot, soft state --------------------------->   reserves space, serves
//!   learns the next entry: requests, and those that     learns it
//!   wait for locks or space, are refused as `Moved`     requests of that epoch are answered
//! ```
//!
//! Clients send what was refused again, under the same request ids, and the cached replies went
//! along: so each change is done once. Opens, locks and intents are durable, so they stay.
//!
//! What belongs to a host stays there, and is asked for by node id (`hosted`): extents, bound
//! files, open leases, owners of locks. Neither do stripes move: the caller moves those of the
//! partition before.

use crate::{Node, now, sleep_until};
use partition::{CommandCaller, Holder, HostedBytes, Partition, SoftState, SubscriberId, SubscriberIds};
use placement::{FileId, PartitionEntry, PartitionId};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
    time::Duration,
};
use wire::Session;

/// Longest time for which kernels may withhold an ack. Shorter than requests wait for an entry:
/// one of those may hold the page that an ack needs.
const ACK_WAIT: Duration = Duration::from_millis(500);

/// Why a partition stays at its node, as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandOverError {
    /// The node does not serve it.
    #[error("this node does not serve the partition")]
    NotServed,
    /// A session with a kernel that caches is not subscribed at the other node.
    #[error("session {} has not subscribed at the other node", .0.0)]
    NotSubscribed(Session),
    /// A kernel did not acknowledge an invalidation.
    #[error("a kernel does not acknowledge invalidations")]
    NoAck,
    /// The other node has no space for it.
    #[error("the other node has no space for the partition")]
    Full,
}

/// A partition that was taken out. Unless it was sent, it is served here again when this is
/// dropped.
struct DepartingPartition<'a> {
    node: &'a Node,
    partition: Option<Partition>,
}

impl DepartingPartition<'_> {
    /// Lets another node serve the partition; returns what was sent.
    async fn send_to(mut self, to: &Arc<Node>, entry: &PartitionEntry) -> Result<Partition, HandOverError> {
        let Some(partition) = &self.partition else { return Err(HandOverError::NotServed) };
        if !self.node.are_acked_in_time().await {
            return Err(HandOverError::NoAck);
        }
        let numbers = self.node.subscribers.numbers_at(&to.subscribers).map_err(HandOverError::NotSubscribed)?;
        let number = |known: SubscriberId| numbers.get(known.number()).copied().flatten();
        to.take_over(&partition.snapshot(), partition.soft_state().renumbered(number), entry)?;
        self.partition.take().ok_or(HandOverError::NotServed)
    }
}

impl Drop for DepartingPartition<'_> {
    fn drop(&mut self) {
        if let Some(partition) = self.partition.take() {
            self.node.hosted.take_partition(partition.id());
            self.node.partitions.put(partition);
            self.node.learned.notify_waiters();
        }
    }
}

impl Node {
    /// Hands a partition over to another node of the pool. If that fails, or the future is dropped,
    /// it is served as before.
    pub async fn hand_over(&self, id: PartitionId, to: &Arc<Self>) -> Result<PartitionEntry, HandOverError> {
        let entry = self.map.read().entry(id).map(|entry| entry.moved(to.id()));
        let entry = entry.ok_or(HandOverError::NotServed)?;
        self.detach_opens_in(id);
        let partition = self.partitions.take(id).ok_or(HandOverError::NotServed)?;
        self.hosted.add(partition.hosted_files(self.id()));
        let departing = DepartingPartition { node: self, partition: Some(partition) };
        let partition = departing.send_to(to, &entry).await?;
        self.learn(id, entry.clone());
        self.files.fetch_sub(partition.files(), Relaxed);
        self.engine.release(partition.bytes());
        for (file, holder) in partition.lock_holders() {
            if holder.owner().host() == Some(self.id()) {
                self.lock_queue.adopt(holder, file);
            } else {
                self.lock_queue.forget(holder, file);
            }
        }
        self.lock_queue.wake_all();
        self.space.notify_freed();
        let ended = |session: &Session| self.session_index.has_ended(*session) || to.session_index.has_ended(*session);
        for session in partition.sessions().into_iter().filter(ended) {
            if let Err(error) = to.close_session_in(session, id).await {
                tracing::debug!(%error, session = session.0, "an ended session has state in a partition that has moved");
            }
        }
        Ok(entry)
    }

    /// Waits until all invalidations that were sent are acknowledged; false if that takes too long.
    async fn are_acked_in_time(&self) -> bool {
        let all = CommandCaller { others: SubscriberIds::ALL, ..CommandCaller::default() };
        let Some(pending) = self.subscribers.pending_acks(all) else { return true };
        let (mut acked, mut patience) = (pin!(pending.wait()), pin!(sleep_until(now() + ACK_WAIT)));
        let in_time = poll_fn(|context| match acked.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => patience.as_mut().poll(context).map(|()| false),
        });
        in_time.await
    }

    /// Serves a partition from its snapshot on.
    fn take_over(
        self: &Arc<Self>,
        snapshot: &[u8],
        state: SoftState,
        entry: &PartitionEntry,
    ) -> Result<(), HandOverError> {
        let mut partition = Partition::restore(snapshot).expect("the other node has made the snapshot");
        self.engine.reserve(partition.bytes()).map_err(|_| HandOverError::Full)?;
        self.files.fetch_add(partition.files(), Relaxed);
        partition.set_soft_state(state);
        let (id, sessions) = (partition.id(), partition.sessions());
        let locked: Vec<(FileId, Holder)> = partition.lock_holders().collect();
        for (file, holder) in locked {
            self.lock_queue.adopt(holder, file);
        }
        for session in sessions {
            self.session_index.note(session, id);
        }
        self.demotions.begin_after(partition.last_own_number());
        if let Some(log) = &self.settings().entry_log {
            log.begin(&partition);
        }
        for (file, hosted) in self.hosted.take_partition(id) {
            // Its file was removed, or has left the extent, before this node heard of it.
            if let HostedBytes::Extent(extent) = hosted
                && partition.extent(file) != Some(extent)
            {
                self.extents.free(extent);
            }
        }
        self.demotions.extend(partition.hosted_files(self.id()).filter_map(|(file, hosted)| match hosted {
            HostedBytes::Extent(extent) => Some((file, extent)),
            HostedBytes::Bound(_) => None,
        }));
        self.partitions.put(partition);
        self.learn(id, entry.clone());
        Ok(())
    }
}
