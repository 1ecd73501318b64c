//! Errors of reading and writing a journal.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The reason why a journal cannot be read or written.
#[derive(Debug, Error)]
pub enum JournalError {
    /// There is no journal.
    #[error("{}: there is no journal, so no run was here", .0.display())]
    Missing(PathBuf),
    /// The system refuses it.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The journal.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A line is not what it should be. The last line, if it is incomplete, is no such line.
    #[error("{}: line {line} is damaged: {why}", .path.display())]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The journal was written by a program with another format.
    #[error("{}: version {found} of the journal is not known; this program reads {}", .path.display(), crate::JOURNAL_VERSION)]
    Version {
        /// The journal.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// A run that goes on writes it.
    #[error("{}: run {run} writes it, by process {process} of {host}", .path.display())]
    Live {
        /// The journal.
        path: PathBuf,
        /// Name of the run; empty if it is not known.
        run: String,
        /// Its process.
        process: u32,
        /// The host of the process.
        host: String,
        /// True if that process resumed the run.
        resumed: bool,
    },
}

impl JournalError {
    /// The error for `path`.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |error| match error.kind() {
            io::ErrorKind::NotFound => Self::Missing(path.to_owned()),
            _ => Self::Io { path: path.to_owned(), error },
        }
    }
}
