//! Partitions that are handed from node to node while clients, kernels and lock waiters use them.

use crate::{
    clients::*,
    grants_test::CachingKernels,
    linearizability::is_linearizable,
    names_model::NameTree,
    pool::*,
    replay_test::{NAMES, change_a_lock},
    replicas::{PARTITIONS, Replicas},
};
use bytes::Bytes;
use client::testing::{SteppedConnection, hand_over};
use node::{MoveError, MoveLink, Node, NodeSettings, OnInvalidate, ReplyFuture};
use parking_lot::Mutex;
use placement::{FileId, NodeId, PartitionId};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};
use store::{Engine, ModelEngine};
use test_support::Random;
use wire::{
    Body, Failure, Lock, LockKind, LockOwner, LockStyle, MoveStep, OpenFlags, Recall, Refusal, Request, Session,
};

fn logged_pool(nodes: u32, split_entries: u32) -> (Pool, Arc<Replicas>) {
    let (settings, replicas) = Replicas::logged(split_entries);
    (Pool::start(nodes, &settings, || Arc::new(ModelEngine::new(64 << 20, STRIPE))), replicas)
}

pub fn server(pool: &Pool, partition: PartitionId) -> &Arc<Node> {
    pool.nodes().iter().find(|node| node.served_epoch(partition).is_some()).expect("some node serves it")
}

/// Hands a partition to the next node.
pub async fn hand_on(pool: &Pool, partition: PartitionId) -> Result<(), MoveError> {
    let from = server(pool, partition);
    let at = pool.nodes().iter().position(|node| node.id() == from.id()).unwrap();
    let to = &pool.nodes()[(at + 1) % pool.nodes().len()];
    hand_over(from, to, partition).await.map(drop)
}

/// Clients whose messages interleave, while partitions move between their messages.
fn try_seed(seed: u64) {
    let (pool, replicas) = logged_pool(3, if seed.is_multiple_of(3) { 2 } else { 4096 });
    let healthy = block_on(pool.client());
    let (mut tree, mut rng) = (NameTree::new(), Random::new(seed));
    block_on(create_initial_tree(&healthy, &mut tree));
    let mut clients = interleaved_clients(&pool, &tree, 4, &mut rng);
    let mut moves = Random::new(!seed);
    let (mut history, _) = interleave_with(&mut clients, &mut rng, false, || {
        if moves.one_in(4) {
            let partition = PartitionId(u16::from(moves.byte()) % PARTITIONS);
            block_on(hand_on(&pool, partition)).unwrap();
        }
    });
    read_back(&healthy, &tree, &mut history);
    assert!(is_linearizable(&tree, &history), "seed {seed}");
    assert!(replicas.entries().all > 0);
}

#[test]
fn what_clients_see_has_an_order_while_partitions_move_between_any_two_messages() {
    (0..300).for_each(try_seed);
}

