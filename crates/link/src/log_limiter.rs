//! Rate limit for log lines that any client can cause: a few a minute are written, the others are
//! counted.

use parking_lot::Mutex;
use std::{
    mem,
    time::{Duration, Instant},
};

/// Most lines in each [`PERIOD`].
const LINES_MAX: u32 = 20;
const PERIOD: Duration = Duration::from_mins(1);

/// Rate limiter: logs some lines in each period, and then how many were suppressed.
#[derive(Debug, Default)]
pub struct Rare(Mutex<Option<Counted>>);

#[derive(Debug)]
struct Counted {
    since: Instant,
    told: u32,
    untold: u64,
}

impl Rare {
    /// Logs a line, unless the limit is reached.
    pub fn warn(&self, tell: impl FnOnce()) {
        let (tells, untold) = self.count(Instant::now());
        if untold > 0 {
            tracing::warn!(untold, "connections were refused or ended about which nothing was told");
        }
        if tells {
            tell();
        }
    }

    /// Returns whether to log a line now, and how many were suppressed in the period before.
    fn count(&self, now: Instant) -> (bool, u64) {
        let mut counted = self.0.lock();
        let current = counted.get_or_insert(Counted { since: now, told: 0, untold: 0 });
        let mut untold = 0;
        if now.saturating_duration_since(current.since) >= PERIOD {
            (current.since, current.told) = (now, 0);
            untold = mem::take(&mut current.untold);
        }
        if current.told < LINES_MAX {
            current.told += 1;
            return (true, untold);
        }
        current.untold += 1;
        (false, untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_are_refused_a_few_lines_a_minute_are_told_and_the_others_counted() {
        let (rare, now) = (Rare::default(), Instant::now());
        let told = (0..10_000).filter(|_| rare.count(now).0).count();
        assert_eq!(told, LINES_MAX as usize);
        assert_eq!(rare.count(now + PERIOD), (true, 10_000 - u64::from(LINES_MAX)));
        assert_eq!(rare.count(now + PERIOD), (true, 0));
    }
}
