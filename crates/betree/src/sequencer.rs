//! The order of changes: each gets a number, and is complete when all with smaller numbers are.

use std::{
    hint,
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
    thread,
};

/// Most changes that may be under way: more than there are threads.
const UNDER_WAY_MAX: u64 = 1024;
/// Looks at a number before the thread lets others run.
const SPINS: u32 = 100;

/// Gives sequence numbers, and tells which changes are complete.
#[derive(Debug)]
pub struct Sequencer {
    /// The last number that was given.
    last: AtomicU64,
    /// All changes up to this number are done.
    complete: AtomicU64,
    /// For each number, modulo their count, the last one that is done.
    done: Box<[AtomicU64]>,
}

impl Sequencer {
    /// Goes on after a number.
    pub fn after(last: u64) -> Self {
        let done = (0..UNDER_WAY_MAX).map(|_| AtomicU64::new(0)).collect();
        Self { last: AtomicU64::new(last), complete: AtomicU64::new(last), done }
    }

    /// Gives the next number. Its change must be told to be done.
    pub fn next(&self) -> u64 {
        let number = self.last.fetch_add(1, Relaxed) + 1;
        // Otherwise its place would still be needed by an earlier one.
        self.wait_for(number.saturating_sub(UNDER_WAY_MAX));
        number
    }

    /// The last number that was given.
    pub fn last(&self) -> u64 {
        self.last.load(Acquire)
    }

    /// The number up to which all changes are done.
    pub fn complete(&self) -> u64 {
        self.complete.load(Acquire)
    }

    /// Notes that a change is done, and waits until all before it are.
    pub fn finish(&self, number: u64) {
        self.place(number).store(number, Release);
        self.wait_for(number);
    }

    /// Waits until all changes up to a number are done.
    pub fn wait_for(&self, number: u64) {
        let mut looks = 0;
        while self.advance() < number {
            looks += 1;
            if looks < SPINS { hint::spin_loop() } else { thread::yield_now() }
        }
    }

    /// Counts what is done as complete, also what others have done; returns up to where.
    fn advance(&self) -> u64 {
        let mut complete = self.complete();
        while self.place(complete + 1).load(Acquire) == complete + 1 {
            complete = match self.complete.compare_exchange(complete, complete + 1, AcqRel, Acquire) {
                Ok(_) => complete + 1,
                Err(other) => other,
            };
        }
        complete
    }

    fn place(&self, number: u64) -> &AtomicU64 {
        &self.done[usize::try_from(number % UNDER_WAY_MAX).expect("a small number")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_complete_when_all_before_it_are_done() {
        let order = Sequencer::after(10);
        let (one, two) = (order.next(), order.next());
        assert_eq!((one, two, order.last(), order.complete()), (11, 12, 12, 10));
        thread::scope(|scope| {
            let later = scope.spawn(|| order.finish(two));
            assert_eq!(order.complete(), 10);
            order.finish(one);
            later.join().unwrap();
            assert_eq!(order.complete(), 12);
        });
    }

    #[test]
    fn many_threads_finish_more_changes_than_may_be_under_way() {
        let order = Sequencer::after(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2 * UNDER_WAY_MAX {
                        let number = order.next();
                        order.finish(number);
                        assert!(order.complete() >= number);
                    }
                });
            }
        });
        assert_eq!(order.complete(), 8 * UNDER_WAY_MAX);
    }
}
