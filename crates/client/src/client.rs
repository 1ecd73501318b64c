//! A client: its session, its copy of the map, and its connections to the nodes.

use crate::{
    Connection, FdLeaseFuture, InProcessConnection, Nodes, RetryPolicy, handshake::HandshakeResult,
    program_open::FdRequest, session::SessionState, split::Splits, split_attributes::AttributeCache, usage::Usages,
};
use node::{BackingFd, Node, OnInvalidate};
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
use wire::{Extent, HelloReply, MovedPartition, Object, OpenFlags, Outcome, Refusal, Session};

/// A client of a pool. Cheap to clone; clones share one session.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    pub(crate) options: CallOptions,
}

/// How a client makes its calls.
#[derive(Clone, Default)]
pub(crate) struct CallOptions {
    /// True if changes are answered without waiting for cache-invalidation acks.
    pub skip_ack: bool,
    /// The session that the client is bound to, if any.
    pub session: Option<Arc<SessionState>>,
    /// The request for a descriptor that is attached to requests that open something, if any.
    pub fd_request: Option<Arc<FdRequest>>,
}

pub(crate) struct Inner {
    pub nodes: Nodes,
    pub session_state: RwLock<Arc<SessionState>>,
    /// Held while the next session is begun.
    pub session_lock: tokio::sync::Mutex<()>,
    /// Earlier sessions that may not have ended everywhere.
    pub earlier_sessions: Mutex<Vec<Session>>,
    /// Held while those are ended.
    pub cleanup_lock: tokio::sync::Mutex<()>,
    /// The cache-invalidation callback, if this client subscribes.
    pub on_invalidate: Mutex<Option<OnInvalidate>>,
    /// True if the kernel of this client supports prune notices.
    pub supports_prune: AtomicBool,
    pub seed: u64,
    pub stripe_bytes: u32,
    pub partitions: u32,
    pub retry_policy: RetryPolicy,
    map: RwLock<Arc<PartitionMap>>,
    pub usages: Usages,
    /// Number of intents that were begun.
    intent_count: AtomicU64,
    pub splits: Splits,
    pub attribute_cache: AttributeCache,
}

impl Client {
    /// Makes a client of a node in this process.
    pub fn embedded(node: Arc<Node>) -> Self {
        let connection = Arc::new(InProcessConnection(node));
        let client = poll_now(Self::connect(connection, RetryPolicy::default()));
        client.and_then(Result::ok).expect("a node in this process says hello at once")
    }

    /// Makes a client from the nodes' answers to its hello.
    pub(crate) fn new(nodes: Nodes, retry_policy: RetryPolicy, handshake: HandshakeResult) -> Self {
        let HandshakeResult { reply: HelloReply { session, map, seed, stripe_bytes, .. }, reached } = handshake;
        let partitions = map.partitions();
        let usages = Usages::new(nodes.len());
        let session_state = RwLock::new(Arc::new(SessionState::new(session, partitions, reached)));
        let map = RwLock::new(map);
        let inner = Inner {
            nodes,
            session_state,
            session_lock: tokio::sync::Mutex::default(),
            earlier_sessions: Mutex::default(),
            cleanup_lock: tokio::sync::Mutex::default(),
            on_invalidate: Mutex::default(),
            supports_prune: AtomicBool::new(false),
            seed,
            stripe_bytes,
            partitions,
            retry_policy,
            map,
            usages,
            intent_count: AtomicU64::new(0),
            splits: Splits::default(),
            attribute_cache: AttributeCache::default(),
        };
        Self { inner: Arc::new(inner), options: CallOptions::default() }
    }

    /// The same client for writes that a kernel makes of its own accord. Such writes are answered
    /// without waiting for invalidation acks: the kernel holds page locks that an ack may need.
    #[must_use]
    pub fn skip_ack(&self) -> Self {
        self.with_options(CallOptions { skip_ack: true, ..self.options.clone() })
    }

    /// The same client with other options.
    pub(crate) fn with_options(&self, options: CallOptions) -> Self {
        Self { inner: self.inner.clone(), options }
    }

    /// The session by which nodes know this client. After a connection has broken it is another
    /// one.
    pub fn session(&self) -> Session {
        self.options.session.as_ref().map_or_else(|| self.inner.session_state().id, |bound| bound.id)
    }

    /// The length of a stripe, bytes.
    pub fn stripe_bytes(&self) -> u32 {
        self.inner.stripe_bytes
    }

    /// The descriptor of an extent. `None` if its node is not in this process.
    pub fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<BackingFd> {
        self.inner.nodes.get(extent.node)?.backing(extent, flags)
    }

    /// Leases the descriptor of an extent from a node in another process of this host. `None` if
    /// there is none to wait for.
    pub fn lease_fd(&self, extent: Extent, flags: OpenFlags) -> Option<FdLeaseFuture> {
        self.inner.nodes.get(extent.node)?.lease_fd(extent, flags)
    }
}

impl Inner {
    /// The node that serves a partition, the connection to it, and the epoch of the entry that says
    /// so.
    pub fn connection_to(&self, partition: PartitionId) -> Outcome<(NodeId, &dyn Connection, Epoch)> {
        let entry = self.map.read().entry(partition).map(|entry| (entry.server, entry.epoch));
        let (home, epoch) = entry.ok_or_else(|| Refusal::invalid(Object::Pool, "the pool has no such partition"))?;
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

    /// The next number for an intent.
    pub fn next_intent(&self) -> u64 {
        self.intent_count.fetch_add(1, Relaxed) + 1
    }

    /// The values that identify the pool: seed, stripe length, number of partitions.
    pub fn pool(&self) -> (u64, u32, u32) {
        (self.seed, self.stripe_bytes, self.partitions)
    }

    /// Takes the entries of a map that are newer.
    pub fn learn_map(&self, map: &PartitionMap) {
        Arc::make_mut(&mut *self.map.write()).learn_all(map);
    }

    /// Takes the entry of a partition, if it is newer.
    pub fn learn(&self, MovedPartition { partition, entry }: MovedPartition) {
        Arc::make_mut(&mut *self.map.write()).learn(partition, entry);
    }
}

/// Polls a future once; returns its value if it is ready.
pub fn poll_now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (session, nodes) = (self.session(), &self.inner.nodes);
        f.debug_struct("Client").field("session", &session).field("nodes", nodes).finish_non_exhaustive()
    }
}
