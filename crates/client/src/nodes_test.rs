//! Pools of several nodes: one file system, parts of which may be unavailable.

use crate::{
    Client, Connection, Connector, InProcessConnection, Nodes, Objects, RetryPolicy,
    objects::Condition,
    pool_test::*,
    testing::{CountingConnection, CrashingConnection, SteppedConnection, hand_over},
};
use bytes::Bytes;
use node::{Node, NodeSettings, ReplyFuture};
use placement::{Epoch, FileId, NodeId, PartitionEntry, PartitionId, PartitionMap};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};
use store::ModelEngine;
use wire::{
    Answer, Body, Failure, LeaseStatus, OpenFlags, OpenLeaseId, Outcome, PLACEMENT, Recall, Refusal, Request, Session,
    XattrMode,
};

/// Enough directories that each node has some.
const DIRECTORIES: usize = 40;

async fn directories(fs: &TestFs) -> Vec<FileId> {
    let mut made = Vec::new();
    for number in 0..DIRECTORIES {
        made.push(fs.make_directory(FileId::ROOT, format!("d{number}").as_bytes(), 0o755, OWNER).await.unwrap().file);
    }
    made
}

/// The node that holds the file's partition in a pool of this many nodes.
fn home(file: FileId, nodes: u32) -> u32 {
    u32::from(file.partition().0) % nodes + 1
}

async fn write(fs: &TestFs, directory: FileId, name: &[u8], length: usize) -> Outcome<OpenFile> {
    let flags = OpenFlags { use_extent: true, ..OpenFlags::READ_WRITE };
    let (_, handle) = fs.create(directory, name, 0o600, OWNER, flags).await?;
    fs.write(handle, 0, Bytes::from(vec![7; length])).await?;
    Ok(handle)
}

/// A client that gets through to one of its nodes only for the remaining number of calls.
async fn with_one_at(pool: &Pool, id: u32, left: &Arc<AtomicU64>, calls: &Arc<AtomicU64>) -> TestFs {
    let never = Arc::new(AtomicU64::new(u64::MAX));
    let way = |node: InProcessConnection| {
        let left = if node.0.id() == NodeId(id) { left } else { &never };
        CountingConnection::new(CrashingConnection::sharing(node, left.clone()), calls.clone())
    };
    pool.over(way, IMPATIENT).await
}

/// Retries until the client has noticed that a node is back; its next probe of the node is due
/// after a pause.
async fn until_it_answers<T, F: Future<Output = Outcome<T>>>(mut what: impl FnMut() -> F) -> T {
    loop {
        match what().await {
            Err(Refusal::Unavailable { .. }) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            outcome => return outcome.unwrap(),
        }
    }
}

