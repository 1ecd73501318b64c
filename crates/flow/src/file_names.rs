//! File names: names each member's file, and checks that no two files in one directory have the
//! same name.

use crate::diagnostics::Diagnostics;
use crate::model::{DataId, DataRefs, Element, Source, Task, TaskId, Workflow};
use crate::plan::NewParts;
use crate::template_compiler::{CompiledTool, PathPart, TemplatePiece};
use crate::tool::{ArrayForm, ConfigValue, ParamKind, Tool};
use base::Problem;
use std::fmt::Write as _;

/// The longest file name that file systems accept.
const NAME_BYTES_MAX: usize = 255;

/// The file names of all members, in one text.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct FileNames {
    text: String,
    /// The start of each member's name in `text`, and its length. The length is 0 for members that
    /// no task writes.
    spans: Vec<(u32, u16)>,
}

impl FileNames {
    /// Names new members: inputs, and those that the tasks of `order` write. An invalid file name,
    /// or two equal names in one directory, is a problem.
    pub fn add(
        &mut self,
        (workflow, new): (&Workflow, NewParts),
        tools: &[CompiledTool],
        order: &[TaskId],
        diagnostics: &mut Diagnostics<'_>,
    ) {
        self.spans.resize(workflow.data_count() as usize, (0, 0));
        for element in &workflow.elements[new.elements..] {
            if let Source::Input(paths) = &element.source {
                for (id, path) in element.members().zip(paths) {
                    self.put(id, file_name(path));
                }
            }
        }
        for number in order {
            let task = &workflow.tasks[number.0 as usize];
            let namer = OutputNamer { workflow, task, tool: workflow.tool_of(task) };
            let named = namer.name_outputs(self, &tools[task.tool.0 as usize]);
            if let Err(message) = named.and_then(|()| namer.check_directories(self)) {
                let message = format!("{}: {message}", diagnostics.task(*number));
                diagnostics.add(Some(*number), Problem::new(message));
            }
            if diagnostics.is_full() {
                break;
            }
        }
    }

    /// Forgets the names of members from `data` on.
    pub fn truncate(&mut self, data: u32) {
        self.spans.truncate(data as usize);
    }

    pub fn get(&self, id: DataId) -> &str {
        let (start, length) = self.spans[id.0 as usize];
        &self.text[start as usize..start as usize + usize::from(length)]
    }

    fn put(&mut self, id: DataId, name: &str) {
        let start = u32::try_from(self.text.len()).expect("8 million names of 255 bytes are below 4 GiB");
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
        self.text.push_str(&name[..name.floor_char_boundary(usize::from(length))]);
        self.spans[id.0 as usize] = (start, length);
    }
}

impl Workflow {
    /// The file name of member `id` without directories and extension. For a member that a task
    /// writes it is the name that the file has unless the tool sets another one.
    pub fn file_stem(&self, id: DataId) -> String {
        let element = self.element_of(id);
        match self.input_path(id) {
            Some(path) => path_part(path, PathPart::Name).to_owned(),
            None => named(element, id),
        }
    }

    /// The path of an input as in the workflow: relative to the data directory, or absolute. `None`
    /// for members that tasks write.
    pub fn input_path(&self, id: DataId) -> Option<&str> {
        let element = self.element_of(id);
        match &element.source {
            Source::Input(paths) => paths.get((id.0 - element.first.0) as usize).map(AsRef::as_ref),
            Source::Defined => None,
        }
    }
}

/// The default name without extension, such as `Model_0_03`.
fn named(element: &Element, id: DataId) -> String {
    let index = padded_index(element, id);
    let between = if index.is_empty() { "" } else { "_" };
    format!("{}{between}{index}", element.name)
}

/// Names the files of one task.
struct OutputNamer<'a> {
    workflow: &'a Workflow,
    task: &'a Task,
    tool: &'a Tool,
}

