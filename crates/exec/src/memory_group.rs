//! Control groups (cgroups) that enforce the memory that tools declare.
//!
//! ```text
//! our own group
//!   tidemill-<run>      MemoryGroups: made before the first task, removed after the last process
//!     0, 1, 2 ...       MemoryGroup: one for each running task; the child enters it (`stage`)
//! ```
//! **Two limits.** What a tool declares is its own memory: anonymous pages (and their swap), which
//! is also what is measured where no groups can be made. The kernel can only limit all that is
//! charged to a group, and that has more in it: pages of the pool that a tool writes itself
//! (passthrough, the preload library) or of copies on a RAM disk are charged to the group that
//! touched them first, and stay so while they live, as do the kernel's own structures. A tool must
//! not die of its outputs. So the kernel's limit is declared memory + the most that pool and RAM
//! disk may hold + what the kernel needs beside ([`beside`]), and stops what grows too fast to be
//! seen; and the watcher that looks at running tools (`process`) reads how much anonymous memory
//! the group has and kills all of it above the declared amount. Which files are charged where
//! depends on the mount, the kernel and who touched a page first, so there is no third case for
//! tools whose files are not: for those the room for files is only generous.
//!
//! **Groups are used again** by the next task that declares memory, instead of being removed after
//! each: a removed group lives on in the kernel until the last page is freed that was charged to
//! it, and 100,000 tasks would leave as many. What earlier tasks left charged is in the pool or on
//! the RAM disk, for which the limit has room. A group in which a daemon of the tool is left is not
//! used again.
//!
//! What it does not do: note the run's group for the sweep after a crash (`fuse::Claim` does,
//! before it is made).

use crate::control_group::{ControlGroup, NoMemoryGroup, Version};
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// When a removal is tried: after 1, 2, 4 .. 2,048 ms. Killed processes leave their group when they
/// are gone: nearly all at the first or second look; what is there after the last one hangs in the
/// kernel.
const REMOVALS: u32 = 12;

/// Of declared memory so much is added for page tables, stacks of threads and buffers of sockets:
/// chosen to be more than programs take, not measured.
const BESIDE_PART: u64 = 8;

/// At least so much is added: pages of programs and libraries count too, and without room for them
/// a tool runs from the disk.
const BESIDE_BYTES_MIN: u64 = 64 << 20;

/// Version 1: memory and swap together may be so much more than memory alone. The kernel counts how
/// often the limit of memory was met and not how often that of both was (6.18), so the first must
/// be met first.
const SWAP_BYTES: u64 = 4 << 20;

/// The memory that a process and its descendants may take, kept by a control group.
#[derive(Debug, Clone)]
pub struct MemoryLimit {
    /// Where the group is made.
    pub groups: Arc<MemoryGroups>,
    /// Bytes of their own that they may hold.
    pub own: u64,
    /// Bytes of files in memory that may be charged to them on top of that.
    pub files: u64,
}

/// The group of a run that is not made yet: what must be removed after a crash is noted first.
#[derive(Debug)]
pub struct PlannedGroups {
    parent: ControlGroup,
    dir: PathBuf,
}

/// The group of a run, below which each task has its own.
#[derive(Debug)]
pub struct MemoryGroups {
    version: Version,
    dir: PathBuf,
    /// Groups in which no process is.
    free: Mutex<Vec<PathBuf>>,
    made: AtomicU64,
}

impl PlannedGroups {
    /// Plans a group of this name below the memory control group of this process.
    ///
    /// # Errors
    /// There is none that passes memory on.
    pub fn find(name: &str) -> Result<Self, NoMemoryGroup> {
        Self::below(Path::new("/"), name)
    }

