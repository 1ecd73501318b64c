//! Assignments: to variables, to members of arrays and to fields of structs.

use super::Checker;
use super::expressions::Typed;
use super::scopes::{VariableId, VariableRole};
use crate::ast::{
    AssignmentStatement, AssignmentTarget, Expression, ExpressionKind, FunctionCall, MemberStep, SourceName,
};
use crate::program::{Formula, LayoutId, Operand, OperationKind, Operations, SlotLayout, SlotStart, VariablePlace};
use crate::source::Span;
use crate::types::TypeId;

/// A field of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FieldPart {
    /// The frame of the variable.
    layout: LayoutId,
    /// The slot of the variable.
    slot: u32,
    /// The number of the field.
    field: u32,
}

impl Checker<'_> {
    pub(super) fn assignment(
        &mut self,
        assignment: &AssignmentStatement,
        span: Span,
        operations: &mut Operations,
    ) -> Vec<VariablePlace> {
        let AssignmentStatement { targets, values, appends } = assignment;
        if targets.len() == values.len() {
            let pairs = targets.iter().zip(values);
            return pairs.filter_map(|(target, value)| self.assign(target, value, *appends, operations)).collect();
        }
        let [Expression { kind: ExpressionKind::Call(call), .. }] = &values[..] else {
            let (has, gets) = (targets.len(), values.len());
            self.problem(span, format!("{has} variables are assigned, and there are {gets} values"));
            return Vec::new();
        };
        let places = self.plain_targets(targets, call, *appends);
        let Some(outputs) = self.call(call, &places, operations) else { return Vec::new() };
        if outputs.len() != targets.len() {
            let (name, has, needs) = (&call.function.text, outputs.len(), targets.len());
            self.problem(span, format!("`{name}` has {has} outputs, and {needs} variables are assigned"));
            return Vec::new();
        }
        let span = call.function.span;
        let mut assigned = Vec::new();
        for ((target, place), found) in targets.iter().zip(places).zip(outputs) {
            match (place, &found.operand) {
                (Some(place), Operand::Variable(output)) if place == *output => assigned.push(place),
                (Some(place), _) => {
                    let type_ = self.type_of(place);
                    let what = format!("`{}`", target.variable.text);
                    self.set(place, type_, found, span, &what, operations);
                    assigned.push(place);
                }
                _ => assigned.extend(self.assign_found(target, found, span, *appends, operations)),
            }
        }
        assigned
    }

    /// The targets that are whole variables, which take the outputs of a call themselves.
    fn plain_targets(
        &mut self,
        targets: &[AssignmentTarget],
        call: &FunctionCall,
        appends: bool,
    ) -> Vec<Option<VariablePlace>> {
        let mut places = Vec::new();
        for (position, AssignmentTarget { variable, path }) in targets.iter().enumerate() {
            let id = self.scopes.find(&variable.text).filter(|_| path.is_empty() && !appends);
            if let Some(id) = id {
                self.check_owner(id, variable.span);
                if self.writes_files(call, position) {
                    self.assign_files(id, call.function.span);
                } else {
                    self.assign_whole(id, variable.span);
                }
            }
            places.push(id.map(|id| self.scopes.place(id)));
        }
        places
    }

    /// Notes that a variable gets a whole value, or that an app writes its files.
    pub(super) fn note_whole(&mut self, id: VariableId, value: &Expression, span: Span) {
        match &value.kind {
            ExpressionKind::Call(call) if self.writes_files(call, 0) => self.assign_files(id, call.function.span),
            _ => {
                self.note_members(id, value);
                self.assign_whole(id, span);
            }
        }
    }

    /// Lets an app write these files.
    pub(super) fn write_files(
        &mut self,
        files: &[SourceName],
        call: &FunctionCall,
        span: Span,
        operations: &mut Operations,
    ) -> Vec<VariablePlace> {
        let Some(type_) = self.written_files(call, 0) else {
            let message = format!("`{}` is no app function that writes an array of files", call.function.text);
            self.problem(call.function.span, message);
            return Vec::new();
        };
        let member = self.types.member_of(type_).filter(|member| self.types.base_of(*member) == TypeId::FILE);
        let (Some(member), Some((TypeId::INT, _))) = (member, self.types.as_array(type_)) else {
            let (name, has) = (&call.function.text, self.type_name(type_));
            let message = format!("`{name}` writes files of type {has}: put them into such an array first");
            self.problem(call.function.span, message);
            return Vec::new();
        };
        let mut places = Vec::new();
        for name in files {
            let id = self
                .scopes
                .find(&name.text)
                .unwrap_or_else(|| self.add_variable(name, member, VariableRole::Local, SlotStart::File(false)));
            self.check_owner(id, name.span);
            let type_ = self.scopes.variables[id.0].type_;
            if self.types.conversion(member, type_).is_none() {
                let (has, wants) = (self.type_name(type_), self.type_name(member));
                let message = format!("the app writes files of type {wants}, and `{}` is of type {has}", name.text);
                self.problem(name.span, message);
                return Vec::new();
            }
            self.assign_whole(id, name.span);
            places.push(self.scopes.place(id));
        }
        let target = self.temporary(type_, span);
        let members = places.iter().map(|place| (None, Operand::Variable(*place))).collect();
        self.push(OperationKind::FillArray { target, members }, span, Vec::new(), operations);
        let outputs = self.call(call, &[Some(target)], operations).unwrap_or_default();
        if let [_, more, ..] = &outputs[..] {
            let has = self.type_name(more.type_);
            let name = &call.function.text;
            self.problem(call.function.span, format!("`{name}` has a further output, of type {has}"));
        }
        places
    }

    /// Gives a target the value of an expression; returns the variable.
    fn assign(
        &mut self,
        target: &AssignmentTarget,
        value: &Expression,
        appends: bool,
        operations: &mut Operations,
    ) -> Option<VariablePlace> {
        let name = &target.variable;
        if target.path.is_empty() && !appends {
            if let Some(id) = self.scopes.find(&name.text) {
                self.check_owner(id, name.span);
                self.note_whole(id, value, name.span);
                let (place, type_) = (self.scopes.place(id), self.scopes.variables[id.0].type_);
                self.assign_value(place, type_, &name.text, value, operations);
                return Some(place);
            }
            let found = self.expression(value, None, operations);
            return Some(self.declare_by_value(name, found, value.span, operations));
        }
        if let Some(id) = self.scopes.find(&name.text) {
            self.note_members(id, value);
        }
        let wanted = self.target_type(target, appends);
        let found = self.expression(value, wanted, operations);
        self.assign_found(target, found, value.span, appends, operations)
    }

    /// Declares a variable by its first assignment.
    fn declare_by_value(
        &mut self,
        name: &SourceName,
        found: Typed,
        span: Span,
        operations: &mut Operations,
    ) -> VariablePlace {
        let type_ = found.type_;
        let start = self.start_of(type_, false);
        let id = self.add_variable(name, type_, VariableRole::Local, start);
        self.assign_whole(id, name.span);
        let place = self.scopes.place(id);
        if type_ != TypeId::WRONG {
            self.set(place, type_, found, span, &format!("`{}`", name.text), operations);
        }
        place
    }

    /// A function may not assign variables of the script: nobody could tell when they are there.
    fn check_owner(&mut self, id: VariableId, span: Span) {
        let variable = &self.scopes.variables[id.0];
        let is_global = variable.depth == 0 && self.scopes.frames.len() > 1 && self.scopes.in_function;
        if is_global {
            let name = variable.name.clone();
            self.problem(span, format!("`{name}` is a variable of the script, which a function cannot assign"));
        }
    }

    /// The type of what a target with a path stands for.
    fn target_type(&mut self, target: &AssignmentTarget, appends: bool) -> Option<TypeId> {
        let id = self.scopes.find(&target.variable.text)?;
        let mut type_ = self.scopes.variables[id.0].type_;
        for step in &target.path {
            type_ = match step {
                MemberStep::Index(_) => self.types.as_array(type_)?.1,
                MemberStep::Field(name) => {
                    let struct_ = self.types.as_struct(type_)?;
                    struct_.fields.iter().find(|(field, _)| *field == name.text)?.1
                }
            };
        }
        if appends { self.types.member_of(type_) } else { Some(type_) }
    }

    /// Gives a target a value that was checked; returns the variable.
    fn assign_found(
        &mut self,
        target: &AssignmentTarget,
        found: Typed,
        span: Span,
        appends: bool,
        operations: &mut Operations,
    ) -> Option<VariablePlace> {
        let AssignmentTarget { variable: name, path } = target;
        let Some(id) = self.scopes.find(&name.text) else {
            if path.is_empty() && !appends {
                return Some(self.declare_by_value(name, found, span, operations));
            }
            let mut known: Vec<String> = self.scopes.names().map(str::to_owned).collect();
            known.sort_unstable();
            self.unknown(name.span, "variable", &name.text, known.iter().map(String::as_str));
            return None;
        };
        self.check_owner(id, name.span);
        let (place, type_) = (self.scopes.place(id), self.scopes.variables[id.0].type_);
        if path.is_empty() && !appends {
            self.assign_whole(id, name.span);
            self.set(place, type_, found, span, &format!("`{}`", name.text), operations);
            return Some(place);
        }
        self.assign_part(id, name.span);
        let (mut found, mut awaited) = (found, place);
        if self.is_chained {
            // The next statement waits for this value, and not for the whole array.
            let value_type = found.type_;
            awaited = self.as_place(found, span, operations);
            found = Typed::variable(awaited, value_type);
        }
        if appends {
            self.append(place, type_, (name, path), found, span, operations);
        } else {
            self.store(place, type_, (name, path), found, span, operations);
        }
        Some(awaited)
    }

    fn append(
        &mut self,
        array: VariablePlace,
        type_: TypeId,
        (name, path): (&SourceName, &[MemberStep]),
        found: Typed,
        span: Span,
        operations: &mut Operations,
    ) {
        if let [MemberStep::Field(field), rest @ ..] = path {
            let Some((part, type_)) = self.field_part(array, type_, field) else { return };
            return self.append(part, type_, (name, rest), found, span, operations);
        }
        let Some((indices, inner)) = self.indices_of(type_, (name, path), operations) else { return };
        let member = self.types.member_of(inner);
        let is_indexed = self.types.as_array(inner).is_some_and(|(index, _)| index != TypeId::INT);
        let Some(member) = member.filter(|_| !is_indexed) else {
            return self.problem(name.span, "`+=` adds to a bag, or to an array with whole numbers as indices");
        };
        let value = self.convert(found, member, span, "a member of this array");
        self.push(OperationKind::Append { array, indices, value }, span, Vec::new(), operations);
    }

    /// The variable of a field whose value comes in parts: `p.events[0] = 1`, `p.place.x = 2`. It
    /// is in the frame of the struct, so that all parts find it.
    fn field_part(
        &mut self,
        target: VariablePlace,
        type_: TypeId,
        field: &SourceName,
    ) -> Option<(VariablePlace, TypeId)> {
        let (number, type_) = self.field_of(type_, field)?;
        let layout = self.scopes.layout(target.hops);
        let key = FieldPart { layout, slot: target.slot, field: number };
        if let Some(slot) = self.field_parts.get(&key) {
            return Some((VariablePlace { slot: *slot, ..target }, type_));
        }
        let start = self.start_of(type_, false);
        let slots = &mut self.layouts[layout.0 as usize].slots;
        let name = format!("{}.{}", slots[target.slot as usize].name, field.text).into();
        slots.push(SlotLayout { name, type_, span: field.span, start });
        let slot = u32::try_from(slots.len() - 1).expect("frames are small");
        self.field_parts.insert(key, slot);
        // It becomes the field once, whatever loops and conditions are around here.
        let value = Operand::Variable(VariablePlace { hops: 0, slot });
        let target_there = VariablePlace { hops: 0, ..target };
        let kind = OperationKind::SetField { target: target_there, path: vec![number], value };
        let mut operations = self.field_operations.remove(&layout).unwrap_or_default();
        self.push(kind, field.span, Vec::new(), &mut operations);
        self.field_operations.insert(layout, operations);
        Some((VariablePlace { slot, ..target }, type_))
    }

    /// Adds the operations that put parts into the structs of the innermost frame.
    pub(super) fn place_field_parts(&mut self, operations: &mut Operations) {
        let layout = self.scopes.layout(0);
        operations.extend(self.field_operations.remove(&layout).unwrap_or_default());
    }

    /// `A[i][j] = v`, or `p.f = v`.
    fn store(
        &mut self,
        target: VariablePlace,
        type_: TypeId,
        (name, path): (&SourceName, &[MemberStep]),
        found: Typed,
        span: Span,
        operations: &mut Operations,
    ) {
        if let [MemberStep::Field(field), rest @ ..] = path {
            if !rest.is_empty() {
                let Some((part, type_)) = self.field_part(target, type_, field) else { return };
                return self.store(part, type_, (name, rest), found, span, operations);
            }
            let Some((number, type_)) = self.field_of(type_, field) else { return };
            let value = self.convert(found, type_, span, "this field");
            let kind = OperationKind::SetField { target, path: vec![number], value };
            return self.push(kind, name.span, Vec::new(), operations);
        }
        let Some((indices, inner)) = self.indices_of(type_, (name, path), operations) else { return };
        let value = self.convert(found, inner, span, "a member of this array");
        self.push(OperationKind::Store { array: target, indices, value }, name.span, Vec::new(), operations);
    }

    /// The indices of a path through arrays, and the type where it ends.
    fn indices_of(
        &mut self,
        type_: TypeId,
        (name, path): (&SourceName, &[MemberStep]),
        operations: &mut Operations,
    ) -> Option<(Vec<Formula>, TypeId)> {
        let (mut indices, mut inner) = (Vec::new(), type_);
        for step in path {
            let index = match step {
                MemberStep::Index(index) => index,
                MemberStep::Field(field) => {
                    let message = "a struct in an array is assigned as a whole, not field by field";
                    let array = &name.text;
                    let hint = format!("assign a variable first: s.{} = ...; {array}[...] = s;", field.text);
                    let problem = self.sources.problem(field.span, message).hint(hint);
                    self.problems.push(problem);
                    return None;
                }
            };
            let Some((index_type, member)) = self.types.as_array(inner) else {
                let has = self.type_name(inner);
                self.problem(index.span, format!("`[` is for a member of an array, and this is of type {has}"));
                return None;
            };
            indices.push(self.formula_of_type(index, index_type, "the index of this array", operations));
            inner = member;
        }
        Some((indices, inner))
    }
}
