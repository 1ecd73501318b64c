//! Macros: names that stand for tokens, with arguments or without.

use super::{DirectiveLine, TOKENS_MAX};
use crate::source::Sources;
use crate::token::{Lexeme, Mark, SwiftToken};
use base::Problem;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A macro.
#[derive(Debug, Clone)]
struct Macro {
    /// The names of its arguments; `None` if it takes none and has no parentheses.
    parameters: Option<Vec<Arc<str>>>,
    body: Vec<SwiftToken>,
}

/// The macros that are defined.
#[derive(Debug, Default)]
pub struct Macros(HashMap<Arc<str>, Arc<Macro>>);

/// A token that is yet to be expanded.
struct Pending {
    lexeme: Lexeme,
    /// The macros that it came from, which do not stand for their bodies in it.
    hidden: Arc<Vec<Arc<str>>>,
}

impl Macros {
    /// Returns whether a name is defined.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Defines a macro without arguments.
    pub fn define_value(&mut self, name: &str, body: &[Lexeme]) {
        let body = body.iter().map(|lexeme| lexeme.token.clone()).filter(|token| *token != SwiftToken::End).collect();
        self.0.insert(name.into(), Arc::new(Macro { parameters: None, body }));
    }

    /// Defines a macro by the text behind `#define`.
    pub fn define(&mut self, line: &DirectiveLine<'_>, sources: &Sources) -> Result<(), Problem> {
        if let Some(at) = position_of_hash(line.rest) {
            let span = line.start.plus(at);
            return Err(sources.problem(span, "`#` and `##` in the body of a macro are not supported"));
        }
        let tokens = line.tokens(sources)?;
        let SwiftToken::Word(name) = &tokens[0].token else {
            return Err(sources.problem(tokens[0].span, format!("#define needs a name, not {}", tokens[0].token)));
        };
        let end = tokens[0].span.plus(name.len());
        // A parenthesis right behind the name opens the arguments; behind a blank it is of the
        // body.
        let has_parameters = tokens[1].token == SwiftToken::Mark(Mark::OpenParenthesis) && tokens[1].span == end;
        let (parameters, body) = if has_parameters {
            let (parameters, length) = parameters_of(&tokens[2..], sources)?;
            (Some(parameters), &tokens[2 + length..])
        } else {
            (None, &tokens[1..])
        };
        let body = body.iter().map(|lexeme| lexeme.token.clone()).filter(|token| *token != SwiftToken::End).collect();
        self.0.insert(name.clone(), Arc::new(Macro { parameters, body }));
        Ok(())
    }

    /// Forgets a macro.
    pub fn undefine(&mut self, line: &DirectiveLine<'_>, sources: &Sources) -> Result<(), Problem> {
        let tokens = line.tokens(sources)?;
        match &tokens[0].token {
            SwiftToken::Word(name) => drop(self.0.remove(name)),
            other => return Err(sources.problem(tokens[0].span, format!("#undef needs a name, not {other}"))),
        }
        Ok(())
    }

    /// Appends tokens to `output`, each macro replaced by its body.
    pub fn expand(&self, part: Vec<Lexeme>, output: &mut Vec<Lexeme>, sources: &Sources) -> Result<(), Problem> {
        if self.0.is_empty() {
            output.extend(part);
            return Ok(());
        }
        let none = Arc::new(Vec::new());
        let mut pending: VecDeque<Pending> =
            part.into_iter().map(|lexeme| Pending { lexeme, hidden: none.clone() }).collect();
        while let Some(next) = pending.pop_front() {
            match self.macro_at(&next, &pending) {
                Some((name, found)) => Self::replace(&next, (&name, &found), &mut pending, sources)?,
                None => output.push(next.lexeme),
            }
            if output.len() + pending.len() > TOKENS_MAX {
                // The caller names the place.
                output.extend(pending.into_iter().map(|pending| pending.lexeme));
                return Ok(());
            }
        }
        Ok(())
    }

    /// The macro that a token stands for, if it does. One with arguments needs a parenthesis next.
    fn macro_at(&self, next: &Pending, pending: &VecDeque<Pending>) -> Option<(Arc<str>, Arc<Macro>)> {
        let SwiftToken::Word(name) = &next.lexeme.token else { return None };
        let found = self.0.get(name).filter(|_| !next.hidden.contains(name))?;
        let is_open =
            || pending.front().is_some_and(|next| next.lexeme.token == SwiftToken::Mark(Mark::OpenParenthesis));
        (found.parameters.is_none() || is_open()).then(|| (name.clone(), found.clone()))
    }

