//! A made-up but consistent run: a classification workflow of any size, scheduled over the four
//! slots of a host or those of a cluster.
//!
//! The workflow: Partition -> n parts -> 3 learners on each -> an evaluation of each model ->
//! Select -> a prediction of each file -> Report. Times and sizes come from a fixed sequence, so
//! that the same arguments always give the same run.

#[path = "cluster.rs"]
mod cluster;

use cluster::Cluster;
use flow::{DataId, DataRefs, Element, FileBinding, Param, ParamKind, Resources, Source, Tool, ToolId, Workflow};
use report::{
    AccessMode, Attempt, CapturedOutput, FailureReason, FileProvenance, Machine, MachineUse, MeasurementScope,
    ReasonKind, RunOutcome, RunReport, Seconds,
};
use report::{RunSettings, Seed, Status, TaskRecord, ToolProvenance, WorkflowInfo};
use std::path::Path;

const SLOTS: u32 = 4;
const LEARNERS: [&str; 3] = ["C45", "SVM", "NaiveBayes"];

/// The course of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleKind {
    /// All tasks succeed.
    Done,
    /// A learner is killed, some predictions fail, one times out, and one succeeds at its second
    /// attempt.
    Failed,
    /// All tasks succeed until the user ends the run, after three fifths of its time.
    Interrupted,
    /// All tasks succeed on three nodes, of which one is lost.
    Cluster,
    /// The same on 40 nodes, some with long names.
    LargeCluster,
    /// As `Failed`, and every name and output tries to break out of the page.
    Hostile,
}

impl SampleKind {
    fn fails(self) -> bool {
        matches!(self, Self::Failed | Self::Hostile)
    }

    /// The nodes on which it runs; none for a run on one host.
    fn cluster(self) -> Cluster {
        let long = |index: u32| if index % 8 == 5 { ".rack-b7.hydrology.research.example.org" } else { "" };
        match self {
            Self::Cluster => Cluster::new(&["heron", "dunlin", "avocet"].map(str::to_owned), 4),
            Self::LargeCluster => {
                Cluster::new(&(1..=40).map(|index| format!("wader-{index:02}{}", long(index))).collect::<Vec<_>>(), 8)
            }
            _ => Cluster::default(),
        }
    }
}

/// The run of a workflow of `tasks` tasks (at least 12).
pub fn run(tasks: usize, story: SampleKind) -> RunReport {
    let workflow = workflow(tasks.max(12), story);
    let mut run = RunReport::plan(&workflow);
    let makespan = Machinery::new(&workflow, story).play(&mut run);
    describe(&mut run, &workflow, story);
    run.seal(makespan);
    run.link_outputs(&Path::new(&run.directory.clone()).join("tidemill-report").join(&run.id));
    run
}

/// Text that would end a script element, open a tag or inject into a template string, if the page
/// allowed it.
pub const HOSTILE: &str = "</script><img src=x onerror=\"window.broken=1\"><!--&amp;${1+1}\u{2028}\u{202e}'\"`";

fn named(story: SampleKind, name: &str) -> String {
    if story == SampleKind::Hostile { format!("{name}{HOSTILE}") } else { name.to_owned() }
}

// ---- the workflow ----

struct Builder {
    workflow: Workflow,
    story: SampleKind,
}

fn workflow(tasks: usize, story: SampleKind) -> Workflow {
    let parts = u32::try_from(tasks / 12).expect("a sample has few tasks");
    let files = u32::try_from(tasks).expect("a sample has few tasks") - 6 * parts - 3;
    let mut build =
        Builder { workflow: Workflow { name: named(story, "classification"), ..Workflow::default() }, story };
    let (train, test) = (build.input("Train", 1), build.input("Test", 1));
    let unlabelled = build.input("Unlab", files);
    let part = build.element("TrainPart", &[parts]);
    build.call("Partition", 4, &[one(train)], &[all(part, parts)]);
    let model = build.element("Model", &[3, parts]);
    let score = build.element("Score", &[3, parts]);
    for at in 0..3 * parts {
        let line = 7 + 2 * (at / parts);
        build.call(LEARNERS[(at / parts) as usize], line, &[one(plus(part, at % parts))], &[one(plus(model, at))]);
    }
    for at in 0..3 * parts {
        build.call("Evaluate", 14, &[one(test), one(plus(model, at))], &[one(plus(score, at))]);
    }
    let best = build.element("BestModel", &[]);
    // A failed run loses the second model of the second learner; `Select` does not need its score.
    let scores: Vec<DataId> = (0..3 * parts).filter(|at| *at != parts + 1).map(|at| plus(score, at)).collect();
    build.call("Select", 17, &[DataRefs::List(scores.into()), all(model, parts)], &[one(best)]);
    let label = build.element("ClassLabel", &[files]);
    for at in 0..files {
        build.call("Predict", 20, &[one(plus(unlabelled, at)), one(best)], &[one(plus(label, at))]);
    }
    let summary = build.element("Summary", &[]);
    build.call("Report", 22, &[all(label, files)], &[one(summary)]);
    build.workflow
}

