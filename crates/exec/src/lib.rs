//! Layer 3: local processes: one task's command, run, watched and ended.
//!
//! [`run`] starts a [`Launch`] in a process group of its own, captures what it says within a bound,
//! ends it on time-out or cancel, and tells how it went in a [`Report`]. [`which`] finds a tool's
//! program. [`protect`] makes the tools die with us even when we are killed by SIGKILL, and
//! [`sweep`] finds those that left their group. [`library`] finds the preload library, and
//! [`unreached`] says which programs it does not reach. [`MemoryGroups`] are control groups that
//! keep tools to the memory that they declare.
//!
//! Invariants: when `run` returns, nothing of the process group is alive; no wait is without a bound once a process was
//! asked to end; output beyond the bound is counted, not kept; this process itself never touches a [`ToolPath`]. What it
//! does not do: decide, retry, or know what a task is.
//!
//! Processes are started as `posix_spawn` does it (`stage`), since a fork copies our page tables: 10 % slower than it for a
//! small process, and far slower for one that holds a pool.
#![deny(unsafe_code)]

mod capture;
mod control_group;
mod files;
mod group;
mod image;
mod keeper;
mod launch;
mod library;
mod memory_group;
mod memory_use;
mod process;
mod runaway;
mod stage;
mod start;
mod sys;
mod tool_path;
mod which;

pub use capture::{Captured, KEPT_BYTES_MAX};
pub use control_group::NoMemoryGroup;
pub use files::raise_open_files;
pub use image::{Unreached, unreached};
pub use keeper::protect;
pub use launch::{Ending, GRACE, Launch, Report, Usage};
pub use library::{NoLibrary, library, preloading};
pub use memory_group::{MemoryGroups, MemoryLimit, PlannedGroups, remove_memory_groups};
pub use process::run;
pub use runaway::sweep;
pub use tool_path::{ToolFile, ToolPath};
pub use which::{NotFound, search_dirs, which};
