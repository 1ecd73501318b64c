//! Stripes that sessions wrote of files that this node does not know: those that belong to nothing go with their session.
//!
//! A stripe may lie at another node than its file. What is written here of such a file is noted, and when the session ends, the file's own node
//! says which of it the file has not planned and nobody has reserved. A client writes nothing but what it has reserved or planned, so that
//! usually all is known then. Sessions of which much is noted are asked about while they go on.
//!
//! ```text
//!   write of another node's file -> noted -> engine
//!   the session ends, or has much noted -> question { file, stripes } -> the file's node: Unplanned { stripes } -> removed here
//!                                           a stripe that anybody writes meanwhile leaves the question: it may have been planned since
//! ```

use crate::Node;
use parking_lot::Mutex;
use placement::{FileId, StripeNo};
use std::{collections::HashMap, time::Duration};
use store::StripeKey;
use wire::{AllocateMode, Command, FILE_BYTES_MAX, Object, Outcome, Refusal, Session, Shortage, StripeRuns};

/// So many times what the pool may hold is no range that can be filled: it would only have to be gone through later.
const POOLS_MAX: u64 = 2;
/// A session of which more is noted is looked through while it goes on: runs of stripes, of all files together.
const NOTED_MAX: usize = 1024;

/// What each session wrote of files that are not known here.
#[derive(Debug, Default)]
pub struct Strays(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    by_session: HashMap<Session, HashMap<FileId, StripeRuns>>,
    /// What is being asked about, less what was written since then.
    asked: HashMap<FileId, Vec<(u64, StripeRuns)>>,
    /// So many questions were asked.
    questions: u64,
}

/// Stripes here that a session wrote, for the node of their file: which of them belong to nothing?
#[derive(Debug, PartialEq)]
pub struct Question {
    /// The file.
    pub file: FileId,
    /// The stripes.
    pub stripes: StripeRuns,
    number: u64,
}

/// What a node knows of a stripe that a session writes.
enum Known {
    /// Its file is here and has it, or the session has reserved it.
    Expected,
    /// Its file is here and has no such stripe.
    Unplanned,
    /// Its file would be here, and is not.
    Not,
    /// Its file is at another node, if there is one.
    Elsewhere,
}

impl Strays {
    fn note(&self, session: Session, key: StripeKey) {
        let (stripe, end) = (key.stripe.0, key.stripe.0.saturating_add(1));
        let mut noted = self.0.lock();
        noted.by_session.entry(session).or_default().entry(key.file).or_default().insert(stripe, end);
        for (_, asked) in noted.asked.get_mut(&key.file).into_iter().flatten() {
            asked.remove(stripe, end);
        }
    }
}

impl Noted {
    /// Takes what is noted of a session and a file, to ask about it.
    fn ask(&mut self, session: Session, file: FileId) -> Option<Question> {
        let stripes = self.by_session.get_mut(&session)?.remove(&file)?;
        self.by_session.retain(|_, files| !files.is_empty());
        self.questions += 1;
        let number = self.questions;
        self.asked.entry(file).or_default().push((number, stripes.clone()));
        Some(Question { file, stripes, number })
    }

    /// Whether this was asked about and not written since then.
    fn still_asks(&self, question: &Question, stripe: u64) -> bool {
        let asked = self.asked.get(&question.file).into_iter().flatten();
        asked.filter(|(number, _)| *number == question.number).any(|(_, asked)| asked.contains(stripe))
    }

