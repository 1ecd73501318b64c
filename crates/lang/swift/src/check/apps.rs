//! App functions: their command lines, and the parameters of these.

use super::Checker;
use super::expressions::Typed;
use super::scopes::VariableRole;
use crate::app_declaration::{AppDeclaration, AppId, AppParam, AppParamKind, AppTemplate};
use crate::ast::{AppDefinition, AppWord, Expression, ExpressionKind, Parameter, StandardStream};
use crate::library;
use crate::program::{
    AppBody, Formula, Function, FunctionBody, Need, NeedKind, OperationKind, Operations, SlotLayout, SlotStart,
    VariablePlace,
};
use crate::source::Span;
use crate::types::TypeId;

/// The parameters of an app in the making, with their values.
#[derive(Debug, Default)]
struct AppParams(Vec<(AppParam, Formula)>);

impl AppParams {
    /// The position of the parameter that is this variable.
    fn of_variable(&self, place: VariablePlace) -> Option<usize> {
        let is_it = |value: &Formula| matches!(value, Formula::Variable(other) if *other == place);
        self.0.iter().position(|(_, value)| is_it(value))
    }

    /// Adds a parameter. Its name is made another one if there is one of that name.
    fn add(&mut self, name: &str, kind: AppParamKind, value: Formula) -> usize {
        let is_free = |name: &str| self.0.iter().all(|(param, _)| param.name != name);
        let others = (2..).map(|number| format!("{name}_{number}"));
        let name = std::iter::once(name.to_owned()).chain(others).find(|name| is_free(name)).expect("it ends");
        self.0.push((AppParam { name, kind }, value));
        self.0.len() - 1
    }
}

