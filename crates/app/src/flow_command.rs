//! `tidemill flow show|check|export`: a workflow without running it.

use crate::args::{FlowCommand, Source};
use crate::console;
use crate::data_folder::{OUT, REPORTS};
use crate::source::{self, Loaded};
use base::Problem;
use flow::{Element, TaskId};
use run::Checked;
use std::fmt::Write;
use std::io::{self, Write as _};
use std::path::Path;

/// Does it; the exit code.
pub fn flow(command: &FlowCommand) -> Result<u8, Vec<Problem>> {
    match command {
        FlowCommand::Show(source) => show(&load(source)?.flow),
        FlowCommand::Check(source) => check(source)?,
        FlowCommand::Export(source) => print(&flow::to_json(load(source)?.flow.workflow())),
    }
    Ok(0)
}

/// Loads it as a run with the default folders would.
fn load(source: &Source) -> Result<Loaded, Vec<Problem>> {
    let loaded = source::load(source, &[Path::new(OUT), Path::new(REPORTS)])?;
    loaded.warnings.iter().for_each(|warning| console::say(&format!("warning: {warning}")));
    Ok(loaded)
}

fn check(source: &Source) -> Result<(), Vec<Problem>> {
    let loaded = load(source)?;
    run::check_before_start(&loaded.flow, &loaded.data_dir)?;
    let workflow = loaded.flow.workflow();
    print(&format!(
        "{}: {} tasks, {} data elements with {} files, {} tools; all is well\n",
        source.workflow.display(),
        workflow.tasks.len(),
        workflow.elements.len(),
        workflow.data_count(),
        workflow.tools.len()
    ));
    Ok(())
}

/// Writes to standard output; a reader that went away (`| head`) is no error.
fn print(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

fn show(flow: &Checked) {
    let workflow = flow.workflow();
    let mut text = String::from("data\n");
    for element in &workflow.elements {
        let _ = writeln!(text, "  {}  {}", shaped(element), origin(flow, element));
    }
    text.push_str("tasks\n");
    for (id, task) in (0..).map(TaskId).zip(&workflow.tasks) {
        let names = |ids: Vec<flow::DataId>| summary(flow, &ids);
        let (inputs, outputs) = (names(flow.inputs(id).collect()), names(flow.outputs(id).collect()));
        let arrow = if outputs.is_empty() { "" } else { " -> " };
        let _ = writeln!(text, "  {:>5}  {}({inputs}){arrow}{outputs}", id.0, workflow.tool_of(task).name);
    }
    print(&text);
}

/// `Model[3][20]`.
fn shaped(element: &Element) -> String {
    let dimensions: Vec<String> = element.shape.iter().map(|length| format!("[{length}]")).collect();
    format!("{}{}", element.name, dimensions.concat())
}

/// The part of an element in the workflow.
fn origin(flow: &Checked, element: &Element) -> String {
    match &element.source {
        flow::Source::Input(files) if files.len() == 1 => format!("input {}", files[0]),
        flow::Source::Input(files) => format!("input {} ... {}", files[0], files[files.len() - 1]),
        flow::Source::Defined => {
            let ids = (element.first.0..element.first.0 + element.count).map(flow::DataId);
            let read = ids.clone().filter(|id| !flow.readers(*id).is_empty()).count();
            (if read == 0 { "output" } else { "temporary" }).to_owned()
        }
    }
}

/// Names of members; of many only the first and the last.
fn summary(flow: &Checked, ids: &[flow::DataId]) -> String {
    const LISTED_MAX: usize = 4;
    let name = |id: &flow::DataId| flow.workflow().data_name(*id);
    match ids {
        [first, .., last] if ids.len() > LISTED_MAX => format!("{} ... {} ({})", name(first), name(last), ids.len()),
        _ => ids.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}
