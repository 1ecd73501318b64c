//! Copies on the RAM disk are made for their first reader and removed with their last, whatever
//! happens to the readers.

use crate::checked_workflow::CheckedWorkflow;
use crate::layout::{self, AttemptPlace, RunLayout};
use crate::order::AttemptOrder;
use crate::run_files::RunFiles;
use crate::workspace::{CollectResult, PoolStorage, StagedStorage, StorageModes, Workspace};
use flow::{DataId, TaskId};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// `make` writes A; two tasks read A and write B and C.
const FLOW: &str = r#"{"tidemill_flow": 1, "name": "f",
    "tools": [
        {"name": "make", "command": ["make", "{to}"], "params": [{"name": "to", "kind": {"output": {}}}]},
        {"name": "cp", "command": ["cp", "{from}", "{to}"], "params": [
            {"name": "from", "kind": {"input": {}}}, {"name": "to", "kind": {"output": {}}}]}],
    "elements": [{"name": "A"}, {"name": "B"}, {"name": "C"}],
    "tasks": [{"tool": "make", "files": {"to": "A"}},
        {"tool": "cp", "files": {"from": "A", "to": "B"}},
        {"tool": "cp", "files": {"from": "A", "to": "C"}}]}"#;

const A: DataId = DataId(0);
const B: DataId = DataId(1);
const MAKE: TaskId = TaskId(0);
const FIRST: TaskId = TaskId(1);
const SECOND: TaskId = TaskId(2);

/// A workspace over the model engine, with A written by its task.
struct Bench {
    space: Workspace,
    flow: Arc<CheckedWorkflow>,
    disk: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        let flow = Arc::new(CheckedWorkflow::new(flow::from_json(FLOW, "f.json").unwrap(), None).unwrap());
        let settings = node::NodeSettings::new(base::ByteSize::mib(32));
        let engine = store::ModelEngine::new(32 << 20, settings.stripe_bytes);
        let pool = vfs::Vfs::new(client::Client::embedded(node::embedded(settings, Arc::new(engine))));
        let disk = tempfile::tempdir().unwrap();
        let modes =
            StorageModes { staged: Some(StagedStorage::new(disk.path().to_path_buf())), ..StorageModes::default() };
        let space = Workspace::new(pool, modes, CancellationToken::new());
        let bench = Self { space, flow, disk };
        bench.prepare_task(MAKE).await;
        fs::write(bench.path_of(A), "tide").unwrap();
        assert!(
            matches!(bench.space.collect(&bench.order(MAKE), false).await.unwrap(), CollectResult::All(made) if made[0].bytes == 4)
        );
        bench
    }

    async fn prepare_task(&self, task: TaskId) {
        let order = self.order(task);
        self.space.prepare_task(&order, &self.space.command(&order)).await.unwrap();
    }

    fn order(&self, task: TaskId) -> AttemptOrder {
        {
            let first = AttemptPlace { attempt: 1, node: None };
            AttemptOrder::new(&self.flow, &RunLayout::default(), (task, first), PathBuf::new(), &|_| None)
        }
    }

    fn run_files(&self) -> RunFiles {
        let pool = self.space.base.pool.clone();
        RunFiles::new(pool, self.flow.clone(), (PathBuf::new(), false), CancellationToken::new())
    }

    /// Path of a member on the RAM disk.
    fn path_of(&self, id: DataId) -> PathBuf {
        self.disk.path().join(layout::member(&self.flow, id))
    }

    fn dir_of(&self, task: TaskId) -> PathBuf {
        self.disk.path().join(layout::task_dir(&self.flow, task))
    }

    fn copy_of_a(&self) -> bool {
        self.path_of(A).exists()
    }
}

#[tokio::test]
async fn a_copy_goes_with_its_last_reader() {
    let bench = Bench::new().await;
    assert!(!bench.copy_of_a(), "after its writer nobody reads it yet");
    bench.prepare_task(FIRST).await;
    bench.prepare_task(SECOND).await;
    bench.space.discard(&bench.order(FIRST)).await.unwrap();
    assert!(bench.copy_of_a(), "the second task still reads it");
    assert_eq!(fs::read(bench.path_of(A)).unwrap(), b"tide");
    fs::write(bench.path_of(DataId(2)), "out").unwrap();
    assert!(matches!(bench.space.collect(&bench.order(SECOND), false).await.unwrap(), CollectResult::All(_)));
    assert!(!bench.copy_of_a());
    assert!(!bench.dir_of(SECOND).exists());
}

#[tokio::test]
async fn what_a_run_makes_is_asked_to_lie_at_its_own_node() {
    let bench = Bench::new().await;
    bench.run_files().set_local_placement().await.unwrap();
    bench.prepare_task(FIRST).await;
    fs::write(bench.path_of(B), "tide").unwrap();
    assert!(matches!(bench.space.collect(&bench.order(FIRST), false).await.unwrap(), CollectResult::All(_)));
    let made = bench.space.base.pool.resolve(layout::member(&bench.flow, B).as_os_str().as_bytes()).await.unwrap().file;
    assert_eq!(bench.space.base.pool.xattr(made, wire::PLACEMENT).await.unwrap(), "here");
}

