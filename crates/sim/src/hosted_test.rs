//! Bytes and owners of a host that stay there while their partitions move.

use crate::{
    grants_test::CachingKernels,
    hand_over_test::{hand_on, server},
    kernel_model::KernelModel,
    pool::*,
    replay_test::{NAMES, change_a_lock},
    replicas::{PARTITIONS, Replicas},
};
use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use client::{
    Objects, RetryPolicy,
    testing::{FaultRates, FaultyConnection},
};
use node::{MoveError, NodeSettings};
use placement::{Epoch, FileId, NodeId, PartitionId};
use std::{
    fs,
    os::fd::AsFd,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use store::Engine;
use test_support::Random;
use vfs::{Handle, Vfs};
use wire::{
    AllocateMode, Answer, Body, ChangedFile, Changes, Command, Content, ExtentRequest, Failure, HostFile, HostedAnswer,
    Kind, Lock, LockKind, LockOwner, LockStyle, Name, OpenFlags, PLACEMENT, RangeContent, Refusal, Request, RequestId,
    SeekTo, Session, TimeChange, Timestamp, XattrMode,
};

pub const OPEN: OpenFlags = OpenFlags { use_extent: true, ..OpenFlags::READ_WRITE };

/// A pool whose first node serves all partitions, so that files have extents there.
pub fn arenas(closed_extents_max: usize) -> (Pool, Arc<Replicas>) {
    let (settings, replicas) = Replicas::logged(4096);
    let settings = NodeSettings { closed_extents_max, ..settings };
    let options = ArenaOptions { stripe_bytes: STRIPE, ..ArenaOptions::with_capacity(64 << 20) };
    let pool = Pool::start_at_one(2, &settings, || Arc::new(Arena::new(options).unwrap()) as Arc<dyn Engine>);
    (pool, replicas)
}

/// Does for all nodes what they need others for.
pub async fn do_host_work(pool: &Pool, vfs: &Vfs) {
    for node in pool.nodes() {
        vfs.client().do_host_work(node).await.unwrap();
    }
}

/// A request for the partition of a file, as a client would send it.
fn request(session: Session, file: FileId, epoch: Epoch, body: Body) -> Request {
    Request { epoch, session, skip_ack: false, partition: file.partition(), body }
}

/// An open file with an extent at node 1, whose partition is at node 2.
async fn moved_file(pool: &Pool, vfs: &Vfs, bytes: &'static [u8]) -> (FileId, Handle) {
    let (made, handle) = vfs.create(FileId::ROOT, b"f", 0o644, OWNER, OPEN).await.unwrap();
    vfs.write(handle, 0, Bytes::from_static(bytes)).await.unwrap();
    let extent = vfs.stat(made.file).await.unwrap().extent.expect("the first node gives extents");
    hand_on(pool, made.file.partition()).await.unwrap();
    assert_eq!((extent.node, server(pool, made.file.partition()).id()), (NodeId(1), NodeId(2)));
    (made.file, handle)
}

#[tokio::test]
async fn a_file_is_used_as_before_while_its_extent_stays_at_the_host_that_its_partition_has_left() {
    let (pool, _) = arenas(0);
    let (vfs, other) = (pool.client().await, pool.client().await);
    let (file, handle) = moved_file(&pool, &vfs, b"before").await;
    let backing = vfs.backing(handle).expect("its node gives the descriptor");
    assert_eq!(vfs.stat(file).await.unwrap().size, 6);
    rustix::io::pwrite(backing.as_fd(), b"past the pool", 6).unwrap();
    let found = other.lookup(FileId::ROOT, b"f").await.unwrap();
    assert_eq!((found.size, found.cacheable), (19, false));
    assert_eq!(other.read_file(b"f").await.unwrap(), b"beforepast the pool");
    let (small, large) = (Bytes::from_static(b"small"), Bytes::from(vec![7; 300_000]));
    vfs.write(handle, 1, small).await.unwrap();
    vfs.write(handle, 19, large).await.unwrap();
    let appends = vfs.open(file, OpenFlags { use_extent: true, ..OpenFlags::APPEND }).await.unwrap();
    vfs.write(appends, 0, Bytes::from_static(b"end")).await.unwrap();
    vfs.close(appends).await.unwrap();
    let whole = other.read_file(b"f").await.unwrap();
    assert_eq!((whole.len(), &whole[..6], &whole[300_019..]), (300_022, &b"bsmall"[..], &b"end"[..]));
    other.change(file, Changes { size: Some(100), mode: Some(0o600), ..Changes::default() }).await.unwrap();
    let time = Timestamp { secs: 5_000_000_000, nanos: 7 };
    let times = Changes { modified: Some(TimeChange::At(time)), ..Changes::default() };
    let changed = other.change(file, times).await.unwrap();
    assert_eq!((changed.size, changed.mode, changed.modified), (100, 0o600, time));
    vfs.allocate(handle, 0, 200, AllocateMode::Extend).await.unwrap();
    assert_eq!(rustix::fs::fstat(backing.as_fd()).unwrap().st_size, 200);
    assert_eq!(vfs.seek(handle, 0, SeekTo::Hole).await.unwrap(), 200);
    assert!(matches!(vfs.seek(handle, 200, SeekTo::Data).await, Err(Refusal::BeyondEnd(_))));
    let truncate = OpenFlags { truncate: true, ..OpenFlags::WRITE };
    let cut = other.open(file, truncate).await.unwrap();
    assert_eq!(rustix::fs::fstat(backing.as_fd()).unwrap().st_size, 0);
    other.close(cut).await.unwrap();
    vfs.close(handle).await.unwrap();
}

#[tokio::test]
async fn what_is_done_over_a_bad_connection_to_a_file_whose_extent_stayed_is_done_once() {
    for seed in 0..4 {
        let (pool, _) = arenas(0);
        let retry_policy = RetryPolicy { tries: 60, ..IMPATIENT };
        let count = AtomicU64::new(seed * 100);
        let faulty = |node| FaultyConnection::new(node, FaultRates::MANY, count.fetch_add(1, Relaxed));
        let (bad, truth) = (pool.over(faulty, retry_policy).await, pool.client().await);
        let (file, handle) = moved_file(&pool, &truth, b"").await;
        let (mut expected, mut random) = (Vec::new(), Random::new(seed));
        let appends = bad.open(file, OpenFlags { use_extent: true, ..OpenFlags::APPEND }).await.unwrap();
        for round in 0..100_u8 {
            let length = random.pick(&[3, 5000]);
            match random.below(8) {
                0 => {
                    let size = random.below(expected.len() + 1);
                    let cut = Changes { size: Some(size as u64), ..Changes::default() };
                    assert_eq!(bad.change(file, cut).await.unwrap().size, size as u64);
                    expected.truncate(size);
                }
                1 => {
                    let end = expected.len() + length;
                    bad.allocate(appends, 0, end as u64, AllocateMode::Extend).await.unwrap();
                    expected.resize(end, 0);
                }
                2 => assert_eq!(bad.stat(file).await.unwrap().size, expected.len() as u64),
                3 => assert!(bad.read_file(b"f").await.unwrap() == expected, "seed {seed}, round {round}"),
                _ => {
                    bad.write(appends, 0, Bytes::from(vec![round; length])).await.unwrap();
                    expected.resize(expected.len() + length, round);
                }
            }
            hand_on_if(random.one_in(4), &pool, file).await;
        }
        assert!(truth.read_file(b"f").await.unwrap() == expected, "seed {seed}");
        truth.close(handle).await.unwrap();
    }
}

#[tokio::test]
async fn a_change_of_an_extent_that_is_sent_again_is_not_done_again() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    let (file, handle) = moved_file(&pool, &vfs, b"bytes").await;
    let session = vfs.client().session();
    let attributes = vfs.stat(file).await.unwrap();
    let changed = Answer::Changed(ChangedFile { attributes, truncation: None });
    let changes = Changes { size: Some(0), ..Changes::default() };
    let (command, answer) = (Box::new(Command::Change { file, changes }), Box::new(changed));
    let request_id = Some(RequestId { session, number: 1000, settled: 1000 });
    let body = Body::Finish { request_id, file, command, answer };
    let request = request(session, file, Epoch::FIRST, body);
    let first = pool.nodes()[0].handle(request.clone()).await;
    assert_eq!(vfs.stat(file).await.unwrap().size, 0);
    vfs.write(handle, 0, Bytes::from_static(b"later")).await.unwrap();
    assert_eq!(pool.nodes()[0].handle(request).await, first);
    assert_eq!(vfs.stat(file).await.unwrap().size, 5);
}

