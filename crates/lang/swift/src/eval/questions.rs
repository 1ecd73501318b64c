//! Questions: what a script asks the world, with answers that come later.

use super::effects::EffectCall;
use super::frames::VariableFrame;
use super::{AppFile, Evaluator, ScriptStep};
use crate::library::{self, Effect};
use crate::program::{OperationId, VariablePlace};
use crate::value::{ArrayKey, FileCell, FileSource, Mapping, SwiftValue, ValueSlot};
use base::Problem;
use std::rc::Rc;
use std::time::Duration;

/// The number of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScriptQuestionId(pub u64);

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptQuestion {
    /// The existence of a file that was there before, by its path.
    Input(String),
    /// The content of a file.
    Read(AppFile),
    /// The paths of the inputs that a pattern matches.
    Glob(String),
    /// A question for the existence of a file.
    Exists(String),
    /// The type of a file by its path: `file`, `directory` or `link`, as Tcl names it. The answer
    /// is a text.
    Type(String),
    /// The time of the last change of a file, by its path.
    ModifiedTime(String),
    /// Waits this long.
    Sleep(Duration),
    /// The time.
    Clock,
    /// Runs a program outside of the workflow, as the script itself: its words.
    Run(Vec<String>),
    /// Makes a file with this content.
    Write {
        /// The file.
        file: AppFile,
        /// The content.
        text: String,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptAnswer {
    /// The content of a file.
    Text(String),
    /// Paths of files.
    Paths(Vec<String>),
    /// Yes or no.
    Boolean(bool),
    /// The file is there.
    There,
    /// The time to sleep has passed.
    Elapsed,
    /// A time since the beginning of 1970.
    Time(Duration),
    /// A program has ended.
    Ended {
        /// Its standard output, without the last line end.
        output: String,
        /// Its exit code.
        exit_code: i32,
    },
}

/// A question without an answer.
#[derive(Debug)]
pub struct OpenQuestion {
    effect: Effect,
    frame: Rc<VariableFrame>,
    operation: OperationId,
    inputs: Vec<SwiftValue>,
    outputs: Vec<VariablePlace>,
}

impl Evaluator {
    /// Asks the world. The arrays of the outputs stay open until the answer.
    pub(super) fn ask(&mut self, effect: Effect, call: &EffectCall) -> Result<(), Problem> {
        let question = self.question(effect, call)?;
        let EffectCall { frame, operation, .. } = *call;
        self.hold(frame, operation);
        self.next_question += 1;
        let id = ScriptQuestionId(self.next_question);
        let (inputs, outputs) = (call.inputs.to_vec(), call.outputs.to_vec());
        self.questions.insert(id, OpenQuestion { effect, frame: frame.clone(), operation, inputs, outputs });
        self.steps.push_back(ScriptStep::Ask(id, question));
        Ok(())
    }

    fn question(&mut self, effect: Effect, call: &EffectCall) -> Result<ScriptQuestion, Problem> {
        let inputs = call.inputs;
        let text = |position: usize| inputs[position].str().to_owned();
        Ok(match effect {
            Effect::Read | Effect::Lines | Effect::Chunks => {
                ScriptQuestion::Read(AppFile::of(&inputs[0].file().resolve()))
            }
            Effect::Input => {
                self.begin_file(call, FileSource::Input(inputs[0].str().into()))?;
                ScriptQuestion::Input(text(0))
            }
            Effect::Glob => ScriptQuestion::Glob(text(0)),
            Effect::FileExists => ScriptQuestion::Exists(text(0)),
            Effect::PathType => ScriptQuestion::Type(text(0)),
            Effect::FileType => ScriptQuestion::Type(AppFile::of(&inputs[0].file().resolve()).path.unwrap_or_default()),
            Effect::ModifiedTime => ScriptQuestion::ModifiedTime(text(0)),
            Effect::Write => {
                let file = self.begin_file(call, FileSource::Made)?;
                ScriptQuestion::Write { file: AppFile::of(&file), text: text(0) }
            }
            Effect::Sleep | Effect::SleepTrace => {
                let time = Duration::try_from_secs_f64(inputs[0].float().max(0.0));
                let time = time.map_err(|_| {
                    let message = format!("{} is no number of seconds", library::plain(&inputs[0]));
                    self.problem(call.frame, call.operation, message)
                })?;
                ScriptQuestion::Sleep(time)
            }
            Effect::Clock | Effect::ClockSeconds => ScriptQuestion::Clock,
            Effect::Run => {
                let members = inputs[0].array().members.borrow();
                let words: Vec<String> = members.iter().filter_map(|(_, word)| Some(word?.str().to_owned())).collect();
                if words.is_empty() {
                    return Err(self.problem(call.frame, call.operation, "this command has no words"));
                }
                ScriptQuestion::Run(words)
            }
            Effect::RunShell => ScriptQuestion::Run(vec!["sh".to_owned(), "-c".to_owned(), text(0)]),
            other => unreachable!("{other:?} asks nothing"),
        })
    }

    /// Gives the file of an output its source.
    fn begin_file(&mut self, call: &EffectCall, source: FileSource) -> Result<Rc<FileCell>, Problem> {
        let file = call.frame.value(call.outputs[0]).file().clone();
        if file.state.borrow().source.is_some() {
            return Err(self.problem(call.frame, call.operation, "this file is assigned twice"));
        }
        file.state.borrow_mut().source = Some(source);
        self.wake_file(&file);
        Ok(file.resolve())
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// The reason why there is none, with the line that asked.
    pub fn answer(&mut self, id: ScriptQuestionId, answer: Result<ScriptAnswer, String>) -> Result<(), Problem> {
        let Some(question) = self.questions.remove(&id) else { return Ok(()) };
        let OpenQuestion { effect, frame, operation, inputs, outputs } = question;
        let answer = answer.map_err(|message| self.problem(&frame, operation, message))?;
        let output = outputs[0];
        let value = match (effect, answer) {
            (Effect::Lines, ScriptAnswer::Text(text)) => {
                let lines = text.lines().filter_map(|line| line_of(line, inputs[1].str()));
                self.fill(&frame, output, lines.map(|line| SwiftValue::text(&line)).collect());
                None
            }
            (Effect::Chunks, ScriptAnswer::Text(text)) => {
                let chunks = chunks_of(&text, inputs[1].str(), inputs[2].str());
                self.fill(&frame, output, chunks.iter().map(|chunk| SwiftValue::text(chunk)).collect());
                None
            }
            (_, ScriptAnswer::Text(text)) => Some(SwiftValue::text(&text)),
            (_, ScriptAnswer::Boolean(value)) => Some(SwiftValue::Boolean(value)),
            (_, ScriptAnswer::Paths(paths)) => {
                let files = paths.iter().map(|path| self.input_file(path)).collect();
                self.fill(&frame, output, files);
                None
            }
            (_, ScriptAnswer::There) => {
                let file = frame.value(output);
                file.file().state.borrow_mut().is_ready = true;
                self.wake_file(file.file());
                None
            }
            (_, ScriptAnswer::Elapsed) => {
                if effect == Effect::SleepTrace {
                    self.trace(&inputs[1..]);
                }
                Some(SwiftValue::Void)
            }
            (Effect::Clock, ScriptAnswer::Time(time)) => Some(SwiftValue::Float(time.as_secs_f64())),
            (_, ScriptAnswer::Time(time)) => Some(SwiftValue::Int(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))),
            (_, ScriptAnswer::Ended { output: text, exit_code }) => {
                self.set(&frame, outputs[1], SwiftValue::Int(exit_code.into()), operation)?;
                Some(SwiftValue::text(&text))
            }
        };
        if let Some(value) = value {
            self.set(&frame, output, value, operation)?;
        }
        self.release(&frame, operation);
        Ok(())
    }

    /// A file that was there before.
    fn input_file(&mut self, path: &str) -> SwiftValue {
        let file = self.new_file("".into(), Mapping::None);
        let mut state = file.state.borrow_mut();
        (state.source, state.is_ready) = (Some(FileSource::Input(path.into())), true);
        drop(state);
        SwiftValue::File(file)
    }

    /// Gives an array its members.
    pub(super) fn fill(&mut self, frame: &VariableFrame, output: VariablePlace, values: Vec<SwiftValue>) {
        let array = frame.value(output).array().clone();
        for (index, value) in (0..).zip(values) {
            array.members.borrow_mut().insert(ArrayKey::Int(index), ValueSlot::Value(value));
        }
        let waiters: Vec<_> = array.member_waiters.take().into_values().flatten().collect();
        self.wake(waiters);
    }
}

/// A line without its comment and blanks; `None` if nothing is left.
fn line_of(line: &str, comment: &str) -> Option<String> {
    let end = if comment.is_empty() { None } else { line.find(comment) };
    let text = line[..end.unwrap_or(line.len())].trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The parts of a text between lines that are the delimiter, without comments.
fn chunks_of(text: &str, delimiter: &str, comment: &str) -> Vec<String> {
    let mut chunks = vec![String::new()];
    for line in text.lines() {
        if line.trim() == delimiter {
            chunks.push(String::new());
            continue;
        }
        let end = if comment.is_empty() { None } else { line.find(comment) };
        let chunk = chunks.last_mut().expect("there is one");
        chunk.push_str(&line[..end.unwrap_or(line.len())]);
        chunk.push('\n');
    }
    chunks.iter().map(|chunk| chunk.trim()).filter(|chunk| !chunk.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
#[path = "questions_test.rs"]
mod tests;
