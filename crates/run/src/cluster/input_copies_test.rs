//! Attempts read copies where there are some, and their inputs where there are none.

use super::{InputCopies, UsedCopies};
use crate::checked_workflow::CheckedWorkflow;
use crate::layout::{AttemptPlace, RunLayout};
use crate::order::AttemptOrder;
use crate::usage_refresh::NodeUsages;
use crate::workspace::{PoolStorage, StagedStorage, StorageModes, Workspace};
use flow::{DataId, TaskId};
use placement::NodeId;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;
use wire::SpaceUsage;

/// A task that reads two inputs of one directory.
const FLOW: &str = r#"{"tidemill_flow": 1, "name": "f",
    "tools": [{"name": "cat", "command": ["cat", "{a}", "{b}"],
        "params": [{"name": "a", "kind": {"input": {}}}, {"name": "b", "kind": {"input": {}}}]}],
    "elements": [{"name": "A", "input": "a"}, {"name": "B", "input": "b"}],
    "tasks": [{"tool": "cat", "files": {"a": "A", "b": "B"}}]}"#;
const A: DataId = DataId(0);
const NODE: NodeId = NodeId(1);
const CAPACITY: u64 = 32 << 20;

struct CopyBench {
    pool: Vfs,
    workspace: Workspace,
    usages: NodeUsages,
    copies: Arc<InputCopies>,
}

impl CopyBench {
    /// A pool with both inputs; tasks see it at `/mnt`.
    async fn new() -> Self {
        let direct = PoolStorage { root: PathBuf::from("/mnt").into(), preloaded: None };
        Self::with_modes(StorageModes { direct: Some(direct), ..StorageModes::default() }).await
    }

    async fn with_modes(modes: StorageModes) -> Self {
        let settings = node::NodeSettings::new(base::ByteSize(CAPACITY));
        let engine = store::ModelEngine::new(CAPACITY, settings.stripe_bytes);
        let pool = Vfs::new(client::Client::embedded(node::embedded(settings, Arc::new(engine))));
        pool.make_directories(b"data").await.expect("made");
        for name in ["data/a", "data/b"] {
            pool.write_file(name.as_bytes(), &vec![7; 100_000]).await.expect("written");
        }
        let usages = NodeUsages::default();
        let workspace = Workspace::new(pool.clone(), modes, CancellationToken::new());
        let copies = InputCopies::new(pool.clone(), NODE, usages_of(&usages, 0));
        Self { pool, workspace, usages, copies }
    }

    /// An order with the copies that it reads.
    async fn acquire(&self) -> (AttemptOrder, UsedCopies) {
        let mut order = order();
        let used = self.copies.acquire(&mut order, &self.workspace, &CancellationToken::new()).await;
        (order, used)
    }

    fn arguments(&self, order: &AttemptOrder) -> Vec<String> {
        self.workspace.command(order).args
    }

    async fn exists(&self, place: &str) -> bool {
        self.pool.resolve(place.as_bytes()).await.is_ok()
    }
}

/// Lets the node have this much in use.
fn usages_of(usages: &NodeUsages, used: u64) -> NodeUsages {
    usages.set([(NODE, SpaceUsage { capacity: CAPACITY, used, ..SpaceUsage::default() })].into_iter());
    usages.clone()
}

/// An order of which the first input is shared.
fn order() -> AttemptOrder {
    let flow = CheckedWorkflow::new(flow::from_json(FLOW, "f.json").expect("read"), None).expect("right");
    let place = AttemptPlace { attempt: 1, node: None };
    let mut order = AttemptOrder::new(&flow, &RunLayout::default(), (TaskId(0), place), "cat".into(), &|_| None);
    order.inputs[0].is_shared = true;
    order
}

