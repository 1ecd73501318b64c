//! The keeper: a small process that kills our tools if we die without a word (SIGKILL, out of memory).
//!
//! ```text
//! we ---- list of our process groups (a memory file; each enters itself before it runs its program) ----> keeper
//!    ---- a pipe that only we hold open: its end wakes the keeper, which kills the groups on the list
//! ```
//! The kernel's own `PR_SET_PDEATHSIG` needs a fork for every task (see the crate's page) and forgets grandchildren; this
//! costs one shell for each run. A group is in the list before its program runs, since the child writes its line itself
//! (`stage`). What is left to chance: processes that left their group (`runaway` finds those at the next start).

use crate::stage::Register;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Reads to the end of the pipe (nothing is ever written to it), then kills each group on the list.
const SCRIPT: &str = "trap '' HUP INT TERM; read -r nothing
while read -r group; do [ -n \"$group\" ] && kill -s KILL -- \"-$group\"; done < /proc/self/fd/1";

/// An entry is a number of at most 10 digits, padded with blanks, and a newline.
const LINE_BYTES: usize = 11;

/// A line that is free.
const BLANK: [u8; LINE_BYTES] = *b"          \n";

static KEEPER: OnceLock<Keeper> = OnceLock::new();

/// What we hold of the keeper.
#[derive(Debug)]
struct Keeper {
    list: File,
    lines: Mutex<Lines>,
    /// Never written: it ends when we do.
    _pipe: PipeWriter,
}

/// Which lines of the list are free.
#[derive(Debug, Default)]
struct Lines {
    freed: Vec<u64>,
    /// How many lines there are.
    count: u64,
}

/// From now on a keeper watches over all processes that this process runs: none outlives it, even if it is killed. Call it
/// once before the first `run`; later calls do nothing. Fails if there is no shell or no memory file.
pub fn protect() -> io::Result<()> {
    if KEEPER.get().is_none() {
        // Of two callers at one time the later one's keeper sees its pipe end at once, and goes.
        let _ = KEEPER.set(Keeper::start()?);
    }
    Ok(())
}

impl Keeper {
    fn start() -> io::Result<Self> {
        let list = File::from(memfd_create("process-groups", MemfdFlags::CLOEXEC)?);
        let (theirs, ours) = io::pipe()?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(SCRIPT).env_clear().current_dir("/").process_group(0);
        command.stdin(theirs).stdout(list.try_clone()?).stderr(Stdio::null()).spawn()?;
        Ok(Self { list, lines: Mutex::default(), _pipe: ours })
    }

    /// Empties a line.
    fn clear(&self, line: u64) {
        // What was written there can be written over: the memory is there.
        if let Err(error) = self.list.write_all_at(&BLANK, line * LINE_BYTES as u64) {
            tracing::warn!(%error, "the list of running tasks is not in order");
        }
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group's line in the list, for as long as it lives.
#[derive(Debug)]
pub struct Record {
    keeper: &'static Keeper,
    line: u64,
}

impl Record {
    /// A line for a group that is about to start, if there is a keeper.
    pub fn new() -> Option<Self> {
        let keeper = KEEPER.get()?;
        let line = keeper.lines().take();
        Some(Self { keeper, line })
    }

    /// Where the child enters itself.
    pub fn register(&self) -> Register<'_> {
        let offset = i64::try_from(self.line * LINE_BYTES as u64).expect("a list of running tasks is short");
        Register { list: self.keeper.list.as_fd(), offset }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.keeper.clear(self.line);
        self.keeper.lines().freed.push(self.line);
    }
}

/// The line of a group. For the child before its program: no allocation, no panic.
pub fn line_of(group: i32) -> [u8; LINE_BYTES] {
    let (mut line, mut rest) = (BLANK, group.unsigned_abs());
    for digit in line.iter_mut().take(LINE_BYTES - 1).rev() {
        *digit = b"0123456789"[(rest % 10) as usize];
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    line
}

impl Lines {
    fn take(&mut self) -> u64 {
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
            let line = line_of(group);
            assert_eq!(std::str::from_utf8(&line).expect("digits").trim(), group.to_string());
            assert_eq!(line[LINE_BYTES - 1], b'\n');
        }
    }
}
