//! A member's copy of the state: it executes the entries that are agreed on, and makes snapshots.
//!
//! States are shared, not copied: readers, snapshots and this copy have one as long as it does not
//! change. Entries that arrive together cost one copy of the state.

use crate::raft_types::{
    ClusterSnapshot, EntryId, LogAnswer, LogCommand, MemberEntry, RaftTypes, StateSnapshot, StorageFailure,
};
use openraft::{
    EmptyNode, EntryPayload, OptionalSend, RaftSnapshotBuilder, SnapshotMeta, StoredMembership,
    storage::RaftStateMachine,
};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::watch;

/// The state by the entries that this member has applied.
pub struct StateReplica {
    applied: Option<EntryId>,
    members: StoredMembership<u32, EmptyNode>,
    state: watch::Sender<StateSnapshot>,
    snapshot: Arc<Mutex<Option<ClusterSnapshot>>>,
}

/// What a snapshot is made of.
pub struct SnapshotSource {
    meta: SnapshotMeta<u32, EmptyNode>,
    state: StateSnapshot,
    snapshot: Arc<Mutex<Option<ClusterSnapshot>>>,
}

impl StateReplica {
    /// A copy that has applied nothing; its state appears at `state`.
    pub fn new(state: watch::Sender<StateSnapshot>) -> Self {
        Self { applied: None, members: StoredMembership::default(), state, snapshot: Arc::default() }
    }
}

/// Executes a command on a state.
fn execute(state: &mut StateSnapshot, command: LogCommand) -> LogAnswer {
    match command {
        LogCommand::Found(first) => {
            state.get_or_insert(first);
            None
        }
        LogCommand::Change(entry) => state.as_mut().map(|state| Arc::make_mut(state).apply(&entry)),
    }
}

impl RaftStateMachine<RaftTypes> for StateReplica {
    type SnapshotBuilder = SnapshotSource;

    async fn applied_state(&mut self) -> Result<(Option<EntryId>, StoredMembership<u32, EmptyNode>), StorageFailure> {
        Ok((self.applied, self.members.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<LogAnswer>, StorageFailure>
    where
        I: IntoIterator<Item = MemberEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut state = self.state.borrow().clone();
        let mut answers = Vec::new();
        for entry in entries {
            self.applied = Some(entry.log_id);
            answers.push(match entry.payload {
                EntryPayload::Blank => None,
                EntryPayload::Normal(command) => execute(&mut state, command),
                EntryPayload::Membership(members) => {
                    self.members = StoredMembership::new(Some(entry.log_id), members);
                    None
                }
            });
        }
        self.state.send_if_modified(|known| {
            let changed = *known != state;
            *known = state;
            changed
        });
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotSource {
        let name = self.applied.map(|last| last.to_string()).unwrap_or_default();
        let meta = SnapshotMeta { last_log_id: self.applied, last_membership: self.members.clone(), snapshot_id: name };
        SnapshotSource { meta, state: self.state.borrow().clone(), snapshot: self.snapshot.clone() }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<StateSnapshot>, StorageFailure> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u32, EmptyNode>,
        state: Box<StateSnapshot>,
    ) -> Result<(), StorageFailure> {
        self.applied = meta.last_log_id;
        self.members = meta.last_membership.clone();
        self.state.send_replace((*state).clone());
        *self.snapshot.lock() = Some(ClusterSnapshot { meta: meta.clone(), snapshot: state });
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<ClusterSnapshot>, StorageFailure> {
        Ok(self.snapshot.lock().clone())
    }
}

impl RaftSnapshotBuilder<RaftTypes> for SnapshotSource {
    async fn build_snapshot(&mut self) -> Result<ClusterSnapshot, StorageFailure> {
        let made = ClusterSnapshot { meta: self.meta.clone(), snapshot: Box::new(self.state.clone()) };
        // One that was received meanwhile is newer.
        let mut kept = self.snapshot.lock();
        if kept.as_ref().is_none_or(|known| known.meta.last_log_id <= made.meta.last_log_id) {
            *kept = Some(made.clone());
        }
        Ok(made)
    }
}
