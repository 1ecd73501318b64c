//! Large extent files that become striped after their partitions have moved.

use crate::{
    hand_over_test::{hand_on, server},
    hosted_test::{OPEN, arenas, do_host_work},
    pool::*,
    replicas::{PARTITIONS, Replicas},
};
use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use client::{
    Connection, InProcessConnection, RetryPolicy,
    testing::{CrashingConnection, FaultRates, FaultyConnection},
};
use node::{NodeSettings, ReplyFuture};
use parking_lot::Mutex;
use placement::{Epoch, FileId, NodeId, PartitionId};
use std::{
    fmt,
    fs::OpenOptions,
    os::fd::{AsFd, AsRawFd},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use store::Engine;
use test_support::Random;
use tokio::task::JoinHandle;
use vfs::Vfs;
use wire::{
    AllocateMode, Answer, Body, Changes, Command, HostedAnswer, Lock, LockKind, LockOwner, LockStyle, OpenFlags,
    PLACEMENT, Refusal, RenameMode, Request, RequestId, SeekTo, TimeChange, Timestamp, XattrMode,
};

/// More than a few stripes, and no whole number of them.
const LARGE: usize = 5 * STRIPE as usize - 1234;

/// Bytes of which no two stripes are equal.
fn some_bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at / 251 + at) % 256).unwrap()).collect()
}

/// Makes a closed file with these bytes, in an extent of node 1, and moves all partitions to node
/// 2.
async fn leave(pool: &Pool, vfs: &Vfs, bytes: &[u8]) -> FileId {
    let file = extent_file(vfs, b"f", bytes).await;
    move_all(pool).await;
    file
}

async fn extent_file(vfs: &Vfs, name: &[u8], bytes: &[u8]) -> FileId {
    let (made, handle) = vfs.create(FileId::ROOT, name, 0o644, OWNER, OPEN).await.unwrap();
    vfs.write(handle, 0, Bytes::copy_from_slice(bytes)).await.unwrap();
    vfs.close(handle).await.unwrap();
    assert!(vfs.stat(made.file).await.unwrap().extent.is_some(), "the first node gives extents");
    made.file
}

async fn move_all(pool: &Pool) {
    for partition in (0..PARTITIONS).map(PartitionId) {
        hand_on(pool, partition).await.unwrap();
    }
}

/// Bytes that all nodes use.
fn used(pool: &Pool) -> u64 {
    pool.nodes().iter().map(|node| node.usage().used).sum()
}

#[tokio::test]
async fn the_bytes_of_a_large_file_follow_its_partition_when_nobody_has_it_open() {
    let (pool, replicas) = arenas(0);
    let vfs = pool.client().await;
    let bytes = some_bytes(LARGE);
    let file = leave(&pool, &vfs, &bytes).await;
    let before = vfs.stat(file).await.unwrap();
    assert_eq!((before.extent.map(|extent| extent.node), pool.nodes()[0].pins()), (Some(NodeId(1)), 1));
    do_host_work(&pool, &vfs).await;
    let after = vfs.stat(file).await.unwrap();
    assert_eq!((after.extent, after.size), (None, LARGE as u64));
    assert_eq!((after.modified, after.changed), (before.modified, before.changed));
    assert!(vfs.read_file(b"f").await.unwrap() == bytes);
    let first = &pool.nodes()[0];
    assert_eq!((first.pins(), first.usage().used), (0, 0), "the node may leave");
    vfs.write_file(b"f", b"short").await.unwrap();
    assert_eq!(vfs.read_file(b"f").await.unwrap(), b"short");
    vfs.unlink(FileId::ROOT, b"f").await.unwrap();
    assert_eq!(used(&pool), 0, "its stripes were removed with it");
    assert!(replicas.entries().all > 0);
}

