//! Layer 4: a pool as a program of the system sees it: paths, descriptors, permissions.
//!
//! [`Process`] is one program's view of one pool: its working directory, its open files, and the
//! system calls on both, which fail with the system's own errors. It needs no thread and no async
//! runtime: a calling thread drives the connections itself with a [`link::Hand`] (a reactor) while
//! it waits. A program may therefore fork, and the crate can be interrupted by a signal handler
//! only inside a call.
//!
//! Every descriptor is a real kernel descriptor, handed over by a node of this host. If the file's
//! bytes are on this host, it is a descriptor of the file's extent, and the kernel reads, writes
//! and maps it. Otherwise it is a placeholder that only keeps the offset. The table entry of a
//! descriptor number is trusted only while the kernel's descriptor still has the recorded device
//! and inode.
//!
//! This crate does not change the program (`preload` does) and does not guard the pool against it:
//! any process that has the token may do everything.
#![forbid(unsafe_code)]

mod access;
mod attributes;
mod listing;
mod locks;
mod names;
mod open;
mod prefix;
mod process;
mod remote;
mod said;
mod special;
mod table;
mod usage;
mod walk;
mod ways;
mod who;
mod xattrs;

pub use access::{READ, RUN, Verdict, WRITE, judge, judge_by};
pub use attributes::{Stat, Times};
pub use link::{OWN_NUMBERS, is_own};
pub use listing::{Entry, Listing};
pub use locks::{From, Range, Wanted};
pub use open::{Kind, Opening};
pub use prefix::{below, below_from, may_enter};
pub use process::{Paused, Process, Program};
pub use rustix::io::Errno;
pub use said::{Base, Said, Side};
pub use special::Meeting;
pub use table::Held;
pub use usage::Room;
pub use who::Who;
pub use xattrs::Whose;

use rustix::fs::{AtFlags, Mode, OFlags};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
pub use wire::LockKind;
use wire::{Object, Refusal};

/// Returns `EINVAL` if `flags` has a flag that is not in `known`.
pub(crate) fn only(flags: AtFlags, known: AtFlags) -> Result<(), Errno> {
    if known.contains(flags) { Ok(()) } else { Err(Errno::INVAL) }
}

/// Callback for a lost connection; see [`when_lost`].
static LOST: OnceLock<fn(&Refusal)> = OnceLock::new();

/// Registers a callback that runs whenever a node does not answer or does not admit this process.
/// Only the first registration counts, for the life of the process.
pub fn when_lost(told: fn(&Refusal)) {
    LOST.get_or_init(|| told);
}

/// Callback that returns whether a pending signal is to end the thread's call; see [`ended_by`].
static ENDED: OnceLock<fn() -> bool> = OnceLock::new();

/// Registers a callback that a thread polls ten times a second once it has waited a second for a
/// node. If it returns true, the call fails with `EINTR`. Only the first registration counts, for
/// the life of the process.
pub fn ended_by(asked: fn() -> bool) {
    ENDED.get_or_init(|| asked);
}

/// Returns whether a wait that began at `since` is to be given up.
pub(crate) fn is_ended(since: Instant) -> bool {
    since.elapsed() >= PATIENT && ENDED.get().is_some_and(|asked| asked())
}

/// Shortest wait that may be given up. A node that answers at all does so much sooner.
const PATIENT: Duration = Duration::from_secs(1);

/// Maps a refusal to an errno. A file id that is not found was removed during the call, so its name
/// does not exist either (`ENOENT`). `Unavailable` may only mean that this process can have no more
/// descriptors; then the result is `EMFILE` or `ENFILE`, and the connection is not reported as
/// lost.
pub(crate) fn errno(refusal: &Refusal) -> Errno {
    if matches!(refusal, Refusal::Unavailable { .. })
        && let Some(none_left) = none_left()
    {
        return none_left;
    }
    if matches!(refusal, Refusal::Unavailable { .. } | Refusal::NotAdmitted { .. } | Refusal::Incompatible { .. }) {
        LOST.get().inspect(|told| told(refusal));
    }
    match refusal {
        Refusal::NotFound(Object::File(_)) => Errno::NOENT,
        Refusal::Unavailable { .. } => Errno::NOTCONN,
        other => vfs::errno(other),
    }
}

/// Returns the errno (`EMFILE`, `ENFILE`) if this process cannot open another descriptor.
fn none_left() -> Option<Errno> {
    let tried = rustix::fs::open(c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    tried.err().filter(|errno| [Errno::MFILE, Errno::NFILE].contains(errno))
}
