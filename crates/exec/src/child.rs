//! Setup of a child process between `clone` and `execve`, done in the child.
//!
//! ```text
//! we  --clone(VM, VFORK)--> child: own process group, reaper's list, memory control group,
//! (the calling thread         given descriptors to 0 1 2, all others closed, limits, standard
//!  waits; no page table       files opened, working directory entered --execve--> the tool
//!  is copied)                   \-- a step fails: step and errno left in our memory; it exits
//! ```
//!
//! The child opens files and enters directories by path only after it has closed its inherited
//! descriptors. Its directory may be in a mount that this process serves. If we are killed, the
//! kernel must see that nobody holds the mount's device, so that the child gets an error instead of
//! waiting forever. The `Command` of std closes descriptors at `execve`, which is too late. As with
//! `posix_spawn`, page tables are not copied: the cost of a start does not depend on the memory of
//! the pool.
//!
//! The module does not search for programs or explain errors (`start` does).
#![expect(unsafe_code, reason = "clone, and the raw calls that are all a child may do before it runs its program")]

use rustix::process::Pid;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

/// Stack of the child until `execve`: its frames are small, and glibc's own spawn uses as little.
const STACK_BYTES: usize = 64 << 10;

/// The first descriptor behind the standard ones.
const FIRST_OTHER: c_int = 3;

/// The specification of a child.
#[derive(Debug)]
pub struct ChildSpec<'a> {
    /// Absolute path of the program.
    pub program: CString,
    /// Arguments, starting with the program's own name.
    pub args: Vec<CString>,
    /// Environment, as `NAME=VALUE`.
    pub env: Vec<CString>,
    /// Working directory.
    pub cwd: ChildFile,
    /// Standard input.
    pub stdin: ChildFile,
    /// Standard output; a file given by path is created or truncated.
    pub stdout: ChildFile,
    /// Standard error, likewise.
    pub stderr: ChildFile,
    /// Limits of open descriptors; `None` means those of this process.
    pub files_max: Option<libc::rlimit>,
    /// The reaper's entry in which the child first writes its process id.
    pub reaper_slot: Option<ReaperSlot<'a>>,
    /// The `cgroup.procs` of the control group that the child, and thus its descendants, enter
    /// before the program runs.
    pub memory_group: Option<BorrowedFd<'a>>,
}

/// A child that runs its program.
#[derive(Debug)]
pub struct SpawnedChild {
    /// Its process id.
    pub pid: Pid,
    /// The error with which it could not enter its control group; it runs without.
    pub group_error: Option<io::Error>,
}

/// A file or directory of a child.
#[derive(Debug)]
pub enum ChildFile {
    /// A path that the child opens itself, after it has closed its inherited descriptors.
    Path(CString),
    /// An open descriptor that is passed to the child.
    Open(Arc<OwnedFd>),
}

impl ChildFile {
    /// Returns the path, or null and the descriptor.
    fn as_raw(&self) -> (*const c_char, c_int) {
        match self {
            Self::Path(path) => (path.as_ptr(), -1),
            Self::Open(open) => (ptr::null(), open.as_raw_fd()),
        }
    }
}

/// An entry in the reaper's list.
#[derive(Debug, Clone, Copy)]
pub struct ReaperSlot<'a> {
    /// The list.
    pub list: BorrowedFd<'a>,
    /// Offset of the entry in bytes.
    pub offset: i64,
}

/// The steps of the child's setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetupStep {
    /// Creating the process and its group, and setting up its descriptors.
    Create,
    /// Opening standard input.
    Input,
    /// Opening standard output.
    Output,
    /// Opening standard error.
    Errors,
    /// Entering the working directory.
    Directory,
    /// Executing the program.
    Program,
}

/// A failed step.
#[derive(Debug)]
pub struct FailedStep {
    /// The step.
    pub step: SetupStep,
    /// The error.
    pub error: io::Error,
}

