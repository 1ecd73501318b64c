//! The target of a move: stripes and metadata that arrive, until the partition is served here.

use crate::{Node, ReplyFuture, execute::refusal_without_wait};
use parking_lot::Mutex;
use partition::{Holder, HostedBytes, Partition, PartitionTransfer, SoftState, SubscriberId};
use placement::{Epoch, FileId, PartitionId};
use std::{
    collections::{BTreeSet, HashMap},
    fmt::Display,
    mem,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use store::{Generation, StoreCompletion, StripeKey};
use tokio::{sync::Notify, task::yield_now};
use wire::{Answer, Failure, MoveStep, Object, Outcome, Refusal, Session, StripeAction, StripeRuns};

/// Most bytes of metadata that a partition may have on its way beyond those that were announced.
const STATE_BYTES_MORE: u64 = 16 << 20;
/// Length of the smallest block of an engine in memory.
const PAGE_BYTES: u64 = 4096;
/// Stripes of a page when stripes of partitions that have left are looked for.
const SCAN_PAGE: usize = 1024;

/// The partitions that arrive, and those of which stripes are left though they are served
/// elsewhere.
#[derive(Debug, Default)]
pub struct Arrivals {
    arriving: Mutex<HashMap<PartitionId, Arrival>>,
    /// Partitions that may have stripes here and are not served.
    leftover: Mutex<BTreeSet<PartitionId>>,
    /// Sessions that have ended, and have state in a partition that has arrived.
    ended_sessions: Mutex<Vec<(Session, PartitionId)>>,
    /// Notified when a partition is prepared.
    prepared: Notify,
    /// Held while such stripes are removed.
    clearing: tokio::sync::Mutex<()>,
}

/// A partition on its way to this node.
#[derive(Debug)]
struct Arrival {
    /// Bytes that were announced.
    announced: u64,
    /// The epoch of the partition's entry at the source. The next one says whether it is served
    /// here.
    epoch: Epoch,
    /// Bytes that are reserved and not used yet.
    reserved: u64,
    state: Vec<u8>,
    prepared: Option<PreparedPartition>,
}

impl Arrival {
    /// Bytes that are reserved for it.
    fn held(&self) -> u64 {
        self.reserved + self.prepared.as_ref().map_or(0, |prepared| prepared.partition.bytes())
    }
}

/// A partition that may be served here as soon as the managers say so.
#[derive(Debug)]
struct PreparedPartition {
    partition: Partition,
    soft_state: SoftState,
    /// The subscribers of the source, by the numbers in the soft state.
    subscribers: Vec<(SubscriberId, Session)>,
    /// Sessions that have ended, and may have state in it.
    ended: Vec<Session>,
    strays: Vec<(Session, FileId, StripeRuns)>,
}

impl Arrivals {
    /// Number of partitions that arrive.
    pub fn len(&self) -> usize {
        self.arriving.lock().len()
    }

    /// Number of partitions of which stripes are left.
    pub fn leftovers(&self) -> usize {
        self.leftover.lock().len()
    }

    /// Has sessions ended in partitions that were in no place when they ended.
    pub fn end_sessions(&self, ended: impl Iterator<Item = (Session, PartitionId)>) {
        self.ended_sessions.lock().extend(ended);
    }

    /// True if stripes of a partition are left, which neither arrives nor is served here.
    fn is_left(&self, partition: PartitionId, serves: impl Fn() -> bool) -> bool {
        // Held meanwhile: a partition that arrives is taken out of this set before it is served.
        let leftover = self.leftover.lock();
        leftover.contains(&partition) && !self.is_arriving(partition) && !serves()
    }

    /// Notes that stripes of a partition are left here.
    pub fn add_leftover(&self, partition: PartitionId) {
        self.leftover.lock().insert(partition);
    }

    /// Takes a partition on its way, if it is of such an epoch.
    fn take(&self, partition: PartitionId, is_meant: impl Fn(Epoch) -> bool) -> Option<Arrival> {
        let mut arriving = self.arriving.lock();
        let is_there = arriving.get(&partition).is_some_and(|arrival| is_meant(arrival.epoch));
        if is_there { arriving.remove(&partition) } else { None }
    }

    /// True if a partition is prepared to be served as of this epoch.
    fn is_prepared(&self, partition: PartitionId, as_of: Epoch) -> bool {
        let is_meant = |arrival: &Arrival| arrival.prepared.is_some() && arrival.epoch < as_of;
        self.arriving.lock().get(&partition).is_some_and(is_meant)
    }

    fn is_arriving(&self, partition: PartitionId) -> bool {
        self.arriving.lock().contains_key(&partition)
    }
}

impl Node {
    /// Does a step of a move to this node.
    pub(crate) fn receive_move(self: &Arc<Self>, partition: PartitionId, epoch: Epoch, step: MoveStep) -> ReplyFuture {
        let done = match step {
            MoveStep::Reserve { bytes } => {
                let node = self.clone();
                return ReplyFuture::deferred(async move {
                    node.begin_arrival(partition, epoch, bytes).await.map(|()| Answer::Done).map_err(Failure::Refused)
                });
            }
            MoveStep::Stripe { file, stripe, action } => {
                return self.receive_stripe(StripeKey { partition, file, stripe }, epoch, &action);
            }
            MoveStep::State { data } => self.receive_state(partition, epoch, &data),
            MoveStep::Prepare => self.prepare(partition, epoch),
            MoveStep::Cancel => {
                self.cancel_arrival(partition, epoch.next());
                Ok(())
            }
        };
        ReplyFuture::ready(done.map(|()| Answer::Done).map_err(Failure::Refused))
    }

    /// The partitions that are ready to be served here, each with the epoch of its entry at the
    /// source.
    pub fn prepared_partitions(&self) -> Vec<(PartitionId, Epoch)> {
        let arriving = self.arrivals.arriving.lock();
        let prepared = arriving.iter().filter(|(_, arrival)| arrival.prepared.is_some());
        prepared.map(|(id, arrival)| (*id, arrival.epoch)).collect()
    }

    /// Waits until there may be another such partition. One caller may wait.
    pub async fn partition_prepared(&self) {
        self.arrivals.prepared.notified().await;
    }

    async fn begin_arrival(&self, partition: PartitionId, epoch: Epoch, bytes: u64) -> Outcome<()> {
        self.check_may_arrive(partition, epoch)?;
        self.cancel_arrival(partition, epoch.next());
        self.arrivals.add_leftover(partition);
        self.clear_partition(partition).await?;
        self.engine.reserve(bytes).map_err(|error| refusal_without_wait(error, Object::Pool))?;
        let arrival = Arrival { announced: bytes, epoch, reserved: bytes, state: Vec::new(), prepared: None };
        let mut arriving = self.arrivals.arriving.lock();
        // The managers may have given it up meanwhile.
        let refused = self.check_may_arrive(partition, epoch).err();
        let is_prepared = arriving.get(&partition).is_some_and(|known| known.prepared.is_some());
        if refused.is_some() || is_prepared {
            drop(arriving);
            self.engine.release(bytes);
            return Err(refused.unwrap_or_else(not_arriving));
        }
        let before = arriving.insert(partition, arrival);
        drop(arriving);
        self.moves.incoming.begin();
        if let Some(before) = before {
            self.engine.release(before.held());
            self.moves.incoming.give_up();
        }
        self.arrivals.add_leftover(partition);
        Ok(())
    }

    /// Refuses a partition that is moved here by an entry that is outdated, or that is on its way
    /// from here.
    fn check_may_arrive(&self, partition: PartitionId, epoch: Epoch) -> Outcome<()> {
        let is_known = self.map.read().entry(partition).is_some_and(|entry| entry.epoch <= epoch);
        if is_known && !self.partitions.serves(partition) && !self.departures.has(partition) {
            return Ok(());
        }
        Err(Refusal::invalid(Object::Pool, "a partition is moved here by an entry that is outdated"))
    }

    /// Does to a stripe what was done to it at the source. The engine has the order of the calls.
    fn receive_stripe(&self, key: StripeKey, epoch: Epoch, action: &StripeAction) -> ReplyFuture {
        let store = self.forwarding.inner();
        let mut arriving = self.arrivals.arriving.lock();
        let is_open = |arrival: &&mut Arrival| arrival.epoch == epoch && arrival.prepared.is_none();
        let Some(arrival) = arriving.get_mut(&key.partition).filter(is_open) else {
            return ReplyFuture::ready(Err(Failure::Refused(not_arriving())));
        };
        let done = match action {
            StripeAction::Write { generation, offset, ends, data } => {
                let needed = u64::from(*offset) + data.len() as u64;
                let given = arrival.reserved.min(needed.next_power_of_two().max(PAGE_BYTES));
                arrival.reserved -= given;
                self.engine.release(given);
                self.moves.incoming.add_bytes(data.len() as u64);
                let before = self.engine.usage().used;
                let written = store.write(key, Generation(*generation), *offset, data);
                if *ends {
                    drop(store.shrink_to_fit(key));
                }
                // What the write did not take stays reserved, if nobody else has taken it.
                let taken = self.engine.usage().used.saturating_sub(before);
                let unneeded = given.saturating_sub(taken);
                if unneeded > 0 && self.engine.reserve(unneeded).is_ok() {
                    arrival.reserved += unneeded;
                }
                written
            }
            StripeAction::Truncate { generation, length } => store.truncate(key, Generation(*generation), *length),
            StripeAction::Zero { generation, offset, length } => {
                store.zero(key, Generation(*generation), *offset, *length)
            }
            StripeAction::Extend { generation, length } => store.extend(key, Generation(*generation), *length),
            StripeAction::Remove => store.remove(key),
            StripeAction::Fit => store.shrink_to_fit(key),
            StripeAction::Fill { .. } | StripeAction::Read { .. } => {
                let why = "a move has reads, or stripes without a generation";
                return ReplyFuture::ready(Err(Failure::Refused(Refusal::invalid(Object::Pool, why))));
            }
        };
        drop(arriving);
        let finish = move |done: Result<(), _>| {
            done.map(|()| Answer::Done).map_err(|error| refusal_without_wait(error, Object::File(key.file)).into())
        };
        match done {
            StoreCompletion::Ready(done) => ReplyFuture::ready(finish(done)),
            StoreCompletion::Pending(pending) => ReplyFuture::deferred(async move { finish(pending.await) }),
        }
    }

    fn receive_state(&self, partition: PartitionId, epoch: Epoch, data: &[u8]) -> Outcome<()> {
        let mut arriving = self.arrivals.arriving.lock();
        let arrival = arriving.get_mut(&partition).filter(|arrival| arrival.epoch == epoch);
        let arrival = arrival.ok_or_else(not_arriving)?;
        let limit = arrival.announced.saturating_add(STATE_BYTES_MORE);
        if (arrival.state.len() + data.len()) as u64 > limit {
            return Err(Refusal::TooLarge { object: Object::Pool, limit });
        }
        arrival.state.extend_from_slice(data);
        Ok(())
    }

    /// Restores the partition, which is not served before the next entry of the map says so.
    fn prepare(&self, id: PartitionId, epoch: Epoch) -> Outcome<()> {
        let state = {
            let mut arriving = self.arrivals.arriving.lock();
            let arrival = arriving.get_mut(&id).filter(|arrival| arrival.epoch == epoch).ok_or_else(not_arriving)?;
            if arrival.prepared.is_some() {
                return Ok(());
            }
            mem::take(&mut arrival.state)
        };
        // Without the lock: a large partition takes a while.
        let damaged = |why: &dyn Display| Refusal::Invalid {
            object: Object::Pool,
            why: format!("a partition that was sent: {why}").into(),
        };
        let transfer = PartitionTransfer::decode(&state).map_err(|error| damaged(&error))?;
        let partition = transfer.restore().map_err(|error| damaged(&error))?;
        if partition.id() != id {
            return Err(damaged(&"it is another one"));
        }
        let PartitionTransfer { soft_state, subscribers, ended, strays, .. } = transfer;
        if let Some(session) = self.subscribers.own_numbers(&subscribers).1 {
            tracing::debug!(session = session.0, "a subscriber of a partition that moves here is not subscribed here");
            return Err(Refusal::SessionEnded);
        }
        let bytes = partition.bytes();
        let mut arriving = self.arrivals.arriving.lock();
        let arrival = arriving.get_mut(&id).filter(|arrival| arrival.epoch == epoch).ok_or_else(not_arriving)?;
        let given = arrival.reserved.min(bytes);
        arrival.reserved -= given;
        self.engine.release(given);
        self.engine.reserve(bytes).map_err(|error| refusal_without_wait(error, Object::Pool))?;
        arrival.prepared = Some(PreparedPartition { partition, soft_state, subscribers, ended, strays });
        drop(arriving);
        self.arrivals.prepared.notify_one();
        Ok(())
    }

    /// Forgets a partition that was on its way before this epoch.
    pub(crate) fn cancel_arrival(&self, partition: PartitionId, before: Epoch) {
        let Some(arrival) = self.arrivals.take(partition, |epoch| epoch < before) else { return };
        self.engine.release(arrival.held());
        self.moves.incoming.give_up();
        self.space.notify_freed();
    }

    /// Serves a partition that is prepared; the map says so by now.
    pub(crate) fn finish_arrival(&self, id: PartitionId, as_of: Epoch) {
        // Before it is taken: what neither arrives nor is served would be cleared.
        if self.arrivals.is_prepared(id, as_of) {
            self.arrivals.leftover.lock().remove(&id);
        }
        let Some(Arrival { reserved, prepared, .. }) = self.arrivals.take(id, |epoch| epoch < as_of) else { return };
        self.engine.release(reserved);
        let Some(PreparedPartition { mut partition, soft_state, subscribers, ended, strays }) = prepared else {
            tracing::error!(partition = id.0, "the map gives this node a partition that has not arrived");
            return;
        };
        self.moves.incoming.end();
        // Those who have left since it was prepared are dropped.
        let numbers = self.subscribers.own_numbers(&subscribers).0;
        let soft_state = soft_state.renumbered(|known| numbers.get(&known.number()).copied());
        self.files.fetch_add(partition.files(), Relaxed);
        partition.set_soft_state(soft_state);
        let locked: Vec<(FileId, Holder)> = partition.lock_holders().collect();
        for (file, holder) in locked {
            self.lock_queue.adopt(holder, file);
        }
        let sessions = partition.sessions();
        for session in &sessions {
            self.session_index.note(*session, id);
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
        for (session, file, stripes) in strays {
            self.stray_stripes.add(session, id, file, &stripes);
        }
        self.forwarding.serve(id);
        self.put_partition(partition);
        self.arrivals.end_sessions(ended.into_iter().map(|session| (session, id)));
    }

    /// Removes the stripes of a partition that is not served here.
    async fn clear_partition(&self, partition: PartitionId) -> Outcome<u64> {
        let _guard = self.arrivals.clearing.lock().await;
        if !self.arrivals.is_left(partition, || self.partitions.serves(partition)) {
            return Ok(0);
        }
        let (store, mut removed) = (self.forwarding.inner(), 0);
        let mut scan = store.scan_partition(partition);
        let io = |error| refusal_without_wait(error, Object::Pool);
        while let Some(page) = scan.next_page(SCAN_PAGE).done().await.map_err(io)? {
            for entry in page {
                store.remove(entry.key).done().await.map_err(io)?;
                removed += 1;
            }
            yield_now().await;
        }
        self.arrivals.leftover.lock().remove(&partition);
        if removed > 0 {
            self.space.notify_freed();
        }
        Ok(removed)
    }

    /// Ends the sessions that have ended elsewhere in the partitions that have arrived. Returns
    /// them: the caller finishes what they have left there.
    pub async fn close_arrived_sessions(self: &Arc<Self>) -> Vec<(Session, PartitionId)> {
        let left = mem::take(&mut *self.arrivals.ended_sessions.lock());
        for (session, partition) in &left {
            if let Err(error) = self.close_session_in(*session, *partition).await {
                tracing::debug!(%error, session = session.0, "an ended session has state in a partition that has moved");
            }
        }
        left
    }

    /// Removes the stripes of partitions that have left, or whose arrival was given up; returns
    /// their number.
    pub async fn clear_leftovers(&self) -> Outcome<u64> {
        let left: Vec<PartitionId> = self.arrivals.leftover.lock().iter().copied().collect();
        let mut removed = 0;
        for partition in left {
            removed += self.clear_partition(partition).await?;
        }
        Ok(removed)
    }
}

fn not_arriving() -> Refusal {
    Refusal::invalid(Object::Pool, "a partition was sent that nobody has announced")
}
