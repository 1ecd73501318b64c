//! The child between its birth and its program: what it must do itself, since it is not ours to do.
//!
//! ```text
//! we  --clone(VM, VFORK)--> child: own group, keeper's list, memory's control group, what it is given to 0 1 2, all else closed,
//! (the calling thread                limits, standard files opened, working directory entered --execve--> the tool
//!  waits; so nothing is copied)         \-- a step fails: which and why, left in our memory; it ends
//! ```
//! It opens files and enters folders only after it has closed what it was born with: its folder may lie in a mount that this
//! process serves, and if we are killed the kernel must see that nobody holds the mount's device, so that the child gets an
//! error instead of waiting for ever. std's `Command` closes at `execve`, which is too late. As with `posix_spawn`, the page
//! tables are not copied: a start costs the same however much memory the pool holds.
//!
//! What it does not do: search for programs; explain errors (`start` does).
#![expect(unsafe_code, reason = "clone, and the raw calls that are all a child may do before it runs its program")]

use rustix::process::Pid;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

/// The child's stack until `execve`: its frames are small, and glibc's own spawn takes as little.
const STACK_BYTES: usize = 64 << 10;

/// The first descriptor that is none of the three standard ones.
const FIRST_OTHER: c_int = 3;

/// What a child is told to do.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The program, absolute.
    pub program: CString,
    /// Its arguments, with its own name first.
    pub args: Vec<CString>,
    /// Its environment, `NAME=VALUE`.
    pub env: Vec<CString>,
    /// Its working directory.
    pub cwd: Place,
    /// What it reads as standard input.
    pub stdin: Place,
    /// Where standard output goes; a file at a path is made or emptied first.
    pub stdout: Place,
    /// Where standard error goes.
    pub stderr: OwnedFd,
    /// The limits of open descriptors that it gets; None: those of this process.
    pub files_max: Option<libc::rlimit>,
    /// Where its number is entered before anything else happens to it.
    pub register: Option<Register<'a>>,
    /// The `cgroup.procs` of the control group that it enters before its program, with all its
    /// later children.
    pub memory_group: Option<BorrowedFd<'a>>,
}

/// A child that runs its program.
#[derive(Debug)]
pub struct Spawned {
    /// Its number.
    pub pid: Pid,
    /// Why it did not enter its control group, if it was to and did not: it runs without.
    pub outside: Option<io::Error>,
}

/// A file or folder of a child.
#[derive(Debug)]
pub enum Place {
    /// It opens this itself, once it has let go of what is ours.
    Path(CString),
    /// It is given this.
    Open(Arc<OwnedFd>),
}

impl Place {
    /// The path, and the descriptor where that is null.
    fn plain(&self) -> (*const c_char, c_int) {
        match self {
            Self::Path(path) => (path.as_ptr(), -1),
            Self::Open(open) => (ptr::null(), open.as_raw_fd()),
        }
    }
}

/// A line of the keeper's list.
#[derive(Debug, Clone, Copy)]
pub struct Register<'a> {
    /// The list.
    pub list: BorrowedFd<'a>,
    /// Where the line begins, bytes.
    pub offset: i64,
}

/// What the child was about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Being born.
    Birth,
    /// Opening its standard input.
    Input,
    /// Opening its standard output.
    Output,
    /// Entering its working directory.
    Directory,
    /// Running its program.
    Program,
}

/// A step that failed.
#[derive(Debug)]
pub struct Failed {
    /// Which.
    pub step: Step,
    /// Why.
    pub error: io::Error,
}

/// All that the child reads, as plain as it needs it, and what it answers.
struct Orders {
    program: *const c_char,
    args: *const *const c_char,
    env: *const *const c_char,
    /// A path, or null and a descriptor; so the next two.
    cwd: (*const c_char, c_int),
    stdin: (*const c_char, c_int),
    stdout: (*const c_char, c_int),
    stderr_pipe: c_int,
    files_max: Option<libc::rlimit>,
    /// The list and the offset of the line.
    register: Option<(c_int, i64)>,
    /// What it enters by writing to it; -1: nothing.
    memory_group: c_int,
    /// The error of that; 0 as long as there is none.
    outside_errno: c_int,
    /// Which step is under way.
    step: Step,
    /// The error of the step; 0 as long as there is none.
    errno: c_int,
}

/// Starts the child and returns when its program runs, or tells which step failed. It leads a process group of its own.
pub fn spawn(plan: &Plan<'_>) -> Result<Spawned, Failed> {
    let (args, env) = (pointers(&plan.args), pointers(&plan.env));
    let mut orders = Orders {
        program: plan.program.as_ptr(),
        args: args.as_ptr(),
        env: env.as_ptr(),
        cwd: plan.cwd.plain(),
        stdin: plan.stdin.plain(),
        stdout: plan.stdout.plain(),
        stderr_pipe: plan.stderr.as_raw_fd(),
        files_max: plan.files_max,
        register: plan.register.map(|register| (register.list.as_raw_fd(), register.offset)),
        memory_group: plan.memory_group.map_or(-1, |group| group.as_raw_fd()),
        outside_errno: 0,
        step: Step::Birth,
        errno: 0,
    };
    let child = bear(&mut orders).map_err(|error| Failed { step: Step::Birth, error })?;
    if orders.errno == 0 {
        let outside = (orders.outside_errno != 0).then(|| io::Error::from_raw_os_error(orders.outside_errno));
        return Ok(Spawned { pid: child, outside });
    }
    bury(child);
    Err(Failed { step: orders.step, error: io::Error::from_raw_os_error(orders.errno) })
}

