//! The compiler of a tool's templates: resolves every name to a parameter that is allowed in its
//! position.
//!
//! Only [`check_tool`] decides whether a tool is valid, for tool files and for descriptors. It
//! reports the part of the tool that is wrong; the caller knows the position of that part in the
//! text.

use crate::shell_words;
use crate::template::{Token, is_identifier, tokens};
use crate::tool::{ArrayForm, ConfigType, ConfigValue, Param, ParamKind, Tool};
use base::Problem;

/// The most parameters of one tool: `FileBinding::param` is a `u16`, and users read the list.
pub const PARAMS_MAX: usize = 1_000;

/// Names with a meaning of their own in templates. No parameter may have them.
pub const RESERVED_NAMES: [&str; 4] = ["here", "element", "index", "number"];

/// A part of a tool that can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolPart {
    /// The tool as a whole, or its name.
    Tool,
    /// An item of the command, by its index.
    Command(usize),
    /// `stdin`.
    Stdin,
    /// `stdout`.
    Stdout,
    /// `stderr`.
    Stderr,
    /// A variable of `env`, by its index.
    Env(usize),
    /// A parameter, by its index in `Tool::params`.
    Param(usize),
    /// The `file` template, `extension` or `default` of a parameter.
    ParamValue(usize),
}

/// A problem with one part of a tool. The problem has no position in a text yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolProblem {
    /// The part that is wrong.
    pub part: ToolPart,
    /// The problem; its message names the tool and the part.
    pub problem: Problem,
}

/// All problems of `tool`; empty if it is valid.
pub fn check_tool(tool: &Tool) -> Vec<ToolProblem> {
    TemplateCompiler::new(tool).compile().err().unwrap_or_default()
}

/// The parsed templates of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CompiledTool {
    pub command: Vec<Vec<TemplatePiece>>,
    pub stdin: Option<u16>,
    pub stdout: Option<u16>,
    pub stderr: Option<u16>,
    pub env: Vec<Vec<TemplatePiece>>,
    /// The file name template of each parameter that has one.
    pub files: Vec<Option<Vec<TemplatePiece>>>,
    /// Output parameters, each after those whose names its own name is made of.
    pub outputs: Vec<u16>,
}

/// A piece of a template, with its name resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplatePiece {
    Text(Box<str>),
    Here,
    /// The path of a file parameter, or a part of it.
    Path(u16, PathPart),
    /// The value of a config parameter.
    Value(u16),
    /// Text that is inserted if a boolean config is true, or if an optional input is bound.
    Conditional(u16, Box<str>),
    Element,
    Index,
    Number,
}

/// A part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathPart {
    Whole,
    /// The file name without its extension.
    Name,
    /// The file name.
    File,
    Ext,
    Dir,
}

impl CompiledTool {
    pub fn new(tool: &Tool) -> Result<Self, Vec<ToolProblem>> {
        TemplateCompiler::new(tool).compile()
    }
}

struct TemplateCompiler<'a> {
    tool: &'a Tool,
    /// For each parameter, whether a template names it.
    used: Vec<bool>,
    problems: Vec<ToolProblem>,
}

impl<'a> TemplateCompiler<'a> {
    fn new(tool: &'a Tool) -> Self {
        Self { tool, used: vec![false; tool.params.len()], problems: Vec::new() }
    }

    fn compile(mut self) -> Result<CompiledTool, Vec<ToolProblem>> {
        let tool = self.tool;
        self.check_values();
        if let Some(word) = shell_words::find_refused(tool) {
            self.refuse_with(ToolPart::Command(word.item), &word.message, &word.hint);
        }
        let command =
            (0..tool.command.len()).map(|item| self.template(ToolPart::Command(item), &tool.command[item])).collect();
        let env = (0..tool.env.len()).map(|item| self.template(ToolPart::Env(item), &tool.env[item].1)).collect();
        let stdin = tool.stdin.as_ref().and_then(|text| self.stream(ToolPart::Stdin, text));
        let stdout = tool.stdout.as_ref().and_then(|text| self.stream(ToolPart::Stdout, text));
        let stderr = tool.stderr.as_ref().and_then(|text| self.stream(ToolPart::Stderr, text));
        if stdout.is_some() && stdout == stderr {
            self.refuse(ToolPart::Stderr, "is the file of standard output; give it one of its own");
        }
        let files: Vec<_> = (0..tool.params.len()).map(|param| self.file_template(param)).collect();
        let outputs = self.order_outputs(&files);
        if !tool.command.is_empty() {
            self.check_used();
        }
        if self.problems.is_empty() {
            Ok(CompiledTool { command, stdin, stdout, stderr, env, files, outputs })
        } else {
            Err(self.problems)
        }
    }

