//! New programs: what their environment must have, and how one that lies in the pool is started.
//!
//! The system cannot start a file that its node has open for writing. So a program of the pool is copied into memory that is in no folder, and that is
//! what runs; a script's interpreter gets the script's path, which it opens through us.

use crate::guard::{clear_errno, done, errno, open as open_in, set_errno};
use crate::ours::{self, Said};
use crate::settings;
use crate::text::bytes;
use libc::{c_char, c_int};
use posix::Program;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::ptr::null;

type Words = *const *const c_char;

/// Interpreters of interpreters, as the kernel bounds them.
const INTERPRETERS_MAX: usize = 4;
/// How much of a script tells its interpreter, bytes (`BINPRM_BUF_SIZE`).
const HEAD_BYTES: usize = 256;
/// Runs scripts that name none (execvp(3)).
pub const SHELL: &CStr = c"/bin/sh";
/// Longer names of memory are refused, bytes (`memfd_create(2)`).
const MEMORY_NAME_MAX: usize = 249;

unsafe extern "C" {
    static environ: Words;
}

/// The process's variables as they are now.
pub fn variables() -> Words {
    // SAFETY: the C library's own; programs that change it while they start others have chosen so.
    unsafe { environ }
}

/// Variables for a new program.
#[derive(Debug)]
pub enum Variables {
    /// Those that were given.
    Given(Words),
    /// Those, with what was missing or is otherwise now; behind them a null.
    Changed {
        /// As execve(2) takes them.
        list: Vec<*const c_char>,
        /// What of them is ours.
        _own: Vec<CString>,
    },
}

impl Variables {
    /// As execve(2) takes them.
    pub fn as_ptr(&self) -> Words {
        match self {
            Self::Given(given) => *given,
            Self::Changed { list, .. } => list.as_ptr(),
        }
    }
}

/// What is given, and what a new program needs to see the pool as this one does: some programs start others with an environment of their own making, and shells
/// hand on what they were given themselves.
///
/// # Safety
/// Null, or texts with a null behind them, which outlive what is returned.
pub unsafe fn completed(given: Words) -> Variables {
    // SAFETY: as here.
    unsafe { completed_in(given, None) }
}

/// The same for a program that begins in this folder, if one is said.
///
/// # Safety
/// As [`completed`].
pub unsafe fn completed_in(given: Words, folder: Option<&[u8]>) -> Variables {
    let wanted = settings::wanted(folder);
    // SAFETY: as here.
    let fits = wanted.iter().all(|wanted| wanted.fits(unsafe { value(given, wanted.name) }));
    if fits {
        return Variables::Given(given);
    }
    // SAFETY: as here.
    let own: Vec<CString> =
        wanted.iter().filter_map(|wanted| wanted.entry(unsafe { value(given, wanted.name) })).collect();
    // SAFETY: as here.
    let kept = unsafe { texts(given) }.filter(|text| {
        // SAFETY: as here.
        let text = unsafe { bytes(*text) };
        !wanted.iter().any(|wanted| of_name(text, wanted.name).is_some())
    });
    let list = kept.chain(own.iter().map(|text| text.as_ptr())).chain([null()]).collect();
    Variables::Changed { list, _own: own }
}

/// # Safety
/// Null, or texts with a null behind them.
unsafe fn texts(words: Words) -> impl Iterator<Item = *const c_char> {
    let mut at = words;
    std::iter::from_fn(move || {
        // SAFETY: not behind the null that ends them.
        let text = if at.is_null() { null() } else { unsafe { *at } };
        if text.is_null() {
            return None;
        }
        // SAFETY: this was not the end.
        at = unsafe { at.add(1) };
        Some(text)
    })
}

/// # Safety
/// Null, or texts with a null behind them.
unsafe fn value<'a>(words: Words, name: &[u8]) -> Option<&'a [u8]> {
    // SAFETY: as here.
    unsafe { texts(words).find_map(|text| of_name(bytes(text), name)) }
}

fn of_name<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    text.strip_prefix(name)?.strip_prefix(b"=")
}

/// Whether a program may be found in the pool, by its path or by a search in `PATH`.
///
/// # Safety
/// A text with its nul.
pub unsafe fn may_be_found_in_the_pool(program: *const c_char) -> bool {
    // SAFETY: as here.
    if unsafe { bytes(program) }.contains(&b'/') {
        // SAFETY: as here.
        return unsafe { ours::path(program) }.is_some();
    }
    search()
        .split(|byte| *byte == b':')
        .any(|dir| posix::below(ours::prefix(), dir).is_some() || (!dir.starts_with(b"/") && ours::is_inside()))
}

