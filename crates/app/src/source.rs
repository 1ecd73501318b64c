//! Loads a checked workflow: reads the script or descriptor, the tool file and the data directory.

use crate::args::{self, SwiftArgs};
use crate::console;
use crate::data_directory::{self, DataDirectory};
use crate::swift_source;
use base::Problem;
use flow::{Catalogue, ConfigValue, ScriptSource, Tool, Workflow};
use run::CheckedWorkflow;
use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use swift_plan::SwiftScript;

/// A loaded workflow and its sources.
#[derive(Debug)]
pub struct LoadedWorkflow {
    /// The checked workflow.
    pub flow: CheckedWorkflow,
    /// Language of the source: `js4cloud`, `swift` or `json`.
    pub language: &'static str,
    /// The Swift script, whose tasks come while it runs.
    pub script: Option<SwiftScript>,
    /// The data directory, absolute.
    pub data_dir: PathBuf,
    /// The tool file, if one was read.
    pub tools: Option<PathBuf>,
    /// Names and values of `--set`.
    pub sets: Vec<(String, ConfigValue)>,
    /// Warnings about the workflow and its inputs.
    pub warnings: Vec<String>,
}

/// Warnings about a valid workflow that is probably not what the user meant. `language` is that of
/// its source.
fn workflow_warnings(workflow: &Workflow, name: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    if workflow.tasks.is_empty() {
        let why = if language == "json" { "`tasks` is empty" } else { "the script calls no tool" };
        found.push(format!("{name}: the workflow has 0 tasks: {why}"));
    }
    let called_tools: HashSet<flow::ToolId> = workflow.tasks.iter().map(|task| task.tool).collect();
    let tools = (0..).map(flow::ToolId).zip(&workflow.tools).filter(|(id, _)| called_tools.contains(id));
    found.extend(tools.flat_map(|(_, tool)| flow::shell_warnings(tool)).map(|problem| problem.to_string()));
    found
}

/// Upper bound of scripts and descriptors: nobody writes longer ones by hand, and reading them
/// would take the memory that the pool needs.
const SOURCE_BYTES_MAX: u64 = 256 << 20;

/// Reads and checks everything. Every problem names its place. `written` are the directories that a
/// run writes to.
pub fn load(source: &args::SourceArgs, written: &[&Path]) -> Result<LoadedWorkflow, Vec<Problem>> {
    let one = |problem: Problem| vec![problem];
    let text = read(&source.workflow).map_err(one)?;
    let data_dir = data_dir(source.data.as_deref()).map_err(one)?;
    let sets = source.sets.iter().map(|set| parse_set(set)).collect::<Result<Vec<_>, _>>().map_err(one)?;
    let name = source.workflow.display().to_string();
    if swift_plan::is_swift(&source.workflow) {
        return swift_source::load(source, &text, data_dir);
    }
    refuse_swift_options(&source.swift).map_err(one)?;
    if flow::is_descriptor(&text) || is_json(&source.workflow) {
        refuse_script_flags(source, &sets).map_err(one)?;
        let flow = CheckedWorkflow::new(flow::from_json(&text, &name).map_err(one)?, None)?;
        let warnings = workflow_warnings(flow.workflow(), &name, "json");
        return Ok(LoadedWorkflow { flow, language: "json", script: None, data_dir, tools: None, sets, warnings });
    }
    let tool_file = tool_file(source);
    let tools = tool_file.as_deref().map_or(Ok(Vec::new()), read_tools)?;
    // List the directory, which may be large, only for a script that can ask for inputs.
    let asks = ["get", "pairs"].iter().any(|word| text.contains(word));
    let mut inputs =
        if asks { data_directory::list(&data_dir, written).map_err(one)? } else { DataDirectory::default() };
    let mut warnings = std::mem::take(&mut inputs.warnings);
    let directory = directory_name(&data_dir, source.data.is_some());
    let workflow = evaluate(&name, &text, tools, (inputs, directory), &sets).map_err(one)?;
    let flow = CheckedWorkflow::new(workflow, Some(ScriptSource { file: &name, source: &text }))?;
    warnings.extend(workflow_warnings(flow.workflow(), &name, "js4cloud"));
    Ok(LoadedWorkflow { flow, language: "js4cloud", script: None, data_dir, tools: tool_file, sets, warnings })
}

/// Returns whether the file name ends in `.json`, so that a broken descriptor is reported as JSON.
fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

