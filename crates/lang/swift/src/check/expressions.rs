//! Expressions: types, and formulas or operations that compute them.

use super::Checker;
use crate::ast::{BinaryOperator, Expression, ExpressionKind, SourceName, UnaryOperator};
use crate::library;
use crate::program::{
    Arithmetic, ComparisonOperation, Formula, Operand, OperationKind, Operations, RangeFormula, VariablePlace,
};
use crate::source::Span;
use crate::types::{Conversion, TypeId};
use crate::value::SwiftValue;

/// An expression that was checked.
#[derive(Debug)]
pub struct Typed {
    /// Its value.
    pub operand: Operand,
    /// Its type.
    pub type_: TypeId,
}

impl Typed {
    fn formula(formula: Formula, type_: TypeId) -> Self {
        Self { operand: Operand::Formula(formula), type_ }
    }

    /// The value of an expression that has a problem.
    pub fn wrong() -> Self {
        Self::formula(Formula::Constant(SwiftValue::Void), TypeId::WRONG)
    }

    /// A variable.
    pub fn variable(place: VariablePlace, type_: TypeId) -> Self {
        Self { operand: Operand::Variable(place), type_ }
    }

    /// The value as a formula, which needs it.
    pub fn into_formula(self) -> Formula {
        match self.operand {
            Operand::Variable(place) => Formula::Variable(place),
            Operand::Formula(formula) => formula,
        }
    }
}

