//! Limits of what the report of a run keeps, and the truncation to them.
//!
//! A report of 10,000 tasks must open in two seconds, so a task has about 1 KB. Failures, which
//! users open the report for, have more, within a common budget.

use crate::{CapturedOutput, RunReport};

/// The most bytes kept of the command of a task that succeeded.
pub const COMMAND_BYTES_MAX: usize = 400;
/// The most bytes kept of a failed task's command.
pub const FAILED_COMMAND_BYTES_MAX: usize = 8 << 10;
/// The most bytes kept of the beginning of a task's stream.
pub const OUTPUT_HEAD_BYTES: usize = 4 << 10;
/// The most bytes kept of the end of a task's stream, where the cause usually is.
pub const OUTPUT_TAIL_BYTES: usize = 12 << 10;
/// The most bytes kept of all streams of all tasks, failed ones first. After that, tasks keep
/// `OUTPUT_SHORT_BYTES` of each stream's end.
pub const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// The most bytes kept of a stream when the budget is exhausted.
const OUTPUT_SHORT_BYTES: usize = 256;

const _: () = assert!(OUTPUT_SHORT_BYTES < OUTPUT_HEAD_BYTES && COMMAND_BYTES_MAX < FAILED_COMMAND_BYTES_MAX);

/// The first arguments of `argv`, `limit` bytes in all, and the number of arguments left out.
pub(crate) fn truncate_command(argv: &[String], limit: usize) -> (Vec<String>, u32) {
    let mut left = limit;
    let mut kept = Vec::new();
    for argument in argv {
        if argument.len() + 1 > left {
            // Always keep the program, and the beginning of a long argument.
            if kept.is_empty() || left > limit / 2 {
                kept.push(format!("{}…", &argument[..floor_boundary(argument, left)]));
            }
            break;
        }
        left -= argument.len() + 1;
        kept.push(argument.clone());
    }
    let cut = u32::try_from(argv.len() - kept.len()).unwrap_or(u32::MAX);
    (kept, cut)
}

/// Shortens streams that exceed `OUTPUT_BYTES_MAX` in sum, those of failed tasks last.
pub(crate) fn truncate_outputs(run: &mut RunReport) {
    let mut left = OUTPUT_BYTES_MAX;
    let reasons = run.tasks.iter_mut().filter_map(|task| task.reason.as_mut());
    for stream in reasons.flat_map(|reason| [&mut reason.stdout, &mut reason.stderr]).flatten() {
        fit(stream, &mut left);
    }
    for stream in run.tasks.iter_mut().flat_map(|task| [&mut task.stdout, &mut task.stderr]).flatten() {
        fit(stream, &mut left);
    }
}

/// Takes a stream's bytes from the budget, or shortens the stream.
fn fit(stream: &mut CapturedOutput, left: &mut usize) {
    match left.checked_sub(stream.head.len() + stream.tail.len()) {
        Some(rest) => *left = rest,
        None => shorten(stream),
    }
}

fn shorten(stream: &mut CapturedOutput) {
    let last = if stream.tail.is_empty() { &stream.head } else { &stream.tail };
    let from = last.len().saturating_sub(OUTPUT_SHORT_BYTES);
    let from = (from..=last.len()).find(|at| last.is_char_boundary(*at)).unwrap_or(last.len());
    stream.tail = last[from..].to_owned();
    stream.head = String::new();
}

/// The largest character boundary of `text` at or below `at`.
fn floor_boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FailureReason, TaskRecord};

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_command_within_the_limit_is_kept_whole() {
        let argv = words(&["sort", "-n", "a b"]);
        assert_eq!(truncate_command(&argv, 100), (argv, 0));
    }

    #[test]
    fn a_long_argument_is_cut_between_characters() {
        let argv = words(&["echo", &"é".repeat(100), "last"]);
        let (kept, cut) = truncate_command(&argv, 20);
        assert_eq!(kept, words(&["echo", "ééééééé…"]));
        assert_eq!(cut, 1);
    }

    #[test]
    fn what_done_tasks_printed_gives_way_to_what_failed_ones_did() {
        let stream =
            || Some(CapturedOutput::new(&[b'x'; OUTPUT_HEAD_BYTES], &[b'y'; OUTPUT_TAIL_BYTES], 1 << 20).unwrap());
        let done = TaskRecord { stdout: stream(), ..TaskRecord::default() };
        let failed = TaskRecord {
            reason: Some(FailureReason { stdout: stream(), ..FailureReason::default() }),
            ..TaskRecord::default()
        };
        let fit = OUTPUT_BYTES_MAX / (OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES);
        let mut run = RunReport { tasks: vec![done; 2], ..RunReport::default() };
        run.tasks.extend(vec![failed; fit]);
        truncate_outputs(&mut run);
        let kept =
            |stream: &Option<CapturedOutput>| stream.as_ref().map(|stream| stream.head.len() + stream.tail.len());
        assert_eq!(kept(&run.tasks[0].stdout), Some(OUTPUT_SHORT_BYTES));
        let last = run.tasks.last().and_then(|task| task.reason.as_ref()).unwrap();
        assert_eq!(kept(&last.stdout), Some(OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES));
    }

    #[test]
    fn ten_thousand_failures_with_long_output_stay_within_the_budget() {
        let text = "x".repeat(OUTPUT_HEAD_BYTES);
        let stream = CapturedOutput { head: text.clone(), tail: text, bytes: 1 << 20 };
        let reason = FailureReason { stderr: Some(stream), ..FailureReason::default() };
        let task = TaskRecord { reason: Some(reason), ..TaskRecord::default() };
        let mut run = RunReport { tasks: vec![task; 10_000], ..RunReport::default() };
        truncate_outputs(&mut run);
        let kept: usize = run
            .tasks
            .iter()
            .filter_map(|task| task.reason.as_ref()?.stderr.as_ref())
            .map(|stream| stream.head.len() + stream.tail.len())
            .sum();
        assert!(kept < OUTPUT_BYTES_MAX + 10_000 * OUTPUT_SHORT_BYTES);
        assert!(run.tasks.iter().all(|task| !task.reason.as_ref().unwrap().stderr.as_ref().unwrap().tail.is_empty()));
    }
}
