//! The way to a node in another process.

use crate::{
    Address, dial,
    line::{Line, NotSent, refusal, watched},
};
use client::{Borrowing, Connection, Hear};
use node::{Reply, sleep_until};
use parking_lot::Mutex;
use std::{
    future::Future,
    io,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};
use wire::{Extent, Failure, Object, OpenFlags, Outcome, Refusal, Request, Session, codec::Borrow, handshake::Token};

/// The pause after the first time that a node was not reached; each later one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// The longest pause: a node that comes back is found by then.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A node that has not answered a watch by then is not waited for.
const WATCH_WAIT: Duration = Duration::from_secs(20);

/// A [`Connection`] to a node at an address.
///
/// It connects with its first call, and again with the first after a connection has broken; while a node is not reached, pauses
/// grow, and calls in them fail at once. What was sent when a connection broke is `Lost`, what was not is `Unreachable`; so are
/// calls to a node that is not there. One who refuses us (the token is wrong, versions do not meet) is an `Io` refusal.
///
/// What a session holds ends with the connection: after that has broken, its changes are refused as `Stale`.
#[derive(Debug)]
pub struct Remote {
    address: Address,
    token: Token,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    line: Option<Arc<Line>>,
    /// How often it was not reached since it was.
    failed: u32,
    /// Until then it is not tried, for this reason.
    pause: Option<(Instant, Failure)>,
}

impl Remote {
    /// Connects with the first call.
    pub fn new(address: Address, token: &Token) -> Self {
        Self { address, token: token.clone(), state: Mutex::default() }
    }

    /// The connection that there is, or a new one.
    fn line(&self) -> Result<Arc<Line>, Failure> {
        let mut state = self.state.lock();
        if let Some(line) = &state.line {
            match line.ended() {
                None => return Ok(line.clone()),
                Some(ended) => {
                    state.failed = if ended.opened { 0 } else { state.failed + 1 };
                    state.pause = pause(state.failed).map(|pause| (ended.at + pause, ended.why));
                    state.line = None;
                }
            }
        }
        if let Some((_, why)) = state.pause.as_ref().filter(|(end, _)| Instant::now() < *end) {
            return Err(why.clone());
        }
        let line = Arc::new(Line::default());
        let failed = |error: io::Error| Failure::Unreachable(format!("{}: no threads for it: {error}", self.address));
        dial::start(&self.address, &self.token, &line).map_err(failed)?;
        state.line = Some(line.clone());
        Ok(line)
    }
}

/// How long a node is not tried after so many failures.
fn pause(failed: u32) -> Option<Duration> {
    let doublings = failed.checked_sub(1)?;
    Some(PAUSE_FIRST.saturating_mul(1 << doublings.min(20)).min(PAUSE_MAX))
}

impl Connection for Remote {
    fn call(&self, request: Request) -> Reply {
        let line = match self.line() {
            Ok(line) => line,
            Err(failure) => return Reply::ready(Err(failure)),
        };
        match line.send(&request) {
            Ok(call) => Reply::later(call),
            Err(NotSent::Failed(failure)) => Reply::ready(Err(failure)),
            Err(NotSent::Full) => Reply::later(line.send_later(request)),
        }
    }

    fn borrow(&self, extent: Extent, flags: OpenFlags) -> Option<Borrowing> {
        let line = self.line().ok().filter(|line| line.is_near())?;
        let lent = line.borrow(Borrow { extent, flags }).ok()?;
        Some(Box::pin(async move { lent.await?.into_backing(extent) }))
    }

    fn is_here(&self) -> bool {
        self.state.lock().line.as_ref().is_some_and(|line| line.is_near())
    }

    /// Blocks its thread until the node has answered.
    fn watch(&self, session: Session, hear: &Hear) -> Outcome<()> {
        let line = self.line().map_err(refusal)?;
        let answered = match line.watch(session, hear) {
            Ok(call) => block_on(async {
                tokio::select! {
                    answered = call => watched(answered),
                    () = sleep_until(Instant::now() + WATCH_WAIT) => Err(Refusal::TimedOut(Object::Pool)),
                }
            }),
            Err(NotSent::Failed(failure)) => Err(refusal(failure)),
            Err(NotSent::Full) => Err(Refusal::Busy(Object::Pool)),
        };
        if answered.is_err() {
            line.unwatch(session);
        }
        answered
    }

    fn unwatch(&self, session: Session) {
        let line = self.state.lock().line.clone();
        if let Some(line) = line {
            line.unwatch(session);
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(line) = self.state.get_mut().line.take() {
            line.close();
        }
    }
}

/// Wakes a thread that waits for a future.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits in this thread, whatever runtime it belongs to: what is waited for comes from link's own.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Sleeper(thread::current()))));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}
