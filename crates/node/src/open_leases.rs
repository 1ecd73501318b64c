//! Open leases: opens of programs that have a descriptor of their own.
//!
//! ```text
//!   issued --probed: nobody has it--> ended: the file is closed
//!     \--its session ends, somebody has it--> detached: open in the node's name, and still probed
//! ```
//!
//! Copies of a descriptor are not counted. The node asks the kernel whether a descriptor is still
//! open: whenever a client says that it has closed one, when a session ends, while a request waits
//! for space, and for all opens in turn each second ([`Node::scan_leases`]). The last finds
//! programs that were killed, or that closed a descriptor without their client's knowledge.

use crate::{HostWork, Node, WorkerKind};
use parking_lot::Mutex;
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
use store::{Access, PlaceholderHandle, PlaceholderKind, Placeholders, Slot, StoreCompletion};
use tokio::sync::Notify;
use wire::{
    Answer, Command, Extent, LeaseKind, LeaseStatus, LockOwner, OPEN_LEASES_MAX, OpenFlags, OpenLease, OpenLeaseId,
    Outcome, PendingDelete, Session,
};

/// Most open leases at one time; as many as the files that a client may have open.
const LEASES_MAX: usize = 1 << 20;
/// Open leases that are probed in a turn: at most 2 ms of a processor.
const PROBED_MAX: usize = 4096;

/// All open leases of a node.
#[derive(Debug)]
pub struct OpenLeases {
    /// Descriptors for opens without a file; none if the engine has none.
    placeholders: Option<Arc<dyn Placeholders>>,
    issued: AtomicU64,
    state: Mutex<LeasesState>,
    /// Removed files whose last open ended without a request of a client, and whose stripes are not
    /// all here, or are many.
    pending_deletes: Mutex<Vec<PendingDelete>>,
    /// Notified when there is one more of them.
    delete_added: Notify,
}

#[derive(Debug, Default)]
struct LeasesState {
    opens: BTreeMap<OpenLeaseId, LeasedOpen>,
    /// The leases of each session.
    sessions: HashMap<Session, BTreeSet<OpenLeaseId>>,
    /// The last lease that was probed; the next turn begins after it.
    last_probed: Option<OpenLeaseId>,
}

/// One open lease.
#[derive(Clone, Debug)]
struct LeasedOpen {
    session: Session,
    file: FileId,
    flags: OpenFlags,
    kind: LeaseKind,
    /// Device and inode number of the descriptor, as `stat` returns them.
    inode: (u64, u64),
    /// Tells whether a placeholder descriptor is still open; `None` for an extent, whose own file
    /// tells that.
    placeholder: Option<Arc<dyn PlaceholderHandle>>,
}

/// The file of a lease, for those who ask what is open.
#[derive(Clone, Copy, Debug)]
pub struct LeasedFile {
    pub file: FileId,
    pub session: Session,
    /// Device and inode number of the descriptor.
    pub inode: (u64, u64),
}

impl OpenLeases {
    /// No leases yet, of a node whose engine has these placeholders.
    pub fn new(placeholders: Option<Arc<dyn Placeholders>>) -> Self {
        Self {
            placeholders,
            issued: AtomicU64::default(),
            state: Mutex::default(),
            pending_deletes: Mutex::default(),
            delete_added: Notify::default(),
        }
    }

    fn allocate_id(&self, node: NodeId) -> Option<OpenLeaseId> {
        OpenLeaseId::new(node, self.issued.fetch_add(1, Relaxed) + 1)
    }

    fn is_full(&self) -> bool {
        self.len() >= LEASES_MAX
    }

    /// Number of open leases.
    pub fn len(&self) -> usize {
        self.state.lock().opens.len()
    }

    /// Number of removed files whose stripes remain.
    pub fn pending_deletes(&self) -> usize {
        self.pending_deletes.lock().len()
    }

    /// The files of all leases.
    pub fn leased_files(&self) -> Vec<(OpenLeaseId, LeasedFile)> {
        let state = self.state.lock();
        let file = |open: &LeasedOpen| LeasedFile { file: open.file, session: open.session, inode: open.inode };
        state.opens.iter().map(|(lease, open)| (*lease, file(open))).collect()
    }

    fn add(&self, lease: OpenLeaseId, open: LeasedOpen) {
        let mut state = self.state.lock();
        state.sessions.entry(open.session).or_default().insert(lease);
        state.opens.insert(lease, open);
    }

    fn get(&self, lease: OpenLeaseId) -> Option<LeasedOpen> {
        self.state.lock().opens.get(&lease).cloned()
    }

