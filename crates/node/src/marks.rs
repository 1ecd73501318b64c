//! Open leases: opens of programs that have a descriptor of their own.
//!
//! ```text
//!   given --probed: nobody has it--> ended: the file is closed
//!     \--its session ends, somebody has it--> detached: open in the node's name, and still probed
//! ```
//!
//! Copies of a descriptor are not counted. The node asks the kernel whether a descriptor is still
//! open: whenever a client says that it has closed one, when a session ends, while a request waits
//! for space, and for all opens in turn each second ([`Node::look_around`]). The last finds
//! programs that were killed, or that closed a descriptor without their client's knowledge.

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
use store::{Access, PlaceholderHandle, PlaceholderKind, Slot, StripeKey};
use wire::{
    Answer, Command, Extent, LeaseKind, LeaseStatus, OPEN_LEASES_MAX, OpenFlags, OpenLease, OpenLeaseId, Outcome,
    PendingDelete, RequestId, Session,
};

/// Most open leases at one time; as many as the files that a client may have open.
const MARKS_MAX: usize = 1 << 20;
/// Open leases that are probed in a turn: at most 2 ms of a processor.
const LOOKED_MAX: usize = 4096;

/// All open leases of a node.
#[derive(Debug, Default)]
pub struct Marks {
    given: AtomicU64,
    state: Mutex<State>,
    /// Removed files whose last open ended without a request of a client, and whose stripes are not
    /// all here, or are many.
    left: Mutex<Vec<PendingDelete>>,
}

#[derive(Debug, Default)]
struct State {
    opens: BTreeMap<OpenLeaseId, Open>,
    /// The leases of each session.
    sessions: HashMap<Session, BTreeSet<OpenLeaseId>>,
    /// The last lease that was probed; the next turn begins after it.
    turn: Option<OpenLeaseId>,
}

/// One open lease.
#[derive(Clone, Debug)]
struct Open {
    session: Session,
    file: FileId,
    flags: OpenFlags,
    lent: LeaseKind,
    /// Device and inode number of the descriptor, as `stat` returns them.
    inode: (u64, u64),
    /// Tells whether a placeholder descriptor is still open; `None` for an extent, whose own file
    /// tells that.
    stands: Option<Arc<dyn PlaceholderHandle>>,
}

impl Marks {
    fn next(&self, node: NodeId) -> Option<OpenLeaseId> {
        OpenLeaseId::new(node, self.given.fetch_add(1, Relaxed) + 1)
    }

    fn is_full(&self) -> bool {
        self.state.lock().opens.len() >= MARKS_MAX
    }

    fn add(&self, mark: OpenLeaseId, open: Open) {
        let mut state = self.state.lock();
        state.sessions.entry(open.session).or_default().insert(mark);
        state.opens.insert(mark, open);
    }

    fn get(&self, mark: OpenLeaseId) -> Option<Open> {
        self.state.lock().opens.get(&mark).cloned()
    }

    /// Removes a lease. Of several concurrent callers one gets it.
    fn take(&self, mark: OpenLeaseId) -> Option<Open> {
        let mut state = self.state.lock();
        let open = state.opens.remove(&mark)?;
        state.forget(open.session, mark);
        Some(open)
    }

    /// The leases of a session.
    fn of(&self, session: Session) -> Vec<(OpenLeaseId, FileId)> {
        let state = self.state.lock();
        let marks = state.sessions.get(&session).into_iter().flatten();
        marks.map(|mark| (*mark, state.opens[mark].file)).collect()
    }

    fn give_to(&self, mark: OpenLeaseId, session: Session) {
        let mut state = self.state.lock();
        let Some(open) = state.opens.get_mut(&mark) else { return };
        let before = std::mem::replace(&mut open.session, session);
        state.forget(before, mark);
        state.sessions.entry(session).or_default().insert(mark);
    }

    /// The leases after `after` whose descriptors refer to this inode.
    fn with(&self, inode: (u64, u64), after: OpenLeaseId) -> Vec<OpenLease> {
        let state = self.state.lock();
        let behind = state.opens.range(OpenLeaseId(after.0.saturating_add(1))..);
        let chosen = behind.filter(|(_, open)| open.inode == inode).take(OPEN_LEASES_MAX);
        chosen
            .map(|(mark, Open { file, flags, lent, .. })| OpenLease {
                id: *mark,
                file: *file,
                flags: *flags,
                kind: *lent,
            })
            .collect()
    }

