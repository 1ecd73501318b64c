//! Detection of sparse extent files: a state machine without I/O.
//!
//! A tmpfs with huge pages gives a whole huge page to the first byte that is written below the
//! file's length: 512 times the memory of a small page. All files of a tmpfs have one page-size
//! setting, which may change at any moment. So the setting is small pages while the kernel writes
//! to a sparse ("hollow") file:
//!
//! ```text
//!   Plain --length is far above the allocated bytes--> Hollow --64 MiB more, in long runs--> Dense
//!     ^------- allocated bytes have caught up -----------'
//! ```
//!
//! A file is watched from an open for writing until nobody has it open.

use std::collections::HashMap;

/// Length minus allocated bytes from which a file is sparse. A smaller gap is not worth a change of
/// the page size.
const GAP_BYTES: u64 = 64 << 10;
/// Newly allocated bytes after which a sparse file is checked for long runs.
const ENOUGH_BYTES: u64 = 64 << 20;
/// Checks in quick succession after a file was opened for writing.
const FRESH_LOOKS: u8 = 3;

/// Length and allocated bytes of a file, from `stat`.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    pub length: u64,
    pub allocated: u64,
}

/// How a file is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Plain,
    Hollow {
        /// Bytes allocated at the last check.
        since: u64,
    },
    Dense,
}

#[derive(Clone, Copy, Debug)]
struct WatchedFill {
    shape: Shape,
    /// Remaining quick checks.
    fresh: u8,
}

/// The watched files, by slot.
#[derive(Debug, Default)]
pub struct Hollows {
    files: HashMap<u32, WatchedFill>,
    /// Number of sparse files among them.
    hollow: usize,
}

impl Fill {
    fn gap(self) -> u64 {
        self.length.saturating_sub(self.allocated)
    }
}

impl Hollows {
    /// Starts watching a file that is opened for writing.
    pub fn watch(&mut self, slot: u32, fill: Fill) {
        self.files.entry(slot).or_insert(WatchedFill { shape: Shape::Plain, fresh: 0 });
        self.change(slot, |watched| {
            watched.fresh = FRESH_LOOKS;
            watched.see(fill, || false);
        });
    }

    /// Stops watching a file that nobody has open.
    pub fn forget(&mut self, slot: u32) {
        let gone = self.files.remove(&slot);
        self.hollow -= usize::from(gone.is_some_and(|watched| watched.is_hollow()));
    }

    /// Notes that the file will have the length and bytes of `fill`.
    pub fn extend(&mut self, slot: u32, fill: Fill) {
        self.change(slot, |watched| {
            if watched.shape == Shape::Dense && fill.gap() >= ENOUGH_BYTES {
                watched.shape = Shape::Plain;
            }
            watched.see(fill, || false);
        });
    }

    /// Notes the state of a file. `is_dense` is called rarely and returns whether the bytes are in
    /// long runs.
    pub fn see(&mut self, slot: u32, fill: Fill, is_dense: impl FnOnce() -> bool) {
        self.change(slot, |watched| {
            watched.fresh = watched.fresh.saturating_sub(1);
            watched.see(fill, is_dense);
        });
    }

    fn change(&mut self, slot: u32, what: impl FnOnce(&mut WatchedFill)) {
        let Some(watched) = self.files.get_mut(&slot) else { return };
        let before = watched.is_hollow();
        what(watched);
        self.hollow = self.hollow + usize::from(watched.is_hollow()) - usize::from(before);
    }

    /// Returns true if the tmpfs must use small pages.
    pub fn any_hollow(&self) -> bool {
        self.hollow > 0
    }

    /// Returns true if a file should be checked soon.
    pub fn any_urgent(&self) -> bool {
        self.files.values().any(WatchedFill::is_urgent)
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the files to check: all, or only the urgent ones.
    pub fn due(&self, all: bool) -> Vec<u32> {
        let due = self.files.iter().filter(|(_, watched)| all || watched.is_urgent());
        due.map(|(slot, _)| *slot).collect()
    }
}

impl WatchedFill {
    fn is_hollow(&self) -> bool {
        matches!(self.shape, Shape::Hollow { .. })
    }

    fn is_urgent(&self) -> bool {
        self.fresh > 0 || self.is_hollow()
    }

    fn see(&mut self, fill: Fill, is_dense: impl FnOnce() -> bool) {
        let is_far = fill.gap() >= GAP_BYTES;
        self.shape = match self.shape {
            Shape::Plain if is_far => Shape::Hollow { since: fill.allocated },
            Shape::Hollow { .. } if !is_far => Shape::Plain,
            Shape::Hollow { since } if fill.allocated >= since + ENOUGH_BYTES => {
                if is_dense() {
                    Shape::Dense
                } else {
                    Shape::Hollow { since: fill.allocated }
                }
            }
            same => same,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn fill(length: u64, allocated: u64) -> Fill {
        Fill { length, allocated }
    }

    fn watching(length: u64, allocated: u64) -> Hollows {
        let mut hollows = Hollows::default();
        hollows.watch(7, fill(length, allocated));
        hollows
    }

    #[test]
    fn a_file_is_hollow_while_its_length_is_far_ahead_of_its_bytes() {
        let mut hollows = watching(0, 0);
        assert!(!hollows.any_hollow());
        hollows.see(7, fill(500 * MIB, 501 * MIB), || panic!("it is not asked"));
        assert!(!hollows.any_hollow(), "what is appended has its pages");
        hollows.extend(7, fill(600 * MIB, 501 * MIB));
        assert!(hollows.any_hollow());
        hollows.see(7, fill(600 * MIB, 530 * MIB), || panic!("it is not asked"));
        assert!(hollows.any_hollow(), "it is not filled yet");
        hollows.see(7, fill(600 * MIB, 600 * MIB), || false);
        assert!(!hollows.any_hollow());
        assert!(watching(MIB, 4096).any_hollow(), "whoever made it so");
        assert!(!watching(4096, 0).any_hollow(), "that is a page");
    }

    #[test]
    fn a_file_that_is_filled_densely_is_hollow_for_64_mib_and_one_that_is_not_stays_so() {
        for dense in [true, false] {
            let mut hollows = watching(1 << 40, 0);
            hollows.see(7, fill(1 << 40, 63 * MIB), || panic!("it is not asked"));
            assert!(hollows.any_hollow());
            hollows.see(7, fill(1 << 40, 64 * MIB), || dense);
            assert_eq!(hollows.any_hollow(), !dense);
            hollows.see(7, fill(1 << 40, 127 * MIB), || panic!("it is not asked"));
            hollows.extend(7, fill(2 << 40, 127 * MIB));
            assert!(hollows.any_hollow(), "a hole was made anew");
        }
    }

    #[test]
    fn who_is_gone_is_nothing_any_more_and_a_new_one_is_looked_at_soon() {
        let mut hollows = watching(MIB, 0);
        hollows.watch(8, fill(0, 0));
        assert_eq!(hollows.due(false).len(), 2);
        for _ in 0..FRESH_LOOKS {
            hollows.see(8, fill(0, 0), || false);
        }
        assert_eq!((hollows.due(false), hollows.due(true).len()), (vec![7], 2));
        hollows.forget(7);
        assert!(!hollows.any_hollow() && !hollows.any_urgent() && !hollows.is_empty());
    }
}
