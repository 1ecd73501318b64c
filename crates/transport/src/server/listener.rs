//! Listening socket of a node.

use crate::{
    Address, Identity,
    socket::{
        stream::{Stream, with_keepalive},
        tls::AcceptedConnection,
        unix_socket::UnixSocket,
    },
};
use std::{
    fmt, fs, io,
    net::{TcpListener, ToSocketAddrs},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};
use tokio_rustls::TlsAcceptor;

/// Listening socket. The file of a Unix socket is removed with it.
#[derive(Debug)]
pub struct Listener {
    address: Address,
    /// Address by which clients know it.
    advertised: Address,
    socket: ListeningSocket,
}

enum ListeningSocket {
    Tcp(TcpListener, Option<TlsAcceptor>),
    Unix(UnixListener, SocketFile),
}

/// Error of an address that cannot be listened at.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address}: {source}; choose another address, or end the process that uses it")]
pub struct ListenError {
    /// The address.
    pub address: Address,
    /// The error of the system.
    pub source: io::Error,
}

/// File of a Unix socket; removed on drop unless it was replaced.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Listener {
    /// Listens where nobody else can read the traffic: at a Unix socket, or at a loopback `tcp:`
    /// address. Another address needs [`Self::bind_tls`], or [`Self::bind_plain`]. A socket file at
    /// which nobody listens any more is replaced; only its owner can use a new one.
    pub fn bind(address: &Address) -> Result<Self, ListenError> {
        Self::bind_with(address, |address| match address {
            Address::Tcp { host, port } if !is_loopback(host, *port)? => Err(io::Error::other(
                "others could read the traffic there: listen with TLS (tls:HOST:PORT), or ask for plain TCP by name",
            )),
            Address::Tls { .. } => Err(io::Error::other("TLS needs the pool's certificate and key")),
            address => Self::try_bind(address, None),
        })
    }

    /// Listens at any address without TLS. At a `tcp:` address that is not loopback, others can
    /// read the traffic, including all data; they do not learn the token. Refuses a `tls:` address.
    pub fn bind_plain(address: &Address) -> Result<Self, ListenError> {
        Self::bind_with(address, |address| match address {
            Address::Tls { .. } => Err(io::Error::other("TLS needs the pool's certificate and key")),
            address => Self::try_bind(address, None),
        })
    }

    /// Listens at a `tls:` address with this certificate and key; at others like [`Self::bind`].
    pub fn bind_tls(address: &Address, identity: &Identity) -> Result<Self, ListenError> {
        if !matches!(address, Address::Tls { .. }) {
            return Self::bind(address);
        }
        let config = identity.config().map_err(io::Error::other);
        Self::bind_with(address, |address| Self::try_bind(address, Some(TlsAcceptor::from(config?))))
    }

    fn bind_with(address: &Address, bind: impl FnOnce(&Address) -> io::Result<Self>) -> Result<Self, ListenError> {
        bind(address).map_err(|source| ListenError { address: address.clone(), source })
    }

    fn try_bind(address: &Address, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        match address {
            Address::Tcp { host, port } | Address::Tls { host, port } => {
                let socket = TcpListener::bind((host.as_str(), *port))?;
                socket.set_nonblocking(true)?;
                let (host, port) = (host.clone(), socket.local_addr()?.port());
                let address = if tls.is_some() { Address::Tls { host, port } } else { Address::Tcp { host, port } };
                Ok(Self { advertised: address.clone(), address, socket: ListeningSocket::Tcp(socket, tls) })
            }
            Address::Unix(path) => {
                let socket = bind_unix(path)?;
                let file = SocketFile { path: path.clone(), identity: identity(path)? };
                fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
                socket.set_nonblocking(true)?;
                Ok(Self {
                    advertised: address.clone(),
                    address: address.clone(),
                    socket: ListeningSocket::Unix(socket, file),
                })
            }
        }
    }

    /// Address at which it listens, with the port that the system chose for port 0.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Sets the address by which clients know this listener: that of the pool file. Both sides
    /// prove it in the handshake; a client that means another address is refused.
    #[must_use]
    pub fn advertise(self, advertised: Address) -> Self {
        Self { advertised, ..self }
    }

    /// Address by which clients know it.
    pub(crate) fn advertised(&self) -> &Address {
        &self.advertised
    }

    /// Registers the listener with the current runtime.
    pub(crate) fn into_async(self) -> io::Result<AsyncListener> {
        Ok(match self.socket {
            ListeningSocket::Tcp(socket, tls) => AsyncListener::Tcp(tokio::net::TcpListener::from_std(socket)?, tls),
            ListeningSocket::Unix(socket, file) => {
                AsyncListener::Unix { listener: tokio::net::UnixListener::from_std(socket)?, _file: file }
            }
        })
    }
}

/// Listener that is registered with a runtime.
pub enum AsyncListener {
    Tcp(tokio::net::TcpListener, Option<TlsAcceptor>),
    Unix {
        listener: tokio::net::UnixListener,
        /// Removed when nobody listens any more.
        _file: SocketFile,
    },
}

impl AsyncListener {
    /// Accepts the next connection.
    pub async fn accept(&self) -> io::Result<AcceptedConnection> {
        Ok(match self {
            Self::Tcp(listener, None) => {
                AcceptedConnection::Open(Stream::Tcp(with_keepalive(listener.accept().await?.0)?))
            }
            Self::Tcp(listener, Some(tls)) => {
                AcceptedConnection::Tls(with_keepalive(listener.accept().await?.0)?, tls.clone())
            }
            Self::Unix { listener, .. } => {
                AcceptedConnection::Open(Stream::Unix(UnixSocket::new(listener.accept().await?.0)?))
            }
        })
    }
}

/// Returns whether all addresses of a host name are loopback.
fn is_loopback(host: &str, port: u16) -> io::Result<bool> {
    Ok((host, port).to_socket_addrs()?.all(|address| address.ip().is_loopback()))
}

impl fmt::Debug for ListeningSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(socket, tls) => f.debug_tuple("Tcp").field(socket).field(&tls.is_some()).finish(),
            Self::Unix(socket, file) => f.debug_tuple("Unix").field(socket).field(file).finish(),
        }
    }
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

/// Returns whether the socket's process has ended.
fn is_stale(path: &Path) -> bool {
    matches!(UnixStream::connect(path), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "a socket file was left behind");
        }
    }
}
