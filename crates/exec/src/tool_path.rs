//! A path that only a tool's process may use, never this one.
//!
//! Tools work in a mount that this very process serves. A system call of ours on it waits for ourselves: if we are killed
//! meanwhile, the call waits for threads that are gone, and holds the device open by which the kernel would learn of it; the
//! process hangs for ever. So such paths are of a type that `std::fs` does not take: no `AsRef<Path>`, no `Deref`.

use std::ffi::{CString, NulError, OsStr};
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A path for tools to open, enter or print. We join and show it, and hand it to the child process.
///
/// ```compile_fail
/// std::fs::metadata(exec::ToolPath::from("/mount/file"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ToolPath(PathBuf);

impl ToolPath {
    /// The path of `place` below this one.
    #[must_use]
    pub fn join(&self, place: impl AsRef<Path>) -> Self {
        Self(self.0.join(place))
    }

    /// As command lines have it; what is no text is replaced.
    pub fn text(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }

    /// What of `path` lies below this one: `b` of `a/b`, for `a`.
    pub fn below<'a>(&self, path: &'a OsStr) -> Option<&'a Path> {
        Path::new(path).strip_prefix(&self.0).ok()
    }

    /// For the child, which may use it.
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

/// A file or folder of a tool: where its process finds it itself, or what was opened for it before.
#[derive(Debug, Clone)]
pub enum ToolFile {
    /// The child opens it, or enters it.
    Path(ToolPath),
    /// The child gets it.
    Open(Arc<OwnedFd>),
}

impl<P: Into<ToolPath>> From<P> for ToolFile {
    fn from(path: P) -> Self {
        Self::Path(path.into())
    }
}

impl fmt::Display for ToolFile {
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