fn one(id: DataId) -> DataRefs {
    DataRefs::One(id)
}

fn all(first: DataId, count: u32) -> DataRefs {
    DataRefs::Run { first, count }
}

fn plus(first: DataId, by: u32) -> DataId {
    DataId(first.0 + by)
}

impl Builder {
    fn element(&mut self, name: &str, shape: &[u32]) -> DataId {
        self.add(name, shape, Source::Defined)
    }

    fn input(&mut self, name: &str, count: u32) -> DataId {
        let paths = (0..count).map(|index| format!("data/{}_{index}.csv", named(self.story, name)).into()).collect();
        let shape = [count];
        self.add(name, if count == 1 { &[] } else { &shape }, Source::Input(paths))
    }

    fn add(&mut self, name: &str, shape: &[u32], source: Source) -> DataId {
        let first = DataId(self.workflow.data_count());
        let (name, count) = (named(self.story, name), shape.iter().product());
        self.workflow.elements.push(Element { name, shape: shape.to_vec(), first, count, source, file: None });
        first
    }

    fn call(&mut self, tool: &str, line: u32, inputs: &[DataRefs], outputs: &[DataRefs]) {
        let tool = self.tool(tool, inputs.len(), outputs.len());
        let bind = |(param, data): (u16, &DataRefs)| FileBinding { param, data: data.clone() };
        let files = (0..).zip(inputs.iter().chain(outputs)).map(bind).collect();
        self.workflow.tasks.push(flow::Task {
            tool,
            files,
            configs: Box::new([]),
            after: Box::new([]),
            line,
            placing: None,
        });
    }

    fn tool(&mut self, name: &str, inputs: usize, outputs: usize) -> ToolId {
        let name = named(self.story, name);
        let known = self.workflow.tools.iter().position(|tool| tool.name == name).unwrap_or_else(|| {
            self.workflow.tools.push(declared(&name, inputs, outputs));
            self.workflow.tools.len() - 1
        });
        ToolId(u32::try_from(known).expect("a sample has few tools"))
    }
}

fn declared(name: &str, inputs: usize, outputs: usize) -> Tool {
    let input = |index| Param {
        name: format!("input{index}"),
        kind: ParamKind::Input { array: None, optional: false, implicit: false },
    };
    let output = |index| Param {
        name: format!("output{index}"),
        kind: ParamKind::Output { array: None, file: None, extension: ".out".to_owned(), implicit: false },
    };
    let params: Vec<Param> = (0..inputs).map(input).chain((0..outputs).map(output)).collect();
    let mut command = vec!["python3".to_owned(), format!("{{here}}/{}.py", name.to_lowercase())];
    command.extend(params.iter().map(|param| format!("{{{}}}", param.name)));
    serde_json::from_value::<Tool>(serde_json::json!({ "name": name, "command": command }))
        .map(|tool| Tool { params, resources: Resources { cpus: 1, memory: 256 << 20 }, ..tool })
        .expect("a tool needs a name and a command")
}

// ---- the course of the run ----

struct Machinery<'a> {
    workflow: &'a Workflow,
    story: SampleKind,
    cluster: Cluster,
    free_s: Vec<f64>,
    written_s: Vec<Option<f64>>,
    used_s: Vec<f64>,
    sizes: Vec<u64>,
    dice: u64,
}

impl<'a> Machinery<'a> {
    fn new(workflow: &'a Workflow, story: SampleKind) -> Self {
        let data = workflow.data_count() as usize;
        let zero = vec![0.0; data];
        let cluster = story.cluster();
        let on_nodes = |node: &report::NodeRecord| vec![node.joined_s.0 + 0.02; node.slots as usize];
        let mut free_s: Vec<f64> = cluster.nodes.iter().flat_map(on_nodes).collect();
        if free_s.is_empty() {
            free_s = vec![0.02; SLOTS as usize];
        }
        Self {
            workflow,
            story,
            cluster,
            free_s,
            written_s: vec![None; data],
            used_s: zero,
            sizes: vec![0; data],
            dice: 42,
        }
    }

