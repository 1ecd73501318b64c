//! Calls: the signatures of functions, and which one of them a call means.

use super::Checker;
use super::expressions::Typed;
use crate::ast::{FunctionCall, SourceName};
use crate::library::{self, Effect, PureFunction};
use crate::program::{
    Formula, FunctionId, Need, NeedKind, Operand, OperationKind, Operations, SlotStart, VariablePlace,
};
use crate::source::Span;
use crate::types::{Conversion, TypeId, TypeKind};
use crate::value::SwiftValue;
use std::collections::HashMap;
use std::sync::Arc;

/// A function as a call sees it.
#[derive(Debug, Clone)]
pub struct Signature {
    /// Its name.
    pub name: Arc<str>,
    /// The position of its definition.
    pub span: Span,
    /// The types of its outputs.
    pub outputs: Vec<TypeId>,
    /// Its inputs.
    pub inputs: Vec<InputSignature>,
    /// Its kind.
    pub implementation: Implementation,
}

/// An input of a function.
#[derive(Debug, Clone)]
pub struct InputSignature {
    /// Its name.
    pub name: Arc<str>,
    /// Its type, or the alternatives of a union.
    pub types: Vec<TypeId>,
    /// True if there may be any number of them.
    pub is_variadic: bool,
    /// The value if none is given.
    pub default: Option<SwiftValue>,
}

/// The kind of a function.
#[derive(Debug, Clone)]
pub enum Implementation {
    /// A function of the library without effects.
    Pure(PureFunction),
    /// A function of the library that does something.
    Effect(Effect),
    /// A function of the script; true if it runs a program.
    Script(FunctionId, bool),
    /// A struct of its fields.
    Constructor(TypeId),
    /// None: the reason why it cannot be called.
    Missing(String),
}

/// The types that stand for the parameters of a signature.
type Bindings = HashMap<TypeId, TypeId>;

/// A value of an input.
enum FitInput {
    /// An argument of the call, and the type of the signature.
    Argument(usize, TypeId),
    /// The default.
    Default(SwiftValue),
}

/// An overload that fits a call.
struct Fit {
    signature: Signature,
    inputs: Vec<FitInput>,
    bindings: Bindings,
}