impl Checker<'_> {
    /// Checks an expression. Operations that it needs are added. `wanted` is the type of literals
    /// that do not tell their own.
    pub(super) fn expression(
        &mut self,
        expression: &Expression,
        wanted: Option<TypeId>,
        operations: &mut Operations,
    ) -> Typed {
        let span = expression.span;
        match &expression.kind {
            ExpressionKind::Int(number) => Typed::formula(Formula::Constant(SwiftValue::Int(*number)), TypeId::INT),
            ExpressionKind::Float(number) => {
                Typed::formula(Formula::Constant(SwiftValue::Float(*number)), TypeId::FLOAT)
            }
            ExpressionKind::Boolean(value) => {
                Typed::formula(Formula::Constant(SwiftValue::Boolean(*value)), TypeId::BOOLEAN)
            }
            ExpressionKind::Text(text) => Typed::formula(Formula::Constant(SwiftValue::text(text)), TypeId::STRING),
            ExpressionKind::Variable(name) => self.read(name, span),
            ExpressionKind::Call(call) => self.call_value(call, operations),
            ExpressionKind::Unary(operator, inner) => self.unary(*operator, inner, span, operations),
            ExpressionKind::Binary(operator, both) => self.binary(*operator, both, span, operations),
            ExpressionKind::Index(both) => self.index(both, span, operations),
            ExpressionKind::Field(inner, name) => self.field(inner, name, operations),
            ExpressionKind::Array(_) | ExpressionKind::Map(_) | ExpressionKind::Range { .. } => {
                self.array_literal(expression, wanted, operations)
            }
            ExpressionKind::Tuple(_) => {
                self.problem(span, "several values in parentheses are for `%` alone");
                Typed::wrong()
            }
        }
    }

    /// An expression as a value of a type.
    pub(super) fn value_of_type(
        &mut self,
        expression: &Expression,
        type_: TypeId,
        what: &str,
        operations: &mut Operations,
    ) -> Operand {
        let found = self.expression(expression, Some(type_), operations);
        self.convert(found, type_, expression.span, what)
    }

    /// A formula of a type.
    pub(super) fn formula_of_type(
        &mut self,
        expression: &Expression,
        type_: TypeId,
        what: &str,
        operations: &mut Operations,
    ) -> Formula {
        match self.value_of_type(expression, type_, what, operations) {
            Operand::Variable(place) => Formula::Variable(place),
            Operand::Formula(formula) => formula,
        }
    }

    /// A value as one of a type; `what` names what should be of that type.
    pub(super) fn convert(&mut self, found: Typed, type_: TypeId, span: Span, what: &str) -> Operand {
        match self.types.conversion(found.type_, type_) {
            Some(Conversion::IntToFloat) => Operand::Formula(to_float(found.into_formula())),
            Some(_) => found.operand,
            None => {
                let (has, wants) = (self.type_name(found.type_), self.type_name(type_));
                let mut problem =
                    self.sources.problem(span, format!("{what} is of type {wants}, and this is of type {has}"));
                if type_ == TypeId::FILE && found.type_ == TypeId::STRING {
                    problem = problem.hint("a file that is there is found by its path: input(\"...\")");
                }
                self.problems.push(problem);
                found.operand
            }
        }
    }

    /// A variable whose value is used.
    pub(super) fn read(&mut self, name: &str, span: Span) -> Typed {
        let Some(id) = self.scopes.find(name) else {
            let mut known: Vec<String> = self.scopes.names().map(str::to_owned).collect();
            if self.signatures.contains_key(name) {
                self.problem(span, format!("`{name}` is a function: a call has parentheses, `{name}()`"));
                return Typed::wrong();
            }
            known.sort_unstable();
            self.unknown(span, "variable", name, known.iter().map(String::as_str));
            return Typed::wrong();
        };
        self.scopes.variables[id.0].read.get_or_insert(span);
        Typed::variable(self.scopes.place(id), self.scopes.variables[id.0].type_)
    }

    fn unary(&mut self, operator: UnaryOperator, inner: &Expression, span: Span, operations: &mut Operations) -> Typed {
        let found = self.expression(inner, None, operations);
        let type_ = self.types.base_of(found.type_);
        match (operator, type_) {
            (_, TypeId::WRONG) => Typed::wrong(),
            (UnaryOperator::Not, TypeId::BOOLEAN) => {
                Typed::formula(Formula::Not(Box::new(found.into_formula())), TypeId::BOOLEAN)
            }
            (UnaryOperator::Negate, TypeId::INT | TypeId::FLOAT) => {
                let negated = Formula::Negate(Box::new(found.into_formula()), type_ == TypeId::INT);
                Typed::formula(negated, type_)
            }
            _ => {
                let (mark, wants) = match operator {
                    UnaryOperator::Not => ("!", "a boolean"),
                    UnaryOperator::Negate => ("-", "a number"),
                };
                let has = self.type_name(found.type_);
                self.problem(span, format!("`{mark}` is for {wants}, and this is of type {has}"));
                Typed::wrong()
            }
        }
    }

    fn binary(
        &mut self,
        operator: BinaryOperator,
        both: &(Expression, Expression),
        span: Span,
        operations: &mut Operations,
    ) -> Typed {
        if operator == BinaryOperator::Format {
            return self.format(both, operations);
        }
        let left = self.expression(&both.0, None, operations);
        let right = self.expression(&both.1, None, operations);
        let types = (self.types.base_of(left.type_), self.types.base_of(right.type_));
        if types.0 == TypeId::WRONG || types.1 == TypeId::WRONG {
            return Typed::wrong();
        }
        let formulas = (left.into_formula(), right.into_formula());
        if let Some((formula, type_)) = combine(operator, types, formulas) {
            return Typed::formula(formula, type_);
        }
        let (one, two) = (self.type_name(types.0), self.type_name(types.1));
        self.problem(span, format!("`{}` does not take values of the types {one} and {two}", mark_of(operator)));
        Typed::wrong()
    }

    /// `"%i" % (a, b)`.
    fn format(&mut self, both: &(Expression, Expression), operations: &mut Operations) -> Typed {
        let mut values = vec![self.formula_of_type(&both.0, TypeId::STRING, "the format before `%`", operations)];
        let arguments = match &both.1.kind {
            ExpressionKind::Tuple(all) => all.iter().collect(),
            _ => vec![&both.1],
        };
        for argument in arguments {
            let found = self.expression(argument, None, operations);
            let type_ = self.types.base_of(found.type_);
            let is_plain =
                [TypeId::INT, TypeId::FLOAT, TypeId::STRING, TypeId::BOOLEAN, TypeId::WRONG].contains(&type_);
            if !is_plain {
                let has = self.type_name(found.type_);
                self.problem(argument.span, format!("`%` puts no value of type {has} into a text"));
            }
            values.push(found.into_formula());
        }
        let sprintf = library::pure("sprintf").expect("it is there");
        Typed::formula(Formula::Call(sprintf, values), TypeId::STRING)
    }

    /// An expression as a variable: its value is put into one if it is none.
    pub(super) fn as_place(&mut self, found: Typed, span: Span, operations: &mut Operations) -> VariablePlace {
        match found.operand {
            Operand::Variable(place) => place,
            Operand::Formula(value) => {
                let target = self.temporary(found.type_, span);
                self.push(OperationKind::Set { target, value }, span, Vec::new(), operations);
                target
            }
        }
    }

    fn index(&mut self, both: &(Expression, Expression), span: Span, operations: &mut Operations) -> Typed {
        let array = self.expression(&both.0, None, operations);
        let Some((index_type, member)) = self.types.as_array(array.type_) else {
            if array.type_ != TypeId::WRONG {
                let has = self.type_name(array.type_);
                self.problem(span, format!("`[` is for a member of an array, and this is of type {has}"));
            }
            return Typed::wrong();
        };
        let array = self.as_place(array, span, operations);
        let index = self.formula_of_type(&both.1, index_type, "the index of this array", operations);
        // The member itself is linked, whatever it is.
        let target = self.linked(member, span);
        self.push(OperationKind::Load { target, array, index }, span, Vec::new(), operations);
        Typed::variable(target, member)
    }

    fn field(&mut self, inner: &Expression, name: &SourceName, operations: &mut Operations) -> Typed {
        let found = self.expression(inner, None, operations);
        let Some(position) = self.field_of(found.type_, name) else { return Typed::wrong() };
        let (field, type_) = position;
        let from = self.as_place(found, name.span, operations);
        let target = self.linked(type_, name.span);
        self.push(OperationKind::LoadField { target, from, field }, name.span, Vec::new(), operations);
        Typed::variable(target, type_)
    }

    /// The number and type of a field of a struct.
    pub(super) fn field_of(&mut self, type_: TypeId, name: &SourceName) -> Option<(u32, TypeId)> {
        let Some(struct_) = self.types.as_struct(type_).cloned() else {
            if type_ != TypeId::WRONG {
                let has = self.type_name(type_);
                self.problem(name.span, format!("`.{}` is for a struct, and this is of type {has}", name.text));
            }
            return None;
        };
        let found = (0..).zip(&struct_.fields).find(|(_, (field, _))| *field == name.text);
        if let Some((number, (_, type_))) = found {
            return Some((number, *type_));
        }
        let what = format!("field of {}", struct_.name);
        self.unknown(name.span, &what, &name.text, struct_.fields.iter().map(|(field, _)| &**field));
        None
    }

    /// A variable without a name that will stand for another one.
    pub(super) fn linked(&mut self, type_: TypeId, span: Span) -> VariablePlace {
        let start = crate::program::SlotStart::Empty;
        let slot = self.add_slot(crate::program::SlotLayout { name: "".into(), type_, span, start });
        VariablePlace { hops: 0, slot }
    }

    /// An array that is written out.
    fn array_literal(&mut self, expression: &Expression, wanted: Option<TypeId>, operations: &mut Operations) -> Typed {
        let Some(type_) = self.literal_type(expression, wanted, operations) else { return Typed::wrong() };
        let target = self.temporary(type_, expression.span);
        self.fill_array(target, type_, expression, operations);
        Typed::variable(target, type_)
    }

    /// The type of an array that is written out.
    fn literal_type(
        &mut self,
        expression: &Expression,
        wanted: Option<TypeId>,
        operations: &mut Operations,
    ) -> Option<TypeId> {
        if let Some(wanted) = wanted.filter(|wanted| self.types.member_of(*wanted).is_some()) {
            return Some(wanted);
        }
        let (index, first) = match &expression.kind {
            ExpressionKind::Array(values) => (None, values.first()),
            ExpressionKind::Map(members) => {
                (members.first().map(|(index, _)| index), members.first().map(|(_, value)| value))
            }
            ExpressionKind::Range { start, .. } => (None, Some(&**start)),
            _ => (None, None),
        };
        let Some(first) = first else {
            let hint = "declare a variable with its type: int A[] = [];";
            let problem = self.sources.problem(expression.span, "the type of this empty array is not known").hint(hint);
            self.problems.push(problem);
            return None;
        };
        // Only the types count: the operations are made when the array is filled.
        let mark = (self.operations.len(), operations.len());
        let member = self.expression(first, None, operations).type_;
        let index = index.map_or(TypeId::INT, |index| self.expression(index, None, operations).type_);
        self.operations.truncate(mark.0);
        operations.truncate(mark.1);
        Some(self.types.array(index, member))
    }

    /// Fills an array with what is written out.
    pub(super) fn fill_array(
        &mut self,
        target: VariablePlace,
        type_: TypeId,
        expression: &Expression,
        operations: &mut Operations,
    ) {
        let span = expression.span;
        let Some(member) = self.types.member_of(type_) else { return };
        let what = "a member of this array";
        let kind = match &expression.kind {
            ExpressionKind::Array(values) => {
                let values = values.iter().map(|value| (None, self.value_of_type(value, member, what, operations)));
                OperationKind::FillArray { target, members: values.collect() }
            }
            ExpressionKind::Map(members) => {
                let index_type = self.types.as_array(type_).map_or(TypeId::INT, |(index, _)| index);
                let members = members.iter().map(|(index, value)| {
                    let index = self.formula_of_type(index, index_type, "the index of this array", operations);
                    (Some(index), self.value_of_type(value, member, what, operations))
                });
                OperationKind::FillArray { target, members: members.collect() }
            }
            ExpressionKind::Range { .. } => {
                let range = self.range(expression, operations);
                OperationKind::FillRange { target, range }
            }
            _ => unreachable!("it is written out"),
        };
        self.push(kind, span, Vec::new(), operations);
    }

    /// A range of numbers.
    pub(super) fn range(&mut self, expression: &Expression, operations: &mut Operations) -> RangeFormula {
        let ExpressionKind::Range { start, end, step } = &expression.kind else { unreachable!("it is a range") };
        let mut found: Vec<(Typed, Span)> = Vec::new();
        for part in [Some(start), Some(end), step.as_ref()].into_iter().flatten() {
            found.push((self.expression(part, None, operations), part.span));
        }
        let is_float = found.iter().any(|(typed, _)| self.types.base_of(typed.type_) == TypeId::FLOAT);
        let type_ = if is_float { TypeId::FLOAT } else { TypeId::INT };
        let one = if is_float { SwiftValue::Float(1.0) } else { SwiftValue::Int(1) };
        let mut formulas = found.into_iter().map(|(typed, span)| match self.convert(typed, type_, span, "a range") {
            Operand::Variable(place) => Formula::Variable(place),
            Operand::Formula(formula) => formula,
        });
        let (start, end) = (formulas.next().expect("it is there"), formulas.next().expect("it is there"));
        let step = formulas.next().unwrap_or(Formula::Constant(one));
        RangeFormula { start, end, step, is_float }
    }
}

