//! Reads one tool of the file.

use crate::section::{Section, kind};
use crate::value;
use base::Problem;
use flow::{ArrayForm, ConfigType, ConfigValue, Param, ParamKind, Resources, Tool, ToolPart, check_tool};
use std::path::Path;

const KEYS: [&str; 17] = [
    "description",
    "command",
    "files",
    "path",
    "cpus",
    "memory",
    "retries",
    "timeout",
    "env",
    "version",
    "workdir",
    "stdin",
    "stdout",
    "stderr",
    "inputs",
    "outputs",
    "config",
];

/// Names that a script cannot call, or that mean something else there.
const TAKEN_NAMES: [&str; 5] = ["Data", "console", "print", "undefined", "globalThis"];

/// The most processors and retries of a tool; more are assumed to be a mistake.
const CPUS_MAX: u32 = 4_096;
const RETRIES_MAX: u32 = 100;

/// Byte offsets of the parts of a tool in the text.
#[derive(Default)]
struct Offsets {
    command: Vec<usize>,
    env: Vec<usize>,
    /// The offset of each parameter's name.
    params: Vec<usize>,
    /// The offset of each parameter's `file`, `extension` or `default`.
    values: Vec<usize>,
}

/// Reads the tool in `section`; its problems are recorded there.
pub(crate) fn read(name: &str, section: &Section<'_>, here: &str, exists: &dyn Fn(&Path) -> bool) -> Tool {
    section.check_keys(&KEYS);
    if TAKEN_NAMES.contains(&name) {
        section.refuse("scripts know another thing by this name", None);
    }
    let mut offsets = Offsets::default();
    let tool = Tool {
        name: name.to_owned(),
        description: section.string("description").unwrap_or_default(),
        command: command(section, &mut offsets),
        params: params(section, &mut offsets),
        stdin: section.string("stdin"),
        stdout: section.string("stdout"),
        stderr: section.string("stderr"),
        env: env(section, &mut offsets),
        resources: resources(section),
        retries: section.count("retries", 0..RETRIES_MAX + 1).unwrap_or(0),
        timeout_ms: timeout(section),
        files: files(section, here, exists),
        path: section.strings("path").into_iter().map(|(_, directory)| directory).collect(),
        here: here.to_owned(),
        version: section.strings("version").into_iter().map(|(_, item)| item).collect(),
        workdir: section.boolean("workdir"),
    };
    let complete = section.get("command").is_some_and(|value| value.get_ref().is_array());
    for found in check_tool(&tool) {
        // A missing command was already reported.
        if complete || !matches!(found.part, ToolPart::Tool) {
            section.add_problem(offset(section, &offsets, found.part), found.problem);
        }
    }
    tool
}

fn offset(section: &Section<'_>, offsets: &Offsets, part: ToolPart) -> usize {
    let known = match part {
        ToolPart::Command(item) => offsets.command.get(item).copied(),
        ToolPart::Stdin => Some(section.offset_of("stdin")),
        ToolPart::Stdout => Some(section.offset_of("stdout")),
        ToolPart::Stderr => Some(section.offset_of("stderr")),
        ToolPart::Env(item) => offsets.env.get(item).copied(),
        ToolPart::Param(index) => offsets.params.get(index).copied(),
        ToolPart::ParamValue(index) => offsets.values.get(index).copied(),
        _ => None,
    };
    known.unwrap_or(section.offset())
}

fn command(section: &Section<'_>, offsets: &mut Offsets) -> Vec<String> {
    if section.get("command").is_none() {
        section
            .refuse("`command` is missing", Some("say what to run: command = [\"program\", \"{input}\"]".to_owned()));
    }
    let items = section.strings("command");
    offsets.command = items.iter().map(|(offset, _)| *offset).collect();
    items.into_iter().map(|(_, item)| item).collect()
}

fn env(section: &Section<'_>, offsets: &mut Offsets) -> Vec<(String, String)> {
    let mut env = Vec::new();
    for (name, value, offset) in section.pairs("env") {
        let Some(text) = value.get_ref().as_str() else {
            let message = format!("variable `{name}` needs text in quotes, and this is {}", kind(value.get_ref()));
            section.add_problem(value.span().start, Problem::new(section.with_subject(&message)));
            continue;
        };
        offsets.env.push(offset);
        env.push((name.to_owned(), text.to_owned()));
    }
    env
}

