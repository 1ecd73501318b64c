//! View of a run for `tidemill top`: counts, slots, tools, where the time went, the longest chain.
//! Only lines of text, each cut to the width of the terminal.

use crate::progress::duration;
use crate::recorded_run::{RecordedRun, RunCondition, TaskCondition};
use crate::task_account::seconds;
use base::{ByteSize, printable};
use flow::TaskId;
use journal::AttemptTrace;
use std::collections::BTreeMap;

/// Lines beside those of slots and tools: counts, headings, empty lines, time and chain.
const FIXED_LINES: usize = 10;

/// The most tasks of the longest chain that are named.
const CHAIN_NAMED_MAX: usize = 8;

/// Size of the terminal: columns and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewSize {
    /// Characters of a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

/// Where the time of all tasks went, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct CauseTimes {
    /// Before all that a task needs was there.
    for_data: u64,
    /// From then to its first start.
    for_slot: u64,
    /// Its directory and inputs were prepared.
    moving: u64,
    /// Its process ran.
    computing: u64,
}

/// What is counted for each tool.
#[derive(Debug, Default)]
struct ToolCounts {
    done: usize,
    running: usize,
    ready: usize,
    waiting: usize,
    failed: usize,
    /// Milliseconds of the processes of tasks that are done.
    ran_ms: Vec<u64>,
}

/// The lines of the view.
pub fn lines(run: &RecordedRun, size: ViewSize) -> Vec<String> {
    let conditions: Vec<TaskCondition> = run.tasks().map(|task| run.condition_of(task)).collect();
    let now_ms = run.now_ms();
    let mut lines = header(run, &conditions, now_ms);
    let (tools, slots) = (tool_lines(run, &conditions), slot_lines(run, now_ms));
    // The slots come first: tools get half of the space, or what slots leave.
    let space = size.rows.saturating_sub(FIXED_LINES);
    let tools_shown = tools.len().min((space / 2).max(space.saturating_sub(slots.len())));
    lines.push(String::new());
    lines.extend(shortened(slots, space - tools_shown.min(space)));
    lines.push(String::new());
    lines.push(format!(
        "{:<24} {:>7} {:>7} {:>7} {:>7} {:>7}  median",
        "tool", "done", "running", "ready", "waiting", "failed"
    ));
    lines.extend(shortened(tools, tools_shown));
    lines.push(String::new());
    lines.push(time_line(run, &conditions, now_ms));
    lines.push(bytes_line(run));
    lines.push(chain_line(run, now_ms));
    lines.iter().map(|line| fitted(line, size.columns)).collect()
}

