//! A client: its session, its copy of the map, and its connections to the nodes.

use crate::{
    Borrowing, Connection, InProcess, Nodes, Patience, greet::Greeted, life::Life, marked::Gift, split::Splits,
    split_stat::Parts, usage::Usages,
};
use node::{Backing, Hear, Node};
use parking_lot::{Mutex, RwLock};
use placement::{Epoch, NodeId, PartitionId, PartitionMap};
use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};
use wire::{Answer, Extent, HelloReply, Object, OpenFlags, Outcome, Refusal, Session};

/// A client of a pool. Cheap to clone; clones share one session.
#[derive(Clone)]
pub struct Client(
    pub(crate) Arc<Inner>,
    /// True if changes are answered without waiting for cache-invalidation acks.
    pub(crate) bool,
    /// The session that the client is bound to, if any.
    pub(crate) Option<Arc<Life>>,
    /// The request for a descriptor that is attached to requests that open something, if any.
    pub(crate) Option<Arc<Gift>>,
);

pub(crate) struct Inner {
    pub nodes: Nodes,
    pub life: RwLock<Arc<Life>>,
    /// Held while the next session is begun.
    pub beginning: tokio::sync::Mutex<()>,
    /// Earlier sessions that may not have ended everywhere.
    pub earlier: Mutex<Vec<Session>>,
    /// Held while those are ended.
    pub leaving: tokio::sync::Mutex<()>,
    /// The cache-invalidation callback, if this client subscribes.
    pub hear: Mutex<Option<Hear>>,
    /// True if the kernel of this client supports prune notices.
    pub prunes: AtomicBool,
    pub seed: u64,
    pub stripe_bytes: u32,
    pub partitions: u32,
    pub patience: Patience,
    map: RwLock<Arc<PartitionMap>>,
    /// The map's epoch, readable without a lock.
    epoch: AtomicU64,
    pub usages: Usages,
    /// Number of intents that were begun.
    intents: AtomicU64,
    pub splits: Splits,
    pub parts: Parts,
}

impl Client {
    /// Makes a client of a node in this process.
    pub fn embedded(node: Arc<Node>) -> Self {
        let connection = Arc::new(InProcess(node));
        let client = at_once(Self::connect(connection, Patience::default()));
        client.and_then(Result::ok).expect("a node in this process says hello at once")
    }

    /// Makes a client from the nodes' answers to its hello.
    pub(crate) fn of(nodes: Nodes, patience: Patience, greeted: Greeted) -> Self {
        let Greeted { welcome: HelloReply { session, map, seed, stripe_bytes, .. }, greeted } = greeted;
        let partitions = map.partitions();
        let usages = Usages::new(nodes.len());
        let life = RwLock::new(Arc::new(Life::new(session, partitions, greeted)));
        let epoch = AtomicU64::new(map.epoch().0);
        let (intents, splits, parts) = (AtomicU64::new(0), Splits::default(), Parts::default());
        let map = RwLock::new(map);
        Self(
            Arc::new(Inner {
                nodes,
                life,
                beginning: tokio::sync::Mutex::default(),
                earlier: Mutex::default(),
                leaving: tokio::sync::Mutex::default(),
                hear: Mutex::default(),
                prunes: AtomicBool::new(false),
                seed,
                stripe_bytes,
                partitions,
                patience,
                map,
                epoch,
                usages,
                intents,
                splits,
                parts,
            }),
            false,
            None,
            None,
        )
    }

    /// The same client for writes that a kernel makes of its own accord. Such writes are answered
    /// without waiting for invalidation acks: the kernel holds page locks that an ack may need.
    #[must_use]
    pub fn skip_ack(&self) -> Self {
        Self(self.0.clone(), true, self.2.clone(), self.3.clone())
    }

    /// The session by which nodes know this client. After a connection has broken it is another
    /// one.
    pub fn session(&self) -> Session {
        self.2.as_ref().map_or_else(|| self.0.life().session, |bound| bound.session)
    }

    /// The length of a stripe, bytes.
    pub fn stripe_bytes(&self) -> u32 {
        self.0.stripe_bytes
    }

    /// The descriptor of an extent. `None` if its node is not in this process.
    pub fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<Backing> {
        self.0.nodes.get(extent.node)?.backing(extent, flags)
    }

    /// Leases the descriptor of an extent from a node in another process of this host. `None` if
    /// there is none to wait for.
    pub fn borrow(&self, extent: Extent, flags: OpenFlags) -> Option<Borrowing> {
        self.0.nodes.get(extent.node)?.borrow(extent, flags)
    }
}

impl Inner {
    /// The node that holds a partition, the connection to it, and the epoch of the map that says
    /// so.
    pub fn way(&self, partition: PartitionId) -> Outcome<(NodeId, &dyn Connection, Epoch)> {
        if let Some((id, only)) = self.nodes.only() {
            return Ok((id, only, self.epoch()));
        }
        let (home, epoch) = {
            let map = self.map.read();
            (map.node(partition), map.epoch())
        };
        let home = home.ok_or_else(|| Refusal::invalid(Object::Pool, "the pool has no such partition"))?;
        match self.nodes.get(home) {
            Some(node) => Ok((home, node, epoch)),
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

    /// One of the partitions that a node holds; see [`PartitionMap::pick`].
    pub fn pick(&self, node: NodeId, hash: u64) -> Option<PartitionId> {
        self.map.read().pick(node, hash)
    }

    /// The nodes that hold partitions, by ascending ids.
    pub fn data_nodes(&self) -> Vec<NodeId> {
        self.map.read().nodes()
    }

    /// The nodes that hold partitions, each with its share of all partitions.
    pub fn shares(&self) -> Vec<(NodeId, f64)> {
        let held = self.map.read().partition_counts();
        held.into_iter().map(|(node, held)| (node, f64::from(held) / f64::from(self.partitions))).collect()
    }

    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Relaxed))
    }

    /// The next number for an intent.
    pub fn next_intent(&self) -> u64 {
        self.intents.fetch_add(1, Relaxed) + 1
    }

    /// The values that identify the pool: seed, stripe length, number of partitions.
    pub fn pool(&self) -> (u64, u32, u32) {
        (self.seed, self.stripe_bytes, self.partitions)
    }

    /// Replaces the map if the given one is newer.
    pub fn follow(&self, map: Arc<PartitionMap>) {
        let mut known = self.map.write();
        if map.epoch() > known.epoch() {
            self.epoch.store(map.epoch().0, Relaxed);
            *known = map;
        }
    }
}

/// Polls a future once; returns its value if it is ready.
pub fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// The refusal for an answer of the wrong kind: the node speaks another protocol version.
pub(crate) fn unexpected(answer: &Answer) -> Refusal {
    let shown: String = format!("{answer:?}").chars().take(80).collect();
    let why = format!("the node gave an answer of the wrong kind ({shown}); it may be of another version");
    Refusal::Io { object: Object::Pool, why: why.into() }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (session, nodes) = (self.session(), &self.0.nodes);
        f.debug_struct("Client").field("session", &session).field("nodes", nodes).finish_non_exhaustive()
    }
}
