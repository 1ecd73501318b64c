//! Layer 9: a pool as a program of the system sees it: paths, descriptors, permissions.
//!
//! [`PosixProcess`] is one program's view of one pool: its working directory, its open files, and
//! the system calls on both, which fail with the system's own errors. It needs no thread and no
//! async runtime: a calling thread drives the connections itself with a [`transport::Reactor`]
//! while it waits. A program may therefore fork, and the crate can be interrupted by a signal
//! handler only inside a call.
//!
//! Every descriptor is a real kernel descriptor, handed over by a node of this host. If the file's
//! bytes are on this host, it is a descriptor of the file's extent, and the kernel reads, writes
//! and maps it. Otherwise it is a placeholder that only keeps the offset. The table entry of a
//! descriptor number is trusted only while the kernel's descriptor still has the recorded device
//! and inode.
//!
//! This crate does not change the program (`preload` does) and does not guard the pool against it:
//! any process that has the token may do everything.
//!
//! Modules for paths:
//! - `prefix`: tests whether a path leads below the pool's prefix
//! - `path_arg`: path arguments of calls
//! - `resolve`, `path_key`: path resolution, and paths that were walked before
//!
//! Modules for descriptors:
//! - `fd_table`: open files of the pool, by descriptor number
//! - `open`: opening files
//! - `remote_io`: reads and writes of files that have only a placeholder
//! - `locks`: file locks
//! - `fifo_socket`: fifos and sockets
//!
//! Modules for calls on names:
//! - `names`: create, rename, link, read a symlink, remove
//! - `attributes`, `xattrs`, `listing`, `statfs`: stat and its kin, extended attributes,
//!   directories, space
//!
//! Modules for the process:
//! - `process`: the view of one program
//! - `caller`, `access`: credentials of the current thread, and permission checks by them
#![forbid(unsafe_code)]

mod access;
mod attributes;
mod caller;
mod fd_table;
mod fifo_socket;
mod listing;
mod locks;
mod names;
mod open;
mod path_arg;
mod path_key;
mod prefix;
mod process;
mod remote_io;
mod resolve;
mod statfs;
mod xattrs;

#[cfg(test)]
mod attributes_test;
#[cfg(test)]
mod like_kernel_test;
#[cfg(test)]
mod listing_test;
#[cfg(test)]
mod locks_test;
#[cfg(test)]
mod names_test;
#[cfg(test)]
mod open_test;
#[cfg(test)]
mod pool_test;
#[cfg(test)]
mod process_test;
#[cfg(test)]
mod remote_io_test;
#[cfg(test)]
mod resolve_test;
#[cfg(test)]
mod socket_test;
#[cfg(test)]
mod xattrs_test;

pub use access::{AccessDecision, EXECUTE, READ, WRITE, check_acl, check_mode};
pub use attributes::{FileTimes, Stat};
pub use caller::Caller;
pub use fd_table::RemovedFd;
pub use fifo_socket::SocketEndpoint;
pub use listing::{DirectoryListing, ListedEntry};
pub use locks::{LockBase, LockOperation, LockRange};
pub use open::{FdKind, OpenOutcome};
pub use path_arg::{PathArg, PathBase, PathOperand};
pub use prefix::{may_enter, strip_prefix, strip_prefix_from};
pub use process::{ExecTarget, PausedProcess, PosixProcess};
pub use rustix::io::Errno;
pub use statfs::StatFs;
pub use transport::{RESERVED_FDS, is_reserved};
pub use xattrs::XattrTarget;

use rustix::fs::{AtFlags, Mode, OFlags};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
pub use wire::LockKind;
use wire::{Object, Refusal};

/// Returns `EINVAL` if `flags` has a flag that is not in `known`.
pub(crate) fn check_flags(flags: AtFlags, known: AtFlags) -> Result<(), Errno> {
    if known.contains(flags) { Ok(()) } else { Err(Errno::INVAL) }
}

/// Callback for a lost connection; see [`on_connection_lost`].
static ON_CONNECTION_LOST: OnceLock<fn(&Refusal)> = OnceLock::new();

/// Registers a callback that runs whenever a node does not answer or does not admit this process.
/// Only the first registration counts, for the life of the process.
pub fn on_connection_lost(callback: fn(&Refusal)) {
    ON_CONNECTION_LOST.get_or_init(|| callback);
}

/// Callback that returns whether a pending signal is to end the thread's call; see
/// [`set_cancel_check`].
static CANCEL_CHECK: OnceLock<fn() -> bool> = OnceLock::new();

/// Registers a callback that a thread polls ten times a second once it has waited a second for a
/// node. If it returns true, the call fails with `EINTR`. Only the first registration counts, for
/// the life of the process.
pub fn set_cancel_check(is_pending: fn() -> bool) {
    CANCEL_CHECK.get_or_init(|| is_pending);
}

/// Returns whether a wait that began at `since` is to be given up.
pub(crate) fn is_cancelled(since: Instant) -> bool {
    since.elapsed() >= CANCEL_AFTER && CANCEL_CHECK.get().is_some_and(|is_pending| is_pending())
}

/// Shortest wait that may be given up. A node that answers at all does so much sooner.
const CANCEL_AFTER: Duration = Duration::from_secs(1);

/// Maps a refusal to an errno. A file id that is not found was removed during the call, so its name
/// does not exist either (`ENOENT`). `Unavailable` may only mean that this process can have no more
/// descriptors; then the result is `EMFILE` or `ENFILE`, and the connection is not reported as
/// lost.
pub(crate) fn errno(refusal: &Refusal) -> Errno {
    if matches!(refusal, Refusal::Unavailable { .. })
        && let Some(descriptor_limit) = descriptor_limit()
    {
        return descriptor_limit;
    }
    if matches!(refusal, Refusal::Unavailable { .. } | Refusal::NotAdmitted { .. } | Refusal::Incompatible { .. }) {
        ON_CONNECTION_LOST.get().inspect(|callback| callback(refusal));
    }
    match refusal {
        Refusal::NotFound(Object::File(_)) => Errno::NOENT,
        Refusal::Unavailable { .. } => Errno::NOTCONN,
        other => wire::errno(other),
    }
}

/// Returns the errno (`EMFILE`, `ENFILE`) if this process cannot open another descriptor.
fn descriptor_limit() -> Option<Errno> {
    let opened = rustix::fs::open(c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.err().filter(|errno| [Errno::MFILE, Errno::NFILE].contains(errno))
}
