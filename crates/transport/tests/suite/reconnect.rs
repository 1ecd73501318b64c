//! Work that goes on after a connection broke, and state that does not.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use super::common::*;
use bytes::Bytes;
use client::{Client, Connection, Nodes, RetryPolicy, testing::hand_over};
use node::{Node, NodeSettings, ReplyFuture};
use placement::{NodeId, PartitionId, PartitionMap};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::SeqCst},
};
use store::ModelEngine;
use test_support::until_polled;
use transport::{Remote, Server};
use vfs::{OnInvalidate, Vfs};
use wire::{Changes, Lock, LockKind, LockOwner, LockStyle, OpenFlags, Recall, Refusal, Request, Session};

const LOCK: Lock = Lock { owner: LockOwner::Session(1), kind: LockKind::Write, style: LockStyle::Whole, pid: 1 };

/// Invalidation callback, and the invalidations that it received.
fn recording_callback() -> (OnInvalidate, Arc<Mutex<Vec<Recall>>>) {
    let recalls_seen: Arc<Mutex<Vec<Recall>>> = Arc::default();
    let recording_callback = recalls_seen.clone();
    (Arc::new(move |recalls: &[Recall]| recording_callback.lock().unwrap().extend(recalls)), recalls_seen)
}

#[tokio::test]
async fn after_a_connection_broke_paths_and_new_opens_go_on_and_what_was_open_is_lost() {
    let node = node();
    let mut server = serve(&node, &any_port());
    let relay = Relay::to(&mut server);
    let (vfs, other) = (vfs(&relay.address).await, vfs(server.address()).await);
    let file = vfs.write_file(b"f", b"bytes").await.unwrap().file;
    let old = vfs.open(file, OpenFlags::READ_WRITE).await.unwrap();
    vfs.lock(old, LOCK, false).await.unwrap();
    for _ in 0..3 {
        relay.cut();
        assert_eq!(vfs.read_file(b"f").await.unwrap(), &b"bytes"[..]);
        let refused = vfs.read(old, 0, 9).await;
        assert_eq!(refused, Err(Refusal::SessionEnded));
        assert_eq!(vfs.write(old, 0, Bytes::from_static(b"late")).await, Err(Refusal::SessionEnded));
        assert_eq!(vfs.lock(old, LOCK, false).await, Err(Refusal::SessionEnded));
        let new = vfs.open(file, OpenFlags::READ_WRITE).await.unwrap();
        vfs.write(new, 0, Bytes::from_static(b"BYTES")).await.unwrap();
        vfs.write(new, 0, Bytes::from_static(b"bytes")).await.unwrap();
        vfs.lock(new, LOCK, false).await.unwrap();
        let theirs = other.open(file, OpenFlags::READ_WRITE).await.unwrap();
        assert!(matches!(other.lock(theirs, LOCK, false).await, Err(Refusal::Locked(_))));
        vfs.close(new).await.unwrap();
        other.lock(theirs, LOCK, false).await.unwrap();
        other.close(theirs).await.unwrap();
    }
    vfs.close(old).await.unwrap();
    vfs.unlink(Vfs::root(), b"f").await.unwrap();
    until_polled("the file is gone", || node.usage().files == 1).await;
    server.stop().await;
}

#[tokio::test]
async fn a_node_that_is_served_again_at_its_address_is_found_again() {
    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    let address = transport::Address::Unix(directory.path().join("pool"));
    let server = serve(&node, &address);
    let vfs = vfs(&address).await;
    let file = vfs.write_file(b"f", b"bytes").await.unwrap().file;
    let old = vfs.open(file, OpenFlags::READ).await.unwrap();
    server.stop().await;
    let server = serve(&node, &address);
    assert_eq!(vfs.read_file(b"f").await.unwrap(), &b"bytes"[..]);
    assert_eq!(vfs.read(old, 0, 9).await, Err(Refusal::SessionEnded));
    server.stop().await;
}