#[tokio::test]
async fn attempts_share_one_copy_and_find_their_other_inputs_beside_it() {
    let bench = CopyBench::new().await;
    let ((first, one), (second, two)) = tokio::join!(bench.acquire(), bench.acquire());
    for order in [first, second] {
        assert_eq!(bench.arguments(&order), ["/mnt/n1/cache/data/a", "/mnt/n1/cache/data/b"]);
    }
    assert_eq!((&one.cached[..], &two.cached[..]), (&[][..], &[A][..]), "the first one had it made");
    let copy = bench.pool.resolve(b"n1/cache/data/a").await.expect("it is there");
    assert_eq!((copy.size, copy.mode & 0o222), (100_000, 0));
    let link = bench.pool.resolve(b"n1/cache/data/b").await.expect("it is there").file;
    assert_eq!(bench.pool.read_link(link).await.expect("a link"), b"/mnt/data/b");
    bench.copies.release(one).await;
    assert!(bench.exists("n1/cache/data/b").await, "another attempt uses the link");
    bench.copies.release(two).await;
    assert!(!bench.exists("n1/cache/data/b").await && bench.exists("n1/cache/data/a").await);
    assert_eq!(bench.copies.held().iter().map(|copy| copy.data).collect::<Vec<_>>(), [A]);
}

#[tokio::test]
async fn a_source_that_has_changed_is_read_itself_until_there_is_a_new_copy() {
    let bench = CopyBench::new().await;
    let (_, used) = bench.acquire().await;
    bench.copies.release(used).await;
    bench.pool.write_file(b"data/a", &vec![8; 100_000]).await.expect("written");
    let mut changes = bench.copies.changes();
    let (order, used) = bench.acquire().await;
    assert_eq!(bench.arguments(&order), ["/mnt/data/a", "/mnt/data/b"]);
    assert_eq!(used.cached, []);
    bench.copies.release(used).await;
    while bench.exists("n1/cache/data/a").await {
        changes.changed().await.expect("it goes on");
    }
    let (order, used) = loop {
        let (order, used) = bench.acquire().await;
        if order.inputs[0].copy.is_some() {
            break (order, used);
        }
        bench.copies.release(used).await;
        changes.changed().await.expect("it goes on");
    };
    assert_eq!(order.inputs[0].copy.as_deref(), Some(Path::new("n1/cache/data/a")));
    assert_eq!(bench.pool.read_file(b"n1/cache/data/a").await.expect("read")[0], 8);
    bench.copies.release(used).await;
}

#[tokio::test]
async fn a_node_that_gets_full_loses_its_copies_and_makes_none() {
    let bench = CopyBench::new().await;
    let (_, used) = bench.acquire().await;
    usages_of(&bench.usages, CAPACITY / 100 * 85);
    bench.copies.relieve();
    assert_eq!(bench.copies.held().len(), 1, "an attempt uses it");
    bench.copies.release(used).await;
    let mut changes = bench.copies.changes();
    bench.copies.relieve();
    assert_eq!(bench.copies.held(), []);
    while bench.exists("n1/cache/data/a").await {
        changes.changed().await.expect("it goes on");
    }
    let (order, used) = bench.acquire().await;
    assert_eq!(bench.arguments(&order), ["/mnt/data/a", "/mnt/data/b"]);
    bench.copies.release(used).await;
    assert!(!bench.exists("n1/cache/data/b").await, "no link without a copy");
}

#[tokio::test]
async fn members_that_nobody_reads_any_more_lose_their_copies() {
    let bench = CopyBench::new().await;
    let (_, used) = bench.acquire().await;
    bench.copies.drop_data(&[A]);
    assert!(bench.exists("n1/cache/data/a").await, "an attempt uses it");
    bench.copies.release(used).await;
    assert!(!bench.exists("n1/cache/data/a").await);
}

#[tokio::test]
async fn staged_attempts_have_copies_on_the_ram_disk_from_those_at_the_node() {
    let disk = tempfile::tempdir().expect("made");
    let staged = StagedStorage::new(disk.path().to_path_buf());
    let bench = CopyBench::with_modes(StorageModes { staged: Some(staged), ..StorageModes::default() }).await;
    let (order, used) = bench.acquire().await;
    assert!(order.inputs[0].copy.is_some() && order.inputs[1].copy.is_none());
    let at = |name: &str| disk.path().join(name).display().to_string();
    assert_eq!(bench.arguments(&order), [at("data/a"), at("data/b")]);
    bench.pool.remove_tree(b"data/a").await.expect("removed");
    bench.workspace.prepare_task(&order, &bench.workspace.command(&order)).await.expect("its copy is there");
    assert_eq!(std::fs::read(at("data/a")).expect("read").len(), 100_000);
    bench.copies.release(used).await;
}
