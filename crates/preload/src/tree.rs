//! A walk over a tree of the pool, as nftw(3) does it.

use crate::symbols::{closedir, lstat, opendir, readdir, stat};
use libc::{c_char, c_int};
use std::ffi::{CStr, CString};

/// `struct FTW`: where the name begins in the path, and how deep it is.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Told {
    base: c_int,
    level: c_int,
}

/// `FTW_F`, `FTW_D`, `FTW_DNR`, `FTW_NS`, `FTW_SL`, `FTW_DP`, `FTW_SLN`: what a path is.
const FILE: c_int = 0;
const FOLDER: c_int = 1;
const UNREADABLE: c_int = 2;
/// A file whose attributes nobody gets.
pub const UNKNOWN: c_int = 3;
const LINK: c_int = 4;
const LEFT_FOLDER: c_int = 5;
/// A link that leads nowhere.
pub const DANGLING: c_int = 6;
/// `FTW_PHYS`, `FTW_DEPTH`, `FTW_ACTIONRETVAL`: links are not followed; folders come behind what is in them; what is returned says how to go on.
const PHYSICAL: c_int = 1;
const DEPTH: c_int = 8;
const ACTIONS: c_int = 16;
/// `FTW_SKIP_SUBTREE`, `FTW_SKIP_SIBLINGS`.
const SKIP_TREE: c_int = 2;
const SKIP_REST: c_int = 3;

type Tell<'a> = &'a mut dyn FnMut(*const c_char, *const libc::stat, c_int, *mut Told) -> c_int;

/// Walks, and tells of each path. Returns what ended the walk: 0 at its end, -1 and `errno` where the first path is not there.
///
/// # Safety
/// The path ends with a nul.
pub unsafe fn walk(path: *const c_char, flags: c_int, tell: Tell<'_>) -> c_int {
    // SAFETY: the caller says so.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let path = path.strip_suffix(b"/").filter(|path| !path.is_empty()).unwrap_or(path);
    let outcome = visit(path, 0, flags, tell);
    if flags & ACTIONS != 0 && (outcome == SKIP_TREE || outcome == SKIP_REST) { 0 } else { outcome }
}

/// Tells of one path and of what is below. 0, or what ended it.
fn visit(path: &[u8], level: c_int, flags: c_int, tell: Tell<'_>) -> c_int {
    let Ok(text) = CString::new(path) else { return 0 };
    let (found, kind) = look(&text, flags);
    if kind == UNKNOWN && level == 0 {
        return -1;
    }
    let base = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let mut told = Told { base: c_int::try_from(base).unwrap_or(0), level };
    if kind != FOLDER {
        return tell(text.as_ptr(), &raw const found, kind, &raw mut told);
    }
    // SAFETY: a text with its nul.
    let dir = unsafe { opendir(text.as_ptr()) };
    if dir.is_null() {
        return tell(text.as_ptr(), &raw const found, UNREADABLE, &raw mut told);
    }
    let names = names(dir);
    if flags & DEPTH == 0 {
        match tell(text.as_ptr(), &raw const found, FOLDER, &raw mut told) {
            0 => {}
            SKIP_TREE if flags & ACTIONS != 0 => return 0,
            ends => return ends,
        }
    }
    for name in names {
        match visit(&[path, b"/", &name].concat(), level + 1, flags, tell) {
            0 => {}
            SKIP_REST if flags & ACTIONS != 0 => break,
            ends => return ends,
        }
    }
    if flags & DEPTH == 0 { 0 } else { tell(text.as_ptr(), &raw const found, LEFT_FOLDER, &raw mut told) }
}

/// What a path is.
fn look(path: &CStr, flags: c_int) -> (libc::stat, c_int) {
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a text with its nul, and the structure.
    let at = unsafe {
        if flags & PHYSICAL != 0 { lstat(path.as_ptr(), &raw mut found) } else { stat(path.as_ptr(), &raw mut found) }
    };
    let kind = match (at, found.st_mode & libc::S_IFMT) {
        (0, libc::S_IFDIR) => FOLDER,
        (0, libc::S_IFLNK) => LINK,
        (0, _) => FILE,
        // SAFETY: as above.
        _ if flags & PHYSICAL == 0 && unsafe { lstat(path.as_ptr(), &raw mut found) } == 0 => DANGLING,
        _ => UNKNOWN,
    };
    (found, kind)
}

/// All names in a folder, which is closed then: a tree may be deeper than a program may have descriptors.
fn names(dir: *mut libc::DIR) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    // SAFETY: an open folder; entries last until the next call.
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
