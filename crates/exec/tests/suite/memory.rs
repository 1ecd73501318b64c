//! Tests of memory limits by control groups. Skipped, with a message, where no groups can be made.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use exec::{ExitReason, Launch, MemoryGroups, MemoryLimit, PlannedGroups, ProcessReport, remove_memory_groups, run};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const MIB: u64 = 1 << 20;

/// The groups of one test, removed at its end.
struct TestGroups {
    groups: Arc<MemoryGroups>,
    dir: PathBuf,
}

impl TestGroups {
    fn new(name: &str) -> Option<Self> {
        let made = PlannedGroups::find(&format!("tidemill-test-{}-{name}", std::process::id()));
        match made.and_then(PlannedGroups::make) {
            Ok(groups) => Some(Self { dir: groups.path().to_owned(), groups: Arc::new(groups) }),
            Err(why) => {
                eprintln!("skipped: no control groups here: {why}");
                None
            }
        }
    }

    async fn shell(&self, script: &str, own: u64) -> ProcessReport {
        self.shell_with(script, own, 0).await
    }

    async fn shell_with(&self, script: &str, own: u64, files: u64) -> ProcessReport {
        let mut launch = Launch::new("/bin/sh", "/");
        launch.args = vec!["-c".into(), script.into()];
        launch.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
        launch.memory = Some(MemoryLimit { groups: self.groups.clone(), own, files });
        run(launch, CancellationToken::new()).await
    }

    /// Number of task groups.
    fn count(&self) -> usize {
        std::fs::read_dir(&self.dir)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir())
            .count()
    }

    fn end(self) {
        remove_memory_groups(&self.dir).unwrap();
        assert!(!self.dir.exists());
    }
}

impl Drop for TestGroups {
    /// Removes the groups of a failed test.
    fn drop(&mut self) {
        drop(remove_memory_groups(&self.dir));
    }
}

/// A script that holds this many bytes until it is ended.
fn hold(bytes: u64) -> String {
    format!("(head -c {bytes} /dev/zero; exec sleep 3600) | tail -c {bytes} > /dev/null")
}

#[tokio::test]
async fn a_tool_that_takes_more_memory_than_its_limit_is_ended_and_says_so() {
    let Some(ground) = TestGroups::new("more") else { return };
    // With much space for files only the watcher acts, and reports the bytes held.
    let report = ground.shell_with(&hold(200 * MIB), 64 * MIB, 1024 * MIB).await;
    let ExitReason::OverMemory { own, held: Some(held) } = report.ending else { panic!("{report:?}") };
    assert!(own == 64 * MIB && held > own, "{held}");
    assert_eq!(report.usage.memory_peak, Some(held));
    // Without it either the watcher or the kernel may be first.
    let report = ground.shell(&hold(200 * MIB), 64 * MIB).await;
    assert!(matches!(report.ending, ExitReason::OverMemory { own, .. } if own == 64 * MIB), "{report:?}");
    ground.end();
}

#[tokio::test]
async fn a_tool_that_stays_below_its_limit_is_left_alone() {
    let Some(ground) = TestGroups::new("less") else { return };
    let report = ground.shell("head -c 30000000 /dev/zero | tail -c 29000000 > /dev/null", 64 * MIB).await;
    assert!(report.ending.is_success(), "{report:?}");
    ground.end();
}

#[tokio::test]
async fn children_count_also_such_that_left_the_process_group() {
    let Some(ground) = TestGroups::new("children") else { return };
    let many = format!("setsid sh -c '{0}' & setsid sh -c '{0}' & {0}", hold(40 * MIB));
    let report = ground.shell(&many, 90 * MIB).await;
    assert!(matches!(report.ending, ExitReason::OverMemory { .. }), "{report:?}");
    ground.end();
}

#[tokio::test]
async fn a_tool_whose_child_the_kernel_killed_for_its_memory_has_failed_whatever_it_says() {
    let Some(ground) = TestGroups::new("kernel") else { return };
    // Files in memory count only towards the kernel's limit: 1 MiB and its additions.
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let fill = format!("head -c 200000000 /dev/zero > {}; exit 0", file.path().display());
    let report = ground.shell(&fill, MIB).await;
    assert!(matches!(report.ending, ExitReason::OverMemory { .. }), "{report:?}");
    ground.end();
}

#[tokio::test]
async fn tasks_one_after_the_other_take_one_group() {
    let Some(ground) = TestGroups::new("again") else { return };
    for _ in 0..4 {
        let report = ground.shell("cat /proc/self/cgroup", 64 * MIB).await;
        let told = String::from_utf8(report.stdout.head().to_vec()).unwrap();
        assert!(told.lines().any(|line| line.ends_with("-again/0")), "{told}");
    }
    assert_eq!(ground.count(), 1);
    let both = tokio::join!(ground.shell("cat /proc/self/cgroup", MIB), ground.shell("cat /proc/self/cgroup", MIB));
    assert!(both.0.ending.is_success() && both.1.ending.is_success());
    assert!(ground.count() <= 2);
    ground.end();
}

#[tokio::test]
async fn a_daemon_that_a_tool_leaves_ends_with_the_groups() {
    let Some(ground) = TestGroups::new("left") else { return };
    // The shell continues when the daemon has closed its output; by then it has left its process
    // group.
    let leaves = "x=$(setsid sh -c 'exec sleep 3600 > /dev/null 2>&1' &); echo ok";
    let report = ground.shell(leaves, 64 * MIB).await;
    assert!(report.ending.is_success(), "{report:?}");
    assert_ne!(std::fs::read_to_string(ground.dir.join("0/cgroup.procs")).unwrap(), "", "it is there");
    let report = ground.shell("cat /proc/self/cgroup", 64 * MIB).await;
    assert!(String::from_utf8_lossy(report.stdout.head()).contains("-left/1\n"), "its group is not used again");
    ground.end();
}
