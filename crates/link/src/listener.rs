//! A socket that waits for connections.

use crate::{Address, stream::Stream};
use std::{
    fs, io,
    net::TcpListener,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// A socket that waits for connections. The file of a Unix socket goes with it.
#[derive(Debug)]
pub struct Listener {
    address: Address,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// Nobody can be waited for there.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address}: {source}; choose another address, or end who uses it")]
pub struct ListenFailed {
    /// Where.
    pub address: Address,
    /// What the system says.
    pub source: io::Error,
}

/// The file of a socket, removed at the end if it is still that one.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Listener {
    /// Listens. A socket file that nobody listens at any more is replaced; a new one is its owner's only.
    pub fn bind(address: &Address) -> Result<Self, ListenFailed> {
        Self::try_bind(address).map_err(|source| ListenFailed { address: address.clone(), source })
    }

    fn try_bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp { host, port } => {
                let socket = TcpListener::bind((host.as_str(), *port))?;
                socket.set_nonblocking(true)?;
                let address = Address::Tcp { host: host.clone(), port: socket.local_addr()?.port() };
                Ok(Self { address, socket: Socket::Tcp(socket) })
            }
            Address::Unix(path) => {
                let socket = bind_unix(path)?;
                let file = SocketFile { path: path.clone(), identity: identity(path)? };
                fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
                socket.set_nonblocking(true)?;
                Ok(Self { address: address.clone(), socket: Socket::Unix(socket, file) })
            }
        }
    }

    /// Where it listens: with the port that the system chose, if it was to.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The same in the runtime that is entered.
    pub(crate) fn enter(self) -> io::Result<Entered> {
        Ok(match self.socket {
            Socket::Tcp(socket) => Entered::Tcp(tokio::net::TcpListener::from_std(socket)?),
            Socket::Unix(socket, file) => {
                Entered::Unix { listener: tokio::net::UnixListener::from_std(socket)?, _file: file }
            }
        })
    }
}

/// A listener in a runtime.
#[derive(Debug)]
pub enum Entered {
    Tcp(tokio::net::TcpListener),
    Unix {
        listener: tokio::net::UnixListener,
        /// Goes when nobody listens any more.
        _file: SocketFile,
    },
}

impl Entered {
    /// The next who comes.
    pub async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Stream::tcp(listener.accept().await?.0),
            Self::Unix { listener, .. } => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path) => {
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

/// Whether it is the socket of somebody who has ended.
fn is_left_over(path: &Path) -> bool {
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
