//! Open path of each inode in one kernel: ordinary, or passthrough to a backing file.
//!
//! A kernel allows only one open path for an inode at a time, and refuses an open that is answered
//! with the other one. So the path of the first open stays until the last close:
//!
//! ```text
//!            first open, backing offered ---> through: all opens share it
//!   closed <                                                                  > last close: closed
//!            first open, none offered ------> ordinary: ignores later offers
//! ```
//!
//! Bytes written past the page cache leave outdated pages in it. Those do no harm while the inode
//! is passed through. The opens of its next ordinary period must drop them: `outdated` in
//! [`Way::Ordinary`].
//!
//! This is a pure state machine: it has no descriptors and makes no system calls. Its user calls
//! `enter` before the reply is sent and `leave` when the kernel has sent the release, so this state
//! never lags behind the kernel's.

use std::collections::{HashMap, HashSet};

use placement::FileId;

/// Open path of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way<B> {
    /// The kernel sends reads and writes to this process.
    Ordinary {
        /// The kernel's cache may hold outdated pages, which must be dropped.
        outdated: bool,
    },
    /// The kernel reads and writes this backing itself.
    Through(B),
}

/// Open inodes of one kernel. `B` holds the backing of a passthrough inode until its last close.
#[derive(Debug)]
pub(crate) struct Opens<B> {
    open: HashMap<FileId, Open<B>>,
    /// Inodes that were written past the page cache since their pages were last dropped.
    outdated: HashSet<FileId>,
}

#[derive(Debug)]
struct Open<B> {
    /// Number of opens that the kernel has, or that are in replies being sent.
    count: u64,
    /// `None` for the ordinary path.
    backing: Option<B>,
}

impl<B> Default for Opens<B> {
    fn default() -> Self {
        Self { open: HashMap::new(), outdated: HashSet::new() }
    }
}

impl<B: Clone> Opens<B> {
    /// Registers an open of `file`. `offer` is called only if its backing can be used.
    pub(crate) fn enter(&mut self, file: FileId, offer: impl FnOnce() -> Option<B>) -> Way<B> {
        let open = self.open.entry(file).or_insert_with(|| Open { count: 0, backing: offer() });
        open.count += 1;
        match &open.backing {
            Some(backing) => {
                self.outdated.insert(file);
                Way::Through(backing.clone())
            }
            None => Way::Ordinary { outdated: self.outdated.contains(&file) },
        }
    }

    /// True if the file is open by the ordinary path.
    pub(crate) fn is_ordinary(&self, file: FileId) -> bool {
        self.open.get(&file).is_some_and(|open| open.backing.is_none())
    }

    /// Registers a release. Returns the backing after the last one.
    pub(crate) fn leave(&mut self, file: FileId) -> Option<B> {
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
    pub(crate) fn forgotten(&mut self, file: FileId) {
        if !self.open.contains_key(&file) {
            self.outdated.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(7);

    #[test]
    fn the_way_of_the_first_open_sticks_until_the_last_close() {
        let mut opens = Opens::default();
        assert_eq!(opens.enter(FILE, || Some('a')), Way::Through('a'));
        assert_eq!(opens.enter(FILE, || None), Way::Through('a'));
        assert_eq!(opens.leave(FILE), None);
        assert_eq!(opens.leave(FILE), Some('a'), "what was held comes back with the last");
        assert_eq!(opens.enter(FILE, || None), Way::Ordinary { outdated: true });
        assert_eq!(opens.enter(FILE, || Some('b')), Way::Ordinary { outdated: true });
        assert_eq!((opens.leave(FILE), opens.leave(FILE)), (None, None));
        assert_eq!(opens.enter(FILE, || Some('b')), Way::Through('b'));
    }

    #[test]
    fn pages_are_kept_when_nothing_was_written_past_them() {
        let mut opens = Opens::<char>::default();
        for _ in 0..2 {
            assert_eq!(opens.enter(FILE, || None), Way::Ordinary { outdated: false });
            opens.leave(FILE);
        }
        opens.enter(FILE, || Some('a'));
        opens.leave(FILE);
        opens.forgotten(FILE);
        assert_eq!(opens.enter(FILE, || None), Way::Ordinary { outdated: false }, "a new inode has no pages");
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
        fn open(&mut self, way: &Way<u8>) {
            match way {
                Way::Through(backing) => {
                    assert!(self.cached <= 0, "ETXTBSY: it is open the cached way");
                    assert!(self.backing.is_none_or(|held| held == *backing), "EBUSY: another backing");
                    (self.backing, self.cached) = (Some(*backing), self.cached - 1);
                }
                Way::Ordinary { outdated } => {
                    assert!(self.backing.is_none(), "EINVAL: it is passed through");
                    self.cached += 1;
                    if *outdated {
                        self.pages = None;
                    }
                }
            }
        }

        fn close(&mut self, way: &Way<u8>) {
            match way {
                Way::Through(_) => self.cached += 1,
                Way::Ordinary { .. } => self.cached -= 1,
            }
            if self.cached == 0 {
                self.backing = None;
            }
        }

        fn write(&mut self, way: &Way<u8>) {
            self.state += 1;
            if matches!(way, Way::Ordinary { .. }) {
                self.pages = Some(self.state);
            }
        }

        fn read(&mut self, way: &Way<u8>) {
            if matches!(way, Way::Ordinary { .. }) {
                let shown = *self.pages.get_or_insert(self.state);
                assert_eq!(shown, self.state, "a read saw what the page cache held from before");
            }
        }
    }

    /// Opens, closes, reads and writes in random order. Replies and releases are delivered after
    /// random delays.
    #[test]
    fn no_order_of_opens_and_closes_breaks_the_kernels_rules_or_shows_old_pages() {
        for seed in 1..2000_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut random = move |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let (mut opens, mut kernel) = (Opens::default(), Kernel::default());
            // Replies that the kernel has not received yet, the opens that it has, and releases
            // that have not arrived here yet.
            let (mut answered, mut open, mut released) = (Vec::new(), Vec::<Way<u8>>::new(), 0);
            for _ in 0..100 {
                let pick = |list: &Vec<Way<u8>>, at: u64| usize::try_from(at).unwrap() % list.len().max(1);
                match random(7) {
                    0 => {
                        let offer = (random(2) == 0).then(|| u8::try_from(random(3)).unwrap());
                        answered.push(opens.enter(FILE, || offer));
                    }
                    1 | 2 if !answered.is_empty() => {
                        let way = answered.remove(pick(&answered, random(99)));
                        kernel.open(&way);
                        open.push(way);
                    }
                    3 if !open.is_empty() => {
                        kernel.close(&open.remove(pick(&open, random(99))));
                        released += 1;
                    }
                    4 if released > 0 => {
                        opens.leave(FILE);
                        released -= 1;
                    }
                    5 if !open.is_empty() => kernel.write(&open[pick(&open, random(99))].clone()),
                    6 if !open.is_empty() => kernel.read(&open[pick(&open, random(99))].clone()),
                    _ => {}
                }
            }
        }
    }
}
