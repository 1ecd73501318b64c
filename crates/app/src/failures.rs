//! Failed tasks for people: one task of each kind of failure in full, the others counted at the
//! end.

use crate::progress::plain;
use base::ByteSize;
use run::RunEvent;
use std::fmt::Write;

/// Upper bound of the lines of a failed task's output that are shown.
const LINES_MAX: usize = 20;

/// Upper bound of the tasks of one kind of failure that are named; the others are counted.
const NAMED_MAX: usize = 10;

/// Upper bound of the kinds of failure that are remembered; tasks of further kinds are always shown
/// in full.
const KINDS_MAX: usize = 1000;

/// The failures of one run so far.
#[derive(Debug, Default)]
pub struct Failures {
    kinds: Vec<FailureKind>,
}

/// A kind of failure: tasks of one tool with the same reason and the same last line of output.
#[derive(Debug)]
struct FailureKind {
    tool: String,
    reason: String,
    last_line: String,
    first: u32,
    others: Vec<u32>,
}

impl Failures {
    /// The text for a failed task; `None` if another one failed in the same way.
    pub fn add(&mut self, event: &RunEvent) -> Option<String> {
        let RunEvent::TaskFailed { task, tool, reason, output, upstream: false, .. } = event else { return None };
        let last_line = output.lines().last().unwrap_or_default();
        let alike =
            |kind: &&mut FailureKind| kind.tool == *tool && kind.reason == *reason && kind.last_line == last_line;
        if let Some(kind) = self.kinds.iter_mut().find(alike) {
            kind.others.push(task.0);
            return None;
        }
        if self.kinds.len() < KINDS_MAX {
            let (tool, reason, last_line) = (tool.clone(), reason.clone(), last_line.to_owned());
            self.kinds.push(FailureKind { tool, reason, last_line, first: task.0, others: Vec::new() });
        }
        Some(describe(event))
    }

    /// Lines for the tasks that were only counted, one for each kind of failure.
    pub fn counted(&self) -> impl Iterator<Item = String> + '_ {
        self.kinds.iter().filter(|kind| !kind.others.is_empty()).map(|kind| {
            let FailureKind { tool, first, others, .. } = kind;
            let named: Vec<String> = others.iter().take(NAMED_MAX).map(ToString::to_string).collect();
            let (count, dots) = (others.len(), if others.len() > NAMED_MAX { " ..." } else { "" });
            let more = if count == 1 { "1 more task of" } else { "more tasks of" };
            let count = if count == 1 { String::new() } else { format!("{count} ") };
            format!("{count}{more} {tool} failed as task {first} did: {}{dots}", named.join(", "))
        })
    }
}

