//! Open path of each inode in one kernel: ordinary, or passthrough to a backing file.
//!
//! A kernel allows only one open path for an inode at a time, and refuses an open that is answered
//! with the other one. So the path of the first open stays until the last close:
//!
//! ```text
//!            first open, backing offered -> passthrough: all opens share it
//!   closed <                                                                > last close: closed
//!            first open, none offered ----> ordinary: ignores later offers
//! ```
//!
//! Bytes written past the page cache leave outdated pages in it. Those do no harm while the inode
//! is passed through. The opens of its next ordinary period must drop them: `outdated` in
//! [`OpenPath::Ordinary`].
//!
//! This is a pure state machine: it has no descriptors and makes no system calls. Its user calls
//! `acquire` before the reply is sent and `release` when the kernel has sent the release, so this
//! state never lags behind the kernel's.

use std::collections::{HashMap, HashSet};

use placement::FileId;

/// Open path of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OpenPath<B> {
    /// The kernel sends reads and writes to this process.
    Ordinary {
        /// The kernel's cache may hold outdated pages, which must be dropped.
        outdated: bool,
    },
    /// The kernel reads and writes this backing itself.
    Passthrough(B),
}

/// Open inodes of one kernel. `B` holds the backing of a passthrough inode until its last close.
#[derive(Debug)]
pub(crate) struct OpenInodes<B> {
    open: HashMap<FileId, OpenInode<B>>,
    /// Inodes that were written past the page cache since their pages were last dropped.
    outdated: HashSet<FileId>,
}

#[derive(Debug)]
struct OpenInode<B> {
    /// Number of opens that the kernel has, or that are in replies being sent.
    count: u64,
    /// `None` for the ordinary path.
    backing: Option<B>,
}

impl<B> Default for OpenInodes<B> {
    fn default() -> Self {
        Self { open: HashMap::new(), outdated: HashSet::new() }
    }
}

impl<B: Clone> OpenInodes<B> {
    /// Registers an open of `file`. `offer` is called only if its backing can be used.
    pub(crate) fn acquire(&mut self, file: FileId, offer: impl FnOnce() -> Option<B>) -> OpenPath<B> {
        let open = self.open.entry(file).or_insert_with(|| OpenInode { count: 0, backing: offer() });
        open.count += 1;
        match &open.backing {
            Some(backing) => {
                self.outdated.insert(file);
                OpenPath::Passthrough(backing.clone())
            }
            None => OpenPath::Ordinary { outdated: self.outdated.contains(&file) },
        }
    }

    /// True if the file is open by the ordinary path.
    pub(crate) fn is_ordinary(&self, file: FileId) -> bool {
        self.open.get(&file).is_some_and(|open| open.backing.is_none())
    }

    /// Registers a release. Returns the backing after the last one.
    pub(crate) fn release(&mut self, file: FileId) -> Option<B> {
        let open = self.open.get_mut(&file)?;
        open.count -= 1;
        if open.count > 0 {
            return None;
        }
        let open = self.open.remove(&file)?;
        if open.backing.is_none() {
            // The opens of this period have dropped the outdated pages.
            self.outdated.remove(&file);
        }
        open.backing
    }

