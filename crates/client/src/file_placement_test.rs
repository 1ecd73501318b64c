//! Placement of bytes: by the policy of a directory or file, at the nodes that are reported, over
//! pools of one to eight nodes.

use crate::{Vfs, pool_test::*};
use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use client::{
    Connection, FdLeaseFuture, InProcessConnection, Objects, ProgramFdFuture,
    objects::Condition,
    testing::{CountingConnection, FaultRates, FaultyConnection},
};
use node::{BackingFd, NodeSettings, OnInvalidate, ReplyFuture};
use parking_lot::Mutex;
use placement::{FileId, NodeId, PlacementSpec, Policy, StripeNo, StripeSize};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use store::{Engine, ModelEngine, StripeKey};
use wire::{
    AllocateMode, Changes, Extent, Kind, LOCATE, OpenFlags, Outcome, PLACEMENT, Refusal, RenameMode, Request,
    STRIPE_SIZE, SeekTo, Session, XattrMode, codec::ProgramFd,
};

/// A pool with its engines, so that the test can see their content.
struct LeaseStatus {
    pool: Pool,
    engines: Vec<Arc<ModelEngine>>,
}

impl LeaseStatus {
    fn with(nodes: u32, memory: u64, settings: &NodeSettings) -> Self {
        let made = Mutex::new(Vec::new());
        let engine = || {
            let engine = Arc::new(ModelEngine::new(memory, settings.stripe_bytes));
            made.lock().push(engine.clone());
            engine as Arc<dyn Engine>
        };
        let pool = Pool::start(nodes, settings, engine);
        Self { pool, engines: made.into_inner() }
    }

    fn of(nodes: u32) -> Self {
        Self::with(nodes, 64 << 20, &settings_of())
    }

    /// A pool with nodes of 8 MiB.
    fn small(nodes: u32) -> Self {
        Self::with(nodes, 8 << 20, &settings_of())
    }

    /// The nodes that hold bytes of a stripe.
    fn holders(&self, file: FileId, stripe: u64) -> Vec<u32> {
        let key = StripeKey { file, stripe: StripeNo(stripe) };
        let holds = |engine: &Arc<ModelEngine>| !engine.read(key, 0, 1).unwrap().is_empty();
        (1..).zip(&self.engines).filter(|(_, engine)| holds(engine)).map(|(node, _)| node).collect()
    }

    /// Checks that a file's stripes are where `locate` reports them, and nowhere else. Returns the
    /// number of nodes that have some.
    async fn check(&self, vfs: &Vfs, file: FileId, stripe_bytes: u32) -> usize {
        let (located, size) = (vfs.locate(file).await.unwrap(), vfs.stat(file).await.unwrap().size);
        assert_eq!(located.bytes.iter().map(|(range, _)| range.end - range.start).sum::<u64>(), size);
        for stripe in 0..size.div_ceil(stripe_bytes.into()) {
            let at = stripe * u64::from(stripe_bytes);
            let (_, told) = located.bytes.iter().find(|(range, _)| range.contains(&at)).unwrap();
            assert_eq!(self.holders(file, stripe), [told.0], "stripe {stripe} of {file}");
        }
        located.shares().len()
    }
}

fn settings_of() -> NodeSettings {
    NodeSettings { space_wait: Duration::ZERO, ..settings() }
}

/// A client whose local node is this one.
async fn at(pool: &Pool, own: u32) -> Vfs {
    pool.over(|node| Beside { inside: node.0.id() == NodeId(own), way: node }, IMPATIENT).await
}

/// A pool and a client whose local node is not the first, if there are more; and that node's
/// number.
async fn looked_at(nodes: u32) -> (LeaseStatus, Vfs, u32) {
    let (looked, own) = (LeaseStatus::of(nodes), nodes.min(3));
    let vfs = at(&looked.pool, own).await;
    (looked, vfs, own)
}

/// A connection to a node that is in this process or not, as the test sets it.
#[derive(Debug)]
struct Beside {
    way: InProcessConnection,
    inside: bool,
}