#[tokio::test]
async fn a_large_file_leaves_after_its_last_close_whoever_has_it_open() {
    let (pool, _) = arenas(0);
    let (vfs, other) = (pool.client().await, pool.client().await);
    let file = extent_file(&vfs, b"f", &some_bytes(LARGE)).await;
    let (one, two) = (vfs.open(file, OPEN).await.unwrap(), other.open(file, OpenFlags::READ).await.unwrap());
    let backing = vfs.backing(one).unwrap();
    move_all(&pool).await;
    do_host_work(&pool, &vfs).await;
    vfs.close(one).await.unwrap();
    do_host_work(&pool, &vfs).await;
    other.close(two).await.unwrap();
    let path = format!("/proc/self/fd/{}", backing.as_fd().as_raw_fd());
    let kernels = OpenOptions::new().write(true).open(path).unwrap(); // a description of its own
    let mut backing = Some(backing);
    for _ in 0..2 {
        do_host_work(&pool, &vfs).await;
        assert!(vfs.stat(file).await.unwrap().extent.is_some(), "a kernel has it open");
        backing = None;
    }
    assert!(backing.is_none());
    rustix::io::pwrite(&kernels, b"past the pool", 0).unwrap();
    drop(kernels);
    do_host_work(&pool, &vfs).await;
    assert_eq!(vfs.stat(file).await.unwrap().extent, None);
    assert_eq!(vfs.read_file(b"f").await.unwrap()[..13], b"past the pool"[..]);
}

#[tokio::test]
async fn holes_of_a_large_file_stay_holes() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    let (stripe, length) = (u64::from(STRIPE), 40 * u64::from(STRIPE) + 17);
    let (made, handle) = vfs.create(FileId::ROOT, b"f", 0o644, OWNER, OPEN).await.unwrap();
    let file = made.file;
    for offset in [10 * stripe - 5000, 20 * stripe + 30_000] {
        vfs.write(handle, offset, Bytes::from(vec![7; 10_000])).await.unwrap();
    }
    vfs.close(handle).await.unwrap();
    vfs.change(file, Changes { size: Some(length), ..Changes::default() }).await.unwrap();
    let before = vfs.read_file(b"f").await.unwrap();
    move_all(&pool).await;
    do_host_work(&pool, &vfs).await;
    let after = vfs.stat(file).await.unwrap();
    assert_eq!((after.extent, after.size), (None, length));
    assert!((3 * stripe..8 * stripe).contains(&after.allocated), "{}", after.allocated);
    assert!(vfs.read_file(b"f").await.unwrap() == before);
    let handle = vfs.open(file, OpenFlags::READ).await.unwrap();
    // An extent has larger pages than what was written to it.
    let data = vfs.seek(handle, 0, SeekTo::Data).await.unwrap();
    assert!((8 * stripe..10 * stripe).contains(&data), "{data}");
    let hole = vfs.seek(handle, data, SeekTo::Hole).await.unwrap();
    assert!((11 * stripe..20 * stripe).contains(&hole), "{hole}");
    vfs.close(handle).await.unwrap();
    assert!(used(&pool) < 8 * stripe);
}

#[tokio::test]
async fn a_large_file_goes_where_its_policy_says() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    vfs.set_xattr(FileId::ROOT, PLACEMENT, "at(1)".into(), XattrMode::Set, false).await.unwrap();
    let file = extent_file(&vfs, b"f", &some_bytes(LARGE)).await;
    hand_on(&pool, file.partition()).await.unwrap();
    do_host_work(&pool, &vfs).await;
    assert_eq!((vfs.stat(file).await.unwrap().extent, server(&pool, file.partition()).id()), (None, NodeId(2)));
    assert_eq!(vfs.client().locate(file).await.unwrap().bytes, [(0..LARGE as u64, NodeId(1))]);
    assert!(vfs.read_file(b"f").await.unwrap() == some_bytes(LARGE));
}

/// A connection on which something happens before a message.
struct InterruptedConnection {
    inner: Arc<InProcessConnection>,
    interruption: Arc<Interruption>,
}