    /// Registers that the kernel has dropped the inode with all its pages.
    pub(crate) fn forget(&mut self, file: FileId) {
        if !self.open.contains_key(&file) {
            self.outdated.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use test_support::Random;

    use super::*;

    const FILE: FileId = FileId(7);

    #[test]
    fn the_way_of_the_first_open_sticks_until_the_last_close() {
        let mut inodes = OpenInodes::default();
        assert_eq!(inodes.acquire(FILE, || Some('a')), OpenPath::Passthrough('a'));
        assert_eq!(inodes.acquire(FILE, || None), OpenPath::Passthrough('a'));
        assert_eq!(inodes.release(FILE), None);
        assert_eq!(inodes.release(FILE), Some('a'), "what was held comes back with the last");
        assert_eq!(inodes.acquire(FILE, || None), OpenPath::Ordinary { outdated: true });
        assert_eq!(inodes.acquire(FILE, || Some('b')), OpenPath::Ordinary { outdated: true });
        assert_eq!((inodes.release(FILE), inodes.release(FILE)), (None, None));
        assert_eq!(inodes.acquire(FILE, || Some('b')), OpenPath::Passthrough('b'));
    }

    #[test]
    fn pages_are_kept_when_nothing_was_written_past_them() {
        let mut inodes = OpenInodes::<char>::default();
        for _ in 0..2 {
            assert_eq!(inodes.acquire(FILE, || None), OpenPath::Ordinary { outdated: false });
            inodes.release(FILE);
        }
        inodes.acquire(FILE, || Some('a'));
        inodes.release(FILE);
        inodes.forget(FILE);
        assert_eq!(inodes.acquire(FILE, || None), OpenPath::Ordinary { outdated: false }, "a new inode has no pages");
    }

    /// Model of the kernel's state for one inode: the rules of fs/fuse/iomode.c, as far as replies
    /// can break them.
    #[derive(Default)]
    struct Kernel {
        /// Above 0: number of opens that use the page cache. Below 0: number of passthrough opens,
        /// negated.
        cached: i64,
        backing: Option<u8>,
        /// Version of the file in the page cache, if the cache holds pages.
        pages: Option<u64>,
        /// Current version of the file.
        state: u64,
    }

    impl Kernel {
        fn open(&mut self, path: &OpenPath<u8>) {
            match path {
                OpenPath::Passthrough(backing) => {
                    assert!(self.cached <= 0, "ETXTBSY: it is open the cached way");
                    assert!(self.backing.is_none_or(|other| other == *backing), "EBUSY: another backing");
                    (self.backing, self.cached) = (Some(*backing), self.cached - 1);
                }
                OpenPath::Ordinary { outdated } => {
                    assert!(self.backing.is_none(), "EINVAL: it is passed through");
                    self.cached += 1;
                    if *outdated {
                        self.pages = None;
                    }
                }
            }
        }

        fn close(&mut self, path: &OpenPath<u8>) {
            match path {
                OpenPath::Passthrough(_) => self.cached += 1,
                OpenPath::Ordinary { .. } => self.cached -= 1,
            }
            if self.cached == 0 {
                self.backing = None;
            }
        }

        fn write(&mut self, path: &OpenPath<u8>) {
            self.state += 1;
            if matches!(path, OpenPath::Ordinary { .. }) {
                self.pages = Some(self.state);
            }
        }

        fn read(&mut self, path: &OpenPath<u8>) {
            if matches!(path, OpenPath::Ordinary { .. }) {
                let visible = *self.pages.get_or_insert(self.state);
                assert_eq!(visible, self.state, "a read saw what the page cache held from before");
            }
        }
    }

    /// Opens, closes, reads and writes in random order. Replies and releases are delivered after
    /// random delays.
    #[test]
    fn no_order_of_opens_and_closes_breaks_the_kernels_rules_or_shows_old_pages() {
        for seed in 1..2000_u64 {
            let mut random = Random::new(seed);
            let (mut inodes, mut kernel) = (OpenInodes::default(), Kernel::default());
            // Replies that the kernel has not received yet, the opens that it has, and releases
            // that have not arrived here yet.
            let (mut answered, mut open, mut released) = (Vec::new(), Vec::<OpenPath<u8>>::new(), 0);
            for _ in 0..100 {
                match random.below(7) {
                    0 => {
                        let offer = random.one_in(2).then(|| random.below(3));
                        answered.push(inodes.acquire(FILE, || offer));
                    }
                    1 | 2 if !answered.is_empty() => {
                        let path = answered.remove(random.below(answered.len()));
                        kernel.open(&path);
                        open.push(path);
                    }
                    3 if !open.is_empty() => {
                        kernel.close(&open.remove(random.below(open.len())));
                        released += 1;
                    }
                    4 if released > 0 => {
                        inodes.release(FILE);
                        released -= 1;
                    }
                    5 if !open.is_empty() => kernel.write(&open[random.below(open.len())]),
                    6 if !open.is_empty() => kernel.read(&open[random.below(open.len())]),
                    _ => {}
                }
            }
        }
    }
}
