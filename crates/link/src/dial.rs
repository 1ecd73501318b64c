//! Makes a connection, and drives it: by a task of a runtime, or by the hand of who waits.

use crate::{
    Address, Hand,
    driver::{CONNECT_WAIT, Driver, End, failure, greet},
    line::Line,
    pipe::{Pipe, ended},
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

/// Threads that carry all connections of this process where nobody said how many: one that writes while another reads.
const THREADS: usize = 2;

/// The runtime of all connections of this process; never ended, for futures may be dropped anywhere.
static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// Makes and drives a connection, where its target says.
pub fn start(target: &Arc<Target>, line: &Arc<Line>) -> io::Result<()> {
    let driven = || drive(target.clone(), Ending { line: line.clone(), target: target.clone() });
    match &target.by {
        By::Threads => drop(runtime(THREADS)?.spawn(driven())),
        By::Runtime(runtime) => drop(runtime.spawn(driven())),
        By::Hand(hand) => hand.carry(target, line),
    }
    Ok(())
}

/// The runtime that carries all connections of this process but those that were given another; it is never ended. It may be used for what
/// waits for them, and for nothing that blocks. `threads` counts for who is first.
pub fn runtime(threads: usize) -> io::Result<Handle> {
    let mut running = RUNTIME.lock();
    if running.is_none() {
        let mut made = Builder::new_multi_thread();
        *running = Some(made.worker_threads(threads).thread_name("tidemill-remote").enable_all().build()?);
    }
    Ok(running.as_ref().expect("it was made").handle().clone())
}

/// Ends a line that nobody drives any more.
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
    // A task of the runtime that was given is not woken over other threads, and what it asks goes together.
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

/// Where to, and how.
#[derive(Debug)]
pub struct Target {
    pub address: Address,
    pub token: Token,
    /// How to speak TLS there, when the address wants it.
    pub tls: Option<Arc<ClientConfig>>,
    pub by: By,
    /// Who connects may be over soon, and is shown no memory until it asks for bytes.
    pub brief: bool,
}

/// Who drives connections.
#[derive(Debug)]
pub enum By {
    /// Threads of all connections.
    Threads,
    /// A runtime that was given.
    Runtime(Handle),
    /// Who waits.
    Hand(Hand),
}

impl Target {
    /// Does the client's part of TLS, where it is spoken.
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
