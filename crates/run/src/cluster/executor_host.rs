//! A host of a cluster as the executor knows it.

use super::mailbox::Mailbox;
use super::messages::{ToAgent, line};
use crate::host_runner::AttemptKey;
use sched::PlaceId;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time after which an order that its agent does not know is sent again.
pub const RESEND_AFTER: Duration = Duration::from_secs(4);

/// A host as the executor knows it.
#[derive(Debug)]
pub struct ExecutorHost {
    /// Name of the host.
    pub name: String,
    /// Its place.
    pub place: PlaceId,
    /// Number of threads of its workers; 0 while it has none.
    pub threads: u32,
    /// Path of its agent's socket.
    pub socket: PathBuf,
    /// Letters through the pool; `None` while they are exchanged.
    pub mailbox: Option<Mailbox>,
    /// The orders that it has.
    pub running: HashMap<AttemptKey, RunningOrder>,
    /// Attempts that were stopped.
    pub stopped: HashSet<AttemptKey>,
    /// Orders that wait for the end of the current decision.
    pub to_send: Vec<AttemptKey>,
    /// Time of the last line of its agent.
    pub last_heard: Instant,
    /// Time of the last beat: it says that the node lives too.
    pub last_beat: Instant,
    /// Number of the last outcome that came.
    pub acknowledged: u64,
}

impl ExecutorHost {
    /// All that its agent may not know yet. Outcomes are acknowledged if the run has taken them.
    pub fn letter(&self, ends: bool, is_taken: bool) -> Vec<String> {
        let unknown = self.running.values().filter(|order| order.since.elapsed() > RESEND_AFTER);
        let orders = unknown.map(|order| order.line.clone());
        let stops = self.stopped.iter().map(|key| line(&ToAgent::Stop(*key)));
        let ack = is_taken.then(|| line(&ToAgent::Ack(self.acknowledged)));
        let last = if ends { ToAgent::End } else { ToAgent::Beat };
        ack.into_iter().chain(stops).chain(orders).chain([line(&last)]).collect()
    }
}

/// An order that was sent.
#[derive(Debug)]
pub struct RunningOrder {
    /// The order as a line.
    pub line: String,
    /// Time at which it was sent, or at which its agent said last that it runs.
    pub since: Instant,
}

impl RunningOrder {
    /// The order of an attempt that goes on since an earlier process of the run.
    pub fn adopted() -> Self {
        Self { line: String::new(), since: Instant::now() }
    }
}
