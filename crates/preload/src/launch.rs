//! New programs: what their environment must have, and how one that lies in the pool is started.
//!
//! The system cannot start a file that its node has open for writing. So a program of the pool is copied into memory without a name, and that is
//! what runs; a script's interpreter gets the script's path, which it opens through us.

use crate::guard::{clear_errno, done, errno, open as open_in, set_errno};
use crate::ours::{self, Said};
use crate::settings;
use crate::shared::{List, Listed};
use crate::text::bytes;
use libc::{c_char, c_int, mode_t, posix_spawn_file_actions_t};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::ptr::null;

type Words = *const *const c_char;

/// Interpreters of interpreters, as the kernel bounds them.
const INTERPRETERS_MAX: usize = 4;
/// How much of a script tells its interpreter, bytes (`BINPRM_BUF_SIZE`).
const HEAD_BYTES: usize = 256;
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
    let wanted = settings::wanted();
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

/// Whether a search in `PATH` may end in the pool.
pub fn may_be_found_in_the_pool(program: &[u8]) -> bool {
    program.contains(&b'/')
        || search()
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
/// first error that is more than not being there.
pub fn found(program: &[u8], mut start: impl FnMut(&CStr)) -> c_int {
    let dirs: Vec<&[u8]> =
        if program.contains(&b'/') { vec![b""] } else { search().split(|byte| *byte == b':').collect() };
    let mut told = Errno::NOENT;
    for dir in dirs {
        let mut path = dir.to_vec();
        if !dir.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(program);
        let Ok(path) = CString::new(path) else { continue };
        clear_errno();
        start(&path);
        match errno() {
            None => return 0,
            Some(Errno::NOENT | Errno::NOTDIR) => {}
            Some(Errno::ACCESS) => told = Errno::ACCESS,
            Some(errno) => {
                told = errno;
                break;
            }
        }
    }
    set_errno(told);
    -1
}

/// A program of the pool, made ready to be started.
#[derive(Debug)]
pub struct Image {
    path: CString,
    words: Vec<*const c_char>,
    /// What `words` point to, where it is ours.
    _texts: Vec<CString>,
    /// What `path` names, until it was started.
    _memory: Option<OwnedFd>,
}

impl Image {
    /// What the system starts.
    pub fn path(&self) -> *const c_char {
        self.path.as_ptr()
    }

    /// Its words, with a null behind them.
    pub fn words(&self) -> Words {
        self.words.as_ptr()
    }
}

/// Makes a program of the pool ready: itself as memory, or the interpreter that its first line names.
///
/// # Errors
/// As execve(2).
///
/// # Safety
/// Words are texts with a null behind them, which outlive what is returned.
pub unsafe fn image(said: Said<'_>, words: Words) -> Result<Image, Errno> {
    // SAFETY: the caller says so.
    let given: Vec<_> = unsafe { texts(words) }.collect();
    // A script is told its own name as it was said, from wherever that starts.
    let (mut program, mut before) = (done(|process| process.real_path(said.into()))?, Vec::new());
    let mut named = match said {
        Said::Here(path) => path.to_vec(),
        _ => program.clone(),
    };
    for _ in 0..=INTERPRETERS_MAX {
        if posix::below(ours::prefix(), &program).is_none() {
            return Ok(ready(program, None, before, &given));
        }
        let memory = done(|process| process.program(&program))?;
        let mut head = [0; HEAD_BYTES];
        let read = rustix::io::pread(&memory, &mut head[..], 0)?;
        let Some((interpreter, word)) = script(&head[..read]) else {
            return Ok(ready(
                format!("/proc/self/fd/{}", memory.as_raw_fd()).into_bytes(),
                Some(memory),
                before,
                &given,
            ));
        };
        let mut own = vec![interpreter.to_vec()];
        own.extend(word.map(<[u8]>::to_vec));
        own.push(named);
        own.extend(before.into_iter().skip(1));
        before = own;
        (program, named) = (interpreter.to_vec(), interpreter.to_vec());
    }
    Err(Errno::LOOP)
}

/// What memory that a file is copied to is called: as the file.
pub fn memory_name(path: &[u8]) -> CString {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    CString::new(&name[..name.len().min(MEMORY_NAME_MAX)]).unwrap_or_default()
}

/// The words before the program's own, if there are any, take the place of its first.
fn ready(path: Vec<u8>, memory: Option<OwnedFd>, before: Vec<Vec<u8>>, given: &[*const c_char]) -> Image {
    let own: Vec<CString> = before.into_iter().filter_map(|text| CString::new(text).ok()).collect();
    let rest = if own.is_empty() { given } else { given.get(1..).unwrap_or_default() };
    let words = own.iter().map(|text| text.as_ptr()).chain(rest.iter().copied()).chain([null()]).collect();
    Image { path: CString::new(path).unwrap_or_default(), words, _texts: own, _memory: memory }
}

/// The interpreter of a script, and the one word that may follow it.
fn script(head: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| b" \t".contains(byte)).unwrap_or(line.len());
    let word = line[end..].trim_ascii();
    (end > 0).then_some((&line[..end], (!word.is_empty()).then_some(word)))
}

/// Runs a program of the pool in this one's place.
///
/// # Errors
/// As execve(2); it returns only then.
///
/// # Safety
/// Words and variables are texts with a null behind them.
pub unsafe fn replace(said: Said<'_>, words: Words, variables: Words) -> Result<(), Errno> {
    // SAFETY: the caller says so; the path is outside of the pool, so this goes on to the system.
    unsafe {
        let image = image(said, words)?;
        crate::symbols::execve(image.path(), image.words(), variables);
        Err(errno().unwrap_or(Errno::NOEXEC))
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

/// Descriptors that were opened for programs to be started, by the list of actions that they are in.
static OPENED: List<(usize, c_int)> = List::new();

/// The list itself: held over a fork.
pub fn all() -> Listed<'static, (usize, c_int)> {
    OPENED.hold()
}

/// Opens now what a new program shall have as `descriptor`. Returns an error's number, or 0.
///
/// # Safety
/// The actions are those of `posix_spawn(3)`.
pub unsafe fn open_for(
    actions: *mut posix_spawn_file_actions_t,
    descriptor: c_int,
    said: Said<'_>,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    match open_in(said, flags | libc::O_CLOEXEC, mode) {
        Err(errno) => errno.raw_os_error(),
        Ok(opened) => {
            all().push((actions.addr(), opened));
            // SAFETY: the caller says so.
            unsafe { libc::posix_spawn_file_actions_adddup2(actions, opened, descriptor) }
        }
    }
}

/// Closes what was opened for these actions.
pub fn close_for(actions: *const posix_spawn_file_actions_t) {
    if OPENED.is_empty() {
        return;
    }
    let closed: Vec<_> = all().extract_if(.., |(known, _)| *known == actions.addr()).collect();
    for (_, descriptor) in closed {
        // SAFETY: ours.
        unsafe { crate::symbols::close(descriptor) };
    }
}
