//! Waiting for file locks of programs: in order, bounded in number, woken when a lock of the file
//! changes.
//!
//! A partition answers at once whether a lock can be set; a request that wants to wait waits here.
//! Each waiter has a ticket. Of the waiters for one file the earlier is served first, and a new
//! request does not overtake a waiter whose lock conflicts with its own. Only an owner that holds
//! locks already goes past the queue: others may wait for it, so it must never wait for a request
//! that merely waits. So no waiter starves, and the queue adds no deadlocks to those that programs
//! make themselves. Deadlocks of range locks are detected, over all files of this node: the request
//! that would close the cycle is refused with `Deadlock`.

use crate::{Node, ReplyFuture, execute::CommandCall, now, sleep_until, space::EngineFull};
use parking_lot::Mutex;
use partition::Holder;
use placement::{FileId, NodeId, PartitionId};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};
use tokio::sync::Notify;
use wire::{
    Answer, Command, Failure, Lock, LockKind, LockOwner, LockStyle, Object, Outcome, Refusal, RequestId, Session,
};

/// Interval at which a waiter checks whether the process or open that holds the lock still exists.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(50);

/// Most requests that wait for locks at one time; far above what a kernel sends (`max_background`).
const WAITING_MAX: u64 = 4096;

/// The waiters for locks, and the holders of locks.
#[derive(Debug, Default)]
pub struct LockQueue {
    state: Mutex<LockState>,
    /// Number of waiters, readable without the lock.
    waiting: AtomicU64,
}

#[derive(Debug, Default)]
struct LockState {
    /// Waiters in order of arrival.
    tickets: BTreeMap<u64, LockWaiter>,
    issued: u64,
    /// The files on which each holder has locks.
    holders: HashMap<Holder, HashSet<FileId>>,
}

#[derive(Debug)]
struct LockWaiter {
    request: LockRequest,
    woken: Arc<Notify>,
    /// True once its session has ended.
    ended: bool,
}

/// A lock that is requested.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest {
    partition: PartitionId,
    request_id: RequestId,
    pub file: FileId,
    pub lock: Lock,
    wait: bool,
}

/// A place in the queue; dropping it leaves the queue.
struct LockTicket<'a> {
    lock_queue: &'a LockQueue,
    number: u64,
    file: FileId,
    woken: Arc<Notify>,
}

/// The reason for which a lock is not set yet.
enum LockBlocked {
    /// Another owner holds it, or waits for it before this one.
    Taken,
    /// The engine has no space to record it.
    Full(EngineFull),
}

impl LockRequest {
    fn from_call(call: &CommandCall) -> Option<Self> {
        let (partition, request_id) = (call.partition, call.request_id?);
        match call.command {
            Some(Command::Lock { file, lock, wait }) => Some(Self { partition, request_id, file, lock, wait }),
            _ => None,
        }
    }

    fn holder(&self) -> Holder {
        Holder::new(self.request_id.session, self.lock.owner)
    }

    /// True if the two locks conflict.
    fn conflicts_with(&self, other: &Self) -> bool {
        let overlap = match (self.lock.style, other.lock.style) {
            (LockStyle::Whole, LockStyle::Whole) => true,
            (LockStyle::Range { start, end }, LockStyle::Range { start: other, end: last }) => {
                start <= last && other <= end
            }
            _ => false,
        };
        let one_writes = [self, other].iter().any(|request| request.lock.kind == LockKind::Write);
        self.file == other.file && self.holder() != other.holder() && one_writes && overlap
    }
}

impl Node {
    /// Sets or removes a lock: at once, unless the request must wait for it.
    pub(crate) fn lock(self: &Arc<Self>, call: &CommandCall) -> ReplyFuture {
        let Some(request) = LockRequest::from_call(call) else {
            let refusal = Refusal::invalid(Object::Pool, "a lock came without session and number");
            return ReplyFuture::ready(Err(Failure::Refused(refusal)));
        };
        if let Err(refusal) = self.watch_owner(&request) {
            return ReplyFuture::ready(Err(Failure::Refused(refusal)));
        }
        // Before the first try, because a refusal is final.
        self.unlock_dead(&request);
        if let Ok(outcome) = self.try_lock(&request, u64::MAX) {
            return ReplyFuture::ready(outcome.map_err(Failure::Refused));
        }
        let node = self.clone();
        ReplyFuture::deferred(async move { node.wait_for_lock(request).await.map_err(Failure::Refused) })
    }