    fn below(root: &Path, name: &str) -> Result<Self, NoMemoryGroup> {
        let read = |file: &str| {
            let path = root.join(file);
            let text = fs::read(&path).map_err(|source| NoMemoryGroup::Io { path, source })?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        let ControlGroup { version, dir } =
            ControlGroup::parse(&read("proc/self/cgroup")?, &read("proc/self/mountinfo")?)?;
        let parent = ControlGroup { version, dir: root.join(dir.strip_prefix("/").unwrap_or(&dir)) };
        let passes_on = match version {
            // Kernels that always count groups below have no such file.
            Version::One => read_text(&parent.dir, "memory.use_hierarchy").is_none_or(|text| text.trim() == "1"),
            Version::Two => read_text(&parent.dir, "cgroup.subtree_control").is_some_and(|text| names_memory(&text)),
        };
        match version {
            _ if passes_on => Ok(Self { dir: parent.dir.join(name), parent }),
            Version::One => Err(NoMemoryGroup::NotHierarchical(parent.dir)),
            Version::Two => Err(NoMemoryGroup::NotDelegated(parent.dir)),
        }
    }

    /// The directory of the group.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Makes the group, and the first one below it to see that it can be limited.
    ///
    /// # Errors
    /// It may not be made, or has no limit of memory. Nothing is left of it.
    pub fn make(self) -> Result<MemoryGroups, NoMemoryGroup> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| NoMemoryGroup::Io { path, source }
        };
        fs::create_dir(&self.dir).map_err(failed(&self.dir))?;
        let groups = MemoryGroups {
            version: self.parent.version,
            dir: self.dir.clone(),
            free: Mutex::default(),
            made: AtomicU64::default(),
        };
        let made = groups.begin();
        if made.is_err() {
            remove_memory_groups(&self.dir).map_err(failed(&self.dir))?;
        }
        match made {
            Ok(()) => Ok(groups),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(NoMemoryGroup::NotDelegated(self.parent.dir)),
            Err(error) => Err(failed(&self.dir)(error)),
        }
    }
}

impl MemoryGroups {
    /// The directory of the group.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    fn begin(&self) -> io::Result<()> {
        if self.version == Version::Two {
            write(&self.dir, "cgroup.subtree_control", "+memory")?;
        }
        let first = self.add()?;
        File::options().write(true).open(first.join(limit_file(self.version)))?;
        self.free().push(first);
        Ok(())
    }

    fn add(&self) -> io::Result<PathBuf> {
        let dir = self.dir.join(self.made.fetch_add(1, Relaxed).to_string());
        fs::create_dir(&dir)?;
        Ok(dir)
    }

    /// A group without processes and with these limits.
    fn take(self: &Arc<Self>, own: u64, files: u64) -> io::Result<MemoryGroup> {
        let free = self.free().pop();
        // One that does not take its limit is left aside.
        let again = free.and_then(|dir| MemoryGroup::limited(self.clone(), dir, own, files).ok());
        match again {
            Some(group) => Ok(group),
            None => MemoryGroup::limited(self.clone(), self.add()?, own, files),
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryLimit {
    /// A group that keeps the limit; none if that fails, which is logged: the memory is measured
    /// then, as where there are no groups.
    pub(crate) fn group(&self) -> Option<MemoryGroup> {
        let group = self.groups.take(self.own, self.files);
        group.inspect_err(|error| tracing::info!(%error, "a tool runs without the limit of its `memory`")).ok()
    }
}

/// The group of one task. Dropped when its processes have ended, it is used again.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    groups: Arc<MemoryGroups>,
    dir: PathBuf,
    /// Who writes `0` here enters.
    procs: File,
    own: u64,
    before: Kills,
}

/// How often the kernel killed a process of a group, and how often the group's own limit was met.
/// Both only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Kills {
    killed: u64,
    limit_met: u64,
}

/// More memory was taken than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Bytes that were allowed.
    pub own: u64,
    /// Bytes that were held; none if the kernel was faster than the watcher.
    pub held: Option<u64>,
}

impl MemoryGroup {
    fn limited(groups: Arc<MemoryGroups>, dir: PathBuf, own: u64, files: u64) -> io::Result<Self> {
        limit(groups.version, &dir, own.saturating_add(files).saturating_add(beside(own)))?;
        let procs = OpenOptions::new().write(true).open(dir.join("cgroup.procs"))?;
        let before = kills(groups.version, &dir).unwrap_or_default();
        Ok(Self { groups, dir, procs, own, before })
    }

    /// Where a process enters itself.
    pub fn procs(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }

    /// Bytes of anonymous memory and swap that its processes hold; none if the kernel does not
    /// tell.
    pub fn held(&self) -> Option<u64> {
        let stat = read_text(&self.dir, "memory.stat")?;
        match self.groups.version {
            Version::One => Some(value(&stat, "total_rss")? + value(&stat, "total_swap").unwrap_or(0)),
            Version::Two => value(&stat, "anon"),
        }
    }

    /// Whether they hold too much, or the kernel killed one of them since they did.
    pub fn excess(&self, held: Option<u64>) -> Option<Excess> {
        let held = held.filter(|held| *held > self.own);
        (held.is_some() || self.was_killed()).then_some(Excess { own: self.own, held })
    }

