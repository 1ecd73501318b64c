//! The entries of a member and its vote, in memory: a member that has ended never returns.

use crate::raft_types::{EntryId, LogVote, MemberEntry, RaftTypes, StorageFailure};
use openraft::{
    LogState, OptionalSend, RaftLogReader,
    storage::{LogFlushed, RaftLogStorage},
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, fmt::Debug, ops::RangeBounds, sync::Arc};

/// Entries and the vote of a member. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct EntryStore(Arc<Mutex<StoredEntries>>);

#[derive(Debug, Default)]
struct StoredEntries {
    /// The entries without a gap, by index.
    entries: BTreeMap<u64, MemberEntry>,
    /// The last entry that a snapshot has replaced.
    purged: Option<EntryId>,
    vote: Option<LogVote>,
}

impl EntryStore {
    /// The number of entries that are kept.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().entries.len()
    }
}

impl RaftLogReader<RaftTypes> for EntryStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<MemberEntry>, StorageFailure> {
        Ok(self.0.lock().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<RaftTypes> for EntryStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<RaftTypes>, StorageFailure> {
        let stored = self.0.lock();
        let last = stored.entries.last_key_value().map(|(_, entry)| entry.log_id);
        Ok(LogState { last_purged_log_id: stored.purged, last_log_id: last.or(stored.purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &LogVote) -> Result<(), StorageFailure> {
        self.0.lock().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<LogVote>, StorageFailure> {
        Ok(self.0.lock().vote)
    }

    async fn append<I>(&mut self, entries: I, flushed: LogFlushed<RaftTypes>) -> Result<(), StorageFailure>
    where
        I: IntoIterator<Item = MemberEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.0.lock().entries.extend(entries.into_iter().map(|entry| (entry.log_id.index, entry)));
        flushed.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, since: EntryId) -> Result<(), StorageFailure> {
        self.0.lock().entries.split_off(&since.index);
        Ok(())
    }

    async fn purge(&mut self, last: EntryId) -> Result<(), StorageFailure> {
        let mut stored = self.0.lock();
        stored.entries = stored.entries.split_off(&(last.index + 1));
        stored.purged = Some(last);
        Ok(())
    }
}
