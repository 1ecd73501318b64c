//! Whether what a program says is ours: asked in every call, so without memory or locks, and without a system call but that which a path's
//! pointer may need.
//!
//! A path is ours below the prefix, as text, and, relative, where the folder that it starts from is. A descriptor is ours if we opened
//! it, or found it when the process began; the kernel has the descriptor itself, so a wrong answer here costs a look, and never
//! leads to other bytes.

pub use posix::Kind;
use std::ffi::{c_char, c_int};
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

/// Descriptors that we can know; the kernel's own limit (`fs.nr_open`) unless somebody raised it.
pub const DESCRIPTORS_MAX: usize = 1 << 20;

/// What stands for the pool where nothing else is said.
pub const PREFIX: &[u8] = b"/tidemill";

static PREFIX_SET: OnceLock<&'static [u8]> = OnceLock::new();
/// The working directory is in the pool, so relative paths are ours.
static INSIDE: AtomicBool = AtomicBool::new(false);
/// What each descriptor is: 0 not ours, else a [`Kind`]. Pages that nobody touches take no memory.
static KINDS: [AtomicU8; DESCRIPTORS_MAX] = [const { AtomicU8::new(0) }; DESCRIPTORS_MAX];

/// No higher one was ever noted.
static HIGHEST: AtomicI32 = AtomicI32::new(0);

/// A path of ours, as the program says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said<'a> {
    /// Below the prefix: the rest behind it, perhaps empty.
    Below(&'a [u8]),
    /// From the working directory, which is ours.
    Here(&'a [u8]),
    /// From what is open as this descriptor, by the system's name of it (`/proc/self/fd/N`).
    Magic(c_int, &'a [u8]),
    /// From this descriptor, a folder or (with an empty path) anything of ours.
    From(c_int, &'a [u8]),
}

/// Sets what paths below stand for the pool. The first call counts.
pub fn set_prefix(prefix: &'static [u8]) {
    // Set twice it would be the environment's in both cases.
    let _ = PREFIX_SET.set(prefix);
}

/// What paths below stand for the pool.
pub fn prefix() -> &'static [u8] {
    PREFIX_SET.get().copied().unwrap_or(PREFIX)
}

/// Notes whether the working directory is in the pool.
pub fn set_inside(inside: bool) {
    INSIDE.store(inside, Ordering::Relaxed);
}

/// Notes what a descriptor is; none: not ours any more.
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

/// Whether the working directory is in the pool.
pub fn is_inside() -> bool {
    INSIDE.load(Ordering::Relaxed)
}

/// What a descriptor is, if it is ours: as was noted, and the kernel's descriptor is still that.
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

/// What was noted of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noted {
    /// It was opened here, or asked for.
    Known(Kind),
    /// The process began with it, and nobody has asked yet what it is.
    Inherited {
        /// It stands in for a file whose bytes are asked for.
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

/// Notes a descriptor that the process began with.
pub fn note_inherited(descriptor: c_int, remote: bool) {
    if let Some(known) = usize::try_from(descriptor).ok().and_then(|at| KINDS.get(at)) {
        known.store(if remote { 5 } else { 4 }, Ordering::Relaxed);
        HIGHEST.fetch_max(descriptor, Ordering::Relaxed);
    }
}

/// Whether a descriptor may be ours.
pub fn is_noted(descriptor: c_int) -> bool {
    noted(descriptor).is_some()
}

/// Whether a descriptor is one that the process began with, and nobody has asked yet what it is.
pub fn is_unasked(descriptor: c_int) -> bool {
    matches!(noted(descriptor), Some(Noted::Inherited { .. }))
}

/// Notes a copy of such a descriptor, if it is one.
pub fn note_unasked(from: c_int, to: c_int) -> bool {
    let Some(Noted::Inherited { remote }) = noted(from) else { return false };
    note_inherited(to, remote);
    true
}

/// Does something for each descriptor of ours from `first` to `last`.
pub fn each(first: u32, last: u32, mut what: impl FnMut(c_int)) {
    let highest = HIGHEST.load(Ordering::Relaxed);
    for descriptor in first..=last.min(highest.cast_unsigned()) {
        let descriptor = descriptor.cast_signed();
        if is_noted(descriptor) {
            what(descriptor);
        }
    }
}

/// Whether we must do what is asked of this descriptor's bytes, or refuse it.
pub fn is_remote(descriptor: c_int) -> bool {
    let may_be =
        matches!(noted(descriptor), Some(Noted::Known(Kind::Remote | Kind::Place) | Noted::Inherited { remote: true }));
    may_be && matches!(kind(descriptor), Some(Kind::Remote | Kind::Place))
}

/// A path that starts at the working directory.
///
/// # Safety
/// The path outlives what is returned.
pub unsafe fn path<'a>(path: *const c_char) -> Option<Said<'a>> {
    // SAFETY: as here.
    unsafe { path_at(libc::AT_FDCWD, path) }
}

/// A path that starts at a folder.
///
/// # Safety
/// The path outlives what is returned.
pub unsafe fn path_at<'a>(folder: c_int, path: *const c_char) -> Option<Said<'a>> {
    // SAFETY: as here. The system says what is wrong with it.
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

/// A path by the system's name of a descriptor of ours.
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

/// A relative path that starts at a folder of the host, which may be above the pool.
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

/// A descriptor that the program holds, for one call.
pub fn borrowed<'a>(descriptor: c_int) -> BorrowedFd<'a> {
    // SAFETY: one that the program names, and that is found here, so no negative number. Whether it is open the kernel says.
    unsafe { BorrowedFd::borrow_raw(descriptor.max(0)) }
}