/// C's form of a list: pointers, and null at its end.
fn pointers(list: &[CString]) -> Vec<*const c_char> {
    list.iter().map(|item| item.as_ptr()).chain([ptr::null()]).collect()
}

/// The child, which has run its program or has ended by now.
fn bear(orders: &mut Orders) -> io::Result<Pid> {
    let mut stack = Vec::<u8>::with_capacity(STACK_BYTES);
    // SAFETY: all signals are blocked around the clone, so that no handler of ours runs in the child. The child runs `live` on a
    // stack of its own that, like `orders` and all that it points to, outlives it here: VFORK keeps this thread waiting until the
    // child has run another program or ended. `live` makes raw calls only: it takes no lock, allocates nothing, cannot panic.
    let child = unsafe {
        let (mut all, mut before) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let top = stack.as_mut_ptr().add(STACK_BYTES);
        let top = top.sub(top.addr() % 16);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let child = libc::clone(live, top.cast(), flags, ptr::from_mut(orders).cast());
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        if child < 0 { Err(error) } else { Ok(child) }
    };
    child.map(|child| Pid::from_raw(child).expect("a child has a number above 0"))
}

/// Reaps a child that ended without running its program.
fn bury(child: Pid) {
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(child.as_raw_nonzero().get(), ptr::null_mut(), 0) };
}

/// All that the child does. It comes back only to end: after this function `clone` calls `_exit`.
extern "C" fn live(orders: *mut c_void) -> c_int {
    // SAFETY: `bear` gave us its `Orders`, which it does not touch before we have ended or run another program; the pointers in
    // it are to strings and null-ended lists that live as long.
    unsafe {
        let orders = &mut *orders.cast::<Orders>();
        forget_handlers();
        if act(orders) < 0 {
            orders.errno = *libc::__errno_location();
        }
    }
    127
}

/// The steps in order; negative when one failed, with the reason in `errno`.
unsafe fn act(orders: &mut Orders) -> c_int {
    // SAFETY: `live` promises that all pointers are good; the calls take descriptors and C strings, and `buffer` has its length.
    unsafe {
        if libc::setpgid(0, 0) < 0 {
            return -1;
        }
        if let Some((list, offset)) = orders.register {
            let line = crate::keeper::line_of(libc::getpid());
            // A list that takes no more leaves this one unprotected, which is no reason to fail it.
            libc::pwrite(list, line.as_ptr().cast(), line.len(), offset);
        }
        // The writer of a 0 is meant itself. Where that is refused it runs without, and its memory
        // is measured.
        if orders.memory_group >= 0 && libc::write(orders.memory_group, c"0".as_ptr().cast(), 1) < 0 {
            orders.outside_errno = *libc::__errno_location();
        }
        if libc::dup2(orders.stderr_pipe, 2) < 0 || take(orders.stdin, 0) < 0 || take(orders.stdout, 1) < 0 {
            return -1;
        }
        orders.step = Step::Directory;
        if orders.cwd.0.is_null() && libc::fchdir(orders.cwd.1) < 0 {
            return -1;
        }
        // Before Linux 5.9 there is no such call, and they are closed by `execve`.
        libc::syscall(libc::SYS_close_range, FIRST_OTHER, c_int::MAX, 0);
        if let Some(limit) = &orders.files_max {
            libc::setrlimit(libc::RLIMIT_NOFILE, limit);
        }
        orders.step = Step::Input;
        if put(orders.stdin.0, libc::O_RDONLY, 0) < 0 {
            return -1;
        }
        orders.step = Step::Output;
        if put(orders.stdout.0, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 1) < 0 {
            return -1;
        }
        orders.step = Step::Directory;
        if !orders.cwd.0.is_null() && libc::chdir(orders.cwd.0) < 0 {
            return -1;
        }
        orders.step = Step::Program;
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::execve(orders.program, orders.args, orders.env)
    }
}

/// Takes over what was opened for it as descriptor `place`; nothing where it has a path.
unsafe fn take((path, open): (*const c_char, c_int), place: c_int) -> c_int {
    // SAFETY: the descriptors are this child's own.
    if path.is_null() { unsafe { libc::dup2(open, place) } } else { place }
}

/// Opens a file as descriptor `place`; nothing where it has no path.
unsafe fn put(path: *const c_char, flags: c_int, place: c_int) -> c_int {
    const MODE: libc::mode_t = 0o666;
    if path.is_null() {
        return place;
    }
    // SAFETY: `path` is a C string; the descriptors are this child's own.
    unsafe {
        let file = libc::open(path, flags, MODE);
        if file < 0 {
            return file;
        }
        let put = libc::dup2(file, place);
        libc::close(file);
        put
    }
}

/// Our handlers mean nothing to a tool: until `execve` they would run in our memory. What we ignore stays ignored, as for any
/// child, but SIGPIPE: that Rust ignores it is not what the user's shell said.
unsafe fn forget_handlers() {
    // SAFETY: a zeroed sigaction is the default action; the pointers are valid for the calls.
    unsafe {
        let usual = std::mem::zeroed::<libc::sigaction>();
        for signal in 1..=libc::SIGRTMAX() {
            let mut now = std::mem::zeroed::<libc::sigaction>();
            let known = libc::sigaction(signal, ptr::null(), &raw mut now) == 0;
            let kept = [libc::SIG_DFL, libc::SIG_IGN].contains(&now.sa_sigaction) && signal != libc::SIGPIPE;
            if known && !kept {
                libc::sigaction(signal, &raw const usual, ptr::null_mut());
            }
        }
    }
}

/// Standard input that has ended.
pub const NOTHING: &CStr = c"/dev/null";
