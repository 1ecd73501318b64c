//! Pins of a pool's nodes: what the host of a node has there, because of which a drained node lives
//! on; and their end by force.

use crate::{
    PoolFile,
    connect::runtime,
    resize::{ResizedPool, entries_in},
};
use base::Problem;
use manager::{NodePin, PinKind, PinList, RemoteManager};
use placement::NodeId;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};
use tokio::time::Instant;
use wire::INLINE_BYTES_MAX;

/// Time that a drained node has to give away the small files that nobody uses, before its pins are
/// ended. It does so once a second.
const SETTLE_WAIT: Duration = Duration::from_secs(5);
/// Interval at which the pins of a node that waits are listed: that reads all of `/proc` there.
const LIST_INTERVAL: Duration = Duration::from_secs(2);

/// The pins of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePins {
    /// The node.
    pub node: u32,
    /// Its host.
    pub host: String,
    /// True if it is drained, and so waits for those that hold it.
    pub is_leaving: bool,
    /// What it has said, or why it has not.
    pub answer: Result<PinList, String>,
}

/// Asks the nodes of the pool at `path`, or one of them, for their pins. If no manager answers, the
/// nodes are those of the pool file.
///
/// # Errors
/// If the file is no pool file, or the pool has no such node.
pub fn query_pins(path: &Path, node: Option<u32>) -> Result<Vec<NodePins>, Problem> {
    let runtime = runtime()?;
    let pool = ResizedPool::open(path, Duration::ZERO)?;
    runtime.block_on(async {
        let (entries, leaving) = match pool.status().await {
            Ok(status) => (entries_in(&status)?, status.drained()),
            Err(_) => (PoolFile::read(path)?.nodes, BTreeSet::new()),
        };
        if let Some(unknown) = node.filter(|node| entries.iter().all(|entry| entry.id != *node)) {
            let present: Vec<NodeId> = entries.iter().map(|entry| NodeId(entry.id)).collect();
            return Err(unknown_node(unknown, &present));
        }
        let (nodes, mut found) = (pool.reach(&entries), Vec::new());
        for entry in entries.into_iter().filter(|entry| node.is_none_or(|node| entry.id == node)) {
            let answer = nodes.pins(NodeId(entry.id), false).await;
            let is_leaving = leaving.contains(&NodeId(entry.id));
            found.push(NodePins { node: entry.id, host: entry.host, is_leaving, answer });
        }
        Ok(found)
    })
}

/// The problem of a node that the pool does not have.
pub fn unknown_node(node: u32, present: &[NodeId]) -> Problem {
    let known: Vec<String> = present.iter().map(ToString::to_string).collect();
    Problem::new(format!("the pool has no node {node}; it has {}", known.join(", ")))
}

/// The pins of drained nodes that serve nothing any more: listed while they wait, or ended.
pub struct DrainedPins {
    nodes: RemoteManager,
    /// True if they are to be ended.
    force: bool,
    /// When each node was first seen to wait, and asked last.
    seen: BTreeMap<NodeId, (Instant, Instant)>,
    /// What holds each node, or why it does not say so.
    holding: BTreeMap<NodeId, Result<PinList, String>>,
    /// What was ended at each node.
    ended: BTreeMap<NodeId, PinList>,
}

impl DrainedPins {
    pub fn new(nodes: RemoteManager, force: bool) -> Self {
        Self { nodes, force, seen: BTreeMap::new(), holding: BTreeMap::new(), ended: BTreeMap::new() }
    }

    /// Asks the nodes that wait. One that does not answer is asked again later.
    pub async fn ask(&mut self, waiting: &BTreeSet<NodeId>) {
        self.holding.retain(|node, _| waiting.contains(node));
        for node in waiting {
            let now = Instant::now();
            let (since, last) = *self.seen.entry(*node).or_insert((now, now));
            if now != last && now - last < LIST_INTERVAL {
                continue;
            }
            self.seen.insert(*node, (since, now));
            let listed = match self.nodes.pins(*node, false).await {
                Ok(listed) => listed,
                Err(why) => {
                    self.holding.insert(*node, Err(why));
                    continue;
                }
            };
            let may_settle = listed.pins.iter().any(settles) && since.elapsed() < SETTLE_WAIT;
            if self.force && listed.is_holding() && !may_settle {
                if let Ok(ended) = self.nodes.pins(*node, true).await {
                    self.add_ended(*node, ended);
                }
                continue;
            }
            self.holding.insert(*node, Ok(listed));
        }
    }

    fn add_ended(&mut self, node: NodeId, mut ended: PinList) {
        ended.pins.retain(|pin| pin.holds);
        let all = self.ended.entry(node).or_default();
        all.pins.extend(ended.pins);
        all.more += ended.more;
    }

    /// What holds each node that waits, as far as it is known.
    pub fn holding(&self) -> Vec<(u32, Result<PinList, String>)> {
        let holds = |listed: &Result<PinList, String>| listed.as_ref().map_or(true, PinList::is_holding);
        let held = self.holding.iter().filter(|(_, listed)| holds(listed));
        held.map(|(node, listed)| (node.0, listed.clone())).collect()
    }

    /// What was ended at each node.
    pub fn into_ended(self) -> Vec<(u32, PinList)> {
        self.ended.into_iter().map(|(node, ended)| (node.0, ended)).collect()
    }
}

/// True for a file that its node is about to give away.
fn settles(pin: &NodePin) -> bool {
    pin.holds && pin.kind == PinKind::Extent { in_use: false } && pin.bytes <= u64::from(INLINE_BYTES_MAX)
}
