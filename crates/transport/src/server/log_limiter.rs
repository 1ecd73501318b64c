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
pub struct LogRateLimiter(Mutex<Option<LogWindow>>);

#[derive(Debug)]
struct LogWindow {
    window_start: Instant,
    logged: u32,
    suppressed: u64,
}

impl LogRateLimiter {
    /// Logs a line, unless the limit is reached.
    pub fn warn(&self, log: impl FnOnce()) {
        let (may_log, suppressed) = self.count(Instant::now());
        if suppressed > 0 {
            tracing::warn!(suppressed, "connections were refused or ended without a log line each");
        }
        if may_log {
            log();
        }
    }

    /// Returns whether to log a line now, and how many were suppressed in the period before.
    fn count(&self, now: Instant) -> (bool, u64) {
        let mut counted = self.0.lock();
        let current = counted.get_or_insert(LogWindow { window_start: now, logged: 0, suppressed: 0 });
        let mut suppressed = 0;
        if now.saturating_duration_since(current.window_start) >= PERIOD {
            (current.window_start, current.logged) = (now, 0);
            suppressed = mem::take(&mut current.suppressed);
        }
        if current.logged < LINES_MAX {
            current.logged += 1;
            return (true, suppressed);
        }
        current.suppressed += 1;
        (false, suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_are_refused_a_few_lines_a_minute_are_told_and_the_others_counted() {
        let (limiter, now) = (LogRateLimiter::default(), Instant::now());
        let logged = (0..10_000).filter(|_| limiter.count(now).0).count();
        assert_eq!(logged, LINES_MAX as usize);
        assert_eq!(limiter.count(now + PERIOD), (true, 10_000 - u64::from(LINES_MAX)));
        assert_eq!(limiter.count(now + PERIOD), (true, 0));
    }
}
