//! The report as it fills: what happened to tasks and data, in the words of run.json.

use crate::export::Written;
use crate::keep_failed;
use crate::provenance::Hashes;
use crate::workspace::Made;
use base::ByteSize;
use flow::{DataId, TaskId};
use report::{Attempt, Captured, Outcome, Reason, ReasonKind, Run, Seconds, Status};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

/// How an attempt failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The sort of failure.
    pub kind: ReasonKind,
    /// A sentence: what failed, on what, what to do.
    pub text: String,
    /// The signal that ended the process.
    pub signal: Option<i32>,
    /// Whether another attempt can help.
    pub retry: bool,
    /// The folder that the attempt is kept in, if it is.
    pub kept: Option<PathBuf>,
}

impl Failure {
    /// A failure without a signal that another attempt may mend.
    pub fn new(kind: ReasonKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), signal: None, retry: true, kept: None }
    }
}

/// One attempt of a task, after it ended.
#[derive(Debug)]
pub struct Tried {
    /// The task.
    pub task: TaskId,
    /// When it started.
    pub started: Instant,
    /// When it ended.
    pub ended: Instant,
    /// The command; empty if it could not be made.
    pub argv: Vec<String>,
    /// The exit code, if it exited.
    pub exit_code: Option<i32>,
    /// Processor seconds.
    pub cpu_s: Option<f64>,
    /// Largest resident memory, in bytes.
    pub max_rss_bytes: Option<u64>,
    /// The most memory of their own that its processes held together, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// What it printed.
    pub stdout: Option<Captured>,
    /// The same on standard error.
    pub stderr: Option<Captured>,
    /// Whether the pool refused space to somebody while it ran, perhaps to another task: which one is not known, and a warning
    /// too many does less harm than one too few.
    pub refused: bool,
    /// What it wrote, or why it failed.
    pub result: Result<Vec<Made>, Failure>,
}

/// A `report::Run` with the clock that its times start from.
#[derive(Debug)]
pub struct Record {
    /// The report so far.
    pub run: Run,
    begun: Instant,
    /// Tasks that may have written less than they meant to.
    doubts: usize,
    /// Tools whose tasks took more memory than they declare, and were told.
    hungry: BTreeSet<String>,
}

impl Record {
    /// A record whose times count from `begun`.
    pub fn new(run: Run, begun: Instant) -> Self {
        Self { run, begun, doubts: 0, hungry: BTreeSet::new() }
    }

    /// Seconds from the start to `moment`.
    pub fn at(&self, moment: Instant) -> Seconds {
        moment.saturating_duration_since(self.begun).into()
    }

    /// Seconds from the start to now.
    pub fn now(&self) -> Seconds {
        self.at(Instant::now())
    }

    fn task(&mut self, id: TaskId) -> &mut report::Task {
        &mut self.run.tasks[id.0 as usize]
    }

    fn member(&mut self, id: DataId) -> &mut report::Member {
        &mut self.run.data[id.0 as usize]
    }

    /// An attempt starts.
    pub fn started(&mut self, id: TaskId, slot: u32, attempt: u32) {
        let task = self.task(id);
        task.slot = Some(slot);
        task.attempts = attempt;
    }

