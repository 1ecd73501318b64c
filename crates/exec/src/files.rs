//! How many files this process may have open: as many as it is allowed to, while its tools get what the user's shell gave.
//!
//! A pool keeps a descriptor for each whole file. Tools must not inherit the higher number: old programs close every
//! descriptor up to it, or keep them in sets of 1,024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::sync::OnceLock;

/// What the limits were before they were raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open descriptors to the hard one; tools that are started later get the old one. Call it at the
/// start of the process; later calls do nothing.
pub fn raise_open_files() -> io::Result<()> {
    let before = getrlimit(Resource::Nofile);
    if BEFORE.set(before).is_err() || before.current == before.maximum {
        return Ok(());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before })?)
}

/// What tools get; None if nothing was raised.
pub(crate) fn of_tools() -> Option<libc::rlimit> {
    let number = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
    BEFORE.get().map(|before| libc::rlimit { rlim_cur: number(before.current), rlim_max: number(before.maximum) })
}
