//! Control groups (cgroups) that limit tools to their declared memory.
//!
//! ```text
//! our own group
//!   tidemill-<run>      MemoryGroups: made before the first task, removed after the last process
//!     0, 1, 2 ...       MemoryGroup: one for each running task; the child enters it (`child`)
//! ```
//!
//! **Two limits.** A tool declares its own memory: anonymous pages and their swap, which is also
//! what is measured where no groups can be made. The kernel can only limit all memory charged to a
//! group. That includes the kernel's own structures, and pages of files in memory: pages of the
//! pool that a tool writes itself (passthrough, the preload library) or of copies on a RAM disk are
//! charged to the group that touched them first, as long as they live. A tool must not be killed
//! for its outputs. So there are two limits:
//! - The kernel's limit is declared memory + the maximum size of pool and RAM disk + the kernel's
//!   needs ([`kernel_reserve`]). It stops processes that grow too fast to be seen.
//! - The watcher of running tools (`process`) reads the anonymous memory of the group and kills all
//!   of it above the declared amount.
//!
//! The mount, the kernel and the first toucher of a page determine which files are charged to a
//! group. So tools whose files are charged elsewhere have the same limit, which is only too
//! generous for them.
//!
//! **Groups are reused** by the next task that declares memory, instead of being removed after each
//! task: a removed group lives on in the kernel until the last page charged to it is freed, and
//! 100,000 tasks would leave as many. Pages still charged for earlier tasks are in the pool or on
//! the RAM disk, for which the limit has space. A group with a leftover daemon is not reused.
//!
//! The module does not record the run's group for the cleanup after a crash
//! (`mount::PoolRegistration` does, before the group is made).

use crate::control_group::{CgroupVersion, ControlGroup, MemoryGroupError};
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

/// Attempts to remove a group: after waits of 1, 2, 4 .. 2,048 ms. Killed processes leave their
/// group when they are gone, nearly all by the first or second attempt; a process that is there
/// after the last one hangs in the kernel.
const REMOVALS: u32 = 12;

/// The inverse of the share of declared memory that is added for page tables, thread stacks and
/// socket buffers: chosen to exceed what programs use, not measured.
const RESERVE_PART: u64 = 8;

/// Minimum bytes added: pages of programs and libraries count too, and without space for them a
/// tool would reread them from disk.
const RESERVE_BYTES_MIN: u64 = 64 << 20;

/// Version 1: difference between the limits of memory + swap and of memory alone. The kernel (6.18)
/// counts hits of the memory limit but not of the combined limit, so the first must be hit first.
const SWAP_BYTES: u64 = 4 << 20;

/// A memory limit for a process and its descendants, enforced by a control group.
#[derive(Debug, Clone)]
pub struct MemoryLimit {
    /// The parent of the control group.
    pub groups: Arc<MemoryGroups>,
    /// Maximum bytes of their own (anonymous) memory.
    pub own: u64,
    /// Bytes of files in memory that may be charged to them in addition.
    pub files: u64,
}

/// The planned group of a run. It is recorded for the cleanup after a crash before it is made.
#[derive(Debug)]
pub struct PlannedGroups {
    parent: ControlGroup,
    dir: PathBuf,
}

/// The group of a run, which contains the groups of its tasks.
#[derive(Debug)]
pub struct MemoryGroups {
    version: CgroupVersion,
    dir: PathBuf,
    /// Groups without processes.
    free: Mutex<Vec<PathBuf>>,
    created: AtomicU64,
}

impl PlannedGroups {
    /// Plans a group named `name` below the memory control group of this process.
    ///
    /// # Errors
    /// There is no memory control group, or it does not delegate the memory controller.
    pub fn find(name: &str) -> Result<Self, MemoryGroupError> {
        Self::find_in(Path::new("/"), name)
    }