#[tokio::test]
async fn a_face_forgets_all_when_its_connection_broke_and_is_told_again_in_the_next_session() {
    if WITH_REACTOR {
        return; // there are no subscribers
    }
    let node = node();
    let mut server = serve(&node, &any_port());
    let relay = Relay::to(&mut server);
    let (vfs, other) = (vfs(&relay.address).await, vfs(server.address()).await);
    let (on_invalidate, recalls_seen) = recording_callback();
    vfs.subscribe(on_invalidate).await.unwrap();
    let file = vfs.write_file(b"f", b"bytes").await.unwrap().file;
    assert!(vfs.stat(file).await.unwrap().cacheable);
    relay.cut();
    until_polled("the break is noticed", || recalls_seen.lock().unwrap().contains(&Recall::All)).await; // without any request
    assert!(vfs.stat(file).await.unwrap().cacheable);
    recalls_seen.lock().unwrap().clear();
    other.change(file, Changes { mode: Some(0o640), ..Changes::default() }).await.unwrap();
    assert!(recalls_seen.lock().unwrap().contains(&Recall::Attributes(file)));
    server.stop().await;
}

/// Connection that is cut with one of its calls: before the call is sent, or after.
#[derive(Debug)]
struct Cutting {
    remote: Remote,
    relay: Arc<Relay>,
    /// Number of calls until the cut.
    left: Arc<AtomicU64>,
    before: bool,
}

impl Connection for Cutting {
    fn call(&self, request: Request) -> ReplyFuture {
        let cuts = self.left.fetch_sub(1, SeqCst) == 1;
        if cuts && self.before {
            self.relay.cut();
        }
        let reply = self.remote.call(request);
        if cuts && !self.before {
            self.relay.cut();
        }
        reply
    }

    fn subscribe(&self, session: Session, on_invalidate: &OnInvalidate) -> ReplyFuture {
        self.remote.subscribe(session, on_invalidate)
    }

    fn unsubscribe(&self, session: Session) {
        self.remote.unsubscribe(session);
    }
}

/// Makes one of a few kinds of changes; returns whether it was an append.
async fn change(vfs: &Vfs, number: usize) -> Result<bool, Refusal> {
    let done = match number % 4 {
        0 => {
            let flags = OpenFlags { append: true, ..OpenFlags::WRITE };
            let (_, handle) = vfs.create(Vfs::root(), b"log", 0o600, OWNER, flags).await?;
            let written = vfs.write(handle, 0, Bytes::from_static(b"once;")).await.map(drop);
            vfs.close(handle).await?;
            written
        }
        1 => vfs.make_directories(format!("d{number}").as_bytes()).await.map(drop),
        2 => vfs.unlink(Vfs::root(), format!("f{number}").as_bytes()).await,
        _ => vfs.write_file(format!("g{number}").as_bytes(), &[7; 100]).await.map(drop),
    };
    done.map(|()| number.is_multiple_of(4))
}

#[tokio::test]
async fn a_connection_that_is_cut_at_any_message_loses_no_change_that_was_answered_and_does_none_twice() {
    for at in 1..40 {
        let node = node();
        let mut server = serve(&node, &any_port());
        let relay = Arc::new(Relay::to(&mut server));
        let (left, before) = (Arc::new(AtomicU64::new(u64::MAX)), at % 2 == 0);
        let remote = remote(&relay.address);
        let cutting = Cutting { remote, relay: relay.clone(), left: left.clone(), before };
        let vfs = Vfs::new(Client::connect(Arc::new(cutting), RetryPolicy::default()).await.unwrap());
        let truth = Vfs::new(Client::embedded(node.clone()));
        for number in (2..24).step_by(4) {
            truth.write_file(format!("f{number}").as_bytes(), b"bytes").await.unwrap();
        }
        left.store(at, SeqCst);
        let (mut sure, mut unsure) = (0, 0);
        for number in 0..24 {
            match change(&vfs, number).await {
                Ok(appended) => sure += usize::from(appended),
                Err(Refusal::SessionEnded | Refusal::OutcomeUnknown(_)) => unsure += 1,
                Err(refusal) => panic!("cut at call {at}, change {number}: {refusal:?}"),
            }
        }
        assert!(unsure <= 1, "cut at call {at}: {unsure} changes were not answered, though only one was cut");
        let log = truth.read_file(b"log").await.unwrap();
        let appended = log.len() / 5;
        assert!(log.chunks(5).all(|entry| entry == b"once;"), "cut at call {at}");
        assert!((sure..=sure + unsure).contains(&appended), "cut at call {at}: {appended} appends, {sure} answered");
        server.stop().await;
    }
}

