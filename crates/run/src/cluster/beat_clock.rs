//! Times of the run's beats, which agents send back: what an agent said since a moment is told from
//! what was under way.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clock of this process.
pub static RUN_CLOCK: LazyLock<BeatClock> = LazyLock::new(BeatClock::new);

/// Times of one process of a run as numbers: microseconds since 1970, with steady steps.
#[derive(Debug, Clone, Copy)]
pub struct BeatClock {
    begin: Instant,
    base: u64,
}

impl BeatClock {
    /// A clock that begins now.
    fn new() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { begin: Instant::now(), base: micros(since_1970) }
    }

    /// The time of a beat that is sent now.
    pub fn now(&self) -> u64 {
        self.base + micros(self.begin.elapsed())
    }

    /// The moment at which a beat was sent; `None` if another process of the run sent it.
    fn moment(&self, sent: u64) -> Option<Instant> {
        let moment = self.begin + Duration::from_micros(sent.checked_sub(self.base)?);
        (moment <= Instant::now()).then_some(moment)
    }

    /// Moves `answered` on to the moment of a beat that an agent has heard, if that was later.
    pub fn advance(&self, answered: &mut Instant, heard: u64) {
        *answered = self.moment(heard).map_or(*answered, |moment| moment.max(*answered));
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::BeatClock;
    use std::time::{Duration, Instant};

    #[test]
    fn a_beat_that_comes_back_tells_no_later_moment_than_it_was_sent() {
        let clock = BeatClock::new();
        let before = Instant::now();
        let sent = clock.now();
        let after = Instant::now();
        let moment = clock.moment(sent).expect("it is of this process");
        assert!(moment + Duration::from_micros(2) >= before && moment <= after);
    }

    #[test]
    fn an_answer_that_was_under_way_at_a_failure_does_not_come_after_it() {
        let clock = BeatClock::new();
        let mut answered = Instant::now();
        let sent = clock.now();
        let failure = Instant::now();
        clock.advance(&mut answered, sent);
        assert!(answered <= failure);
        let asked = loop {
            let now = clock.now();
            if clock.moment(now).is_some_and(|moment| moment > failure) {
                break now;
            }
        };
        clock.advance(&mut answered, asked);
        clock.advance(&mut answered, sent);
        assert!(answered > failure, "an older answer takes nothing back");
    }

    #[test]
    fn a_beat_of_another_process_tells_nothing() {
        let clock = BeatClock::new();
        assert_eq!(clock.moment(0), None, "no beat was heard");
        assert_eq!(clock.moment(clock.base - 1), None, "it began earlier");
        assert_eq!(clock.moment(clock.now() + 60_000_000), None, "its clock was ahead");
    }
}
