//! Opens of programs that have a descriptor of their own: what is open, and whose it is.
//!
//! ```text
//!   given --looked at: nobody has it--> ended: the file is closed
//!     \--its session ends, and somebody has it--> an orphan, open in the name of the node; looked at like all others
//! ```
//!
//! Nobody counts copies: the system is asked, whenever a client says that it has closed one, when a session ends, while somebody wants
//! space, and of all in turn each second ([`Node::look_around`]), for whoever was killed or closed past its client.

use crate::Node;
use parking_lot::Mutex;
use partition::Asker;
use placement::{FileId, NodeId, PartitionId};
use rustix::fs::fstat;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use store::{Access, Held, Slot, StandIn, StripeKey};
use wire::{Answer, Command, Extent, Gone, Lent, Looked, MARKED_MAX, Mark, Marked, OpenFlags, Outcome, Session, Stamp};

/// More are not given at one time; as many files as a client may have open.
const MARKS_MAX: usize = 1 << 20;
/// So many are looked at in a turn, at most 2 ms of a processor.
const LOOKED_MAX: usize = 4096;

/// All opens of programs that a node has given descriptors for.
#[derive(Debug, Default)]
pub struct Marks {
    given: AtomicU64,
    state: Mutex<State>,
    /// Removed files that went with an open which ended here unasked, and have stripes that are not here, or many.
    left: Mutex<Vec<Gone>>,
}

#[derive(Debug, Default)]
struct State {
    opens: BTreeMap<Mark, Open>,
    /// The same by whose they are.
    sessions: HashMap<Session, BTreeSet<Mark>>,
    /// Those up to this one were looked at last.
    turn: Option<Mark>,
}

/// One open.
#[derive(Clone, Debug)]
struct Open {
    session: Session,
    file: FileId,
    flags: OpenFlags,
    lent: Lent,
    /// What `stat` tells of the descriptor.
    inode: (u64, u64),
    /// What tells whether it lives; none of an extent's, whose own file does.
    stands: Option<Arc<dyn Held>>,
}

impl Marks {
    fn next(&self, node: NodeId) -> Option<Mark> {
        Mark::of(node, self.given.fetch_add(1, Relaxed) + 1)
    }

    fn is_full(&self) -> bool {
        self.state.lock().opens.len() >= MARKS_MAX
    }

    fn add(&self, mark: Mark, open: Open) {
        let mut state = self.state.lock();
        state.sessions.entry(open.session).or_default().insert(mark);
        state.opens.insert(mark, open);
    }

    fn get(&self, mark: Mark) -> Option<Open> {
        self.state.lock().opens.get(&mark).cloned()
    }

    /// Takes it out; of several who do, one has it.
    fn take(&self, mark: Mark) -> Option<Open> {
        let mut state = self.state.lock();
        let open = state.opens.remove(&mark)?;
        state.forget(open.session, mark);
        Some(open)
    }

    /// Those of a session.
    fn of(&self, session: Session) -> Vec<(Mark, FileId)> {
        let state = self.state.lock();
        let marks = state.sessions.get(&session).into_iter().flatten();
        marks.map(|mark| (*mark, state.opens[mark].file)).collect()
    }

    fn give_to(&self, mark: Mark, session: Session) {
        let mut state = self.state.lock();
        let Some(open) = state.opens.get_mut(&mark) else { return };
        let before = std::mem::replace(&mut open.session, session);
        state.forget(before, mark);
        state.sessions.entry(session).or_default().insert(mark);
    }

    /// Those behind a mark that have a descriptor of this file.
    fn with(&self, inode: (u64, u64), after: Mark) -> Vec<Marked> {
        let state = self.state.lock();
        let behind = state.opens.range(Mark(after.0.saturating_add(1))..);
        let chosen = behind.filter(|(_, open)| open.inode == inode).take(MARKED_MAX);
        chosen
            .map(|(mark, Open { file, flags, lent, .. })| Marked {
                mark: *mark,
                file: *file,
                flags: *flags,
                lent: *lent,
            })
            .collect()
    }

