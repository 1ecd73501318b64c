//! Calls of programs: what a task gets and makes.

use super::frames::VariableFrame;
use super::{Evaluator, ScriptStep};
use crate::app_declaration::{AppId, AppParamKind};
use crate::program::{CallPlacing, Formula, FunctionBody, FunctionId, OperationId, VariablePlace};
use crate::value::{FileCell, FileSource, Mapping, ScriptFileId, SwiftValue, TaskLocation, ValueSlot};
use crate::{library, source::Span};
use base::Problem;
use std::rc::Rc;
use std::sync::Arc;

/// The number of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A call of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct AppCall {
    /// Its number.
    pub id: CallId,
    /// The app.
    pub app: AppId,
    /// The values of its parameters.
    pub values: Vec<AppValue>,
    /// The priority.
    pub priority: i64,
    /// The location.
    pub location: Option<TaskLocation>,
    /// The position of the call, for messages.
    pub span: Span,
    /// The calls of functions that led there, the innermost first.
    pub calls: Vec<String>,
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppValue {
    /// A file.
    File(AppFile),
    /// The files of an array.
    Files(Vec<AppFile>),
    /// A word.
    Text(String),
    /// The words of an array.
    Texts(Vec<String>),
}

/// A file of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppFile {
    /// Its number.
    pub id: ScriptFileId,
    /// The name of its variable; empty if it has none.
    pub name: Arc<str>,
    /// The path: of an input that was there before, or of an output that has one of its own.
    pub path: Option<String>,
}

impl AppFile {
    pub(super) fn of(file: &Rc<FileCell>) -> Self {
        let state = file.state.borrow();
        let path = match (&state.source, &state.mapping) {
            (Some(FileSource::Input(path)), _) | (_, Mapping::Path(path)) => Some(path.to_string()),
            _ => None,
        };
        Self { id: file.id, name: file.name.clone(), path }
    }
}

/// A call that has not ended.
#[derive(Debug)]
pub struct OpenCall {
    files: Vec<Rc<FileCell>>,
    /// Outputs without a file.
    signals: Vec<(Rc<VariableFrame>, VariablePlace, OperationId)>,
    /// The file at whose place the task runs: it is kept as long as it tells a place.
    location_file: Option<Rc<FileCell>>,
}

