//! Runs whose workflow grows: a source adds tasks as others end.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::common;
use base::Problem;
use flow::{
    ConfigBinding, ConfigValue, DataId, DataRefs, Element, FileBinding, Source, Task, TaskId, ToolId, WorkflowGrowth,
};
use report::{RunOutcome, RunReport, Status};
use run::{CheckedWorkflow, EmergencyCleanup, PlanGrowth, PlanSource, PlanStep, PlanView, RunSpec};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio_util::sync::CancellationToken;

/// The beginning of a workflow: no task, and a tool that runs a script with the paths of an input
/// and an output, and one that is not installed.
fn beginning() -> CheckedWorkflow {
    let params = serde_json::json!([{"name": "from", "kind": {"input": {}}}, {"name": "to", "kind": {"output": {}}},
        {"name": "script", "kind": {"config": {"type": "string"}}}]);
    let tool = |name: &str, program: &str| {
        let command = [program, "-c", "{script}", "sh", "{from}", "{to}"];
        serde_json::json!({"name": name, "command": command, "params": params})
    };
    let tools = [tool("sh", "sh"), tool("none", "no-such-program")];
    let text = serde_json::json!({"tidemill_flow": 1, "name": "f", "tools": tools, "elements": [], "tasks": []});
    CheckedWorkflow::growing(flow::from_json(&text.to_string(), "f.json").unwrap(), None).unwrap()
}

fn element(name: &str, first: u32, source: Source) -> Element {
    Element { name: name.to_owned(), shape: Vec::new(), first: DataId(first), count: 1, source, file: None }
}

fn task(tool: u32, script: &str, from: u32, to: u32) -> Task {
    let file = |param, data| FileBinding { param, data: DataRefs::One(DataId(data)) };
    let config = ConfigBinding { param: 2, value: ConfigValue::String(script.to_owned()) };
    let (files, configs) = ([file(0, from), file(1, to)].into(), [config].into());
    Task { tool: ToolId(tool), files, configs, after: [].into(), line: 0, placing: None }
}

/// An input, then a row of tasks: each begins when the one before is done, and reads what that
/// wrote. `script` gives the tool and the script of each; the last output is exported.
#[derive(Debug)]
struct Row {
    length: u32,
    script: fn(u32) -> (u32, &'static str),
    ended: Vec<(TaskId, bool)>,
    added: u32,
    /// The file of the last output.
    out: PathBuf,
}

impl PlanSource for Row {
    fn poll_step(&mut self, run: &PlanView, _: &mut Context) -> Poll<PlanStep> {
        assert_eq!(run.flow.workflow().tasks.len(), self.added as usize);
        if let Some((task, false)) = self.ended.last() {
            return Poll::Ready(PlanStep::Failed(Problem::new(format!("the row is broken at {}", task.0))));
        }
        if self.ended.len() < self.added as usize {
            return Poll::Pending;
        }
        let at = self.added;
        if at == self.length {
            return Poll::Ready(PlanStep::Complete);
        }
        self.added += 1;
        let mut elements = vec![element(&format!("E{at}"), at + 1, Source::Defined)];
        if at == 0 {
            elements.insert(0, element("In", 0, Source::Input(vec!["in.txt".into()])));
        }
        let (tool, script) = (self.script)(at);
        let parts = WorkflowGrowth { elements, tasks: vec![task(tool, script, at, at + 1)] };
        let is_last = self.added == self.length;
        let exports = is_last.then(|| (DataId(at + 1), self.out.clone())).into_iter().collect();
        // No later task reads the input of this one.
        let sealed = if is_last { vec![DataId(at), DataId(at + 1)] } else { vec![DataId(at)] };
        Poll::Ready(PlanStep::Grow(PlanGrowth { parts, exports, sealed }))
    }

