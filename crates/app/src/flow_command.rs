//! `tidemill flow show|check|export`: inspects a workflow without running it.

use crate::args::{FlowCommand, ShowArgs, SourceArgs};
use crate::data_directory::{OUT, REPORTS};
use crate::source::{self, LoadedWorkflow};
use crate::{commands, console, output};
use base::{Problem, printable};
use flow::{Element, TaskId};
use run::CheckedWorkflow;
use std::fmt::Write;
use std::path::Path;

/// Runs the command; returns the exit code.
pub fn flow(command: &FlowCommand) -> Result<u8, Vec<Problem>> {
    let text = match command {
        FlowCommand::Show(args) => show(args)?,
        FlowCommand::Check(source) => check(source)?,
        FlowCommand::Export(source) => export(source)?,
    };
    Ok(output::print_all(&text))
}

/// Loads a workflow as a run with the default directories would.
fn load(source: &SourceArgs) -> Result<LoadedWorkflow, Vec<Problem>> {
    let loaded = source::load(source, &[Path::new(OUT), Path::new(REPORTS)])?;
    loaded.warnings.iter().for_each(|warning| console::warn(warning));
    Ok(loaded)
}

fn check(source: &SourceArgs) -> Result<String, Vec<Problem>> {
    let loaded = load(source)?;
    run::check_before_start(&loaded.flow, &loaded.data_dir)?;
    let workflow = loaded.flow.workflow();
    if loaded.flow.grows() {
        // The copy of a file is the first one.
        let apps = workflow.tools.len().saturating_sub(1);
        let plural = if apps == 1 { "" } else { "s" };
        return Ok(format!("{}: {apps} app function{plural}; all is well\n", source.workflow.display()));
    }
    Ok(format!(
        "{}: {} tasks, {} data elements with {} files, {} tools; all is well\n",
        source.workflow.display(),
        workflow.tasks.len(),
        workflow.elements.len(),
        workflow.data_count(),
        workflow.tools.len()
    ))
}

/// The descriptor of a workflow.
fn export(source: &SourceArgs) -> Result<String, Vec<Problem>> {
    let loaded = load(source)?;
    if loaded.flow.grows() {
        let name = source.workflow.display();
        let problem = Problem::new(format!("{name}: the tasks of a Swift script come while it runs"));
        return Err(vec![problem.hint("run it; the journal beside its report has the workflow")]);
    }
    Ok(flow::to_json(loaded.flow.workflow()))
}

fn show(args: &ShowArgs) -> Result<String, Vec<Problem>> {
    let loaded = load(&args.source)?;
    if loaded.flow.grows() {
        return Ok(tools(loaded.flow.workflow()));
    }
    Ok(if args.commands { commands::listing(&loaded) } else { listing(&loaded.flow) })
}

/// The command lines of tools, as templates.
fn tools(workflow: &flow::Workflow) -> String {
    let mut text = String::from("app functions, whose tasks come while the script runs\n");
    for tool in &workflow.tools {
        let streams = [("<", &tool.stdin), (">", &tool.stdout), ("2>", &tool.stderr)];
        let streams = streams.into_iter().filter_map(|(mark, file)| Some(format!("{mark} {}", file.as_ref()?)));
        let words: Vec<String> = tool.command.iter().cloned().chain(streams).collect();
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "  {}: {}", tool.name, printable::line(&words.join(" ")));
    }
    text
}

fn listing(flow: &CheckedWorkflow) -> String {
    let workflow = flow.workflow();
    let mut text = String::from("data\n");
    let mut add = |line: String| {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{}", printable::line(&line));
    };
    for element in &workflow.elements {
        add(format!("  {}  {}", format_shape(element), origin(flow, element)));
    }
    add("tasks".to_owned());
    for (id, task) in (0..).map(TaskId).zip(&workflow.tasks) {
        add(format!("  {:>5}  {}", id.0, format_call(flow, id, &workflow.tool_of(task).name)));
    }
    text
}

/// A task as text, such as `C45(Part[0]) -> Model[0][0]`.
pub fn format_call(flow: &CheckedWorkflow, task: TaskId, tool: &str) -> String {
    let names = |ids: Vec<flow::DataId>| summary(flow, &ids);
    let (inputs, outputs) = (names(flow.inputs(task).collect()), names(flow.outputs(task).collect()));
    let arrow = if outputs.is_empty() { "" } else { " -> " };
    format!("{tool}({inputs}){arrow}{outputs}")
}

/// An element with its shape, such as `Model[3][20]`.
fn format_shape(element: &Element) -> String {
    let dimensions: Vec<String> = element.shape.iter().map(|length| format!("[{length}]")).collect();
    format!("{}{}", element.name, dimensions.concat())
}

/// The role of an element in the workflow: input with its files, output or temporary.
fn origin(flow: &CheckedWorkflow, element: &Element) -> String {
    match &element.source {
        flow::Source::Input(files) if files.len() == 1 => format!("input {}", files[0]),
        flow::Source::Input(files) => format!("input {} ... {}", files[0], files[files.len() - 1]),
        flow::Source::Defined => {
            let ids = (element.first.0..element.first.0 + element.count).map(flow::DataId);
            let read = ids.clone().filter(|id| !flow.is_unread(*id)).count();
            (if read == 0 { "output" } else { "temporary" }).to_owned()
        }
    }
}

/// Names of members, or of the files of inputs; of many only the first and the last.
fn summary(flow: &CheckedWorkflow, ids: &[flow::DataId]) -> String {
    const LISTED_MAX: usize = 4;
    let workflow = flow.workflow();
    let name = |id: &flow::DataId| workflow.input_path(*id).map_or_else(|| workflow.data_name(*id), str::to_owned);
    match ids {
        [first, .., last] if ids.len() > LISTED_MAX => format!("{} ... {} ({})", name(first), name(last), ids.len()),
        _ => ids.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
#[path = "flow_command_test.rs"]
mod flow_command_test;
