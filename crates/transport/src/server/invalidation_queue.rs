//! Queue of cache invalidations to the sessions of a connection, until they are acknowledged.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use wire::{Recall, Session, codec::RECALLS_MAX};

/// Batch of invalidations, sent under a number.
#[derive(Debug)]
pub struct InvalidationBatch {
    pub number: u64,
    pub session: Session,
    pub recalls: Vec<Recall>,
}

/// Batches in flight. The node's threads wait here, two for each session, so the queue stays as
/// short as the node's own.
#[derive(Debug)]
pub struct InvalidationQueue {
    state: Mutex<QueueState>,
    acked: Condvar,
    queue: UnboundedSender<InvalidationBatch>,
}

#[derive(Debug, Default)]
struct QueueState {
    last_number: u64,
    unacked: BTreeSet<u64>,
    ended: bool,
}

impl InvalidationQueue {
    /// Creates a queue, and the receiver of the batches to send.
    pub fn new() -> (Self, UnboundedReceiver<InvalidationBatch>) {
        let (queue, batches) = unbounded_channel();
        (Self { state: Mutex::default(), acked: Condvar::new(), queue }, batches)
    }

    /// Sends invalidations; waits until they are acknowledged or the connection has ended.
    pub fn send_and_wait(&self, session: Session, recalls: &[Recall]) {
        let mut state = self.state.lock();
        let numbers = state.last_number + 1..=state.last_number + recalls.chunks(RECALLS_MAX).len() as u64;
        for (number, recalls) in numbers.clone().zip(recalls.chunks(RECALLS_MAX)) {
            let sent = self.queue.send(InvalidationBatch { number, session, recalls: recalls.to_vec() });
            state.ended |= sent.is_err();
            state.unacked.insert(number);
        }
        state.last_number = *numbers.end();
        while !state.ended && state.unacked.range(numbers.clone()).next().is_some() {
            self.acked.wait(&mut state);
        }
    }

    /// Notes that the other side has acknowledged a batch.
    pub fn ack(&self, batch: u64) {
        self.state.lock().unacked.remove(&batch);
        self.acked.notify_all();
    }

    /// Ends all waits: the connection has ended.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.acked.notify_all();
    }
}
