//! Conditions of the preprocessor: which lines count.

use super::DirectiveLine;
use super::macros::Macros;
use crate::source::{Sources, Span};
use crate::token::{Lexeme, Mark, SwiftToken};
use base::Problem;
use std::iter::Peekable;
use std::slice;

/// Parentheses and signs within each other in a condition.
const DEPTH_MAX: u32 = 100;

/// An open `#if`.
#[derive(Debug)]
struct Branch {
    /// The position of the `#if`, and its word.
    opened: (Span, String),
    /// True if the lines here count.
    is_active: bool,
    /// True if a branch of this `#if` has counted, or none may.
    was_active: bool,
    /// True behind `#else`.
    is_last: bool,
}

/// The conditions that are open.
#[derive(Debug, Default)]
pub struct Conditions(Vec<Branch>);

impl Conditions {
    /// Returns whether lines count.
    pub fn is_active(&self) -> bool {
        self.0.last().is_none_or(|branch| branch.is_active)
    }

    /// The end of a file: nothing may be open.
    pub fn end(&self, sources: &Sources) -> Result<(), Problem> {
        match self.0.last() {
            Some(Branch { opened: (span, word), .. }) => {
                Err(sources.problem(*span, format!("this #{word} has no #endif")))
            }
            None => Ok(()),
        }
    }

