//! Work in other namespaces: done by a process of its own that shares this one's memory and descriptors, while its caller waits.
//!
//! Who may not make a file system here may in a user namespace of his own. A process of several threads cannot enter one, and should not:
//! all else it does is meant where it is. So a child goes, which costs no copy of anything, lives a moment and leaves nothing behind.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use memmap2::MmapOptions;

/// Stack of the child, bytes: what is called there is a few system calls deep. Untouched it takes no memory.
const STACK_BYTES: usize = 256 << 10;

/// Where the child begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// In a new user namespace, with all rights there, and a mount namespace of that.
    New,
    /// Where its caller is, alone: so it may go elsewhere.
    Alone,
}

/// What the child is given, and gives.
struct Job<T, W> {
    work: Option<W>,
    done: Option<io::Result<T>>,
}

/// Does `work` in a child; gives what it gives. It must not panic. Fails where the system refuses such a child.
pub fn apart<T, W: FnOnce() -> io::Result<T>>(start: Start, work: W) -> io::Result<T> {
    let mut stack = MmapOptions::new().len(STACK_BYTES).map_anon()?;
    let top = stack.as_mut_ptr().wrapping_add(STACK_BYTES);
    let mut job = Job { work: Some(work), done: None };
    let namespaces = match start {
        Start::New => libc::CLONE_NEWUSER | libc::CLONE_NEWNS,
        Start::Alone => 0,
    };
    // No signal tells of its end: nobody else in this process is to wait for it.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | namespaces;
    let _blocked = Blocked::all()?;
    // SAFETY: the child runs on a stack of its own, which outlives it, as `job` does: this thread stands still until the child has ended
    // (CLONE_VFORK) and is waited for below. It uses this thread's thread-local storage meanwhile, as a call from here would; a handler of a
    // signal cannot run in it, since all are blocked.
    let child = unsafe { libc::clone(child::<T, W>, top.cast(), flags, (&raw mut job).cast()) };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a null pointer asks for no status.
    unsafe { libc::waitpid(child, ptr::null_mut(), libc::__WALL) };
    job.done.unwrap_or_else(|| Err(io::Error::other("a child of this process was ended before its work was done")))
}

extern "C" fn child<T, W: FnOnce() -> io::Result<T>>(job: *mut c_void) -> libc::c_int {
    // SAFETY: it is the caller's own, who stands still.
    let job = unsafe { &mut *job.cast::<Job<T, W>>() };
    job.done = job.work.take().map(|work| work());
    0
}

/// No signal reaches this thread, nor a child that it makes, as long as this lives.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all() -> io::Result<Self> {
        let (mut all, mut before) = (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::<libc::sigset_t>::uninit());
        // SAFETY: the first call fills `all`, which the second reads; that fills `before` when it gives 0.
        let done = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
        };
        // SAFETY: filled.
        if done == 0 { Ok(Self(unsafe { before.assume_init() })) } else { Err(io::Error::from_raw_os_error(done)) }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: a set that the system gave; a null pointer asks for none.
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
        let child = apart(Start::Alone, || {
            seen.push(7);
            Ok(getpid())
        });
        assert_ne!(child.unwrap(), own);
        assert_eq!(seen, [7]);
        let refused = apart(Start::Alone, || Err::<(), _>(io::ErrorKind::NotFound.into()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        assert_eq!(children, "", "none is left");
    }

    #[test]
    fn threads_do_it_at_the_same_time_while_others_use_the_memory() {
        let turn = |number: usize| {
            (0..50).for_each(|round| {
                let text = format!("{number}.{round}");
                assert_eq!(apart(Start::Alone, || Ok(text.clone())).unwrap(), text);
            });
        };
        thread::scope(|scope| (0..4).for_each(|number| drop(scope.spawn(move || turn(number)))));
    }
}
