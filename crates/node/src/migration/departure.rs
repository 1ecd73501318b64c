//! The source of a move: copies a partition while it is used, then hands it over.

use crate::{
    HostWork, Node, ReplyFuture,
    migration::{
        forwarding_store::QueuedChange,
        move_counters::{CopiedBytes, MoveProgress},
        move_error::MoveError,
        stripe_copy::SentChange,
    },
    now, sleep_until,
};
use bytes::Bytes;
use futures_util::{future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use partition::{CommandCaller, Partition, PartitionTransfer, SubscriberIds};
use placement::{Epoch, NodeId, PartitionEntry, PartitionId};
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    future::Future,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use store::StripeStore;
use tokio::{
    select,
    sync::{Notify, mpsc::UnboundedReceiver},
};
use wire::{Body, Failure, MoveStep, Refusal, Request, Session};

/// Longest time for which kernels may withhold an ack. Shorter than requests wait for an entry:
/// one of those may hold the page that an ack needs.
const ACK_WAIT: Duration = Duration::from_millis(500);
/// Time for subscribers to subscribe at the target.
const INTRODUCTION_WAIT: Duration = Duration::from_secs(10);
/// Most bytes of metadata in one message.
const STATE_BYTES: usize = 1 << 20;
/// Bytes that a stripe or the metadata may take more at the target than here.
const PAGE_BYTES: u64 = 4096;

/// Sends a request to the target of a move. Requests arrive in the order of the calls.
pub type MoveLink = Arc<dyn Fn(Request) -> ReplyFuture + Send + Sync>;

/// The partitions that are moved away.
#[derive(Debug, Default)]
pub struct Departures {
    moves: Mutex<HashMap<PartitionId, DepartureState>>,
    /// The last move of a partition that has failed, with the epoch of its entry.
    failed: Mutex<HashMap<PartitionId, (Epoch, MoveError)>>,
    /// The nodes to which partitions with something of a session have moved. Perhaps its client
    /// does not know them, so this node tells them of the session's end.
    followed: Mutex<HashMap<Session, BTreeSet<NodeId>>>,
}

#[derive(Debug)]
struct DepartureState {
    /// The epoch of the partition's entry; the next one ends the move.
    epoch: Epoch,
    /// Notified when the managers have given up the move.
    cancelled: Arc<Notify>,
    given_up: bool,
    /// The partition, from the moment at which the target may be ready.
    waiting: Option<Partition>,
    /// The time at which requests began to wait.
    paused: Option<Instant>,
    to: NodeId,
    copied: Arc<CopiedBytes>,
}

impl Departures {
    fn begin(
        &self,
        partition: PartitionId,
        epoch: Epoch,
        (to, copied): (NodeId, Arc<CopiedBytes>),
    ) -> Result<Arc<Notify>, MoveError> {
        if let Some((_, error)) = self.failed.lock().get(&partition).filter(|(failed, _)| *failed == epoch) {
            return Err(error.clone());
        }
        let (mut states, cancelled) = (self.moves.lock(), Arc::new(Notify::new()));
        if let Some(known) = states.get(&partition) {
            return Err(if known.epoch == epoch { MoveError::Moving } else { MoveError::OtherEpoch });
        }
        let (given_up, waiting, paused) = (false, None, None);
        let state = DepartureState { epoch, cancelled: cancelled.clone(), given_up, waiting, paused, to, copied };
        states.insert(partition, state);
        Ok(cancelled)
    }

    /// The progress of all moves.
    pub fn progress(&self) -> Vec<MoveProgress> {
        self.moves.lock().iter().map(|(partition, state)| state.copied.progress(*partition, state.to)).collect()
    }

    /// True if a partition is moved away, or waits for the managers' word.
    pub fn has(&self, partition: PartitionId) -> bool {
        self.moves.lock().contains_key(&partition)
    }

    /// True if this move is under way.
    fn is(&self, partition: PartitionId, cancelled: &Arc<Notify>) -> bool {
        self.moves.lock().get(&partition).is_some_and(|state| Arc::ptr_eq(&state.cancelled, cancelled))
    }

    /// Keeps a partition until the managers' word, because the target may be ready from now on.
    /// Returns it if the managers have given up the move already.
    fn keep_waiting(&self, partition: Partition, cancelled: &Arc<Notify>) -> Result<(), Box<Partition>> {
        match self.moves.lock().get_mut(&partition.id()) {
            Some(state) if Arc::ptr_eq(&state.cancelled, cancelled) && !state.given_up => {
                state.waiting = Some(partition);
                Ok(())
            }
            _ => Err(Box::new(partition)),
        }
    }

    /// Takes a partition back whose target has refused to be ready.
    fn take_refused(&self, partition: PartitionId, cancelled: &Arc<Notify>) -> Option<Partition> {
        let mut states = self.moves.lock();
        let state = states.get_mut(&partition).filter(|state| Arc::ptr_eq(&state.cancelled, cancelled));
        state.and_then(|state| state.waiting.take())
    }

    /// Takes a partition that waits for the managers' word, and ends its move. Returns for how long
    /// its requests have waited too.
    fn take_waiting(&self, partition: PartitionId) -> Option<(Partition, Duration)> {
        let mut states = self.moves.lock();
        let waiting = states.get_mut(&partition)?.waiting.take()?;
        let paused = states.remove(&partition).and_then(|state| state.paused);
        let paused = paused.map_or(Duration::ZERO, |paused| paused.elapsed());
        tracing::debug!(
            partition = partition.0,
            millis = paused.as_millis(),
            "requests for a partition that moves waited"
        );
        Some((waiting, paused))
    }

    /// Forgets a move.
    fn end(&self, partition: PartitionId) {
        self.moves.lock().remove(&partition);
    }

    /// Takes the nodes to which something of a session has moved.
    pub fn take_followed(&self, session: Session) -> BTreeSet<NodeId> {
        self.followed.lock().remove(&session).unwrap_or_default()
    }

    fn follow(&self, sessions: impl Iterator<Item = Session>, to: NodeId) {
        let mut followed = self.followed.lock();
        for session in sessions {
            followed.entry(session).or_default().insert(to);
        }
    }
}

/// A move under way. Unless the target may be ready, the partition is served here again when this
/// is dropped.
pub struct Departure<'a> {
    pub(super) node: &'a Arc<Node>,
    pub(super) id: PartitionId,
    /// The epoch of the partition's entry, by which the target knows the move.
    epoch: Epoch,
    to: NodeId,
    link: MoveLink,
    cancelled: Arc<Notify>,
    /// Changes of the stripes, from the moment at which the target knows of the move.
    pub(super) changes: Option<UnboundedReceiver<QueuedChange>>,
    pub(super) in_flight: FuturesUnordered<BoxFuture<'static, SentChange>>,
    /// Bytes of copies and changes that are on their way.
    pub(super) bytes_in_flight: u64,
    pub(super) copied: Arc<CopiedBytes>,
    /// The partition, if it is taken out.
    partition: Option<Partition>,
    may_be_ready: bool,
}

