//! Stray stripes: stripes that sessions wrote here for files that this node does not know. Those
//! that belong to no file are removed with their session.
//!
//! A stripe may be at another node than its file. A write here to a file of another node is noted.
//! When the session ends, the file's own node says which of those stripes the file has not planned
//! and nobody has reserved. A client writes only stripes that it has reserved or planned, so
//! usually all of them are known by then. A session with many notes is checked while it is live.
//!
//! ```text
//!   write of another node's file -> noted -> engine
//!   session ends, or has many notes -> query { file, stripes } -> the file's node
//!       removed here <- Unplanned { stripes } <-----------------------------'
//!       A stripe that is written meanwhile leaves the query: it may have been planned since.
//! ```

use crate::Node;
use parking_lot::Mutex;
use placement::{FileId, PartitionId, StripeNo};
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};
use store::{StoreCompletion, StripeKey};
use wire::{AllocateMode, Command, FILE_BYTES_MAX, Object, Outcome, Refusal, Session, SpaceShortage, StripeRuns};

/// Largest range that may be planned, in capacities of the pool. A longer one can never be filled,
/// and its removal would have to go through all of it.
const POOLS_MAX: u64 = 2;
/// Most runs of stripes, over all files, that are noted of a session before it is checked while
/// live.
const RECORDED_RUNS_MAX: usize = 1024;

/// The stripes that each session wrote of files that are not known here.
#[derive(Debug, Default)]
pub struct StrayStripes(Mutex<StrayState>);

#[derive(Debug, Default)]
struct StrayState {
    by_session: HashMap<Session, HashMap<FileId, FileStrays>>,
    /// The stripes that are being asked about, without those written since then.
    queried: HashMap<FileId, Vec<(u64, StripeRuns)>>,
    /// Number of queries that were sent.
    queries: u64,
}

/// Noted stripes of a file, by the partition that has them.
type FileStrays = BTreeMap<PartitionId, StripeRuns>;

/// Stripes here that a session wrote, for the node of their file, which is asked which of them
/// belong to no file.
#[derive(Debug, PartialEq)]
pub struct StrayQuery {
    /// The file.
    pub file: FileId,
    /// Its stripes.
    pub stripes: StripeRuns,
    by_partition: FileStrays,
    number: u64,
}

/// Knowledge of a node about a stripe that a session writes.
enum StripeStatus {
    /// The file is here and has the stripe, or the session has reserved it.
    Expected,
    /// The file is here and has no such stripe.
    Unplanned,
    /// The file's partition is here, and has no such file.
    NoFile,
    /// The file's partition is at another node, if it exists.
    RemotePartition,
}

impl StrayStripes {
    /// Number of files of which a session wrote stripes that are noted.
    pub fn files(&self) -> usize {
        self.0.lock().by_session.values().map(HashMap::len).sum()
    }

    /// Adds the notes of a partition that has arrived.
    pub fn add(&self, session: Session, partition: PartitionId, file: FileId, stripes: &StripeRuns) {
        for stripe in stripes.iter() {
            self.record(session, StripeKey { partition, file, stripe: StripeNo(stripe) });
        }
    }

    /// The notes of a partition.
    pub fn notes_in(&self, partition: PartitionId) -> Vec<(Session, FileId, StripeRuns)> {
        let state = self.0.lock();
        let files = state.by_session.iter().flat_map(|(session, files)| {
            files.iter().filter_map(|(file, noted)| Some((*session, *file, noted.get(&partition)?.clone())))
        });
        files.collect()
    }

    /// True if stripes of a session are noted.
    pub fn has(&self, session: Session) -> bool {
        self.0.lock().by_session.contains_key(&session)
    }

    /// Drops the notes of a partition that has left.
    pub fn forget_partition(&self, partition: PartitionId) {
        let mut state = self.0.lock();
        for files in state.by_session.values_mut() {
            files.retain(|_, noted| {
                noted.remove(&partition);
                !noted.is_empty()
            });
        }
        state.by_session.retain(|_, files| !files.is_empty());
    }

