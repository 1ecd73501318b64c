//! Layer 4: the mount: a FUSE frontend over vfs, and the cleanup of mounts that were left behind.
//!
//! ```text
//!   programs -> kernel -> face -> vfs
//!                 |        | must wait? park   passthrough? opens, through
//!                 |-- caches: manners, known <- recall, removed: what others changed
//! ```
//!
//! Modules for requests of the kernel:
//! - `face`: the FUSE frontend: one method for each operation, in files by topic
//! - `session`: a mount's own session with the pool
//! - `park`: replies: immediate, or deferred until the pool can answer
//! - `errno`: the errno and log message of a refusal
//! - `translate`: attributes, kinds, times and flags, between the kernel's types and the pool's
//! - `listing`: directory listings: `.` and `..`, then the pool's entries
//! - `opens`: the open path of each inode: ordinary, or passthrough to a backing file
//! - `through`: passthrough: backing files that the kernel reads and writes itself
//! - `traffic`: metrics: counts and sizes of requests
//!
//! Modules for what the kernel caches:
//! - `manners`: cache policy: how long names and attributes may be cached
//! - `known`: state of the inodes that the kernel knows and holds open
//! - `lookups`: lookup counts: how often each inode was handed to the kernel
//! - `recall`: cache-invalidation callback: makes the kernel drop what is no longer valid
//! - `removed`: pruning of inodes that other sessions removed
//!
//! Modules for the life of a mount:
//! - `availability`: detection of whether and how this process can mount
//! - `mount`: a mounted pool, from mount to unmount
//! - `attach`: the system calls that attach and detach the kernel
//! - `point`: mount points: checks, and paths resolved without touching a mount
//! - `mountinfo`: the kernel's list of mounts
//! - `ended`: shutdown signal, set once the kernel has ended the session
//! - `error`: errors of mounting, unmounting and the runtime directory
//!
//! Modules for running and dead pools:
//! - `runtime`: runtime directory: registry of a user's running pools, and of remains
//! - `owner`: owner file of a registered pool
//! - `sweep`: cleanup of a pool's remains: mounts, staging data, control groups, directory
//!
//! Usage: [`availability`], [`RuntimeDir::of_user`] and its [`sweep`](RuntimeDir::sweep),
//! [`RuntimeDir::claim`], then [`Mount::new`] at the claim's mount point. Drop the mount before the
//! claim.
//!
//! This crate holds neither data nor open files. Those are in `vfs` and below, so all frontends
//! share them.
#![forbid(unsafe_code)]

mod attach;
mod availability;
mod ended;
mod errno;
mod error;
mod face;
mod known;
mod listing;
mod lookups;
mod manners;
mod mount;
mod mountinfo;
mod opens;
mod owner;
mod park;
mod point;
mod recall;
mod removed;
mod runtime;
mod session;
mod sweep;
mod through;
mod traffic;
mod translate;

pub use attach::Unmounted;
pub use availability::{Way, availability};
pub use error::{MountError, Unavailable};
pub use mount::{Mount, Options, Unmounter};
pub use point::{check_points, unmount_path};
pub use runtime::{Claim, RuntimeDir, Undo};
pub use sweep::Swept;
pub use traffic::Traffic;
