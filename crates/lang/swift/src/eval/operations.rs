//! Operations: what they do when their needs are met.

use super::effects::EffectCall;
use super::frames::VariableFrame;
use super::needs::Wait;
use super::{DEPTH_MAX, Evaluator, WaitingUnit, formulas};
use crate::library;
use crate::program::{
    CallPlacing, Formula, FunctionBody, FunctionId, Operand, OperationId, OperationKind, Operations, RangeFormula,
    VariablePlace,
};
use crate::value::{ArrayCell, ArrayKey, FileSource, Future, Mapping, StructCell, SwiftValue, ValueSlot};
use base::Problem;
use std::rc::Rc;

impl Evaluator {
    /// Runs an operation. Returns false if it waits after all, for a member of an array.
    pub(super) fn execute(&mut self, frame: &Rc<VariableFrame>, id: OperationId) -> Result<bool, Problem> {
        self.executed += 1;
        let program = self.program.clone();
        match &program.operations[id.0 as usize].kind {
            OperationKind::Set { target, value } => {
                let value = self.compute(value, frame, id)?;
                self.set(frame, *target, value, id)?;
            }
            OperationKind::Store { array, indices, value } => self.store(frame, id, *array, (indices, value))?,
            OperationKind::Append { array, indices, value } => {
                let mut array = frame.value(*array).array().clone();
                for index in indices {
                    let key = ArrayKey::of(&self.compute(index, frame, id)?);
                    array = self.inner_array(frame, id, &array, &key)?;
                }
                let key = ArrayKey::Int(array.members.borrow().next_index());
                let slot = self.operand(value, frame, id)?;
                self.insert(frame, id, &array, &key, slot)?;
            }
            OperationKind::Load { target, array, index } => return self.load(frame, id, *target, (*array, index)),
            OperationKind::LoadField { target, from, field } => {
                let SwiftValue::Struct(struct_) = frame.value(*from) else { unreachable!("the checker saw a struct") };
                let slot = ValueSlot::Shared(struct_.fields.borrow_mut()[*field as usize].share());
                self.link(frame, *target, &slot);
            }
            OperationKind::SetField { target, path, value } => self.set_field(frame, id, *target, (path, value))?,
            OperationKind::CopyArray { target, from } => self.copy_array(frame, id, *target, from)?,
            OperationKind::FillArray { target, members } => {
                let array = frame.value(*target).array().clone();
                for (position, (index, value)) in (0..).zip(members) {
                    let key = match index {
                        Some(index) => ArrayKey::of(&self.compute(index, frame, id)?),
                        None => ArrayKey::Int(position),
                    };
                    let slot = self.operand(value, frame, id)?;
                    self.insert(frame, id, &array, &key, slot)?;
                }
            }
            OperationKind::FillRange { target, range } => self.fill_range(frame, id, *target, range)?,
            OperationKind::MapFile { target, path } => {
                let path = self.compute(path, frame, id)?;
                let file = frame.value(*target).file().clone();
                file.state.borrow_mut().mapping = Mapping::Path(path.str().into());
                self.wake_file(&file);
            }
            OperationKind::SetFile { target, from } => return self.set_file(frame, id, *target, from),
            OperationKind::Call { function, inputs, outputs, placing } => {
                return self.call(frame, id, *function, (inputs, outputs, placing));
            }
            OperationKind::RunApp(function) => self.run_app(frame, id, *function)?,
            OperationKind::CallEffect { effect, inputs, outputs } => {
                let values: Result<Vec<SwiftValue>, Problem> = inputs
                    .iter()
                    .map(|input| Ok(self.operand(input, frame, id)?.get().expect("it is a need")))
                    .collect();
                self.call_effect(*effect, &EffectCall { frame, operation: id, inputs: &values?, outputs })?;
            }
            other => self.execute_control(frame, id, other)?,
        }
        Ok(true)
    }

    /// Runs an operation that chooses or repeats others.
    fn execute_control(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        kind: &OperationKind,
    ) -> Result<(), Problem> {
        match kind {
            OperationKind::If { condition, then, otherwise } => {
                let holds = self.compute(condition, frame, id)?.boolean();
                self.run_operations(frame, if holds { then } else { otherwise })?;
            }
            OperationKind::Switch { value, cases, default } => {
                let value = self.compute(value, frame, id)?.int();
                let case = cases.iter().find(|(case, _)| *case == value).map_or(default, |(_, operations)| operations);
                self.run_operations(frame, case)?;
            }
            OperationKind::Body(operations) => self.run_operations(frame, operations)?,
            OperationKind::Foreach { over, layout, .. } => self.begin_foreach(frame, id, over, *layout)?,
            OperationKind::For { loop_, first } => {
                let first = first.iter().map(|place| frame.link(*place)).collect();
                self.begin_for(frame, loop_, first)?;
            }
            OperationKind::ForTest { loop_, condition } => {
                if self.compute(condition, frame, id)?.boolean() {
                    self.go_on_with_for(frame, loop_)?;
                }
            }
            OperationKind::Iterate { layout, body } => self.begin_iterate(frame, *layout, body)?,
            OperationKind::IterateNext { layout, body, until } => {
                if !self.compute(until, frame, id)?.boolean() {
                    self.go_on_with_iterate(frame, *layout, &body.borrow());
                }
            }
            _ => unreachable!("all others were executed"),
        }
        Ok(())
    }

