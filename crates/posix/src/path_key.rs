//! Paths that the path cache may know: names alone.

use crate::caller::TraversalCheck;
use client::{PathHint, PathText, WalkedPath};
use placement::FileId;
use wire::{Name, path_names};

/// Path that consists of names alone, without `..`.
#[derive(Debug)]
pub struct PathKey {
    /// Path to the directory of the last name.
    pub directory: PathText,
    /// Last name.
    pub last: Name,
    /// True if a slash follows the last name.
    pub slash: bool,
}

impl PathKey {
    /// Parses a path. Returns `None` if it has no name, a `..`, a last name that is too long, or if
    /// its last component is `.`, with or without a slash after it.
    pub fn parse(start: FileId, path: &[u8]) -> Option<Self> {
        let mut names: Vec<&[u8]> = path_names(path).filter(|name| *name != b".").collect();
        if names.contains(&&b".."[..]) || path_names(path).last() == Some(b".") {
            return None;
        }
        let last = Name::new(names.pop()?).ok()?;
        Some(Self { directory: (start, names.join(&b'/')), last, slash: path.ends_with(b"/") })
    }

    /// Returns the names of the directories.
    pub fn directories(&self) -> impl Iterator<Item = Vec<u8>> {
        path_names(&self.directory.1).map(<[u8]>::to_vec)
    }
}

/// Returns a walked path for a request on behalf of a user.
pub fn hint<'a>(path: &'a WalkedPath, traversal: &'a TraversalCheck) -> PathHint<'a> {
    PathHint { path, credentials: traversal.credentials() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Option<(Vec<String>, String, bool)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let key = PathKey::parse(FileId::ROOT, path.as_bytes())?;
        Some((key.directories().map(|name| text(&name)).collect(), text(key.last.as_bytes()), key.slash))
    }

    #[test]
    fn a_path_of_names_alone_is_a_way_and_no_other_is() {
        let found = |directories: &[&str], last: &str, slash| {
            Some((directories.iter().map(ToString::to_string).collect::<Vec<_>>(), last.to_owned(), slash))
        };
        assert_eq!(parse("a/b"), found(&["a"], "b", false));
        assert_eq!(parse("./a//./b/c/"), found(&["a", "b"], "c", true));
        assert_eq!(parse("a"), found(&[], "a", false));
        assert_eq!(parse("/./a/"), found(&[], "a", true));
        for other in ["", "/", "a/..", "a/../b", "../a/b", "a/.", "a/b/.", "a/./", "a/.//"] {
            assert_eq!(parse(other), None, "{other}");
        }
        assert_eq!(parse(&format!("a/{}", "b".repeat(256))), None, "a name that is too long is refused on the walk");
    }
}
