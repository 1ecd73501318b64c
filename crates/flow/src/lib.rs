//! Layer 1: the workflow model: tools, data elements, tasks, and its JSON descriptor.
//!
//! All languages (JS4Cloud, later Swift and VL4Cloud) compile to a [`Workflow`]. The stages after
//! them (the check, the scheduler, the run, the report) see nothing else. This crate has only
//! values: no I/O, no clock.
//!
//! Modules for the workflow:
//! - `model`: elements, tasks, and the members that tasks read and write
//! - `tool`: declared tools: a command template, typed parameters, resources
//! - `reference`: members and arrays as text: `Train`, `Model[0][3]`
//! - `catalogue`: the files of a data directory, found by the names that scripts use
//! - `descriptor`: the JSON descriptor, read and written
//!
//! Modules for the check:
//! - `validate`: each part by itself: tools, elements, bindings of tasks
//! - `plan`: the workflow as a whole, and the plan derived from it
//! - `growth`: elements and tasks that are added to a workflow that was checked
//! - `readers`: the tasks that read each member
//! - `cycle`: topological order, or the cycle that prevents one
//! - `element_name`, `file_names`: names of elements, and of the files made for members
//! - `shell_words`: words of a command that only a shell would understand
//! - `diagnostics`: the problems found
//!
//! Modules for commands:
//! - `template`, `template_compiler`: syntax of templates, and their names resolved
//! - `expand`: the command of one task
//!
//! For tests of other crates: `testing`, a builder of workflows.
#![forbid(unsafe_code)]

pub mod catalogue;
mod cycle;
mod descriptor;
mod diagnostics;
mod element_name;
mod expand;
mod file_names;
mod growth;
mod model;
mod plan;
mod readers;
mod reference;
mod shell_words;
mod template;
mod template_compiler;
#[cfg(test)]
mod testing;
pub mod tool;
mod validate;

pub use catalogue::{Catalogue, Mate};
pub use descriptor::{
    DESCRIPTOR_BYTES_MAX, DESCRIPTOR_FIELD, DESCRIPTOR_VERSION, from_json, from_json_grown, growth_to_json,
    is_descriptor, to_json,
};
pub use diagnostics::ScriptSource;
pub use element_name::{ELEMENT_NAME_BYTES_MAX, check_defined_name, check_element_name};
pub use expand::{LinkDir, TaskCommand};
pub use growth::WorkflowGrowth;
pub use model::{
    ConfigBinding, DataId, DataRefs, Element, FileBinding, PlacingTarget, Source, Task, TaskId, TaskPlacing, ToolId,
    Workflow,
};
pub use plan::{Plan, READS_MAX, check};
pub use shell_words::warnings as shell_warnings;
pub use template::is_identifier;
pub use template_compiler::{PARAMS_MAX, RESERVED_NAMES, ToolPart, ToolProblem, check_tool};
pub use tool::{ArrayForm, ConfigType, ConfigValue, Param, ParamKind, Resources, Tool};
pub use validate::{MEMBERS_MAX, TASKS_MAX, TOOLS_MAX};
