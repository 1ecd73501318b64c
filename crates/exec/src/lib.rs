//! Layer 3: execution of local processes: starts, watches and ends the command of one task.
//!
//! [`run`] starts a [`Launch`] in its own process group, captures its output up to a limit, ends it
//! on time-out or cancellation, and returns a [`Report`]. [`which`] finds a tool's program.
//! [`protect`] ends the tools with us even if we are killed by SIGKILL, and [`sweep`] finds
//! processes that left their group. [`library`] finds the preload library, and [`unreached`] tells
//! which programs it does not reach. [`MemoryGroups`] are control groups that limit tools to their
//! declared memory.
//!
//! Invariants: when `run` returns, no process of the group is alive (unless killed processes hang
//! in the kernel); no wait is unlimited once a process was asked to end; output beyond the limit is
//! counted, not stored; this process never accesses a [`ToolPath`]. The crate makes no decisions,
//! does not retry, and does not know what a task is.
//!
//! Processes are started like `posix_spawn` does (`stage`), because a fork copies the page tables:
//! 10 % slower for a small process, and far slower for one that holds a pool.
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
