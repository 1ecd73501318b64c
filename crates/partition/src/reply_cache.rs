//! Reply cache for changes that may be resent.

use crate::SessionRanges;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{Answer, Object, Outcome, Refusal, RequestId, Session};

/// Maximum number of unsettled replies that are cached for one session. A client has fewer changes
/// in flight in one partition.
const ANSWERS_MAX: usize = 1024;
/// Maximum number of sessions that one partition remembers.
const SESSIONS_MAX: usize = 65_536;

/// Cached replies of each session, until they settle.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ReplyCache {
    sessions: BTreeMap<Session, SessionReplies>,
    /// Sessions that have ended here: their late requests are refused.
    ended: SessionRanges,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct SessionReplies {
    /// Lower numbers are settled and refused.
    settled: u64,
    /// A short list in order of arrival: one reply, if the client waits for each answer.
    answers: Vec<(u64, Outcome<Answer>)>,
}

impl ReplyCache {
    /// Returns the cached reply to this change if it was executed before, or an error if the change
    /// cannot be accepted.
    pub fn get(&self, request_id: RequestId) -> Option<Outcome<Answer>> {
        let Some(kept) = self.sessions.get(&request_id.session) else {
            return (self.sessions.len() >= SESSIONS_MAX).then_some(Err(Refusal::Busy(Object::Pool)));
        };
        if let Some((_, answer)) = kept.answers.iter().find(|(number, _)| *number == request_id.number) {
            return Some(answer.clone());
        }
        if request_id.number < kept.settled {
            return Some(Err(Refusal::Stale(Object::Pool)));
        }
        let unsettled = || kept.answers.iter().filter(|(number, _)| *number >= request_id.settled).count();
        (kept.answers.len() >= ANSWERS_MAX && unsettled() >= ANSWERS_MAX).then_some(Err(Refusal::Busy(Object::Pool)))
    }

    /// Caches the reply, and drops the settled ones.
    pub fn insert(&mut self, request_id: RequestId, answer: Outcome<Answer>) {
        let kept = self.sessions.entry(request_id.session).or_default();
        kept.settled = kept.settled.max(request_id.settled);
        let settled = kept.settled;
        kept.answers.retain(|(number, _)| *number >= settled);
        if kept.answers.is_empty() {
            kept.answers.reserve_exact(1);
        }
        kept.answers.push((request_id.number, answer));
    }

    /// Caches this reply in place of any earlier one.
    pub fn replace(&mut self, request_id: RequestId, answer: Outcome<Answer>) {
        if let Some(kept) = self.sessions.get_mut(&request_id.session) {
            kept.answers.retain(|(number, _)| *number != request_id.number);
        }
        self.insert(request_id, answer);
    }

    /// Ends the session.
    pub fn end(&mut self, session: Session) {
        self.sessions.remove(&session);
        self.ended.add(session);
    }

    /// Returns the number from which on replies of a session are cached.
    pub fn settled(&self, session: Session) -> u64 {
        self.sessions.get(&session).map_or(0, |kept| kept.settled)
    }

    /// Returns the sessions with cached replies.
    pub fn sessions(&self) -> impl Iterator<Item = Session> {
        self.sessions.keys().copied()
    }

    /// Returns true if the session has ended.
    pub fn has_ended(&self, session: Session) -> bool {
        self.ended.has(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_id(number: u64, settled: u64) -> RequestId {
        RequestId { session: Session(1), number, settled }
    }

    #[test]
    fn answers_are_kept_until_they_settle() {
        let mut replies = ReplyCache::default();
        replies.insert(request_id(1, 1), Ok(Answer::Done));
        replies.insert(request_id(2, 1), Ok(Answer::NeedsTransaction));
        assert_eq!(replies.get(request_id(1, 1)), Some(Ok(Answer::Done)));
        replies.insert(request_id(3, 3), Ok(Answer::Done));
        assert!(matches!(replies.get(request_id(2, 1)), Some(Err(Refusal::Stale(_)))), "settled: never done again");
        assert_eq!(replies.get(request_id(4, 3)), None, "new");
    }

    #[test]
    fn a_client_that_never_settles_is_refused_before_it_fills_the_memory() {
        let mut replies = ReplyCache::default();
        for number in 1..=ANSWERS_MAX as u64 {
            assert_eq!(replies.get(request_id(number, 1)), None);
            replies.insert(request_id(number, 1), Ok(Answer::Done));
        }
        assert!(matches!(replies.get(request_id(5000, 1)), Some(Err(Refusal::Busy(_)))));
        assert_eq!(replies.get(request_id(5000, 900)), None, "settling makes room");
    }
}
