//! The JSON descriptor: a complete workflow as text. Its format is described in
//! `docs/formats/flow.md`.
//!
//! Reading is strict: unknown fields are refused, everything has a limit, and every error names its
//! position. A descriptor that was read is well formed: references resolve, and parameters exist.
//! As for scripts, [`crate::check`] decides whether the workflow as a whole is valid.

use crate::model::{ConfigBinding, DataId, DataRefs, Element, FileBinding, Source, Task, TaskId, ToolId, Workflow};
use crate::reference;
use crate::tool::{ConfigValue, Tool};
use crate::validate::{MEMBERS_MAX, TASKS_MAX, TOOLS_MAX};
use base::{Problem, SourceLocation};
use raw::{RawElement, RawFiles, RawGrowth, RawRefs, RawTask, RawWorkflow};
use std::collections::HashMap;

mod raw;
mod write;

pub use write::{growth_to_json, to_json};

/// The version of the format.
pub const DESCRIPTOR_VERSION: u32 = 1;

/// The field that holds the version and identifies a text as a descriptor.
pub const DESCRIPTOR_FIELD: &str = "tidemill_flow";

/// The longest descriptor in bytes; longer ones are refused unread. A million tasks take about 200
/// MB.
pub const DESCRIPTOR_BYTES_MAX: usize = 1 << 30;

/// The most members that all lists name together, because a short reference may name millions.
const LISTED_MAX: usize = 16_000_000;

/// Returns whether `text` looks like a descriptor: a JSON object with the version field. Scripts do
/// not.
pub fn is_descriptor(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.contains(&format!("\"{DESCRIPTOR_FIELD}\""))
}

/// Reads the workflow that `text` describes; `file` is the name of the text in messages.
pub fn from_json(text: &str, file: &str) -> Result<Workflow, Problem> {
    from_json_grown(text, file, &[])
}

/// Reads a workflow that grew: `text` describes its beginning, and each text of `growth` what
/// [`growth_to_json`] wrote of a step.
pub fn from_json_grown(text: &str, file: &str, growth: &[String]) -> Result<Workflow, Problem> {
    if text.len() > DESCRIPTOR_BYTES_MAX {
        return Err(Problem::new(format!("more than {DESCRIPTOR_BYTES_MAX} bytes")).at(SourceLocation::file(file)));
    }
    let raw: RawWorkflow<'_> = serde_json::from_str(text).map_err(|error| syntax(text, file, &error))?;
    let read = || {
        check_version(raw.tidemill_flow.into())?;
        let mut reader = WorkflowReader::default();
        reader.read(raw)?;
        for text in growth {
            let raw: RawGrowth<'_> = serde_json::from_str(text)
                .map_err(|error| Problem::new(format!("this is not what was added to a workflow: {error}")))?;
            reader.add_elements(raw.elements)?;
            reader.add_tasks(&raw.tasks)?;
        }
        Ok(reader.workflow)
    };
    read().map_err(|problem: Problem| problem.at(SourceLocation::file(file)))
}

/// The problem for an error of serde. An unknown version is reported before anything else.
fn syntax(text: &str, file: &str, error: &serde_json::Error) -> Problem {
    #[derive(serde::Deserialize)]
    struct VersionField {
        tidemill_flow: u64,
    }
    if let Ok(Err(problem)) = serde_json::from_str::<VersionField>(text).map(|field| check_version(field.tidemill_flow))
    {
        return problem.at(SourceLocation::file(file));
    }
    // A text that is not JSON is reported as such, whatever fields come before the syntax error.
    let broken = serde_json::from_str::<serde::de::IgnoredAny>(text).err();
    let (error, what) = match &broken {
        Some(error) => (error, "JSON"),
        None => (error, "a workflow descriptor"),
    };
    let at = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let location = SourceLocation::at_line(file, text, (at(error.line()), at(error.column())));
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    Problem::new(format!("this is not {what}: {message}")).at(location)
}

fn check_version(version: u64) -> Result<(), Problem> {
    if version == u64::from(DESCRIPTOR_VERSION) {
        return Ok(());
    }
    let message =
        format!("{DESCRIPTOR_FIELD}: version {version} is not known; this program reads {DESCRIPTOR_VERSION}");
    Err(Problem::new(message))
}

