//! Opens a client connection and drives it: in a task of a runtime, or in the reactor of a waiting
//! thread.

use crate::{
    Address, Hand,
    client_connection::Line,
    driver::{CONNECT_WAIT, Driver, End, failure, greet},
    framed::{Pipe, ended},
    stream::Stream,
    tls::{self, Failed},
};
use parking_lot::Mutex;
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
pub fn start(target: &Arc<Target>, line: &Arc<Line>) -> io::Result<()> {
    let driven = || drive(target.clone(), Ending { line: line.clone(), target: target.clone() });
    match &target.by {
        By::Threads => drop(runtime(THREADS)?.spawn(driven())),
        By::Runtime(runtime) => drop(runtime.spawn(driven())),
        By::Hand(hand) => hand.carry(target, line),
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
struct Ending {
    line: Arc<Line>,
    target: Arc<Target>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.line.ended().is_none() {
            let why = format!("{}: the threads that were to carry it have ended", self.target.address);
            self.line.end(&Failure::Unreachable(why));
        }
    }
}

async fn drive(target: Arc<Target>, ending: Ending) {
    let (address, line) = (&target.address, &ending.line);
    let pipe = match open(&target).await {
        Ok(pipe) => pipe,
        Err(end) => return line.end(&failure(address, &end)),
    };
    // On a runtime that the caller gave, waking the driver crosses no thread, and requests made
    // together are written together; so only the driver writes there.
    line.opened(matches!(target.by, By::Threads).then(|| pipe.stream().beside()).flatten());
    let mut driver = Driver::new(line.clone(), pipe);
    let end = poll_fn(|context| ended(driver.try_poll(context))).await;
    let why = end.to_string();
    tracing::debug!(%address, why, "a connection has ended");
    line.end(&failure(address, &end));
    driver.into_pipe().goodbye(&why).await;
}

async fn open(target: &Target) -> Result<Pipe, End> {
    let stream = timeout(CONNECT_WAIT, Stream::connect(&target.address)).await.map_err(|_| End::Silent)??;
    let greeted = timeout(HANDSHAKE_WAIT, async {
        let mut pipe = Pipe::new(target.cover(stream).await?, Side::Client);
        greet(&mut pipe, target).await?;
        Ok(pipe)
    });
    greeted.await.map_err(|_| HandshakeFailed::TimedOut)?
}

/// Destination of a connection, and how to reach it.
#[derive(Debug)]
pub struct Target {
    pub address: Address,
    pub token: Token,
    /// TLS configuration, if the address needs it.
    pub tls: Option<Arc<ClientConfig>>,
    pub by: By,
    /// True for a process that may end soon: the node exports no memory to it until it asks for
    /// bytes.
    pub brief: bool,
}

/// Driver of connections.
#[derive(Debug)]
pub enum By {
    /// Runtime of this crate, shared by all connections.
    Threads,
    /// Runtime that the caller gave.
    Runtime(Handle),
    /// Reactor on the waiting threads.
    Hand(Hand),
}

impl Target {
    /// Does the client's part of the TLS handshake, if the address is a `tls:` one.
    pub async fn cover<T, U>(&self, stream: Stream<T, U>) -> Result<Stream<T, U>, End>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        match (&self.address, stream, &self.tls) {
            (Address::Tls { .. }, Stream::Tcp(stream), Some(tls)) => {
                tls::connect(stream, tls.clone()).await.map_err(|failed| match failed {
                    Failed::Refused(why) => End::Tls(why),
                    Failed::Broken(error) => End::Io(error),
                })
            }
            (Address::Tls { .. }, ..) => Err(End::Tls("it needs the pool's certificate: give that of its file")),
            (_, stream, _) => Ok(stream),
        }
    }
}