/// Where programs are searched (execvp(3)).
fn search() -> &'static [u8] {
    // SAFETY: a name with its nul; what is found ends with one.
    let path = unsafe { bytes(libc::getenv(c"PATH".as_ptr())) };
    if path.is_empty() { b"/bin:/usr/bin" } else { path }
}

/// Tries a program by all paths that it may have, until one starts, which does not come back here or leaves `errno` 0. Returns 0 then, else -1 and the
/// error that the C library would tell.
pub fn found(program: &[u8], mut start: impl FnMut(&CStr)) -> c_int {
    let dirs: Vec<&[u8]> =
        if program.contains(&b'/') { vec![b""] } else { search().split(|byte| *byte == b':').collect() };
    let (mut told, mut denied) = (Errno::NOENT, false);
    for dir in dirs {
        let mut path = dir.to_vec();
        if !dir.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(program);
        let Ok(path) = CString::new(path) else { continue };
        clear_errno();
        start(&path);
        let Some(errno) = errno() else { return 0 };
        told = errno;
        match errno {
            Errno::ACCESS => denied = true,
            // The last ones: a folder of a file system that is not there just now.
            Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::STALE | Errno::TIMEDOUT | Errno::NOTCONN => {}
            _ => {
                denied = false;
                break;
            }
        }
    }
    set_errno(if denied { Errno::ACCESS } else { told });
    -1
}

/// The words of the shell that runs a script which names no interpreter, with a null behind them.
///
/// # Safety
/// Words are texts with a null behind them, which outlive what is returned, as the path does.
pub unsafe fn by_shell(path: &CStr, words: Words) -> Vec<*const c_char> {
    // SAFETY: as here.
    let rest = unsafe { texts(words) }.skip(1);
    [SHELL.as_ptr(), path.as_ptr()].into_iter().chain(rest).chain([null()]).collect()
}

/// A program of the pool, made ready to be started.
#[derive(Debug)]
pub struct Image {
    path: CString,
    words: Vec<*const c_char>,
    /// What `words` point to, where it is ours.
    _texts: Vec<CString>,
    /// What `path` names, until it was started.
    memory: Option<OwnedFd>,
}

impl Image {
    /// What the system starts in this process's place.
    pub fn path(&self) -> *const c_char {
        self.path.as_ptr()
    }

    /// What the system starts in a child that shares this process's memory until then: its own descriptors may be others by that.
    pub fn path_for_child(&self) -> CString {
        let Some(memory) = &self.memory else { return self.path.clone() };
        let own = rustix::fs::readlink(c"/proc/self", Vec::new()).unwrap_or_else(|_| c"self".to_owned());
        let path = [b"/proc/", own.to_bytes(), format!("/fd/{}", memory.as_raw_fd()).as_bytes()].concat();
        CString::new(path).unwrap_or_default()
    }

    /// Its words, with a null behind them.
    pub fn words(&self) -> Words {
        self.words.as_ptr()
    }
}

/// Makes a program of the pool ready: itself as memory, or the interpreter that its first line names. A script is told its own name as it was `told`, from
/// wherever that starts.
///
/// # Errors
/// As execve(2).
///
/// # Safety
/// Words are texts with a null behind them, which outlive what is returned.
pub unsafe fn image(said: Said<'_>, told: &[u8], words: Words) -> Result<Image, Errno> {
    // SAFETY: the caller says so.
    let given: Vec<_> = unsafe { texts(words) }.collect();
    match done(|process| process.program(said.into(), &memory_name(told)))? {
        Program::Host(path) => Ok(ready(path, None, Vec::new(), &given)),
        Program::Memory(file) => interpreted(file, told, &given),
    }
}

/// Makes a script of the host ready whose interpreter is in the pool, where the system does not find it; none where it is no such one.
///
/// # Safety
/// As [`image`]; the path is a text.
pub unsafe fn image_of_host(path: *const c_char, words: Words) -> Option<Image> {
    // SAFETY: the caller says so.
    let (path, given) = unsafe { (CStr::from_ptr(path), texts(words).collect::<Vec<_>>()) };
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, 0.into()).ok()?;
    let mut head = [0; HEAD_BYTES];
    let read = rustix::io::pread(&file, &mut head[..], 0).ok()?;
    let interpreter = CString::new(script(&head[..read])?.0).ok()?;
    // SAFETY: a text with its nul.
    unsafe { ours::path(interpreter.as_ptr()) }?;
    interpreted(file, path.to_bytes(), &given).ok()
}