/// Kernels that cache, locks, and sessions that end, while partitions move.
async fn try_kernels(seed: u64) -> u32 {
    let (pool, replicas) = logged_pool(3, if seed.is_multiple_of(4) { 3 } else { 4096 });
    let mut kernels = CachingKernels::new(pool.client().await, &NAMES, seed).await;
    let mut moved = 0;
    for _ in 0..40 {
        match kernels.random.below(12) {
            0 => kernels.replace_a_kernel().await,
            1 | 2 => kernels.change_uncached().await,
            3..=5 => change_a_lock(&mut kernels).await,
            _ => kernels.change().await,
        }
        let partition = PartitionId(u16::from(kernels.random.byte()) % PARTITIONS);
        match hand_on(&pool, partition).await {
            Ok(()) => moved += 1,
            Err(MoveError::NotSubscribed) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    kernels.check().await;
    assert!(replicas.entries().all > 0);
    moved
}

#[tokio::test]
async fn what_kernels_cache_is_what_is_true_while_partitions_move_and_sessions_end() {
    let mut moved = 0;
    for seed in 0..100 {
        moved += try_kernels(seed).await;
    }
    assert!(moved > 3000, "{moved}");
}

/// Polls a call to its end; partitions move between its polls.
fn while_partitions_move<T>(pool: &Pool, random: &mut Random, call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    loop {
        if let Poll::Ready(value) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        if random.one_in(3) {
            block_on(hand_on(pool, PartitionId(u16::from(random.byte()) % PARTITIONS))).unwrap();
        }
    }
}

#[test]
fn a_walk_finds_its_way_while_the_directories_of_its_path_move() {
    let (pool, _) = logged_pool(3, 4096);
    let vfs = block_on(pool.over(SteppedConnection::new, RETRY_WITHOUT_PAUSES));
    let mut random = Random::new(1);
    for number in 0..50_u8 {
        let directory = format!("a{}/b{}/c", number % 3, number % 5);
        let key = format!("{directory}/k{}", number % 7);
        while_partitions_move(&pool, &mut random, vfs.make_directories(directory.as_bytes())).unwrap();
        let value = vec![number; 100];
        while_partitions_move(&pool, &mut random, vfs.write_file(key.as_bytes(), &value)).unwrap();
        let found = while_partitions_move(&pool, &mut random, vfs.read_file(key.as_bytes())).unwrap();
        assert_eq!(found, value, "{key}");
    }
}

fn whole_file(kind: LockKind) -> Lock {
    Lock { owner: LockOwner::Session(1), kind, style: LockStyle::Whole, pid: 1 }
}

#[tokio::test]
async fn open_files_locks_and_those_who_wait_for_them_survive_a_hand_over() {
    let (pool, _) = logged_pool(2, 4096);
    let (one, other) = (pool.client().await, pool.client().await);
    let file = one.write_file(b"f", b"before").await.unwrap().file;
    let handle = one.open(file, OpenFlags::READ_WRITE).await.unwrap();
    one.client().lock(file, whole_file(LockKind::Write), false).await.unwrap();
    let waiter = {
        let other = other.clone();
        tokio::spawn(async move { other.client().lock(file, whole_file(LockKind::Write), true).await })
    };
    let waits = || async { one.client().test_lock(file, whole_file(LockKind::Read)).await.unwrap().is_none() };
    assert!(waits().await, "its own lock is none that conflicts");
    for _ in 0..3 {
        tokio::task::yield_now().await;
        hand_on(&pool, file.partition()).await.unwrap();
        assert_eq!(one.read(handle, 0, 10).await.unwrap(), &b"before"[..]);
        assert!(other.client().lock(file, whole_file(LockKind::Read), false).await.is_err(), "the lock went along");
        assert!(!waiter.is_finished());
    }
    other.unlink(FileId::ROOT, b"f").await.unwrap();
    assert_eq!(one.read(handle, 0, 10).await.unwrap(), &b"before"[..], "it is open");
    one.client().lock(file, whole_file(LockKind::Unlock), false).await.unwrap();
    waiter.await.unwrap().unwrap();
    one.close(handle).await.unwrap();
    assert!(one.stat(file).await.is_err(), "it went with its last close");
}

#[tokio::test]
async fn kernels_hear_of_changes_that_the_new_node_makes() {
    let (pool, _) = logged_pool(2, 4096);
    let truth = pool.client().await;
    let kernel = crate::kernel_model::KernelModel::mount(&truth).await;
    let file = truth.write_file(b"f", b"1").await.unwrap().file;
    for length in 1..8 {
        assert_eq!(kernel.stat(file).await.unwrap().size, length);
        assert_eq!(kernel.find(FileId::ROOT, "f").await.unwrap(), Some(file));
        hand_on(&pool, file.partition()).await.unwrap();
        let handle = truth.open(file, OpenFlags::READ_WRITE).await.unwrap();
        truth.write(handle, length, Bytes::from_static(b"x")).await.unwrap();
        truth.close(handle).await.unwrap();
    }
    kernel.stat(file).await.unwrap();
    let requests = kernel.requests.load(Relaxed);
    hand_on(&pool, file.partition()).await.unwrap();
    kernel.stat(file).await.unwrap();
    assert_eq!(kernel.requests.load(Relaxed), requests, "what it caches goes along, and stays");
}

#[tokio::test]
async fn a_hand_over_that_is_given_up_or_waits_too_long_for_a_kernel_leaves_the_partition_served() {
    let (pool, _) = logged_pool(2, 4096);
    let (truth, kernel) = (pool.client().await, pool.client().await);
    let file = truth.write_file(b"f", b"1").await.unwrap().file;
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    // It acknowledges when `release` is dropped.
    kernel.subscribe(Arc::new(move |_| held.lock().recv().unwrap_or_default())).await.unwrap();
    kernel.stat(file).await.unwrap();
    let mut change = pin!(truth.unlink(FileId::ROOT, b"f"));
    assert!(change.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "a kernel caches it");
    let home = file.partition();
    let at = server(&pool, home).id();
    {
        let mut given_up = pin!(hand_on(&pool, home));
        assert!(given_up.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(server(&pool, home).id(), at);
    assert_eq!(hand_on(&pool, home).await, Err(MoveError::NoAck));
    assert_eq!(server(&pool, home).id(), at);
    drop(release);
    change.await.unwrap();
    hand_on(&pool, home).await.unwrap();
    assert_ne!(server(&pool, home).id(), at);
}

#[tokio::test]
async fn a_partition_that_finds_no_space_or_whose_node_is_another_stays_where_it_is_and_is_served() {
    let small = |node: u32| if node == 0 { 64 << 20 } else { 4 * u64::from(STRIPE) };
    let settings = NodeSettings { partitions: 1, ..settings() };
    let count = AtomicU32::new(0);
    let engine = || {
        let at = count.fetch_add(1, Relaxed);
        Arc::new(ModelEngine::new(small(at), STRIPE)) as Arc<dyn Engine>
    };
    let pool = Pool::start(2, &settings, engine);
    let vfs = pool.client().await;
    for number in 0..2000 {
        vfs.make_node(FileId::ROOT, format!("f{number}").as_bytes(), wire::Kind::File, 0o600, OWNER).await.unwrap();
    }
    let full = hand_on(&pool, PartitionId(0)).await;
    assert!(matches!(full, Err(MoveError::Target(Failure::Refused(Refusal::NoSpace(_))))), "{full:?}");
    assert!(vfs.lookup(FileId::ROOT, b"f7").await.is_ok());
    let elsewhere = hand_over(&pool.nodes()[1], &pool.nodes()[0], PartitionId(0)).await;
    assert_eq!(elsewhere, Err(MoveError::NotServed));
    assert_eq!(server(&pool, PartitionId(0)).id(), NodeId(1));
}

#[tokio::test]
async fn a_move_that_has_failed_fails_again_until_the_managers_have_given_it_up() {
    let (pool, _) = logged_pool(2, 4096);
    let root = FileId::ROOT.partition();
    let [from, to] = pool.nodes() else { panic!("two nodes") };
    let good = |to: Arc<Node>| Arc::new(move |request| to.handle(request)) as MoveLink;
    let lost = || ReplyFuture::ready(Err(Failure::Lost("cut".into())));
    let reserves = Arc::new(move |_| lost()) as MoveLink;
    let target = to.clone();
    let prepares = Arc::new(move |request: Request| match request.body {
        Body::Move { step: MoveStep::Prepare } => lost(),
        _ => target.handle(request),
    }) as MoveLink;
    for (bad, waits) in [(reserves, false), (prepares, true)] {
        let epoch = from.served_epoch(root).expect("the first node serves the root");
        let failed = from.send_partition((root, epoch), to.id(), bad).await.unwrap_err();
        assert_eq!(matches!(failed, MoveError::Unknown(_)), waits);
        // The managers have not heard of the failure, and ask again. What the first try has sent
        // may still be on its way.
        let again = from.send_partition((root, epoch), to.id(), good(to.clone())).await;
        assert_eq!((again, from.served_epoch(root).is_none()), (Err(failed), waits));
        let given_up = from.entry(root).unwrap().moved(from.id());
        from.learn(root, &given_up);
        to.learn(root, &given_up);
        assert_eq!(from.served_epoch(root), Some(given_up.epoch));
    }
    hand_on(&pool, root).await.unwrap();
}

#[tokio::test]
async fn a_kernel_that_the_other_node_does_not_know_keeps_a_partition_where_it_is() {
    let (pool, _) = logged_pool(2, 4096);
    let root = FileId::ROOT.partition();
    let at = server(&pool, root).id();
    server(&pool, root).subscribe(Session(7), &(Arc::new(|_: &[Recall]| ()) as OnInvalidate)).unwrap();
    assert_eq!(hand_on(&pool, root).await, Err(MoveError::NotSubscribed));
    server(&pool, root).unsubscribe(Session(7));
    hand_on(&pool, root).await.unwrap();
    assert_ne!(server(&pool, root).id(), at);
}
