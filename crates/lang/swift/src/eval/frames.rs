//! Frames: the variables of a call or an iteration.

use super::Evaluator;
use crate::program::{LayoutId, OperationId, SlotLayout, SlotStart, VariablePlace};
use crate::source::Span;
use crate::value::{ArrayCell, FileCell, FileState, Mapping, ScriptFileId, StructCell, SwiftValue, ValueSlot};
use base::Problem;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The variables of a call or an iteration.
#[derive(Debug)]
pub struct VariableFrame {
    /// The layout.
    pub layout: LayoutId,
    /// The variables.
    pub slots: RefCell<Vec<ValueSlot>>,
    parent: Option<Rc<VariableFrame>>,
    /// The call that made it.
    call: Option<Rc<CallTrace>>,
}

/// A call of a function of the script.
#[derive(Debug)]
pub struct CallTrace {
    /// The function.
    pub function: Arc<str>,
    /// The position of the call.
    pub span: Span,
    /// The call around it.
    pub outer: Option<Rc<CallTrace>>,
    /// The number of calls around it that are known.
    depth: u32,
}

/// The calls within each other that are known. Those that are dropped together bound the stack.
const TRACE_MAX: u32 = 20;

impl VariableFrame {
    /// The frame that is this many outwards.
    fn outwards(&self, hops: u16) -> &Self {
        let mut frame = self;
        for _ in 0..hops {
            frame = frame.parent.as_ref().expect("the checker counted");
        }
        frame
    }

    /// The frame of the script itself.
    pub fn outermost(frame: &Rc<Self>) -> Rc<Self> {
        let mut frame = frame;
        while let Some(parent) = &frame.parent {
            frame = parent;
        }
        frame.clone()
    }

    /// The frame around this one.
    pub fn parent(&self) -> Option<&Rc<Self>> {
        self.parent.as_ref()
    }

    /// The value of a variable, if it is there.
    pub fn get(&self, place: VariablePlace) -> Option<SwiftValue> {
        self.outwards(place.hops).slots.borrow()[place.slot as usize].get()
    }

    /// The value of a variable that an operation needs.
    pub fn value(&self, place: VariablePlace) -> SwiftValue {
        self.get(place).expect("it is a need")
    }

    /// The number in a variable that an operation needs.
    pub fn number<T>(&self, place: VariablePlace, convert: fn(&SwiftValue) -> T) -> T {
        match &self.outwards(place.hops).slots.borrow()[place.slot as usize] {
            ValueSlot::Value(value) => convert(value),
            slot => convert(&slot.get().expect("it is a need")),
        }
    }

    /// Does something with the slot of a variable.
    pub fn with_slot<T>(&self, place: VariablePlace, work: impl FnOnce(&mut ValueSlot) -> T) -> T {
        work(&mut self.outwards(place.hops).slots.borrow_mut()[place.slot as usize])
    }

    /// The slot that others may share with a variable; a value that is there is copied.
    pub fn link(&self, place: VariablePlace) -> ValueSlot {
        self.with_slot(place, |slot| match slot {
            ValueSlot::Value(value) => ValueSlot::Value(value.clone()),
            other => ValueSlot::Shared(other.share()),
        })
    }

    /// The calls that led here, the innermost first.
    pub fn calls(&self) -> impl Iterator<Item = &CallTrace> {
        std::iter::successors(self.call.as_deref(), |call| call.outer.as_deref())
    }

    /// The trace of a call from this frame.
    pub fn trace(&self, function: &Arc<str>, span: Span) -> Rc<CallTrace> {
        let outer = self.call.clone().filter(|outer| outer.depth < TRACE_MAX);
        let depth = outer.as_ref().map_or(0, |outer| outer.depth + 1);
        Rc::new(CallTrace { function: function.clone(), span, outer, depth })
    }

    /// The layout of the frame of a variable.
    pub fn layout_of(&self, place: VariablePlace) -> LayoutId {
        self.outwards(place.hops).layout
    }
}

impl Evaluator {
    /// A frame with its variables as they begin. A call has its trace, an iteration that of the
    /// frame around it.
    pub(super) fn new_frame(
        &mut self,
        layout: LayoutId,
        parent: Option<&Rc<VariableFrame>>,
        call: Option<Rc<CallTrace>>,
    ) -> Rc<VariableFrame> {
        let slots = self.start_slots(layout);
        let call = call.or_else(|| parent.and_then(|parent| parent.call.clone()));
        Rc::new(VariableFrame { layout, slots: RefCell::new(slots), parent: parent.cloned(), call })
    }

    fn start_slots(&mut self, LayoutId(layout): LayoutId) -> Vec<ValueSlot> {
        let program = self.program.clone();
        program.layouts[layout as usize].slots.iter().map(|slot| self.start_slot(slot)).collect()
    }