#[tokio::test]
async fn what_a_silent_node_holds_is_unavailable_after_one_round_of_tries_then_at_once_and_all_else_goes_on() {
    let (pool, calls, left) = (Pool::of(4), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let fs = with_one_at(&pool, 3, &left, &calls).await;
    let made = directories(&fs).await;
    assert!((1..=4).all(|node| made.iter().any(|directory| home(*directory, 4) == node)));
    left.store(0, Relaxed);
    let (mut refused, mut sent) = (0, 0);
    for directory in &made {
        let before = calls.load(Relaxed);
        let listed = fs.list(*directory, 0, 10).await;
        if home(*directory, 4) == 3 {
            assert!(matches!(listed, Err(Refusal::Unavailable { tries: 3, .. })), "{listed:?}");
            (refused, sent) = (refused + 1, sent + calls.load(Relaxed) - before);
        } else {
            let handle = write(&fs, *directory, b"f", 10).await.unwrap();
            assert_eq!(fs.read(handle, 0, 100).await.unwrap().len(), 10);
            fs.close_file(handle).await.unwrap();
        }
    }
    assert!(refused > 1 && (3..2 * refused).contains(&sent), "{sent} were sent for {refused} calls");
    let before = calls.load(Relaxed);
    assert!(matches!(fs.close().await, Err(Refusal::Unavailable { .. })), "not everywhere");
    let sent = calls.load(Relaxed) - before;
    assert!((3..=7).contains(&sent), "{sent}: the others, also whether it has left, and at most a probe of it");
    left.store(u64::MAX, Relaxed);
    until_it_answers(|| fs.close()).await;
    for directory in made {
        fs.list(directory, 0, 10).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_comes_while_a_node_is_silent_finds_the_rest_and_that_node_later() {
    let (pool, calls, left) = (Pool::of(4), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let made = directories(&pool.client().await).await;
    // The first node is the one that would have given the session.
    let fs = with_one_at(&pool, 1, &left, &calls).await;
    for directory in &made {
        assert_eq!(fs.list(*directory, 0, 10).await.is_ok(), home(*directory, 4) != 1);
    }
    assert!(matches!(fs.lookup(FileId::ROOT, b"d0").await, Err(Refusal::Unavailable { .. })));
    left.store(u64::MAX, Relaxed);
    assert_eq!(until_it_answers(|| fs.lookup(FileId::ROOT, b"d0")).await.file, made[0]);
    let dead =
        |node: &Arc<Node>| (node.id(), Arc::new(CrashingConnection::new(direct(node), 0)) as Arc<dyn Connection>);
    let nobody = Client::connect_all(pool.nodes().iter().map(dead).collect(), IMPATIENT).await;
    assert!(matches!(nobody, Err(Refusal::Unavailable { tries: 3, .. })), "{nobody:?}");
}

fn way(id: u32, node: &Arc<Node>) -> (NodeId, Arc<dyn Connection>) {
    (NodeId(id), Arc::new(direct(node)))
}

async fn refused(nodes: impl IntoIterator<Item = (NodeId, Arc<dyn Connection>)>) -> String {
    match Client::connect_all(nodes.into_iter().collect::<Nodes>(), IMPATIENT).await {
        Err(refusal @ Refusal::Invalid { .. }) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn connections_that_are_not_to_the_nodes_of_one_pool_are_refused_by_what_is_wrong() {
    let pool = Pool::of(2);
    let [one, two] = pool.nodes() else { panic!("two were asked for") };
    let missing = refused([way(1, one)]).await;
    assert!(missing.contains("no connection to its node 2"), "{missing}");
    let alone = Client::connect(Arc::new(direct(two)), IMPATIENT).await.unwrap_err().to_string();
    assert!(alone.contains("no connection to its node 1"), "{alone}");
    let crossed = refused([way(1, two), way(2, one)]).await;
    assert!(crossed.contains("the connection to node 1 leads to node 2"), "{crossed}");
    let strange = NodeSettings { seed: 9, ..settings() };
    let strange = Pool::start(2, &strange, || Arc::new(ModelEngine::new(1 << 20, STRIPE)));
    let strange = refused([way(1, one), way(2, &strange.nodes()[1])]).await;
    assert!(strange.contains("node 2 is not of the pool of the other nodes"), "{strange}");
    assert!(refused([]).await.contains("connect to them"));
}

#[tokio::test]
async fn one_session_holds_files_at_all_nodes_and_its_end_lets_go_of_them_everywhere() {
    for nodes in NODES {
        let pool = Pool::of(nodes);
        let healthy = pool.client().await;
        let made = directories(&healthy).await;
        let before = healthy.usage();
        for dies in [false, true] {
            let fs = pool.client().await;
            for directory in &made {
                write(&fs, *directory, b"f", 100_000).await.unwrap();
                fs.unlink(*directory, b"f").await.unwrap();
            }
            assert_eq!(healthy.usage().files - before.files, DIRECTORIES as u64, "they are open");
            if dies {
                healthy.recover(fs.session()).await.unwrap();
            } else {
                fs.end().await.unwrap();
            }
            let after = healthy.usage();
            assert_eq!((after.used, after.files, after.stripes), (before.used, before.files, before.stripes));
        }
    }
}

#[tokio::test]
async fn what_a_session_held_is_cleared_away_however_many_files_that_were() {
    for dies in [false, true] {
        let pool = Pool::of(1);
        let (healthy, fs) = (pool.client().await, pool.client().await);
        let before = healthy.usage();
        for _ in 0..wire::PENDING_DELETES_MAX + 100 {
            write(&fs, FileId::ROOT, b"f", 4097).await.unwrap();
            fs.unlink(FileId::ROOT, b"f").await.unwrap();
        }
        if dies {
            healthy.recover(fs.session()).await.unwrap();
        } else {
            fs.end().await.unwrap();
        }
        let after = healthy.usage();
        assert_eq!((after.used, after.files, after.stripes), (before.used, before.files, before.stripes));
    }
}

#[tokio::test]
async fn a_pool_holds_what_all_its_nodes_hold() {
    let pool = Pool::of(4);
    let fs = pool.client().await;
    fs.write_file(b"large", &filled(3, 64 * STRIPE)).await.unwrap();
    let (all, each) = (fs.usage(), pool.nodes().iter().map(|node| node.usage()).collect::<Vec<_>>());
    assert_eq!((all.capacity, all.files, all.stripes), (4 * (256 << 20), 2, 64));
    assert_eq!(all.used, each.iter().map(|node| node.used).sum::<u64>());
    assert!(each.iter().all(|node| node.stripes > 0), "its stripes are everywhere: {each:?}");
    assert_eq!(each.iter().map(|node| node.files).collect::<Vec<_>>(), [2, 0, 0, 0], "the root is in the first");
}

#[tokio::test]
async fn a_silent_node_is_told_apart_and_counts_as_it_did_when_it_answered_last() {
    let (pool, calls, left) = (Pool::of(4), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let fs = with_one_at(&pool, 3, &left, &calls).await;
    let all = fs.query_usage().await.unwrap();
    left.store(0, Relaxed);
    for (id, usage) in fs.usages().await {
        assert!(usage.is_ok() != (id == NodeId(3)), "{id}: {usage:?}");
    }
    assert_eq!(fs.query_usage().await, Ok(all));
    assert_eq!(fs.usage(), all);
    let newcomer = with_one_at(&pool, 3, &left, &calls).await;
    assert_eq!(newcomer.query_usage().await.unwrap().capacity, all.capacity / 4 * 3, "it was never heard of");
}

#[tokio::test]
async fn whole_files_are_the_business_of_their_nodes_process_and_look_alike_to_all() {
    let pool = Pool::of_arenas(4, 64 << 20);
    if !pool.nodes()[0].supports_extent_files() {
        return;
    }
    let (here, there) = (pool.client().await, pool.over(SteppedConnection::new, IMPATIENT).await);
    let (mut slots, made) = (Vec::new(), directories(&here).await);
    for directory in made {
        let policy = format!("at({})", home(directory, 4));
        here.set_xattr(directory, PLACEMENT, policy.into(), XattrMode::Set, false).await.unwrap();
        let handle = write(&here, directory, b"here", 10_000).await.unwrap();
        slots.push(here.backing(handle).expect("it is whole, and its node is here").id());
        let file = there.lookup(directory, b"here").await.unwrap();
        assert!(file.extent.is_some_and(|extent| extent.node == NodeId(home(directory, 4))));
        let other = there.open(file.file, OpenFlags::READ_WRITE).await.unwrap();
        assert!(there.backing(other).is_none());
        there.write(other, 5_000, Bytes::from(vec![9; 10_000])).await.unwrap();
        let bytes = here.read(handle, 0, 20_000).await.unwrap();
        assert!(bytes[..5_000].iter().all(|byte| *byte == 7) && bytes[5_000..].iter().all(|byte| *byte == 9));
        assert_eq!(bytes.len(), 15_000);
        write(&there, directory, b"there", 10_000).await.unwrap();
        assert_eq!(here.lookup(directory, b"there").await.unwrap().extent, None, "who cannot use one gets none");
    }
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), DIRECTORIES, "two nodes may give the same slot, but not the same number for it");
}

/// Writes 1 MiB at a time until the pool is full; returns the number of bytes written.
async fn written_until_full(fs: &TestFs, handle: OpenFile) -> u64 {
    let mut written = 0;
    loop {
        match fs.write(handle, written, Bytes::from(vec![7; 1 << 20])).await {
            Ok(put) => written += u64::from(put),
            Err(Refusal::NoSpace(_)) => return written,
            Err(refusal) => panic!("{refusal}"),
        }
    }
}

#[tokio::test]
async fn a_file_of_which_nothing_is_said_takes_what_all_nodes_have_free_less_five_percent() {
    for nodes in [2, 3, 8] {
        let pool = Pool::of_arenas(nodes, 16 << 20);
        let fs = pool.client().await;
        let objects = Objects::new(fs.0.clone());
        let free = fs.usage().capacity - fs.usage().used;
        for number in 0..4 {
            // Flags of a mount, and of a program with its own descriptor.
            let flags = OpenFlags { use_extent: true, ..OpenFlags::READ_WRITE };
            let name = format!("f{number}");
            let (made, handle) = fs.create(FileId::ROOT, name.as_bytes(), 0o600, OWNER, flags).await.unwrap();
            assert!(made.extent.is_none() && fs.backing(handle).is_none(), "nobody writes past us into one node");
            let written = written_until_full(&fs, handle).await;
            assert!(written >= free * 95 / 100, "{written} of {free} bytes at {nodes} nodes");
            fs.close_file(handle).await.unwrap();
            fs.unlink(FileId::ROOT, name.as_bytes()).await.unwrap();
            let most = Bytes::from(vec![8; usize::try_from(free * 95 / 100).unwrap()]);
            objects.put(b"object", most, Condition::Always).await.unwrap();
            fs.unlink(FileId::ROOT, b"object").await.unwrap();
        }
        objects.close().await.unwrap();
    }
}

#[tokio::test]
async fn who_asks_for_one_node_gets_an_extent_there_and_may_stop_at_its_end() {
    let pool = Pool::of_arenas(4, 16 << 20);
    if !pool.nodes()[0].supports_extent_files() {
        return;
    }
    let fs = pool.client().await;
    fs.set_xattr(FileId::ROOT, PLACEMENT, "here".into(), XattrMode::Set, false).await.unwrap();
    let flags = OpenFlags { use_extent: true, ..OpenFlags::READ_WRITE };
    let (made, handle) = fs.create(FileId::ROOT, b"f", 0o600, OWNER, flags).await.unwrap();
    assert!(made.extent.is_some() && fs.backing(handle).is_some());
    let written = written_until_full(&fs, handle).await;
    assert!((14 << 20..=16 << 20).contains(&written), "{written} bytes of one node of 16 MiB");
}

#[tokio::test]
async fn who_cannot_watch_at_one_node_watches_at_none() {
    let pool = Pool::of(4);
    let (fs, crowded) = (pool.client().await, &pool.nodes()[2]);
    let on_invalidate = || Arc::new(|_: &[Recall]| ()) as crate::OnInvalidate;
    for session in 1..=128 {
        crowded.subscribe(Session(session), &on_invalidate()).unwrap();
    }
    assert!(matches!(fs.subscribe(&on_invalidate()).await, Err(Refusal::TooManyOpen { limit: 128, .. })));
    crowded.unsubscribe(Session(1));
    fs.subscribe(&on_invalidate()).await.unwrap();
    assert!(fs.subscribe(&on_invalidate()).await.is_err(), "once is enough");
}

#[tokio::test]
async fn a_client_that_leaves_costs_one_message_for_each_node_and_what_it_left_open() {
    for nodes in NODES {
        let (pool, calls) = (Pool::of(nodes), Arc::new(AtomicU64::new(0)));
        let fs = pool.over(|node| CountingConnection::new(node, calls.clone()), IMPATIENT).await;
        let healthy = pool.client().await;
        for number in 0..20 {
            let name = format!("f{number}");
            fs.create(FileId::ROOT, name.as_bytes(), 0o644, OWNER, OpenFlags::READ_WRITE).await.unwrap();
        }
        calls.store(0, Relaxed);
        fs.close().await.unwrap();
        assert_eq!(calls.load(Relaxed), u64::from(nodes), "{nodes} nodes");
        let file = healthy.lookup(FileId::ROOT, b"f7").await.unwrap().file;
        assert!(!(*healthy).open(file, OpenFlags::READ).await.unwrap().shared, "nobody else has it open");
    }
}

#[tokio::test]
async fn a_node_hears_of_a_client_with_the_first_request_to_it_and_of_its_end_if_it_had_one() {
    let (pool, nodes) = (Pool::of(8), 8);
    let made = directories(&pool.client().await).await;
    let counts: Vec<Arc<AtomicU64>> = (0..nodes).map(|_| Arc::default()).collect();
    let far = |node: InProcessConnection| {
        let count = counts[node.0.id().0 as usize - 1].clone();
        CountingConnection::new(SteppedConnection::new(node), count)
    };
    let calls = || counts.iter().map(|count| count.swap(0, Relaxed)).collect::<Vec<_>>();
    let fs = pool.over(far, IMPATIENT).await;
    assert_eq!(calls(), [1, 0, 0, 0, 0, 0, 0, 0]);
    let at_five = made.into_iter().find(|directory| home(*directory, nodes) == 5).unwrap();
    fs.list(at_five, 0, 10).await.unwrap();
    assert_eq!(calls(), [0, 0, 0, 0, 2, 0, 0, 0], "a hello, and the request");
    fs.list(at_five, 0, 10).await.unwrap();
    assert_eq!(calls(), [0, 0, 0, 0, 1, 0, 0, 0]);
    fs.subscribe(&(Arc::new(|_: &[Recall]| ()) as crate::OnInvalidate)).await.unwrap();
    let subscribed = pool.nodes().iter().map(|node| node.is_subscribed(fs.session())).collect::<Vec<_>>();
    assert_eq!(subscribed, [true, false, false, false, true, false, false, false]);
    calls();
    fs.close().await.unwrap();
    assert_eq!(calls(), [1, 0, 0, 0, 1, 0, 0, 0]);
}

/// Connects to nodes of this process, except to one, by addresses that name their ids.
#[derive(Debug)]
struct InProcess(Vec<Arc<Node>>, NodeId);

impl Connector for InProcess {
    fn connect(&self, node: NodeId, address: &str) -> Result<Arc<dyn Connection>, String> {
        assert_eq!(address, node.to_string());
        if node == self.1 {
            return Err("it is not for us".into());
        }
        Ok(Arc::new(direct(&self.0[node.0 as usize - 1])))
    }
}

/// A pool whose map has the addresses of its nodes.
fn with_addresses(nodes: u32) -> Vec<Arc<Node>> {
    let ids: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
    let shares: Vec<(NodeId, u64)> = ids.iter().map(|id| (*id, 1)).collect();
    let map = PartitionMap::proportional(&shares, settings().partitions).unwrap();
    let map = map.with_addresses(ids.iter().map(|id| (*id, Arc::from(id.to_string()))));
    let engine = || Arc::new(ModelEngine::new(256 << 20, STRIPE));
    ids.iter().map(|id| Node::in_pool(*id, map.clone(), settings(), engine())).collect()
}

#[tokio::test]
async fn a_client_that_knows_one_node_finds_the_others_in_the_map() {
    let nodes = with_addresses(4);
    let connect = |except| {
        let connector = Arc::new(InProcess(nodes.clone(), NodeId(except)));
        Client::connect_all(Nodes::with_connector(connector, [way(3, &nodes[2])]), IMPATIENT)
    };
    let fs = TestFs(connect(0).await.unwrap());
    fs.write_file(b"large", &filled(3, 64 * STRIPE)).await.unwrap();
    assert!(nodes.iter().all(|node| node.usage().stripes > 0));
    let refused = connect(2).await.unwrap_err().to_string();
    assert!(refused.contains("no connection to its node 2"), "{refused}");
}

/// A connection to a node that answers probes of any lease: the open of this file in this session
/// has ended, and the file's node has to be told.
#[derive(Debug)]
struct EndedOpen(InProcessConnection, Arc<OnceLock<(FileId, Session)>>);

impl Connection for EndedOpen {
    fn call(&self, request: Request) -> ReplyFuture {
        match (&request.body, self.1.get()) {
            (Body::ProbeLease { .. }, Some((file, session))) => {
                let (file, session) = (*file, *session);
                ReplyFuture::ready(Ok(Answer::LeaseStatus(LeaseStatus::EndedRemote { file, session, locked: true })))
            }
            _ => self.0.call(request),
        }
    }
}

#[tokio::test]
async fn an_open_that_was_made_before_a_connection_broke_ends_with_its_descriptor() {
    let (pool, ended) = (Pool::of(2), Arc::new(OnceLock::new()));
    let [one, two] = pool.nodes() else { panic!("two were asked for") };
    let first: Arc<dyn Connection> = Arc::new(EndedOpen(direct(one), ended.clone()));
    let links = [(NodeId(1), first), way(2, two)].into_iter().collect();
    let (fs, healthy) = (TestFs(Client::connect_all(links, IMPATIENT).await.unwrap()), pool.client().await);
    let at_two = directories(&fs).await.into_iter().find(|directory| home(*directory, 2) == 2).unwrap();
    let file = fs.create(at_two, b"f", 0o600, OWNER, OpenFlags::READ).await.unwrap().0.file;
    let before = fs.session_state();
    ended.set((file, before.id)).unwrap();
    fs.begin_next_session(&before).await.unwrap();
    assert_ne!(fs.session(), before.id);
    let is_shared = || async {
        let shared = (*healthy).open(file, OpenFlags::READ).await.unwrap().shared;
        (*healthy).close_file(file).await.unwrap();
        shared
    };
    assert!(is_shared().await);
    assert!(!fs.probe_lease(OpenLeaseId::new(NodeId(1), 1).unwrap()).await.unwrap());
    assert!(!is_shared().await);
}

/// A connection whose first hello is answered with the map of a time when the pool had one node.
#[derive(Debug)]
struct Outdated(InProcessConnection, AtomicU64);

impl Connection for Outdated {
    fn call(&self, request: Request) -> ReplyFuture {
        let is_first = matches!(request.body, Body::Hello) && self.1.fetch_add(1, Relaxed) == 0;
        let reply = self.0.call(request);
        ReplyFuture::deferred(async move {
            let mut answer = reply.await;
            if let (true, Ok(Answer::Hello(hello))) = (is_first, &mut answer) {
                let mut entries = vec![PartitionEntry::first(NodeId(1)); hello.map.partitions() as usize];
                for entry in &mut entries {
                    entry.epoch = Epoch(0);
                }
                hello.map = Arc::new(PartitionMap::new(entries).unwrap());
            }
            answer
        })
    }
}

#[tokio::test]
async fn a_partition_at_a_node_that_came_later_is_found_by_the_node_that_had_it() {
    let nodes = with_addresses(4);
    let outdated = Arc::new(Outdated(direct(&nodes[0]), AtomicU64::new(0))) as Arc<dyn Connection>;
    let connector = Arc::new(InProcess(nodes.clone(), NodeId(0)));
    let first = Nodes::with_connector(connector, [(NodeId(1), outdated)]);
    let fs = TestFs(Client::connect_all(first, IMPATIENT).await.unwrap());
    assert_eq!(fs.data_nodes(), [NodeId(1)]);
    fs.write_file(b"large", &filled(3, 64 * STRIPE)).await.unwrap();
    assert!(nodes.iter().all(|node| node.usage().stripes > 0));
    assert_eq!(fs.data_nodes(), [1, 2, 3, 4].map(NodeId));
}

/// Moves all that some nodes have to another, which knows then that they have left.
async fn leave(leaving: &[Arc<Node>], to: &Arc<Node>) {
    let mut map = (*to.known_map()).clone();
    for node in leaving {
        for partition in (0..u16::try_from(map.partitions()).unwrap()).map(PartitionId) {
            if node.served_epoch(partition).is_some() {
                hand_over(node, to, partition).await.unwrap();
            }
        }
        map.depart(node.id());
    }
    to.learn_map(&map);
}

#[tokio::test]
async fn a_client_whose_nodes_have_left_asks_one_that_it_has_never_spoken_with() {
    let pool = Pool::of(3);
    let (left, never) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicU64::new(u64::MAX)));
    let way = |node: InProcessConnection| {
        let calls = if node.0.id() == NodeId(3) { &never } else { &left };
        CrashingConnection::sharing(node, calls.clone())
    };
    let fs = pool.over(way, IMPATIENT).await;
    let [one, other, last] = pool.nodes() else { panic!("three nodes") };
    leave(&[one.clone(), other.clone()], last).await;
    left.store(0, Relaxed);
    fs.make_directory(FileId::ROOT, b"d", 0o755, OWNER).await.unwrap();
    assert_eq!(fs.data_nodes(), [NodeId(3)]);
}

/// The node that is asked first may not know yet that another one has left.
#[tokio::test]
async fn a_client_asks_others_until_one_says_that_a_node_has_left() {
    let pool = Pool::of(3);
    let made = directories(&pool.client().await).await;
    let (left, never) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicU64::new(u64::MAX)));
    let way = |node: InProcessConnection| {
        let calls = if node.0.id() == NodeId(2) { &left } else { &never };
        CrashingConnection::sharing(node, calls.clone())
    };
    let fs = pool.over(way, IMPATIENT).await;
    let [_, leaving, stays] = pool.nodes() else { panic!("three nodes") };
    leave(std::slice::from_ref(leaving), stays).await;
    left.store(0, Relaxed);
    let there = made.into_iter().find(|directory| home(*directory, 3) == 2).unwrap();
    assert_eq!(fs.stat(there).await.unwrap().file, there);
}

/// A connection that loses one call, when it is told to.
#[derive(Debug)]
struct LosesOneCall<C> {
    inner: C,
    loses: Arc<AtomicBool>,
}

impl<C: Connection> Connection for LosesOneCall<C> {
    fn call(&self, request: Request) -> ReplyFuture {
        if self.loses.swap(false, Relaxed) {
            return ReplyFuture::ready(Err(Failure::Unreachable("a call is lost".into())));
        }
        self.inner.call(request)
    }
}

/// The others are asked more than once where a node is that does not answer a first hello: the
/// answer may be lost, or they may not know yet.
#[tokio::test]
async fn a_client_asks_again_whether_a_node_has_left_that_it_has_never_spoken_with() {
    let pool = Pool::of(2);
    let made = directories(&pool.client().await).await;
    let (left, loses) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::<AtomicBool>::default());
    let never = Arc::new(AtomicU64::new(u64::MAX));
    let way = |node: InProcessConnection| {
        let is_leaving = node.0.id() == NodeId(2);
        let calls = if is_leaving { &left } else { &never };
        let loses = if is_leaving { Arc::default() } else { loses.clone() };
        LosesOneCall { inner: CrashingConnection::sharing(node, calls.clone()), loses }
    };
    let fs = pool.over(way, RetryPolicy::default()).await;
    let [stays, leaving] = pool.nodes() else { panic!("two nodes") };
    leave(std::slice::from_ref(leaving), stays).await;
    left.store(0, Relaxed);
    loses.store(true, Relaxed);
    let there = made.into_iter().find(|directory| home(*directory, 2) == 2).unwrap();
    assert_eq!(fs.stat(there).await.unwrap().file, there);
}

