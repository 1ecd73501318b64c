//! Statements: operations in the order in which they are tried.

use super::Checker;
use super::annotations::HintPlace;
use super::expressions::Typed;
use super::scopes::{BranchStep, VariableRole};
use crate::ast::{Declaration, DeclaredVariable, Expression, ExpressionKind, Statement, StatementBlock, StatementKind};
use crate::program::{CallPlacing, Formula, LayoutId, Operand, OperationKind, Operations, VariablePlace};
use crate::source::Span;
use crate::types::TypeId;

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
            let kind = OperationKind::Call { function, inputs: Vec::new(), outputs, placing: CallPlacing::default() };
            self.push(kind, signature.span, Vec::new(), &mut operations);
        }
        self.place_field_parts(&mut operations);
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
            StatementKind::Files { files, call } => return self.write_files(files, call, span, operations),
            StatementKind::Expression(expression) => return self.expression_statement(expression, operations),
            StatementKind::Chain(first, rest) => return self.chain(first, rest, operations),
            StatementKind::Block(block) => self.block(block, operations),
            StatementKind::If { condition, then, otherwise } => {
                self.if_statement(condition, then, otherwise.as_ref(), span, operations);
            }
            StatementKind::Switch { value, cases } => self.switch(value, cases, span, operations),
            StatementKind::Foreach { value, index, array, body, annotations } => {
                self.check_hints(annotations, HintPlace::Loop);
                self.foreach((value, index.as_ref()), array, body, operations);
            }
            StatementKind::For { annotations, .. } => {
                self.check_hints(annotations, HintPlace::Loop);
                self.for_statement(statement, operations);
            }
            StatementKind::Iterate { variable, body, until } => self.iterate(variable, body, until, operations),
            StatementKind::Wait { values, is_deep, body } => self.wait(values, *is_deep, body, span, operations),
        }
        Vec::new()
    }

    /// The statements of a block, with variables of their own in the same frame.
    pub(super) fn block(&mut self, block: &StatementBlock, operations: &mut Operations) {
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
                self.note_whole(id, value, name.span);
                self.assign_value(place, type_, &name.text, value, operations);
            }
            places.push(place);
        }
        places
    }

    /// Gives a variable its whole value.
    pub(super) fn assign_value(
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
                let Some(mut outputs) = self.call(call, &[Some(target)], operations) else { return };
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
    pub(super) fn set(
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

    /// A call as a statement, or a variable that a chain waits for.
    fn expression_statement(&mut self, expression: &Expression, operations: &mut Operations) -> Vec<VariablePlace> {
        let found = match &expression.kind {
            ExpressionKind::Call(call) => self.call(call, &[], operations).unwrap_or_default(),
            _ => vec![self.expression(expression, None, operations)],
        };
        let found: Vec<Typed> = found.into_iter().filter(|typed| typed.type_ != TypeId::WRONG).collect();
        found.into_iter().map(|typed| self.as_place(typed, expression.span, operations)).collect()
    }

    fn chain(&mut self, first: &Statement, rest: &Statement, operations: &mut Operations) -> Vec<VariablePlace> {
        self.is_chained = true;
        let places = self.statement(first, operations);
        self.is_chained = false;
        // Arrays of files are there when the files are: an app may write them.
        let need = |place| self.wait_need(place, self.innermost(self.type_of(place)).0 == TypeId::FILE);
        let needs = places.into_iter().map(need).collect();
        let mut body = Operations::new();
        let last = self.statement(rest, &mut body);
        self.push(OperationKind::Body(body), rest.span, needs, operations);
        last
    }

    pub(super) fn condition(&mut self, condition: &Expression, operations: &mut Operations) -> Formula {
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
}
