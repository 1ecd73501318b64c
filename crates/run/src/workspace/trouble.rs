//! What can go wrong around a task: the pool refuses, or the host does.

use std::io;
use std::path::PathBuf;
use wire::Refusal;

/// The pool or the host refused.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The pool did.
    #[error("{}: {refusal}", path.display())]
    Pool {
        /// On what, below the pool's root.
        path: PathBuf,
        /// Why.
        refusal: Refusal,
    },
    /// The host did.
    #[error("{}: {error}", path.display())]
    Host {
        /// On what.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Trouble {
    /// To map a refusal of the pool about `path`.
    pub fn pool(path: impl Into<PathBuf>) -> impl FnOnce(Refusal) -> Self {
        let path = path.into();
        move |refusal| Self::Pool { path, refusal }
    }

    /// To map an error of the host about `path`.
    pub fn host(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Host { path, error }
    }

    /// Whether the pool (or the RAM disk) was full.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Pool { refusal, .. } => matches!(refusal, Refusal::NoSpace(_)),
            Self::Host { error, .. } => error.kind() == io::ErrorKind::StorageFull,
        }
    }
}
