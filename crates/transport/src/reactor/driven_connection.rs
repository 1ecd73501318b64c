//! Client connection that a reactor drives, from the connect to its end.

use crate::{
    reactor::{
        ReactorInner,
        raw_socket::{PollEntry, Poller, RawSocket},
    },
    remote::{
        client_connection::ClientConnection,
        dial::ConnectTarget,
        driver::{CONNECT_WAIT, ClientDisconnect, ConnectionDriver, failure, shake_hands},
    },
    socket::{
        framed::{Framed, flatten_end},
        stream::Stream,
    },
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
const IDLE_MAX: Duration = Duration::from_micros(200);

type RawFramed = Framed<Stream<RawSocket, RawSocket>>;
type Opening = Pin<Box<dyn Future<Output = Result<RawFramed, ClientDisconnect>> + Send>>;

/// Client connection of a reactor.
pub struct DrivenConnection {
    pub number: u64,
    target: Arc<ConnectTarget>,
    connection: Arc<ClientConnection>,
    stage: Mutex<ConnectionStage>,
    /// True if the connection must be driven: output was queued.
    needs_drive: AtomicBool,
    reactor: Weak<ReactorInner>,
}

enum ConnectionStage {
    Opening(Opening),
    /// Open, with the time at which it was last driven.
    Open(Box<ConnectionDriver<Stream<RawSocket, RawSocket>>>, Instant),
    Closed,
}

impl DrivenConnection {
    /// Creates a connection that is still to be opened.
    pub fn new(
        target: &Arc<ConnectTarget>,
        connection: &Arc<ClientConnection>,
        reactor: &Arc<ReactorInner>,
        poller: Arc<Poller>,
        number: u64,
    ) -> Arc<Self> {
        let opening = Box::pin(open(target.clone(), PollEntry::new(poller, number)));
        Arc::new(Self {
            number,
            target: target.clone(),
            connection: connection.clone(),
            stage: Mutex::new(ConnectionStage::Opening(opening)),
            needs_drive: AtomicBool::new(true),
            reactor: Arc::downgrade(reactor),
        })
    }

    /// Returns whether output was queued that nobody has handled.
    pub fn needs_drive(&self) -> bool {
        self.needs_drive.load(SeqCst)
    }

    /// Returns whether output or a pending reply needs the connection to be driven.
    pub fn has_work(&self) -> bool {
        self.needs_drive() || self.connection.has_pending()
    }

    /// Makes all progress that is possible now; leaves it to another thread that is driving the
    /// connection.
    pub fn drive(self: &Arc<Self>) {
        self.needs_drive.store(true, SeqCst);
        while self.needs_drive() {
            let Some(mut stage) = self.stage.try_lock() else { return };
            self.needs_drive.store(false, SeqCst);
            let end = self.drive_stage(&mut stage);
            if let Some(end) = end {
                self.end(&mut stage, &end);
            }
        }
    }

    fn drive_stage(self: &Arc<Self>, stage: &mut ConnectionStage) -> Option<ClientDisconnect> {
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        if let ConnectionStage::Opening(opening) = stage {
            match self.poll_opening(opening) {
                Poll::Pending => return None,
                Poll::Ready(Err(end)) => return Some(end),
                Poll::Ready(Ok(framed)) => {
                    self.connection.set_open(None);
                    *stage = ConnectionStage::Open(
                        Box::new(ConnectionDriver::new(self.connection.clone(), framed)),
                        Instant::now(),
                    );
                }
            }
        }
        let ConnectionStage::Open(driver, driven) = stage else { return None };
        let now = Instant::now();
        if now - std::mem::replace(driven, now) > IDLE_MAX
            && let Poll::Ready(end) = flatten_end(driver.poll_input(&mut context))
        {
            return Some(end);
        }
        match flatten_end(driver.try_poll(&mut context)) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    /// Polled when a socket is ready or a timer is due, so no waker is kept.
    fn poll_opening(&self, opening: &mut Opening) -> Poll<Result<RawFramed, ClientDisconnect>> {
        let reactor = self.reactor.upgrade();
        let _time = reactor.as_ref().map(|reactor| reactor.time.enter());
        opening.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn end(&self, stage: &mut ConnectionStage, end: &ClientDisconnect) {
        let why = end.to_string();
        tracing::debug!(address = %self.target.address, reason = why, "a connection has ended");
        self.connection.end(&failure(&self.target.address, end));
        if let ConnectionStage::Open(driver, _) = std::mem::replace(stage, ConnectionStage::Closed) {
            let mut framed = driver.into_framed();
            encode_goodbye(&why, framed.out.short());
            // Writes as much as the socket takes now; nobody waits for the rest.
            drop(framed.poll_flush(&mut Context::from_waker(Waker::noop())));
        }
        if let Some(reactor) = self.reactor.upgrade() {
            reactor.remove(self.number);
        }
    }

    /// Called in a forked child: closes the child's copies of the descriptors and sends nothing.
    pub fn abandon(self: Arc<Self>) {
        if let Some(mut stage) = self.stage.try_lock() {
            drop(std::mem::replace(&mut *stage, ConnectionStage::Closed));
        }
        self.connection.close_liveness_pipe();
        // Leaked: another thread of the parent may have been using the state.
        std::mem::forget(self);
    }
}

impl Wake for DrivenConnection {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// Drives the connection: the thread that queues output also writes it.
    fn wake_by_ref(self: &Arc<Self>) {
        self.needs_drive.store(true, SeqCst);
        if let Some(reactor) = self.reactor.upgrade() {
            reactor.drive_soon(self);
        }
    }
}

impl fmt::Debug for DrivenConnection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("DrivenConnection")
            .field("number", &self.number)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

async fn open(target: Arc<ConnectTarget>, entry: Arc<PollEntry>) -> Result<RawFramed, ClientDisconnect> {
    let stream = with_timeout(CONNECT_WAIT, RawSocket::connect(&target.address, &entry))
        .await
        .ok_or(ClientDisconnect::Silent)??;
    let opened = with_timeout(HANDSHAKE_WAIT, async {
        let mut framed = Framed::new(target.wrap_tls(stream).await?, Side::Client);
        shake_hands(&mut framed, &target).await?;
        Ok(framed)
    });
    opened.await.ok_or(HandshakeFailed::TimedOut)?
}

/// Returns the output of `done` if it is ready within `time`.
async fn with_timeout<T>(time: Duration, done: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = done => Some(done),
        () = sleep_until(Instant::now() + time) => None,
    }
}
