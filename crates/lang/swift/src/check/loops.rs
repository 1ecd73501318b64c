//! Loops and `wait`: bodies in frames of their own, or that begin later.

use super::Checker;
use super::expressions::Typed;
use super::scopes::{BranchStep, VariableRole};
use crate::ast::{Expression, ExpressionKind, SourceName, Statement, StatementBlock, StatementKind};
use crate::program::{
    ForLoop, ForeachSource, LayoutId, Need, NeedKind, OperationKind, Operations, SlotStart, VariablePlace,
};
use crate::source::Span;
use crate::types::TypeId;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

impl Checker<'_> {
    /// Opens the frame of an iteration.
    fn open_loop(&mut self) -> LayoutId {
        let layout = self.new_layout();
        self.scopes.frames.push(layout);
        self.scopes.open();
        let branch = self.scopes.new_branch();
        self.scopes.branch.push(BranchStep::Loop(branch));
        layout
    }

    fn close_loop(&mut self) {
        self.scopes.branch.pop();
        self.scopes.close();
        self.scopes.frames.pop();
    }

    pub(super) fn foreach(
        &mut self,
        (value, index): (&SourceName, Option<&SourceName>),
        array: &Expression,
        body: &StatementBlock,
        operations: &mut Operations,
    ) {
        let (over, index_type, member) = if let ExpressionKind::Range { .. } = array.kind {
            let range = self.range(array, operations);
            let member = if range.is_float { TypeId::FLOAT } else { TypeId::INT };
            (ForeachSource::Range(range), TypeId::INT, member)
        } else {
            let found = self.expression(array, None, operations);
            let Some(member) = self.types.member_of(found.type_) else {
                if found.type_ != TypeId::WRONG {
                    let has = self.type_name(found.type_);
                    self.problem(array.span, format!("`foreach` goes over an array, and this is of type {has}"));
                }
                return;
            };
            let index_type = self.types.as_array(found.type_).map_or(TypeId::INT, |(index, _)| index);
            (ForeachSource::Array(self.as_place(found, array.span, operations)), index_type, member)
        };
        let layout = self.open_loop();
        self.add_variable(value, member, VariableRole::Given, SlotStart::Empty);
        match index {
            Some(index) => drop(self.add_variable(index, index_type, VariableRole::Given, SlotStart::Empty)),
            None => drop(self.linked(index_type, value.span)),
        }
        let mut inner = Operations::new();
        self.statements(&body.statements, &mut inner);
        self.place_field_parts(&mut inner);
        self.close_loop();
        self.push(OperationKind::Foreach { over, layout, body: inner }, body.span, Vec::new(), operations);
    }

    pub(super) fn for_statement(&mut self, statement: &Statement, operations: &mut Operations) {
        let StatementKind::For { variables, condition, updates, body, .. } = &statement.kind else { return };
        let mut first = Vec::new();
        for (type_, name, value) in variables {
            let found = self.expression(value, None, operations);
            // Without a type it stands for a variable outside, which it hides.
            let outer = self.scopes.find(&name.text).map(|id| self.scopes.variables[id.0].type_);
            let type_ = type_.as_ref().map_or(outer.unwrap_or(found.type_), |type_| self.resolve(type_));
            let value = self.convert(found, type_, name.span, &format!("`{}`", name.text));
            let place = self.as_place(Typed { operand: value, type_ }, name.span, operations);
            first.push((name, type_, place));
        }
        let layout = self.open_loop();
        let loop_ =
            Rc::new(ForLoop { layout, before: RefCell::default(), body: RefCell::default(), next: RefCell::default() });
        for ((written, ..), (name, type_, _)) in variables.iter().zip(&first) {
            if written.is_some() {
                self.check_hiding(name);
            }
            self.insert_variable(name, *type_, VariableRole::Given, SlotStart::Empty);
        }
        let mut test = Operations::new();
        let condition = self.condition(condition, &mut test);
        let mut inner = Operations::new();
        self.scopes.open();
        self.statements(&body.statements, &mut inner);
        let next = self.next_values(&first, updates, &mut inner);
        self.place_field_parts(&mut inner);
        self.scopes.close();
        *loop_.body.borrow_mut() = inner;
        *loop_.next.borrow_mut() = next;
        self.push(OperationKind::ForTest { loop_: loop_.clone(), condition }, statement.span, Vec::new(), &mut test);
        self.close_loop();
        *loop_.before.borrow_mut() = test;
        let first = first.into_iter().map(|(_, _, place)| place).collect();
        self.push(OperationKind::For { loop_, first }, statement.span, Vec::new(), operations);
    }

    /// The variables of the next values of a loop, in the order of its variables.
    fn next_values(
        &mut self,
        variables: &[(&SourceName, TypeId, VariablePlace)],
        updates: &[(SourceName, Expression)],
        operations: &mut Operations,
    ) -> Vec<VariablePlace> {
        for (name, _) in updates {
            if !variables.iter().any(|(variable, ..)| variable.text == name.text) {
                let known: Vec<&str> = variables.iter().map(|(variable, ..)| &*variable.text).collect();
                self.unknown(name.span, "variable of this loop", &name.text, known);
            }
        }
        let mut next = Vec::new();
        for (number, (variable, type_, _)) in (0..).zip(variables) {
            let update = updates.iter().find(|(name, _)| name.text == variable.text);
            let Some((name, value)) = update else {
                // It keeps its value.
                next.push(VariablePlace { hops: 0, slot: number });
                continue;
            };
            let value = self.value_of_type(value, *type_, &format!("`{}`", name.text), operations);
            next.push(self.as_place(Typed { operand: value, type_: *type_ }, name.span, operations));
        }
        next
    }

    pub(super) fn iterate(
        &mut self,
        variable: &SourceName,
        body: &StatementBlock,
        until: &Expression,
        operations: &mut Operations,
    ) {
        let layout = self.open_loop();
        self.add_variable(variable, TypeId::INT, VariableRole::Given, SlotStart::Empty);
        let mut inner = Operations::new();
        self.statements(&body.statements, &mut inner);
        let until = self.condition(until, &mut inner);
        self.place_field_parts(&mut inner);
        let mut needs = Vec::new();
        self.formula_needs(&until, &mut needs);
        let loop_ = Rc::new(RefCell::new(Operations::new()));
        self.push(OperationKind::IterateNext { layout, body: loop_.clone(), until }, body.span, needs, &mut inner);
        let writes: BTreeSet<VariablePlace> =
            inner.iter().flat_map(|id| self.operations[id.0 as usize].writes.iter().copied()).collect();
        let next = inner.last().expect("it was just added");
        self.operations[next.0 as usize].writes = writes.into_iter().collect();
        loop_.borrow_mut().clone_from(&inner);
        self.close_loop();
        self.push(OperationKind::Iterate { layout, body: inner }, body.span, Vec::new(), operations);
    }

    pub(super) fn wait(
        &mut self,
        values: &[Expression],
        is_deep: bool,
        body: &StatementBlock,
        span: Span,
        operations: &mut Operations,
    ) {
        let mut needs: Vec<Need> = Vec::new();
        for value in values {
            let found = self.expression(value, None, operations);
            if found.type_ == TypeId::WRONG {
                continue;
            }
            let place = self.as_place(found, value.span, operations);
            needs.push(Need { place, kind: NeedKind::Value });
            needs.push(self.wait_need(place, is_deep));
        }
        let mut inner = Operations::new();
        self.block(body, &mut inner);
        self.push(OperationKind::Body(inner), span, needs, operations);
    }
}
