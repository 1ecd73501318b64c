//! Tools as declared: a command template, typed parameters, and what a task of the tool needs.
//!
//! A tool file (crate `toolfile`) or a descriptor makes these; `Workflow` holds them; `run` expands the template.

use serde::{Deserialize, Serialize};

/// A declared tool. Its parameters keep the order of the declaration: inputs, then outputs, then configs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// The name scripts call it by.
    pub name: String,
    /// One sentence for people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// argv as templates: `{param}`, `{param.name|file|ext|dir}` for files, `{here}` for the tool file's folder; `{{` and `}}` are braces.
    pub command: Vec<String>,
    /// The declared parameters.
    #[serde(default)]
    pub params: Vec<Param>,
    /// Standard input: a template naming a file parameter; none is `/dev/null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Where standard output goes: a template naming an output parameter; none is captured for the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Variables added to the environment of the process, values are templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// What one task of this tool takes from the machine.
    #[serde(default)]
    pub resources: Resources,
    /// How often a failed task is tried again; 0 is once only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: u32,
    /// A task that runs longer is ended and has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Files beside the tool file that belong to the tool (scripts, libraries, data), relative to `here`; part of its hash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Folders searched for the command before PATH, relative to `here`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// The folder of the tool file, absolute; empty until known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub here: String,
    /// An argv, no template, that prints the version of the program; its first line goes into the report. Empty: unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub version: Vec<String>,
    /// Whether a task gets a working directory of its own. None: yes if the tool has file parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<bool>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What one task takes from the machine while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Slots (processors), at least 1.
    pub cpus: u32,
    /// Bytes of memory of its own, beside the pool; 0 is not accounted.
    #[serde(default)]
    pub memory: u64,
}

impl Default for Resources {
    fn default() -> Self {
        Self { cpus: 1, memory: 0 }
    }
}

/// A declared parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// The name scripts pass it by.
    pub name: String,
    /// What may be bound to it, and how it reaches the command.
    pub kind: ParamKind,
}

/// What a parameter is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ParamKind {
    /// Data the tool reads.
    Input {
        /// How an array reaches the command; None: one element only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        array: Option<ArrayForm>,
        /// May be left out of a call; template items that name it alone then vanish.
        #[serde(default, skip_serializing_if = "is_default")]
        optional: bool,
        /// The tool finds the file by itself (beside another one), so no template names it.
        #[serde(default, skip_serializing_if = "is_default")]
        implicit: bool,
    },
    /// Data the tool writes.
    Output {
        /// As for an input.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        array: Option<ArrayForm>,
        /// The file's name as a template over other parameters' files and configs, `{element}` and `{index}`;
        /// None: the element's name (`_index` for a member) and `extension`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// The extension of the default name, with its dot; may be empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        extension: String,
        /// As for an input.
        #[serde(default, skip_serializing_if = "is_default")]
        implicit: bool,
    },
    /// A plain value on the command line.
    Config {
        /// What values it takes.
        #[serde(rename = "type")]
        of: ConfigType,
        /// Used when a call leaves it out; None: it must be given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default: Option<ConfigValue>,
    },
}

/// How an array of files reaches a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrayForm {
    /// One argument each; above `ARGUMENT_BYTES_MAX` in sum one `@FILE` that lists them, a line each.
    Args,
    /// The path of a file that lists them, a line each.
    List,
    /// The path of a directory of links (of the files to be, for outputs) with the files' own names.
    Dir,
}

/// Above this sum of lengths an `Args` array is passed as `@FILE`.
pub const ARGUMENT_BYTES_MAX: usize = 64 << 10;

/// The type of a config parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfigType {
    /// A whole number.
    Integer,
    /// Any finite number.
    Number,
    /// Text.
    String,
    /// `true` or `false`; a template item that is `{flag?--text}` is `--text` when true and vanishes when false.
    Boolean,
}

/// The value of a config parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ConfigValue {
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// Any finite number.
    Number(f64),
    /// Text.
    String(String),
}

impl Tool {
    /// A tool of one processor with everything else left out.
    pub fn new(name: impl Into<String>, command: Vec<String>, params: Vec<Param>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            command,
            params,
            stdin: None,
            stdout: None,
            env: Vec::new(),
            resources: Resources::default(),
            retries: 0,
            timeout_ms: None,
            files: Vec::new(),
            path: Vec::new(),
            here: String::new(),
            version: Vec::new(),
            workdir: None,
        }
    }

    /// The position of the parameter called `name`.
    pub fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }

    /// Whether any parameter is a file.
    pub fn has_files(&self) -> bool {
        self.params.iter().any(|param| !matches!(param.kind, ParamKind::Config { .. }))
    }

    /// Whether a task of this tool runs in a directory of its own in the pool.
    pub fn needs_workdir(&self) -> bool {
        self.workdir.unwrap_or_else(|| self.has_files())
    }
}
