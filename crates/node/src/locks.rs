//! Waiting for locks of programs: in order, bounded in number, woken when a lock of the file changes.
//!
//! A partition says at once whether a lock can be set; who wants to wait waits here. Each who waits has a ticket; of those that
//! wait for one file the earlier is served first, and a newcomer does not overtake one whose lock meets his own. Only who holds
//! locks already goes past: somebody may wait for him, so he must never wait for somebody who merely waits. So no one starves,
//! and waiting in order adds no deadlock to those that programs make themselves. These are seen for locks of ranges, over all
//! files of this node: whoever closes the circle is refused with `Deadlock`.

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
use wire::{Answer, Command, Failure, Lock, LockKind, LockOwner, LockStyle, Object, Outcome, Refusal, Session, Stamp};

/// So often it is looked whether a process or an open lives that has what somebody waits for.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// More requests do not wait for locks at one time; far above what a kernel sends (`max_background`).
const WAITING_MAX: u64 = 4096;

/// Who waits for a lock, and who holds some.
#[derive(Debug, Default)]
pub struct Locks {
    state: Mutex<State>,
    /// How many wait, for a look without the lock.
    waiting: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// In order of arrival.
    tickets: BTreeMap<u64, Waiter>,
    made: u64,
    /// The files that each holder has locks on.
    holding: HashMap<Holder, HashSet<FileId>>,
}

#[derive(Debug)]
struct Waiter {
    asked: Asked,
    woken: Arc<Notify>,
    /// Its session is no more.
    ended: bool,
}

/// A lock that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    partition: PartitionId,
    stamp: Stamp,
    pub file: FileId,
    pub lock: Lock,
    wait: bool,
}

/// A place in the queue, for as long as it lives.
struct Ticket<'a> {
    locks: &'a Locks,
    number: u64,
    file: FileId,
    woken: Arc<Notify>,
}

/// Why a lock was not set yet.
enum Stuck {
    /// Somebody holds it, or waited for it before.
    Taken,
    /// There is no memory to note it.
    Full(Full),
}

impl Asked {
    fn of(call: &MetaCall) -> Option<Self> {
        let (partition, stamp) = (call.partition, call.stamp?);
        match call.command {
            Some(Command::Lock { file, lock, wait }) => Some(Self { partition, stamp, file, lock, wait }),
            _ => None,
        }
    }

    fn holder(&self) -> Holder {
        Holder::of(self.stamp.session, self.lock.owner)
    }

    /// Whether both cannot be had at once.
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
    /// Sets or ends a lock: at once, unless it is to wait for it.
    pub(crate) fn lock(self: &Arc<Self>, call: &MetaCall) -> Reply {
        let Some(asked) = Asked::of(call) else {
            let refusal = Refusal::invalid(Object::Pool, "a lock came without session and number");
            return Reply::ready(Err(Failure::Refused(refusal)));
        };
        if let Err(refusal) = self.know_owner(&asked) {
            return Reply::ready(Err(Failure::Refused(refusal)));
        }
        // Before it is tried: a refusal stands.
        self.end_dead(&asked);
        if let Ok(outcome) = self.try_lock(&asked, u64::MAX) {
            return Reply::ready(outcome.map_err(Failure::Refused));
        }
        let node = self.clone();
        Reply::later(async move { node.wait_for_lock(asked).await.map_err(Failure::Refused) })
    }

    /// Tries as the holder of this ticket, or as a newcomer.
    fn try_lock(&self, asked: &Asked, ticket: u64) -> Result<Outcome<Answer>, Stuck> {
        if asked.wait && self.locks.must_queue(asked, ticket) {
            return Err(Stuck::Taken);
        }
        let Asked { partition, stamp, file, lock, wait } = *asked;
        let command = Command::Lock { file, lock, wait };
        let mut call = MetaCall::of(stamp, partition, command);
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

    /// Until something of the file's locks changes. Of who holds one and dies without a word nobody tells: that is looked for.
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

    /// Who stands in the way.
    pub(crate) fn blockers(&self, asked: &Asked) -> Vec<Holder> {
        let partition = self.partitions.get(asked.partition);
        partition.map_or_else(Vec::new, |held| held.lock().lock_blockers(asked.holder(), asked.file, &asked.lock))
    }

    /// Notes whether the holder has locks on the file now; says whether it had some and has none.
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

    /// Whether somebody before `ticket` waits for what this lock would take from him; who holds locks goes past.
    fn must_queue(&self, asked: &Asked, ticket: u64) -> bool {
        if asked.lock.kind == LockKind::Unlock || self.waiting.load(Relaxed) == 0 {
            return false;
        }
        let state = self.state.lock();
        let before = state.tickets.range(..ticket).any(|(_, waiter)| waiter.asked.meets(asked));
        before && !state.holding.contains_key(&asked.holder())
    }

    /// `holds` is asked under the lock, so that of two who note the later tells the truth.
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

    /// The files that a holder has locks on.
    pub fn held_by(&self, holder: Holder) -> Vec<FileId> {
        self.state.lock().holding.get(&holder).into_iter().flatten().copied().collect()
    }

    /// The holder has none on this file any more.
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

    /// Refused when waiting has no end, or no sense any more. `blockers` says who stands in the way now.
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

    /// Locks may have ended anywhere.
    pub fn wake_all(&self) {
        self.wake(|_| true);
    }

    /// Those chosen try again. They are woken when the lock is free: a waker may try at once.
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

    /// The session is about to end: whoever of it waits for a lock waits no more. Followed by [`Self::wake_all`].
    pub fn end_session(&self, session: Session) {
        let mut state = self.state.lock();
        state.holding.retain(|holder, _| holder.session != session);
        let of_session = |waiter: &&mut Waiter| waiter.asked.stamp.session == session;
        state.tickets.values_mut().filter(of_session).for_each(|waiter| waiter.ended = true);
    }
}

impl Waiter {
    /// Locks of whole files, and of ranges of opens, belong to open files, which any of several processes may close: they are in no circle.
    fn is_of_range(&self) -> bool {
        let Lock { style, owner, .. } = self.asked.lock;
        style != LockStyle::Whole && !matches!(owner, LockOwner::Open(_))
    }
}

impl State {
    /// Whether those in the way of what is asked wait, by however many others, for who asks.
    ///
    /// Who stands in whose way is looked up now: what a waiter found at its last try may have passed since. While this looks,
    /// nobody begins or ends to wait.
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
