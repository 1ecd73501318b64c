//! Progress of a run for the user: a bar on a terminal, plain lines elsewhere, JSON events for
//! programs.
//!
//! Failures and warnings go to standard error. With `--json` all events go to standard output, one
//! object per line.

use crate::console::say;
use crate::failures::Failures;
use crate::output::{self, PrintError};
use base::{ByteSize, printable};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use run::{Progress, RunEvent};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Minimum interval between plain progress lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// Upper bound of the outputs that are named one by one; the last line counts them all.
const EXPORTS_NAMED_MAX: usize = 10;

/// An output format for events.
pub trait ProgressOutput {
    /// Shows one event.
    fn show(&mut self, event: &RunEvent);

    /// Reports an earlier error in writing to standard output, if any; returns the exit code.
    fn conclude(&mut self) -> u8;
}

/// The format for the flags and the terminal.
pub fn output_for(quiet: bool, json: bool) -> Box<dyn ProgressOutput> {
    if json {
        Box::new(JsonOutput::default())
    } else if quiet {
        Box::new(QuietOutput::default())
    } else if std::io::stderr().is_terminal() {
        Box::new(BarOutput::new())
    } else {
        Box::new(PlainOutput::default())
    }
}

/// Prints one JSON object per line on standard output.
#[derive(Default)]
struct JsonOutput {
    out: ResultOutput,
}

impl ProgressOutput for JsonOutput {
    fn show(&mut self, event: &RunEvent) {
        self.out.print(&format!("{}\n", event.to_json()));
    }

    fn conclude(&mut self) -> u8 {
        self.out.conclude()
    }
}

/// Prints only errors and warnings.
#[derive(Default)]
struct QuietOutput {
    messages: MessageLog,
}

impl ProgressOutput for QuietOutput {
    fn show(&mut self, event: &RunEvent) {
        match event {
            RunEvent::TaskFailed { .. } | RunEvent::Warning(_) | RunEvent::Problem(_) => {
                self.messages.lines(event).iter().for_each(|line| say(line));
            }
            RunEvent::Printed(text) => self.messages.script.print(text),
            RunEvent::Ended { .. } => self.messages.failures.counted().for_each(|line| say(&line)),
            _ => {}
        }
    }

    fn conclude(&mut self) -> u8 {
        self.messages.script.conclude()
    }
}

/// State for messages that are printed once.
#[derive(Default)]
struct MessageLog {
    outputs: OutputCounts,
    failures: Failures,
    script: ResultOutput,
}

/// Standard output: events as JSON, or what a script prints.
#[derive(Default)]
struct ResultOutput {
    /// Error after which nothing is written any more. It does not stop the run.
    unwritten: Option<PrintError>,
}

impl ResultOutput {
    fn print(&mut self, text: &str) {
        if self.unwritten.is_none() {
            self.unwritten = output::print(text.as_bytes()).err();
        }
    }

    /// Reports an earlier error; returns the exit code.
    fn conclude(&mut self) -> u8 {
        self.unwritten.take().map_or(0, PrintError::conclude)
    }
}

impl MessageLog {
    /// The lines that all formats for people print for an event.
    fn lines(&mut self, event: &RunEvent) -> Vec<String> {
        match event {
            RunEvent::Exported { path, bytes, .. } => self.outputs.add(path, *bytes).into_iter().collect(),
            RunEvent::TaskFailed { .. } => self.failures.add(event).into_iter().collect(),
            RunEvent::Ended { .. } => {
                self.failures.counted().chain(self.outputs.total()).chain(sentence(event)).collect()
            }
            _ => sentence(event).into_iter().collect(),
        }
    }
}

/// Count of the outputs that were written so far.
#[derive(Default)]
struct OutputCounts {
    count: usize,
    bytes: u64,
}

impl OutputCounts {
    /// The line for one more output, while there are few.
    fn add(&mut self, path: &str, bytes: u64) -> Option<String> {
        self.count += 1;
        self.bytes += bytes;
        (self.count <= EXPORTS_NAMED_MAX).then(|| format!("wrote {path} ({})", ByteSize(bytes)))
    }