async fn hand_on_if(moves: bool, pool: &Pool, file: FileId) {
    if moves {
        hand_on(pool, file.partition()).await.unwrap();
    }
}

#[tokio::test]
async fn a_node_reads_no_file_of_its_host_but_those_that_were_bound() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    let directory = tempfile::tempdir().unwrap();
    let [bound, secret] = ["bound", "secret"].map(|name| directory.path().join(name));
    fs::write(&bound, b"bound").unwrap();
    fs::write(&secret, b"secret").unwrap();
    let file = vfs.bind(FileId::ROOT, b"bound", &bound).await.unwrap().file;
    hand_on(&pool, file.partition()).await.unwrap();
    let read = |path: &Path| {
        let (node, modified) = (NodeId(1), fs::metadata(&bound).unwrap().modified().unwrap().into());
        let host = HostFile { node, path: path.into(), size: 5, modified, executable: false };
        let answer = Answer::Content(RangeContent { length: 5, content: Content::Bound(Arc::new(host)) });
        let command = Box::new(Command::Read { file, offset: 0, length: 5 });
        let body = Body::Finish { request_id: None, file, command, answer: Box::new(answer) };
        pool.nodes()[0].handle(request(vfs.client().session(), file, Epoch::FIRST, body))
    };
    assert!(matches!(read(&bound).await, Ok(Answer::Content(_))));
    let refused = read(&secret).await;
    assert!(matches!(refused, Err(Failure::Refused(Refusal::Stale(_)))), "{refused:?}");
}