    // --- values that are not templates ---

    fn check_values(&mut self) {
        let tool = self.tool;
        if !is_identifier(&tool.name) {
            self.refuse(ToolPart::Tool, "a tool's name is made of letters, digits and `_`");
        }
        if tool.command.first().is_none_or(String::is_empty) {
            self.refuse(ToolPart::Tool, "`command` is empty; its first item is the program");
        }
        if tool.resources.cpus == 0 {
            self.refuse(ToolPart::Tool, "`cpus` is at least 1");
        }
        if tool.timeout_ms == Some(0) {
            self.refuse(ToolPart::Tool, "`timeout` is more than 0");
        }
        if tool.params.len() > PARAMS_MAX {
            self.refuse(ToolPart::Tool, &format!("more than {PARAMS_MAX} parameters"));
        }
        for (index, (name, value)) in tool.env.iter().enumerate() {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                self.refuse(ToolPart::Env(index), "this is not a name and value of a variable");
            }
        }
        for (index, param) in tool.params.iter().enumerate().take(PARAMS_MAX) {
            self.check_param(index, param);
        }
    }

    fn check_param(&mut self, index: usize, param: &Param) {
        if !is_identifier(&param.name) {
            self.refuse(ToolPart::Param(index), "a parameter's name is made of letters, digits and `_`");
        }
        if RESERVED_NAMES.contains(&param.name.as_str()) {
            self.refuse(ToolPart::Param(index), "templates already know another thing by this name");
        }
        if self.tool.param(&param.name) != Some(index) {
            self.refuse(ToolPart::Param(index), "declared twice");
        }
        match &param.kind {
            ParamKind::Config { of, default: Some(value) } if !of.accepts(value) => {
                let message = format!("the default {} is no {}", value.quoted(), of.name());
                self.refuse(ToolPart::ParamValue(index), &message);
            }
            ParamKind::Output { file: Some(_), extension, .. } if !extension.is_empty() => {
                self.refuse(ToolPart::ParamValue(index), "`file` and `extension` exclude each other");
            }
            ParamKind::Output { extension, .. } if extension.contains(['/', '\0', '\n']) => {
                self.refuse(ToolPart::ParamValue(index), "an extension holds no `/` and no line end");
            }
            ParamKind::Output { extension, .. } if extension.starts_with(|c: char| c.is_alphanumeric()) => {
                let hint = format!("write `.{extension}`");
                self.refuse_with(ToolPart::ParamValue(index), "an extension begins with its dot", &hint);
            }
            _ => {}
        }
    }

    // --- templates ---

    fn template(&mut self, part: ToolPart, text: &str) -> Vec<TemplatePiece> {
        if text.contains('\0') {
            self.refuse(part, "holds a zero byte");
        }
        let tokens = match tokens(text) {
            Ok(tokens) => tokens,
            Err(message) => {
                self.refuse(part, &message);
                return Vec::new();
            }
        };
        let pieces: Vec<TemplatePiece> = tokens.into_iter().filter_map(|token| self.piece(part, token)).collect();
        self.check_arrays(part, &pieces);
        pieces
    }

    fn piece(&mut self, part: ToolPart, token: Token<'_>) -> Option<TemplatePiece> {
        match token {
            Token::Text(text) => Some(TemplatePiece::Text(text.into())),
            Token::Name { name: "here", part: None } if !in_file_name(part) => Some(TemplatePiece::Here),
            Token::Name { name: "element", part: None } if in_file_name(part) => Some(TemplatePiece::Element),
            Token::Name { name: "index", part: None } if in_file_name(part) => Some(TemplatePiece::Index),
            Token::Name { name: "number", part: None } if in_file_name(part) => Some(TemplatePiece::Number),
            Token::Name { name, part: of_path } => self.named(part, name, of_path),
            Token::Conditional { name, text } => self.conditional(part, name, text),
        }
    }

    fn named(&mut self, part: ToolPart, name: &str, of_path: Option<&str>) -> Option<TemplatePiece> {
        let (index, param) = self.lookup(part, name)?;
        let piece = match (&param.kind, of_path) {
            (ParamKind::Config { of, .. }, None) => {
                let fits = *of != ConfigType::Strings || matches!(part, ToolPart::Command(1..));
                if !fits {
                    let message = format!("`{name}` gives several arguments, so only the command can name it");
                    self.refuse(part, &message);
                }
                return fits.then_some(TemplatePiece::Value(index));
            }
            (ParamKind::Config { .. }, Some(_)) => {
                self.refuse(part, &format!("config `{name}` is a value, it has no parts; write `{{{name}}}`"));
                return None;
            }
            (_, of_path) => TemplatePiece::Path(index, self.path_part(part, of_path)?),
        };
        self.check_path(part, &piece, param).then_some(piece)
    }

    fn path_part(&mut self, part: ToolPart, of_path: Option<&str>) -> Option<PathPart> {
        match of_path {
            None => Some(PathPart::Whole),
            Some("name" | "stem") => Some(PathPart::Name),
            Some("file") => Some(PathPart::File),
            Some("ext") => Some(PathPart::Ext),
            Some("dir") => Some(PathPart::Dir),
            Some(other) => {
                let message = format!("unknown part `.{other}` of a path");
                let problem = Problem::new(self.with_part(part, &message));
                let problem = problem.nearest(other, ["name", "file", "ext", "dir"]);
                self.problems.push(ToolProblem { part, problem });
                None
            }
        }
    }

    /// Checks whether a path may occur in `part`; reports the problem if not.
    fn check_path(&mut self, part: ToolPart, piece: &TemplatePiece, param: &Param) -> bool {
        let TemplatePiece::Path(index, of_path) = piece else { return true };
        let name = &param.name;
        let array = param.kind.array();
        let reason = match part {
            ToolPart::ParamValue(own) if own == usize::from(*index) => {
                format!("the name of `{name}` cannot be made of itself")
            }
            ToolPart::ParamValue(_) if matches!(of_path, PathPart::Whole | PathPart::Dir) => {
                format!("a file name is made of names: write `{{{name}.name}}` or `{{{name}.file}}`")
            }
            ToolPart::ParamValue(own) if array.is_some() && self.tool.params[own].kind.array().is_none() => {
                format!(
                    "`{name}` takes arrays, so it has no single name; an output with `array` takes one for each member"
                )
            }
            ToolPart::ParamValue(_) if param.kind.is_optional() => {
                format!("`{name}` is optional: a file name cannot need it")
            }
            ToolPart::Command(0) if array.is_some() || param.kind.is_optional() => {
                format!("the program cannot be the array or optional parameter `{name}`")
            }
            ToolPart::Env(_) if matches!(array, Some(ArrayForm::Args | ArrayForm::Words)) => {
                format!("`{name}` gives several arguments; a variable holds one value: use array = \"list\" or \"dir\"")
            }
            ToolPart::ParamValue(_) => return true,
            _ if array == Some(ArrayForm::Dir) && *of_path != PathPart::Whole => {
                format!("`{name}` is passed as a directory, so its path has no parts; write `{{{name}}}`")
            }
            _ => return true,
        };
        self.refuse(part, &reason);
        false
    }

    fn conditional(&mut self, part: ToolPart, name: &str, text: &str) -> Option<TemplatePiece> {
        let (index, param) = self.lookup(part, name)?;
        let fits = match &param.kind {
            ParamKind::Config { of, .. } => *of == ConfigType::Boolean,
            kind => kind.is_optional() && !in_file_name(part),
        };
        if !fits {
            let message =
                format!("`{{{name}?...}}` needs a boolean config or an optional input, and `{name}` is neither");
            self.refuse(part, &message);
        }
        fits.then(|| TemplatePiece::Conditional(index, text.into()))
    }

    fn lookup(&mut self, part: ToolPart, name: &str) -> Option<(u16, &'a Param)> {
        let tool = self.tool;
        if let Some(index) = tool.param(name) {
            self.used[index] = true;
            // Above `PARAMS_MAX` the tool is refused anyway.
            return Some((u16::try_from(index).unwrap_or(u16::MAX), &tool.params[index]));
        }
        let problem = Problem::new(self.with_part(part, &format!("unknown name `{name}`")));
        let own = if in_file_name(part) { &RESERVED_NAMES[1..] } else { &RESERVED_NAMES[..1] };
        let known = tool.params.iter().map(|param| param.name.as_str()).chain(own.iter().copied());
        self.problems.push(ToolProblem { part, problem: problem.nearest(name, known) });
        None
    }

    /// Refuses an item that names several arrays, because an item expands over one array.
    fn check_arrays(&mut self, part: ToolPart, pieces: &[TemplatePiece]) {
        let mut arrays = pieces.iter().filter_map(|piece| match piece {
            TemplatePiece::Path(index, _) | TemplatePiece::Value(index)
                if self.tool.params[usize::from(*index)].kind.is_several_arguments() =>
            {
                Some(*index)
            }
            _ => None,
        });
        let first = arrays.next();
        if arrays.any(|other| Some(other) != first) {
            self.refuse(part, "names two parameters of several arguments; an item takes one");
        }
    }

    /// The parameter of `stdin = "{p}"`, `stdout = "{p}"` or `stderr = "{p}"`.
    fn stream(&mut self, part: ToolPart, text: &str) -> Option<u16> {
        let pieces = self.template(part, text);
        let [TemplatePiece::Path(index, PathPart::Whole)] = pieces[..] else {
            self.refuse(part, "is one file parameter in braces, such as `{p}`");
            return None;
        };
        let kind = &self.tool.params[usize::from(index)].kind;
        let fits = match part {
            ToolPart::Stdin => matches!(kind, ParamKind::Input { array: None, .. }),
            _ => matches!(kind, ParamKind::Output { array: None, .. }),
        };
        if !fits {
            let wanted = if part == ToolPart::Stdin { "an input" } else { "an output" };
            self.refuse(part, &format!("needs {wanted} without `array`"));
        }
        fits.then_some(index)
    }

    fn file_template(&mut self, param: usize) -> Option<Vec<TemplatePiece>> {
        let ParamKind::Output { file: Some(text), .. } = &self.tool.params[param].kind else { return None };
        let part = ToolPart::ParamValue(param);
        if text.is_empty() || text.contains(['/', '\n']) {
            self.refuse(part, "a file name is not empty and holds no `/` and no line end");
        }
        Some(self.template(part, text))
    }

    /// The output parameters in an order in which each comes after those whose names its own name
    /// is made of.
    fn order_outputs(&mut self, files: &[Option<Vec<TemplatePiece>>]) -> Vec<u16> {
        let is_output = |index: &usize| matches!(self.tool.params[*index].kind, ParamKind::Output { .. });
        let mut waiting: Vec<usize> = (0..files.len().min(PARAMS_MAX)).filter(is_output).collect();
        let mut order = Vec::new();
        while !waiting.is_empty() {
            let blocked = |index: &usize| {
                let pieces = files[*index].iter().flatten();
                pieces
                    .into_iter()
                    .any(|piece| matches!(piece, TemplatePiece::Path(of, _) if waiting.contains(&usize::from(*of))))
            };
            let (rest, free): (Vec<usize>, Vec<usize>) = waiting.iter().partition(|index| blocked(index));
            if free.is_empty() {
                self.refuse(ToolPart::ParamValue(rest[0]), "the names of these outputs are made of each other");
                break;
            }
            order.extend(free.into_iter().filter_map(|index| u16::try_from(index).ok()));
            waiting = rest;
        }
        order
    }

    fn check_used(&mut self) {
        for (index, param) in self.tool.params.iter().enumerate() {
            let name = &param.name;
            let is_duplicate = self.tool.param(name) != Some(index);
            if self.used[index] || param.kind.is_implicit() || is_duplicate {
                continue;
            }
            let hint = match param.kind {
                ParamKind::Config { .. } => format!("name it in the command: `{{{name}}}`"),
                _ => format!(
                    "name it in the command: `{{{name}}}`; if the tool finds the file by itself say implicit = true"
                ),
            };
            self.refuse_with(ToolPart::Param(index), "no template names it, so the tool cannot see it", &hint);
        }
    }

    // --- messages ---

    fn refuse(&mut self, part: ToolPart, message: &str) {
        let problem = Problem::new(self.with_part(part, message));
        self.problems.push(ToolProblem { part, problem });
    }

    fn refuse_with(&mut self, part: ToolPart, message: &str, hint: &str) {
        let problem = Problem::new(self.with_part(part, message)).hint(hint);
        self.problems.push(ToolProblem { part, problem });
    }

    fn with_part(&self, part: ToolPart, message: &str) -> String {
        let name = &self.tool.name;
        match part {
            ToolPart::Tool => format!("tool `{name}`: {message}"),
            ToolPart::Command(item) => format!("tool `{name}`, command item {}: {message}", item + 1),
            ToolPart::Stdin => format!("tool `{name}`, stdin: {message}"),
            ToolPart::Stdout => format!("tool `{name}`, stdout: {message}"),
            ToolPart::Stderr => format!("tool `{name}`, stderr: {message}"),
            ToolPart::Env(item) => format!("tool `{name}`, variable `{}`: {message}", self.tool.env[item].0),
            ToolPart::Param(index) | ToolPart::ParamValue(index) => {
                format!("tool `{name}`, parameter `{}`: {message}", self.tool.params[index].name)
            }
        }
    }
}

