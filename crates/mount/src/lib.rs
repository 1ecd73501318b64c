//! Layer 8: the mount: a FUSE frontend over vfs, and the cleanup of mounts that were left behind.
//!
//! ```text
//!   programs -> kernel -> filesystem -> vfs
//!                 |        | must wait? deferred   passthrough? open_path, passthrough
//!                 |-- caches: cache_policy, kernel_state <- invalidate, prune: changes by others
//! ```
//!
//! Modules for requests of the kernel:
//! - `filesystem`: the FUSE frontend: one method for each operation, in files by topic
//! - `session`: a mount's own session with the pool
//! - `deferred`: replies: immediate, or deferred until the pool can answer
//! - `errno`: the errno and log message of a refusal
//! - `translate`: attributes, kinds, times and flags, between the kernel's types and the pool's
//! - `listing`: directory listings: `.` and `..`, then the pool's entries
//! - `open_path`: the open path of each inode: ordinary, or passthrough to a backing file
//! - `passthrough`: backing files that the kernel reads and writes itself
//! - `metrics`: counts and sizes of requests
//!
//! Modules for what the kernel caches:
//! - `cache_policy`: how long names and attributes may be cached
//! - `kernel_state`: state of the inodes that the kernel knows and holds open
//! - `lookup_counts`: how often each inode was handed to the kernel
//! - `forget_reports`: reports of forgotten inodes, and the requests that they overlap with
//! - `invalidate`: cache-invalidation callback: makes the kernel drop what is no longer valid
//! - `prune`: pruning of inodes that other sessions removed
//!
//! Modules for the life of a mount:
//! - `availability`: detection of whether and how this process can mount
//! - `mount`: a mounted pool, from mount to unmount
//! - `attach`: the system calls that attach and detach the kernel
//! - `mount_point`: mount points: checks, and paths resolved without touching a mount
//! - `mountinfo`: the kernel's list of mounts
//! - `shutdown`: shutdown signal, set once the kernel has ended the session
//! - `error`: errors of mounting, unmounting and the runtime directory
//!
//! Modules for running and dead pools:
//! - `runtime_dir`: registry of a user's running pools, and of remains
//! - `owner_file`: owner file of a registered pool
//! - `stale_cleanup`: cleanup of a pool's remains: mounts, staging data, control groups, directory
//!
//! Usage: [`availability`], [`RuntimeDir::of_user`], [`RuntimeDir::remove_stale`],
//! [`RuntimeDir::register`], then [`Mount::new`] at the registration's mount point. Drop the mount
//! before the registration.
//!
//! This crate holds neither data nor open files. Those are in `vfs` and below, so all frontends
//! share them.
#![forbid(unsafe_code)]

mod attach;
mod availability;
mod cache_policy;
mod deferred;
mod errno;
mod error;
mod filesystem;
mod forget_reports;
mod invalidate;
mod kernel_state;
mod listing;
mod lookup_counts;
mod metrics;
mod mount;
mod mount_point;
mod mountinfo;
mod open_path;
mod owner_file;
mod passthrough;
mod prune;
mod runtime_dir;
mod session;
mod shutdown;
mod stale_cleanup;
mod translate;

pub use attach::UnmountOutcome;
pub use availability::{MountMethod, availability};
pub use error::{MountError, Unavailable};
pub use metrics::Traffic;
pub use mount::{Mount, MountOptions, Unmounter};
pub use mount_point::{check_points, unmount_path};
pub use runtime_dir::{PoolRegistration, Rollback, RuntimeDir};
pub use stale_cleanup::CleanupReport;
