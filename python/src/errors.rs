//! What is raised: the one table from refusals to the exceptions of `tidemill.errors`.

use base::Problem;
use pyo3::{prelude::*, sync::PyOnceLock};
use rustix::io::Errno;
use std::io;
use wire::{Object, Refusal, Version};

/// What was asked for did not come about, and of which path.
#[derive(Debug)]
pub struct Failed {
    pub path: Vec<u8>,
    pub refusal: Refusal,
}

const ANSWERS: &str = "`tidemill pool status` shows which nodes answer; what the others hold is there";

/// One line for each, so that a test sees that none is missing: the class, its errno, and what to do where the message does not say it.
#[expect(clippy::match_same_arms, reason = "what is told of an engine, and what is told of what is not known yet")]
fn meaning(refusal: &Refusal) -> (&'static str, Errno, Option<&'static str>) {
    let plain = |errno| ("TidemillError", errno, None);
    match refusal {
        Refusal::NotFound(_) => ("NotFound", Errno::NOENT, None),
        Refusal::Exists(_) => ("Exists", Errno::EXIST, None),
        Refusal::NotDirectory(_) => ("NotAFolder", Errno::NOTDIR, None),
        Refusal::IsDirectory(_) => ("IsAFolder", Errno::ISDIR, None),
        Refusal::NotEmpty(_) => {
            ("TidemillError", Errno::NOTEMPTY, Some("delete_tree removes a folder with what is in it"))
        }
        Refusal::NameTooLong(_) => ("Invalid", Errno::NAMETOOLONG, None),
        Refusal::Invalid { .. } => ("Invalid", Errno::INVAL, None),
        Refusal::NotPermitted(_) => ("Denied", Errno::PERM, None),
        Refusal::ReadOnly(_) => ("Denied", Errno::ROFS, None),
        Refusal::NoSpace(_) => ("NoSpace", Errno::NOSPC, None),
        Refusal::Changed { .. } => ("VersionDiffers", Errno::CANCELED, None),
        Refusal::Unavailable { .. } => ("Unavailable", Errno::NOTCONN, Some(ANSWERS)),
        Refusal::MaybeDone(_) => ("Unavailable", Errno::CONNRESET, Some(ANSWERS)),
        Refusal::Ended => ("Unavailable", Errno::STALE, Some("open the file again")),
        Refusal::TimedOut(_) => ("Unavailable", Errno::TIMEDOUT, Some(ANSWERS)),
        Refusal::TooLarge { .. } => plain(Errno::FBIG),
        Refusal::BadHandle(_) => plain(Errno::BADF),
        Refusal::TooManyOpen { .. } => plain(Errno::NFILE),
        Refusal::TooManyLinks { .. } => plain(Errno::MLINK),
        Refusal::Busy(_) | Refusal::Placed(_) | Refusal::Held { .. } | Refusal::Split { .. } => plain(Errno::BUSY),
        Refusal::Stale(_) => plain(Errno::STALE),
        Refusal::CrossesPools => plain(Errno::XDEV),
        Refusal::NoAttribute(_) => plain(Errno::NODATA),
        Refusal::AttributeTooLong { .. } => plain(Errno::TOOBIG),
        Refusal::TooManyAttributes(_) => plain(Errno::NOSPC),
        Refusal::Locked(_) => plain(Errno::AGAIN),
        Refusal::Deadlock(_) => plain(Errno::DEADLK),
        Refusal::TooManyLocks { .. } => plain(Errno::NOLCK),
        Refusal::BeyondEnd(_) => plain(Errno::NXIO),
        Refusal::Interrupted(_) => plain(Errno::INTR),
        Refusal::Unsupported { .. } => plain(Errno::OPNOTSUPP),
        Refusal::Io { .. } => plain(Errno::IO),
        // What a later version adds.
        _ => plain(Errno::IO),
    }
}

/// The same refusal of the path that was asked for, where it names an entry or an inode that this led to.
fn about(path: &[u8], refusal: Refusal) -> Refusal {
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

impl Failed {
    /// As an exception.
    pub fn raise(self, py: Python<'_>) -> PyErr {
        let refusal = about(&self.path, self.refusal);
        let (class, errno, hint) = meaning(&refusal);
        let present = match &refusal {
            Refusal::Changed { present, .. } => present.as_ref().map(Version::to_string),
            _ => None,
        };
        let path = String::from_utf8_lossy(&self.path).into_owned();
        make(py, class, (errno, refusal.to_string()), (Some(path), hint, present))
    }
}

/// What is wrong with a pool file, or with the way to its nodes.
pub fn no_pool(py: Python<'_>, path: &str, problem: &Problem, opened: &io::Result<()>) -> PyErr {
    let (class, errno) = match opened.as_ref().map_err(io::Error::kind) {
        Ok(()) => ("Unavailable", Errno::NOTCONN),
        Err(io::ErrorKind::NotFound) => ("NotFound", Errno::NOENT),
        Err(io::ErrorKind::PermissionDenied) => ("Denied", Errno::ACCESS),
        Err(_) => ("TidemillError", Errno::IO),
    };
    make(py, class, (errno, problem.message.clone()), (Some(path.to_owned()), problem.hint.as_deref(), None))
}

/// A problem with arguments.
pub fn invalid(problem: &Problem) -> PyErr {
    let (message, hint) = (problem.message.clone(), problem.hint.as_deref());
    Python::attach(|py| make(py, "Invalid", (Errno::INVAL, message), (None, hint, None)))
}

/// The pool was closed.
pub fn closed() -> PyErr {
    Python::attach(|py| {
        let hint = Some("connect again; what views show stays");
        make(py, "PoolClosed", (Errno::NOTCONN, "the pool was closed".into()), (None, hint, None))
    })
}

/// It is another process's.
pub fn of_another_process() -> PyErr {
    Python::attach(|py| {
        let message = "the pool was started inside the process that this one was forked from".into();
        let hint = Some("connect to one of `tidemill pool start`: that goes on in a forked process");
        make(py, "PoolClosed", (Errno::NOTCONN, message), (None, hint, None))
    })
}

type Details<'a> = (Option<String>, Option<&'a str>, Option<String>);

fn make(py: Python<'_>, class: &str, (errno, message): (Errno, String), details: Details<'_>) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (path, hint, present) = details;
    let made = MAKE
        .import(py, "tidemill.errors", "_make")
        .and_then(|make| make.call1((class, errno.raw_os_error(), message, path, hint, present)));
    made.map_or_else(|error| error, PyErr::from_value)
}