    /// The next ones whose turn it is.
    fn next_turn(&self) -> Vec<Mark> {
        let mut state = self.state.lock();
        let first = state.turn.map_or(Mark(0), |last| Mark(last.0 + 1));
        let marks: Vec<Mark> = state.opens.range(first..).take(LOOKED_MAX).map(|(mark, _)| *mark).collect();
        state.turn = marks.last().copied().filter(|_| marks.len() == LOOKED_MAX);
        marks
    }
}

impl State {
    fn forget(&mut self, session: Session, mark: Mark) {
        if let Some(marks) = self.sessions.get_mut(&session) {
            marks.remove(&mark);
            if marks.is_empty() {
                self.sessions.remove(&session);
            }
        }
    }
}

impl Node {
    /// A descriptor for a program of what a session has open, which then is the session's as long as the system says that somebody has it.
    ///
    /// None when the session has not got it open as is said, when there are no more descriptors, and to write to an extent while the pool is
    /// crowded. A file whose inode is at another node is believed to be open.
    pub fn give(&self, session: Session, file: FileId, flags: OpenFlags, lent: Lent) -> Option<(OwnedFd, Mark)> {
        let here = self.partitions.get(file.partition());
        if self.marks.is_full() || here.is_some_and(|partition| !partition.lock().is_open_by(session, file)) {
            return None;
        }
        let mark = self.marks.next(self.id())?;
        let (descriptor, stands) = match lent {
            Lent::Extent(extent) => (self.open_extent(file, extent, flags, mark)?, None),
            Lent::Bytes => self.stand_in(StandIn::Bytes, mark)?,
            Lent::Directory => self.stand_in(StandIn::Directory, mark)?,
        };
        let found = fstat(&descriptor).ok()?;
        let inode = (found.st_dev, found.st_ino);
        self.marks.add(mark, Open { session, file, flags, lent, inode, stands });
        Some((descriptor, mark))
    }

    fn open_extent(&self, file: FileId, extent: Extent, flags: OpenFlags, mark: Mark) -> Option<OwnedFd> {
        let has = self.partitions.get(file.partition())?.lock().extent(file) == Some(extent);
        let pin = crate::whole::Wholes::pin(&*self.whole, extent).filter(|_| has)?;
        let extents = self.whole.extents();
        if flags.write && !extents.make_way() {
            return None;
        }
        self.whole.lend(extent, flags);
        let OpenFlags { read, write, append, .. } = flags;
        let opened = extents.open(pin.slot(), Access { read, write, append }, number(mark));
        opened.inspect_err(|error| tracing::warn!(%error, "an extent could not be opened for a program")).ok()
    }

    fn stand_in(&self, kind: StandIn, mark: Mark) -> Option<(OwnedFd, Option<Arc<dyn Held>>)> {
        let made = self.engine.stand_in(kind, number(mark));
        let made = made.inspect_err(|error| tracing::warn!(%error, "a program gets no descriptor")).ok();
        made.map(|(descriptor, held)| (descriptor, Some(held.into())))
    }

    /// Looks whether an open lives on; else it ends.
    pub(crate) fn look_at(&self, mark: Mark) -> Looked {
        let Some(open) = self.marks.get(mark) else { return Looked::Ended { gone: None } };
        if self.lives(mark, &open) { Looked::Held } else { self.end_open(mark) }
    }

    /// The same for who needs no answer: what is to be cleared then is [left](Self::take_left).
    pub fn look_for(&self, mark: Mark) {
        if let Looked::Ended { gone: Some(gone) } = self.look_at(mark) {
            self.marks.left.lock().push(gone);
        }
    }

    /// Removed files whose last open ended while no client asked, so their stripes are still there: for who has ways to all nodes.
    pub fn take_left(&self) -> Vec<Gone> {
        std::mem::take(&mut *self.marks.left.lock())
    }

    /// Whether an open lives.
    pub(crate) fn is_open(&self, mark: Mark) -> bool {
        self.marks.get(mark).is_some_and(|open| self.lives(mark, &open))
    }

    /// What is open under a mark.
    pub(crate) fn file_of(&self, mark: Mark) -> Option<FileId> {
        self.marks.get(mark).map(|open| open.file)
    }