    /// An attempt ended; what became of the task is said apart.
    pub fn tried(&mut self, tried: &Tried) {
        let (start, end) = (self.at(tried.started), self.at(tried.ended));
        for made in tried.result.iter().flatten() {
            let member = self.member(made.data);
            (member.bytes, member.written_s) = (Some(made.bytes), Some(end));
        }
        let task = self.task(tried.task);
        (task.start_s, task.end_s) = (Some(start), Some(end));
        task.exit_code = tried.exit_code;
        task.cpu_s = tried.cpu_s.map(Seconds::rounded);
        task.max_rss_bytes = tried.max_rss_bytes;
        task.peak_memory_bytes = tried.peak_memory_bytes;
        let printed = (tried.stdout.clone(), tried.stderr.clone());
        let (of_failure, of_success) =
            if tried.result.is_ok() { ((None, None), printed) } else { (printed, (None, None)) };
        (task.stdout, task.stderr) = of_success;
        task.reason = tried.result.as_ref().err().map(|failure| Reason {
            kind: failure.kind,
            text: failure.text.clone(),
            root: Some(tried.task.0),
            via: None,
            signal: failure.signal,
            kept: failure.kept.as_ref().map(|folder| folder.display().to_string()),
            repeat: failure.kept.as_ref().map(|folder| folder.join(keep_failed::SCRIPT).display().to_string()),
            stdout: of_failure.0,
            stderr: of_failure.1,
        });
        task.status = Status::of(task.reason.as_ref());
        task.set_command(&tried.argv);
    }

    /// The attempt failed for another reason than its process gave.
    pub fn blame(&mut self, id: TaskId, failure: &Failure) {
        let task = self.task(id);
        if let Some(reason) = &mut task.reason {
            (reason.kind, reason.text) = (failure.kind, failure.text.clone());
            task.status = Status::of(Some(reason));
        }
    }

    /// The attempt that just failed is followed by another.
    pub fn retried(&mut self, id: TaskId) {
        let task = self.task(id);
        let (Some(slot), Some(start_s), Some(end_s)) = (task.slot, task.start_s, task.end_s) else { return };
        let text = task.reason.as_ref().map(|reason| reason.text.clone()).unwrap_or_default();
        let (cpu_s, peak_memory_bytes) = (task.cpu_s, task.peak_memory_bytes);
        task.earlier.push(Attempt { slot, start_s, end_s, text, cpu_s, peak_memory_bytes });
    }

    /// The task failed without an attempt of its own.
    pub fn never_ran(&mut self, id: TaskId, reason: Reason) {
        let task = self.task(id);
        task.status = Status::of(Some(&reason));
        task.reason = Some(reason);
    }

    /// The member was deleted from the pool.
    pub fn dropped(&mut self, id: DataId) {
        let now = self.now();
        self.member(id).dropped_s = Some(now);
    }

    /// The member stands under `--out`.
    pub fn exported(&mut self, id: DataId, path: String, written: Written) {
        let member = self.member(id);
        (member.exported, member.hash) = (Some(path), Some(written.hash));
    }

    /// What tools and inputs hash to.
    pub fn hashed(&mut self, hashes: Hashes) {
        self.run.provenance.tools = hashes.tools;
        for (id, hash, bytes) in hashes.inputs {
            let member = self.member(id);
            (member.hash, member.bytes) = (Some(hash), Some(bytes));
        }
    }

    /// How busy the machine is now: processor seconds since any moment before the run, bytes of memory in use.
    pub fn machine_sample(&mut self, (cpu_s, memory_bytes): (f64, u64)) {
        let now = self.now();
        if let Some(used) = &mut self.run.machine_use {
            used.push(now, cpu_s, memory_bytes);
        }
    }

    /// How full the pool is now.
    pub fn sample(&mut self, used: u64, capacity: u64) {
        let now = self.now();
        self.run.pool.push(now, used, capacity);
    }

    /// The most that the pool held at any moment.
    pub fn peak(&mut self, bytes: u64) {
        self.run.pool.mark(bytes);
    }

    /// Works out how little memory other orders of the tasks would have needed, if all of them are done.
    pub fn find_least_peak(&mut self, workflow: &flow::Workflow) {
        if self.run.tasks.iter().any(|task| task.status != Status::Done) {
            return;
        }
        let bytes = |data: DataId| self.run.data[data.0 as usize].bytes.unwrap_or(0);
        let settings = &self.run.settings;
        let found = sched::least_peak(&sched::tasks_of(workflow), settings.slots, bytes, |_| settings.keep);
        if let Some(found) = found {
            self.run.pool.least_peak_bytes = Some(found.bytes);
            self.run.pool.least_peak_orders = found.orders;
        }
    }

