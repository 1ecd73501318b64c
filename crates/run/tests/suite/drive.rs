//! Complete runs of real `sh` tools over a pool: the events during a run, and the report after it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::common;
use report::{ReasonKind, RunOutcome, RunReport, Status};
use run::{CheckedWorkflow, EmergencyCleanup, RunEvent, RunSpec};
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// A workflow with a tool `sh` that runs a script and writes a file. Each task runs one of
/// `scripts` and writes its own element.
fn flow(scripts: &[&str], retries: u32) -> CheckedWorkflow {
    let tool = serde_json::json!({"name": "sh", "command": ["sh", "-c", "{script}", "sh", "{to}"], "retries": retries, "params": [
        {"name": "to", "kind": {"output": {}}}, {"name": "script", "kind": {"config": {"type": "string"}}}]});
    let elements: Vec<_> = (0..scripts.len()).map(|n| serde_json::json!({"name": format!("E{n}")})).collect();
    let task = |(n, script): (usize, &&str)| serde_json::json!({"tool": "sh", "files": {"to": format!("E{n}")}, "config": {"script": script}});
    let tasks: Vec<_> = scripts.iter().enumerate().map(task).collect();
    let text =
        serde_json::json!({"tidemill_flow": 1, "name": "f", "tools": [tool], "elements": elements, "tasks": tasks});
    CheckedWorkflow::new(flow::from_json(&text.to_string(), "f.json").unwrap(), None).unwrap()
}

fn spec(flow: CheckedWorkflow, directory: &Path) -> RunSpec {
    common::spec(flow, common::run_id("drive", directory), directory)
}

