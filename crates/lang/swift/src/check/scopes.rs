//! Scopes: which variables can be seen, and in which frames they are.

use crate::program::{LayoutId, VariablePlace};
use crate::source::Span;
use crate::types::TypeId;
use std::collections::HashMap;
use std::sync::Arc;

/// A variable of a script, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VariableId(pub usize);

/// A step to a part of a function that need not run, or that runs again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchStep {
    /// An arm of the `if` or `switch` with this number.
    Arm(u32, u32),
    /// The body of the loop with this number.
    Loop(u32),
}

/// A variable.
#[derive(Debug, Clone)]
pub struct Variable {
    /// Its name.
    pub name: Arc<str>,
    /// Its type.
    pub type_: TypeId,
    /// The position of its declaration.
    pub span: Span,
    /// The frame, as its place in the stack of frames.
    pub depth: usize,
    /// The slot of the frame.
    pub slot: u32,
    /// Its kind.
    pub role: VariableRole,
    /// The way to its declaration.
    pub branch: Vec<BranchStep>,
    /// The whole assignments, with the ways to them.
    pub assignments: Vec<(Vec<BranchStep>, Span)>,
    /// The first assignment of a part of it.
    pub part: Option<Span>,
    /// The first use of its value.
    pub read: Option<Span>,
    /// The call of an app that writes the files of this array.
    pub written: Option<Span>,
    /// The arrays that have this file as a member.
    pub member_of: Vec<VariableId>,
}

/// The role of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableRole {
    /// A variable of a block.
    Local,
    /// An input of a function or a variable of a loop: it has its value.
    Given,
    /// An output of a function.
    Output,
}

/// The scopes that are open, and all variables.
#[derive(Debug, Default)]
pub struct Scopes {
    /// Variables by name, for each open scope.
    open: Vec<HashMap<Arc<str>, VariableId>>,
    /// The layouts of the frames outwards, the outermost first.
    pub frames: Vec<LayoutId>,
    /// All variables.
    pub variables: Vec<Variable>,
    /// The way to where the check is.
    pub branch: Vec<BranchStep>,
    /// True within the body of a function.
    pub in_function: bool,
    /// The number of branches so far.
    branches: u32,
}

impl Scopes {
    /// Opens a scope.
    pub fn open(&mut self) {
        self.open.push(HashMap::new());
    }

    /// Closes the innermost scope.
    pub fn close(&mut self) {
        self.open.pop();
    }

    /// The variable of a name, from the innermost scope outwards.
    pub fn find(&self, name: &str) -> Option<VariableId> {
        self.open.iter().rev().find_map(|scope| scope.get(name)).copied()
    }

    /// All names that can be seen.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.open.iter().flat_map(|scope| scope.keys()).map(|name| &**name)
    }

    /// Adds a variable to the innermost scope.
    pub fn add(&mut self, variable: Variable) -> VariableId {
        let id = VariableId(self.variables.len());
        self.open.last_mut().expect("a scope is open").insert(variable.name.clone(), id);
        self.variables.push(variable);
        id
    }

    /// A variable as an operation of the innermost frame sees it.
    pub fn place(&self, VariableId(id): VariableId) -> VariablePlace {
        let Variable { depth, slot, .. } = self.variables[id];
        let hops = u16::try_from(self.frames.len() - 1 - depth).expect("frames are nested a few deep");
        VariablePlace { hops, slot }
    }

    /// The layout of the frame that is this many outwards.
    pub fn layout(&self, hops: u16) -> LayoutId {
        self.frames[self.frames.len() - 1 - usize::from(hops)]
    }

    /// A number for a new `if`, `switch` or loop.
    pub fn new_branch(&mut self) -> u32 {
        self.branches += 1;
        self.branches
    }
}
