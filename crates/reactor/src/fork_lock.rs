//! Fork lock: keeps threads out of critical sections while their process forks. A child has none of
//! those threads, and a lock that one of them held would stay locked.
//!
//! It consists of two futex words. A lock that shares state with others, as all of `parking_lot` do
//! through its queues, might be held in the child.

use rustix::thread::futex::{self, Flags};
use std::{
    io,
    sync::atomic::{
        AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
};

/// Fork lock: any number of threads hold it shared; one at a time closes it, and waits until nobody
/// holds it.
#[derive(Debug, Default)]
pub struct ForkLock {
    holders: AtomicU32,
    closed: AtomicU32,
}

/// Guard of a thread that holds the lock shared.
#[derive(Debug)]
pub struct ForkGuard<'a>(&'a ForkLock);

impl ForkLock {
    /// Acquires the lock shared, waiting while it is closed. Not reentrant.
    pub fn acquire(&self) -> ForkGuard<'_> {
        loop {
            self.holders.fetch_add(1, SeqCst);
            let guard = ForkGuard(self);
            if self.closed.load(SeqCst) == 0 {
                return guard;
            }
            drop(guard);
            wait(&self.closed, 1);
        }
    }

    /// Closes the lock and waits until nobody holds it.
    pub fn close(&self) {
        while self.closed.compare_exchange(0, 1, SeqCst, Relaxed).is_err() {
            wait(&self.closed, 1);
        }
        loop {
            match self.holders.load(SeqCst) {
                0 => return,
                some => wait(&self.holders, some),
            }
        }
    }

    /// Opens the lock for all.
    pub fn open(&self) {
        self.closed.store(0, SeqCst);
        wake_all(&self.closed);
    }

    /// Opens the lock in a forked child, which has no other threads.
    pub fn open_in_child(&self) {
        self.holders.store(0, SeqCst);
        self.open();
    }
}

impl ForkGuard<'_> {
    /// Runs `sleep` without the lock, so that a fork may happen meanwhile.
    pub fn run_unlocked<T>(&mut self, sleep: impl FnOnce() -> T) -> T {
        let lock = self.0;
        lock.release();
        let slept = sleep();
        std::mem::forget(lock.acquire());
        slept
    }
}

impl ForkLock {
    fn release(&self) {
        if self.holders.fetch_sub(1, SeqCst) == 1 && self.closed.load(SeqCst) != 0 {
            wake_all(&self.holders);
        }
    }
}

impl Drop for ForkGuard<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Waits until the word no longer has this value; may return spuriously.
fn wait(word: &AtomicU32, is: u32) {
    let _ = futex::wait(word, Flags::PRIVATE, is, None);
}

fn wake_all(word: &AtomicU32) {
    let woken = futex::wake(word, Flags::PRIVATE, i32::MAX.unsigned_abs());
    debug_assert!(woken.map_err(io::Error::from).is_ok(), "a word of ours");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::atomic::AtomicBool, thread};

    #[test]
    fn nobody_is_inside_while_it_is_closed_and_all_go_on_when_it_is_open() {
        let (lock, ends, closed) = (ForkLock::default(), AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut guard = lock.acquire();
                    while !ends.load(SeqCst) {
                        assert!(!closed.load(SeqCst), "inside a closed gate");
                        guard.run_unlocked(thread::yield_now);
                    }
                });
            }
            for _ in 0..2000 {
                lock.close();
                closed.store(true, SeqCst);
                thread::yield_now();
                closed.store(false, SeqCst);
                lock.open();
            }
            ends.store(true, SeqCst);
        });
        lock.close();
        lock.open_in_child();
        drop(lock.acquire());
    }
}