    /// Plays every task in order, which is a topological order, and returns the makespan.
    fn play(mut self, run: &mut RunReport) -> Seconds {
        self.inputs(run);
        for id in 0..self.workflow.tasks.len() {
            self.task(run, id);
        }
        let mut end = self.free_s.iter().copied().filter(|free| free.is_finite()).fold(0.0, f64::max) + 0.03;
        if self.story == SampleKind::Interrupted {
            end *= 0.6;
            interrupt(run, end);
        }
        self.outputs(run, end);
        Self::pool(run, end);
        run.machine_use = Some(machine_use(run, end));
        run.nodes = self.cluster.nodes;
        Seconds::rounded(end)
    }

    fn inputs(&mut self, run: &mut RunReport) {
        for (place, member) in run.data.iter_mut().enumerate().filter(|(_, member)| member.path.is_some()) {
            let bytes = 40_000 + self.roll(400_000);
            (self.written_s[place], self.sizes[place]) = (Some(0.0), bytes);
            (member.bytes, member.hash) = (Some(bytes), Some(hash(bytes)));
        }
    }

    fn task(&mut self, run: &mut RunReport, id: usize) {
        let flow_task = &self.workflow.tasks[id];
        let inputs = self.members(flow_task, false);
        if let Some(missing) = inputs.iter().find(|place| self.written_s[**place].is_none()) {
            let via = run.data[*missing].writer.expect("inputs are always there");
            (run.tasks[id].status, run.tasks[id].reason) =
                (Status::Failed, Some(upstream(&run.tasks[via as usize], via)));
            return;
        }
        let mut ready = inputs.iter().filter_map(|place| self.written_s[*place]).fold(0.01, f64::max);
        let failure = self.failure(id);
        if failure.is_none() && self.story.fails() && id % 31 == 7 {
            let slot = self.free_slot(ready);
            let (start_s, end_s) = self.occupy(slot, ready, (0.0, 0.2));
            let text = "the command ended with exit code 75".to_owned();
            ready = end_s.0;
            run.tasks[id].earlier.push(Attempt { slot, start_s, end_s, text, ..Attempt::default() });
        }
        let length = self.length(id);
        let (slot, start, end) = self.attempt(&mut run.tasks[id], &inputs, ready, length);
        let task = &mut run.tasks[id];
        (task.ready_s, task.start_s, task.end_s) = (Some(Seconds::rounded(ready)), Some(start), Some(end));
        (task.slot, task.attempts) = (Some(slot), 1 + u32::try_from(task.earlier.len()).expect("few"));
        task.cpu_s = Some(Seconds::rounded((end.0 - start.0) * 0.93));
        task.max_rss_bytes = Some((80 << 20) + self.roll(100 << 20));
        task.peak_memory_bytes = task.max_rss_bytes.map(|bytes| bytes - (8 << 20));
        for place in inputs {
            self.used_s[place] = self.used_s[place].max(end.0);
        }
        self.end(run, id, failure);
    }

    fn end(&mut self, run: &mut RunReport, id: usize, failure: Option<FailureReason>) {
        let task = &mut run.tasks[id];
        let failed = failure.is_some();
        task.status = if failed { Status::Failed } else { Status::Done };
        task.exit_code = match &failure {
            Some(reason) if reason.signal.is_some() || reason.kind == ReasonKind::Timeout => None,
            Some(_) => Some(1),
            None => Some(0),
        };
        task.reason = failure;
        let argv = command(run, self.workflow, id);
        run.tasks[id].set_command(&argv);
        if failed {
            return;
        }
        let end = run.tasks[id].end_s.expect("it ran").0;
        for place in self.members(&self.workflow.tasks[id], true) {
            let bytes =
                200_000 + self.roll(4_000_000) * if run.data[place].element.starts_with("Model") { 3 } else { 1 };
            (self.written_s[place], self.sizes[place]) = (Some(end), bytes);
            self.cluster.wrote(run.tasks[id].slot.expect("it ran"), place);
            (run.data[place].written_s, run.data[place].bytes) = (Some(Seconds(end)), Some(bytes));
        }
    }

