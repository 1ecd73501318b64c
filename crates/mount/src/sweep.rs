//! Cleanup of a pool's remains: its mounts, staging data, tools' control groups and directory.
//!
//! Used for pools whose process died and for pools that end regularly, so there is one
//! implementation. Nothing is removed through a mount: a directory in which something is still
//! mounted stays, and is reported.
//!
//! A killed process may not have ended. One of its threads may wait for a reply of its own mount,
//! whose threads are gone, and meanwhile the process holds the lock. Aborting the kernel's FUSE
//! connection fails that request:
//!
//! ```text
//! lock free --------------------------------------------------> take, clear
//! lock held, process lives ----> leave alone
//! lock held, process is dying -> abort its connections -> wait -> take, clear
//! ```

use std::{
    ffi::OsStr,
    fs::{self, File, TryLockError},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{
    attach::{self, Unmounted, detach},
    error::MountError,
    mountinfo::{self, KIND},
    owner::{self, Fate, Line, Owner},
    runtime::open_for_lock,
};

/// Time limit for a killed process to end. Freeing its memory takes a second for tens of GiB.
const END_WAIT: Duration = Duration::from_secs(5);
/// Interval between two attempts to take its lock.
const END_PAUSE: Duration = Duration::from_millis(5);

/// Result of a sweep.
#[derive(Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Names of running pools.
    pub alive: Vec<String>,
    /// Names of dead pools that were removed completely.
    pub removed: Vec<String>,
    /// Mount points that were unmounted.
    pub unmounted: Vec<PathBuf>,
    /// Paths that could not be removed, and the reasons; the next sweep tries again.
    pub kept: Vec<(PathBuf, String)>,
}

/// Sweeps the pools of a runtime directory whose lock the caller holds.
pub(crate) fn sweep(root: &Path) -> Result<Swept, MountError> {
    let mut swept = Swept::default();
    for entry in fs::read_dir(root).map_err(MountError::io("listing", root))? {
        let entry = entry.map_err(MountError::io("listing", root))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sweep_pool(&entry.path(), &mut swept);
        }
    }
    Ok(swept)
}

fn sweep_pool(folder: &Path, swept: &mut Swept) {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match take_over(folder, &mut swept.unmounted) {
        Ok(Some(_lock)) => {
            let cleared = clear(folder);
            if cleared.kept.is_empty() {
                swept.removed.push(name);
            }
            swept.unmounted.extend(cleared.unmounted);
            swept.kept.extend(cleared.kept);
        }
        Ok(None) => swept.alive.push(name),
        Err(error) => swept.kept.push((folder.to_owned(), error.to_string())),
    }
}

/// Takes the lock of a dead pool; `None` if the pool lives. Mount points that had to be unmounted
/// for that are added to `unmounted`.
///
/// A directory without an owner file belongs to a process that died while it registered.
/// Registration holds the directory's lock, which the caller has now.
fn take_over(folder: &Path, unmounted: &mut Vec<PathBuf>) -> io::Result<Option<File>> {
    let path = folder.join(owner::FILE_NAME);
    let file = open_for_lock(&path, true)?;
    let owner = read_owner(&path);
    let fate = owner.process.map(owner::Process::fate);
    match (file.try_lock(), fate) {
        // The process lives, so the lock does not work: some file systems only pretend to support
        // locks. A running pool must not lose its mount.
        (Ok(()), Some(Fate::Lives)) => Ok(None),
        (Ok(()), _) => {
            free(&owner, folder, unmounted);
            Ok(Some(file))
        }
        (Err(TryLockError::Error(error)), _) => Err(error),
        (Err(TryLockError::WouldBlock), Some(Fate::Dying)) => {
            free(&owner, folder, unmounted);
            wait_for(&file)?;
            Ok(Some(file))
        }
        (Err(TryLockError::WouldBlock), _) => Ok(None),
    }
}

