//! Decides whether a path or descriptor argument belongs to the pool. Every call asks, so the
//! answer takes no allocation and no lock, and at most the system call that checks the path's
//! pointer.
//!
//! A path belongs to the pool if its text leads below the prefix, or if it is relative to a
//! directory of the pool. A descriptor belongs to the pool if this library opened it or found it at
//! the start of the process. The kernel keeps the descriptor itself: a wrong answer costs a lookup,
//! and never leads to other bytes.

pub use posix::Kind;
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
static INSIDE: AtomicBool = AtomicBool::new(false);
/// Kind of each descriptor: 0 for none of the pool, else a [`Kind`] or an inherited one. Untouched
/// pages take no memory.
static KINDS: [AtomicU8; DESCRIPTORS_MAX] = [const { AtomicU8::new(0) }; DESCRIPTORS_MAX];

/// Highest descriptor ever recorded.
static HIGHEST: AtomicI32 = AtomicI32::new(0);

/// Path argument that belongs to the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said<'a> {
    /// Path below the prefix: the rest after the prefix, perhaps empty.
    Below(&'a [u8]),
    /// Path relative to the working directory, which is in the pool.
    Here(&'a [u8]),
    /// File that is open as this descriptor, by the system's name of it (`/proc/self/fd/N`), and
    /// the rest of the path.
    Magic(c_int, &'a [u8]),
    /// Path relative to this descriptor: a directory or, with an empty path, any file of the pool.
    From(c_int, &'a [u8]),
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
pub fn set_inside(inside: bool) {
    INSIDE.store(inside, Ordering::Relaxed);
}

/// Records the kind of a descriptor; `None` if it is no longer of the pool.
pub fn note(descriptor: c_int, kind: Option<Kind>) {
    if let Some(known) = usize::try_from(descriptor).ok().and_then(|at| KINDS.get(at)) {
        let number = match kind {
            None => 0,
            Some(Kind::Local) => 1,
            Some(Kind::Remote) => 2,
            Some(Kind::Folder) => 3,
            Some(Kind::Place) => 6,
        };
        known.store(number, Ordering::Relaxed);
        HIGHEST.fetch_max(descriptor, Ordering::Relaxed);
    }
}

/// Returns whether the working directory is in the pool.
pub fn is_inside() -> bool {
    INSIDE.load(Ordering::Relaxed)
}

/// Returns the kind of a descriptor of the pool. Checks that the kernel's descriptor is still the
/// recorded one.
pub fn kind(descriptor: c_int) -> Option<Kind> {
    let known = match noted(descriptor)? {
        Noted::Known(kind) => crate::start::knows(borrowed(descriptor)).then_some(kind),
        Noted::Inherited { .. } => crate::inherited::adopted(descriptor),
    };
    if known.is_none() || known.map(Noted::Known) != noted(descriptor) {
        note(descriptor, known);
    }
    known
}

/// Record of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noted {
    /// Opened here, or identified by a node.
    Known(Kind),
    /// Inherited, and not yet identified.
    Inherited {
        /// True if it is a placeholder for a file.
        remote: bool,
    },
}

fn noted(descriptor: c_int) -> Option<Noted> {
    Some(match KINDS.get(usize::try_from(descriptor).ok()?)?.load(Ordering::Relaxed) {
        1 => Noted::Known(Kind::Local),
        2 => Noted::Known(Kind::Remote),
        3 => Noted::Known(Kind::Folder),
        6 => Noted::Known(Kind::Place),
        4 => Noted::Inherited { remote: false },
        5 => Noted::Inherited { remote: true },
        _ => return None,
    })
}

/// Records an inherited descriptor.
pub fn note_inherited(descriptor: c_int, remote: bool) {
    if let Some(known) = usize::try_from(descriptor).ok().and_then(|at| KINDS.get(at)) {
        known.store(if remote { 5 } else { 4 }, Ordering::Relaxed);
        HIGHEST.fetch_max(descriptor, Ordering::Relaxed);
    }
}

/// Returns whether a descriptor is recorded, so that it may be of the pool.
pub fn is_noted(descriptor: c_int) -> bool {
    noted(descriptor).is_some()
}

/// Returns whether a descriptor was inherited and is not yet identified.
pub fn is_unasked(descriptor: c_int) -> bool {
    matches!(noted(descriptor), Some(Noted::Inherited { .. }))
}

/// Records a duplicate of a descriptor that is not yet identified. Returns whether it was one.
pub fn note_unasked(from: c_int, to: c_int) -> bool {
    let Some(Noted::Inherited { remote }) = noted(from) else { return false };
    note_inherited(to, remote);
    true
}

/// Calls `what` for each recorded descriptor from `first` to `last`.
pub fn each(first: u32, last: u32, mut what: impl FnMut(c_int)) {
    let highest = HIGHEST.load(Ordering::Relaxed);
    for descriptor in first..=last.min(highest.cast_unsigned()) {
        let descriptor = descriptor.cast_signed();
        if is_noted(descriptor) {
            what(descriptor);
        }
    }
}

/// Returns whether this library must execute or refuse operations on the bytes of a descriptor: it
/// is a placeholder for a file, or was opened with `O_PATH`.
pub fn is_remote(descriptor: c_int) -> bool {
    let may_be =
        matches!(noted(descriptor), Some(Noted::Known(Kind::Remote | Kind::Place) | Noted::Inherited { remote: true }));
    may_be && matches!(kind(descriptor), Some(Kind::Remote | Kind::Place))
}

/// Classifies a path that starts at the working directory.
///
/// # Safety
/// The path outlives the result.
pub unsafe fn path<'a>(path: *const c_char) -> Option<Said<'a>> {
    // SAFETY: same contract as this function's.
    unsafe { path_at(libc::AT_FDCWD, path) }
}

/// Classifies a path that starts at a directory.
///
/// # Safety
/// The path outlives the result.
pub unsafe fn path_at<'a>(folder: c_int, path: *const c_char) -> Option<Said<'a>> {
    // SAFETY: same contract as this function's. An unreadable path is left to the kernel, which
    // refuses it.
    let text = unsafe { crate::text::told(path) }.ok()?;
    if crate::start::connects() {
        return None;
    }
    match text.first() {
        Some(b'/') => posix::below(prefix(), text).map(Said::Below).or_else(|| by_number(text)),
        _ if folder == libc::AT_FDCWD && INSIDE.load(Ordering::Relaxed) => Some(Said::Here(text)),
        _ if folder != libc::AT_FDCWD && kind(folder).is_some() => Some(Said::From(folder, text)),
        Some(_) if posix::may_enter(prefix(), text) => from_above(folder, text),
        _ => None,
    }
}

/// Classifies a path that names a descriptor of the pool (`/proc/self/fd/N` and the like).
fn by_number(text: &[u8]) -> Option<Said<'_>> {
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
    (ends && kind(descriptor).is_some()).then_some(Said::Magic(descriptor, rest))
}

/// Classifies a relative path that starts at a directory of the host, which may be above the pool.
#[cold]
fn from_above(folder: c_int, text: &[u8]) -> Option<Said<'_>> {
    let mut room = [0_u8; 4096];
    let name = if folder == libc::AT_FDCWD { "/proc/self/cwd".to_owned() } else { format!("/proc/self/fd/{folder}") };
    let length = rustix::fs::readlinkat_raw(rustix::fs::CWD, name, &mut room[..]).ok()?;
    posix::below_from(prefix(), &room[..length], text).map(Said::Below)
}

impl<'a> From<Said<'a>> for posix::Said<'a> {
    fn from(said: Said<'a>) -> Self {
        let (base, path) = match said {
            Said::Below(rest) => (posix::Base::Root, rest),
            Said::Here(path) => (posix::Base::Here, path),
            Said::From(descriptor, path) => (posix::Base::Descriptor(borrowed(descriptor)), path),
            Said::Magic(descriptor, path) => (posix::Base::Magic(borrowed(descriptor)), path),
        };
        Self { base, path }
    }
}

/// Borrows a descriptor of the program for one call.
pub fn borrowed<'a>(descriptor: c_int) -> BorrowedFd<'a> {
    // SAFETY: a descriptor that the program names and that is recorded here, so it is not negative.
    // The kernel checks whether it is open.
    unsafe { BorrowedFd::borrow_raw(descriptor.max(0)) }
}
