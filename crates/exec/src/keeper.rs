//! The keeper: a small process that kills our tools if we die without a word (SIGKILL, out of memory).
//!
//! ```text
//! we ---- list of our process groups (a memory file; one write per start and end of a task) ----> keeper
//!    ---- a pipe that only we hold open: its end wakes the keeper, which kills the groups on the list
//! ```
//! The kernel's own `PR_SET_PDEATHSIG` needs a fork for every task (see the crate's page) and forgets grandchildren; this
//! costs one shell for each run. What is left to chance: the microseconds between a start and its entry in the list, and
//! processes that left their group (`runaway` finds those at the next start).

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::Pid;
use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Reads to the end of the pipe (nothing is ever written to it), then kills each group on the list.
const SCRIPT: &str = "trap '' HUP INT TERM; read -r nothing
while read -r group; do [ -n \"$group\" ] && kill -s KILL -- \"-$group\"; done < /proc/self/fd/1";

/// An entry is a number of at most 10 digits, padded with blanks, and a newline.
const LINE_BYTES: usize = 11;

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

    fn write(&self, line: u64, text: &str) {
        let text = format!("{text:width$}\n", width = LINE_BYTES - 1);
        // The memory file can only be refused memory; then the tool is unprotected, which is no reason to fail it.
        if let Err(error) = self.list.write_all_at(text.as_bytes(), line * LINE_BYTES as u64) {
            tracing::warn!(%error, "a task's processes will outlive this process if it is killed");
        }
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group's entry in the list, for as long as it lives.
#[derive(Debug)]
pub struct Record {
    keeper: &'static Keeper,
    line: u64,
}

impl Record {
    /// Enters the group, if there is a keeper.
    pub fn of(group: Pid) -> Option<Self> {
        let keeper = KEEPER.get()?;
        let line = keeper.lines().take();
        keeper.write(line, &group.as_raw_nonzero().to_string());
        Some(Self { keeper, line })
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.keeper.write(self.line, "");
        self.keeper.lines().freed.push(self.line);
    }
}

impl Lines {
    fn take(&mut self) -> u64 {
        self.freed.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }
}
