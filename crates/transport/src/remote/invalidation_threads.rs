//! Threads that run the cache-invalidation callback of a remote client's subscribers.
//!
//! Each session has two, as in the node: dropping bytes may take long, and attributes and names
//! must not wait behind that.

use crate::remote::client_connection::ClientConnection;
use client::OnInvalidate;
use std::{
    sync::{
        Arc, Weak,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};
use wire::{Object, Recall, Refusal, Session};

/// Batch of invalidations with its number; `None` if no acknowledgement is wanted.
type QueuedBatch = (Option<u64>, Vec<Recall>);

/// The two threads of a session; they end when this is dropped.
#[derive(Debug)]
pub struct InvalidationThreads {
    fast: Sender<QueuedBatch>,
    slow: Sender<QueuedBatch>,
}

impl InvalidationThreads {
    /// Starts the threads.
    pub fn start(
        connection: &Arc<ClientConnection>,
        session: Session,
        on_invalidate: &OnInvalidate,
    ) -> Result<Self, Refusal> {
        let start = |name: &str| {
            let (sender, batches) = channel();
            let (connection, on_invalidate) = (Arc::downgrade(connection), on_invalidate.clone());
            let thread = thread::Builder::new().name(name.into());
            thread
                .spawn(move || run(&UnsubscribeOnPanic { connection, session }, &on_invalidate, &batches))
                .map(|_| sender)
        };
        let failed = |error: std::io::Error| Refusal::Io {
            object: Object::Pool,
            why: format!("no thread for cache invalidations: {error}").into(),
        };
        Ok(Self { fast: start("tidemill-recall").map_err(failed)?, slow: start("tidemill-bytes").map_err(failed)? })
    }

    /// Queues a batch; returns whether its thread still runs.
    pub fn send(&self, batch: u64, recalls: Vec<Recall>) -> bool {
        let slow = recalls.iter().all(|recall| matches!(recall, Recall::Bytes(_)));
        let thread = if slow { &self.slow } else { &self.fast };
        thread.send((Some(batch), recalls)).is_ok()
    }

    /// The connection has ended and no invalidation follows: tells the callback to drop everything.
    pub fn end(self) {
        drop(self.fast.send((None, vec![Recall::All]))); // a callback that has panicked caches nothing
    }
}

/// State of an invalidation thread. If the callback panics, the session is unsubscribed, so that no
/// change waits for its acknowledgement.
struct UnsubscribeOnPanic {
    connection: Weak<ClientConnection>,
    session: Session,
}

impl Drop for UnsubscribeOnPanic {
    fn drop(&mut self) {
        if thread::panicking()
            && let Some(connection) = self.connection.upgrade()
        {
            connection.unsubscribe(self.session);
        }
    }
}

fn run(guard: &UnsubscribeOnPanic, on_invalidate: &OnInvalidate, batches: &Receiver<QueuedBatch>) {
    while let Ok((batch, recalls)) = batches.recv() {
        on_invalidate(&recalls);
        let (Some(batch), Some(connection)) = (batch, guard.connection.upgrade()) else { continue };
        connection.ack(batch);
    }
}