impl Evaluator {
    /// Puts the priority and location of a call into the frame of an app.
    pub(super) fn place_call(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        inner: &Rc<VariableFrame>,
        (slot, placing): (u32, &CallPlacing),
    ) -> Result<(), Problem> {
        let CallPlacing { priority, location, is_soft } = placing;
        if let Some(priority) = priority {
            let priority = self.compute(priority, frame, id)?;
            inner.with_slot(VariablePlace { hops: 0, slot }, |slot| *slot = ValueSlot::Value(priority));
        }
        if let Some(location) = location {
            let location = match self.compute(location, frame, id)? {
                SwiftValue::Location(location) => {
                    self.check_rank(location).map_err(|message| self.problem(frame, id, message))?;
                    SwiftValue::Location(if *is_soft { location.softened() } else { location })
                }
                SwiftValue::FileLocation(file, is_hard) => SwiftValue::FileLocation(file, is_hard && !is_soft),
                other => unreachable!("{other:?} is no location"),
            };
            inner.with_slot(VariablePlace { hops: 0, slot: slot + 1 }, |slot| *slot = ValueSlot::Value(location));
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
        let (mut files, mut signals) = (Vec::new(), Vec::new());
        for slot in 0..callee.outputs {
            let place = VariablePlace { hops: 0, slot };
            match frame.get(place) {
                Some(SwiftValue::File(file)) => files.push(file),
                Some(value @ SwiftValue::Array(_)) => {
                    let members = flat(&value, &|member| member.file().clone());
                    if members.is_empty() {
                        let message = format!("`{}` writes the files of an array that has none", callee.name);
                        return Err(self.problem(frame, id, message));
                    }
                    files.extend(members);
                }
                _ => signals.push((frame.clone(), place, id)),
            }
        }
        let declaration = &program.apps[app.app.0 as usize];
        let params = declaration.params.iter().zip(&app.params);
        let values = params.map(|(param, value)| self.app_value(frame, id, param.kind, value));
        let values = values.collect::<Result<_, _>>()?;
        let placing = |slot| frame.get(VariablePlace { hops: 0, slot });
        let priority = placing(app.placing).map_or(0, |priority| priority.int());
        let (mut location, mut location_file) = (None, None);
        match placing(app.placing + 1) {
            Some(SwiftValue::Location(found)) => location = Some(found),
            Some(SwiftValue::FileLocation(file, is_hard)) => {
                let file = file.resolve();
                location = Some(TaskLocation::File { file: file.id, is_hard });
                location_file = Some(file);
            }
            _ => {}
        }
        // The innermost call is that of the app itself.
        let span = frame.calls().next().map_or(callee.span, |call| call.span);
        let calls = frame.calls().skip(1).map(|call| self.describe_call(call)).collect();
        let call = AppCall { id: self.new_call(), app: app.app, values, priority, location, span, calls };
        self.open_call(frame, id, call, OpenCall { files, signals, location_file })
    }

    /// The value of a parameter. An array is as many words as it has members.
    fn app_value(
        &self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        kind: AppParamKind,
        formula: &Formula,
    ) -> Result<AppValue, Problem> {
        let value = match formula {
            Formula::Variable(place) => frame.value(*place),
            formula => self.compute(formula, frame, id)?,
        };
        Ok(match kind {
            AppParamKind::Value(false) => AppValue::Text(library::plain(&value)),
            AppParamKind::Value(true) => AppValue::Texts(flat(&value, &library::plain)),
            AppParamKind::Input(false) => AppValue::File(AppFile::of(&value.file().resolve())),
            AppParamKind::Input(true) => AppValue::Files(flat(&value, &|file| AppFile::of(&file.file().resolve()))),
            AppParamKind::Output(false) => AppValue::File(AppFile::of(value.file())),
            AppParamKind::Output(true) => AppValue::Files(flat(&value, &|file| AppFile::of(file.file()))),
        })
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
        open: OpenCall,
    ) -> Result<(), Problem> {
        for file in &open.files {
            if file.state.borrow().source.is_some() {
                let name = if file.name.is_empty() { "a file" } else { &format!("`{}`", file.name) };
                return Err(self.problem(frame, id, format!("{name}, which this call writes, has a writer already")));
            }
            file.state.borrow_mut().source = Some(FileSource::Made);
            self.wake_file(file);
        }
        self.calls.insert(call.id, open);
        self.new_calls += 1;
        self.steps.push_back(ScriptStep::Call(call));
        Ok(())
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
        let from = &from.resolve();
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
        let call = AppCall {
            id: self.new_call(),
            app: AppId::COPY,
            values: vec![AppValue::File(AppFile::of(from)), AppValue::File(AppFile::of(target))],
            priority: 0,
            location: None,
            span: self.program.operations[id.0 as usize].span,
            calls: frame.calls().map(|call| self.describe_call(call)).collect(),
        };
        let open = OpenCall { files: vec![target.clone()], signals: Vec::new(), location_file: None };
        self.open_call(frame, id, call, open)?;
        Ok(true)
    }

    /// A call has ended: its outputs are there, or never will be.
    ///
    /// # Errors
    /// An output that has a value already.
    pub fn call_ended(&mut self, call: CallId, is_done: bool) -> Result<(), Problem> {
        let Some(OpenCall { files, signals, location_file }) = self.calls.remove(&call) else { return Ok(()) };
        drop(location_file);
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

/// The members of an array, however deep, in the order of their indices.
fn flat<T>(value: &SwiftValue, convert: &dyn Fn(&SwiftValue) -> T) -> Vec<T> {
    match value {
        SwiftValue::Array(array) => {
            let members = array.members.borrow();
            members.iter().filter_map(|(_, member)| member).flat_map(|member| flat(&member, convert)).collect()
        }
        value => vec![convert(value)],
    }
}

#[cfg(test)]
#[path = "apps_test.rs"]
mod tests;
