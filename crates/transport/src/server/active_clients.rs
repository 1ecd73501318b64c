//! Counts the clients that have asked for something lately: when they are more than there are
//! processors for, no connection busy-polls.
//!
//! Time is cut into windows. A connection counts itself once in each window in which it has a
//! request, so most requests cost a comparison.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Length of a window: some dozens of requests of one client.
const WINDOW: Duration = Duration::from_millis(1);

/// Counts of the clients that were active in the current window and in the one before.
#[derive(Debug)]
pub struct ActiveClients {
    start: Instant,
    /// A [`WindowCounts`] as bits.
    counts: AtomicU64,
}

/// Number of the last window in which a connection was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedIn(u32);

#[derive(Clone, Copy, Debug)]
struct WindowCounts {
    window: u32,
    current: u16,
    previous: u16,
}

impl ActiveClients {
    /// Creates the counts of a server that starts now.
    pub fn new(start: Instant) -> Self {
        Self { start, counts: AtomicU64::new(0) }
    }

    /// Notes a request of a connection.
    pub fn on_request(&self, now: Instant, counted: &mut CountedIn) {
        let window = self.window(now);
        if counted.0 == window {
            return;
        }
        counted.0 = window;
        let count_it = |bits| {
            let counts = WindowCounts::from_bits(bits).at(window);
            Some(WindowCounts { current: counts.current.saturating_add(1), ..counts }.to_bits())
        };
        let _ = self.counts.fetch_update(Relaxed, Relaxed, count_it); // it always returns a value
    }

    /// Number of clients that are active.
    pub fn count(&self, now: Instant) -> usize {
        let counts = WindowCounts::from_bits(self.counts.load(Relaxed)).at(self.window(now));
        counts.current.max(counts.previous).into()
    }

    /// Number of the window of a moment. It starts at 1, so that it differs from the default of
    /// [`CountedIn`]; after 49 days it starts again.
    fn window(&self, now: Instant) -> u32 {
        let passed = now.saturating_duration_since(self.start).as_micros() / WINDOW.as_micros();
        #[expect(clippy::cast_possible_truncation, reason = "only neighbouring windows are compared")]
        let window = passed as u32;
        window.wrapping_add(1)
    }
}

impl WindowCounts {
    fn from_bits(bits: u64) -> Self {
        let [w0, w1, w2, w3, c0, c1, p0, p1] = bits.to_le_bytes();
        Self {
            window: u32::from_le_bytes([w0, w1, w2, w3]),
            current: u16::from_le_bytes([c0, c1]),
            previous: u16::from_le_bytes([p0, p1]),
        }
    }

    fn to_bits(self) -> u64 {
        let ([w0, w1, w2, w3], [c0, c1], [p0, p1]) =
            (self.window.to_le_bytes(), self.current.to_le_bytes(), self.previous.to_le_bytes());
        u64::from_le_bytes([w0, w1, w2, w3, c0, c1, p0, p1])
    }

    /// The counts as of a window.
    fn at(self, window: u32) -> Self {
        match window.wrapping_sub(self.window) {
            0 => self,
            1 => Self { window, current: 0, previous: self.current },
            _ => Self { window, current: 0, previous: 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_counts_once_in_a_window_and_until_the_end_of_the_next() {
        let start = Instant::now();
        let clients = ActiveClients::new(start);
        let (mut one, mut other) = (CountedIn::default(), CountedIn::default());
        assert_eq!(clients.count(start), 0);
        for _ in 0..3 {
            clients.on_request(start, &mut one);
        }
        assert_eq!(clients.count(start), 1);
        clients.on_request(start, &mut other);
        assert_eq!(clients.count(start), 2);
        clients.on_request(start + WINDOW, &mut one);
        assert_eq!(clients.count(start + WINDOW), 2, "the other one was active a moment ago");
        clients.on_request(start + 2 * WINDOW, &mut one);
        assert_eq!(clients.count(start + 2 * WINDOW), 1, "it was not active in the window before");
        assert_eq!(clients.count(start + 4 * WINDOW), 0);
    }
}