    /// The leases to probe in the next turn.
    fn next_turn(&self) -> Vec<OpenLeaseId> {
        let mut state = self.state.lock();
        let first = state.turn.map_or(OpenLeaseId(0), |last| OpenLeaseId(last.0 + 1));
        let marks: Vec<OpenLeaseId> = state.opens.range(first..).take(LOOKED_MAX).map(|(mark, _)| *mark).collect();
        state.turn = marks.last().copied().filter(|_| marks.len() == LOOKED_MAX);
        marks
    }
}

impl State {
    fn forget(&mut self, session: Session, mark: OpenLeaseId) {
        if let Some(marks) = self.sessions.get_mut(&session) {
            marks.remove(&mark);
            if marks.is_empty() {
                self.sessions.remove(&session);
            }
        }
    }
}

impl Node {
    /// Gives a program a descriptor of a file that a session has open. The open then belongs to the
    /// session as long as the kernel says that somebody has the descriptor.
    ///
    /// `None` if the session does not have the file open as `lent` says, if there are no more
    /// descriptors, or if an extent is to be written while the pool is more than half full. A file
    /// whose inode is at another node is assumed to be open.
    pub fn give(
        &self,
        session: Session,
        file: FileId,
        flags: OpenFlags,
        lent: LeaseKind,
    ) -> Option<(OwnedFd, OpenLeaseId)> {
        let here = self.partitions.get(file.partition());
        if self.marks.is_full() || here.is_some_and(|partition| !partition.lock().is_open_by(session, file)) {
            return None;
        }
        let mark = self.marks.next(self.id())?;
        let (descriptor, stands) = match lent {
            LeaseKind::Extent(extent) => (self.open_extent(file, extent, flags, mark)?, None),
            LeaseKind::Bytes => self.create_placeholder(PlaceholderKind::File, mark)?,
            LeaseKind::Directory => self.create_placeholder(PlaceholderKind::Directory, mark)?,
        };
        let found = fstat(&descriptor).ok()?;
        let inode = (found.st_dev, found.st_ino);
        self.marks.add(mark, Open { session, file, flags, lent, inode, stands });
        Some((descriptor, mark))
    }

    fn open_extent(&self, file: FileId, extent: Extent, flags: OpenFlags, mark: OpenLeaseId) -> Option<OwnedFd> {
        let has = self.partitions.get(file.partition())?.lock().extent(file) == Some(extent);
        let pin = crate::whole::Wholes::pin(&*self.whole, extent).filter(|_| has)?;
        let extents = self.whole.extents();
        if flags.write && !extents.reserve_headroom() {
            return None;
        }
        self.whole.lend(extent, flags);
        let OpenFlags { read, write, append, .. } = flags;
        let opened = extents.open(pin.slot(), Access { read, write, append }, number(mark));
        opened.inspect_err(|error| tracing::warn!(%error, "an extent could not be opened for a program")).ok()
    }

    fn create_placeholder(
        &self,
        kind: PlaceholderKind,
        mark: OpenLeaseId) -> Option<(OwnedFd, Option<Arc<dyn PlaceholderHandle>>)> {
        let made = self.engine.create_placeholder(kind, number(mark));
        let made = made.inspect_err(|error| tracing::warn!(%error, "a program gets no descriptor")).ok();
        made.map(|(descriptor, held)| (descriptor, Some(held.into())))
    }

    /// Probes an open lease, and ends it if nobody has the descriptor.
    pub(crate) fn look_at(&self, mark: OpenLeaseId) -> LeaseStatus {
        let Some(open) = self.marks.get(mark) else { return LeaseStatus::Ended { deleted: None } };
        if self.lives(mark, &open) { LeaseStatus::Open } else { self.end_open(mark) }
    }

    /// Probes an open lease for a caller that needs no answer. A removed file whose stripes remain
    /// goes to [`Self::take_left`].
    pub fn look_for(&self, mark: OpenLeaseId) {
        if let LeaseStatus::Ended { deleted: Some(deleted) } = self.look_at(mark) {
            self.marks.left.lock().push(deleted);
        }
    }

    /// Takes the removed files whose last open ended without a request of a client, so that their
    /// stripes remain. The caller must be able to reach all nodes.
    pub fn take_left(&self) -> Vec<PendingDelete> {
        std::mem::take(&mut *self.marks.left.lock())
    }

    /// True if somebody still has the descriptor of this lease.
    pub(crate) fn is_open(&self, mark: OpenLeaseId) -> bool {
        self.marks.get(mark).is_some_and(|open| self.lives(mark, &open))
    }

