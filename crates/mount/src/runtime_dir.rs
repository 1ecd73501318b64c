//! Runtime directory: registry of a user's running pools, and of the remains of dead ones.
//!
//! ```text
//!   $XDG_RUNTIME_DIR/tidemill        mode 0700, private to this user
//!     .lock                          held while a pool is registered or dead ones are removed
//!     run-20260101-1200-4711/
//!       owner                        locked (flock) by the owner for as long as it lives
//!       mnt/                         the pool's own mount point
//! ```
//!
//! The lock tells a live pool from a dead one: the kernel releases it with the process, however
//! that ended. `owner` also lists mount points and directories elsewhere that belong to the pool.
//! Each is written before it is created, so the stale cleanup finds all of them (format:
//! docs/formats/owner.md).
//!
//! A running pool needs nothing in this directory, and its content is not meant for people.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{
    error::{CREATING_RUNTIME, MountError},
    owner_file,
    owner_file::OwnedResource,
    stale_cleanup,
};

/// Time limit for the directory's lock. A process holds it while it removes dead pools; one that
/// holds it longer is stuck.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// Interval between two attempts to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// Length limit of a pool's name, bytes; with the directories above, paths stay far below the
/// limits of paths and sockets.
const NAME_BYTES_MAX: usize = 100;

/// Runtime directory of one user.
#[derive(Debug, Clone)]
pub struct RuntimeDir {
    path: PathBuf,
}

impl RuntimeDir {
    /// Runtime directory of the user who runs this process, created if it does not exist:
    /// `$XDG_RUNTIME_DIR/tidemill`, or for root without that variable `/run/tidemill-0`. If that
    /// cannot be created, `$TMPDIR/tidemill-UID`. A directory of another user is refused.
    pub fn of_user() -> Result<Self, MountError> {
        let uid = rustix::process::geteuid().as_raw();
        let session = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        // sudo may pass on another user's directory, so the owner must be this user.
        let session = session.filter(|path| fs::metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid));
        let first = match session {
            Some(session) => Some(session.join("tidemill")),
            None => (uid == 0).then(|| PathBuf::from("/run/tidemill-0")),
        };
        Self::first_usable(first.into_iter().chain([env::temp_dir().join(format!("tidemill-{uid}"))]))
    }

    /// Takes the first usable one of `places`. An untrusted directory ends the search with an
    /// error: an attacker may have created it to divert this process to the next place.
    fn first_usable(places: impl Iterator<Item = PathBuf>) -> Result<Self, MountError> {
        let mut refused = None;
        for place in places {
            match Self::at(&place) {
                Err(error @ MountError::Io { .. }) => refused = Some(error),
                settled => return settled,
            }
        }
        Err(refused.expect("there is at least one place"))
    }

    /// The runtime directory at `path`, created with mode 0700 if it does not exist. Refused if
    /// another user owns it or may enter it.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, MountError> {
        let path = path.into();
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(MountError::Io { action: CREATING_RUNTIME, path, source: error });
            }
            _ => check_private(&path)?,
        }
        let path = path.canonicalize().map_err(MountError::io("reaching", &path))?;
        Ok(Self { path })
    }

    /// Path of the directory, absolute and without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Registers a pool of this process under `name`, with its own mount point. The name must not
    /// be in use.
    pub fn register(&self, name: &str) -> Result<PoolRegistration, MountError> {
        check_name(name)?;
        let _lock = self.lock()?;
        let directory = self.path.join(name);
        make_directories(&directory).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                MountError::AlreadyRegistered { name: name.to_owned(), path: self.path.clone() }
            }
            _ => MountError::Io { action: "creating", path: directory.clone(), source: error },
        })?;
        let registered = PoolRegistration::create(directory.clone());
        if registered.is_err() {
            fs::remove_dir_all(&directory).ok();
        }
        registered
    }

    /// Unmounts and removes the remains of pools whose process is dead; live pools are not touched.
    /// Call it at every start.
    pub fn remove_stale(&self) -> Result<stale_cleanup::CleanupReport, MountError> {
        let _lock = self.lock()?;
        stale_cleanup::remove_stale(&self.path)
    }

    /// Takes the lock that makes registration and stale cleanup exclude each other. Dropping the
    /// file releases it.
    fn lock(&self) -> Result<File, MountError> {
        let path = self.path.join(".lock");
        let file = open_for_lock(&path, true).map_err(MountError::io("opening", &path))?;
        let begin = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => {
                    return Err(MountError::Io { action: "locking", path, source: error });
                }
                Err(TryLockError::WouldBlock) if begin.elapsed() > LOCK_WAIT => {
                    return Err(MountError::Locked {
                        path,
                        waited_ms: u64::try_from(LOCK_WAIT.as_millis()).unwrap_or(u64::MAX),
                    });
                }
                Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            }
        }
    }
}

/// Opens a file for locking: never through a link, and never inherited by a task.
pub(crate) fn open_for_lock(path: &Path, create: bool) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().read(true).append(true).create(create).mode(0o600).custom_flags(flags).open(path)
}

/// Checks that the directory is private to this user: others could plant links that a cleanup as
/// root would follow.
fn check_private(path: &Path) -> Result<(), MountError> {
    let meta = fs::symlink_metadata(path).map_err(MountError::io("reading", path))?;
    let uid = rustix::process::geteuid().as_raw();
    let reason = if !meta.is_dir() {
        "it is not a directory".to_owned()
    } else if meta.uid() != uid {
        format!("it belongs to user {}, not to {uid}", meta.uid())
    } else if meta.mode() & 0o077 != 0 {
        format!("others may enter it (mode {:03o}, must be 700)", meta.mode() & 0o777)
    } else {
        return Ok(());
    };
    Err(MountError::Untrusted { path: path.to_owned(), reason })
}

