//! Statements.

use super::{PROBLEMS_MAX, Parser};
use crate::ast::{
    Annotation, AssignmentStatement, AssignmentTarget, Declaration, DeclaredVariable, Expression, ExpressionKind,
    MemberStep, SourceName, Statement, StatementBlock, StatementKind, TypeExpression,
};
use crate::token::{Mark, SwiftToken};
use base::Problem;

impl Parser<'_> {
    /// Statements up to a token, which is not taken.
    pub(super) fn statements(&mut self, end: &SwiftToken) -> Vec<Statement> {
        let mut statements = Vec::new();
        loop {
            while self.takes(Mark::Semicolon) {}
            if self.token() == end || *self.token() == SwiftToken::End || self.is_case(end) {
                return statements;
            }
            let at = self.at;
            match self.statement() {
                Ok(statement) => statements.push(statement),
                Err(problem) => {
                    self.problems.push(problem);
                    if self.problems.len() >= PROBLEMS_MAX {
                        self.at = self.tokens.len() - 1;
                    }
                    self.skip_statement();
                    // A brace that closes nothing.
                    self.at += usize::from(self.at == at);
                }
            }
        }
    }

    /// Returns whether the next case of a `switch` begins here.
    fn is_case(&self, end: &SwiftToken) -> bool {
        *end == SwiftToken::Mark(Mark::CloseBrace) && (self.token().is_word("case") || self.token().is_word("default"))
    }

    /// Statements in braces.
    pub(super) fn block(&mut self) -> Result<StatementBlock, Problem> {
        self.nested(|parser| {
            let span = parser.take(Mark::OpenBrace)?;
            let statements = parser.statements(&SwiftToken::Mark(Mark::CloseBrace));
            if !parser.takes(Mark::CloseBrace) {
                let problem = parser.sources.problem(span, "this `{` has no `}`");
                return Err(if parser.token().is_word("case") { parser.expected("`}`") } else { problem });
            }
            Ok(StatementBlock { statements, span })
        })
    }

    fn statement(&mut self) -> Result<Statement, Problem> {
        let span = self.span();
        let kind = self.nested(Self::statement_kind)?;
        Ok(Statement { kind, span })
    }

    fn statement_kind(&mut self) -> Result<StatementKind, Problem> {
        match self.token().clone() {
            SwiftToken::Word(word) => match &*word {
                "import" => self.import(),
                "pragma" => self.pragma(),
                "type" => self.behind(|parser| parser.type_definition(false)),
                "typedef" => self.behind(|parser| parser.type_definition(true)),
                "app" => self.behind(|parser| parser.app(Vec::new())),
                "global" => self.constant(),
                "if" => self.behind(Self::if_),
                "switch" => self.behind(Self::switch),
                "foreach" => self.behind(|parser| parser.foreach(Vec::new())),
                "for" => self.behind(|parser| parser.for_(Vec::new())),
                "iterate" => self.behind(Self::iterate),
                "wait" => self.behind(Self::wait),
                "while" | "do"
                    if self.mark_at(1) == Some(Mark::OpenParenthesis) || self.mark_at(1) == Some(Mark::OpenBrace) =>
                {
                    let hint = "use for (...; ...; ...) { ... }, or iterate i { ... } until (...)";
                    Err(self.problem(format!("there is no `{word}`")).hint(hint))
                }
                "arguments" | "flags" if self.declares_arguments() => self.arguments(&word),
                _ if self.is_function() => self.function(Vec::new()),
                _ => self.chain(Vec::new()),
            },
            SwiftToken::Mark(Mark::OpenBrace) => Ok(StatementKind::Block(self.block()?)),
            SwiftToken::Mark(Mark::At) => self.annotated(),
            SwiftToken::Mark(Mark::OpenParenthesis | Mark::Less) if self.is_function() => self.function(Vec::new()),
            SwiftToken::Mark(Mark::OpenParenthesis | Mark::OpenBracket) => self.chain(Vec::new()),
            SwiftToken::Mark(Mark::CloseBrace) => Err(self.problem("this `}` closes nothing")),
            _ => Err(self.expected("a statement")),
        }
    }

    /// The rest of a statement behind its keyword.
    fn behind(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<StatementKind, Problem>,
    ) -> Result<StatementKind, Problem> {
        self.at += 1;
        parse(self)
    }

    fn import(&mut self) -> Result<StatementKind, Problem> {
        self.at += 1;
        let span = self.span();
        let path = if let SwiftToken::Text(text) = self.token().clone() {
            self.at += 1;
            vec![SourceName { text, span }]
        } else {
            let mut path = vec![self.take_name("the name of a module")?];
            while self.takes(Mark::Dot) {
                path.push(self.take_name("the name of a module")?);
            }
            path
        };
        self.take_semicolon()?;
        Ok(StatementKind::Import { path })
    }

    fn pragma(&mut self) -> Result<StatementKind, Problem> {
        while !matches!(self.token(), SwiftToken::Mark(Mark::Semicolon) | SwiftToken::End) {
            self.at += 1;
        }
        self.take_semicolon()?;
        Ok(StatementKind::Pragma)
    }

    /// Returns whether `arguments` or `flags` declares arguments here: these words may be names
    /// too.
    fn declares_arguments(&self) -> bool {
        let is_type = |ahead| {
            self.is_name_at(ahead) && (self.is_name_at(ahead + 1) || self.mark_at(ahead + 1) == Some(Mark::Colon))
        };
        self.mark_at(1) == Some(Mark::OpenParenthesis)
            && (is_type(2) || self.mark_at(2) == Some(Mark::CloseParenthesis))
    }

    fn arguments(&mut self, word: &str) -> Result<StatementKind, Problem> {
        self.at += 1;
        let declared = self.list((Mark::OpenParenthesis, Mark::CloseParenthesis), |parser| {
            // `description : "text"` explains the program.
            if parser.token().is_word("description") && parser.mark_at(1) == Some(Mark::Colon) {
                parser.at += 2;
                return parser.expression().map(|_| None);
            }
            parser.parameter().map(Some)
        })?;
        self.take_semicolon()?;
        let declared = declared.into_iter().flatten().collect();
        Ok(StatementKind::Arguments { declared, are_flags: word == "flags" })
    }

    /// `global const int x = 1;`.
    fn constant(&mut self) -> Result<StatementKind, Problem> {
        self.at += 1;
        if !self.takes_word("const") {
            return Err(self.expected("`const`"));
        }
        let type_ = self.type_name()?;
        let variable = self.declared(&type_)?;
        self.take_semicolon()?;
        Ok(StatementKind::Declaration(Declaration { variables: vec![variable], is_constant: true }))
    }

    /// A definition, a loop or a call with annotations before it.
    fn annotated(&mut self) -> Result<StatementKind, Problem> {
        let mut annotations: Vec<Annotation> = Vec::new();
        while self.mark() == Some(Mark::At) {
            if self.is_name_at(1) && self.mark_at(2) == Some(Mark::OpenParenthesis) && annotations.is_empty() {
                // An old call `@f(x)`, or an annotation before outputs in parentheses.
                self.at += 1;
                if !self.is_function_behind_annotation() {
                    return self.chain(annotations);
                }
                self.at -= 1;
            }
            annotations.push(self.annotation()?);
        }
        match self.token().clone() {
            SwiftToken::Word(word) if &*word == "app" => self.behind(|parser| parser.app(annotations)),
            SwiftToken::Word(word) if &*word == "foreach" => self.behind(|parser| parser.foreach(annotations)),
            SwiftToken::Word(word) if &*word == "for" => self.behind(|parser| parser.for_(annotations)),
            _ if self.is_function() => self.function(annotations),
            _ => self.chain(annotations),
        }
    }

    /// Returns whether the word here is an annotation of a function that begins behind it.
    fn is_function_behind_annotation(&self) -> bool {
        let outputs_end = self.length_of_pair(1);
        self.is_name_at(outputs_end)
    }

    /// A declaration, an assignment or a call, and what comes behind it in a chain.
    fn chain(&mut self, annotations: Vec<Annotation>) -> Result<StatementKind, Problem> {
        let span = self.span();
        let first = self.chainable(annotations)?;
        if self.takes(Mark::Chain) {
            let next = self.statement()?;
            return Ok(StatementKind::Chain(Box::new(Statement { kind: first, span }), Box::new(next)));
        }
        self.take_semicolon()?;
        Ok(first)
    }

    fn chainable(&mut self, annotations: Vec<Annotation>) -> Result<StatementKind, Problem> {
        if annotations.is_empty() && self.is_declaration() {
            return self.declaration();
        }
        if annotations.is_empty() && self.is_update() {
            return Err(self.problem("updateable variables are not supported"));
        }
        let is_call = self.is_name_at(0) && self.mark_at(1) == Some(Mark::OpenParenthesis);
        if is_call {
            let function = self.take_name("a function")?;
            return Ok(StatementKind::Expression(self.call(function, annotations)?));
        }
        if !annotations.is_empty() {
            return Err(self
                .expected("a call of a function")
                .hint("an annotation is for a call, a loop or a definition: @prio=1 f(x)"));
        }
        if self.is_name_at(0) && matches!(self.token_at(1), SwiftToken::Word(_)) {
            self.at += 1;
            return Err(self.take_name("the name of a variable").expect_err("it is a word of the language"));
        }
        if self.mark() == Some(Mark::OpenBracket) {
            return self.files();
        }
        let targets = self.targets()?;
        let appends = self.mark() == Some(Mark::Append);
        if self.takes(Mark::Assign) || self.takes(Mark::Append) {
            return self.assignment(targets, appends);
        }
        match <[AssignmentTarget; 1]>::try_from(targets) {
            // A variable that a chain waits for.
            Ok([AssignmentTarget { variable: SourceName { text, span }, path }])
                if path.is_empty() && self.mark() == Some(Mark::Chain) =>
            {
                Ok(StatementKind::Expression(Expression { kind: ExpressionKind::Variable(text), span }))
            }
            _ => Err(self.expected("`=`")),
        }
    }

    fn assignment(&mut self, targets: Vec<AssignmentTarget>, appends: bool) -> Result<StatementKind, Problem> {
        let mut values = vec![self.expression()?];
        while self.takes(Mark::Comma) {
            values.push(self.expression()?);
        }
        Ok(StatementKind::Assignment(AssignmentStatement { targets, values, appends }))
    }

    /// Files that a call writes: `[a, b] = f(x)`.
    fn files(&mut self) -> Result<StatementKind, Problem> {
        let files = self.list((Mark::OpenBracket, Mark::CloseBracket), |parser| parser.take_name("a file"))?;
        self.take(Mark::Assign)?;
        let value = self.expression()?;
        let ExpressionKind::Call(call) = value.kind else {
            let problem =
                self.sources.problem(value.span, "files in brackets are written by a call of an app function");
            return Err(problem.hint("an array is assigned by its name: A = [1, 2];"));
        };
        Ok(StatementKind::Files { files, call })
    }

    fn targets(&mut self) -> Result<Vec<AssignmentTarget>, Problem> {
        if self.mark() == Some(Mark::OpenParenthesis) {
            return self.list((Mark::OpenParenthesis, Mark::CloseParenthesis), Self::target);
        }
        let mut targets = vec![self.target()?];
        while self.takes(Mark::Comma) {
            targets.push(self.target()?);
        }
        Ok(targets)
    }

    fn target(&mut self) -> Result<AssignmentTarget, Problem> {
        let variable = self.take_name("a variable")?;
        let mut path = Vec::new();
        loop {
            if self.takes(Mark::OpenBracket) {
                if self.mark() == Some(Mark::CloseBracket) {
                    return Err(self
                        .expected("an index")
                        .hint("the brackets of an array stand behind its name: int A[];"));
                }
                path.push(MemberStep::Index(self.expression()?));
                self.take(Mark::CloseBracket)?;
            } else if self.takes(Mark::Dot) {
                path.push(MemberStep::Field(self.take_name("the name of a field")?));
            } else {
                return Ok(AssignmentTarget { variable, path });
            }
        }
    }

    /// Returns whether a declaration begins here: a name follows a type.
    fn is_declaration(&self) -> bool {
        if !self.is_name_at(0) {
            return false;
        }
        let mut ahead = 1;
        if self.mark_at(ahead) == Some(Mark::Less) {
            let mut depth = 1;
            while depth > 0 {
                ahead += 1;
                match self.mark_at(ahead) {
                    Some(Mark::Less) => depth += 1,
                    Some(Mark::Greater) => depth -= 1,
                    Some(Mark::OpenBracket | Mark::CloseBracket) => {}
                    _ if self.is_name_at(ahead) => {}
                    _ => return false,
                }
            }
            ahead += 1;
        }
        self.is_name_at(ahead)
    }

    /// Returns whether a variable is updated here: `x<incr> := 1`.
    fn is_update(&self) -> bool {
        self.mark_at(1) == Some(Mark::Less)
            && self.mark_at(3) == Some(Mark::Greater)
            && self.mark_at(4) == Some(Mark::Update)
    }

    fn declaration(&mut self) -> Result<StatementKind, Problem> {
        let type_ = self.type_name()?;
        let mut variables = vec![self.declared(&type_)?];
        while self.takes(Mark::Comma) {
            variables.push(self.declared(&type_)?);
        }
        Ok(StatementKind::Declaration(Declaration { variables, is_constant: false }))
    }

    /// A variable behind its type: `A[string]<"path"> = value`.
    fn declared(&mut self, type_: &TypeExpression) -> Result<DeclaredVariable, Problem> {
        let name = self.take_name("the name of a variable")?;
        let indices = self.array_markers()?;
        let (mut mapping, mut is_assigned) = (None, false);
        if self.takes(Mark::Less) {
            mapping = Some(self.mapped_path()?);
            // `<"a.txt">= f()` without a blank has another mark in it.
            is_assigned = self.takes(Mark::AtLeast);
            if !is_assigned {
                self.take(Mark::Greater)?;
            }
        }
        let value = if is_assigned || self.takes(Mark::Assign) { Some(self.expression()?) } else { None };
        Ok(DeclaredVariable { type_: TypeExpression { indices, ..type_.clone() }, name, mapping, value })
    }

    fn condition(&mut self) -> Result<Expression, Problem> {
        self.take(Mark::OpenParenthesis)?;
        let condition = self.expression()?;
        self.take(Mark::CloseParenthesis)?;
        Ok(condition)
    }

    fn if_(&mut self) -> Result<StatementKind, Problem> {
        let condition = self.condition()?;
        let then = self.block()?;
        let mut otherwise = None;
        if self.takes_word("else") {
            let span = self.span();
            otherwise = Some(if self.token().is_word("if") {
                StatementBlock { statements: vec![self.statement()?], span }
            } else {
                self.block()?
            });
        }
        Ok(StatementKind::If { condition, then, otherwise })
    }

    fn switch(&mut self) -> Result<StatementKind, Problem> {
        let value = self.condition()?;
        self.take(Mark::OpenBrace)?;
        let mut cases = Vec::new();
        while !self.takes(Mark::CloseBrace) {
            let span = self.span();
            let case = if self.takes_word("default") {
                None
            } else if self.takes_word("case") {
                Some(self.case_number()?)
            } else {
                return Err(self.expected("`case`, `default` or `}`"));
            };
            self.take(Mark::Colon)?;
            let statements = self.statements(&SwiftToken::Mark(Mark::CloseBrace));
            cases.push((case, StatementBlock { statements, span }));
        }
        Ok(StatementKind::Switch { value, cases })
    }

    fn case_number(&mut self) -> Result<i64, Problem> {
        let is_negative = self.takes(Mark::Minus);
        let SwiftToken::Int(number) = *self.token() else { return Err(self.expected("a whole number")) };
        self.at += 1;
        Ok(if is_negative { -number } else { number })
    }

    fn foreach(&mut self, annotations: Vec<Annotation>) -> Result<StatementKind, Problem> {
        let value = self.take_name("the variable of the loop")?;
        let index = if self.takes(Mark::Comma) { Some(self.take_name("the variable of the index")?) } else { None };
        if !self.takes_word("in") {
            return Err(self.expected("`in`").hint("foreach value, index in array { ... }"));
        }
        let array = self.expression()?;
        let body = self.block()?;
        Ok(StatementKind::Foreach { value, index, array, body, annotations })
    }

    fn for_(&mut self, annotations: Vec<Annotation>) -> Result<StatementKind, Problem> {
        self.take(Mark::OpenParenthesis)?;
        let (mut variables, mut updates) = (Vec::new(), Vec::new());
        while self.mark() != Some(Mark::Semicolon) {
            variables.push(self.loop_variable()?);
            if !self.takes(Mark::Comma) {
                break;
            }
        }
        self.take(Mark::Semicolon)?;
        let condition = self.expression()?;
        self.take(Mark::Semicolon)?;
        while self.mark() != Some(Mark::CloseParenthesis) {
            updates.push(self.loop_update()?);
            if !self.takes(Mark::Comma) {
                break;
            }
        }
        self.take(Mark::CloseParenthesis)?;
        let body = self.block()?;
        Ok(StatementKind::For { variables, condition, updates, body, annotations })
    }

    fn loop_variable(&mut self) -> Result<(Option<TypeExpression>, SourceName, Expression), Problem> {
        if !self.is_declaration() {
            let (name, value) = self.loop_update()?;
            return Ok((None, name, value));
        }
        let type_ = self.type_name()?;
        let DeclaredVariable { type_, name, value, .. } = self.declared(&type_)?;
        let lacking = || self.sources.problem(name.span, format!("`{}` needs a first value", name.text));
        let value = value.ok_or_else(lacking)?;
        Ok((Some(type_), name, value))
    }

    fn loop_update(&mut self) -> Result<(SourceName, Expression), Problem> {
        let name = self.take_name("a variable of the loop")?;
        self.take(Mark::Assign)?;
        Ok((name, self.expression()?))
    }

    fn iterate(&mut self) -> Result<StatementKind, Problem> {
        let variable = self.take_name("the variable of the loop")?;
        let body = self.block()?;
        if !self.takes_word("until") {
            return Err(self.expected("`until`").hint("iterate i { ... } until (condition);"));
        }
        let until = self.condition()?;
        Ok(StatementKind::Iterate { variable, body, until })
    }

    fn wait(&mut self) -> Result<StatementKind, Problem> {
        let is_deep = self.takes_word("deep");
        let values = self.list((Mark::OpenParenthesis, Mark::CloseParenthesis), Self::expression)?;
        let body = self.block()?;
        Ok(StatementKind::Wait { values, is_deep, body })
    }
}