fn in_file_name(part: ToolPart) -> bool {
    matches!(part, ToolPart::ParamValue(_))
}

impl ParamKind {
    /// The form in which arrays reach the command; `None` for configs, and for parameters that take
    /// only single elements.
    pub fn array(&self) -> Option<ArrayForm> {
        match self {
            Self::Input { array, .. } | Self::Output { array, .. } => *array,
            Self::Config { .. } => None,
        }
    }

    /// Returns whether arrays reach the command as a directory.
    pub fn is_dir(&self) -> bool {
        self.array() == Some(ArrayForm::Dir)
    }

    /// Returns whether this is a file parameter that a call may leave out.
    pub fn is_optional(&self) -> bool {
        matches!(self, Self::Input { optional: true, .. })
    }

    /// Returns whether an item of the command that names it becomes several arguments.
    pub fn is_several_arguments(&self) -> bool {
        matches!(self.array(), Some(ArrayForm::Args | ArrayForm::Words))
            || matches!(self, Self::Config { of: ConfigType::Strings, .. })
    }

    fn is_implicit(&self) -> bool {
        matches!(self, Self::Input { implicit: true, .. } | Self::Output { implicit: true, .. })
    }
}

impl ConfigType {
    /// The name of the type in tool files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
            Self::Strings => "list of strings",
            Self::Boolean => "boolean",
        }
    }

    /// Returns whether the type accepts `value`. An integer is also a number; a string must not
    /// contain a zero byte.
    pub fn accepts(self, value: &ConfigValue) -> bool {
        match (self, value) {
            (Self::Integer | Self::Number, ConfigValue::Integer(_)) | (Self::Boolean, ConfigValue::Boolean(_)) => true,
            (Self::Number, ConfigValue::Number(number)) => number.is_finite(),
            (Self::String, ConfigValue::String(text)) => !text.contains('\0'),
            (Self::Strings, ConfigValue::Strings(texts)) => !texts.iter().any(|text| text.contains('\0')),
            _ => false,
        }
    }
}

impl ConfigValue {
    /// The value as text on a command line.
    pub fn text(&self) -> String {
        match self {
            Self::Boolean(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Number(value) => value.to_string(),
            Self::String(value) => value.clone(),
            Self::Strings(values) => values.join(" "),
        }
    }

    /// The value as text in messages: strings are in quotes, so that `"8"` and `8` differ.
    pub fn quoted(&self) -> String {
        match self {
            Self::String(value) => format!("{value:?}"),
            Self::Strings(values) => format!("{values:?}"),
            other => other.text(),
        }
    }
}

#[cfg(test)]
#[path = "template_compiler_test.rs"]
mod tests;
