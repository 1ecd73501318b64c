//! Stripes that sessions wrote of files that this node does not know: they go with their session, unless the file has come to be.
//!
//! A stripe may lie at another node than its file. What is written here of such a file is noted, and when the session ends, the file's own node
//! says whether there is one. A client writes nothing but what it has reserved or planned, so that usually all is known then.

use crate::Node;
use parking_lot::Mutex;
use placement::{FileId, StripeNo};
use std::{collections::HashMap, time::Duration};
use store::StripeKey;
use wire::{AllocateMode, Command, FILE_BYTES_MAX, Object, Outcome, Refusal, Session, Shortage, StripeRuns};

/// So many times what the pool may hold is no range that can be filled: it would only have to be gone through later.
const POOLS_MAX: u64 = 2;
/// A session of which more files are noted is looked through while it goes on.
const NOTED_MAX: usize = 1024;

/// What each session wrote of files that are not known here.
#[derive(Debug, Default)]
pub struct Strays(Mutex<HashMap<Session, HashMap<FileId, StripeRuns>>>);

/// What a node knows of a stripe that a session writes.
enum Known {
    /// Its file is here and has it, or the session has reserved it.
    Expected,
    /// Its file is here and has no such stripe.
    Unplanned,
    /// Its file is not here.
    Not,
}

impl Strays {
    fn note(&self, session: Session, key: StripeKey) {
        let mut noted = self.0.lock();
        let runs = noted.entry(session).or_default().entry(key.file).or_default();
        runs.insert(key.stripe.0, key.stripe.0.saturating_add(1));
    }
}

impl Node {
    /// Whether a session may write a stripe. Of a file that is here, only what was planned; what is not known is noted, and true: it goes with
    /// the session unless its file has come to be.
    pub(crate) fn admit_write(&self, session: Session, key: StripeKey) -> Outcome<bool> {
        let object = Object::File(key.file);
        if key.stripe.0 == u64::MAX {
            return Err(Refusal::invalid(object, "no file has such a stripe"));
        }
        match self.known(session, key) {
            Known::Expected => Ok(false),
            Known::Unplanned => Err(Refusal::Stale(object)),
            Known::Not => {
                self.strays.note(session, key);
                Ok(true)
            }
        }
    }

    /// Refuses to plan what can never be filled: whoever removes it later would go through all of it.
    pub(crate) fn too_much(&self, command: &Command) -> Option<Refusal> {
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
        let shortage = Shortage { node: None, capacity, used, wanted: bytes, waited: Duration::ZERO };
        (bytes > capacity.saturating_mul(POOLS_MAX)).then_some(Refusal::NoSpace(shortage))
    }

    /// A stripe that is cut is remembered too.
    pub(crate) fn note_stray(&self, session: Session, key: StripeKey) {
        if matches!(self.known(session, key), Known::Not) {
            self.strays.note(session, key);
        }
    }

    fn known(&self, session: Session, key: StripeKey) -> Known {
        let Some(partition) = self.partitions.get(key.file.partition()) else { return Known::Not };
        let partition = partition.lock();
        match partition.expects(key.file, key.stripe.0, session) {
            true => Known::Expected,
            false if partition.has(key.file) => Known::Unplanned,
            false => Known::Not,
        }
    }

    /// What a session that has ended wrote of files that were not known here, and whose end is still to be told. What was to be known here is
    /// removed at once.
    pub fn end_strays(&self, session: Session) -> Vec<(FileId, StripeRuns)> {
        let noted = self.strays.0.lock().remove(&session).unwrap_or_default();
        let mut elsewhere = Vec::new();
        for (file, stripes) in noted {
            match self.partitions.get(file.partition()).map(|partition| partition.lock().has(file)) {
                None if u32::from(file.partition().0) < self.settings().partitions => elsewhere.push((file, stripes)),
                Some(true) => {}
                // Of a partition that there is not, nothing has come to be either.
                Some(false) | None => self.remove_stray(file, &stripes),
            }
        }
        elsewhere
    }

    /// Sessions with many of them, and the files of other nodes that they are of: what their nodes know is to be taken off by [`Self::is_no_stray`].
    pub fn crowded_strays(&self) -> Vec<(Session, Vec<FileId>)> {
        let noted = self.strays.0.lock();
        let crowded = noted.iter().filter(|(_, files)| files.len() > NOTED_MAX);
        let files = |files: &HashMap<FileId, StripeRuns>| {
            files.keys().copied().filter(|file| self.partitions.get(file.partition()).is_none()).collect()
        };
        crowded.map(|(session, noted)| (*session, files(noted))).collect()
    }

    /// The file is there: its stripes go with it, and no more with the session.
    pub fn is_no_stray(&self, session: Session, file: FileId) {
        if let Some(noted) = self.strays.0.lock().get_mut(&session) {
            noted.remove(&file);
        }
    }

    /// Removes stripes of a file that is nowhere. Each was written, so there are no more of them than requests that came.
    pub fn remove_stray(&self, file: FileId, stripes: &StripeRuns) {
        for stripe in stripes.iter() {
            if let Err(error) = self.engine.remove(StripeKey { file, stripe: StripeNo(stripe) }) {
                tracing::warn!(%error, %file, "a stripe of no file was left behind");
            }
        }
    }
}