    /// Removes a lease. Of several concurrent callers one gets it.
    fn take(&self, lease: OpenLeaseId) -> Option<LeasedOpen> {
        let mut state = self.state.lock();
        let open = state.opens.remove(&lease)?;
        state.forget(open.session, lease);
        Some(open)
    }

    /// The leases of a session.
    fn session_leases(&self, session: Session) -> Vec<(OpenLeaseId, FileId)> {
        let state = self.state.lock();
        let leases = state.sessions.get(&session).into_iter().flatten();
        leases.map(|lease| (*lease, state.opens[lease].file)).collect()
    }

    /// The leases of files in a partition, with their sessions.
    fn leases_in(&self, partition: PartitionId) -> Vec<(OpenLeaseId, FileId, Session)> {
        let state = self.state.lock();
        let inside = state.opens.iter().filter(|(_, open)| open.file.partition() == partition);
        inside.map(|(lease, open)| (*lease, open.file, open.session)).collect()
    }

    fn transfer(&self, lease: OpenLeaseId, session: Session) {
        let mut state = self.state.lock();
        let Some(open) = state.opens.get_mut(&lease) else { return };
        let before = std::mem::replace(&mut open.session, session);
        state.forget(before, lease);
        state.sessions.entry(session).or_default().insert(lease);
    }

    /// The leases after `after` whose descriptors refer to this inode.
    fn find_by_inode(&self, inode: (u64, u64), after: OpenLeaseId) -> Vec<OpenLease> {
        let state = self.state.lock();
        let behind = state.opens.range(OpenLeaseId(after.0.saturating_add(1))..);
        let chosen = behind.filter(|(_, open)| open.inode == inode).take(OPEN_LEASES_MAX);
        chosen
            .map(|(lease, LeasedOpen { file, flags, kind, .. })| OpenLease {
                id: *lease,
                file: *file,
                flags: *flags,
                kind: *kind,
            })
            .collect()
    }

    /// The leases to probe in the next turn.
    fn next_to_probe(&self) -> Vec<OpenLeaseId> {
        let mut state = self.state.lock();
        let first = state.last_probed.map_or(OpenLeaseId(0), |last| OpenLeaseId(last.0 + 1));
        let leases: Vec<OpenLeaseId> = state.opens.range(first..).take(PROBED_MAX).map(|(lease, _)| *lease).collect();
        state.last_probed = leases.last().copied().filter(|_| leases.len() == PROBED_MAX);
        leases
    }
}

impl LeasesState {
    fn forget(&mut self, session: Session, lease: OpenLeaseId) {
        if let Some(leases) = self.sessions.get_mut(&session) {
            leases.remove(&lease);
            if leases.is_empty() {
                self.sessions.remove(&session);
            }
        }
    }
}

impl Node {
    /// Gives a program a descriptor of a file that a session has open. The open then belongs to the
    /// session as long as the kernel says that somebody has the descriptor.
    ///
    /// `None` if the session does not have the file open as `kind` says, if there are no more
    /// descriptors, or if an extent is to be written while the pool is more than half full. A file
    /// whose inode is at another node is assumed to be open.
    pub fn lease_open(
        &self,
        session: Session,
        file: FileId,
        flags: OpenFlags,
        kind: LeaseKind,
    ) -> Option<(OwnedFd, OpenLeaseId)> {
        let here = self.partitions.lock(file.partition());
        if self.open_leases.is_full() || here.is_some_and(|partition| !partition.is_open_by(session, file)) {
            return None;
        }
        let lease = self.open_leases.allocate_id(self.id())?;
        let (descriptor, placeholder) = match kind {
            LeaseKind::Extent(extent) => (self.open_extent(file, extent, flags, lease)?, None),
            LeaseKind::Bytes => self.open_placeholder(PlaceholderKind::File, lease)?,
            LeaseKind::Directory => self.open_placeholder(PlaceholderKind::Directory, lease)?,
        };
        let found = fstat(&descriptor).ok()?;
        let inode = (found.st_dev, found.st_ino);
        self.open_leases.add(lease, LeasedOpen { session, file, flags, kind, inode, placeholder });
        Some((descriptor, lease))
    }