    /// Whether somebody has it.
    fn lives(&self, mark: Mark, open: &Open) -> bool {
        match (&open.stands, open.lent) {
            (Some(stands), _) => stands.is_held(),
            (None, Lent::Extent(extent)) => self.whole.extents().holds(Slot(extent.slot), number(mark)),
            (None, _) => false,
        }
    }

    fn end_open(&self, mark: Mark) -> Looked {
        let Some(Open { session, file, flags, .. }) = self.marks.take(mark) else {
            return Looked::Ended { gone: None };
        };
        self.unlock_open(mark, file);
        if self.partitions.get(file.partition()).is_none() {
            return Looked::EndedElsewhere { file, session };
        }
        if flags.write {
            self.fit_last_stripe(file);
        }
        match self.release_open(file, session, None) {
            Ok(Answer::Removed { gone }) => Looked::Ended { gone },
            _ => Looked::Ended { gone: None },
        }
    }

    /// A writer is done: what the file's last stripe does not need goes back, if that stripe is here. Clients with handles say so themselves.
    fn fit_last_stripe(&self, file: FileId) {
        let last = self.partitions.get(file.partition()).and_then(|partition| partition.lock().last_stripe(file));
        let fitted = last.map(|stripe| self.engine.fit(StripeKey { file, stripe }));
        if let Some(Err(error)) = fitted {
            tracing::debug!(%error, %file, "the last stripe keeps its slack");
        }
    }

    /// An open ends, or becomes another session's.
    fn release_open(&self, file: FileId, session: Session, to: Option<Session>) -> Outcome<Answer> {
        let Some(held) = self.partitions.get(file.partition()) else { return Err(self.not_here(file.partition())) };
        let mut partition = held.lock();
        // Numbered under the lock, so that they come in order.
        let number = self.folds.next_number();
        let stamp = Stamp { session: Session::NONE, number, settled: number };
        let command = Command::Release { file, session, to };
        let (answer, unneeded) = self.apply(&mut partition, Asker::default(), Some(stamp), command, 0);
        let told = partition.told();
        self.watches.tell(Asker::default(), &partition.take_notes());
        drop(partition);
        if unneeded > 0 {
            self.engine.release(unneeded);
        }
        if let Some(told) = told {
            self.heed(told);
        }
        answer.map(|mut answer| {
            self.clear_gone(&mut answer);
            answer
        })
    }

    /// A session is about to end in a partition, if one is named: what somebody still has of it goes on. So does what is of files at other nodes.
    pub(crate) fn outlive(&self, session: Session, partition: Option<PartitionId>) {
        let Some(orphans) = Session::of(self.id(), 0).filter(|orphans| *orphans != session) else { return };
        let here = |file: FileId| self.partitions.get(file.partition()).is_some();
        for (mark, file) in self.marks.of(session) {
            if Some(file.partition()) != partition && here(file) {
                continue; // when it ends there
            }
            if self.is_open(mark) && (!here(file) || self.release_open(file, session, Some(orphans)).is_ok()) {
                self.marks.give_to(mark, orphans);
            } else {
                self.marks.take(mark); // the file is closed with the session
                self.unlock_open(mark, file);
            }
        }
    }

    /// Looks at opens of programs in turn, and ends those that nobody has, and locks of processes that have ended. To be called each second or so by who serves the node to others.
    /// Says how many there are, in all and of sessions that have ended.
    pub fn look_around(&self) -> (usize, usize) {
        for mark in self.marks.next_turn() {
            self.look_for(mark);
        }
        self.look_at_processes();
        self.thin_some();
        let orphans = Session::of(self.id(), 0);
        let state = self.marks.state.lock();
        let orphaned = orphans.and_then(|orphans| state.sessions.get(&orphans)).map_or(0, BTreeSet::len);
        (state.opens.len(), orphaned)
    }

    /// Which opens live that have a descriptor of this file.
    pub(crate) fn which(&self, inode: (u64, u64), after: Mark) -> Vec<Marked> {
        let mut found = self.marks.with(inode, after);
        found.retain(|marked| self.is_open(marked.mark));
        found
    }
}

/// As the engine knows it.
fn number(mark: Mark) -> store::Mark {
    store::Mark(mark.origin().1)
}
