//! Host runner: the attempts that run on one host.

use crate::attempt::{self, Environment, HostContext};
use crate::cluster::InputCopies;
use crate::host_copies::UnusedCopies;
use crate::host_turns::HostTurns;
use crate::order::AttemptOrder;
use crate::outcome::{AttemptFailure, AttemptOutcome};
use base::ByteSize;
use flow::TaskId;
use report::ReasonKind;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A task and the number of its attempt.
pub type AttemptKey = (TaskId, u32);

/// Runs attempts in parallel, as many as it is told to start.
#[derive(Debug)]
pub struct HostRunner {
    context: Arc<HostContext>,
    /// Upper bound of the bytes of all copies on the RAM disk.
    copies_max: u64,
    running: HashMap<AttemptKey, HostedAttempt>,
    attempts: JoinSet<AttemptOutcome>,
    turns: HostTurns,
    /// Attempt that was stopped because the copies of running tasks took too much memory, and their
    /// bytes at that time. Set until the attempt has ended, for whatever reason.
    evicted: Option<(AttemptKey, ByteSize)>,
}

#[derive(Debug)]
struct HostedAttempt {
    order: Arc<AttemptOrder>,
    stop: CancellationToken,
    /// True if the run asked for its end.
    stopped: bool,
}

impl HostRunner {
    /// A runner without attempts, whose copies on the RAM disk may take `copies_max` bytes.
    pub fn new(context: HostContext, copies_max: u64) -> Self {
        Self {
            context: Arc::new(context),
            copies_max,
            running: HashMap::new(),
            attempts: JoinSet::new(),
            turns: HostTurns::default(),
            evicted: None,
        }
    }

    /// Starts an attempt in an environment, when its turn comes. Must be called within a tokio
    /// runtime.
    pub fn start(&mut self, order: AttemptOrder, environment: Arc<Environment>) {
        let (order, stop) = (Arc::new(order), CancellationToken::new());
        let running = HostedAttempt { order: order.clone(), stop: stop.clone(), stopped: false };
        self.running.insert((order.task, order.attempt), running);
        let (turn, context) = (self.turns.take(order.turn), self.context.clone());
        self.attempts.spawn(async move {
            let _processors = tokio::select! {
                processors = turn => processors,
                () = stop.cancelled() => None,
            };
            attempt::run(context, order, environment, stop).await
        });
    }

    /// Ends an attempt, if it still runs; its outcome follows.
    pub fn stop(&mut self, key: AttemptKey) {
        if let Some(running) = self.running.get_mut(&key) {
            running.stopped = true;
            running.stop.cancel();
        }
    }

    /// Ends all attempts.
    pub fn stop_all(&mut self) {
        let keys: Vec<AttemptKey> = self.running.keys().copied().collect();
        for key in keys {
            self.stop(key);
        }
    }

    /// Returns whether an attempt runs now.
    pub fn is_running(&self, key: AttemptKey) -> bool {
        self.running.contains_key(&key)
    }

    /// The attempts that run now.
    pub fn running(&self) -> impl Iterator<Item = AttemptKey> + '_ {
        self.running.keys().copied()
    }

    /// The outcome of the next attempt that ends; pending while none runs. A panic of an attempt is
    /// passed on.
    pub fn poll_outcome(&mut self, context: &mut Context) -> Poll<AttemptOutcome> {
        if self.attempts.is_empty() {
            return Poll::Pending;
        }
        let Some(joined) = ready!(self.attempts.poll_join_next(context)) else { return Poll::Pending };
        let outcome = joined.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        Poll::Ready(self.on_ended(outcome))
    }

    fn on_ended(&mut self, outcome: AttemptOutcome) -> AttemptOutcome {
        let key = (outcome.task, outcome.attempt);
        let stopped = self.running.remove(&key).is_some_and(|running| running.stopped);
        match (self.evicted.take_if(|(evicted, _)| *evicted == key), outcome.result) {
            // It was ended for its copies, unless it failed by itself.
            (Some((_, taken)), Err(failure)) if failure.kind == ReasonKind::Cancelled && !stopped => {
                AttemptOutcome { result: Err(self.eviction(taken)), ..outcome }
            }
            (_, result) => AttemptOutcome { result, ..outcome },
        }
    }

    fn eviction(&self, taken: ByteSize) -> AttemptFailure {
        let limit = ByteSize(self.copies_max);
        let text = format!(
            "the files of running tasks on the RAM disk took {taken}, more than the {limit} that are left beside the pool: \
             run fewer tasks at once with --slots, or use the mount"
        );
        AttemptFailure { retry: false, ..AttemptFailure::new(ReasonKind::NoSpace, text) }
    }

    /// Stops the attempt with the largest directory when the copies exceed their memory limit.
    /// Otherwise the kernel might kill all tasks.
    pub fn check_copies(&mut self) {
        let Some(workspace) = &self.context.workspace else { return };
        let taken = workspace.ram_disk_bytes();
        // Stop one task at a time: its memory may be enough.
        if taken <= self.copies_max || self.evicted.is_some() {
            return;
        }
        let bytes =
            |(key, running): (&AttemptKey, &HostedAttempt)| Some((workspace.ram_disk_bytes_of(&running.order)?, *key));
        if let Some((_, largest)) = self.running.iter().filter_map(bytes).max() {
            self.evicted = Some((largest, ByteSize(taken)));
            self.running[&largest].stop.cancel();
        }
    }

    /// Copies of inputs at the node of this host.
    pub fn copies(&self) -> Option<&Arc<InputCopies>> {
        self.context.copies.as_ref()
    }

    /// Removes copies, as soon as no attempt uses them.
    pub fn drop_copies(&self, unused: &UnusedCopies) {
        let HostContext { copies, tools, .. } = &*self.context;
        if let Some(copies) = copies {
            copies.drop_data(&unused.data);
        }
        if let (Some(tools), Some(here)) = (tools, &unused.tools) {
            tools.leave(here);
        }
    }

    /// Gives up copies of tools' files that are not complete.
    pub async fn close_tools(&self) {
        if let Some(tools) = &self.context.tools {
            tools.close().await;
        }
    }

    /// Waits for pending removals. All attempts have ended.
    pub fn close(&mut self) {
        if let Some(workspace) = Arc::get_mut(&mut self.context).and_then(|context| context.workspace.as_mut()) {
            workspace.close();
        }
    }
}
