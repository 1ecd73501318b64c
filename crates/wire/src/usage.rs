//! Sets of stripes, host files, and space usage.

use crate::Timestamp;
use placement::NodeId;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Range, path::PathBuf};

/// A file of the host that a bound file shows. Size and times were read when it was bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFile {
    /// The node that reads it, whose host has it. A client sends 0; the node fills in its own id.
    pub node: NodeId,
    /// Absolute path on the host.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    /// Length, bytes.
    pub size: u64,
    /// Modification time.
    pub modified: Timestamp,
    /// True if anyone may execute it.
    pub executable: bool,
}

/// Paths as bytes, because they need not be UTF-8.
mod path_bytes {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::{
        ffi::OsStr,
        os::unix::ffi::OsStrExt,
        path::{Path, PathBuf},
    };

    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(path.as_os_str().as_bytes())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(OsStr::from_bytes(&Bytes::deserialize(from)?).into())
    }
}

/// A set of stripe numbers, stored as runs. A file that was written from its start has one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawStripeRuns")]
pub struct StripeRuns {
    /// First stripe of each run -> the stripe after its last. Runs never touch.
    runs: BTreeMap<u64, u64>,
}

/// Runs in a message or snapshot, not yet validated.
#[derive(Deserialize)]
#[serde(rename = "StripeRuns")]
struct RawStripeRuns {
    runs: BTreeMap<u64, u64>,
}

impl TryFrom<RawStripeRuns> for StripeRuns {
    type Error = &'static str;

    fn try_from(RawStripeRuns { runs }: RawStripeRuns) -> Result<Self, Self::Error> {
        let mut free = Some(0);
        for (&start, &stop) in &runs {
            // The first run may start at 0. Each later run leaves at least one stripe between.
            if start >= stop || free.is_none_or(|free| start < free) {
                return Err("runs of stripes are empty, touch or overlap");
            }
            free = stop.checked_add(1);
        }
        Ok(Self { runs })
    }
}

impl StripeRuns {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self { runs: BTreeMap::new() }
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns true if the set has this stripe.
    pub fn contains(&self, stripe: u64) -> bool {
        self.runs.range(..=stripe).next_back().is_some_and(|(_, stop)| stripe < *stop)
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns by how many runs, at most, the set grows if the stripes `first..end` are added: 0
    /// or 1.
    pub fn runs_added(&self, first: u64, end: u64) -> usize {
        let touches = self.runs.range(..=end).next_back().is_some_and(|(_, stop)| *stop >= first);
        usize::from(first < end && !touches)
    }

    /// Adds the stripes `first..end`.
    pub fn insert(&mut self, first: u64, end: u64) {
        if first >= end || self.runs.range(..=first).next_back().is_some_and(|(_, last)| *last >= end) {
            return;
        }
        let (mut first, mut end) = (first, end);
        while let Some((&start, &stop)) = self.runs.range(..=end).next_back().filter(|(_, stop)| **stop >= first) {
            (first, end) = (first.min(start), end.max(stop));
            self.runs.remove(&start);
        }
        self.runs.insert(first, end);
    }

    /// Removes the stripes from `first` on, and returns them.
    #[must_use]
    pub fn split_off(&mut self, first: u64) -> Self {
        let mut tail = self.runs.split_off(&first);
        if let Some((&start, stop)) = self.runs.range_mut(..first).next_back().filter(|(_, stop)| **stop > first) {
            debug_assert!(start < first, "the run starts before the cut");
            tail.insert(first, *stop);
            *stop = first;
        }
        Self { runs: tail }
    }

    /// Removes the stripes `first..end`.
    pub fn remove(&mut self, first: u64, end: u64) {
        if first < end {
            let mut tail = self.split_off(first);
            self.runs.append(&mut tail.split_off(end).runs);
        }
    }

    /// Returns the stripes within the range.
    #[must_use]
    pub fn within(&self, range: Range<u64>) -> Self {
        let met = self.overlapping(&range);
        Self { runs: met.map(|run| (range.start.max(run.start), range.end.min(run.end))).collect() }
    }

    /// Returns the stripes that `others` does not have.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        let mut runs = BTreeMap::new();
        let mut keep = |start: u64, end: u64| {
            if start < end {
                runs.insert(start, end);
            }
        };
        for run in self.ranges() {
            let mut start = run.start;
            for other in others.overlapping(&run) {
                keep(start, other.start);
                start = other.end;
            }
            keep(start, run.end);
        }
        Self { runs }
    }

