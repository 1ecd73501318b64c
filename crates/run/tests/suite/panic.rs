//! A panic in the middle of a run leaves no mount, no directory and no process behind.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::common;
use run::{CheckedWorkflow, EmergencyCleanup, RunEvent, RunSpec, StorageRequest};
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// One task that would sleep for an hour.
const FLOW: &str = r#"{"tidemill_flow": 1, "name": "sleeper",
    "tools": [{"name": "sleep", "command": ["sleep", "3600.125"], "workdir": true, "params": []}],
    "elements": [], "tasks": [{"tool": "sleep"}]}"#;

fn spec(run_id: &str, directory: &Path, storage: StorageRequest) -> RunSpec {
    let flow = CheckedWorkflow::new(flow::from_json(FLOW, "sleeper.json").unwrap(), None).unwrap();
    RunSpec { storage, ..common::spec(flow, run_id.to_owned(), directory) }
}

/// Executes the run in its own runtime, and panics as soon as its tool runs.
fn run_and_panic(spec: RunSpec) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run_id = spec.run_id.clone();
    let mut tell = |event: &RunEvent| {
        let running = matches!(event, RunEvent::Progress(_)) && processes_of(&run_id) > 0;
        assert!(!running, "the panic of this test");
    };
    let ran = runtime.block_on(run::run(spec, &mut tell, CancellationToken::new(), &EmergencyCleanup::default()));
    unreachable!("the run ended without the panic: {:?}", ran.map(|report| report.outcome));
}

fn mentions(file: &str, name: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.contains(name))
}

/// Number of processes of the run: they have its id in their environment.
fn processes_of(run_id: &str) -> usize {
    let run_env_var = format!("TIDEMILL_RUN={run_id}");
    let directories = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let marked = |directory: std::fs::DirEntry| {
        let environment = std::fs::read(directory.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == run_env_var.as_bytes())
    };
    directories
        .filter(|directory| directory.file_name().to_string_lossy().parse::<u32>().is_ok())
        .filter_map(|directory| marked(directory).then_some(()))
        .count()
}

fn check(storage: StorageRequest, mode: &str) {
    let directory = tempfile::tempdir().unwrap();
    let run_id = format!("panic-{mode}-{}", std::process::id());
    let spec = spec(&run_id, directory.path(), storage);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run_and_panic(spec))).is_err());
    assert!(!mentions("/proc/self/mountinfo", &run_id), "the mount is gone");
    // The processes were killed, but may not have exited yet.
    test_support::until("its tools have exited", || processes_of(&run_id) == 0);
}

#[test]
fn a_panic_leaves_no_mount_and_no_process() {
    if mount::availability().is_err() {
        eprintln!("skipped: no FUSE here");
        return;
    }
    check(StorageRequest::Mount, "mounted");
}

#[test]
fn a_panic_leaves_no_process_with_staging() {
    check(StorageRequest::Staging, "staged");
}
