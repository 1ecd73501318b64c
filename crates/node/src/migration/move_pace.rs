//! The pace of moves: while clients use a node, moves from it rest for longer than they work.
//!
//! Moves that go on without rests take most of the time of small machines, and of the connections
//! between large ones. A node that nobody uses gives its partitions away as fast as it can.

use crate::{Node, now};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Time that moves rest, by the time that they have worked.
const REST_FACTOR: u32 = 3;
/// Interval at which it is found out whether clients use the node.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// Requests in that interval from which on clients use the node.
const REQUESTS_MIN: u64 = 3;
/// Longest rest that moves may owe: work that took long was slowed by others.
const REST_MAX: Duration = Duration::from_millis(500);

/// The pace of the moves from a node.
#[derive(Debug, Default)]
pub struct MovePace(Mutex<PaceState>);

#[derive(Debug, Default)]
struct PaceState {
    /// The end of the rest that is owed.
    rests_until: Option<Instant>,
    /// The number of requests of clients, as of a moment.
    sample: Option<(Instant, u64)>,
    is_used: bool,
}

impl MovePace {
    /// Notes that a move has worked for so long, until `ended`.
    pub fn charge(&self, worked: Duration, ended: Instant) {
        let mut state = self.0.lock();
        let owed = state.rests_until.unwrap_or(ended).max(ended) + worked * REST_FACTOR;
        state.rests_until = Some(owed.min(ended + REST_MAX));
    }

    /// The end of the rest that moves owe at the time `now`, if clients use the node; they have
    /// made `requests` until now.
    fn rest(&self, now: Instant, requests: u64) -> Option<Instant> {
        let mut state = self.0.lock();
        match state.sample {
            Some((at, before)) if now.saturating_duration_since(at) >= SAMPLE_INTERVAL => {
                state.is_used = requests.saturating_sub(before) >= REQUESTS_MIN;
                state.sample = Some((now, requests));
            }
            Some(_) => {}
            None => state.sample = Some((now, requests)),
        }
        state.rests_until.filter(|until| state.is_used && *until > now)
    }
}

impl Node {
    /// The end of the rest that moves from this node owe its clients. It may end earlier, so it is
    /// looked at again after a while: at the time that is returned.
    pub(crate) fn rest_of_moves(&self) -> Option<Instant> {
        let now = now();
        let until = self.move_pace.rest(now, self.client_traffic().requests)?;
        Some(until.min(now + SAMPLE_INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn moves_rest_while_clients_use_the_node_and_not_when_nobody_does() {
        let (pace, began) = (MovePace::default(), Instant::now());
        let after = |millis: u32| began + MILLI * millis;
        assert_eq!(pace.rest(began, 0), None);
        pace.charge(MILLI * 10, after(10));
        assert_eq!(pace.rest(after(10), 100), None, "it is not known yet whether they do");
        pace.charge(MILLI * 10, after(60));
        assert_eq!(pace.rest(after(60), 110), Some(after(90)));
        assert_eq!(pace.rest(after(89), 110), Some(after(90)));
        assert_eq!(pace.rest(after(90), 110), None, "it has rested");
        pace.charge(MILLI * 10, after(120));
        assert_eq!(pace.rest(after(120), 112), None, "hardly a request since");
    }

    #[test]
    fn work_that_took_long_makes_no_long_rest_and_that_of_several_moves_adds_up() {
        let (pace, began) = (MovePace::default(), Instant::now());
        let after = |millis: u32| began + MILLI * millis;
        pace.rest(began, 0);
        for _ in 0..2 {
            pace.charge(MILLI * 20, after(60));
        }
        assert_eq!(pace.rest(after(60), 50), Some(after(180)));
        pace.charge(MILLI * 10_000, after(10_060));
        assert_eq!(pace.rest(after(10_060), 100_000), Some(after(10_060) + REST_MAX));
    }
}
