//! Layer 0: the workflow model: tools, data elements, tasks, and its JSON descriptor.
//!
//! Languages (JS4Cloud, later Swift and VL4Cloud) meet only here: each makes a [`Workflow`], and everything after (the
//! check, the scheduler, the run, the report) sees nothing else. Values only: no I/O, no clock.
#![forbid(unsafe_code)]

pub mod catalogue;
mod compiled;
mod element_name;
mod model;
mod template;
pub mod tool;

pub use catalogue::Catalogue;
pub use compiled::{PARAMS_MAX, RESERVED_NAMES, ToolPart, ToolProblem, check_tool};
pub use element_name::{ELEMENT_NAME_BYTES_MAX, check_defined_name, check_element_name};
pub use model::{ConfigBinding, DataId, DataRefs, Element, FileBinding, Source, Task, TaskId, ToolId, Workflow};
pub use template::is_identifier;
pub use tool::{ArrayForm, ConfigType, ConfigValue, Param, ParamKind, Resources, Tool};