/// Something that happens once, before the message of a number. If it has to wait, the message
/// goes on meanwhile.
struct Interruption {
    before: AtomicU64,
    event: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    begun: Mutex<Option<JoinHandle<()>>>,
    /// True if the message waits until it has happened.
    is_waited_for: bool,
}

impl Interruption {
    fn new(before: u64, is_waited_for: bool, event: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        let (event, begun) = (Mutex::new(Some(Box::pin(event) as Pin<Box<_>>)), Mutex::default());
        Arc::new(Self { before: before.into(), event, begun, is_waited_for })
    }

    /// Lets it begin, unless it has.
    async fn begin(&self) {
        let event = self.event.lock().take();
        if let Some(event) = event {
            *self.begun.lock() = Some(tokio::spawn(event));
            tokio::task::yield_now().await;
        }
    }

    /// Waits until it has happened.
    async fn end(&self) {
        self.begin().await;
        let begun = self.begun.lock().take();
        if let Some(begun) = begun {
            begun.await.unwrap();
        }
    }

    fn has_begun(&self) -> bool {
        self.event.lock().is_none()
    }
}

impl fmt::Debug for InterruptedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterruptedConnection").finish_non_exhaustive()
    }
}

impl Connection for InterruptedConnection {
    fn call(&self, request: Request) -> ReplyFuture {
        let (inner, interruption) = (self.inner.clone(), self.interruption.clone());
        let is_due = interruption.before.fetch_sub(1, Relaxed) == 0;
        ReplyFuture::deferred(async move {
            if is_due {
                interruption.begin().await;
            }
            if is_due && interruption.is_waited_for {
                interruption.end().await;
            }
            inner.call(request).await
        })
    }
}

/// What somebody does to the file while it is copied.
#[derive(Clone, Copy, Debug)]
enum FileEvent {
    Write,
    Append,
    Truncate,
    TruncateByOpen,
    Grow,
    Punch,
    SetTimes,
    Chmod,
    ReadByOpen,
    WritePastPool,
    MapAndKeepOpen,
    Unlink,
    Rename,
    Replace,
    MovePartition,
    MoveAll,
}

impl FileEvent {
    const ALL: [Self; 16] = [
        Self::Write,
        Self::Append,
        Self::Truncate,
        Self::TruncateByOpen,
        Self::Grow,
        Self::Punch,
        Self::SetTimes,
        Self::Chmod,
        Self::ReadByOpen,
        Self::WritePastPool,
        Self::MapAndKeepOpen,
        Self::Unlink,
        Self::Rename,
        Self::Replace,
        Self::MovePartition,
        Self::MoveAll,
    ];