    /// The line for all outputs, if some were not named.
    fn total(&self) -> Option<String> {
        let unnamed = self.count.checked_sub(EXPORTS_NAMED_MAX).filter(|count| *count > 0)?;
        Some(format!("wrote {unnamed} more; {} outputs, {}", self.count, ByteSize(self.bytes)))
    }
}

/// Prints plain lines, for logs.
#[derive(Default)]
struct PlainOutput {
    last: Option<Instant>,
    messages: MessageLog,
}

impl ProgressOutput for PlainOutput {
    fn show(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Progress(progress) => {
                if self.last.is_none_or(|last| last.elapsed() >= PLAIN_INTERVAL) && progress.elapsed > 1.0 {
                    self.last = Some(Instant::now());
                    say(&progress_line(progress));
                }
            }
            RunEvent::Printed(text) => self.messages.script.print(text),
            _ => self.messages.lines(event).iter().for_each(|line| say(line)),
        }
    }

    fn conclude(&mut self) -> u8 {
        self.messages.script.conclude()
    }
}

/// Draws a progress bar with counts beside it; messages scroll above it.
struct BarOutput {
    bar: ProgressBar,
    messages: MessageLog,
}

impl BarOutput {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        Self { bar, messages: MessageLog::default() }
    }

    fn start(&self, tasks: usize) {
        self.bar.set_length(tasks as u64);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} tasks, {wide_msg}");
        self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
    }
}

impl ProgressOutput for BarOutput {
    fn show(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Progress(progress) => {
                self.bar.set_length(progress.tasks as u64);
                self.bar.set_position((progress.done + progress.failed) as u64);
                self.bar.set_message(bar_message(progress));
                return;
            }
            RunEvent::Ended { .. } => self.bar.finish_and_clear(),
            RunEvent::Started { tasks, .. } => self.start(*tasks),
            _ => {}
        }
        if let RunEvent::Printed(text) = event {
            self.bar.suspend(|| self.messages.script.print(text));
        }
        let lines = self.messages.lines(event);
        if !lines.is_empty() {
            self.bar.suspend(|| lines.iter().for_each(|line| say(line)));
        }
    }

    fn conclude(&mut self) -> u8 {
        self.messages.script.conclude()
    }
}

/// The line for an event; `None` for events that are only counted.
fn sentence(event: &RunEvent) -> Option<String> {
    match event {
        RunEvent::Started { tasks: 0, slots, storage_line, .. } => {
            Some(format!("{slots} {}; {storage_line}", plural(*slots as usize, "slot")))
        }
        RunEvent::Started { tasks, slots, storage_line, .. } => Some(format!(
            "{tasks} {} on {slots} {}; {storage_line}",
            plural(*tasks, "task"),
            plural(*slots as usize, "slot")
        )),
        RunEvent::Resumed { settled, again } => {
            let redone = if *again > 0 {
                format!("; {again} done ones run again, since data that they wrote is gone and needed")
            } else {
                String::new()
            };
            Some(format!(
                "resumed: {settled} {} not run again{redone}",
                if *settled == 1 { "task is" } else { "tasks are" }
            ))
        }
        RunEvent::Reused { from, tasks } => {
            Some(format!("the results of {tasks} {} are reused from run {from}", plural(*tasks, "task")))
        }
        RunEvent::TaskRetried { task, tool, reason } => {
            Some(format!("task {} {tool} is tried again: {reason}", task.0))
        }
        RunEvent::TaskFailed { .. }
        | RunEvent::TaskStarted { .. }
        | RunEvent::TaskDone { .. }
        | RunEvent::Exported { .. }
        | RunEvent::Printed(_)
        | RunEvent::Progress(_) => None,
        RunEvent::Problem(text) => Some(format!("error: {text}")),
        RunEvent::Warning(text) => Some(format!("warning: {text}")),
        RunEvent::Pool(text) => Some(format!("the pool {text}")),
        RunEvent::Ended { outcome, seconds, done, failed, .. } => {
            let fate = if *outcome == "interrupted" { "not finished" } else { "failed or never ran" };
            let failed = if *failed > 0 { format!(", {failed} {fate}") } else { String::new() };
            Some(format!("{outcome}: {done} {} done{failed}, {}", plural(*done, "task"), duration(*seconds)))
        }
    }
}