#[tokio::test]
async fn a_small_file_comes_home_to_the_node_of_its_inode_after_its_last_close() {
    let (pool, replicas) = arenas(0);
    let vfs = pool.client().await;
    let (file, handle) = moved_file(&pool, &vfs, b"hello").await;
    do_host_work(&pool, &vfs).await;
    assert!(vfs.stat(file).await.unwrap().extent.is_some(), "it is open");
    // Later than any change of the extent, which knows nothing of it.
    vfs.change(file, Changes { mode: Some(0o600), ..Changes::default() }).await.unwrap();
    let before = vfs.stat(file).await.unwrap();
    vfs.close(handle).await.unwrap();
    do_host_work(&pool, &vfs).await; // node 2 tells node 1
    do_host_work(&pool, &vfs).await; // node 1 gives it the bytes
    let after = vfs.stat(file).await.unwrap();
    assert_eq!((after.extent, after.size, after.modified, after.changed), (None, 5, before.modified, before.changed));
    assert_eq!(vfs.read_file(b"f").await.unwrap(), b"hello");
    assert_eq!(pool.nodes()[0].usage().used, 0, "its extent is free");
    assert!(replicas.entries().all > 0);
}

#[tokio::test]
async fn a_large_file_that_is_open_keeps_its_extent_and_no_kernel_keeps_its_attributes() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    let (file, handle) = moved_file(&pool, &vfs, b"").await;
    vfs.write(handle, 0, Bytes::from(vec![1; 1 << 20])).await.unwrap();
    for _ in 0..2 {
        do_host_work(&pool, &vfs).await;
    }
    let found = KernelModel::mount(&vfs).await.stat(file).await.unwrap();
    assert_eq!((found.size, found.extent.map(|extent| extent.node)), (1 << 20, Some(NodeId(1))));
    assert!(!found.cacheable, "a change of it is two steps");
    vfs.close(handle).await.unwrap();
}

