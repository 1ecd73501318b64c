//! INTERRUPT requests: cancellation of requests whose caller was killed or got a signal.
//!
//! ```text
//!   FuseReply::interrupted() --> waiting[unique] --- INTERRUPT unique ---> the future resolves
//!   INTERRUPT unique, no future waits (yet) --> early: kept for a later `interrupted()`
//! ```
//!
//! An INTERRUPT may overtake its request on another thread, and requests that never wait for one
//! are interrupted too. These cases cannot be told apart, so an INTERRUPT without a waiting future
//! is kept. Thus a request has no cost here until it is deferred. The number of kept INTERRUPTs is
//! bounded; the oldest is answered EAGAIN, and the kernel sends it again if its request is still
//! alive. Unique numbers are never reused.

use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

/// Maximum number of kept INTERRUPTs: far more callers than are killed at the same moment.
const EARLY_MAX: usize = 1024;

/// The waiting futures and kept INTERRUPTs of one session.
#[derive(Debug, Default)]
pub(crate) struct Interrupts(Mutex<InterruptTable>);

#[derive(Debug, Default)]
struct InterruptTable {
    waiting: HashMap<u64, InterruptWaiters>,
    early: VecDeque<EarlyInterrupt>,
    ended: bool,
}

/// An INTERRUPT for which no future waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EarlyInterrupt {
    /// The unique number of the request to interrupt.
    unique: u64,
    /// The unique number of the INTERRUPT itself, for its reply.
    interrupt: u64,
}

/// The futures that wait for the interruption of one request.
#[derive(Debug, Default)]
struct InterruptWaiters {
    interrupted: bool,
    futures: usize,
    wakers: Vec<Waker>,
}

impl Interrupts {
    /// Handles an INTERRUPT (`interrupt` is its own unique number). Returns the number of a kept
    /// one that must be answered EAGAIN, if any.
    pub(crate) fn deliver(&self, unique: u64, interrupt: u64) -> Option<u64> {
        let mut table = self.0.lock();
        if let Some(waiting) = table.waiting.get_mut(&unique) {
            waiting.interrupted = true;
            let wakers = std::mem::take(&mut waiting.wakers);
            drop(table);
            wakers.into_iter().for_each(Waker::wake);
            return None;
        }
        table.early.push_back(EarlyInterrupt { unique, interrupt });
        if table.early.len() > EARLY_MAX { table.early.pop_front().map(|oldest| oldest.interrupt) } else { None }
    }

    /// Ends the connection: wakes all futures; later ones resolve immediately.
    pub(crate) fn close(&self) {
        let mut table = self.0.lock();
        table.ended = true;
        table.early.clear();
        let wakers: Vec<Waker> = table.waiting.values_mut().flat_map(|waiting| waiting.wakers.drain(..)).collect();
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns a future that resolves when the request is interrupted, even if that was before the
    /// call.
    pub(crate) fn wait(self: &Arc<Self>, unique: u64) -> Interruption {
        let mut table = self.0.lock();
        let interrupted = table.early.iter().position(|early| early.unique == unique).map(|at| table.early.remove(at));
        let waiting = table.waiting.entry(unique).or_default();
        waiting.futures += 1;
        waiting.interrupted |= interrupted.is_some();
        drop(table);
        Interruption { table: Arc::clone(self), unique }
    }
}

/// Resolves when the caller of a request has given up or the connection has ended.
#[derive(Debug)]
pub struct Interruption {
    table: Arc<Interrupts>,
    unique: u64,
}

impl Future for Interruption {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut table = self.table.0.lock();
        let ended = table.ended;
        let Some(waiting) = table.waiting.get_mut(&self.unique) else { return Poll::Ready(()) };
        if waiting.interrupted || ended {
            return Poll::Ready(());
        }
        if !waiting.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Interruption {
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

    fn is_ready(future: &mut Interruption) -> bool {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_future_resolves_for_its_own_interrupt_only() {
        let table = Arc::new(Interrupts::default());
        let (mut one, mut other) = (table.wait(2), table.wait(4));
        assert_eq!(table.deliver(2, 3), None);
        assert!(is_ready(&mut one) && !is_ready(&mut other));
    }

    #[test]
    fn an_interrupt_that_came_first_is_not_lost() {
        let table = Arc::new(Interrupts::default());
        assert_eq!(table.deliver(2, 3), None);
        assert!(is_ready(&mut table.wait(2)));
        assert!(table.0.lock().early.is_empty() && table.0.lock().waiting.is_empty(), "nothing is left behind");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_is_sent_again() {
        let table = Arc::new(Interrupts::default());
        let again: Vec<_> = (0..EARLY_MAX as u64 + 2).filter_map(|at| table.deliver(at * 2, at * 2 + 1)).collect();
        assert_eq!(again, [1, 3]);
    }

    #[test]
    fn the_end_of_the_connection_wakes_all() {
        let table = Arc::new(Interrupts::default());
        let mut early = table.wait(2);
        assert!(!is_ready(&mut early));
        table.close();
        assert!(is_ready(&mut early) && is_ready(&mut table.wait(4)));
    }
}