/// Describes a failed task: its call, the reason, the directory where it is kept, and the end of
/// its output, indented.
fn describe(event: &RunEvent) -> String {
    let RunEvent::TaskFailed { task, tool, reason, line, writes, values, output, left_out, kept, .. } = event else {
        return String::new();
    };
    let mut text = format!("task {} {tool} failed: {reason}", task.0);
    let what = [("writes", writes), ("with", values)].into_iter().filter(|(_, what)| !what.is_empty());
    let what = what.map(|(word, what)| format!("{word} {}", plain(what)));
    let call = (*line > 0).then(|| format!("called in line {line}"));
    let about: Vec<String> = call.into_iter().chain(what).collect();
    if !about.is_empty() {
        let _ = write!(text, "\n    {}", about.join("; "));
    }
    if let Some(directory) = kept {
        let directory = directory.display();
        let _ = write!(text, "\n    it is kept in {directory}; {directory}/run.sh repeats it");
    }
    let lines: Vec<&str> = output.lines().collect();
    let (before, shown) = lines.split_at(lines.len().saturating_sub(LINES_MAX));
    let bytes = left_out + before.iter().map(|line| line.len() as u64 + 1).sum::<u64>();
    if bytes > 0 {
        let _ = write!(text, "\n    | [{} of its output left out]", ByteSize(bytes));
    }
    for line in shown {
        let _ = write!(text, "\n    | {}", plain(line));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::TaskId;

    fn failed(task: u32, reason: &str, output: &str) -> RunEvent {
        RunEvent::TaskFailed {
            task: TaskId(task),
            tool: "C45".into(),
            reason: reason.into(),
            line: 12,
            writes: format!("Model[{task}]"),
            values: "seed = 7".into(),
            output: output.into(),
            left_out: 0,
            kept: None,
            upstream: false,
        }
    }

    #[test]
    fn a_failed_task_is_told_with_its_line_outputs_values_and_how_much_is_left_out() {
        let output = (0..30).map(|line| format!("line {line}")).collect::<Vec<_>>().join("\n") + "\n";
        let text = Failures::default().add(&failed(7, "it ended with exit code 3", &output)).unwrap();
        let (head, end) = text.split_once("\n    | ").unwrap();
        assert_eq!(
            head,
            "task 7 C45 failed: it ended with exit code 3\n    called in line 12; writes Model[7]; with seed = 7"
        );
        assert!(end.starts_with("[70 B of its output left out]\n    | line 10\n"), "{text}");
        assert!(end.ends_with("| line 29"), "{text}");
    }

    #[test]
    fn equal_failures_are_told_once_with_their_number() {
        let mut failures = Failures::default();
        let shown: Vec<bool> = (0..20).map(|task| failures.add(&failed(task, "exit 3", "oh\n")).is_some()).collect();
        assert_eq!(shown.iter().filter(|shown| **shown).count(), 1);
        assert!(failures.add(&failed(20, "exit 4", "oh\n")).is_some(), "another reason");
        assert!(failures.add(&failed(21, "exit 3", "ah\n")).is_some(), "another last word");
        assert!(failures.add(&failed(22, "exit 4", "oh\n")).is_none());
        let counted: Vec<String> = failures.counted().collect();
        assert_eq!(counted[0], "19 more tasks of C45 failed as task 0 did: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 ...");
        assert_eq!(counted[1], "1 more task of C45 failed as task 20 did: 22");
    }

    #[test]
    fn a_task_that_failed_upstream_is_only_counted() {
        let RunEvent::TaskFailed { task, tool, reason, line, writes, values, output, left_out, kept, .. } =
            failed(8, "P was not written", "")
        else {
            unreachable!()
        };
        let upstream = true;
        let event = RunEvent::TaskFailed { task, tool, reason, line, writes, values, output, left_out, kept, upstream };
        assert_eq!(Failures::default().add(&event), None);
    }

    #[test]
    fn a_task_that_is_kept_is_told_with_the_script_that_repeats_it() {
        let RunEvent::TaskFailed { task, tool, reason, upstream, .. } = failed(7, "it ran out of time", "") else {
            unreachable!()
        };
        let (writes, values, output, kept) = (String::new(), String::new(), String::new(), Some("/r/failed/7".into()));
        let event =
            RunEvent::TaskFailed { task, tool, reason, line: 0, writes, values, output, left_out: 5, kept, upstream };
        assert_eq!(
            Failures::default().add(&event).unwrap(),
            "task 7 C45 failed: it ran out of time\n    it is kept in /r/failed/7; /r/failed/7/run.sh repeats it\n    \
             | [5 B of its output left out]"
        );
    }

    #[test]
    fn failures_of_more_kinds_than_are_remembered_are_all_told() {
        let mut failures = Failures::default();
        let kinds = u32::try_from(KINDS_MAX).unwrap() + 1;
        for task in 0..kinds {
            assert!(failures.add(&failed(task, &format!("reason {task}"), "")).is_some());
        }
        assert!(failures.add(&failed(kinds, "reason 0", "")).is_none(), "it is remembered");
        assert!(failures.add(&failed(kinds, &format!("reason {KINDS_MAX}"), "")).is_some(), "it is not");
        assert_eq!(failures.counted().count(), 1);
    }

    #[test]
    fn a_failure_of_another_tool_is_another_failure() {
        let mut failures = Failures::default();
        let RunEvent::TaskFailed { task, reason, line, writes, values, output, left_out, kept, upstream, .. } =
            failed(1, "exit 3", "oh\n")
        else {
            unreachable!()
        };
        let tool = "SVM".to_owned();
        let event = RunEvent::TaskFailed { task, tool, reason, line, writes, values, output, left_out, kept, upstream };
        assert!(failures.add(&failed(0, "exit 3", "oh\n")).is_some() && failures.add(&event).is_some());
        assert_eq!(failures.add(&RunEvent::Warning("w".into())), None, "only failures are told");
    }
}