    fn open_extent(&self, file: FileId, extent: Extent, flags: OpenFlags, lease: OpenLeaseId) -> Option<OwnedFd> {
        let has = self.local_extent(file) == Some(extent);
        let pin = crate::extents::ExtentSlots::pin(&*self.extents, extent).filter(|_| has)?;
        let extents = self.extents.engine();
        if flags.write && !extents.reserve_headroom() {
            return None;
        }
        self.extents.mark_leased(extent, flags);
        let OpenFlags { read, write, append, .. } = flags;
        let opened = extents.open(pin.slot(), Access { read, write, append }, lease_number(lease));
        opened.inspect_err(|error| tracing::warn!(%error, "an extent could not be opened for a program")).ok()
    }

    fn open_placeholder(
        &self,
        kind: PlaceholderKind,
        lease: OpenLeaseId,
    ) -> Option<(OwnedFd, Option<Arc<dyn PlaceholderHandle>>)> {
        let made = self.open_leases.placeholders.as_ref()?.create_placeholder(kind, lease_number(lease));
        let made = made.inspect_err(|error| tracing::warn!(%error, "a program could not get a descriptor")).ok();
        made.map(|(descriptor, held)| (descriptor, Some(held.into())))
    }

    /// Probes an open lease, and ends it if nobody has the descriptor.
    pub(crate) fn probe_lease(&self, lease: OpenLeaseId) -> LeaseStatus {
        let Some(open) = self.open_leases.get(lease) else { return LeaseStatus::Ended { deleted: None } };
        if self.is_descriptor_open(lease, &open) { LeaseStatus::Open } else { self.end_lease(lease) }
    }

    /// Probes an open lease for a caller that needs no answer; true if it has ended. A removed file
    /// whose stripes remain goes to [`Self::take_pending_deletes`].
    pub fn end_lease_if_closed(&self, lease: OpenLeaseId) -> bool {
        let status = self.probe_lease(lease);
        let has_ended = status != LeaseStatus::Open;
        self.finish_lease(lease, status);
        has_ended
    }

    /// Ends an open lease, also if somebody has the descriptor.
    pub(crate) fn end_lease_anyway(&self, lease: OpenLeaseId) {
        let status = self.end_lease(lease);
        self.finish_lease(lease, status);
    }

    /// Has done what is left to do for a lease that has ended.
    fn finish_lease(&self, lease: OpenLeaseId, status: LeaseStatus) {
        match status {
            LeaseStatus::Open | LeaseStatus::Ended { deleted: None } => {}
            LeaseStatus::Ended { deleted: Some(deleted) } => {
                self.open_leases.pending_deletes.lock().push(deleted);
                self.open_leases.delete_added.notify_one();
            }
            LeaseStatus::EndedRemote { file, session, .. } => {
                self.hosted.push(HostWork::Release { file, session, lease });
            }
        }
    }

    /// Waits until there may be something to take with [`Self::take_pending_deletes`]. One caller
    /// may wait.
    pub async fn pending_delete_added(&self) {
        self.open_leases.delete_added.notified().await;
    }

    /// Takes the removed files whose last open ended without a request of a client, so that their
    /// stripes remain. The caller must be able to reach all nodes.
    pub fn take_pending_deletes(&self) -> Vec<PendingDelete> {
        std::mem::take(&mut *self.open_leases.pending_deletes.lock())
    }

    /// True if somebody still has the descriptor of this lease.
    pub(crate) fn is_lease_open(&self, lease: OpenLeaseId) -> bool {
        self.open_leases.get(lease).is_some_and(|open| self.is_descriptor_open(lease, &open))
    }

    /// The file that is open under a lease.
    pub(crate) fn leased_file(&self, lease: OpenLeaseId) -> Option<FileId> {
        self.open_leases.get(lease).map(|open| open.file)
    }

    /// Asks the kernel whether somebody still has the descriptor.
    fn is_descriptor_open(&self, lease: OpenLeaseId, open: &LeasedOpen) -> bool {
        match (&open.placeholder, open.kind) {
            (Some(placeholder), _) => placeholder.is_open(),
            (None, LeaseKind::Extent(extent)) => self.extents.engine().is_open(Slot(extent.slot), lease_number(lease)),
            (None, _) => false,
        }
    }

    fn end_lease(&self, lease: OpenLeaseId) -> LeaseStatus {
        let Some(LeasedOpen { session, file, flags, .. }) = self.open_leases.take(lease) else {
            return LeaseStatus::Ended { deleted: None };
        };
        if !self.partitions.serves(file.partition()) {
            // Whoever asks may end before it has told the other node.
            let locked = self.has_locks(LockOwner::Open(lease));
            self.unlock_open(lease, file);
            if Session::of_node(self.id()) != Some(session) {
                return LeaseStatus::EndedRemote { file, session, locked };
            }
            self.hosted.push(HostWork::Release { file, session, lease });
            return LeaseStatus::Ended { deleted: None };
        }
        self.unlock_open(lease, file);
        if flags.write {
            self.shrink_last_stripe(file);
        }
        match self.release_open(file, session, None) {
            Ok(Answer::Removed(deleted)) => LeaseStatus::Ended { deleted },
            _ => LeaseStatus::Ended { deleted: None },
        }
    }