/// Input of the child in plain C types, and its results.
struct ChildSetup {
    program: *const c_char,
    args: *const *const c_char,
    env: *const *const c_char,
    /// A path, or null and a descriptor; likewise the standard files.
    cwd: (*const c_char, c_int),
    stdin: (*const c_char, c_int),
    stdout: (*const c_char, c_int),
    stderr: (*const c_char, c_int),
    files_max: Option<libc::rlimit>,
    /// The descriptor of the list and the offset of the entry.
    reaper_slot: Option<(c_int, i64)>,
    /// The descriptor of `cgroup.procs`; -1 for none.
    memory_group: c_int,
    /// Error of entering the control group; 0 for none.
    group_errno: c_int,
    /// The current step.
    step: SetupStep,
    /// Error of the current step; 0 for none.
    errno: c_int,
}

/// Starts a child in its own process group. Returns once its program runs, or with the step that
/// failed.
pub fn spawn(spec: &ChildSpec<'_>) -> Result<SpawnedChild, FailedStep> {
    let (args, env) = (pointers(&spec.args), pointers(&spec.env));
    let mut setup = ChildSetup {
        program: spec.program.as_ptr(),
        args: args.as_ptr(),
        env: env.as_ptr(),
        cwd: spec.cwd.as_raw(),
        stdin: spec.stdin.as_raw(),
        stdout: spec.stdout.as_raw(),
        stderr: spec.stderr.as_raw(),
        files_max: spec.files_max,
        reaper_slot: spec.reaper_slot.map(|reaper_slot| (reaper_slot.list.as_raw_fd(), reaper_slot.offset)),
        memory_group: spec.memory_group.map_or(-1, |group| group.as_raw_fd()),
        group_errno: 0,
        step: SetupStep::Create,
        errno: 0,
    };
    let child = clone_child(&mut setup).map_err(|error| FailedStep { step: SetupStep::Create, error })?;
    if setup.errno == 0 {
        let group_error = (setup.group_errno != 0).then(|| io::Error::from_raw_os_error(setup.group_errno));
        return Ok(SpawnedChild { pid: child, group_error });
    }
    reap_failed(child);
    Err(FailedStep { step: setup.step, error: io::Error::from_raw_os_error(setup.errno) })
}

/// Converts to a C array: pointers, terminated by null.
fn pointers(list: &[CString]) -> Vec<*const c_char> {
    list.iter().map(|item| item.as_ptr()).chain([ptr::null()]).collect()
}

/// Creates the child. On return it has executed its program or ended.
fn clone_child(setup: &mut ChildSetup) -> io::Result<Pid> {
    let mut stack = Vec::<u8>::with_capacity(STACK_BYTES);
    // SAFETY: all signals are blocked around the clone, so no handler of ours runs in the child.
    // The child runs `child_main` on a stack of its own. The stack, `setup` and all that it points
    // to outlive the child's use of them: VFORK suspends this thread until the child has executed
    // another program or ended. `child_main` makes raw calls only: it takes no lock, allocates
    // nothing and cannot panic.
    let child = unsafe {
        let (mut all, mut before) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let top = stack.as_mut_ptr().add(STACK_BYTES);
        let top = top.sub(top.addr() % 16);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let child = libc::clone(child_main, top.cast(), flags, ptr::from_mut(setup).cast());
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        if child < 0 { Err(error) } else { Ok(child) }
    };
    child.map(|child| Pid::from_raw(child).expect("a child has a number above 0"))
}

/// Reaps a child that ended without executing its program.
fn reap_failed(child: Pid) {
    // SAFETY: the null pointer asks for no status.
    unsafe { libc::waitpid(child.as_raw_nonzero().get(), ptr::null_mut(), 0) };
}

/// The main function of the child. Returns only on failure; `clone` then calls `_exit`.
extern "C" fn child_main(setup: *mut c_void) -> c_int {
    // SAFETY: `clone_child` passed its `ChildSetup`, which it does not touch before the child has
    // ended or executed another program. The pointers in it are to strings and null-terminated
    // arrays that live as long.
    unsafe {
        let setup = &mut *setup.cast::<ChildSetup>();
        reset_signal_handlers();
        if run_steps(setup) < 0 {
            setup.errno = *libc::__errno_location();
        }
    }
    127
}

