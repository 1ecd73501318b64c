//! Clients that are killed in the middle of a put, over sockets to four nodes: the object is
//! complete afterwards, or nothing is left of it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use super::common::*;
use bytes::Bytes;
use client::{Client, Connection, Connector, Objects, RetryPolicy, objects::Condition};
use node::{Node, NodeSettings, OnInvalidate, ReplyFuture};
use placement::{Epoch, FileId, Layout, NodeId, PartitionId, PartitionMap, StripeNo, stripe_partition};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use store::ModelEngine;
use test_support::until_polled;
use tokio::sync::Notify;
use transport::{Listener, Remote, Server, ServerLimits};
use wire::{Answer, Body, Command, HelloReply, Refusal, Request, RequestId, Session, StripeAction};

const NODES: u32 = 4;
/// Stripes of an object: enough for some at every node.
const STRIPES: usize = 12;
/// More than the calls of a put: a file reserved, its stripes, its name.
const CALLS: u32 = 16;
/// Anything that is not removed by then is leaked.
const ENOUGH: Duration = Duration::from_mins(1);
const KEY: &[u8] = b"folder/object";

struct Pool {
    nodes: Vec<Arc<Node>>,
    servers: Vec<Server>,
}

/// End of a client: after `left` calls all its connections are cut, that with number `first` first.
#[derive(Debug)]
struct Death {
    left: AtomicU32,
    first: usize,
    relays: Vec<Relay>,
    died: Notify,
}

#[derive(Debug)]
struct Mortal {
    inner: Remote,
    death: Arc<Death>,
}

impl Death {
    fn come(&self) {
        for at in 0..self.relays.len() {
            self.relays[(self.first + at) % self.relays.len()].cut();
        }
        self.died.notify_one();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stripe_of_no_file_goes_with_its_session_also_at_a_node_that_would_not_have_the_file() {
    let pool = Pool::start();
    let healthy = pool.client().await;
    healthy.put(b"folder/other", Bytes::from(vec![7; STRIPES * STRIPE as usize]), Condition::Always).await.unwrap();
    let before = pool.held();
    let [one, other] = [0, 1].map(|at| remote(pool.servers[at].address()));
    let welcome = hello(&one, Session::NONE).await;
    hello(&other, welcome.session).await;
    let there = (0..64).map(PartitionId).find(|id| welcome.map.node(*id) == Some(NodeId(2))).unwrap();
    for home in (0..64).map(PartitionId) {
        let (file, action) = (FileId::new(home, 1_000_000), StripeAction::Fill { data: Bytes::from_static(b"bytes") });
        let body = Body::Stripe { file, stripe: StripeNo(3), action };
        assert_eq!(other.call(request(&welcome, there, body)).await, Ok(Answer::Done));
    }
    assert_ne!(pool.held(), before);
    drop((one, other));
    until_polled("what the session held is given back", || pool.held() == before).await;
    let kept = healthy.get(b"folder/other").await.unwrap();
    assert_eq!(kept.len(), STRIPES * STRIPE as usize);
    pool.stop().await;
}

/// The file's own node decides which stripes belong to the file: it has planned some of those that
/// are written, and some of the planned ones lie here already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stripes_that_an_existing_file_of_another_node_has_not_planned_go_with_the_session_that_wrote_them() {
    let pool = Pool::start();
    let healthy = pool.client().await;
    let (bytes, mut files) = (vec![7; STRIPES * STRIPE as usize], Vec::new());
    for key in 0..8 {
        let key = format!("folder/{key}");
        healthy.put(key.as_bytes(), Bytes::from(bytes.clone()), Condition::Always).await.unwrap();
        files.push(healthy.head(key.as_bytes()).await.unwrap().version.file);
    }
    let before = pool.held();
    let [one, other] = [0, 1].map(|at| remote(pool.servers[at].address()));
    let welcome = hello(&one, Session::NONE).await;
    hello(&other, welcome.session).await;
    let home = |file, stripe| stripe_partition(welcome.seed, file, StripeNo(stripe), 64);
    let is_there = |partition| welcome.map.node(partition) == Some(NodeId(2));
    files.retain(|file| !is_there(file.partition()));
    assert!(!files.is_empty());
    for file in files {
        let planned = (0..STRIPES as u64).find(|stripe| is_there(home(file, *stripe))).unwrap();
        let unplanned = (0..3000).map(|at| 1000 + 2 * at).filter(|stripe| is_there(home(file, *stripe)));
        for stripe in unplanned.chain([planned]) {
            let action =
                StripeAction::Write { generation: 0, offset: 0, ends: false, data: Bytes::from_static(&[7; 9]) };
            let body = Body::Stripe { file, stripe: StripeNo(stripe), action };
            assert_eq!(other.call(request(&welcome, home(file, stripe), body)).await, Ok(Answer::Done));
        }
    }
    assert_ne!(pool.held(), before);
    drop((one, other));
    until_polled("what the session held is given back", || pool.held() == before).await;
    for key in 0..8 {
        assert_eq!(healthy.get(format!("folder/{key}").as_bytes()).await.unwrap().into_bytes(), bytes);
    }
    pool.stop().await;
}

impl Connection for Mortal {
    fn call(&self, request: Request) -> ReplyFuture {
        let reply = self.inner.call(request);
        if self.death.left.fetch_sub(1, SeqCst) == 1 {
            self.death.come();
        }
        reply
    }

