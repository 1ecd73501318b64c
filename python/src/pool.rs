//! The Python class of a pool. Each method takes plain values and returns the values described in
//! `results`, waited for or through a [`PendingCalls`](crate::asyncio_loop::PendingCalls).

use crate::{
    asyncio_loop::{PendingCallsArg, run_or_submit},
    buffer::pinned_bytes,
    errors::{self, CallError},
    file::File,
    open_pool::OpenPool,
    operations, reactor,
    results::CallResult,
    upload::Upload,
};
use base::{ByteSize, Problem};
use client::{Objects, objects::Condition};
use placement::{PlacementSpec, Policy, StripeSize};
use pool::PoolFile;
use pyo3::{
    exceptions::{PyOverflowError, PyTypeError},
    prelude::*,
    types::{PyBytes, PyString},
};
use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf, str::FromStr, sync::Arc, time::Duration};
use wire::OpenFlags;

/// A path in a pool: a string as Python's file functions take it, or bytes.
pub struct PyPath(Vec<u8>);

impl<'a, 'py> FromPyObject<'a, 'py> for PyPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(bytes.as_bytes().to_vec()));
        }
        if object.cast::<PyString>().is_ok() {
            return Ok(Self(object.extract::<OsString>()?.into_vec()));
        }
        let kind = object.get_type().name()?;
        Err(PyTypeError::new_err(format!("a path in a pool is str or bytes, not {kind}")))
    }
}

/// A length, an offset or a count; never negative.
#[derive(Debug, Clone, Copy)]
pub struct Count(pub u64);

impl<'a, 'py> FromPyObject<'a, 'py> for Count {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        object.extract().map(Self).map_err(|error| {
            if !error.is_instance_of::<PyOverflowError>(object.py()) {
                return error;
            }
            let problem = Problem::new(format!(
                "{}: lengths, places and limits are whole numbers from 0 to 2^64 - 1",
                object.to_owned()
            ));
            errors::invalid(
                &problem.hint("what is before the end of an object is a slice of its view: `pool.get(key)[-5:]`"),
            )
        })
    }
}

/// A pool that was connected to, or started in this process.
#[pyclass(frozen, module = "tidemill._native")]
pub struct Pool(Arc<OpenPool>);

/// The default pool file of this user: that of `tidemill pool start` without --pool.
#[pyfunction]
pub fn usual_pool() -> PyResult<PathBuf> {
    let directory = mount::RuntimeDir::of_user().map_err(|error| errors::invalid(&Problem::from(error)))?;
    Ok(directory.path().join(PoolFile::DEFAULT_NAME))
}

/// Connects to the pool of a pool file.
#[pyfunction]
pub fn connect(py: Python<'_>, path: PathBuf) -> PyResult<Pool> {
    let path = std::path::absolute(path)?;
    match reactor::connect(py, &path)? {
        Ok(client) => Ok(Pool(Arc::new(OpenPool::new(client, Some(path))))),
        Err(error) => Err(errors::connect_error(py, &path.to_string_lossy(), &error)),
    }
}

/// Starts a pool in this process.
#[pyfunction]
pub fn start(py: Python<'_>, memory: &str, space_wait: f64) -> PyResult<Pool> {
    let memory = ByteSize::from_str(memory).map_err(|why| errors::invalid(&Problem::new(why)))?;
    let space_wait = Duration::try_from_secs_f64(space_wait)
        .map_err(|_| errors::invalid(&Problem::new("space_wait is a number of seconds, 0 or more")))?;
    let client =
        py.detach(|| pool::embedded_client(memory, space_wait)).map_err(|problem| errors::invalid(&problem))?;
    Ok(Pool(Arc::new(OpenPool::new(client, None))))
}

/// The condition under which an object is put or deleted.
fn condition(if_absent: bool, if_version: Option<&str>) -> PyResult<Condition> {
    let Some(version) = if_version else {
        return Ok(if if_absent { Condition::Absent } else { Condition::Always });
    };
    version.parse().map(Condition::Is).map_err(|error| {
        let problem = Problem::new(format!("`{version}`: {error}")).hint("put, stat and views tell versions");
        errors::invalid(&problem)
    })
}

/// Objects with the given placement.
fn with_placement(objects: &Objects, placement: Option<&str>, stripe_size: Option<&str>) -> PyResult<Objects> {
    if placement.is_none() && stripe_size.is_none() {
        return Ok(objects.clone());
    }
    let refused =
        |text: &str, error: &dyn std::fmt::Display| errors::invalid(&Problem::new(format!("`{text}`: {error}")));
    let policy = placement.map(|text| Policy::from_str(text).map_err(|error| refused(text, &error)));
    let size = stripe_size.map(|text| StripeSize::from_str(text).map_err(|error| refused(text, &error)));
    let placement_spec = PlacementSpec { policy: policy.transpose()?, stripe_size: size.transpose()? };
    let into_py_err = |refusal| Python::attach(|py| CallError { path: Vec::new(), refusal }.into_py_err(py));
    objects.with_placement(placement_spec).map_err(into_py_err)
}