/// Pool of several nodes, each served, with a relay to each that can be cut.
struct Served {
    nodes: Vec<Arc<Node>>,
    servers: Vec<Server>,
    relays: Vec<Relay>,
}

impl Served {
    fn of(count: u32) -> Self {
        let settings = NodeSettings { partitions: 16, stripe_bytes: STRIPE, owner: OWNER, ..NodeSettings::default() };
        let ids: Vec<NodeId> = (1..=count).map(NodeId).collect();
        let shares: Vec<(NodeId, u64)> = ids.iter().map(|id| (*id, 1)).collect();
        let map = PartitionMap::proportional(&shares, 16).unwrap();
        let engine = || Arc::new(ModelEngine::new(64 << 20, STRIPE));
        let start = |id: &NodeId| Node::in_pool(*id, map.clone(), settings.clone(), engine());
        let nodes: Vec<Arc<Node>> = ids.iter().map(start).collect();
        let mut servers: Vec<Server> = nodes.iter().map(|node| serve(node, &any_port())).collect();
        let relays = servers.iter_mut().map(Relay::to).collect();
        Self { nodes, servers, relays }
    }

    async fn client(&self) -> Vfs {
        let connect = |(node, relay): (&Arc<Node>, &Relay)| {
            let remote = remote(&relay.address);
            (node.id(), Arc::new(remote) as Arc<dyn Connection>)
        };
        let nodes: Nodes = self.nodes.iter().zip(&self.relays).map(connect).collect();
        Vfs::new(Client::connect_all(nodes, RetryPolicy::default()).await.unwrap())
    }

    async fn stop(self) {
        for server in self.servers {
            server.stop().await;
        }
    }
}

#[tokio::test]
async fn a_connection_that_broke_ends_what_was_open_at_its_node_and_nothing_elsewhere() {
    for broken in 0..4 {
        let pool = Served::of(4);
        let (vfs, other) = (pool.client().await, pool.client().await);
        let (on_invalidate, recalls_seen) = recording_callback();
        if !WITH_REACTOR {
            vfs.subscribe(on_invalidate).await.unwrap();
        }
        let mut files = Vec::new();
        for number in 0..16 {
            let path = format!("d{number}/f");
            vfs.make_directories(format!("d{number}").as_bytes()).await.unwrap();
            let file = vfs.write_file(path.as_bytes(), &filled(8)).await.unwrap().file;
            let handle = vfs.open(file, OpenFlags::READ_WRITE).await.unwrap();
            vfs.lock(handle, LOCK, false).await.unwrap();
            let ends = usize::from(file.partition().0) % 4 == broken;
            files.push((path, file, handle, ends));
        }
        assert!(files.iter().any(|(.., ends)| *ends) && files.iter().any(|(.., ends)| !*ends));
        pool.relays[broken].cut();
        for (path, file, ..) in &files {
            assert_eq!(vfs.read_file(path.as_bytes()).await.unwrap(), filled(8));
            assert_eq!(vfs.stat(*file).await.unwrap().cacheable, !WITH_REACTOR, "it is subscribed everywhere");
        }
        until_polled("the break is noticed", || WITH_REACTOR || recalls_seen.lock().unwrap().contains(&Recall::All))
            .await;
        for (_, file, handle, ends) in &files {
            let bytes = vfs.read(*handle, 0, 8 * STRIPE).await;
            let theirs = other.open(*file, OpenFlags::READ_WRITE).await.unwrap();
            let locked = other.lock(theirs, LOCK, false).await;
            if *ends {
                assert_eq!((bytes, locked), (Err(Refusal::SessionEnded), Ok(())));
            } else {
                assert_eq!(bytes.unwrap(), filled(8), "its stripes at the broken node too");
                assert!(matches!(locked, Err(Refusal::Locked(_))), "the lock is held: {locked:?}");
                vfs.write(*handle, 0, filled(4)).await.unwrap();
            }
            other.close(theirs).await.unwrap();
        }
        vfs.end_session().await.unwrap();
        for (_, file, ..) in &files {
            let theirs = other.open(*file, OpenFlags::READ_WRITE).await.unwrap();
            other.lock(theirs, LOCK, false).await.unwrap();
        }
        pool.stop().await;
    }
}

