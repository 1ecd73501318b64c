//! Errors of mounting, unmounting and the runtime directory, by meaning. Each names its object, and
//! has a remedy where one is known.
//!
//! Errors of file operations are not here: those are refusals, which `errno.rs` maps to an errno.

use std::{io, path::PathBuf};

use base::Problem;

/// Reason why this process cannot use FUSE.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The kernel's device does not exist.
    #[error("/dev/fuse does not exist")]
    NoDevice,
    /// The device exists but cannot be opened; the system's reason.
    #[error("/dev/fuse cannot be opened: {0}")]
    DeviceRefused(String),
    /// The process is not privileged, and the set-uid helper is not installed.
    #[error("mounting needs root, or the program fusermount3, which is not installed")]
    NoHelper,
    /// The process is not privileged, and the helper has lost its set-uid bit.
    #[error("{} is not set-uid root, so it cannot mount for an ordinary user", .0.display())]
    HelperNotSetUid(PathBuf),
}

impl Unavailable {
    /// Remedy for a person.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoDevice => {
                "load the kernel module (modprobe fuse); in a container, start it with --device /dev/fuse"
            }
            Self::DeviceRefused(_) => "in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN",
            Self::NoHelper => "install the package fuse3",
            Self::HelperNotSetUid(_) => "reinstall the package fuse3",
        }
    }
}

/// Action of the error when the runtime directory cannot be created; its hint depends on it.
pub(crate) const CREATING_RUNTIME: &str = "creating the runtime directory";

/// A mount, an unmount or the runtime directory failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// FUSE cannot be used here at all.
    #[error("no mount is possible here: {0}")]
    Unavailable(#[from] Unavailable),
    /// The mount point does not exist.
    #[error("mount point {} does not exist", .point.display())]
    Missing {
        /// The mount point as given.
        point: PathBuf,
    },
    /// The mount point is a file, a socket, ...
    #[error("mount point {} is not a directory", .point.display())]
    NotDirectory {
        /// The mount point as given.
        point: PathBuf,
    },
    /// The mount would hide files.
    #[error("mount point {} is not empty: a mount would hide what is in it", .point.display())]
    NotEmpty {
        /// The mount point as given.
        point: PathBuf,
    },
    /// A file system is mounted there already.
    #[error("a file system ({kind}) is already mounted at {}", .point.display())]
    Mounted {
        /// The mount point as given.
        point: PathBuf,
        /// Type of the mounted file system, as `mount` shows it.
        kind: String,
    },
    /// A directory is named twice, perhaps by two paths.
    #[error("mount point {} is named twice", .point.display())]
    Duplicate {
        /// The second name, as given.
        point: PathBuf,
    },
    /// One mount point would be hidden by another.
    #[error("mount point {} lies inside {}, which would hide it", .inner.display(), .outer.display())]
    Nested {
        /// The inner one, as given.
        inner: PathBuf,
        /// The outer one, as given.
        outer: PathBuf,
    },
    /// The caller may not use the mount point.
    #[error("mount point {} must be readable and writable by this user", .point.display())]
    NotPermitted {
        /// The mount point as given.
        point: PathBuf,
    },
    /// The system refused the mount.
    #[error("mounting at {} failed: {reason}", .point.display())]
    Refused {
        /// The mount point as given.
        point: PathBuf,
        /// Message of the kernel or the helper.
        reason: String,
    },
    /// The path to unmount is not a Tidemill mount.
    #[error("{} is not a Tidemill mount: it is {found}", .point.display())]
    NotTidemill {
        /// The path as given.
        point: PathBuf,
        /// Description of the thing at the path.
        found: String,
    },
    /// The system refused to unmount.
    #[error("unmounting {} failed: {reason}", .point.display())]
    UnmountFailed {
        /// The mount point.
        point: PathBuf,
        /// Message of the kernel or the helper.
        reason: String,
    },
    /// The runtime directory belongs to another user, or others may enter it.
    #[error("runtime directory {} cannot be trusted: {reason}", .path.display())]
    Untrusted {
        /// The directory.
        path: PathBuf,
        /// The violated condition.
        reason: String,
    },
    /// The pool's name cannot be the name of a directory.
    #[error("`{name}` cannot name a pool: use up to 100 letters, digits, `-`, `_` and `.`, not starting with `.`")]
    BadName {
        /// The name as given.
        name: String,
    },
    /// A pool of this name is running, or its remains could not be removed.
    #[error("a pool named `{name}` is already registered in {}", .path.display())]
    AlreadyRegistered {
        /// The name as given.
        name: String,
        /// The runtime directory.
        path: PathBuf,
    },
    /// Another process kept the runtime directory locked for too long.
    #[error("{} has been locked by another process for {waited_ms} ms", .path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The time waited, milliseconds.
        waited_ms: u64,
    },
    /// A file operation beside the mount failed.
    #[error("{action} {} failed: {source}", .path.display())]
    Io {
        /// The failed action, as a gerund: `creating`, `reading`.
        action: &'static str,
        /// The path that it was applied to.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl MountError {
    /// Remedy for a person, where one is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unavailable(reason) => Some(reason.hint().to_owned()),
            Self::Missing { point } => Some(format!("make it first: mkdir -p {}", point.display())),
            Self::Nested { .. } => Some("choose directories beside each other".to_owned()),
            Self::NotDirectory { .. } | Self::NotEmpty { .. } => Some("choose an empty directory".to_owned()),
            Self::Mounted { point, kind } if kind.starts_with("fuse") => {
                Some(format!("unmount it first: tidemill umount {}", point.display()))
            }
            Self::Mounted { .. } => Some("choose an empty directory inside it".to_owned()),
            Self::Io { action, .. } if *action == CREATING_RUNTIME => {
                Some("set TMPDIR to a directory that you can write to".to_owned())
            }
            Self::Untrusted { .. } => Some("set XDG_RUNTIME_DIR or TMPDIR to a directory of your own".to_owned()),
            Self::AlreadyRegistered { .. } => Some("choose another name, or end that pool".to_owned()),
            _ => None,
        }
    }

    /// Closure for `map_err` that makes a [`MountError::Io`].
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// Message with its remedy, for a person.
impl From<MountError> for Problem {
    fn from(error: MountError) -> Self {
        let problem = Self::new(error.to_string());
        match error.hint() {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_told_the_remedy_too() {
        let problem = Problem::from(MountError::from(Unavailable::NoDevice));
        assert!(problem.message.contains("/dev/fuse"), "{}", problem.message);
        assert!(problem.hint.unwrap().contains("modprobe"));
        let problem = Problem::from(MountError::Missing { point: "/none".into() });
        assert_eq!(problem.hint.as_deref(), Some("make it first: mkdir -p /none"));
    }
}
