//! Which way each inode is open in one kernel: the ordinary way, or passed through to the file behind it.
//!
//! A kernel allows an inode only one way at a time, and refuses an open that is answered otherwise. So the way of the first
//! open sticks until the last close:
//!
//! ```text
//!            first open, a backing is offered ---> through: every further open has the same backing
//!   closed <                                                                                       > last close: closed
//!            first open, none is offered --------> ordinary: an offer is not taken
//! ```
//!
//! What is written past the page cache leaves older pages in it. They are in nobody's way while the inode is passed through;
//! the opens of its next ordinary life drop them, which is what [`Way::Ordinary`] tells.
//!
//! Pure: it knows no descriptor and makes no call. Whoever uses it enters an open before the kernel hears the answer, and lets it
//! leave when the kernel has told of the release, so what is known here never lags behind what the kernel holds.

use std::collections::{HashMap, HashSet};

use placement::FileId;

/// How an open is to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way<B> {
    /// Reads and writes come to us.
    Ordinary {
        /// The kernel may hold pages that are older than the bytes: they must not be kept.
        outdated: bool,
    },
    /// Reads and writes go to this backing.
    Through(B),
}

/// The open inodes of one kernel. `B` is what is held for one that is passed through, until its last close.
#[derive(Debug)]
pub(crate) struct Opens<B> {
    open: HashMap<FileId, Open<B>>,
    /// Inodes that were written past the page cache since its pages of them were dropped last.
    outdated: HashSet<FileId>,
}

#[derive(Debug)]
struct Open<B> {
    /// How many opens the kernel has, or is about to be told of.
    count: u64,
    /// None: the ordinary way.
    backing: Option<B>,
}

impl<B> Default for Opens<B> {
    fn default() -> Self {
        Self { open: HashMap::new(), outdated: HashSet::new() }
    }
}

impl<B: Clone> Opens<B> {
    /// One more open of `file`; `offer` is asked only where it can be taken.
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

    /// Whether it is open the ordinary way.
    pub(crate) fn is_ordinary(&self, file: FileId) -> bool {
        self.open.get(&file).is_some_and(|open| open.backing.is_none())
    }

    /// One open less. What was held for the last one is given back.
    pub(crate) fn leave(&mut self, file: FileId) -> Option<B> {
        let open = self.open.get_mut(&file)?;
        open.count -= 1;
        if open.count > 0 {
            return None;
        }
        let open = self.open.remove(&file)?;
        if open.backing.is_none() {
            // Its opens have dropped the old pages.
            self.outdated.remove(&file);
        }
        open.backing
    }

    /// The kernel has dropped the inode, and all its pages with it.
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

    /// What the kernel does with one inode: its rules of fs/fuse/iomode.c, as far as answers can break them.
    #[derive(Default)]
    struct Kernel {
        /// Above 0: opens that use the page cache; below: opens that are passed through.
        cached: i64,
        backing: Option<u8>,
        /// The state of the file that the page cache shows, where it holds pages.
        pages: Option<u64>,
        /// The state that the file has.
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

    /// Opens, closes, reads and writes at random, with answers and releases that are under way for any time.
    #[test]
    fn no_order_of_opens_and_closes_breaks_the_kernels_rules_or_shows_old_pages() {
        for seed in 1..2000_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut random = move |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let (mut opens, mut kernel) = (Opens::default(), Kernel::default());
            // Answers that the kernel has not seen yet, opens that it has, and releases that we have not seen yet.
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
