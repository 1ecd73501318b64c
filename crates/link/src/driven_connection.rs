//! Client connection that a reactor drives, from the connect to its end.

use crate::{
    client_connection::Line,
    dial::Target,
    driver::{CONNECT_WAIT, Driver, End, failure, greet},
    framed::{Pipe, ended},
    raw_socket::{Bare, Gear, Watched},
    reactor::Inner,
    stream::Stream,
};
use node::sleep_until;
use parking_lot::Mutex;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};
use wire::{
    codec::encode_goodbye,
    frame::Side,
    handshake::{HANDSHAKE_WAIT, HandshakeFailed},
};

/// A connection that nobody has driven for this long is read before anything is written. So no
/// request is sent to, and lost at, a node that has ended meanwhile.
const QUIET: Duration = Duration::from_micros(200);

type Way = Pipe<Stream<Bare, Bare>>;
type Opening = Pin<Box<dyn Future<Output = Result<Way, End>> + Send>>;

/// Client connection of a reactor.
pub struct Carried {
    pub number: u64,
    target: Arc<Target>,
    line: Arc<Line>,
    stage: Mutex<Stage>,
    /// True if the connection must be driven: output was queued.
    wanted: AtomicBool,
    hand: Weak<Inner>,
}

enum Stage {
    Opening(Opening),
    /// Open, with the time at which it was last driven.
    Open(Box<Driver<Stream<Bare, Bare>>>, Instant),
    Over,
}

impl Carried {
    /// Creates a connection that is still to be opened.
    pub fn new(target: &Arc<Target>, line: &Arc<Line>, hand: &Arc<Inner>, gear: Arc<Gear>, number: u64) -> Arc<Self> {
        let opening = Box::pin(open(target.clone(), Watched::new(gear, number)));
        Arc::new(Self {
            number,
            target: target.clone(),
            line: line.clone(),
            stage: Mutex::new(Stage::Opening(opening)),
            wanted: AtomicBool::new(true),
            hand: Arc::downgrade(hand),
        })
    }

    /// Returns whether output was queued that nobody has handled.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(SeqCst)
    }

    /// Returns whether output or a pending reply needs the connection to be driven.
    pub fn is_waited_for(&self) -> bool {
        self.is_wanted() || self.line.is_asked()
    }

    /// Makes all progress that is possible now; leaves it to another thread that is driving the
    /// connection.
    pub fn turn(self: &Arc<Self>) {
        self.wanted.store(true, SeqCst);
        while self.is_wanted() {
            let Some(mut stage) = self.stage.try_lock() else { return };
            self.wanted.store(false, SeqCst);
            let end = self.turn_stage(&mut stage);
            if let Some(end) = end {
                self.end(&mut stage, &end);
            }
        }
    }

    fn turn_stage(self: &Arc<Self>, stage: &mut Stage) -> Option<End> {
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        if let Stage::Opening(opening) = stage {
            match self.poll_opening(opening) {
                Poll::Pending => return None,
                Poll::Ready(Err(end)) => return Some(end),
                Poll::Ready(Ok(pipe)) => {
                    self.line.opened(None);
                    *stage = Stage::Open(Box::new(Driver::new(self.line.clone(), pipe)), Instant::now());
                }
            }
        }
        let Stage::Open(driver, turned) = stage else { return None };
        let now = Instant::now();
        if now - std::mem::replace(turned, now) > QUIET
            && let Poll::Ready(end) = ended(driver.poll_come(&mut context))
        {
            return Some(end);
        }
        match ended(driver.try_poll(&mut context)) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    /// Polled when a socket is ready or a timer is due, so no waker is kept.
    fn poll_opening(&self, opening: &mut Opening) -> Poll<Result<Way, End>> {
        let hand = self.hand.upgrade();
        let _time = hand.as_ref().map(|hand| hand.time.enter());
        opening.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn end(&self, stage: &mut Stage, end: &End) {
        let why = end.to_string();
        tracing::debug!(address = %self.target.address, why, "a connection has ended");
        self.line.end(&failure(&self.target.address, end));
        if let Stage::Open(driver, _) = std::mem::replace(stage, Stage::Over) {
            let mut pipe = driver.into_pipe();
            encode_goodbye(&why, pipe.out.short());
            // Writes as much as the socket takes now; nobody waits for the rest.
            drop(pipe.poll_flush(&mut Context::from_waker(Waker::noop())));
        }
        if let Some(hand) = self.hand.upgrade() {
            hand.let_go(self.number);
        }
    }

    /// Called in a forked child: closes the child's copies of the descriptors and sends nothing.
    pub fn abandon(self: Arc<Self>) {
        if let Some(mut stage) = self.stage.try_lock() {
            drop(std::mem::replace(&mut *stage, Stage::Over));
        }
        self.line.let_go_of_hold();
        // Leaked: another thread of the parent may have been using the state.
        std::mem::forget(self);
    }
}

impl Wake for Carried {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// Drives the connection: the thread that queues output also writes it.
    fn wake_by_ref(self: &Arc<Self>) {
        self.wanted.store(true, SeqCst);
        if let Some(hand) = self.hand.upgrade() {
            hand.turn_soon(self);
        }
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Carried").field("number", &self.number).field("target", &self.target).finish_non_exhaustive()
    }
}

async fn open(target: Arc<Target>, watched: Arc<Watched>) -> Result<Way, End> {
    let stream = within(CONNECT_WAIT, Bare::connect(&target.address, &watched)).await.ok_or(End::Silent)??;
    let greeted = within(HANDSHAKE_WAIT, async {
        let mut pipe = Pipe::new(target.cover(stream).await?, Side::Client);
        greet(&mut pipe, &target).await?;
        Ok(pipe)
    });
    greeted.await.ok_or(HandshakeFailed::TimedOut)?
}

/// Returns the output of `done` if it is ready within `time`.
async fn within<T>(time: Duration, done: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = done => Some(done),
        () = sleep_until(Instant::now() + time) => None,
    }
}
