//! Validates each part of a workflow by itself: tools, elements, and the bindings of tasks.

use crate::diagnostics::Diagnostics;
use crate::element_name::{check_defined_name, check_element_name};
use crate::model::{DataRefs, Element, FileBinding, PlacingTarget, Source, Task, TaskId, TaskPlacing, Workflow};
use crate::plan::NewParts;
use crate::template_compiler::CompiledTool;
use crate::tool::{ParamKind, Tool};
use base::Problem;
use std::collections::HashSet;

/// The most tasks of a workflow.
pub const TASKS_MAX: u32 = 1_000_000;
/// The most members of all elements together.
pub const MEMBERS_MAX: u32 = 8_000_000;
/// The most tools of a workflow.
pub const TOOLS_MAX: usize = 10_000;

pub(crate) fn tools(workflow: &Workflow, diagnostics: &mut Diagnostics<'_>) -> Vec<CompiledTool> {
    let mut names = HashSet::new();
    if workflow.tools.len() > TOOLS_MAX {
        diagnostics.add(None, Problem::new(format!("more than {TOOLS_MAX} tools")));
        return Vec::new();
    }
    let mut compiled = Vec::new();
    for tool in &workflow.tools {
        if !names.insert(&tool.name) {
            diagnostics.add(None, Problem::new(format!("two tools are called `{}`", tool.name)));
        }
        match CompiledTool::new(tool) {
            Ok(tool) => compiled.push(tool),
            Err(problems) => problems.into_iter().for_each(|found| diagnostics.add(None, found.problem)),
        }
        if diagnostics.is_full() {
            break;
        }
    }
    compiled
}

/// Checks that new elements follow each other without gaps, and have valid names and shapes.
pub(crate) fn elements(workflow: &Workflow, new: NewParts, diagnostics: &mut Diagnostics<'_>) {
    let mut names = HashSet::new();
    let mut next = new.data;
    for element in &workflow.elements[new.elements..] {
        let problem = check_element(element, next).or_else(|| {
            let twice = !names.insert(&element.name);
            twice.then(|| Problem::new(format!("two data elements are called `{}`", element.name)))
        });
        // After one problem the ids of later elements have no meaning.
        if let Some(problem) = problem {
            diagnostics.add(None, problem);
            return;
        }
        next = next.saturating_add(element.count);
    }
    if next > MEMBERS_MAX {
        diagnostics
            .add(None, Problem::new(format!("data elements have {next} members in all, more than {MEMBERS_MAX}")));
    }
}

fn check_element(element: &Element, first: u32) -> Option<Problem> {
    let name = &element.name;
    let count = element.shape.iter().try_fold(1u32, |product, length| product.checked_mul(*length));
    if element.first.0 != first || count != Some(element.count) || element.count == 0 {
        return Some(Problem::new(format!("the shape of `{name}` does not fit its members")));
    }
    match &element.source {
        Source::Defined if element.file.is_some() => check_element_name(name).err(),
        Source::Defined => check_defined_name(name).err(),
        Source::Input(paths) if paths.len() != element.count as usize => {
            Some(Problem::new(format!("`{name}` has {} members and {} input files", element.count, paths.len())))
        }
        Source::Input(paths) => check_element_name(name).err().or_else(|| {
            let wrong = paths.iter().find(|path| !is_file_path(path))?;
            Some(Problem::new(format!("`{name}`: {wrong:?} is not the path of an input file")))
        }),
    }
}

/// Returns whether a path ends with a file name and fits on one line of a list file.
fn is_file_path(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    !matches!(name, "" | "." | "..") && !path.contains(['\0', '\n', '\r'])
}

pub(crate) fn tasks(workflow: &Workflow, new: NewParts, diagnostics: &mut Diagnostics<'_>) {
    if workflow.tasks.len() > TASKS_MAX as usize {
        diagnostics.add(None, Problem::new(format!("{} tasks are more than {TASKS_MAX}", workflow.tasks.len())));
        return;
    }
    for (number, task) in (0..).map(TaskId).zip(&workflow.tasks).skip(new.tasks as usize) {
        if let Some(message) = check_task(workflow, task) {
            let named = diagnostics.task(number);
            diagnostics.add(Some(number), Problem::new(format!("{named}: {message}")));
        }
        if diagnostics.is_full() {
            return;
        }
    }
}

fn check_task(workflow: &Workflow, task: &Task) -> Option<String> {
    let Some(tool) = workflow.tools.get(task.tool.0 as usize) else {
        return Some(format!("there is no tool {}", task.tool.0));
    };
    let params = task.files.iter().map(|binding| binding.param);
    let params: Vec<u16> = params.chain(task.configs.iter().map(|binding| binding.param)).collect();
    if let Some(param) = params.iter().find(|param| usize::from(**param) >= tool.params.len()) {
        return Some(format!("its tool has no parameter {param}"));
    }
    let twice = params.iter().enumerate().find(|(at, param)| params[..*at].contains(param));
    if let Some((_, param)) = twice {
        return Some(format!("parameter `{}` is bound twice", tool.params[usize::from(*param)].name));
    }
    if let Some(other) = task.after.iter().find(|other| other.0 as usize >= workflow.tasks.len()) {
        return Some(format!("it comes after task {}, which there is not", other.0));
    }
    if let Some(TaskPlacing { location: Some(PlacingTarget::Data(data)), .. }) = task.placing.as_deref()
        && data.0 >= workflow.data_count()
    {
        return Some(format!("it is placed beside datum {}, which there is not", data.0));
    }
    let file = task.files.iter().find_map(|binding| check_file_binding(workflow, tool, binding));
    file.or_else(|| check_configs(tool, task)).or_else(|| missing(tool, &params))
}

fn check_file_binding(workflow: &Workflow, tool: &Tool, binding: &FileBinding) -> Option<String> {
    let param = &tool.params[usize::from(binding.param)];
    let name = &param.name;
    if matches!(param.kind, ParamKind::Config { .. }) {
        return Some(format!("parameter `{name}` is a config, and data is bound to it"));
    }
    if binding.data.is_empty() {
        return Some(format!("parameter `{name}` is bound to an empty array"));
    }
    if !binding.data.is_below(workflow.data_count()) {
        return Some(format!("parameter `{name}` is bound to data that there is not"));
    }
    match (param.kind.array(), &binding.data) {
        (None, data) if data.is_array() => Some(format!("parameter `{name}` takes one data element, not an array")),
        (Some(_), DataRefs::One(_)) => Some(format!("parameter `{name}` takes arrays: one element is an array of one")),
        _ => None,
    }
}

fn check_configs(tool: &Tool, task: &Task) -> Option<String> {
    task.configs.iter().find_map(|binding| {
        let param = &tool.params[usize::from(binding.param)];
        match &param.kind {
            ParamKind::Config { of, .. } if of.accepts(&binding.value) => None,
            ParamKind::Config { of, .. } => {
                Some(format!("parameter `{}`: {} is no {}", param.name, binding.value.quoted(), of.name()))
            }
            _ => Some(format!("parameter `{}` takes data, not a value", param.name)),
        }
    })
}

fn missing(tool: &Tool, bound: &[u16]) -> Option<String> {
    let is_needed = |kind: &ParamKind| match kind {
        ParamKind::Config { default, .. } => default.is_none(),
        kind => !kind.is_optional(),
    };
    let mut params = (0u16..).zip(&tool.params);
    let (_, param) = params.find(|(index, param)| is_needed(&param.kind) && !bound.contains(index))?;
    Some(format!("parameter `{}` is missing", param.name))
}