/// Refuses options that only a Swift script can use.
fn refuse_swift_options(options: &SwiftArgs) -> Result<(), Problem> {
    let given = [
        ("-I", !options.search.is_empty()),
        ("-D", !options.defines.is_empty()),
        ("arguments behind --", !options.arguments.is_empty()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((what, _)) => {
            let problem = Problem::new(format!("{what}: only a Swift script, a file *.swift, has them"));
            Err(problem.hint("a JavaScript script has variables: --set NAME=VALUE"))
        }
        None => Ok(()),
    }
}

/// Refuses flags that only a script can use.
fn refuse_script_flags(source: &args::SourceArgs, sets: &[(String, ConfigValue)]) -> Result<(), Problem> {
    if let Some((name, _)) = sets.first() {
        return Err(Problem::new(format!("--set {name}: a descriptor has no variables"))
            .hint("set the value for the script, and export the descriptor again"));
    }
    if let Some(tools) = &source.tools {
        return Err(Problem::new(format!("--tools {}: a descriptor brings its own tools", tools.display()))
            .hint("leave --tools out"));
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Problem> {
    let describe = |error: std::io::Error| Problem::new(format!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    // Bound the read instead of asking for the size, which pipes and devices do not have: a pipe is
    // fine, /dev/zero is too large.
    let file = fs::File::open(path).map_err(describe)?;
    file.take(SOURCE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(describe)?;
    if bytes.len() as u64 > SOURCE_BYTES_MAX {
        return Err(Problem::new(format!("{}: larger than {} MiB", path.display(), SOURCE_BYTES_MAX >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        Problem::new(format!("{}: byte {valid} is not UTF-8 text", path.display()))
            .hint("give a JS4Cloud script (.js) or a JSON descriptor")
    })
}

fn data_dir(typed: Option<&Path>) -> Result<PathBuf, Problem> {
    let dir = typed.unwrap_or(Path::new("."));
    let describe = |why: String| Problem::new(format!("--data {}: {why}", dir.display()));
    let absolute = dir.canonicalize().map_err(|error| describe(error.to_string()))?;
    if absolute.is_dir() { Ok(absolute) } else { Err(describe("not a directory".into())) }
}

/// The tool file that was named, or `tools.toml` beside the workflow if it exists.
pub fn tool_file(source: &args::SourceArgs) -> Option<PathBuf> {
    source.tools.clone().or_else(|| Some(source.workflow.with_file_name("tools.toml")).filter(|file| file.is_file()))
}

pub fn read_tools(path: &Path) -> Result<Vec<Tool>, Vec<Problem>> {
    let text = read(path).map_err(|problem| vec![problem])?;
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let tool_dir =
        directory.canonicalize().map_err(|error| vec![Problem::new(format!("{}: {error}", directory.display()))])?;
    let name = path.display().to_string();
    toolfile::parse(&toolfile::ToolFile { name: &name, text: &text, here: &tool_dir }, &|path| path.exists())
}

/// Name of the data directory in messages.
fn directory_name(dir: &Path, is_named: bool) -> String {
    let shown = dir.display();
    let default = if is_named { "" } else { " (the current one, which is the default of --data)" };
    format!("the data directory {shown}{default}")
}

fn evaluate(
    name: &str,
    text: &str,
    tools: Vec<Tool>,
    (inputs, describe): (DataDirectory, String),
    sets: &[(String, ConfigValue)],
) -> Result<Workflow, Problem> {
    let script = js4cloud::Script { file: name.to_owned(), source: text.to_owned() };
    let inputs = js4cloud::Inputs {
        tools,
        catalogue: Catalogue::new(inputs.files).with_directory_name(describe).set_aside(inputs.set_aside),
        overrides: sets.to_vec(),
        log: Some(Box::new(console::say)),
        ..js4cloud::Inputs::default()
    };
    js4cloud::evaluate(script, inputs)
}

/// Parses `NAME=VALUE` of `--set`. VALUE is a JSON scalar; text that is not JSON is a string.
fn parse_set(text: &str) -> Result<(String, ConfigValue), Problem> {
    let refused = |why: &str| Problem::new(format!("--set {text}: {why}")).hint("write for example --set n=20");
    let (name, value) = text.split_once('=').ok_or_else(|| refused("there is no `=`"))?;
    if !flow::is_identifier(name) {
        return Err(refused("the name before `=` is not the name of a variable"));
    }
    let value = match serde_json::from_str::<serde_json::Value>(value) {
        Ok(json) => serde_json::from_value(json)
            .ok()
            .filter(|value| !matches!(value, ConfigValue::Strings(_)))
            .ok_or_else(|| refused("the value must be a number, a string or a boolean"))?,
        Err(_) => ConfigValue::String(value.to_owned()),
    };
    Ok((name.to_owned(), value))
}

#[cfg(test)]
#[path = "source_test.rs"]
mod source_test;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_json_scalar_or_a_bare_word() {
        assert_eq!(parse_set("n=20").unwrap(), ("n".into(), ConfigValue::Integer(20)));
        assert_eq!(parse_set("ok=true").unwrap().1, ConfigValue::Boolean(true));
        assert_eq!(parse_set("name=tide").unwrap().1, ConfigValue::String("tide".into()));
        assert_eq!(parse_set("name=\"20\"").unwrap().1, ConfigValue::String("20".into()));
        assert_eq!(parse_set("eq=a=b").unwrap().1, ConfigValue::String("a=b".into()));
    }

    #[test]
    fn a_message_about_the_data_directory_names_it_and_says_where_it_comes_from() {
        let dir = tempfile::tempdir().unwrap();
        let describe = |is_named| {
            let directory = (DataDirectory::default(), directory_name(dir.path(), is_named));
            evaluate("w.js", "Data.get('Poem')", Vec::new(), directory, &[]).expect_err("there is none").message
        };
        let beginning =
            format!("no file `Poem` or `Poem.*` among the 0 files of the data directory {}", dir.path().display());
        assert_eq!(describe(true), beginning);
        assert_eq!(describe(false), beginning + " (the current one, which is the default of --data)");
    }

    #[test]
    fn what_is_no_assignment_is_refused() {
        for text in ["n", "=3", "a b=3", "n=[1]", "n=[\"a\"]", "n={}", "n=null"] {
            assert!(parse_set(text).is_err(), "{text}");
        }
    }
}