    pub(super) fn compute(
        &self,
        formula: &Formula,
        frame: &VariableFrame,
        id: OperationId,
    ) -> Result<SwiftValue, Problem> {
        formulas::compute(formula, frame).map_err(|message| self.problem(frame, id, message))
    }

    /// The value of an operand, or what will have it.
    pub(super) fn operand(
        &self,
        operand: &Operand,
        frame: &VariableFrame,
        id: OperationId,
    ) -> Result<ValueSlot, Problem> {
        match operand {
            Operand::Variable(place) => Ok(frame.link(*place)),
            Operand::Formula(formula) => self.compute(formula, frame, id).map(ValueSlot::Value),
        }
    }

    /// Makes a variable stand for something else; those that wait for it go on if its value is
    /// there.
    pub(super) fn link(&mut self, frame: &VariableFrame, target: VariablePlace, slot: &ValueSlot) {
        let before = frame.with_slot(target, |target| std::mem::replace(target, slot.clone()));
        if let ValueSlot::Shared(waited) = before {
            self.connect(slot, &waited);
        }
    }

    /// Gives those who share something the value of a slot, now or later.
    fn connect(&mut self, slot: &ValueSlot, waited: &Rc<Future>) {
        let waiters = match slot {
            ValueSlot::Value(value) => waited.set(value).unwrap_or_default(),
            ValueSlot::Shared(future) => future.lead(waited),
            ValueSlot::Empty => Vec::new(),
        };
        self.wake(waiters);
    }

    /// Adds a member to an array.
    fn insert(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        array: &Rc<ArrayCell>,
        key: &ArrayKey,
        slot: ValueSlot,
    ) -> Result<(), Problem> {
        let is_array = match &slot {
            ValueSlot::Value(value) => matches!(value, SwiftValue::Array(_)),
            slot => matches!(slot.get(), Some(SwiftValue::Array(_))),
        };
        if is_array {
            array.has_inner.set(true);
        }
        if !array.members.borrow_mut().insert(key.clone(), slot) {
            return Err(self.problem(frame, id, format!("the member [{key}] of this array is assigned twice")));
        }
        if !array.member_waiters.borrow().is_empty() {
            let waiters = array.member_waiters.borrow_mut().remove(key).unwrap_or_default();
            self.wake(waiters);
        }
        Ok(())
    }

    fn store(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        array: VariablePlace,
        (indices, value): (&[Formula], &Operand),
    ) -> Result<(), Problem> {
        let mut array = frame.value(array).array().clone();
        let (last, outer) = indices.split_last().expect("a member has an index");
        for index in outer {
            let key = ArrayKey::of(&self.compute(index, frame, id)?);
            array = self.inner_array(frame, id, &array, &key)?;
        }
        let key = ArrayKey::of(&self.compute(last, frame, id)?);
        let slot = self.operand(value, frame, id)?;
        self.insert(frame, id, &array, &key, slot)
    }

    /// The array that is a member of another one, made if there is none.
    fn inner_array(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        array: &Rc<ArrayCell>,
        key: &ArrayKey,
    ) -> Result<Rc<ArrayCell>, Problem> {
        if let Some(found) = array.members.borrow().get(key) {
            return Ok(found.array().clone());
        }
        let inner = Rc::new(ArrayCell { is_inner: true, ..ArrayCell::open() });
        self.insert(frame, id, array, key, ValueSlot::Value(SwiftValue::Array(inner.clone())))?;
        Ok(inner)
    }

    /// Copies a member into a variable, or waits for it.
    fn load(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        target: VariablePlace,
        (place, index): (VariablePlace, &Formula),
    ) -> Result<bool, Problem> {
        let array = frame.value(place).array().clone();
        let key = ArrayKey::of(&self.compute(index, frame, id)?);
        let found = array.members.borrow_mut().slot(&key);
        if let Some(slot) = found {
            self.link(frame, target, &slot);
            return Ok(true);
        }
        let name = self.name_of(frame, place);
        if array.is_closed() {
            let name = name.map_or_else(|| "this array".to_owned(), |(name, _)| format!("`{name}`"));
            return Err(self.problem(frame, id, format!("{name} has no member [{key}]")));
        }
        let waits_for = name.map(|(name, span)| (format!("{name}[{key}]").into(), span));
        let unit = self.add_unit(WaitingUnit { frame: frame.clone(), operation: id, waits_for });
        Wait::Member(array, key).add(unit);
        Ok(false)
    }

    fn set_field(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        target: VariablePlace,
        (path, value): (&[u32], &Operand),
    ) -> Result<(), Problem> {
        let value = self.operand(value, frame, id)?;
        let SwiftValue::Struct(struct_) = frame.value(target) else { unreachable!("the checker saw a struct") };
        if let Some(field) = path.first() {
            return self.put_field(frame, id, &struct_, (*field as usize, value));
        }
        let Some(SwiftValue::Struct(from)) = value.get() else { unreachable!("it is a need") };
        let count = from.fields.borrow().len();
        for field in 0..count {
            let shared = ValueSlot::Shared(from.fields.borrow_mut()[field].share());
            self.put_field(frame, id, &struct_, (field, shared))?;
        }
        Ok(())
    }