    /// Tries to set the lock as the waiter with this ticket; a new request passes `u64::MAX`.
    fn try_lock(&self, request: &LockRequest, ticket: u64) -> Result<Outcome<Answer>, LockBlocked> {
        if request.wait && self.lock_queue.must_queue(request, ticket) {
            return Err(LockBlocked::Taken);
        }
        let LockRequest { partition, request_id, file, lock, wait } = *request;
        let command = Command::Lock { file, lock, wait };
        let mut call = CommandCall::with_id(request_id, partition, command);
        let outcome = self.try_execute(&mut call).map_err(LockBlocked::Full)?;
        if matches!(outcome, Err(Refusal::Moved(_))) {
            self.note_moved_lock(call.command.as_ref());
        }
        let lost = self.update_holder(request);
        if outcome.is_ok() || lost {
            self.lock_queue.wake(|waiter| waiter.request.file == file);
        }
        match outcome {
            Err(Refusal::Locked(_)) if wait => Err(LockBlocked::Taken),
            outcome => Ok(outcome),
        }
    }

    async fn wait_for_lock(self: Arc<Self>, request: LockRequest) -> Outcome<Answer> {
        let ticket = self.lock_queue.enqueue(request)?;
        loop {
            match self.try_lock(&request, ticket.number) {
                Ok(outcome) => return outcome,
                Err(LockBlocked::Full(_)) => {
                    let attempt = || match self.try_lock(&request, ticket.number) {
                        Err(LockBlocked::Full(full)) => Err(full),
                        Err(LockBlocked::Taken) => Ok(None),
                        Ok(outcome) => Ok(Some(outcome)),
                    };
                    if let Some(outcome) = self.wait_for_space(attempt).await? {
                        return outcome;
                    }
                }
                Err(LockBlocked::Taken) => {}
            }
            self.lock_queue.check_wait(&ticket, |request| self.blockers(request))?;
            self.wait_for_wakeup(&request, &ticket).await;
        }
    }

    /// Waits until some lock of the file changes. The death of an owner that outlives sessions is
    /// not reported, so it is polled for.
    async fn wait_for_wakeup(&self, request: &LockRequest, ticket: &LockTicket<'_>) {
        let mut woken = pin!(ticket.woken.notified());
        loop {
            let watched = self.blockers(request).iter().any(|holder| holder.owner().host() == Some(self.id()));
            let mut pause = watched.then(|| Box::pin(sleep_until(now() + LIVENESS_INTERVAL)));
            let again = poll_fn(|context| match woken.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(false),
                Poll::Pending => {
                    let paused = pause.as_mut().map_or(Poll::Pending, |pause| pause.as_mut().poll(context));
                    paused.map(|()| true)
                }
            });
            if !again.await || self.unlock_dead(request) {
                return;
            }
        }
    }

    /// The holders whose locks conflict with this one.
    pub(crate) fn blockers(&self, request: &LockRequest) -> Vec<Holder> {
        let partition = self.partitions.lock(request.partition);
        partition.map_or_else(Vec::new, |held| held.lock_blockers(request.holder(), request.file, &request.lock))
    }

    /// Notes whether the holder has locks on the file now; true if it had some and now has none.
    fn update_holder(&self, request: &LockRequest) -> bool {
        let partition = || self.partitions.lock(request.partition);
        let holds = || partition().map(|held| held.has_locks(request.holder(), request.file));
        self.lock_queue.update_holder(request, holds)
    }
}

