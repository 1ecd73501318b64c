//! Definitions: functions, types, parameters and annotations.

use super::Parser;
use crate::ast::{
    Annotation, AppDefinition, AppWord, Expression, ExpressionKind, FunctionDefinition, NamedType, Parameter,
    StandardStream, StatementKind, TypeExpression,
};
use crate::token::{Mark, SwiftToken};
use base::Problem;
use std::sync::Arc;

/// The annotations whose values are expressions. Those of others are a word or a number.
const WITH_EXPRESSIONS: [&str; 4] = ["prio", "location", "soft_location", "par"];

impl Parser<'_> {
    /// Returns whether a definition of a function begins at the next token: its body follows its
    /// parentheses.
    pub(super) fn is_function(&self) -> bool {
        let mut ahead = 0;
        if self.mark() == Some(Mark::Less) {
            ahead = self.length_of_type_parameters();
        }
        if self.mark_at(ahead) == Some(Mark::OpenParenthesis) {
            ahead = self.length_of_pair(ahead);
        }
        if !self.is_name_at(ahead) {
            return false;
        }
        ahead += 1;
        if self.mark_at(ahead) == Some(Mark::OpenParenthesis) {
            ahead = self.length_of_pair(ahead);
        }
        matches!(self.token_at(ahead), SwiftToken::Mark(Mark::OpenBrace) | SwiftToken::Text(_))
    }

    fn length_of_type_parameters(&self) -> usize {
        let mut ahead = 1;
        while self.is_name_at(ahead) || self.mark_at(ahead) == Some(Mark::Comma) {
            ahead += 1;
        }
        ahead + usize::from(self.mark_at(ahead) == Some(Mark::Greater))
    }

    /// A function: `(int o) f (int i) { ... }`.
    pub(super) fn function(&mut self, annotations: Vec<Annotation>) -> Result<StatementKind, Problem> {
        let mut type_parameters = Vec::new();
        if self.mark() == Some(Mark::Less) {
            type_parameters =
                self.list((Mark::Less, Mark::Greater), |parser| parser.take_name("a name that stands for a type"))?;
        }
        let outputs = self.parameters()?;
        let name = self.take_name("the name of the function")?;
        let inputs = self.parameters()?;
        let (mut body, mut library_name) = (None, None);
        if self.mark() == Some(Mark::OpenBrace) {
            body = Some(self.block()?);
        } else {
            library_name = self.foreign_body()?;
        }
        let function = FunctionDefinition { name, type_parameters, outputs, inputs, body, library_name, annotations };
        Ok(StatementKind::Function(function))
    }

    /// A body that is not in Swift. In Tcl: package and version, then a function of it or code in
    /// brackets. A single string names a function of the library.
    fn foreign_body(&mut self) -> Result<Option<Arc<str>>, Problem> {
        let (mut strings, mut first) = (0, None);
        while let SwiftToken::Text(text) = self.token() {
            first = first.or_else(|| Some(text.clone()));
            strings += 1;
            self.at += 1;
        }
        if self.takes(Mark::OpenBracket) {
            if !matches!(self.token(), SwiftToken::Text(_)) {
                return Err(self.expected("a string with code in Tcl"));
            }
            self.at += 1;
            self.take(Mark::CloseBracket)?;
        }
        self.take_semicolon()?;
        Ok(first.filter(|_| strings == 1))
    }

    /// Parameters in parentheses; none without them.
    fn parameters(&mut self) -> Result<Vec<Parameter>, Problem> {
        if self.mark() != Some(Mark::OpenParenthesis) {
            return Ok(Vec::new());
        }
        self.list((Mark::OpenParenthesis, Mark::CloseParenthesis), Self::parameter)
    }

    /// A parameter: `int|float... v[]=1`, perhaps with a text that explains it.
    pub(super) fn parameter(&mut self) -> Result<Parameter, Problem> {
        let mut type_ = self.type_name()?;
        while self.takes(Mark::Bar) {
            type_.alternatives.extend(self.type_name()?.alternatives);
        }
        let is_variadic = self.takes(Mark::Ellipsis);
        let name = self.take_name("the name of a parameter")?;
        type_.indices = self.array_markers()?;
        let default = if self.takes(Mark::Assign) { Some(self.expression()?) } else { None };
        if self.takes(Mark::Colon) && !matches!(self.token(), SwiftToken::Text(_)) {
            return Err(self.expected("a string that explains the parameter"));
        }
        self.at += usize::from(matches!(self.token(), SwiftToken::Text(_)));
        Ok(Parameter { type_, name, is_variadic, default })
    }

    /// A type without arrays: `int`, `bag<file>`.
    pub(super) fn type_name(&mut self) -> Result<TypeExpression, Problem> {
        self.nested(|parser| {
            let span = parser.span();
            let name = parser.take_name("a type")?;
            let mut parameter = None;
            if parser.takes(Mark::Less) {
                parameter = Some(Box::new(parser.whole_type()?));
                parser.take(Mark::Greater)?;
            }
            Ok(TypeExpression { alternatives: vec![NamedType { name, parameter }], indices: Vec::new(), span })
        })
    }

    /// A type that stands alone, with its arrays: `int[string][]`.
    fn whole_type(&mut self) -> Result<TypeExpression, Problem> {
        let mut whole = self.type_name()?;
        whole.indices = self.array_markers()?;
        Ok(whole)
    }

    /// The types of the indices of arrays: `[string][]`.
    pub(super) fn array_markers(&mut self) -> Result<Vec<Option<TypeExpression>>, Problem> {
        let mut markers = Vec::new();
        while self.takes(Mark::OpenBracket) {
            let index = if self.mark() == Some(Mark::CloseBracket) { None } else { Some(self.whole_type()?) };
            self.take(Mark::CloseBracket)?;
            markers.push(index);
        }
        Ok(markers)
    }

    /// `type` or `typedef`.
    pub(super) fn type_definition(&mut self, is_same: bool) -> Result<StatementKind, Problem> {
        let name = self.take_name("the name of the type")?;
        if self.mark() == Some(Mark::OpenBrace) && !is_same {
            let fields = self.fields()?;
            return Ok(StatementKind::Struct { name, fields });
        }
        let base = self.whole_type()?;
        self.take_semicolon()?;
        Ok(StatementKind::Alias { name, base, is_same })
    }

    fn fields(&mut self) -> Result<Vec<(TypeExpression, crate::ast::SourceName)>, Problem> {
        self.take(Mark::OpenBrace)?;
        let mut fields = Vec::new();
        while !self.takes(Mark::CloseBrace) {
            let mut type_ = self.type_name()?;
            let name = self.take_name("the name of a field")?;
            type_.indices = self.array_markers()?;
            self.take_semicolon()?;
            fields.push((type_, name));
        }
        Ok(fields)
    }

    /// An annotation.
    pub(super) fn annotation(&mut self) -> Result<Annotation, Problem> {
        self.take(Mark::At)?;
        let name = self.take_name("the name of an annotation")?;
        if !self.takes(Mark::Assign) {
            return Ok(Annotation { name, value: None });
        }
        let value = if WITH_EXPRESSIONS.contains(&&*name.text) { self.expression()? } else { self.annotation_word()? };
        Ok(Annotation { name, value: Some(value) })
    }

    fn annotation_word(&mut self) -> Result<Expression, Problem> {
        let span = self.span();
        let kind = match self.token().clone() {
            SwiftToken::Int(number) => ExpressionKind::Int(number),
            SwiftToken::Word(word) => ExpressionKind::Variable(word),
            _ => return Err(self.expected("a word or a number")),
        };
        self.at += 1;
        Ok(Expression { kind, span })
    }

    /// A function that runs a program: `app (file o) f (file i) { "cat" i @stdout=o }`.
    pub(super) fn app(&mut self, annotations: Vec<Annotation>) -> Result<StatementKind, Problem> {
        let outputs = self.parameters()?;
        let name = self.take_name("the name of the app function")?;
        let inputs = self.parameters()?;
        self.take(Mark::OpenBrace)?;
        let (command, streams) = match self.command_line() {
            Ok(found) => found,
            Err(problem) => {
                // The rest of the body would be told as one problem after another.
                self.problems.push(problem);
                while !matches!(self.token(), SwiftToken::Mark(Mark::CloseBrace) | SwiftToken::End) {
                    self.at += 1;
                }
                self.takes(Mark::CloseBrace);
                return Ok(StatementKind::Pragma);
            }
        };
        if command.is_empty() {
            let message = format!("the app function `{}` names no program", name.text);
            return Err(self.sources.problem(name.span, message));
        }
        Ok(StatementKind::App(AppDefinition { name, outputs, inputs, command, streams, annotations }))
    }

    /// The words of a command line and its standard streams, up to the closing brace.
    #[expect(clippy::type_complexity, reason = "it is taken apart at once")]
    fn command_line(&mut self) -> Result<(Vec<AppWord>, Vec<(StandardStream, Expression)>), Problem> {
        let (mut command, mut streams) = (Vec::new(), Vec::new());
        while !matches!(self.mark(), Some(Mark::CloseBrace | Mark::Semicolon)) {
            match self.stream() {
                Some(stream) => {
                    self.at += 3;
                    streams.push((stream, self.expression()?));
                }
                None if streams.is_empty() => command.push(self.app_word()?),
                None => {
                    let problem = self.expected("`}`, or another of @stdin=, @stdout= and @stderr=,");
                    return Err(problem.hint("arguments stand before the standard streams"));
                }
            }
        }
        self.takes(Mark::Semicolon);
        self.take(Mark::CloseBrace)?;
        Ok((command, streams))
    }

    /// The standard stream that is named next, if one is.
    fn stream(&self) -> Option<StandardStream> {
        if self.mark() != Some(Mark::At) || self.mark_at(2) != Some(Mark::Assign) {
            return None;
        }
        let SwiftToken::Word(word) = self.token_at(1) else { return None };
        match &**word {
            "stdin" => Some(StandardStream::Input),
            "stdout" => Some(StandardStream::Output),
            "stderr" => Some(StandardStream::Error),
            _ => None,
        }
    }

    /// A word of a command line: a value, a variable, or an expression in parentheses.
    fn app_word(&mut self) -> Result<AppWord, Problem> {
        if self.mark() == Some(Mark::At) {
            self.at += 1;
            return Ok(AppWord::Path(self.take_name("the name of a file")?));
        }
        let is_sign = self.mark() == Some(Mark::Minus);
        if is_sign && !matches!(self.token_at(1), SwiftToken::Int(_) | SwiftToken::Float(_)) {
            let hint = "a flag is a string: \"-n\"";
            return Err(self.expected("a word of the command line").hint(hint));
        }
        if let Some(hint) = self.word_hint() {
            return Err(self.expected("a word of the command line").hint(hint));
        }
        Ok(AppWord::Value(if is_sign { self.unary()? } else { self.primary_word()? }))
    }

    /// The remedy if what is next is no word of a command line, but of the shell or of an
    /// expression.
    fn word_hint(&self) -> Option<&'static str> {
        match self.token() {
            SwiftToken::Mark(Mark::Less) => Some("a file for standard input is given as @stdin=f"),
            SwiftToken::Mark(Mark::Greater) => Some("a file for standard output is given as @stdout=f"),
            SwiftToken::Mark(Mark::Bar) => Some("a pipe is for the shell: \"sh\" \"-c\" \"a | b\""),
            SwiftToken::Mark(Mark::Assign) => Some("standard streams begin with @: @stdout=f"),
            SwiftToken::Mark(Mark::Plus | Mark::Times | Mark::Divide | Mark::Percent) => {
                Some("an expression on a command line needs parentheses around it: (\"a\" + b)")
            }
            _ => None,
        }
    }

    /// A variable without what may follow it, or another value.
    fn primary_word(&mut self) -> Result<Expression, Problem> {
        let span = self.span();
        let word = match self.token() {
            SwiftToken::Word(word) if self.is_name_at(0) => word.clone(),
            _ => return self.primary(),
        };
        // Behind a blank, `(` begins the next word.
        let is_joined = self.tokens[(self.at + 1).min(self.tokens.len() - 1)].span == span.plus(word.len());
        if is_joined && matches!(self.mark_at(1), Some(Mark::OpenParenthesis | Mark::OpenBracket | Mark::Dot)) {
            let problem = self.problem(format!("`{word}` is followed by {}", self.token_at(1)));
            return Err(problem.hint("an expression on a command line needs parentheses around it: (f(x))"));
        }
        self.at += 1;
        Ok(Expression { kind: ExpressionKind::Variable(word), span })
    }
}
