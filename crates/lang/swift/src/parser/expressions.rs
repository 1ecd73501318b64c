//! Expressions.

use super::Parser;
use crate::ast::{Annotation, BinaryOperator, Expression, ExpressionKind, FunctionCall, SourceName, UnaryOperator};
use crate::source::Span;
use crate::token::{Mark, SwiftToken};
use base::Problem;

/// The tightness of operators that compare: a mapping `<"file">` ends before them.
const COMPARING: u32 = 3;

/// The operator of a mark, and how tightly it binds. All of them group from the left.
fn operator_of(mark: Mark) -> Option<(BinaryOperator, u32)> {
    Some(match mark {
        Mark::Or => (BinaryOperator::Or, 0),
        Mark::And => (BinaryOperator::And, 1),
        Mark::Equal => (BinaryOperator::Equal, 2),
        Mark::NotEqual => (BinaryOperator::NotEqual, 2),
        Mark::Less => (BinaryOperator::Less, COMPARING),
        Mark::AtMost => (BinaryOperator::AtMost, COMPARING),
        Mark::Greater => (BinaryOperator::Greater, COMPARING),
        Mark::AtLeast => (BinaryOperator::AtLeast, COMPARING),
        Mark::Plus => (BinaryOperator::Add, 4),
        Mark::Minus => (BinaryOperator::Subtract, 4),
        Mark::Times => (BinaryOperator::Multiply, 5),
        Mark::Divide => (BinaryOperator::Divide, 5),
        Mark::IntegerDivide => (BinaryOperator::IntegerDivide, 5),
        Mark::Modulo => (BinaryOperator::Modulo, 5),
        Mark::Percent => (BinaryOperator::Format, 5),
        Mark::Power => (BinaryOperator::Power, 6),
        _ => return None,
    })
}

