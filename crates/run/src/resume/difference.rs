//! Difference between the workflow that a run began with and the one that it is resumed with.

use crate::spec::RunSpec;
use base::Problem;
use flow::{Task, Workflow};
use journal::{JournalState, WORKFLOW_FILE};
use std::path::Path;

/// Refuses another workflow, and tells what has changed. Lines of the script do not count.
pub fn check_workflow(spec: &RunSpec, directory: &Path, state: &JournalState) -> Result<(), Vec<Problem>> {
    let hash = |text: &str| blake3::hash(text.as_bytes()).to_hex().to_string();
    let now = spec.flow.workflow();
    let before = &state.header.workflow;
    if hash(&flow::to_json(now)) == before.hash {
        return Ok(());
    }
    let path = directory.join(WORKFLOW_FILE);
    let name = path.display().to_string();
    let text = std::fs::read_to_string(&path).map_err(|error| vec![Problem::new(format!("{name}: {error}"))])?;
    if hash(&text) != before.hash {
        return Err(vec![Problem::new(format!("{name}: this is not the workflow that the journal beside it names"))]);
    }
    let old = flow::from_json(&text, &name).map_err(|problem| vec![problem])?;
    match difference(&old, now) {
        None => Ok(()),
        Some(what) => Err(vec![
            Problem::new(format!("{} has changed since the run began: {what}", spec.requested.source))
                .hint("run it anew, without --resume"),
        ]),
    }
}

/// The first difference that matters, in words.
fn difference(old: &Workflow, new: &Workflow) -> Option<String> {
    tool_difference(old, new).or_else(|| data_difference(old, new)).or_else(|| task_difference(old, new))
}

fn tool_difference(old: &Workflow, new: &Workflow) -> Option<String> {
    let called = |flow: &Workflow| {
        let mut tools: Vec<flow::Tool> = flow
            .tasks
            .iter()
            .map(|task| task.tool)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .map(|tool| flow.tools[tool.0 as usize].clone())
            .collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        tools
    };
    let (old, new) = (called(old), called(new));
    for tool in &new {
        let Some(before) = old.iter().find(|before| before.name == tool.name) else {
            return Some(format!("tool {} was not called before", tool.name));
        };
        if before != tool {
            return Some(format!("tool {} is defined otherwise: {}", tool.name, changed_fields(before, tool)));
        }
    }
    let gone = old.iter().find(|before| new.iter().all(|tool| tool.name != before.name));
    gone.map(|tool| format!("tool {} is not called any more", tool.name))
}

/// Names of the fields of a tool that differ.
fn changed_fields(old: &flow::Tool, new: &flow::Tool) -> String {
    let fields = |tool: &flow::Tool| match serde_json::to_value(tool) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (old, new) = (fields(old), fields(new));
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
    let changed: Vec<&str> = names.filter(|name| old.get(*name) != new.get(*name)).map(String::as_str).collect();
    changed.join(", ")
}

fn data_difference(old: &Workflow, new: &Workflow) -> Option<String> {
    let count = old.elements.len().max(new.elements.len());
    (0..count).find_map(|at| match (old.elements.get(at), new.elements.get(at)) {
        (Some(before), Some(now)) if before == now => None,
        (Some(before), Some(now)) if before.name == now.name => Some(format!("data element {} differs", now.name)),
        (_, Some(now)) => Some(format!("data element {} was not there", now.name)),
        (Some(before), None) => Some(format!("data element {} is gone", before.name)),
        (None, None) => None,
    })
}

fn task_difference(old: &Workflow, new: &Workflow) -> Option<String> {
    if old.tasks.len() != new.tasks.len() {
        return Some(format!("it has {} tasks, and had {}", new.tasks.len(), old.tasks.len()));
    }
    let pairs = old.tasks.iter().zip(&new.tasks).enumerate();
    let is_same = |before: &Task, now: &Task| {
        let tools = old.tool_of(before).name == new.tool_of(now).name;
        tools && (&before.files, &before.configs, &before.after) == (&now.files, &now.configs, &now.after)
    };
    let mut changed = pairs.filter(|(_, (before, now))| !is_same(before, now));
    changed.next().map(|(at, (_, now))| {
        let line = if now.line > 0 { format!(", line {} of the script", now.line) } else { String::new() };
        format!("task {at} {}{line}, is called otherwise", new.tool_of(now).name)
    })
}