    fn find_in(root: &Path, name: &str) -> Result<Self, MemoryGroupError> {
        let read = |file: &str| {
            let path = root.join(file);
            let text = fs::read(&path).map_err(|source| MemoryGroupError::Io { path, source })?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        let ControlGroup { version, dir } =
            ControlGroup::parse(&read("proc/self/cgroup")?, &read("proc/self/mountinfo")?)?;
        let parent = ControlGroup { version, dir: root.join(dir.strip_prefix("/").unwrap_or(&dir)) };
        let passes_on = match version {
            // Kernels that always include child groups do not have this file.
            CgroupVersion::One => read_text(&parent.dir, "memory.use_hierarchy").is_none_or(|text| text.trim() == "1"),
            CgroupVersion::Two => {
                read_text(&parent.dir, "cgroup.subtree_control").is_some_and(|text| names_memory(&text))
            }
        };
        match version {
            _ if passes_on => Ok(Self { dir: parent.dir.join(name), parent }),
            CgroupVersion::One => Err(MemoryGroupError::NotHierarchical(parent.dir)),
            CgroupVersion::Two => Err(MemoryGroupError::NotDelegated(parent.dir)),
        }
    }

    /// The directory of the group.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Makes the group and a first child group, to check that it can be limited.
    ///
    /// # Errors
    /// The group cannot be made, or has no memory limit. It is then removed again.
    pub fn make(self) -> Result<MemoryGroups, MemoryGroupError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| MemoryGroupError::Io { path, source }
        };
        fs::create_dir(&self.dir).map_err(failed(&self.dir))?;
        let groups = MemoryGroups {
            version: self.parent.version,
            dir: self.dir.clone(),
            free: Mutex::default(),
            created: AtomicU64::default(),
        };
        let made = groups.check_limit();
        if made.is_err() {
            remove_memory_groups(&self.dir).map_err(failed(&self.dir))?;
        }
        match made {
            Ok(()) => Ok(groups),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(MemoryGroupError::NotDelegated(self.parent.dir)),
            Err(error) => Err(failed(&self.dir)(error)),
        }
    }
}

impl MemoryGroups {
    /// The directory of the group.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    fn check_limit(&self) -> io::Result<()> {
        if self.version == CgroupVersion::Two {
            write(&self.dir, "cgroup.subtree_control", "+memory")?;
        }
        let first = self.create_group()?;
        File::options().write(true).open(first.join(limit_file(self.version)))?;
        self.free().push(first);
        Ok(())
    }

    fn create_group(&self) -> io::Result<PathBuf> {
        let dir = self.dir.join(self.created.fetch_add(1, Relaxed).to_string());
        fs::create_dir(&dir)?;
        Ok(dir)
    }

    /// Returns a group without processes, with these limits.
    fn acquire(self: &Arc<Self>, own: u64, files: u64) -> io::Result<MemoryGroup> {
        let free = self.free().pop();
        // A group that refuses its limit is not used again.
        let reused = free.and_then(|dir| MemoryGroup::limited(self.clone(), dir, own, files).ok());
        match reused {
            Some(group) => Ok(group),
            None => MemoryGroup::limited(self.clone(), self.create_group()?, own, files),
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryLimit {
    /// Returns a group with this limit. On failure logs it and returns `None`: memory is then only
    /// measured, as without groups.
    pub(crate) fn group(&self) -> Option<MemoryGroup> {
        let group = self.groups.acquire(self.own, self.files);
        group.inspect_err(|error| tracing::info!(%error, "a tool runs without the limit of its `memory`")).ok()
    }
}

/// The group of one task. On drop it is reused if its processes have ended.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    groups: Arc<MemoryGroups>,
    dir: PathBuf,
    /// The `cgroup.procs` file: a process that writes `0` to it enters the group.
    procs: File,
    own: u64,
    before: KillCounts,
}

/// Counts of processes that the kernel killed in a group, and of hits of the group's own limit.
/// Both only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct KillCounts {
    killed: u64,
    limit_hits: u64,
}

/// A memory limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryExcess {
    /// The limit in bytes.
    pub own: u64,
    /// Bytes held; `None` if the kernel killed before the watcher saw the excess.
    pub held: Option<u64>,
}

impl MemoryGroup {
    fn limited(groups: Arc<MemoryGroups>, dir: PathBuf, own: u64, files: u64) -> io::Result<Self> {
        limit(groups.version, &dir, own.saturating_add(files).saturating_add(kernel_reserve(own)))?;
        let procs = OpenOptions::new().write(true).open(dir.join("cgroup.procs"))?;
        let before = kill_counts(groups.version, &dir).unwrap_or_default();
        Ok(Self { groups, dir, procs, own, before })
    }

    /// The descriptor of `cgroup.procs`, for a process to enter the group.
    pub fn procs(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }

    /// Bytes of anonymous memory and swap held by its processes; `None` if the kernel does not
    /// report them.
    pub fn held(&self) -> Option<u64> {
        let stat = read_text(&self.dir, "memory.stat")?;
        match self.groups.version {
            CgroupVersion::One => Some(value(&stat, "total_rss")? + value(&stat, "total_swap").unwrap_or(0)),
            CgroupVersion::Two => value(&stat, "anon"),
        }
    }

