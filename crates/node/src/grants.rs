//! The set of subscribers: maps sessions to small numbers, and passes the partitions' invalidations
//! to the subscribers concerned.
//!
//! While nobody but the caller subscribes, all this costs one atomic load.

use crate::sync::{
    RwLock,
    atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
};
use crate::{
    Hear, Node,
    watch::{Hearing, Watch},
};
use partition::{Asker, Note, Watcher};
use wire::{Object, Outcome, Recall, Refusal, Session};

/// All subscribers of a node.
#[derive(Debug, Default)]
pub struct Watches {
    /// A bit for each subscriber that exists, readable without a lock.
    live: AtomicU32,
    /// A bit for each subscriber whose kernel supports prune notices.
    pruning: AtomicU32,
    sessions: [AtomicU64; Watcher::MAX],
    table: RwLock<[Option<Watch>; Watcher::MAX]>,
}

impl Watches {
    /// The caller's context for partitions: its session, its subscriber number, and the other
    /// subscribers. Must be called under the lock of the partition, so that no grant is made there
    /// after [`Node::unwatch`] has visited it.
    pub fn asker(&self, session: Session) -> Asker {
        match self.live.load(SeqCst) {
            0 => Asker::alone(session),
            live => self.among(live, session),
        }
    }

    fn among(&self, live: u32, session: Session) -> Asker {
        let mut asker = Asker::alone(session);
        let pruning = self.pruning.load(SeqCst);
        let mut left = live;
        while left != 0 {
            let number = left.trailing_zeros() as usize;
            left &= left - 1;
            let watcher = Watcher::new(number).expect("only these are given");
            if pruning & 1 << number != 0 {
                asker.pruning = asker.pruning.with(watcher);
            }
            if self.sessions[number].load(SeqCst) == session.0 {
                asker.watcher = Some(watcher);
            } else {
                asker.others = asker.others.with(watcher);
            }
        }
        asker
    }

    /// Queues the invalidations for the subscribers that must get them; returns the acks that the
    /// answer waits for. Must be called under the partition's lock, so that a request that sees the
    /// change also finds the invalidation queued. Nobody waits for the ack of a removal: the file
    /// is gone for every request, and only its space is freed later.
    pub fn tell(&self, asker: Asker, notes: &[Note]) -> Option<Hearing> {
        if notes.is_empty() {
            return None;
        }
        let table = self.table.read();
        let mut waits = Vec::new();
        for note in notes {
            let waited = !matches!(note.recall, Recall::Removed(_));
            let own = asker.watcher.filter(|_| note.seen);
            let asked = if waited { asker.others.or(note.tell) } else { note.tell };
            for watcher in asked.iter().chain(own) {
                let Some(watch) = &table[watcher.number()] else { continue };
                let lane = watch.lane(note.recall);
                let batch = if note.tell.has(watcher) { Some(lane.post(note.recall)) } else { lane.find(note.recall) };
                waits.extend(batch.filter(|_| waited).map(|batch| (lane.clone(), batch)));
            }
        }
        Hearing::of(waits)
    }

    /// The outstanding acks of all other subscribers.
    pub fn pending(&self, asker: Asker) -> Option<Hearing> {
        if asker.others.is_empty() {
            return None;
        }
        let table = self.table.read();
        let watches = asker.others.iter().filter_map(|watcher| table[watcher.number()].as_ref());
        let lanes = watches.flat_map(Watch::lanes);
        Hearing::of(lanes.filter_map(|lane| Some((lane.clone(), lane.last()?))).collect())
    }

    /// The outstanding acks for this invalidation, of any subscriber, the caller's own too.
    pub fn unheard(&self, recall: Recall) -> Option<Hearing> {
        if self.live.load(SeqCst) == 0 {
            return None;
        }
        let table = self.table.read();
        let lanes = table.iter().flatten().map(|watch| watch.lane(recall));
        Hearing::of(lanes.filter_map(|lane| Some((lane.clone(), lane.find(recall)?))).collect())
    }

    fn add(&self, session: Session, hear: &Hear) -> Outcome<()> {
        let mut table = self.table.write();
        if self.asker(session).watcher.is_some() {
            return Err(Refusal::invalid(Object::Pool, "this session watches already"));
        }
        let limit = Watcher::MAX as u64;
        // A subscriber that is just ending has left its slot in the table, but its number is still
        // taken.
        let live = self.live.load(SeqCst);
        let free = (0..Watcher::MAX).find(|free| table[*free].is_none() && live & 1 << free == 0);
        let free = free.ok_or(Refusal::TooManyOpen { object: Object::Pool, limit })?;
        let failed = |error: std::io::Error| Refusal::Io {
            object: Object::Pool,
            why: format!("no thread for a mount's recalls: {error}").into(),
        };
        table[free] = Some(Watch::start(hear).map_err(failed)?);
        self.sessions[free].store(session.0, SeqCst);
        self.live.fetch_or(1 << free, SeqCst);
        Ok(())
    }

    fn prunes(&self, session: Session) {
        let _table = self.table.write();
        if let Some(watcher) = self.asker(session).watcher {
            self.pruning.fetch_or(1 << watcher.number(), SeqCst);
        }
    }

    /// Ends a subscriber. Its number stays taken until [`Self::free`].
    fn end(&self, session: Session) -> Option<Watcher> {
        let mut table = self.table.write();
        let watcher = self.asker(session).watcher?;
        self.pruning.fetch_and(!(1 << watcher.number()), SeqCst);
        self.sessions[watcher.number()].store(Session::NONE.0, SeqCst);
        table[watcher.number()] = None;
        Some(watcher)
    }

    fn free(&self, watcher: Watcher) {
        self.live.fetch_and(!(1 << watcher.number()), SeqCst);
    }
}

impl Node {
    /// Subscribes a session: it may cache what it is answered from now on, until `hear` is called
    /// to invalidate it. `hear` runs on threads of the node, before the change is answered. At most
    /// 16 sessions subscribe at one time.
    pub fn watch(&self, session: Session, hear: &Hear) -> Outcome<()> {
        self.watches.add(session, hear)
    }

    /// Records that the kernel of this subscriber supports prune notices. From now on it is
    /// notified of inodes that others remove, and such an inode is kept until that kernel has
    /// forgotten it.
    pub fn prunes(&self, session: Session) {
        self.watches.prunes(session);
    }

    /// Unsubscribes a session that has ended: nothing more is granted to it, and nobody waits for
    /// it.
    pub fn unwatch(&self, session: Session) {
        let Some(watcher) = self.watches.end(session) else { return };
        for partition in &self.partitions {
            partition.lock().watcher_ended(watcher);
        }
        self.watches.free(watcher);
    }
}
