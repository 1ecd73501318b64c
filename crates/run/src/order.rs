//! Order: one attempt of a task, complete for the host that runs it.
//!
//! An order names directories by tokens, since hosts see the pool at different paths: a token
//! stands for the directory of the attempt, for that of the tool file, or for that of a member. The
//! last part of a member's path is in the text, since templates take paths apart. The workspace of
//! a host replaces the tokens by its own paths ([`AttemptOrder::command_at`]). A token is about as
//! long as the path, since commands with long arguments are expanded in another way.

use crate::checked_workflow::CheckedWorkflow;
use crate::layout::{self, AttemptPlace, RunLayout};
use flow::{DataId, LinkDir, TaskCommand, TaskId, ToolId};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// First and last character of a token: no path and no value has it (control characters are refused
/// in names, and a value with one is left as it is unless it is a token exactly).
const TOKEN: char = '\u{1}';
/// Name of the token of the attempt's directory; those of members are numbers.
const DIRECTORY: &str = "directory";
/// Name of the token of the tool file's directory.
const HERE: &str = "here";
/// Usual length of the path at which a host sees the pool's root.
const ROOT_BYTES: usize = 64;

/// One attempt of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptOrder {
    /// Id of the task.
    pub task: TaskId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Id of the task's tool.
    pub tool: ToolId,
    /// Name of the tool.
    pub tool_name: String,
    /// Path of the program where the run was started; empty if it is not known.
    pub program: PathBuf,
    /// Directory of the tool file, as its files are seen where the attempt runs.
    pub here: String,
    /// The command, with tokens.
    pub command: TaskCommand,
    /// True if the task has a directory of its own.
    pub has_directory: bool,
    /// Directory of the attempt below the pool's root.
    pub directory: PathBuf,
    /// The members that it reads, each once.
    pub inputs: Vec<InputPlace>,
    /// The members that it writes.
    pub outputs: Vec<OutputPlace>,
    /// Memory that the tool declares, in bytes; 0 if it declares none.
    pub memory: u64,
    /// The longest time that the process may run, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Its turn on its host.
    pub turn: AttemptTurn,
}

/// The turn of an attempt on its host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptTurn {
    /// Processors that it takes.
    pub cpus: u32,
    /// Processors that the host has for all attempts.
    pub slots: u32,
    /// True if it waits until attempts that began before leave it processors; it was sent ahead.
    pub waits: bool,
}

/// A member that an attempt reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputPlace {
    /// Id of the member.
    pub data: DataId,
    /// Path below the pool's root.
    pub place: PathBuf,
    /// The host's file that is bound there; `None` if its bytes are in the pool.
    pub bound: Option<PathBuf>,
    /// True if so many tasks have yet to read it that the host should make a copy, unless it lies
    /// there.
    pub is_shared: bool,
    /// Path below the pool's root of the copy or link that the attempt reads instead. Only the host
    /// knows it.
    #[serde(skip)]
    pub copy: Option<PathBuf>,
}

/// A member that an attempt writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPlace {
    /// Id of the member.
    pub data: DataId,
    /// Name of the member, for messages.
    pub name: String,
    /// Path below the attempt's directory.
    pub place: PathBuf,
}

impl AttemptOrder {
    /// The order for an attempt of a task. `bound` gives the host's file of an input that is bound.
    pub fn new(
        flow: &CheckedWorkflow,
        layout: &RunLayout,
        (task, place): (TaskId, AttemptPlace),
        program: PathBuf,
        bound: &dyn Fn(DataId) -> Option<PathBuf>,
    ) -> Self {
        let tool = flow.tool_of(task);
        let mut inputs: Vec<DataId> = flow.inputs(task).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let input = |data| {
            let (place, bound) = (layout.member(flow, data), bound(data));
            InputPlace { data, place, bound, is_shared: false, copy: None }
        };
        let directory = layout::attempt_dir(flow, task, place);
        let own = token(DIRECTORY, directory.as_os_str().len());
        let token_of = |data: DataId| match flow.writer_of(data) {
            Some(writer) if writer == task => format!("{own}/{}", flow.place_in_task(data)),
            _ => member_token(data, &layout.member(flow, data)),
        };
        let output =
            |data| OutputPlace { data, name: flow.workflow().data_name(data), place: flow.place_in_task(data).into() };
        Self {
            task,
            attempt: place.attempt,
            tool: flow.task(task).tool,
            tool_name: tool.name.clone(),
            program,
            here: tool.here.clone(),
            command: flow.command_from(task, (&here_token(&tool.here), &own), &token_of),
            has_directory: tool.needs_workdir(),
            directory,
            inputs: inputs.into_iter().map(input).collect(),
            outputs: flow.outputs(task).map(output).collect(),
            memory: tool.resources.memory,
            timeout_ms: tool.timeout_ms,
            turn: AttemptTurn { cpus: tool.resources.cpus, ..AttemptTurn::default() },
        }
    }

    /// The path of a member below the pool's root; `None` if the attempt neither reads nor writes
    /// it.
    pub fn place_of(&self, data: DataId) -> Option<PathBuf> {
        let input = || self.inputs.iter().find(|input| input.data == data).map(|input| input.place.clone());
        let output = self.outputs.iter().find(|output| output.data == data);
        output.map(|output| self.directory.join(&output.place)).or_else(input)
    }

