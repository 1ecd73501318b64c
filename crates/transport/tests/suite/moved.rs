//! Partitions that have moved, while programs of the host that they left use their files.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use super::{
    common::{LONG, OWNER, STRIPE, any_port, host::child_of, remote, token},
    programs::CLIENT,
};
use arena::{Arena, ArenaOptions};
use client::{Client, Connection, Connector, Nodes, RetryPolicy, testing::hand_over};
use node::{Node, NodeSettings};
use placement::{NodeId, PartitionId, PartitionMap};
use std::{sync::Arc, time::Duration};
use store::Engine;
use test_support::until_polled;
use tokio::runtime::Handle;
use transport::{Address, Listener, Server, ServerLimits};
use vfs::Vfs;
use wire::{Attributes, Lock, LockKind, LockOwner, LockStyle, Object, OpenFlags, Refusal};

/// Number of partitions.
const PARTITIONS: u16 = 16;

#[derive(Debug)]
struct ByAddress;

impl Connector for ByAddress {
    fn connect(&self, _: NodeId, address: &str) -> Result<Arc<dyn Connection>, String> {
        Ok(Arc::new(remote(&address.parse().unwrap())))
    }
}

/// Two nodes of this host. The first serves all partitions at the start.
struct TwoNodes {
    nodes: [Arc<Node>; 2],
    engine: Arc<Arena>,
    servers: [Server; 2],
    _directory: tempfile::TempDir,
}

