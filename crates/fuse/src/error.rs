//! What can go wrong around a mount, by meaning, each with the object named and a remedy where one is known.
//!
//! Errors of single file operations are not here: those are refusals, turned into errno by the table in `errno.rs`.

use std::{io, path::PathBuf};

use base::Problem;

/// Why FUSE cannot be used by this process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The kernel's device is not there.
    #[error("/dev/fuse is not there")]
    NoDevice,
    /// The device is there and must not be opened; the reason is the system's.
    #[error("/dev/fuse cannot be opened: {0}")]
    DeviceRefused(String),
    /// Not privileged, and the set-uid helper is not installed.
    #[error("mounting needs root, or the program fusermount3, which is not installed")]
    NoHelper,
    /// Not privileged, and the helper lost its set-uid bit.
    #[error("{} is not set-uid root, so it cannot mount for an ordinary user", .0.display())]
    WeakHelper(PathBuf),
}

impl Unavailable {
    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoDevice => {
                "load the kernel module (modprobe fuse); in a container, start it with --device /dev/fuse"
            }
            Self::DeviceRefused(_) => "in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN",
            Self::NoHelper => "install the package fuse3",
            Self::WeakHelper(_) => "reinstall the package fuse3",
        }
    }
}

/// What was being done when the runtime directory could not be made; its hint depends on it.
pub(crate) const CREATING_RUNTIME: &str = "creating the runtime directory";

/// A mount, an unmount or the runtime directory failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// FUSE cannot be used here at all.
    #[error("no mount is possible here: {0}")]
    Unavailable(#[from] Unavailable),
    /// The mount point does not exist.
    #[error("mount point {} is not there", .point.display())]
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
    /// Something is mounted there already.
    #[error("a file system ({kind}) is already mounted at {}", .point.display())]
    Mounted {
        /// The mount point as given.
        point: PathBuf,
        /// The mounted file system's type, as in `mount`.
        kind: String,
    },
    /// One directory is named twice, perhaps by two paths.
    #[error("mount point {} is named twice", .point.display())]
    Twice {
        /// Its second name as given.
        point: PathBuf,
    },
    /// A mount point would be hidden by another.
    #[error("mount point {} lies inside {}, which would hide it", .inner.display(), .outer.display())]
    Nested {
        /// The one inside, as given.
        inner: PathBuf,
        /// The one that holds it, as given.
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
        /// What the kernel or the helper said.
        reason: String,
    },
    /// An unmount was asked for something that is no mount of ours.
    #[error("{} is not a Tidemill mount: it is {found}", .point.display())]
    NotOurs {
        /// The path as given.
        point: PathBuf,
        /// What is there instead, in words.
        found: String,
    },
    /// The system refused to unmount.
    #[error("unmounting {} failed: {reason}", .point.display())]
    Stuck {
        /// The mount point.
        point: PathBuf,
        /// What the kernel or the helper said.
        reason: String,
    },
    /// The runtime directory belongs to somebody else, or others may write to it.
    #[error("runtime directory {} cannot be trusted: {reason}", .path.display())]
    Untrusted {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A pool's name cannot be a folder's name.
    #[error("`{name}` cannot name a pool: use up to 100 letters, digits, `-`, `_` and `.`, not starting with `.`")]
    BadName {
        /// The name as given.
        name: String,
    },
    /// A pool of this name runs already, or its remains could not be removed.
    #[error("a pool named `{name}` is already registered in {}", .path.display())]
    Taken {
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
        /// How long was waited, in milliseconds.
        waited_ms: u64,
    },
    /// A file operation beside the mount failed.
    #[error("{action} {} failed: {source}", .path.display())]
    Io {
        /// What was tried, as a gerund: `creating`, `reading`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl MountError {
    /// What a person can do about it, where we know.
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
                Some("set TMPDIR to a folder that you may write to".to_owned())
            }
            Self::Untrusted { .. } => Some("set XDG_RUNTIME_DIR or TMPDIR to a directory of your own".to_owned()),
            Self::Taken { .. } => Some("choose another name, or end that pool".to_owned()),
            _ => None,
        }
    }

    /// The shape that `map_err` wants for [`MountError::Io`].
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// For a person: the message with its remedy.
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
