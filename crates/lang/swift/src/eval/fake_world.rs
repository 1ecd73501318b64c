//! A world for tests: three files, two hosts, and programs that end in the order of their calls.

use super::{AppCall, AppFile, AppValue, CallId, Evaluator, ScriptAnswer, ScriptQuestion, ScriptStep, ScriptWorld};
use crate::app_declaration::AppTemplate;
use crate::check::check;
use crate::loader::{ScriptFolders, load};
use crate::preprocessor::ScriptFiles;
use crate::source::Sources;
use base::Problem;
use std::collections::VecDeque;
use std::time::Duration;

struct NoFiles;

/// Files of which there are none.
pub fn no_files() -> impl ScriptFiles {
    NoFiles
}

impl ScriptFiles for NoFiles {
    fn read(&self, _: &str) -> Option<Result<String, String>> {
        None
    }
}

/// The first line of each problem of a script.
pub fn first_lines(problems: &[Problem]) -> String {
    let first = |problem: &Problem| problem.to_string().lines().next().unwrap_or_default().to_owned();
    problems.iter().map(first).collect::<Vec<_>>().join("\n")
}

/// An evaluator at the beginning of a script.
pub fn evaluator(text: &str, arguments: &[&str]) -> Result<Evaluator, String> {
    let mut sources = Sources::default();
    let folders = ScriptFolders { files: &NoFiles, search: Vec::new(), defines: Vec::new() };
    let modules = load("s.swift", text, &folders, &mut sources).map_err(|problems| first_lines(&problems))?;
    let checked = check(&modules, &sources).map_err(|problems| first_lines(&problems))?;
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let world = ScriptWorld {
        arguments,
        script: "s.swift".to_owned(),
        hosts: vec![("one".to_owned(), 2), ("two".to_owned(), 2)],
        environment: [("HOME".to_owned(), "/home/me".to_owned())].into(),
        seed: 1,
    };
    Ok(Evaluator::new(checked.program, sources, world))
}

/// A call as it would be typed: files by their paths, or by their numbers.
fn typed(evaluator: &Evaluator, call: &AppCall) -> String {
    let path = |file: &AppFile| file.path.clone().unwrap_or_else(|| format!("#{}", file.id.0));
    let words = |param: usize| -> Vec<String> {
        match &call.values[param] {
            AppValue::Text(text) => vec![text.clone()],
            AppValue::Texts(texts) => texts.clone(),
            AppValue::File(file) => vec![path(file)],
            AppValue::Files(files) => files.iter().map(path).collect(),
        }
    };
    let declaration = &evaluator.program.apps[call.app.0 as usize];
    let command = declaration.command.iter().flat_map(|word| match word {
        AppTemplate::Text(text) => vec![text.clone()],
        AppTemplate::Param(param) => words(*param),
    });
    let streams = ["<", ">", "2>"].iter().zip(declaration.streams);
    let streams = streams.filter_map(|(mark, param)| Some(format!("{mark}{}", words(param?).join(" "))));
    command.chain(streams).collect::<Vec<_>>().join(" ")
}