impl TwoNodes {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listen = |number| Listener::bind(&Address::Unix(directory.path().join(format!("{number}")))).unwrap();
        Self::listening([1, 2].map(listen), directory)
    }

    /// Like [`Self::start`], as if on hosts other than the clients': they say hello when they need.
    fn start_afar() -> Self {
        let listeners = [(); 2].map(|()| Listener::bind(&any_port()).unwrap());
        Self::listening(listeners, tempfile::tempdir().unwrap())
    }

    fn listening(listeners: [Listener; 2], directory: tempfile::TempDir) -> Self {
        let ids = [NodeId(1), NodeId(2)];
        let addresses = ids.into_iter().zip(&listeners).map(|(id, to)| (id, to.address().to_string().into()));
        let map = PartitionMap::one_node(ids[0], PARTITIONS.into()).unwrap().with_addresses(addresses);
        let settings = NodeSettings {
            partitions: PARTITIONS.into(),
            stripe_bytes: STRIPE,
            space_wait: LONG,
            owner: OWNER,
            closed_extents_max: 0,
            ..NodeSettings::default()
        };
        let options = ArenaOptions { stripe_bytes: STRIPE, ..ArenaOptions::with_capacity(64 << 20) };
        let engines = ids.map(|_| Arc::new(Arena::new(options).unwrap()));
        let node = |at: usize| Node::in_pool(ids[at], map.clone(), settings.clone(), engines[at].clone());
        let nodes = [node(0), node(1)];
        let mut listeners = listeners.into_iter();
        let servers = nodes.each_ref().map(|node| {
            let (listener, connector) = (listeners.next().unwrap(), Some(Arc::new(ByAddress) as Arc<dyn Connector>));
            let limits = ServerLimits::default();
            transport::serve_on(&Handle::current(), node.clone(), listener, &token(), limits, connector).unwrap()
        });
        let [engine, _] = engines;
        Self { nodes, engine, servers, _directory: directory }
    }

    async fn client(&self) -> Vfs {
        self.client_of(2).await
    }

    /// A client that knows one of the nodes.
    async fn client_of(&self, number: u32) -> Vfs {
        let first = Arc::new(remote(self.servers[number as usize - 1].address())) as Arc<dyn Connection>;
        let nodes = Nodes::with_connector(Arc::new(ByAddress), [(NodeId(number), first)]);
        Vfs::new(Client::connect_all(nodes, RetryPolicy::default()).await.unwrap())
    }

    async fn move_all(&self) {
        for partition in (0..PARTITIONS).map(PartitionId) {
            hand_over(&self.nodes[0], &self.nodes[1], partition).await.unwrap();
        }
    }

    /// Number of extents in use at the first node.
    fn used_extents(&self) -> u64 {
        self.nodes[0].usage();
        let (made, free) = self.engine.extents().unwrap().slot_counts();
        made - free
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_leaves_the_node_that_its_partition_has_left() {
    let pool = TwoNodes::start();
    if !pool.nodes[0].supports_extent_files() {
        return;
    }
    let vfs = pool.client().await;
    let flags = OpenFlags { use_extent: true, ..OpenFlags::READ_WRITE };
    let (made, handle) = vfs.create(Vfs::root(), b"f", 0o644, OWNER, flags).await.unwrap();
    let bytes: Vec<u8> = (0..5 * STRIPE + 7).map(|at| u8::try_from(at % 251).unwrap()).collect();
    vfs.write(handle, 0, bytes.clone().into()).await.unwrap();
    assert_eq!(vfs.stat(made.file).await.unwrap().extent.map(|extent| extent.node), Some(NodeId(1)));
    pool.move_all().await;
    assert_eq!(pool.nodes[0].pins(), 1, "it is open");
    vfs.close(handle).await.unwrap();
    until_polled("its node could leave", || pool.nodes[0].pins() == 0).await;
    until_polled("the extent is free", || pool.used_extents() == 0).await;
    assert!(vfs.read_file(b"f").await.unwrap() == bytes);
    for server in pool.servers {
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_program_has_open_and_locked_ends_with_it_at_a_node_that_it_never_knew() {
    let pool = TwoNodes::start();
    if !pool.nodes[0].supports_extent_files() {
        return;
    }
    let mut child = child_of(pool.servers[0].address(), CLIENT, "lock");
    child.send_line("f");
    child.expect_line("locked");
    until_polled("the session has ended, and its lease has not", || pool.nodes[0].scan_leases() == (1, 1)).await;
    pool.move_all().await;
    let vfs = pool.client().await;
    let file = vfs.lookup(Vfs::root(), b"f").await.unwrap().file;
    let owner = LockOwner::Session(1);
    let mine = Lock { owner, kind: LockKind::Write, style: LockStyle::EVERYWHERE, pid: 7 };
    assert_eq!(vfs.lock_for_program(file, mine, false).await, Err(Refusal::Locked(Object::File(file))));
    let waiting = tokio::spawn(vfs.lock_for_program(file, mine, true));
    let handle = vfs.open(file, OpenFlags::READ).await.unwrap();
    assert!(vfs.is_shared(handle), "the program has it open");
    vfs.close(handle).await.unwrap();
    child.kill();
    waiting.await.unwrap().unwrap();
    vfs.unlink(Vfs::root(), b"f").await.unwrap();
    until_polled("the extent is free", || pool.used_extents() == 0).await;
    for server in pool.servers {
        server.stop().await;
    }
}

/// A removed file that a client has open, whose node has left.
async fn left_file(pool: TwoNodes) -> (Vfs, vfs::Handle, Vfs, Attributes, Server) {
    let (holder, other) = (pool.client_of(1).await, pool.client_of(2).await);
    let (made, handle) = holder.create(Vfs::root(), b"f", 0o644, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    holder.write(handle, 0, b"bytes".to_vec().into()).await.unwrap();
    other.unlink(Vfs::root(), b"f").await.unwrap();
    pool.move_all().await;
    let mut map = (*pool.nodes[1].known_map()).clone();
    map.depart(NodeId(1));
    pool.nodes[1].learn_map(&map);
    let [first, second] = pool.servers;
    first.stop().await;
    (holder, handle, other, made, second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_has_open_stays_when_a_node_leaves_if_the_client_comes_within_ten_seconds() {
    let (holder, handle, other, made, server) = left_file(TwoNodes::start_afar()).await;
    assert!(other.stat(made.file).await.is_ok());
    assert_eq!(holder.read(handle, 0, 10).await.unwrap(), &b"bytes"[..]);
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(holder.read(handle, 0, 10).await.unwrap(), &b"bytes"[..]);
    holder.close(handle).await.unwrap();
    assert!(matches!(other.stat(made.file).await, Err(Refusal::NotFound(_))));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_has_open_ends_ten_seconds_after_a_node_has_left_if_the_client_does_not_come() {
    let (holder, _, other, made, server) = left_file(TwoNodes::start_afar()).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(other.stat(made.file).await.is_ok());
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(matches!(other.stat(made.file).await, Err(Refusal::NotFound(_))));
    drop(holder);
    server.stop().await;
}