impl Node {
    /// Moves a partition, as of this epoch of its entry, to the node `to` at the other end of the
    /// link. Returns when that node is ready: then requests wait here until [`Self::learn`] is told
    /// the next entry. On an error, or if the future is dropped, the partition is served here as
    /// before, except on [`MoveError::Unknown`].
    ///
    /// A move that has failed is not tried again by the same entry, but answered with its error:
    /// what it has sent may still arrive, and the managers may not have heard of the failure.
    pub async fn send_partition(
        self: &Arc<Self>,
        (id, epoch): (PartitionId, Epoch),
        to: NodeId,
        link: MoveLink,
    ) -> Result<(), MoveError> {
        if self.partitions.epoch(id) != Some(epoch) {
            return Err(MoveError::OtherEpoch);
        }
        let copied = Arc::new(CopiedBytes::default());
        let cancelled = self.departures.begin(id, epoch, (to, copied.clone()))?;
        if !self.partitions.serves(id) {
            self.departures.end(id);
            return Err(MoveError::NotServed);
        }
        self.moves.outgoing.begin();
        let mut departure = Departure {
            node: self,
            id,
            epoch,
            to,
            link,
            cancelled: cancelled.clone(),
            changes: None,
            in_flight: FuturesUnordered::new(),
            bytes_in_flight: 0,
            copied,
            partition: None,
            may_be_ready: false,
        };
        let failed = select! {
            biased;
            () = cancelled.notified() => return Err(MoveError::Cancelled),
            done = departure.run() => done.err(),
        };
        let Some(error) = failed else { return Ok(()) };
        self.departures.failed.lock().insert(id, (epoch, error.clone()));
        Err(error)
    }

