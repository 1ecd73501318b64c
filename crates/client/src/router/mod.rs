//! The router: sends a request to the node that serves its partition, until it is answered.
//!
//! It knows bodies, partitions and nodes, and no file: what a request means is the business of the
//! verbs above.
//!
//! - `send`: a request: routed by the map, sent until it is answered
//! - `nodes`: the connection to each node of the pool, and which of them do not answer
//! - `circuit_breaker`: outages of a node, remembered so that not every call must find them out
//! - `retry`: the retry policy
//! - `sequence`: sequence numbers of changes in each partition
//! - `handshake`: the hello, which starts a session and names it to other nodes
//! - `due_hellos`: hellos to nodes that have got partitions from others
//! - `session`: the change to the next session, after a connection has broken

pub mod circuit_breaker;
pub mod due_hellos;
pub mod handshake;
pub mod nodes;
pub mod retry;
pub mod send;
pub mod sequence;
pub mod session;

use crate::{
    RetryPolicy,
    router::{
        due_hellos::DueHellos,
        nodes::{NodeLink, Nodes},
        session::{Greeting, SessionState},
    },
};
use node::OnInvalidate;
use parking_lot::{Mutex, RwLock};
use placement::{Epoch, NodeId, PartitionId, PartitionMap};
use std::sync::{Arc, atomic::AtomicBool};
use wire::{Failure, HelloReply, MovedPartition, Object, Outcome, Refusal};

/// The way to the nodes of a pool: the map, the connections, the session.
pub struct Router {
    pub nodes: Nodes,
    map: RwLock<Arc<PartitionMap>>,
    session: RwLock<Arc<SessionState>>,
    /// Held while the next session is begun.
    session_lock: tokio::sync::Mutex<()>,
    /// Earlier sessions of this client. Each holds what was open at nodes whose connections did not
    /// break.
    earlier_sessions: Mutex<Vec<Arc<SessionState>>>,
    pub due_hellos: DueHellos,
    /// The cache-invalidation callback, if this client subscribes.
    on_invalidate: Mutex<Option<OnInvalidate>>,
    /// True if the kernel of this client supports prune notices.
    pub supports_prune: AtomicBool,
    pub seed: u64,
    pub stripe_bytes: u32,
    pub partitions: u32,
    pub retry_policy: RetryPolicy,
}

impl Router {
    /// A router over these nodes, one of which has answered a hello.
    pub fn new(nodes: Nodes, retry_policy: RetryPolicy, (reply, first): (HelloReply, NodeId)) -> Self {
        let HelloReply { session, map, seed, stripe_bytes, .. } = reply;
        let partitions = map.partitions();
        nodes.learn(&map);
        let state = SessionState::new(session, partitions);
        nodes.link(first).iter().for_each(|link| state.record(link, Greeting::Hello));
        Self {
            nodes,
            map: RwLock::new(map),
            session: RwLock::new(Arc::new(state)),
            session_lock: tokio::sync::Mutex::default(),
            earlier_sessions: Mutex::default(),
            due_hellos: DueHellos::default(),
            on_invalidate: Mutex::default(),
            supports_prune: AtomicBool::new(false),
            seed,
            stripe_bytes,
            partitions,
            retry_policy,
        }
    }

    /// The link to the node that serves a partition, and the epoch of the entry that says so.
    pub fn link_to(&self, partition: PartitionId) -> Outcome<(&NodeLink, Epoch)> {
        let entry = self.map.read().entry(partition).map(|entry| (entry.server, entry.epoch));
        let (home, epoch) = entry.ok_or_else(|| Refusal::invalid(Object::Pool, "the pool has no such partition"))?;
        match self.nodes.link(home) {
            Some(link) => Ok((link, epoch)),
            None => Err(Refusal::Unavailable {
                object: Object::Pool,
                tries: 0,
                why: format!("partition {partition} is held by node {home}, to which there is no connection").into(),
            }),
        }
    }

    /// The node that holds a partition.
    pub fn home(&self, partition: PartitionId) -> Option<NodeId> {
        self.map.read().node(partition)
    }

    /// True if a node has left the pool, as far as this client knows.
    pub fn has_departed(&self, node: NodeId) -> bool {
        self.map.read().departed().any(|departed| departed == node)
    }

    /// One of the partitions that a node holds; see [`PartitionMap::pick`].
    pub fn pick(&self, node: NodeId, hash: u64) -> Option<PartitionId> {
        self.map.read().pick(node, hash)
    }

    /// The nodes that hold partitions, by ascending ids, without those that were lost with them.
    pub fn data_nodes(&self) -> Vec<NodeId> {
        let map = self.map.read();
        let departed: Vec<NodeId> = map.departed().collect();
        map.nodes().into_iter().filter(|node| !departed.contains(node)).collect()
    }

    /// The nodes that hold partitions, each with its share of all partitions.
    pub fn shares(&self) -> Vec<(NodeId, f64)> {
        let held = self.map.read().partition_counts();
        held.into_iter().map(|(node, held)| (node, f64::from(held) / f64::from(self.partitions))).collect()
    }

    /// Takes the entries of a map that are newer, and the nodes that are new.
    pub fn learn_map(&self, map: &PartitionMap) {
        let (moves, known) = {
            let mut known = self.map.write();
            let moves = known.moves_in(map);
            Arc::make_mut(&mut *known).learn_all(map);
            (moves, known.clone())
        };
        // Not those of `map`: it may be of a time before one of them has left.
        self.nodes.learn(&known);
        self.note_moves(&moves);
    }

    /// Takes the entry of a partition that a node has answered, if it is newer; and asks that node
    /// for its map if the partition is at a node that is not known yet, or not to hold partitions:
    /// one that has just joined has others too.
    async fn learn_from(&self, link: &NodeLink, moved: MovedPartition) -> Outcome<()> {
        let MovedPartition { partition, entry } = moved;
        if self.nodes.link(entry.server).is_none() || self.pick(entry.server, 0).is_none() {
            match self.query_map_once(link).await {
                Ok(map) => self.learn_map(&map),
                Err(Failure::Refused(refusal)) => return Err(refusal),
                // It may have left since it answered: others are asked when it is tried again.
                Err(_) if self.nodes.link(entry.server).is_none() => return Ok(()),
                Err(_) => {}
            }
        }
        let moved = {
            let (mut known, to) = (self.map.write(), entry.server);
            let from = known.node(partition).filter(|from| *from != to);
            let is_new = Arc::make_mut(&mut *known).learn(partition, entry);
            from.filter(|_| is_new).map(|from| (from, to))
        };
        self.note_moves(&moved.into_iter().collect());
        Ok(())
    }
}