    fn put_field(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        struct_: &StructCell,
        (field, value): (usize, ValueSlot),
    ) -> Result<(), Problem> {
        let before = std::mem::replace(&mut struct_.fields.borrow_mut()[field], value.clone());
        let is_set = match &before {
            ValueSlot::Empty => false,
            ValueSlot::Value(_) => true,
            ValueSlot::Shared(waited) => waited.value.borrow().is_some(),
        };
        if is_set {
            return Err(self.problem(frame, id, "this field is assigned twice"));
        }
        if let ValueSlot::Shared(waited) = before {
            self.connect(&value, &waited);
        }
        Ok(())
    }

    fn copy_array(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        target: VariablePlace,
        from: &Operand,
    ) -> Result<(), Problem> {
        let array = frame.value(target).array().clone();
        let from = self.operand(from, frame, id)?.get().expect("it is a need").array().clone();
        let mut last = None;
        loop {
            let next = from.members.borrow_mut().next_after(last.as_ref());
            let Some((key, slot)) = next else { return Ok(()) };
            self.insert(frame, id, &array, &key, slot)?;
            last = Some(key);
        }
    }

    fn fill_range(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        target: VariablePlace,
        range: &RangeFormula,
    ) -> Result<(), Problem> {
        let array = frame.value(target).array().clone();
        let bounds = [&range.start, &range.end, &range.step].map(|formula| self.compute(formula, frame, id));
        let [start, end, step] = bounds;
        let (start, end, step) = (start?, end?, step?);
        let wrong = |message| self.problem(frame, id, message);
        let values: Box<dyn Iterator<Item = SwiftValue>> = if range.is_float {
            Box::new(
                library::float_range(start.float(), end.float(), step.float()).map_err(wrong)?.map(SwiftValue::Float),
            )
        } else {
            Box::new(library::int_range(start.int(), end.int(), step.int()).map_err(wrong)?.map(SwiftValue::Int))
        };
        for (index, value) in (0..).zip(values) {
            self.insert(frame, id, &array, &ArrayKey::Int(index), ValueSlot::Value(value))?;
        }
        Ok(())
    }

    /// Makes a file another one. Returns false if it waits for the path.
    fn set_file(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        target: VariablePlace,
        from: &Operand,
    ) -> Result<bool, Problem> {
        let file = frame.value(target).file().clone();
        let from = self.operand(from, frame, id)?;
        let Some(SwiftValue::File(from)) = from.get() else {
            let ValueSlot::Shared(future) = from else { unreachable!("it has no value") };
            let unit = self.add_unit(WaitingUnit { frame: frame.clone(), operation: id, waits_for: None });
            Wait::Future(future).add(unit);
            return Ok(false);
        };
        if file.state.borrow().source.is_some() {
            return Err(self.problem(frame, id, "this file is assigned twice"));
        }
        if Rc::ptr_eq(&from.resolve(), &file) {
            return Err(self.problem(frame, id, "this file would be a copy of itself"));
        }
        let is_mapped = file.state.borrow().mapping != Mapping::None;
        if is_mapped {
            return self.copy_file(frame, id, &file, &from);
        }
        file.state.borrow_mut().source = Some(FileSource::Same(from));
        self.wake_file(&file);
        Ok(true)
    }

    /// Calls a function of the script: its body runs at once, as far as it can.
    fn call(
        &mut self,
        frame: &Rc<VariableFrame>,
        id: OperationId,
        function: FunctionId,
        (inputs, outputs, placing): (&[Operand], &[VariablePlace], &CallPlacing),
    ) -> Result<bool, Problem> {
        if self.depth >= DEPTH_MAX {
            // It is held as an operation that waits, and takes its turn.
            self.defer(frame, id);
            return Ok(false);
        }
        let program = self.program.clone();
        let (callee, span) = (&program.functions[function.0 as usize], program.operations[id.0 as usize].span);
        let trace = frame.trace(&callee.name, span);
        let inner = self.new_frame(callee.layout, Some(&VariableFrame::outermost(frame)), Some(trace));
        for (slot, output) in (0..).zip(outputs) {
            let shared = frame.link(*output);
            inner.with_slot(VariablePlace { hops: 0, slot }, |slot| *slot = shared);
        }
        for (slot, input) in (callee.outputs..).zip(inputs) {
            let value = self.operand(input, frame, id)?;
            inner.with_slot(VariablePlace { hops: 0, slot }, |slot| *slot = value);
        }
        let operations: &Operations = match &callee.body {
            FunctionBody::Operations(operations) => operations,
            FunctionBody::App(app) => {
                self.place_call(frame, id, &inner, (app.placing, placing))?;
                &app.operations
            }
        };
        self.depth += 1;
        let ran = self.run_operations(&inner, operations);
        self.depth -= 1;
        ran?;
        self.finish_frame(&inner);
        Ok(true)
    }
}
