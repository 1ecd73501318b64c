//! A socket with the frames that come and those that go. Both sides have one.

use crate::stream::Stream;
use bytes::Buf;
use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{io::AsyncWriteExt, time::timeout};
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

/// A socket with its frames.
#[derive(Debug)]
pub struct Pipe {
    stream: Stream,
    /// What comes.
    pub frames: Frames,
    /// What goes.
    pub out: Outgoing,
}

impl Pipe {
    /// Before the handshake.
    pub fn new(stream: Stream, side: Side) -> Self {
        Self { stream, frames: Frames::new(side), out: Outgoing::new() }
    }

    /// Reads some; 0 at the end.
    pub fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        poll_read_buf(Pin::new(&mut self.stream), context, &mut self.frames.space())
    }

    /// Writes all.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.out.has_remaining() {
            if ready!(poll_write_buf(Pin::new(&mut self.stream), context, &mut self.out))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
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