    /// The file that is open under a lease.
    pub(crate) fn file_of(&self, mark: OpenLeaseId) -> Option<FileId> {
        self.marks.get(mark).map(|open| open.file)
    }

    /// Asks the kernel whether somebody still has the descriptor.
    fn lives(&self, mark: OpenLeaseId, open: &Open) -> bool {
        match (&open.stands, open.lent) {
            (Some(stands), _) => stands.is_open(),
            (None, LeaseKind::Extent(extent)) => self.whole.extents().is_open(Slot(extent.slot), number(mark)),
            (None, _) => false,
        }
    }

    fn end_open(&self, mark: OpenLeaseId) -> LeaseStatus {
        let Some(Open { session, file, flags, .. }) = self.marks.take(mark) else {
            return LeaseStatus::Ended { deleted: None };
        };
        self.unlock_open(mark, file);
        if self.partitions.get(file.partition()).is_none() {
            return LeaseStatus::EndedRemote { file, session };
        }
        if flags.write {
            self.fit_last_stripe(file);
        }
        match self.release_open(file, session, None) {
            Ok(Answer::Removed { deleted }) => LeaseStatus::Ended { deleted },
            _ => LeaseStatus::Ended { deleted: None },
        }
    }

    /// Frees what the file's last stripe does not need, if that stripe is here: its writer is done.
    /// Clients that have handles request that themselves.
    fn fit_last_stripe(&self, file: FileId) {
        let last = self.partitions.get(file.partition()).and_then(|partition| partition.lock().last_stripe(file));
        let fitted = last.map(|stripe| self.engine.shrink_to_fit(StripeKey { file, stripe }));
        if let Some(Err(error)) = fitted {
            tracing::debug!(%error, %file, "the last stripe keeps its slack");
        }
    }

    /// Ends an open, or transfers it to another session.
    fn release_open(&self, file: FileId, session: Session, to: Option<Session>) -> Outcome<Answer> {
        let Some(held) = self.partitions.get(file.partition()) else { return Err(self.not_here(file.partition())) };
        let mut partition = held.lock();
        // Numbered under the lock, so that the numbers come in order.
        let number = self.folds.next_number();
        let request_id = RequestId { session: Session::NONE, number, settled: number };
        let command = Command::Release { file, session, to };
        let (answer, unneeded) = self.apply(&mut partition, Asker::default(), Some(request_id), command, 0);
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

    /// Detaches the open leases of a session that is about to end, in one partition if one is
    /// named: opens whose descriptors somebody still has become the node's own. Opens of files at
    /// other nodes are detached too.
    pub(crate) fn outlive(&self, session: Session, partition: Option<PartitionId>) {
        let Some(orphans) = Session::new(self.id(), 0).filter(|orphans| *orphans != session) else { return };
        let here = |file: FileId| self.partitions.get(file.partition()).is_some();
        for (mark, file) in self.marks.of(session) {
            if Some(file.partition()) != partition && here(file) {
                continue; // detached when the session ends there
            }
            if self.is_open(mark) && (!here(file) || self.release_open(file, session, Some(orphans)).is_ok()) {
                self.marks.give_to(mark, orphans);
            } else {
                self.marks.take(mark); // the file is closed with the session
                self.unlock_open(mark, file);
            }
        }
    }

    /// Probes the next open leases in turn and ends those that nobody has, ends locks of processes
    /// that have ended, and thins extents. A program that serves the node to others must call this
    /// about once a second. Returns the number of open leases: all, and those of ended sessions.
    pub fn look_around(&self) -> (usize, usize) {
        for mark in self.marks.next_turn() {
            self.look_for(mark);
        }
        self.look_at_processes();
        self.thin_some();
        let orphans = Session::new(self.id(), 0);
        let state = self.marks.state.lock();
        let orphaned = orphans.and_then(|orphans| state.sessions.get(&orphans)).map_or(0, BTreeSet::len);
        (state.opens.len(), orphaned)
    }

    /// The live open leases whose descriptors refer to this inode.
    pub(crate) fn which(&self, inode: (u64, u64), after: OpenLeaseId) -> Vec<OpenLease> {
        let mut found = self.marks.with(inode, after);
        found.retain(|marked| self.is_open(marked.id));
        found
    }
}

/// Converts a mark to the engine's number for it.
fn number(mark: OpenLeaseId) -> store::LeaseNumber {
    store::LeaseNumber(mark.origin().1)
}
