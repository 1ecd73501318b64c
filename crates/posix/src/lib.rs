//! Layer 4: a pool as a program of the system sees it: paths, descriptors, permissions.
//!
//! [`Process`] is one program's view of one pool: its working directory, what it has open, and the verbs of the system's calls on both, with the
//! system's own errors. Who calls it gives no thread and no runtime: it waits with a [`link::Hand`], which the threads of the
//! program turn themselves, so a program may fork, and be in a signal handler's way at no other time than in a call.
//!
//! A descriptor is a real one of the kernel, given by a node of this host: of the file's own extent where its bytes are there, so that
//! reading, writing and mapping it is the kernel's business; else one that stands in for it, and keeps the offset. What we know of a
//! number is looked up by it, and believed only while the kernel's descriptor is the same.
//!
//! What it does not do: change the program (`preload` does), guard the pool against it (who has the token may do all).
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

/// Refuses (`EINVAL`) what a call knows nothing of.
pub(crate) fn only(flags: AtFlags, known: AtFlags) -> Result<(), Errno> {
    if known.contains(flags) { Ok(()) } else { Err(Errno::INVAL) }
}

/// Who is told that there is no way to a node any more.
static LOST: OnceLock<fn(&Refusal)> = OnceLock::new();

/// Has it called whenever a node does not answer, or does not let this process in. The first to ask is told, for the life of the process.
pub fn when_lost(told: fn(&Refusal)) {
    LOST.get_or_init(|| told);
}

/// Who knows whether a signal waits that ends what a thread does.
static ENDED: OnceLock<fn() -> bool> = OnceLock::new();

/// Has it asked, by a thread that has waited for a node for a second, ten times a second: if it says so, the call is given up with `EINTR`. The first
/// to ask is asked, for the life of the process.
pub fn ended_by(asked: fn() -> bool) {
    ENDED.get_or_init(|| asked);
}

/// Whether what has waited since then is to be given up.
pub(crate) fn is_ended(since: Instant) -> bool {
    since.elapsed() >= PATIENT && ENDED.get().is_some_and(|asked| asked())
}

/// Nodes that answer do so long before.
const PATIENT: Duration = Duration::from_secs(1);

/// The system's error for a refusal. What is gone by its number was removed while we looked, so its name is not there; what a node could not give to who may have no
/// more descriptors is not the node's failure.
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

/// Why this process can have no further descriptor (`EMFILE`, `ENFILE`); none where it can.
fn none_left() -> Option<Errno> {
    let tried = rustix::fs::open(c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    tried.err().filter(|errno| [Errno::MFILE, Errno::NFILE].contains(errno))
}
