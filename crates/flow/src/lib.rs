//! Layer 0: the workflow model: tools, data elements, tasks, and its JSON descriptor.
//!
//! All languages (JS4Cloud, later Swift and VL4Cloud) compile to a [`Workflow`]. The stages after
//! them (the check, the scheduler, the run, the report) see nothing else. This crate has only
//! values: no I/O, no clock.
#![forbid(unsafe_code)]

pub mod catalogue;
mod cycle;
mod descriptor;
mod diagnostics;
mod element_name;
mod expand;
mod file_names;
mod model;
mod plan;
mod reference;
mod shell_words;
mod template;
mod template_compiler;
#[cfg(test)]
mod testing;
pub mod tool;
mod validate;

pub use catalogue::{Catalogue, Mate};
pub use descriptor::{DESCRIPTOR_BYTES_MAX, DESCRIPTOR_FIELD, DESCRIPTOR_VERSION, from_json, is_descriptor, to_json};
pub use diagnostics::Script;
pub use element_name::{ELEMENT_NAME_BYTES_MAX, check_defined_name, check_element_name};
pub use expand::{Command, LinkDir};
pub use model::{ConfigBinding, DataId, DataRefs, Element, FileBinding, Source, Task, TaskId, ToolId, Workflow};
pub use plan::{Plan, READS_MAX, check};
pub use shell_words::warnings as shell_warnings;
pub use template::is_identifier;
pub use template_compiler::{PARAMS_MAX, RESERVED_NAMES, ToolPart, ToolProblem, check_tool};
pub use tool::{ArrayForm, ConfigType, ConfigValue, Param, ParamKind, Resources, Tool};
pub use validate::{MEMBERS_MAX, TASKS_MAX, TOOLS_MAX};
