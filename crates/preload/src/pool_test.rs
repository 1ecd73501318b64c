//! Pool of the tests: a node in the memory of the test program. The functions of this crate replace
//! those of the C library in that program too, so `libc` and `std::fs` reach the pool below the
//! prefix, as in any program under the preload library.

use crate::call::{errno, run};
use base::ByteSize;
use pool::{LocalEndpoint, embedded_node};
use rustix::io::Errno;
use std::ffi::{CString, c_int};
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use tempfile::TempDir;

/// Directory of the node's socket and pool file, removed at the program's end.
static HOST_DIR: OnceLock<PathBuf> = OnceLock::new();

/// Pool that is served as long as the program runs.
struct TestPool {
    _endpoint: LocalEndpoint,
    has_extents: bool,
}

/// Starts the pool, and connects this program to it, once.
fn pool() -> &'static TestPool {
    static POOL: OnceLock<TestPool> = OnceLock::new();
    extern "C" fn remove_folder() {
        let _ = HOST_DIR.get().map(fs::remove_dir_all);
    }
    POOL.get_or_init(|| {
        let test_dir = HOST_DIR.get_or_init(|| tempfile::tempdir().unwrap().keep());
        let node = embedded_node(ByteSize::mib(64), Duration::ZERO).unwrap();
        let endpoint = LocalEndpoint::open(&node, test_dir).unwrap();
        // SAFETY: tests that read the environment get here first, or take their turn.
        unsafe { std::env::set_var("TIDEMILL_POOL", endpoint.file()) };
        // SAFETY: the handler only removes files.
        unsafe { libc::atexit(remove_folder) };
        run(|_| Ok(())).unwrap();
        TestPool { _endpoint: endpoint, has_extents: node.supports_extent_files() }
    })
}

/// Starts the pool for a test that needs nothing else of this module.
pub fn start_pool() {
    pool();
}

/// Returns whether new files outside [`Place::Striped`] are local.
pub fn has_extents() -> bool {
    pool().has_extents
}

/// Keeps out other tests that change what the whole program shares: its working directory,
/// environment, signals or limits.
pub fn exclusive_test() -> MutexGuard<'static, ()> {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    pool();
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held shared while there are children, which have copies of this program's descriptors.
static CHILDREN: RwLock<()> = RwLock::new(());
/// True in a child process, whose copy of the lock has no other holders.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Announces a child until the guard is dropped.
pub fn with_children() -> Option<RwLockReadGuard<'static, ()>> {
    (!IS_CHILD.load(Ordering::Relaxed)).then(|| CHILDREN.read().unwrap_or_else(PoisonError::into_inner))
}

/// Waits until there are no children, for a test in which a close must be the last one.
pub fn without_children() -> RwLockWriteGuard<'static, ()> {
    CHILDREN.write().unwrap_or_else(PoisonError::into_inner)
}

/// Directory of a tmpfs, whose limits are those of the pool.
const TMPFS: &str = "/dev/shm";

/// File system in which a test works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Temporary directory of this host: the C library's own functions run.
    Host,
    /// Directory of the pool whose files are local, if this user may have extents.
    Local,
    /// Directory of the pool whose files have placeholder descriptors.
    Striped,
}

/// Empty directory of one test.
pub struct TestDir {
    pub place: Place,
    path: PathBuf,
    _host: Option<TempDir>,
}

impl TestDir {
    pub fn new(place: Place) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        pool();
        if place == Place::Host {
            let host = tempfile::tempdir_in(if fs::exists(TMPFS).unwrap() { TMPFS } else { "/tmp" }).unwrap();
            return Self { place, path: host.path().to_owned(), _host: Some(host) };
        }
        let path = PathBuf::from(format!("/tidemill/{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&path).unwrap();
        if place == Place::Striped {
            let (name, value) = (c"user.tidemill.placement", b"striped");
            let path = c_path(&path);
            // SAFETY: nul-terminated strings, and a value of the given length.
            let set = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
            assert_eq!(answer(set), Ok(0));
        }
        Self { place, path, _host: None }
    }

    /// Path of the directory.
    pub fn root(&self) -> &Path {
        &self.path
    }

    /// Path of a name in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Path of a name in the directory, for C.
    pub fn c(&self, name: &str) -> CString {
        c_path(&self.path(name))
    }

    /// Text with the directory's own path replaced by `.`, so that places can be compared.
    pub fn without_root(&self, text: &str) -> String {
        text.replace(self.path.to_str().unwrap(), ".")
    }

    /// New file with these bytes, open for reading and writing at offset 0.
    pub fn file(&self, name: &str, bytes: &[u8]) -> File {
        fs::write(self.path(name), bytes).unwrap();
        OpenOptions::new().read(true).write(true).open(self.path(name)).unwrap()
    }

    /// Bytes of a file.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        if self.place != Place::Host {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).unwrap()
}

/// Runs the same story on the host and in the pool, and asserts that all end in the same way.
#[track_caller]
pub fn same_everywhere<T: std::fmt::Debug + PartialEq>(scenario: impl Fn(&TestDir) -> T) {
    let host = scenario(&TestDir::new(Place::Host));
    for place in [Place::Local, Place::Striped] {
        assert_eq!(scenario(&TestDir::new(place)), host, "{place:?} and the host");
    }
}

/// Result of a C function that returns a negative number with `errno` set.
pub fn answer<N: TryInto<i64>>(number: N) -> Result<i64, Errno> {
    let why = errno();
    match number.try_into().ok().unwrap() {
        number if number < 0 => Err(why.unwrap()),
        number => Ok(number),
    }
}

/// Error number of an operation of the standard library.
pub fn why<T>(outcome: io::Result<T>) -> Result<T, Errno> {
    outcome.map_err(|error| Errno::from_raw_os_error(error.raw_os_error().unwrap()))
}

/// Length and hash of long bytes, which are compared without being shown.
pub fn digest(bytes: &[u8]) -> (usize, u64) {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    (bytes.len(), hasher.finish())
}

/// Number of a file's descriptor.
pub fn number(file: &File) -> c_int {
    file.as_raw_fd()
}

/// Runs a story in a child process, and returns what it tells. The child has a copy of this thread
/// alone, so it may change what the whole program shares.
pub fn in_child(scenario: impl FnOnce() -> String) -> String {
    let _children = with_children();
    let (mut reads, mut writes) = io::pipe().unwrap();
    // SAFETY: the child only runs the story, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        IS_CHILD.store(true, Ordering::Relaxed);
        let output = catch_unwind(AssertUnwindSafe(scenario)).unwrap_or_else(|_| "panicked".to_owned());
        let _ = writes.write_all(output.as_bytes());
        // SAFETY: ends the child without running the handlers of its parent.
        unsafe { libc::_exit(0) };
    }
    drop(writes);
    let mut output = String::new();
    reads.read_to_string(&mut output).unwrap();
    // SAFETY: waits for the child, without its status.
    assert_eq!(unsafe { libc::waitpid(child, null_mut(), 0) }, child);
    assert_ne!(output, "panicked");
    output
}

#[test]
fn files_of_the_places_have_the_kinds_of_descriptors_that_the_tests_need() {
    use crate::classify::{FdKind, kind};
    let local = if has_extents() { FdKind::Local } else { FdKind::Remote };
    for (place, wanted) in [(Place::Host, None), (Place::Local, Some(local)), (Place::Striped, Some(FdKind::Remote))] {
        let test_dir = TestDir::new(place);
        assert_eq!(kind(number(&test_dir.file("f", b"bytes"))), wanted, "{place:?}");
        assert_eq!(test_dir.bytes("f"), b"bytes", "{place:?}");
    }
}
