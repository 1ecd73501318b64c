//! The plan of a script: steps of the evaluator become tasks, reads and lines, and ends of tasks
//! and contents of files go back to it.

use crate::commands;
use crate::files::{FileDirectories, NewData, ScriptData};
use crate::host_files;
use crate::loading::SwiftScript;
use crate::tools::program_path;
use base::Problem;
use flow::{
    ConfigBinding, ConfigValue, DataId, DataRefs, FileBinding, PlacingTarget, Task, TaskId, TaskPlacing, ToolId,
    WorkflowGrowth,
};
use run::{PlanGrowth, PlanHost, PlanSource, PlanStep, PlanView};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use swift::{
    AppCall, AppDeclaration, AppParamKind, AppTemplate, AppValue, CallId, Evaluator, Program, ScriptAnswer,
    ScriptQuestion, ScriptQuestionId, ScriptStep, ScriptWorld, Sources, Span, TaskLocation,
};
use tokio::task::JoinSet;

/// Calls that the evaluator is asked for at a time.
const CALLS_PER_STEP: usize = 64;
/// Failed calls whose way through the script is told.
const FAILURES_TOLD_MAX: usize = 10;

/// The options of a plan.
#[derive(Debug, Clone)]
pub struct SwiftPlanOptions {
    /// The arguments of the script.
    pub arguments: Vec<String>,
    /// The directories of its files.
    pub directories: FileDirectories,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// The seed of random numbers.
    pub seed: u64,
}

/// The plan of a script.
#[derive(Debug)]
pub struct SwiftPlan {
    /// The script, until the hosts are known and it begins.
    start: Option<(Program, ScriptWorld)>,
    evaluator: Option<Evaluator>,
    apps: Vec<AppDeclaration>,
    sources: Sources,
    /// The name of the script, to which the lines of tasks refer.
    script: String,
    hosts: Vec<PlanHost>,
    data: ScriptData,
    next_task: u32,
    /// The tasks that have not ended.
    calls: HashMap<TaskId, OpenTask>,
    steps: VecDeque<PlanStep>,
    /// Questions that wait for the content of a member.
    reads: HashMap<DataId, Vec<ScriptQuestionId>>,
    /// Answers that take time.
    answers: JoinSet<(ScriptQuestionId, Result<ScriptAnswer, String>)>,
    /// Times of a former evaluation.
    clocks: VecDeque<Duration>,
    /// Lines of calls.
    lines: HashMap<Span, u32>,
    failures: usize,
    problem: Option<Problem>,
}

/// A task that has not ended.
#[derive(Debug)]
struct OpenTask {
    call: CallId,
    app: usize,
    span: Span,
    /// The calls that led there.
    trace: Vec<String>,
}

impl SwiftPlan {
    /// The plan of a script that has not begun.
    pub fn new(script: SwiftScript, options: SwiftPlanOptions) -> Self {
        let SwiftScript { program, sources, files } = script;
        let name = files[0].display().to_string();
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let world = ScriptWorld {
            arguments: options.arguments,
            script: name.clone(),
            hosts: Vec::new(),
            environment: options.environment,
            seed: options.seed,
        };
        Self {
            apps: program.apps.clone(),
            start: Some((program, world)),
            evaluator: None,
            sources,
            script: name,
            hosts: Vec::new(),
            data: ScriptData::new(options.directories, files.iter().map(absolute)),
            next_task: 0,
            calls: HashMap::new(),
            steps: VecDeque::new(),
            reads: HashMap::new(),
            answers: JoinSet::new(),
            clocks: VecDeque::new(),
            lines: HashMap::new(),
            failures: 0,
            problem: None,
        }
    }

    fn evaluator(&mut self) -> &mut Evaluator {
        self.evaluator.as_mut().expect("it has begun")
    }

    /// Begins the script: the hosts are known.
    fn begin(&mut self, PlanView { hosts, notes, .. }: &PlanView) {
        let Some((program, world)) = self.start.take() else { return };
        self.hosts = hosts.to_vec();
        self.clocks = notes.iter().filter_map(|note| clock_of(note)).collect();
        let hosts = hosts.iter().map(|host| (host.name.clone(), host.slots)).collect();
        self.evaluator = Some(Evaluator::new(program, self.sources.clone(), ScriptWorld { hosts, ..world }));
    }