/// Itself, or what interprets it, if that is a script.
fn interpreted(mut file: OwnedFd, told: &[u8], given: &[*const c_char]) -> Result<Image, Errno> {
    let (mut named, mut before) = (told.to_vec(), Vec::new());
    for _ in 0..=INTERPRETERS_MAX {
        let mut head = [0; HEAD_BYTES];
        let read = rustix::io::pread(&file, &mut head[..], 0)?;
        let Some((interpreter, word)) = script(&head[..read]) else {
            let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
            return Ok(ready(path, Some(file), before, given));
        };
        let mut own = vec![interpreter.to_vec()];
        own.extend(word.map(<[u8]>::to_vec));
        own.push(named);
        own.extend(before.into_iter().skip(1));
        (before, named) = (own, interpreter.to_vec());
        let path = CString::new(interpreter).map_err(|_| Errno::NOEXEC)?;
        // SAFETY: a text with its nul.
        let Some(said) = (unsafe { ours::path(path.as_ptr()) }) else { return Ok(ready(path, None, before, given)) };
        file = match done(|process| process.program(said.into(), &memory_name(interpreter)))? {
            Program::Host(path) => return Ok(ready(path, None, before, given)),
            Program::Memory(file) => file,
        };
    }
    Err(Errno::LOOP)
}

/// What memory that a file is copied to is called: as the file.
pub fn memory_name(path: &[u8]) -> CString {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    CString::new(&name[..name.len().min(MEMORY_NAME_MAX)]).unwrap_or_default()
}

/// The words before the program's own, if there are any, take the place of its first.
fn ready(path: CString, memory: Option<OwnedFd>, before: Vec<Vec<u8>>, given: &[*const c_char]) -> Image {
    let own: Vec<CString> = before.into_iter().filter_map(|text| CString::new(text).ok()).collect();
    let rest = if own.is_empty() { given } else { given.get(1..).unwrap_or_default() };
    let words = own.iter().map(|text| text.as_ptr()).chain(rest.iter().copied()).chain([null()]).collect();
    Image { path, words, _texts: own, memory }
}

/// The interpreter of a script, and the one word that may follow it.
fn script(head: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| b" \t".contains(byte)).unwrap_or(line.len());
    let word = line[end..].trim_ascii();
    (end > 0).then_some((&line[..end], (!word.is_empty()).then_some(word)))
}

/// Runs a program of the pool in this one's place, by the system's own call.
///
/// # Errors
/// As execve(2); it returns only then.
///
/// # Safety
/// Words are texts with a null behind them.
pub unsafe fn replace(
    said: Said<'_>,
    told: &[u8],
    words: Words,
    start: impl FnOnce(*const c_char, Words),
) -> Result<(), Errno> {
    // SAFETY: the caller says so.
    let image = unsafe { image(said, told, words) }?;
    start(image.path(), image.words());
    Err(errno().unwrap_or(Errno::NOEXEC))
}

/// How a script is told its own name, which was said as this path from a folder: as the system tells it of a descriptor, else so that it is found again.
///
/// # Errors
/// As realpath(3).
pub fn told_at(said: Said<'_>, path: &[u8]) -> Result<Vec<u8>, Errno> {
    match said {
        Said::From(descriptor, b"") => Ok(format!("/dev/fd/{descriptor}").into_bytes()),
        Said::From(..) => done(|process| process.real_path(said.into())),
        _ => Ok(path.to_vec()),
    }
}

/// Takes the name of the file that this program was copied from (`comm`), which the system has called by the number of a descriptor.
pub fn take_name() {
    let mut known = [0_u8; 16];
    // SAFETY: room for a name as long as the system has them.
    unsafe { libc::prctl(libc::PR_GET_NAME, known.as_mut_ptr()) };
    let is_number = known[0] != 0 && known.iter().take_while(|byte| **byte != 0).all(u8::is_ascii_digit);
    if !is_number {
        return;
    }
    let Ok(file) = rustix::fs::readlink(c"/proc/self/exe", Vec::new()) else { return };
    let name = file.to_bytes().strip_prefix(b"/memfd:").and_then(|file| file.strip_suffix(b" (deleted)"));
    if let Some(name) = name.and_then(|name| CString::new(name).ok()) {
        // SAFETY: a text with its nul; the system takes what it has room for.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// Watches a local file by a name that the system knows (inotify(7)).
pub fn watched(said: Said<'_>, watch: impl FnOnce(*const c_char) -> c_int) -> c_int {
    let opened = match open_in(said, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC, 0) {
        Ok(opened) => opened,
        Err(errno) => return crate::guard::zero(Err(errno)),
    };
    let outcome = match (ours::kind(opened), CString::new(format!("/proc/self/fd/{opened}"))) {
        (Some(ours::Kind::Local), Ok(path)) => watch(path.as_ptr()),
        _ => crate::guard::zero(Err(Errno::OPNOTSUPP)),
    };
    let why = errno();
    // SAFETY: ours.
    unsafe { crate::symbols::close(opened) };
    if let Some(why) = why {
        set_errno(why);
    }
    outcome
}
