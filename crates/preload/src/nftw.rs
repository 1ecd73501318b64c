//! Tree walk of nftw(3) in the pool.

use crate::call::errno;
use crate::symbols::{chdir, closedir, getcwd, lstat, opendir, readdir, stat};
use libc::{c_char, c_int};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;

/// `struct FTW`: the offset of the name in the path, and the depth.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FtwInfo {
    base: c_int,
    level: c_int,
}

/// Types of a path: `FTW_F`, `FTW_D`, `FTW_DNR`, `FTW_NS`, `FTW_SL`, `FTW_DP`, `FTW_SLN`.
const FILE: c_int = 0;
const DIRECTORY: c_int = 1;
const UNREADABLE: c_int = 2;
/// `FTW_NS`: file without attributes.
pub const UNKNOWN: c_int = 3;
const LINK: c_int = 4;
const LEFT_DIRECTORY: c_int = 5;
/// `FTW_SLN`: dangling symlink.
pub const DANGLING: c_int = 6;
/// `FTW_PHYS` (do not follow symlinks), `FTW_DEPTH` (visit directories after their entries),
/// `FTW_ACTIONRETVAL` (the callback's result controls the walk).
const PHYSICAL: c_int = 1;
const DEPTH: c_int = 8;
const ACTIONS: c_int = 16;
/// `FTW_SKIP_SUBTREE`, `FTW_SKIP_SIBLINGS`.
const SKIP_TREE: c_int = 2;
const SKIP_REST: c_int = 3;

/// `FTW_MOUNT` (stay on one device), `FTW_CHDIR` (make each directory the working directory while
/// its entries are visited).
const ONE_DEVICE: c_int = 2;
const CHANGES_DIRECTORY: c_int = 4;

type WalkCallback<'a> = &'a mut dyn FnMut(*const c_char, *const libc::stat, c_int, *mut FtwInfo) -> c_int;

/// Walks a tree, and calls `callback` for each path. Returns the result that ended the walk: 0 at
/// its end, -1 with `errno` if the first path does not exist.
///
/// # Safety
/// The path is nul-terminated.
pub unsafe fn walk(path: *const c_char, flags: c_int, callback: WalkCallback<'_>) -> c_int {
    // SAFETY: guaranteed by the caller.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let path = path.strip_suffix(b"/").filter(|path| !path.is_empty()).unwrap_or(path);
    let start = if flags & CHANGES_DIRECTORY == 0 { Some(Vec::new()) } else { working_directory() };
    let Some(start) = start else { return -1 };
    let mut walk = Walk { flags, start, device: 0, entered: HashSet::new(), callback };
    let outcome = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) if walk.enter(&path[..at.max(1)]).is_err() => -1,
        _ => walk.visit(path, 0),
    };
    // Return to the program's working directory; there is no fallback if it was removed.
    let _ = walk.enter(b"");
    if flags & ACTIONS != 0 && (outcome == SKIP_TREE || outcome == SKIP_REST) { 0 } else { outcome }
}

/// State of a walk.
struct Walk<'a> {
    flags: c_int,
    /// Working directory at the start, if the walk changes it; else empty.
    start: Vec<u8>,
    /// Device of the first path.
    device: libc::dev_t,
    /// Visited directories, if symlinks are followed: each is visited once, so that symlinks make
    /// no cycle.
    entered: HashSet<(libc::dev_t, libc::ino_t)>,
    callback: WalkCallback<'a>,
}