    /// A task ended well although the pool was full while it ran: programs that do not look at errors of writing do.
    pub fn doubtful(&mut self, id: TaskId) -> Option<String> {
        const TOLD_MAX: usize = 10;
        let tool = self.task(id).tool.clone();
        let text = format!(
            "the pool was full while task {} {tool} ran, which ended well all the same: its outputs may be cut short; give more with --memory",
            id.0
        );
        self.doubts += 1;
        (self.doubts <= TOLD_MAX).then(|| {
            self.run.warnings.push(text.clone());
            text
        })
    }

    /// An attempt held more memory than its tool declares (`limit`; 0: nothing), which others were promised: told once for each tool.
    pub fn passed_memory(&mut self, tried: &Tried, limit: u64) -> Option<String> {
        let peak = tried.peak_memory_bytes.filter(|peak| limit > 0 && *peak > limit)?;
        let tool = self.task(tried.task).tool.clone();
        let text = format!(
            "tool {tool}: task {} held {} of memory, more than its `memory = {:?}`: raise it, or fewer tasks fit than run at once",
            tried.task.0,
            ByteSize(peak),
            ByteSize(limit).to_string().replace(' ', ""),
        );
        self.hungry.insert(tool).then(|| {
            self.run.warnings.push(text.clone());
            text
        })
    }

    /// Something about the whole run went wrong; the first word of it stays.
    pub fn problem(&mut self, text: String) {
        self.run.problem.get_or_insert(text);
    }

    /// Ends the report: the outcome follows from the tasks, the problem and whether the user gave up.
    pub fn seal(&mut self, interrupted: bool) {
        let failed = self.run.problem.is_some() || self.run.tasks.iter().any(|task| task.status != Status::Done);
        self.run.outcome = match (interrupted, failed) {
            (true, _) => Outcome::Interrupted,
            (false, true) => Outcome::Failed,
            (false, false) => Outcome::Done,
        };
        self.run.exit_code = i32::from(self.run.outcome != Outcome::Done);
        let makespan = self.now();
        self.run.seal(makespan);
        self.run.ended = wall_clock();
    }
}

/// Now, as run.json writes it.
pub fn wall_clock() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    report::rfc3339_utc(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(task: u32, peak: Option<u64>) -> Tried {
        let now = Instant::now();
        Tried {
            task: TaskId(task),
            started: now,
            ended: now,
            argv: Vec::new(),
            exit_code: Some(0),
            cpu_s: None,
            max_rss_bytes: None,
            peak_memory_bytes: peak,
            stdout: None,
            stderr: None,
            refused: false,
            result: Ok(Vec::new()),
        }
    }

    #[test]
    fn a_tool_that_takes_more_memory_than_it_declares_is_told_once() {
        let task = |tool: &str| report::Task { tool: tool.into(), ..report::Task::default() };
        let run = Run { tasks: vec![task("hog"), task("hog"), task("calm")], ..Run::default() };
        let mut record = Record::new(run, Instant::now());
        let limit = 8 << 20;
        assert_eq!(record.passed_memory(&tried(0, Some(limit)), limit), None);
        assert_eq!(record.passed_memory(&tried(0, None), limit), None, "it is not known");
        assert_eq!(record.passed_memory(&tried(0, Some(40 << 20)), 0), None, "nothing was declared");
        let told = record.passed_memory(&tried(0, Some(40 << 20)), limit).unwrap();
        assert!(told.contains("tool hog: task 0 held 40 MiB") && told.contains("`memory = \"8MiB\"`"), "{told}");
        assert_eq!(record.passed_memory(&tried(1, Some(50 << 20)), limit), None);
        assert!(record.passed_memory(&tried(2, Some(50 << 20)), limit).is_some());
        assert_eq!(record.run.warnings.len(), 2);
    }
}