    /// Does it, and to `bytes` what it does to the file.
    async fn happen(self, (pool, vfs): (&Pool, &Vfs), file: FileId, bytes: &mut Vec<u8>) {
        let resize = |size: usize| Changes { size: Some(size as u64), ..Changes::default() };
        let open = async |flags| vfs.open(file, OpenFlags { use_extent: true, ..flags }).await.unwrap();
        match self {
            Self::Write => {
                let handle = open(OpenFlags::WRITE).await;
                vfs.write(handle, 100_000, Bytes::from(vec![9; 70_000])).await.unwrap();
                vfs.close(handle).await.unwrap();
                bytes[100_000..170_000].fill(9);
            }
            Self::Append => {
                let handle = open(OpenFlags::APPEND).await;
                vfs.write(handle, 0, Bytes::from(vec![9; 7000])).await.unwrap();
                vfs.close(handle).await.unwrap();
                bytes.resize(bytes.len() + 7000, 9);
            }
            Self::Truncate => {
                assert_eq!(vfs.change(file, resize(70_000)).await.unwrap().size, 70_000);
                bytes.truncate(70_000);
            }
            Self::TruncateByOpen => {
                let handle = open(OpenFlags { truncate: true, ..OpenFlags::WRITE }).await;
                vfs.close(handle).await.unwrap();
                bytes.clear();
            }
            Self::Grow => {
                vfs.change(file, resize(2 * LARGE)).await.unwrap();
                bytes.resize(2 * LARGE, 0);
            }
            Self::Punch => {
                let handle = open(OpenFlags::WRITE).await;
                vfs.allocate(handle, 50_000, 120_000, AllocateMode::PunchHole).await.unwrap();
                vfs.close(handle).await.unwrap();
                bytes[50_000..170_000].fill(0);
            }
            Self::SetTimes => {
                let modified = Some(TimeChange::At(Timestamp { secs: 5, nanos: 7 }));
                vfs.change(file, Changes { modified, ..Changes::default() }).await.unwrap();
            }
            Self::Chmod => drop(vfs.change(file, Changes { mode: Some(0o600), ..Changes::default() }).await.unwrap()),
            Self::ReadByOpen => assert!(vfs.read_file(b"f").await.unwrap() == *bytes),
            Self::WritePastPool | Self::MapAndKeepOpen => {
                let handle = open(OpenFlags::READ_WRITE).await;
                if let Some(backing) = vfs.backing(handle) {
                    rustix::io::pwrite(backing.as_fd(), b"past", 200_000).unwrap();
                } else {
                    vfs.write(handle, 200_000, Bytes::from_static(b"past")).await.unwrap();
                }
                bytes[200_000..200_004].copy_from_slice(b"past");
                if let Self::WritePastPool = self {
                    vfs.close(handle).await.unwrap();
                }
            }
            Self::Unlink => {
                vfs.unlink(FileId::ROOT, b"f").await.unwrap();
                bytes.clear();
            }
            Self::Rename => {
                vfs.rename(from(FileId::ROOT, "f"), to(FileId::ROOT, "g"), RenameMode::Replace).await.unwrap();
                vfs.rename(from(FileId::ROOT, "g"), to(FileId::ROOT, "f"), RenameMode::Replace).await.unwrap();
            }
            Self::Replace => {
                vfs.write_file(b"new", b"another").await.unwrap();
                vfs.rename(from(FileId::ROOT, "new"), to(FileId::ROOT, "f"), RenameMode::Replace).await.unwrap();
                *bytes = b"another".to_vec();
            }
            Self::MovePartition => hand_on(pool, file.partition()).await.unwrap(),
            Self::MoveAll => move_all(pool).await,
        }
    }
}

/// An event before a message of a copy. Returns whether there was such a message.
async fn interrupt(event: FileEvent, before: u64) -> bool {
    let (pool, replicas) = arenas(0);
    let patient =
        RetryPolicy { tries: 60, pause_first: Duration::from_micros(10), pause_max: Duration::from_millis(1) };
    let truth = pool.over(|node| node, patient).await;
    let file = leave(&pool, &truth, &some_bytes(LARGE)).await;
    let expected = Arc::new(Mutex::new(some_bytes(LARGE)));
    let happening = {
        let (pool, truth, expected) = (pool.clone(), truth.clone(), expected.clone());
        async move {
            let mut bytes = some_bytes(LARGE);
            event.happen((&pool, &truth), file, &mut bytes).await;
            *expected.lock() = bytes;
        }
    };
    let interruption = Interruption::new(u64::MAX, false, happening);
    let connect = |node| InterruptedConnection { inner: Arc::new(node), interruption: interruption.clone() };
    let copying = pool.over(connect, IMPATIENT).await;
    interruption.before.store(before, Relaxed);
    do_host_work(&pool, &copying).await;
    let happened = interruption.has_begun();
    interruption.end().await;
    let check = async |when| {
        let found = truth.read_file(b"f").await.unwrap_or_default();
        assert!(found == *expected.lock(), "{event:?} before message {before}: {when}");
    };
    check("at once").await;
    if let FileEvent::MapAndKeepOpen = event {
        truth.end_session().await.unwrap();
    }
    for _ in 0..4 {
        do_host_work(&pool, &copying).await;
    }
    check("later").await;
    let hosted: usize = pool.nodes().iter().map(|node| node.hosted_files()).sum();
    assert_eq!(hosted, 0, "{event:?} before message {before}");
    if !matches!(event, FileEvent::Unlink) {
        truth.unlink(FileId::ROOT, b"f").await.unwrap();
    }
    for _ in 0..2 {
        do_host_work(&pool, &copying).await;
    }
    assert_eq!(used(&pool), 0, "{event:?} before message {before}");
    assert!(replicas.entries().all > 0);
    happened
}

