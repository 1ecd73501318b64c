//! Runs work in other namespaces, in a child process that shares this process's memory and
//! descriptors while the caller waits.
//!
//! A process that may not create a file system here may do so in a user namespace of its own. A
//! process with several threads cannot enter one, and should not: all its other work belongs in the
//! present namespaces. So a child does the work. It copies nothing, lives briefly and leaves
//! nothing behind.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use memmap2::MmapOptions;

/// Stack of the child in bytes: the work is a few calls deep. Untouched stack takes no memory.
const STACK_BYTES: usize = 256 << 10;

/// Namespaces in which the child starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildNamespaces {
    /// A new user namespace, in which the child has all capabilities, and a mount namespace owned
    /// by it.
    New,
    /// The caller's namespaces. As a process with one thread, the child can then enter others.
    Inherited,
}

/// Input and result of the child.
struct Job<T, W> {
    work: Option<W>,
    done: Option<io::Result<T>>,
}

/// Runs `work` in a child and returns its result. `work` must not panic. Fails if the system
/// refuses the child.
pub fn run_in_namespace<T, W: FnOnce() -> io::Result<T>>(namespaces: ChildNamespaces, work: W) -> io::Result<T> {
    let mut stack = MmapOptions::new().len(STACK_BYTES).map_anon()?;
    let top = stack.as_mut_ptr().wrapping_add(STACK_BYTES);
    let mut job = Job { work: Some(work), done: None };
    let new_namespaces = match namespaces {
        ChildNamespaces::New => libc::CLONE_NEWUSER | libc::CLONE_NEWNS,
        ChildNamespaces::Inherited => 0,
    };
    // No exit signal: nobody else in this process should wait for the child.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | new_namespaces;
    let _blocked = BlockedSignals::all()?;
    // SAFETY: the child runs on its own stack. The stack and `job` outlive it, because this thread
    // is suspended until the child has ended (CLONE_VFORK) and is waited for below. Meanwhile the
    // child uses this thread's thread-local storage, as a call from here would. No signal handler
    // can run in the child, since all signals are blocked.
    let child = unsafe { libc::clone(child_main::<T, W>, top.cast(), flags, (&raw mut job).cast()) };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a null pointer asks for no status.
    unsafe { libc::waitpid(child, ptr::null_mut(), libc::__WALL) };
    job.done.unwrap_or_else(|| Err(io::Error::other("a child of this process was ended before its work was done")))
}

extern "C" fn child_main<T, W: FnOnce() -> io::Result<T>>(job: *mut c_void) -> libc::c_int {
    // SAFETY: the pointer is to the `job` of the caller, which is suspended.
    let job = unsafe { &mut *job.cast::<Job<T, W>>() };
    job.done = job.work.take().map(|work| work());
    0
}

/// Blocks all signals for this thread, and for children that it creates, while the value lives.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn all() -> io::Result<Self> {
        let (mut all, mut before) = (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::<libc::sigset_t>::uninit());
        // SAFETY: the first call fills `all`, which the second reads; the second fills `before` if
        // it returns 0.
        let done = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
        };
        // SAFETY: the call succeeded, so `before` is filled.
        if done == 0 { Ok(Self(unsafe { before.assume_init() })) } else { Err(io::Error::from_raw_os_error(done)) }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set came from the system; a null pointer asks for no old set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;
    use std::thread;

    #[test]
    fn it_is_done_by_another_process_that_sees_what_its_caller_sees_and_is_gone_then() {
        let (own, mut seen) = (getpid(), Vec::new());
        let child = run_in_namespace(ChildNamespaces::Inherited, || {
            seen.push(7);
            Ok(getpid())
        });
        assert_ne!(child.unwrap(), own);
        assert_eq!(seen, [7]);
        let refused = run_in_namespace(ChildNamespaces::Inherited, || Err::<(), _>(io::ErrorKind::NotFound.into()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        assert_eq!(children, "", "none is left");
    }

    #[test]
    fn threads_do_it_at_the_same_time_while_others_use_the_memory() {
        let turn = |number: usize| {
            (0..50).for_each(|round| {
                let text = format!("{number}.{round}");
                assert_eq!(run_in_namespace(ChildNamespaces::Inherited, || Ok(text.clone())).unwrap(), text);
            });
        };
        thread::scope(|scope| (0..4).for_each(|number| drop(scope.spawn(move || turn(number)))));
    }
}
