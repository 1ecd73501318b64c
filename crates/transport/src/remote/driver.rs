//! Driver of a client connection, between its [`ClientConnection`] and its socket; runtimes and
//! reactors both use it.

use crate::{
    Address,
    remote::{
        client_connection::{ClientConnection, Completion, DriverAction},
        dial::ConnectTarget,
    },
    shm::{map::MappedSegment, writer::ShmWriter},
    socket::{
        framed::{Framed, nonce},
        stream::Socket,
    },
};
use bytes::{Buf, Bytes};
use reactor::Input;
use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use wire::{
    Answer, Content, Failure, FoundObject, Object, Refusal,
    codec::{self, ShmRange, ToClient},
    frame::DecodeError,
    handshake::{ClientHandshake, HandshakeFailed, Reason, Step, VERSIONS},
};

/// Time limit of a connect. By then the system has tried three times (again after 1 s and 3 s).
pub const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Reason why a connection ended or could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientDisconnect {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it did not answer within {} s", CONNECT_WAIT.as_secs())]
    Silent,
    #[error("{0}")]
    Tls(&'static str),
    #[error(transparent)]
    Handshake(#[from] HandshakeFailed),
    #[error(transparent)]
    DecodeError(#[from] DecodeError),
    #[error("the node has ended the connection: {0}")]
    Goodbye(String),
    #[error("the node refers to bytes outside of its memory: {0:?}")]
    Misplaced(ShmRange),
    #[error("the node has closed the connection")]
    Left,
    #[error("this side has closed the connection")]
    Closed,
}

/// Failure of requests that were not sent. A rejection that the next try would meet again becomes a
/// refusal, anything else `Unreachable`.
pub fn failure(address: &Address, end: &ClientDisconnect) -> Failure {
    let why = format!("{address}: {end}");
    let reason = match end {
        ClientDisconnect::Handshake(failed) => failed.reason(),
        ClientDisconnect::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => Reason::Token,
        ClientDisconnect::Tls(_) => Reason::Other,
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
pub async fn shake_hands<S: Socket>(framed: &mut Framed<S>, target: &ConnectTarget) -> Result<(), ClientDisconnect> {
    let about = concat!("Tidemill ", env!("CARGO_PKG_VERSION"));
    let handshake =
        ClientHandshake::new(target.token.clone(), VERSIONS, nonce()?, about).with_address(&target.address.to_string());
    let mut handshake = if target.short_lived { handshake.short_lived() } else { handshake };
    loop {
        let step = framed.frames.next()?.map(|frame| handshake.on_frame(&frame));
        match step {
            Some(Step::Send(send)) => framed.out.short().extend(send),
            Some(Step::Done { send, .. }) => {
                framed.out.short().extend(send);
                framed.frames.open();
                return Ok(());
            }
            Some(Step::Close { why, .. }) => return Err(why.into()),
            None => {
                framed.flush().await?;
                if framed.fill().await? == 0 {
                    return Err(ClientDisconnect::Left);
                }
            }
        }
    }
}

/// Open connection, at its client.
pub struct ConnectionDriver<S> {
    connection: Arc<ClientConnection>,
    framed: Framed<S>,
    /// Mapped segments of the node's memory by number.
    segments: HashMap<u32, Arc<MappedSegment>>,
    /// Replies that arrived together, on their way to their callers.
    completions: Vec<Completion>,
}

impl<S: Socket> ConnectionDriver<S> {
    /// Creates the driver of a connection after its handshake.
    pub fn new(connection: Arc<ClientConnection>, framed: Framed<S>) -> Self {
        Self { connection, framed, segments: HashMap::new(), completions: Vec::new() }
    }

    /// Makes all progress that is possible now; ready when the connection ends. It reads only if
    /// there may be `input`.
    pub fn try_poll(
        &mut self,
        mut input: Input,
        context: &mut Context<'_>,
    ) -> Poll<Result<ClientDisconnect, ClientDisconnect>> {
        loop {
            if self.connection.take_output(&mut self.framed.out, context) == DriverAction::Close {
                return Poll::Ready(Ok(ClientDisconnect::Closed));
            }
            // Reads go on while output is pending: the node may be waiting for that.
            let writes = self.framed.out.has_remaining();
            if self.framed.poll_flush(context).map_err(ClientDisconnect::Io)?.is_ready() && writes {
                self.connection.set_flushed();
            }
            input = ready!(self.poll_frames(input, context))?;
        }
    }

    /// Handles input alone, without writing.
    pub fn poll_input(&mut self, context: &mut Context<'_>) -> Poll<Result<ClientDisconnect, ClientDisconnect>> {
        let mut input = Input::Possible;
        loop {
            input = ready!(self.poll_frames(input, context))?;
        }
    }

    /// Takes the framed socket, for the goodbye.
    pub fn into_framed(self) -> Framed<S> {
        self.framed
    }

    /// Handles the complete frames, then reads more if there may be input. Returns whether there
    /// may be more after that.
    fn poll_frames(&mut self, input: Input, context: &mut Context<'_>) -> Poll<Result<Input, ClientDisconnect>> {
        let taken = self.handle_frames();
        self.connection.deliver(&mut self.completions);
        taken?;
        if input == Input::Unknown {
            return Poll::Pending;
        }
        match ready!(self.framed.poll_fill(context)).map_err(ClientDisconnect::Io)? {
            0 => Poll::Ready(Err(ClientDisconnect::Left)),
            _ if self.framed.is_drained() => Poll::Ready(Ok(Input::Unknown)),
            _ => Poll::Ready(Ok(Input::Possible)),
        }
    }

    fn handle_frames(&mut self) -> Result<(), ClientDisconnect> {
        while let Some(frame) = self.framed.frames.next()? {
            let message = ToClient::decode(frame)?;
            self.on(message)?;
        }
        Ok(())
    }

    fn on(&mut self, message: ToClient) -> Result<(), ClientDisconnect> {
        match message {
            ToClient::Reply { id, mut reply } => {
                if let Ok(Answer::Object(FoundObject { content, .. })) = &mut reply
                    && let Content::Shm(runs) = content
                {
                    *content = Content::Pieces(self.views(id, runs)?);
                }
                self.completions.push(Completion::new(id, reply));
            }
            ToClient::Recall { batch, session, recalls } => {
                self.connection.deliver(&mut self.completions); // keeps the order of arrival
                self.connection.deliver_invalidations(batch, session, recalls);
            }
            ToClient::Ping(id) => self.connection.push_pong(id),
            ToClient::Pong(_) => {}
            ToClient::Goodbye(why) => return Err(ClientDisconnect::Goodbye(why)),
            ToClient::FdPassing => {
                if let Some(liveness_pipe) = self.framed.take_descriptor()? {
                    self.connection.set_liveness_pipe(liveness_pipe);
                }
            }
            ToClient::LeasedFd { id } => {
                let file = self.framed.take_descriptor()?;
                self.connection.deliver_lease(id, file);
            }
            ToClient::GrantedFd { id, lease } => {
                let file = self.framed.take_descriptor()?;
                self.connection.deliver_program_fd(id, lease, file);
            }
            ToClient::Segment { number, segment } => {
                let file = self.framed.take_descriptor()?;
                self.map_segment(number, segment, file);
            }
            ToClient::SegmentRemoved { number } => {
                u32::try_from(number).ok().and_then(|number| self.segments.remove(&number));
            }
            ToClient::WriteSegment(shape) => {
                let writer = self.framed.take_descriptor()?.map(|file| ShmWriter::new(file, shape));
                match writer {
                    Some(Ok(writer)) => self.connection.set_shm_writer(writer),
                    other => tracing::debug!(writer = ?other, "no write segment of a node can be mapped"),
                }
            }
            ToClient::ReplyInShm { id, range: placed } => {
                let view = self.views(id, &[placed])?.pop();
                self.completions.push(Completion::new(
                    id,
                    view.map(Answer::Bytes).ok_or(ClientDisconnect::Misplaced(placed)).map(Ok)?,
                ));
            }
        }
        Ok(())
    }

    /// Maps a segment of the node's memory. If that fails, the node keeps sending the bytes of
    /// replies.
    fn map_segment(&mut self, number: u64, segment: codec::Segment, file: Option<OwnedFd>) {
        let mapped = u32::try_from(number)
            .ok()
            .zip(file)
            .map(|(number, file)| (number, MappedSegment::map(file, segment.length)));
        match mapped {
            Some((number, Ok(mapped))) => {
                self.segments.insert(number, mapped);
                self.connection.notify_mapped(number);
            }
            Some((_, Err(error))) => tracing::debug!(%error, "a node's memory cannot be mapped"),
            None => tracing::debug!(segment = number, "a segment of a node's memory was not received"),
        }
    }

    /// Views of bytes that one lease covers, under the id of the request that asked for them.
    fn views(&self, id: u64, runs: &[ShmRange]) -> Result<Vec<Bytes>, ClientDisconnect> {
        let lease = self.connection.lease_guard(id).map(Arc::new);
        let view = |placed: &ShmRange| {
            let (segment, lease) = (self.segments.get(&placed.segment)?, lease.clone()?);
            segment.view(placed.offset, placed.length, lease)
        };
        runs.iter().map(|placed| view(placed).ok_or(ClientDisconnect::Misplaced(*placed))).collect()
    }
}
