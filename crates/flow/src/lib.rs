//! Layer 0: the workflow model: tools, data elements, tasks, and its JSON descriptor.
//!
//! Languages (JS4Cloud, later Swift and VL4Cloud) meet only here: each makes a [`Workflow`], and everything after (the
//! check, the scheduler, the run, the report) sees nothing else. Values only: no I/O, no clock.
#![forbid(unsafe_code)]

mod model;
pub mod tool;

pub use model::{ConfigBinding, DataId, DataRefs, Element, FileBinding, Source, Task, TaskId, ToolId, Workflow};
pub use tool::{ArrayForm, ConfigType, ConfigValue, Param, ParamKind, Resources, Tool};
