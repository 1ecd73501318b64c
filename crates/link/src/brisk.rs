//! Decides when the task of a connection stays awake for the next request, in place of having itself woken for it.
//!
//! Being woken takes longer than most requests do. So where one request follows the other, as those of a program that makes file after file, the
//! task looks for the next a while; never for long, never where others wait for its thread, and at few connections at one time.

use crate::stream::Stream;
use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests that come so soon after the last was answered follow it.
const SOON: Duration = Duration::from_micros(250);
/// After so many that followed the one before, the next is looked for...
const ROW: u32 = 4;
/// ... and after twice as many each time that this was in vain, up to so many: the other side is itself woken for each answer, say.
const ROW_MAX: u32 = 4096;
/// So many that came while they were looked for are worth that one did not.
const WORTH: u32 = 16;
/// So long it is looked for: a few times as long as being woken takes, for programs that do a little between two requests, as git and tar do. It costs at most
/// that of a processor at the end of each row.
const LOOK: Duration = Duration::from_micros(200);
/// After so long the thread is left to others for a moment.
const TURN: Duration = Duration::from_millis(1);

/// What there is to do where nothing has come.
#[derive(Debug, PartialEq)]
enum Next {
    /// Look again.
    Look,
    /// Look again, when others had the thread.
    GiveWay,
    /// Wait, until somebody wakes it.
    Rest,
}

/// One connection's.
#[derive(Debug)]
pub struct Brisk {
    /// Since when nothing has come; none while there is something to do.
    idle: Option<Instant>,
    /// So many requests followed each other.
    row: u32,
    /// So many must follow each other.
    wanted: u32,
    /// It looks, since then.
    looks: Option<(Instant, OwnedSemaphorePermit)>,
}

impl Default for Brisk {
    fn default() -> Self {
        Self { idle: None, row: 0, wanted: ROW, looks: None }
    }
}

impl Brisk {
    /// Something has come.
    pub fn on_come(&mut self, now: Instant) {
        if let Some(idle) = self.idle.take() {
            self.row = if now - idle < SOON { self.row + 1 } else { 0 };
        }
    }

    /// Nothing has come. `permit` is asked for when it is to look from now on, and says no where enough connections do.
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

    /// Nothing has come: ready when it is to be looked again; else who waits is woken. It may look where there is `room` for it.
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
            Next::Rest if stream.rest()? => Poll::Ready(Ok(())), // nobody was to be woken until now
            Next::Rest => Poll::Pending,
            Next::Look => Poll::Ready(stream.look()),
            Next::GiveWay => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// It is not to look any longer.
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
            // Each comes when it is no longer looked for.
            while brisk.on_nothing(now, || room.clone().try_acquire_owned().ok()) == Next::Look {
                looks.push(request);
                now += LOOK;
            }
            now += SOON * 5 / 6;
            brisk.on_come(now);
        }
        assert_eq!(looks, [4, 13, 30, 63, 128, 257, 514]);
        // One after the other, as fast as they are looked for: no longer in vain.
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
