//! Start of new programs: their environment, and programs that lie in the pool.
//!
//! The kernel cannot execute a file that its node has open for writing. Therefore a program of the
//! pool is copied to a memory file (memfd), which is executed. The interpreter of a script gets the
//! script's path, and opens it through this library.

use crate::call::{clear_errno, errno, open as open_in, run, set_errno};
use crate::classify::{self, PoolPath};
use crate::cstr::bytes;
use crate::environment;
use libc::{c_char, c_int};
use posix::ExecTarget;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::ptr::null;

/// An array of C strings that ends with a null pointer: `argv`, `envp`.
pub type StringList = *const *const c_char;

/// Maximum depth of nested interpreters, as in the kernel.
const INTERPRETERS_MAX: usize = 4;
/// Length of the start of a script that names its interpreter, bytes (`BINPRM_BUF_SIZE`).
const HEAD_BYTES: usize = 256;
/// Shell for scripts that name no interpreter (execvp(3)).
pub const SHELL: &CStr = c"/bin/sh";
/// Longest name of a memory file, bytes (`memfd_create(2)`).
const MEMORY_NAME_MAX: usize = 249;

unsafe extern "C" {
    static environ: StringList;
}

/// Returns the current environment.
pub fn environment() -> StringList {
    // SAFETY: the C library's variable. A program that changes it while it starts another one is at
    // fault itself.
    unsafe { environ }
}

/// Environment for a new program.
#[derive(Debug)]
pub enum ExecEnvironment {
    /// The given environment, unchanged.
    Given(StringList),
    /// A completed copy of the given environment.
    Changed {
        /// Null-terminated list for execve(2).
        list: Vec<*const c_char>,
        /// Owner of the new strings in the list.
        _own: Vec<CString>,
    },
}

impl ExecEnvironment {
    /// Returns the list for execve(2).
    pub fn as_ptr(&self) -> StringList {
        match self {
            Self::Given(given) => *given,
            Self::Changed { list, .. } => list.as_ptr(),
        }
    }
}

/// Completes an environment with the variables that a new program needs to see the pool as this one
/// does. Some programs make an environment of their own, and shells pass on the one that they were
/// given themselves.
///
/// # Safety
/// Null or a null-terminated list of strings, which outlive the result.
pub unsafe fn complete_environment(given: StringList) -> ExecEnvironment {
    // SAFETY: same contract as this function's.
    unsafe { complete_environment_in(given, None) }
}

/// Completes an environment for a program that starts in another directory.
///
/// # Safety
/// As [`complete_environment`].
pub unsafe fn complete_environment_in(given: StringList, start_directory: Option<&[u8]>) -> ExecEnvironment {
    let wanted = environment::child_variables(start_directory);
    // SAFETY: same contract as this function's.
    let fits = wanted.iter().all(|wanted| wanted.fits(unsafe { value(given, wanted.name) }));
    if fits {
        return ExecEnvironment::Given(given);
    }
    // SAFETY: same contract as this function's.
    let own: Vec<CString> =
        wanted.iter().filter_map(|wanted| wanted.entry(unsafe { value(given, wanted.name) })).collect();
    // SAFETY: same contract as this function's.
    let unchanged = unsafe { texts(given) }.filter(|text| {
        // SAFETY: same contract as this function's.
        let text = unsafe { bytes(*text) };
        !wanted.iter().any(|wanted| value_of(text, wanted.name).is_some())
    });
    let list = unchanged.chain(own.iter().map(|text| text.as_ptr())).chain([null()]).collect();
    ExecEnvironment::Changed { list, _own: own }
}

/// # Safety
/// Null or a null-terminated list of strings.
unsafe fn texts(list: StringList) -> impl Iterator<Item = *const c_char> {
    let mut at = list;
    std::iter::from_fn(move || {
        // SAFETY: not past the terminating null.
        let text = if at.is_null() { null() } else { unsafe { *at } };
        if text.is_null() {
            return None;
        }
        // SAFETY: the entry was not the terminating null.
        at = unsafe { at.add(1) };
        Some(text)
    })
}

/// # Safety
/// Null or a null-terminated list of strings.
unsafe fn value<'a>(list: StringList, name: &[u8]) -> Option<&'a [u8]> {
    // SAFETY: same contract as this function's.
    unsafe { texts(list).find_map(|text| value_of(bytes(text), name)) }
}

fn value_of<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    text.strip_prefix(name)?.strip_prefix(b"=")
}

/// Returns whether a program may be found in the pool, by its path or by a search in `PATH`.
///
/// # Safety
/// A nul-terminated string.
pub unsafe fn may_be_in_pool(program: *const c_char) -> bool {
    // SAFETY: same contract as this function's.
    if unsafe { bytes(program) }.contains(&b'/') {
        // SAFETY: same contract as this function's.
        return unsafe { classify::path(program) }.is_some();
    }
    search_path().split(|byte| *byte == b':').any(|dir| {
        posix::strip_prefix(classify::prefix(), dir).is_some() || (!dir.starts_with(b"/") && classify::is_cwd_in_pool())
    })
}

