//! Layer 4: the mount: a FUSE face over vfs, and what keeps mounts from being left behind.
//!
//! ```text
//!   programs -> kernel -> face -> vfs        face.rs and face/: one operation, one call
//!                 |        | waits? park.rs  errno.rs: refusals to errno
//!                 |        | passed through? opens.rs (which way), through.rs (to which file)
//!                 \-- what it keeps: manners.rs (for how long), known.rs (what it was told), recall.rs (forget!), removed.rs (let go!)
//!   Mount: attached ... detached             mount.rs, attach.rs, point.rs
//!   RuntimeDir: who runs, what the dead left runtime.rs, owner.rs, sweep.rs
//! ```
//!
//! Use: [`availability`], [`RuntimeDir::of_user`] and its [`sweep`](RuntimeDir::sweep), [`RuntimeDir::claim`],
//! [`Mount::new`] at the claim's mount point. Drop the mount before the claim.
//!
//! What it is not: a place for data or for open files. Those live in `vfs` and below, so another face sees the same.
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
