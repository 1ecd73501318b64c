//! Exceptions: the only table from refusals to the exceptions of `tidemill.errors`. The errno
//! values are those of all frontends.

use base::Problem;
use pool::ConnectError;
use pyo3::{prelude::*, sync::PyOnceLock};
use rustix::io::Errno;
use wire::{Object, Refusal, Version};

/// A refused operation, and the path that it concerns.
#[derive(Debug)]
pub struct CallError {
    pub path: Vec<u8>,
    pub refusal: Refusal,
}

const ANSWERS: &str = "`tidemill pool status` shows which nodes answer; the data of these is available";

/// The class, errno and hint of a refusal. Listed are refusals that have their own class, or for
/// which file systems have no errno; all others have the errno of file systems.
fn exception_of(refusal: &Refusal) -> (&'static str, Errno, Option<&'static str>) {
    let errno = wire::errno(refusal);
    match refusal {
        Refusal::NotFound(_) => ("NotFound", Errno::NOENT, None),
        Refusal::Exists(_) => ("Exists", errno, None),
        Refusal::NotDirectory(_) => ("NotAFolder", errno, None),
        Refusal::IsDirectory(_) => ("IsAFolder", errno, None),
        Refusal::NameTooLong(_) | Refusal::Invalid { .. } => ("Invalid", errno, None),
        Refusal::NotPermitted(_) | Refusal::ReadOnly(_) => ("Denied", errno, None),
        Refusal::NoSpace(_) => ("NoSpace", errno, None),
        Refusal::VersionMismatch { .. } => ("VersionDiffers", Errno::CANCELED, None),
        Refusal::Unavailable { .. } => ("Unavailable", Errno::NOTCONN, Some(ANSWERS)),
        Refusal::OutcomeUnknown(_) => ("Unavailable", Errno::CONNRESET, Some(ANSWERS)),
        Refusal::TimedOut(_) => ("Unavailable", errno, Some(ANSWERS)),
        Refusal::SessionEnded => ("Unavailable", errno, Some("open the file again")),
        Refusal::NotEmpty(_) => ("TidemillError", errno, Some("delete_tree removes a directory with everything in it")),
        Refusal::LockedByIntent { .. } | Refusal::Split { .. } => ("TidemillError", Errno::BUSY, None),
        _ => ("TidemillError", errno, None),
    }
}

/// Replaces the entry or inode in a refusal by the path that the caller gave.
fn with_path(path: &[u8], refusal: Refusal) -> Refusal {
    let object = || Object::text(if path.is_empty() { b"/" } else { path });
    match refusal {
        Refusal::NotFound(_) => Refusal::NotFound(object()),
        Refusal::Exists(_) => Refusal::Exists(object()),
        Refusal::IsDirectory(_) => Refusal::IsDirectory(object()),
        Refusal::NotEmpty(_) => Refusal::NotEmpty(object()),
        Refusal::NotDirectory(_) => Refusal::NotDirectory(object()),
        Refusal::Busy(_) => Refusal::Busy(object()),
        other => other,
    }
}

impl CallError {
    /// Converts the failure to an exception.
    pub fn into_py_err(self, py: Python<'_>) -> PyErr {
        let refusal = with_path(&self.path, self.refusal);
        let (class, errno, hint) = exception_of(&refusal);
        let present = match &refusal {
            Refusal::VersionMismatch { present, .. } => present.as_ref().map(Version::to_string),
            _ => None,
        };
        let path = String::from_utf8_lossy(&self.path).into_owned();
        new_exception(py, class, (errno, refusal.to_string()), (Some(path), hint, present))
    }
}

/// The exception for a bad pool file, or for nodes that cannot be reached.
pub fn connect_error(py: Python<'_>, path: &str, error: &ConnectError) -> PyErr {
    let class = match error.errno {
        Errno::NOTCONN => "Unavailable",
        Errno::INVAL => "Invalid",
        Errno::NOENT => "NotFound",
        Errno::ACCESS => "Denied",
        _ => "TidemillError",
    };
    let ConnectError { problem, errno } = error;
    new_exception(py, class, (*errno, problem.message.clone()), (Some(path.to_owned()), problem.hint.as_deref(), None))
}

/// The exception for bad arguments.
pub fn invalid(problem: &Problem) -> PyErr {
    let (message, hint) = (problem.message.clone(), problem.hint.as_deref());
    Python::attach(|py| new_exception(py, "Invalid", (Errno::INVAL, message), (None, hint, None)))
}

/// The exception for a pool that was closed.
pub fn closed() -> PyErr {
    Python::attach(|py| {
        let hint = Some("connect again; what views show stays");
        new_exception(py, "PoolClosed", (Errno::NOTCONN, "the pool was closed".into()), (None, hint, None))
    })
}

/// The exception for a pool inside another process.
pub fn other_process() -> PyErr {
    Python::attach(|py| {
        let message = "the pool was started inside the process that this one was forked from".into();
        let hint = Some("connect to one of `tidemill pool start`: that goes on in a forked process");
        new_exception(py, "PoolClosed", (Errno::NOTCONN, message), (None, hint, None))
    })
}

type Details<'a> = (Option<String>, Option<&'a str>, Option<String>);

fn new_exception(py: Python<'_>, class: &str, (errno, message): (Errno, String), details: Details<'_>) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (path, hint, present) = details;
    let exception = MAKE
        .import(py, "tidemill.errors", "_make")
        .and_then(|make| make.call1((class, errno.raw_os_error(), message, path, hint, present)));
    exception.map_or_else(|error| error, PyErr::from_value)
}