/// Makes a line of a tool's output safe to show on a terminal: removes colours, keeps only the last
/// version of a line that was overwritten (as by progress bars), replaces other control characters
/// by their numbers, and cuts long lines.
pub fn plain(line: &str) -> String {
    const CHARS_MAX: usize = 1_000;
    let line = line.trim_end_matches('\r');
    let mut remaining = line.rsplit('\r').next().unwrap_or(line);
    let mut shown = String::with_capacity(remaining.len());
    // `ESC [ parameters letter` is a control sequence, such as a colour.
    while let Some((before, after)) = remaining.split_once("\x1b[") {
        shown.push_str(before);
        remaining = after.find(|c| ('@'..='~').contains(&c)).map_or("", |end| &after[end + 1..]);
    }
    shown.push_str(remaining);
    printable::cut(&shown, CHARS_MAX).into_owned()
}

fn progress_line(at: &Progress) -> String {
    let failed = if at.failed > 0 { format!(", {} failed", at.failed) } else { String::new() };
    format!("{}/{} tasks done, {} running{failed}; {}", at.done, at.tasks, at.running, time_left(at))
}

fn bar_message(at: &Progress) -> String {
    let failed = if at.failed > 0 { format!("{} failed, ", at.failed) } else { String::new() };
    format!("{failed}{} running, {}", at.running, time_left(at))
}

fn time_left(at: &Progress) -> String {
    let left = at.left.map_or(String::new(), |seconds| format!(", about {} left", duration(seconds.ceil().max(1.0))));
    if at.capacity.0 == 0 {
        return format!("{} so far{left}", duration(at.elapsed));
    }
    format!("{} of {} in use{left}", at.used, at.capacity)
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// Formats seconds for people: `0.42 s`, `12 s`, `3 min 5 s`, `2 h 4 min`.
pub fn duration(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a duration, shown in whole seconds")]
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..10 if seconds.fract() > 0.0 => format!("{seconds:.2} s"),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
#[path = "progress_test.rs"]
mod progress_test;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_say_them() {
        let shown: Vec<String> = [0.421, 9.4, 7.0, 12.3, 185.0, 7440.0].map(duration).into();
        assert_eq!(shown, ["0.42 s", "9.40 s", "7 s", "12 s", "3 min 5 s", "2 h 4 min"]);
    }

    #[test]
    fn output_of_tools_cannot_command_the_terminal() {
        assert_eq!(plain("\x1b[31mred\x1b[0m \x07bell\x1b]0;title"), "red \\u{7}bell\\u{1b}]0;title");
        assert_eq!(plain("\u{202e}txt.exe\x1b["), "\\u{202e}txt.exe");
        assert!(plain(&"x".repeat(2000)).ends_with("x... (1000 more characters)"));
        assert_eq!(plain("10 %\r90 %\r100 %\r"), "100 %");
        assert_eq!(plain("a\tb ü"), "a\tb ü");
    }

    #[test]
    fn many_outputs_are_named_up_to_a_number_and_counted_at_the_end() {
        let mut outputs = OutputCounts::default();
        let named = (0..12).filter(|n| outputs.add(&format!("out/{n}"), 1024).is_some()).count();
        assert_eq!(named, EXPORTS_NAMED_MAX);
        assert_eq!(outputs.total().as_deref(), Some("wrote 2 more; 12 outputs, 12 KiB"));
        assert_eq!(OutputCounts::default().total(), None);
    }

    #[test]
    fn what_an_interrupted_run_left_is_not_said_to_have_failed() {
        let ended = |outcome| {
            sentence(&RunEvent::Ended { outcome, seconds: 2.0, done: 3, failed: 4, report: None }).expect("told")
        };
        assert!(
            ended("interrupted").starts_with("interrupted: 3 tasks done, 4 not finished"),
            "{}",
            ended("interrupted")
        );
        assert!(ended("failed").starts_with("failed: 3 tasks done, 4 failed or never ran"), "{}", ended("failed"));
    }
}