    /// Handles a line if it is a condition; returns whether it is.
    pub fn directive(
        &mut self,
        line: &DirectiveLine<'_>,
        span: Span,
        macros: &Macros,
        sources: &Sources,
    ) -> Result<bool, Problem> {
        match line.word {
            "if" | "ifdef" | "ifndef" => {
                let is_active = self.is_active() && holds(line, span, macros, sources)?;
                let (opened, was_active) = ((span, line.word.to_owned()), is_active || !self.is_active());
                self.0.push(Branch { opened, is_active, was_active, is_last: false });
            }
            "elif" => {
                let branch = self.branch(line.word, span, sources)?;
                branch.is_active = !branch.was_active && holds(line, span, macros, sources)?;
                branch.was_active |= branch.is_active;
            }
            "else" => {
                let branch = self.branch(line.word, span, sources)?;
                (branch.is_active, branch.is_last) = (!branch.was_active, true);
                branch.was_active = true;
            }
            "endif" => {
                if self.0.pop().is_none() {
                    return Err(sources.problem(span, "#endif without #if"));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The open condition to which another branch belongs.
    fn branch(&mut self, word: &str, span: Span, sources: &Sources) -> Result<&mut Branch, Problem> {
        match self.0.last_mut() {
            None => Err(sources.problem(span, format!("#{word} without #if"))),
            Some(branch) if branch.is_last => Err(sources.problem(span, format!("#{word} after #else"))),
            Some(branch) => Ok(branch),
        }
    }
}

/// Returns whether a condition holds.
fn holds(line: &DirectiveLine<'_>, span: Span, macros: &Macros, sources: &Sources) -> Result<bool, Problem> {
    let tokens = line.tokens(sources)?;
    if line.word.starts_with("ifn") || line.word == "ifdef" {
        let SwiftToken::Word(name) = &tokens[0].token else {
            return Err(sources.problem(span, format!("#{} needs a name", line.word)));
        };
        return Ok(macros.has(name) == (line.word == "ifdef"));
    }
    let mut expanded = Vec::new();
    macros.expand(resolve_defined(&tokens, macros), &mut expanded, sources)?;
    let mut condition = ConditionReader { tokens: expanded.iter().peekable(), depth: 0 };
    let value = condition.binary(0).and_then(|value| match condition.tokens.peek().map(|next| &next.token) {
        None | Some(SwiftToken::End) => Ok(value),
        Some(other) => Err(format!("has {other} behind its end")),
    });
    value.map(|value| value != 0).map_err(|why| sources.problem(span, format!("the condition of #{} {why}", line.word)))
}

/// Replaces `defined NAME` and `defined(NAME)` by 1 or 0, before macros are expanded.
fn resolve_defined(tokens: &[Lexeme], macros: &Macros) -> Vec<Lexeme> {
    let mut resolved = Vec::new();
    let mut rest = tokens;
    while let [first, others @ ..] = rest {
        rest = others;
        let name = match others {
            _ if !first.token.is_word("defined") => None,
            [Lexeme { token: SwiftToken::Word(name), .. }, ..] => Some((name, 1)),
            [open, Lexeme { token: SwiftToken::Word(name), .. }, close, ..]
                if open.token == SwiftToken::Mark(Mark::OpenParenthesis)
                    && close.token == SwiftToken::Mark(Mark::CloseParenthesis) =>
            {
                Some((name, 3))
            }
            _ => None,
        };
        match name {
            Some((name, length)) => {
                rest = &others[length..];
                resolved.push(Lexeme { token: SwiftToken::Int(i64::from(macros.has(name))), span: first.span });
            }
            None => resolved.push(first.clone()),
        }
    }
    resolved
}

/// A condition that is read.
struct ConditionReader<'a> {
    tokens: Peekable<slice::Iter<'a, Lexeme>>,
    depth: u32,
}

impl ConditionReader<'_> {
    /// The value of operations whose operators bind at least this tightly.
    fn binary(&mut self, tightness: u32) -> Result<i64, String> {
        let mut value = self.unary()?;
        while let Some((mark, found)) = self.operator().filter(|(_, found)| *found >= tightness) {
            self.tokens.next();
            let other = self.binary(found + 1)?;
            value = apply(mark, value, other)?;
        }
        Ok(value)
    }

    fn operator(&mut self) -> Option<(Mark, u32)> {
        let SwiftToken::Mark(mark) = self.tokens.peek()?.token else { return None };
        let tightness = match mark {
            Mark::Or => 0,
            Mark::And => 1,
            Mark::Equal | Mark::NotEqual => 2,
            Mark::Less | Mark::Greater | Mark::AtMost | Mark::AtLeast => 3,
            Mark::Plus | Mark::Minus => 4,
            Mark::Times | Mark::Divide | Mark::Percent => 5,
            _ => return None,
        };
        Some((mark, tightness))
    }

    fn unary(&mut self) -> Result<i64, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("is nested more than {DEPTH_MAX} deep"));
        }
        let value = match self.tokens.next().map(|lexeme| &lexeme.token) {
            Some(SwiftToken::Int(number)) => Ok(*number),
            // A name that is no macro is 0, as in C.
            Some(SwiftToken::Word(_)) => Ok(0),
            Some(SwiftToken::Mark(Mark::Not)) => self.unary().map(|value| i64::from(value == 0)),
            Some(SwiftToken::Mark(Mark::Minus)) => self.unary().map(i64::wrapping_neg),
            Some(SwiftToken::Mark(Mark::OpenParenthesis)) => {
                let value = self.binary(0)?;
                match self.tokens.next().map(|lexeme| &lexeme.token) {
                    Some(SwiftToken::Mark(Mark::CloseParenthesis)) => Ok(value),
                    _ => Err("lacks a `)`".into()),
                }
            }
            None | Some(SwiftToken::End) => Err("ends too early".into()),
            Some(other) => Err(format!("has {other} where a number or a name should be")),
        };
        self.depth -= 1;
        value
    }
}

fn apply(mark: Mark, left: i64, right: i64) -> Result<i64, String> {
    Ok(match mark {
        Mark::Or => i64::from(left != 0 || right != 0),
        Mark::And => i64::from(left != 0 && right != 0),
        Mark::Equal => i64::from(left == right),
        Mark::NotEqual => i64::from(left != right),
        Mark::Less => i64::from(left < right),
        Mark::Greater => i64::from(left > right),
        Mark::AtMost => i64::from(left <= right),
        Mark::AtLeast => i64::from(left >= right),
        Mark::Plus => left.wrapping_add(right),
        Mark::Minus => left.wrapping_sub(right),
        Mark::Times => left.wrapping_mul(right),
        Mark::Divide | Mark::Percent if right == 0 => return Err("divides by zero".into()),
        Mark::Divide => left.wrapping_div(right),
        _ => left.wrapping_rem(right),
    })
}
