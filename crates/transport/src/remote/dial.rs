//! Opens a client connection and drives it: in a task of a runtime, or in the reactor of a waiting
//! thread.

use crate::{
    Address, Reactor,
    remote::{
        client_connection::ClientConnection,
        driver::{CONNECT_WAIT, ClientDisconnect, ConnectionDriver, failure, shake_hands},
        reactor_connection::ReactorConnection,
    },
    socket::{
        framed::{Framed, flatten_end},
        stream::Stream,
        tls::{self, TlsError},
    },
};
use parking_lot::Mutex;
use reactor::Input;
use rustls::ClientConfig;
use std::{future::poll_fn, io, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::{Builder, Handle, Runtime},
    time::timeout,
};
use wire::{
    Failure,
    frame::Side,
    handshake::{HANDSHAKE_WAIT, HandshakeFailed, Token},
};

/// Default number of threads that drive all connections of this process: one writes while another
/// reads.
const THREADS: usize = 2;

/// Runtime of all connections of this process; never shut down, because futures may be dropped
/// anywhere.
static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// Opens and drives a connection with the driver of its target.
pub fn start(target: &Arc<ConnectTarget>, connection: &Arc<ClientConnection>) -> io::Result<()> {
    let driven = || drive(target.clone(), EndGuard { connection: connection.clone(), target: target.clone() });
    match &target.driver {
        DriverKind::Threads => drop(runtime(THREADS)?.spawn(driven())),
        DriverKind::Runtime(runtime) => drop(runtime.spawn(driven())),
        DriverKind::Reactor(reactor) => reactor.drive(|entry| ReactorConnection::new(target, connection, entry)),
    }
    Ok(())
}

/// Returns the runtime that drives all connections of this process except those that were given
/// another. It is never shut down. It may also run tasks that wait for such connections, but
/// nothing that blocks. `threads` has an effect only on the first call.
pub fn runtime(threads: usize) -> io::Result<Handle> {
    let mut running = RUNTIME.lock();
    if running.is_none() {
        let mut made = Builder::new_multi_thread();
        *running = Some(made.worker_threads(threads).thread_name("tidemill-remote").enable_all().build()?);
    }
    Ok(running.as_ref().expect("it was made").handle().clone())
}

/// Ends a connection that nobody drives any more.
struct EndGuard {
    connection: Arc<ClientConnection>,
    target: Arc<ConnectTarget>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        if self.connection.ended().is_none() {
            let why = format!("{}: the threads that were to carry it have ended", self.target.address);
            self.connection.end(&Failure::Unreachable(why));
        }
    }
}

async fn drive(target: Arc<ConnectTarget>, guard: EndGuard) {
    let (address, connection) = (&target.address, &guard.connection);
    let framed = match open(&target).await {
        Ok(framed) => framed,
        Err(end) => return connection.end(&failure(address, &end)),
    };
    // On a runtime that the caller gave, waking the driver crosses no thread, and requests made
    // together are written together; so only the driver writes there.
    connection.set_open(matches!(target.driver, DriverKind::Threads).then(|| framed.stream().duplicate()).flatten());
    let mut driver = ConnectionDriver::new(connection.clone(), framed);
    let end = poll_fn(|context| flatten_end(driver.try_poll(Input::Possible, context))).await;
    let why = end.to_string();
    tracing::debug!(%address, reason = why, "a connection has ended");
    connection.end(&failure(address, &end));
    driver.into_framed().goodbye(&why).await;
}

async fn open(target: &ConnectTarget) -> Result<Framed, ClientDisconnect> {
    let stream =
        timeout(CONNECT_WAIT, Stream::connect(&target.address)).await.map_err(|_| ClientDisconnect::Silent)??;
    let opened = timeout(HANDSHAKE_WAIT, async {
        let mut framed = Framed::new(target.wrap_tls(stream).await?, Side::Client);
        shake_hands(&mut framed, target).await?;
        Ok(framed)
    });
    opened.await.map_err(|_| HandshakeFailed::TimedOut)?
}

/// Destination of a connection, and how to reach it.
#[derive(Debug)]
pub struct ConnectTarget {
    pub address: Address,
    pub token: Token,
    /// TLS configuration, if the address needs it.
    pub tls: Option<Arc<ClientConfig>>,
    pub driver: DriverKind,
    /// True for a process that may end soon: the node exports no memory to it until it asks for
    /// bytes.
    pub short_lived: bool,
}

/// Driver of connections.
#[derive(Debug)]
pub enum DriverKind {
    /// Runtime of this crate, shared by all connections.
    Threads,
    /// Runtime that the caller gave.
    Runtime(Handle),
    /// Reactor on the waiting threads.
    Reactor(Reactor),
}

impl ConnectTarget {
    /// Does the client's part of the TLS handshake, if the address is a `tls:` one.
    pub async fn wrap_tls<T, U>(&self, stream: Stream<T, U>) -> Result<Stream<T, U>, ClientDisconnect>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        match (&self.address, stream, &self.tls) {
            (Address::Tls { .. }, Stream::Tcp(stream), Some(tls)) => {
                tls::connect(stream, tls.clone()).await.map_err(|failed| match failed {
                    TlsError::Refused(why) => ClientDisconnect::Tls(why),
                    TlsError::Broken(error) => ClientDisconnect::Io(error),
                })
            }
            (Address::Tls { .. }, ..) => {
                Err(ClientDisconnect::Tls("it needs the pool's certificate: give that of its file"))
            }
            (_, stream, _) => Ok(stream),
        }
    }
}