#[tokio::test]
async fn locks_are_released_while_a_file_is_copied() {
    let (pool, _) = arenas(0);
    let vfs = pool.client().await;
    let program = vfs.create_for_program(FileId::ROOT, b"locked", 0o644, OWNER, OPEN).await.unwrap();
    let locked = program.attributes.file;
    let lock = |owner| Lock { owner, kind: LockKind::Write, style: LockStyle::EVERYWHERE, pid: 1 };
    vfs.client().lock(locked, lock(LockOwner::THIS_PROCESS), false).await.unwrap();
    leave(&pool, &vfs, &some_bytes(LARGE)).await;
    vfs.client().lock(locked, lock(LockOwner::THIS_PROCESS), false).await.unwrap();
    let ending = {
        let (pool, vfs) = (pool.clone(), vfs.clone());
        async move {
            pool.nodes()[0].unlock_on_close(std::process::id(), program.lease.id);
            while vfs.client().test_lock(locked, lock(LockOwner::Session(1))).await.unwrap().is_some() {
                tokio::task::yield_now().await;
            }
        }
    };
    let interruption = Interruption::new(u64::MAX, true, ending);
    let connect = |node| InterruptedConnection { inner: Arc::new(node), interruption: interruption.clone() };
    let copying = pool.over(connect, IMPATIENT).await;
    interruption.before.store(8, Relaxed);
    let first = &pool.nodes()[0];
    let done = tokio::time::timeout(Duration::from_secs(20), copying.client().do_host_work(first)).await;
    assert!(interruption.has_begun() && done.is_ok(), "the release waits for the copy");
}

#[tokio::test]
async fn whatever_happens_to_a_file_between_two_messages_of_its_copy_is_not_lost() {
    for event in FileEvent::ALL {
        let mut messages = 0;
        while interrupt(event, messages).await {
            messages += 1;
        }
        assert!(messages > 8, "{event:?}: {messages}");
    }
}

/// A change whose part on the inode is done before a copy begins, and its part on the extent before
/// a message of the copy. Returns whether there was such a message.
async fn finish_before(message: u64) -> bool {
    let (pool, _) = arenas(0);
    let truth = pool.client().await;
    let file = leave(&pool, &truth, &some_bytes(LARGE)).await;
    let session = pool.client().await.client().session();
    let command = Command::Change { file, changes: Changes { size: Some(100_000), ..Changes::default() } };
    let request = move |epoch, body| Request { epoch, session, skip_ack: false, partition: file.partition(), body };
    let request_id = |number| Some(RequestId { session, number, settled: number });
    let epoch = pool.nodes()[1].served_epoch(file.partition()).unwrap();
    let change = request(epoch, Body::Meta { request_id: request_id(500), command: command.clone() });
    let Ok(Answer::Hosted(HostedAnswer { answer, .. })) = pool.nodes()[1].handle(change).await else {
        panic!("its bytes are at node 1")
    };
    let (first, is_done) = (pool.nodes()[0].clone(), Arc::new(Mutex::new(false)));
    let finishing = {
        let is_done = is_done.clone();
        let body = Body::Finish { request_id: request_id(501), file, command: Box::new(command), answer };
        async move { *is_done.lock() = first.handle(request(Epoch::FIRST, body)).await.is_ok() }
    };
    let interruption = Interruption::new(u64::MAX, false, finishing);
    let connect = |node| InterruptedConnection { inner: Arc::new(node), interruption: interruption.clone() };
    let copying = pool.over(connect, IMPATIENT).await;
    interruption.before.store(message, Relaxed);
    for _ in 0..2 {
        do_host_work(&pool, &copying).await;
    }
    assert_eq!(truth.stat(file).await.unwrap().extent, None);
    let length = if *is_done.lock() { 100_000 } else { LARGE };
    assert!(truth.read_file(b"f").await.unwrap() == some_bytes(LARGE)[..length], "before message {message}");
    interruption.has_begun()
}

