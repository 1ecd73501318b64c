//! Socket of any kind, as one type.

use crate::{
    Address,
    socket::{scm_rights::ReceivedData, unix_socket::UnixSocket},
};
use rustix::net::sockopt;
use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsStream;

/// Silence after which the system probes the peer (TCP keepalive).
const PROBE_AFTER: Duration = Duration::from_secs(10);
/// Interval of the probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered probes after which the connection ends: 25 s in all, then the peer's locks end.
const PROBES: u32 = 3;
/// Time limit for sent data to be acknowledged, milliseconds: as long as the probes take.
const UNACKNOWLEDGED_MS: u32 = 25_000;

/// Operations that a connection needs of its socket, driven by a runtime or a reactor.
pub trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Returns whether descriptors can travel over it.
    fn takes_descriptors(&self) -> bool;

    /// Returns whether its owner is told again and again of bytes that were not read. Then a read
    /// that did not fill its buffer need not be followed by one that finds nothing.
    fn reports_unread(&self) -> bool;

    /// Writes some bytes, and a descriptor with the first of them.
    fn poll_send_with(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        descriptor: BorrowedFd<'_>,
    ) -> Poll<io::Result<usize>>;

    /// Reads some bytes, and the descriptor that came with them.
    fn poll_receive(&self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<ReceivedData>>;
}

/// Connected socket of any kind, by default of the runtime.
#[derive(Debug)]
pub enum Stream<T = TcpStream, U = UnixSocket> {
    Tcp(T),
    Tls(Box<TlsStream<T>>),
    Unix(U),
}

impl Stream {
    /// Connects to an address, without its TLS handshake.
    pub async fn connect(address: &Address) -> io::Result<Self> {
        Ok(match address {
            Address::Tcp { host, port } | Address::Tls { host, port } => {
                Self::Tcp(with_keepalive(TcpStream::connect((host.as_str(), *port)).await?)?)
            }
            Address::Unix(path) => Self::Unix(UnixSocket::connect(path).await?),
        })
    }

    /// Unix socket, over which descriptors can travel.
    pub fn unix(&self) -> Option<&UnixSocket> {
        match self {
            Self::Tcp(_) | Self::Tls(_) => None,
            Self::Unix(stream) => Some(stream),
        }
    }

    /// Duplicate of the socket, to write to it directly; `None` for TLS, which transforms the
    /// bytes.
    pub fn duplicate(&self) -> Option<OwnedFd> {
        match self {
            Self::Tcp(stream) => stream.as_fd().try_clone_to_owned().ok(),
            Self::Unix(stream) => stream.socket().ok()?.try_clone_to_owned().ok(),
            Self::Tls(_) => None,
        }
    }

    /// Switches a Unix socket to busy polling: no event of it wakes anybody.
    pub fn spin(&mut self) -> io::Result<()> {
        if let Self::Unix(stream) = self { stream.spin() } else { Ok(()) }
    }

    /// Switches back to waiting; returns true if it was busy-polling.
    pub fn block(&mut self) -> io::Result<bool> {
        if let Self::Unix(stream) = self { stream.block() } else { Ok(false) }
    }

    /// Returns whether the peer is a process of this host with our user.
    pub fn is_of_our_user(&self) -> bool {
        self.unix().is_some_and(|stream| stream.peer().1)
    }
}

impl Socket for Stream {
    fn takes_descriptors(&self) -> bool {
        self.unix().is_some()
    }

    fn reports_unread(&self) -> bool {
        false // a runtime wakes a task once, after a read that found nothing
    }

    fn poll_send_with(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        descriptor: BorrowedFd<'_>,
    ) -> Poll<io::Result<usize>> {
        let Self::Unix(stream) = self else { return Poll::Ready(Err(io::ErrorKind::Unsupported.into())) };
        stream.poll_send_with(context, pieces, descriptor)
    }

    fn poll_receive(&self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<ReceivedData>> {
        let Some(stream) = self.unix() else { return Poll::Ready(Err(io::ErrorKind::Unsupported.into())) };
        stream.poll_receive(context, into)
    }
}

/// Sends small frames at once, and notices a host that is gone.
pub fn with_keepalive<S: AsFd>(stream: S) -> io::Result<S> {
    sockopt::set_tcp_nodelay(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(&stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&stream, PROBES)?;
    sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MS)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    Ok(stream)
}

impl<T, U> AsyncRead for Stream<T, U>
where
    T: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + Unpin,
{
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, into),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl<T, U> AsyncWrite for Stream<T, U>
where
    T: AsyncRead + AsyncWrite + Unpin,
    U: AsyncWrite + Unpin,
{
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
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())), // no buffer here
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
