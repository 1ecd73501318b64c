//! Decides whether a path or descriptor argument belongs to the pool. Every call asks, so the
//! answer takes no allocation and no lock, and at most the system call that checks the path's
//! pointer.
//!
//! A path belongs to the pool if its text leads below the prefix, or if it is relative to a
//! directory of the pool. A descriptor belongs to the pool if this library opened it or found it at
//! the start of the process. The kernel keeps the descriptor itself: a wrong answer costs a lookup,
//! and never leads to other bytes.

pub use posix::FdKind;
use std::ffi::{c_char, c_int};
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

/// Number of descriptors that can be recorded: the kernel's default limit (`fs.nr_open`).
pub const DESCRIPTORS_MAX: usize = 1 << 20;

/// Default prefix of the pool.
pub const PREFIX: &[u8] = b"/tidemill";

static PREFIX_SET: OnceLock<&'static [u8]> = OnceLock::new();
/// True if the working directory is in the pool, so that relative paths are of the pool.
static CWD_IN_POOL: AtomicBool = AtomicBool::new(false);
/// Kind of each descriptor: 0 for none of the pool, else a [`FdKind`] or an inherited one.
/// Untouched pages take no memory.
static KINDS: [AtomicU8; DESCRIPTORS_MAX] = [const { AtomicU8::new(0) }; DESCRIPTORS_MAX];

/// Highest descriptor ever recorded.
static HIGHEST: AtomicI32 = AtomicI32::new(0);

