//! Makes a connection and drives it: the task between a line and its socket.

use crate::{
    Address,
    bay::Bay,
    line::{Brought, Line, Orders},
    pipe::{Pipe, ended, nonce},
    segment::Segment,
    stream::Stream,
    tls::{self, Failed},
};
use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::{
    collections::HashMap,
    future::poll_fn,
    io,
    os::fd::OwnedFd,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::timeout,
};
use wire::{
    Answer, Failure, Object, Refusal,
    codec::{self, Placed, ToClient},
    frame::{Garbled, Side},
    handshake::{ClientHandshake, HANDSHAKE_WAIT, HandshakeFailed, Step, Token, VERSIONS},
};

/// An address that does not answer by then is not reachable: the system has asked it three times (after 1 s and 3 s again).
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Threads that carry all connections of this process where nobody said how many: one that writes while another reads.
const THREADS: usize = 2;

/// The runtime of all connections of this process; never ended, for futures may be dropped anywhere.
static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// Why a connection ended, or was never there.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it did not answer within {} s", CONNECT_WAIT.as_secs())]
    Silent,
    #[error("{0}")]
    Tls(&'static str),
    #[error(transparent)]
    Handshake(#[from] HandshakeFailed),
    #[error(transparent)]
    Garbled(#[from] Garbled),
    #[error("the node has ended the connection: {0}")]
    Goodbye(String),
    #[error("the node has placed bytes where none are: {0:?}")]
    Misplaced(Placed),
    #[error("the node has closed the connection")]
    Left,
    #[error("this side has closed the connection")]
    Closed,
}

/// Makes and drives a connection, on the runtime that was given, or that of all.
pub fn start(target: &Arc<Target>, line: &Arc<Line>) -> io::Result<()> {
    let driven = drive(target.clone(), Ending { line: line.clone(), target: target.clone() });
    match &target.runtime {
        Some(runtime) => drop(runtime.spawn(driven)),
        None => drop(runtime(THREADS)?.spawn(driven)),
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
    line.opened(target.runtime.is_none().then(|| pipe.stream().beside()).flatten());
    let mut driver = Driver { line: line.clone(), pipe, segments: HashMap::new(), brought: Vec::new() };
    let end = poll_fn(|context| ended(driver.try_poll(context))).await;
    let why = end.to_string();
    tracing::debug!(%address, why, "a connection has ended");
    line.end(&failure(address, &end));
    driver.pipe.goodbye(&why).await;
}

/// For those who were not sent. What the node says to all who come is no better at the next try.
fn failure(address: &Address, end: &End) -> Failure {
    let why = format!("{address}: {end}");
    match end {
        End::Handshake(HandshakeFailed::Full(_) | HandshakeFailed::TimedOut) => Failure::Unreachable(why),
        End::Handshake(_) | End::Tls(_) => Failure::Refused(Refusal::Io { object: Object::Pool, why: why.into() }),
        _ => Failure::Unreachable(why),
    }
}

async fn open(target: &Target) -> Result<Pipe, End> {
    let stream = timeout(CONNECT_WAIT, Stream::connect(&target.address)).await.map_err(|_| End::Silent)??;
    let greeted = timeout(HANDSHAKE_WAIT, async {
        let mut pipe = Pipe::new(target.cover(stream).await?, Side::Client);
        greet(&mut pipe, target.token.clone()).await?;
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
    /// Where it is driven; none: on threads of all connections.
    pub runtime: Option<Handle>,
}

impl Target {
    async fn cover(&self, stream: Stream) -> Result<Stream, End> {
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

async fn greet(pipe: &mut Pipe, token: Token) -> Result<(), End> {
    let about = concat!("Tidemill ", env!("CARGO_PKG_VERSION"));
    let mut handshake = ClientHandshake::new(token, VERSIONS, nonce()?, about);
    loop {
        let step = pipe.frames.next()?.map(|frame| handshake.on(&frame));
        match step {
            Some(Step::Send(send)) => pipe.out.short().extend(send),
            Some(Step::Done { send, .. }) => {
                pipe.out.short().extend(send);
                pipe.frames.open();
                return Ok(());
            }
            Some(Step::Close { why, .. }) => return Err(why.into()),
            None => {
                pipe.flush().await?;
                if pipe.fill().await? == 0 {
                    return Err(End::Left);
                }
            }
        }
    }
}

struct Driver {
    line: Arc<Line>,
    pipe: Pipe,
    /// The node's memory, as far as it was shown and can be mapped, by numbers.
    segments: HashMap<u32, Arc<Segment>>,
    /// Answers that came together, on their way to who waits for them.
    brought: Vec<Brought>,
}

impl Driver {
    fn try_poll(&mut self, context: &mut Context<'_>) -> Poll<Result<End, End>> {
        loop {
            if self.line.take(&mut self.pipe.out, context) == Orders::Close {
                return Poll::Ready(Ok(End::Closed));
            }
            // A read goes on whether all is written or not: the node may be waiting for that.
            let writes = self.pipe.out.has_remaining();
            if self.pipe.poll_flush(context).map_err(End::Io)?.is_ready() && writes {
                self.line.flushed();
            }
            let taken = self.take_frames();
            self.line.answered(&mut self.brought);
            taken?;
            if ready!(self.pipe.poll_fill(context)).map_err(End::Io)? == 0 {
                return Poll::Ready(Ok(End::Left));
            }
        }
    }

    fn take_frames(&mut self) -> Result<(), End> {
        while let Some(frame) = self.pipe.frames.next()? {
            let message = ToClient::decode(frame)?;
            self.on(message)?;
        }
        Ok(())
    }

    fn on(&mut self, message: ToClient) -> Result<(), End> {
        match message {
            ToClient::Reply { id, reply } => self.brought.push(Brought::new(id, reply)),
            ToClient::Recall { batch, session, recalls } => {
                self.line.answered(&mut self.brought); // in the order in which they came
                self.line.recalled(batch, session, recalls);
            }
            ToClient::Ping(id) => self.line.pong(id),
            ToClient::Pong(_) => {}
            ToClient::Goodbye(why) => return Err(End::Goodbye(why)),
            ToClient::Near => {
                if let Some(hold) = self.pipe.descriptor()? {
                    self.line.near(hold);
                }
            }
            ToClient::Lent { id } => {
                let file = self.pipe.descriptor()?;
                self.line.lent(id, file);
            }
            ToClient::Given { id, mark } => {
                let file = self.pipe.descriptor()?;
                self.line.given(id, mark, file);
            }
            ToClient::Segment { number, segment } => {
                let file = self.pipe.descriptor()?;
                self.shown(number, segment, file);
            }
            ToClient::Hidden { number } => {
                u32::try_from(number).ok().and_then(|number| self.segments.remove(&number));
            }
            ToClient::Bay(shape) => {
                let bay = self.pipe.descriptor()?.map(|file| Bay::new(file, shape));
                match bay {
                    Some(Ok(bay)) => self.line.bay(bay),
                    other => tracing::debug!(?other, "nothing can be put into a node's memory"),
                }
            }
            ToClient::Placed { id, placed } => {
                let view = self.view(id, placed).ok_or(End::Misplaced(placed))?;
                self.brought.push(Brought::new(id, Ok(Answer::Bytes(view))));
            }
        }
        Ok(())
    }

    /// Maps a part of the node's memory. Of one that cannot be, nothing is looked at: answers are sent.
    fn shown(&mut self, number: u64, segment: codec::Segment, file: Option<OwnedFd>) {
        let mapped =
            u32::try_from(number).ok().zip(file).map(|(number, file)| (number, Segment::map(file, segment.length)));
        match mapped {
            Some((number, Ok(mapped))) => {
                self.segments.insert(number, mapped);
                self.line.mapped(number);
            }
            Some((_, Err(error))) => tracing::debug!(%error, "a node's memory cannot be mapped"),
            None => tracing::debug!(number, "a part of a node's memory did not come"),
        }
    }

    fn view(&self, id: u64, Placed { segment, offset, length }: Placed) -> Option<Bytes> {
        let loan = self.line.loan(id)?;
        self.segments.get(&segment)?.view(offset, length, loan)
    }
}