    fn end(&mut self, question: &Question) {
        if let Some(asked) = self.asked.get_mut(&question.file) {
            asked.retain(|(number, _)| *number != question.number);
            if asked.is_empty() {
                self.asked.remove(&question.file);
            }
        }
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
            Known::Not | Known::Elsewhere => {
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
        if matches!(self.known(session, key), Known::Not | Known::Elsewhere) {
            self.strays.note(session, key);
        }
    }

    fn known(&self, session: Session, key: StripeKey) -> Known {
        let Some(partition) = self.partitions.get(key.file.partition()) else { return Known::Elsewhere };
        let partition = partition.lock();
        match partition.expects(key.file, key.stripe.0, session) {
            true => Known::Expected,
            false if partition.has(key.file) => Known::Unplanned,
            false => Known::Not,
        }
    }

    /// A session has ended while a stripe of it was written, so that whoever ends it may not have seen this.
    pub(crate) fn end_late(&self, session: Session, key: StripeKey) {
        match self.known(session, key) {
            // What its file has stays, and what is reserved still is removed with that.
            Known::Expected => {}
            Known::Unplanned | Known::Not => self.remove_stray(key),
            Known::Elsewhere => self.strays.note(session, key),
        }
    }

    /// Files of other nodes that a session wrote to: about each is to be asked. What it wrote of files that would be here is removed at once,
    /// unless they have planned it.
    pub fn strays_elsewhere(&self, session: Session) -> Vec<FileId> {
        let mut noted = self.strays.0.lock();
        let Some(mut files) = noted.by_session.remove(&session) else { return Vec::new() };
        // Of a partition that there is not, no node can say anything.
        let is_elsewhere = |file: &FileId| {
            self.partitions.get(file.partition()).is_none()
                && u32::from(file.partition().0) < self.settings().partitions
        };
        let elsewhere: HashMap<_, _> = files.extract_if(|file, _| is_elsewhere(file)).collect();
        let asked = elsewhere.keys().copied().collect();
        if !elsewhere.is_empty() {
            noted.by_session.insert(session, elsewhere);
        }
        drop(noted);
        for (file, stripes) in files {
            self.remove_unplanned_here(file, &stripes);
        }
        asked
    }

    /// Sessions that are to be looked through now: of which much is noted, or that ended while something of them was written.
    pub fn crowded_strays(&self) -> Vec<Session> {
        let noted = self.strays.0.lock();
        let is_crowded = |(session, files): &(&Session, &HashMap<FileId, StripeRuns>)| {
            files.values().map(StripeRuns::runs).sum::<usize>() > NOTED_MAX || self.touched.endings().has(**session)
        };
        noted.by_session.iter().filter(is_crowded).map(|(session, _)| *session).collect()
    }

    /// What is to be asked of a file's own node. Then [`Self::remove_strays`] or [`Self::leave_strays`] is to be called.
    pub fn ask_of_strays(&self, session: Session, file: FileId) -> Option<Question> {
        self.strays.0.lock().ask(session, file)
    }

    /// Removes what belongs to nothing, as the file's node has said, but for what was written since it was asked. Each was written, so there
    /// are no more of them than requests that came.
    pub fn remove_strays(&self, question: &Question, unplanned: &StripeRuns) {
        for stripe in unplanned.iter() {
            // Who writes it from now on is noted before, and waits for this lock.
            let noted = self.strays.0.lock();
            if noted.still_asks(question, stripe) {
                self.remove_stray(StripeKey { file: question.file, stripe: StripeNo(stripe) });
            }
        }
        self.leave_strays(question);
    }

    /// The question is over; all that it was about stays.
    pub fn leave_strays(&self, question: &Question) {
        self.strays.0.lock().end(question);
    }

    /// The same for a file that would be here.
    fn remove_unplanned_here(&self, file: FileId, stripes: &StripeRuns) {
        let partition = self.partitions.get(file.partition());
        for stripe in stripes.iter() {
            // Nobody plans it while its partition is locked.
            let partition = partition.as_ref().map(|partition| partition.lock());
            let mut one = StripeRuns::new();
            one.insert(stripe, stripe.saturating_add(1));
            if partition.is_none_or(|partition| !partition.unplanned(file, &one).is_empty()) {
                self.remove_stray(StripeKey { file, stripe: StripeNo(stripe) });
            }
        }
    }

    fn remove_stray(&self, key: StripeKey) {
        if let Err(error) = self.engine.remove(key) {
            tracing::debug!(file = %key.file, stripe = key.stripe.0, "it belongs to nothing and stays");
            tracing::warn!(%error, "memory that a client has left, and that no file uses, could not be freed");
        }
    }
}