fn resources(section: &Section<'_>) -> Resources {
    let cpus = section.count("cpus", 1..CPUS_MAX + 1).unwrap_or(1);
    let memory = section.get("memory").map(|value| value::size(value.get_ref()));
    if memory == Some(None) {
        section.refuse_at("memory", "`memory` is a size such as \"512MiB\"");
    }
    Resources { cpus, memory: memory.flatten().unwrap_or(0) }
}

fn timeout(section: &Section<'_>) -> Option<u64> {
    let value = section.get("timeout")?;
    let ms = value.get_ref().as_str().and_then(value::time_ms);
    if ms.is_none() {
        section.refuse_at("timeout", "`timeout` is a time such as \"10min\"; units are ms, s, min, h");
    }
    ms
}

fn files(section: &Section<'_>, here: &str, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let files = section.strings("files");
    for (offset, file) in &files {
        if !exists(&Path::new(here).join(file)) {
            let problem = Problem::new(section.with_subject(&format!("the file `{file}` does not exist")));
            section.add_problem(
                *offset,
                problem.hint(format!("`files` are found from the tool file's directory, {here}")),
            );
        }
    }
    files.into_iter().map(|(_, file)| file).collect()
}

// --- parameters ---

type ReadKind = fn(&Section<'_>) -> ParamKind;

fn params(section: &Section<'_>, offsets: &mut Offsets) -> Vec<Param> {
    let mut params = Vec::new();
    let readers: [(&str, ReadKind, &str); 3] =
        [("inputs", input, "default"), ("outputs", output, "file"), ("config", config, "default")];
    for (key, reader, value_key) in readers {
        for (name, section) in section.tables(key, |name| format!("parameter `{name}`")) {
            let value_key = if section.get(value_key).is_some() { value_key } else { "extension" };
            offsets.params.push(section.offset());
            offsets.values.push(section.offset_of(value_key));
            params.push(Param { name: name.to_owned(), kind: reader(&section) });
        }
    }
    params
}

fn input(section: &Section<'_>) -> ParamKind {
    section.check_keys(&["array", "optional", "implicit"]);
    ParamKind::Input {
        array: array(section),
        optional: section.boolean("optional").unwrap_or(false),
        implicit: section.boolean("implicit").unwrap_or(false),
    }
}

fn output(section: &Section<'_>) -> ParamKind {
    section.check_keys(&["array", "extension", "file", "implicit"]);
    ParamKind::Output {
        array: array(section),
        file: section.string("file"),
        extension: section.string("extension").unwrap_or_default(),
        implicit: section.boolean("implicit").unwrap_or(false),
    }
}

fn config(section: &Section<'_>) -> ParamKind {
    section.check_keys(&["type", "default"]);
    let types = || value::CONFIG_TYPES.iter().map(|of| of.name());
    let of = match section.string("type") {
        Some(name) => {
            let of = value::config_type(&name);
            if of.is_none() {
                let problem = Problem::new(section.with_subject(&format!("unknown type `{name}`")));
                section.add_problem(section.offset_of("type"), problem.nearest(&name, types()));
            }
            of
        }
        None if section.get("type").is_none() => {
            section.refuse("`type` is missing", Some("one of integer, number, string, boolean".to_owned()));
            None
        }
        None => None,
    };
    let default = default(section);
    match of {
        Some(of) => ParamKind::Config { of, default },
        // The type is unknown. Drop the default, so that there is only one message.
        None => ParamKind::Config { of: ConfigType::String, default: None },
    }
}

fn default(section: &Section<'_>) -> Option<ConfigValue> {
    let value = section.get("default")?.get_ref();
    let config = value::config(value);
    if config.is_none() {
        section.refuse_at("default", format!("`default` is a plain value, and this is {}", kind(value)));
    }
    config
}

fn array(section: &Section<'_>) -> Option<ArrayForm> {
    let name = section.string("array")?;
    let form = match name.as_str() {
        "args" => Some(ArrayForm::Args),
        "list" => Some(ArrayForm::List),
        "dir" => Some(ArrayForm::Dir),
        _ => None,
    };
    if form.is_none() {
        let problem = Problem::new(section.with_subject(&format!("unknown form of array `{name}`")));
        section.add_problem(section.offset_of("array"), problem.nearest(&name, ["args", "list", "dir"]));
    }
    form
}