/// Returns the search path for programs (execvp(3)).
fn search_path() -> &'static [u8] {
    // SAFETY: a nul-terminated name; the value is nul-terminated.
    let path = unsafe { bytes(libc::getenv(c"PATH".as_ptr())) };
    if path.is_empty() { b"/bin:/usr/bin" } else { path }
}

/// Tries to start a program at each of its possible paths. Success does not return here, or leaves
/// `errno` 0. Returns 0 then, else -1 with the error that the C library would give.
pub fn try_path_search(program: &[u8], mut start: impl FnMut(&CStr)) -> c_int {
    let dirs: Vec<&[u8]> =
        if program.contains(&b'/') { vec![b""] } else { search_path().split(|byte| *byte == b':').collect() };
    let (mut last_error, mut denied) = (Errno::NOENT, false);
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
        last_error = errno;
        match errno {
            Errno::ACCESS => denied = true,
            // The last four mean that a file system is unavailable at the moment.
            Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::STALE | Errno::TIMEDOUT | Errno::NOTCONN => {}
            _ => {
                denied = false;
                break;
            }
        }
    }
    set_errno(if denied { Errno::ACCESS } else { last_error });
    -1
}

/// Returns the null-terminated arguments for the shell that runs a script without an interpreter
/// line.
///
/// # Safety
/// `argv` is a null-terminated list of strings. They and the path outlive the result.
pub unsafe fn shell_arguments(path: &CStr, argv: StringList) -> Vec<*const c_char> {
    // SAFETY: same contract as this function's.
    let rest = unsafe { texts(argv) }.skip(1);
    [SHELL.as_ptr(), path.as_ptr()].into_iter().chain(rest).chain([null()]).collect()
}

/// Program that is prepared for execve(2).
#[derive(Debug)]
pub struct ExecImage {
    path: CString,
    argv: Vec<*const c_char>,
    /// Owner of the new strings in `argv`.
    _texts: Vec<CString>,
    /// Memory file that `path` names; `None` if `path` is of the host.
    memory: Option<OwnedFd>,
}

impl ExecImage {
    /// Returns the path for execve(2) in this process.
    pub fn path(&self) -> *const c_char {
        self.path.as_ptr()
    }

    /// Returns the path for a child that shares this process's memory until exec. The path names
    /// this process's descriptor, because the number may refer to another file in the child.
    pub fn path_for_child(&self) -> CString {
        let Some(memory) = &self.memory else { return self.path.clone() };
        let own = rustix::fs::readlink(c"/proc/self", Vec::new()).unwrap_or_else(|_| c"self".to_owned());
        let path = [b"/proc/", own.to_bytes(), format!("/fd/{}", memory.as_raw_fd()).as_bytes()].concat();
        CString::new(path).unwrap_or_default()
    }

    /// Returns the null-terminated arguments.
    pub fn argv(&self) -> StringList {
        self.argv.as_ptr()
    }
}

/// Prepares a program of the pool: as a memory file, or as the interpreter that its first line
/// names. A script gets the name `script` as its own path.
///
/// # Errors
/// As execve(2).
///
/// # Safety
/// `argv` is a null-terminated list of strings, which outlive the result.
pub unsafe fn prepare(arg: PoolPath<'_>, script: &[u8], argv: StringList) -> Result<ExecImage, Errno> {
    // SAFETY: guaranteed by the caller.
    let given: Vec<_> = unsafe { texts(argv) }.collect();
    match run(|process| process.program(arg.into(), &memory_name(script)))? {
        ExecTarget::Host(path) => Ok(make_image(path, None, Vec::new(), &given)),
        ExecTarget::Memory(file) => resolve_interpreter(file, script, &given),
    }
}

/// Prepares a script of the host whose interpreter is in the pool, where the kernel does not find
/// it. Returns `None` if the file is no such script.
///
/// # Safety
/// As [`prepare`]; the path is a nul-terminated string.
pub unsafe fn prepare_host_script(path: *const c_char, argv: StringList) -> Option<ExecImage> {
    // SAFETY: guaranteed by the caller.
    let (path, given) = unsafe { (CStr::from_ptr(path), texts(argv).collect::<Vec<_>>()) };
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, 0.into()).ok()?;
    let mut head = [0; HEAD_BYTES];
    let read = rustix::io::pread(&file, &mut head[..], 0).ok()?;
    let interpreter = CString::new(interpreter_line(&head[..read])?.0).ok()?;
    // SAFETY: a nul-terminated string.
    unsafe { classify::path(interpreter.as_ptr()) }?;
    resolve_interpreter(file, path.to_bytes(), &given).ok()
}