    fn record(&self, session: Session, key: StripeKey) {
        let (stripe, end) = (key.stripe.0, key.stripe.0.saturating_add(1));
        let mut state = self.0.lock();
        let noted = state.by_session.entry(session).or_default().entry(key.file).or_default();
        noted.entry(key.partition).or_default().insert(stripe, end);
        for (_, queried) in state.queried.get_mut(&key.file).into_iter().flatten() {
            queried.remove(stripe, end);
        }
    }
}

impl StrayState {
    /// Takes the notes of a session about a file, to ask about them.
    fn query(&mut self, session: Session, file: FileId) -> Option<StrayQuery> {
        let by_partition = self.by_session.get_mut(&session)?.remove(&file)?;
        let mut stripes = StripeRuns::new();
        by_partition
            .values()
            .flat_map(StripeRuns::iter)
            .for_each(|stripe| stripes.insert(stripe, stripe.saturating_add(1)));
        self.by_session.retain(|_, files| !files.is_empty());
        self.queries += 1;
        let number = self.queries;
        self.queried.entry(file).or_default().push((number, stripes.clone()));
        Some(StrayQuery { file, stripes, by_partition, number })
    }

    /// True if the query still covers this stripe: it was not written since.
    fn covers(&self, query: &StrayQuery, stripe: u64) -> bool {
        let queried = self.queried.get(&query.file).into_iter().flatten();
        queried.filter(|(number, _)| *number == query.number).any(|(_, queried)| queried.contains(stripe))
    }

    fn end_query(&mut self, query: &StrayQuery) {
        if let Some(queried) = self.queried.get_mut(&query.file) {
            queried.retain(|(number, _)| *number != query.number);
            if queried.is_empty() {
                self.queried.remove(&query.file);
            }
        }
    }
}

impl Node {
    /// Checks that a session may write a stripe. Of a file that is here only planned stripes may be
    /// written. A stripe of an unknown file is noted, and the result is true: it is removed with
    /// the session unless its file has been made by then.
    pub(crate) fn admit_write(&self, session: Session, key: StripeKey) -> Outcome<bool> {
        let object = Object::File(key.file);
        if key.stripe.0 == u64::MAX {
            return Err(Refusal::invalid(object, "no file has such a stripe"));
        }
        match self.stripe_status(session, key) {
            StripeStatus::Expected => Ok(false),
            StripeStatus::Unplanned => Err(Refusal::Stale(object)),
            StripeStatus::NoFile | StripeStatus::RemotePartition => {
                self.stray_stripes.record(session, key);
                Ok(true)
            }
        }
    }

    /// Refuses to plan more than can ever be filled: its removal would go through all of it.
    pub(crate) fn refuse_oversized(&self, command: &Command) -> Option<Refusal> {
        let bytes = match command {
            Command::Reserve { stripes, layout, .. } => stripes.saturating_mul(layout.stripe_bytes().into()),
            Command::Allocate { offset, length, mode: AllocateMode::Extend | AllocateMode::KeepSize, .. }
                if offset.checked_add(*length).is_some_and(|end| end <= FILE_BYTES_MAX) =>
            {
                *length
            }
            _ => return None,
        };
        let (capacity, used) = (self.pool_bytes, self.engine.usage().used);
        let shortage = SpaceShortage { node: None, capacity, used, wanted: bytes, waited: Duration::ZERO };
        (bytes > capacity.saturating_mul(POOLS_MAX)).then_some(Refusal::NoSpace(shortage))
    }

    /// Notes a truncated stripe of a file that is not here, as a write is noted.
    pub(crate) fn record_stray(&self, session: Session, key: StripeKey) {
        if matches!(self.stripe_status(session, key), StripeStatus::NoFile | StripeStatus::RemotePartition) {
            self.stray_stripes.record(session, key);
        }
    }

    fn stripe_status(&self, session: Session, key: StripeKey) -> StripeStatus {
        let Some(partition) = self.partitions.lock(key.file.partition()) else { return StripeStatus::RemotePartition };
        match partition.expects(key.file, key.stripe.0, session) {
            true => StripeStatus::Expected,
            false if partition.has(key.file) => StripeStatus::Unplanned,
            false => StripeStatus::NoFile,
        }
    }