impl Checker<'_> {
    pub(super) fn define_app(&mut self, app: &AppDefinition) {
        let Some(id) = self.function_at(&app.name) else { return };
        let layout = self.open_function(&app.outputs, &app.inputs);
        let (outputs, inputs) = (count(&app.outputs), count(&app.inputs));
        let placing = self.placing_slots(app.name.span);
        let mut operations = Operations::new();
        let mut params = self.app_files(outputs, inputs);
        self.check_program_name(&app.command);
        let words = (0..).zip(&app.command);
        let command = words.map(|(at, word)| self.app_word((at, word), &mut params, &mut operations)).collect();
        let mut streams = [None; 3];
        for (stream, value) in &app.streams {
            let position = match stream {
                StandardStream::Input => 0,
                StandardStream::Output => 1,
                StandardStream::Error => 2,
            };
            streams[position] = self.app_stream(value, position == 0, &mut params, &mut operations);
        }
        let needs = self.app_needs((outputs, inputs), &params);
        self.push(OperationKind::RunApp(id), app.name.span, needs, &mut operations);
        // The program writes its outputs.
        for variable in &mut self.scopes.variables {
            if variable.role == VariableRole::Output
                && app.outputs.iter().any(|output| output.name.span == variable.span)
            {
                variable.assignments.push((Vec::new(), variable.span));
            }
        }
        self.close_function();
        let (params, values): (Vec<AppParam>, Vec<Formula>) = params.0.into_iter().unzip();
        let (name, span) = (app.name.text.clone(), app.name.span);
        let app_id = AppId(u32::try_from(self.apps.len()).expect("apps are few"));
        self.apps.push(AppDeclaration { name: name.to_string(), span: Some(span), params, command, streams });
        let body = FunctionBody::App(AppBody { operations, app: app_id, params: values, placing });
        self.functions[id.0 as usize] = Some(Function { name, span, layout, outputs, body });
        self.check_app_outputs(&app.outputs);
    }

    fn check_app_outputs(&mut self, outputs: &[Parameter]) {
        for output in outputs {
            let type_ = self.resolve(&output.type_);
            let (base, is_array) = self.innermost(type_);
            if ![TypeId::FILE, TypeId::VOID, TypeId::WRONG].contains(&base) || (is_array && base == TypeId::VOID) {
                let has = self.type_name(type_);
                self.problem(
                    output.name.span,
                    format!("an app function makes files, or void, and not a value of type {has}"),
                );
            }
        }
    }

    /// A program and an argument in one string are the name of one program.
    fn check_program_name(&mut self, command: &[AppWord]) {
        let Some(AppWord::Value(Expression { kind: ExpressionKind::Text(name), span })) = command.first() else {
            return;
        };
        if name.trim().contains(' ') {
            let message = format!("the program `{name}` has a blank in its name; arguments are words of their own");
            self.warn(*span, message);
        }
    }

    /// Slots of the priority and the location of a call.
    fn placing_slots(&mut self, span: Span) -> u32 {
        let empty = |type_| SlotLayout { name: "".into(), type_, span, start: SlotStart::Empty };
        let first = self.add_slot(empty(TypeId::INT));
        self.add_slot(empty(TypeId::LOCATION));
        first
    }

    /// The files among inputs and outputs are parameters, also those that the command does not
    /// name.
    fn app_files(&self, outputs: u32, inputs: u32) -> AppParams {
        let mut params = AppParams::default();
        for slot in (outputs..outputs + inputs).chain(0..outputs) {
            let place = VariablePlace { hops: 0, slot };
            let type_ = self.type_of(place);
            let (innermost, is_array) = self.innermost(type_);
            if innermost != TypeId::FILE {
                continue;
            }
            let kind = if slot < outputs { AppParamKind::Output(is_array) } else { AppParamKind::Input(is_array) };
            params.add(&self.variable_name(place), kind, Formula::Variable(place));
        }
        params
    }

    fn variable_name(&self, place: VariablePlace) -> String {
        let layout = self.scopes.layout(place.hops);
        self.layouts[layout.0 as usize].slots[place.slot as usize].name.to_string()
    }

    /// The type of the members of an array, however deep; and whether it is one.
    pub(super) fn innermost(&self, mut type_: TypeId) -> (TypeId, bool) {
        let mut is_array = false;
        while let Some(member) = self.types.member_of(type_) {
            (type_, is_array) = (member, true);
        }
        (self.types.base_of(type_), is_array)
    }

    /// The needs of an app: its inputs, the paths of its outputs, and what its words need.
    fn app_needs(&self, (outputs, inputs): (u32, u32), params: &AppParams) -> Vec<Need> {
        let need = |slot| {
            let place = VariablePlace { hops: 0, slot };
            let is_void = self.types.base_of(self.type_of(place)) == TypeId::VOID && slot < outputs;
            (!is_void).then_some(Need { place, kind: NeedKind::Value })
        };
        let mut needs: Vec<Need> = (0..outputs + inputs).filter_map(need).collect();
        for (_, value) in &params.0 {
            self.formula_needs(value, &mut needs);
        }
        // Arrays are files or texts that must all be there.
        for need in &mut needs {
            let type_ = self.type_of(need.place);
            if self.types.member_of(type_).is_some() || self.types.base_of(type_) == TypeId::FILE {
                let is_output = need.place.hops == 0 && need.place.slot < outputs;
                need.kind = if is_output { NeedKind::Mapped } else { NeedKind::Assigned };
            }
        }
        needs
    }

    fn app_word(
        &mut self,
        (position, word): (usize, &AppWord),
        params: &mut AppParams,
        operations: &mut Operations,
    ) -> AppTemplate {
        let (typed, span) = match word {
            AppWord::Value(value) => (self.expression(value, None, operations), value.span),
            AppWord::Path(name) => {
                let typed = self.read(&name.text, name.span);
                if ![TypeId::FILE, TypeId::WRONG].contains(&self.innermost(typed.type_).0) {
                    let has = self.type_name(typed.type_);
                    self.problem(name.span, format!("`@` is for a file, and `{}` is of type {has}", name.text));
                }
                (typed, name.span)
            }
        };
        let (base, is_array) = self.innermost(typed.type_);
        let is_word = [TypeId::INT, TypeId::FLOAT, TypeId::STRING, TypeId::BOOLEAN, TypeId::FILE, TypeId::WRONG];
        if !is_word.contains(&base) {
            let has = self.type_name(typed.type_);
            self.problem(span, format!("a value of type {has} is no word of a command line"));
        }
        let kind = if base == TypeId::FILE { AppParamKind::Input(is_array) } else { AppParamKind::Value(is_array) };
        match typed.into_formula() {
            Formula::Constant(value) => AppTemplate::Text(library::plain(&value)),
            formula => AppTemplate::Param(self.app_param(&format!("word{position}"), kind, formula, params)),
        }
    }

    /// The parameter of a value: that of its variable, or a new one.
    fn app_param(&self, other: &str, kind: AppParamKind, value: Formula, params: &mut AppParams) -> usize {
        let Formula::Variable(place) = value else { return params.add(other, kind, value) };
        params.of_variable(place).unwrap_or_else(|| {
            let name = self.variable_name(place);
            params.add(if name.is_empty() { other } else { &name }, kind, value)
        })
    }

    fn app_stream(
        &mut self,
        value: &Expression,
        is_read: bool,
        params: &mut AppParams,
        operations: &mut Operations,
    ) -> Option<usize> {
        let Typed { operand, type_ } = self.expression(value, None, operations);
        if ![TypeId::FILE, TypeId::WRONG].contains(&self.types.base_of(type_)) {
            let has = self.type_name(type_);
            self.problem(value.span, format!("a standard stream is a file, and this is of type {has}"));
            return None;
        }
        let formula = Typed { operand, type_ }.into_formula();
        let param = self.app_param("stdin", AppParamKind::Input(false), formula, params);
        if !is_read && !matches!(params.0[param].0.kind, AppParamKind::Output(_)) && type_ != TypeId::WRONG {
            self.problem(value.span, "this file is written, and so it must be an output of the app function");
            return None;
        }
        Some(param)
    }
}

fn count(parameters: &[Parameter]) -> u32 {
    u32::try_from(parameters.len()).expect("functions have few parameters")
}
