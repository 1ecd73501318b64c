//! Threads that run the cache-invalidation callback of a remote client's subscribers.
//!
//! Each session has two, as in the node: dropping bytes may take long, and attributes and names
//! must not wait behind that.

use crate::client_connection::Line;
use client::Hear;
use std::{
    sync::{
        Arc, Weak,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};
use wire::{Object, Recall, Refusal, Session};

/// Batch of invalidations with its number; `None` if no acknowledgement is wanted.
type Batch = (Option<u64>, Vec<Recall>);

/// The two threads of a session; they end when this is dropped.
#[derive(Debug)]
pub struct Ears {
    swift: Sender<Batch>,
    slow: Sender<Batch>,
}

impl Ears {
    /// Starts the threads.
    pub fn start(line: &Arc<Line>, session: Session, hear: &Hear) -> Result<Self, Refusal> {
        let start = |name: &str| {
            let (sender, batches) = channel();
            let (line, hear) = (Arc::downgrade(line), hear.clone());
            let thread = thread::Builder::new().name(name.into());
            thread.spawn(move || listen(&Listening { line, session }, &hear, &batches)).map(|_| sender)
        };
        let failed = |error: std::io::Error| Refusal::Io {
            object: Object::Pool,
            why: format!("no thread for a mount's recalls: {error}").into(),
        };
        Ok(Self { swift: start("tidemill-recall").map_err(failed)?, slow: start("tidemill-bytes").map_err(failed)? })
    }

    /// Queues a batch; returns whether its thread still runs.
    pub fn tell(&self, batch: u64, recalls: Vec<Recall>) -> bool {
        let slow = recalls.iter().all(|recall| matches!(recall, Recall::Bytes(_)));
        let lane = if slow { &self.slow } else { &self.swift };
        lane.send((Some(batch), recalls)).is_ok()
    }

    /// The connection has ended and no invalidation follows: tells the callback to drop everything.
    pub fn end(self) {
        drop(self.swift.send((None, vec![Recall::All]))); // a callback that has panicked caches nothing
    }
}

/// State of an invalidation thread. If the callback panics, the session is unsubscribed, so that no
/// change waits for its acknowledgement.
struct Listening {
    line: Weak<Line>,
    session: Session,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if thread::panicking()
            && let Some(line) = self.line.upgrade()
        {
            line.unwatch(self.session);
        }
    }
}

fn listen(listening: &Listening, hear: &Hear, batches: &Receiver<Batch>) {
    while let Ok((batch, recalls)) = batches.recv() {
        hear(&recalls);
        let (Some(batch), Some(line)) = (batch, listening.line.upgrade()) else { continue };
        line.heard(batch);
    }
}
