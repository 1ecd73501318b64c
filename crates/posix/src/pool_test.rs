//! Pool in memory with a process on it, for the tests of this crate.

use crate::{Errno, FdKind, OpenOutcome, PathArg, PathBase, PathOperand, PosixProcess, XattrTarget};
use base::ByteSize;
use pool::LocalEndpoint;
use rustix::fs::{OFlags, XattrFlags};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// Prefix of the pool's paths in the tests.
pub const PREFIX: &[u8] = b"/tidemill";
/// Flags that create a file and open it for reading and writing.
pub const CREATE: OFlags = OFlags::CREATE.union(OFlags::RDWR);

/// Pool with one process. It ends with this value.
pub struct TestPool {
    pub process: PosixProcess,
    endpoint: LocalEndpoint,
    /// Directory of the host, for files outside the pool.
    pub host: tempfile::TempDir,
}

impl TestPool {
    pub fn start() -> Self {
        let host = tempfile::tempdir().unwrap();
        let node = pool::embedded_node(ByteSize::mib(32), Duration::ZERO).unwrap();
        let endpoint = LocalEndpoint::open(&node, host.path()).unwrap();
        let process = connect(&endpoint, None);
        Self { process, endpoint, host }
    }

    /// Starts another process on the same pool, in this working directory.
    pub fn another(&self, cwd: Option<&[u8]>) -> PosixProcess {
        connect(&self.endpoint, cwd)
    }

    /// Opens a file of the pool, with mode `0666` if it is new.
    pub fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.open_kind(path, flags).map(|(descriptor, _)| descriptor)
    }

    pub fn open_kind(&self, path: &str, flags: OFlags) -> Result<(OwnedFd, FdKind), Errno> {
        match self.process.open(at(path), flags, 0o666)? {
            OpenOutcome::Pool(descriptor, kind) => Ok((descriptor, kind)),
            OpenOutcome::Host(path) => panic!("{path:?} is of the host"),
        }
    }

    /// Makes a file with these bytes.
    pub fn make(&self, path: &str, bytes: &[u8]) {
        let descriptor = self.open(path, CREATE | OFlags::TRUNC).unwrap();
        assert_eq!(self.process.write_any(descriptor.as_fd(), bytes, None), Ok(bytes.len()));
        self.close(descriptor);
    }

    /// Reads a whole file of up to 64 KiB.
    pub fn text(&self, path: &str) -> Vec<u8> {
        let descriptor = self.open(path, OFlags::RDONLY).unwrap();
        let mut bytes = vec![0; 64 << 10];
        let length = self.process.read_any(descriptor.as_fd(), &mut bytes, None).unwrap();
        self.close(descriptor);
        bytes.truncate(length);
        bytes
    }

    pub fn close(&self, descriptor: OwnedFd) {
        let removed = self.process.remove(descriptor.as_raw_fd()).unwrap();
        drop(descriptor);
        self.process.release(&removed).unwrap();
    }

    pub fn mkdir(&self, path: &str) {
        self.process.mkdir(at(path), 0o755).unwrap();
    }

    /// Makes a directory whose files have placeholder descriptors: they are striped.
    pub fn mkdir_striped(&self, path: &str) {
        self.mkdir(path);
        let target = XattrTarget::Path { arg: at(path), follow: true };
        self.process.set_xattr(target, b"user.tidemill.placement", b"striped", XattrFlags::empty()).unwrap();
    }

    pub fn symlink(&self, target: &str, path: &str) {
        self.process.symlink(target.as_bytes(), at(path)).unwrap();
    }

    /// Makes a file of the host and a symlink of the pool to it.
    pub fn symlink_to_host(&self, path: &str, bytes: &[u8]) -> PathBuf {
        let file = self.host.path().join(path);
        std::fs::write(&file, bytes).unwrap();
        self.symlink(file.to_str().unwrap(), path);
        file
    }
}

fn connect(endpoint: &LocalEndpoint, cwd: Option<&[u8]>) -> PosixProcess {
    PosixProcess::connect(endpoint.file().as_os_str().as_bytes(), PREFIX, cwd).unwrap()
}

/// Path from the pool's root.
pub fn at(path: &str) -> PathArg<'_> {
    PathArg { base: PathBase::Root, path: path.as_bytes() }
}

/// Open file itself, for calls with `EMPTY_PATH`.
pub fn of(descriptor: &OwnedFd) -> PathArg<'_> {
    PathArg { base: PathBase::Descriptor(descriptor.as_fd()), path: b"" }
}

/// Operand of a call with two paths.
pub fn operand(path: &str) -> PathOperand<'_> {
    PathOperand::Pool(at(path))
}

/// Runs a test in a thread without capabilities, so that permissions are checked also for root.
pub fn without_capabilities<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    let unprivileged = || {
        let sets = capabilities(None).unwrap();
        set_capabilities(None, rustix::thread::CapabilitySets { effective: CapabilitySet::empty(), ..sets }).unwrap();
        test()
    };
    std::thread::scope(|scope| scope.spawn(unprivileged).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs a test twice: with the capabilities of the test's user, and without any.
pub fn with_and_without_capabilities(test: impl Fn() + Send + Sync) {
    test();
    without_capabilities(test);
}
