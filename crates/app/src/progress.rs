//! A run as the user watches it: a bar on a terminal, plain lines elsewhere, JSON events for programs.
//!
//! Failures and warnings go to standard error in every form; `--json` events go to standard output, one object a line.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use run::{Event, Progress};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Plain progress lines are at least this far apart.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// Outputs are named one by one up to this many; the last line counts them all.
const EXPORTS_NAMED_MAX: usize = 10;

/// Takes events and shows them.
pub trait Show {
    /// Shows one event.
    fn show(&mut self, event: &Event);
}

/// The form that fits the flags and the terminal.
pub fn form(quiet: bool, json: bool) -> Box<dyn Show> {
    if json {
        Box::new(Json)
    } else if quiet {
        Box::new(Quiet)
    } else if std::io::stderr().is_terminal() {
        Box::new(Bar::new())
    } else {
        Box::new(Plain::default())
    }
}

/// One JSON object a line on standard output.
struct Json;

impl Show for Json {
    fn show(&mut self, event: &Event) {
        // A reader that went away (`| head`) is no reason to stop a run.
        let _ = writeln!(std::io::stdout().lock(), "{}", event.to_json());
    }
}

/// Errors only.
struct Quiet;

impl Show for Quiet {
    fn show(&mut self, event: &Event) {
        if let Event::TaskFailed { upstream: false, .. } | Event::Warning(_) = event {
            say(&sentence(event).unwrap_or_default());
        }
    }
}

/// Lines for logs.
#[derive(Default)]
struct Plain {
    last: Option<Instant>,
    exports: usize,
}

impl Show for Plain {
    fn show(&mut self, event: &Event) {
        match event {
            Event::Progress(progress) => {
                if self.last.is_none_or(|last| last.elapsed() >= PLAIN_INTERVAL) && progress.elapsed > 1.0 {
                    self.last = Some(Instant::now());
                    say(&progress_line(progress));
                }
            }
            Event::Exported { .. } => {
                self.exports += 1;
                if self.exports <= EXPORTS_NAMED_MAX {
                    say(&sentence(event).unwrap_or_default());
                }
            }
            _ => {
                if let Some(line) = sentence(event) {
                    say(&line);
                }
            }
        }
    }
}

/// A progress bar with the counts beside it; messages scroll above it.
struct Bar {
    bar: ProgressBar,
    exports: usize,
}

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        Self { bar, exports: 0 }
    }

    fn start(&self, tasks: usize) {
        self.bar.set_length(tasks as u64);
        let style = ProgressStyle::with_template("{bar:32} {pos}/{len} tasks  {msg}");
        self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
    }
}

impl Show for Bar {
    fn show(&mut self, event: &Event) {
        match event {
            Event::Progress(progress) => {
                self.bar.set_position((progress.done + progress.failed) as u64);
                self.bar.set_message(bar_message(progress));
                return;
            }
            Event::Ended { .. } => self.bar.finish_and_clear(),
            Event::Started { tasks, .. } => self.start(*tasks),
            Event::Exported { .. } => {
                self.exports += 1;
                if self.exports > EXPORTS_NAMED_MAX {
                    return;
                }
            }
            _ => {}
        }
        if let Some(line) = sentence(event) {
            self.bar.suspend(|| say(&line));
        }
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// An event in words; none for what is only counted.
fn sentence(event: &Event) -> Option<String> {
    match event {
        Event::Started { tasks, slots, storage_line, .. } => Some(format!(
            "{tasks} {} on {slots} {}; {storage_line}",
            plural(*tasks, "task"),
            plural(*slots as usize, "slot")
        )),
        Event::TaskRetried { task, tool, reason } => Some(format!("task {} {tool} is tried again: {reason}", task.0)),
        Event::TaskFailed { upstream: true, .. }
        | Event::TaskStarted { .. }
        | Event::TaskDone { .. }
        | Event::Progress(_) => None,
        Event::TaskFailed { task, tool, reason, output, .. } => Some(failure(task.0, tool, reason, output)),
        Event::Exported { path, bytes, .. } => Some(format!("wrote {path} ({})", base::ByteSize(*bytes))),
        Event::Warning(text) => Some(format!("warning: {text}")),
        Event::Ended { outcome, seconds, done, failed } => {
            let failed = if *failed > 0 { format!(", {failed} failed or never ran") } else { String::new() };
            Some(format!("{outcome}: {done} {} done{failed}, {}", plural(*done, "task"), duration(*seconds)))
        }
    }
}

/// A failed task with the end of its output, indented so that it stands apart.
fn failure(task: u32, tool: &str, reason: &str, output: &str) -> String {
    const LINES_MAX: usize = 20;
    let lines: Vec<&str> = output.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LINES_MAX)..];
    let mut text = format!("task {task} {tool} failed: {reason}");
    for line in shown {
        text.push_str("\n    | ");
        text.push_str(line);
    }
    text
}

fn progress_line(at: &Progress) -> String {
    let failed = if at.failed > 0 { format!(", {} failed", at.failed) } else { String::new() };
    format!("{}/{} tasks done, {} running{failed}; {}", at.done, at.tasks, at.running, rest(at))
}

fn bar_message(at: &Progress) -> String {
    let failed = if at.failed > 0 { format!("{} failed, ", at.failed) } else { String::new() };
    format!("{failed}{} running, {}", at.running, rest(at))
}

fn rest(at: &Progress) -> String {
    let left = at.left.map_or(String::new(), |seconds| format!(", about {} left", duration(seconds)));
    if at.capacity.0 == 0 {
        return format!("{} so far{left}", duration(at.elapsed));
    }
    format!("{} of {} in the pool{left}", at.used, at.capacity)
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// Seconds as people say them: `0.42 s`, `12 s`, `3 min 5 s`, `2 h 4 min`.
pub fn duration(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a duration, shown in whole seconds")]
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..10 => format!("{seconds:.2} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::TaskId;

    #[test]
    fn durations_read_as_people_say_them() {
        let shown: Vec<String> = [0.421, 9.4, 12.3, 185.0, 7440.0].map(duration).into();
        assert_eq!(shown, ["0.42 s", "9.40 s", "12 s", "3 min 5 s", "2 h 4 min"]);
    }

    #[test]
    fn a_failed_task_shows_the_end_of_its_output() {
        let output: String = (0..30).map(|line| format!("line {line}\n")).collect();
        let event = Event::TaskFailed {
            task: TaskId(7),
            tool: "C45".into(),
            reason: "it ended with exit code 3".into(),
            output,
            upstream: false,
        };
        let text = sentence(&event).expect("failures are said");
        assert!(text.starts_with("task 7 C45 failed: it ended with exit code 3\n    | line 10\n"), "{text}");
        assert!(text.ends_with("| line 29"), "{text}");
    }

    #[test]
    fn a_task_that_failed_upstream_is_only_counted() {
        let event = Event::TaskFailed {
            task: TaskId(8),
            tool: "P".into(),
            reason: String::new(),
            output: String::new(),
            upstream: true,
        };
        assert_eq!(sentence(&event), None);
    }
}
