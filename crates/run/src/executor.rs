//! Executor: where the attempts of a run are executed: in this process, or on the hosts of a
//! cluster.

use crate::attempt::Environment;
use crate::host_copies::UnusedCopies;
use crate::host_runner::{AttemptKey, HostRunner};
use crate::order::AttemptOrder;
use crate::outcome::AttemptOutcome;
use flow::{DataId, TaskId};
use journal::AgentTrace;
use placement::NodeId;
use sched::{MachineCapacity, PlaceId, WorkerId};
use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// Executes attempts on workers.
pub trait Executor {
    /// Starts an attempt on a worker. Its outcome follows as an event, or `Lost` of the worker.
    fn start(&mut self, worker: WorkerId, order: AttemptOrder);

    /// Ends an attempt, if it still runs; its outcome follows.
    fn stop(&mut self, worker: WorkerId, task: TaskId, attempt: u32);

    /// Removes copies at a place, as soon as no attempt uses them.
    fn drop_copies(&mut self, place: PlaceId, unused: UnusedCopies);

    /// The next event; pending while there is none.
    fn poll_event(&mut self, context: &mut Context) -> Poll<ExecutorEvent>;

    /// Returns whether one of these places, or that of the pool's root, has not answered since a
    /// moment; if so, it is asked soon. Places that are not known any more do not count: they are
    /// lost.
    fn is_silent_since(&mut self, places: &[PlaceId], moment: Instant) -> bool;

    /// Does what is due from time to time: about ten times a second.
    fn tick(&mut self);
}

/// An event of an executor.
#[derive(Debug)]
pub enum ExecutorEvent {
    /// An attempt has ended.
    Ended(Box<AttemptOutcome>),
    /// A worker has joined.
    Joined {
        /// The worker: a number that was never used before.
        worker: WorkerId,
        /// The place whose storage is on its host.
        place: PlaceId,
        /// The node there, with the same number; `None` if the host only computes.
        node: Option<NodeId>,
        /// Its resources.
        capacity: MachineCapacity,
        /// The name of its host, for people.
        name: String,
        /// The agent of its host.
        agent: AgentTrace,
        /// Attempts that it ran for an earlier process of the run, and that have not ended or whose
        /// outcomes follow. Those that are not started now are stopped.
        runs: Vec<AttemptKey>,
        /// Inputs of the workflow that its host has itself.
        inputs: HashSet<DataId>,
    },
    /// The number of a worker's slots has changed. With 0 it gets no new tasks; those that it runs
    /// end.
    Resized {
        /// The worker.
        worker: WorkerId,
        /// Its slots.
        slots: u32,
    },
    /// A place has copies of these members now, and of no others.
    Copies {
        /// The place.
        place: PlaceId,
        /// The members, with the bytes that each copy takes.
        copies: Vec<(DataId, u64)>,
    },
    /// A worker is released: it runs nothing, and the node of its host has left the pool. What lay
    /// there lies at other nodes.
    Released {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker is gone, and so are the attempts that it ran: no event of them follows.
    Lost {
        /// The worker.
        worker: WorkerId,
        /// Why, for people.
        why: String,
    },
    /// The user should know this.
    Warning(String),
    /// The pool is lost: none of the attempts that run ends.
    PoolLost(String),
    /// No more attempts can be executed, and none of those that run ends. The run is over.
    Failed(String),
}

/// Executes attempts as processes of this host, which is worker 0.
#[derive(Debug)]
pub struct LocalExecutor {
    /// The attempts.
    pub runner: HostRunner,
    /// Environment of every task.
    pub environment: Arc<Environment>,
}

impl Executor for LocalExecutor {
    fn start(&mut self, _: WorkerId, order: AttemptOrder) {
        self.runner.start(order, self.environment.clone());
    }

    fn stop(&mut self, _: WorkerId, task: TaskId, attempt: u32) {
        self.runner.stop((task, attempt));
    }

    fn drop_copies(&mut self, _: PlaceId, _: UnusedCopies) {}

    fn poll_event(&mut self, context: &mut Context) -> Poll<ExecutorEvent> {
        self.runner.poll_outcome(context).map(|outcome| ExecutorEvent::Ended(Box::new(outcome)))
    }

    fn is_silent_since(&mut self, _: &[PlaceId], _: Instant) -> bool {
        false
    }

    fn tick(&mut self) {
        self.runner.check_copies();
    }
}