    /// Lets the script go on, and makes steps of what it does.
    fn advance(&mut self) -> Result<(), Problem> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        let steps = self.evaluator().advance(CALLS_PER_STEP)?;
        let mut tasks = Vec::new();
        for step in steps {
            let taken = match step {
                ScriptStep::Print(text) => {
                    self.steps.push_back(PlanStep::Print(text));
                    Ok(())
                }
                ScriptStep::Call(call) => self.task(call).map(|task| tasks.push(task)),
                ScriptStep::Ask(id, question) => self.ask(id, question),
                ScriptStep::Sealed(files) => {
                    for file in files {
                        self.data.seal(file);
                    }
                    Ok(())
                }
            };
            if let Err(problem) = taken {
                // Lines that were printed before are shown first.
                self.problem = Some(problem);
                return Ok(());
            }
        }
        let NewData { elements, exports, sealed } = self.data.take_new();
        if !(elements.is_empty() && tasks.is_empty() && sealed.is_empty()) {
            let parts = WorkflowGrowth { elements, tasks };
            self.steps.push_back(PlanStep::Grow(PlanGrowth { parts, exports, sealed }));
        }
        Ok(())
    }

    /// The task of a call.
    fn task(&mut self, call: AppCall) -> Result<Task, Problem> {
        let AppCall { id, app, values, priority, location, span, calls } = call;
        let app = app.0 as usize;
        let (mut files, mut configs, mut taken) = (Vec::new(), Vec::new(), HashSet::new());
        for (param, value) in values.into_iter().enumerate() {
            self.bind((app, param), value, (&mut files, &mut configs), &mut taken)
                .map_err(|message| self.sources.problem(span, message))?;
        }
        let (location, is_hard, after) = match location {
            Some(TaskLocation::Slot { rank, is_hard, is_node }) => {
                let target = self.slot(rank, is_node).map_err(|message| self.sources.problem(span, message))?;
                (Some(target), is_hard, None)
            }
            Some(TaskLocation::File { file, is_hard }) => {
                let datum = self.data.find(file).filter(|datum| datum.host.is_none());
                let target = datum.map(|datum| PlacingTarget::Data(datum.data));
                (target, is_hard, datum.and_then(|datum| datum.writer))
            }
            None => (None, false, None),
        };
        let priority = i32::try_from(priority).unwrap_or(if priority < 0 { i32::MIN } else { i32::MAX });
        let placing = TaskPlacing { priority, location, is_hard };
        let is_placed = placing != TaskPlacing::default();
        let task = Task {
            tool: ToolId(u32::try_from(app).expect("apps are few")),
            files: files.into(),
            configs: configs.into(),
            // It is placed when the file is there.
            after: after.into_iter().collect(),
            line: self.line(span),
            placing: is_placed.then(|| Box::new(placing)),
        };
        self.calls.insert(TaskId(self.next_task), OpenTask { call: id, app, span, trace: calls });
        self.next_task += 1;
        Ok(task)
    }

    /// Binds the value of a parameter.
    fn bind(
        &mut self,
        (app, param): (usize, usize),
        value: AppValue,
        (files, configs): (&mut Vec<FileBinding>, &mut Vec<ConfigBinding>),
        taken: &mut HashSet<String>,
    ) -> Result<(), String> {
        let declaration = &self.apps[app];
        let is_output = matches!(declaration.params[param].kind, AppParamKind::Output(_));
        let is_program = declaration.command.first() == Some(&AppTemplate::Param(param));
        let number = u16::try_from(param).map_err(|_| "the app function has too many parameters".to_owned())?;
        let mut datum = |file: &swift::AppFile| {
            if is_output {
                self.data.write(file, (&self.apps[app].name, TaskId(self.next_task)), taken)
            } else {
                Ok(self.data.read(file).data)
            }
        };
        match value {
            AppValue::File(file) => files.push(FileBinding { param: number, data: DataRefs::One(datum(&file)?) }),
            AppValue::Files(all) => {
                let members = all.iter().map(datum).collect::<Result<Vec<DataId>, String>>()?;
                if !members.is_empty() {
                    files.push(FileBinding { param: number, data: DataRefs::array(&members) });
                }
            }
            AppValue::Text(text) => {
                let text = if is_program { program_path(&text, &self.data.directories().data) } else { text };
                configs.push(ConfigBinding { param: number, value: ConfigValue::String(text) });
            }
            AppValue::Texts(texts) => {
                configs.push(ConfigBinding { param: number, value: ConfigValue::Strings(texts) });
            }
        }
        Ok(())
    }

    /// The worker of a rank, or its slot there.
    fn slot(&self, rank: i64, is_node: bool) -> Result<PlacingTarget, String> {
        let mut slot = u32::try_from(rank).ok();
        for host in &self.hosts {
            match slot {
                Some(_) if is_node && slot < Some(host.slots) => return Ok(PlacingTarget::Worker(host.worker)),
                Some(slot) if slot < host.slots => return Ok(PlacingTarget::Slot(host.worker, slot)),
                other => slot = other.map(|slot| slot - host.slots),
            }
        }
        let ranks: u32 = self.hosts.iter().map(|host| host.slots).sum();
        Err(format!("there is no rank {rank}: the ranks are 0 to {}", ranks.saturating_sub(1)))
    }

    /// The line of the script; 0 for a place in another file.
    fn line(&mut self, span: Span) -> u32 {
        let (sources, script) = (&self.sources, &self.script);
        *self.lines.entry(span).or_insert_with(|| {
            let at = sources.location(span);
            if at.file == *script { at.line } else { 0 }
        })
    }

    /// The time, or that of a former evaluation.
    fn clock(&mut self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = self.clocks.pop_front().unwrap_or(now);
        self.steps.push_back(PlanStep::Remember(clock_note(time)));
        time
    }

    /// Answers a question of the script, now or later.
    fn ask(&mut self, id: ScriptQuestionId, question: ScriptQuestion) -> Result<(), Problem> {
        let data_dir = &self.data.directories().data;
        let answer = match question {
            ScriptQuestion::Input(path) => self.data.check_input(&path).map(|()| ScriptAnswer::There),
            ScriptQuestion::Glob(pattern) => self.data.matching(&pattern).map(ScriptAnswer::Paths),
            ScriptQuestion::Exists(path) => Ok(ScriptAnswer::Boolean(data_dir.join(path).exists())),
            ScriptQuestion::Write { file, text } => self.data.write_text(&file, &text).map(|()| ScriptAnswer::There),
            ScriptQuestion::Type(path) => host_files::type_of(&data_dir.join(path)).map(ScriptAnswer::Text),
            ScriptQuestion::ModifiedTime(path) => host_files::changed(&data_dir.join(path)).map(ScriptAnswer::Time),
            ScriptQuestion::Clock => Ok(ScriptAnswer::Time(self.clock())),
            ScriptQuestion::Sleep(time) => {
                self.answers.spawn(async move {
                    tokio::time::sleep(time).await;
                    (id, Ok(ScriptAnswer::Elapsed))
                });
                return Ok(());
            }
            ScriptQuestion::Run(words) => {
                self.answers.spawn(async move { (id, commands::run(&words).await) });
                return Ok(());
            }
            ScriptQuestion::Read(file) => {
                let datum = self.data.read(&file);
                if let Some(path) = datum.host {
                    self.answers.spawn_blocking(move || (id, host_files::read_text(&path).map(ScriptAnswer::Text)));
                } else {
                    let waiting = self.reads.entry(datum.data).or_default();
                    waiting.push(id);
                    if waiting.len() == 1 {
                        self.steps.push_back(PlanStep::Read(datum.data));
                    }
                }
                return Ok(());
            }
        };
        self.evaluator().answer(id, answer)
    }

    /// Keeps the first problem for the next step.
    fn note(&mut self, result: Result<(), Problem>) {
        if let Err(problem) = result {
            self.problem.get_or_insert(problem);
        }
    }

    /// Tells how the script came to a call that has failed.
    fn tell_failure(&mut self, open: &OpenTask) {
        self.failures += 1;
        if open.trace.is_empty() || self.failures > FAILURES_TOLD_MAX {
            return;
        }
        let at = self.sources.location(open.span);
        let name = &self.apps[open.app].name;
        let text = format!("`{name}` in {}:{} has failed; {}", at.file, at.line, open.trace.join("; "));
        self.steps.push_back(PlanStep::Warn(text));
    }

    /// The end of the script, if it is over.
    fn end(&mut self) -> Option<PlanStep> {
        let evaluator = self.evaluator();
        if !evaluator.is_over() {
            return None;
        }
        Some(evaluator.stuck().map_or(PlanStep::Complete, PlanStep::Failed))
    }
}