    /// Returns the runs that overlap the range, in order.
    fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let (start, end) = (range.start, range.end.max(range.start));
        let first = self.runs.range(..=start).next_back().filter(|(_, stop)| **stop > start);
        let first = first.map_or(start, |(first, _)| *first);
        self.runs.range(first..end.max(first)).map(|(start, stop)| *start..*stop)
    }

    /// Returns the runs, in order.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.runs.iter().map(|(start, stop)| *start..*stop)
    }

    /// Returns the number of stripes below `end`.
    pub fn count_below(&self, end: u64) -> u64 {
        self.runs.range(..end).map(|(start, stop)| stop.min(&end) - start).sum()
    }

    /// Returns the stripes, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().flat_map(|(start, stop)| *start..*stop)
    }
}

/// Space usage of the pool; cheap to query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceUsage {
    /// Capacity, bytes.
    pub capacity: u64,
    /// Used space: blocks, inline bytes and metadata, bytes.
    pub used: u64,
    /// Number of inodes of all types.
    pub files: u64,
    /// Number of stripes that hold bytes.
    pub stripes: u64,
    /// Number of requests that wait for space now.
    pub waiting: u64,
    /// Number of requests that have ever waited for space.
    pub waited: u64,
    /// Number of requests that were refused for lack of space.
    pub refused: u64,
    /// Bytes that extent files may still allocate without asking the node. A direct write to an
    /// extent beyond this fails, and the node does not learn of it. `None` if no extent file has
    /// bytes.
    pub extent_free: Option<u64>,
}

impl SpaceUsage {
    /// Returns the usage of two nodes together. `extent_free` is the minimum of both: the node that
    /// runs out first refuses first.
    #[must_use]
    pub fn with(self, other: &Self) -> Self {
        let extent_free = self.extent_free.into_iter().chain(other.extent_free).min();
        Self {
            capacity: self.capacity + other.capacity,
            used: self.used + other.used,
            files: self.files + other.files,
            stripes: self.stripes + other.stripes,
            waiting: self.waiting + other.waiting,
            waited: self.waited + other.waited,
            refused: self.refused + other.refused,
            extent_free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use test_support::Random;

    #[test]
    fn two_nodes_hold_what_both_hold_and_extent_files_have_the_least_space_of_them() {
        let one = SpaceUsage { capacity: 10, used: 4, files: 2, extent_free: Some(3), ..SpaceUsage::default() };
        let both =
            one.with(&SpaceUsage { capacity: 5, used: 1, files: 1, extent_free: Some(2), ..SpaceUsage::default() });
        assert_eq!((both.capacity, both.used, both.files, both.extent_free), (15, 5, 3, Some(2)));
        assert_eq!(one.with(&SpaceUsage::default()), one);
    }

    #[test]
    fn runs_hold_the_same_stripes_as_a_plain_set() {
        let mut random = Random::new(7);
        let (mut runs, mut model) = (StripeRuns::new(), BTreeSet::new());
        for _ in 0..3000 {
            let first = random.below(60);
            let end = first + random.below(6);
            let within: Vec<u64> = runs.within(first..end).iter().collect();
            assert_eq!(within, model.range(first..end).copied().collect::<Vec<_>>());
            let mut range = StripeRuns::new();
            range.insert(first, end);
            range.insert(first + 9, end + 9);
            let without: Vec<u64> = runs.without(&range).iter().collect();
            assert_eq!(without, model.iter().copied().filter(|stripe| !range.contains(*stripe)).collect::<Vec<_>>());
            match random.below(4) {
                0 => {
                    runs.remove(first, end);
                    model.retain(|stripe| !(first..end).contains(stripe));
                }
                1 => {
                    let cut: Vec<u64> = runs.split_off(first).iter().collect();
                    assert_eq!(cut, model.split_off(&first).into_iter().collect::<Vec<_>>());
                }
                _ => {
                    let (before, most) = (runs.runs(), runs.runs_added(first, end));
                    runs.insert(first, end);
                    assert!(runs.runs() <= before + most);
                    model.extend(first..end);
                }
            }
            assert_eq!(runs.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
            assert_eq!(runs.count_below(30), model.range(..30).count() as u64);
            let starts: Vec<u64> = runs.runs.keys().copied().collect();
            assert!(starts.iter().all(|start| !runs.runs.values().any(|stop| stop == start)), "runs never touch");
        }
    }
}
