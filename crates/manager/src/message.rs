//! The messages between managers, and from tools to them. They are encoded by postcard.

use bytes::Bytes;
use cluster::{ClusterAnswer, ClusterEntry, ClusterRefusal, ClusterState, NodePhase, NodeReport, PartitionMove};
use node::{ClientTraffic, MoveProgress, PinList};
use placement::{Epoch, NodeId, PartitionEntry, PartitionId, PartitionMap};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use wire::{Answer, Body, Failure, Object, Refusal, Request, Session};

/// A message to a manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ManagerRequest {
    /// A message of the log, for a member. -> `Member`
    Member(Bytes),
    /// A node's report about itself, each second, for the leader. -> `Reported`
    Report(Box<ReportMessage>),
    /// Partitions that have arrived at a node and wait for the commit, for the leader. -> `Done`
    Prepared(NodeId, Vec<PreparedPartition>),
    /// An entry that the leader is asked to append. -> `Proposed`
    Propose(ClusterEntry),
    /// A move that its source could not make, with the reason, for the leader. -> `Done`
    MoveFailed(PartitionMove, String),
    /// Move a partition from this node. -> `Done`
    Start(PartitionMove),
    /// Report now, with the loads of partitions. -> `Done`
    ReportLoads,
    /// An entry of the map that has just been agreed on. -> `Done`
    Learn(PartitionId, PartitionEntry),
    /// What lets the pool grow and shrink by itself, each second, for the leader. With nothing it
    /// does not any more. -> `Done`
    Elastic(Option<ElasticReport>),
    /// Asks for the leader's knowledge. -> `Status`
    Status,
    /// Asks a node what it does now. -> `Activity`
    Activity,
    /// Asks a node what its host has there. -> `Pins`
    ListPins,
    /// Has a node that serves nothing any more end all that; it answers with what that was.
    /// -> `Pins`
    EndPins,
}

/// A report of the process that lets a pool grow and shrink by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElasticReport {
    /// Its policy, as it is written.
    pub policy: String,
    /// The least nodes that the pool may have.
    pub min: u32,
    /// The most nodes that the pool may have.
    pub max: u32,
    /// The time for which requests wait for space while more nodes may come.
    pub growth_wait: Duration,
    /// A decision, or its failure, for the event log.
    pub event: Option<String>,
}

/// A partition that has arrived, with the epoch of its entry at the source.
pub type PreparedPartition = (PartitionId, Epoch);

/// A node's report about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReportMessage {
    pub node: NodeId,
    pub report: NodeReport,
    /// Partitions that have arrived and wait for the commit.
    pub prepared: Vec<PreparedPartition>,
    /// The version of the map that the node knows.
    pub known: MapVersion,
}

/// The answer to a message to a manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ManagerAnswer {
    Done,
    Member(Bytes),
    Reported {
        /// The leader's map, if it is newer.
        map: Option<Box<PartitionMap>>,
        /// True if the loads of partitions are needed with the next report.
        wants_loads: bool,
        /// The time for which requests wait for space while more nodes may come; zero if the pool
        /// does not grow by itself.
        growth_wait: Duration,
    },
    Proposed(Result<ClusterAnswer, ClusterRefusal>),
    Status(Box<ClusterStatus>),
    Activity(NodeActivity),
    Pins(PinList),
    /// This node does not lead; perhaps it knows who does.
    NotLeader(Option<NodeId>),
    /// It could not be done.
    Failed(String),
}

/// What a node does now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeActivity {
    /// What clients have sent to it and got from it, since it started.
    pub traffic: ClientTraffic,
    /// The moves from it.
    pub moves: Vec<MoveProgress>,
    /// Files, opens and locks of its host that need it.
    pub pins: u32,
}

/// The managers' knowledge of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The state that they have agreed on.
    pub state: ClusterState,
    /// The node that leads.
    pub leader: NodeId,
    /// The nodes that agree on the state.
    pub members: BTreeSet<NodeId>,
    /// The last report of each node.
    pub usage: BTreeMap<NodeId, ReportedUsage>,
    /// The nodes that do not report any more: they keep what they have, and get nothing.
    pub silent: BTreeSet<NodeId>,
    /// What lets the pool grow and shrink by itself, if something does.
    pub elastic: Option<ElasticReport>,
    /// The last decisions of this leader, each with the time since 1970 in seconds.
    pub events: Vec<(u64, String)>,
}

impl ClusterStatus {
    /// The nodes that are drained, and have not left.
    pub fn drained(&self) -> BTreeSet<NodeId> {
        let nodes = self.state.nodes().iter();
        nodes.filter(|(_, node)| node.phase == NodePhase::Draining).map(|(id, _)| *id).collect()
    }

    /// The drained nodes that serve nothing any more: they wait until their hosts need them no
    /// more.
    pub fn waiting(&self) -> BTreeSet<NodeId> {
        let serving = self.state.map().partition_counts();
        let moving: BTreeSet<NodeId> = self.state.moves().flat_map(|step| [step.from, step.to]).collect();
        let mut waiting = self.drained();
        waiting.retain(|node| !serving.contains_key(node) && !moving.contains(node));
        waiting
    }

    /// The version of the map, which grows with each move and each node.
    pub fn map_version(&self) -> u64 {
        MapVersion::of(self.state.map()).0
    }
}

/// A node's memory, as it has last reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedUsage {
    /// Used memory, bytes.
    pub used: u64,
    /// Memory for the pool, bytes.
    pub capacity: u64,
    /// Files, mounts and programs of its host that need it.
    pub pins: u32,
    /// Requests that wait for space there.
    pub waiting: u64,
}

/// The version of a map: of two maps of one pool the later one has the higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MapVersion(u64);

impl MapVersion {
    /// The version of a map.
    pub fn of(map: &PartitionMap) -> Self {
        let last = u16::try_from(map.partitions() - 1).unwrap_or(u16::MAX);
        let epochs = (0..=last).filter_map(|id| Some(map.entry(PartitionId(id))?.epoch.0));
        // A node that leaves has no address any more.
        let nodes = map.addresses().count() + 2 * map.departed().count();
        Self(epochs.sum::<u64>() + nodes as u64)
    }
}

/// Encodes a message.
pub fn encode(message: &impl Serialize) -> Bytes {
    postcard::to_extend(message, Vec::new()).expect("every message can be encoded").into()
}

/// Decodes a message.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    postcard::from_bytes(bytes).map_err(|error| {
        let why = format!("a message for managers: {error}");
        Refusal::Invalid { object: Object::Pool, why: why.into() }.into()
    })
}

/// The request that carries a message.
pub fn request(message: &ManagerRequest) -> Request {
    request_with(PartitionId(0), Body::Manage { message: encode(message) })
}

/// A request that is of no session.
pub fn request_with(partition: PartitionId, body: Body) -> Request {
    Request { epoch: Epoch::FIRST, session: Session::NONE, skip_ack: false, partition, body }
}

/// Takes a manager's answer from that of its node.
pub fn answer(reply: Result<Answer, Failure>) -> Result<ManagerAnswer, Failure> {
    match reply? {
        Answer::Bytes(bytes) => decode(&bytes),
        _ => Err(Refusal::invalid(Object::Pool, "a manager has not answered with a message").into()),
    }
}