    /// Makes the variables of a frame as they begin, if nothing else sees it.
    pub(super) fn renew_frame(&mut self, frame: &mut Rc<VariableFrame>) -> bool {
        let program = self.program.clone();
        let Some(frame) = Rc::get_mut(frame) else { return false };
        let starts = &program.layouts[frame.layout.0 as usize].slots;
        for (slot, start) in frame.slots.get_mut().iter_mut().zip(starts) {
            *slot = if start.start == SlotStart::Empty { ValueSlot::Empty } else { self.start_slot(start) };
        }
        true
    }

    fn start_slot(&mut self, layout: &SlotLayout) -> ValueSlot {
        match layout.start {
            SlotStart::Empty => ValueSlot::Empty,
            SlotStart::Array => ValueSlot::Value(SwiftValue::Array(Rc::new(ArrayCell::open()))),
            SlotStart::Struct(type_) => {
                let count = self.program.types.as_struct(type_).map_or(0, |found| found.fields.len());
                let fields = RefCell::new(vec![ValueSlot::Empty; count]);
                ValueSlot::Value(SwiftValue::Struct(Rc::new(StructCell { fields })))
            }
            SlotStart::File(is_mapped) => {
                let mapping = if is_mapped { Mapping::Awaited } else { Mapping::None };
                ValueSlot::Value(SwiftValue::File(self.new_file(layout.name.clone(), mapping)))
            }
        }
    }

    pub(super) fn new_file(&mut self, name: Arc<str>, mapping: Mapping) -> Rc<FileCell> {
        self.next_file += 1;
        Rc::new(FileCell {
            id: ScriptFileId(self.next_file),
            name,
            state: RefCell::new(FileState { mapping, ..FileState::default() }),
            waiters: RefCell::default(),
            dropped: self.dropped.clone(),
        })
    }

    /// All operations of a frame were tried: those that wait hold its arrays from now on.
    pub(super) fn finish_frame(&mut self, frame: &Rc<VariableFrame>) {
        let program = self.program.clone();
        let starts = &program.layouts[frame.layout.0 as usize].slots;
        for (slot, start) in (0..).zip(starts) {
            if start.start == SlotStart::Array
                && let Some(SwiftValue::Array(array)) = frame.get(VariablePlace { hops: 0, slot })
            {
                self.release_array(&array);
            }
        }
    }

    /// Gives a variable a value.
    pub(super) fn set(
        &mut self,
        frame: &Rc<VariableFrame>,
        place: VariablePlace,
        value: SwiftValue,
        operation: OperationId,
    ) -> Result<(), Problem> {
        if let Some(waiters) = frame.with_slot(place, |slot| slot.set(value)) {
            self.wake(waiters);
            Ok(())
        } else {
            let name = self.name_of(frame, place).map_or_else(|| "a result".into(), |(name, _)| name);
            Err(self.problem(frame, operation, format!("`{name}` is assigned twice")))
        }
    }

    /// The name of a variable and where it is declared; `None` for results within expressions.
    pub(super) fn name_of(&self, frame: &VariableFrame, place: VariablePlace) -> Option<(Arc<str>, Span)> {
        let layout = frame.layout_of(place);
        let slot = &self.program.layouts[layout.0 as usize].slots[place.slot as usize];
        (!slot.name.is_empty()).then(|| (slot.name.clone(), slot.span))
    }

    /// Holds the arrays that an operation may write.
    pub(super) fn hold(&mut self, frame: &Rc<VariableFrame>, operation: OperationId) {
        let program = self.program.clone();
        for place in &program.operations[operation.0 as usize].writes {
            if let Some(SwiftValue::Array(array)) = frame.get(*place) {
                array.writers.set(array.writers.get() + 1);
            }
        }
    }

    /// Lets go of the arrays that an operation held.
    pub(super) fn release(&mut self, frame: &Rc<VariableFrame>, operation: OperationId) {
        let program = self.program.clone();
        for place in &program.operations[operation.0 as usize].writes {
            if let Some(SwiftValue::Array(array)) = frame.get(*place) {
                self.release_array(&array);
            }
        }
    }

    fn release_array(&mut self, array: &Rc<ArrayCell>) {
        let left = array.writers.get().checked_sub(1).expect("it was held");
        array.writers.set(left);
        if left == 0 {
            self.close_array(array);
        }
    }

    /// Wakes those that wait for the end of an array or for members that will never come.
    fn close_array(&mut self, array: &Rc<ArrayCell>) {
        let waiters = array.waiters.take();
        self.wake(waiters);
        let missing = array.member_waiters.take();
        for (_, waiters) in missing {
            self.wake(waiters);
        }
        if array.has_inner.get() {
            let inner: Vec<Rc<ArrayCell>> = array
                .members
                .borrow()
                .iter()
                .filter_map(|(_, member)| if let Some(SwiftValue::Array(inner)) = member { Some(inner) } else { None })
                .collect();
            for inner in inner.into_iter().filter(|inner| inner.is_inner) {
                self.release_array(&inner);
            }
        }
    }
}
