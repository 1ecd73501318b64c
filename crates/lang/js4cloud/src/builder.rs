//! The workflow under construction. Checks each call of the script and adds it to the workflow.

use crate::call_site::{CallSite, CallSites};
use crate::{Inputs, Limits, Log, Script};
use base::{Problem, SourceLocation, printable};
use flow::{
    Catalogue, ConfigBinding, ConfigType, ConfigValue, DataId, DataRefs, Element, FileBinding, Mate, ParamKind, Source,
    Task, Tool, ToolId, Workflow,
};
use std::collections::HashMap;

/// The most dimensions of an array; more are assumed to be a mistake.
const DIMENSIONS_MAX: usize = 8;

/// The longest name of an input, which is a path, in bytes.
const NAME_BYTES_MAX: usize = 4_096;

/// The most bytes of all texts that calls give to config parameters.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// The most lines that a script may print; a loop may run a million times.
const PRINTED_LINES_MAX: u64 = 10_000;

/// The most characters of such a line.
const PRINTED_CHARS_MAX: usize = 1_000;

/// The most members: they are numbered by a `u32`, and a double holds every `u32` exactly.
const COUNT_MAX: f64 = 4_294_967_295.0;

/// A workflow under construction.
pub(crate) struct Builder {
    workflow: Workflow,
    /// Indices of elements by their names.
    by_name: HashMap<String, usize>,
    catalogue: Catalogue,
    overrides: Vec<(String, ConfigValue)>,
    limits: Limits,
    log: Option<Log>,
    /// The number of lines printed so far, including those that were left out.
    printed: u64,
    /// The number of members that calls passed one by one so far.
    listed: u64,
    /// The bytes of config texts so far.
    text_bytes: usize,
    call_sites: CallSites,
}

/// A named parameter of a call.
#[derive(Debug)]
pub(crate) struct Argument {
    pub name: String,
    pub value: ArgumentValue,
}

/// The value that a call passes for a parameter.
#[derive(Debug)]
pub(crate) enum ArgumentValue {
    /// A single member.
    One(DataId),
    /// The array of an element, or an array within it.
    Run { first: DataId, count: u32 },
    /// An array of members that the script made.
    List(Vec<DataId>),
    /// A plain value.
    Value(ConfigValue),
    /// A value that no parameter can have.
    Invalid(Problem),
}

impl Builder {
    pub fn new(script: &Script, inputs: Inputs) -> Self {
        let file = &script.file;
        let name = file.rsplit('/').next().unwrap_or(file);
        let name = name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned();
        Self {
            workflow: Workflow { name, tools: inputs.tools, ..Workflow::default() },
            by_name: HashMap::new(),
            catalogue: inputs.catalogue,
            overrides: inputs.overrides,
            limits: inputs.limits,
            log: inputs.log,
            printed: 0,
            listed: 0,
            text_bytes: 0,
            call_sites: CallSites::new(&script.source),
        }
    }

    /// Takes the workflow out of the builder, which is empty afterwards.
    pub fn take(&mut self) -> Workflow {
        std::mem::take(&mut self.workflow)
    }

    pub fn tool_names(&self) -> Vec<String> {
        self.workflow.tools.iter().map(|tool| tool.name.clone()).collect()
    }

    pub fn overrides(&self) -> &[(String, ConfigValue)] {
        &self.overrides
    }

    pub fn paths(&self) -> Vec<String> {
        self.catalogue.paths().map(str::to_owned).collect()
    }

    /// The name of a member; empty for an invalid id.
    pub fn name(&self, id: DataId) -> String {
        if id.0 < self.workflow.data_count() { self.workflow.data_name(id) } else { String::new() }
    }

    /// The name of a member's file, without directories and extension; empty for an invalid id.
    pub fn stem(&self, id: DataId) -> String {
        if id.0 < self.workflow.data_count() { self.workflow.file_stem(id) } else { String::new() }
    }

    /// The path of an input; empty for an id that is not an input.
    pub fn path(&self, id: DataId) -> String {
        let path = (id.0 < self.workflow.data_count()).then(|| self.workflow.input_path(id)).flatten();
        path.unwrap_or_default().to_owned()
    }

    /// Passes printed text to the log, line by line and made safe for a terminal, up to a number of
    /// lines.
    pub fn log(&mut self, text: &str) {
        let Some(log) = &self.log else { return };
        for line in text.split('\n') {
            self.printed += 1;
            if self.printed <= PRINTED_LINES_MAX {
                log(&printable::cut(line, PRINTED_CHARS_MAX));
            }
        }
    }

