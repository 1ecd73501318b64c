//! Bytes that tasks read, by the place that they came from.

use serde::{Deserialize, Serialize};

/// The bytes of inputs by the place that they came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadBytes {
    /// The bytes that lay on the node of the task.
    pub local: u64,
    /// The bytes that lay on another node, and of which the node of the task had a copy.
    pub cached: u64,
    /// The bytes that came from another node or from outside the pool.
    pub remote: u64,
}

impl ReadBytes {
    /// The sum of `parts`; none if there are none.
    pub(crate) fn sum(parts: impl IntoIterator<Item = Self>) -> Option<Self> {
        parts.into_iter().reduce(|sum, part| Self {
            local: sum.local.saturating_add(part.local),
            cached: sum.cached.saturating_add(part.cached),
            remote: sum.remote.saturating_add(part.remote),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_of_nothing_is_unknown() {
        assert_eq!(ReadBytes::sum([]), None);
        let parts = [ReadBytes { local: 1, cached: 2, remote: 3 }, ReadBytes { local: 10, ..ReadBytes::default() }];
        assert_eq!(ReadBytes::sum(parts), Some(ReadBytes { local: 11, cached: 2, remote: 3 }));
    }
}