#[tokio::test]
async fn an_extent_is_free_when_its_file_was_removed_at_another_node() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    let (_, handle) = moved_file(&pool, &vfs, &[1; 4000]).await;
    vfs.write(handle, 0, Bytes::from(vec![1; 1 << 20])).await.unwrap();
    vfs.unlink(FileId::ROOT, b"f").await.unwrap();
    let backing = vfs.backing(handle);
    assert_eq!(vfs.read(handle, 1_000_000, 10).await.unwrap(), &[1; 10][..], "it is open");
    vfs.close(handle).await.unwrap();
    for _ in 0..2 {
        do_host_work(&pool, &vfs).await;
    }
    assert!(pool.nodes()[0].usage().used >= 1 << 20, "a kernel has it open");
    drop(backing);
    for _ in 0..2 {
        do_host_work(&pool, &vfs).await;
    }
    assert_eq!(pool.nodes()[0].usage().used, 0);
}

#[tokio::test]
async fn a_bound_file_is_read_at_its_host_wherever_its_inode_is() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    let objects = Objects::new(vfs.client().clone());
    let directory = tempfile::tempdir().unwrap();
    let host = directory.path().join("input");
    fs::write(&host, b"on the disk").unwrap();
    let bound = vfs.bind(FileId::ROOT, b"bound", &host).await.unwrap().file;
    for at in [2, 1, 2] {
        hand_on(&pool, bound.partition()).await.unwrap();
        assert_eq!(server(&pool, bound.partition()).id(), NodeId(at));
        assert_eq!(vfs.read_file(b"bound").await.unwrap(), b"on the disk");
        assert_eq!(objects.get(b"bound").await.unwrap().into_bytes(), &b"on the disk"[..]);
        assert_eq!(vfs.client().locate(bound).await.unwrap().bytes, [(0..11, NodeId(1))]);
    }
    vfs.unlink(FileId::ROOT, b"bound").await.unwrap();
    for _ in 0..2 {
        do_host_work(&pool, &vfs).await;
    }
    assert_eq!(pool.nodes()[0].hosted_bytes(bound), None);
}

/// A process that ends with the test.
struct KilledOnDrop(std::process::Child);

impl KilledOnDrop {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lock(owner: LockOwner, kind: LockKind) -> Lock {
    Lock { owner, kind, style: LockStyle::EVERYWHERE, pid: 1 }
}

#[tokio::test]
async fn a_lock_of_a_process_stays_its_own_when_the_partition_moves_and_ends_with_it() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    let mut child = KilledOnDrop(std::process::Command::new("sleep").arg("600").spawn().unwrap());
    let theirs = LockOwner::Process { node: NodeId(1), process: child.0.id() };
    let one = vfs.write_file(b"f", b"x").await.unwrap().file;
    let other = vfs.write_file(b"g", b"x").await.unwrap().file;
    let client = vfs.client();
    client.lock(one, lock(theirs, LockKind::Write), false).await.unwrap();
    hand_on(&pool, one.partition()).await.unwrap();
    if other.partition() != one.partition() {
        hand_on(&pool, other.partition()).await.unwrap();
    }
    // Locked anew at the other node, by the same owner.
    client.lock(one, lock(theirs, LockKind::Read), false).await.unwrap();
    client.lock(other, lock(theirs, LockKind::Write), false).await.unwrap();
    let mine = LockOwner::THIS_PROCESS;
    let is_taken = |outcome| matches!(outcome, Err(Refusal::Locked(_)));
    for file in [one, other] {
        assert!(is_taken(client.lock(file, lock(mine, LockKind::Write), false).await));
    }
    child.kill();
    pool.nodes()[0].scan_leases();
    do_host_work(&pool, &vfs).await;
    for file in [one, other] {
        client.lock(file, lock(mine, LockKind::Write), false).await.unwrap();
    }
    let gone = client.lock(one, lock(theirs, LockKind::Write), false).await;
    assert!(matches!(gone, Err(Refusal::Unsupported { .. } | Refusal::Stale(_))), "{gone:?}");
}