    /// Frees the space that the file's last stripe does not need, if that stripe is here: its
    /// writer is done. Clients that have handles request that themselves.
    fn shrink_last_stripe(&self, file: FileId) {
        let last = self.partitions.lock(file.partition()).and_then(|partition| partition.last_stripe(file));
        let fitted = last.map(|(layout, stripe)| self.engine.shrink_to_fit(self.stripe_key(file, layout, stripe.0)));
        if let Some(StoreCompletion::Ready(Err(error))) = fitted {
            tracing::debug!(%error, %file, "the last stripe keeps its slack");
        }
    }

    /// Ends an open, or transfers it to another session.
    fn release_open(&self, file: FileId, session: Session, to: Option<Session>) -> Outcome<Answer> {
        let Some(mut partition) = self.partitions.lock(file.partition()) else {
            return Err(self.moved(file.partition()));
        };
        let (answer, effects) = self.apply_own(&mut partition, Command::Release { file, session, to }, 0);
        drop(partition);
        self.run_effects(effects);
        answer.map(|mut answer| {
            self.remove_deleted_stripes(&mut answer);
            answer
        })
    }

    /// Detaches all open leases of files in a partition that is about to leave, so that they do not
    /// end with a session that ends at another node. A node that cannot detach keeps them as they
    /// are.
    pub(crate) fn detach_opens_in(&self, partition: PartitionId) {
        let Some(detached) = Session::of_node(self.id()) else { return };
        for (lease, file, session) in self.open_leases.leases_in(partition) {
            if session != detached && self.release_open(file, session, Some(detached)).is_ok() {
                self.open_leases.transfer(lease, detached);
            }
        }
    }

    /// Detaches the open leases of a session that is about to end, in one partition if one is
    /// named: opens whose descriptors somebody still has become the node's own. Opens of files at
    /// other nodes are detached too.
    pub(crate) fn detach_opens(&self, session: Session, partition: Option<PartitionId>) {
        let Some(detached) = Session::of_node(self.id()).filter(|detached| *detached != session) else { return };
        let here = |file: FileId| self.partitions.serves(file.partition());
        for (lease, file) in self.open_leases.session_leases(session) {
            if Some(file.partition()) != partition && here(file) {
                continue; // detached when the session ends there
            }
            let is_open = self.is_lease_open(lease);
            if is_open && !here(file) {
                continue; // the node of its inode closes the file with the session
            }
            if is_open && self.release_open(file, session, Some(detached)).is_ok() {
                self.open_leases.transfer(lease, detached);
            } else {
                self.open_leases.take(lease); // the file is closed with the session
                self.unlock_open(lease, file);
            }
        }
    }

    /// Probes the next open leases in turn and ends those that nobody has; returns how many.
    pub(crate) fn probe_next_leases(&self) -> u64 {
        let leases = self.open_leases.next_to_probe().into_iter();
        leases.filter(|lease| self.end_lease_if_closed(*lease)).count() as u64
    }

    /// Probes the next open leases, ends locks of processes that have ended, and thins extents, as
    /// their workers do. Returns the number of open leases: all, and those of ended sessions.
    pub fn scan_leases(&self) -> (usize, usize) {
        for kind in [WorkerKind::Leases, WorkerKind::Locks, WorkerKind::Thinning] {
            self.turn(kind);
        }
        let detached = Session::of_node(self.id());
        let state = self.open_leases.state.lock();
        let detached_count = detached.and_then(|detached| state.sessions.get(&detached)).map_or(0, BTreeSet::len);
        (state.opens.len(), detached_count)
    }

    /// The live open leases whose descriptors refer to this inode.
    pub(crate) fn find_leases(&self, inode: (u64, u64), after: OpenLeaseId) -> Vec<OpenLease> {
        let mut found = self.open_leases.find_by_inode(inode, after);
        found.retain(|lease| self.is_lease_open(lease.id));
        found
    }
}

/// Converts the id of a lease to the engine's number for it.
fn lease_number(lease: OpenLeaseId) -> store::LeaseNumber {
    store::LeaseNumber(lease.origin().1)
}