#[tokio::test]
async fn an_output_in_a_directory_that_is_a_link_is_refused() {
    let bench = Bench::new().await;
    bench.prepare_task(FIRST).await;
    let default_cwd = tempfile::tempdir().unwrap();
    fs::write(default_cwd.path().join("B"), "of others").unwrap();
    fs::remove_dir_all(bench.dir_of(FIRST)).unwrap();
    std::os::unix::fs::symlink(default_cwd.path(), bench.dir_of(FIRST)).unwrap();
    let CollectResult::Missing(missing) = bench.space.collect(&bench.order(FIRST), false).await.unwrap() else {
        panic!("what lies elsewhere was taken over")
    };
    assert_eq!(missing[0].found, "its directory is a symbolic link, and the pool keeps files");
    bench.space.discard(&bench.order(FIRST)).await.unwrap();
    assert!(!bench.dir_of(FIRST).is_symlink());
    assert_eq!(fs::read(default_cwd.path().join("B")).unwrap(), b"of others", "what the link led to stays");
}

#[tokio::test]
async fn a_missing_output_keeps_the_directory_until_it_is_discarded_and_then_all_goes() {
    let bench = Bench::new().await;
    bench.prepare_task(FIRST).await;
    let CollectResult::Missing(missing) = bench.space.collect(&bench.order(FIRST), false).await.unwrap() else {
        panic!("B was not written")
    };
    assert_eq!((missing[0].name.as_str(), missing[0].found), ("B", "nothing is there"));
    bench.space.discard(&bench.order(FIRST)).await.unwrap();
    assert!(!bench.copy_of_a() && !bench.dir_of(FIRST).exists());
}

#[tokio::test]
async fn a_failed_attempt_leaves_nothing_in_the_pool() {
    let bench = Bench::new().await;
    let before = bench.space.usage().files;
    bench.prepare_task(FIRST).await;
    fs::write(bench.path_of(B), "half").unwrap();
    assert!(matches!(bench.space.collect(&bench.order(FIRST), false).await.unwrap(), CollectResult::All(_)));
    bench.prepare_task(FIRST).await;
    bench.space.discard(&bench.order(FIRST)).await.unwrap();
    assert_eq!(bench.space.usage().files, before, "B was brought into the pool, and is gone");
}

#[tokio::test]
async fn a_task_that_cannot_have_its_input_holds_nothing() {
    let bench = Bench::new().await;
    let mut files = bench.run_files();
    files.drop_member(A, 0);
    files.close();
    let order = bench.order(FIRST);
    let error = bench.space.prepare_task(&order, &bench.space.command(&order)).await.unwrap_err();
    assert!(!error.is_no_space());
    assert!(!bench.copy_of_a() && !bench.dir_of(FIRST).exists());
}

#[tokio::test]
async fn tasks_of_one_run_may_work_in_the_pool_and_on_copies() {
    let bench = Bench::new().await;
    let pool = bench.space.base.pool.clone();
    let modes = StorageModes {
        direct: Some(PoolStorage { root: "/pool".into(), preloaded: None }),
        staged: Some(StagedStorage::new(bench.disk.path().to_path_buf())),
        copied: [bench.flow.task(MAKE).tool].into(),
    };
    let both = Workspace::new(pool.clone(), modes, CancellationToken::new());
    let (make, first) = (bench.order(MAKE), bench.order(FIRST));
    assert!(both.command(&make).args[0].starts_with(bench.disk.path().to_str().unwrap()));
    assert_eq!(both.command(&first).args[0], format!("/pool/{}", layout::member(&bench.flow, A).display()));
    both.prepare_task(&first, &both.command(&first)).await.unwrap();
    assert!(!bench.copy_of_a(), "its reader sees it in the pool");
    pool.write_file(layout::member(&bench.flow, B).as_os_str().as_encoded_bytes(), b"tide").await.unwrap();
    assert!(matches!(both.collect(&first, false).await.unwrap(), CollectResult::All(made) if made[0].bytes == 4));
    both.prepare_task(&make, &both.command(&make)).await.unwrap();
    assert!(bench.dir_of(MAKE).exists());
    let bytes = |order| both.ram_disk_bytes_of(order).is_some();
    assert_eq!((bytes(&make), bytes(&first)), (true, false), "what works in the pool has no copies");
}

#[tokio::test]
async fn a_failed_attempt_that_is_left_stands_in_the_pool_as_it_was() {
    let bench = Bench::new().await;
    bench.prepare_task(FIRST).await;
    fs::create_dir(bench.dir_of(FIRST).join("deep")).unwrap();
    fs::write(bench.dir_of(FIRST).join("deep/half"), "tide").unwrap();
    bench.space.leave(&bench.order(FIRST)).await.unwrap();
    assert!(!bench.copy_of_a() && !bench.dir_of(FIRST).exists());
    let place = format!("{}/deep/half", layout::task_dir(&bench.flow, FIRST));
    assert_eq!(bench.space.base.pool.read_file(place.as_bytes()).await.unwrap(), b"tide");
}
