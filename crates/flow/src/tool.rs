//! Tools as declared: a command template, typed parameters, and the resources that a task of the
//! tool needs.
//!
//! Tools come from a tool file (crate `toolfile`) or a descriptor; a `Workflow` holds them; the
//! module `expand` expands their templates.

use serde::{Deserialize, Serialize};

/// A declared tool. Its parameters keep the order of the declaration: inputs, then outputs, then
/// configs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// The name by which scripts call it.
    pub name: String,
    /// A description for users in one sentence; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The argument vector as templates: `{param}`, `{param.name|file|ext|dir}` for files, `{here}`
    /// for the tool file's directory; `{{` and `}}` are braces.
    pub command: Vec<String>,
    /// The declared parameters.
    #[serde(default)]
    pub params: Vec<Param>,
    /// Standard input: a template that names a file parameter; `None` for `/dev/null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Standard output: a template that names an output parameter; `None` if it is captured for the
    /// report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Standard error: a template that names an output parameter; `None` if it is captured for the
    /// report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Variables added to the environment of the process; their values are templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// The resources that one task of this tool takes from the machine.
    #[serde(default)]
    pub resources: Resources,
    /// The number of further attempts of a failed task; 0 for a single attempt.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: u32,
    /// The longest run time of a task; a task that runs longer is ended and fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Files beside the tool file that belong to the tool (scripts, libraries, data), relative to
    /// `here`; they are part of its hash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Directories that are searched for the command before `PATH`, relative to `here`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// The absolute directory of the tool file; empty until known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub here: String,
    /// A command, without templates, that prints the version of the program; the report shows its
    /// first line. Empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub version: Vec<String>,
    /// True if a task gets a working directory of its own. `None`: true if the tool has file
    /// parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<bool>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The resources that one task takes from the machine while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// The number of slots (processors), at least 1.
    pub cpus: u32,
    /// The memory of the task itself in bytes, without that of the pool; 0 if it is not accounted.
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
    /// The name by which scripts pass it.
    pub name: String,
    /// The values that may be bound to it, and the form in which they reach the command.
    pub kind: ParamKind,
}

/// The kind of a parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ParamKind {
    /// Data that the tool reads.
    Input {
        /// The form in which an array reaches the command; `None` if only one element may be bound.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        array: Option<ArrayForm>,
        /// True if a call may leave the parameter out; template items that name it are then left
        /// out.
        #[serde(default, skip_serializing_if = "is_default")]
        optional: bool,
        /// True if the tool finds the file by itself (beside another one), so that no template
        /// names it.
        #[serde(default, skip_serializing_if = "is_default")]
        implicit: bool,
    },
    /// Data that the tool writes.
    Output {
        /// The form in which an array reaches the command, as for an input.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        array: Option<ArrayForm>,
        /// The file's name as a template over other parameters' files and configs, `{element}`,
        /// `{index}` and `{number}`. `None`: the element's name (with `_index` for a member) and
        /// `extension`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// The extension of the default name, with its dot; may be empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        extension: String,
        /// True if no template names the file, as for an input.
        #[serde(default, skip_serializing_if = "is_default")]
        implicit: bool,
    },
    /// A plain value on the command line.
    Config {
        /// The type of its values.
        #[serde(rename = "type")]
        of: ConfigType,
        /// The value if a call leaves it out; `None` if a call must set it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default: Option<ConfigValue>,
    },
}

/// The form in which an array of files reaches a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrayForm {
    /// One argument for each file. If their lengths add up to more than `ARGUMENT_BYTES_MAX`, one
    /// `@FILE` instead, a file that lists the arguments, one a line.
    Args,
    /// One argument for each file, however many they are.
    Words,
    /// The path of a file that lists the files, one a line.
    List,
    /// The path of a directory with links to the files, under the files' own names; for outputs,
    /// the directory in which the tool creates the files.
    Dir,
}

/// The largest sum of argument lengths, in bytes, of an `Args` array; a longer one is passed as
/// `@FILE`.
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
    /// Texts: an item of the command that names it becomes an argument for each.
    Strings,
    /// `true` or `false`. A template item `{flag?--text}` becomes `--text` if true, and is left out
    /// if false.
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
    /// Texts.
    Strings(Vec<String>),
}

impl Tool {
    /// A tool of one processor with defaults for everything else.
    pub fn new(name: impl Into<String>, command: Vec<String>, params: Vec<Param>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            command,
            params,
            stdin: None,
            stdout: None,
            stderr: None,
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

    /// The index of the parameter called `name`.
    pub fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }

    /// Returns whether any parameter is a file.
    pub fn has_files(&self) -> bool {
        self.params.iter().any(|param| !matches!(param.kind, ParamKind::Config { .. }))
    }

    /// Returns whether a task of this tool runs in a directory of its own in the pool.
    pub fn needs_workdir(&self) -> bool {
        self.workdir.unwrap_or_else(|| self.has_files())
    }
}
