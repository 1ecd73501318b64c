//! Calls of programs: what a task gets and makes.

use super::frames::VariableFrame;
use super::{Evaluator, ScriptStep};
use crate::program::{AppBody, Formula, FunctionBody, FunctionId, OperationId, TaskPlacing, VariablePlace};
use crate::value::{FileCell, FileSource, Mapping, ScriptFileId, SwiftValue, TaskLocation, ValueSlot};
use crate::{library, source::Span};
use base::Problem;
use std::rc::Rc;

/// The number of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A call of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct AppCall {
    /// Its number.
    pub id: CallId,
    /// The app function.
    pub function: String,
    /// The program and its arguments.
    pub words: Vec<AppText>,
    /// The files of standard input, output and error.
    pub streams: [Option<ScriptFileId>; 3],
    /// The files that it reads.
    pub inputs: Vec<AppFile>,
    /// The files that it writes.
    pub outputs: Vec<AppFile>,
    /// The priority.
    pub priority: i64,
    /// The location.
    pub location: Option<TaskLocation>,
    /// The position of the call, for messages.
    pub span: Span,
}

/// A word of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppText {
    /// A text.
    Text(String),
    /// The path of a file.
    File(ScriptFileId),
}

/// A file of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppFile {
    /// Its number.
    pub id: ScriptFileId,
    /// The path: of an input that was there before, or of an output that has one of its own.
    pub path: Option<String>,
}

/// A call that has not ended.
#[derive(Debug)]
pub struct OpenCall {
    files: Vec<Rc<FileCell>>,
    /// Outputs without a file.
    signals: Vec<(Rc<VariableFrame>, VariablePlace, OperationId)>,
}

impl Evaluator {
    /// Puts the priority and location of a call into the frame of an app.
    pub(super) fn place_call(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        inner: &Rc<VariableFrame>,
        (slot, placing): (u32, &TaskPlacing),
    ) -> Result<(), Problem> {
        let TaskPlacing { priority, location, is_soft } = placing;
        if let Some(priority) = priority {
            let priority = self.compute(priority, frame, id)?;
            inner.with_slot(VariablePlace { hops: 0, slot }, |slot| *slot = ValueSlot::Value(priority));
        }
        if let Some(location) = location {
            let SwiftValue::Location(location) = self.compute(location, frame, id)? else { unreachable!("it is one") };
            let location = TaskLocation { is_hard: location.is_hard && !is_soft, ..location };
            inner.with_slot(VariablePlace { hops: 0, slot: slot + 1 }, |slot| {
                *slot = ValueSlot::Value(SwiftValue::Location(location));
            });
        }
        Ok(())
    }

    /// Calls the program of an app function, in the frame of its call.
    pub(super) fn run_app(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        function: FunctionId,
    ) -> Result<(), Problem> {
        let program = self.program.clone();
        let callee = &program.functions[function.0 as usize];
        let FunctionBody::App(app) = &callee.body else { unreachable!("it runs a program") };
        let words = self.words(frame, id, app)?;
        let (mut files, mut signals) = (Vec::new(), Vec::new());
        for slot in 0..callee.outputs {
            let place = VariablePlace { hops: 0, slot };
            match frame.get(place) {
                Some(SwiftValue::File(file)) => files.push(file),
                _ => signals.push((frame.clone(), place, id)),
            }
        }
        let mut inputs = Vec::new();
        for slot in callee.outputs..callee.outputs + app.inputs {
            collect_files(&frame.value(VariablePlace { hops: 0, slot }), &mut inputs);
        }
        let streams = app.streams.map(|place| place.map(|place| frame.value(place).file().resolve()));
        inputs.extend(streams[0].clone());
        inputs.sort_by_key(|file| file.id);
        inputs.dedup_by_key(|file| file.id);
        let placing = |slot| frame.get(VariablePlace { hops: 0, slot });
        let priority = placing(app.placing).map_or(0, |priority| priority.int());
        let location = match placing(app.placing + 1) {
            Some(SwiftValue::Location(location)) => Some(location),
            _ => None,
        };
        let span = frame.calls().next().map_or(callee.span, |call| call.span);
        let call = AppCall {
            id: self.new_call(),
            function: callee.name.to_string(),
            words,
            streams: streams.map(|file| file.map(|file| file.id)),
            inputs: inputs.iter().map(app_file).collect(),
            outputs: files.iter().map(app_file).collect(),
            priority,
            location,
            span,
        };
        self.open_call(frame, id, call, files, signals)
    }