/// Path argument that belongs to the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolPath<'a> {
    /// Path below the prefix: the rest after the prefix, perhaps empty.
    Root(&'a [u8]),
    /// Path relative to the working directory, which is in the pool.
    Cwd(&'a [u8]),
    /// File that is open as this descriptor, by the system's name of it (`/proc/self/fd/N`), and
    /// the rest of the path.
    Magic(c_int, &'a [u8]),
    /// Path relative to this descriptor: a directory or, with an empty path, any file of the pool.
    At(c_int, &'a [u8]),
}

/// Sets the prefix of the pool. Only the first call counts.
pub fn set_prefix(prefix: &'static [u8]) {
    // A second call would set the same value, from the environment.
    let _ = PREFIX_SET.set(prefix);
}

/// Returns the prefix of the pool.
pub fn prefix() -> &'static [u8] {
    PREFIX_SET.get().copied().unwrap_or(PREFIX)
}

/// Records whether the working directory is in the pool.
pub fn set_cwd_in_pool(inside: bool) {
    CWD_IN_POOL.store(inside, Ordering::Relaxed);
}

/// Records the kind of a descriptor; `None` if it is no longer of the pool.
pub fn record(descriptor: c_int, kind: Option<FdKind>) {
    if let Some(known) = usize::try_from(descriptor).ok().and_then(|at| KINDS.get(at)) {
        let number = match kind {
            None => 0,
            Some(FdKind::Local) => 1,
            Some(FdKind::Remote) => 2,
            Some(FdKind::Directory) => 3,
            Some(FdKind::Path) => 6,
        };
        known.store(number, Ordering::Relaxed);
        HIGHEST.fetch_max(descriptor, Ordering::Relaxed);
    }
}

/// Returns whether the working directory is in the pool.
pub fn is_cwd_in_pool() -> bool {
    CWD_IN_POOL.load(Ordering::Relaxed)
}

/// Returns the kind of a descriptor of the pool. Checks that the kernel's descriptor is still the
/// recorded one.
pub fn kind(descriptor: c_int) -> Option<FdKind> {
    let known = match fd_info(descriptor)? {
        FdInfo::Known(kind) => crate::start::is_recorded(borrow(descriptor)).then_some(kind),
        FdInfo::Inherited { .. } => crate::inherited_fds::identify(descriptor),
    };
    if known.is_none() || known.map(FdInfo::Known) != fd_info(descriptor) {
        record(descriptor, known);
    }
    known
}

/// Record of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FdInfo {
    /// Opened here, or identified by a node.
    Known(FdKind),
    /// Inherited, and not yet identified.
    Inherited {
        /// True if it is a placeholder for a file.
        remote: bool,
    },
}

fn fd_info(descriptor: c_int) -> Option<FdInfo> {
    Some(match KINDS.get(usize::try_from(descriptor).ok()?)?.load(Ordering::Relaxed) {
        1 => FdInfo::Known(FdKind::Local),
        2 => FdInfo::Known(FdKind::Remote),
        3 => FdInfo::Known(FdKind::Directory),
        6 => FdInfo::Known(FdKind::Path),
        4 => FdInfo::Inherited { remote: false },
        5 => FdInfo::Inherited { remote: true },
        _ => return None,
    })
}

/// Records an inherited descriptor.
pub fn record_inherited(descriptor: c_int, remote: bool) {
    if let Some(known) = usize::try_from(descriptor).ok().and_then(|at| KINDS.get(at)) {
        known.store(if remote { 5 } else { 4 }, Ordering::Relaxed);
        HIGHEST.fetch_max(descriptor, Ordering::Relaxed);
    }
}

/// Returns whether a descriptor is recorded, so that it may be of the pool.
pub fn is_recorded(descriptor: c_int) -> bool {
    fd_info(descriptor).is_some()
}

/// Returns whether a descriptor was inherited and is not yet identified.
pub fn is_unidentified(descriptor: c_int) -> bool {
    matches!(fd_info(descriptor), Some(FdInfo::Inherited { .. }))
}

/// Records a duplicate of a descriptor that is not yet identified. Returns whether it was one.
pub fn record_unidentified_dup(from: c_int, to: c_int) -> bool {
    let Some(FdInfo::Inherited { remote }) = fd_info(from) else { return false };
    record_inherited(to, remote);
    true
}

/// Calls `operation` for each recorded descriptor from `first` to `last`.
pub fn for_each_recorded(first: u32, last: u32, mut operation: impl FnMut(c_int)) {
    let highest = HIGHEST.load(Ordering::Relaxed);
    for descriptor in first..=last.min(highest.cast_unsigned()) {
        let descriptor = descriptor.cast_signed();
        if is_recorded(descriptor) {
            operation(descriptor);
        }
    }
}

/// Returns whether this library must execute or refuse operations on the bytes of a descriptor: it
/// is a placeholder for a file, or was opened with `O_PATH`.
pub fn is_remote(descriptor: c_int) -> bool {
    let may_be = matches!(
        fd_info(descriptor),
        Some(FdInfo::Known(FdKind::Remote | FdKind::Path) | FdInfo::Inherited { remote: true })
    );
    may_be && matches!(kind(descriptor), Some(FdKind::Remote | FdKind::Path))
}

/// Classifies a path that starts at the working directory.
///
/// # Safety
/// The path outlives the result.
pub unsafe fn path<'a>(path: *const c_char) -> Option<PoolPath<'a>> {
    // SAFETY: same contract as this function's.
    unsafe { path_at(libc::AT_FDCWD, path) }
}

/// Classifies a path that starts at a directory.
///
/// # Safety
/// The path outlives the result.
pub unsafe fn path_at<'a>(dirfd: c_int, path: *const c_char) -> Option<PoolPath<'a>> {
    // SAFETY: same contract as this function's. An unreadable path is left to the kernel, which
    // refuses it.
    let text = unsafe { crate::cstr::checked(path) }.ok()?;
    if crate::start::is_bypassed() {
        return None;
    }
    match text.first() {
        Some(b'/') => posix::strip_prefix(prefix(), text).map(PoolPath::Root).or_else(|| by_descriptor_path(text)),
        _ if dirfd == libc::AT_FDCWD && CWD_IN_POOL.load(Ordering::Relaxed) => Some(PoolPath::Cwd(text)),
        _ if dirfd != libc::AT_FDCWD && kind(dirfd).is_some() => Some(PoolPath::At(dirfd, text)),
        Some(_) if posix::may_enter(prefix(), text) => from_host_directory(dirfd, text),
        _ => None,
    }
}

/// Classifies a path that names a descriptor of the pool (`/proc/self/fd/N` and the like).
fn by_descriptor_path(text: &[u8]) -> Option<PoolPath<'_>> {
    let rest = match text {
        b"/dev/stdin" => b"0",
        b"/dev/stdout" => b"1",
        b"/dev/stderr" => b"2",
        _ => text.strip_prefix(b"/proc/self/fd/").or_else(|| text.strip_prefix(b"/dev/fd/"))?,
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let descriptor = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let rest = &rest[digits..];
    let ends = rest.is_empty() || rest[0] == b'/';
    (ends && kind(descriptor).is_some()).then_some(PoolPath::Magic(descriptor, rest))
}

/// Classifies a relative path that starts at a directory of the host, which may be above the pool.
#[cold]
fn from_host_directory(dirfd: c_int, text: &[u8]) -> Option<PoolPath<'_>> {
    let mut buffer = [0_u8; 4096];
    let name = if dirfd == libc::AT_FDCWD { "/proc/self/cwd".to_owned() } else { format!("/proc/self/fd/{dirfd}") };
    let length = rustix::fs::readlinkat_raw(rustix::fs::CWD, name, &mut buffer[..]).ok()?;
    posix::strip_prefix_from(prefix(), &buffer[..length], text).map(PoolPath::Root)
}

impl<'a> From<PoolPath<'a>> for posix::PathArg<'a> {
    fn from(arg: PoolPath<'a>) -> Self {
        let (base, path) = match arg {
            PoolPath::Root(rest) => (posix::PathBase::Root, rest),
            PoolPath::Cwd(path) => (posix::PathBase::Cwd, path),
            PoolPath::At(descriptor, path) => (posix::PathBase::Descriptor(borrow(descriptor)), path),
            PoolPath::Magic(descriptor, path) => (posix::PathBase::Magic(borrow(descriptor)), path),
        };
        Self { base, path }
    }
}

/// Borrows a descriptor of the program for one call.
pub fn borrow<'a>(descriptor: c_int) -> BorrowedFd<'a> {
    // SAFETY: a descriptor that the program names and that is recorded here, so it is not negative.
    // The kernel checks whether it is open.
    unsafe { BorrowedFd::borrow_raw(descriptor.max(0)) }
}
