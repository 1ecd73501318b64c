//! Detection of sparse extent files: a state machine without I/O.
//!
//! A tmpfs with huge pages gives a whole huge page to the first byte that is written below the
//! file's length: 512 times the memory of a small page. All files of a tmpfs have one page-size
//! setting, which may change at any moment. So the setting is small pages while the kernel writes
//! to a sparse file:
//!
//! ```text
//!   Plain --length is far above the allocated bytes--> Sparse --64 MiB more, in long runs--> Dense
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
const QUICK_CHECKS: u8 = 3;

/// Length and allocated bytes of a file, from `stat`.
#[derive(Clone, Copy, Debug)]
pub struct FileUsage {
    pub length: u64,
    pub allocated: u64,
}

/// How a file is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FillState {
    Plain,
    Sparse {
        /// Bytes allocated at the last check.
        since: u64,
    },
    Dense,
}

#[derive(Clone, Copy, Debug)]
struct WatchedFile {
    state: FillState,
    /// Remaining quick checks.
    quick_checks: u8,
}

/// The watched files, by slot.
#[derive(Debug, Default)]
pub struct SparseFiles {
    files: HashMap<u32, WatchedFile>,
    /// Number of sparse files among them.
    sparse: usize,
}

impl FileUsage {
    fn gap(self) -> u64 {
        self.length.saturating_sub(self.allocated)
    }
}

impl SparseFiles {
    /// Starts watching a file that is opened for writing.
    pub fn watch(&mut self, slot: u32, usage: FileUsage) {
        self.files.entry(slot).or_insert(WatchedFile { state: FillState::Plain, quick_checks: 0 });
        self.update(slot, |watched| {
            watched.quick_checks = QUICK_CHECKS;
            watched.record(usage, || false);
        });
    }

    /// Stops watching a file that nobody has open.
    pub fn unwatch(&mut self, slot: u32) {
        let gone = self.files.remove(&slot);
        self.sparse -= usize::from(gone.is_some_and(|watched| watched.is_sparse()));
    }

    /// Notes that the file will have the length and bytes of `usage`.
    pub fn extend(&mut self, slot: u32, usage: FileUsage) {
        self.update(slot, |watched| {
            if watched.state == FillState::Dense && usage.gap() >= ENOUGH_BYTES {
                watched.state = FillState::Plain;
            }
            watched.record(usage, || false);
        });
    }

    /// Notes the state of a file. `is_dense` is called rarely and returns whether the bytes are in
    /// long runs.
    pub fn record(&mut self, slot: u32, usage: FileUsage, is_dense: impl FnOnce() -> bool) {
        self.update(slot, |watched| {
            watched.quick_checks = watched.quick_checks.saturating_sub(1);
            watched.record(usage, is_dense);
        });
    }

    fn update(&mut self, slot: u32, update: impl FnOnce(&mut WatchedFile)) {
        let Some(watched) = self.files.get_mut(&slot) else { return };
        let before = watched.is_sparse();
        update(watched);
        self.sparse = self.sparse + usize::from(watched.is_sparse()) - usize::from(before);
    }

    /// Returns true if the tmpfs must use small pages.
    pub fn any_sparse(&self) -> bool {
        self.sparse > 0
    }

    /// Returns true if a file should be checked soon.
    pub fn any_urgent(&self) -> bool {
        self.files.values().any(WatchedFile::is_urgent)
    }

    /// Number of watched files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// True if no file is watched.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the files to check: all, or only the urgent ones.
    pub fn due(&self, all: bool) -> Vec<u32> {
        let due = self.files.iter().filter(|(_, watched)| all || watched.is_urgent());
        due.map(|(slot, _)| *slot).collect()
    }
}

impl WatchedFile {
    fn is_sparse(&self) -> bool {
        matches!(self.state, FillState::Sparse { .. })
    }

    fn is_urgent(&self) -> bool {
        self.quick_checks > 0 || self.is_sparse()
    }

    fn record(&mut self, usage: FileUsage, is_dense: impl FnOnce() -> bool) {
        let is_far = usage.gap() >= GAP_BYTES;
        self.state = match self.state {
            FillState::Plain if is_far => FillState::Sparse { since: usage.allocated },
            FillState::Sparse { .. } if !is_far => FillState::Plain,
            FillState::Sparse { since } if usage.allocated >= since + ENOUGH_BYTES => {
                if is_dense() {
                    FillState::Dense
                } else {
                    FillState::Sparse { since: usage.allocated }
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

    fn usage(length: u64, allocated: u64) -> FileUsage {
        FileUsage { length, allocated }
    }

    fn watched_file(length: u64, allocated: u64) -> SparseFiles {
        let mut files = SparseFiles::default();
        files.watch(7, usage(length, allocated));
        files
    }

    #[test]
    fn a_file_is_sparse_while_its_length_is_far_ahead_of_its_bytes() {
        let mut files = watched_file(0, 0);
        assert!(!files.any_sparse());
        files.record(7, usage(500 * MIB, 501 * MIB), || panic!("density is not checked"));
        assert!(!files.any_sparse(), "what is appended has its pages");
        files.extend(7, usage(600 * MIB, 501 * MIB));
        assert!(files.any_sparse());
        files.record(7, usage(600 * MIB, 530 * MIB), || panic!("density is not checked"));
        assert!(files.any_sparse(), "it is not filled yet");
        files.record(7, usage(600 * MIB, 600 * MIB), || false);
        assert!(!files.any_sparse());
        assert!(watched_file(MIB, 4096).any_sparse(), "whoever made it so");
        assert!(!watched_file(4096, 0).any_sparse(), "that is a page");
    }

    #[test]
    fn a_file_that_is_filled_densely_is_sparse_for_64_mib_and_one_that_is_not_stays_so() {
        for dense in [true, false] {
            let mut files = watched_file(1 << 40, 0);
            files.record(7, usage(1 << 40, 63 * MIB), || panic!("density is not checked"));
            assert!(files.any_sparse());
            files.record(7, usage(1 << 40, 64 * MIB), || dense);
            assert_eq!(files.any_sparse(), !dense);
            files.record(7, usage(1 << 40, 127 * MIB), || panic!("density is not checked"));
            files.extend(7, usage(2 << 40, 127 * MIB));
            assert!(files.any_sparse(), "a hole was made anew");
        }
    }

    #[test]
    fn an_unwatched_file_does_not_count_and_a_new_one_is_checked_soon() {
        let mut files = watched_file(MIB, 0);
        files.watch(8, usage(0, 0));
        assert_eq!(files.due(false).len(), 2);
        for _ in 0..QUICK_CHECKS {
            files.record(8, usage(0, 0), || false);
        }
        assert_eq!((files.due(false), files.due(true).len()), (vec![7], 2));
        files.unwatch(7);
        assert!(!files.any_sparse() && !files.any_urgent() && !files.is_empty());
    }
}
