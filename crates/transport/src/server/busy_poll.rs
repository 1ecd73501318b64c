//! Decides when the task of a connection busy-polls for the next request instead of sleeping.
//!
//! A wake-up takes longer than most requests. So where requests follow each other, as those of a
//! program that makes file after file, the task polls the socket for a while. It never polls for
//! long, never while others wait for its thread, and only on a few connections at a time.

use crate::socket::stream::Stream;
use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A request that arrives within this time after the last reply follows it closely.
const GAP_MAX: Duration = Duration::from_micros(250);
/// Number of requests in close succession after which busy polling starts.
const STREAK_MIN: u32 = 4;
/// Limit of that number, which doubles each time that polling was in vain (if the other side is
/// itself woken for each reply, for example).
const STREAK_LIMIT: u32 = 4096;
/// Number of requests that polling must catch to justify one in vain.
const HITS_MIN: u32 = 16;
/// Longest polling without a request: a few times a wake-up, for programs that do a little between
/// two requests, as git and tar do. It costs at most that much processor time at the end of each
/// burst.
const SPIN_MAX: Duration = Duration::from_micros(200);
/// Polling time after which the thread yields to other tasks.
const YIELD_INTERVAL: Duration = Duration::from_millis(1);

/// Next step when no request has come.
#[derive(Debug, PartialEq)]
enum PollStep {
    /// Poll again.
    Spin,
    /// Poll again after other tasks had the thread.
    Yield,
    /// Sleep until woken.
    Block,
}

/// Busy-polling state of one connection.
#[derive(Debug)]
pub struct BusyPoll {
    /// Time since which nothing has come; `None` while there is work.
    idle: Option<Instant>,
    /// Number of requests in close succession.
    streak: u32,
    /// Number of requests in close succession that start polling.
    threshold: u32,
    /// Set while polling: its start (or last yield) and its permit.
    spinning: Option<(Instant, OwnedSemaphorePermit)>,
}

impl Default for BusyPoll {
    fn default() -> Self {
        Self { idle: None, streak: 0, threshold: STREAK_MIN, spinning: None }
    }
}

impl BusyPoll {
    /// Notes that something has come.
    pub fn on_input(&mut self, now: Instant) {
        if let Some(idle) = self.idle.take() {
            self.streak = if now - idle < GAP_MAX { self.streak + 1 } else { 0 };
        }
    }

    /// Notes that nothing has come. Calls `permit` to start polling; it returns `None` if enough
    /// connections poll already.
    fn on_idle(&mut self, now: Instant, permit: impl FnOnce() -> Option<OwnedSemaphorePermit>) -> PollStep {
        let idle = *self.idle.get_or_insert(now);
        if self.spinning.is_none() && self.streak >= self.threshold {
            self.spinning = permit().map(|permit| (now, permit));
            self.streak = if self.spinning.is_some() { 0 } else { self.streak };
        }
        match &mut self.spinning {
            None => PollStep::Block,
            Some(_) if now - idle >= SPIN_MAX => {
                self.threshold =
                    if self.streak >= HITS_MIN { STREAK_MIN } else { (self.threshold * 2).min(STREAK_LIMIT) };
                self.stop();
                PollStep::Block
            }
            Some((since, _)) if now - *since >= YIELD_INTERVAL => {
                *since = now;
                PollStep::Yield
            }
            Some(_) => PollStep::Spin,
        }
    }

    /// Called when nothing has come: ready if the socket is to be read again, else the task will be
    /// woken. It polls only with a semaphore in `permits`.
    pub fn poll(
        &mut self,
        stream: &mut Stream,
        permits: Option<&Arc<Semaphore>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let next = if let Some(permits) = permits {
            self.on_idle(Instant::now(), || permits.clone().try_acquire_owned().ok())
        } else {
            self.stop();
            PollStep::Block
        };
        match next {
            PollStep::Block if stream.block()? => Poll::Ready(Ok(())), // the runtime watches it only now
            PollStep::Block => Poll::Pending,
            PollStep::Spin => Poll::Ready(stream.spin()),
            PollStep::Yield => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Stops polling.
    fn stop(&mut self) {
        (self.streak, self.spinning) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn who_asks_again_and_again_is_looked_for_and_who_pauses_is_waited_for() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = || permits.clone().try_acquire_owned().ok();
        let (mut busy, mut now) = (BusyPoll::default(), Instant::now());
        for _ in 0..STREAK_MIN {
            assert_eq!(busy.on_idle(now, permit), PollStep::Block);
            now += 10 * US;
            busy.on_input(now);
        }
        assert_eq!(busy.on_idle(now, permit), PollStep::Spin);
        assert_eq!(busy.on_idle(now + SPIN_MAX / 2, permit), PollStep::Spin);
        let mut other = BusyPoll { streak: STREAK_MIN, ..BusyPoll::default() };
        assert_eq!(other.on_idle(now, permit), PollStep::Block, "there is room for one");
        assert_eq!(busy.on_idle(now + SPIN_MAX, permit), PollStep::Block);
        let mut other = BusyPoll { streak: STREAK_MIN, ..BusyPoll::default() };
        assert_eq!(other.on_idle(now + SPIN_MAX, permit), PollStep::Spin);
        busy.on_input(now + SPIN_MAX + US);
        assert_eq!(busy.on_idle(now + SPIN_MAX + US, permit), PollStep::Block, "it begins anew");
    }

    #[test]
    fn who_is_looked_for_in_vain_is_looked_for_less_and_less() {
        let permits = Arc::new(Semaphore::new(1));
        let (mut busy, mut now, mut spins) = (BusyPoll::default(), Instant::now(), Vec::new());
        for request in 0..1000 {
            // Each request comes after polling has stopped.
            while busy.on_idle(now, || permits.clone().try_acquire_owned().ok()) == PollStep::Spin {
                spins.push(request);
                now += SPIN_MAX;
            }
            now += GAP_MAX * 5 / 6;
            busy.on_input(now);
        }
        assert_eq!(spins, [4, 13, 30, 63, 128, 257, 514]);
        // Requests come as fast as they are polled for: no longer in vain.
        busy.streak = busy.threshold;
        for _ in 0..HITS_MIN {
            assert_eq!(busy.on_idle(now, || permits.clone().try_acquire_owned().ok()), PollStep::Spin);
            now += 10 * US;
            busy.on_input(now);
        }
        assert_eq!(busy.on_idle(now, || None), PollStep::Spin);
        assert_eq!(busy.on_idle(now + SPIN_MAX, || None), PollStep::Block);
        assert_eq!(busy.threshold, STREAK_MIN);
    }

    #[test]
    fn others_have_the_thread_now_and_then() {
        let permits = Arc::new(Semaphore::new(1));
        let (mut busy, mut now) = (BusyPoll { streak: STREAK_MIN, ..BusyPoll::default() }, Instant::now());
        let (mut spins, mut yields) = (0, 0);
        for _ in 0..1000 {
            match busy.on_idle(now, || permits.clone().try_acquire_owned().ok()) {
                PollStep::Spin => spins += 1,
                PollStep::Yield => yields += 1,
                PollStep::Block => panic!("requests come"),
            }
            now += 10 * US;
            busy.on_input(now);
        }
        assert_eq!((spins, yields), (991, 9));
    }
}