    /// The command with the paths of a host: `directory` of the attempt, and those of members from
    /// `path_of`.
    pub fn command_at(&self, directory: &str, path_of: &dyn Fn(DataId) -> String) -> TaskCommand {
        let resolve = |text: &String| resolve(text, (&self.here, directory), path_of);
        let pair = |(name, text): &(String, String)| (name.clone(), resolve(text));
        let link_dir =
            |dir: &LinkDir| LinkDir { path: resolve(&dir.path), links: dir.links.iter().map(pair).collect() };
        let command = &self.command;
        TaskCommand {
            program: resolve(&command.program),
            args: command.args.iter().map(resolve).collect(),
            stdin: command.stdin.as_ref().map(resolve),
            stdout: command.stdout.as_ref().map(resolve),
            stderr: command.stderr.as_ref().map(resolve),
            env: command.env.iter().map(pair).collect(),
            path: command.path.iter().map(resolve).collect(),
            lists: command.lists.iter().map(|(path, text)| (resolve(path), resolve(text))).collect(),
            dirs: command.dirs.iter().map(link_dir).collect(),
        }
    }

    /// Variables that tell a task its number, tool and attempt.
    pub fn variables(&self) -> [(&'static str, String); 3] {
        [
            ("TIDEMILL_TASK", self.task.0.to_string()),
            ("TIDEMILL_TOOL", self.tool_name.clone()),
            ("TIDEMILL_ATTEMPT", self.attempt.to_string()),
        ]
    }
}

/// The token of a directory of `length` bytes below the pool's root.
fn token(name: impl std::fmt::Display, length: usize) -> String {
    format!("{TOKEN}{name:<width$}{TOKEN}", width = ROOT_BYTES + length)
}

/// The path of a member with the token of its directory.
fn member_token(data: DataId, place: &Path) -> String {
    let above = place.parent().map_or(0, |above| above.as_os_str().len());
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    format!("{}/{name}", token(data.0, above))
}

/// The token of a tool file's directory; empty if the tool has none.
pub fn here_token(here: &str) -> String {
    if here.is_empty() { String::new() } else { format!("{TOKEN}{HERE:<width$}{TOKEN}", width = here.len()) }
}

/// Replaces the token of a tool file's directory in a text that has no others.
pub fn at_here(text: &str, here: &str) -> String {
    resolve(text, (here, ""), &|_| String::new())
}

/// Replaces the tokens in a text. Anything else between two marks stays.
fn resolve(text: &str, (here, directory): (&str, &str), path_of: &dyn Fn(DataId) -> String) -> String {
    let mut parts = text.split(TOKEN);
    let mut resolved = parts.next().unwrap_or_default().to_owned();
    let mut is_name = true;
    for part in parts {
        match part.trim_end().parse() {
            _ if !is_name => {
                resolved.push_str(part);
                is_name = true;
                continue;
            }
            Ok(data) => {
                let path = path_of(DataId(data));
                resolved.push_str(path.rsplit_once('/').map_or("", |(above, _)| above));
            }
            Err(_) if part.trim_end() == DIRECTORY => resolved.push_str(directory),
            Err(_) if part.trim_end() == HERE => resolved.push_str(here),
            Err(_) => {
                resolved.push(TOKEN);
                resolved.push_str(part);
                continue;
            }
        }
        is_name = false;
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> String {
        resolve(text, ("/copy/tools", "/pool/t.1"), &|data| format!("/pool/d{}/file", data.0))
    }

    #[test]
    fn tokens_become_paths_of_the_host_and_other_text_stays() {
        let member = |data, place| member_token(DataId(data), Path::new(place));
        let text = format!("--in={}:{} {}/a.list", member(7, "d7/file"), member(12, "x"), token(DIRECTORY, 0));
        assert_eq!(resolved(&text), "--in=/pool/d7/file:/pool/d12/x /pool/t.1/a.list");
        for same in ["", "plain", "\u{1}", "a\u{1}b", "a\u{1}b\u{1}c", "\u{1}\u{1}"] {
            assert_eq!(resolved(same), same);
        }
        assert!(token(12, 90).len() > 150);
        assert_eq!(resolved(&format!("-I{}/lib", here_token("/home/me/tools"))), "-I/copy/tools/lib");
        assert_eq!(at_here(&format!("{}/../bin", here_token("/t")), "/c/t"), "/c/t/../bin");
        assert_eq!(here_token(""), "");
        assert_eq!(resolved(&format!("{}{}", token(1, 1), token(2, 0))), "/pool/d1/pool/d2");
    }

    #[test]
    fn templates_take_the_paths_of_members_apart() {
        let text = r#"{"tidemill_flow": 1, "name": "f", "tools": [{"name": "t",
            "command": ["t", "{from.dir}", "{from.stem}", "{to.dir}", "{to.stem}", "{to}"],
            "params": [{"name": "from", "kind": {"input": {}}}, {"name": "to", "kind": {"output": {"extension": ".fa"}}}]}],
            "elements": [{"name": "In", "input": "deep/in.csv"}, {"name": "Out"}],
            "tasks": [{"tool": "t", "files": {"from": "In", "to": "Out"}}]}"#;
        let flow = CheckedWorkflow::new(flow::from_json(text, "f.json").unwrap(), None).unwrap();
        let place = AttemptPlace { attempt: 1, node: None };
        let order = AttemptOrder::new(&flow, &RunLayout::default(), (TaskId(0), place), PathBuf::new(), &|_| None);
        let path_of = |data: DataId| format!("/mnt/{}", order.place_of(data).unwrap().display());
        let command = order.command_at("/mnt/t.0", &path_of);
        let local = flow.command(TaskId(0), "/mnt/t.0", &path_of);
        assert_eq!(command, local);
        assert_eq!(command.args[0], "/mnt/data/deep");
    }
}
