//! Errors of a workspace: of the pool or of the host.

use std::io;
use std::path::PathBuf;
use wire::Refusal;

/// An error of the pool or of the host.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The pool refused a request.
    #[error("{}: {refusal}", path.display())]
    Pool {
        /// Path below the pool's root.
        path: PathBuf,
        /// Reason of the refusal.
        refusal: Refusal,
    },
    /// A call of the host's system failed.
    #[error("{}: {error}", path.display())]
    Host {
        /// Path on the host.
        path: PathBuf,
        /// Error of the call.
        error: io::Error,
    },
}

impl WorkspaceError {
    /// Returns a function that converts a refusal of the pool about `path`.
    pub fn pool(path: impl Into<PathBuf>) -> impl FnOnce(Refusal) -> Self {
        let path = path.into();
        move |refusal| Self::Pool { path, refusal }
    }

    /// Returns a function that converts an error of the host about `path`.
    pub fn host(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Host { path, error }
    }

    /// Returns whether the pool or the RAM disk was full.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Pool { refusal, .. } => matches!(refusal, Refusal::NoSpace(_)),
            Self::Host { error, .. } => error.kind() == io::ErrorKind::StorageFull,
        }
    }
}