#[tokio::test]
async fn a_lock_that_is_sent_to_the_node_that_a_partition_has_left_has_its_owner_at_the_next() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    let file = vfs.write_file(b"f", b"x").await.unwrap().file;
    hand_on(&pool, file.partition()).await.unwrap();
    // This client still knows the first node alone as the one to ask.
    vfs.client().lock(file, lock(LockOwner::THIS_PROCESS, LockKind::Write), false).await.unwrap();
    let other = pool.client().await;
    let found = other.client().test_lock(file, lock(LockOwner::Session(1), LockKind::Read)).await.unwrap();
    let process = std::process::id();
    assert_eq!(found.map(|found| found.owner), Some(LockOwner::Process { node: NodeId(1), process }));
    let own = other.client().test_lock(file, lock(LockOwner::THIS_PROCESS, LockKind::Write)).await;
    assert_eq!(own, Ok(None), "it is of the same process");
}

#[tokio::test]
async fn a_new_lock_waits_until_the_earlier_ones_of_its_owner_are_released() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    let program = vfs.create_for_program(FileId::ROOT, b"f", 0o644, OWNER, OPEN).await.unwrap();
    let file = program.attributes.file;
    let mine = lock(LockOwner::THIS_PROCESS, LockKind::Write);
    vfs.client().lock(file, mine, false).await.unwrap();
    hand_on(&pool, file.partition()).await.unwrap();
    vfs.client().lock(file, mine, false).await.unwrap();
    pool.nodes()[0].unlock_on_close(std::process::id(), program.lease.id);
    let again = vfs.client().lock(file, mine, false).await;
    assert!(matches!(again, Err(Refusal::Busy(_))), "{again:?}");
    do_host_work(&pool, &vfs).await;
    vfs.client().lock(file, mine, false).await.unwrap();
    do_host_work(&pool, &vfs).await;
    let other = lock(LockOwner::Session(1), LockKind::Read);
    assert!(vfs.client().test_lock(file, other).await.unwrap().is_some(), "the later lock stays");
}

#[tokio::test]
async fn an_open_by_name_truncates_an_extent_of_another_node() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    let (file, handle) = moved_file(&pool, &vfs, b"bytes").await;
    let session = pool.client().await.client().session();
    let flags = OpenFlags { truncate: true, ..OpenFlags::WRITE };
    let name = Name::new(b"f").unwrap();
    let command = Command::OpenName { parent: FileId::ROOT, name, flags, extent: ExtentRequest::None };
    let send = |node: usize, epoch, body| pool.nodes()[node].handle(request(session, file, epoch, body));
    let request_id = |number| Some(RequestId { session, number, settled: number });
    let epoch = pool.nodes()[1].served_epoch(file.partition()).unwrap();
    let opened = send(1, epoch, Body::Meta { request_id: request_id(500), command: command.clone() }).await;
    let Ok(Answer::Hosted(HostedAnswer { node: NodeId(1), answer, .. })) = opened else { panic!("{opened:?}") };
    let finish = Body::Finish { request_id: request_id(501), file, command: Box::new(command), answer };
    assert!(matches!(send(0, Epoch::FIRST, finish).await, Ok(Answer::Opened(_))));
    assert_eq!(vfs.stat(file).await.unwrap().size, 0);
    vfs.close(handle).await.unwrap();
}

#[tokio::test]
async fn a_file_that_was_removed_while_its_partition_was_away_leaves_nothing() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    let (file, handle) = moved_file(&pool, &vfs, b"bytes").await;
    vfs.unlink(FileId::ROOT, b"f").await.unwrap();
    vfs.close(handle).await.unwrap();
    hand_on(&pool, file.partition()).await.unwrap();
    assert_eq!((server(&pool, file.partition()).id(), pool.nodes()[0].usage().used), (NodeId(1), 0));
    do_host_work(&pool, &vfs).await;
}