#[tokio::test]
async fn a_pool_that_has_lost_a_node_with_partitions_takes_new_clients() {
    let pool = Pool::of(2);
    let made = directories(&pool.client().await).await;
    let one = &pool.nodes()[0];
    let mut map = (*one.known_map()).clone();
    map.depart(NodeId(2));
    one.learn_map(&map);
    let nodes = [way(1, one)].into_iter().collect();
    let fs = TestFs(Client::connect_all(nodes, IMPATIENT).await.unwrap());
    assert_eq!(fs.data_nodes(), [NodeId(1)]);
    for directory in made {
        match (fs.stat(directory).await, home(directory, 2)) {
            (Ok(_), 1) | (Err(Refusal::Unavailable { .. }), 2) => {}
            (found, home) => panic!("{directory} of node {home}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn a_client_that_learns_of_a_move_says_hello_to_the_new_node_with_its_next_request_to_any() {
    let pool = Pool::of(3);
    let made = directories(&pool.client().await).await;
    let counts: Vec<Arc<AtomicU64>> = (0..3).map(|_| Arc::default()).collect();
    let far = |node: InProcessConnection| {
        let count = counts[node.0.id().0 as usize - 1].clone();
        CountingConnection::new(SteppedConnection::new(node), count)
    };
    let calls = || counts.iter().map(|count| count.swap(0, Relaxed)).collect::<Vec<_>>();
    let fs = pool.over(far, IMPATIENT).await;
    let at = |number| made.iter().copied().find(|directory| home(*directory, 3) == number).unwrap();
    fs.list(at(3), 0, 10).await.unwrap();
    let [one, other, _] = pool.nodes() else { panic!("three nodes") };
    hand_over(one, other, at(1).partition()).await.unwrap();
    fs.router().refresh_map().await;
    calls();
    fs.list(at(3), 0, 10).await.unwrap();
    assert_eq!(calls(), [0, 1, 1]);
    fs.list(at(3), 0, 10).await.unwrap();
    assert_eq!(calls(), [0, 0, 1]);
}

#[tokio::test]
async fn a_client_that_ends_after_a_node_has_left_ends_where_its_partitions_are() {
    let pool = Pool::of(2);
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let never = Arc::new(AtomicU64::new(u64::MAX));
    let way = |node: InProcessConnection| {
        let calls = if node.0.id() == NodeId(1) { &left } else { &never };
        CrashingConnection::sharing(SteppedConnection::new(node), calls.clone())
    };
    let (fs, other) = (pool.over(way, IMPATIENT).await, pool.client().await);
    let (made, _) = fs.create(FileId::ROOT, b"f", 0o600, OWNER, OpenFlags::READ).await.unwrap();
    let [one, last] = pool.nodes() else { panic!("two nodes") };
    leave(std::slice::from_ref(one), last).await;
    left.store(0, Relaxed);
    other.unlink(FileId::ROOT, b"f").await.unwrap();
    assert!(other.stat(made.file).await.is_ok(), "it is open");
    fs.close().await.unwrap();
    assert!(matches!(other.stat(made.file).await, Err(Refusal::NotFound(_))));
}
