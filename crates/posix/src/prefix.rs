//! Whether a path, as text, leads below the prefix that stands for the pool.

/// What of an absolute path is behind the prefix; none where the path leads elsewhere. `.`, `..` and repeated slashes count as text, so
/// `/usr/../tidemill/a` is `/a` of the pool. The pool's root is its own parent, as the system's is: `/tidemill/..` is `/tidemill`. Nothing is allocated: this is asked of every path of a program.
pub fn below<'a>(prefix: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    if path.first() != Some(&b'/') {
        return None;
    }
    let mut at = At::root(prefix);
    parts(path).for_each(|(name, behind)| at.goes(name, behind));
    at.rest()
}

/// What of a relative path is behind the prefix, where it starts at a folder outside of the pool, as `tidemill/a` does at `/` and `../tidemill/a` in `/usr`.
pub fn below_from<'a>(prefix: &[u8], folder: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let mut at = At::root(prefix);
    parts(folder).for_each(|(name, _)| at.goes(name, path));
    if at.more > 0 && at.rest.is_some() {
        return None; // within what the prefix hides
    }
    parts(path).for_each(|(name, behind)| at.goes(name, behind));
    at.rest()
}

/// Whether a relative path may lead to the pool from a folder outside of it, so that it is worth to ask which folder that is.
pub fn may_enter(prefix: &[u8], path: &[u8]) -> bool {
    let Some(last) = names(prefix).last() else { return false };
    names(path).any(|name| name == last)
}

/// How far names have led towards the pool.
struct At<'a, 'p> {
    prefix: &'p [u8],
    /// How many of them are the prefix's first ones.
    matched: usize,
    /// How many are behind those, or others.
    more: usize,
    /// What is behind the prefix.
    rest: Option<&'a [u8]>,
}

impl<'a, 'p> At<'a, 'p> {
    fn root(prefix: &'p [u8]) -> Self {
        Self { prefix, matched: 0, more: 0, rest: None }
    }

    /// One name on; `behind` is what follows it.
    fn goes(&mut self, name: &[u8], behind: &'a [u8]) {
        let next = || names(self.prefix).nth(self.matched);
        match name {
            b"." => {}
            b".." if self.more > 0 => self.more -= 1,
            // Above the pool is nothing that a path through it leads to.
            b".." if next().is_none() => self.rest = Some(behind),
            b".." => self.matched = self.matched.saturating_sub(1),
            name if self.more == 0 && next() == Some(name) => {
                self.matched += 1;
                self.rest = names(self.prefix).nth(self.matched).is_none().then_some(behind);
            }
            _ => self.more += 1,
        }
    }

    /// What is behind the prefix, if that is where the names lead.
    fn rest(&self) -> Option<&'a [u8]> {
        self.rest.filter(|_| self.matched > 0 && names(self.prefix).nth(self.matched).is_none())
    }
}

/// The names in a path.
pub(crate) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

/// Each name with what is behind it.
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
    use super::{below, below_from, may_enter};

    fn rest(path: &str) -> Option<&str> {
        below(b"/tidemill", path.as_bytes()).map(|rest| std::str::from_utf8(rest).expect("text"))
    }

    #[test]
    fn what_is_behind_the_prefix_is_of_the_pool() {
        assert_eq!(rest("/tidemill"), Some(""));
        assert_eq!(rest("/tidemill/"), Some("/"));
        assert_eq!(rest("/tidemill/a/b"), Some("/a/b"));
        assert_eq!(rest("//tidemill//a"), Some("//a"));
        assert_eq!(rest("/./tidemill/./a"), Some("/./a"));
    }

    #[test]
    fn what_only_begins_like_the_prefix_is_not() {
        for path in ["/", "/tidemills", "/tidemill2/a", "/tide", "tidemill/a", "", "/a/tidemill/b"] {
            assert_eq!(rest(path), None, "{path}");
        }
    }

    #[test]
    fn dots_lead_in_and_out() {
        assert_eq!(rest("/usr/../tidemill/a"), Some("/a"));
        assert_eq!(rest("/../../tidemill/a"), Some("/a"));
        assert_eq!(rest("/tidemill/a/../b"), Some("/a/../b"));
        assert_eq!(rest("/usr/tidemill/../b"), None);
    }

    #[test]
    fn above_the_pool_is_the_pool() {
        assert_eq!(rest("/tidemill/.."), Some(""));
        assert_eq!(rest("/tidemill/../b"), Some("/b"));
        assert_eq!(rest("/tidemill/a/../../b"), Some("/b"));
    }

    #[test]
    fn a_relative_path_enters_from_a_folder_above() {
        let rest = |folder: &str, path: &'static str| {
            let entered = below_from(b"/mnt/pool", folder.as_bytes(), path.as_bytes());
            assert!(entered.is_none() || may_enter(b"/mnt/pool", path.as_bytes()));
            entered.map(|rest| std::str::from_utf8(rest).expect("text"))
        };
        assert_eq!(rest("/", "mnt/pool/a"), Some("/a"));
        assert_eq!(rest("/mnt", "pool"), Some(""));
        assert_eq!(rest("/mnt", "pool/a/b"), Some("/a/b"));
        assert_eq!(rest("/", "mnt"), None);
        assert_eq!(rest("/usr", "pool/a"), None);
        assert_eq!(rest("/mnt", "pool2"), None);
        assert_eq!(rest("/usr/lib", "../../mnt/pool/a"), Some("/a"));
        assert_eq!(rest("/mnt/data", "../pool/a"), Some("/a"));
        assert_eq!(rest("/mnt/data", "../pool/../../a"), Some("/a"), "above the pool is the pool");
        assert_eq!(rest("/mnt", "../pool"), None);
        assert_eq!(rest("/mnt/pool/hidden", "../pool"), None);
        assert!(!may_enter(b"/mnt/pool", b"usr/lib"));
    }

    #[test]
    fn a_prefix_may_have_several_names() {
        let rest = |path: &'static str| below(b"/mnt/pool/", path.as_bytes());
        assert_eq!(rest("/mnt/pool/a"), Some(&b"/a"[..]));
        assert_eq!(rest("/mnt/other/../pool/a"), Some(&b"/a"[..]));
        assert_eq!(rest("/mnt"), None);
        assert_eq!(rest("/mnt/pool/.."), Some(&b""[..]));
        assert_eq!(below(b"/", b"/etc"), None, "the root alone stands for nothing");
    }
}
