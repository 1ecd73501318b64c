//! Definitions: types, signatures, and the bodies of functions.

use super::Checker;
use super::annotations::HintPlace;
use super::calls::{Implementation, InputSignature, Signature};
use super::scopes::{Variable, VariableId, VariableRole};
use crate::ast::{
    Expression, ExpressionKind, FunctionDefinition, NamedType, Parameter, SourceName, Statement, StatementKind,
    TypeExpression, UnaryOperator,
};
use crate::library;
use crate::program::{Function, FunctionBody, FunctionId, Operations, SlotLayout, SlotStart};
use crate::types::{TypeId, TypeKind};
use crate::value::SwiftValue;
use std::sync::Arc;

impl Checker<'_> {
    /// Makes the names of types known, then the fields of structs.
    pub(super) fn define_types(&mut self, statements: &[&Statement]) {
        for statement in statements {
            match &statement.kind {
                StatementKind::Struct { name, .. } => {
                    let id = self.types.add_struct(name.text.clone());
                    self.name_type(name, id);
                }
                StatementKind::Alias { name, base, is_same } => {
                    let base = self.resolve(base);
                    let kind = TypeKind::KindOf { name: name.text.clone(), base };
                    let id = if *is_same { base } else { self.types.id(kind) };
                    self.name_type(name, id);
                }
                _ => {}
            }
        }
        for statement in statements {
            let StatementKind::Struct { name, fields } = &statement.kind else { continue };
            let fields: Vec<(Arc<str>, TypeId)> =
                fields.iter().map(|(type_, name)| (name.text.clone(), self.resolve(type_))).collect();
            let Some(id) = self.type_names.get(&name.text).copied() else { continue };
            let input = |(name, type_): &(Arc<str>, TypeId)| InputSignature {
                name: name.clone(),
                types: vec![*type_],
                is_variadic: false,
                default: None,
            };
            let inputs = fields.iter().map(input).collect();
            self.types.set_fields(id, fields);
            let implementation = Implementation::Constructor(id);
            let signature =
                Signature { name: name.text.clone(), span: name.span, outputs: vec![id], inputs, implementation };
            self.signatures.entry(name.text.clone()).or_default().push(signature);
        }
    }

    fn name_type(&mut self, name: &SourceName, id: TypeId) {
        if self.type_names.insert(name.text.clone(), id).is_some() {
            self.problem(name.span, format!("there is a type `{}` already", name.text));
        }
    }

    /// The type that is written; of a union the first alternative.
    pub(super) fn resolve(&mut self, type_: &TypeExpression) -> TypeId {
        let alternatives = self.resolve_all(type_);
        if alternatives.len() > 1 {
            self.problem(type_.span, "a union of types is for inputs of functions alone");
        }
        alternatives[0]
    }

    /// The alternatives of a type, each with the arrays around it.
    fn resolve_all(&mut self, type_: &TypeExpression) -> Vec<TypeId> {
        let named: Vec<TypeId> = type_.alternatives.iter().map(|named| self.resolve_named(named)).collect();
        let indices: Vec<TypeId> = type_
            .indices
            .iter()
            .map(|index| index.as_ref().map_or(TypeId::INT, |index| self.resolve_index(index)))
            .collect();
        let around = |checker: &mut Self, type_| {
            indices.iter().rev().fold(type_, |member, index| checker.types.array(*index, member))
        };
        named.into_iter().map(|type_| around(self, type_)).collect()
    }

    fn resolve_index(&mut self, index: &TypeExpression) -> TypeId {
        let type_ = self.resolve(index);
        let base = self.types.base_of(type_);
        let is_parameter = matches!(self.types.kind(base), TypeKind::Parameter(_));
        if ![TypeId::INT, TypeId::FLOAT, TypeId::STRING, TypeId::WRONG].contains(&base) && !is_parameter {
            let has = self.type_name(type_);
            self.problem(index.span, format!("an array has indices of type int, float or string, not {has}"));
        }
        type_
    }

    fn resolve_named(&mut self, named: &NamedType) -> TypeId {
        let name = &named.name;
        if &*name.text == "bag" {
            let Some(member) = &named.parameter else {
                self.problem(name.span, "a bag names the type of its members: bag<int>");
                return TypeId::WRONG;
            };
            let member = self.resolve(member);
            return self.types.id(TypeKind::Bag(member));
        }
        if let Some(id) = self.type_names.get(&name.text) {
            return *id;
        }
        if ["blob", "external", "updateable_float", "url"].contains(&&*name.text) {
            self.problem(name.span, format!("the type `{}` is not supported", name.text));
            return TypeId::WRONG;
        }
        let mut known: Vec<Arc<str>> = self.type_names.keys().cloned().collect();
        known.sort_unstable();
        self.unknown(name.span, "type", &name.text, known.iter().map(|name| &**name));
        TypeId::WRONG
    }

    /// Makes the signatures of functions known.
    pub(super) fn declare_functions(&mut self, statements: &[&Statement]) {
        for statement in statements {
            match &statement.kind {
                StatementKind::Function(function) => {
                    self.check_hints(&function.annotations, HintPlace::Definition);
                    if let Some(first) = function.type_parameters.first().filter(|_| function.body.is_some()) {
                        let message =
                            "names of types are for functions of the library; write one function for each type";
                        self.problem(first.span, message);
                    }
                    let hidden: Vec<(Arc<str>, Option<TypeId>)> = function
                        .type_parameters
                        .iter()
                        .map(|name| {
                            let id = self.types.id(TypeKind::Parameter(name.text.clone()));
                            (name.text.clone(), self.type_names.insert(name.text.clone(), id))
                        })
                        .collect();
                    let implementation = self.implementation_of(function);
                    self.declare(&function.name, &function.outputs, &function.inputs, implementation);
                    for (name, before) in hidden {
                        self.type_names.remove(&name);
                        self.type_names.extend(before.map(|id| (name, id)));
                    }
                }
                StatementKind::App(app) => {
                    self.check_hints(&app.annotations, HintPlace::Definition);
                    let implementation = Implementation::Script(self.new_function(), true);
                    self.declare(&app.name, &app.outputs, &app.inputs, implementation);
                }
                _ => {}
            }
        }
    }

    fn new_function(&mut self) -> FunctionId {
        self.functions.push(None);
        FunctionId(u32::try_from(self.functions.len() - 1).expect("functions are few"))
    }

    /// The kind of a function: one with a body in Swift, one of the library, or none that runs
    /// here.
    fn implementation_of(&mut self, function: &FunctionDefinition) -> Implementation {
        if function.body.is_some() {
            return Implementation::Script(self.new_function(), false);
        }
        let found = function.library_name.as_deref().and_then(|name| {
            library::pure(name).map(Implementation::Pure).or_else(|| library::effect(name).map(Implementation::Effect))
        });
        found.unwrap_or_else(|| {
            let name = &function.name.text;
            let why = function.library_name.as_deref().and_then(|text| text.strip_prefix("missing: "));
            Implementation::Missing(match why {
                Some(why) => format!("`{name}` is not supported: {why}"),
                None => format!("`{name}` is written in Tcl, which is not supported"),
            })
        })
    }

    fn declare(
        &mut self,
        name: &SourceName,
        outputs: &[Parameter],
        inputs: &[Parameter],
        implementation: Implementation,
    ) {
        let outputs = outputs.iter().map(|output| self.resolve(&output.type_)).collect();
        let inputs: Vec<InputSignature> = inputs
            .iter()
            .map(|input| InputSignature {
                name: input.name.text.clone(),
                types: self.resolve_all(&input.type_),
                is_variadic: input.is_variadic,
                default: input.default.as_ref().and_then(|value| self.literal(value)),
            })
            .collect();
        let same = self.signatures.get(&name.text).and_then(|all| {
            let types = |inputs: &[InputSignature]| inputs.iter().map(|input| input.types.clone()).collect::<Vec<_>>();
            all.iter().find(|other| types(&other.inputs) == types(&inputs)).map(|other| other.span)
        });
        if let Some(other) = same {
            let other = self.sources.location(other);
            let is_same = other.file == self.sources.location(name.span).file;
            let file = if is_same { String::new() } else { format!(" of {}", other.file) };
            let line = other.line;
            self.problem(name.span, format!("there is a function `{}` of these types in line {line}{file}", name.text));
        }
        let signature = Signature { name: name.text.clone(), span: name.span, outputs, inputs, implementation };
        self.signatures.entry(name.text.clone()).or_default().push(signature);
    }

    /// The value of a default, which is a literal.
    fn literal(&mut self, expression: &Expression) -> Option<SwiftValue> {
        match &expression.kind {
            ExpressionKind::Int(number) => Some(SwiftValue::Int(*number)),
            ExpressionKind::Float(number) => Some(SwiftValue::Float(*number)),
            ExpressionKind::Boolean(value) => Some(SwiftValue::Boolean(*value)),
            ExpressionKind::Text(text) => Some(SwiftValue::text(text)),
            ExpressionKind::Unary(UnaryOperator::Negate, inner) => match self.literal(inner)? {
                SwiftValue::Int(number) => Some(SwiftValue::Int(-number)),
                SwiftValue::Float(number) => Some(SwiftValue::Float(-number)),
                _ => None,
            },
            _ => {
                self.problem(expression.span, "a default is a number, a string, true or false");
                None
            }
        }
    }

    /// Checks the bodies of functions.
    pub(super) fn define_functions(&mut self, statements: &[&Statement]) {
        for statement in statements {
            match &statement.kind {
                StatementKind::Function(function) if function.body.is_some() && function.type_parameters.is_empty() => {
                    self.define_function(function);
                }
                StatementKind::App(app) => self.define_app(app),
                _ => {}
            }
        }
    }

    /// The number of the function that was declared here.
    pub(super) fn function_at(&self, name: &SourceName) -> Option<FunctionId> {
        let overloads = self.signatures.get(&name.text)?;
        let found = overloads.iter().find(|signature| signature.span == name.span)?;
        if let Implementation::Script(id, _) = found.implementation { Some(id) } else { None }
    }

    fn define_function(&mut self, function: &FunctionDefinition) {
        let Some(id) = self.function_at(&function.name) else { return };
        let layout = self.open_function(&function.outputs, &function.inputs);
        let mut operations = Operations::new();
        let body = function.body.as_ref().expect("it has one");
        self.statements(&body.statements, &mut operations);
        self.place_field_parts(&mut operations);
        self.close_function();
        let outputs = u32::try_from(function.outputs.len()).expect("functions have few outputs");
        let body = FunctionBody::Operations(operations);
        let (name, span) = (function.name.text.clone(), function.name.span);
        self.functions[id.0 as usize] = Some(Function { name, span, layout, outputs, body });
    }

    /// Opens the frame of a function, with its outputs and inputs.
    pub(super) fn open_function(&mut self, outputs: &[Parameter], inputs: &[Parameter]) -> crate::program::LayoutId {
        self.scopes.in_function = true;
        let layout = self.new_layout();
        self.scopes.frames.push(layout);
        self.scopes.open();
        for output in outputs {
            let type_ = self.resolve(&output.type_);
            self.add_variable(&output.name, type_, VariableRole::Output, SlotStart::Empty);
        }
        for input in inputs {
            let types = self.resolve_all(&input.type_);
            if types.len() > 1 || input.is_variadic {
                let message = "unions and `...` are for functions of the library; write one function for each type";
                self.problem(input.name.span, message);
            }
            self.add_variable(&input.name, types[0], VariableRole::Given, SlotStart::Empty);
        }
        layout
    }

    pub(super) fn close_function(&mut self) {
        self.scopes.in_function = false;
        self.scopes.close();
        self.scopes.frames.pop();
    }

    /// Adds a variable to the innermost scope and frame. It may not hide another one.
    pub(super) fn add_variable(
        &mut self,
        name: &SourceName,
        type_: TypeId,
        role: VariableRole,
        start: SlotStart,
    ) -> VariableId {
        self.check_hiding(name);
        self.insert_variable(name, type_, role, start)
    }

    /// Refuses the name of another variable. Within a function, names may hide those of the script.
    pub(super) fn check_hiding(&mut self, name: &SourceName) {
        let may_hide = |other: &VariableId| self.scopes.in_function && self.scopes.variables[other.0].depth == 0;
        let Some(other) = self.scopes.find(&name.text).filter(|other| !may_hide(other)) else { return };
        let other = self.sources.location(self.scopes.variables[other.0].span);
        let is_same = other.file == self.sources.location(name.span).file;
        let file = if is_same { String::new() } else { format!(" of {}", other.file) };
        let message = format!("there is a variable `{}` already, from line {}{file}", name.text, other.line);
        self.problem(name.span, message);
    }

    /// Adds a variable, also one that hides another.
    pub(super) fn insert_variable(
        &mut self,
        name: &SourceName,
        type_: TypeId,
        role: VariableRole,
        start: SlotStart,
    ) -> VariableId {
        let slot = self.add_slot(SlotLayout { name: name.text.clone(), type_, span: name.span, start });
        let (branch, depth) = (self.scopes.branch.clone(), self.scopes.frames.len() - 1);
        self.scopes.add(Variable {
            name: name.text.clone(),
            type_,
            span: name.span,
            depth,
            slot,
            role,
            branch,
            assignments: Vec::new(),
            part: None,
            read: None,
            written: None,
            member_of: Vec::new(),
        })
    }
}