    /// Returns an excess if `held` is above the limit, or the kernel has killed a process for it.
    pub fn excess(&self, held: Option<u64>) -> Option<MemoryExcess> {
        let held = held.filter(|held| *held > self.own);
        (held.is_some() || self.was_killed()).then_some(MemoryExcess { own: self.own, held })
    }

    /// Returns true if the kernel killed a process for this group's limit, and not for the limit of
    /// another group or of the machine.
    fn was_killed(&self) -> bool {
        let now = kill_counts(self.groups.version, &self.dir).unwrap_or_default();
        now.killed > self.before.killed && now.limit_hits > self.before.limit_hits
    }

    /// Kills all its processes, daemons too.
    pub fn kill(&self) {
        kill_in(&self.dir);
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let is_empty = read_text(&self.dir, "cgroup.procs").is_some_and(|pids| pids.is_empty());
        // A tool may have made child groups, for instance a run that was killed. The link count of
        // the directory includes them.
        let is_leaf = fs::metadata(&self.dir).is_ok_and(|dir| dir.nlink() <= 2);
        if is_empty && is_leaf {
            self.groups.free().push(std::mem::take(&mut self.dir));
        }
    }
}

/// Kills all processes of a group and its child groups, and removes the groups. Succeeds if the
/// group does not exist.
///
/// # Errors
/// A group cannot be removed: processes hang in the kernel, or groups are not ours.
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

/// Removes child groups before their parents. The files of a group vanish with its directory.
fn remove_tree(dir: &Path) -> io::Result<()> {
    subgroups(dir).try_for_each(|group| remove_tree(&group))?;
    match fs::remove_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn kill_in(dir: &Path) {
    subgroups(dir).for_each(|group| kill_in(&group));
    let pids = read_text(dir, "cgroup.procs").unwrap_or_default();
    // Processes outside our PID namespace are listed as 0.
    let pids = pids.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).filter(|pid| *pid != getpid());
    for pid in pids {
        // Fails if the process has ended or has changed its user.
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn subgroups(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

/// Bytes that the kernel's limit adds for its own structures and for pages of programs.
fn kernel_reserve(own: u64) -> u64 {
    (own / RESERVE_PART).max(RESERVE_BYTES_MIN)
}

fn limit_file(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::One => "memory.limit_in_bytes",
        CgroupVersion::Two => "memory.max",
    }
}

/// Sets the limit of a group in bytes, including swap if the kernel accounts it.
fn limit(version: CgroupVersion, dir: &Path, bytes: u64) -> io::Result<()> {
    let bytes = bytes.min(i64::MAX.unsigned_abs() / 2);
    let text = bytes.to_string();
    match version {
        CgroupVersion::One => {
            // The combined limit must never be below the memory limit. Without swap accounting the
            // file does not exist.
            let with_swap = |text: &str| drop(write(dir, "memory.memsw.limit_in_bytes", text));
            with_swap("-1");
            write(dir, limit_file(version), &text)?;
            with_swap(&(bytes + SWAP_BYTES).to_string());
            Ok(())
        }
        CgroupVersion::Two => {
            write(dir, limit_file(version), &text)?;
            // Older kernels have neither file. The watcher then kills the other processes of a
            // group in which the kernel killed one.
            drop(write(dir, "memory.swap.max", "0"));
            drop(write(dir, "memory.oom.group", "1"));
            Ok(())
        }
    }
}

fn kill_counts(version: CgroupVersion, dir: &Path) -> Option<KillCounts> {
    match version {
        CgroupVersion::One => {
            let killed = value(&read_text(dir, "memory.oom_control")?, "oom_kill")?;
            Some(KillCounts { killed, limit_hits: read_text(dir, "memory.failcnt")?.trim().parse().ok()? })
        }
        CgroupVersion::Two => {
            let events = read_text(dir, "memory.events")?;
            Some(KillCounts { killed: value(&events, "oom_kill")?, limit_hits: value(&events, "oom")? })
        }
    }
}

/// Returns the number after `key` in lines of `key number`.
fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

fn names_memory(controllers: &str) -> bool {
    controllers.split_whitespace().any(|name| name == "memory")
}

fn read_text(dir: &Path, file: &str) -> Option<String> {
    fs::read_to_string(dir.join(file)).ok()
}

/// Writes to an existing file. A control that the kernel lacks is not created.
fn write(dir: &Path, file: &str, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(dir.join(file))?.write_all(text.as_bytes())
}

#[cfg(test)]
#[path = "memory_group_test.rs"]
mod tests;