/// The note of a time.
fn clock_note(time: Duration) -> String {
    format!("clock {}", time.as_nanos())
}

/// The time of a note.
fn clock_of(note: &str) -> Option<Duration> {
    note.strip_prefix("clock ")?.parse().ok().map(Duration::from_nanos)
}

impl PlanSource for SwiftPlan {
    fn poll_step(&mut self, run: &PlanView, context: &mut Context) -> Poll<PlanStep> {
        self.begin(run);
        loop {
            if let Some(step) = self.steps.pop_front() {
                return Poll::Ready(step);
            }
            while let Poll::Ready(Some(ended)) = self.answers.poll_join_next(context) {
                let (id, answer) = ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
                let answered = self.evaluator().answer(id, answer);
                self.note(answered);
            }
            if let Err(problem) = self.advance() {
                return Poll::Ready(PlanStep::Failed(problem));
            }
            if !self.steps.is_empty() {
                continue;
            }
            if self.problem.is_some() || self.evaluator().has_work() {
                // A loop without calls goes on when others had their turn.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            return self.end().map_or(Poll::Pending, Poll::Ready);
        }
    }

    fn task_ended(&mut self, task: TaskId, is_done: bool) {
        let Some(open) = self.calls.remove(&task) else { return };
        if !is_done {
            self.tell_failure(&open);
        }
        let ended = self.evaluator().call_ended(open.call, is_done);
        self.note(ended);
    }

    fn content(&mut self, data: DataId, content: Result<Vec<u8>, String>) {
        let text = content.and_then(|bytes| host_files::text_of(bytes, "the file"));
        for id in self.reads.remove(&data).unwrap_or_default() {
            let answered = self.evaluator().answer(id, text.clone().map(ScriptAnswer::Text));
            self.note(answered);
        }
    }
}