    /// Logs the number of lines that were left out, if there are any.
    pub fn log_end(&self) {
        if let (Some(log), Some(more)) =
            (&self.log, self.printed.checked_sub(PRINTED_LINES_MAX).filter(|more| *more > 0))
        {
            log(&format!("... {more} more lines that the script printed are left out"));
        }
    }

    // --- elements ---

    /// `Data.get(name)`, or `Data.get(name, count)` if `count` is not 0. Returns the first id,
    /// followed by the shape.
    pub fn get(&mut self, name: &str, count: f64) -> Result<Vec<u32>, Problem> {
        check_length(name)?;
        let count = self.length(name, count)?;
        let shape: Vec<u32> = if count == 0 { vec![] } else { vec![count] };
        if let Some(element) = self.element(name) {
            return match element.source {
                Source::Input(_) if element.shape == shape => Ok(id_and_shape(element)),
                Source::Input(_) => Err(Problem::new(format!("`{name}` was taken with another length before"))),
                Source::Defined => Err(Problem::new(format!("`{name}` is defined by this script, not an input"))
                    .hint("pass on what Data.define returned")),
            };
        }
        let paths: Vec<Box<str>> = if count == 0 {
            vec![self.catalogue.one(name)?.into()]
        } else {
            self.catalogue.many(name, count)?.into_iter().map(Into::into).collect()
        };
        self.add(name, shape, Source::Input(paths))
    }

    /// `Data.get(name, "all")`.
    pub fn all(&mut self, name: &str) -> Result<Vec<u32>, Problem> {
        check_length(name)?;
        let paths: Vec<Box<str>> = self.catalogue.all(name)?.into_iter().map(Into::into).collect();
        if let Some(element) = self.element(name) {
            return match &element.source {
                Source::Input(taken) if *taken == paths && element.shape.len() == 1 => Ok(id_and_shape(element)),
                Source::Input(_) => Err(Problem::new(format!("`{name}` was taken with another length before"))),
                Source::Defined => Err(Problem::new(format!("`{name}` is defined by this script, not an input"))
                    .hint("pass on what Data.define returned")),
            };
        }
        let count = u32::try_from(paths.len()).unwrap_or(u32::MAX);
        self.add(name, vec![count], Source::Input(paths))
    }

    /// `Data.pairs(/.../)`: `found` has the indices of the matching paths; `parts` has, for each of
    /// them, the text before its second group, that group, and the text after it.
    pub fn pairs(&mut self, name: &str, found: &[usize], parts: Vec<String>) -> Result<Vec<u32>, Problem> {
        if let Some(element) = self.element(name) {
            return Ok(id_and_shape(element));
        }
        check_length(name)?;
        let mut parts = parts.into_iter();
        let mut part = || parts.next().unwrap_or_default();
        let mates = found.iter().map(|path| Mate { path: *path, before: part(), mate: part(), after: part() });
        let pairs = self.catalogue.pairs(name.trim_start_matches("pairs of "), &mates.collect::<Vec<_>>())?;
        let paths: Vec<Box<str>> = pairs.into_iter().flatten().map(Into::into).collect();
        let count = u32::try_from(paths.len() / 2).unwrap_or(u32::MAX);
        self.add(name, vec![count, 2], Source::Input(paths))
    }

    /// `Data.get(/.../)`: `found` has the indices of the matching paths.
    pub fn matching(&mut self, name: &str, found: &[usize]) -> Result<Vec<u32>, Problem> {
        if let Some(element) = self.element(name) {
            return Ok(id_and_shape(element));
        }
        check_length(name)?;
        let mut found = found.iter().copied().peekable();
        let mut index = 0;
        let paths = self.catalogue.matching(name, |_| {
            index += 1;
            found.next_if_eq(&(index - 1)).is_some()
        })?;
        let paths: Vec<Box<str>> = paths.into_iter().map(Into::into).collect();
        let count = u32::try_from(paths.len()).unwrap_or(u32::MAX);
        self.add(name, vec![count], Source::Input(paths))
    }

    /// `Data.define(name)`, or with a shape.
    pub fn define(&mut self, name: &str, shape: &[f64]) -> Result<Vec<u32>, Problem> {
        if let Some(element) = self.element(name) {
            let how = if element.source == Source::Defined { "defined" } else { "taken from the data directory" };
            return Err(Problem::new(format!("`{name}` was {how} before")).hint("a data element has one meaning"));
        }
        flow::check_defined_name(name)?;
        if shape.len() > DIMENSIONS_MAX {
            return Err(Problem::new(format!("`{name}` has more than {DIMENSIONS_MAX} dimensions")));
        }
        let shape = shape.iter().map(|length| self.length(name, *length)).collect::<Result<Vec<u32>, Problem>>()?;
        self.add(name, shape, Source::Defined)
    }

    fn element(&self, name: &str) -> Option<&Element> {
        self.by_name.get(name).map(|index| &self.workflow.elements[*index])
    }