impl Checker<'_> {
    /// A call whose only output is a value.
    pub(super) fn call_value(&mut self, call: &FunctionCall, operations: &mut Operations) -> Typed {
        let span = call.function.span;
        match self.call(call, &[], operations) {
            None => Typed::wrong(),
            Some(mut outputs) if outputs.len() == 1 => outputs.swap_remove(0),
            Some(outputs) => {
                let count = outputs.len();
                self.problem(span, format!("`{}` has {count} outputs, and one is needed here", call.function.text));
                Typed::wrong()
            }
        }
    }

    /// Checks a call. Its outputs go to `targets`, if they are given and have the types; else to
    /// variables of their own, which are returned. `None` if there is a problem.
    pub(super) fn call(
        &mut self,
        call: &FunctionCall,
        targets: &[Option<VariablePlace>],
        operations: &mut Operations,
    ) -> Option<Vec<Typed>> {
        let FunctionCall { function, arguments, annotations } = call;
        let wanted = self.single_types(function, arguments.len());
        let arguments: Vec<(Option<SourceName>, Typed, Span)> = (0..)
            .zip(arguments)
            .map(|(position, (name, value))| {
                let wanted = wanted.as_ref().and_then(|types: &Vec<TypeId>| types.get(position)).copied();
                (name.clone(), self.expression(value, wanted, operations), value.span)
            })
            .collect();
        let fit = self.find_overload(function, &arguments)?;
        let placing = self.placing(annotations, &fit.signature, operations);
        let output_types: Vec<TypeId> =
            fit.signature.outputs.iter().map(|type_| self.substitute(*type_, &fit.bindings)).collect();
        let inputs = self.inputs_of(&fit, arguments);
        let span = function.span;
        match fit.signature.implementation {
            Implementation::Pure(pure) => {
                let type_ = output_types[0];
                let target = targets.first().copied().flatten().filter(|target| self.type_of(*target) == type_);
                let formulas = inputs.into_iter().map(into_formula).collect();
                Some(vec![self.call_pure(pure, formulas, (type_, target), span, operations)])
            }
            Implementation::Effect(effect) => {
                // An input stays where it is: a variable that may have a path of its own gets a
                // copy.
                let has_no_path = |place: &VariablePlace| self.start_at(*place) == SlotStart::File(false);
                let takes_input = targets.first().copied().flatten().is_some_and(|place| has_no_path(&place));
                let targets = if effect == Effect::Input && !takes_input { &[] } else { targets };
                let outputs = self.output_places(&output_types, targets, span);
                let kind = OperationKind::CallEffect { effect, inputs, outputs: outputs.clone() };
                let needs = self.effect_needs(effect, &kind);
                self.push(kind, span, needs, operations);
                Some(
                    outputs.into_iter().zip(output_types).map(|(place, type_)| Typed::variable(place, type_)).collect(),
                )
            }
            Implementation::Script(id, is_app) => {
                if is_app {
                    self.check_file_arrays(&fit.signature.name, &output_types, targets, span);
                }
                let outputs = self.output_places(&output_types, targets, span);
                let kind = OperationKind::Call { function: id, inputs, outputs: outputs.clone(), placing };
                self.push(kind, span, Vec::new(), operations);
                Some(
                    outputs.into_iter().zip(output_types).map(|(place, type_)| Typed::variable(place, type_)).collect(),
                )
            }
            Implementation::Constructor(type_) => {
                let target = self.temporary(type_, span);
                for (field, value) in (0..).zip(inputs) {
                    let kind = OperationKind::SetField { target, path: vec![field], value };
                    self.push(kind, span, Vec::new(), operations);
                }
                Some(vec![Typed::variable(target, type_)])
            }
            Implementation::Missing(why) => {
                self.problem(span, why);
                None
            }
        }
    }

    /// The value of a function without effects.
    fn call_pure(
        &mut self,
        pure: PureFunction,
        formulas: Vec<Formula>,
        (type_, target): (TypeId, Option<VariablePlace>),
        span: Span,
        operations: &mut Operations,
    ) -> Typed {
        let value = Formula::Call(pure, formulas);
        if !self.types.has_parts(type_) {
            return Typed { operand: Operand::Formula(value), type_ };
        }
        // The value is an array of its own, whose members are copied.
        let target = target.unwrap_or_else(|| self.temporary(type_, span));
        let from = Operand::Formula(value);
        self.push(OperationKind::CopyArray { target, from }, span, Vec::new(), operations);
        Typed::variable(target, type_)
    }

    /// The needs of an effect beside those of formulas: the values of its operands.
    fn effect_needs(&self, effect: Effect, kind: &OperationKind) -> Vec<Need> {
        let OperationKind::CallEffect { inputs, outputs, .. } = kind else { return Vec::new() };
        let places =
            inputs.iter().filter_map(|input| if let Operand::Variable(place) = input { Some(*place) } else { None });
        let need = |place: VariablePlace| {
            let type_ = self.type_of(place);
            let kind = match effect {
                Effect::Filename | Effect::LocationOf => NeedKind::Assigned,
                Effect::Read | Effect::Lines | Effect::Chunks | Effect::FileType | Effect::Run => NeedKind::Ready,
                _ if self.types.has_parts(type_) => NeedKind::Closed,
                _ => NeedKind::Value,
            };
            Need { place, kind }
        };
        let mapped = outputs.iter().filter(|_| effect == Effect::Write);
        let mapped = mapped.map(|place| Need { place: *place, kind: NeedKind::Mapped });
        places.map(need).chain(mapped).collect()
    }

    fn output_places(&mut self, types: &[TypeId], given: &[Option<VariablePlace>], span: Span) -> Vec<VariablePlace> {
        (0..)
            .zip(types)
            .map(|(position, type_)| {
                let target = given.get(position).copied().flatten();
                let fits = target.is_some_and(|target| {
                    self.types.conversion(*type_, self.type_of(target)).is_some_and(|found| found <= Conversion::Base)
                });
                if fits { target.expect("it fits") } else { self.temporary(*type_, span) }
            })
            .collect()
    }

    /// An app writes the files of an array only if the array is named, so that they are known.
    fn check_file_arrays(&mut self, name: &str, types: &[TypeId], targets: &[Option<VariablePlace>], span: Span) {
        let is_unnamed = |position: usize| targets.get(position).copied().flatten().is_none();
        if (0..).zip(types).any(|(position, type_)| self.types.member_of(*type_).is_some() && is_unnamed(position)) {
            let message = format!("the number of files that `{name}` writes is not known here");
            let hint = format!("name the files: [a, b] = {name}(...); or put them into an array first");
            let problem = self.sources.problem(span, message).hint(hint);
            self.problems.push(problem);
        }
    }

    /// Returns whether a call of this name is one of an app that writes an array of files there.
    pub(super) fn writes_files(&self, call: &FunctionCall, position: usize) -> bool {
        self.written_files(call, position).is_some()
    }

    /// The type of an array of files that a call of this name writes, if it is one of an app.
    pub(super) fn written_files(&self, call: &FunctionCall, position: usize) -> Option<TypeId> {
        let written = |signature: &Signature| {
            let is_app = matches!(signature.implementation, Implementation::Script(_, true));
            let output = signature.outputs.get(position).copied();
            output.filter(|type_| is_app && self.types.member_of(*type_).is_some())
        };
        self.signatures.get(&call.function.text)?.iter().find_map(written)
    }

    /// The types of the inputs of a function without overloads, for literals.
    fn single_types(&self, function: &SourceName, count: usize) -> Option<Vec<TypeId>> {
        let [signature] = &self.signatures.get(&function.text)?[..] else { return None };
        let mut types: Vec<TypeId> = Vec::new();
        for input in &signature.inputs {
            let [type_] = input.types[..] else { return Some(types) };
            if self.has_parameter(type_) {
                return Some(types);
            }
            let repeats = if input.is_variadic { count.saturating_sub(types.len()) } else { 1 };
            types.extend(std::iter::repeat_n(type_, repeats));
        }
        Some(types)
    }

    /// The overload that a call means.
    fn find_overload(&mut self, function: &SourceName, arguments: &[(Option<SourceName>, Typed, Span)]) -> Option<Fit> {
        let Some(overloads) = self.signatures.get(&function.text).cloned() else {
            let mut known: Vec<Arc<str>> = self.signatures.keys().cloned().collect();
            known.sort_unstable();
            if self.scopes.find(&function.text).is_some() {
                self.problem(function.span, format!("`{}` is a variable, and cannot be called", function.text));
            } else if let Some(why) = library::refused_function(&function.text) {
                self.problem(function.span, why);
            } else if let Some(module) = library::module_of(&function.text) {
                let problem = self.sources.problem(function.span, format!("there is no function `{}`", function.text));
                self.problems.push(problem.hint(format!("it is in a module: import {module};")));
            } else {
                self.unknown(function.span, "function", &function.text, known.iter().map(|name| &**name));
            }
            return None;
        };
        let mut reasons = Vec::new();
        let mut best: Option<(Conversion, Fit)> = None;
        for signature in overloads {
            match self.fit(&signature, arguments) {
                Ok((worst, inputs, bindings)) => {
                    if best.as_ref().is_none_or(|(found, _)| worst < *found) {
                        best = Some((worst, Fit { signature, inputs, bindings }));
                    }
                }
                Err(reason) => reasons.push(reason),
            }
        }
        if let Some((_, fit)) = best {
            return Some(fit);
        }
        if arguments.iter().any(|(_, typed, _)| typed.type_ == TypeId::WRONG) {
            return None;
        }
        let (span, message) = if let [reason] = &mut reasons[..] {
            (reason.0.unwrap_or(function.span), std::mem::take(&mut reason.1))
        } else {
            let types: Vec<String> = arguments.iter().map(|(_, typed, _)| self.type_name(typed.type_)).collect();
            let message =
                format!("no function `{}` takes arguments of the types ({})", function.text, types.join(", "));
            (function.span, message)
        };
        self.problem(span, message);
        None
    }

    /// The worst conversion if a signature fits the arguments; else the reason and its position.
    #[expect(clippy::type_complexity, reason = "it is taken apart at once")]
    fn fit(
        &self,
        signature: &Signature,
        arguments: &[(Option<SourceName>, Typed, Span)],
    ) -> Result<(Conversion, Vec<FitInput>, Bindings), (Option<Span>, String)> {
        let name = &signature.name;
        let (mut worst, mut bindings, mut inputs) = (Conversion::Same, Bindings::new(), Vec::new());
        let positional = arguments.iter().take_while(|(name, ..)| name.is_none()).count();
        let mut next = 0;
        for input in &signature.inputs {
            let mut given: Vec<usize> = Vec::new();
            if input.is_variadic {
                given.extend(next..positional);
                next = positional;
            } else if next < positional {
                given.push(next);
                next += 1;
            } else {
                let by_name = |(argument, ..): &(Option<SourceName>, Typed, Span)| {
                    argument.as_ref().is_some_and(|argument| argument.text == input.name)
                };
                // Where two parameters have one name, which is a mistake, the first gets it.
                let is_free = |position: &usize| {
                    !inputs.iter().any(|input| matches!(input, FitInput::Argument(taken, _) if taken == position))
                };
                given.extend(arguments.iter().position(by_name).filter(is_free));
            }
            if given.is_empty() && !input.is_variadic {
                let Some(default) = input.default.clone() else {
                    let plural = if signature.inputs.len() == 1 { "" } else { "s" };
                    return Err((
                        None,
                        format!(
                            "`{name}` takes {} argument{plural}, and `{}` is missing",
                            signature.inputs.len(),
                            input.name
                        ),
                    ));
                };
                inputs.push(FitInput::Default(default));
            }
            for position in given {
                let (_, typed, span) = &arguments[position];
                let best = input
                    .types
                    .iter()
                    .filter_map(|type_| Some((self.unify(*type_, typed.type_, &mut bindings)?, *type_)));
                let Some((conversion, type_)) = best.min_by_key(|(conversion, _)| *conversion) else {
                    let wants = input.types.iter().map(|type_| self.type_name(*type_)).collect::<Vec<_>>().join("|");
                    let has = self.type_name(typed.type_);
                    return Err((
                        Some(*span),
                        format!(
                            "the argument `{}` of `{name}` is of type {wants}, and this is of type {has}",
                            input.name
                        ),
                    ));
                };
                worst = worst.max(conversion);
                inputs.push(FitInput::Argument(position, type_));
            }
        }
        if next < positional {
            let (takes, has) = (signature.inputs.len(), positional);
            let plural = if takes == 1 { "" } else { "s" };
            return Err((Some(arguments[next].2), format!("`{name}` takes {takes} argument{plural}, and has {has}")));
        }
        known_names(signature, &arguments[positional..])?;
        Ok((worst, inputs, bindings))
    }

    /// The conversion of a type to one of a signature, whose parameters are bound.
    fn unify(&self, pattern: TypeId, found: TypeId, bindings: &mut Bindings) -> Option<Conversion> {
        match self.types.kind(pattern) {
            TypeKind::Parameter(_) => {
                if let Some(bound) = bindings.get(&pattern) {
                    self.types.conversion(found, *bound)
                } else {
                    bindings.insert(pattern, found);
                    Some(Conversion::Same)
                }
            }
            TypeKind::Array { index, member } => {
                let (index, member) = (*index, *member);
                let (found_index, found_member) = self.types.as_array(found)?;
                let same = |conversion: Conversion| conversion == Conversion::Same;
                self.unify(index, found_index, bindings).filter(|found| same(*found))?;
                self.unify(member, found_member, bindings).filter(|found| *found <= Conversion::Base)
            }
            TypeKind::Bag(member) => match self.types.kind(self.types.base_of(found)) {
                TypeKind::Bag(found) => self.unify(*member, *found, bindings),
                _ => None,
            },
            _ => self.types.conversion(found, pattern),
        }
    }

    /// Returns whether a type of a signature stands for several.
    fn has_parameter(&self, type_: TypeId) -> bool {
        match self.types.kind(type_) {
            TypeKind::Parameter(_) => true,
            TypeKind::Array { index, member } => self.has_parameter(*index) || self.has_parameter(*member),
            TypeKind::Bag(member) => self.has_parameter(*member),
            _ => false,
        }
    }

    fn substitute(&mut self, type_: TypeId, bindings: &Bindings) -> TypeId {
        match self.types.kind(type_).clone() {
            TypeKind::Parameter(_) => bindings.get(&type_).copied().unwrap_or(TypeId::WRONG),
            TypeKind::Array { index, member } => {
                let (index, member) = (self.substitute(index, bindings), self.substitute(member, bindings));
                self.types.array(index, member)
            }
            _ => type_,
        }
    }

    /// The operands of a call, in the order of the inputs.
    fn inputs_of(&mut self, fit: &Fit, arguments: Vec<(Option<SourceName>, Typed, Span)>) -> Vec<Operand> {
        let mut given: Vec<Option<(Typed, Span)>> =
            arguments.into_iter().map(|(_, typed, span)| Some((typed, span))).collect();
        let mut operands = Vec::new();
        for input in &fit.inputs {
            let (position, type_) = match input {
                FitInput::Argument(position, type_) => (*position, type_),
                FitInput::Default(value) => {
                    operands.push(Operand::Formula(Formula::Constant(value.clone())));
                    continue;
                }
            };
            let (typed, span) = given[position].take().expect("each is used once");
            let type_ = if self.types.conversion(typed.type_, *type_) == Some(Conversion::IntToFloat) {
                *type_
            } else {
                typed.type_
            };
            operands.push(self.convert(typed, type_, span, "the argument"));
        }
        operands
    }
}

fn into_formula(operand: Operand) -> Formula {
    match operand {
        Operand::Variable(place) => Formula::Variable(place),
        Operand::Formula(formula) => formula,
    }
}

/// Refuses names of arguments that a signature has not.
fn known_names(
    signature: &Signature,
    named: &[(Option<SourceName>, Typed, Span)],
) -> Result<(), (Option<Span>, String)> {
    let name = &signature.name;
    let unknown = named.iter().find(|(argument, ..)| {
        !argument.as_ref().is_some_and(|argument| signature.inputs.iter().any(|input| input.name == argument.text))
    });
    if let Some((argument, _, span)) = unknown {
        let text = argument.as_ref().map_or("a positional one behind named ones", |argument| &argument.text);
        return Err((Some(*span), format!("`{name}` has no argument `{text}`")));
    }
    Ok(())
}
