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

use crate::{Node, Reply, meta::MetaCall, now, sleep_until, space::Full};
use parking_lot::Mutex;
use partition::Holder;
use placement::{FileId, PartitionId};
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
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// Most requests that wait for locks at one time; far above what a kernel sends (`max_background`).
const WAITING_MAX: u64 = 4096;

/// The waiters for locks, and the holders of locks.
#[derive(Debug, Default)]
pub struct Locks {
    state: Mutex<State>,
    /// Number of waiters, readable without the lock.
    waiting: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Waiters in order of arrival.
    tickets: BTreeMap<u64, Waiter>,
    made: u64,
    /// The files on which each holder has locks.
    holding: HashMap<Holder, HashSet<FileId>>,
}

#[derive(Debug)]
struct Waiter {
    asked: Asked,
    woken: Arc<Notify>,
    /// True once its session has ended.
    ended: bool,
}

/// A lock that is requested.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    partition: PartitionId,
    request_id: RequestId,
    pub file: FileId,
    pub lock: Lock,
    wait: bool,
}

/// A place in the queue; dropping it leaves the queue.
struct Ticket<'a> {
    locks: &'a Locks,
    number: u64,
    file: FileId,
    woken: Arc<Notify>,
}

/// The reason for which a lock is not set yet.
enum Stuck {
    /// Another owner holds it, or waits for it before this one.
    Taken,
    /// There is no memory to note it.
    Full(Full),
}

impl Asked {
    fn of(call: &MetaCall) -> Option<Self> {
        let (partition, request_id) = (call.partition, call.request_id?);
        match call.command {
            Some(Command::Lock { file, lock, wait }) => Some(Self { partition, request_id, file, lock, wait }),
            _ => None,
        }
    }

    fn holder(&self) -> Holder {
        Holder::of(self.request_id.session, self.lock.owner)
    }

    /// True if the two locks conflict.
    fn meets(&self, other: &Self) -> bool {
        let overlap = match (self.lock.style, other.lock.style) {
            (LockStyle::Whole, LockStyle::Whole) => true,
            (LockStyle::Range { start, end }, LockStyle::Range { start: other, end: last }) => {
                start <= last && other <= end
            }
            _ => false,
        };
        let one_writes = [self, other].iter().any(|asked| asked.lock.kind == LockKind::Write);
        self.file == other.file && self.holder() != other.holder() && one_writes && overlap
    }
}

impl Node {
    /// Sets or removes a lock: at once, unless the request must wait for it.
    pub(crate) fn lock(self: &Arc<Self>, call: &MetaCall) -> Reply {
        let Some(asked) = Asked::of(call) else {
            let refusal = Refusal::invalid(Object::Pool, "a lock came without session and number");
            return Reply::ready(Err(Failure::Refused(refusal)));
        };
        if let Err(refusal) = self.know_owner(&asked) {
            return Reply::ready(Err(Failure::Refused(refusal)));
        }
        // Before the first try, because a refusal is final.
        self.end_dead(&asked);
        if let Ok(outcome) = self.try_lock(&asked, u64::MAX) {
            return Reply::ready(outcome.map_err(Failure::Refused));
        }
        let node = self.clone();
        Reply::later(async move { node.wait_for_lock(asked).await.map_err(Failure::Refused) })
    }

    /// Tries to set the lock as the waiter with this ticket; a new request passes `u64::MAX`.
    fn try_lock(&self, asked: &Asked, ticket: u64) -> Result<Outcome<Answer>, Stuck> {
        if asked.wait && self.locks.must_queue(asked, ticket) {
            return Err(Stuck::Taken);
        }
        let Asked { partition, request_id, file, lock, wait } = *asked;
        let command = Command::Lock { file, lock, wait };
        let mut call = MetaCall::of(request_id, partition, command);
        let outcome = self.try_meta(&mut call).map_err(Stuck::Full)?;
        let lost = self.note_held(asked);
        if outcome.is_ok() || lost {
            self.locks.wake(|waiter| waiter.asked.file == file);
        }
        match outcome {
            Err(Refusal::Locked(_)) if wait => Err(Stuck::Taken),
            outcome => Ok(outcome),
        }
    }

    async fn wait_for_lock(self: Arc<Self>, asked: Asked) -> Outcome<Answer> {
        let ticket = self.locks.enter(asked)?;
        loop {
            match self.try_lock(&asked, ticket.number) {
                Ok(outcome) => return outcome,
                Err(Stuck::Full(_)) => {
                    let attempt = |_: &Self| match self.try_lock(&asked, ticket.number) {
                        Err(Stuck::Full(full)) => Err(full),
                        Err(Stuck::Taken) => Ok(None),
                        Ok(outcome) => Ok(Some(outcome)),
                    };
                    if let Some(outcome) = self.wait_for_space(attempt).await? {
                        return outcome;
                    }
                }
                Err(Stuck::Taken) => {}
            }
            self.locks.check(&ticket, |asked| self.blockers(asked))?;
            self.wait_to_be_woken(&asked, &ticket).await;
        }
    }