    fn length(&self, name: &str, length: f64) -> Result<u32, Problem> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
        let whole = (0.0..=COUNT_MAX).contains(&length).then_some(length as u32);
        whole.filter(|length| *length <= self.limits.members).ok_or_else(|| self.too_many(name))
    }

    fn too_many(&self, name: &str) -> Problem {
        Problem::new(format!("`{name}` has too many members: a workflow has at most {}", self.limits.members))
    }

    fn add(&mut self, name: &str, shape: Vec<u32>, source: Source) -> Result<Vec<u32>, Problem> {
        let count = shape.iter().try_fold(1u32, |product, length| product.checked_mul(*length));
        let first = self.workflow.data_count();
        let count = count.filter(|count| first.checked_add(*count).is_some_and(|all| all <= self.limits.members));
        let count = count.ok_or_else(|| self.too_many(name))?;
        let element = Element { name: name.to_owned(), shape, first: DataId(first), count, source, file: None };
        let answer = id_and_shape(&element);
        self.by_name.insert(name.to_owned(), self.workflow.elements.len());
        self.workflow.elements.push(element);
        Ok(answer)
    }

    // --- tasks ---

    /// Adds a call of the tool at `index`; `at` is the line and column that the engine reports.
    pub fn call(&mut self, index: u32, arguments: &[Argument], at: Option<(u32, u32)>) -> Result<(), Problem> {
        let tool = self.workflow.tools.get(index as usize).ok_or_else(|| Problem::new("no such tool"))?;
        let site = at.map(|at| self.call_sites.find(index, &tool.name, at).clone()).unwrap_or_default();
        if let Some((name, line, column)) = &site.duplicate {
            let message = format!("parameter `{name}` of `{}` is given twice", tool.name);
            return Err(Problem::new(message).at(location(*line, *column)));
        }
        let CallSite { line, column, .. } = site;
        let refused = |problem: Problem| if line > 0 { problem.at(location(line, column)) } else { problem };
        self.add_task(index, arguments, line).map_err(refused)
    }

    fn add_task(&mut self, index: u32, arguments: &[Argument], line: u32) -> Result<(), Problem> {
        if self.workflow.tasks.len() >= self.limits.tasks as usize {
            return Err(Problem::new(format!("more than {} tasks", self.limits.tasks)));
        }
        let tool = &self.workflow.tools[index as usize];
        let (mut files, mut configs) = (Vec::new(), Vec::new());
        for argument in arguments {
            match self.bind(tool, argument)? {
                Binding::File(binding) => files.push(binding),
                Binding::Config(binding) => configs.push(binding),
            }
        }
        files.sort_by_key(|binding| binding.param);
        configs.sort_by_key(|binding| binding.param);
        check_complete(tool, arguments)?;
        self.charge(arguments)?;
        let (files, configs) = (files.into(), configs.into());
        self.workflow.tasks.push(Task {
            tool: ToolId(index),
            files,
            configs,
            after: Box::default(),
            line,
            placing: None,
        });
        Ok(())
    }

    /// Counts arguments that take memory for each member or character against their limits.
    fn charge(&mut self, arguments: &[Argument]) -> Result<(), Problem> {
        for argument in arguments {
            match &argument.value {
                ArgumentValue::List(members) => self.listed += members.len() as u64,
                ArgumentValue::Value(ConfigValue::String(text)) => self.text_bytes += text.len(),
                _ => {}
            }
        }
        if self.listed > u64::from(self.limits.members) {
            return Err(Problem::new("calls pass too many members one by one").hint("pass arrays as a whole"));
        }
        if self.text_bytes > TEXT_BYTES_MAX {
            return Err(Problem::new(format!("calls pass more than {} MiB of text", TEXT_BYTES_MAX >> 20)));
        }
        Ok(())
    }

    fn bind(&self, tool: &Tool, argument: &Argument) -> Result<Binding, Problem> {
        let Argument { name, value: given } = argument;
        if let ArgumentValue::Invalid(problem) = given {
            return Err(problem.clone());
        }
        let Some(index) = tool.param(name) else {
            let known = tool.params.iter().map(|param| param.name.as_str());
            return Err(Problem::new(format!("tool `{}` has no parameter `{name}`", tool.name)).nearest(name, known));
        };
        let param = u16::try_from(index).unwrap_or(u16::MAX);
        match (&tool.params[index].kind, given) {
            (ParamKind::Config { of, .. }, ArgumentValue::Value(value)) => {
                let value = convert(*of, value).ok_or_else(|| wrong_type(tool, name, *of, value))?;
                Ok(Binding::Config(ConfigBinding { param, value }))
            }
            (ParamKind::Config { of, .. }, data) => {
                let message = format!("parameter `{name}` of `{}` is {} {}, and ", tool.name, article(*of), of.name());
                Err(Problem::new(message + &format!("the call gives {}", self.describe(data))))
            }
            (kind, given) => {
                let data = self.data(tool, name, kind, given)?;
                Ok(Binding::File(FileBinding { param, data }))
            }
        }
    }

    fn data(&self, tool: &Tool, name: &str, kind: &ParamKind, given: &ArgumentValue) -> Result<DataRefs, Problem> {
        let refused = |what: &str| {
            let message = format!("parameter `{name}` of `{}` takes {what}, and the call gives ", tool.name);
            Problem::new(message + &self.describe(given))
        };
        let all = u64::from(self.workflow.data_count());
        let known = |first: DataId, count: u32| u64::from(first.0) + u64::from(count) <= all;
        match given {
            ArgumentValue::Value(ConfigValue::String(text)) => {
                Err(refused("data").hint(format!("pass Data.get({text:?}) or what Data.define returned")))
            }
            ArgumentValue::Value(_) => Err(refused("data")),
            ArgumentValue::One(id) if known(*id, 1) && kind.array().is_some() => {
                Ok(DataRefs::Run { first: *id, count: 1 })
            }
            ArgumentValue::One(id) if known(*id, 1) => Ok(DataRefs::One(*id)),
            ArgumentValue::Run { .. } | ArgumentValue::List(_) if kind.array().is_none() => {
                Err(refused("one data element")
                    .hint(format!("pass a member, or give `{name}` an `array` in the tool file")))
            }
            ArgumentValue::Run { first, count } if known(*first, *count) => {
                Ok(DataRefs::Run { first: *first, count: *count })
            }
            ArgumentValue::List(members) if members.is_empty() => Err(refused("data")),
            ArgumentValue::List(members) if members.iter().all(|id| known(*id, 1)) => Ok(DataRefs::array(members)),
            _ => Err(Problem::new(format!("parameter `{name}` of `{}` is not data of this script", tool.name))),
        }
    }

    /// The argument of a call as text for messages.
    fn describe(&self, given: &ArgumentValue) -> String {
        match given {
            ArgumentValue::One(id) => format!("the data element `{}`", self.name(*id)),
            ArgumentValue::Run { first, count } => {
                let element = self.name(*first);
                let element = element.split('[').next().unwrap_or_default();
                format!("an array of {count} of `{element}`")
            }
            ArgumentValue::List(members) if members.is_empty() => "an empty array".to_owned(),
            ArgumentValue::List(members) => format!("an array of {}", members.len()),
            ArgumentValue::Value(value) => value.quoted(),
            ArgumentValue::Invalid(_) => "nothing".to_owned(),
        }
    }
}