impl LockQueue {
    fn enqueue(&self, request: LockRequest) -> Outcome<LockTicket<'_>> {
        let (file, woken) = (request.file, Arc::<Notify>::default());
        if self.waiting.fetch_add(1, Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Relaxed);
            return Err(Refusal::TooManyLocks { object: Object::File(file), limit: WAITING_MAX });
        }
        let mut state = self.state.lock();
        state.issued += 1;
        let number = state.issued;
        let waiter = LockWaiter { request, woken: woken.clone(), ended: false };
        state.tickets.insert(number, waiter);
        Ok(LockTicket { lock_queue: self, number, file, woken })
    }

    /// True if an earlier waiter than `ticket` waits for a conflicting lock, and this owner holds
    /// no locks.
    fn must_queue(&self, request: &LockRequest, ticket: u64) -> bool {
        if request.lock.kind == LockKind::Unlock || self.waiting.load(Relaxed) == 0 {
            return false;
        }
        let state = self.state.lock();
        let before = state.tickets.range(..ticket).any(|(_, waiter)| waiter.request.conflicts_with(request));
        before && !state.holders.contains_key(&request.holder())
    }

    /// Calls `holds` under the lock, so that of two concurrent calls the later has the truth.
    /// It returns nothing if the partition has moved; then the hand-over has seen to that.
    fn update_holder(&self, request: &LockRequest, holds: impl FnOnce() -> Option<bool>) -> bool {
        let (holder, mut state) = (request.holder(), self.state.lock());
        match holds() {
            None => return false,
            Some(true) => {
                state.holders.entry(holder).or_default().insert(request.file);
                return false;
            }
            Some(false) => {}
        }
        let Some(files) = state.holders.get_mut(&holder) else { return false };
        let lost = files.remove(&request.file);
        if files.is_empty() {
            state.holders.remove(&holder);
        }
        lost
    }

    /// The files on which a holder has locks.
    pub fn files_locked_by(&self, holder: Holder) -> Vec<FileId> {
        self.state.lock().holders.get(&holder).into_iter().flatten().copied().collect()
    }

    /// The processes of the host of this node that may have locks, each with the file.
    pub fn process_locks(&self, node: NodeId) -> Vec<(u32, FileId)> {
        let state = self.state.lock();
        let of_process = |(holder, files): (&Holder, &HashSet<FileId>)| match holder.owner() {
            LockOwner::Process { node: host, process } if host == node => {
                Some(files.iter().map(|file| (process, *file)).collect::<Vec<_>>())
            }
            _ => None,
        };
        state.holders.iter().filter_map(of_process).flatten().collect()
    }

    /// Records that a holder may have a lock on this file, whose partition has just come to this
    /// node, or is at another one.
    pub fn adopt(&self, holder: Holder, file: FileId) {
        self.state.lock().holders.entry(holder).or_default().insert(file);
    }

    /// Forgets the locks of a holder on this file, and wakes the file's waiters.
    pub fn forget(&self, holder: Holder, file: FileId) {
        let mut state = self.state.lock();
        if let Some(files) = state.holders.get_mut(&holder) {
            files.remove(&file);
            if files.is_empty() {
                state.holders.remove(&holder);
            }
        }
        drop(state);
        self.wake(|waiter| waiter.request.file == file);
    }

    /// Refuses to wait further if the wait is a deadlock or the session has ended. `blockers`
    /// returns the holders of conflicting locks now.
    fn check_wait(&self, ticket: &LockTicket<'_>, blockers: impl Fn(&LockRequest) -> Vec<Holder>) -> Outcome<()> {
        let state = self.state.lock();
        let waiter = &state.tickets[&ticket.number];
        if waiter.ended {
            return Err(Refusal::Interrupted(Object::File(ticket.file)));
        }
        if waiter.is_range_lock() && state.is_deadlocked(&waiter.request, blockers) {
            return Err(Refusal::Deadlock(Object::File(ticket.file)));
        }
        Ok(())
    }

    /// Wakes all waiters: locks of any file may have ended.
    pub fn wake_all(&self) {
        self.wake(|_| true);
    }

    /// Wakes the chosen waiters to try again. They are woken after the lock is released, because a
    /// waker may try at once.
    fn wake(&self, chosen: impl Fn(&LockWaiter) -> bool) {
        if self.waiting.load(Relaxed) == 0 {
            return;
        }
        let state = self.state.lock();
        let woken: Vec<_> = state.tickets.values().filter(|w| chosen(w)).map(|w| w.woken.clone()).collect();
        drop(state);
        for waiter in woken {
            waiter.notify_one();
        }
    }

    /// Marks the waiters of a session that is about to end, so that they stop waiting.
    /// [`Self::wake_all`] must follow.
    pub fn end_session(&self, session: Session) {
        let mut state = self.state.lock();
        state.holders.retain(|holder, _| holder.session != session);
        let of_session = |waiter: &&mut LockWaiter| waiter.request.request_id.session == session;
        state.tickets.values_mut().filter(of_session).for_each(|waiter| waiter.ended = true);
    }
}

impl LockWaiter {
    /// True for a range lock of a process or session. Locks of whole files, and range locks of
    /// opens, belong to open files, which any of several processes may close: they are not part of
    /// deadlock cycles.
    fn is_range_lock(&self) -> bool {
        let Lock { style, owner, .. } = self.request.lock;
        style != LockStyle::Whole && !matches!(owner, LockOwner::Open(_))
    }
}

impl LockState {
    /// True if a holder of a conflicting lock waits, directly or through others, for this owner.
    ///
    /// Conflicts are computed now: what a waiter found at its last try may be outdated. The lock is
    /// held, so nobody starts or stops waiting meanwhile.
    fn is_deadlocked(&self, request: &LockRequest, blockers: impl Fn(&LockRequest) -> Vec<Holder>) -> bool {
        let mut ahead = blockers(request);
        let mut seen = HashSet::new();
        while let Some(next) = ahead.pop() {
            if next == request.holder() {
                return true;
            }
            if seen.insert(next) {
                let waits = |waiter: &&LockWaiter| waiter.request.holder() == next && waiter.is_range_lock();
                ahead.extend(self.tickets.values().filter(waits).flat_map(|waiter| blockers(&waiter.request)));
            }
        }
        false
    }
}

impl Drop for LockTicket<'_> {
    fn drop(&mut self) {
        let removed = self.lock_queue.state.lock().tickets.remove(&self.number);
        self.lock_queue.waiting.fetch_sub(1, Relaxed);
        drop(removed);
        self.lock_queue.wake(|waiter| waiter.request.file == self.file);
    }
}
