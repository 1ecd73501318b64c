//! Evaluator: runs the operations of a program as their needs are met.
//!
//! An operation is tried where it stands. If a need is not met, it waits at the variable, with its
//! frame, and is tried again when that changes. So an operation runs once, and whatever has its
//! inputs runs as in any other language.
//!
//! Arrays close by counting (`writers`): an operation that waits holds the arrays that it may
//! write. One that runs needs no count of its own: the frame that makes an array, or the operation
//! around, holds it.

mod apps;
mod effects;
#[cfg(test)]
pub mod fake_world;
mod formulas;
mod frames;
mod loops;
mod needs;
mod operations;
mod questions;

use crate::loader::LIBRARY;
use crate::program::{OperationId, Operations, Program};
use crate::source::{Sources, Span};
use crate::value::{FileCell, ScriptFileId, WaiterId};
use base::{Problem, SplitMix64};
use frames::{CallTrace, VariableFrame};
use loops::LoopState;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

pub use apps::{AppCall, AppFile, AppValue, CallId};
pub use questions::{ScriptAnswer, ScriptQuestion, ScriptQuestionId};

/// Calls within each other that run at once; deeper ones take their turn. It bounds the stack.
const DEPTH_MAX: u32 = 24;
/// Operations after which the caller gets its turn. A loop may have no end.
const OPERATIONS_MAX: u32 = 100_000;
/// Variables that a program which cannot go on names.
const NAMED_MAX: usize = 10;

/// The surroundings of a script.
#[derive(Debug, Clone, Default)]
pub struct ScriptWorld {
    /// The arguments of the script.
    pub arguments: Vec<String>,
    /// The name of the script.
    pub script: String,
    /// The hosts, with the numbers of their slots. Ranks count slots host by host.
    pub hosts: Vec<(String, u32)>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// The seed of random numbers.
    pub seed: u64,
}

/// A step of a script.
#[derive(Debug, Clone, PartialEq)]
pub enum ScriptStep {
    /// Prints a text.
    Print(String),
    /// Calls a program.
    Call(AppCall),
    /// Asks for something; the answer goes to [`Evaluator::answer`].
    Ask(ScriptQuestionId, ScriptQuestion),
    /// No operation that is yet to run can see these files.
    Sealed(Vec<ScriptFileId>),
}

/// An operation that waits.
#[derive(Debug)]
struct WaitingUnit {
    frame: Rc<VariableFrame>,
    operation: OperationId,
    /// The variable that it waits for, for messages.
    waits_for: Option<(Arc<str>, Span)>,
}

/// Runs a program.
#[derive(Debug)]
pub struct Evaluator {
    program: Rc<Program>,
    sources: Sources,
    world: ScriptWorld,
    /// Operations that wait; `None` are free places.
    units: Vec<Option<WaitingUnit>>,
    free_units: Vec<WaiterId>,
    /// Those that are tried next.
    ready: VecDeque<WaiterId>,
    /// Loops that are unfolded, the innermost last.
    loops: Vec<LoopState>,
    steps: VecDeque<ScriptStep>,
    /// Calls that have not ended.
    calls: HashMap<CallId, apps::OpenCall>,
    next_call: u64,
    /// Questions without an answer.
    questions: HashMap<ScriptQuestionId, questions::OpenQuestion>,
    next_question: u64,
    random: SplitMix64,
    /// Calls among the steps that were not given out yet.
    new_calls: usize,
    next_file: u64,
    dropped: Rc<RefCell<Vec<ScriptFileId>>>,
    depth: u32,
    /// The operations since the caller had its turn.
    executed: u32,
    begun: bool,
    /// The mistake with which the script ends.
    problem: Option<Problem>,
    /// True if a call has failed: what waits for it will never run.
    has_failed: bool,
}

impl Evaluator {
    /// An evaluator at the beginning of a program.
    pub fn new(program: Program, sources: Sources, world: ScriptWorld) -> Self {
        let random = SplitMix64::new(world.seed);
        Self {
            program: Rc::new(program),
            sources,
            world,
            units: Vec::new(),
            free_units: Vec::new(),
            ready: VecDeque::new(),
            loops: Vec::new(),
            steps: VecDeque::new(),
            calls: HashMap::new(),
            next_call: 0,
            questions: HashMap::new(),
            next_question: 0,
            random,
            new_calls: 0,
            next_file: 0,
            dropped: Rc::default(),
            depth: 0,
            executed: 0,
            begun: false,
            problem: None,
            has_failed: false,
        }
    }

    /// The steps up to about `calls` calls of programs. If there are none and nothing is left to do
    /// ([`Evaluator::has_work`]), the script waits for ends and answers, or is over.
    ///
    /// # Errors
    /// The mistake, with the line of the script and the calls that led there. Steps before it come
    /// first.
    pub fn advance(&mut self, calls: usize) -> Result<Vec<ScriptStep>, Problem> {
        if self.problem.is_none() {
            self.problem = self.go_on(calls).err();
        }
        self.new_calls = 0;
        let sealed = self.dropped.take();
        if !sealed.is_empty() {
            self.steps.push_back(ScriptStep::Sealed(sealed));
        }
        match &self.problem {
            Some(problem) if self.steps.is_empty() => Err(problem.clone()),
            _ => Ok(self.steps.drain(..).collect()),
        }
    }

