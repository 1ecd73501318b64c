//! State that all threads of a program and their signal handlers share.
//!
//! A signal handler that arrived while its thread holds a lock would deadlock, or jump out and
//! leave the lock held. Therefore signals are blocked while a lock is held. An empty list, which is
//! the usual case, is detected without the lock.

use crate::call::{ErrnoGuard, SignalMask};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Value behind a lock that signal handlers may take.
#[derive(Debug, Default)]
pub struct SignalSafe<T>(Mutex<T>);

impl<T> SignalSafe<T> {
    /// Makes a lock around a value.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Takes the lock, with signals blocked, until the guard is dropped.
    pub fn lock(&self) -> SignalSafeGuard<'_, T> {
        let (signal_mask, errno_guard) = (SignalMask::block_all(), ErrnoGuard::new());
        SignalSafeGuard {
            value: self.0.lock().unwrap_or_else(PoisonError::into_inner),
            _errno_guard: errno_guard,
            _signal_mask: signal_mask,
        }
    }
}

/// Lock guard. Signals are delivered after it is dropped.
#[derive(Debug)]
pub struct SignalSafeGuard<'a, T> {
    value: MutexGuard<'a, T>,
    _errno_guard: ErrnoGuard,
    _signal_mask: SignalMask,
}

impl<T> Deref for SignalSafeGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for SignalSafeGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Shared list.
#[derive(Debug)]
pub struct List<T> {
    filled: AtomicBool,
    all: SignalSafe<Vec<T>>,
}

impl<T> List<T> {
    /// Makes an empty list.
    pub const fn new() -> Self {
        Self { filled: AtomicBool::new(false), all: SignalSafe::new(Vec::new()) }
    }

    /// Returns whether the list is empty, without the lock. A thread sees its own insertions.
    pub fn is_empty(&self) -> bool {
        !self.filled.load(Ordering::Acquire)
    }

    /// Locks the list until the guard is dropped.
    pub fn lock(&self) -> ListGuard<'_, T> {
        ListGuard { all: self.all.lock(), filled: &self.filled }
    }
}

/// Guard of a locked list.
#[derive(Debug)]
pub struct ListGuard<'a, T> {
    all: SignalSafeGuard<'a, Vec<T>>,
    filled: &'a AtomicBool,
}

impl<T> Deref for ListGuard<'_, T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.all
    }
}

impl<T> DerefMut for ListGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.all
    }
}

impl<T> Drop for ListGuard<'_, T> {
    fn drop(&mut self) {
        self.filled.store(!self.all.is_empty(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_empty_until_something_is_in_it_and_again_when_nothing_is() {
        let list = List::new();
        assert!(list.is_empty());
        list.lock().push(1);
        assert!(!list.is_empty());
        list.lock().retain(|known| *known != 1);
        assert!(list.is_empty());
    }

    #[test]
    fn a_lock_leaves_errno_as_it_was() {
        use crate::call::{clear_errno, errno, set_errno};
        use rustix::io::Errno;
        let list = List::new();
        set_errno(Errno::DOM);
        let mut held = list.lock();
        held.push(1);
        set_errno(Errno::AGAIN);
        drop(held);
        assert_eq!(errno(), Some(Errno::DOM));
        clear_errno();
    }

    #[test]
    fn a_signal_waits_until_the_list_is_let_go() {
        use std::sync::atomic::AtomicU32;
        static LIST: List<u32> = List::new();
        static SEEN: AtomicU32 = AtomicU32::new(0);
        extern "C" fn handler(_: libc::c_int) {
            SEEN.store(u32::try_from(LIST.lock().len()).unwrap_or(0), Ordering::Relaxed);
        }
        // SAFETY: the handler does only what this test needs; the signal is sent to this thread.
        unsafe {
            libc::signal(libc::SIGUSR1, handler as extern "C" fn(libc::c_int) as libc::sighandler_t);
            let mut held = LIST.lock();
            held.push(1);
            libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1);
            assert_eq!(SEEN.load(Ordering::Relaxed), 0, "it came while the list was held");
            held.push(2);
            drop(held);
        }
        assert_eq!(SEEN.load(Ordering::Relaxed), 2);
    }
}