    /// Ends a move from this node, of whose partition it has learnt this entry.
    pub(crate) fn end_departure(&self, id: PartitionId, entry: &PartitionEntry) {
        self.departures.failed.lock().remove(&id);
        if let Some(state) = self.departures.moves.lock().get_mut(&id) {
            state.given_up = true;
            state.cancelled.notify_one();
        }
        let Some((partition, paused)) = self.departures.take_waiting(id) else { return };
        self.record_move_pause(paused);
        // Until now source, target and managers have worked for it.
        self.move_pace.charge(paused, now());
        // While it waits here it cannot come back, so it has not been elsewhere.
        if entry.server == self.id() {
            self.moves.outgoing.give_up();
            self.serve_again(partition);
        } else {
            self.moves.outgoing.end();
            self.forget_departed(&partition, entry.server);
        }
    }

    /// Serves a partition that was taken out.
    fn serve_again(&self, partition: Partition) {
        let id = partition.id();
        self.hosted.take_partition(id);
        self.forwarding.serve(id);
        self.put_partition(partition);
        self.learned.notify_waiters();
    }

    /// Puts a partition in, and ends what has ended while it was in no place.
    pub(crate) fn put_partition(&self, partition: Partition) {
        let (id, sessions) = (partition.id(), partition.sessions());
        self.partitions.put(partition);
        if let Some(mut partition) = self.partitions.lock(id) {
            let subscribers: Vec<_> = partition.subscribers().collect();
            for (subscriber, _) in subscribers.into_iter().filter(|(number, of)| !self.subscribers.is(*number, *of)) {
                partition.remove_subscriber(subscriber);
            }
        }
        let ended = sessions.into_iter().filter(|session| self.session_index.has_ended(*session));
        self.arrivals.end_sessions(ended.map(|session| (session, id)));
    }

    /// Forgets a partition that is served at another node.
    fn forget_departed(&self, partition: &Partition, to: NodeId) {
        let id = partition.id();
        // Sessions of nodes never end.
        let noted = self.stray_stripes.notes_in(id).into_iter().map(|(session, ..)| session);
        let sessions: BTreeSet<Session> = partition.sessions().into_iter().chain(noted).collect();
        let sessions: Vec<Session> = sessions.into_iter().filter(|session| session.origin().1 != 0).collect();
        self.departures.follow(sessions.iter().copied(), to);
        // Some have ended since the target was told which have.
        for session in sessions.into_iter().filter(|session| self.session_index.has_ended(*session)) {
            self.tell_of_end(session, false);
        }
        self.forwarding.end_copy(id);
        self.files.fetch_sub(partition.files(), Relaxed);
        self.engine.release(partition.bytes());
        for (file, holder) in partition.lock_holders() {
            if holder.owner().host() == Some(self.id()) {
                self.lock_queue.adopt(holder, file);
            } else {
                self.lock_queue.forget(holder, file);
            }
        }
        self.stray_stripes.forget_partition(id);
        self.arrivals.add_leftover(id);
        self.lock_queue.wake_all();
        self.space.notify_freed();
    }

    /// Has the nodes to which something of a session has moved hear of its end. `left`: it ends
    /// only because this node leaves the pool.
    pub(crate) fn tell_of_end(&self, session: Session, left: bool) {
        for node in self.departures.take_followed(session) {
            self.hosted.push(HostWork::EndSession { node, session, left });
        }
    }

    /// Waits until all invalidations that were sent are acknowledged; false if that takes too long.
    async fn are_acked_in_time(&self) -> bool {
        let all = CommandCaller { others: SubscriberIds::ALL, ..CommandCaller::default() };
        let Some(pending) = self.subscribers.pending_acks(all) else { return true };
        in_time(pending.wait(), ACK_WAIT).await
    }
}

/// Waits for a future; false if that takes too long.
async fn in_time(future: impl Future<Output = ()>, most: Duration) -> bool {
    select! {
        biased;
        () = future => true,
        () = sleep_until(now() + most) => false,
    }
}