impl Parser<'_> {
    /// An expression.
    pub(super) fn expression(&mut self) -> Result<Expression, Problem> {
        self.binary(0)
    }

    /// The expression of a mapping, which `>` ends.
    pub(super) fn mapped_path(&mut self) -> Result<Expression, Problem> {
        self.binary(COMPARING + 1)
    }

    /// An expression whose operators bind at least this tightly.
    fn binary(&mut self, tightness: u32) -> Result<Expression, Problem> {
        self.nested(|parser| {
            let mut left = parser.unary()?;
            while let Some((operator, found)) =
                parser.mark().and_then(operator_of).filter(|(_, found)| *found >= tightness)
            {
                let span = parser.span();
                parser.at += 1;
                let right = parser.binary(found + 1)?;
                left = Expression { kind: ExpressionKind::Binary(operator, Box::new((left, right))), span };
            }
            Ok(left)
        })
    }

    /// A sign binds more tightly than `**`, as in Swift/T.
    pub(super) fn unary(&mut self) -> Result<Expression, Problem> {
        let operator = match self.mark() {
            Some(Mark::Minus) => UnaryOperator::Negate,
            Some(Mark::Not) => UnaryOperator::Not,
            _ => return self.postfix(),
        };
        let span = self.span();
        self.at += 1;
        let inner = self.nested(Self::unary)?;
        Ok(Expression { kind: ExpressionKind::Unary(operator, Box::new(inner)), span })
    }

    fn postfix(&mut self) -> Result<Expression, Problem> {
        let mut value = self.primary()?;
        loop {
            let span = self.span();
            if self.takes(Mark::OpenBracket) {
                let index = self.expression()?;
                self.take(Mark::CloseBracket)?;
                value = Expression { kind: ExpressionKind::Index(Box::new((value, index))), span };
            } else if self.takes(Mark::Dot) {
                let field = self.take_name("the name of a field")?;
                value = Expression { kind: ExpressionKind::Field(Box::new(value), field), span };
            } else {
                return Ok(value);
            }
        }
    }

    pub(super) fn primary(&mut self) -> Result<Expression, Problem> {
        let span = self.span();
        let kind = match self.token().clone() {
            SwiftToken::Int(number) => ExpressionKind::Int(number),
            SwiftToken::Float(number) => ExpressionKind::Float(number),
            SwiftToken::Text(text) => ExpressionKind::Text(text),
            SwiftToken::Word(word) if &*word == "true" => ExpressionKind::Boolean(true),
            SwiftToken::Word(word) if &*word == "false" => ExpressionKind::Boolean(false),
            SwiftToken::Word(_) => return self.word(),
            SwiftToken::Mark(Mark::At) => return self.annotated_call(),
            SwiftToken::Mark(Mark::OpenParenthesis) => return self.parenthesis(),
            SwiftToken::Mark(Mark::OpenBracket) => return self.array(),
            SwiftToken::Mark(Mark::OpenBrace) => return self.map(),
            _ => return Err(self.expected("a value")),
        };
        self.at += 1;
        Ok(Expression { kind, span })
    }

    /// A variable or a call.
    fn word(&mut self) -> Result<Expression, Problem> {
        let name = self.take_name("a value")?;
        if self.mark() == Some(Mark::OpenParenthesis) {
            return self.call(name, Vec::new());
        }
        let SourceName { text, span } = name;
        Ok(Expression { kind: ExpressionKind::Variable(text), span })
    }

    /// A call of a function whose name was taken.
    pub(super) fn call(&mut self, function: SourceName, annotations: Vec<Annotation>) -> Result<Expression, Problem> {
        let arguments = self.list((Mark::OpenParenthesis, Mark::CloseParenthesis), Self::argument)?;
        let span = function.span;
        Ok(Expression { kind: ExpressionKind::Call(FunctionCall { function, arguments, annotations }), span })
    }

    fn argument(&mut self) -> Result<(Option<SourceName>, Expression), Problem> {
        let has_name = self.is_name_at(0) && self.mark_at(1) == Some(Mark::Assign);
        let name = if has_name { Some(self.take_name("the name of an argument")?) } else { None };
        self.at += usize::from(has_name);
        Ok((name, self.expression()?))
    }

    /// A call with annotations before it, or an old one: `@filename(f)`.
    fn annotated_call(&mut self) -> Result<Expression, Problem> {
        let mut annotations = Vec::new();
        while self.mark() == Some(Mark::At) {
            if self.is_name_at(1) && self.mark_at(2) == Some(Mark::OpenParenthesis) {
                self.at += 1;
                break;
            }
            annotations.push(self.annotation()?);
        }
        let function = self.take_name("a call of a function")?;
        if self.mark() != Some(Mark::OpenParenthesis) {
            return Err(self.expected("`(`").hint("an annotation is for a call: @prio=1 f(x)"));
        }
        self.call(function, annotations)
    }

    /// An expression in parentheses, or a tuple.
    fn parenthesis(&mut self) -> Result<Expression, Problem> {
        let span = self.span();
        let mut values = self.list((Mark::OpenParenthesis, Mark::CloseParenthesis), Self::expression)?;
        match values.len() {
            0 => Err(self.sources.problem(span, "there is nothing in these parentheses")),
            1 => Ok(values.swap_remove(0)),
            _ => Ok(Expression { kind: ExpressionKind::Tuple(values), span }),
        }
    }

    /// An array: `[]`, `[a, b]`, or a range.
    fn array(&mut self) -> Result<Expression, Problem> {
        let span = self.take(Mark::OpenBracket)?;
        let array = |values| Expression { kind: ExpressionKind::Array(values), span };
        if self.takes(Mark::CloseBracket) {
            return Ok(array(Vec::new()));
        }
        let first = self.expression()?;
        if self.takes(Mark::Colon) {
            return self.range(first, span);
        }
        let mut values = vec![first];
        while self.takes(Mark::Comma) {
            values.push(self.expression()?);
        }
        self.take(Mark::CloseBracket)?;
        Ok(array(values))
    }

    fn range(&mut self, start: Expression, span: Span) -> Result<Expression, Problem> {
        let end = Box::new(self.expression()?);
        let step = if self.takes(Mark::Colon) { Some(Box::new(self.expression()?)) } else { None };
        self.take(Mark::CloseBracket)?;
        Ok(Expression { kind: ExpressionKind::Range { start: Box::new(start), end, step }, span })
    }

    /// An array with its indices: `{"a": 1}`.
    fn map(&mut self) -> Result<Expression, Problem> {
        let span = self.span();
        let members = self.list((Mark::OpenBrace, Mark::CloseBrace), |parser| {
            let index = parser.expression()?;
            parser.take(Mark::Colon)?;
            Ok((index, parser.expression()?))
        })?;
        Ok(Expression { kind: ExpressionKind::Map(members), span })
    }
}