/// A world with three files.
fn answer(question: &ScriptQuestion) -> Result<ScriptAnswer, String> {
    let content = |path: &str| match path {
        "a.txt" => Ok(ScriptAnswer::Text("one\n  two # comment\n\n# all\nthree\n".to_owned())),
        other => Err(format!("{other} is not there")),
    };
    match question {
        ScriptQuestion::Read(file) => content(file.path.as_deref().unwrap_or("made")),
        ScriptQuestion::Glob(pattern) if pattern == "*.txt" => {
            Ok(ScriptAnswer::Paths(vec!["a.txt".into(), "b.txt".into()]))
        }
        ScriptQuestion::Glob(_) => Ok(ScriptAnswer::Paths(Vec::new())),
        ScriptQuestion::Exists(path) => Ok(ScriptAnswer::Boolean(path == "a.txt")),
        ScriptQuestion::Write { text, .. } if text == "bad" => Err("the disk is full".to_owned()),
        ScriptQuestion::Type(path) if path == "dir" => Ok(ScriptAnswer::Text("directory".to_owned())),
        ScriptQuestion::Type(path) => content(path).map(|_| ScriptAnswer::Text("file".to_owned())),
        ScriptQuestion::ModifiedTime(path) => content(path).map(|_| ScriptAnswer::Time(Duration::from_secs(1_000_000))),
        ScriptQuestion::Sleep(_) => Ok(ScriptAnswer::Elapsed),
        ScriptQuestion::Clock => Ok(ScriptAnswer::Time(Duration::from_millis(1_500))),
        ScriptQuestion::Run(words) if words[0] == "false" => {
            Ok(ScriptAnswer::Ended { output: String::new(), exit_code: 1 })
        }
        ScriptQuestion::Run(words) => Ok(ScriptAnswer::Ended { output: words.join(" "), exit_code: 0 }),
        ScriptQuestion::Input(_) | ScriptQuestion::Write { .. } => Ok(ScriptAnswer::There),
    }
}

/// Runs a script whose programs end in the order of their calls; returns what is printed and
/// called.
pub fn run_with(text: &str, arguments: &[&str]) -> Result<Vec<String>, String> {
    run_marked(text, arguments, ("", ""))
}

/// Runs a script; a mark tells lines that are printed from programs that are called.
pub fn run_marked(text: &str, arguments: &[&str], marks: (&str, &str)) -> Result<Vec<String>, String> {
    let mut run = FakeRun { evaluator: evaluator(text, arguments)?, marks, log: Vec::new(), open: VecDeque::new() };
    while run.turn()? {}
    assert!(run.evaluator.is_over());
    match run.evaluator.stuck() {
        Some(problem) => Err(problem.to_string()),
        None => Ok(run.log),
    }
}

/// Runs a script for so many turns at most. Returns whether it is right; it may fail all the same.
pub fn run_for(text: &str, turns: usize) -> bool {
    let Ok(evaluator) = evaluator(text, &[]) else { return false };
    let mut run = FakeRun { evaluator, marks: ("", ""), log: Vec::new(), open: VecDeque::new() };
    for _ in 0..turns {
        match run.turn() {
            Ok(true) => {}
            Ok(false) => {
                let _ = run.evaluator.stuck();
                break;
            }
            Err(_) => break,
        }
    }
    true
}

/// A run in a fake world. Its programs end in the order of their calls.
struct FakeRun<'a> {
    evaluator: Evaluator,
    marks: (&'a str, &'a str),
    log: Vec<String>,
    open: VecDeque<CallId>,
}

impl FakeRun<'_> {
    /// Lets the script go on, and ends a program. Returns whether it may go on after that.
    fn turn(&mut self) -> Result<bool, String> {
        let failed = |problem| first_lines(&[problem]);
        let (printed, called) = self.marks;
        let steps = self.evaluator.advance(4).map_err(failed)?;
        let is_idle = steps.is_empty() && !self.evaluator.has_work();
        for step in steps {
            match step {
                ScriptStep::Ask(id, question) => self.evaluator.answer(id, answer(&question)).map_err(failed)?,
                ScriptStep::Print(text) => {
                    self.log.push(format!("{printed}{}", text.strip_suffix('\n').unwrap_or(&text)));
                }
                ScriptStep::Call(call) => {
                    self.log.push(format!("{called}{}", typed(&self.evaluator, &call)));
                    self.open.push_back(call.id);
                }
                ScriptStep::Sealed(_) => {}
            }
        }
        match self.open.pop_front() {
            Some(call) => self.evaluator.call_ended(call, true).map_err(failed)?,
            None if is_idle => return Ok(false),
            None => {}
        }
        Ok(true)
    }
}

/// Runs a script without arguments; a problem is its only line.
pub fn run(text: &str) -> Vec<String> {
    run_with(text, &[]).unwrap_or_else(|error| vec![error])
}