impl OutputNamer<'_> {
    fn name_outputs(&self, names: &mut FileNames, compiled: &CompiledTool) -> Result<(), String> {
        for param in &compiled.outputs {
            let Some(data) = bound(self.task, *param) else { continue };
            let template = compiled.files[usize::from(*param)].as_deref();
            let digits = digits(data.len().saturating_sub(1));
            for (number, id) in data.iter().enumerate() {
                let name = match template {
                    Some(pieces) => {
                        self.render(names, pieces, id, (number, data.len(), &format!("{number:0digits$}")))?
                    }
                    None => self.default_name(id, *param),
                };
                check_name(&name).map_err(|what| {
                    format!("the file name of `{}` would be {name:?}, which {what}", self.workflow.data_name(id))
                })?;
                names.put(id, &name);
            }
        }
        Ok(())
    }

    /// The default name: that of the element's file, or else one with extension, such as
    /// `Model_0_03.model`.
    fn default_name(&self, id: DataId, param: u16) -> String {
        let element = self.workflow.element_of(id);
        if let Some(file) = &element.file {
            return file.to_string();
        }
        let extension = match &self.tool.params[usize::from(param)].kind {
            ParamKind::Output { extension, .. } => extension.as_str(),
            _ => "",
        };
        format!("{}{extension}", named(element, id))
    }

    /// The name that a template gives to member `id`. `position` is its index among the `count`
    /// members that are bound, and `number` is that index as text.
    fn render(
        &self,
        names: &FileNames,
        pieces: &[TemplatePiece],
        id: DataId,
        (position, count, number): (usize, usize, &str),
    ) -> Result<String, String> {
        let mut name = String::new();
        for piece in pieces {
            match piece {
                TemplatePiece::Text(text) => name.push_str(text),
                TemplatePiece::Path(param, part) => {
                    let Some(data) = bound(self.task, *param) else { continue };
                    let of = if data.is_array() { position } else { 0 };
                    if data.is_array() && data.len() != count {
                        let (own, other) = (self.workflow.data_name(id), &self.tool.params[usize::from(*param)].name);
                        let counts = format!("{count} names are made of the {} of `{other}`", data.len());
                        return Err(format!(
                            "`{own}` is named after the member of `{other}` at its place, and {counts}"
                        ));
                    }
                    name.push_str(data.get(of).map_or("", |id| path_part(names.get(id), *part)));
                }
                TemplatePiece::Value(param) => name.push_str(&config_text(self.tool, self.task, *param)),
                TemplatePiece::Conditional(param, text) if is_set(self.tool, self.task, *param) => name.push_str(text),
                TemplatePiece::Element => name.push_str(&self.workflow.element_of(id).name),
                TemplatePiece::Index => name.push_str(&padded_index(self.workflow.element_of(id), id)),
                TemplatePiece::Number => name.push_str(number),
                TemplatePiece::Conditional(..) | TemplatePiece::Here => {}
            }
        }
        Ok(name)
    }

    /// Refuses two files of one name in the task's directory, or in a directory of links.
    fn check_directories(&self, names: &FileNames) -> Result<(), String> {
        let mut own: Vec<String> = Vec::new();
        for binding in &self.task.files {
            let param = &self.tool.params[usize::from(binding.param)];
            let members = || binding.data.iter().map(|id| names.get(id).to_owned());
            let is_output = matches!(param.kind, ParamKind::Output { .. });
            match param.kind.array() {
                Some(ArrayForm::Dir) => {
                    let directory = format!("the directory that `{}` gets", param.name);
                    check_distinct(members().collect(), &directory)?;
                    own.push(if is_output { param.name.clone() } else { format!("{}.dir", param.name) });
                    continue;
                }
                // An array of arguments gets a list file if it is too long for the command line.
                Some(ArrayForm::List | ArrayForm::Args) => own.push(format!("{}.list", param.name)),
                _ => {}
            }
            if is_output {
                own.extend(members());
            }
        }
        check_distinct(own, "the task's directory")
    }
}

fn check_distinct(mut names: Vec<String>, directory: &str) -> Result<(), String> {
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("two files in {directory} would have the name `{}`", pair[0])),
        None => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("is empty"),
        "." | ".." => Err("is a directory"),
        _ if name.len() > NAME_BYTES_MAX => Err("has more than 255 bytes"),
        _ if name.contains(['/', '\0', '\n', '\r']) => Err("holds a `/` or a line end"),
        _ => Ok(()),
    }
}

// --- the bindings of a task, as templates use them ---

/// The members that `task` binds to the file parameter `param`.
pub(crate) fn bound(task: &Task, param: u16) -> Option<&DataRefs> {
    task.files.iter().find(|binding| binding.param == param).map(|binding| &binding.data)
}

/// The value of a config: that of the call, or the default.
pub(crate) fn config<'a>(tool: &'a Tool, task: &'a Task, param: u16) -> Option<&'a ConfigValue> {
    let given = task.configs.iter().find(|binding| binding.param == param).map(|binding| &binding.value);
    given.or(match &tool.params[usize::from(param)].kind {
        ParamKind::Config { default, .. } => default.as_ref(),
        _ => None,
    })
}

pub(crate) fn config_text(tool: &Tool, task: &Task, param: u16) -> String {
    config(tool, task, param).map(ConfigValue::text).unwrap_or_default()
}

/// Returns whether a boolean config is true, or an optional input is bound.
pub(crate) fn is_set(tool: &Tool, task: &Task, param: u16) -> bool {
    bound(task, param).is_some() || config(tool, task, param) == Some(&ConfigValue::Boolean(true))
}

/// A part of a path. `Dir` is empty for a bare name.
pub(crate) fn path_part(path: &str, part: PathPart) -> &str {
    let name = file_name(path);
    let dot = name.rfind('.').filter(|at| *at > 0).unwrap_or(name.len());
    match part {
        PathPart::Whole => path,
        PathPart::Name => &name[..dot],
        PathPart::File => name,
        PathPart::Ext => &name[dot..],
        PathPart::Dir => path[..path.len() - name.len()].trim_end_matches('/'),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The index in each dimension, padded to the width of that dimension's last index, such as `0_03`.
fn padded_index(element: &Element, id: DataId) -> String {
    let mut text = String::new();
    for (index, length) in element.indices(id).into_iter().zip(&element.shape) {
        let between = if text.is_empty() { "" } else { "_" };
        let width = digits(*length as usize - 1);
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{between}{index:0width$}");
    }
    text
}

/// The number of decimal digits of `number`.
fn digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