/// Name and value of an attribute.
type AttributePair = (Vec<u8>, Vec<u8>);

/// Objects that are put with these attributes.
fn with_attributes(objects: Objects, attributes: Vec<AttributePair>) -> Objects {
    if attributes.is_empty() {
        return objects;
    }
    objects.with_attributes(attributes.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
}

#[pymethods]
impl Pool {
    /// The pool file; None for a pool in this process.
    #[getter]
    fn file(&self) -> Option<PathBuf> {
        self.0.file.clone()
    }

    /// True if the pool was closed, or runs inside another process.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    /// (id, host, bytes of memory, slots) of each node, from the pool file.
    fn nodes(&self) -> PyResult<Vec<(u32, String, u64, u32)>> {
        let Some(path) = &self.0.file else { return Ok(Vec::new()) };
        let file = PoolFile::read(path).map_err(|problem| errors::invalid(&problem))?;
        Ok(file.nodes.into_iter().map(|node| (node.id, node.host, node.memory, node.slots)).collect())
    }

    /// Ends the session; a second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(session) = self.0.take_session() else { return Ok(()) };
        // Ignore a refusal: a node that does not answer ends the session by itself.
        reactor::block_on(py, async move { session.objects.close().await }).map(drop)
    }

    /// Gets the bytes of an object from `start` up to `stop`.
    #[pyo3(signature = (path, start = Count(0), stop = None, pending_calls = None))]
    fn get(
        &self,
        py: Python<'_>,
        path: PyPath,
        start: Count,
        stop: Option<Count>,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::get(self.0.session()?, (path.0, start.0, stop.map(|stop| stop.0))))
    }

    /// Gets an object and the description of its array: (view, dtype or None, shape or None).
    #[pyo3(signature = (path, pending_calls = None))]
    fn get_described(&self, py: Python<'_>, path: PyPath, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::get_described(self.0.session()?, path.0))
    }

    /// Gets many ranges: a list of views, with an exception in place of each that failed.
    #[pyo3(signature = (ranges, pending_calls = None))]
    fn get_many(
        &self,
        py: Python<'_>,
        ranges: Vec<(PyPath, Count, Option<Count>)>,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        let ranges = ranges.into_iter().map(|(path, start, stop)| (path.0, start.0, stop.map(|stop| stop.0))).collect();
        run_or_submit(py, pending_calls, operations::get_many(self.0.session()?, ranges))
    }

    /// Puts an object; returns its version.
    #[pyo3(signature = (path, data, if_absent = false, if_version = None, placement = None, stripe_size = None, attributes = Vec::new(), pending_calls = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword")]
    fn put(
        &self,
        py: Python<'_>,
        path: PyPath,
        data: &Bound<'_, PyAny>,
        if_absent: bool,
        if_version: Option<&str>,
        placement: Option<&str>,
        stripe_size: Option<&str>,
        attributes: Vec<AttributePair>,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        let objects = with_attributes(with_placement(&self.0.session()?.objects, placement, stripe_size)?, attributes);
        let (condition, data) = (condition(if_absent, if_version)?, pinned_bytes(data)?);
        run_or_submit(py, pending_calls, operations::put(objects, path.0, data, condition))
    }

    /// Puts many objects: a list of versions, with an exception in place of each that failed.
    #[pyo3(signature = (puts, placement = None, stripe_size = None, pending_calls = None))]
    fn put_many(
        &self,
        py: Python<'_>,
        puts: Vec<(PyPath, Bound<'_, PyAny>, Vec<AttributePair>)>,
        placement: Option<&str>,
        stripe_size: Option<&str>,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        let objects = with_placement(&self.0.session()?.objects, placement, stripe_size)?;
        let puts = puts.into_iter().map(|(path, data, attributes)| {
            Ok((with_attributes(objects.clone(), attributes), path.0, pinned_bytes(&data)?))
        });
        run_or_submit(py, pending_calls, operations::put_many(puts.collect::<PyResult<_>>()?))
    }

    /// Starts an upload: an object whose bytes come later, and which is invisible until it is
    /// complete.
    #[pyo3(signature = (path, if_absent = false, if_version = None, placement = None, stripe_size = None, pending_calls = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword")]
    fn upload(
        &self,
        py: Python<'_>,
        path: PyPath,
        if_absent: bool,
        if_version: Option<&str>,
        placement: Option<&str>,
        stripe_size: Option<&str>,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        let objects = with_placement(&self.0.session()?.objects, placement, stripe_size)?;
        let (condition, pool, path) = (condition(if_absent, if_version)?, self.0.clone(), path.0);
        run_or_submit(py, pending_calls, async move {
            match objects.upload(operations::key_of(&path), condition).await {
                Ok(upload) => Ok(CallResult::Upload(Upload::new(pool, (path, condition), upload))),
                Err(refusal) => Err(CallError { path, refusal }),
            }
        })
    }

    /// Creates an empty file, or sets the time of an existing one to now.
    #[pyo3(signature = (path, pending_calls = None))]
    fn touch(&self, py: Python<'_>, path: PyPath, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::touch(self.0.session()?, path.0))
    }

    /// Deletes an object.
    #[pyo3(signature = (path, if_version = None, pending_calls = None))]
    fn delete(
        &self,
        py: Python<'_>,
        path: PyPath,
        if_version: Option<&str>,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::delete(self.0.session()?, path.0, condition(false, if_version)?))
    }

    /// Deletes many objects: a list of None, with an exception in place of each that failed.
    #[pyo3(signature = (paths, pending_calls = None))]
    fn delete_many(
        &self,
        py: Python<'_>,
        paths: Vec<PyPath>,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        run_or_submit(
            py,
            pending_calls,
            operations::delete_many(self.0.session()?, paths.into_iter().map(|path| path.0).collect()),
        )
    }

    /// The attributes of a path.
    #[pyo3(signature = (path, pending_calls = None))]
    fn stat(&self, py: Python<'_>, path: PyPath, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::stat(self.0.session()?, path.0))
    }

    /// Lists keys: (keys, directories, key to continue after).
    #[pyo3(signature = (prefix, after, by_folder, limit, pending_calls = None))]
    fn list(
        &self,
        py: Python<'_>,
        prefix: PyPath,
        after: PyPath,
        by_folder: bool,
        limit: Option<Count>,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        run_or_submit(
            py,
            pending_calls,
            operations::list(self.0.session()?, prefix.0, after.0, by_folder, limit.map(|limit| limit.0)),
        )
    }

    /// Lists a directory: (name, attributes) of each entry.
    #[pyo3(signature = (path, pending_calls = None))]
    fn entries(&self, py: Python<'_>, path: PyPath, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::entries(self.0.session()?, path.0))
    }

    /// The nodes that hold a path's bytes, or would hold them.
    #[pyo3(signature = (path, pending_calls = None))]
    fn locate(&self, py: Python<'_>, path: PyPath, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::locate(self.0.session()?, path.0))
    }

    /// (node, capacity, used, files, reason if it does not answer) of each node.
    #[pyo3(signature = (pending_calls = None))]
    fn usage(&self, py: Python<'_>, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::usage(self.0.session()?))
    }

    /// Makes a directory, and those above it.
    #[pyo3(signature = (path, exclusive = false, pending_calls = None))]
    fn make_folder(
        &self,
        py: Python<'_>,
        path: PyPath,
        exclusive: bool,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::make_folder(self.0.session()?, path.0, exclusive))
    }

    /// Removes an empty directory.
    #[pyo3(signature = (path, pending_calls = None))]
    fn remove_folder(&self, py: Python<'_>, path: PyPath, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::remove_folder(self.0.session()?, path.0))
    }

    /// Removes a file, or a directory with all its content.
    #[pyo3(signature = (path, pending_calls = None))]
    fn delete_tree(&self, py: Python<'_>, path: PyPath, pending_calls: PendingCallsArg<'_>) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::delete_tree(self.0.session()?, path.0))
    }

    /// Renames a file or directory.
    #[pyo3(signature = (path, to, pending_calls = None))]
    fn rename(
        &self,
        py: Python<'_>,
        path: PyPath,
        to: PyPath,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::rename(self.0.session()?, path.0, to.0))
    }

    /// Copies a file; returns the version of the copy.
    #[pyo3(signature = (path, to, pending_calls = None))]
    fn copy(
        &self,
        py: Python<'_>,
        path: PyPath,
        to: PyPath,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        run_or_submit(py, pending_calls, operations::copy(self.0.session()?, path.0, to.0))
    }

    /// Opens a file. `flags` are letters: r(ead), w(rite), a(ppend), t(runcate), c(reate), x (must
    /// not exist).
    #[pyo3(signature = (path, flags, pending_calls = None))]
    fn open(
        &self,
        py: Python<'_>,
        path: PyPath,
        flags: &str,
        pending_calls: PendingCallsArg<'_>,
    ) -> PyResult<Py<PyAny>> {
        let has = |letter| flags.contains(letter);
        let (path, create): (Arc<[u8]>, bool) = (path.0.into(), has('c') || has('x'));
        let flags = OpenFlags {
            read: has('r'),
            write: has('w') || has('a'),
            append: has('a'),
            truncate: has('t'),
            exclusive: has('x'),
            ..OpenFlags::default()
        };
        let (session, pool) = (self.0.session()?, self.0.clone());
        run_or_submit(py, pending_calls, async move {
            match operations::open(&session, &path, flags, create).await {
                Ok(opened) => Ok(CallResult::File(File::new(pool, path, opened))),
                Err(refusal) => Err(CallError { path: path.to_vec(), refusal }),
            }
        })
    }
}
