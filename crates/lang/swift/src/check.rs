//! Checker: the syntax trees of a script and its modules to a [`Program`].
//!
//! Types are known first, then the signatures of functions; then the statements of the script are
//! checked, which gives the global variables, and at last the bodies of functions. A problem does
//! not end the check: what is wrong has the type [`TypeId::WRONG`], which fits everywhere.

mod annotations;
mod apps;
mod assigned;
mod assignments;
mod calls;
mod definitions;
mod expressions;
mod loops;
mod operations;
mod scopes;
mod statements;

use crate::app_declaration::AppDeclaration;
use crate::ast::{Statement, SwiftModule};
use crate::program::{FrameLayout, Function, LayoutId, Operation, Operations, Program};
use crate::source::{Sources, Span};
use crate::types::{TypeId, TypeTable};
use assignments::FieldPart;
use base::Problem;
use calls::Signature;
use scopes::Scopes;
use std::collections::HashMap;
use std::sync::Arc;

/// Problems after which the check gives up.
const PROBLEMS_MAX: usize = 50;

/// A script that is right.
#[derive(Debug)]
pub struct CheckedScript {
    /// The program.
    pub program: Program,
    /// Probable mistakes.
    pub warnings: Vec<Problem>,
}

/// Checks a script, which is the last of these modules; the others are those that it imports.
///
/// # Errors
/// The problems, in the order of the check.
pub fn check(modules: &[SwiftModule], sources: &Sources) -> Result<CheckedScript, Vec<Problem>> {
    let mut checker = Checker::new(sources);
    let statements: Vec<&Statement> = modules.iter().flat_map(|module| &module.statements).collect();
    checker.define_types(&statements);
    checker.declare_functions(&statements);
    let (layout, main) = checker.main(&statements);
    checker.define_functions(&statements);
    checker.finish_scopes();
    let Checker { types, apps, functions, layouts, operations, mut problems, warnings, .. } = checker;
    if !problems.is_empty() {
        problems.truncate(PROBLEMS_MAX);
        return Err(problems);
    }
    let functions = functions.into_iter().map(|function| function.expect("each was defined")).collect();
    let program = Program { types, apps, functions, layouts, operations, layout, main };
    Ok(CheckedScript { program, warnings })
}

/// The state of a check.
struct Checker<'a> {
    sources: &'a Sources,
    types: TypeTable,
    type_names: HashMap<Arc<str>, TypeId>,
    /// The functions by name, with their overloads.
    signatures: HashMap<Arc<str>, Vec<Signature>>,
    /// The functions of the script; `None` until their bodies are checked.
    functions: Vec<Option<Function>>,
    /// The apps so far.
    apps: Vec<AppDeclaration>,
    layouts: Vec<FrameLayout>,
    operations: Vec<Operation>,
    scopes: Scopes,
    /// True within a statement that another one waits for.
    is_chained: bool,
    /// The variables of fields that get their values in parts.
    field_parts: HashMap<FieldPart, u32>,
    /// The operations that put these variables into their structs, by frame.
    field_operations: HashMap<LayoutId, Operations>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl<'a> Checker<'a> {
    fn new(sources: &'a Sources) -> Self {
        let plain = [
            ("int", TypeId::INT),
            ("float", TypeId::FLOAT),
            ("string", TypeId::STRING),
            ("boolean", TypeId::BOOLEAN),
            ("bool", TypeId::BOOLEAN),
            ("void", TypeId::VOID),
            ("file", TypeId::FILE),
            ("location", TypeId::LOCATION),
            ("LocationStrictness", TypeId::STRICTNESS),
            ("LocationAccuracy", TypeId::ACCURACY),
        ];
        Self {
            sources,
            types: TypeTable::default(),
            type_names: plain.into_iter().map(|(name, id)| (name.into(), id)).collect(),
            signatures: HashMap::new(),
            functions: Vec::new(),
            apps: vec![AppDeclaration::copy()],
            layouts: Vec::new(),
            operations: Vec::new(),
            scopes: Scopes::default(),
            is_chained: false,
            field_parts: HashMap::new(),
            field_operations: HashMap::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn problem(&mut self, span: Span, message: impl Into<String>) {
        let problem = self.sources.problem(span, message);
        self.problems.push(problem);
    }

    fn warn(&mut self, span: Span, message: impl Into<String>) {
        let warning = self.sources.problem(span, message);
        self.warnings.push(warning);
    }

    /// A problem with a name that is not known, and the nearest one that is.
    fn unknown<'n>(&mut self, span: Span, what: &str, name: &str, known: impl IntoIterator<Item = &'n str>) {
        let problem = self.sources.problem(span, format!("there is no {what} `{name}`")).nearest(name, known);
        self.problems.push(problem);
    }

    fn new_layout(&mut self) -> LayoutId {
        self.layouts.push(FrameLayout::default());
        LayoutId(u32::try_from(self.layouts.len() - 1).expect("frames are few"))
    }

    fn type_name(&self, id: TypeId) -> String {
        self.types.name(id)
    }
}

#[cfg(test)]
#[path = "check_test.rs"]
mod tests;