/// The line without control characters, cut to the width.
pub fn fitted(line: &str, columns: usize) -> String {
    let safe = printable::line(line);
    if safe.chars().count() <= columns {
        return safe.into_owned();
    }
    safe.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// The first lines; of many the last one counts the others.
pub fn shortened(mut lines: Vec<String>, max: usize) -> Vec<String> {
    if lines.len() > max.max(1) {
        let shown = max.max(1) - 1;
        let left_out = lines.len() - shown;
        lines.truncate(shown);
        lines.push(format!("  ... and {left_out} more"));
    }
    lines
}

fn header(run: &RecordedRun, conditions: &[TaskCondition], now_ms: u64) -> Vec<String> {
    let count = |wanted: TaskCondition| conditions.iter().filter(|condition| **condition == wanted).count();
    let state = match (run.condition(), &run.state.ended) {
        (RunCondition::Live, _) => "goes on".to_owned(),
        (RunCondition::Killed, _) => "was killed".to_owned(),
        (RunCondition::Ended, ended) => ended.as_ref().map_or_else(String::new, |(_, outcome)| outcome.clone()),
    };
    vec![
        format!("{}: {state}, {} so far", run.state.header.run, duration(seconds(now_ms))),
        format!(
            "{} of {} tasks done, {} running, {} ready, {} waiting, {} failed",
            count(TaskCondition::Done),
            conditions.len(),
            count(TaskCondition::Running),
            count(TaskCondition::Ready),
            count(TaskCondition::Waiting),
            count(TaskCondition::Failed),
        ),
    ]
}

/// The slots of each node, and the task that runs in each.
fn slot_lines(run: &RecordedRun, now_ms: u64) -> Vec<String> {
    let mut running: BTreeMap<u32, Vec<(TaskId, &AttemptTrace)>> = BTreeMap::new();
    for task in run.tasks() {
        for attempt in run.state.task(task).iter().flat_map(|trace| &trace.attempts) {
            if attempt.ended_ms.is_none() {
                running.entry(attempt.worker).or_default().push((task, attempt));
            }
        }
    }
    let mut lines = Vec::new();
    for (worker, trace) in run.state.workers.iter().filter(|(_, trace)| trace.lost_ms.is_none()) {
        let mut tasks = running.remove(worker).unwrap_or_default();
        tasks.sort_by_key(|(_, attempt)| attempt.slot);
        lines.push(format!("{}: {} tasks in {} slots", trace.name, tasks.len(), trace.slots));
        let describe = |(task, attempt): (TaskId, &AttemptTrace)| {
            let ran = duration(seconds(now_ms.saturating_sub(attempt.started_ms)));
            let again = if attempt.number > 1 { format!(", attempt {}", attempt.number) } else { String::new() };
            let tool = &run.flow.tool_of(task).name;
            format!(
                "  {:>3}  {ran:>10}  task {} {tool} -> {}{again}",
                attempt.slot,
                task.0,
                run.flow.describe_outputs(task)
            )
        };
        lines.extend(tasks.into_iter().map(describe));
    }
    lines
}

/// Counts of each tool that tasks call.
fn tool_lines(run: &RecordedRun, conditions: &[TaskCondition]) -> Vec<String> {
    let mut counts: BTreeMap<flow::ToolId, ToolCounts> = BTreeMap::new();
    for (task, condition) in run.tasks().zip(conditions) {
        let count = counts.entry(run.flow.task(task).tool).or_default();
        *match condition {
            TaskCondition::Done => &mut count.done,
            TaskCondition::Running => &mut count.running,
            TaskCondition::Ready => &mut count.ready,
            TaskCondition::Waiting => &mut count.waiting,
            TaskCondition::Failed => &mut count.failed,
        } += 1;
        let last = run.state.task(task).and_then(|trace| trace.attempts.last());
        if let Some((_, ran)) = last.and_then(|attempt| attempt.took_ms.filter(|_| attempt.failure.is_none())) {
            count.ran_ms.push(ran);
        }
    }
    let describe = |(tool, mut count): (flow::ToolId, ToolCounts)| {
        count.ran_ms.sort_unstable();
        let median =
            count.ran_ms.get(count.ran_ms.len() / 2).map_or_else(|| "-".to_owned(), |ms| duration(seconds(*ms)));
        let ToolCounts { done, running, ready, waiting, failed, .. } = count;
        let name: String = run.flow.workflow().tools[tool.0 as usize].name.chars().take(24).collect();
        format!("{name:<24} {done:>7} {running:>7} {ready:>7} {waiting:>7} {failed:>7}  {median}")
    };
    counts.into_iter().map(describe).collect()
}

fn time_line(run: &RecordedRun, conditions: &[TaskCondition], now_ms: u64) -> String {
    let CauseTimes { for_data, for_slot, moving, computing } = time_by_cause(run, conditions, now_ms);
    let [for_data, for_slot, moving, computing] =
        [for_data, for_slot, moving, computing].map(|ms| duration(seconds(ms)));
    format!("time: waiting for data {for_data}, for a slot {for_slot}, moving {moving}, computing {computing}")
}

fn time_by_cause(run: &RecordedRun, conditions: &[TaskCondition], now_ms: u64) -> CauseTimes {
    let mut sum = CauseTimes::default();
    for (task, condition) in run.tasks().zip(conditions) {
        let attempts = run.state.task(task).map(|trace| trace.attempts.as_slice()).unwrap_or_default();
        let first_start = attempts.first().map(|attempt| attempt.started_ms);
        let until = first_start.unwrap_or(if *condition == TaskCondition::Failed { 0 } else { now_ms });
        let ready = run.ready(task).map_or(until, |(ms, _)| ms.min(until));
        sum.for_data += ready;
        sum.for_slot += until - ready;
        for attempt in attempts {
            let all = attempt.ended_ms.unwrap_or(now_ms).saturating_sub(attempt.started_ms);
            let (moving, computing) = attempt.took_ms.unwrap_or((0, all));
            sum.moving += moving;
            sum.computing += computing;
        }
    }
    sum
}

/// The pool, and the bytes of the inputs of all attempts by where they were.
fn bytes_line(run: &RecordedRun) -> String {
    let attempts = run.state.tasks.iter().flat_map(|trace| &trace.attempts);
    let (near, far) = attempts.fold((0, 0), |(near, far), attempt| (near + attempt.near, far + attempt.far));
    let pool = match run.state.pool {
        Some((used, capacity)) if capacity > 0 => format!("pool: {} of {}; ", ByteSize(used), ByteSize(capacity)),
        _ => String::new(),
    };
    format!("{pool}inputs of tasks: {} near, {} far", ByteSize(near), ByteSize(far))
}

/// The chain of tasks, each of which needs the one before, that took longest so far.
fn chain_line(run: &RecordedRun, now_ms: u64) -> String {
    let mut lengths: Vec<(u64, Option<TaskId>)> = vec![(0, None); run.state.tasks.len()];
    let mut longest: Option<TaskId> = None;
    for task in run.flow.order().iter().copied() {
        let trace = run.state.task(task);
        let Some(last) = trace.and_then(|trace| trace.attempts.last()) else { continue };
        let own = last.ended_ms.unwrap_or(now_ms).saturating_sub(last.started_ms);
        let writers = run.flow.inputs(task).filter_map(|data| run.flow.writer_of(data));
        let before = writers.chain(run.flow.task(task).after.iter().copied());
        let best = before.max_by_key(|writer| lengths[writer.0 as usize].0);
        let length = own + best.map_or(0, |writer| lengths[writer.0 as usize].0);
        lengths[task.0 as usize] = (length, best);
        if longest.is_none_or(|longest| length > lengths[longest.0 as usize].0) {
            longest = Some(task);
        }
    }
    let Some(end) = longest else { return "longest chain so far: none".to_owned() };
    let mut chain: Vec<TaskId> =
        std::iter::successors(Some(end), |task| lengths[task.0 as usize].1).take(run.state.tasks.len()).collect();
    chain.reverse();
    let skipped = chain.len().saturating_sub(CHAIN_NAMED_MAX);
    let named = chain[skipped..].iter().map(|task| format!("{} {}", task.0, run.flow.tool_of(*task).name));
    let names: Vec<String> = (skipped > 0).then(|| "...".to_owned()).into_iter().chain(named).collect();
    let length = duration(seconds(lengths[end.0 as usize].0));
    format!("longest chain so far: {} tasks, {length}: {}", chain.len(), names.join(" > "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_the_terminal_and_cannot_command_it() {
        assert_eq!(fitted("short", 80), "short");
        assert_eq!(fitted("abcdef", 4), "abc…");
        assert!(!fitted("\x1b[2J", 80).contains('\x1b'));
    }

    #[test]
    fn of_many_lines_the_last_counts_the_others() {
        let lines: Vec<String> = (0..5).map(|number| number.to_string()).collect();
        assert_eq!(shortened(lines.clone(), 5), lines);
        assert_eq!(shortened(lines.clone(), 3), ["0", "1", "  ... and 3 more"]);
        assert_eq!(shortened(lines, 0), ["  ... and 5 more"]);
    }
}
