//! Framed socket: a socket with its incoming and outgoing frames. Both sides use it.

use crate::socket::stream::{Socket, Stream};
use bytes::{Buf, BufMut};
use std::{
    collections::VecDeque,
    future::poll_fn,
    io::{self, IoSlice},
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncWriteExt, ReadBuf},
    time::timeout,
};
use tokio_util::io::{poll_read_buf, poll_write_buf};
use wire::{
    codec::encode_goodbye,
    frame::{Frames, Side, WriteQueue},
    handshake::Nonce,
};

/// Time limit for the peer to take the goodbye. Meanwhile the peer's unread bytes are read: closing
/// a socket with unread input would make the system drop the goodbye.
const GOODBYE_WAIT: Duration = Duration::from_secs(1);
/// Most unread bytes that are read at the end: more than the buffers of two sockets hold.
const DRAIN_BYTES_MAX: usize = 32 << 20;

/// Most descriptors that wait to be sent; further ones are not leased.
const OUTGOING_FDS_MAX: usize = 64;

/// Bytes of one read where a descriptor may come; no other reads fewer into as much space.
const READ_BYTES: usize = 64 << 10;
/// Most buffers of one write that carries a descriptor.
const PIECES_MAX: usize = 16;

/// Framed socket.
#[derive(Debug)]
pub struct Framed<S = Stream> {
    stream: S,
    /// Incoming frames.
    pub frames: Frames,
    /// Outgoing frames.
    pub out: WriteQueue,
    /// Descriptors that go with frames, in order: one for each mark of `out`.
    outgoing_fds: VecDeque<OwnedFd>,
    /// Descriptors that came, in order; `None` for one that could not be taken.
    incoming_fds: VecDeque<Option<OwnedFd>>,
    /// Read buffer where descriptors may come: at a client, over a Unix socket; else empty.
    scratch: Box<[u8]>,
    /// True if the last read has left nothing in a socket that reports what is left.
    drained: bool,
}

impl<S: Socket> Framed<S> {
    /// Creates it before the handshake.
    pub fn new(stream: S, side: Side) -> Self {
        let takes = side == Side::Client && stream.takes_descriptors();
        let scratch = vec![0; if takes { READ_BYTES } else { 0 }].into();
        let (frames, out) = (Frames::new(side), WriteQueue::new());
        let (outgoing_fds, incoming_fds) = (VecDeque::new(), VecDeque::new());
        Self { stream, frames, out, outgoing_fds, incoming_fds, scratch, drained: false }
    }

    /// Reads some bytes; 0 at the end.
    pub fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.drained = false;
        if let Some(landing) = self.frames.recv_space() {
            let mut into = ReadBuf::new(landing);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut into))?;
            let count = into.filled().len();
            self.frames.advance_recv(count);
            return Poll::Ready(Ok(count));
        }
        if self.scratch.is_empty() || self.frames.is_in_payload() {
            let mut space = self.frames.space();
            let room = space.remaining_mut().min(READ_BYTES);
            let count = ready!(poll_read_buf(Pin::new(&mut self.stream), context, &mut space))?;
            self.drained = count < room && self.scratch.is_empty() && self.stream.reports_unread();
            return Poll::Ready(Ok(count));
        }
        let mut space = self.frames.space();
        let room = space.remaining_mut().min(self.scratch.len());
        let received = ready!(self.stream.poll_receive(context, &mut self.scratch[..room]))?;
        // A read ends behind a descriptor, so more may follow it.
        self.drained = received.count < room && received.descriptor.is_none() && self.stream.reports_unread();
        space.put_slice(&self.scratch[..received.count]);
        self.incoming_fds.extend(received.descriptor.map(Result::ok));
        Poll::Ready(Ok(received.count))
    }

    /// Returns whether the last read has left nothing in the socket; false if that is not known.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// Underlying socket.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Underlying socket, to switch between waiting and busy polling.
    pub fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Queues a frame with a descriptor; only over a Unix socket.
    pub fn push_with_fd(&mut self, descriptor: OwnedFd, encode: impl FnOnce(&mut Vec<u8>)) {
        self.out.mark();
        encode(self.out.short());
        self.outgoing_fds.push_back(descriptor);
    }

    /// Returns whether one more descriptor may be queued.
    pub fn may_push_fd(&self) -> bool {
        self.outgoing_fds.len() < OUTGOING_FDS_MAX
    }

    /// Takes the descriptor of the last frame; `None` if this process could open no more. Call it
    /// once for each frame that carries one.
    pub fn take_descriptor(&mut self) -> io::Result<Option<OwnedFd>> {
        let missing = || io::Error::new(io::ErrorKind::InvalidData, "a frame came without its descriptor");
        self.incoming_fds.pop_front().ok_or_else(missing)
    }

    /// Writes all output.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.out.has_remaining() {
            let with = self.outgoing_fds.front().filter(|_| self.out.is_at_mark());
            let written = match with {
                None => ready!(poll_write_buf(Pin::new(&mut self.stream), context, &mut self.out))?,
                Some(descriptor) => {
                    let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
                    let filled = self.out.chunks_vectored(&mut pieces);
                    let sent = self.stream.poll_send_with(context, &pieces[..filled], descriptor.as_fd());
                    let written = ready!(sent)?;
                    self.out.advance(written);
                    self.outgoing_fds.pop_front();
                    written
                }
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Reads some bytes; 0 at the end.
    pub async fn fill(&mut self) -> io::Result<usize> {
        poll_fn(|context| self.poll_fill(context)).await
    }

    /// Writes all output.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Ends an open connection with its reason.
    pub async fn goodbye(mut self, why: &str) {
        encode_goodbye(why, self.out.short());
        self.close().await;
    }

    /// Writes the output if the peer takes it soon, and closes.
    pub async fn close(mut self) {
        if timeout(GOODBYE_WAIT, self.drain()).await.is_err() {
            tracing::debug!("a connection was closed before the other side had taken all");
        }
    }

    async fn drain(&mut self) {
        let written = self.flush().await.is_ok() && self.stream.shutdown().await.is_ok();
        let (mut unread, mut taken) = (Frames::new(Side::Node), 0);
        // The input is discarded: the same few KiB are filled again and again.
        while written && taken < DRAIN_BYTES_MAX {
            let read = poll_fn(|context| poll_read_buf(Pin::new(&mut self.stream), context, &mut unread.space())).await;
            match read {
                Ok(count) if count > 0 => taken += count,
                _ => return,
            }
            unread = Frames::new(Side::Node);
        }
    }
}

/// End of a connection, whether it came as `Ok` or by `?`.
pub fn flatten_end<E>(driven: Poll<Result<E, E>>) -> Poll<E> {
    driven.map(|(Ok(end) | Err(end))| end)
}

/// Returns a fresh nonce from the system's random source.
pub fn nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    let filled = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
    if filled < nonce.len() {
        return Err(io::Error::other("the system's random source gave less than it was asked for"));
    }
    Ok(nonce)
}
