//! Set of sessions, as ranges.

use serde::{Deserialize, Serialize};
use wire::Session;

/// A set of sessions as ranges. Of ended ones there are few, because most sessions that a node has
/// given end at some time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SessionRanges {
    /// First session of each range, and the one after its last.
    runs: Vec<(u64, u64)>,
}

impl SessionRanges {
    /// Adds a session.
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

    /// Returns true if the set has the session.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_sessions_are_remembered_in_few_runs() {
        let mut ended = SessionRanges::default();
        for session in [5, 1, 3, 2, 4, 9, 5] {
            ended.add(Session(session));
        }
        assert_eq!(ended.runs, [(1, 6), (9, 10)]);
        assert!(ended.has(Session(3)) && !ended.has(Session(6)));
    }
}
