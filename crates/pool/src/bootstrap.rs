//! Bootstrap messages between the starter and a node: one JSON value a line, over the node's
//! standard input and output.
//!
//! ```text
//!  starter                            node
//!    | BootstrapPlan (nodes, token) --> |   finds its entry, listens
//!    | <------------------- Listening - |   its addresses and memory
//!    | NodeEntries (memory of all) ---> |   takes its partitions, serves
//!    | <----------------------- Ready - |
//!    |   writes the pool file           |
//!    | Detach ------------------------> |   detaches from its starter
//! ```
//! A node whose input ends before `Detach` exits, unless the pool file exists and names it: a
//! starter that is killed while it sends `Detach` leaves a complete pool.

use crate::file::NodeEntry;
use base::{ByteSize, Problem};
use placement::{FileId, NodeId, PartitionMap};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    io::{self, BufRead, Read, Write},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// Length limit of a line, bytes; the settings of one node take less than 200.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Version of Tidemill, which must be equal on both sides: they may be files of two hosts.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Bootstrap plan, sent to all nodes of a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapPlan {
    pub version: String,
    /// The pool's id.
    pub pool: String,
    pub token: String,
    /// The pool's certificate and private key (PEM), if traffic between hosts is encrypted.
    pub identity: Option<String>,
    /// The certificate (PEM) of the nodes that the pool began with, for nodes that join.
    #[serde(default)]
    pub certificate: Option<String>,
    /// True for nodes that join a pool with encrypted traffic: each makes an identity of its own.
    #[serde(default)]
    pub own_identity: bool,
    pub partitions: u32,
    /// Time that a request waits for space.
    pub space_wait: Duration,
    #[serde(rename = "seats")]
    pub nodes: Vec<NodeSpec>,
}

/// Settings of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    pub id: u32,
    /// Number of the pool's nodes that share its host.
    #[serde(rename = "nodes_here")]
    pub nodes_on_host: u32,
    #[serde(rename = "reach")]
    pub address_source: AddressSource,
    /// Port to listen at; 0 for any free one.
    pub port: u16,
    pub memory: Memory,
    /// Task slots; `None` for the number of processors that the node may use.
    pub slots: Option<u32>,
    /// The name that its starter has given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Address at which it serves metrics; `None` for a node that records none.
    pub metrics: Option<SocketAddr>,
}

/// Address source: from where a node can be reached, and by which name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AddressSource {
    /// Reached only from its own host.
    #[serde(rename = "Here")]
    LocalHost,
    /// Reached from other hosts, by this name or address.
    Named(String),
    /// Reached from other hosts, by its own host name.
    #[serde(rename = "OwnName")]
    HostName,
}

impl AddressSource {
    /// True if traffic to the node may leave its host, judged by the name alone.
    pub fn is_open(&self) -> bool {
        match self {
            Self::LocalHost => false,
            Self::HostName => true,
            Self::Named(host) => {
                host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

/// Memory of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    /// Default share of the memory that is free on the node's host.
    #[serde(rename = "Usual")]
    Default,
    /// This number of bytes; 0 for a node that only computes.
    Bytes(u64),
}

/// Messages from the starter after the [`BootstrapPlan`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StarterMessage {
    /// Entries of all nodes; each node computes the partition map from their memory.
    #[serde(rename = "Deal")]
    NodeEntries(Vec<NodeEntry>),
    /// The nodes have joined a pool that runs: the id of each, by that of its settings in the plan,
    /// and the map.
    #[serde(rename = "Join")]
    Joined(BTreeMap<u32, u32>, Box<PartitionMap>),
    /// The pool file is written: the node detaches from its starter.
    #[serde(rename = "Keep")]
    Detach,
}

/// Messages from a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeMessage {
    #[serde(rename = "Here")]
    Listening(NodeEntry),
    Ready(u32),
    /// The node cannot start: its id, a message and a hint.
    Refused(u32, String, Option<String>),
}

/// Writes a message as one line.
pub fn write_message(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message).map_err(io::Error::other)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one message; `None` at the end of the input.
pub fn read_message<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let wrong =
        |error| io::Error::new(io::ErrorKind::InvalidData, format!("this line is not a message of Tidemill: {error}"));
    serde_json::from_slice(&line).map(Some).map_err(wrong)
}

