//! Results of calls, converted to Python: views, and tuples of plain values that
//! `tidemill/_values.py` gives names.

use crate::{errors::CallError, file::File, upload::Upload, view::View};
use bytes::Bytes;
use client::objects::ListPage;
use placement::NodeId;
use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyBytes, PyList, PyTuple},
};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use vfs::PathLocation;
use wire::{Attributes, Kind, ObjectMeta, Outcome, SpaceUsage, Timestamp, Version};

/// Outcome of a call.
pub type CallOutcome = Result<CallResult, CallError>;

/// Result of a call.
pub enum CallResult {
    Unit,
    Count(u64),
    View(ViewBytes),
    /// A view, with the values of the attributes that were requested.
    ViewWith(ViewBytes, Vec<Option<Bytes>>),
    Views(Vec<Result<ViewBytes, CallError>>),
    Version(Version),
    Versions(Vec<Result<Version, CallError>>),
    Units(Vec<Result<(), CallError>>),
    Stat(Attributes),
    Entries(Vec<(Vec<u8>, Attributes)>),
    Page(ListPage),
    Location(PathLocation),
    Usages(Vec<(NodeId, Outcome<SpaceUsage>)>),
    File(File),
    Upload(Upload),
}

/// Bytes that become a view.
pub struct ViewBytes {
    pub bytes: Bytes,
    pub head: Option<ObjectMeta>,
    pub copied: bool,
}

impl CallResult {
    pub fn into_py(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Unit => Ok(py.None()),
            Self::Count(count) => count.into_py_any(py),
            Self::View(view) => view.into_py(py),
            Self::ViewWith(view, attributes) => {
                let attributes = attributes.into_iter().map(|value| match value {
                    Some(value) => PyBytes::new(py, &value).into_py_any(py),
                    None => Ok(py.None()),
                });
                let parts = std::iter::once(view.into_py(py)).chain(attributes).collect::<PyResult<Vec<_>>>()?;
                PyTuple::new(py, parts)?.into_py_any(py)
            }
            Self::Views(views) => list_of(py, views, |view| view.into_py(py)),
            Self::Version(version) => version.to_string().into_py_any(py),
            Self::Versions(versions) => list_of(py, versions, |version| version.to_string().into_py_any(py)),
            Self::Units(done) => list_of(py, done, |()| Ok(py.None())),
            Self::Stat(attributes) => stat_into_py(py, &attributes),
            Self::Entries(entries) => {
                let named = |(name, attributes): (Vec<u8>, Attributes)| {
                    (text(name), stat_into_py(py, &attributes)?).into_py_any(py)
                };
                entries.into_iter().map(named).collect::<PyResult<Vec<_>>>()?.into_py_any(py)
            }
            Self::Page(ListPage { keys, directories, next }) => {
                let texts = |names: Vec<Vec<u8>>| names.into_iter().map(text).collect::<Vec<_>>();
                (texts(keys), texts(directories), next.map(text)).into_py_any(py)
            }
            Self::Location(location) => location_into_py(py, location),
            Self::Usages(usages) => {
                let usage = |(node, usage): (NodeId, Outcome<SpaceUsage>)| match usage {
                    Ok(SpaceUsage { capacity, used, files, .. }) => (node.0, capacity, used, files, None::<String>),
                    Err(refusal) => (node.0, 0, 0, 0, Some(refusal.to_string())),
                };
                usages.into_iter().map(usage).collect::<Vec<_>>().into_py_any(py)
            }
            Self::File(file) => Py::new(py, file)?.into_py_any(py),
            Self::Upload(upload) => Py::new(py, upload)?.into_py_any(py),
        }
    }
}

impl ViewBytes {
    fn into_py(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Py::new(py, View::new(self.bytes, self.head, self.copied))?.into_py_any(py)
    }
}

/// Makes a list; a failure is an element of it, as an exception that is not raised.
fn list_of<T>(
    py: Python<'_>,
    outcomes: Vec<Result<T, CallError>>,
    convert: impl Fn(T) -> PyResult<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let view = outcomes.into_iter().map(|outcome| match outcome {
        Ok(value) => convert(value),
        Err(error) => Ok(error.into_py_err(py).into_value(py).into_any()),
    });
    let view = view.collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, view)?.into_py_any(py)
}

/// A name as Python's file functions return it: bytes that are not UTF-8 become surrogates.
fn text(name: Vec<u8>) -> OsString {
    OsString::from_vec(name)
}

/// (kind, size, version, (modified, changed, created), mode, (uid, gid), links, allocated); times
/// in ns since 1970.
fn stat_into_py(py: Python<'_>, found: &Attributes) -> PyResult<Py<PyAny>> {
    let time = |at: Timestamp| i128::from(at.secs) * 1_000_000_000 + i128::from(at.nanos);
    let times = (time(found.modified), time(found.changed), time(found.created));
    (
        kind(found.kind),
        found.size,
        ObjectMeta::from(found).version.to_string(),
        times,
        found.mode,
        (found.owner.uid, found.owner.gid),
        found.links,
        found.allocated,
    )
        .into_py_any(py)
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "folder",
        Kind::Symlink => "link",
        Kind::Fifo => "pipe",
        Kind::Socket => "socket",
        Kind::CharDevice(_) | Kind::BlockDevice(_) => "device",
        _ => "other",
    }
}

/// (exists, inode's node, policy, [(node, bytes or share)], [(start, stop, node)])
fn location_into_py(py: Python<'_>, location: PathLocation) -> PyResult<Py<PyAny>> {
    match location {
        PathLocation::Existing(location) => {
            let shares: Vec<_> = location.shares().into_iter().map(|(node, bytes)| (node.0, bytes)).collect();
            let ranges = location.bytes.into_iter().map(|(range, node)| (range.start, range.end, node.0));
            (true, Some(location.inode.0), None::<String>, shares, ranges.collect::<Vec<_>>()).into_py_any(py)
        }
        PathLocation::Expected(expected) => {
            let shares: Vec<_> = expected.nodes.into_iter().map(|(node, share)| (node.0, share)).collect();
            let inode = expected.inode.map(|node| node.0);
            let policy = Some(expected.policy.to_string());
            (false, inode, policy, shares, Vec::<(u64, u64, u32)>::new()).into_py_any(py)
        }
    }
}
