//! Expands the command of a task: the template of its tool, with paths and values inserted.
//!
//! This module does no I/O. It returns the list files and directories of links that the caller must
//! create in the task's directory. That directory holds the outputs under their names,
//! `<param>.list` for list files (`<param>.2.list` if a second item needs another one),
//! `<param>.dir` for links to an input array, and `<param>` for the members of an output array that
//! is written as a directory.

use crate::file_names::{bound, config, config_text, is_set, path_part};
use crate::model::{DataId, Task, TaskId, ToolId, Workflow};
use crate::plan::Plan;
use crate::template_compiler::{PathPart, TemplatePiece};
use crate::tool::{ARGUMENT_BYTES_MAX, ArrayForm, ConfigValue, ParamKind, Tool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The command of a task, and the files and directories to create before it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TaskCommand {
    /// An absolute path if the program in the tool's command has a `/`; otherwise a name to be
    /// searched in `path`, then in `PATH`.
    pub program: String,
    /// The arguments after the program.
    pub args: Vec<String>,
    /// The file for standard input; `None` for an empty one.
    pub stdin: Option<String>,
    /// The file for standard output; `None` if it is captured.
    pub stdout: Option<String>,
    /// The file for standard error; `None` if it is captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Variables that the tool adds to the environment.
    pub env: Vec<(String, String)>,
    /// Absolute directories that come before `PATH`.
    pub path: Vec<String>,
    /// Files to write first: absolute path and content.
    pub lists: Vec<(String, String)>,
    /// Directories to create first.
    pub dirs: Vec<LinkDir>,
}

/// A directory for an array parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDir {
    /// The absolute path of the directory.
    pub path: String,
    /// The links in it: name and target. Empty for an output: the tool writes its members there.
    pub links: Vec<(String, String)>,
}

pub(crate) fn expand(
    plan: &Plan,
    workflow: &Workflow,
    number: TaskId,
    (here, task_dir): (&str, &str),
    path_of: &dyn Fn(DataId) -> String,
) -> TaskCommand {
    let task = &workflow.tasks[number.0 as usize];
    let compiled = plan.compiled(task);
    let tool = workflow.tool_of(task);
    let mut expansion =
        Expansion { plan, tool, here, task, task_dir, path_of, lists: BTreeMap::new(), dirs: BTreeMap::new() };
    expansion.add_dirs();
    let mut argv = Vec::new();
    for item in &compiled.command {
        expansion.item(item, &mut argv);
    }
    let env = tool.env.iter().zip(&compiled.env);
    let env = env.filter_map(|((name, _), pieces)| Some((name.clone(), expansion.text(pieces, None)?))).collect();
    let stream = |param: Option<u16>| Some(path_of(bound(task, param?)?.iter().next()?));
    let mut argv = argv.into_iter();
    TaskCommand {
        program: program(here, argv.next().unwrap_or_default()),
        args: argv.collect(),
        stdin: stream(compiled.stdin),
        stdout: stream(compiled.stdout),
        stderr: stream(compiled.stderr),
        env,
        path: tool.path.iter().map(|directory| from_here(here, directory)).collect(),
        lists: expansion.lists.into_iter().collect(),
        dirs: expansion.dirs.into_values().collect(),
    }
}

/// The program of a tool, which depends on no parameter, as [`TaskCommand::program`] has it.
pub(crate) fn expand_program(plan: &Plan, workflow: &Workflow, tool: ToolId, here: &str) -> String {
    let task = &Task { tool, files: [].into(), configs: [].into(), after: [].into(), line: 0, placing: None };
    let tool = workflow.tool_of(task);
    let path_of = &|_: DataId| String::new();
    let (lists, dirs) = (BTreeMap::new(), BTreeMap::new());
    let mut expansion = Expansion { plan, tool, here, task, task_dir: "", path_of, lists, dirs };
    let mut argv = Vec::new();
    plan.compiled(task).command.first().into_iter().for_each(|item| expansion.item(item, &mut argv));
    program(here, argv.into_iter().next().unwrap_or_default())
}

fn program(here: &str, program: String) -> String {
    if program.contains('/') { from_here(here, &program) } else { program }
}

/// `path` as an absolute path; relative paths are resolved from the tool file's directory.
fn from_here(here: &str, path: &str) -> String {
    // The directory may be given as a token without a slash.
    let is_absolute = path.starts_with('/') || path.starts_with(here);
    if is_absolute { path.to_owned() } else { format!("{here}/{path}") }
}

struct Expansion<'a> {
    plan: &'a Plan,
    tool: &'a Tool,
    /// The directory of the tool file.
    here: &'a str,
    task: &'a Task,
    task_dir: &'a str,
    path_of: &'a dyn Fn(DataId) -> String,
    /// The contents of list files, by path.
    lists: BTreeMap<String, String>,
    /// The directories, by parameter.
    dirs: BTreeMap<u16, LinkDir>,
}