/// Performs the steps in order. Negative if one failed, with the error in `errno`.
unsafe fn run_steps(setup: &mut ChildSetup) -> c_int {
    // SAFETY: `child_main` guarantees that all pointers are valid; the calls take descriptors and C
    // strings, and `line` has the length that is passed.
    unsafe {
        if libc::setpgid(0, 0) < 0 {
            return -1;
        }
        if let Some((list, offset)) = setup.reaper_slot {
            let line = crate::reaper::format_entry(libc::getpid());
            // Ignore a failure: the child is then unknown to the reaper, but can run.
            libc::pwrite(list, line.as_ptr().cast(), line.len(), offset);
        }
        // Writing 0 moves the writer itself. If refused, it runs without the group, and its memory
        // is only measured.
        if setup.memory_group >= 0 && libc::write(setup.memory_group, c"0".as_ptr().cast(), 1) < 0 {
            setup.group_errno = *libc::__errno_location();
        }
        if dup_to(setup.stderr, 2) < 0 || dup_to(setup.stdin, 0) < 0 || dup_to(setup.stdout, 1) < 0 {
            return -1;
        }
        setup.step = SetupStep::Directory;
        if setup.cwd.0.is_null() && libc::fchdir(setup.cwd.1) < 0 {
            return -1;
        }
        // Before Linux 5.9 this call does not exist; `execve` then closes the descriptors.
        libc::syscall(libc::SYS_close_range, FIRST_OTHER, c_int::MAX, 0);
        if let Some(limit) = &setup.files_max {
            libc::setrlimit(libc::RLIMIT_NOFILE, limit);
        }
        setup.step = SetupStep::Input;
        if open_as(setup.stdin.0, libc::O_RDONLY, 0) < 0 {
            return -1;
        }
        setup.step = SetupStep::Output;
        if open_as(setup.stdout.0, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 1) < 0 {
            return -1;
        }
        setup.step = SetupStep::Errors;
        if open_as(setup.stderr.0, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 2) < 0 {
            return -1;
        }
        setup.step = SetupStep::Directory;
        if !setup.cwd.0.is_null() && libc::chdir(setup.cwd.0) < 0 {
            return -1;
        }
        setup.step = SetupStep::Program;
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::execve(setup.program, setup.args, setup.env)
    }
}

/// Duplicates an open descriptor to `target`; does nothing if there is a path.
unsafe fn dup_to((path, open): (*const c_char, c_int), target: c_int) -> c_int {
    // SAFETY: the descriptors are this child's own.
    if path.is_null() { unsafe { libc::dup2(open, target) } } else { target }
}

/// Opens a file as descriptor `target`; does nothing without a path.
unsafe fn open_as(path: *const c_char, flags: c_int, target: c_int) -> c_int {
    const MODE: libc::mode_t = 0o666;
    if path.is_null() {
        return target;
    }
    // SAFETY: `path` is a C string; the descriptors are this child's own.
    unsafe {
        let file = libc::open(path, flags, MODE);
        if file < 0 {
            return file;
        }
        let put = libc::dup2(file, target);
        libc::close(file);
        put
    }
}

/// Resets signal handlers, because until `execve` they would run in our memory. Ignored signals
/// stay ignored, as for any child, except SIGPIPE: Rust ignores it, not the user's shell.
unsafe fn reset_signal_handlers() {
    // SAFETY: a zeroed sigaction is the default action; the pointers are valid for the calls.
    unsafe {
        let default_action = std::mem::zeroed::<libc::sigaction>();
        for signal in 1..=libc::SIGRTMAX() {
            let mut now = std::mem::zeroed::<libc::sigaction>();
            let readable = libc::sigaction(signal, ptr::null(), &raw mut now) == 0;
            let kept = [libc::SIG_DFL, libc::SIG_IGN].contains(&now.sa_sigaction) && signal != libc::SIGPIPE;
            if readable && !kept {
                libc::sigaction(signal, &raw const default_action, ptr::null_mut());
            }
        }
    }
}

/// An empty standard input.
pub const DEV_NULL: &CStr = c"/dev/null";
