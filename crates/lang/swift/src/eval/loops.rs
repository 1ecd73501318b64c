//! Loops: `foreach` is unfolded as its tasks are wanted, `for` and `iterate` go on step by step.

use super::Evaluator;
use super::frames::VariableFrame;
use crate::library;
use crate::program::{
    ForLoop, ForeachSource, LayoutId, OperationId, OperationKind, Operations, RangeFormula, VariablePlace,
};
use crate::value::{ArrayCell, ArrayKey, SwiftValue, ValueSlot};
use base::Problem;
use std::fmt::{self, Debug, Formatter};
use std::rc::Rc;

/// The iterations of a loop that run before others get their turn.
const CHUNK: usize = 1024;

/// A `foreach` that is unfolded.
#[derive(Debug)]
pub struct LoopState {
    /// The frame around it.
    frame: Rc<VariableFrame>,
    operation: OperationId,
    layout: LayoutId,
    source: LoopSource,
    /// The frame of an iteration that nothing sees any more.
    spare: Option<Rc<VariableFrame>>,
}

/// The members that are left.
enum LoopSource {
    /// Numbers, with the index of the next one.
    Numbers(Box<dyn Iterator<Item = SwiftValue>>, i64),
    /// Those of an array behind an index.
    Members(Rc<ArrayCell>, Option<ArrayKey>),
}

impl Debug for LoopSource {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Self::Numbers(_, index) => write!(f, "numbers from index {index} on"),
            Self::Members(_, last) => write!(f, "members behind {last:?}"),
        }
    }
}

impl LoopSource {
    /// The next index and value.
    fn next(&mut self) -> Option<(SwiftValue, ValueSlot)> {
        match self {
            Self::Numbers(numbers, index) => {
                let value = numbers.next()?;
                *index += 1;
                Some((SwiftValue::Int(*index - 1), ValueSlot::Value(value)))
            }
            Self::Members(array, last) => {
                let (key, slot) = array.members.borrow_mut().next_after(last.as_ref())?;
                *last = Some(key.clone());
                Some((key.value(), slot))
            }
        }
    }
}

impl Evaluator {
    /// Begins a `foreach`, which holds its arrays until it has been unfolded.
    pub(super) fn begin_foreach(
        &mut self,
        frame: &Rc<VariableFrame>,
        operation: OperationId,
        over: &ForeachSource,
        layout: LayoutId,
    ) -> Result<(), Problem> {
        let source = match over {
            ForeachSource::Array(place) => LoopSource::Members(frame.value(*place).array().clone(), None),
            ForeachSource::Range(range) => LoopSource::Numbers(self.numbers(frame, operation, range)?, 0),
        };
        self.hold(frame, operation);
        self.loops.push(LoopState { frame: frame.clone(), operation, layout, source, spare: None });
        Ok(())
    }

    fn numbers(
        &self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        range: &RangeFormula,
    ) -> Result<Box<dyn Iterator<Item = SwiftValue>>, Problem> {
        let [start, end, step] =
            [&range.start, &range.end, &range.step].map(|formula| self.compute(formula, frame, id));
        let (start, end, step) = (start?, end?, step?);
        let wrong = |message| self.problem(frame, id, message);
        if range.is_float {
            let numbers = library::float_range(start.float(), end.float(), step.float()).map_err(wrong)?;
            return Ok(Box::new(numbers.map(SwiftValue::Float)));
        }
        let numbers = library::int_range(start.int(), end.int(), step.int()).map_err(wrong)?;
        Ok(Box::new(numbers.map(SwiftValue::Int)))
    }

    /// Runs iterations of the innermost loop, until something else can run or enough programs were
    /// called. Returns false if there is no loop.
    pub(super) fn unfold(&mut self, calls: usize) -> Result<bool, Problem> {
        let Some(mut state) = self.loops.pop() else { return Ok(false) };
        let outer = self.loops.len();
        for _ in 0..CHUNK {
            let Some((index, value)) = state.source.next() else {
                self.release(&state.frame, state.operation);
                return Ok(true);
            };
            self.iterate_once(&mut state, index, value)?;
            if self.loops.len() > outer || !self.ready.is_empty() || self.new_calls >= calls {
                break;
            }
        }
        // Loops within the iteration come first.
        self.loops.insert(outer, state);
        Ok(true)
    }