fn to_float(formula: Formula) -> Formula {
    match formula {
        Formula::Constant(value @ SwiftValue::Int(_)) => Formula::Constant(SwiftValue::Float(value.float())),
        other => Formula::ToFloat(Box::new(other)),
    }
}

/// The operation of two values, and its type; `None` if there is none for these types.
fn combine(
    operator: BinaryOperator,
    types: (TypeId, TypeId),
    formulas: (Formula, Formula),
) -> Option<(Formula, TypeId)> {
    let is_number = |type_| type_ == TypeId::INT || type_ == TypeId::FLOAT;
    let are_numbers = is_number(types.0) && is_number(types.1);
    let are_ints = types == (TypeId::INT, TypeId::INT);
    if let Some(comparison) = comparison_of(operator) {
        let is_equality = matches!(comparison, ComparisonOperation::Equal | ComparisonOperation::NotEqual);
        let comparable = are_numbers
            || types == (TypeId::STRING, TypeId::STRING)
            || (types == (TypeId::BOOLEAN, TypeId::BOOLEAN) && is_equality);
        let formulas = if are_numbers && !are_ints { as_floats(types, formulas) } else { formulas };
        return comparable.then(|| (Formula::Compare(comparison, Box::new(formulas)), TypeId::BOOLEAN));
    }
    match operator {
        BinaryOperator::And | BinaryOperator::Or => {
            let both = Formula::Both(operator == BinaryOperator::And, Box::new(formulas));
            (types == (TypeId::BOOLEAN, TypeId::BOOLEAN)).then_some((both, TypeId::BOOLEAN))
        }
        BinaryOperator::Add if types.0 == TypeId::STRING || types.1 == TypeId::STRING => {
            let is_text = |type_| type_ == TypeId::STRING || is_number(type_);
            let strcat = library::pure("strcat").expect("it is there");
            let joined = Formula::Call(strcat, vec![formulas.0, formulas.1]);
            (is_text(types.0) && is_text(types.1)).then_some((joined, TypeId::STRING))
        }
        BinaryOperator::Divide if types == (TypeId::STRING, TypeId::STRING) => {
            let dircat = library::pure("dircat").expect("it is there");
            Some((Formula::Call(dircat, vec![formulas.0, formulas.1]), TypeId::STRING))
        }
        _ if !are_numbers => None,
        BinaryOperator::IntegerDivide | BinaryOperator::Modulo => {
            let operation = if operator == BinaryOperator::Modulo { Arithmetic::Modulo } else { Arithmetic::Divide };
            are_ints.then(|| (Formula::Int(operation, Box::new(formulas)), TypeId::INT))
        }
        BinaryOperator::Divide | BinaryOperator::Power => {
            let operation = if operator == BinaryOperator::Power { Arithmetic::Power } else { Arithmetic::Divide };
            Some((Formula::Float(operation, Box::new(as_floats(types, formulas))), TypeId::FLOAT))
        }
        BinaryOperator::Add | BinaryOperator::Subtract | BinaryOperator::Multiply => {
            let operation = match operator {
                BinaryOperator::Add => Arithmetic::Add,
                BinaryOperator::Subtract => Arithmetic::Subtract,
                _ => Arithmetic::Multiply,
            };
            Some(if are_ints {
                (Formula::Int(operation, Box::new(formulas)), TypeId::INT)
            } else {
                (Formula::Float(operation, Box::new(as_floats(types, formulas))), TypeId::FLOAT)
            })
        }
        _ => None,
    }
}

