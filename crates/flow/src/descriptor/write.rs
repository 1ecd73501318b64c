//! Writes the descriptor, one line for each tool, element and task, for people and `diff`.

use super::{DESCRIPTOR_FIELD, DESCRIPTOR_VERSION, config_json};
use crate::model::{DataRefs, Element, Source, Task, Workflow};
use crate::reference;
use std::fmt::Write as _;

/// `workflow` as a descriptor that ends with a line end. Reading it returns an equal workflow.
pub fn to_json(workflow: &Workflow) -> String {
    let mut out = format!("{{\n\"{DESCRIPTOR_FIELD}\": {DESCRIPTOR_VERSION},\n\"name\": {},\n", text(&workflow.name));
    let tool = |tool| serde_json::to_string(tool).expect("a tool has no failing parts");
    lines(&mut out, "tools", workflow.tools.iter().map(tool));
    out.push_str(",\n");
    lines(&mut out, "elements", workflow.elements.iter().map(element));
    out.push_str(",\n");
    lines(&mut out, "tasks", workflow.tasks.iter().map(|one| task(workflow, one)));
    out.push_str("\n}\n");
    out
}

/// The elements and tasks of `workflow` from these indices on, as one line of JSON. Read again by
/// [`super::from_json_grown`].
pub fn growth_to_json(workflow: &Workflow, elements: usize, tasks: usize) -> String {
    let elements: Vec<String> = workflow.elements[elements..].iter().map(element).collect();
    let tasks: Vec<String> = workflow.tasks[tasks..].iter().map(|one| task(workflow, one)).collect();
    format!("{{\"elements\": [{}], \"tasks\": [{}]}}", elements.join(", "), tasks.join(", "))
}

fn lines(out: &mut String, name: &str, items: impl Iterator<Item = String>) {
    // Writing to a `String` cannot fail, here and below.
    let _ = write!(out, "\"{name}\": [");
    for (at, item) in items.enumerate() {
        let _ = write!(out, "{}{item}", if at == 0 { "\n" } else { ",\n" });
    }
    out.push_str("\n]");
}

fn element(element: &Element) -> String {
    let mut out = format!("{{\"name\": {}", text(&element.name));
    if !element.shape.is_empty() {
        let _ = write!(out, ", \"shape\": {:?}", element.shape);
    }
    if let Source::Input(paths) = &element.source {
        let paths: Vec<String> = paths.iter().map(|path| text(path)).collect();
        let input = if element.shape.is_empty() { paths.concat() } else { format!("[{}]", paths.join(", ")) };
        let _ = write!(out, ", \"input\": {input}");
    }
    if let Some(file) = &element.file {
        let _ = write!(out, ", \"file\": {}", text(file));
    }
    out.push('}');
    out
}

fn task(workflow: &Workflow, task: &Task) -> String {
    let tool = workflow.tool_of(task);
    let name = |param: u16| text(&tool.params[usize::from(param)].name);
    let mut out = format!("{{\"tool\": {}", text(&tool.name));
    let files = task.files.iter().map(|binding| format!("{}: {}", name(binding.param), refs(workflow, &binding.data)));
    object(&mut out, "files", &files.collect::<Vec<_>>());
    let configs =
        task.configs.iter().map(|binding| format!("{}: {}", name(binding.param), config_json(&binding.value)));
    object(&mut out, "config", &configs.collect::<Vec<_>>());
    if !task.after.is_empty() {
        let after: Vec<u32> = task.after.iter().map(|other| other.0).collect();
        let _ = write!(out, ", \"after\": {after:?}");
    }
    if task.line > 0 {
        let _ = write!(out, ", \"line\": {}", task.line);
    }
    if let Some(placing) = &task.placing {
        let _ = write!(out, ", \"placing\": {}", serde_json::to_string(placing).expect("it has no failing parts"));
    }
    out.push('}');
    out
}

fn object(out: &mut String, name: &str, pairs: &[String]) {
    if !pairs.is_empty() {
        let _ = write!(out, ", \"{name}\": {{{}}}", pairs.join(", "));
    }
}

fn refs(workflow: &Workflow, data: &DataRefs) -> String {
    let (texts, alone) = reference::write(workflow, data);
    let texts: Vec<String> = texts.iter().map(|reference| text(reference)).collect();
    if alone || !data.is_array() { texts.concat() } else { format!("[{}]", texts.join(", ")) }
}

fn text(text: &str) -> String {
    serde_json::to_string(text).expect("a text has no failing parts")
}
