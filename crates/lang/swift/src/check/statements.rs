//! Statements: operations in the order in which they are tried.

use super::Checker;
use super::expressions::Typed;
use super::scopes::{BranchStep, VariableRole};
use crate::ast::{
    AssignmentStatement, AssignmentTarget, Declaration, DeclaredVariable, Expression, ExpressionKind, MemberStep,
    SourceName, Statement, StatementBlock, StatementKind,
};
use crate::program::{
    ForLoop, ForeachSource, Formula, LayoutId, Need, NeedKind, Operand, OperationKind, Operations, SlotStart,
    TaskPlacing, VariablePlace,
};
use crate::source::Span;
use crate::types::TypeId;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

impl Checker<'_> {
    /// Checks the statements of the script itself. Its variables stay in sight, for functions.
    pub(super) fn main(&mut self, statements: &[&Statement]) -> (LayoutId, Operations) {
        let layout = self.new_layout();
        self.scopes.frames.push(layout);
        self.scopes.open();
        let mut operations = Operations::new();
        for statement in statements {
            self.statement(statement, &mut operations);
        }
        let main = self.signatures.get("main").and_then(|all| all.first()).cloned();
        if let Some(signature) = main.filter(|signature| signature.inputs.is_empty())
            && let super::calls::Implementation::Script(function, _) = signature.implementation
        {
            let outputs = signature.outputs.iter().map(|type_| self.temporary(*type_, signature.span)).collect();
            let kind = OperationKind::Call { function, inputs: Vec::new(), outputs, placing: TaskPlacing::default() };
            self.push(kind, signature.span, Vec::new(), &mut operations);
        }
        (layout, operations)
    }

    pub(super) fn statements(&mut self, statements: &[Statement], operations: &mut Operations) {
        for statement in statements {
            self.statement(statement, operations);
        }
    }

    /// Checks a statement; returns the variables that it gives values.
    fn statement(&mut self, statement: &Statement, operations: &mut Operations) -> Vec<VariablePlace> {
        let span = statement.span;
        match &statement.kind {
            StatementKind::Function(_)
            | StatementKind::App(_)
            | StatementKind::Struct { .. }
            | StatementKind::Alias { .. }
            | StatementKind::Import { .. } => {
                if self.scopes.frames.len() > 1 || !self.scopes.branch.is_empty() {
                    self.problem(span, "functions, types and imports are not within other blocks");
                }
            }
            StatementKind::Pragma => {}
            StatementKind::Arguments { .. } => {
                self.problem(span, "`arguments` and `flags` are not supported; use argv and argp");
            }
            StatementKind::Declaration(declaration) => return self.declaration(declaration, operations),
            StatementKind::Assignment(assignment) => return self.assignment(assignment, span, operations),
            StatementKind::Expression(expression) => return self.expression_statement(expression, operations),
            StatementKind::Chain(first, rest) => return self.chain(first, rest, operations),
            StatementKind::Block(block) => self.block(block, operations),
            StatementKind::If { condition, then, otherwise } => {
                self.if_statement(condition, then, otherwise.as_ref(), span, operations);
            }
            StatementKind::Switch { value, cases } => self.switch(value, cases, span, operations),
            StatementKind::Foreach { value, index, array, body } => {
                self.foreach((value, index.as_ref()), array, body, operations);
            }
            StatementKind::For { .. } => self.for_statement(statement, operations),
            StatementKind::Iterate { variable, body, until } => self.iterate(variable, body, until, operations),
            StatementKind::Wait { values, is_deep, body } => self.wait(values, *is_deep, body, span, operations),
        }
        Vec::new()
    }

    /// The statements of a block, with variables of their own in the same frame.
    fn block(&mut self, block: &StatementBlock, operations: &mut Operations) {
        self.scopes.open();
        self.statements(&block.statements, operations);
        self.scopes.close();
    }

    /// A block that runs in one case only.
    fn arm(&mut self, step: BranchStep, block: &StatementBlock) -> Operations {
        let mut operations = Operations::new();
        self.scopes.branch.push(step);
        self.block(block, &mut operations);
        self.scopes.branch.pop();
        operations
    }

    fn declaration(&mut self, declaration: &Declaration, operations: &mut Operations) -> Vec<VariablePlace> {
        let mut places = Vec::new();
        for DeclaredVariable { type_, name, mapping, value } in &declaration.variables {
            let type_ = self.resolve(type_);
            if mapping.is_some() && self.types.base_of(type_) != TypeId::FILE {
                let has = self.type_name(type_);
                self.problem(name.span, format!("a path in < > is for a file, and `{}` is of type {has}", name.text));
            }
            let start = self.start_of(type_, mapping.is_some());
            let id = self.add_variable(name, type_, VariableRole::Local, start);
            let place = self.scopes.place(id);
            if let Some(path) = mapping {
                let path = self.formula_of_type(path, TypeId::STRING, "the path of a file", operations);
                self.push(OperationKind::MapFile { target: place, path }, name.span, Vec::new(), operations);
            }
            if let Some(value) = value {
                self.assign_whole(id, name.span);
                self.assign_value(place, type_, &name.text, value, operations);
            }
            places.push(place);
        }
        places
    }

    /// Gives a variable its whole value.
    fn assign_value(
        &mut self,
        target: VariablePlace,
        type_: TypeId,
        name: &str,
        value: &Expression,
        operations: &mut Operations,
    ) {
        let what = format!("`{name}`");
        match &value.kind {
            ExpressionKind::Array(_) | ExpressionKind::Map(_) | ExpressionKind::Range { .. }
                if self.types.member_of(type_).is_some() =>
            {
                self.fill_array(target, type_, value, operations);
            }
            ExpressionKind::Call(call) => {
                let Some(mut outputs) = self.call(call, Some(&[target]), operations) else { return };
                if outputs.len() != 1 {
                    let (name, count) = (&call.function.text, outputs.len());
                    return self.problem(value.span, format!("`{name}` has {count} outputs, and one is needed here"));
                }
                let found = outputs.swap_remove(0);
                if !matches!(found.operand, Operand::Variable(place) if place == target) {
                    self.set(target, type_, found, value.span, &what, operations);
                }
            }
            _ => {
                let found = self.expression(value, Some(type_), operations);
                self.set(target, type_, found, value.span, &what, operations);
            }
        }
    }

    /// Gives a variable a value that was checked.
    fn set(
        &mut self,
        target: VariablePlace,
        type_: TypeId,
        found: Typed,
        span: Span,
        what: &str,
        operations: &mut Operations,
    ) {
        let from = self.convert(found, type_, span, what);
        let kind = if self.types.member_of(type_).is_some() {
            OperationKind::CopyArray { target, from }
        } else if self.types.base_of(type_) == TypeId::FILE {
            OperationKind::SetFile { target, from }
        } else if self.types.as_struct(type_).is_some() {
            // An empty path is the whole.
            OperationKind::SetField { target, path: Vec::new(), value: from }
        } else {
            let value = match from {
                Operand::Variable(place) => Formula::Variable(place),
                Operand::Formula(formula) => formula,
            };
            OperationKind::Set { target, value }
        };
        self.push(kind, span, Vec::new(), operations);
    }

    fn assignment(
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
        let Some(outputs) = self.call(call, None, operations) else { return Vec::new() };
        if outputs.len() != targets.len() {
            let (name, has, needs) = (&call.function.text, outputs.len(), targets.len());
            self.problem(span, format!("`{name}` has {has} outputs, and {needs} variables are assigned"));
            return Vec::new();
        }
        let pairs = targets.iter().zip(outputs);
        pairs
            .filter_map(|(target, found)| self.assign_found(target, found, call.function.span, *appends, operations))
            .collect()
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
                self.assign_whole(id, name.span);
                let (place, type_) = (self.scopes.place(id), self.scopes.variables[id.0].type_);
                self.assign_value(place, type_, &name.text, value, operations);
                return Some(place);
            }
            let found = self.expression(value, None, operations);
            return Some(self.declare_by_value(name, found, value.span, operations));
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
    fn check_owner(&mut self, id: super::scopes::VariableId, span: Span) {
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
        if appends {
            self.append(place, type_, (name, path), found, span, operations);
        } else {
            self.store(place, type_, (name, path), found, span, operations);
        }
        Some(place)
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
        let member = self.types.member_of(type_).filter(|_| path.is_empty());
        let is_indexed = self.types.as_array(type_).is_some_and(|(index, _)| index != TypeId::INT);
        let Some(member) = member.filter(|_| !is_indexed) else {
            return self.problem(name.span, "`+=` adds to a bag, or to an array with whole numbers as indices");
        };
        let value = self.convert(found, member, span, "a member of this array");
        self.push(OperationKind::Append { array, value }, span, Vec::new(), operations);
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
        if let [MemberStep::Field(field)] = path {
            let Some((number, type_)) = self.field_of(type_, field) else { return };
            let value = self.convert(found, type_, span, "this field");
            let kind = OperationKind::SetField { target, path: vec![number], value };
            return self.push(kind, name.span, Vec::new(), operations);
        }
        let (mut indices, mut inner) = (Vec::new(), type_);
        for step in path {
            let MemberStep::Index(index) = step else {
                return self
                    .problem(name.span, "a field of a member is not assigned by itself; assign the whole struct");
            };
            let Some((index_type, member)) = self.types.as_array(inner) else {
                let has = self.type_name(inner);
                return self.problem(index.span, format!("`[` is for a member of an array, and this is of type {has}"));
            };
            indices.push(self.formula_of_type(index, index_type, "the index of this array", operations));
            inner = member;
        }
        let value = self.convert(found, inner, span, "a member of this array");
        self.push(OperationKind::Store { array: target, indices, value }, name.span, Vec::new(), operations);
    }

    /// A call as a statement, or a variable that a chain waits for.
    fn expression_statement(&mut self, expression: &Expression, operations: &mut Operations) -> Vec<VariablePlace> {
        let found = match &expression.kind {
            ExpressionKind::Call(call) => self.call(call, None, operations).unwrap_or_default(),
            _ => vec![self.expression(expression, None, operations)],
        };
        let found: Vec<Typed> = found.into_iter().filter(|typed| typed.type_ != TypeId::WRONG).collect();
        found.into_iter().map(|typed| self.as_place(typed, expression.span, operations)).collect()
    }

    fn chain(&mut self, first: &Statement, rest: &Statement, operations: &mut Operations) -> Vec<VariablePlace> {
        let places = self.statement(first, operations);
        let needs = places.into_iter().map(|place| self.wait_need(place, false)).collect();
        let mut body = Operations::new();
        let last = self.statement(rest, &mut body);
        self.push(OperationKind::Body(body), rest.span, needs, operations);
        last
    }

    fn condition(&mut self, condition: &Expression, operations: &mut Operations) -> Formula {
        self.formula_of_type(condition, TypeId::BOOLEAN, "a condition", operations)
    }

    fn if_statement(
        &mut self,
        condition: &Expression,
        then: &StatementBlock,
        otherwise: Option<&StatementBlock>,
        span: Span,
        operations: &mut Operations,
    ) {
        let condition = self.condition(condition, operations);
        let branch = self.scopes.new_branch();
        let then = self.arm(BranchStep::Arm(branch, 0), then);
        let otherwise = otherwise.map(|block| self.arm(BranchStep::Arm(branch, 1), block)).unwrap_or_default();
        self.push(OperationKind::If { condition, then, otherwise }, span, Vec::new(), operations);
    }

    fn switch(
        &mut self,
        value: &Expression,
        cases: &[(Option<i64>, StatementBlock)],
        span: Span,
        operations: &mut Operations,
    ) {
        let value = self.formula_of_type(value, TypeId::INT, "the value of `switch`", operations);
        let branch = self.scopes.new_branch();
        let (mut found, mut default): (Vec<(i64, Operations)>, Option<Operations>) = (Vec::new(), None);
        for (number, (case, block)) in (0..).zip(cases) {
            let body = self.arm(BranchStep::Arm(branch, number), block);
            match case {
                Some(case) if found.iter().any(|(other, _)| other == case) => {
                    self.problem(block.span, format!("there is a case {case} already"));
                }
                Some(case) => found.push((*case, body)),
                None if default.is_some() => self.problem(block.span, "there is a default already"),
                None => default = Some(body),
            }
        }
        let kind = OperationKind::Switch { value, cases: found, default: default.unwrap_or_default() };
        self.push(kind, span, Vec::new(), operations);
    }

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

    fn foreach(
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
        self.close_loop();
        self.push(OperationKind::Foreach { over, layout, body: inner }, body.span, Vec::new(), operations);
    }

    fn for_statement(&mut self, statement: &Statement, operations: &mut Operations) {
        let StatementKind::For { variables, condition, updates, body } = &statement.kind else { return };
        let mut first = Vec::new();
        for (type_, name, value) in variables {
            let found = self.expression(value, None, operations);
            let type_ = type_.as_ref().map_or(found.type_, |type_| self.resolve(type_));
            let value = self.convert(found, type_, name.span, &format!("`{}`", name.text));
            let place = self.as_place(Typed { operand: value, type_ }, name.span, operations);
            first.push((name, type_, place));
        }
        let layout = self.open_loop();
        let loop_ =
            Rc::new(ForLoop { layout, before: RefCell::default(), body: RefCell::default(), next: RefCell::default() });
        for (name, type_, _) in &first {
            self.add_variable(name, *type_, VariableRole::Given, SlotStart::Empty);
        }
        let mut test = Operations::new();
        let condition = self.condition(condition, &mut test);
        let mut inner = Operations::new();
        self.scopes.open();
        self.statements(&body.statements, &mut inner);
        let next = self.next_values(&first, updates, &mut inner);
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

    fn iterate(
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

    fn wait(
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