/// A position in the script; the file and its text are added where the error is reported.
fn location(line: u32, column: u32) -> SourceLocation {
    SourceLocation { line, column, ..SourceLocation::default() }
}

enum Binding {
    File(FileBinding),
    Config(ConfigBinding),
}

fn check_length(name: &str) -> Result<(), Problem> {
    let message = || format!("the name of a data element has at most {NAME_BYTES_MAX} bytes");
    if name.len() <= NAME_BYTES_MAX { Ok(()) } else { Err(Problem::new(message())) }
}

/// The first id of an element, followed by its shape.
fn id_and_shape(element: &Element) -> Vec<u32> {
    std::iter::once(element.first.0).chain(element.shape.iter().copied()).collect()
}

/// Refuses a call that leaves out a required parameter.
fn check_complete(tool: &Tool, arguments: &[Argument]) -> Result<(), Problem> {
    let needed = |kind: &ParamKind| match kind {
        ParamKind::Config { default, .. } => default.is_none(),
        kind => !kind.is_optional(),
    };
    let given = |name: &str| arguments.iter().any(|argument| argument.name == name);
    match tool.params.iter().find(|param| needed(&param.kind) && !given(&param.name)) {
        Some(param) => Err(Problem::new(format!("parameter `{}` of `{}` is missing", param.name, tool.name))),
        None => Ok(()),
    }
}

/// `value`, if the config type `of` accepts it.
fn convert(of: ConfigType, value: &ConfigValue) -> Option<ConfigValue> {
    of.accepts(value).then(|| value.clone())
}

fn wrong_type(tool: &Tool, name: &str, of: ConfigType, value: &ConfigValue) -> Problem {
    let message = format!("parameter `{name}` of `{}` is {} {}", tool.name, article(of), of.name());
    Problem::new(format!("{message}, and the call gives {}", value.quoted()))
}

fn article(of: ConfigType) -> &'static str {
    if of == ConfigType::Integer { "an" } else { "a" }
}
