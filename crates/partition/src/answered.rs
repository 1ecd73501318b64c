//! Answers kept for changes that may be sent again.

use crate::Endings;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{Answer, Object, Outcome, Refusal, Session, Stamp};

/// The most unsettled answers that are kept for one session; a client has fewer changes under way in one partition.
const ANSWERS_MAX: usize = 1024;
/// The most sessions that one partition remembers.
const SESSIONS_MAX: usize = 65_536;

/// What was answered to each session, until it settles.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answered {
    sessions: BTreeMap<Session, Kept>,
    /// Late requests of theirs are refused.
    pub ended: Endings,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    /// Lower numbers are settled and refused.
    settled: u64,
    /// Few, in order of arrival: one, for a client that waits for each answer.
    answers: Vec<(u64, Outcome<Answer>)>,
}

impl Answered {
    /// What was answered to this change, when it was done before; also when it cannot be taken.
    pub fn recall(&self, stamp: Stamp) -> Option<Outcome<Answer>> {
        let Some(kept) = self.sessions.get(&stamp.session) else {
            return (self.sessions.len() >= SESSIONS_MAX).then_some(Err(Refusal::Busy(Object::Pool)));
        };
        if let Some((_, answer)) = kept.answers.iter().find(|(number, _)| *number == stamp.number) {
            return Some(answer.clone());
        }
        if stamp.number < kept.settled {
            return Some(Err(Refusal::Stale(Object::Pool)));
        }
        let unsettled = || kept.answers.iter().filter(|(number, _)| *number >= stamp.settled).count();
        (kept.answers.len() >= ANSWERS_MAX && unsettled() >= ANSWERS_MAX).then_some(Err(Refusal::Busy(Object::Pool)))
    }

    /// Keeps the answer, and forgets those that are settled.
    pub fn keep(&mut self, stamp: Stamp, answer: Outcome<Answer>) {
        let kept = self.sessions.entry(stamp.session).or_default();
        kept.settled = kept.settled.max(stamp.settled);
        let settled = kept.settled;
        kept.answers.retain(|(number, _)| *number >= settled);
        if kept.answers.is_empty() {
            kept.answers.reserve_exact(1);
        }
        kept.answers.push((stamp.number, answer));
    }

    /// Keeps this answer in place of the one that was kept, if there was one.
    pub fn amend(&mut self, stamp: Stamp, answer: Outcome<Answer>) {
        if let Some(kept) = self.sessions.get_mut(&stamp.session) {
            kept.answers.retain(|(number, _)| *number != stamp.number);
        }
        self.keep(stamp, answer);
    }

    /// The session has ended.
    pub fn end(&mut self, session: Session) {
        self.sessions.remove(&session);
        self.ended.add(session);
    }

    /// Whether the session has ended.
    pub fn has_ended(&self, session: Session) -> bool {
        self.ended.has(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(number: u64, settled: u64) -> Stamp {
        Stamp { session: Session(1), number, settled }
    }

    #[test]
    fn answers_are_kept_until_they_settle() {
        let mut answered = Answered::default();
        answered.keep(stamp(1, 1), Ok(Answer::Done));
        answered.keep(stamp(2, 1), Ok(Answer::Spread));
        assert_eq!(answered.recall(stamp(1, 1)), Some(Ok(Answer::Done)));
        answered.keep(stamp(3, 3), Ok(Answer::Done));
        assert!(matches!(answered.recall(stamp(2, 1)), Some(Err(Refusal::Stale(_)))), "settled: never done again");
        assert_eq!(answered.recall(stamp(4, 3)), None, "new");
    }

    #[test]
    fn a_client_that_never_settles_is_refused_before_it_fills_the_memory() {
        let mut answered = Answered::default();
        for number in 1..=ANSWERS_MAX as u64 {
            assert_eq!(answered.recall(stamp(number, 1)), None);
            answered.keep(stamp(number, 1), Ok(Answer::Done));
        }
        assert!(matches!(answered.recall(stamp(5000, 1)), Some(Err(Refusal::Busy(_)))));
        assert_eq!(answered.recall(stamp(5000, 900)), None, "settling makes room");
    }
}