fn check_name(name: &str) -> Result<(), MountError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain);
    if fits { Ok(()) } else { Err(MountError::BadName { name: name.to_owned() }) }
}

fn make_directories(directory: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(directory)?;
    DirBuilder::new().mode(0o700).create(directory.join("mnt"))
}

/// Registration of a pool of this process in the runtime directory. Dropping it removes the pool's
/// directory, and unmounts and removes everything that still belongs to it. So drop it after the
/// [`Mount`](crate::Mount).
#[derive(Debug)]
pub struct PoolRegistration {
    directory: PathBuf,
    mount_point: PathBuf,
    /// Locked while this process lives.
    owner: File,
}

impl PoolRegistration {
    /// Creates and locks the owner file in a new directory.
    fn create(directory: PathBuf) -> Result<Self, MountError> {
        let path = directory.join(owner_file::FILE_NAME);
        let mut file = open_for_lock(&path, true).map_err(MountError::io("creating", &path))?;
        file.lock().map_err(MountError::io("locking", &path))?;
        let header = owner_file::header().map_err(MountError::io("reading", "/proc/self/stat"))?;
        file.write_all(header.as_bytes()).map_err(MountError::io("writing", &path))?;
        let mount_point = directory.join("mnt");
        let mut registration = Self { directory, mount_point: mount_point.clone(), owner: file };
        registration.append(&OwnedResource::Mount(mount_point))?;
        Ok(registration)
    }

    /// The pool's own mount point: an empty directory.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        self.directory.file_name().and_then(|name| name.to_str()).expect("names are checked to be ASCII")
    }

    /// Returns a handle that removes everything of this pool, from any thread, for a process that
    /// must end at once.
    pub fn rollback(&self) -> Rollback {
        Rollback { directory: self.directory.clone() }
    }

    /// Records that this pool is about to be mounted at `point` too, so that it is unmounted after
    /// a crash.
    pub fn add_mount(&mut self, point: &Path) -> Result<(), MountError> {
        let point = crate::mount_point::resolve(point).map_err(MountError::io("reaching", point))?;
        self.append(&OwnedResource::Mount(point))
    }

    /// Records that `dir`, which need not exist yet, belongs to this pool. It is removed with all
    /// its content when the pool ends, also after a crash. For staging data.
    pub fn add_directory(&mut self, dir: &Path) -> Result<(), MountError> {
        let dir = crate::mount_point::resolve(dir).map_err(MountError::io("reaching", dir))?;
        self.append(&OwnedResource::Remove(dir))
    }

    /// Records that the control group `dir`, which does not exist yet, belongs to this pool. When
    /// the pool ends, also after a crash, its processes are killed and it is removed with the
    /// groups below it.
    pub fn add_control_group(&mut self, dir: &Path) -> Result<(), MountError> {
        self.append(&OwnedResource::Group(dir.to_owned()))
    }

    /// Appends a line with one write: after a crash the line is there completely or not at all.
    fn append(&mut self, line: &OwnedResource) -> Result<(), MountError> {
        let path = self.directory.join(owner_file::FILE_NAME);
        self.owner.write_all(line.encode().as_bytes()).map_err(MountError::io("writing", path))
    }
}

impl Drop for PoolRegistration {
    fn drop(&mut self) {
        self.rollback().run();
    }
}

/// Handle that unmounts and removes everything of a registered pool, including mounts that are
/// being made.
#[derive(Debug, Clone)]
pub struct Rollback {
    directory: PathBuf,
}

impl Rollback {
    /// Removes everything; a second call finds nothing left. A resource that cannot be removed is
    /// logged, and the next stale cleanup tries again.
    pub fn run(&self) {
        // The lock makes a concurrent cleanup see all of the directory or nothing. Without it this
        // continues: the pool's own lock still protects the directory.
        let root = self.directory.parent().map(|path| RuntimeDir { path: path.to_owned() });
        let _lock = root.and_then(|root| root.lock().ok());
        for (path, reason) in stale_cleanup::remove_pool(&self.directory).failed {
            tracing::warn!("{} of pool {} could not be removed: {reason}", path.display(), self.directory.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_cannot_be_had_gives_way_to_the_next() {
        let home = tempfile::tempdir().expect("made");
        let (missing, next) = (home.path().join("missing/tidemill"), home.path().join("next"));
        let found = RuntimeDir::first_usable([missing, next.clone()].into_iter()).expect("the second can be had");
        assert_eq!(found.path(), next.canonicalize().expect("it was made"));
    }

    #[test]
    fn a_place_that_others_may_enter_ends_the_search() {
        let home = tempfile::tempdir().expect("made");
        let open = home.path().join("open");
        DirBuilder::new().mode(0o755).create(&open).expect("made");
        let refused = RuntimeDir::first_usable([open, home.path().join("next")].into_iter());
        assert!(matches!(refused, Err(MountError::Untrusted { .. })));
    }

    #[test]
    fn where_none_can_be_had_the_error_says_what_to_do() {
        let refused =
            RuntimeDir::first_usable([PathBuf::from("/proc/none/tidemill")].into_iter()).expect_err("no place");
        assert!(refused.hint().is_some_and(|hint| hint.contains("TMPDIR")), "{refused}");
    }
}