/// Executes the run; returns the report and all events except progress. `watch` gets each event,
/// and a token that cancels the run.
fn run(spec: RunSpec, mut watch: impl FnMut(&RunEvent, &CancellationToken)) -> (RunReport, Vec<RunEvent>) {
    let cancel = CancellationToken::new();
    let token = cancel.clone();
    let mut message = Vec::new();
    let mut tell = |event: &RunEvent| {
        watch(event, &token);
        if !matches!(event, RunEvent::Progress(_)) {
            message.push(event.clone());
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = runtime.block_on(run::run(spec, &mut tell, cancel, &EmergencyCleanup::default())).unwrap();
    (report, message)
}

fn kinds(events: &[RunEvent]) -> Vec<String> {
    events.iter().map(|event| event.to_json()["event"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_run_tells_its_start_each_task_its_outputs_and_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let (report, events) = run(spec(flow(&["echo tide > $1"], 0), directory.path()), |_, _| ());
    assert_eq!(report.outcome, RunOutcome::Done);
    assert_eq!(kinds(&events), ["started", "task_started", "task_done", "exported", "ended"]);
    assert_eq!(std::fs::read_to_string(directory.path().join("out/E0")).unwrap(), "tide\n");
    assert_eq!(report.data[0].hash.as_deref(), Some(blake3::hash(b"tide\n").to_hex().as_str()));
}

#[test]
fn a_task_is_tried_again_as_often_as_its_tool_says_and_the_report_has_all_attempts() {
    let directory = tempfile::tempdir().unwrap();
    let script = "test $TIDEMILL_ATTEMPT = 3 && echo ok > $1";
    let (report, events) = run(spec(flow(&[script], 2), directory.path()), |_, _| ());
    assert_eq!(report.outcome, RunOutcome::Done);
    assert_eq!((report.tasks[0].attempts, report.tasks[0].earlier.len()), (3, 2));
    assert_eq!(kinds(&events).iter().filter(|kind| *kind == "task_retried").count(), 2);
}

#[test]
fn the_report_tells_of_each_tool_and_how_busy_the_machine_was() {
    let directory = tempfile::tempdir().unwrap();
    let (report, _) = run(spec(flow(&["echo ok > $1", "echo ok > $1"], 0), directory.path()), |_, _| ());
    let used = report.machine_use.as_ref().expect("this machine tells");
    assert!(used.cpus > 0.0 && (1..=used.memory_bytes).contains(&used.peak_memory_bytes), "{used:?}");
    assert!(used.samples.list().len() >= 2, "the first and the last");
    let runs: u32 = report.by_tool.iter().map(|tool| tool.runs).sum();
    assert_eq!((runs, report.load.running_max.max(1)), (2, report.load.running_max));
    let last = report.critical_path.steps.last().expect("something ran");
    let ends = report.tasks.iter().filter_map(|task| task.end_s).map(|end| end.0).fold(0.0, f64::max);
    assert!((last.end_s.0 - ends).abs() < f64::EPSILON, "the path ends with the task that ended last");
}

#[test]
fn of_a_task_that_succeeds_in_the_end_nothing_is_kept_and_of_others_the_last_attempt() {
    let directory = tempfile::tempdir().unwrap();
    let scripts = ["test $TIDEMILL_ATTEMPT = 2 && echo ok > $1", "echo $TIDEMILL_ATTEMPT > trace; exit 4"];
    let kept = directory.path().join("failed");
    let spec = RunSpec { keep_failed: Some(kept.clone()), ..spec(flow(&scripts, 1), directory.path()) };
    let (report, _) = run(spec, |_, _| ());
    assert_eq!(report.tasks[0].status, Status::Done);
    assert!(!kept.join("sh.0").exists());
    assert_eq!(std::fs::read_to_string(kept.join("sh.1/left/trace")).unwrap(), "2\n");
    assert_eq!(report.tasks[1].reason.as_ref().unwrap().kept.as_deref(), kept.join("sh.1").to_str());
}

#[test]
fn a_failure_stays_with_its_task_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let (report, _) = run(spec(flow(&["echo oh >&2; exit 4", "echo ok > $1"], 0), directory.path()), |_, _| ());
    assert_eq!((report.outcome, report.exit_code), (RunOutcome::Failed, 1));
    let reason = report.tasks[0].reason.as_ref().unwrap();
    assert_eq!((reason.kind, reason.text.as_str()), (ReasonKind::Exit, "it ended with exit code 4"));
    assert_eq!(reason.stderr.as_ref().unwrap().head, "oh\n");
    assert_eq!(report.tasks[1].status, Status::Done);
}

#[test]
fn what_a_good_tool_printed_and_took_is_kept_and_what_each_attempt_took_too() {
    let directory = tempfile::tempdir().unwrap();
    let script = "echo 42 rows; echo careful >&2; test $TIDEMILL_ATTEMPT = 2 && echo ok > $1";
    let (report, _) = run(spec(flow(&[script], 1), directory.path()), |_, _| ());
    let task = &report.tasks[0];
    assert_eq!((task.status, &task.reason), (Status::Done, &None));
    assert_eq!(task.stdout.as_ref().unwrap().head, "42 rows\n");
    assert_eq!(task.stderr.as_ref().unwrap().head, "careful\n");
    assert!(task.cpu_s.is_some() && task.earlier[0].cpu_s.is_some());
}

#[test]
fn a_run_that_is_ended_starts_nothing_more_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(flow(&["sleep 600", "echo never > $1"], 0), directory.path());
    spec.slots = 1;
    let (report, _) = run(spec, |event, cancel| {
        if matches!(event, RunEvent::TaskStarted { .. }) {
            cancel.cancel();
        }
    });
    assert_eq!(report.outcome, RunOutcome::Interrupted);
    let kinds: Vec<ReasonKind> = report.tasks.iter().map(|task| task.reason.as_ref().unwrap().kind).collect();
    assert_eq!(kinds, [ReasonKind::Cancelled, ReasonKind::Cancelled]);
    assert!(report.tasks.iter().all(|task| task.status == Status::Cancelled));
    assert_eq!((report.totals.tasks_failed, report.totals.tasks_cancelled), (0, 2), "interrupted is not failed");
    assert_eq!(report.tasks[1].attempts, 0);
}

#[test]
fn an_output_that_is_too_large_for_the_pool_fails_alone_and_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let scripts = ["head -c 64000000 /dev/zero > $1", "echo ok > $1"];
    let (report, _) = run(spec(flow(&scripts, 0), directory.path()), |_, _| ());
    let reason = report.tasks[0].reason.as_ref().unwrap();
    assert_eq!(reason.kind, ReasonKind::NoSpace);
    assert!(reason.text.contains("--memory"), "{}", reason.text);
    assert_eq!(report.tasks[1].status, Status::Done);
    assert_eq!(std::fs::read_to_string(directory.path().join("out/E1")).unwrap(), "ok\n");
}

#[test]
fn copies_that_take_more_than_there_is_for_them_end_their_task_and_not_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let hog = "head -c 20000000 /dev/zero > $1; sleep 600";
    let spec =
        RunSpec { copies: Some(base::ByteSize::mib(8)), ..spec(flow(&[hog, "echo tide > $1"], 0), directory.path()) };
    let (report, _) = run(spec, |_, _| ());
    let reason = report.tasks[0].reason.as_ref().unwrap();
    assert_eq!(reason.kind, ReasonKind::NoSpace, "{}", reason.text);
    assert!(reason.text.contains("--slots"), "{}", reason.text);
    assert_eq!(report.tasks[1].status, Status::Done);
    assert_eq!(report.outcome, RunOutcome::Failed);
}

#[test]
fn the_watch_over_copies_goes_on_after_a_task_was_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let hog = "head -c 20000000 /dev/zero > $1; sleep 600";
    let tasks = flow(&[hog, hog], 0);
    let spec = RunSpec { copies: Some(base::ByteSize::mib(8)), slots: 1, ..spec(tasks, directory.path()) };
    let (report, _) = run(spec, |_, _| ());
    assert!(report.tasks.iter().all(|task| task.reason.as_ref().unwrap().kind == ReasonKind::NoSpace));
}

#[test]
fn a_task_that_was_told_to_stop_as_the_user_gave_up_is_cancelled_not_short_of_space() {
    let directory = tempfile::tempdir().unwrap();
    let hog = "trap '' TERM; head -c 20000000 /dev/zero > $1; sleep 600";
    let spec = RunSpec { copies: Some(base::ByteSize::mib(8)), ..spec(flow(&[hog], 0), directory.path()) };
    // The first sample that sees the copies stops the task. The task ignores SIGTERM during its
    // grace period, and the user cancels.
    let (report, _) = run(spec, |event, cancel| {
        if matches!(event, RunEvent::Progress(at) if at.elapsed > 0.15) {
            cancel.cancel();
        }
    });
    assert_eq!(report.tasks[0].reason.as_ref().unwrap().kind, ReasonKind::Cancelled);
    assert_eq!(report.outcome, RunOutcome::Interrupted);
}
