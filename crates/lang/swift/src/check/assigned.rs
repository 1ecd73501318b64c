//! Assignments: each variable gets a value once.
//!
//! Two assignments exclude each other if they are in different arms of one `if` or `switch`. That
//! finds what is wrong in any case; what depends on values is found when the script runs.

use super::Checker;
use super::scopes::{BranchStep, VariableId, VariableRole};
use crate::ast::{Expression, ExpressionKind};
use crate::source::Span;

impl Checker<'_> {
    /// Notes that a variable gets its whole value.
    pub(super) fn assign_whole(&mut self, id: VariableId, span: Span) {
        let here = self.scopes.branch.clone();
        let variable = &self.scopes.variables[id.0];
        let name = variable.name.clone();
        if variable.role == VariableRole::Given {
            return self.problem(span, format!("`{name}` has its value from outside, and cannot be assigned"));
        }
        let in_loop =
            here[variable.branch.len().min(here.len())..].iter().any(|step| matches!(step, BranchStep::Loop(_)));
        if in_loop {
            let problem =
                self.sources.problem(span, format!("`{name}` would be assigned in each iteration of the loop"));
            self.problems.push(problem.hint("declare it within the loop, or make it an array"));
            return;
        }
        let clash = variable.assignments.iter().find(|(other, _)| both_run(other, &here)).map(|(_, other)| *other);
        if let Some(other) = clash.or(variable.part) {
            let first = self.sources.location(other).line;
            return self.problem(span, format!("`{name}` is assigned twice: first in line {first}"));
        }
        self.scopes.variables[id.0].assignments.push((here, span));
    }

    /// Notes that a part of a variable gets a value.
    pub(super) fn assign_part(&mut self, id: VariableId, span: Span) {
        let variable = &mut self.scopes.variables[id.0];
        let name = variable.name.clone();
        if variable.role == VariableRole::Given {
            return self.problem(span, format!("`{name}` has its value from outside, and cannot be assigned"));
        }
        if let Some((_, other)) = variable.assignments.first().cloned() {
            let first = self.sources.location(other).line;
            return self
                .problem(span, format!("`{name}` is assigned as a whole in line {first}, so it gets no members"));
        }
        variable.part.get_or_insert(span);
    }

    /// Notes that an app writes the files of an array, which the script has put there.
    pub(super) fn assign_files(&mut self, id: VariableId, span: Span) {
        let variable = &mut self.scopes.variables[id.0];
        let name = variable.name.clone();
        if variable.role == VariableRole::Given {
            return self.problem(span, format!("`{name}` has its value from outside, and cannot be assigned"));
        }
        if let Some(other) = variable.written.replace(span) {
            let first = self.sources.location(other).line;
            self.problem(span, format!("the files of `{name}` are written twice: first in line {first}"));
        }
    }

    /// Notes the files that become members of an array: an app may write them there.
    pub(super) fn note_members(&mut self, array: VariableId, value: &Expression) {
        match &value.kind {
            ExpressionKind::Variable(name) => {
                if let Some(file) = self.scopes.find(name) {
                    self.scopes.variables[file.0].member_of.push(array);
                }
            }
            ExpressionKind::Array(values) => values.iter().for_each(|value| self.note_members(array, value)),
            ExpressionKind::Map(members) => members.iter().for_each(|(_, value)| self.note_members(array, value)),
            _ => {}
        }
    }

    /// Tells of variables that never get a value.
    pub(super) fn finish_scopes(&mut self) {
        let variables = std::mem::take(&mut self.scopes.variables);
        for variable in &variables {
            let name = &variable.name;
            let has_members = !variable.assignments.is_empty() || variable.part.is_some();
            if let Some(span) = variable.written.filter(|_| !has_members) {
                let message = format!("the number of files in `{name}` is not known, so no app can write them");
                let hint = format!("name the files: [a, b] = ...; or put files into `{name}` first");
                let problem = self.sources.problem(span, message).hint(hint);
                self.problems.push(problem);
                continue;
            }
            let is_written = variable.member_of.iter().any(|array| variables[array.0].written.is_some());
            let is_assigned = has_members || is_written;
            if is_assigned || variable.role == VariableRole::Given {
                continue;
            }
            if self.types.member_of(variable.type_).is_some() {
                if variable.role == VariableRole::Output || variable.read.is_some() {
                    self.warn(variable.span, format!("nobody fills the array `{name}`, so it is empty"));
                }
            } else if variable.role == VariableRole::Output {
                self.problem(variable.span, format!("the output `{name}` is never assigned"));
            } else if let Some(read) = variable.read {
                self.problem(read, format!("`{name}` is read here, but never assigned"));
            }
        }
    }
}

/// Returns whether two branches may run in one execution for sure: one contains the other.
fn both_run(one: &[BranchStep], other: &[BranchStep]) -> bool {
    one.iter().zip(other).all(|(one, other)| one == other)
}
