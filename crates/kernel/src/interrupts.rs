//! Callers that gave up: which requests the kernel wants ended early, and who waits to hear of it.
//!
//! ```text
//!   Reply::interrupted() --> waiting[unique] --- INTERRUPT unique ---> the future is ready
//!   INTERRUPT unique, nobody waits for it (yet) --> early: remembered, for an `interrupted()` that comes later
//! ```
//!
//! An INTERRUPT may overtake its request on another thread, and requests that never ask for it are interrupted too. Both
//! look the same: the number is kept, so that no request costs anything here until it parks. What is kept is bounded; the
//! oldest is then answered EAGAIN, upon which the kernel sends it again if its request still lives. Numbers are never used twice.

use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

/// How many INTERRUPTs without a taker are remembered: far more than callers die in the same moment.
const EARLY_MAX: usize = 1024;

/// The table of one session.
#[derive(Debug, Default)]
pub(crate) struct Interrupts(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<u64, Waiting>,
    early: VecDeque<Early>,
    ended: bool,
}

/// An INTERRUPT that nobody waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Early {
    /// The request that it is about.
    unique: u64,
    /// Its own number, to answer it.
    interrupt: u64,
}

/// Those who wait for the interruption of one request.
#[derive(Debug, Default)]
struct Waiting {
    came: bool,
    futures: usize,
    wakers: Vec<Waker>,
}

impl Interrupts {
    /// An INTERRUPT came, with its own number; returns the number of one that is to be answered EAGAIN, if any.
    pub(crate) fn ring(&self, unique: u64, interrupt: u64) -> Option<u64> {
        let mut table = self.0.lock();
        if let Some(waiting) = table.waiting.get_mut(&unique) {
            waiting.came = true;
            let wakers = std::mem::take(&mut waiting.wakers);
            drop(table);
            wakers.into_iter().for_each(Waker::wake);
            return None;
        }
        table.early.push_back(Early { unique, interrupt });
        if table.early.len() > EARLY_MAX { table.early.pop_front().map(|oldest| oldest.interrupt) } else { None }
    }

    /// The connection is gone: everybody who waits is woken, and who comes later need not wait.
    pub(crate) fn end(&self) {
        let mut table = self.0.lock();
        table.ended = true;
        table.early.clear();
        let wakers: Vec<Waker> = table.waiting.values_mut().flat_map(|waiting| waiting.wakers.drain(..)).collect();
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Resolves when the request is interrupted; from this call on no INTERRUPT is missed.
    pub(crate) fn wait(self: &Arc<Self>, unique: u64) -> Interrupted {
        let mut table = self.0.lock();
        let came = table.early.iter().position(|early| early.unique == unique).map(|at| table.early.remove(at));
        let waiting = table.waiting.entry(unique).or_default();
        waiting.futures += 1;
        waiting.came |= came.is_some();
        drop(table);
        Interrupted { table: Arc::clone(self), unique }
    }
}

/// Resolves when the caller of a request gave up, or the connection ended; dropping it leaves nothing.
#[derive(Debug)]
pub struct Interrupted {
    table: Arc<Interrupts>,
    unique: u64,
}

impl Future for Interrupted {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut table = self.table.0.lock();
        let ended = table.ended;
        let Some(waiting) = table.waiting.get_mut(&self.unique) else { return Poll::Ready(()) };
        if waiting.came || ended {
            return Poll::Ready(());
        }
        if !waiting.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Interrupted {
    fn drop(&mut self) {
        let mut table = self.table.0.lock();
        let Some(waiting) = table.waiting.get_mut(&self.unique) else { return };
        waiting.futures -= 1;
        if waiting.futures == 0 {
            table.waiting.remove(&self.unique);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(future: &mut Interrupted) -> bool {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_waits_hears_of_its_own_interrupt_only() {
        let table = Arc::new(Interrupts::default());
        let (mut one, mut other) = (table.wait(2), table.wait(4));
        assert_eq!(table.ring(2, 3), None);
        assert!(is_ready(&mut one) && !is_ready(&mut other));
    }

    #[test]
    fn an_interrupt_that_came_first_is_not_lost() {
        let table = Arc::new(Interrupts::default());
        assert_eq!(table.ring(2, 3), None);
        assert!(is_ready(&mut table.wait(2)));
        assert!(table.0.lock().early.is_empty() && table.0.lock().waiting.is_empty(), "nothing is left behind");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_is_sent_again() {
        let table = Arc::new(Interrupts::default());
        let again: Vec<_> = (0..EARLY_MAX as u64 + 2).filter_map(|at| table.ring(at * 2, at * 2 + 1)).collect();
        assert_eq!(again, [1, 3]);
    }

    #[test]
    fn the_end_of_the_connection_wakes_all() {
        let table = Arc::new(Interrupts::default());
        let mut early = table.wait(2);
        assert!(!is_ready(&mut early));
        table.end();
        assert!(is_ready(&mut early) && is_ready(&mut table.wait(4)));
    }
}