#[tokio::test]
async fn a_change_that_reached_the_inode_before_a_copy_and_the_extent_during_it_is_not_lost() {
    let mut message = 0;
    while finish_before(message).await {
        message += 1;
    }
    assert!(message > 8, "{message}");
}

#[tokio::test]
async fn a_copy_that_was_not_ended_leaves_nothing_in_the_next_one() {
    let mut given_up = 0;
    for calls in 0..40 {
        let (pool, _) = arenas(0);
        let truth = pool.client().await;
        let file = leave(&pool, &truth, &some_bytes(LARGE)).await;
        let remaining = Arc::new(AtomicU64::new(u64::MAX));
        let dying = pool.over(|node| CrashingConnection::sharing(node, remaining.clone()), IMPATIENT).await;
        remaining.store(calls, Relaxed);
        let died = dying.client().do_host_work(&pool.nodes()[0]).await.is_err();
        if died && pool.nodes()[0].frozen_evacuation(file).is_none() {
            given_up += 1;
            for size in [1000, LARGE as u64] {
                truth.change(file, Changes { size: Some(size), ..Changes::default() }).await.unwrap();
            }
            do_host_work(&pool, &truth).await;
            let mut bytes = some_bytes(1000);
            bytes.resize(LARGE, 0);
            assert!(truth.read_file(b"f").await.unwrap() == bytes, "after {calls} calls");
        } else {
            do_host_work(&pool, &truth).await;
            assert!(truth.read_file(b"f").await.unwrap() == some_bytes(LARGE), "after {calls} calls");
        }
        assert_eq!(truth.stat(file).await.unwrap().extent, None, "after {calls} calls");
        truth.unlink(FileId::ROOT, b"f").await.unwrap();
        assert_eq!(used(&pool), 0, "after {calls} calls");
    }
    assert!(given_up > 8, "{given_up}");
}

/// Large files that are copied over a bad connection, while they are changed and their partitions
/// move. Returns how many copies were refused.
async fn try_faulty(seed: u64) -> u32 {
    let (pool, replicas) = arenas(0);
    let (truth, count) = (pool.client().await, AtomicU64::new(seed * 100));
    let faulty = |node| FaultyConnection::new(node, FaultRates::MANY, count.fetch_add(1, Relaxed));
    let copying = pool.over(faulty, RetryPolicy { tries: 4, ..IMPATIENT }).await;
    let (mut random, mut refused, mut bytes) = (Random::new(seed), 0, some_bytes(LARGE));
    let file = leave(&pool, &truth, &bytes).await;
    let harmless = [FileEvent::Write, FileEvent::Append, FileEvent::WritePastPool, FileEvent::ReadByOpen];
    for _ in 0..12 {
        for node in pool.nodes() {
            refused += u32::from(copying.client().do_host_work(node).await.is_err());
        }
        // While the outcome of a copy is not known, the file waits for it.
        let is_frozen = pool.nodes().iter().any(|node| node.frozen_evacuation(file).is_some());
        if !is_frozen && random.one_in(3) {
            random.pick(&harmless).happen((&pool, &truth), file, &mut bytes).await;
        }
        if random.one_in(3) {
            hand_on(&pool, file.partition()).await.unwrap();
        }
    }
    while pool.nodes().iter().any(|node| node.hosted_files() > 0 || node.has_host_work()) {
        for node in pool.nodes() {
            drop(copying.client().do_host_work(node).await);
        }
    }
    assert!(truth.read_file(b"f").await.unwrap() == bytes, "seed {seed}");
    truth.unlink(FileId::ROOT, b"f").await.unwrap();
    for _ in 0..2 {
        do_host_work(&pool, &truth).await;
    }
    copying.end_session().await.unwrap_or_default();
    assert!(replicas.entries().all > 0);
    refused
}