/// Prepares a program, or the interpreter if the program is a script.
fn resolve_interpreter(mut file: OwnedFd, script: &[u8], given: &[*const c_char]) -> Result<ExecImage, Errno> {
    let (mut script_path, mut before) = (script.to_vec(), Vec::new());
    for _ in 0..=INTERPRETERS_MAX {
        let mut head = [0; HEAD_BYTES];
        let read = rustix::io::pread(&file, &mut head[..], 0)?;
        let Some((interpreter, word)) = interpreter_line(&head[..read]) else {
            let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
            return Ok(make_image(path, Some(file), before, given));
        };
        let mut own = vec![interpreter.to_vec()];
        own.extend(word.map(<[u8]>::to_vec));
        own.push(script_path);
        own.extend(before.into_iter().skip(1));
        (before, script_path) = (own, interpreter.to_vec());
        let path = CString::new(interpreter).map_err(|_| Errno::NOEXEC)?;
        // SAFETY: a nul-terminated string.
        let Some(arg) = (unsafe { classify::path(path.as_ptr()) }) else {
            return Ok(make_image(path, None, before, given));
        };
        file = match run(|process| process.program(arg.into(), &memory_name(interpreter)))? {
            ExecTarget::Host(path) => return Ok(make_image(path, None, before, given)),
            ExecTarget::Memory(file) => file,
        };
    }
    Err(Errno::LOOP)
}

/// Returns the name of the memory file for a copy of a file: the file's own name.
pub fn memory_name(path: &[u8]) -> CString {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    CString::new(&name[..name.len().min(MEMORY_NAME_MAX)]).unwrap_or_default()
}

/// Makes the image. `before` are the interpreter's arguments, which replace the first given
/// argument.
fn make_image(path: CString, memory: Option<OwnedFd>, before: Vec<Vec<u8>>, given: &[*const c_char]) -> ExecImage {
    let own: Vec<CString> = before.into_iter().filter_map(|text| CString::new(text).ok()).collect();
    let rest = if own.is_empty() { given } else { given.get(1..).unwrap_or_default() };
    let argv = own.iter().map(|text| text.as_ptr()).chain(rest.iter().copied()).chain([null()]).collect();
    ExecImage { path, argv, _texts: own, memory }
}

/// Parses the interpreter line of a script: the interpreter, and its one optional argument.
fn interpreter_line(head: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| b" \t".contains(byte)).unwrap_or(line.len());
    let word = line[end..].trim_ascii();
    (end > 0).then_some((&line[..end], (!word.is_empty()).then_some(word)))
}

/// Replaces this process by a program of the pool.
///
/// # Errors
/// As execve(2); returns only on failure.
///
/// # Safety
/// `argv` is a null-terminated list of strings.
pub unsafe fn replace(
    arg: PoolPath<'_>,
    script: &[u8],
    argv: StringList,
    start: impl FnOnce(*const c_char, StringList),
) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    let image = unsafe { prepare(arg, script, argv) }?;
    start(image.path(), image.argv());
    Err(errno().unwrap_or(Errno::NOEXEC))
}

/// Returns the path that a script gets as its own name: `/dev/fd/N` for a descriptor, as the kernel
/// does it, and otherwise a path by which the script is found.
///
/// # Errors
/// As realpath(3).
pub fn script_name(arg: PoolPath<'_>, path: &[u8]) -> Result<Vec<u8>, Errno> {
    match arg {
        PoolPath::At(descriptor, b"") => Ok(format!("/dev/fd/{descriptor}").into_bytes()),
        PoolPath::At(..) => run(|process| process.real_path(arg.into())),
        _ => Ok(path.to_vec()),
    }
}

/// Sets the process name (`comm`) to that of the file that this program was copied from. The kernel
/// has named the process after the descriptor number.
pub fn set_process_name() {
    let mut known = [0_u8; 16];
    // SAFETY: a buffer for the longest name that the kernel stores.
    unsafe { libc::prctl(libc::PR_GET_NAME, known.as_mut_ptr()) };
    let is_number = known[0] != 0 && known.iter().take_while(|byte| **byte != 0).all(u8::is_ascii_digit);
    if !is_number {
        return;
    }
    let Ok(file) = rustix::fs::readlink(c"/proc/self/exe", Vec::new()) else { return };
    let name = file.to_bytes().strip_prefix(b"/memfd:").and_then(|file| file.strip_suffix(b" (deleted)"));
    if let Some(name) = name.and_then(|name| CString::new(name).ok()) {
        // SAFETY: a nul-terminated string; the kernel truncates it.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// Watches a local file through a path that the kernel knows (inotify(7)).
pub fn watch_local(arg: PoolPath<'_>, watch: impl FnOnce(*const c_char) -> c_int) -> c_int {
    let opened = match open_in(arg, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC, 0) {
        Ok(opened) => opened,
        Err(errno) => return crate::call::zero(Err(errno)),
    };
    let outcome = match (classify::kind(opened), CString::new(format!("/proc/self/fd/{opened}"))) {
        (Some(classify::FdKind::Local), Ok(path)) => watch(path.as_ptr()),
        _ => crate::call::zero(Err(Errno::OPNOTSUPP)),
    };
    let why = errno();
    // SAFETY: a descriptor that was opened above.
    unsafe { crate::symbols::close(opened) };
    if let Some(why) = why {
        set_errno(why);
    }
    outcome
}

#[cfg(test)]
#[path = "launch_test.rs"]
mod tests;