/// Aborts the FUSE connections of a dead pool: all requests that wait for its mounts fail,
/// including its own.
fn free(owner: &Owner, folder: &Path, unmounted: &mut Vec<PathBuf>) {
    let points = owner.lines.iter().filter_map(|line| if let Line::Mount(point) = line { Some(point) } else { None });
    for point in points {
        let Ok(Some(entry)) = mountinfo::at(point) else { continue };
        if !is_ours(&entry, folder) {
            continue;
        }
        match attach::abort(&entry) {
            Ok(true) => unmounted.push(point.clone()),
            Ok(false) => {}
            // If a thread still hangs, the caller's wait for the lock reports it.
            Err(error) => tracing::debug!("the connection of {} cannot be ended: {error}", point.display()),
        }
    }
}

/// Waits until this process has the lock.
fn wait_for(file: &File) -> io::Result<()> {
    let end = Instant::now() + END_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(END_PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("its process was killed and hangs in the kernel"));
            }
        }
    }
}

/// True if this is a mount of the pool of `folder`.
fn is_ours(entry: &mountinfo::Entry, folder: &Path) -> bool {
    let name = folder.file_name().and_then(OsStr::to_str);
    entry.kind == KIND && name.is_some_and(|name| entry.source.as_os_str() == mountinfo::source_of(name).as_str())
}

fn read_owner(path: &Path) -> Owner {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(owner::BYTES_MAX).read_to_string(&mut text));
    // An unreadable file gives no owner; the pool's own directory is still removed.
    read.map(|_| Owner::decode(&text)).unwrap_or_default()
}

/// Result of the removal of one pool.
#[derive(Debug, Default)]
pub(crate) struct Cleared {
    pub(crate) unmounted: Vec<PathBuf>,
    pub(crate) kept: Vec<(PathBuf, String)>,
}

impl Cleared {
    /// Records a path that could not be removed.
    fn keep(&mut self, path: &Path, removed: io::Result<()>) {
        self.kept.extend(removed.err().map(|error| (path.to_owned(), error.to_string())));
    }
}

/// Unmounts and removes everything that belongs to the pool of `folder`, then the directory itself.
/// The caller holds the pool's lock.
pub(crate) fn clear(folder: &Path) -> Cleared {
    let mut cleared = Cleared::default();
    for line in read_owner(&folder.join(owner::FILE_NAME)).lines {
        match line {
            Line::Mount(point) => clear_mount(&point, folder, &mut cleared),
            Line::Remove(dir) => cleared.keep(&dir, remove_tree(&dir)),
            Line::Group(dir) => cleared.keep(&dir, exec::remove_memory_groups(&dir)),
        }
    }
    if cleared.kept.is_empty() {
        cleared.keep(folder, remove_registration(folder));
    }
    cleared
}

/// Unmounts `point` if this pool is mounted there. Another pool may use that directory by now.
fn clear_mount(point: &Path, folder: &Path, cleared: &mut Cleared) {
    let outcome = match mountinfo::at(point) {
        Ok(Some(entry)) if is_ours(&entry, folder) => detach(point),
        Ok(_) => Ok(Unmounted::Already),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(Unmounted::Already) => {}
        Ok(Unmounted::Clean | Unmounted::Detached) => cleared.unmounted.push(point.to_owned()),
        Err(error) => cleared.kept.push((point.to_owned(), error.to_string())),
    }
}

/// Removes a directory of this user in which nothing is mounted. A missing directory is no error.
fn remove_tree(dir: &Path) -> io::Result<()> {
    let meta = match fs::symlink_metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it is not a folder of this user"));
    }
    if mountinfo::within(dir)? {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "something is mounted in it"));
    }
    fs::remove_dir_all(dir)
}

/// Removes the pool's directory. The owner file goes just before it, so that the directory has a
/// known owner as long as possible.
fn remove_registration(folder: &Path) -> io::Result<()> {
    if mountinfo::within(folder)? {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "something is mounted in it"));
    }
    gone(fs::remove_dir(folder.join("mnt")))?;
    gone(fs::remove_file(folder.join(owner::FILE_NAME)))?;
    gone(fs::remove_dir(folder))
}

fn gone(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
