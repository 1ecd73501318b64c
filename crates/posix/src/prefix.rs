//! Tests whether the text of a path leads below the prefix that stands for the pool.

use wire::path_names;

/// Returns the rest of an absolute path after the prefix, or `None` if the path leads elsewhere.
/// `.`, `..` and repeated slashes are resolved as text: `/usr/../tidemill/a` is `/a` of the pool.
/// The pool's root is its own parent, as the system's root is: `/tidemill/..` is `/tidemill`.
/// Allocates nothing, because every path of a program is tested.
pub fn strip_prefix<'a>(prefix: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    if path.first() != Some(&b'/') {
        return None;
    }
    let mut state = PrefixState::root(prefix);
    parts(path).for_each(|(name, behind)| state.advance(name, behind));
    state.remaining()
}

/// Returns the rest of a relative path after the prefix. The path starts at a directory outside the
/// pool, as `tidemill/a` at `/` or `../tidemill/a` in `/usr`.
pub fn strip_prefix_from<'a>(prefix: &[u8], directory: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let mut state = PrefixState::root(prefix);
    parts(directory).for_each(|(name, _)| state.advance(name, path));
    if state.more > 0 && state.remaining.is_some() {
        return None; // inside the host directory that the prefix hides
    }
    parts(path).for_each(|(name, behind)| state.advance(name, behind));
    state.remaining()
}

/// Returns whether a relative path from a directory outside the pool may lead into it, so that the
/// working directory needs to be queried.
pub fn may_enter(prefix: &[u8], path: &[u8]) -> bool {
    let Some(last) = path_names(prefix).last() else { return false };
    path_names(path).any(|name| name == last)
}

/// Progress of a path along the prefix.
struct PrefixState<'a, 'p> {
    prefix: &'p [u8],
    /// Number of leading names of the prefix that the path has matched.
    matched: usize,
    /// Depth in names after those, or in names off the prefix.
    more: usize,
    /// Rest of the path after the prefix.
    remaining: Option<&'a [u8]>,
}

impl<'a, 'p> PrefixState<'a, 'p> {
    fn root(prefix: &'p [u8]) -> Self {
        Self { prefix, matched: 0, more: 0, remaining: None }
    }

    /// Takes one name; `behind` is the text after it.
    fn advance(&mut self, name: &[u8], behind: &'a [u8]) {
        let next = || path_names(self.prefix).nth(self.matched);
        match name {
            b"." => {}
            b".." if self.more > 0 => self.more -= 1,
            // The pool's root is its own parent.
            b".." if next().is_none() => self.remaining = Some(behind),
            b".." => self.matched = self.matched.saturating_sub(1),
            name if self.more == 0 && next() == Some(name) => {
                self.matched += 1;
                self.remaining = path_names(self.prefix).nth(self.matched).is_none().then_some(behind);
            }
            _ => self.more += 1,
        }
    }

    /// Returns the rest after the prefix, if the path leads there.
    fn remaining(&self) -> Option<&'a [u8]> {
        self.remaining.filter(|_| self.matched > 0 && path_names(self.prefix).nth(self.matched).is_none())
    }
}

/// Iterates over the names in a path, each with the text after it.
fn parts(path: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut left = path;
    std::iter::from_fn(move || {
        let start = left.iter().position(|byte| *byte != b'/')?;
        let name = &left[start..];
        let end = name.iter().position(|byte| *byte == b'/').unwrap_or(name.len());
        left = &name[end..];
        Some((&name[..end], left))
    })
}

#[cfg(test)]
mod tests {
    use super::{may_enter, strip_prefix, strip_prefix_from};

    fn remaining(path: &str) -> Option<&str> {
        strip_prefix(b"/tidemill", path.as_bytes()).map(|remaining| std::str::from_utf8(remaining).expect("text"))
    }

    #[test]
    fn what_is_behind_the_prefix_is_of_the_pool() {
        assert_eq!(remaining("/tidemill"), Some(""));
        assert_eq!(remaining("/tidemill/"), Some("/"));
        assert_eq!(remaining("/tidemill/a/b"), Some("/a/b"));
        assert_eq!(remaining("//tidemill//a"), Some("//a"));
        assert_eq!(remaining("/./tidemill/./a"), Some("/./a"));
    }

    #[test]
    fn what_only_begins_like_the_prefix_is_not() {
        for path in ["/", "/tidemills", "/tidemill2/a", "/tide", "tidemill/a", "", "/a/tidemill/b"] {
            assert_eq!(remaining(path), None, "{path}");
        }
    }

    #[test]
    fn dots_lead_in_and_out() {
        assert_eq!(remaining("/usr/../tidemill/a"), Some("/a"));
        assert_eq!(remaining("/../../tidemill/a"), Some("/a"));
        assert_eq!(remaining("/tidemill/a/../b"), Some("/a/../b"));
        assert_eq!(remaining("/usr/tidemill/../b"), None);
    }

    #[test]
    fn above_the_pool_is_the_pool() {
        assert_eq!(remaining("/tidemill/.."), Some(""));
        assert_eq!(remaining("/tidemill/../b"), Some("/b"));
        assert_eq!(remaining("/tidemill/a/../../b"), Some("/b"));
    }

    #[test]
    fn a_relative_path_enters_from_a_directory_above() {
        let remaining = |directory: &str, path: &'static str| {
            let entered = strip_prefix_from(b"/mnt/pool", directory.as_bytes(), path.as_bytes());
            assert!(entered.is_none() || may_enter(b"/mnt/pool", path.as_bytes()));
            entered.map(|remaining| std::str::from_utf8(remaining).expect("text"))
        };
        assert_eq!(remaining("/", "mnt/pool/a"), Some("/a"));
        assert_eq!(remaining("/mnt", "pool"), Some(""));
        assert_eq!(remaining("/mnt", "pool/a/b"), Some("/a/b"));
        assert_eq!(remaining("/", "mnt"), None);
        assert_eq!(remaining("/usr", "pool/a"), None);
        assert_eq!(remaining("/mnt", "pool2"), None);
        assert_eq!(remaining("/usr/lib", "../../mnt/pool/a"), Some("/a"));
        assert_eq!(remaining("/mnt/data", "../pool/a"), Some("/a"));
        assert_eq!(remaining("/mnt/data", "../pool/../../a"), Some("/a"), "above the pool is the pool");
        assert_eq!(remaining("/mnt", "../pool"), None);
        assert_eq!(remaining("/mnt/pool/hidden", "../pool"), None);
        assert!(!may_enter(b"/mnt/pool", b"usr/lib"));
    }

    #[test]
    fn a_prefix_may_have_several_names() {
        let remaining = |path: &'static str| strip_prefix(b"/mnt/pool/", path.as_bytes());
        assert_eq!(remaining("/mnt/pool/a"), Some(&b"/a"[..]));
        assert_eq!(remaining("/mnt/other/../pool/a"), Some(&b"/a"[..]));
        assert_eq!(remaining("/mnt"), None);
        assert_eq!(remaining("/mnt/pool/.."), Some(&b""[..]));
        assert_eq!(strip_prefix(b"/", b"/etc"), None, "the root alone stands for nothing");
    }
}