    fn subscribe(&self, session: Session, on_invalidate: &OnInvalidate) -> ReplyFuture {
        self.inner.subscribe(session, on_invalidate)
    }

    fn set_supports_prune(&self, session: Session) {
        self.inner.set_supports_prune(session);
    }

    fn unsubscribe(&self, session: Session) {
        self.inner.unsubscribe(session);
    }
}

/// Connects to nodes by the addresses in the map.
#[derive(Debug)]
struct ByAddress;

impl Connector for ByAddress {
    fn connect(&self, _node: NodeId, address: &str) -> Result<Arc<dyn Connection>, String> {
        let address = address.parse::<transport::Address>().map_err(|error| error.to_string())?;
        Ok(Arc::new(remote(&address)))
    }
}

impl Pool {
    fn start() -> Self {
        let ids: Vec<NodeId> = (1..=NODES).map(NodeId).collect();
        let shares: Vec<_> = ids.iter().map(|id| (*id, 1)).collect();
        let map = PartitionMap::proportional(&shares, 64).unwrap();
        let listeners: Vec<_> = ids.iter().map(|_| Listener::bind(&any_port()).unwrap()).collect();
        let addresses = listeners.iter().map(|listener| Arc::from(listener.address().to_string()));
        let map = map.with_addresses(ids.iter().copied().zip(addresses));
        let settings = NodeSettings {
            partitions: 64,
            stripe_bytes: STRIPE,
            space_wait: LONG,
            owner: OWNER,
            ..NodeSettings::default()
        };
        let node = |id: &NodeId| {
            Node::in_pool(*id, map.clone(), settings.clone(), Arc::new(ModelEngine::new(64 << 20, STRIPE)))
        };
        let nodes: Vec<_> = ids.iter().map(node).collect();
        let handle = tokio::runtime::Handle::current();
        let serve = |(at, listener): (usize, Listener)| {
            let (node, connector) = (nodes[at].clone(), Some(Arc::new(ByAddress) as Arc<dyn Connector>));
            transport::serve_on(&handle, node, listener, &token(), ServerLimits::default(), connector).unwrap()
        };
        let servers = listeners.into_iter().enumerate().map(serve).collect();
        Self { nodes, servers }
    }

    async fn stop(self) {
        for server in self.servers {
            server.stop().await;
        }
    }

    async fn client(&self) -> Objects {
        let connect = |(node, server): (&Arc<Node>, &Server)| {
            (node.id(), Arc::new(remote(server.address())) as Arc<dyn Connection>)
        };
        let nodes = self.nodes.iter().zip(&self.servers).map(connect).collect();
        Objects::new(Client::connect_all(nodes, RetryPolicy::default()).await.unwrap())
    }

    async fn mortal(&mut self, first: usize) -> (Objects, Arc<Death>) {
        let relays: Vec<Relay> = self.servers.iter_mut().map(Relay::to).collect();
        let addresses: Vec<_> = relays.iter().map(|relay| relay.address.clone()).collect();
        let death = Arc::new(Death { left: AtomicU32::new(u32::MAX), first, relays, died: Notify::new() });
        let connect = |(node, address): (&Arc<Node>, transport::Address)| {
            let (inner, death) = (remote(&address), death.clone());
            (node.id(), Arc::new(Mortal { inner, death }) as Arc<dyn Connection>)
        };
        let nodes = self.nodes.iter().zip(addresses).map(connect).collect();
        (Objects::new(Client::connect_all(nodes, RetryPolicy::default()).await.unwrap()), death)
    }

