//! A walk over a tree of the pool, as nftw(3) does it.

use crate::guard::errno;
use crate::symbols::{chdir, closedir, getcwd, lstat, opendir, readdir, stat};
use libc::{c_char, c_int};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;

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

/// `FTW_MOUNT`, `FTW_CHDIR`: what lies on another device is left out; each folder is the working directory while what is in it is told of.
const ONE_DEVICE: c_int = 2;
const ENTERS: c_int = 4;

type Tell<'a> = &'a mut dyn FnMut(*const c_char, *const libc::stat, c_int, *mut Told) -> c_int;

/// Walks, and tells of each path. Returns what ended the walk: 0 at its end, -1 and `errno` where the first path is not there.
///
/// # Safety
/// The path ends with a nul.
pub unsafe fn walk(path: *const c_char, flags: c_int, tell: Tell<'_>) -> c_int {
    // SAFETY: the caller says so.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let path = path.strip_suffix(b"/").filter(|path| !path.is_empty()).unwrap_or(path);
    let here = if flags & ENTERS == 0 { Some(Vec::new()) } else { working_directory() };
    let Some(here) = here else { return -1 };
    let mut walk = Walk { flags, here, device: 0, entered: HashSet::new(), tell };
    let outcome = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) if walk.enter(&path[..at.max(1)]).is_err() => -1,
        _ => walk.visit(path, 0),
    };
    // Back to where the program was; if that is gone, there is nowhere to go.
    let _ = walk.enter(b"");
    if flags & ACTIONS != 0 && (outcome == SKIP_TREE || outcome == SKIP_REST) { 0 } else { outcome }
}

/// One walk.
struct Walk<'a> {
    flags: c_int,
    /// The working directory at its begin, where the walk changes it; else empty.
    here: Vec<u8>,
    /// On which the first path lies.
    device: libc::dev_t,
    /// Folders that were told of, where links are followed: each is walked once, so no link leads round.
    entered: HashSet<(libc::dev_t, libc::ino_t)>,
    tell: Tell<'a>,
}

impl Walk<'_> {
    /// Tells of one path and of what is below. 0, or what ended it.
    fn visit(&mut self, path: &[u8], level: c_int) -> c_int {
        let (Ok(text), Ok(place)) = (CString::new(path), CString::new(self.place(path))) else { return 0 };
        let (found, kind) = look(&place, self.flags);
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
        let mut told = Told { base: c_int::try_from(base).unwrap_or(0), level };
        if kind != FOLDER {
            return (self.tell)(text.as_ptr(), &raw const found, kind, &raw mut told);
        }
        if self.flags & PHYSICAL == 0 && !self.entered.insert((found.st_dev, found.st_ino)) {
            return 0;
        }
        self.folder((path, &text, &place), &found, told)
    }

    /// Tells of a folder, as it is said and where it is, and of what is in it.
    fn folder(&mut self, at: (&[u8], &CStr, &CStr), found: &libc::stat, mut told: Told) -> c_int {
        let (path, text, place) = at;
        // SAFETY: a text with its nul.
        let dir = unsafe { opendir(place.as_ptr()) };
        if dir.is_null() {
            return (self.tell)(text.as_ptr(), found, UNREADABLE, &raw mut told);
        }
        let names = names(dir);
        if self.flags & DEPTH == 0 {
            match (self.tell)(text.as_ptr(), found, FOLDER, &raw mut told) {
                0 => {}
                SKIP_TREE if self.flags & ACTIONS != 0 => return 0,
                ends => return ends,
            }
        }
        if self.enter(path).is_err() {
            return -1;
        }
        for name in names {
            match self.visit(&[path, b"/", &name].concat(), told.level + 1) {
                0 => {}
                SKIP_REST if self.flags & ACTIONS != 0 => break,
                ends => return ends,
            }
        }
        if self.flags & DEPTH != 0 {
            match (self.tell)(text.as_ptr(), found, LEFT_FOLDER, &raw mut told) {
                0 => {}
                ends => return ends,
            }
        }
        let above = path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |at| &path[..at.max(1)]);
        if self.enter(above).is_err() { -1 } else { 0 }
    }

    /// Makes a folder the working directory, where that is asked for; an empty path is where the program was.
    fn enter(&self, path: &[u8]) -> Result<(), Errno> {
        if self.flags & ENTERS == 0 {
            return Ok(());
        }
        let place = CString::new(self.place(path)).map_err(|_| Errno::INVAL)?;
        // SAFETY: a text with its nul.
        if unsafe { chdir(place.as_ptr()) } == 0 { Ok(()) } else { Err(errno().unwrap_or(Errno::IO)) }
    }

    /// Where a path is, also when the working directory is another by now.
    fn place(&self, path: &[u8]) -> Vec<u8> {
        match path {
            _ if self.here.is_empty() || path.starts_with(b"/") => path.to_vec(),
            b"" => self.here.clone(),
            _ => [&self.here, &b"/"[..], path].concat(),
        }
    }
}

fn working_directory() -> Option<Vec<u8>> {
    // SAFETY: the C library's new memory, which is copied and given back.
    unsafe {
        let text = getcwd(null_mut(), 0);
        if text.is_null() {
            return None;
        }
        let here = CStr::from_ptr(text).to_bytes().to_vec();
        libc::free(text.cast());
        Some(here)
    }
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
