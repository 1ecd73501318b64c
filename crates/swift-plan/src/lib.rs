//! Layer 10: Swift scripts as plans of runs.
//!
//! ```text
//!  swift::Evaluator -- calls, questions --> SwiftPlan (PlanSource) -- tasks, reads --> event loop
//!        ^                                    |    ^                                     |
//!        +------- ends of calls, answers -----+    +------- ends of tasks, contents -----+
//! ```
//!
//! Each app function of the script is a tool, each call of it a task, and each file that it writes
//! a datum. Paths of inputs start from the data directory, and mapped files are exported below
//! `--out`.
//!
//! - `loading`: a script and its imports, read and checked
//! - `tools`: the tools of app functions
//! - `plan`: the steps of the evaluator as steps of the plan
//! - `files`: files of the script as data
//! - `commands`: programs that the script runs itself
//! - `host_files`: inputs, patterns and texts in directories of this host
#![forbid(unsafe_code)]

mod commands;
mod files;
mod host_files;
mod loading;
mod plan;
mod tools;

pub use files::FileDirectories;
pub use loading::{LoadedScript, ScriptOptions, SwiftScript, is_swift, load};
pub use plan::{SwiftPlan, SwiftPlanOptions};