    fn failure(&self, id: usize) -> Option<FailureReason> {
        let task = &self.workflow.tasks[id];
        if !self.story.fails() {
            return None;
        }
        let part = self.workflow.tasks.iter().position(|other| other.tool == task.tool).unwrap_or(0);
        let (tool, nth) = (self.workflow.tool_of(task).name.as_str(), id - part);
        let root = u32::try_from(id).ok();
        let output = named(
            self.story,
            "Traceback (most recent call last):\n  File \"predict.py\", line 41, in <module>\n    rows = read(sys.argv[1])\n  File \"predict.py\", line 12, in read\n    raise ValueError(f\"row {number} has {len(row)} fields, not 42\")\nValueError: row 1187 has 41 fields, not 42\n",
        );
        let captured = |text: &str| CapturedOutput::new(text.as_bytes(), b"", text.len() as u64);
        let reason = |kind, text: &str| FailureReason { kind, text: text.to_owned(), root, ..FailureReason::default() };
        match (tool.split('<').next().unwrap_or(tool), nth) {
            ("SVM", 1) => Some(FailureReason {
                signal: Some(9),
                stderr: captured(&named(
                    self.story,
                    "iteration 4100: objective 0.2213\niteration 4200: objective 0.2209\n",
                )),
                ..reason(
                    ReasonKind::Signal,
                    "the command was ended by signal 9 (SIGKILL); the kernel does so when memory runs out",
                )
            }),
            ("Predict", 9) => Some(reason(ReasonKind::Timeout, "the command ran longer than 2 s, the tool's timeout")),
            ("Predict", nth) if nth % 40 == 3 => Some(FailureReason {
                stdout: captured("reading Unlab\n"),
                stderr: captured(&output),
                ..reason(ReasonKind::Exit, "the command ended with exit code 1")
            }),
            _ => None,
        }
    }

    /// The attempt of `task` that succeeds, after those that are lost with their nodes.
    fn attempt(
        &mut self,
        task: &mut TaskRecord,
        inputs: &[usize],
        mut ready: f64,
        length: f64,
    ) -> (u32, Seconds, Seconds) {
        loop {
            let slot = self.free_slot(ready);
            let reads = self.cluster.read(slot, inputs.iter().map(|place| (*place, self.sizes[*place])));
            let prepared = reads.map(|reads| self.cluster.prepared_s(reads));
            let (start, end) = self.occupy(slot, ready, (prepared.unwrap_or(0.0), length));
            let (node, lost) = (self.cluster.node_of(slot), self.cluster.lost_s(slot));
            if end.0 <= lost {
                (task.node, task.reads) = (node, reads);
                task.prepared_s = prepared.map(Seconds::rounded);
                return (slot, start, end);
            }
            self.free_s[slot as usize] = f64::INFINITY;
            if start.0 < lost {
                let text = "dunlin was lost while it ran there".to_owned();
                let lost = Attempt { slot, node, start_s: start, end_s: Seconds(lost), text, ..Attempt::default() };
                ready = lost.end_s.0 + 0.1;
                task.earlier.push(lost);
            }
        }
    }

    /// The slot that is free first, of those that are free at `ready`.
    fn free_slot(&self, ready: f64) -> u32 {
        let free = |slot: &usize| (self.free_s[*slot].max(ready) * 1e6).round();
        let slot = (0..self.free_s.len()).min_by(|a, b| free(a).total_cmp(&free(b))).expect("slots");
        u32::try_from(slot).expect("few slots")
    }

    fn occupy(&mut self, slot: u32, ready: f64, (prepared, length): (f64, f64)) -> (Seconds, Seconds) {
        let free = &mut self.free_s[slot as usize];
        let start = Seconds::rounded(free.max(ready) + 0.001 + prepared);
        let end = Seconds::rounded(start.0 + length);
        *free = end.0;
        (start, end)
    }

    fn length(&mut self, id: usize) -> f64 {
        let base = match self.workflow.tasks[id].tool.0 {
            0 => 1_200,
            1 => 700,
            2 => 1_500,
            3 => 400,
            5 => 900,
            _ => 300,
        };
        #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
        let ms = (base + self.roll(base)) as f64;
        ms / 1e3
    }

    fn members(&self, task: &flow::Task, outputs: bool) -> Vec<usize> {
        let params = &self.workflow.tool_of(task).params;
        let side =
            |file: &&FileBinding| matches!(params[usize::from(file.param)].kind, ParamKind::Output { .. }) == outputs;
        task.files.iter().filter(side).flat_map(|file| file.data.iter()).map(|id| id.0 as usize).collect()
    }