    /// Cleans up after a session that ended while a stripe of it was written: the cleanup of the
    /// session may have missed the stripe.
    pub(crate) fn clean_up_late_write(&self, session: Session, key: StripeKey) {
        match self.stripe_status(session, key) {
            // A stripe of a file stays; a reserved stripe is removed with its reservation.
            StripeStatus::Expected => {}
            StripeStatus::Unplanned | StripeStatus::NoFile => self.remove_stray(key),
            StripeStatus::RemotePartition => self.stray_stripes.record(session, key),
        }
    }

    /// The files of other nodes that a session wrote to; the caller asks about each. Stripes of
    /// files whose partition is here are removed at once, unless their file has planned them.
    pub fn remote_stray_files(&self, session: Session) -> Vec<FileId> {
        let mut state = self.stray_stripes.0.lock();
        let Some(mut files) = state.by_session.remove(&session) else { return Vec::new() };
        // No node can say anything about a partition that does not exist.
        let is_elsewhere = |file: &FileId| {
            !self.partitions.serves(file.partition()) && u32::from(file.partition().0) < self.settings().partitions
        };
        let elsewhere: HashMap<_, _> = files.extract_if(|file, _| is_elsewhere(file)).collect();
        let queried = elsewhere.keys().copied().collect();
        if !elsewhere.is_empty() {
            state.by_session.insert(session, elsewhere);
        }
        drop(state);
        for (file, stripes) in files {
            for (partition, stripes) in &stripes {
                self.remove_unplanned_local(file, *partition, stripes);
            }
        }
        queried
    }

    /// The sessions that are to be checked now: those with many notes, and those that ended while
    /// something of them was written.
    pub fn sessions_with_due_strays(&self) -> Vec<Session> {
        let state = self.stray_stripes.0.lock();
        let is_crowded = |(session, files): &(&Session, &HashMap<FileId, FileStrays>)| {
            files.values().flat_map(FileStrays::values).map(StripeRuns::runs).sum::<usize>() > RECORDED_RUNS_MAX
                || self.session_index.has_ended(**session)
        };
        state.by_session.iter().filter(is_crowded).map(|(session, _)| *session).collect()
    }

    /// The query for a file's own node. The caller must then call [`Self::remove_strays`] or
    /// [`Self::end_stray_query`].
    pub fn stray_query(&self, session: Session, file: FileId) -> Option<StrayQuery> {
        self.stray_stripes.0.lock().query(session, file)
    }

    /// Removes the stripes that belong to no file, according to the file's node, except those
    /// written since the query. Each of them was written, so there are no more than requests
    /// that came.
    pub fn remove_strays(&self, query: &StrayQuery, unplanned: &StripeRuns) {
        for stripe in unplanned.iter() {
            // A later write is noted before it is done, and noting waits for this lock.
            let state = self.stray_stripes.0.lock();
            if state.covers(query, stripe) {
                query.by_partition.iter().filter(|(_, noted)| noted.contains(stripe)).for_each(|(partition, _)| {
                    self.remove_stray(StripeKey { partition: *partition, file: query.file, stripe: StripeNo(stripe) });
                });
            }
        }
        self.end_stray_query(query);
    }

    /// Ends the query; all its stripes stay.
    pub fn end_stray_query(&self, query: &StrayQuery) {
        self.stray_stripes.0.lock().end_query(query);
    }

    /// Removes unplanned stripes of a file whose partition is here, or does not exist.
    fn remove_unplanned_local(&self, file: FileId, partition: PartitionId, stripes: &StripeRuns) {
        let exists = u32::from(file.partition().0) < self.settings().partitions;
        for stripe in stripes.iter() {
            // Nobody plans the stripe while its partition is locked.
            let home = self.partitions.lock(file.partition());
            let mut one = StripeRuns::new();
            one.insert(stripe, stripe.saturating_add(1));
            if home.map_or(!exists, |home| !home.find_unowned(file, &one).is_empty()) {
                self.remove_stray(StripeKey { partition, file, stripe: StripeNo(stripe) });
            }
        }
    }

    fn remove_stray(&self, key: StripeKey) {
        if let StoreCompletion::Ready(Err(error)) = self.engine.remove(key) {
            tracing::debug!(file = %key.file, stripe = key.stripe.0, "a stripe that belongs to no file could not be removed");
            tracing::warn!(%error, "stripes that an ended client left, and that no file uses, could not be freed");
        }
    }
}
