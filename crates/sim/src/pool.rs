//! Pools in this process, for tests: nodes over the model engine or arenas, and clients over
//! connections that a test wraps.

use arena::{Arena, ArenaOptions};
use client::{Client, Connection, InProcessConnection, Nodes, RetryPolicy};
use node::{Node, NodeSettings};
use placement::{NodeId, PartitionMap};
use std::{sync::Arc, time::Duration};
use store::{Engine, ModelEngine};
use vfs::Vfs;
use wire::{Name, Owner, RenameFrom, RenameTo};

/// Owner of what tests create.
pub const OWNER: Owner = Owner { uid: 1000, gid: 100 };
/// Stripe length of tests; short, so that files have many stripes.
pub const STRIPE: u32 = 64 << 10;

/// Numbers of nodes over which a test runs.
pub const NODES: [u32; 4] = [1, 2, 4, 8];
/// Numbers of nodes for tests that take long.
pub const FEW_NODES: [u32; 2] = [1, 4];

/// A pool of several nodes in this process.
#[derive(Clone, Debug)]
pub struct Pool(Vec<Arc<Node>>);

impl Pool {
    /// A pool of `nodes` nodes, each over its own engine.
    pub fn start(nodes: u32, settings: &NodeSettings, engine: impl Fn() -> Arc<dyn Engine>) -> Self {
        let ids: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        Self::with_shares(&ids, &ids, settings, engine)
    }

    /// A pool of several nodes, whose first one serves all partitions: so it may give extents.
    pub fn start_at_one(nodes: u32, settings: &NodeSettings, engine: impl Fn() -> Arc<dyn Engine>) -> Self {
        let ids: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        Self::with_shares(&ids, &ids[..1], settings, engine)
    }

    fn with_shares(
        ids: &[NodeId],
        serving: &[NodeId],
        settings: &NodeSettings,
        engine: impl Fn() -> Arc<dyn Engine>,
    ) -> Self {
        let shares: Vec<(NodeId, u64)> = serving.iter().map(|id| (*id, 1)).collect();
        let map = PartitionMap::proportional(&shares, settings.partitions).unwrap();
        Self(ids.iter().map(|id| Node::in_pool(*id, map.clone(), settings.clone(), engine())).collect())
    }

    /// A pool over the model engine, whose directories split above `split_entries` entries.
    pub fn that_splits(nodes: u32, split_entries: u32) -> Self {
        let settings = NodeSettings { space_wait: Duration::ZERO, split_entries, ..settings() };
        Self::start(nodes, &settings, || Arc::new(ModelEngine::new(256 << 20, STRIPE)))
    }

    /// A pool over the model engine with plenty of memory.
    pub fn of(nodes: u32) -> Self {
        Self::that_splits(nodes, NodeSettings::default().split_entries)
    }

    /// A pool over arenas, with extent files if this process may have them. Small closed ones are
    /// demoted to inline immediately.
    pub fn of_arenas(nodes: u32, memory: u64) -> Self {
        let settings = NodeSettings { space_wait: Duration::ZERO, closed_extents_max: 0, ..settings() };
        let options = ArenaOptions { stripe_bytes: STRIPE, ..ArenaOptions::with_capacity(memory) };
        Self::start(nodes, &settings, || Arc::new(Arena::new(options).unwrap()))
    }

    /// A client over connections that the test wraps around the in-process ones.
    pub async fn over<C: Connection + 'static>(
        &self,
        wrap: impl Fn(InProcessConnection) -> C,
        retry_policy: RetryPolicy,
    ) -> Vfs {
        let connection = |node: &Arc<Node>| (node.id(), Arc::new(wrap(direct(node))) as Arc<dyn Connection>);
        let nodes: Nodes = self.0.iter().map(connection).collect();
        Vfs::new(Client::connect_all(nodes, retry_policy).await.unwrap())
    }

    /// A client that reaches all nodes.
    pub async fn client(&self) -> Vfs {
        self.over(|node| node, IMPATIENT).await
    }

    /// The nodes, by id.
    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.0
    }
}

/// Default settings of the tests' pools.
pub fn settings() -> NodeSettings {
    NodeSettings { partitions: 64, stripe_bytes: STRIPE, owner: OWNER, ..NodeSettings::default() }
}

/// A node with `memory` bytes over the model engine.
pub fn node(memory: u64, space_wait: Duration) -> Arc<Node> {
    let settings = NodeSettings { space_wait, ..settings() };
    node::embedded(settings, Arc::new(ModelEngine::new(memory, STRIPE)))
}

/// A node over an arena, with extent files if this process may have them. Small closed ones are
/// demoted to inline immediately.
pub fn arena_node(memory: u64, space_wait: Duration) -> Arc<Node> {
    let settings = NodeSettings { space_wait, closed_extents_max: 0, ..settings() };
    node::embedded(
        settings,
        Arc::new(Arena::new(ArenaOptions { stripe_bytes: STRIPE, ..ArenaOptions::with_capacity(memory) }).unwrap()),
    )
}

/// All entries of a directory, in the order of their cookies.
pub async fn all(vfs: &Vfs, directory: placement::FileId) -> Vec<wire::DirEntry> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = vfs.list(directory, after, 1000).await.unwrap();
        let Some(last) = page.last() else { return all };
        after = last.cookie;
        all.extend(page);
    }
}

/// A pool with plenty of memory.
pub fn pool() -> Vfs {
    Vfs::new(Client::embedded(node(64 << 20, Duration::ZERO)))
}

/// Retry policy with few and short tries, so that tests of failures are fast.
pub const IMPATIENT: RetryPolicy =
    RetryPolicy { tries: 3, pause_first: Duration::from_micros(10), pause_max: Duration::from_micros(10) };

/// A client over the test's own connection.
pub async fn over(connection: impl Connection + 'static, retry_policy: RetryPolicy) -> Vfs {
    Vfs::new(Client::connect(Arc::new(connection), retry_policy).await.unwrap())
}

/// The connection to a node in this process.
pub fn direct(node: &Arc<Node>) -> InProcessConnection {
    InProcessConnection(node.clone())
}

/// A name of this text.
pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Source of a rename.
pub fn from(parent: placement::FileId, text: &str) -> RenameFrom {
    RenameFrom { parent, name: name(text) }
}

/// Target of a rename.
pub fn to(parent: placement::FileId, text: &str) -> RenameTo {
    RenameTo { parent, name: name(text) }
}

/// `length` bytes of one value.
pub fn filled(byte: u8, length: u32) -> Vec<u8> {
    vec![byte; length as usize]
}