fn as_floats(types: (TypeId, TypeId), formulas: (Formula, Formula)) -> (Formula, Formula) {
    let as_float = |type_, formula| if type_ == TypeId::INT { to_float(formula) } else { formula };
    (as_float(types.0, formulas.0), as_float(types.1, formulas.1))
}

fn comparison_of(operator: BinaryOperator) -> Option<ComparisonOperation> {
    Some(match operator {
        BinaryOperator::Equal => ComparisonOperation::Equal,
        BinaryOperator::NotEqual => ComparisonOperation::NotEqual,
        BinaryOperator::Less => ComparisonOperation::Less,
        BinaryOperator::AtMost => ComparisonOperation::AtMost,
        BinaryOperator::Greater => ComparisonOperation::Greater,
        BinaryOperator::AtLeast => ComparisonOperation::AtLeast,
        _ => return None,
    })
}

fn mark_of(operator: BinaryOperator) -> &'static str {
    match operator {
        BinaryOperator::Or => "||",
        BinaryOperator::And => "&&",
        BinaryOperator::Equal => "==",
        BinaryOperator::NotEqual => "!=",
        BinaryOperator::Less => "<",
        BinaryOperator::AtMost => "<=",
        BinaryOperator::Greater => ">",
        BinaryOperator::AtLeast => ">=",
        BinaryOperator::Add => "+",
        BinaryOperator::Subtract => "-",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::IntegerDivide => "%/",
        BinaryOperator::Modulo => "%%",
        BinaryOperator::Format => "%",
        BinaryOperator::Power => "**",
    }
}