    fn task_ended(&mut self, task: TaskId, is_done: bool) {
        self.ended.push((task, is_done));
    }
}

fn spec(source: impl PlanSource + 'static, directory: &Path) -> RunSpec {
    std::fs::write(directory.join("in.txt"), "tide\n").unwrap();
    let spec = common::spec(beginning(), common::run_id("growth", directory), directory);
    RunSpec { source: Some(Box::new(source)), report_dir: Some(directory.join("report")), ..spec }
}

fn run(spec: RunSpec) -> RunReport {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cancel = CancellationToken::new();
    runtime.block_on(run::run(spec, &mut |_| (), cancel, &EmergencyCleanup::default())).unwrap()
}

fn row(length: u32, script: fn(u32) -> (u32, &'static str), directory: &Path) -> Row {
    Row { length, script, ended: Vec::new(), added: 0, out: directory.join("out/last.txt") }
}

const COUNT: &str = "cat $1 > $2; echo x >> $2";

#[test]
fn tasks_are_added_as_others_end_and_data_goes_after_its_last_reader() {
    let directory = tempfile::tempdir().unwrap();
    let report = run(spec(row(5, |_| (0, COUNT), directory.path()), directory.path()));
    assert_eq!((report.outcome, report.problem.clone()), (RunOutcome::Done, None));
    assert_eq!(std::fs::read_to_string(directory.path().join("out/last.txt")).unwrap(), "tide\nx\nx\nx\nx\nx\n");
    assert!(report.tasks.len() == 5 && report.tasks.iter().all(|task| task.status == Status::Done));
    assert_eq!(report.elements.len(), 6);
    // A temporary is dropped before the task after next starts.
    for (written, next) in [(1usize, 2usize), (2, 3), (3, 4)] {
        let dropped = report.data[written].dropped_s.expect("it was dropped");
        assert!(dropped.0 <= report.tasks[next].start_s.unwrap().0, "E{} stays while task {next} runs", written - 1);
    }
}

#[test]
fn the_journal_has_the_workflow_as_it_grew() {
    let directory = tempfile::tempdir().unwrap();
    run(spec(row(3, |_| (0, COUNT), directory.path()), directory.path()));
    let report = directory.path().join("report");
    let state = journal::JournalState::read(&report.join(journal::JOURNAL_FILE)).unwrap();
    let beginning = std::fs::read_to_string(report.join(journal::WORKFLOW_FILE)).unwrap();
    let workflow = flow::from_json_grown(&beginning, "flow.json", &state.growth).unwrap();
    assert_eq!((workflow.tasks.len(), workflow.data_count(), state.tasks.len()), (3, 4, 3));
    assert_eq!(state.count(journal::TaskPhase::Done), 3);
}

#[test]
fn a_source_that_fails_ends_the_run_with_its_problem() {
    let directory = tempfile::tempdir().unwrap();
    let script = |at| (0, if at == 1 { "exit 3" } else { COUNT });
    let report = run(spec(row(4, script, directory.path()), directory.path()));
    assert_eq!(report.problem.as_deref(), Some("the row is broken at 1"));
    assert_eq!(report.tasks.len(), 2);
    assert_ne!(report.outcome, RunOutcome::Done);
}

#[test]
fn a_tool_that_is_not_installed_is_a_problem_when_a_task_calls_it() {
    let directory = tempfile::tempdir().unwrap();
    let report = run(spec(row(4, |at| (u32::from(at == 2), COUNT), directory.path()), directory.path()));
    let problem = report.problem.expect("the run cannot go on");
    assert!(problem.contains("tool none") && problem.contains("no-such-program"), "{problem}");
    assert_eq!(report.tasks.iter().filter(|task| task.status == Status::Done).count(), 2);
}

/// A loop of many independent tasks, in steps of ten. Notes how many were added before their end.
#[derive(Debug)]
struct Loop {
    left: u32,
    added: u32,
    ended: u32,
    waiting_max: Arc<Mutex<u32>>,
}

impl PlanSource for Loop {
    fn poll_step(&mut self, _: &PlanView, _: &mut Context) -> Poll<PlanStep> {
        if self.left == 0 {
            return Poll::Ready(PlanStep::Complete);
        }
        let count = self.left.min(10);
        let numbers = self.added..self.added + count;
        let mut elements: Vec<Element> =
            numbers.clone().map(|at| element(&format!("E{at}"), at + 1, Source::Defined)).collect();
        if self.added == 0 {
            elements.insert(0, element("In", 0, Source::Input(vec!["in.txt".into()])));
        }
        let tasks: Vec<Task> = numbers.clone().map(|at| task(0, ": > $2", 0, at + 1)).collect();
        let sealed = numbers.clone().map(|at| DataId(at + 1)).collect();
        (self.left, self.added) = (self.left - count, numbers.end);
        let mut most = self.waiting_max.lock().unwrap();
        *most = (*most).max(self.added - self.ended);
        let parts = WorkflowGrowth { elements, tasks };
        Poll::Ready(PlanStep::Grow(PlanGrowth { parts, exports: Vec::new(), sealed }))
    }

    fn task_ended(&mut self, _: TaskId, _: bool) {
        self.ended += 1;
    }
}

#[test]
fn a_long_loop_is_unfolded_as_slots_become_free() {
    let directory = tempfile::tempdir().unwrap();
    let waiting_max = Arc::new(Mutex::new(0));
    let source = Loop { left: 300, added: 0, ended: 0, waiting_max: waiting_max.clone() };
    let report = run(spec(source, directory.path()));
    assert_eq!((report.outcome, report.tasks.len()), (RunOutcome::Done, 300));
    let most = *waiting_max.lock().unwrap();
    assert!((60..=80).contains(&most), "{most} tasks waited");
    assert!(report.data[1..].iter().all(|member| member.dropped_s.is_some()), "nobody needs what they wrote");
}

#[test]
fn with_fail_fast_no_task_is_added_after_the_first_failed_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = row(9, |at| (0, if at == 2 { "exit 3" } else { COUNT }), directory.path());
    source.out = directory.path().join("out/never.txt");
    let report = run(RunSpec { fail_fast: true, ..spec(source, directory.path()) });
    assert_eq!((report.outcome, report.problem, report.tasks.len()), (RunOutcome::Failed, None, 3));
}