    fn outputs(&self, run: &mut RunReport, end: f64) {
        for (place, member) in run.data.iter_mut().enumerate().filter(|(_, member)| member.written_s.is_some()) {
            if self.used_s[place] > 0.0 {
                member.dropped_s = Some(Seconds(self.used_s[place])).filter(|dropped| dropped.0 < end);
            } else {
                member.exported = Some(format!("out/{}.csv", member.name));
                member.hash = Some(hash(self.sizes[place]));
            }
        }
    }

    fn pool(run: &mut RunReport, end: f64) {
        let mut changes: Vec<(f64, i128)> = Vec::new();
        for member in run.data.iter().filter(|member| member.writer.is_some()) {
            let Some((written, bytes)) = member.written_s.zip(member.bytes) else { continue };
            changes.push((written.0, i128::from(bytes)));
            changes.extend(member.dropped_s.map(|dropped| (dropped.0, -i128::from(bytes))));
        }
        changes.sort_by(|first, second| first.0.total_cmp(&second.0));
        let capacity = capacity(&changes);
        let mut used: i128 = 0;
        run.pool.push(Seconds(0.0), 0, capacity);
        for (time, change) in changes {
            used += change;
            run.pool.push(Seconds(time), u64::try_from(used).unwrap_or(0), capacity);
        }
        run.pool.push(Seconds::rounded(end), u64::try_from(used).unwrap_or(0), capacity);
        run.settings.memory_limit_bytes = capacity;
    }

    /// A number below `limit`: the next of a fixed sequence (Knuth's MMIX generator).
    fn roll(&mut self, limit: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % limit
    }
}

/// Cancels all tasks and removes all data that come after a signal at `end`.
fn interrupt(run: &mut RunReport, end: f64) {
    let late = |time: Option<Seconds>| time.is_none_or(|time| time.0 > end);
    for task in run.tasks.iter_mut().filter(|task| late(task.end_s)) {
        let ran = !late(task.start_s);
        let text = if ran { "the run was ended while it ran" } else { "the run was ended before it could start" };
        let reason = FailureReason { kind: ReasonKind::Cancelled, text: text.to_owned(), ..FailureReason::default() };
        (task.status, task.reason, task.exit_code) = (Status::Cancelled, Some(reason), None);
        task.end_s = task.end_s.filter(|_| ran).map(|_| Seconds::rounded(end - 0.01));
        if !ran {
            (task.start_s, task.slot, task.attempts, task.cpu_s, task.max_rss_bytes) = (None, None, 0, None, None);
            task.command.clear();
        }
    }
    for member in run.data.iter_mut().filter(|member| member.writer.is_some() && late(member.written_s)) {
        (member.written_s, member.bytes) = (None, None);
    }
}

/// The use of the machine: a little more than that of the tasks and of the pool.
fn machine_use(run: &RunReport, end: f64) -> MachineUse {
    let mut used = MachineUse::new((MeasurementScope::Machine, 4.0), (MeasurementScope::Machine, 23 << 30));
    let spans: Vec<(f64, f64)> = run.tasks.iter().filter_map(|task| Some((task.start_s?.0, task.end_s?.0))).collect();
    let step = if run.tasks.len() > 1_000 { 2.0 } else { 0.1 };
    let (mut cpu_s, mut time) = (0.0, 0.0);
    while time <= end {
        let running =
            u32::try_from(spans.iter().filter(|(from, to)| *from <= time && time < *to).count()).expect("few");
        cpu_s += step * (0.93 * f64::from(running) + 0.15);
        let filled = run.data.iter().filter(|member| member.written_s.is_some_and(|written| written.0 <= time));
        let there = filled.filter(|member| member.dropped_s.is_none_or(|dropped| dropped.0 > time));
        let pool: u64 = there.filter_map(|member| member.bytes).sum();
        used.push(Seconds::rounded(time), cpu_s, (3 << 30) + pool + u64::from(running) * (130 << 20));
        time += step;
    }
    used
}

/// The capacity of a pool that `changes` nearly fill: a tenth above their peak, in whole 64 MiB.
fn capacity(changes: &[(f64, i128)]) -> u64 {
    let sums = changes.iter().scan(0, |used, (_, change)| {
        *used += change;
        Some(*used)
    });
    let peak = u64::try_from(sums.max().unwrap_or(0)).unwrap_or(0);
    (peak + peak / 10).next_multiple_of(64 << 20)
}

