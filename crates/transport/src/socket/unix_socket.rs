//! Unix socket of a runtime, which either waits for it, or does not know it while a task busy-polls
//! it.
//!
//! If the runtime knew a busy-polled socket, each message would wake a thread that waits for all
//! sockets and takes the processor from the polling task.

use crate::socket::scm_rights::{self, ReceivedData};
use reactor::nonblocking::{READ_BYTES, poll_now, poll_read, write};
use rustix::process::{Pid, geteuid};
use std::{
    io::{self, IoSlice},
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

/// Bytes of a read after one that filled its buffer.
const READ_MORE_BYTES: usize = 64 << 10;

/// Connected Unix socket.
#[derive(Debug)]
pub struct UnixSocket {
    /// Exactly one of the two is `Some`, unless switching modes failed.
    registered: Option<UnixStream>,
    busy_polled: Option<net::UnixStream>,
    /// True if the last read while busy-polling filled its buffer.
    was_full: bool,
}

impl UnixSocket {
    /// Wraps a socket that the runtime waits for.
    pub fn new(stream: UnixStream) -> Self {
        Self { registered: Some(stream), busy_polled: None, was_full: false }
    }

    /// Connects to the path of a socket.
    pub async fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path).await?;
        check_peer(stream.peer_cred()?.uid())?;
        Ok(Self::new(stream))
    }

    /// Switches to busy polling: no event of this socket wakes anybody.
    pub fn spin(&mut self) -> io::Result<()> {
        if let Some(stream) = self.registered.take() {
            self.busy_polled = Some(stream.into_std()?);
        }
        Ok(())
    }

    /// Switches to waiting; returns true if it was busy-polling.
    pub fn block(&mut self) -> io::Result<bool> {
        let Some(stream) = self.busy_polled.take() else { return Ok(false) };
        self.registered = Some(UnixStream::from_std(stream)?);
        Ok(true)
    }

    /// Process at the other end, `None` if it is not visible here, and whether it has our user.
    /// Fails while busy-polling.
    pub fn peer(&self) -> io::Result<(Option<Pid>, bool)> {
        let other = self.registered.as_ref().ok_or(io::ErrorKind::NotConnected)?.peer_cred()?;
        // 0: the process is in a namespace that is not visible here.
        let process = other.pid().filter(|pid| *pid > 0).and_then(Pid::from_raw);
        Ok((process, other.uid() == geteuid().as_raw()))
    }

    /// Writes some bytes, and a descriptor with the first of them.
    pub fn poll_send_with(
        &self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        descriptor: BorrowedFd<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll(context, Interest::WRITABLE, |socket| scm_rights::send(socket, pieces, descriptor))
    }

    /// Reads some bytes, and the descriptor that came with them.
    pub fn poll_receive(&self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<ReceivedData>> {
        self.poll(context, Interest::READABLE, |socket| scm_rights::receive(socket, into))
    }

    /// Underlying socket.
    pub fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        let busy_polled = self.busy_polled.as_ref().map(AsFd::as_fd);
        busy_polled.or(self.registered.as_ref().map(AsFd::as_fd)).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        interest: Interest,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let Some(stream) = &self.registered else { return poll_now(|| call(self.socket()?)) };
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

/// Refuses a socket at which another user listens: nodes of a pool run as the user of its file, or
/// as root.
pub fn check_peer(user: u32) -> io::Result<()> {
    if user == 0 || user == geteuid().as_raw() {
        return Ok(());
    }
    let why = format!("user {user} listens there, and not the pool's own: trust nothing there");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

impl AsyncRead for UnixSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        if let Some(stream) = &mut socket.registered {
            return Pin::new(stream).poll_read(context, into);
        }
        // An initialized buffer, as a receive buffer is, needs no zeroing.
        let is_clear = into.initialized().len() == into.capacity();
        let most = if is_clear || socket.was_full { READ_MORE_BYTES } else { READ_BYTES };
        let most = if is_clear { into.remaining() } else { most };
        let count = ready!(poll_read(socket.socket()?, into, most))?;
        socket.was_full = count == most;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UnixSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        match &mut socket.registered {
            Some(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            None => poll_now(|| write(socket.socket()?, pieces)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // no buffer here
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(rustix::net::shutdown(self.socket()?, rustix::net::Shutdown::Write)?))
    }
}
