//! The reaper: a small process that kills our tools if we are killed (SIGKILL, out of
//! memory).
//!
//! ```text
//! we ---- list of process groups (a memfd; each child adds itself before its program) ----> reaper
//!    ---- a pipe that only we hold open: its end wakes the reaper, which kills the groups listed
//! ```
//!
//! The kernel's `PR_SET_PDEATHSIG` needs a fork for every task (see the crate page) and does not
//! reach grandchildren. The reaper costs one shell per run. A group is listed before its program
//! runs, because the child writes its own entry (`child`). The reaper misses processes that left
//! their group; `escaped` finds them at the next start.

use crate::child::ReaperSlot;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Waits for the end of the pipe, to which nothing is ever written, then kills each group listed.
const SCRIPT: &str = "trap '' HUP INT TERM; read -r nothing
while read -r group; do [ -n \"$group\" ] && kill -s KILL -- \"-$group\"; done < /proc/self/fd/1";

/// Length of an entry: a number of at most 10 digits, padded with blanks, and a newline.
const LINE_BYTES: usize = 11;

/// A free entry.
const BLANK: [u8; LINE_BYTES] = *b"          \n";

static REAPER: OnceLock<Reaper> = OnceLock::new();

/// Our side of the reaper.
#[derive(Debug)]
struct Reaper {
    list: File,
    slots: Mutex<FreeSlots>,
    /// Never written to; closed by the kernel when this process ends.
    _pipe: PipeWriter,
}

/// The free entries of the list.
#[derive(Debug, Default)]
struct FreeSlots {
    freed: Vec<u64>,
    /// Number of entries in the list.
    count: u64,
}

/// Starts a reaper for all processes that this process runs: none outlives it, even if it is
/// killed. To be called once before the first `run`; later calls do nothing. Fails without a shell
/// or memfd.
pub fn protect() -> io::Result<()> {
    if REAPER.get().is_none() {
        // If two threads call this at the same time, the later reaper sees its pipe close and
        // exits.
        let _ = REAPER.set(Reaper::start()?);
    }
    Ok(())
}

impl Reaper {
    fn start() -> io::Result<Self> {
        let list = File::from(memfd_create("process-groups", MemfdFlags::CLOEXEC)?);
        let (theirs, ours) = io::pipe()?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(SCRIPT).env_clear().current_dir("/").process_group(0);
        command.stdin(theirs).stdout(list.try_clone()?).stderr(Stdio::null()).spawn()?;
        Ok(Self { list, slots: Mutex::default(), _pipe: ours })
    }

    /// Clears an entry.
    fn clear(&self, slot: u64) {
        // Cannot run out of space: the entry's memory is already allocated.
        if let Err(error) = self.list.write_all_at(&BLANK, slot * LINE_BYTES as u64) {
            tracing::warn!(%error, "the list of running tasks is invalid");
        }
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, FreeSlots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group's entry in the list, cleared on drop.
#[derive(Debug)]
pub struct ReaperEntry {
    reaper: &'static Reaper,
    slot: u64,
}

impl ReaperEntry {
    /// Allocates an entry for a group that is about to start; `None` without a reaper.
    pub fn new() -> Option<Self> {
        let reaper = REAPER.get()?;
        let slot = reaper.slots().allocate();
        Some(Self { reaper, slot })
    }

    /// The position at which the child writes its entry.
    pub fn slot_position(&self) -> ReaperSlot<'_> {
        let offset = i64::try_from(self.slot * LINE_BYTES as u64).expect("a list of running tasks is short");
        ReaperSlot { list: self.reaper.list.as_fd(), offset }
    }
}

impl Drop for ReaperEntry {
    fn drop(&mut self) {
        self.reaper.clear(self.slot);
        self.reaper.slots().freed.push(self.slot);
    }
}

/// Formats the entry of a group. Called in the child before `execve`: no allocation, no panic.
pub fn format_entry(group: i32) -> [u8; LINE_BYTES] {
    let (mut slot, mut rest) = (BLANK, group.unsigned_abs());
    for digit in slot.iter_mut().take(LINE_BYTES - 1).rev() {
        *digit = b"0123456789"[(rest % 10) as usize];
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    slot
}

impl FreeSlots {
    fn allocate(&mut self) -> u64 {
        self.freed.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_the_number_of_its_group() {
        for group in [1, 10, 4711, i32::MAX] {
            let slot = format_entry(group);
            assert_eq!(std::str::from_utf8(&slot).expect("digits").trim(), group.to_string());
            assert_eq!(slot[LINE_BYTES - 1], b'\n');
        }
    }
}
