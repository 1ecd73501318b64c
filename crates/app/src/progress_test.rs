//! Tests of the lines that people see during a run.

use super::*;
use flow::TaskId;

fn failed(task: u32, reason: &str) -> RunEvent {
    RunEvent::TaskFailed {
        task: TaskId(task),
        tool: "Sort".into(),
        reason: reason.into(),
        line: 0,
        writes: String::new(),
        values: String::new(),
        output: String::new(),
        left_out: 0,
        kept: None,
        upstream: false,
    }
}

fn exported(number: usize) -> RunEvent {
    RunEvent::Exported { data: format!("E[{number}]"), path: format!("out/E_{number}"), bytes: 1024 }
}

fn ended(outcome: &'static str, done: usize, failed: usize) -> RunEvent {
    RunEvent::Ended { outcome, seconds: 65.0, done, failed, report: None }
}

#[test]
fn a_run_starts_with_its_tasks_slots_and_storage_in_one_line() {
    let started = |tasks, slots| {
        let storage_line = "the pool of 1 GiB is mounted".to_owned();
        let memory = ByteSize(1 << 30);
        sentence(&RunEvent::Started { run: "r".into(), tasks, slots, storage: "mount", storage_line, memory })
    };
    assert_eq!(started(1, 1).as_deref(), Some("1 task on 1 slot; the pool of 1 GiB is mounted"));
    assert_eq!(started(0, 2).as_deref(), Some("2 slots; the pool of 1 GiB is mounted"));
}

#[test]
fn the_last_line_counts_tasks_and_says_how_the_run_ended() {
    let cases = [
        (ended("done", 1, 0), "done: 1 task done, 1 min 5 s"),
        (ended("done", 0, 0), "done: 0 tasks done, 1 min 5 s"),
        (ended("failed", 2, 1), "failed: 2 tasks done, 1 failed or never ran, 1 min 5 s"),
        (ended("interrupted", 2, 1), "interrupted: 2 tasks done, 1 not finished, 1 min 5 s"),
    ];
    for (event, expected) in cases {
        assert_eq!(sentence(&event).as_deref(), Some(expected));
    }
}

#[test]
fn warnings_and_retries_are_said_and_events_of_single_tasks_are_not() {
    let said = [
        (RunEvent::Warning("the mount is slow".into()), "warning: the mount is slow"),
        (
            RunEvent::TaskRetried { task: TaskId(3), tool: "Sort".into(), reason: "exit code 1".into() },
            "task 3 Sort is tried again: exit code 1",
        ),
    ];
    for (event, expected) in said {
        assert_eq!(sentence(&event).as_deref(), Some(expected));
    }
    let silent = [
        RunEvent::TaskStarted { task: TaskId(1), tool: "Sort".into(), attempt: 1 },
        RunEvent::TaskDone { task: TaskId(1), tool: "Sort".into(), seconds: 1.0 },
        RunEvent::Progress(Progress::default()),
    ];
    for event in silent {
        assert!(MessageLog::default().lines(&event).is_empty(), "{event:?}");
    }
}

#[test]
fn the_end_of_a_run_counts_repeated_failures_then_outputs_then_the_run() {
    let mut log = MessageLog::default();
    let shown: Vec<usize> = (0..3).map(|task| log.lines(&failed(task, "exit code 1")).len()).collect();
    assert_eq!(shown, [1, 0, 0], "a failure is shown once");
    let named = (0..12).filter(|number| !log.lines(&exported(*number)).is_empty()).count();
    assert_eq!(named, EXPORTS_NAMED_MAX);
    let last = log.lines(&ended("failed", 12, 3));
    assert_eq!(
        last,
        [
            "2 more tasks of Sort failed as task 0 did: 1, 2",
            "wrote 2 more; 12 outputs, 12 KiB",
            "failed: 12 tasks done, 3 failed or never ran, 1 min 5 s",
        ]
    );
}

#[test]
fn ten_outputs_are_named_and_not_counted() {
    let mut outputs = OutputCounts::default();
    for number in 0..EXPORTS_NAMED_MAX {
        assert_eq!(outputs.add(&format!("out/{number}"), 0), Some(format!("wrote out/{number} (0 B)")));
    }
    assert_eq!(outputs.total(), None);
    assert_eq!(outputs.add("out/more", 5), None);
    assert_eq!(outputs.total().as_deref(), Some("wrote 1 more; 11 outputs, 5 B"));
}

#[test]
fn progress_says_what_is_done_running_and_left_and_how_full_the_pool_is() {
    let progress = Progress {
        tasks: 10,
        done: 3,
        failed: 0,
        running: 2,
        used: ByteSize(1 << 20),
        capacity: ByteSize(1 << 30),
        elapsed: 12.0,
        left: Some(70.2),
    };
    let failing = Progress { failed: 1, left: None, ..progress };
    let without_pool = Progress { capacity: ByteSize(0), ..progress };
    let nearly_done = Progress { left: Some(0.01), ..progress };
    let cases = [
        (progress, "3/10 tasks done, 2 running; 1 MiB of 1 GiB in use, about 1 min 11 s left"),
        (failing, "3/10 tasks done, 2 running, 1 failed; 1 MiB of 1 GiB in use"),
        (without_pool, "3/10 tasks done, 2 running; 12 s so far, about 1 min 11 s left"),
        (nearly_done, "3/10 tasks done, 2 running; 1 MiB of 1 GiB in use, about 1 s left"),
    ];
    for (at, expected) in cases {
        assert_eq!(progress_line(&at), expected);
    }
    assert_eq!(bar_message(&failing), "1 failed, 2 running, 1 MiB of 1 GiB in use");
    assert_eq!(bar_message(&progress), "2 running, 1 MiB of 1 GiB in use, about 1 min 11 s left");
}

#[test]
fn durations_are_rounded_at_the_edges_of_their_units() {
    let cases = [
        (-1.0, "0 s"),
        (0.0, "0 s"),
        (0.004, "0.00 s"),
        (9.49, "9.49 s"),
        (9.5, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (360_000.0, "100 h 0 min"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(duration(seconds), expected, "{seconds}");
    }
}

#[test]
fn output_of_tools_keeps_its_last_version_of_a_line_and_no_unfinished_colour() {
    let cases = [
        ("", ""),
        ("\r", ""),
        ("a\r\r", "a"),
        ("10 %\r100 %", "100 %"),
        ("\x1b[1;31mred\x1b[0m and \x1b[4mline", "red and line"),
        ("cut \x1b[38;5", "cut "),
        ("\x1b[", ""),
        ("\0", "\\0"),
    ];
    for (line, expected) in cases {
        assert_eq!(plain(line), expected, "{line:?}");
    }
    assert_eq!(plain(&"x".repeat(1000)).len(), 1000, "it is not cut");
}
