//! Queue of cache invalidations to the sessions of a connection, until they are acknowledged.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use wire::{Recall, Session, codec::RECALLS_MAX};

/// Batch of invalidations, sent under a number.
#[derive(Debug)]
pub struct Batch {
    pub number: u64,
    pub session: Session,
    pub recalls: Vec<Recall>,
}

/// Batches in flight. The node's threads wait here, two for each session, so the queue stays as
/// short as the node's own.
#[derive(Debug)]
pub struct Told {
    state: Mutex<State>,
    heard: Condvar,
    queue: UnboundedSender<Batch>,
}

#[derive(Debug, Default)]
struct State {
    made: u64,
    unheard: BTreeSet<u64>,
    ended: bool,
}

impl Told {
    /// Creates a queue, and the receiver of the batches to send.
    pub fn new() -> (Self, UnboundedReceiver<Batch>) {
        let (queue, batches) = unbounded_channel();
        (Self { state: Mutex::default(), heard: Condvar::new(), queue }, batches)
    }

    /// Sends invalidations; waits until they are acknowledged or the connection has ended.
    pub fn tell(&self, session: Session, recalls: &[Recall]) {
        let mut state = self.state.lock();
        let mine = state.made + 1..=state.made + recalls.chunks(RECALLS_MAX).len() as u64;
        for (number, recalls) in mine.clone().zip(recalls.chunks(RECALLS_MAX)) {
            let sent = self.queue.send(Batch { number, session, recalls: recalls.to_vec() });
            state.ended |= sent.is_err();
            state.unheard.insert(number);
        }
        state.made = *mine.end();
        while !state.ended && state.unheard.range(mine.clone()).next().is_some() {
            self.heard.wait(&mut state);
        }
    }

    /// Notes that the other side has acknowledged a batch.
    pub fn heard(&self, batch: u64) {
        self.state.lock().unheard.remove(&batch);
        self.heard.notify_all();
    }

    /// Ends all waits: the connection has ended.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.heard.notify_all();
    }
}
