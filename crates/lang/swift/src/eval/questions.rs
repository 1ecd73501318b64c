//! Questions: what a script asks the world, with answers that come later.

use super::frames::VariableFrame;
use super::{AppFile, Evaluator, ScriptStep};
use crate::library::Effect;
use crate::program::{OperationId, VariablePlace};
use crate::value::{ArrayKey, FileSource, Mapping, SwiftValue, ValueSlot};
use base::Problem;
use std::rc::Rc;

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
}

/// A question without an answer.
#[derive(Debug)]
pub struct OpenQuestion {
    effect: Effect,
    frame: Rc<VariableFrame>,
    operation: OperationId,
    output: VariablePlace,
    /// The mark of comments, of lines.
    comment: String,
}

impl Evaluator {
    /// Asks the world. The arrays of the output stay open until the answer.
    pub(super) fn ask(
        &mut self,
        effect: Effect,
        (frame, operation): (&Rc<VariableFrame>, OperationId),
        inputs: &[SwiftValue],
        output: VariablePlace,
    ) -> Result<(), Problem> {
        let question = match effect {
            Effect::Read | Effect::Lines => ScriptQuestion::Read(AppFile::of(&inputs[0].file().resolve())),
            Effect::Input => {
                let path: Rc<str> = inputs[0].str().into();
                let file = frame.value(output);
                if file.file().state.borrow().source.is_some() {
                    return Err(self.problem(frame, operation, "this file is assigned twice"));
                }
                file.file().state.borrow_mut().source = Some(FileSource::Input(path.clone()));
                self.wake_file(file.file());
                ScriptQuestion::Input(path.to_string())
            }
            Effect::Glob => ScriptQuestion::Glob(inputs[0].str().to_owned()),
            Effect::FileExists => ScriptQuestion::Exists(inputs[0].str().to_owned()),
            _ => {
                let file = frame.value(output);
                if file.file().state.borrow().source.is_some() {
                    return Err(self.problem(frame, operation, "this file is assigned twice"));
                }
                file.file().state.borrow_mut().source = Some(FileSource::Made);
                self.wake_file(file.file());
                ScriptQuestion::Write { file: AppFile::of(&file.file().resolve()), text: inputs[0].str().to_owned() }
            }
        };
        self.hold(frame, operation);
        self.next_question += 1;
        let id = ScriptQuestionId(self.next_question);
        let comment = inputs.get(1).map_or_else(String::new, |comment| comment.str().to_owned());
        self.questions.insert(id, OpenQuestion { effect, frame: frame.clone(), operation, output, comment });
        self.steps.push_back(ScriptStep::Ask(id, question));
        Ok(())
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// The reason why there is none, with the line that asked.
    pub fn answer(&mut self, id: ScriptQuestionId, answer: Result<ScriptAnswer, String>) -> Result<(), Problem> {
        let Some(question) = self.questions.remove(&id) else { return Ok(()) };
        let OpenQuestion { effect, frame, operation, output, comment } = question;
        let answer = answer.map_err(|message| self.problem(&frame, operation, message))?;
        match (effect, answer) {
            (Effect::Lines, ScriptAnswer::Text(text)) => {
                let lines = text.lines().filter_map(|line| line_of(line, &comment));
                self.fill(&frame, output, lines.map(|line| SwiftValue::text(&line)).collect());
            }
            (_, ScriptAnswer::Text(text)) => self.set(&frame, output, SwiftValue::text(&text), operation)?,
            (_, ScriptAnswer::Boolean(value)) => self.set(&frame, output, SwiftValue::Boolean(value), operation)?,
            (_, ScriptAnswer::Paths(paths)) => {
                let files = paths.iter().map(|path| self.input_file(path)).collect();
                self.fill(&frame, output, files);
            }
            (_, ScriptAnswer::There) => {
                let file = frame.value(output);
                file.file().state.borrow_mut().is_ready = true;
                self.wake_file(file.file());
            }
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