impl Walk<'_> {
    /// Visits a path and everything below it. Returns 0, or the result that ended the walk.
    fn visit(&mut self, path: &[u8], level: c_int) -> c_int {
        let (Ok(text), Ok(location)) = (CString::new(path), CString::new(self.location(path))) else { return 0 };
        let (found, kind) = stat_entry(&location, self.flags);
        if level == 0 {
            if kind == UNKNOWN {
                return -1;
            }
            self.device = found.st_dev;
        }
        if self.flags & ONE_DEVICE != 0 && kind != UNKNOWN && found.st_dev != self.device {
            return 0;
        }
        let base = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let mut info = FtwInfo { base: c_int::try_from(base).unwrap_or(0), level };
        if kind != DIRECTORY {
            return (self.callback)(text.as_ptr(), &raw const found, kind, &raw mut info);
        }
        if self.flags & PHYSICAL == 0 && !self.entered.insert((found.st_dev, found.st_ino)) {
            return 0;
        }
        self.visit_directory((path, &text, &location), &found, info)
    }

    /// Visits a directory and its entries. `at` has its path as bytes and as a string, and its
    /// actual location.
    fn visit_directory(&mut self, at: (&[u8], &CStr, &CStr), found: &libc::stat, mut info: FtwInfo) -> c_int {
        let (path, text, location) = at;
        // SAFETY: a nul-terminated string.
        let dir = unsafe { opendir(location.as_ptr()) };
        if dir.is_null() {
            return (self.callback)(text.as_ptr(), found, UNREADABLE, &raw mut info);
        }
        let names = names(dir);
        if self.flags & DEPTH == 0 {
            match (self.callback)(text.as_ptr(), found, DIRECTORY, &raw mut info) {
                0 => {}
                SKIP_TREE if self.flags & ACTIONS != 0 => return 0,
                result => return result,
            }
        }
        if self.enter(path).is_err() {
            return -1;
        }
        for name in names {
            match self.visit(&[path, b"/", &name].concat(), info.level + 1) {
                0 => {}
                SKIP_REST if self.flags & ACTIONS != 0 => break,
                result => return result,
            }
        }
        if self.flags & DEPTH != 0 {
            match (self.callback)(text.as_ptr(), found, LEFT_DIRECTORY, &raw mut info) {
                0 => {}
                result => return result,
            }
        }
        let parent = path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |at| &path[..at.max(1)]);
        if self.enter(parent).is_err() { -1 } else { 0 }
    }

    /// Makes a directory the working directory if `FTW_CHDIR` is set. An empty path is the
    /// program's own one.
    fn enter(&self, path: &[u8]) -> Result<(), Errno> {
        if self.flags & CHANGES_DIRECTORY == 0 {
            return Ok(());
        }
        let location = CString::new(self.location(path)).map_err(|_| Errno::INVAL)?;
        // SAFETY: a nul-terminated string.
        if unsafe { chdir(location.as_ptr()) } == 0 { Ok(()) } else { Err(errno().unwrap_or(Errno::IO)) }
    }

    /// Returns the location of a path, which holds also after the working directory has changed.
    fn location(&self, path: &[u8]) -> Vec<u8> {
        match path {
            _ if self.start.is_empty() || path.starts_with(b"/") => path.to_vec(),
            b"" => self.start.clone(),
            _ => [&self.start, &b"/"[..], path].concat(),
        }
    }
}

fn working_directory() -> Option<Vec<u8>> {
    // SAFETY: a new block of the C library, which is copied and freed.
    unsafe {
        let text = getcwd(null_mut(), 0);
        if text.is_null() {
            return None;
        }
        let start = CStr::from_ptr(text).to_bytes().to_vec();
        libc::free(text.cast());
        Some(start)
    }
}

/// Returns the attributes and the type of a path.
fn stat_entry(path: &CStr, flags: c_int) -> (libc::stat, c_int) {
    // SAFETY: a structure of plain numbers, for which zero is valid.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a nul-terminated string, and a local structure.
    let at = unsafe {
        if flags & PHYSICAL != 0 { lstat(path.as_ptr(), &raw mut found) } else { stat(path.as_ptr(), &raw mut found) }
    };
    let kind = match (at, found.st_mode & libc::S_IFMT) {
        (0, libc::S_IFDIR) => DIRECTORY,
        (0, libc::S_IFLNK) => LINK,
        (0, _) => FILE,
        // SAFETY: as above.
        _ if flags & PHYSICAL == 0 && unsafe { lstat(path.as_ptr(), &raw mut found) } == 0 => DANGLING,
        _ => UNKNOWN,
    };
    (found, kind)
}

/// Returns all names in a directory and closes it, because a tree may be deeper than the limit of
/// open descriptors.
fn names(dir: *mut libc::DIR) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    // SAFETY: an open stream; an entry is valid until the next call.
    unsafe {
        loop {
            let entry = readdir(dir);
            if entry.is_null() {
                break;
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr()).to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        closedir(dir);
    }
    names
}
