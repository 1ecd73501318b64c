//! A socket of any kind, as one type.

use crate::{
    Address,
    rights::{self, Received},
};
use rustix::{net::sockopt, process::geteuid};
use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsStream;

/// A peer that has been silent for so long is asked by the system whether it is there...
const SILENCE: Duration = Duration::from_secs(10);
/// ... so often apart ...
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// ... and given up after so many questions: 25 s in all, then its locks end.
const QUESTIONS: u32 = 3;
/// What was sent and is not acknowledged by then ends the connection, milliseconds: as long as the questions take.
const UNACKNOWLEDGED_MS: u32 = 25_000;

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Stream {
    /// Connects to an address; the TLS of one that has it is still to come.
    pub async fn connect(address: &Address) -> io::Result<Self> {
        Ok(match address {
            Address::Tcp { host, port } | Address::Tls { host, port } => {
                Self::Tcp(kept_alive(TcpStream::connect((host.as_str(), *port)).await?)?)
            }
            Address::Unix(path) => Self::Unix(UnixStream::connect(path).await?),
        })
    }

    /// The socket, when descriptors can travel over it.
    pub fn unix(&self) -> Option<&UnixStream> {
        match self {
            Self::Tcp(_) | Self::Tls(_) => None,
            Self::Unix(stream) => Some(stream),
        }
    }

    /// The socket once more, for who writes to it besides; none where bytes are changed on their way.
    pub fn beside(&self) -> Option<OwnedFd> {
        match self {
            Self::Tcp(stream) => stream.as_fd().try_clone_to_owned().ok(),
            Self::Unix(stream) => stream.as_fd().try_clone_to_owned().ok(),
            Self::Tls(_) => None,
        }
    }

    /// Whether it is the socket of a process of this host that has our user.
    pub fn is_of_our_user(&self) -> bool {
        let other = self.unix().and_then(|stream| stream.peer_cred().ok());
        other.is_some_and(|other| other.uid() == geteuid().as_raw())
    }

    /// Writes some, and a descriptor with the first byte.
    pub fn poll_send_with(
        &self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        descriptor: BorrowedFd<'_>,
    ) -> Poll<io::Result<usize>> {
        let Some(stream) = self.unix() else { return Poll::Ready(Err(io::ErrorKind::Unsupported.into())) };
        loop {
            ready!(stream.poll_write_ready(context))?;
            let sent = stream.try_io(Interest::WRITABLE, || rights::send(stream.as_fd(), pieces, descriptor));
            if !would_block(&sent) {
                return Poll::Ready(sent);
            }
        }
    }

    /// Reads some, and what came with it.
    pub fn poll_receive(&self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<Received>> {
        let Some(stream) = self.unix() else { return Poll::Ready(Err(io::ErrorKind::Unsupported.into())) };
        loop {
            ready!(stream.poll_read_ready(context))?;
            let received = stream.try_io(Interest::READABLE, || rights::receive(stream, into));
            if !would_block(&received) {
                return Poll::Ready(received);
            }
        }
    }
}

/// Small frames go at once; a host that is gone is noticed.
pub fn kept_alive(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(&stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(&stream, ASK_AGAIN)?;
    sockopt::set_tcp_keepcnt(&stream, QUESTIONS)?;
    sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MS)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    Ok(stream)
}

fn would_block<T>(done: &io::Result<T>) -> bool {
    matches!(done, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, into),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())), // nothing is kept there
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