impl Expansion<'_> {
    /// Adds the directories of all array parameters passed as directories, even of implicit ones
    /// that the command does not name.
    fn add_dirs(&mut self) {
        for binding in &self.task.files {
            let param = &self.tool.params[usize::from(binding.param)];
            if !param.kind.is_dir() {
                continue;
            }
            let path = self.dir_path(binding.param);
            let links = match param.kind {
                ParamKind::Output { .. } => Vec::new(),
                _ => binding.data.iter().map(|id| (self.plan.file_name(id).to_owned(), (self.path_of)(id))).collect(),
            };
            self.dirs.insert(binding.param, LinkDir { path, links });
        }
    }

    fn dir_path(&self, param: u16) -> String {
        let param = &self.tool.params[usize::from(param)];
        let ending = if matches!(param.kind, ParamKind::Output { .. }) { "" } else { ".dir" };
        format!("{}/{}{ending}", self.task_dir, param.name)
    }

    /// Appends the arguments that an item of the command expands to.
    fn item(&mut self, pieces: &[TemplatePiece], argv: &mut Vec<String>) {
        let several = pieces.iter().find_map(|piece| match piece {
            TemplatePiece::Path(param, _) | TemplatePiece::Value(param) => {
                Some(*param).filter(|param| self.tool.params[usize::from(*param)].kind.is_several_arguments())
            }
            _ => None,
        });
        let Some(param) = several else {
            argv.extend(self.text(pieces, None));
            return;
        };
        let members: Vec<String> = match (bound(self.task, param), config(self.tool, self.task, param)) {
            (Some(data), _) => data.iter().map(self.path_of).collect(),
            (None, Some(ConfigValue::Strings(texts))) => texts.clone(),
            _ => return,
        };
        let arguments: Vec<String> = members.iter().filter_map(|member| self.text(pieces, Some(member))).collect();
        let is_listed = self.form(param) == Some(ArrayForm::Args);
        if is_listed && arguments.iter().map(String::len).sum::<usize>() > ARGUMENT_BYTES_MAX {
            argv.push(format!("@{}", self.list(param, &arguments)));
        } else {
            argv.extend(arguments);
        }
    }

    /// The text of an item, with `member` inserted for its array; `None` if the item is left out.
    fn text(&mut self, pieces: &[TemplatePiece], member: Option<&str>) -> Option<String> {
        let mut text = String::new();
        let mut is_flag = false;
        for piece in pieces {
            match piece {
                TemplatePiece::Text(plain) => text.push_str(plain),
                TemplatePiece::Here => text.push_str(self.here),
                TemplatePiece::Path(param, part) => text.push_str(&self.path(*param, *part, member)?),
                TemplatePiece::Value(param) => match member {
                    Some(member) if self.tool.params[usize::from(*param)].kind.is_several_arguments() => {
                        text.push_str(member);
                    }
                    _ => text.push_str(&config_text(self.tool, self.task, *param)),
                },
                TemplatePiece::Conditional(param, plain) => {
                    is_flag = true;
                    if is_set(self.tool, self.task, *param) {
                        text.push_str(plain);
                    }
                }
                TemplatePiece::Element | TemplatePiece::Index | TemplatePiece::Number => {}
            }
        }
        let vanishes = is_flag && text.is_empty();
        (!vanishes).then_some(text)
    }

    /// The text for a file parameter: its path, or a part of it; `None` for an optional input that
    /// is not bound.
    fn path(&mut self, param: u16, part: PathPart, member: Option<&str>) -> Option<String> {
        let data = bound(self.task, param)?;
        match self.form(param) {
            Some(ArrayForm::Args | ArrayForm::Words) => member.map(|path| path_part(path, part).to_owned()),
            Some(ArrayForm::List) => {
                let lines: Vec<String> =
                    data.iter().map(|id| path_part(&(self.path_of)(id), part).to_owned()).collect();
                Some(self.list(param, &lines))
            }
            Some(ArrayForm::Dir) => Some(self.dir_path(param)),
            None => Some(path_part(&(self.path_of)(data.iter().next()?), part).to_owned()),
        }
    }

    fn form(&self, param: u16) -> Option<ArrayForm> {
        self.tool.params[usize::from(param)].kind.array()
    }

    /// The path of a file that lists `lines`. Equal lines share one file.
    fn list(&mut self, param: u16, lines: &[String]) -> String {
        let content: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        let name = &self.tool.params[usize::from(param)].name;
        let mut path = format!("{}/{name}.list", self.task_dir);
        let mut number = 1;
        while self.lists.get(&path).is_some_and(|known| *known != content) {
            number += 1;
            path = format!("{}/{name}.{number}.list", self.task_dir);
        }
        self.lists.entry(path.clone()).or_insert(content);
        path
    }
}

#[cfg(test)]
#[path = "expand_test.rs"]
mod tests;