fn upstream(before: &TaskRecord, via: u32) -> FailureReason {
    let root = before.reason.as_ref().and_then(|reason| reason.root);
    let text = format!("task {via} ({}) failed, whose output it needs", before.tool);
    FailureReason { kind: ReasonKind::Upstream, text, root, via: Some(via), ..FailureReason::default() }
}

fn command(run: &RunReport, workflow: &Workflow, id: usize) -> Vec<String> {
    let tool = workflow.tool_of(&workflow.tasks[id]).name.to_lowercase();
    let mut argv = vec!["python3".to_owned(), format!("/home/ada/examples/classification/{tool}.py")];
    for data in run.tasks[id].inputs.iter().chain(&run.tasks[id].outputs) {
        let (report::DataRef::One(name) | report::DataRef::Run { from: name, .. }) = data;
        argv.push(format!("/run/user/1000/tidemill/{name}.csv"));
    }
    argv
}

fn hash(of: u64) -> String {
    format!("{of:016x}").repeat(4)
}

// ---- the environment of the run ----

fn describe(run: &mut RunReport, workflow: &Workflow, story: SampleKind) {
    "20261120-154116-7f3a".clone_into(&mut run.id);
    "0.1.0".clone_into(&mut run.version);
    run.workflow = WorkflowInfo {
        name: workflow.name.clone(),
        source: "examples/classification/workflow.js".to_owned(),
        language: "js4cloud".to_owned(),
        hash: Some(hash(7)),
    };
    (run.started, run.ended) = ("2026-11-20T15:41:16.250Z".to_owned(), "2026-11-20T15:42:40.501Z".to_owned());
    (run.outcome, run.exit_code) = match story {
        SampleKind::Done | SampleKind::Cluster | SampleKind::LargeCluster => (RunOutcome::Done, 0),
        SampleKind::Failed | SampleKind::Hostile => (RunOutcome::Failed, 1),
        SampleKind::Interrupted => (RunOutcome::Interrupted, 130),
    };
    run.machine = Machine {
        host: named(story, "tern"),
        system: "Linux 6.18.0 x86_64".to_owned(),
        cpus: 4,
        memory_bytes: 23 << 30,
    };
    run.settings = RunSettings {
        slots: run.nodes.last().map_or(SLOTS, |last| last.first_slot + last.slots),
        memory_limit_bytes: run.settings.memory_limit_bytes,
        mode: AccessMode::Mount,
        mode_reason: "pool mounted at /run/user/1000/tidemill (passthrough)".to_owned(),
        data: Some("data/classification".to_owned()),
        tools: Some("examples/classification/tools.toml".to_owned()),
        out: Some("out".to_owned()),
        ..RunSettings::default()
    };
    let typed = "tidemill run examples/classification/workflow.js --data data/classification --tools examples/classification/tools.toml --set n=20 --set m=80";
    run.command_line = typed.split(' ').map(str::to_owned).collect();
    "/home/ada/tidemill".clone_into(&mut run.directory);
    run.sets = [("n".to_owned(), 20.into()), ("m".to_owned(), 80.into())].into_iter().collect();
    if story.fails() {
        run.warnings
            .push(named(story, "the pool was 91 % full for 3.1 s; --memory 6GiB would have kept writers from waiting"));
    }
    run.provenance.tools = workflow.tools.iter().map(used).collect();
    run.provenance.seeds = vec![
        Seed { name: "seed".to_owned(), value: 7.into(), tool: Some(named(story, "SVM")), tasks: 20 },
        Seed { name: "TIDEMILL_SEED".to_owned(), value: "1234".into(), tool: None, tasks: 0 },
    ];
}

fn used(tool: &Tool) -> ToolProvenance {
    ToolProvenance {
        name: tool.name.clone(),
        description: String::new(),
        hash: Some(hash(11)),
        command: tool.command.clone(),
        program: Some("/home/ada/examples/.venv/bin/python3".to_owned()),
        program_hash: Some(hash(13)),
        program_version: Some("Python 3.12.4".to_owned()),
        files: vec![FileProvenance {
            path: format!("{}.py", tool.name.to_lowercase()),
            bytes: 4_096,
            hash: Some(hash(17)),
        }],
    }
}