    /// Files, bytes and stripes that each node holds.
    fn held(&self) -> Vec<(u64, u64, u64)> {
        let held = |node: &Arc<Node>| {
            let usage = node.usage();
            (usage.files, usage.used, usage.stripes)
        };
        self.nodes.iter().map(held).collect()
    }
}

/// Kills the client of a put after `calls` calls; the put may be done.
async fn kill(pool: &mut Pool, calls: u32, first: usize) {
    let (objects, death) = pool.mortal(first).await;
    death.left.store(calls, SeqCst);
    let bytes = Bytes::from(vec![7; STRIPES * STRIPE as usize - 5]);
    tokio::select! {
        () = death.died.notified() => {}
        put = objects.put(KEY, bytes, Condition::Always) => {
            put.unwrap();
            death.come();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_killed_in_the_middle_of_a_put_leaves_the_object_or_nothing_on_any_node() {
    let mut pool = Pool::start();
    let healthy = pool.client().await;
    healthy.put(b"folder/other", Bytes::from_static(b"bytes"), Condition::Always).await.unwrap();
    let before = pool.held();
    for calls in 1..=CALLS {
        for first in 0..NODES as usize {
            kill(&mut pool, calls, first).await;
            let end = Instant::now() + ENOUGH;
            loop {
                match healthy.get(KEY).await {
                    Ok(value) => assert_eq!(value.len(), STRIPES * STRIPE as usize - 5),
                    Err(refusal) => assert!(matches!(refusal, Refusal::NotFound(_)), "{refusal}"),
                }
                match healthy.delete(KEY, Condition::Always).await {
                    Ok(()) | Err(Refusal::NotFound(_)) => {}
                    Err(refusal) => panic!("{refusal}"),
                }
                if pool.held() == before {
                    break;
                }
                assert!(Instant::now() < end, "after {calls} calls: {:?} are left of {before:?}", pool.held());
                tokio::task::yield_now().await;
            }
        }
    }
    drop(healthy);
    pool.stop().await;
}

fn request(welcome: &HelloReply, partition: PartitionId, body: Body) -> Request {
    Request { epoch: Epoch::FIRST, session: welcome.session, skip_ack: false, partition, body }
}

async fn hello(node: &Remote, session: Session) -> HelloReply {
    let (epoch, partition) = (Epoch::FIRST, PartitionId(0));
    match node.call(Request { epoch, session, skip_ack: false, partition, body: Body::Hello }).await {
        Ok(Answer::Hello(welcome)) => welcome,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_had_on_its_way_to_another_node_after_its_file_was_removed_goes_with_its_session_there() {
    let pool = Pool::start();
    let before = pool.held();
    let [one, other] = [0, 1].map(|at| remote(pool.servers[at].address()));
    let welcome = hello(&one, Session::NONE).await;
    hello(&other, welcome.session).await;
    let at = |node: u32| {
        let mut all = (0..64).map(PartitionId);
        all.find(|partition| welcome.map.node(*partition) == Some(NodeId(node))).unwrap()
    };
    let request_id = Some(RequestId { session: welcome.session, number: 1, settled: 1 });
    let reserve = Body::Meta {
        request_id,
        command: Command::Reserve {
            count: 1,
            stripes: 64,
            layout: Layout::striped(welcome.stripe_bytes),
            policy: None,
        },
    };
    let Ok(Answer::Reserved(files)) = one.call(request(&welcome, at(1), reserve)).await else { panic!("none") };
    let home = |stripe: &u64| stripe_partition(welcome.seed, files[0], StripeNo(*stripe), 64);
    let there: Vec<u64> = (0..64).filter(|stripe| welcome.map.node(home(stripe)) == Some(NodeId(2))).take(2).collect();
    let fill = |stripe: u64| {
        let action = StripeAction::Fill { data: Bytes::from_static(b"bytes") };
        other.call(request(&welcome, home(&stripe), Body::Stripe { file: files[0], stripe: StripeNo(stripe), action }))
    };
    assert_eq!(fill(there[0]).await, Ok(Answer::Done));
    assert_ne!(pool.held(), before);
    drop(one);
    until_polled("what the session held is given back", || pool.held() == before).await;
    for stripe in there {
        assert_eq!(fill(stripe).await, Ok(Answer::Done), "the session lives on here");
    }
    assert_ne!(pool.held(), before);
    drop(other);
    until_polled("late bytes of no file are removed", || pool.held() == before).await;
    pool.stop().await;
}
