//! Placement of bytes: by the policy of a directory or file, at the nodes that are reported, over
//! pools of one to eight nodes.

use crate::{
    Connection, FdLeaseFuture, InProcessConnection, Objects, ProgramFdFuture,
    objects::Condition,
    pool_test::*,
    testing::{CountingConnection, FaultRates, FaultyConnection},
};
use bytes::Bytes;
use node::{BackingFd, NodeSettings, OnInvalidate, ReplyFuture};
use parking_lot::Mutex;
use placement::{FileId, NodeId, PartitionId, PlacementSpec, Policy, StripeNo, StripeSize};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use store::{Engine, ModelEngine, StripeKey, StripeStore};
use wire::{
    AllocateMode, Changes, Extent, Kind, LOCATE, OpenFlags, Outcome, PLACEMENT, Refusal, RenameMode, Request,
    STRIPE_SIZE, SeekTo, Session, XattrMode, codec::ProgramFd,
};

/// A pool with its engines, so that the test can see their content.
struct InspectedPool {
    pool: Pool,
    engines: Vec<Arc<ModelEngine>>,
}

impl InspectedPool {
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
        let key = |partition| StripeKey { partition: PartitionId(partition), file, stripe: StripeNo(stripe) };
        let partitions = 0..u16::try_from(self.pool.nodes()[0].settings().partitions).unwrap();
        let holds = |engine: &Arc<ModelEngine>| {
            partitions.clone().any(|partition| !engine.read(key(partition), 0, 1).unwrap().is_empty())
        };
        (1..).zip(&self.engines).filter(|(_, engine)| holds(engine)).map(|(node, _)| node).collect()
    }

    /// Checks that a file's stripes are where `locate` reports them, and nowhere else. Returns the
    /// number of nodes that have some.
    async fn check(&self, fs: &TestFs, file: FileId, stripe_bytes: u32) -> usize {
        let (located, size) = (fs.locate(file).await.unwrap(), fs.stat(file).await.unwrap().size);
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
async fn connect_at(pool: &Pool, own: u32) -> TestFs {
    pool.over(|node| LocalConnection { in_process: node.0.id() == NodeId(own), inner: node }, IMPATIENT).await
}

/// A pool and a client whose local node is not the first, if there are more; and that node's
/// number.
async fn inspected_with_local(nodes: u32) -> (InspectedPool, TestFs, u32) {
    let (inspected, own) = (InspectedPool::of(nodes), nodes.min(3));
    let fs = connect_at(&inspected.pool, own).await;
    (inspected, fs, own)
}

/// A connection to a node that is in this process or not, as the test sets it.
#[derive(Debug)]
struct LocalConnection {
    inner: InProcessConnection,
    in_process: bool,
}

impl Connection for LocalConnection {
    fn call(&self, request: Request) -> ReplyFuture {
        self.inner.call(request)
    }

    fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<BackingFd> {
        self.inner.backing(extent, flags)
    }

    fn dup_fd_for_program(&self, dup_fd_for_program: ProgramFd) -> Option<ProgramFdFuture> {
        self.inner.dup_fd_for_program(dup_fd_for_program)
    }

    fn lease_fd(&self, extent: Extent, flags: OpenFlags) -> Option<FdLeaseFuture> {
        self.inner.lease_fd(extent, flags)
    }

    fn is_on_local_host(&self) -> bool {
        true
    }

    fn is_in_process(&self) -> bool {
        self.in_process
    }

    fn subscribe(&self, session: Session, on_invalidate: &OnInvalidate) -> ReplyFuture {
        self.inner.subscribe(session, on_invalidate)
    }
}

async fn set(fs: &TestFs, file: FileId, name: &[u8], value: &str) -> Outcome<()> {
    fs.set_xattr(file, name, Bytes::copy_from_slice(value.as_bytes()), XattrMode::Set, false).await
}

async fn get(fs: &TestFs, file: FileId, name: &[u8]) -> Outcome<String> {
    fs.xattr(file, name).await.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

async fn directory(fs: &TestFs, path: &str, placement: &str) -> FileId {
    let made = fs.make_directories(path.as_bytes()).await.unwrap().file;
    set(fs, made, PLACEMENT, placement).await.unwrap();
    made
}

fn pattern(length: usize) -> Vec<u8> {
    (1..=251).cycle().take(length).collect()
}

async fn write(fs: &TestFs, path: &str, length: usize) -> FileId {
    let file = fs.write_file(path.as_bytes(), &pattern(length)).await.unwrap().file;
    assert!(fs.read_file(path.as_bytes()).await.unwrap() == pattern(length), "{path}");
    file
}

const LARGE: usize = 9 * STRIPE as usize + 777;

#[tokio::test]
async fn bytes_lie_where_a_policy_says_and_locate_tells_the_same_before_and_after() {
    for nodes in NODES {
        let (inspected, fs, own) = inspected_with_local(nodes).await;
        let before = fs.usage();
        let last = format!("at({nodes})");
        for policy in ["striped", "single", "here", &last, "balanced"] {
            let parent = directory(&fs, &format!("d/{policy}"), policy).await;
            for number in 0..8 {
                let name = format!("f{number}");
                let expected = fs.expected_location(parent, Some(name.as_bytes())).await.unwrap();
                let file = write(&fs, &format!("d/{policy}/{name}"), LARGE).await;
                let count = inspected.check(&fs, file, STRIPE).await;
                let shares = fs.locate(file).await.unwrap().shares();
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
                assert_eq!(expected.inode, Some(fs.locate(file).await.unwrap().inode), "{policy}");
            }
        }
        fs.remove_tree(b"d").await.unwrap();
        let after = fs.usage();
        assert_eq!((after.used, after.files, after.stripes), (before.used, before.files, 0), "{nodes} nodes");
    }
}

#[tokio::test]
async fn objects_lie_as_their_directory_says_whatever_they_were_put_by_and_whoever_knew_it() {
    for nodes in NODES {
        let (inspected, fs, _) = inspected_with_local(nodes).await;
        let (objects, used) = (Objects::new(fs.0.clone()), fs.usage().used);
        let parent = fs.make_directories(b"d").await.unwrap().file;
        let last = format!("at({nodes})");
        // Each time the client still has the directory's previous policy cached.
        for policy in ["striped", "single", "here", &last, "balanced", "striped"] {
            set(&fs, parent, PLACEMENT, policy).await.unwrap();
            for (name, length) in [("small", 100), ("stripe", STRIPE as usize), ("long", LARGE), ("again", LARGE)] {
                let expected = fs.expected_location(parent, Some(name.as_bytes())).await.unwrap();
                let key = format!("d/{name}");
                let put = objects.put(key.as_bytes(), Bytes::from(pattern(length)), Condition::Always).await.unwrap();
                assert!(fs.read_file(key.as_bytes()).await.unwrap() == pattern(length), "{policy} {name}");
                if name == "small" {
                    continue;
                }
                inspected.check(&fs, put.file, STRIPE).await;
                let shares = fs.locate(put.file).await.unwrap().shares();
                let told = |node: NodeId| expected.nodes.iter().any(|(told, _)| *told == node);
                assert!(policy == "balanced" || shares.iter().all(|(node, _)| told(*node)), "{policy} {name}");
                assert!(policy == "striped" || shares.len() == 1, "{policy} {name}");
                assert_eq!(get(&fs, put.file, PLACEMENT).await.unwrap(), policy);
            }
        }
        let whole =
            PlacementSpec { policy: Some(Policy::At(NodeId(nodes))), stripe_size: StripeSize::new(64 << 10).ok() };
        let elsewhere = objects.with_placement(whole).unwrap();
        for length in [STRIPE as usize, LARGE] {
            let put = elsewhere.put(b"d/long", Bytes::from(pattern(length)), Condition::Always).await.unwrap();
            assert_eq!(fs.locate(put.file).await.unwrap().shares(), [(NodeId(nodes), length as u64)]);
        }
        let mut upload = elsewhere.upload(b"d/again", Condition::Always).await.unwrap();
        upload.write(Bytes::from(pattern(LARGE))).await.unwrap();
        let put = upload.finish().await.unwrap();
        assert_eq!(fs.locate(put.file).await.unwrap().shares(), [(NodeId(nodes), LARGE as u64)]);
        let nowhere = objects.with_placement(PlacementSpec { policy: Some(Policy::At(NodeId(99))), stripe_size: None });
        assert!(matches!(nowhere, Err(Refusal::Invalid { .. })), "{nowhere:?}");
        fs.remove_tree(b"d").await.unwrap();
        objects.close().await.unwrap();
        let judge = inspected.pool.client().await;
        assert_eq!((judge.usage().used, judge.usage().stripes), (used, 0), "what was written in vain is gone");
    }
}

#[tokio::test]
async fn a_directory_that_says_where_bytes_lie_is_asked_once() {
    for nodes in NODES {
        let (pool, calls) = (Pool::of(nodes), Arc::new(AtomicU64::new(0)));
        let fs = pool.over(|node| CountingConnection::new(node, calls.clone()), IMPATIENT).await;
        let objects = Objects::new(fs.0.clone());
        directory(&fs, "d", "at(1)").await;
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
    let inspected = InspectedPool::of(4);
    let fs = inspected.pool.client().await;
    directory(&fs, "d", "single").await;
    let mut shares = [0; 4];
    for number in 0..64 {
        let file = write(&fs, &format!("d/f{number}"), 5000).await;
        shares[fs.locate(file).await.unwrap().shares()[0].0.0 as usize - 1] += 1;
    }
    assert!(shares.iter().all(|share| *share > 4), "{shares:?}");
}

#[tokio::test]
async fn what_is_made_below_a_directory_lies_as_it_says_and_its_inodes_are_there_too() {
    for nodes in NODES {
        let inspected = InspectedPool::of(nodes);
        let (first, last) = (connect_at(&inspected.pool, 1).await, connect_at(&inspected.pool, nodes).await);
        directory(&first, "here", "here").await;
        directory(&first, "there", &format!("at({nodes})")).await;
        for (number, fs, path) in
            [(0, &last, "here"), (1, &first, "there"), (2, &last, "here/deep"), (3, &last, "there/deep")]
        {
            let inner = format!("{path}/in{number}/below/it");
            let made = fs.make_directories(inner.as_bytes()).await.unwrap().file;
            let policy = get(fs, made, PLACEMENT).await.unwrap();
            assert_eq!(policy, if path.starts_with("here") { "here".to_owned() } else { format!("at({nodes})") });
            let file = write(fs, &format!("{inner}/f"), LARGE).await;
            let located = fs.locate(file).await.unwrap();
            assert_eq!((located.inode, located.shares()), (NodeId(nodes), vec![(NodeId(nodes), LARGE as u64)]));
            inspected.check(fs, file, STRIPE).await;
        }
    }
}

#[tokio::test]
async fn the_inodes_of_a_split_directory_stay_at_the_node_that_it_names() {
    for nodes in NODES {
        let fs = Pool::that_splits(nodes, 8).client().await;
        directory(&fs, "d", &format!("at({nodes})")).await;
        fs.make_directories(b"d/below").await.unwrap();
        for number in 0..40 {
            let file = write(&fs, &format!("d/below/f{number}"), 10).await;
            assert_eq!(fs.locate(file).await.unwrap().inode, NodeId(nodes));
        }
    }
}

#[tokio::test]
async fn a_directory_hands_its_placement_down_also_when_it_is_split() {
    for nodes in NODES {
        let fs = Pool::that_splits(nodes, 8).client().await;
        let before = directory(&fs, "before", &format!("at({nodes})")).await;
        set(&fs, before, STRIPE_SIZE, "4MiB").await.unwrap();
        let after = fs.make_directories(b"after").await.unwrap().file;
        for parent in [before, after] {
            for number in 0..40 {
                fs.make_symlink(parent, format!("l{number}").as_bytes(), b"t", OWNER).await.unwrap();
            }
        }
        set(&fs, after, PLACEMENT, &format!("at({nodes})")).await.unwrap();
        set(&fs, after, STRIPE_SIZE, "4MiB").await.unwrap();
        let wrong = set(&fs, after, PLACEMENT, "nowhere").await;
        assert!(matches!(wrong, Err(Refusal::Invalid { .. })), "{wrong:?}");
        for (parent, path) in [(before, "before"), (after, "after")] {
            let make = |mode| fs.set_xattr(parent, PLACEMENT, Bytes::from(format!("at({nodes})")), mode, false);
            assert!(matches!(make(XattrMode::Create).await, Err(Refusal::Exists(_))));
            make(XattrMode::Replace).await.unwrap();
            for number in 0..20 {
                let inner =
                    fs.make_directory(parent, format!("s{number}").as_bytes(), 0o755, OWNER).await.unwrap().file;
                let file = write(&fs, &format!("{path}/f{number}"), 3 * STRIPE as usize).await;
                assert_eq!(fs.locate(file).await.unwrap().shares()[0].0, NodeId(nodes));
                for made in [inner, file] {
                    assert_eq!(get(&fs, made, PLACEMENT).await.unwrap(), format!("at({nodes})"));
                    assert_eq!(get(&fs, made, STRIPE_SIZE).await.unwrap(), "4194304");
                    assert!(fs.xattrs(made).await.unwrap().is_empty(), "handed down, not set: it is not listed");
                }
            }
            assert_eq!(fs.xattrs(parent).await.unwrap(), [PLACEMENT, STRIPE_SIZE]);
            fs.remove_xattr(parent, PLACEMENT).await.unwrap();
            fs.remove_xattr(parent, STRIPE_SIZE).await.unwrap();
            assert!(matches!(fs.remove_xattr(parent, STRIPE_SIZE).await, Err(Refusal::NoAttribute(_))));
            assert!(matches!(make(XattrMode::Replace).await, Err(Refusal::NoAttribute(_))));
            for number in 20..40 {
                let file = write(&fs, &format!("{path}/f{number}"), 5000).await;
                assert!(matches!(fs.xattr(file, PLACEMENT).await, Err(Refusal::NoAttribute(_))));
            }
        }
    }
}

#[tokio::test]
async fn a_file_may_lie_elsewhere_as_long_as_it_fits_beside_its_inode() {
    for nodes in NODES {
        let inspected = InspectedPool::of(nodes);
        let fs = inspected.pool.client().await;
        let there = format!("at({nodes})");
        let file = write(&fs, "f", 4096).await;
        set(&fs, file, PLACEMENT, &there).await.unwrap();
        set(&fs, file, STRIPE_SIZE, "128KiB").await.unwrap();
        assert_eq!(fs.xattrs(file).await.unwrap(), [PLACEMENT, STRIPE_SIZE]);
        assert_eq!(write(&fs, "f", LARGE).await, file);
        inspected.check(&fs, file, STRIPE).await;
        assert_eq!(fs.locate(file).await.unwrap().shares(), [(NodeId(nodes), LARGE as u64)]);
        set(&fs, file, PLACEMENT, &there).await.unwrap();
        for (name, value) in [(PLACEMENT, "striped"), (PLACEMENT, "here"), (STRIPE_SIZE, "64KiB")] {
            assert!(matches!(set(&fs, file, name, value).await, Err(Refusal::AlreadyPlaced(_))), "{value}");
        }
        assert!(matches!(fs.remove_xattr(file, PLACEMENT).await, Err(Refusal::AlreadyPlaced(_))));
        fs.rename(from(FileId::ROOT, "f"), to(FileId::ROOT, "g"), RenameMode::Replace).await.unwrap();
        assert_eq!(fs.read_file(b"g").await.unwrap(), pattern(LARGE));
    }
}

#[tokio::test]
async fn placements_that_cannot_be_are_refused_and_change_nothing() {
    let fs = Pool::of(4).client().await;
    let parent = directory(&fs, "d", "at(4)").await;
    for wrong in ["", "nowhere", "at", "at(0)", "at(5)", "at(99)", "at(x)", "Striped", "whole\0"] {
        let refused = set(&fs, parent, PLACEMENT, wrong).await;
        assert!(matches!(refused, Err(Refusal::Invalid { .. })), "{wrong}: {refused:?}");
    }
    for wrong in ["", "0", "3", "32768", "65537", "128MiB", "1G", "many"] {
        let refused = set(&fs, parent, STRIPE_SIZE, wrong).await;
        assert!(matches!(refused, Err(Refusal::Invalid { .. })), "{wrong}: {refused:?}");
    }
    assert_eq!(get(&fs, parent, PLACEMENT).await.unwrap(), "at(4)");
    assert!(matches!(get(&fs, parent, STRIPE_SIZE).await, Err(Refusal::NoAttribute(_))));
    let file = write(&fs, "f", 10).await;
    for read_only in [parent, file] {
        assert!(matches!(set(&fs, read_only, LOCATE, "x").await, Err(Refusal::NotPermitted(_))));
        assert!(matches!(set(&fs, read_only, b"user.tidemill.else", "x").await, Err(Refusal::NotPermitted(_))));
    }
    let link = fs.make_symlink(FileId::ROOT, b"l", b"t", OWNER).await.unwrap().file;
    let pipe = fs.make_node(FileId::ROOT, b"p", Kind::Fifo, 0o600, OWNER).await.unwrap().file;
    for other in [link, pipe] {
        assert!(matches!(set(&fs, other, PLACEMENT, "single").await, Err(Refusal::NotPermitted(_))));
        assert!(matches!(get(&fs, other, LOCATE).await, Err(Refusal::NoAttribute(_))));
    }
    let make = |mode| fs.set_xattr(parent, PLACEMENT, Bytes::from_static(b"here"), mode, false);
    assert!(matches!(make(XattrMode::Create).await, Err(Refusal::Exists(_))));
    make(XattrMode::Replace).await.unwrap();
    fs.remove_xattr(parent, PLACEMENT).await.unwrap();
    assert!(matches!(make(XattrMode::Replace).await, Err(Refusal::NoAttribute(_))));
    assert!(matches!(fs.remove_xattr(parent, PLACEMENT).await, Err(Refusal::NoAttribute(_))));
}

#[tokio::test]
async fn an_attribute_that_is_not_listed_tells_where_bytes_are() {
    let fs = Pool::of(4).client().await;
    let parent = directory(&fs, "d", "at(3)").await;
    let (small, large) = (write(&fs, "d/small", 10).await, write(&fs, "d/large", LARGE).await);
    let inode = fs.locate(small).await.unwrap().inode;
    let told = format!(r#"{{"inode":{inode},"nodes":[{{"node":{inode},"bytes":10}}]}}"#);
    assert_eq!(get(&fs, small, LOCATE).await.unwrap(), told);
    assert!(get(&fs, large, LOCATE).await.unwrap().ends_with(&format!(r#""nodes":[{{"node":3,"bytes":{LARGE}}}]}}"#)));
    assert_eq!(get(&fs, parent, LOCATE).await.unwrap(), r#"{"placement":"at(3)","nodes":[{"node":3,"share":1.0000}]}"#);
    assert_eq!(fs.xattrs(parent).await.unwrap(), [PLACEMENT]);
}

#[tokio::test]
async fn what_is_left_of_a_file_is_located_where_it_is_and_holes_are_nowhere() {
    for nodes in NODES {
        let inspected = InspectedPool::of(nodes);
        let fs = inspected.pool.client().await;
        directory(&fs, "d", &format!("at({nodes})")).await;
        let file = write(&fs, "d/f", LARGE).await;
        let to = |size| Changes { size: Some(size), ..Changes::default() };
        fs.change_attributes(file, to(100)).await.unwrap();
        assert_eq!(inspected.check(&fs, file, STRIPE).await, 1, "few bytes, in a stripe all the same");
        assert_eq!(fs.locate(file).await.unwrap().bytes, [(0..100, NodeId(nodes))]);
        fs.change_attributes(file, to(i64::MAX as u64)).await.unwrap();
        assert_eq!(fs.locate(file).await.unwrap().bytes, [(0..STRIPE.into(), NodeId(nodes))], "at once, too");
    }
}

#[tokio::test]
async fn stripes_are_as_long_as_a_file_asks_and_its_bytes_are_the_same() {
    for nodes in NODES {
        let usual = 256 << 10;
        let inspected = InspectedPool::with(nodes, 64 << 20, &NodeSettings { stripe_bytes: usual, ..settings_of() });
        let fs = inspected.pool.client().await;
        for (size, stripe) in [("64KiB", 64 << 10), ("256KiB", usual), ("1MiB", usual), ("64MiB", usual)] {
            let parent = fs.make_directories(format!("d/{size}").as_bytes()).await.unwrap().file;
            set(&fs, parent, STRIPE_SIZE, size).await.unwrap();
            let length = 3 * (1 << 20) + 77;
            let file = write(&fs, &format!("d/{size}/f"), length).await;
            inspected.check(&fs, file, stripe).await;
            let located = fs.locate(file).await.unwrap();
            let piece: u64 = if size == "64MiB" {
                64 << 20
            } else {
                u64::from(stripe.max(if size == "1MiB" { 1 << 20 } else { 0 }))
            };
            let inner = &located.bytes[..located.bytes.len() - 1];
            assert!(inner.iter().all(|(range, _)| range.end % piece == 0), "{size}: {located:?}");
            let handle = fs.open(file, OpenFlags::READ_WRITE).await.unwrap();
            fs.change_attributes(file, Changes { size: Some(100_000), ..Changes::default() }).await.unwrap();
            fs.change_attributes(file, Changes { size: Some(700_000), ..Changes::default() }).await.unwrap();
            fs.allocate(handle, 0, 65_536, AllocateMode::PunchHole).await.unwrap();
            fs.write(handle, 600_000, Bytes::from_static(b"end")).await.unwrap();
            let mut expected = pattern(length);
            expected.truncate(100_000);
            expected[..65_536].fill(0);
            expected.resize(700_000, 0);
            expected[600_000..600_003].copy_from_slice(b"end");
            assert!(fs.read_file(format!("d/{size}/f").as_bytes()).await.unwrap() == expected, "{size}");
            if stripe == 64 << 10 {
                assert_eq!(fs.seek(handle, 0, SeekTo::Data).await, Ok(65_536), "holes are as fine as stripes");
            }
            fs.close_file(handle).await.unwrap();
        }
        fs.remove_tree(b"d").await.unwrap();
        assert_eq!(fs.usage().stripes, 0);
    }
}

#[tokio::test]
async fn balanced_files_go_where_there_is_most_room() {
    let inspected = InspectedPool::small(4);
    let fs = inspected.pool.client().await;
    directory(&fs, "full", "at(2)").await;
    write(&fs, "full/f", 6 << 20).await;
    directory(&fs, "d", "balanced").await;
    let mut shares = [0; 4];
    for number in 0..24 {
        let file = write(&fs, &format!("d/f{number}"), 512 << 10).await;
        shares[fs.locate(file).await.unwrap().shares()[0].0.0 as usize - 1] += 1;
    }
    // Only roughly even: the client refreshes the nodes' usage only after a while.
    assert!(shares[1] == 0 && [0, 2, 3].iter().all(|other| (4..=12).contains(&shares[*other])), "{shares:?}");
}

#[tokio::test]
async fn a_full_node_is_full_for_what_lies_there_and_avoided_by_what_may_choose() {
    let inspected = InspectedPool::small(2);
    let fs = inspected.pool.client().await;
    directory(&fs, "d", "at(2)").await;
    let parent = directory(&fs, "b", "balanced").await;
    let (_, handle) = fs.create(FileId::ROOT, b"x", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    fs.close_file(handle).await.unwrap();
    let refused = fs.write_file(b"d/f", &vec![1; 9 << 20]).await;
    assert!(matches!(refused, Err(Refusal::NoSpace(_))), "{refused:?}");
    assert!(fs.expected_location(parent, None).await.unwrap().nodes == [(NodeId(1), 1.0)]);
    let file = write(&fs, "b/f", LARGE).await;
    assert_eq!(fs.locate(file).await.unwrap().shares(), [(NodeId(1), LARGE as u64)]);
}

#[tokio::test]
async fn what_a_client_held_of_placed_files_goes_with_its_session() {
    for nodes in NODES {
        let inspected = InspectedPool::of(nodes);
        let (one, other) = (inspected.pool.client().await, inspected.pool.client().await);
        let parent = directory(&one, "d", &format!("at({nodes})")).await;
        let file = write(&one, "d/f", LARGE).await;
        one.open(file, OpenFlags::READ).await.unwrap();
        one.unlink(parent, b"f").await.unwrap();
        let flags = OpenFlags::READ_WRITE;
        let (_, handle) = one.create_unnamed(parent, 0o600, OWNER, flags, true).await.unwrap();
        one.write(handle, 0, Bytes::from(pattern(LARGE))).await.unwrap();
        assert!(inspected.engines[nodes as usize - 1].usage().stripes >= 20);
        other.recover(one.session()).await.unwrap();
        assert_eq!(other.usage().stripes, 0);
    }
}

#[tokio::test]
async fn saying_where_a_file_lies_takes_two_messages_more_once() {
    for nodes in NODES {
        let (pool, calls) = (Pool::of(nodes), Arc::new(AtomicU64::new(0)));
        let fs = pool.over(|node| CountingConnection::new(node, calls.clone()), IMPATIENT).await;
        for (policy, more) in [("single", 0), ("here", 2), ("at(1)", 2)] {
            let parent = directory(&fs, policy, policy).await;
            let (_, handle) = fs.create(parent, b"f", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
            for expected in [3 + more, 2] {
                let before = calls.load(Relaxed);
                fs.write(handle, 0, Bytes::from(vec![7; STRIPE as usize])).await.unwrap();
                assert_eq!(calls.load(Relaxed) - before, expected, "{policy}");
            }
        }
    }
}

#[tokio::test]
async fn two_clients_that_place_one_file_agree() {
    for seed in 0..20 {
        let inspected = InspectedPool::of(4);
        let lossy = |own: u32| {
            let pool = &inspected.pool;
            let retry_policy = crate::RetryPolicy { tries: 60, pause_first: Duration::ZERO, pause_max: Duration::ZERO };
            let wrap = move |node: InProcessConnection| LocalConnection {
                in_process: node.0.id() == NodeId(own),
                inner: node,
            };
            let inner = move |node| FaultyConnection::new(wrap(node), FaultRates::MANY, seed + u64::from(own));
            pool.over(inner, retry_policy)
        };
        let (one, other) = (lossy(2).await, lossy(3).await);
        directory(&one, "d", "here").await;
        let file = one.write_file(b"d/f", b"head").await.unwrap().file;
        let flags = OpenFlags::READ_WRITE;
        let (handle, second) = (one.open(file, flags).await.unwrap(), other.open(file, flags).await.unwrap());
        let half = STRIPE as usize * 2;
        let (first, last) = tokio::join!(
            one.write(handle, 0, Bytes::from(vec![1; half])),
            other.write(second, half as u64, Bytes::from(vec![2; half])),
        );
        assert_eq!((first, last), (Ok(2 * STRIPE), Ok(2 * STRIPE)), "seed {seed}");
        let judge = inspected.pool.client().await;
        let bytes = judge.read_file(b"d/f").await.unwrap();
        assert!(bytes[..half].iter().all(|byte| *byte == 1) && bytes[half..].iter().all(|byte| *byte == 2));
        assert_eq!(inspected.check(&judge, file, STRIPE).await, 1, "seed {seed}");
    }
}

#[tokio::test]
async fn the_load_of_a_partition_tells_the_bytes_that_a_user_has_placed_there() {
    let inspected = InspectedPool::of(3);
    let fs = connect_at(&inspected.pool, 1).await;
    let placed = async || {
        let mut all = Vec::new();
        for node in inspected.pool.nodes() {
            let loads = node.partition_loads().await.unwrap();
            assert!(loads.values().all(|load| load.placed_bytes <= load.bytes));
            all.push(loads.values().map(|load| load.placed_bytes).sum::<u64>());
        }
        all
    };
    for policy in ["striped", "single", "balanced"] {
        directory(&fs, policy, policy).await;
        write(&fs, &format!("{policy}/f"), 200_000).await;
    }
    assert_eq!(placed().await, [0, 0, 0]);
    for (path, policy) in [("there", "at(3)"), ("here", "here"), ("small", "at(2)")] {
        directory(&fs, path, policy).await;
        fs.make_directories(format!("{path}/d").as_bytes()).await.unwrap();
    }
    write(&fs, "there/d/f", 200_000).await;
    write(&fs, "here/d/f", 100_000).await;
    write(&fs, "small/d/f", 10).await;
    assert_eq!(placed().await, [100_000, 10, 200_000], "the last in the inode");
}
