//! The limit of open files: raised for this process, unchanged for its tools.
//!
//! A pool keeps a descriptor open for each extent file. Tools must not inherit the higher limit:
//! old programs close every descriptor up to it, or use sets of 1,024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::sync::OnceLock;

/// The limits before they were raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open descriptors to the hard limit. Tools that are started later get
/// the old limit. To be called at the start of the process; later calls do nothing.
pub fn raise_open_files() -> io::Result<()> {
    let before = getrlimit(Resource::Nofile);
    if BEFORE.set(before).is_err() || before.current == before.maximum {
        return Ok(());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before })?)
}

/// The limits for tools; `None` if nothing was raised.
pub(crate) fn for_tools() -> Option<libc::rlimit> {
    let number = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
    BEFORE.get().map(|before| libc::rlimit { rlim_cur: number(before.current), rlim_max: number(before.maximum) })
}
