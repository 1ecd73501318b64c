//! Sessions that have ended.

use serde::{Deserialize, Serialize};
use std::sync::{Arc, PoisonError, RwLock};
use wire::Session;

/// Which sessions have ended: few runs, as most that a node has given end some time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ended {
    /// From the first of a run to the one after its last.
    runs: Vec<(u64, u64)>,
}

impl Ended {
    /// One more.
    pub fn add(&mut self, Session(number): Session) {
        let at = self.runs.partition_point(|(first, _)| *first <= number);
        match at.checked_sub(1).map(|before| self.runs[before]) {
            Some((_, end)) if number < end => return,
            Some((_, end)) if number == end => self.runs[at - 1].1 += 1,
            _ => {
                self.runs.reserve_exact(1);
                self.runs.insert(at, (number, number + 1));
            }
        }
        self.join_runs();
    }

    /// Whether it is one of them.
    pub fn has(&self, Session(number): Session) -> bool {
        self.runs.iter().any(|(first, end)| (*first..*end).contains(&number))
    }

    fn join_runs(&mut self) {
        self.runs.dedup_by(|next, run| {
            let touch = run.1 == next.0;
            run.1 = if touch { next.1 } else { run.1 };
            touch
        });
    }
}

/// The same, as all partitions of a node know it at once: a session that has ended in one of them has in all, so those where it left
/// nothing need not be told. Clones are the same; a snapshot is one by itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Ended", into = "Ended")]
pub struct Endings(Arc<RwLock<Ended>>);

impl Endings {
    /// One more.
    pub fn add(&self, session: Session) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).add(session);
    }

    /// Whether it is one of them.
    pub fn has(&self, session: Session) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).has(session)
    }
}

impl From<Ended> for Endings {
    fn from(ended: Ended) -> Self {
        Self(Arc::new(RwLock::new(ended)))
    }
}

impl From<Endings> for Ended {
    fn from(Endings(shared): Endings) -> Self {
        shared.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_sessions_are_remembered_in_few_runs() {
        let mut ended = Ended::default();
        for session in [5, 1, 3, 2, 4, 9, 5] {
            ended.add(Session(session));
        }
        assert_eq!(ended.runs, [(1, 6), (9, 10)]);
        assert!(ended.has(Session(3)) && !ended.has(Session(6)));
    }
}