#[tokio::test]
async fn the_session_of_a_node_is_nobody_elses() {
    let (pool, _) = arenas(0);
    let session = Session::of_node(NodeId(1)).unwrap();
    for body in [Body::Hello, Body::EndSession { session }] {
        let request = request(session, FileId::ROOT, Epoch::FIRST, body);
        for node in pool.nodes() {
            let refused = node.handle(request.clone()).await;
            assert!(matches!(refused, Err(Failure::Refused(Refusal::Invalid { .. }))), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn an_open_that_a_program_has_inherited_outlives_its_session_at_a_node_that_got_the_partition() {
    let (pool, _) = arenas(0);
    let (vfs, other) = (pool.client().await, pool.client().await);
    let program = vfs.create_for_program(FileId::ROOT, b"f", 0o644, OWNER, OPEN).await.unwrap();
    let file = program.attributes.file;
    rustix::io::pwrite(&program.descriptor, b"bytes", 0).unwrap();
    let flock = Lock { style: LockStyle::Whole, ..lock(LockOwner::Open(program.lease.id), LockKind::Write) };
    vfs.client().lock(file, flock, false).await.unwrap();
    hand_on(&pool, file.partition()).await.unwrap();
    vfs.end_session().await.unwrap();
    other.unlink(FileId::ROOT, b"f").await.unwrap();
    for _ in 0..2 {
        do_host_work(&pool, &other).await;
    }
    assert_eq!(other.stat(file).await.unwrap().size, 5, "somebody has it open");
    let mine = Lock { style: LockStyle::Whole, ..lock(LockOwner::Session(1), LockKind::Write) };
    assert_eq!(other.client().lock(file, mine, false).await, Err(Refusal::Locked(wire::Object::File(file))));
    drop(program.descriptor);
    pool.nodes()[0].scan_leases();
    for _ in 0..3 {
        do_host_work(&pool, &other).await;
    }
    assert!(matches!(other.stat(file).await, Err(Refusal::NotFound(_))));
    assert_eq!(pool.nodes()[0].usage().used, 0);
}

/// Opens a file for writes past the pool, in the name of one of the kernels.
async fn open_a_backing(kernels: &mut CachingKernels) {
    let (name, who) = (kernels.random.pick(&NAMES), kernels.random.below(kernels.kernels.len()));
    let mapped = kernels.random.one_in(2);
    if let Ok(found) = kernels.truth.lookup(FileId::ROOT, name.as_bytes()).await
        && found.kind == Kind::File
    {
        kernels.kernels[who].open_backing(found.file, mapped).await.unwrap();
    }
}

/// Kernels that cache, and write to extents past the pool; locks and sessions that end; partitions
/// that move. Returns how many moved, and after how many steps bytes were where their inode was
/// not.
async fn try_seed(seed: u64) -> (u32, u32) {
    let (pool, replicas) = arenas(usize::try_from(seed % 3).unwrap());
    let truth = pool.client().await;
    truth.set_xattr(FileId::ROOT, PLACEMENT, "at(1)".into(), XattrMode::Set, false).await.unwrap();
    let mut kernels = CachingKernels::new(truth, &NAMES, seed).await;
    let (mut moved, mut hosted) = (0, 0);
    for _ in 0..40 {
        match kernels.random.below(14) {
            0 => kernels.replace_a_kernel().await,
            1 | 2 => kernels.change_uncached().await,
            3 | 4 => change_a_lock(&mut kernels).await,
            5 | 6 => kernels.write_to_backings().await,
            7 | 8 => open_a_backing(&mut kernels).await,
            _ => kernels.change().await,
        }
        if kernels.random.one_in(2) {
            do_host_work(&pool, &kernels.truth).await;
        }
        let any = PartitionId(u16::from(kernels.random.byte()) % PARTITIONS);
        let partition = if kernels.random.one_in(3) { FileId::ROOT.partition() } else { any };
        match hand_on(&pool, partition).await {
            Ok(()) => moved += 1,
            Err(MoveError::NotSubscribed) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
        hosted += u32::from(pool.nodes().iter().any(|node| node.hosted_files() > 0));
    }
    kernels.check().await;
    assert!(replicas.entries().all > 0);
    (moved, hosted)
}

#[tokio::test]
async fn what_kernels_cache_and_write_past_the_pool_is_what_is_true_while_partitions_move_and_bytes_stay() {
    let (mut moved, mut hosted) = (0, 0);
    for seed in 0..100 {
        let (partitions, files) = try_seed(seed).await;
        (moved, hosted) = (moved + partitions, hosted + files);
    }
    assert!(moved > 3000 && hosted > 500, "{moved} {hosted}");
}
