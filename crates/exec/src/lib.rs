//! Layer 0: execution of local processes: starts, watches and ends the command of one task.
//!
//! [`run`] starts a [`Launch`] in its own process group, captures its output up to a limit, ends it
//! on time-out or cancellation, and returns a [`ProcessReport`]. [`which`] finds a tool's program.
//! [`protect`] ends the tools with us even if we are killed by SIGKILL, and [`kill_by_env_var`]
//! finds processes that left their group. [`preload_library`] finds the preload library, and
//! [`preload_obstacle`] tells which programs it does not reach. [`MemoryGroups`] are control groups
//! that limit tools to their declared memory.
//!
//! Modules for one process:
//! - `launch`: the command to run, and the report of its run
//! - `process`: from start to end
//! - `start`, `child`: the start, and setup in the child between `clone` and `execve`
//! - `group`: the process group, signalled as a whole
//! - `capture`: captured output, with a limit
//! - `sys`: unsafe system calls: wait, reap
//!
//! Modules for limits:
//! - `memory_group`, `control_group`: control groups that limit memory, and where they can be made
//! - `memory_use`: samples of used memory
//! - `rlimits`: the limit of open files
//!
//! Modules for processes that outlive us or their group:
//! - `reaper`: kills our tools if we are killed
//! - `escaped`: finds processes that left their group
//!
//! Modules for programs:
//! - `which`: finds a tool's program
//! - `tool_path`: paths that only a tool's process may access
//! - `preload_library`, `elf_check`: finds the preload library, and checks which programs it
//!   reaches
//!
//! Invariants: when `run` returns, no process of the group is alive (unless killed processes hang
//! in the kernel); no wait is unlimited once a process was asked to end; output beyond the limit is
//! counted, not stored; this process never accesses a [`ToolPath`]. The crate makes no decisions,
//! does not retry, and does not know what a task is.
//!
//! Processes are started like `posix_spawn` does (`child`), because a fork copies the page tables:
//! 10 % slower for a small process, and far slower for one that holds a pool.
#![deny(unsafe_code)]

mod capture;
mod child;
mod control_group;
mod elf_check;
mod escaped;
mod group;
mod launch;
mod memory_group;
mod memory_use;
mod preload_library;
mod process;
mod reaper;
mod rlimits;
mod start;
mod sys;
mod tool_path;
mod which;

pub use capture::{KEPT_BYTES_MAX, OutputCapture};
pub use control_group::MemoryGroupError;
pub use elf_check::{PreloadObstacle, preload_obstacle};
pub use escaped::kill_by_env_var;
pub use launch::{ExitReason, GRACE, Launch, ProcessReport, ResourceUsage};
pub use memory_group::{MemoryGroups, MemoryLimit, PlannedGroups, remove_memory_groups};
pub use preload_library::{PreloadLibraryError, preload_library, preload_variable};
pub use process::run;
pub use reaper::protect;
pub use rlimits::raise_open_files;
pub use tool_path::{PathOrFd, ToolPath};
pub use which::{ProgramNotFound, search_dirs, which};