/// A problem at a JSON path.
fn problem_at(path: &str, message: impl AsRef<str>) -> Problem {
    Problem::new(format!("{path}: {}", message.as_ref()))
}

/// Prepends `path` to the JSON path of a problem.
fn prefix_path(path: &str, problem: Problem) -> Problem {
    Problem { message: format!("{path}{}", problem.message), ..problem }
}

/// Resolves names to ids.
#[derive(Default)]
struct WorkflowReader {
    workflow: Workflow,
    tools: HashMap<String, usize>,
    elements: HashMap<String, usize>,
    /// The number of members that lists have named so far.
    listed: usize,
}

impl WorkflowReader {
    fn read(&mut self, raw: RawWorkflow<'_>) -> Result<(), Problem> {
        self.workflow.name = raw.name.into_owned();
        self.add_tools(raw.tools)?;
        self.add_elements(raw.elements)?;
        self.add_tasks(&raw.tasks)
    }

    fn add_elements(&mut self, elements: Vec<RawElement<'_>>) -> Result<(), Problem> {
        let known = self.workflow.elements.len();
        for (at, element) in (known..).zip(elements) {
            self.add_element(&format!("elements[{at}]"), element)?;
        }
        Ok(())
    }

    fn add_tasks(&mut self, tasks: &[RawTask<'_>]) -> Result<(), Problem> {
        let known = self.workflow.tasks.len();
        let count = known + tasks.len();
        if count > TASKS_MAX as usize {
            return Err(problem_at("tasks", format!("more than {TASKS_MAX}")));
        }
        self.workflow.tasks.reserve(tasks.len());
        for (at, task) in (known..).zip(tasks) {
            let task = self.task(task, count).map_err(|problem| prefix_path(&format!("tasks[{at}]"), problem))?;
            self.workflow.tasks.push(task);
        }
        Ok(())
    }

    fn add_tools(&mut self, tools: Vec<Tool>) -> Result<(), Problem> {
        if tools.len() > TOOLS_MAX {
            return Err(problem_at("tools", format!("more than {TOOLS_MAX}")));
        }
        for (at, tool) in tools.iter().enumerate() {
            if self.tools.insert(tool.name.clone(), at).is_some() {
                return Err(problem_at(&format!("tools[{at}].name"), format!("two tools are called `{}`", tool.name)));
            }
            if let Some(found) = crate::check_tool(tool).into_iter().next() {
                return Err(prefix_path(&format!("tools[{at}]: "), found.problem));
            }
        }
        self.workflow.tools = tools;
        Ok(())
    }

    fn add_element(&mut self, path: &str, raw: RawElement<'_>) -> Result<(), Problem> {
        let name = raw.name.into_owned();
        let first = self.workflow.data_count();
        let count = raw.shape.iter().try_fold(1u32, |product, length| product.checked_mul(*length));
        let fits = |count: &u32| first.checked_add(*count).is_some_and(|all| all <= MEMBERS_MAX);
        let Some(count) = count.filter(fits) else {
            return Err(problem_at(path, format!("more than {MEMBERS_MAX} members in all")));
        };
        if count == 0 {
            return Err(problem_at(&format!("{path}.shape"), "a length is 0"));
        }
        let source = match raw.input {
            None => Source::Defined,
            Some(RawFiles::One(file)) if raw.shape.is_empty() => Source::Input(vec![file.into()]),
            Some(RawFiles::Many(files)) if !raw.shape.is_empty() && files.len() == count as usize => {
                Source::Input(files.into_iter().map(|file| file.0.into()).collect())
            }
            Some(_) => {
                let wanted =
                    if raw.shape.is_empty() { "one file".to_owned() } else { format!("a list of {count} files") };
                return Err(problem_at(&format!("{path}.input"), format!("`{name}` needs {wanted}")));
            }
        };
        let file = raw.file.map(|file| file.into_owned().into_boxed_str());
        if file.is_some() && (source != Source::Defined || !raw.shape.is_empty()) {
            return Err(problem_at(&format!("{path}.file"), "only a single file that a task writes has a name"));
        }
        if self.elements.insert(name.clone(), self.workflow.elements.len()).is_some() {
            return Err(problem_at(&format!("{path}.name"), format!("two data elements are called `{name}`")));
        }
        self.workflow.elements.push(Element { name, shape: raw.shape, first: DataId(first), count, source, file });
        Ok(())
    }

    /// Reads a task; problems have their path within the task.
    fn task(&mut self, raw: &RawTask<'_>, count: usize) -> Result<Task, Problem> {
        let Some(&tool) = self.tools.get(raw.tool.as_ref()) else {
            let known = self.workflow.tools.iter().map(|tool| tool.name.as_str());
            return Err(problem_at(".tool", format!("unknown tool `{}`", raw.tool)).nearest(&raw.tool, known));
        };
        let mut files = Vec::with_capacity(raw.files.0.len());
        for (name, refs) in &raw.files.0 {
            let file = self.file(tool, name, refs);
            files.push(file.map_err(|problem| prefix_path(&format!(".files.{name}: "), problem))?);
        }
        let mut configs = Vec::with_capacity(raw.config.0.len());
        for (name, value) in &raw.config.0 {
            let param = self.param(tool, name);
            let param = param.map_err(|problem| prefix_path(&format!(".config.{name}: "), problem))?;
            configs.push(ConfigBinding { param, value: value.clone() });
        }
        files.sort_by_key(|binding| binding.param);
        configs.sort_by_key(|binding| binding.param);
        if let Some(other) = raw.after.iter().find(|other| **other as usize >= count) {
            return Err(problem_at(".after", format!("there is no task {other}")));
        }
        let after = raw.after.iter().map(|other| TaskId(*other)).collect();
        let tool = ToolId(u32::try_from(tool).unwrap_or(u32::MAX));
        Ok(Task {
            tool,
            files: files.into(),
            configs: configs.into(),
            after,
            line: raw.line,
            placing: raw.placing.clone(),
        })
    }

    fn file(&mut self, tool: usize, name: &str, refs: &RawRefs<'_>) -> Result<FileBinding, Problem> {
        let param = self.param(tool, name)?;
        let takes_array = self.workflow.tools[tool].params[usize::from(param)].kind.array().is_some();
        Ok(FileBinding { param, data: self.refs(refs, takes_array)? })
    }

    fn param(&self, tool: usize, name: &str) -> Result<u16, Problem> {
        let tool = &self.workflow.tools[tool];
        tool.param(name).and_then(|index| u16::try_from(index).ok()).ok_or_else(|| {
            let known = tool.params.iter().map(|param| param.name.as_str());
            Problem::new(format!("tool `{}` has no parameter `{name}`", tool.name)).nearest(name, known)
        })
    }

    fn refs(&mut self, raw: &RawRefs<'_>, takes_array: bool) -> Result<DataRefs, Problem> {
        let texts = match raw {
            RawRefs::One(text) => {
                let span = self.span(text)?;
                let is_array = span.is_array || takes_array;
                return Ok(if is_array {
                    DataRefs::Run { first: span.first, count: span.count }
                } else {
                    DataRefs::One(span.first)
                });
            }
            RawRefs::Many(texts) => texts,
        };
        let mut members = Vec::with_capacity(texts.len());
        for text in texts {
            let span = self.span(&text.0)?;
            self.listed += span.count as usize;
            if self.listed > LISTED_MAX {
                return Err(Problem::new(format!("lists name more than {LISTED_MAX} members in all")));
            }
            members.extend((span.first.0..span.first.0 + span.count).map(DataId));
        }
        Ok(DataRefs::array(&members))
    }

    fn span(&self, text: &str) -> Result<reference::DataRange, Problem> {
        let (name, indices) = reference::parse(text).map_err(Problem::new)?;
        let Some(&element) = self.elements.get(name) else {
            let known = self.workflow.elements.iter().map(|element| element.name.as_str());
            return Err(Problem::new(format!("unknown data element `{name}`")).nearest(name, known));
        };
        reference::resolve(&self.workflow.elements[element], &indices).map_err(Problem::new)
    }
}

/// The value of a config parameter as JSON.
fn config_json(value: &ConfigValue) -> String {
    serde_json::to_string(value).expect("a plain value has no failing parts")
}

#[cfg(test)]
#[path = "descriptor_test.rs"]
mod tests;