    fn iterate_once(&mut self, state: &mut LoopState, index: SwiftValue, value: ValueSlot) -> Result<(), Problem> {
        let program = self.program.clone();
        let OperationKind::Foreach { body, .. } = &program.operations[state.operation.0 as usize].kind else {
            unreachable!("it is a loop")
        };
        let spare = state.spare.take().and_then(|mut spare| self.renew_frame(&mut spare).then_some(spare));
        let frame = spare.unwrap_or_else(|| self.new_frame(state.layout, Some(&state.frame), None));
        frame.with_slot(slot(0), |slot| *slot = value);
        frame.with_slot(slot(1), |slot| *slot = ValueSlot::Value(index));
        self.run_operations(&frame, body)?;
        self.finish_frame(&frame);
        state.spare = Some(frame);
        Ok(())
    }

    /// Begins a `for` with the first values of its variables.
    pub(super) fn begin_for(
        &mut self,
        frame: &Rc<VariableFrame>,
        loop_: &ForLoop,
        first: Vec<ValueSlot>,
    ) -> Result<(), Problem> {
        let inner = self.for_frame(frame, loop_, first);
        self.run_operations(&inner, &loop_.before.borrow())?;
        self.finish_frame(&inner);
        Ok(())
    }

    fn for_frame(&mut self, parent: &Rc<VariableFrame>, loop_: &ForLoop, values: Vec<ValueSlot>) -> Rc<VariableFrame> {
        let frame = self.new_frame(loop_.layout, Some(parent), None);
        for (number, value) in (0..).zip(values) {
            frame.with_slot(slot(number), |slot| *slot = value);
        }
        frame
    }

    /// Runs the body of a `for`, and lets the next iteration take its turn.
    pub(super) fn go_on_with_for(&mut self, frame: &Rc<VariableFrame>, loop_: &ForLoop) -> Result<(), Problem> {
        self.run_operations(frame, &loop_.body.borrow())?;
        let values = loop_.next.borrow().iter().map(|place| frame.link(*place)).collect();
        let parent = frame.parent().expect("a loop is within something").clone();
        let next = self.for_frame(&parent, loop_, values);
        self.take_turns(&next, &loop_.before.borrow());
        Ok(())
    }

    /// Lets operations of a new frame run later; they hold their arrays meanwhile.
    fn take_turns(&mut self, frame: &Rc<VariableFrame>, operations: &Operations) {
        for operation in operations {
            self.hold(frame, *operation);
            self.defer(frame, *operation);
        }
        self.finish_frame(frame);
    }

    /// Begins an `iterate`.
    pub(super) fn begin_iterate(
        &mut self,
        frame: &Rc<VariableFrame>,
        layout: LayoutId,
        body: &Operations,
    ) -> Result<(), Problem> {
        let inner = self.new_frame(layout, Some(frame), None);
        inner.with_slot(slot(0), |slot| *slot = ValueSlot::Value(SwiftValue::Int(0)));
        self.run_operations(&inner, body)?;
        self.finish_frame(&inner);
        Ok(())
    }

    /// Lets the next iteration of an `iterate` take its turn.
    pub(super) fn go_on_with_iterate(&mut self, frame: &Rc<VariableFrame>, layout: LayoutId, body: &Operations) {
        let count = frame.value(slot(0)).int();
        let parent = frame.parent().expect("a loop is within something").clone();
        let next = self.new_frame(layout, Some(&parent), None);
        next.with_slot(slot(0), |slot| *slot = ValueSlot::Value(SwiftValue::Int(count + 1)));
        self.take_turns(&next, body);
    }
}

fn slot(slot: u32) -> VariablePlace {
    VariablePlace { hops: 0, slot }
}
