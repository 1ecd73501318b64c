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
//! lock free --------------------------------------------------> take, remove
//! lock held, process lives ----> leave alone
//! lock held, process is dying -> abort its connections -> wait -> take, remove
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
    attach::{self, UnmountOutcome, detach},
    error::MountError,
    mountinfo::{self, KIND},
    owner_file::{self, OwnedResource, OwnerFile, ProcessState},
    runtime_dir::open_for_lock,
};

/// Time limit for a killed process to end. Freeing its memory takes a second for tens of GiB.
const END_WAIT: Duration = Duration::from_secs(5);
/// Interval between two attempts to take its lock.
const END_PAUSE: Duration = Duration::from_millis(5);

/// Result of a stale cleanup.
#[derive(Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CleanupReport {
    /// Names of running pools.
    pub alive: Vec<String>,
    /// Names of dead pools that were removed completely.
    pub removed: Vec<String>,
    /// Mount points that were unmounted.
    pub unmounted: Vec<PathBuf>,
    /// Paths that could not be removed, and the reasons; the next cleanup tries again.
    pub failed: Vec<(PathBuf, String)>,
}

/// Removes the dead pools of a runtime directory whose lock the caller holds.
pub(crate) fn remove_stale(root: &Path) -> Result<CleanupReport, MountError> {
    let mut report = CleanupReport::default();
    for entry in fs::read_dir(root).map_err(MountError::io("listing", root))? {
        let entry = entry.map_err(MountError::io("listing", root))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_if_stale(&entry.path(), &mut report);
        }
    }
    Ok(report)
}

fn remove_if_stale(directory: &Path, report: &mut CleanupReport) {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match lock_if_dead(directory, &mut report.unmounted) {
        Ok(Some(_lock)) => {
            let result = remove_pool(directory);
            if result.failed.is_empty() {
                report.removed.push(name);
            }
            report.unmounted.extend(result.unmounted);
            report.failed.extend(result.failed);
        }
        Ok(None) => report.alive.push(name),
        Err(error) => report.failed.push((directory.to_owned(), error.to_string())),
    }
}

/// Takes the lock of a dead pool; `None` if the pool lives. Mount points that had to be unmounted
/// for that are added to `unmounted`.
///
/// A directory without an owner file belongs to a process that died while it registered.
/// Registration holds the directory's lock, which the caller has now.
fn lock_if_dead(directory: &Path, unmounted: &mut Vec<PathBuf>) -> io::Result<Option<File>> {
    let path = directory.join(owner_file::FILE_NAME);
    let file = open_for_lock(&path, true)?;
    let owner = read_owner(&path);
    let state = owner.process.map(owner_file::ProcessIdentity::state);
    match (file.try_lock(), state) {
        // The process lives, so the lock does not work: some file systems only pretend to support
        // locks. A running pool must not lose its mount.
        (Ok(()), Some(ProcessState::Alive)) => Ok(None),
        (Ok(()), _) => {
            abort_connections(&owner, directory, unmounted);
            Ok(Some(file))
        }
        (Err(TryLockError::Error(error)), _) => Err(error),
        (Err(TryLockError::WouldBlock), Some(ProcessState::Dying)) => {
            abort_connections(&owner, directory, unmounted);
            lock_with_timeout(&file)?;
            Ok(Some(file))
        }
        (Err(TryLockError::WouldBlock), _) => Ok(None),
    }
}

/// Aborts the FUSE connections of a dead pool: all requests that wait for its mounts fail,
/// including its own.
fn abort_connections(owner: &OwnerFile, directory: &Path, unmounted: &mut Vec<PathBuf>) {
    let points =
        owner.lines.iter().filter_map(|line| if let OwnedResource::Mount(point) = line { Some(point) } else { None });
    for point in points {
        let Ok(Some(entry)) = mountinfo::topmost_at(point) else { continue };
        if !is_mount_of(&entry, directory) {
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
fn lock_with_timeout(file: &File) -> io::Result<()> {
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

/// True if this is a mount of the pool of `directory`.
fn is_mount_of(entry: &mountinfo::MountEntry, directory: &Path) -> bool {
    let name = directory.file_name().and_then(OsStr::to_str);
    entry.kind == KIND && name.is_some_and(|name| entry.source.as_os_str() == mountinfo::mount_source(name).as_str())
}

fn read_owner(path: &Path) -> OwnerFile {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(owner_file::BYTES_MAX).read_to_string(&mut text));
    // An unreadable file gives no owner; the pool's own directory is still removed.
    read.map(|_| OwnerFile::decode(&text)).unwrap_or_default()
}

/// Result of the removal of one pool.
#[derive(Debug, Default)]
pub(crate) struct RemovalResult {
    pub(crate) unmounted: Vec<PathBuf>,
    pub(crate) failed: Vec<(PathBuf, String)>,
}

impl RemovalResult {
    /// Records a path that could not be removed.
    fn record(&mut self, path: &Path, removed: io::Result<()>) {
        self.failed.extend(removed.err().map(|error| (path.to_owned(), error.to_string())));
    }
}

/// Unmounts and removes everything that belongs to the pool of `directory`, then the directory
/// itself. The caller holds the pool's lock.
pub(crate) fn remove_pool(directory: &Path) -> RemovalResult {
    let mut result = RemovalResult::default();
    for line in read_owner(&directory.join(owner_file::FILE_NAME)).lines {
        match line {
            OwnedResource::Mount(point) => unmount_if_mounted(&point, directory, &mut result),
            OwnedResource::Remove(dir) => result.record(&dir, remove_tree(&dir)),
            OwnedResource::Group(dir) => result.record(&dir, exec::remove_memory_groups(&dir)),
        }
    }
    if result.failed.is_empty() {
        result.record(directory, remove_registration(directory));
    }
    result
}

/// Unmounts `point` if this pool is mounted there. Another pool may use that directory by now.
fn unmount_if_mounted(point: &Path, directory: &Path, result: &mut RemovalResult) {
    let outcome = match mountinfo::topmost_at(point) {
        Ok(Some(entry)) if is_mount_of(&entry, directory) => detach(point),
        Ok(_) => Ok(UnmountOutcome::NotMounted),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(UnmountOutcome::NotMounted) => {}
        Ok(UnmountOutcome::Clean | UnmountOutcome::Detached) => result.unmounted.push(point.to_owned()),
        Err(error) => result.failed.push((point.to_owned(), error.to_string())),
    }
}

/// Removes a directory of this user in which nothing is mounted. A missing directory is no error.
fn remove_tree(dir: &Path) -> io::Result<()> {
    let meta = match fs::symlink_metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it is not a directory of this user"));
    }
    if mountinfo::any_below(dir)? {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "something is mounted in it"));
    }
    fs::remove_dir_all(dir)
}

/// Removes the pool's directory. The owner file goes just before it, so that the directory has a
/// known owner as long as possible.
fn remove_registration(directory: &Path) -> io::Result<()> {
    if mountinfo::any_below(directory)? {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "something is mounted in it"));
    }
    ignore_not_found(fs::remove_dir(directory.join("mnt")))?;
    ignore_not_found(fs::remove_file(directory.join(owner_file::FILE_NAME)))?;
    ignore_not_found(fs::remove_dir(directory))
}

fn ignore_not_found(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
