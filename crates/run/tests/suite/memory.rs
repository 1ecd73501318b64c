//! The `memory` that tools declare: enforced where control groups can be made, a warning elsewhere,
//! and nothing left behind in either case.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::common;
use exec::PlannedGroups;
use report::{ReasonKind, RunOutcome, RunReport};
use run::{CheckedWorkflow, EmergencyCleanup, RunSpec};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Tasks of a tool that declares 64 MiB; with an output, and therefore a pool, or without.
fn flow(scripts: &[&str], with_pool: bool, retries: u32) -> CheckedWorkflow {
    let mut params = vec![serde_json::json!({"name": "script", "kind": {"config": {"type": "string"}}})];
    let mut command = vec!["sh", "-c", "{script}", "sh"];
    if with_pool {
        params.push(serde_json::json!({"name": "to", "kind": {"output": {}}}));
        command.push("{to}");
    }
    let tool = serde_json::json!({"name": "sh", "command": command, "resources": {"cpus": 1, "memory": 64 << 20}, "retries": retries, "params": params});
    let elements: Vec<_> = (0..scripts.len()).map(|n| serde_json::json!({"name": format!("E{n}")})).collect();
    let task = |(n, script): (usize, &&str)| {
        let files = if with_pool { serde_json::json!({"to": format!("E{n}")}) } else { serde_json::json!({}) };
        serde_json::json!({"tool": "sh", "files": files, "config": {"script": script}})
    };
    let tasks: Vec<_> = scripts.iter().enumerate().map(task).collect();
    let elements = if with_pool { elements } else { Vec::new() };
    let text =
        serde_json::json!({"tidemill_flow": 1, "name": "f", "tools": [tool], "elements": elements, "tasks": tasks});
    CheckedWorkflow::new(flow::from_json(&text.to_string(), "f.json").unwrap(), None).unwrap()
}

fn spec(flow: CheckedWorkflow, directory: &Path) -> RunSpec {
    let memory = Some(base::ByteSize::mib(256));
    RunSpec { memory, ..common::spec(flow, common::run_id("memory", directory), directory) }
}

/// The directory of the run's control group, if groups can be made here.
fn group_of(spec: &RunSpec) -> Option<PathBuf> {
    let name = format!("tidemill-{}", spec.run_id);
    let probe = PlannedGroups::find(&format!("{name}-probe")).and_then(PlannedGroups::make);
    match probe {
        Ok(probe) => exec::remove_memory_groups(probe.path()).unwrap(),
        Err(why) => {
            eprintln!("not enforced here: {why}");
            return None;
        }
    }
    PlannedGroups::find(&name).ok().map(|planned| planned.path().to_owned())
}

/// Executes the run, and checks that its control group is removed. Returns whether limits are
/// enforced.
fn run(spec: RunSpec) -> (RunReport, bool) {
    let group = group_of(&spec);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut tell, emergency_cleanup) = (|_: &run::RunEvent| (), EmergencyCleanup::default());
    let ran = run::run(spec, &mut tell, CancellationToken::new(), &emergency_cleanup);
    let report = runtime.block_on(ran).unwrap();
    assert!(group.as_ref().is_none_or(|group| !group.exists()), "{group:?}");
    (report, group.is_some())
}

/// A script that holds 150 MB: for an hour where the limit is enforced, else for 1 s, which is four
/// samples.
fn hog(enforced: bool) -> String {
    let seconds = if enforced { 3600 } else { 1 };
    format!(
        "(head -c 150000000 /dev/zero; sleep {seconds}) | tail -c 150000000 > /dev/null; echo ok > ${{1:-/dev/null}}"
    )
}

/// Checks a tool that took more than it declares: ended with the reason, or reported in a warning.
fn check_hog((report, enforced): (RunReport, bool)) {
    let reason = report.tasks[0].reason.as_ref();
    if enforced {
        let reason = reason.expect("it is ended");
        assert_eq!((report.outcome, reason.kind), (RunOutcome::Failed, ReasonKind::Memory), "{reason:?}");
        assert!(reason.text.starts_with("it took more memory than its tool declares (memory = 64 MiB; "), "{reason:?}");
        assert!(reason.text.ends_with("raise `memory` in the tool file"), "{reason:?}");
        assert!(report.warnings.is_empty(), "told once: {:?}", report.warnings);
    } else {
        assert_eq!((report.outcome, reason), (RunOutcome::Done, None));
        assert!(report.warnings[0].contains("more than its `memory = \"64MiB\"`"), "{:?}", report.warnings);
    }
}

#[test]
fn a_tool_that_takes_more_memory_than_it_declares_is_ended_where_that_can_be_and_warned_about_elsewhere() {
    for with_pool in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let enforced = group_of(&spec(flow(&["true"], with_pool, 0), directory.path())).is_some();
        check_hog(run(spec(flow(&[&hog(enforced)], with_pool, 0), directory.path())));
    }
}

#[test]
fn it_is_tried_again_as_its_tool_says() {
    let directory = tempfile::tempdir().unwrap();
    let enforced = group_of(&spec(flow(&["true"], true, 0), directory.path())).is_some();
    let script = format!("test $TIDEMILL_ATTEMPT = 2 || {{ {}; }}; echo ok > $1", hog(enforced));
    let (report, _) = run(spec(flow(&[&script], true, 1), directory.path()));
    assert_eq!(report.outcome, RunOutcome::Done, "{:?}", report.tasks[0].reason);
    assert_eq!(report.tasks[0].attempts, if enforced { 2 } else { 1 });
}

#[test]
fn what_a_tool_writes_into_the_pool_is_not_its_memory() {
    let directory = tempfile::tempdir().unwrap();
    let (report, _) = run(spec(flow(&["head -c 200000000 /dev/zero > $1"], true, 0), directory.path()));
    assert_eq!(report.outcome, RunOutcome::Done, "{:?}", report.tasks[0].reason);
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
}

#[test]
fn a_daemon_that_a_tool_leaves_is_ended_with_the_run_and_its_group() {
    let directory = tempfile::tempdir().unwrap();
    // The shell goes on once the daemon has closed its output, and by then has left its process
    // group.
    let leaves = "x=$(setsid sh -c 'exec sleep 3600 > /dev/null 2>&1' &); echo ok > $1";
    let (report, _) = run(spec(flow(&[leaves, "echo ok > $1"], true, 0), directory.path()));
    assert_eq!(report.outcome, RunOutcome::Done, "{:?}", report.tasks[0].reason);
    assert!(report.warnings.iter().any(|warning| warning.contains("that tools left behind")), "{:?}", report.warnings);
}
