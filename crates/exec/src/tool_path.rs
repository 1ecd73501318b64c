//! Paths that only a tool's process may access, never this process.
//!
//! Tools work in a mount that this process serves. A system call of ours on the mount waits for
//! ourselves. If we are killed meanwhile, the call waits for threads that are gone and holds open
//! the device by whose close the kernel would notice; the process hangs forever. So these paths
//! have a type that `std::fs` does not accept: no `AsRef<Path>`, no `Deref`.

use std::ffi::{CString, NulError, OsStr};
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A path for tools to open, enter or print. This process only joins it, displays it and passes it
/// to the child.
///
/// ```compile_fail
/// std::fs::metadata(exec::ToolPath::from("/mount/file"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ToolPath(PathBuf);

impl ToolPath {
    /// Returns the path of `place` below this path.
    #[must_use]
    pub fn join(&self, place: impl AsRef<Path>) -> Self {
        Self(self.0.join(place))
    }

    /// Returns the path for a command line; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }

    /// Returns the part of `path` below this path: `b` of `a/b`, for `a`.
    pub fn below<'a>(&self, path: &'a OsStr) -> Option<&'a Path> {
        Path::new(path).strip_prefix(&self.0).ok()
    }

    /// Returns the path for the child, which may access it.
    pub(crate) fn for_child(&self) -> Result<CString, NulError> {
        CString::new(self.0.as_os_str().as_bytes())
    }
}

impl<P: Into<PathBuf>> From<P> for ToolPath {
    fn from(path: P) -> Self {
        Self(path.into())
    }
}

impl fmt::Display for ToolPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(out)
    }
}

impl fmt::Debug for ToolPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A file or directory of a tool: a path that its process opens, or an open descriptor.
#[derive(Debug, Clone)]
pub enum PathOrFd {
    /// A path that the child opens or enters.
    Path(ToolPath),
    /// An open descriptor that the child gets.
    Open(Arc<OwnedFd>),
}

impl<P: Into<ToolPath>> From<P> for PathOrFd {
    fn from(path: P) -> Self {
        Self::Path(path.into())
    }
}

impl fmt::Display for PathOrFd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.fmt(out),
            Self::Open(_) => out.write_str("what was opened for it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_is_told_apart_from_what_does_not() {
        let root = ToolPath::from("/run/mnt");
        assert_eq!(root.below(OsStr::new("/run/mnt/t.1/list")), Some(Path::new("t.1/list")));
        assert_eq!(root.below(OsStr::new("/run/mnt2/x")), None);
        assert_eq!(root.join("t.1").text(), "/run/mnt/t.1");
    }
}