#[tokio::test]
async fn what_a_kernel_caches_at_nodes_whose_connections_hold_is_invalidated_after_another_broke() {
    if WITH_REACTOR {
        return; // there are no subscribers
    }
    let pool = Served::of(2);
    let (vfs, other) = (pool.client().await, pool.client().await);
    let (on_invalidate, recalls_seen) = recording_callback();
    vfs.subscribe(on_invalidate).await.unwrap();
    let mut files = Vec::new();
    for number in 0..8 {
        vfs.make_directories(format!("d{number}").as_bytes()).await.unwrap();
        files.push(vfs.write_file(format!("d{number}/f").as_bytes(), b"bytes").await.unwrap().file);
    }
    for round in 0..4 {
        pool.relays[round % 2].cut();
        until_polled("the break is noticed", || recalls_seen.lock().unwrap().contains(&Recall::All)).await;
        for file in &files {
            assert!(vfs.stat(*file).await.unwrap().cacheable);
            // Its own change is no news to it, in whichever of its sessions it is made.
            let own = Changes { mode: Some(0o600), ..Changes::default() };
            recalls_seen.lock().unwrap().clear();
            vfs.change(*file, own).await.unwrap();
            assert_eq!(*recalls_seen.lock().unwrap(), []);
            vfs.stat(*file).await.unwrap();
            other.change(*file, Changes { mode: Some(0o640), ..Changes::default() }).await.unwrap();
            assert!(recalls_seen.lock().unwrap().contains(&Recall::Attributes(*file)));
        }
    }
    vfs.end_session().await.unwrap();
    pool.stop().await;
}

#[tokio::test]
async fn a_node_that_has_handed_over_its_partitions_takes_leave_and_ends_nothing() {
    let mut pool = Served::of(2);
    let (vfs, other) = (pool.client().await, pool.client().await);
    let mut files = Vec::new();
    for number in 0..16 {
        vfs.make_directories(format!("d{number}").as_bytes()).await.unwrap();
        let file = vfs.write_file(format!("d{number}/f").as_bytes(), b"bytes").await.unwrap().file;
        let handle = vfs.open(file, OpenFlags::READ_WRITE).await.unwrap();
        vfs.lock(handle, LOCK, false).await.unwrap();
        files.push((file, handle));
    }
    assert!(files.iter().any(|(file, _)| file.partition().0 % 2 == 1), "some are at the node that leaves");
    let (stays, leaves) = (&pool.nodes[0], &pool.nodes[1]);
    for partition in (1..16).step_by(2).map(PartitionId) {
        hand_over(leaves, stays, partition).await.unwrap();
    }
    pool.servers.remove(1).stop().await;
    for (file, handle) in files {
        assert_eq!(vfs.read(handle, 0, 9).await.unwrap(), &b"bytes"[..]);
        let theirs = other.open(file, OpenFlags::READ_WRITE).await.unwrap();
        assert!(matches!(other.lock(theirs, LOCK, false).await, Err(Refusal::Locked(_))));
        vfs.close(handle).await.unwrap();
        other.lock(theirs, LOCK, false).await.unwrap();
    }
    pool.stop().await;
}

/// Bytes of this many stripes.
fn filled(stripes: usize) -> Bytes {
    Bytes::from(vec![7; stripes * STRIPE as usize])
}