    /// Whether the kernel killed a process for this group's limit. That of another group, or of the
    /// machine, is not the tool's fault.
    fn was_killed(&self) -> bool {
        let now = kills(self.groups.version, &self.dir).unwrap_or_default();
        now.killed > self.before.killed && now.limit_met > self.before.limit_met
    }

    /// Kills all that is in it, daemons too.
    pub fn kill(&self) {
        kill_in(&self.dir);
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let is_empty = read_text(&self.dir, "cgroup.procs").is_some_and(|pids| pids.is_empty());
        // A tool may have made groups of its own: a run that was killed, say. The links of a
        // directory count those.
        let is_leaf = fs::metadata(&self.dir).is_ok_and(|dir| dir.nlink() <= 2);
        if is_empty && is_leaf {
            self.groups.free().push(std::mem::take(&mut self.dir));
        }
    }
}

/// Kills what is in a group and the groups below it, and removes them all. That it is not there is
/// fine.
///
/// # Errors
/// Something of it stays: processes that hang in the kernel, or groups that are not ours.
pub fn remove_memory_groups(dir: &Path) -> io::Result<()> {
    let mut tried = remove_tree(dir);
    for look in 0..REMOVALS {
        match tried {
            Ok(()) => return Ok(()),
            Err(_) => kill_in(dir),
        }
        thread::sleep(Duration::from_millis(1 << look));
        tried = remove_tree(dir);
    }
    tried
}

/// The files of a group go with its directory; only groups below must go before it.
fn remove_tree(dir: &Path) -> io::Result<()> {
    below(dir).try_for_each(|group| remove_tree(&group))?;
    match fs::remove_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn kill_in(dir: &Path) {
    below(dir).for_each(|group| kill_in(&group));
    let pids = read_text(dir, "cgroup.procs").unwrap_or_default();
    // Processes that we cannot see are 0.
    let pids = pids.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).filter(|pid| *pid != getpid());
    for pid in pids {
        // It may have ended, or be another user's by now.
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn below(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

/// What the kernel's limit leaves for its own structures and for pages of programs.
fn beside(own: u64) -> u64 {
    (own / BESIDE_PART).max(BESIDE_BYTES_MIN)
}

fn limit_file(version: Version) -> &'static str {
    match version {
        Version::One => "memory.limit_in_bytes",
        Version::Two => "memory.max",
    }
}

/// Limits a group to so many bytes, swap among them where the kernel can tell.
fn limit(version: Version, dir: &Path, bytes: u64) -> io::Result<()> {
    let bytes = bytes.min(i64::MAX.unsigned_abs() / 2);
    let text = bytes.to_string();
    match version {
        Version::One => {
            // It must never be below the other, and is not there where swap is not accounted.
            let with_swap = |text: &str| drop(write(dir, "memory.memsw.limit_in_bytes", text));
            with_swap("-1");
            write(dir, limit_file(version), &text)?;
            with_swap(&(bytes + SWAP_BYTES).to_string());
            Ok(())
        }
        Version::Two => {
            write(dir, limit_file(version), &text)?;
            // Older kernels have neither; what is killed of a group is then finished by the
            // watcher.
            drop(write(dir, "memory.swap.max", "0"));
            drop(write(dir, "memory.oom.group", "1"));
            Ok(())
        }
    }
}

fn kills(version: Version, dir: &Path) -> Option<Kills> {
    match version {
        Version::One => {
            let killed = value(&read_text(dir, "memory.oom_control")?, "oom_kill")?;
            Some(Kills { killed, limit_met: read_text(dir, "memory.failcnt")?.trim().parse().ok()? })
        }
        Version::Two => {
            let events = read_text(dir, "memory.events")?;
            Some(Kills { killed: value(&events, "oom_kill")?, limit_met: value(&events, "oom")? })
        }
    }
}

/// The number after `key` in lines of `key number`.
fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

fn names_memory(controllers: &str) -> bool {
    controllers.split_whitespace().any(|name| name == "memory")
}

fn read_text(dir: &Path, file: &str) -> Option<String> {
    fs::read_to_string(dir.join(file)).ok()
}

/// Writes to a file that is there: the kernel made it, or it has no such control.
fn write(dir: &Path, file: &str, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(dir.join(file))?.write_all(text.as_bytes())
}

#[cfg(test)]
#[path = "memory_group_test.rs"]
mod tests;
