//! A socket with the frames that come and those that go. Both sides have one.

use crate::stream::{Socket, Stream};
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
    frame::{Frames, Outgoing, Side},
    handshake::Nonce,
};

/// The last words must be taken by then; also so long the other's unread bytes are taken, so that the system does not throw our
/// last words away with them.
const LAST_WORDS_WAIT: Duration = Duration::from_secs(1);
/// So many unread bytes are taken at the end: more than the buffers of two sockets hold.
const LAST_BYTES_MAX: usize = 32 << 20;

/// So many descriptors wait to be sent; for more there is none to lend.
const GOING_MAX: usize = 64;

/// So much is read at once where a descriptor may come, bytes.
const READ_BYTES: usize = 64 << 10;
/// So many pieces are written at once where a descriptor goes.
const PIECES_MAX: usize = 16;

/// A socket with its frames.
#[derive(Debug)]
pub struct Pipe<S = Stream> {
    stream: S,
    /// What comes.
    pub frames: Frames,
    /// What goes.
    pub out: Outgoing,
    /// Those that go with frames, in their order: one for each mark of `out`.
    going: VecDeque<OwnedFd>,
    /// Those that came, in their order; none inside where one could not be taken.
    came: VecDeque<Option<OwnedFd>>,
    /// Where bytes are read to with which descriptors may come: a client's, of a Unix socket. Else it is empty.
    scratch: Box<[u8]>,
}

impl<S: Socket> Pipe<S> {
    /// Before the handshake.
    pub fn new(stream: S, side: Side) -> Self {
        let takes = side == Side::Client && stream.takes_descriptors();
        let scratch = vec![0; if takes { READ_BYTES } else { 0 }].into();
        let (frames, out) = (Frames::new(side), Outgoing::new());
        Self { stream, frames, out, going: VecDeque::new(), came: VecDeque::new(), scratch }
    }

    /// Reads some; 0 at the end.
    pub fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Some(landing) = self.frames.landing() {
            let mut into = ReadBuf::new(landing);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut into))?;
            let count = into.filled().len();
            self.frames.landed(count);
            return Poll::Ready(Ok(count));
        }
        if self.scratch.is_empty() || self.frames.is_in_payload() {
            return poll_read_buf(Pin::new(&mut self.stream), context, &mut self.frames.space());
        }
        let mut space = self.frames.space();
        let room = space.remaining_mut().min(self.scratch.len());
        let received = ready!(self.stream.poll_receive(context, &mut self.scratch[..room]))?;
        space.put_slice(&self.scratch[..received.count]);
        self.came.extend(received.descriptor.map(Result::ok));
        Poll::Ready(Ok(received.count))
    }

    /// The other end, when descriptors can go there.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The same, for a change of how it is waited for.
    pub fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Adds a frame with a descriptor; only over a Unix socket.
    pub fn push_with(&mut self, descriptor: OwnedFd, encode: impl FnOnce(&mut Vec<u8>)) {
        self.out.mark();
        encode(self.out.short());
        self.going.push_back(descriptor);
    }

    /// Whether one more descriptor may go.
    pub fn has_room(&self) -> bool {
        self.going.len() < GOING_MAX
    }

    /// What came with the frame that was given last; none when this process has no room for it. To be asked once for each frame
    /// that comes with one.
    pub fn descriptor(&mut self) -> io::Result<Option<OwnedFd>> {
        let missing = || io::Error::new(io::ErrorKind::InvalidData, "a frame came without its descriptor");
        self.came.pop_front().ok_or_else(missing)
    }

    /// Writes all.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.out.has_remaining() {
            let with = self.going.front().filter(|_| self.out.is_at_mark());
            let written = match with {
                None => ready!(poll_write_buf(Pin::new(&mut self.stream), context, &mut self.out))?,
                Some(descriptor) => {
                    let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
                    let filled = self.out.chunks_vectored(&mut pieces);
                    let sent = self.stream.poll_send_with(context, &pieces[..filled], descriptor.as_fd());
                    let written = ready!(sent)?;
                    self.out.advance(written);
                    self.going.pop_front();
                    written
                }
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Reads some; 0 at the end.
    pub async fn fill(&mut self) -> io::Result<usize> {
        poll_fn(|context| self.poll_fill(context)).await
    }

    /// Writes all.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Ends an open connection with its reason.
    pub async fn goodbye(mut self, why: &str) {
        encode_goodbye(why, self.out.short());
        self.close().await;
    }

    /// Writes what there is, if it is taken soon, and closes.
    pub async fn close(mut self) {
        if timeout(LAST_WORDS_WAIT, self.drain()).await.is_err() {
            tracing::debug!("a connection was closed before the other side had taken all");
        }
    }

    async fn drain(&mut self) {
        let written = self.flush().await.is_ok() && self.stream.shutdown().await.is_ok();
        let (mut unread, mut taken) = (Frames::new(Side::Node), 0);
        // What comes is not looked at: the same few KiB are filled again and again.
        while written && taken < LAST_BYTES_MAX {
            let read = poll_fn(|context| poll_read_buf(Pin::new(&mut self.stream), context, &mut unread.space())).await;
            match read {
                Ok(count) if count > 0 => taken += count,
                _ => return,
            }
            unread = Frames::new(Side::Node);
        }
    }
}

/// How a connection ended, whether that was told by `?` or not.
pub fn ended<E>(driven: Poll<Result<E, E>>) -> Poll<E> {
    driven.map(|(Ok(end) | Err(end))| end)
}

/// A number that no connection had, from the system's random source.
pub fn nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    let filled = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
    if filled < nonce.len() {
        return Err(io::Error::other("the system's random source gave less than it was asked for"));
    }
    Ok(nonce)
}
