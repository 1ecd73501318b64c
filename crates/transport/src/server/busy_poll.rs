//! Decides when the task of a connection busy-polls for the next request instead of sleeping.
//!
//! A [`SpinPolicy`] says when it is worth it. The task polls the socket without the runtime. It
//! never does while other clients need the processors, and gives the thread to other tasks and
//! sockets all the while.

use crate::{
    server::active_clients::{ActiveClients, CountedIn},
    socket::stream::Stream,
};
use reactor::{SpinPolicy, SpinStep};
use std::{
    io,
    pin::pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::task::yield_now;

/// Longest polling without a request: a few times a wake-up, for programs that do a little between
/// two requests, as git and tar do. It costs at most that much processor time at the end of each
/// burst.
const SPIN_MAX: Duration = Duration::from_micros(200);
/// Time for which a polling task has the thread to itself: a few dozen requests, so that looking at
/// the other sockets and timers costs little, and less than they would notice.
const YIELD_INTERVAL: Duration = Duration::from_micros(200);

/// Busy-polling state of one connection.
#[derive(Debug)]
pub struct BusyPoll {
    policy: SpinPolicy,
    /// Time since which the task has had the thread; `None` unless it polls.
    since: Option<Instant>,
    counted: CountedIn,
}

impl Default for BusyPoll {
    fn default() -> Self {
        Self { policy: SpinPolicy::new(SPIN_MAX), since: None, counted: CountedIn::default() }
    }
}

impl BusyPoll {
    /// Notes that something has come.
    pub fn on_input(&mut self, now: Instant, clients: &ActiveClients) {
        self.policy.on_message(now);
        clients.on_request(now, &mut self.counted);
    }

    /// Notes that nothing has come. `is_crowded`: other clients need the processors.
    fn on_idle(&mut self, now: Instant, is_crowded: bool) -> SpinStep {
        let step = self.policy.on_idle(now, is_crowded);
        self.since = self.since.or(Some(now)).filter(|_| step == SpinStep::Spin);
        step
    }

    /// Called when nothing has come: ready if the socket is to be read again, else the task will be
    /// woken.
    pub fn poll(&mut self, stream: &mut Stream, is_crowded: bool) -> Poll<io::Result<()>> {
        match self.on_idle(Instant::now(), is_crowded) {
            SpinStep::Spin => Poll::Ready(stream.spin()),
            SpinStep::Sleep if stream.block()? => Poll::Ready(Ok(())), // the runtime watches it only now
            SpinStep::Sleep => Poll::Pending,
        }
    }

    /// Returns whether a task that polls has had the thread for long enough, also if requests come
    /// all the time.
    fn is_over(&mut self, now: Instant) -> bool {
        let is_over = self.since.is_some_and(|since| now.saturating_duration_since(since) >= YIELD_INTERVAL);
        if is_over {
            self.since = Some(now);
        }
        is_over
    }

    /// Lets other tasks have the thread now and then: pending if they do now; the task is woken
    /// after the runtime has looked at all sockets and timers.
    pub fn poll_yield(&mut self, now: Instant, context: &mut Context<'_>) -> Poll<()> {
        if self.is_over(now) { pin!(yield_now()).poll(context) } else { Poll::Ready(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polling() -> BusyPoll {
        BusyPoll { policy: SpinPolicy::eager(SPIN_MAX), ..BusyPoll::default() }
    }

    #[test]
    fn others_have_the_thread_now_and_then_though_requests_come_all_the_time() {
        let (clients, mut now, mut busy) = (ActiveClients::new(Instant::now()), Instant::now(), polling());
        let mut yields = 0;
        for _ in 0..100 {
            assert_eq!(busy.on_idle(now, false), SpinStep::Spin);
            now += YIELD_INTERVAL / 10;
            busy.on_input(now, &clients);
            yields += u32::from(busy.is_over(now));
        }
        assert_eq!(yields, 10);
    }

    #[test]
    fn a_task_that_sleeps_has_no_thread_to_give() {
        let (now, mut busy) = (Instant::now(), polling());
        assert_eq!(busy.on_idle(now, false), SpinStep::Spin);
        assert_eq!(busy.on_idle(now, true), SpinStep::Sleep, "others need the processors");
        assert!(!busy.is_over(now + 10 * YIELD_INTERVAL));
    }
}
