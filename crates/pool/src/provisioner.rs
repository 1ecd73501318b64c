//! What starts and ends the machines of a pool that grows and shrinks by itself.

use crate::{
    connect::runtime,
    launch::LaunchTarget,
    resize::{CHANGE_PATIENCE, ResizedPool},
    start::PoolSpec,
};
use base::Problem;
use std::{fmt, path::PathBuf, time::Duration};

/// Time in which processes of this machine have joined.
pub const LOCAL_TIME_OUT: Duration = Duration::from_mins(1);

/// Starts and ends the machines of a pool's nodes.
pub trait Provisioner: fmt::Debug + Send + Sync {
    /// Starts this number of nodes, and returns the ids of those that have joined the pool, at
    /// least one. Those that have not joined within [`Self::time_out`] are ended. Blocks.
    ///
    /// # Errors
    /// If none has joined; the problem says why.
    fn start(&self, nodes: u32) -> Result<Vec<u32>, Problem>;

    /// Has these nodes get no more work, since they are to leave. True when they have none. Called
    /// at each look at the pool until then; does not block.
    fn quiesce(&self, nodes: &[u32]) -> bool {
        let _ = nodes;
        true
    }

    /// Lets nodes get work again that were to leave, and stay.
    fn readmit(&self, nodes: &[u32]) {
        let _ = nodes;
    }

    /// Ends what is left of the machines of these nodes, which have left the pool. Blocks for a
    /// short while.
    fn release(&self, nodes: &[u32]);

    /// The nodes that it has started, and that it therefore may have leave, the last one first.
    fn started(&self) -> Vec<u32>;

    /// Longest time from a decision to a node that has joined.
    fn time_out(&self) -> Duration;

    /// Has a start that goes on for long end soon.
    fn cancel(&self) {}
}

/// Starts nodes as processes of this machine, which outlive this one.
#[derive(Debug)]
pub struct LocalProvisioner {
    path: PathBuf,
    spec: PoolSpec,
    started: parking_lot::Mutex<Vec<u32>>,
}

impl LocalProvisioner {
    /// For the pool of the pool file at `path`. `spec` says how nodes are started, but not how
    /// many.
    pub fn new(path: PathBuf, spec: PoolSpec) -> Self {
        Self { path, spec, started: parking_lot::Mutex::default() }
    }
}

impl Provisioner for LocalProvisioner {
    fn start(&self, nodes: u32) -> Result<Vec<u32>, Problem> {
        let pool = ResizedPool::open(&self.path, CHANGE_PATIENCE)?;
        let spec = PoolSpec { target: LaunchTarget::Local(nodes), ..self.spec.clone() };
        let joined = pool.launch(&runtime()?, &spec, Vec::new())?;
        let joined: Vec<u32> = joined.into_iter().map(|node| node.0).collect();
        self.started.lock().extend(&joined);
        Ok(joined)
    }

    fn release(&self, nodes: &[u32]) {
        // A node that has left ends by itself.
        self.started.lock().retain(|node| !nodes.contains(node));
    }

    fn started(&self) -> Vec<u32> {
        self.started.lock().iter().rev().copied().collect()
    }

    fn time_out(&self) -> Duration {
        LOCAL_TIME_OUT
    }
}
