//! Ownership checks for pool files. A pool file names processes to end and nodes to trust, so
//! nobody but its owner may have written it.

use base::Problem;
use rustix::{fs::OFlags, process::geteuid};
use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Once,
};

/// Mode bits by which others may write.
const OTHERS_WRITE: u32 = 0o022;
/// Mode bits by which others may read.
const OTHERS_READ: u32 = 0o044;

/// Reason why a file was not opened.
#[derive(Debug)]
pub enum OpenError {
    Io(io::Error),
    /// Other users may have written it.
    Distrusted(Problem),
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Opens a pool file for reading. Refuses a file that another user but root owns, also one behind
/// another user's link, and a file that others may write. Logs a warning if others may read it.
pub fn open(path: &Path) -> Result<File, OpenError> {
    // NONBLOCK: a fifo without a writer must not block the open.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(target(path)?)?;
    let about = file.metadata()?;
    check(path, &about).map_err(OpenError::Distrusted)?;
    if about.mode() & OTHERS_READ != 0 {
        warn_readable(path);
    }
    Ok(file)
}

/// Resolves a path; a link there must belong to this user or to root.
pub fn target(path: &Path) -> Result<PathBuf, OpenError> {
    let about = fs::symlink_metadata(path)?;
    if !about.is_symlink() {
        return Ok(path.to_owned());
    }
    check_owner(path, &about).map_err(OpenError::Distrusted)?;
    Ok(path.canonicalize()?)
}

/// Refuses a file that other users may have written.
pub fn check(path: &Path, about: &Metadata) -> Result<(), Problem> {
    if !about.is_file() {
        return Err(Problem::new(format!("{} is not a pool file: it is not a regular file", path.display())));
    }
    check_owner(path, about)?;
    if about.mode() & OTHERS_WRITE != 0 {
        let shown = path.display();
        return Err(Problem::new(format!(
            "the pool file {shown} is not trusted: users other than its owner may write it"
        ))
        .hint(format!("check that it is what `tidemill pool start` wrote, then `chmod 600 {shown}`")));
    }
    Ok(())
}

fn check_owner(path: &Path, about: &Metadata) -> Result<(), Problem> {
    let (owner, user) = (about.uid(), geteuid().as_raw());
    if owner == user || owner == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(Problem::new(format!("the pool file {shown} is not trusted: user {owner} owns it, and this is user {user}"))
        .hint("only its owner can use a pool: use a pool file of your own, or become that user"))
}

fn warn_readable(path: &Path) {
    static ONCE: Once = Once::new();
    let shown = path.display();
    ONCE.call_once(|| {
        tracing::warn!("others can read the pool file {shown}, and do everything with the pool: `chmod 600 {shown}`");
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn refused(path: &Path) -> String {
        match open(path) {
            Err(OpenError::Distrusted(problem)) => problem.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pool_file_that_others_can_write_or_another_user_owns_is_refused_also_behind_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let [path, link] = ["pool", "link"].map(|name| directory.path().join(name));
        fs::write(&path, "{}").unwrap();
        symlink(&path, &link).unwrap();
        for (mode, is_trusted) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false), (0o666, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            for name in [&path, &link] {
                assert_eq!(open(name).is_ok(), is_trusted, "{mode:o}");
            }
        }
        assert!(refused(&path).contains("users other than its owner may write"));
        assert!(refused(directory.path()).contains("not a regular file"));
        if !geteuid().is_root() {
            return;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(1000), None).unwrap();
        assert!(refused(&path).contains("user 1000 owns it") && refused(&link).contains("user 1000"));
        chown(&path, Some(0), None).unwrap();
        std::os::unix::fs::lchown(&link, Some(1000), None).unwrap();
        assert!(refused(&link).contains("user 1000"), "who made the link says where it leads");
    }
}