    fn go_on(&mut self, calls: usize) -> Result<(), Problem> {
        if !self.begun {
            self.begun = true;
            let program = self.program.clone();
            let frame = self.new_frame(program.layout, None, None);
            self.run_operations(&frame, &program.main)?;
            self.finish_frame(&frame);
        }
        self.executed = 0;
        while self.new_calls < calls && self.executed < OPERATIONS_MAX {
            if let Some(unit) = self.ready.pop_front() {
                self.resume(unit)?;
            } else if !self.unfold(calls)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether more steps may come without ends and answers.
    pub fn has_work(&self) -> bool {
        !self.begun || !self.ready.is_empty() || !self.loops.is_empty() || self.problem.is_some()
    }

    /// Returns whether everything has run that can run, and no call is open.
    pub fn is_over(&self) -> bool {
        !self.has_work() && self.calls.is_empty() && self.questions.is_empty()
    }

    /// The problem of a script that is over while operations wait: it names the variables that
    /// nobody sets.
    pub fn stuck(&self) -> Option<Problem> {
        let mut waiting = self.units.iter().flatten().peekable();
        if self.has_failed || waiting.peek().is_none() {
            return None;
        }
        let mut lines: BTreeSet<String> = BTreeSet::new();
        for unit in waiting {
            let at = self.sources.location(self.program.operations[unit.operation.0 as usize].span);
            let name = unit.waits_for.as_ref().map_or_else(|| "a value".to_owned(), |(name, _)| format!("`{name}`"));
            lines.insert(format!("{}:{}: waits for {name}: {}", at.file, at.line, at.text.trim()));
        }
        let more = lines.len().saturating_sub(NAMED_MAX);
        let lines: Vec<String> = lines.into_iter().take(NAMED_MAX).collect();
        let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
        let message = "the script cannot go on: nobody gives these variables their values";
        Some(Problem::new(format!("{message}\n  {}{more}", lines.join("\n  "))))
    }

    /// Tries operations in their order.
    fn run_operations(&mut self, frame: &Rc<VariableFrame>, operations: &Operations) -> Result<(), Problem> {
        for operation in operations {
            self.attempt(frame, *operation)?;
        }
        Ok(())
    }

    /// Runs an operation, or lets it wait.
    fn attempt(&mut self, frame: &Rc<VariableFrame>, operation: OperationId) -> Result<(), Problem> {
        if self.try_operation(frame, operation)? {
            return Ok(());
        }
        self.hold(frame, operation);
        Ok(())
    }

    /// Runs an operation if its needs are met; else it waits. Returns whether it ran.
    fn try_operation(&mut self, frame: &Rc<VariableFrame>, operation: OperationId) -> Result<bool, Problem> {
        let program = self.program.clone();
        let needs = &program.operations[operation.0 as usize].needs;
        for need in needs {
            if let Some(wait) = self.unmet(frame, *need) {
                let waits_for = self.name_of(frame, need.place);
                let unit = self.add_unit(WaitingUnit { frame: frame.clone(), operation, waits_for });
                wait.add(unit);
                return Ok(false);
            }
        }
        self.execute(frame, operation)
    }

    /// Tries a waiting operation again.
    fn resume(&mut self, unit: WaiterId) -> Result<(), Problem> {
        let Some(WaitingUnit { frame, operation, .. }) = self.units[unit as usize].take() else { return Ok(()) };
        self.free_units.push(unit);
        if self.try_operation(&frame, operation)? {
            self.release(&frame, operation);
        }
        Ok(())
    }

    /// Lets an operation take its turn later, without waiting for anything.
    fn defer(&mut self, frame: &Rc<VariableFrame>, operation: OperationId) {
        let unit = self.add_unit(WaitingUnit { frame: frame.clone(), operation, waits_for: None });
        self.ready.push_back(unit);
    }

    fn add_unit(&mut self, unit: WaitingUnit) -> WaiterId {
        if let Some(free) = self.free_units.pop() {
            self.units[free as usize] = Some(unit);
            return free;
        }
        self.units.push(Some(unit));
        WaiterId::try_from(self.units.len() - 1).expect("memory ends before")
    }

    fn wake(&mut self, waiters: Vec<WaiterId>) {
        self.ready.extend(waiters);
    }

    /// Wakes those that wait for a file.
    fn wake_file(&mut self, file: &FileCell) {
        let waiters = file.waiters.take();
        self.wake(waiters);
    }

    fn describe_call(&self, call: &CallTrace) -> String {
        let at = self.sources.location(call.span);
        format!("called as `{}` in {}:{}", call.function, at.file, at.line)
    }

    /// The position in the script of what happens within the library.
    fn script_span(&self, frame: &VariableFrame, span: Span) -> Span {
        let is_library = |span: &Span| self.sources.name(span.source).starts_with(LIBRARY);
        if !is_library(&span) {
            return span;
        }
        frame.calls().map(|call| call.span).find(|span| !is_library(span)).unwrap_or(span)
    }

    /// A problem at an operation, with the calls that led there.
    fn problem(&self, frame: &VariableFrame, operation: OperationId, message: impl Into<String>) -> Problem {
        let span = self.script_span(frame, self.program.operations[operation.0 as usize].span);
        let mut problem = self.sources.problem(span, message);
        let calls: Vec<String> = frame.calls().map(|call| self.describe_call(call)).collect();
        if !calls.is_empty() {
            problem = problem.hint(calls.join("; "));
        }
        problem
    }
}

#[cfg(test)]
#[path = "eval/locations_test.rs"]
mod locations_test;

#[cfg(test)]
#[path = "eval/structs_test.rs"]
mod structs_test;

#[cfg(test)]
#[path = "eval_test.rs"]
mod tests;
