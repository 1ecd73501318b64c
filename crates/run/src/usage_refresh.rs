//! Keeps the usage of a pool of other processes up to date: a client knows only what it asked for.

use parking_lot::Mutex;
use placement::NodeId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use vfs::Vfs;
use wire::SpaceUsage;

/// Interval between two questions to all nodes.
const INTERVAL: Duration = Duration::from_millis(250);

/// Number of those after which a pool that grows is asked for its nodes.
const LOOKS_FOR_A_MAP: u32 = 4;

/// The last known usage of each node. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct NodeUsages(Arc<Mutex<HashMap<NodeId, SpaceUsage>>>);

impl NodeUsages {
    /// The usage of a node; `None` if it never answered.
    pub fn of(&self, node: NodeId) -> Option<SpaceUsage> {
        self.0.lock().get(&node).copied()
    }

    /// Stores answers of nodes.
    pub fn set(&self, usages: impl Iterator<Item = (NodeId, SpaceUsage)>) {
        self.0.lock().extend(usages);
    }
}

/// Asks all nodes once, then goes on in a task of the current runtime. If the pool `grows`, nodes
/// are added as they join.
pub async fn keep_usage(pool: Vfs, grows: bool) -> (NodeUsages, AbortHandle) {
    let usages = NodeUsages::default();
    ask(&pool, &usages).await;
    let shared = usages.clone();
    let refresh = tokio::spawn(async move {
        loop {
            for _ in 0..LOOKS_FOR_A_MAP {
                tokio::time::sleep(INTERVAL).await;
                ask(&pool, &shared).await;
            }
            if grows {
                pool.client().learn_nodes().await;
            }
        }
    });
    (usages, refresh.abort_handle())
}

/// A node that does not answer counts with its last answer.
async fn ask(pool: &Vfs, usages: &NodeUsages) {
    let answered = pool.client().usages().await;
    usages.set(answered.into_iter().filter_map(|(node, usage)| Some((node, usage.ok()?))));
}