    fn new_call(&mut self) -> CallId {
        self.next_call += 1;
        CallId(self.next_call)
    }

    fn open_call(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        call: AppCall,
        files: Vec<Rc<FileCell>>,
        signals: Vec<(Rc<VariableFrame>, VariablePlace, OperationId)>,
    ) -> Result<(), Problem> {
        for file in &files {
            if file.state.borrow().source.is_some() {
                return Err(self.problem(frame, id, "a file that this call writes has a writer already"));
            }
            file.state.borrow_mut().source = Some(FileSource::Made);
            self.wake_file(file);
        }
        self.calls.insert(call.id, OpenCall { files, signals });
        self.new_calls += 1;
        self.steps.push_back(ScriptStep::Call(call));
        Ok(())
    }

    /// The program and its arguments. An array is as many words as it has members.
    fn words(&self, frame: &Rc<VariableFrame>, id: OperationId, app: &AppBody) -> Result<Vec<AppText>, Problem> {
        let mut words = Vec::new();
        for word in &app.command {
            let value = match word {
                Formula::Variable(place) => frame.value(*place),
                formula => self.compute(formula, frame, id)?,
            };
            add_words(&value, &mut words);
        }
        Ok(words)
    }

    /// Copies a file to another one that has a path of its own, as a task. Returns false if it
    /// waits.
    pub(super) fn copy_file(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        target: &Rc<FileCell>,
        from: &Rc<FileCell>,
    ) -> Result<bool, Problem> {
        for file in [target, from] {
            let state = file.state.borrow();
            let is_target = Rc::ptr_eq(file, target);
            let lacks = state.mapping == Mapping::Awaited || (!is_target && state.source.is_none());
            drop(state);
            if lacks {
                let waits_for = None;
                let unit = self.add_unit(super::WaitingUnit { frame: frame.clone(), operation: id, waits_for });
                file.waiters.borrow_mut().push(unit);
                return Ok(false);
            }
        }
        let from = from.resolve();
        let words = vec![AppText::Text("cp".to_owned()), AppText::File(from.id), AppText::File(target.id)];
        let call = AppCall {
            id: self.new_call(),
            function: "copy".to_owned(),
            words,
            streams: [None; 3],
            inputs: vec![app_file(&from)],
            outputs: vec![app_file(target)],
            priority: 0,
            location: None,
            span: self.program.operations[id.0 as usize].span,
        };
        self.open_call(frame, id, call, vec![target.clone()], Vec::new())?;
        Ok(true)
    }

    /// A call has ended: its outputs are there, or never will be.
    ///
    /// # Errors
    /// An output that has a value already.
    pub fn call_ended(&mut self, call: CallId, is_done: bool) -> Result<(), Problem> {
        let Some(OpenCall { files, signals }) = self.calls.remove(&call) else { return Ok(()) };
        if !is_done {
            self.has_failed = true;
            return Ok(());
        }
        for file in files {
            file.state.borrow_mut().is_ready = true;
            self.wake_file(&file);
        }
        for (frame, place, operation) in signals {
            self.set(&frame, place, SwiftValue::Void, operation)?;
        }
        Ok(())
    }
}

fn app_file(file: &Rc<FileCell>) -> AppFile {
    let state = file.state.borrow();
    let path = match (&state.source, &state.mapping) {
        (Some(FileSource::Input(path)), _) | (_, Mapping::Path(path)) => Some(path.to_string()),
        _ => None,
    };
    AppFile { id: file.id, path }
}

fn add_words(value: &SwiftValue, words: &mut Vec<AppText>) {
    match value {
        SwiftValue::File(file) => words.push(AppText::File(file.resolve().id)),
        SwiftValue::Array(array) => {
            let members = array.members.borrow();
            members.iter().filter_map(|(_, member)| member).for_each(|member| add_words(&member, words));
        }
        other => words.push(AppText::Text(library::plain(other))),
    }
}

fn collect_files(value: &SwiftValue, files: &mut Vec<Rc<FileCell>>) {
    match value {
        SwiftValue::File(file) => files.push(file.resolve()),
        SwiftValue::Array(array) => {
            let members = array.members.borrow();
            members.iter().filter_map(|(_, member)| member).for_each(|member| collect_files(&member, files));
        }
        _ => {}
    }
}
