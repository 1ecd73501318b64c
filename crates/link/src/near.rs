//! A Unix socket of a runtime, which is waited for there, or looked at again and again by a task that stays awake.
//!
//! Of one that is looked at the runtime knows nothing: else each message would wake a thread that waits for all sockets, and takes the processor
//! from who looks.

use crate::rights::{self, Received};
use rustix::{
    io::read,
    net::{SendAncillaryBuffer, SendFlags, sendmsg},
    process::{Pid, geteuid},
};
use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net,
    },
    path::Path,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::UnixStream,
};

/// So much is read at once by who looks, bytes, into room that need not be cleared: as much as requests for names have...
const READ_BYTES: usize = 4 << 10;
/// ... and so much behind a read that had as much.
const READ_MORE_BYTES: usize = 64 << 10;

/// A connected Unix socket.
#[derive(Debug)]
pub struct Near {
    /// There is one of the two, until a change of them has failed.
    waited_for: Option<UnixStream>,
    looked_at: Option<net::UnixStream>,
    /// The last read by looking had all that it had room for.
    much: bool,
}

impl Near {
    /// Waited for.
    pub fn new(stream: UnixStream) -> Self {
        Self { waited_for: Some(stream), looked_at: None, much: false }
    }

    /// Connects to a socket's file.
    pub async fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path).await?;
        trusted(stream.peer_cred()?.uid())?;
        Ok(Self::new(stream))
    }

    /// From now on it is looked at: what is pending wakes nobody.
    pub fn look(&mut self) -> io::Result<()> {
        if let Some(stream) = self.waited_for.take() {
            self.looked_at = Some(stream.into_std()?);
        }
        Ok(())
    }

    /// From now on it is waited for; whether it was not.
    pub fn rest(&mut self) -> io::Result<bool> {
        let Some(stream) = self.looked_at.take() else { return Ok(false) };
        self.waited_for = Some(UnixStream::from_std(stream)?);
        Ok(true)
    }

    /// Who is at the other end of one that is waited for: the process, none where it is not seen from here, and whether it has our user.
    pub fn peer(&self) -> io::Result<(Option<Pid>, bool)> {
        let other = self.waited_for.as_ref().ok_or(io::ErrorKind::NotConnected)?.peer_cred()?;
        // 0: of a namespace that is not seen from here.
        let process = other.pid().filter(|pid| *pid > 0).and_then(Pid::from_raw);
        Ok((process, other.uid() == geteuid().as_raw()))
    }

    /// Writes some, and a descriptor with the first byte.
    pub fn poll_send_with(
        &self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        descriptor: BorrowedFd<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll(context, Interest::WRITABLE, |socket| rights::send(socket, pieces, descriptor))
    }

    /// Reads some, and what came with it.
    pub fn poll_receive(&self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<Received>> {
        self.poll(context, Interest::READABLE, |socket| rights::receive(socket, into))
    }

    /// The socket.
    pub fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        let looked_at = self.looked_at.as_ref().map(AsFd::as_fd);
        looked_at.or(self.waited_for.as_ref().map(AsFd::as_fd)).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        interest: Interest,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let Some(stream) = &self.waited_for else { return at_once(|| call(self.socket()?)) };
        loop {
            let is_ready = match interest {
                Interest::WRITABLE => stream.poll_write_ready(context),
                _ => stream.poll_read_ready(context),
            };
            ready!(is_ready)?;
            let done = stream.try_io(interest, || call(stream.as_fd()));
            if !matches!(&done, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                return Poll::Ready(done);
            }
        }
    }
}

/// Refuses a socket at which another user listens: a pool's nodes run as the user of its file, or as root.
pub fn trusted(user: u32) -> io::Result<()> {
    if user == 0 || user == geteuid().as_raw() {
        return Ok(());
    }
    let why = format!("user {user} listens there, and not the pool's own: trust nothing there");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// What a call on a socket that does not block brings now.
pub fn at_once<T>(mut call: impl FnMut() -> io::Result<T>) -> Poll<io::Result<T>> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            done => return Poll::Ready(done),
        }
    }
}

/// Writes to a socket; without a signal where the other side has gone, for this may be a stranger's process.
pub fn write(socket: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(sendmsg(socket, pieces, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
}

/// Reads from a socket that does not block, at most so much.
pub fn poll_read(socket: BorrowedFd<'_>, into: &mut ReadBuf<'_>, most: usize) -> Poll<io::Result<usize>> {
    let most = into.remaining().min(most);
    if most <= READ_BYTES {
        let mut room = [MaybeUninit::uninit(); READ_BYTES];
        return at_once(|| {
            let (come, _) = read(socket, &mut room[..most])?;
            into.put_slice(come);
            Ok(come.len())
        });
    }
    let room = into.initialize_unfilled_to(most);
    let count = ready!(at_once(|| Ok(read(socket, &mut *room)?)))?;
    into.advance(count);
    Poll::Ready(Ok(count))
}

impl AsyncRead for Near {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let near = self.get_mut();
        if let Some(stream) = &mut near.waited_for {
            return Pin::new(stream).poll_read(context, into);
        }
        // What is initialized needs no clearing: a landing.
        let is_clear = into.initialized().len() == into.capacity();
        let most = if is_clear || near.much { READ_MORE_BYTES } else { READ_BYTES };
        let most = if is_clear { into.remaining() } else { most };
        let count = ready!(poll_read(near.socket()?, into, most))?;
        near.much = count == most;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Near {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let near = self.get_mut();
        match &mut near.waited_for {
            Some(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            None => at_once(|| write(near.socket()?, pieces)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // nothing is kept here
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(rustix::net::shutdown(self.socket()?, rustix::net::Shutdown::Write)?))
    }
}