    /// Puts the body of a macro before the pending tokens.
    fn replace(
        used: &Pending,
        (name, found): (&Arc<str>, &Macro),
        pending: &mut VecDeque<Pending>,
        sources: &Sources,
    ) -> Result<(), Problem> {
        let span = used.lexeme.span;
        let arguments = match &found.parameters {
            None => Vec::new(),
            Some(parameters) => {
                let given = take_arguments(pending)
                    .ok_or_else(|| sources.problem(span, format!("the arguments of the macro `{name}` have no end")))?;
                // An empty pair of parentheses is one empty argument, or none.
                let given = if parameters.is_empty() && given.iter().all(Vec::is_empty) { Vec::new() } else { given };
                if given.len() != parameters.len() {
                    let (takes, has) = (parameters.len(), given.len());
                    let plural = if takes == 1 { "" } else { "s" };
                    let message = format!("the macro `{name}` takes {takes} argument{plural}, and has {has}");
                    return Err(sources.problem(span, message));
                }
                given
            }
        };
        let hidden: Vec<Arc<str>> = used.hidden.iter().cloned().chain([name.clone()]).collect();
        let hidden = Arc::new(hidden);
        let position = |word: &Arc<str>| found.parameters.iter().flatten().position(|parameter| parameter == word);
        for token in found.body.iter().rev() {
            let argument = if let SwiftToken::Word(word) = token { position(word) } else { None };
            if let Some(argument) = argument {
                // An argument keeps what it was hidden from: other macros in it stand for theirs.
                for Pending { lexeme, hidden } in arguments[argument].iter().rev() {
                    pending.push_front(Pending { lexeme: lexeme.clone(), hidden: hidden.clone() });
                }
            } else {
                let lexeme = Lexeme { token: token.clone(), span };
                pending.push_front(Pending { lexeme, hidden: hidden.clone() });
            }
        }
        Ok(())
    }
}

/// The offset of a `#` in the body of a macro, outside of strings and comments.
fn position_of_hash(text: &str) -> Option<usize> {
    let mut in_string = false;
    let mut before = ' ';
    for (at, next) in text.char_indices() {
        match next {
            '"' if before != '\\' => in_string = !in_string,
            '/' if before == '/' && !in_string => return None,
            '#' if !in_string => return Some(at),
            _ => {}
        }
        before = next;
    }
    None
}

/// The names of parameters behind an opening parenthesis, and the number of tokens up to the
/// closing one.
fn parameters_of(tokens: &[Lexeme], sources: &Sources) -> Result<(Vec<Arc<str>>, usize), Problem> {
    let mut names = Vec::new();
    for (position, lexeme) in tokens.iter().enumerate() {
        let wants_name = position % 2 == 0;
        match &lexeme.token {
            SwiftToken::Mark(Mark::CloseParenthesis) if !wants_name || names.is_empty() => {
                return Ok((names, position + 1));
            }
            SwiftToken::Word(name) if wants_name => names.push(name.clone()),
            SwiftToken::Mark(Mark::Comma) if !wants_name => {}
            other => {
                let message = format!("the arguments of a macro are names with commas between them, not {other}");
                return Err(sources.problem(lexeme.span, message));
            }
        }
    }
    unreachable!("the last token is the end, which is none of these")
}

/// Takes the arguments in parentheses; `None` if the closing one is missing.
fn take_arguments(pending: &mut VecDeque<Pending>) -> Option<Vec<Vec<Pending>>> {
    pending.pop_front()?;
    let mut arguments = vec![Vec::new()];
    let mut depth = 0;
    loop {
        let next = pending.pop_front()?;
        match next.lexeme.token {
            SwiftToken::Mark(Mark::CloseParenthesis) if depth == 0 => return Some(arguments),
            SwiftToken::Mark(Mark::Comma) if depth == 0 => {
                arguments.push(Vec::new());
                continue;
            }
            SwiftToken::Mark(Mark::OpenParenthesis) => depth += 1,
            SwiftToken::Mark(Mark::CloseParenthesis) => depth -= 1,
            _ => {}
        }
        arguments.last_mut().expect("there is one").push(next);
    }
}
