//! Parser: tokens to the syntax tree.
//!
//! The grammar is that of Swift/T's compiler (STC), read from its own grammar file, by recursive
//! descent. Where that one tries one rule after another, this one looks ahead: a statement is told
//! by its first tokens, and by what follows its parentheses.
//!
//! After a problem the parser goes on behind the statement, so that several are told at once.

mod definitions;
mod expressions;
mod statements;

use crate::ast::{SourceName, SwiftModule};
use crate::source::{Sources, Span};
use crate::token::{Lexeme, Mark, SwiftToken};
use base::Problem;

/// Blocks and expressions within each other. It bounds the stack.
const DEPTH_MAX: u32 = 200;
/// Problems after which the parser gives up.
const PROBLEMS_MAX: usize = 20;

/// The words that name no variable.
pub const KEYWORDS: [&str; 22] = [
    "app", "builtin", "if", "else", "switch", "case", "default", "foreach", "in", "for", "iterate", "until", "wait",
    "deep", "true", "false", "global", "const", "type", "typedef", "import", "pragma",
];

/// Parses the tokens of a file.
///
/// # Errors
/// The problems, in the order of the file.
pub fn parse(tokens: &[Lexeme], sources: &Sources) -> Result<SwiftModule, Vec<Problem>> {
    let mut parser = Parser { tokens, at: 0, sources, problems: Vec::new(), depth: 0 };
    let statements = parser.statements(&SwiftToken::End);
    if parser.problems.is_empty() { Ok(SwiftModule { statements }) } else { Err(parser.problems) }
}

/// The tokens, and the place of the next one.
struct Parser<'a> {
    tokens: &'a [Lexeme],
    at: usize,
    sources: &'a Sources,
    problems: Vec<Problem>,
    depth: u32,
}

impl Parser<'_> {
    fn token(&self) -> &SwiftToken {
        self.token_at(0)
    }

    /// The token this many behind the next one; the end if there is none.
    fn token_at(&self, ahead: usize) -> &SwiftToken {
        let last = self.tokens.len() - 1;
        &self.tokens[(self.at + ahead).min(last)].token
    }

    fn span(&self) -> Span {
        self.tokens[self.at.min(self.tokens.len() - 1)].span
    }

    fn mark(&self) -> Option<Mark> {
        self.mark_at(0)
    }

    fn mark_at(&self, ahead: usize) -> Option<Mark> {
        if let SwiftToken::Mark(mark) = self.token_at(ahead) { Some(*mark) } else { None }
    }

    fn is_name_at(&self, ahead: usize) -> bool {
        matches!(self.token_at(ahead), SwiftToken::Word(word) if !KEYWORDS.contains(&&**word))
    }

    fn problem(&self, message: impl Into<String>) -> Problem {
        self.sources.problem(self.span(), message)
    }

    fn expected(&self, what: &str) -> Problem {
        self.problem(format!("{what} should be here, not {}", self.token()))
    }

    /// Takes the next token if it is this mark; returns whether it is.
    fn takes(&mut self, mark: Mark) -> bool {
        let is_next = self.mark() == Some(mark);
        self.at += usize::from(is_next);
        is_next
    }

    /// Takes the next token if it is this word; returns whether it is.
    fn takes_word(&mut self, word: &str) -> bool {
        let is_next = self.token().is_word(word);
        self.at += usize::from(is_next);
        is_next
    }

    /// Takes a mark that must be next.
    fn take(&mut self, mark: Mark) -> Result<Span, Problem> {
        let span = self.span();
        if self.takes(mark) { Ok(span) } else { Err(self.expected(&format!("`{}`", mark.text()))) }
    }

    /// Takes the semicolon that ends a statement. A missing one is told where the statement ends.
    fn take_semicolon(&mut self) -> Result<(), Problem> {
        if self.takes(Mark::Semicolon) {
            return Ok(());
        }
        let before = self.tokens[self.at.saturating_sub(1)].span;
        let problem = self.sources.problem(before, format!("`;` is missing behind this, before {}", self.token()));
        Err(problem)
    }

    /// Takes a name that must be next; `what` tells what it names.
    fn take_name(&mut self, what: &str) -> Result<SourceName, Problem> {
        let span = self.span();
        match self.token() {
            SwiftToken::Word(word) if KEYWORDS.contains(&&**word) => {
                Err(self.problem(format!("`{word}` is a word of the language, and cannot be {what}")))
            }
            SwiftToken::Word(word) => {
                let text = word.clone();
                self.at += 1;
                Ok(SourceName { text, span })
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Parses what is between marks, with commas in between.
    fn list<T>(
        &mut self,
        (open, close): (Mark, Mark),
        mut item: impl FnMut(&mut Self) -> Result<T, Problem>,
    ) -> Result<Vec<T>, Problem> {
        self.take(open)?;
        let mut items = Vec::new();
        if self.takes(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.takes(close) {
                return Ok(items);
            }
            if !self.takes(Mark::Comma) {
                return Err(self.expected(&format!("`,` or `{}`", close.text())));
            }
        }
    }

    /// Parses something that may contain its like, up to a depth.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, Problem>) -> Result<T, Problem> {
        if self.depth >= DEPTH_MAX {
            return Err(self.problem(format!("blocks and expressions are nested more than {DEPTH_MAX} deep")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// The number of tokens up to behind the mark that closes the one which is `ahead` of the next.
    fn length_of_pair(&self, ahead: usize) -> usize {
        let mut depth = 0_u32;
        for distance in ahead.. {
            match self.token_at(distance) {
                SwiftToken::Mark(Mark::OpenParenthesis | Mark::OpenBracket | Mark::OpenBrace) => depth += 1,
                SwiftToken::Mark(Mark::CloseParenthesis | Mark::CloseBracket | Mark::CloseBrace) => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return distance + 1;
                    }
                }
                SwiftToken::End => return distance,
                _ => {}
            }
        }
        unreachable!("the tokens have an end")
    }

    /// Skips the rest of a statement that has a problem.
    fn skip_statement(&mut self) {
        let mut depth = 0_u32;
        loop {
            match self.token() {
                SwiftToken::End => return,
                SwiftToken::Mark(Mark::Semicolon) if depth == 0 => {
                    self.at += 1;
                    return;
                }
                SwiftToken::Mark(Mark::OpenBrace) => depth += 1,
                SwiftToken::Mark(Mark::CloseBrace) if depth == 0 => return,
                SwiftToken::Mark(Mark::CloseBrace) => {
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return;
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
#[path = "parser_test.rs"]
mod tests;
