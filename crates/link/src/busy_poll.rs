//! Decides when the task of a connection busy-polls for the next request instead of sleeping.
//!
//! A wake-up takes longer than most requests. So where requests follow each other, as those of a
//! program that makes file after file, the task polls the socket for a while. It never polls for
//! long, never while others wait for its thread, and only on a few connections at a time.

use crate::stream::Stream;
use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A request that arrives within this time after the last reply follows it closely.
const SOON: Duration = Duration::from_micros(250);
/// Number of requests in close succession after which busy polling starts.
const ROW: u32 = 4;
/// Limit of that number, which doubles each time that polling was in vain (if the other side is
/// itself woken for each reply, for example).
const ROW_MAX: u32 = 4096;
/// Number of requests that polling must catch to justify one in vain.
const WORTH: u32 = 16;
/// Longest polling without a request: a few times a wake-up, for programs that do a little between
/// two requests, as git and tar do. It costs at most that much processor time at the end of each
/// burst.
const LOOK: Duration = Duration::from_micros(200);
/// Polling time after which the thread yields to other tasks.
const TURN: Duration = Duration::from_millis(1);

/// Next step when no request has come.
#[derive(Debug, PartialEq)]
enum Next {
    /// Poll again.
    Look,
    /// Poll again after other tasks had the thread.
    GiveWay,
    /// Sleep until woken.
    Rest,
}

/// Busy-polling state of one connection.
#[derive(Debug)]
pub struct Brisk {
    /// Time since which nothing has come; `None` while there is work.
    idle: Option<Instant>,
    /// Number of requests in close succession.
    row: u32,
    /// Number of requests in close succession that start polling.
    wanted: u32,
    /// Set while polling: its start (or last yield) and its permit.
    looks: Option<(Instant, OwnedSemaphorePermit)>,
}

impl Default for Brisk {
    fn default() -> Self {
        Self { idle: None, row: 0, wanted: ROW, looks: None }
    }
}

impl Brisk {
    /// Notes that something has come.
    pub fn on_come(&mut self, now: Instant) {
        if let Some(idle) = self.idle.take() {
            self.row = if now - idle < SOON { self.row + 1 } else { 0 };
        }
    }

    /// Notes that nothing has come. Calls `permit` to start polling; it returns `None` if enough
    /// connections poll already.
    fn on_nothing(&mut self, now: Instant, permit: impl FnOnce() -> Option<OwnedSemaphorePermit>) -> Next {
        let idle = *self.idle.get_or_insert(now);
        if self.looks.is_none() && self.row >= self.wanted {
            self.looks = permit().map(|permit| (now, permit));
            self.row = if self.looks.is_some() { 0 } else { self.row };
        }
        match &mut self.looks {
            None => Next::Rest,
            Some(_) if now - idle >= LOOK => {
                self.wanted = if self.row >= WORTH { ROW } else { (self.wanted * 2).min(ROW_MAX) };
                self.rest();
                Next::Rest
            }
            Some((since, _)) if now - *since >= TURN => {
                *since = now;
                Next::GiveWay
            }
            Some(_) => Next::Look,
        }
    }

    /// Called when nothing has come: ready if the socket is to be read again, else the task will be
    /// woken. It polls only with a semaphore in `room`.
    pub fn poll(
        &mut self,
        stream: &mut Stream,
        room: Option<&Arc<Semaphore>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let next = if let Some(room) = room {
            self.on_nothing(Instant::now(), || room.clone().try_acquire_owned().ok())
        } else {
            self.rest();
            Next::Rest
        };
        match next {
            Next::Rest if stream.rest()? => Poll::Ready(Ok(())), // the runtime watches it only now
            Next::Rest => Poll::Pending,
            Next::Look => Poll::Ready(stream.look()),
            Next::GiveWay => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Stops polling.
    fn rest(&mut self) {
        (self.row, self.looks) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn who_asks_again_and_again_is_looked_for_and_who_pauses_is_waited_for() {
        let room = Arc::new(Semaphore::new(1));
        let permit = || room.clone().try_acquire_owned().ok();
        let (mut brisk, mut now) = (Brisk::default(), Instant::now());
        for _ in 0..ROW {
            assert_eq!(brisk.on_nothing(now, permit), Next::Rest);
            now += 10 * US;
            brisk.on_come(now);
        }
        assert_eq!(brisk.on_nothing(now, permit), Next::Look);
        assert_eq!(brisk.on_nothing(now + LOOK / 2, permit), Next::Look);
        let mut other = Brisk { row: ROW, ..Brisk::default() };
        assert_eq!(other.on_nothing(now, permit), Next::Rest, "there is room for one");
        assert_eq!(brisk.on_nothing(now + LOOK, permit), Next::Rest);
        let mut other = Brisk { row: ROW, ..Brisk::default() };
        assert_eq!(other.on_nothing(now + LOOK, permit), Next::Look);
        brisk.on_come(now + LOOK + US);
        assert_eq!(brisk.on_nothing(now + LOOK + US, permit), Next::Rest, "it begins anew");
    }

    #[test]
    fn who_is_looked_for_in_vain_is_looked_for_less_and_less() {
        let room = Arc::new(Semaphore::new(1));
        let (mut brisk, mut now, mut looks) = (Brisk::default(), Instant::now(), Vec::new());
        for request in 0..1000 {
            // Each request comes after polling has stopped.
            while brisk.on_nothing(now, || room.clone().try_acquire_owned().ok()) == Next::Look {
                looks.push(request);
                now += LOOK;
            }
            now += SOON * 5 / 6;
            brisk.on_come(now);
        }
        assert_eq!(looks, [4, 13, 30, 63, 128, 257, 514]);
        // Requests come as fast as they are polled for: no longer in vain.
        brisk.row = brisk.wanted;
        for _ in 0..WORTH {
            assert_eq!(brisk.on_nothing(now, || room.clone().try_acquire_owned().ok()), Next::Look);
            now += 10 * US;
            brisk.on_come(now);
        }
        assert_eq!(brisk.on_nothing(now, || None), Next::Look);
        assert_eq!(brisk.on_nothing(now + LOOK, || None), Next::Rest);
        assert_eq!(brisk.wanted, ROW);
    }

    #[test]
    fn others_have_the_thread_now_and_then() {
        let room = Arc::new(Semaphore::new(1));
        let (mut brisk, mut now) = (Brisk { row: ROW, ..Brisk::default() }, Instant::now());
        let (mut looks, mut ways) = (0, 0);
        for _ in 0..1000 {
            match brisk.on_nothing(now, || room.clone().try_acquire_owned().ok()) {
                Next::Look => looks += 1,
                Next::GiveWay => ways += 1,
                Next::Rest => panic!("requests come"),
            }
            now += 10 * US;
            brisk.on_come(now);
        }
        assert_eq!((looks, ways), (991, 9));
    }
}
