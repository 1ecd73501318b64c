//! Client connection that a reactor drives, from the connect to its end.

use crate::{
    Address,
    remote::{
        client_connection::ClientConnection,
        dial::ConnectTarget,
        driver::{CONNECT_WAIT, ClientDisconnect, ConnectionDriver, failure, shake_hands},
    },
    socket::{
        framed::{Framed, flatten_end},
        scm_rights::{self, ReceivedData},
        stream::{Socket, Stream, with_keepalive},
        unix_socket::check_peer,
    },
};
use node::{LocalTime, sleep_until};
use parking_lot::Mutex;
use reactor::{Driven, Input, PollEntry, RawSocket, nonblocking::poll_now};
use rustix::net::sockopt;
use std::{
    fmt,
    future::Future,
    io::{self, IoSlice},
    net::ToSocketAddrs,
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
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

type RawStream = Stream<RawSocket, RawSocket>;
type Opening = Pin<Box<dyn Future<Output = Result<Framed<RawStream>, ClientDisconnect>> + Send>>;

/// Client connection of a reactor.
pub struct ReactorConnection {
    target: Arc<ConnectTarget>,
    connection: Arc<ClientConnection>,
    stage: Mutex<ConnectionStage>,
}

enum ConnectionStage {
    Opening(Opening),
    /// Open, with the time at which it was last driven.
    Open(Box<ConnectionDriver<RawStream>>, Instant),
    Closed,
}

impl ReactorConnection {
    /// Creates a connection that is still to be opened.
    pub fn new(target: &Arc<ConnectTarget>, connection: &Arc<ClientConnection>, entry: Arc<PollEntry>) -> Self {
        let stage = Mutex::new(ConnectionStage::Opening(Box::pin(open(target.clone(), entry))));
        Self { target: target.clone(), connection: connection.clone(), stage }
    }

    fn drive_stage(
        &self,
        stage: &mut ConnectionStage,
        mut input: Input,
        time: &LocalTime,
        context: &mut Context<'_>,
    ) -> Poll<ClientDisconnect> {
        if let ConnectionStage::Opening(opening) = stage {
            let _time = time.enter();
            // Polled when a socket is ready or a timer is due, so no waker is kept.
            match opening.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(end)) => return Poll::Ready(end),
                Poll::Ready(Ok(framed)) => {
                    self.connection.set_open(None);
                    input = Input::Possible; // the handshake's last read may have left something
                    *stage = ConnectionStage::Open(
                        Box::new(ConnectionDriver::new(self.connection.clone(), framed)),
                        Instant::now(),
                    );
                }
            }
        }
        let ConnectionStage::Open(driver, driven) = stage else { return Poll::Pending };
        let now = Instant::now();
        if now - std::mem::replace(driven, now) > IDLE_MAX {
            if let Poll::Ready(end) = flatten_end(driver.poll_input(context)) {
                return Poll::Ready(end);
            }
            input = Input::Unknown;
        }
        flatten_end(driver.try_poll(input, context))
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
    }
}

impl Driven for ReactorConnection {
    fn poll(&self, input: Input, time: &LocalTime, context: &mut Context<'_>) -> Poll<()> {
        let mut stage = self.stage.lock();
        self.drive_stage(&mut stage, input, time, context).map(|end| self.end(&mut stage, &end))
    }

    fn has_pending(&self) -> bool {
        self.connection.has_pending()
    }

    fn abandon(&self) {
        if let Some(mut stage) = self.stage.try_lock() {
            drop(std::mem::replace(&mut *stage, ConnectionStage::Closed));
        }
        self.connection.close_liveness_pipe();
    }
}

impl fmt::Debug for ReactorConnection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ReactorConnection").field("target", &self.target).finish_non_exhaustive()
    }
}

async fn open(target: Arc<ConnectTarget>, entry: Arc<PollEntry>) -> Result<Framed<RawStream>, ClientDisconnect> {
    let stream =
        with_timeout(CONNECT_WAIT, connect(&target.address, &entry)).await.ok_or(ClientDisconnect::Silent)??;
    let opened = with_timeout(HANDSHAKE_WAIT, async {
        let mut framed = Framed::new(target.wrap_tls(stream).await?, Side::Client);
        shake_hands(&mut framed, &target).await?;
        Ok(framed)
    });
    opened.await.ok_or(HandshakeFailed::TimedOut)?
}

/// Connects to an address, without its TLS handshake. Resolving a host name blocks the thread that
/// drives this.
async fn connect(address: &Address, entry: &Arc<PollEntry>) -> io::Result<RawStream> {
    let (host, port) = match address {
        Address::Unix(path) => {
            let socket = RawSocket::connect_unix(path, entry).await?;
            check_peer(sockopt::socket_peercred(&socket)?.uid.as_raw())?;
            return Ok(Stream::Unix(socket));
        }
        Address::Tcp { host, port } | Address::Tls { host, port } => (host, port),
    };
    let mut failed = io::Error::other("the host has no address");
    for address in (host.as_str(), *port).to_socket_addrs()? {
        match RawSocket::connect_tcp(address, entry).await {
            Ok(socket) => return Ok(Stream::Tcp(with_keepalive(socket)?)),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Returns the output of `done` if it is ready within `time`.
async fn with_timeout<T>(time: Duration, done: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = done => Some(done),
        () = sleep_until(Instant::now() + time) => None,
    }
}

impl Socket for RawStream {
    fn takes_descriptors(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    fn reports_unread(&self) -> bool {
        match self {
            Self::Unix(_) | Self::Tcp(_) => true,
            Self::Tls(_) => false, // it keeps bytes that it has read from the socket
        }
    }

    fn poll_send_with(
        &mut self,
        _: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        descriptor: BorrowedFd<'_>,
    ) -> Poll<io::Result<usize>> {
        let Self::Unix(socket) = self else { return Poll::Ready(Err(io::ErrorKind::Unsupported.into())) };
        socket.poll_write_with(|| scm_rights::send(socket.as_fd(), pieces, descriptor))
    }

    fn poll_receive(&self, _: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<ReceivedData>> {
        let Self::Unix(socket) = self else { return Poll::Ready(Err(io::ErrorKind::Unsupported.into())) };
        poll_now(|| scm_rights::receive(socket, into))
    }
}