impl Connection for Beside {
    fn call(&self, request: Request) -> ReplyFuture {
        self.way.call(request)
    }

    fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<BackingFd> {
        self.way.backing(extent, flags)
    }

    fn dup_fd_for_program(&self, obtain: ProgramFd) -> Option<ProgramFdFuture> {
        self.way.dup_fd_for_program(obtain)
    }

    fn lease_fd(&self, extent: Extent, flags: OpenFlags) -> Option<FdLeaseFuture> {
        self.way.lease_fd(extent, flags)
    }

    fn is_on_local_host(&self) -> bool {
        true
    }

    fn is_in_process(&self) -> bool {
        self.inside
    }

    fn subscribe(&self, session: Session, hear: &OnInvalidate) -> ReplyFuture {
        self.way.subscribe(session, hear)
    }
}

async fn set(vfs: &Vfs, file: FileId, name: &[u8], value: &str) -> Outcome<()> {
    vfs.set_xattr(file, name, Bytes::copy_from_slice(value.as_bytes()), XattrMode::Set, false).await
}

async fn get(vfs: &Vfs, file: FileId, name: &[u8]) -> Outcome<String> {
    vfs.xattr(file, name).await.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

async fn directory(vfs: &Vfs, path: &str, placement: &str) -> FileId {
    let made = vfs.make_directories(path.as_bytes()).await.unwrap().file;
    set(vfs, made, PLACEMENT, placement).await.unwrap();
    made
}

fn pattern(length: usize) -> Vec<u8> {
    (1..=251).cycle().take(length).collect()
}

async fn write(vfs: &Vfs, path: &str, length: usize) -> FileId {
    let file = vfs.write_file(path.as_bytes(), &pattern(length)).await.unwrap().file;
    assert!(vfs.read_file(path.as_bytes()).await.unwrap() == pattern(length), "{path}");
    file
}

const LARGE: usize = 9 * STRIPE as usize + 777;

#[tokio::test]
async fn bytes_lie_where_a_policy_says_and_locate_tells_the_same_before_and_after() {
    for nodes in NODES {
        let (looked, vfs, own) = looked_at(nodes).await;
        let before = vfs.usage();
        let last = format!("at({nodes})");
        for policy in ["striped", "single", "here", &last, "balanced"] {
            let folder = directory(&vfs, &format!("d/{policy}"), policy).await;
            for number in 0..8 {
                let name = format!("f{number}");
                let expected = vfs.expected(folder, Some(name.as_bytes())).await.unwrap();
                let file = write(&vfs, &format!("d/{policy}/{name}"), LARGE).await;
                let count = looked.check(&vfs, file, STRIPE).await;
                let shares = vfs.locate(file).await.unwrap().shares();
                let told = |node: NodeId| expected.nodes.iter().any(|(told, _)| *told == node);
                // A balanced prediction holds only at its moment.
                assert!(policy == "balanced" || shares.iter().all(|(node, _)| told(*node)), "{policy}");
                let all: f64 = expected.nodes.iter().map(|(_, share)| share).sum();
                assert!((all - 1.0).abs() < 1e-9);
                match policy {
                    "striped" => assert_eq!(expected.nodes.len(), nodes as usize),
                    "here" => assert_eq!((count, shares[0].0), (1, NodeId(own))),
                    "single" | "balanced" => assert_eq!((count, expected.nodes.len()), (1, 1)),
                    _ => assert_eq!((count, shares[0].0), (1, NodeId(nodes))),
                }
                assert_eq!(expected.inode, Some(vfs.locate(file).await.unwrap().inode), "{policy}");
            }
        }
        vfs.remove_tree(b"d").await.unwrap();
        let after = vfs.usage();
        assert_eq!((after.used, after.files, after.stripes), (before.used, before.files, 0), "{nodes} nodes");
    }
}

#[tokio::test]
async fn objects_lie_as_their_folder_says_whatever_they_were_put_by_and_whoever_knew_it() {
    for nodes in NODES {
        let (looked, vfs, _) = looked_at(nodes).await;
        let (objects, used) = (Objects::new(vfs.client.clone()), vfs.usage().used);
        let folder = vfs.make_directories(b"d").await.unwrap().file;
        let last = format!("at({nodes})");
        // Each time the client still has the directory's previous policy cached.
        for policy in ["striped", "single", "here", &last, "balanced", "striped"] {
            set(&vfs, folder, PLACEMENT, policy).await.unwrap();
            for (name, length) in [("small", 100), ("stripe", STRIPE as usize), ("long", LARGE), ("again", LARGE)] {
                let expected = vfs.expected(folder, Some(name.as_bytes())).await.unwrap();
                let key = format!("d/{name}");
                let put = objects.put(key.as_bytes(), Bytes::from(pattern(length)), Condition::Always).await.unwrap();
                assert!(vfs.read_file(key.as_bytes()).await.unwrap() == pattern(length), "{policy} {name}");
                if name == "small" {
                    continue;
                }
                looked.check(&vfs, put.file, STRIPE).await;
                let shares = vfs.locate(put.file).await.unwrap().shares();
                let told = |node: NodeId| expected.nodes.iter().any(|(told, _)| *told == node);
                assert!(policy == "balanced" || shares.iter().all(|(node, _)| told(*node)), "{policy} {name}");
                assert!(policy == "striped" || shares.len() == 1, "{policy} {name}");
                assert_eq!(get(&vfs, put.file, PLACEMENT).await.unwrap(), policy);
            }
        }
        let whole =
            PlacementSpec { policy: Some(Policy::At(NodeId(nodes))), stripe_size: StripeSize::new(64 << 10).ok() };
        let elsewhere = objects.with_placement(whole).unwrap();
        for length in [STRIPE as usize, LARGE] {
            let put = elsewhere.put(b"d/long", Bytes::from(pattern(length)), Condition::Always).await.unwrap();
            assert_eq!(vfs.locate(put.file).await.unwrap().shares(), [(NodeId(nodes), length as u64)]);
        }
        let mut upload = elsewhere.upload(b"d/again", Condition::Always).await.unwrap();
        upload.write(Bytes::from(pattern(LARGE))).await.unwrap();
        let put = upload.finish().await.unwrap();
        assert_eq!(vfs.locate(put.file).await.unwrap().shares(), [(NodeId(nodes), LARGE as u64)]);
        let nowhere = objects.with_placement(PlacementSpec { policy: Some(Policy::At(NodeId(99))), stripe_size: None });
        assert!(matches!(nowhere, Err(Refusal::Invalid { .. })), "{nowhere:?}");
        vfs.remove_tree(b"d").await.unwrap();
        objects.close().await.unwrap();
        let judge = looked.pool.client().await;
        assert_eq!((judge.usage().used, judge.usage().stripes), (used, 0), "what was written in vain is gone");
    }
}

#[tokio::test]
async fn a_folder_that_says_where_bytes_lie_is_asked_once() {
    for nodes in NODES {
        let (pool, calls) = (Pool::of(nodes), Arc::new(AtomicU64::new(0)));
        let vfs = pool.over(|node| CountingConnection::new(node, calls.clone()), IMPATIENT).await;
        let objects = Objects::new(vfs.client.clone());
        directory(&vfs, "d", "at(1)").await;
        let mut counts = Vec::new();
        for _ in 0..4 {
            let before = calls.load(Relaxed);
            objects.put(b"d/k", Bytes::from(pattern(2 * STRIPE as usize)), Condition::Always).await.unwrap();
            counts.push(calls.load(Relaxed) - before);
        }
        // Reserve, two stripes, name; the replaced stripes are removed with one message if all are
        // at one node.
        assert!(counts[1..].iter().all(|count| *count <= 8) && counts[2] == counts[3], "{counts:?}");
    }
}

#[tokio::test]
async fn whole_files_spread_over_the_nodes() {
    let looked = LeaseStatus::of(4);
    let vfs = looked.pool.client().await;
    directory(&vfs, "d", "single").await;
    let mut shares = [0; 4];
    for number in 0..64 {
        let file = write(&vfs, &format!("d/f{number}"), 5000).await;
        shares[vfs.locate(file).await.unwrap().shares()[0].0.0 as usize - 1] += 1;
    }
    assert!(shares.iter().all(|share| *share > 4), "{shares:?}");
}

#[tokio::test]
async fn what_is_made_below_a_directory_lies_as_it_says_and_its_inodes_are_there_too() {
    for nodes in NODES {
        let looked = LeaseStatus::of(nodes);
        let (first, last) = (at(&looked.pool, 1).await, at(&looked.pool, nodes).await);
        directory(&first, "here", "here").await;
        directory(&first, "there", &format!("at({nodes})")).await;
        for (number, vfs, path) in
            [(0, &last, "here"), (1, &first, "there"), (2, &last, "here/deep"), (3, &last, "there/deep")]
        {
            let inner = format!("{path}/in{number}/below/it");
            let made = vfs.make_directories(inner.as_bytes()).await.unwrap().file;
            let policy = get(vfs, made, PLACEMENT).await.unwrap();
            assert_eq!(policy, if path.starts_with("here") { "here".to_owned() } else { format!("at({nodes})") });
            let file = write(vfs, &format!("{inner}/f"), LARGE).await;
            let located = vfs.locate(file).await.unwrap();
            assert_eq!((located.inode, located.shares()), (NodeId(nodes), vec![(NodeId(nodes), LARGE as u64)]));
            looked.check(vfs, file, STRIPE).await;
        }
    }
}

#[tokio::test]
async fn a_directory_hands_its_placement_down_also_when_it_is_split() {
    for nodes in NODES {
        let vfs = Pool::that_splits(nodes, 8).client().await;
        let before = directory(&vfs, "before", &format!("at({nodes})")).await;
        set(&vfs, before, STRIPE_SIZE, "4MiB").await.unwrap();
        let after = vfs.make_directories(b"after").await.unwrap().file;
        for folder in [before, after] {
            for number in 0..40 {
                vfs.make_symlink(folder, format!("l{number}").as_bytes(), b"t", OWNER).await.unwrap();
            }
        }
        set(&vfs, after, PLACEMENT, &format!("at({nodes})")).await.unwrap();
        set(&vfs, after, STRIPE_SIZE, "4MiB").await.unwrap();
        let wrong = set(&vfs, after, PLACEMENT, "nowhere").await;
        assert!(matches!(wrong, Err(Refusal::Invalid { .. })), "{wrong:?}");
        for (folder, path) in [(before, "before"), (after, "after")] {
            let make = |mode| vfs.set_xattr(folder, PLACEMENT, Bytes::from(format!("at({nodes})")), mode, false);
            assert!(matches!(make(XattrMode::Create).await, Err(Refusal::Exists(_))));
            make(XattrMode::Replace).await.unwrap();
            for number in 0..20 {
                let inner =
                    vfs.make_directory(folder, format!("s{number}").as_bytes(), 0o755, OWNER).await.unwrap().file;
                let file = write(&vfs, &format!("{path}/f{number}"), 3 * STRIPE as usize).await;
                assert_eq!(vfs.locate(file).await.unwrap().shares()[0].0, NodeId(nodes));
                for made in [inner, file] {
                    assert_eq!(get(&vfs, made, PLACEMENT).await.unwrap(), format!("at({nodes})"));
                    assert_eq!(get(&vfs, made, STRIPE_SIZE).await.unwrap(), "4194304");
                    assert!(vfs.xattrs(made).await.unwrap().is_empty(), "handed down, not set: it is not listed");
                }
            }
            assert_eq!(vfs.xattrs(folder).await.unwrap(), [PLACEMENT, STRIPE_SIZE]);
            vfs.remove_xattr(folder, PLACEMENT).await.unwrap();
            vfs.remove_xattr(folder, STRIPE_SIZE).await.unwrap();
            assert!(matches!(vfs.remove_xattr(folder, STRIPE_SIZE).await, Err(Refusal::NoAttribute(_))));
            assert!(matches!(make(XattrMode::Replace).await, Err(Refusal::NoAttribute(_))));
            for number in 20..40 {
                let file = write(&vfs, &format!("{path}/f{number}"), 5000).await;
                assert!(matches!(vfs.xattr(file, PLACEMENT).await, Err(Refusal::NoAttribute(_))));
            }
        }
    }
}

#[tokio::test]
async fn a_file_may_lie_elsewhere_as_long_as_it_fits_beside_its_inode() {
    for nodes in NODES {
        let looked = LeaseStatus::of(nodes);
        let vfs = looked.pool.client().await;
        let there = format!("at({nodes})");
        let file = write(&vfs, "f", 4096).await;
        set(&vfs, file, PLACEMENT, &there).await.unwrap();
        set(&vfs, file, STRIPE_SIZE, "128KiB").await.unwrap();
        assert_eq!(vfs.xattrs(file).await.unwrap(), [PLACEMENT, STRIPE_SIZE]);
        assert_eq!(write(&vfs, "f", LARGE).await, file);
        looked.check(&vfs, file, STRIPE).await;
        assert_eq!(vfs.locate(file).await.unwrap().shares(), [(NodeId(nodes), LARGE as u64)]);
        set(&vfs, file, PLACEMENT, &there).await.unwrap();
        for (name, value) in [(PLACEMENT, "striped"), (PLACEMENT, "here"), (STRIPE_SIZE, "64KiB")] {
            assert!(matches!(set(&vfs, file, name, value).await, Err(Refusal::AlreadyPlaced(_))), "{value}");
        }
        assert!(matches!(vfs.remove_xattr(file, PLACEMENT).await, Err(Refusal::AlreadyPlaced(_))));
        vfs.rename(from(FileId::ROOT, "f"), to(FileId::ROOT, "g"), RenameMode::Replace).await.unwrap();
        assert_eq!(vfs.read_file(b"g").await.unwrap(), pattern(LARGE));
    }
}

#[tokio::test]
async fn placements_that_cannot_be_are_refused_and_change_nothing() {
    let vfs = Pool::of(4).client().await;
    let folder = directory(&vfs, "d", "at(4)").await;
    for wrong in ["", "nowhere", "at", "at(0)", "at(5)", "at(99)", "at(x)", "Striped", "whole\0"] {
        let refused = set(&vfs, folder, PLACEMENT, wrong).await;
        assert!(matches!(refused, Err(Refusal::Invalid { .. })), "{wrong}: {refused:?}");
    }
    for wrong in ["", "0", "3", "32768", "65537", "128MiB", "1G", "many"] {
        let refused = set(&vfs, folder, STRIPE_SIZE, wrong).await;
        assert!(matches!(refused, Err(Refusal::Invalid { .. })), "{wrong}: {refused:?}");
    }
    assert_eq!(get(&vfs, folder, PLACEMENT).await.unwrap(), "at(4)");
    assert!(matches!(get(&vfs, folder, STRIPE_SIZE).await, Err(Refusal::NoAttribute(_))));
    let file = write(&vfs, "f", 10).await;
    for read_only in [folder, file] {
        assert!(matches!(set(&vfs, read_only, LOCATE, "x").await, Err(Refusal::NotPermitted(_))));
        assert!(matches!(set(&vfs, read_only, b"user.tidemill.else", "x").await, Err(Refusal::NotPermitted(_))));
    }
    let link = vfs.make_symlink(FileId::ROOT, b"l", b"t", OWNER).await.unwrap().file;
    let pipe = vfs.make_node(FileId::ROOT, b"p", Kind::Fifo, 0o600, OWNER).await.unwrap().file;
    for other in [link, pipe] {
        assert!(matches!(set(&vfs, other, PLACEMENT, "single").await, Err(Refusal::NotPermitted(_))));
        assert!(matches!(get(&vfs, other, LOCATE).await, Err(Refusal::NoAttribute(_))));
    }
    let make = |mode| vfs.set_xattr(folder, PLACEMENT, Bytes::from_static(b"here"), mode, false);
    assert!(matches!(make(XattrMode::Create).await, Err(Refusal::Exists(_))));
    make(XattrMode::Replace).await.unwrap();
    vfs.remove_xattr(folder, PLACEMENT).await.unwrap();
    assert!(matches!(make(XattrMode::Replace).await, Err(Refusal::NoAttribute(_))));
    assert!(matches!(vfs.remove_xattr(folder, PLACEMENT).await, Err(Refusal::NoAttribute(_))));
}

#[tokio::test]
async fn an_attribute_that_is_not_listed_tells_where_bytes_are() {
    let vfs = Pool::of(4).client().await;
    let folder = directory(&vfs, "d", "at(3)").await;
    let (small, large) = (write(&vfs, "d/small", 10).await, write(&vfs, "d/large", LARGE).await);
    let inode = vfs.locate(small).await.unwrap().inode;
    let told = format!(r#"{{"inode":{inode},"nodes":[{{"node":{inode},"bytes":10}}]}}"#);
    assert_eq!(get(&vfs, small, LOCATE).await.unwrap(), told);
    assert!(get(&vfs, large, LOCATE).await.unwrap().ends_with(&format!(r#""nodes":[{{"node":3,"bytes":{LARGE}}}]}}"#)));
    assert_eq!(
        get(&vfs, folder, LOCATE).await.unwrap(),
        r#"{"placement":"at(3)","nodes":[{"node":3,"share":1.0000}]}"#
    );
    assert_eq!(vfs.xattrs(folder).await.unwrap(), [PLACEMENT]);
}

#[tokio::test]
async fn what_is_left_of_a_file_is_located_where_it_is_and_holes_are_nowhere() {
    for nodes in NODES {
        let looked = LeaseStatus::of(nodes);
        let vfs = looked.pool.client().await;
        directory(&vfs, "d", &format!("at({nodes})")).await;
        let file = write(&vfs, "d/f", LARGE).await;
        let to = |size| Changes { size: Some(size), ..Changes::default() };
        vfs.change(file, to(100)).await.unwrap();
        assert_eq!(looked.check(&vfs, file, STRIPE).await, 1, "few bytes, in a stripe all the same");
        assert_eq!(vfs.locate(file).await.unwrap().bytes, [(0..100, NodeId(nodes))]);
        vfs.change(file, to(i64::MAX as u64)).await.unwrap();
        assert_eq!(vfs.locate(file).await.unwrap().bytes, [(0..STRIPE.into(), NodeId(nodes))], "at once, too");
    }
}

#[tokio::test]
async fn stripes_are_as_long_as_a_file_asks_and_its_bytes_are_the_same() {
    for nodes in NODES {
        let usual = 256 << 10;
        let looked = LeaseStatus::with(nodes, 64 << 20, &NodeSettings { stripe_bytes: usual, ..settings_of() });
        let vfs = looked.pool.client().await;
        for (size, stripe) in [("64KiB", 64 << 10), ("256KiB", usual), ("1MiB", usual), ("64MiB", usual)] {
            let folder = vfs.make_directories(format!("d/{size}").as_bytes()).await.unwrap().file;
            set(&vfs, folder, STRIPE_SIZE, size).await.unwrap();
            let length = 3 * (1 << 20) + 77;
            let file = write(&vfs, &format!("d/{size}/f"), length).await;
            looked.check(&vfs, file, stripe).await;
            let located = vfs.locate(file).await.unwrap();
            let piece: u64 = if size == "64MiB" {
                64 << 20
            } else {
                u64::from(stripe.max(if size == "1MiB" { 1 << 20 } else { 0 }))
            };
            let inner = &located.bytes[..located.bytes.len() - 1];
            assert!(inner.iter().all(|(range, _)| range.end % piece == 0), "{size}: {located:?}");
            let handle = vfs.open(file, OpenFlags::READ_WRITE).await.unwrap();
            vfs.change(file, Changes { size: Some(100_000), ..Changes::default() }).await.unwrap();
            vfs.change(file, Changes { size: Some(700_000), ..Changes::default() }).await.unwrap();
            vfs.allocate(handle, 0, 65_536, AllocateMode::PunchHole).await.unwrap();
            vfs.write(handle, 600_000, Bytes::from_static(b"end")).await.unwrap();
            let mut expected = pattern(length);
            expected.truncate(100_000);
            expected[..65_536].fill(0);
            expected.resize(700_000, 0);
            expected[600_000..600_003].copy_from_slice(b"end");
            assert!(vfs.read_file(format!("d/{size}/f").as_bytes()).await.unwrap() == expected, "{size}");
            if stripe == 64 << 10 {
                assert_eq!(vfs.seek(handle, 0, SeekTo::Data).await, Ok(65_536), "holes are as fine as stripes");
            }
            vfs.close(handle).await.unwrap();
        }
        vfs.remove_tree(b"d").await.unwrap();
        assert_eq!(vfs.usage().stripes, 0);
    }
}

#[tokio::test]
async fn short_stripes_and_objects_keep_no_room_that_nobody_will_want() {
    let memory = || Arc::new(Arena::new(ArenaOptions::with_capacity(64 << 20)).unwrap()) as Arc<dyn Engine>;
    let settings = NodeSettings { stripe_bytes: 1 << 20, ..settings_of() };
    for nodes in NODES {
        let vfs = Pool::start(nodes, &settings, memory).client().await;
        let objects = Objects::new(vfs.client.clone());
        let folder = directory(&vfs, "d", "striped").await;
        set(&vfs, folder, STRIPE_SIZE, "64KiB").await.unwrap();
        let before = vfs.usage().used;
        let (_, handle) = vfs.create(folder, b"f", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
        for at in 0..100 {
            vfs.write(handle, at * 30_000, Bytes::from(vec![1; 30_000])).await.unwrap();
        }
        vfs.close(handle).await.unwrap();
        for number in 0..8 {
            objects
                .put(format!("o{number}").as_bytes(), Bytes::from(vec![2; 250 << 10]), Condition::Always)
                .await
                .unwrap();
        }
        let used = vfs.usage().used - before;
        assert!((5_000_000..5_500_000).contains(&used), "{used} bytes are used for 5,048,000");
    }
}

#[tokio::test]
async fn balanced_files_go_where_there_is_most_room() {
    let looked = LeaseStatus::small(4);
    let vfs = looked.pool.client().await;
    directory(&vfs, "full", "at(2)").await;
    write(&vfs, "full/f", 6 << 20).await;
    directory(&vfs, "d", "balanced").await;
    let mut shares = [0; 4];
    for number in 0..24 {
        let file = write(&vfs, &format!("d/f{number}"), 512 << 10).await;
        shares[vfs.locate(file).await.unwrap().shares()[0].0.0 as usize - 1] += 1;
    }
    // Only roughly even: the client refreshes the nodes' usage only after a while.
    assert!(shares[1] == 0 && [0, 2, 3].iter().all(|other| (4..=12).contains(&shares[*other])), "{shares:?}");
}

#[tokio::test]
async fn a_full_node_is_full_for_what_lies_there_and_avoided_by_what_may_choose() {
    let looked = LeaseStatus::small(2);
    let vfs = looked.pool.client().await;
    directory(&vfs, "d", "at(2)").await;
    let folder = directory(&vfs, "b", "balanced").await;
    let (_, handle) = vfs.create(Vfs::root(), b"x", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    vfs.close(handle).await.unwrap();
    let refused = vfs.write_file(b"d/f", &vec![1; 9 << 20]).await;
    assert!(matches!(refused, Err(Refusal::NoSpace(_))), "{refused:?}");
    assert!(vfs.expected(folder, None).await.unwrap().nodes == [(NodeId(1), 1.0)]);
    let file = write(&vfs, "b/f", LARGE).await;
    assert_eq!(vfs.locate(file).await.unwrap().shares(), [(NodeId(1), LARGE as u64)]);
}

#[tokio::test]
async fn what_a_client_held_of_placed_files_goes_with_its_session() {
    for nodes in NODES {
        let looked = LeaseStatus::of(nodes);
        let (one, other) = (looked.pool.client().await, looked.pool.client().await);
        let folder = directory(&one, "d", &format!("at({nodes})")).await;
        let file = write(&one, "d/f", LARGE).await;
        one.open(file, OpenFlags::READ).await.unwrap();
        one.unlink(folder, b"f").await.unwrap();
        let flags = OpenFlags::READ_WRITE;
        let (_, handle) = one.create_unnamed(folder, 0o600, OWNER, flags, true).await.unwrap();
        one.write(handle, 0, Bytes::from(pattern(LARGE))).await.unwrap();
        assert!(looked.engines[nodes as usize - 1].usage().stripes >= 20);
        other.client.recover(one.client.session()).await.unwrap();
        assert_eq!(other.usage().stripes, 0);
    }
}

#[tokio::test]
async fn saying_where_a_file_lies_takes_two_messages_more_once() {
    for nodes in NODES {
        let (pool, calls) = (Pool::of(nodes), Arc::new(AtomicU64::new(0)));
        let vfs = pool.over(|node| CountingConnection::new(node, calls.clone()), IMPATIENT).await;
        for (policy, more) in [("single", 0), ("here", 2), ("at(1)", 2)] {
            let folder = directory(&vfs, policy, policy).await;
            let (_, handle) = vfs.create(folder, b"f", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
            for expected in [3 + more, 2] {
                let before = calls.load(Relaxed);
                vfs.write(handle, 0, Bytes::from(vec![7; STRIPE as usize])).await.unwrap();
                assert_eq!(calls.load(Relaxed) - before, expected, "{policy}");
            }
        }
    }
}

#[tokio::test]
async fn two_clients_that_place_one_file_agree() {
    for seed in 0..20 {
        let looked = LeaseStatus::of(4);
        let lossy = |own: u32| {
            let pool = &looked.pool;
            let retry_policy =
                client::RetryPolicy { tries: 60, pause_first: Duration::ZERO, pause_max: Duration::ZERO };
            let wrap = move |node: InProcessConnection| Beside { inside: node.0.id() == NodeId(own), way: node };
            let way = move |node| FaultyConnection::new(wrap(node), FaultRates::MANY, seed + u64::from(own));
            pool.over(way, retry_policy)
        };
        let (one, other) = (lossy(2).await, lossy(3).await);
        directory(&one, "d", "here").await;
        let file = one.write_file(b"d/f", b"head").await.unwrap().file;
        let open = |vfs: &Vfs| vfs.open(file, OpenFlags::READ_WRITE);
        let (handle, second) = (open(&one).await.unwrap(), open(&other).await.unwrap());
        let half = STRIPE as usize * 2;
        let (first, last) = tokio::join!(
            one.write(handle, 0, Bytes::from(vec![1; half])),
            other.write(second, half as u64, Bytes::from(vec![2; half])),
        );
        assert_eq!((first, last), (Ok(2 * STRIPE), Ok(2 * STRIPE)), "seed {seed}");
        let judge = looked.pool.client().await;
        let bytes = judge.read_file(b"d/f").await.unwrap();
        assert!(bytes[..half].iter().all(|byte| *byte == 1) && bytes[half..].iter().all(|byte| *byte == 2));
        assert_eq!(looked.check(&judge, file, STRIPE).await, 1, "seed {seed}");
    }
}
