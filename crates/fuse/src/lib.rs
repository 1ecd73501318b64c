//! Layer 4: the mount: a FUSE frontend over vfs, and the cleanup of mounts that were left behind.
//!
//! ```text
//!   programs -> kernel -> face -> vfs        face.rs and face/: one method for each operation
//!                 |        | must wait? park.rs  errno.rs: refusals to errno
//!                 |        | passthrough? opens.rs (open path), through.rs (backing file)
//!                 |-- caches: manners.rs (lifetimes), known.rs (state),
//!                             recall.rs (invalidate), removed.rs (prune)
//!   Mount: attached ... detached             mount.rs, attach.rs, point.rs
//!   RuntimeDir: live and dead pools          runtime.rs, owner.rs, sweep.rs
//! ```
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
