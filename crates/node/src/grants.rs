//! Who watches: sessions to small numbers, and what partitions noted to those who must hear it.
//!
//! While nobody but the asker watches, all this costs a look at one word.

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

/// All watchers of a node.
#[derive(Debug, Default)]
pub struct Watches {
    /// A bit for each that is there: a look without a lock.
    live: AtomicU32,
    /// A bit for each whose kernel can be told to let go of what was removed.
    pruning: AtomicU32,
    sessions: [AtomicU64; Watcher::MAX],
    table: RwLock<[Option<Watch>; Watcher::MAX]>,
}

impl Watches {
    /// The session, as partitions know it. To be asked under the lock of the partition, so that nobody is granted anything there
    /// after [`Node::unwatch`] has been through.
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

    /// Has everybody told who must hear of the notes; what their answer waits for. Under the partition's lock, so that whoever
    /// sees the change finds it told. That something was removed nobody waits for: it is gone for whoever asks, and only space
    /// comes back later.
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

    /// All that others have not heard yet.
    pub fn pending(&self, asker: Asker) -> Option<Hearing> {
        if asker.others.is_empty() {
            return None;
        }
        let table = self.table.read();
        let watches = asker.others.iter().filter_map(|watcher| table[watcher.number()].as_ref());
        let lanes = watches.flat_map(Watch::lanes);
        Hearing::of(lanes.filter_map(|lane| Some((lane.clone(), lane.last()?))).collect())
    }

    /// What was told of this and is not heard yet by somebody, whoever asks.
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
        // A number whose watcher is only just ending stands empty and is still taken.
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

    /// Ends a watcher; its number stays taken until [`Self::free`].
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
    /// Lets a session keep what it is answered from now on, until `hear` is told to forget it: on threads of the node, before
    /// the change's answer. At most 16 sessions at one time.
    pub fn watch(&self, session: Session, hear: &Hear) -> Outcome<()> {
        self.watches.add(session, hear)
    }

    /// The kernel of this session, which watches, can be made to let go of an inode: from now on it is told of what is removed by
    /// others, and that is kept for it until it was forgotten.
    pub fn prunes(&self, session: Session) {
        self.watches.prunes(session);
    }

    /// The session has ended: nothing is granted to it any more, and nobody waits for it.
    pub fn unwatch(&self, session: Session) {
        let Some(watcher) = self.watches.end(session) else { return };
        for partition in &self.partitions {
            partition.lock().watcher_ended(watcher);
        }
        self.watches.free(watcher);
    }
}
