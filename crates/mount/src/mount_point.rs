//! Mount points: checks candidate directories, and resolves paths without touching a file system
//! mounted there.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

use crate::{
    attach::{UnmountOutcome, detach},
    error::MountError,
    mountinfo::{self, KIND},
};

/// Checks that `point` can become a mount point, and returns its absolute path without links.
pub(crate) fn check(point: &Path) -> Result<PathBuf, MountError> {
    let real = resolve_unmounted(point)?;
    check_directory(point, &real)?;
    Ok(real)
}

/// Absolute path of `point` without links. Fails if anything is mounted there.
fn resolve_unmounted(point: &Path) -> Result<PathBuf, MountError> {
    let resolved = resolve(point).map_err(|error| unreachable_point(point, error))?;
    check_free(point, &resolved)?;
    // Safe to follow the last component now: it is not a mount, dead or alive.
    let real = resolved.canonicalize().map_err(|error| unreachable_point(point, error))?;
    check_free(point, &real)?;
    Ok(real)
}

/// Checks that all `points` can become mount points of one pool, before the first is mounted. After
/// that, a check of a point inside another would be a system call on this process's own mount.
pub fn check_points(points: &[PathBuf]) -> Result<(), MountError> {
    let real = points.iter().map(|point| resolve_unmounted(point)).collect::<Result<Vec<_>, _>>()?;
    for (at, point) in real.iter().enumerate() {
        for (other, earlier) in real[..at].iter().enumerate() {
            if point == earlier {
                return Err(MountError::Duplicate { point: points[at].clone() });
            }
            let nested = |inner: usize, outer: usize| {
                Err(MountError::Nested { inner: points[inner].clone(), outer: points[outer].clone() })
            };
            if point.starts_with(earlier) {
                return nested(at, other);
            }
            if earlier.starts_with(point) {
                return nested(other, at);
            }
        }
    }
    points.iter().zip(&real).try_for_each(|(point, real)| check_directory(point, real))
}

fn check_free(point: &Path, resolved: &Path) -> Result<(), MountError> {
    match mountinfo::topmost_at(resolved).map_err(MountError::io("reading", "/proc/self/mountinfo"))? {
        Some(entry) => Err(MountError::Mounted { point: point.to_owned(), kind: entry.kind }),
        None => Ok(()),
    }
}

fn check_directory(point: &Path, real: &Path) -> Result<(), MountError> {
    let meta = fs::metadata(real).map_err(|error| unreachable_point(point, error))?;
    if !meta.is_dir() {
        return Err(MountError::NotDirectory { point: point.to_owned() });
    }
    access(real, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|_| MountError::NotPermitted { point: point.to_owned() })?;
    let mut entries = fs::read_dir(real).map_err(|error| unreachable_point(point, error))?;
    if entries.next().is_some() { Err(MountError::NotEmpty { point: point.to_owned() }) } else { Ok(()) }
}

fn unreachable_point(point: &Path, error: io::Error) -> MountError {
    let point = point.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound => MountError::Missing { point },
        io::ErrorKind::NotADirectory => MountError::NotDirectory { point },
        io::ErrorKind::PermissionDenied => MountError::NotPermitted { point },
        _ => MountError::Io { action: "reaching", path: point, source: error },
    }
}

/// Absolute path of `point`, with the links of its parents resolved. The last component is not
/// examined: it may be a mount whose server is dead, where every system call fails.
pub(crate) fn resolve(point: &Path) -> io::Result<PathBuf> {
    match (point.parent(), point.file_name()) {
        (Some(parent), Some(name)) if parent.as_os_str().is_empty() => Ok(Path::new(".").canonicalize()?.join(name)),
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        // `/`, `.` and `a/..` have no last component of their own.
        _ => point.canonicalize(),
    }
}

/// Unmounts the Tidemill mount at `dir`, from any process of the user who mounted it (or root),
/// even if its server is dead. A busy mount is detached lazily.
pub fn unmount_path(dir: &Path) -> Result<UnmountOutcome, MountError> {
    let point = resolve(dir).map_err(|error| not_mounted(dir, error))?;
    let mounted = mountinfo::topmost_at(&point).map_err(MountError::io("reading", "/proc/self/mountinfo"))?;
    match mounted {
        Some(entry) if entry.kind == KIND => {
            detach(&point).map_err(|error| MountError::UnmountFailed { point, reason: error.to_string() })
        }
        Some(entry) => {
            Err(MountError::NotTidemill { point: dir.to_owned(), found: format!("a mount of type {}", entry.kind) })
        }
        None => unmount_unmounted(dir, &point),
    }
}

/// Error for a path that cannot be reached. A missing path is not a mount; no hint to create it.
fn not_mounted(dir: &Path, error: io::Error) -> MountError {
    match error.kind() {
        io::ErrorKind::NotFound => MountError::NotTidemill { point: dir.to_owned(), found: "not there".to_owned() },
        _ => unreachable_point(dir, error),
    }
}

/// Handles a path at which nothing is mounted: follows a link to a mount, otherwise fails.
fn unmount_unmounted(dir: &Path, point: &Path) -> Result<UnmountOutcome, MountError> {
    let meta = fs::symlink_metadata(point).map_err(|error| not_mounted(dir, error))?;
    if meta.is_symlink() {
        let target = point.canonicalize().map_err(|error| unreachable_point(dir, error))?;
        return unmount_path(&target);
    }
    let found = if meta.is_dir() { "an ordinary directory" } else { "not even a directory" };
    Err(MountError::NotTidemill { point: dir.to_owned(), found: found.to_owned() })
}
