//! Driver of a client connection, between its [`Line`] and its socket; runtimes and reactors both
//! use it.

use crate::{
    Address,
    client_connection::{Brought, Line, Orders},
    dial::Target,
    framed::{Pipe, nonce},
    shm_map::Segment,
    shm_writer::Bay,
    stream::Socket,
};
use bytes::{Buf, Bytes};
use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use wire::{
    Answer, Content, Failure, Object, Refusal,
    codec::{self, Placed, ToClient},
    frame::Garbled,
    handshake::{ClientHandshake, HandshakeFailed, Reason, Step, VERSIONS},
};

/// Time limit of a connect. By then the system has tried three times (again after 1 s and 3 s).
pub const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Reason why a connection ended or could not be made.
#[derive(Debug, thiserror::Error)]
pub enum End {
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

/// Failure of requests that were not sent. A rejection that the next try would meet again becomes a
/// refusal, anything else `Unreachable`.
pub fn failure(address: &Address, end: &End) -> Failure {
    let why = format!("{address}: {end}");
    let reason = match end {
        End::Handshake(failed) => failed.reason(),
        End::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => Reason::Token,
        End::Tls(_) => Reason::Other,
        _ => Reason::Busy,
    };
    match reason {
        Reason::Busy => Failure::Unreachable(why),
        Reason::Token => Failure::Refused(Refusal::NotAdmitted { why: why.into() }),
        Reason::Version => Failure::Refused(Refusal::Incompatible { why: why.into() }),
        Reason::Other => Failure::Refused(Refusal::Io { object: Object::Pool, why: why.into() }),
    }
}

/// Does the client's part of the handshake.
pub async fn greet<S: Socket>(pipe: &mut Pipe<S>, target: &Target) -> Result<(), End> {
    let about = concat!("Tidemill ", env!("CARGO_PKG_VERSION"));
    let handshake =
        ClientHandshake::new(target.token.clone(), VERSIONS, nonce()?, about).at(&target.address.to_string());
    let mut handshake = if target.brief { handshake.brief() } else { handshake };
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

/// Open connection, at its client.
pub struct Driver<S> {
    line: Arc<Line>,
    pipe: Pipe<S>,
    /// Mapped segments of the node's memory by number.
    segments: HashMap<u32, Arc<Segment>>,
    /// Replies that arrived together, on their way to their callers.
    brought: Vec<Brought>,
}

impl<S: Socket> Driver<S> {
    /// Creates the driver of a connection after its handshake.
    pub fn new(line: Arc<Line>, pipe: Pipe<S>) -> Self {
        Self { line, pipe, segments: HashMap::new(), brought: Vec::new() }
    }

    /// Makes all progress that is possible now; ready when the connection ends.
    pub fn try_poll(&mut self, context: &mut Context<'_>) -> Poll<Result<End, End>> {
        loop {
            if self.line.take(&mut self.pipe.out, context) == Orders::Close {
                return Poll::Ready(Ok(End::Closed));
            }
            // Reads go on while output is pending: the node may be waiting for that.
            let writes = self.pipe.out.has_remaining();
            if self.pipe.poll_flush(context).map_err(End::Io)?.is_ready() && writes {
                self.line.flushed();
            }
            if let Some(end) = ready!(self.poll_some(context))? {
                return Poll::Ready(Ok(end));
            }
        }
    }

    /// Handles input alone, without writing.
    pub fn poll_come(&mut self, context: &mut Context<'_>) -> Poll<Result<End, End>> {
        loop {
            if let Some(end) = ready!(self.poll_some(context))? {
                return Poll::Ready(Ok(end));
            }
        }
    }

    /// Takes the framed socket, for the goodbye.
    pub fn into_pipe(self) -> Pipe<S> {
        self.pipe
    }

    /// Handles the complete frames, then reads more.
    fn poll_some(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<End>, End>> {
        let taken = self.take_frames();
        self.line.answered(&mut self.brought);
        taken?;
        let count = ready!(self.pipe.poll_fill(context)).map_err(End::Io)?;
        Poll::Ready(Ok((count == 0).then_some(End::Left)))
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
            ToClient::Reply { id, mut reply } => {
                if let Ok(Answer::Object { content, .. }) = &mut reply
                    && let Content::Placed(runs) = content
                {
                    *content = Content::Pieces(self.views(id, runs)?);
                }
                self.brought.push(Brought::new(id, reply));
            }
            ToClient::Recall { batch, session, recalls } => {
                self.line.answered(&mut self.brought); // keeps the order of arrival
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
                let view = self.views(id, &[placed])?.pop();
                self.brought.push(Brought::new(id, view.map(Answer::Bytes).ok_or(End::Misplaced(placed)).map(Ok)?));
            }
        }
        Ok(())
    }

    /// Maps a segment of the node's memory. If that fails, the node keeps sending the bytes of
    /// replies.
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

    /// Views of bytes that one lease covers, under the id of the request that asked for them.
    fn views(&self, id: u64, runs: &[Placed]) -> Result<Vec<Bytes>, End> {
        let loan = self.line.loan(id).map(Arc::new);
        let view = |placed: &Placed| {
            let (segment, loan) = (self.segments.get(&placed.segment)?, loan.clone()?);
            segment.view(placed.offset, placed.length, loan)
        };
        runs.iter().map(|placed| view(placed).ok_or(End::Misplaced(*placed))).collect()
    }
}