#[tokio::test]
async fn a_file_that_is_copied_over_a_bad_connection_loses_nothing() {
    let mut refused = 0;
    for seed in 0..100 {
        refused += try_faulty(seed).await;
    }
    assert!(refused > 20, "{refused}");
}

/// A pool whose second node has little memory.
fn with_small_second() -> Pool {
    let sizes = Mutex::new(vec![1 << 20, 64 << 20]);
    let settings = NodeSettings { space_wait: Duration::ZERO, ..Replicas::logged(4096).0 };
    Pool::start_at_one(2, &settings, || {
        let memory = sizes.lock().pop().unwrap();
        let options = ArenaOptions { stripe_bytes: STRIPE, ..ArenaOptions::with_capacity(memory) };
        Arc::new(Arena::new(options).unwrap()) as Arc<dyn Engine>
    })
}

/// Has the first node do its work, which fails for lack of space.
async fn find_no_space(pool: &Pool, vfs: &Vfs) {
    let failed = vfs.client().do_host_work(&pool.nodes()[0]).await;
    assert!(matches!(failed, Err(Refusal::NoSpace(_))), "{failed:?}");
}

#[tokio::test]
async fn a_large_file_for_which_there_is_no_space_stays_until_there_is() {
    let pool = with_small_second();
    let vfs = pool.client().await;
    let bytes = some_bytes(2 << 20);
    let file = leave(&pool, &vfs, &bytes).await;
    let before = pool.nodes()[1].usage().used;
    for _ in 0..2 {
        find_no_space(&pool, &vfs).await;
        assert_eq!(pool.nodes()[1].usage().used, before, "nothing was copied in vain");
    }
    assert!(vfs.read_file(b"f").await.unwrap() == bytes);
    vfs.change(file, Changes { size: Some(100_000), ..Changes::default() }).await.unwrap();
    do_host_work(&pool, &vfs).await;
    assert_eq!(vfs.stat(file).await.unwrap().extent, None);
    assert!(vfs.read_file(b"f").await.unwrap() == bytes[..100_000]);
}

/// Fills the node of the stripes before a message of a copy. Returns whether there was such a
/// message, and no space for the copy.
async fn fill_before(message: u64) -> bool {
    let pool = with_small_second();
    let truth = pool.client().await;
    let bytes = some_bytes(9 * STRIPE as usize);
    let file = leave(&pool, &truth, &bytes).await;
    let other = {
        let truth = truth.clone();
        async move { drop(truth.write_file(b"other", &some_bytes(12 * STRIPE as usize)).await) }
    };
    let interruption = Interruption::new(u64::MAX, false, other);
    let connect = |node| InterruptedConnection { inner: Arc::new(node), interruption: interruption.clone() };
    let copying = pool.over(connect, IMPATIENT).await;
    interruption.before.store(message, Relaxed);
    if copying.client().do_host_work(&pool.nodes()[0]).await.is_ok() {
        return false;
    }
    assert!(interruption.has_begun());
    let used = pool.nodes()[1].usage().used;
    assert!(used < 13 * u64::from(STRIPE), "before message {message}: the copy takes space, {used}");
    find_no_space(&pool, &copying).await;
    assert!(truth.read_file(b"f").await.unwrap() == bytes);
    truth.unlink(FileId::ROOT, b"other").await.unwrap();
    do_host_work(&pool, &copying).await;
    assert_eq!(truth.stat(file).await.unwrap().extent, None);
    assert!(truth.read_file(b"f").await.unwrap() == bytes);
    true
}

#[tokio::test]
async fn a_copy_that_runs_out_of_space_frees_what_it_took() {
    let mut message = 0;
    while fill_before(message).await {
        message += 1;
    }
    assert!(message > 8, "{message}");
}
