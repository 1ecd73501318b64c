//! A host of a cluster as the executor knows it.

use super::beat_clock::RUN_CLOCK;
use super::dask_carrier::ClusterHost;
use super::mailbox::Mailbox;
use super::messages::{ToAgent, key_text, line};
use crate::host_runner::AttemptKey;
use sched::PlaceId;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time after which an order that its agent does not know is sent again.
pub const RESEND_AFTER: Duration = Duration::from_secs(4);
/// Number of orders sent ahead for each thread of a host that make a batch.
const BATCH_PER_THREAD: usize = 8;

/// A host as the executor knows it.
#[derive(Debug)]
pub struct ExecutorHost {
    /// Name of the host.
    pub name: String,
    /// Its place.
    pub place: PlaceId,
    /// Number of threads of its workers; 0 while it has none.
    pub threads: u32,
    /// True if it gets no more tasks, since its node is to leave the pool.
    pub is_quiet: bool,
    /// Path of its agent's socket.
    pub socket: PathBuf,
    /// Letters through the pool; `None` while they are exchanged.
    pub mailbox: Option<Mailbox>,
    /// The orders that it has.
    pub running: HashMap<AttemptKey, RunningOrder>,
    /// Attempts that were stopped.
    pub stopped: HashSet<AttemptKey>,
    /// Orders that wait for the end of the current decision, or for more that are sent ahead.
    pub to_send: Vec<AttemptKey>,
    /// Time of the last line of its agent.
    pub last_heard: Instant,
    /// Time of the run's last beat that its agent has answered: its node lived later than that.
    pub answered: Instant,
    /// Number of the last outcome that came.
    pub acknowledged: u64,
}

impl ExecutorHost {
    /// A host whose agent has said that it is ready. Attempts of `runs` go on there.
    pub fn new(host: &ClusterHost, place: PlaceId, socket: PathBuf, mailbox: Mailbox, runs: &[AttemptKey]) -> Self {
        let now = Instant::now();
        Self {
            name: host.host.clone(),
            place,
            threads: host.threads.max(1),
            is_quiet: false,
            socket,
            mailbox: Some(mailbox),
            running: runs.iter().map(|key| (*key, RunningOrder::adopted())).collect(),
            stopped: HashSet::new(),
            to_send: Vec::new(),
            last_heard: now,
            answered: now,
            acknowledged: 0,
        }
    }

    /// The lines and keys of the orders that are due. If all of them are sent ahead, more may join
    /// them until the oldest has waited `at_most` this long, so that a message carries many.
    pub fn take_batch(&mut self, at_most: Duration) -> Option<(Vec<String>, Vec<String>)> {
        if self.threads == 0 {
            // Those that its agent does not know go through the pool.
            self.to_send.clear();
        }
        self.to_send.retain(|key| self.running.contains_key(key));
        let is_full = self.to_send.len() >= BATCH_PER_THREAD * self.threads as usize;
        let mut orders = self.to_send.iter().filter_map(|key| self.running.get(key));
        if !is_full && orders.all(|order| order.waits && order.since.elapsed() < at_most) {
            return None;
        }
        let now = Instant::now();
        let (mut lines, mut keys) = (Vec::new(), Vec::new());
        for key in std::mem::take(&mut self.to_send) {
            let Some(order) = self.running.get_mut(&key) else { continue };
            order.since = now;
            lines.push(order.line.clone());
            keys.push(key_text(key));
        }
        (!lines.is_empty()).then_some((lines, keys))
    }

    /// Lets the orders with these keys be sent again, if they have not ended. An agent that knows
    /// them already ignores that.
    pub fn send_again(&mut self, keys: &[String]) {
        let again = self.running.keys().copied().filter(|key| keys.contains(&key_text(*key)));
        let again: Vec<AttemptKey> = again.filter(|key| !self.to_send.contains(key)).collect();
        self.to_send.extend(again);
    }

    /// All that its agent may not know yet. Outcomes are acknowledged if the run has taken them.
    pub fn letter(&self, ends: bool, is_taken: bool) -> Vec<String> {
        let unknown = self.running.values().filter(|order| order.since.elapsed() > RESEND_AFTER);
        let orders = unknown.map(|order| order.line.clone());
        let stops = self.stopped.iter().map(|key| line(&ToAgent::Stop(*key)));
        let ack = is_taken.then(|| line(&ToAgent::Ack(self.acknowledged)));
        let last = if ends { ToAgent::End } else { ToAgent::Beat { sent: RUN_CLOCK.now() } };
        ack.into_iter().chain(stops).chain(orders).chain([line(&last)]).collect()
    }
}

/// An order that was sent.
#[derive(Debug)]
pub struct RunningOrder {
    /// The order as a line.
    pub line: String,
    /// True if it was sent ahead.
    pub waits: bool,
    /// Time at which it was sent, or at which its agent said last that it runs.
    pub since: Instant,
}

impl RunningOrder {
    /// The order of an attempt that goes on since an earlier process of the run.
    pub fn adopted() -> Self {
        Self { line: String::new(), waits: false, since: Instant::now() }
    }
}