impl Departure<'_> {
    async fn run(&mut self) -> Result<(), MoveError> {
        self.rest().await?;
        let began = now();
        let bytes = self.estimate().await?;
        self.copied.set_total(bytes);
        self.call(MoveStep::Reserve { bytes }).await?;
        self.node.move_pace.charge(now().saturating_duration_since(began), now());
        self.changes = Some(self.node.forwarding.begin_copy(self.id));
        let introduced = self.node.subscribers.introduce(self.to);
        self.copy_stripes().await?;
        if let Some(introduced) = introduced {
            in_time(introduced.wait(), INTRODUCTION_WAIT).await;
        }
        if !self.node.are_acked_in_time().await {
            return Err(MoveError::NoAck);
        }
        self.rest().await?;
        self.pause().await?;
        self.send_state().await
    }

    /// The space that the partition needs at the target.
    async fn estimate(&mut self) -> Result<u64, MoveError> {
        let node = self.node;
        let metadata = node.partitions.lock(self.id).map_or(0, |partition| partition.bytes());
        let (mut scan, mut bytes) = (node.forwarding.scan_partition(self.id), metadata + PAGE_BYTES);
        while let Some(page) = self.next_page(&mut *scan).await? {
            bytes += page.iter().map(|entry| u64::from(entry.length).next_multiple_of(PAGE_BYTES)).sum::<u64>();
        }
        Ok(bytes)
    }

    pub(super) fn step(&self, step: MoveStep) -> ReplyFuture {
        let (epoch, partition, body) = (self.epoch, self.id, Body::Move { step });
        (self.link)(Request { epoch, session: Session::NONE, skip_ack: false, partition, body })
    }

    async fn call(&mut self, step: MoveStep) -> Result<(), MoveError> {
        self.step(step).await.map(drop).map_err(MoveError::Target)
    }

    /// Takes the partition out: requests wait from now on. What was done before is sent.
    async fn pause(&mut self) -> Result<(), MoveError> {
        let node = self.node;
        node.detach_opens_in(self.id);
        let partition = node.partitions.take(self.id).ok_or(MoveError::NotServed)?;
        if let Some(state) = node.departures.moves.lock().get_mut(&self.id) {
            state.paused = Some(Instant::now());
        }
        node.hosted.add(partition.hosted_files(node.id()));
        self.partition = Some(partition);
        node.forwarding.close(self.id);
        self.settle_all().await?;
        if node.are_acked_in_time().await { Ok(()) } else { Err(MoveError::NoAck) }
    }

    /// Sends the metadata, and has the target get ready.
    async fn send_state(&mut self) -> Result<(), MoveError> {
        let node = self.node;
        let Some(partition) = &self.partition else { return Err(MoveError::NotServed) };
        let mut transfer = PartitionTransfer::new(partition, node.subscribers.sessions());
        let has_ended = |session: &Session| node.session_index.has_ended(*session);
        transfer.strays = node.stray_stripes.notes_in(self.id);
        let noted = transfer.strays.iter().map(|(session, ..)| *session);
        transfer.ended = partition.sessions().into_iter().chain(noted).filter(has_ended).collect();
        let state = Bytes::from(transfer.encode());
        for at in (0..state.len()).step_by(STATE_BYTES) {
            let data = state.slice(at..state.len().min(at + STATE_BYTES));
            self.call(MoveStep::State { data }).await?;
        }
        let Some(partition) = self.partition.take() else { return Err(MoveError::NotServed) };
        if let Err(partition) = node.departures.keep_waiting(partition, &self.cancelled) {
            self.partition = Some(*partition);
            return Err(MoveError::Cancelled);
        }
        self.may_be_ready = true;
        match self.step(MoveStep::Prepare).await {
            Ok(_) => Ok(()),
            Err(Failure::Refused(refusal)) => {
                self.partition = node.departures.take_refused(self.id, &self.cancelled);
                self.may_be_ready = false;
                Err(match refusal {
                    Refusal::SessionEnded => MoveError::NotSubscribed,
                    other => MoveError::Target(Failure::Refused(other)),
                })
            }
            Err(failure) => Err(MoveError::Unknown(failure)),
        }
    }
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        if !self.may_be_ready {
            self.node.moves.outgoing.give_up();
            if self.node.departures.is(self.id, &self.cancelled) {
                match self.partition.take() {
                    Some(partition) => self.node.serve_again(partition),
                    None => self.node.forwarding.serve(self.id),
                }
                self.node.departures.end(self.id);
            }
            // If the target does not hear of it, the managers tell it.
            drop(self.step(MoveStep::Cancel));
        }
        let Some(mut changes) = self.changes.take() else { return };
        changes.close();
        while let Ok(change) = changes.try_recv() {
            change.complete();
        }
    }
}

impl fmt::Debug for Departure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Departure").field("partition", &self.id).finish_non_exhaustive()
    }
}
