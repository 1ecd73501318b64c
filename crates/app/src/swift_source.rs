//! Swift scripts: loaded and checked, and their plans for runs.

use crate::args::{SourceArgs, SwiftArgs};
use crate::source::{LoadedWorkflow, read_tools, tool_file};
use base::Problem;
use run::PlanSource;
use std::path::PathBuf;
use swift_plan::{FileDirectories, LoadedScript, ScriptOptions, SwiftPlan, SwiftPlanOptions, SwiftScript};

/// The variable with the seed of random numbers, as Swift/T has it.
const SEED_VARIABLE: &str = "TURBINE_SRAND";

/// Loads a script and checks it, with the tools of its tool file.
pub fn load(source: &SourceArgs, text: &str, data_dir: PathBuf) -> Result<LoadedWorkflow, Vec<Problem>> {
    if let Some(set) = source.sets.first() {
        let problem = Problem::new(format!("--set {set}: a Swift script has no variables that are set from outside"));
        return Err(vec![problem.hint(format!("pass an argument: -- --{set}, and read it by argv"))]);
    }
    let tool_file = tool_file(source);
    let tools = tool_file.as_deref().map_or(Ok(Vec::new()), read_tools)?;
    let defines = source.swift.defines.iter().map(|define| parse_define(define)).collect::<Result<_, _>>();
    let defines = defines.map_err(|problem| vec![problem])?;
    let options = ScriptOptions { search: source.swift.search.clone(), defines, tools, data_dir: data_dir.clone() };
    let LoadedScript { flow, script, warnings } = swift_plan::load(&source.workflow, text, &options)?;
    let sets = Vec::new();
    Ok(LoadedWorkflow { flow, language: "swift", script: Some(script), data_dir, tools: tool_file, sets, warnings })
}

/// Parses `NAME=VALUE` of `-D`. The value of a name alone is 1.
fn parse_define(text: &str) -> Result<(String, String), Problem> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    if !flow::is_identifier(name) {
        let problem = Problem::new(format!("-D {text}: `{name}` is not the name of a macro"));
        return Err(problem.hint("write for example -D SIZE=20"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// The plan of a script.
pub fn plan(script: SwiftScript, directories: FileDirectories, options: &SwiftArgs) -> Box<dyn PlanSource> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let options = SwiftPlanOptions {
        arguments: options.arguments.clone(),
        directories,
        environment: std::env::vars_os().filter_map(text).collect(),
        seed: std::env::var(SEED_VARIABLE).ok().and_then(|seed| seed.parse().ok()).unwrap_or(0),
    };
    Box::new(SwiftPlan::new(script, options))
}