/// Partition map of the nodes, with partitions in proportion to memory, and the nodes' entries as
/// their addresses. Every node computes an
/// equal map. If some nodes run tasks and others only store, the root lies at one of the latter: a
/// task cannot harm it.
pub fn partition_map(entries: &[NodeEntry], partitions: u32) -> Result<PartitionMap, Problem> {
    let shares: Vec<(NodeId, u64)> = entries.iter().map(|node| (NodeId(node.id), node.memory)).collect();
    if shares.iter().all(|(_, share)| *share == 0) {
        return Err(Problem::new("no node of the pool has memory").hint("give some of them --memory"));
    }
    let map = PartitionMap::proportional(&shares, partitions).map_err(|error| Problem::new(error.to_string()))?;
    let text = |node: &NodeEntry| serde_json::to_string(node).map_err(|error| Problem::new(error.to_string()));
    let addresses = entries.iter().map(|node| Ok((NodeId(node.id), Arc::from(text(node)?))));
    let map = map.with_addresses(addresses.collect::<Result<Vec<_>, Problem>>()?);
    let runs_tasks = entries.iter().any(|node| node.slots > 0);
    let keeper = entries.iter().find(|node| node.slots == 0 && node.memory > 0).filter(|_| runs_tasks);
    Ok(match keeper {
        Some(keeper) => swap_root(map, NodeId(keeper.id)),
        None => map,
    })
}

/// Gives the root's partition to a node, and another one of that node's in exchange.
fn swap_root(map: PartitionMap, keeper: NodeId) -> PartitionMap {
    let root = FileId::ROOT.partition();
    match (map.node(root).filter(|node| *node != keeper), map.pick(keeper, 0)) {
        (Some(before), Some(other)) => map.with(root, keeper).with(other, before),
        _ => map,
    }
}

impl Memory {
    /// Memory as typed by a user; `None` for the default share.
    pub fn typed(size: Option<ByteSize>) -> Self {
        size.map_or(Self::Default, |size| Self::Bytes(size.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::sample;

    #[test]
    fn lines_are_heard_as_they_were_said_and_other_lines_are_refused() {
        let mut wire = Vec::new();
        write_message(&mut wire, &StarterMessage::NodeEntries(sample().nodes)).unwrap();
        write_message(&mut wire, &StarterMessage::Detach).unwrap();
        let mut from = &wire[..];
        assert_eq!(read_message(&mut from).unwrap(), Some(StarterMessage::NodeEntries(sample().nodes)));
        assert_eq!(read_message(&mut from).unwrap(), Some(StarterMessage::Detach));
        assert_eq!(read_message::<StarterMessage>(&mut from).unwrap(), None, "the end");
        assert!(read_message::<StarterMessage>(&mut &b"Welcome to host b!\n"[..]).is_err());
    }

    #[test]
    fn a_pool_without_memory_is_refused_and_a_node_without_gets_no_partition() {
        let with = |memory: [u64; 2]| {
            sample().nodes.into_iter().zip(memory).map(|(node, memory)| NodeEntry { memory, ..node })
        };
        assert!(partition_map(&with([0, 0]).collect::<Vec<_>>(), 64).is_err());
        let map = partition_map(&with([0, 7]).collect::<Vec<_>>(), 64).unwrap();
        assert_eq!(map.nodes(), [NodeId(2)]);
    }

    #[test]
    fn the_root_lies_at_a_node_that_runs_no_tasks_if_there_is_one() {
        let root_at = |slots: [u32; 2]| {
            let nodes = sample().nodes.into_iter().zip([(7, slots[0]), (1, slots[1])]);
            let entries: Vec<_> = nodes.map(|(node, (memory, slots))| NodeEntry { memory, slots, ..node }).collect();
            partition_map(&entries, 64).unwrap().node(FileId::ROOT.partition()).map(|node| node.0)
        };
        assert_eq!([[2, 0], [2, 2], [0, 0], [0, 2]].map(root_at), [Some(2), Some(1), Some(1), Some(1)]);
    }
}