    /// Waits until some lock of the file changes. The death of an owner that outlives sessions is
    /// not reported, so it is polled for.
    async fn wait_to_be_woken(&self, asked: &Asked, ticket: &Ticket<'_>) {
        let mut woken = pin!(ticket.woken.notified());
        loop {
            let watched = self.blockers(asked).iter().any(|holder| holder.owner().outlives_sessions());
            let mut pause = watched.then(|| Box::pin(sleep_until(now() + LOOK_PAUSE)));
            let again = poll_fn(|context| match woken.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(false),
                Poll::Pending => {
                    let paused = pause.as_mut().map_or(Poll::Pending, |pause| pause.as_mut().poll(context));
                    paused.map(|()| true)
                }
            });
            if !again.await || self.end_dead(asked) {
                return;
            }
        }
    }

    /// The holders whose locks conflict with this one.
    pub(crate) fn blockers(&self, asked: &Asked) -> Vec<Holder> {
        let partition = self.partitions.get(asked.partition);
        partition.map_or_else(Vec::new, |held| held.lock().lock_blockers(asked.holder(), asked.file, &asked.lock))
    }

    /// Notes whether the holder has locks on the file now; true if it had some and now has none.
    fn note_held(&self, asked: &Asked) -> bool {
        let partition = self.partitions.get(asked.partition);
        let holds = || partition.is_some_and(|held| held.lock().has_locks(asked.holder(), asked.file));
        self.locks.note(asked, holds)
    }
}

impl Locks {
    fn enter(&self, asked: Asked) -> Outcome<Ticket<'_>> {
        let (file, woken) = (asked.file, Arc::<Notify>::default());
        if self.waiting.fetch_add(1, Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Relaxed);
            return Err(Refusal::TooManyLocks { object: Object::File(file), limit: WAITING_MAX });
        }
        let mut state = self.state.lock();
        state.made += 1;
        let number = state.made;
        let waiter = Waiter { asked, woken: woken.clone(), ended: false };
        state.tickets.insert(number, waiter);
        Ok(Ticket { locks: self, number, file, woken })
    }

    /// True if an earlier waiter than `ticket` waits for a conflicting lock, and this owner holds
    /// no locks.
    fn must_queue(&self, asked: &Asked, ticket: u64) -> bool {
        if asked.lock.kind == LockKind::Unlock || self.waiting.load(Relaxed) == 0 {
            return false;
        }
        let state = self.state.lock();
        let before = state.tickets.range(..ticket).any(|(_, waiter)| waiter.asked.meets(asked));
        before && !state.holding.contains_key(&asked.holder())
    }

    /// Calls `holds` under the lock, so that of two concurrent calls the later has the truth.
    fn note(&self, asked: &Asked, holds: impl FnOnce() -> bool) -> bool {
        let (holder, mut state) = (asked.holder(), self.state.lock());
        if holds() {
            state.holding.entry(holder).or_default().insert(asked.file);
            return false;
        }
        let Some(files) = state.holding.get_mut(&holder) else { return false };
        let lost = files.remove(&asked.file);
        if files.is_empty() {
            state.holding.remove(&holder);
        }
        lost
    }

    /// The files on which a holder has locks.
    pub fn held_by(&self, holder: Holder) -> Vec<FileId> {
        self.state.lock().holding.get(&holder).into_iter().flatten().copied().collect()
    }

    /// Forgets the locks of a holder on this file, and wakes the file's waiters.
    pub fn forget(&self, holder: Holder, file: FileId) {
        let mut state = self.state.lock();
        if let Some(files) = state.holding.get_mut(&holder) {
            files.remove(&file);
            if files.is_empty() {
                state.holding.remove(&holder);
            }
        }
        drop(state);
        self.wake(|waiter| waiter.asked.file == file);
    }

    /// Refuses to wait further if the wait is a deadlock or the session has ended. `blockers`
    /// returns the holders of conflicting locks now.
    fn check(&self, ticket: &Ticket<'_>, blockers: impl Fn(&Asked) -> Vec<Holder>) -> Outcome<()> {
        let state = self.state.lock();
        let waiter = &state.tickets[&ticket.number];
        if waiter.ended {
            return Err(Refusal::Interrupted(Object::File(ticket.file)));
        }
        if waiter.is_of_range() && state.waits_for_itself(&waiter.asked, blockers) {
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
    fn wake(&self, chosen: impl Fn(&Waiter) -> bool) {
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
        state.holding.retain(|holder, _| holder.session != session);
        let of_session = |waiter: &&mut Waiter| waiter.asked.request_id.session == session;
        state.tickets.values_mut().filter(of_session).for_each(|waiter| waiter.ended = true);
    }
}

impl Waiter {
    /// True for a range lock of a process or session. Locks of whole files, and range locks of
    /// opens, belong to open files, which any of several processes may close: they are not part of
    /// deadlock cycles.
    fn is_of_range(&self) -> bool {
        let Lock { style, owner, .. } = self.asked.lock;
        style != LockStyle::Whole && !matches!(owner, LockOwner::Open(_))
    }
}

impl State {
    /// True if a holder of a conflicting lock waits, directly or through others, for this owner.
    ///
    /// Conflicts are computed now: what a waiter found at its last try may be outdated. The lock is
    /// held, so nobody starts or stops waiting meanwhile.
    fn waits_for_itself(&self, asked: &Asked, blockers: impl Fn(&Asked) -> Vec<Holder>) -> bool {
        let mut ahead = blockers(asked);
        let mut seen = HashSet::new();
        while let Some(next) = ahead.pop() {
            if next == asked.holder() {
                return true;
            }
            if seen.insert(next) {
                let waits = |waiter: &&Waiter| waiter.asked.holder() == next && waiter.is_of_range();
                ahead.extend(self.tickets.values().filter(waits).flat_map(|waiter| blockers(&waiter.asked)));
            }
        }
        false
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let removed = self.locks.state.lock().tickets.remove(&self.number);
        self.locks.waiting.fetch_sub(1, Relaxed);
        drop(removed);
        self.locks.wake(|waiter| waiter.asked.file == self.file);
    }
}
