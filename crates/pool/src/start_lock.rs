//! Start lock: allows one starter at a time for a pool file, and none while its pool exists.

use crate::ownership;
use base::Problem;
use rustix::fs::OFlags;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Opens the pool file's own path only, never the target of a symbolic link.
const NO_LINKS: i32 = OFlags::NOFOLLOW.bits().cast_signed();

/// Exclusive right to start a pool at a path. Dropping it without [`StartLock::commit`] removes the
/// file.
#[derive(Debug)]
pub struct StartLock {
    path: PathBuf,
    /// The file, locked until the start ends. The complete pool file replaces it by rename.
    lock: File,
    committed: bool,
}

impl StartLock {
    /// Locks the pool file's path. If the file is not empty, `check_not_running` must fail when its
    /// pool still runs.
    pub fn acquire(path: &Path, check_not_running: impl Fn(&Path) -> Result<(), Problem>) -> Result<Self, Problem> {
        let failed = |error: &io::Error| {
            Problem::new(format!("the pool file {} cannot be made: {error}", path.display()))
                .hint("--pool FILE or TIDEMILL_POOL names another")
        };
        loop {
            let lock = open(path).map_err(|error| if is_link(path) { link(path) } else { failed(&error) })?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(Problem::new(format!("a pool is being started at {}", path.display()))
                        .hint("wait for that start, or choose another file with --pool"));
                }
                Err(TryLockError::Error(error)) => return Err(failed(&error)),
            }
            // Another starter may have replaced the file between the open and the lock.
            if !is_named(&lock, path) {
                continue;
            }
            let about = lock.metadata().map_err(|error| failed(&error))?;
            ownership::check(path, &about)?;
            if about.len() > 0 {
                check_not_running(path)?;
                // The file's pool no longer exists: empty the file for the new start.
                lock.set_len(0).map_err(|error| failed(&error))?;
            }
            return Ok(Self { path: path.to_owned(), lock, committed: false });
        }
    }

    /// Ends the start: the complete pool file is at the path now.
    pub fn commit(mut self) {
        self.committed = true;
    }
}

impl Drop for StartLock {
    fn drop(&mut self) {
        if !self.committed && is_named(&self.lock, &self.path) {
            fs::remove_file(&self.path).ok();
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(NO_LINKS).open(path)
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink())
}

fn link(path: &Path) -> Problem {
    Problem::new(format!("{} is a symbolic link: a pool cannot be started through one", path.display()))
        .hint("name its target, or remove it")
}

/// True if the path still names this file.
fn is_named(file: &File, path: &Path) -> bool {
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let (file, named) = (file.metadata().map(identity).ok(), fs::symlink_metadata(path).map(identity).ok());
    file.is_some() && file == named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pool_is_started_through_a_link_or_into_a_file_that_others_can_write() {
        let directory = tempfile::tempdir().unwrap();
        let [target, link, open] = ["target", "link", "open"].map(|name| directory.path().join(name));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let refused = |path: &Path| StartLock::acquire(path, |_| Ok(())).unwrap_err().to_string();
        assert!(refused(&link).contains("is a symbolic link"), "it leads nowhere");
        assert!(!target.exists(), "nothing was made where it leads");
        fs::write(&target, "of a pool").unwrap();
        assert!(refused(&link).contains("is a symbolic link"), "it leads to a file");
        fs::write(&open, "").unwrap();
        fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert!(refused(&open).contains("may write"));
        assert!(open.exists(), "it is not ours to remove");
    }

    #[test]
    fn one_starter_at_a_time_and_a_start_that_failed_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let begun = StartLock::acquire(&path, |_| panic!("there is no pool")).unwrap();
        let second = StartLock::acquire(&path, |_| Ok(())).unwrap_err();
        assert!(second.to_string().contains("is being started"), "{second}");
        drop(begun);
        assert!(!path.exists());
        StartLock::acquire(&path, |_| Ok(())).unwrap().commit();
        assert!(path.exists());
    }

    #[test]
    fn a_pool_that_is_there_keeps_its_name_and_one_that_is_no_more_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        fs::write(&path, "a pool").unwrap();
        let refused = StartLock::acquire(&path, |_| Err(Problem::new("it runs".to_owned()))).unwrap_err();
        assert!(refused.to_string().contains("it runs"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "a pool");
        drop(StartLock::acquire(&path, |_| Ok(())).unwrap());
        assert!(!path.exists());
    }
}
