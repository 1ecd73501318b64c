//! Operations: their needs, and the arrays that they write.

use super::Checker;
use crate::library::ArrayNeed;
use crate::program::{
    CallPlacing, ForeachSource, Formula, Need, NeedKind, Operand, Operation, OperationId, OperationKind, Operations,
    RangeFormula, SlotLayout, SlotStart, VariablePlace,
};
use crate::source::Span;
use crate::types::TypeId;

impl Checker<'_> {
    /// Adds an operation, which needs what its formulas need and `more`.
    pub(super) fn push(&mut self, kind: OperationKind, span: Span, mut more: Vec<Need>, operations: &mut Operations) {
        self.needs_of(&kind, &mut more);
        more.sort_unstable();
        more.dedup();
        let mut writes = self.writes_of(&kind);
        writes.sort_unstable();
        writes.dedup();
        let id = OperationId(u32::try_from(self.operations.len()).expect("scripts are shorter"));
        self.operations.push(Operation { kind, needs: more.into(), writes: writes.into(), span });
        operations.push(id);
    }

    /// A variable without a name in the innermost frame.
    pub(super) fn temporary(&mut self, type_: TypeId, span: Span) -> VariablePlace {
        let start = self.start_of(type_, false);
        let slot = self.add_slot(SlotLayout { name: "".into(), type_, span, start });
        VariablePlace { hops: 0, slot }
    }

    /// Adds a slot to the innermost frame.
    pub(super) fn add_slot(&mut self, slot: SlotLayout) -> u32 {
        let layout = self.scopes.layout(0);
        let slots = &mut self.layouts[layout.0 as usize].slots;
        slots.push(slot);
        u32::try_from(slots.len() - 1).expect("frames are small")
    }

    /// The first content of a variable of a type.
    pub(super) fn start_of(&self, type_: TypeId, is_mapped: bool) -> SlotStart {
        if self.types.member_of(type_).is_some() {
            SlotStart::Array
        } else if self.types.as_struct(type_).is_some() {
            SlotStart::Struct(self.types.base_of(type_))
        } else if self.types.base_of(type_) == TypeId::FILE {
            SlotStart::File(is_mapped)
        } else {
            SlotStart::Empty
        }
    }

    /// The type of a variable.
    pub(super) fn type_of(&self, place: VariablePlace) -> TypeId {
        let layout = self.scopes.layout(place.hops);
        self.layouts[layout.0 as usize].slots[place.slot as usize].type_
    }

    /// The first content of a variable.
    pub(super) fn start_at(&self, place: VariablePlace) -> SlotStart {
        let layout = self.scopes.layout(place.hops);
        self.layouts[layout.0 as usize].slots[place.slot as usize].start
    }

    /// The need of a statement that waits for a variable to be there.
    pub(super) fn wait_need(&self, place: VariablePlace, is_deep: bool) -> Need {
        let type_ = self.type_of(place);
        let kind = if is_deep || self.types.base_of(type_) == TypeId::FILE {
            NeedKind::Ready
        } else if self.types.member_of(type_).is_some() {
            NeedKind::Closed
        } else {
            NeedKind::Value
        };
        Need { place, kind }
    }

    fn needs_of(&self, kind: &OperationKind, needs: &mut Vec<Need>) {
        let mut formula = |formula: &Formula| self.formula_needs(formula, needs);
        match kind {
            OperationKind::Store { array, indices, value } | OperationKind::Append { array, indices, value } => {
                indices.iter().for_each(&mut formula);
                self.operand_needs(value, needs);
                needs.push(Need { place: *array, kind: NeedKind::Value });
            }
            OperationKind::Load { array, index, .. } => {
                formula(index);
                needs.push(Need { place: *array, kind: NeedKind::Value });
            }
            OperationKind::LoadField { from, .. } => needs.push(Need { place: *from, kind: NeedKind::Value }),
            OperationKind::SetField { path, value: Operand::Variable(place), .. } if path.is_empty() => {
                needs.push(Need { place: *place, kind: NeedKind::Value });
            }
            OperationKind::SetField { value, .. } | OperationKind::SetFile { from: value, .. } => {
                self.operand_needs(value, needs);
            }
            OperationKind::CopyArray { from, .. } => match from {
                Operand::Variable(place) => needs.push(Need { place: *place, kind: NeedKind::Closed }),
                Operand::Formula(value) => formula(value),
            },
            OperationKind::FillArray { members, .. } => {
                members.iter().filter_map(|(index, _)| index.as_ref()).for_each(&mut formula);
                for (_, value) in members {
                    self.operand_needs(value, needs);
                }
            }
            OperationKind::Call { inputs, placing: CallPlacing { priority, location, .. }, .. } => {
                priority.iter().chain(location).for_each(&mut formula);
                for input in inputs {
                    self.operand_needs(input, needs);
                }
            }
            OperationKind::CallEffect { inputs, .. } => {
                for input in inputs {
                    self.operand_needs(input, needs);
                }
            }
            OperationKind::Set { value, .. }
            | OperationKind::MapFile { path: value, .. }
            | OperationKind::If { condition: value, .. }
            | OperationKind::Switch { value, .. }
            | OperationKind::ForTest { condition: value, .. }
            | OperationKind::IterateNext { until: value, .. } => formula(value),
            OperationKind::FillRange { range, .. }
            | OperationKind::Foreach { over: ForeachSource::Range(range), .. } => self.range_needs(range, needs),
            OperationKind::Foreach { over: ForeachSource::Array(place), .. } => {
                needs.push(Need { place: *place, kind: NeedKind::Closed });
            }
            OperationKind::RunApp(_)
            | OperationKind::Body(_)
            | OperationKind::For { .. }
            | OperationKind::Iterate { .. } => {}
        }
    }

    /// A variable may be given on without its value.
    fn operand_needs(&self, operand: &Operand, needs: &mut Vec<Need>) {
        if let Operand::Formula(formula) = operand {
            self.formula_needs(formula, needs);
        }
    }

    fn range_needs(&self, range: &RangeFormula, needs: &mut Vec<Need>) {
        for formula in [&range.start, &range.end, &range.step] {
            self.formula_needs(formula, needs);
        }
    }

    pub(super) fn formula_needs(&self, formula: &Formula, needs: &mut Vec<Need>) {
        let mut both = |both: &(Formula, Formula)| {
            self.formula_needs(&both.0, needs);
            self.formula_needs(&both.1, needs);
        };
        match formula {
            Formula::Constant(_) => {}
            Formula::Variable(place) => needs.push(Need { place: *place, kind: NeedKind::Value }),
            Formula::ToFloat(inner) | Formula::Negate(inner, _) | Formula::Not(inner) => {
                self.formula_needs(inner, needs);
            }
            Formula::Int(_, inner)
            | Formula::Float(_, inner)
            | Formula::Compare(_, inner)
            | Formula::Both(_, inner) => {
                both(inner);
            }
            Formula::Call(function, arguments) => {
                for argument in arguments {
                    match argument {
                        Formula::Variable(place) if self.types.has_parts(self.type_of(*place)) => {
                            let is_closed = function.arrays == ArrayNeed::Closed;
                            let kind = if is_closed { NeedKind::Closed } else { NeedKind::Ready };
                            needs.push(Need { place: *place, kind });
                        }
                        other => self.formula_needs(other, needs),
                    }
                }
            }
        }
    }

    /// The arrays that an operation may write, and those within it.
    fn writes_of(&self, kind: &OperationKind) -> Vec<VariablePlace> {
        let within = |operations: &Operations| {
            let of = |id: &OperationId| self.operations[id.0 as usize].writes.iter().copied();
            operations.iter().flat_map(of).collect::<Vec<VariablePlace>>()
        };
        // Variables of a frame within are not seen from here.
        let outside = |places: Vec<VariablePlace>| {
            let outer = places.into_iter().filter(|place| place.hops > 0);
            outer.map(|place| VariablePlace { hops: place.hops - 1, ..place }).collect::<Vec<VariablePlace>>()
        };
        let arrays = |places: &[VariablePlace]| {
            let has_parts = |place: &&VariablePlace| self.types.has_parts(self.type_of(**place));
            places.iter().filter(has_parts).copied().collect::<Vec<VariablePlace>>()
        };
        match kind {
            OperationKind::Store { array: target, .. }
            | OperationKind::Append { array: target, .. }
            | OperationKind::CopyArray { target, .. }
            | OperationKind::FillArray { target, .. }
            | OperationKind::FillRange { target, .. } => vec![*target],
            OperationKind::Call { outputs, .. } | OperationKind::CallEffect { outputs, .. } => arrays(outputs),
            OperationKind::If { then, otherwise, .. } => [within(then), within(otherwise)].concat(),
            OperationKind::Switch { cases, default, .. } => {
                cases.iter().flat_map(|(_, operations)| within(operations)).chain(within(default)).collect()
            }
            OperationKind::Body(operations) => within(operations),
            OperationKind::Foreach { body, .. } | OperationKind::Iterate { body, .. } => outside(within(body)),
            OperationKind::IterateNext { body, .. } => within(&body.borrow()),
            OperationKind::For { loop_, .. } => outside(within(&loop_.body.borrow())),
            OperationKind::ForTest { loop_, .. } => within(&loop_.body.borrow()),
            OperationKind::Set { .. }
            | OperationKind::Load { .. }
            | OperationKind::LoadField { .. }
            | OperationKind::SetField { .. }
            | OperationKind::MapFile { .. }
            | OperationKind::SetFile { .. }
            | OperationKind::RunApp(_) => Vec::new(),
        }
    }
}
