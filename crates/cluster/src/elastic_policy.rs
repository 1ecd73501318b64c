//! A decision from the usage of the pool: add nodes, remove nodes, or stay, and why.
//!
//! Nodes are removed only after the usage has been low for a while without growing, and only so
//! many that the others hold the data without being too full at once. Otherwise a pool would be
//! scaled in and out in turns (paper 004, sections 3.3.3 and 3.4.3).

use crate::{
    InvalidScaleRule,
    scale_rule::{ScaleRules, parse_rules},
};
use std::{fmt, str::FromStr, time::Duration};

/// Time for which usage must be low before nodes are removed.
const HOLD: Duration = Duration::from_secs(45);

/// The usage of a pool at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse<'a> {
    /// Used memory, bytes.
    pub used: u64,
    /// The capacity of each node, bytes.
    pub capacities: &'a [u64],
}

/// The least and the most nodes that a pool may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// The least, at least 1.
    pub min: u32,
    /// The most.
    pub max: u32,
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleDecision {
    /// Add this number of nodes.
    Add {
        /// The number.
        nodes: u32,
        /// Used memory, percent.
        percent: u64,
    },
    /// Remove this number of nodes.
    Remove {
        /// The number.
        nodes: u32,
        /// Used memory, percent.
        percent: u64,
    },
    /// Neither.
    Stay(StayReason),
}

/// The reason for which nodes are neither added nor removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StayReason {
    /// No rule applies.
    Between,
    /// There are as many nodes as there may be.
    AtMaximum,
    /// There are as few nodes as there may be.
    AtMinimum,
    /// Usage has been low for less than the hold time, or has grown.
    NotLongEnough,
    /// The other nodes could not hold the data, or would be so full that nodes were added again.
    WouldNotFit,
}

/// A policy, with what it remembers from one moment to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElasticPolicy {
    rules: ScaleRules,
    hold: Duration,
    /// The time since when usage has been low, and the most that was used since then.
    low_since: Option<(Duration, u64)>,
}

impl FromStr for ElasticPolicy {
    type Err = InvalidScaleRule;

    fn from_str(text: &str) -> Result<Self, InvalidScaleRule> {
        Ok(Self { rules: parse_rules(text)?, hold: HOLD, low_since: None })
    }
}

impl ElasticPolicy {
    /// This policy with another time for which usage must be low before nodes are removed.
    #[must_use]
    pub fn with_hold(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    /// Decides at the time `now`, counted from any moment. `initial` is the number of nodes that
    /// the pool was started with. Called once a second, but not while nodes come or go.
    pub fn decide(&mut self, usage: MemoryUse<'_>, initial: u32, limits: NodeLimits, now: Duration) -> ScaleDecision {
        let nodes = u32::try_from(usage.capacities.len()).unwrap_or(u32::MAX);
        if let Some(rule) = self.rules.0.filter(|rule| usage.is_above(rule.percent)) {
            self.low_since = None;
            let added = rule.amount.nodes(initial, nodes).min(limits.max.saturating_sub(nodes));
            return match added {
                0 => ScaleDecision::Stay(StayReason::AtMaximum),
                nodes => ScaleDecision::Add { nodes, percent: usage.percent() },
            };
        }
        let Some(rule) = self.rules.1.filter(|rule| usage.is_below(rule.percent)) else {
            self.low_since = None;
            return ScaleDecision::Stay(StayReason::Between);
        };
        if !self.has_been_low(usage.used, now) {
            return ScaleDecision::Stay(StayReason::NotLongEnough);
        }
        let possible = rule.amount.nodes(initial, nodes).min(nodes.saturating_sub(limits.min));
        if possible == 0 {
            return ScaleDecision::Stay(StayReason::AtMinimum);
        }
        let full = self.rules.0.map_or(100, |rule| rule.percent);
        match (1..=possible).rev().find(|removed| usage.fits_without(*removed, full)) {
            None => ScaleDecision::Stay(StayReason::WouldNotFit),
            Some(nodes) => {
                self.low_since = None;
                ScaleDecision::Remove { nodes, percent: usage.percent() }
            }
        }
    }

    /// True if usage has been low for the hold time and has not grown since.
    fn has_been_low(&mut self, used: u64, now: Duration) -> bool {
        match self.low_since {
            Some((since, most)) if used <= most => now.saturating_sub(since) >= self.hold,
            _ => {
                self.low_since = Some((now, used));
                self.hold.is_zero()
            }
        }
    }
}

impl MemoryUse<'_> {
    fn capacity(&self) -> u128 {
        self.capacities.iter().map(|capacity| u128::from(*capacity)).sum()
    }

    fn percent(&self) -> u64 {
        u64::try_from(u128::from(self.used) * 100 / self.capacity().max(1)).unwrap_or(u64::MAX)
    }

    fn is_above(&self, percent: u8) -> bool {
        u128::from(self.used) * 100 > self.capacity() * u128::from(percent)
    }

    fn is_below(&self, percent: u8) -> bool {
        u128::from(self.used) * 100 < self.capacity() * u128::from(percent)
    }

    /// True if the data fills less than this of the others when the largest nodes are removed.
    fn fits_without(&self, removed: u32, percent: u8) -> bool {
        let mut capacities = self.capacities.to_vec();
        capacities.sort_unstable();
        capacities.truncate(capacities.len().saturating_sub(removed as usize));
        MemoryUse { used: self.used, capacities: &capacities }.is_below(percent)
    }
}

impl fmt::Display for ScaleDecision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { nodes, percent } => write!(out, "add {nodes} nodes: {percent} % of the memory is used"),
            Self::Remove { nodes, percent } => {
                write!(out, "remove {nodes} nodes: {percent} % of the memory is used, and has not grown for a while")
            }
            Self::Stay(reason) => write!(out, "stay: {reason}"),
        }
    }
}

impl fmt::Display for StayReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Between => "usage is between the thresholds",
            Self::AtMaximum => "the pool is nearly full, and has as many nodes as it may have",
            Self::AtMinimum => "the pool has as few nodes as it may have",
            Self::NotLongEnough => "usage is low, but not for long enough, or it grows",
            Self::WouldNotFit => "the data would fill the other nodes so far that nodes were added again",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::Random;

    const LIMITS: NodeLimits = NodeLimits { min: 1, max: 64 };

    fn policy(text: &str) -> ElasticPolicy {
        text.parse().unwrap()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn decide(policy: &mut ElasticPolicy, used: u64, nodes: usize, seconds: u64) -> ScaleDecision {
        let capacities = vec![100; nodes];
        policy.decide(MemoryUse { used, capacities: &capacities }, 4, LIMITS, at(seconds))
    }

    #[test]
    fn nodes_are_added_above_the_threshold_as_many_as_the_policy_says() {
        for (text, nodes) in [("cso", 2), ("nso", 4), ("aso", 8), ("step(90, 16, 50, 8)", 16)] {
            let mut policy = policy(text);
            assert_eq!(decide(&mut policy, 700, 8, 0), ScaleDecision::Stay(StayReason::Between), "{text}");
            assert_eq!(decide(&mut policy, 761, 8, 1), ScaleDecision::Add { nodes, percent: 95 }, "{text}");
        }
        assert_eq!(
            decide(&mut policy("cso"), 760, 8, 0),
            ScaleDecision::Stay(StayReason::Between),
            "95 % is not above"
        );
        assert_eq!(decide(&mut policy("aso"), 4000, 40, 0), ScaleDecision::Add { nodes: 24, percent: 100 });
        assert_eq!(decide(&mut policy("aso"), 6400, 64, 0), ScaleDecision::Stay(StayReason::AtMaximum));
    }

    #[test]
    fn nodes_are_removed_after_45_seconds_below_the_threshold_without_growth() {
        let mut policy = policy("cso+csi");
        let waits = ScaleDecision::Stay(StayReason::NotLongEnough);
        assert_eq!(decide(&mut policy, 300, 8, 0), waits);
        assert_eq!(decide(&mut policy, 290, 8, 44), waits);
        assert_eq!(decide(&mut policy, 301, 8, 45), waits, "it has grown");
        assert_eq!(decide(&mut policy, 280, 8, 89), waits);
        assert_eq!(decide(&mut policy, 280, 8, 90), ScaleDecision::Remove { nodes: 2, percent: 35 });
        assert_eq!(decide(&mut policy, 280, 6, 91), waits, "each time anew");
        assert_eq!(decide(&mut policy, 500, 6, 92), ScaleDecision::Stay(StayReason::Between));
        assert_eq!(decide(&mut policy, 280, 6, 137), waits, "it was not low all the time");
    }

    #[test]
    fn no_more_are_removed_than_the_others_can_do_without() {
        let removes = |used, nodes| decide(&mut policy("cso+csi").with_hold(Duration::ZERO), used, nodes, 0);
        assert_eq!(removes(296, 4), ScaleDecision::Stay(StayReason::WouldNotFit), "74 % of 4 is 99 % of 3");
        assert_eq!(removes(280, 4), ScaleDecision::Remove { nodes: 1, percent: 70 });
        assert_eq!(removes(590, 8), ScaleDecision::Remove { nodes: 1, percent: 73 }, "two would be too many");
        assert_eq!(removes(10, 1), ScaleDecision::Stay(StayReason::AtMinimum));
        let mut uneven = policy("cso+csi").with_hold(Duration::ZERO);
        let usage = MemoryUse { used: 160, capacities: &[100, 100, 400] };
        assert_eq!(uneven.decide(usage, 3, LIMITS, at(0)), ScaleDecision::Remove { nodes: 1, percent: 26 });
        let usage = MemoryUse { used: 195, capacities: &[100, 100, 400] };
        assert_eq!(uneven.decide(usage, 3, LIMITS, at(0)), ScaleDecision::Stay(StayReason::WouldNotFit));
    }

    #[test]
    fn a_pool_of_steady_data_never_goes_out_and_in_in_turns() {
        let mut random = Random::new(5);
        for text in ["cso+csi", "cso+asi", "nso+csi", "nso+asi", "aso+csi", "aso+asi", "step(90, 16, 50, 8)"] {
            for _ in 0..200 {
                let (mut policy, initial) = (policy(text), 1 + random.below(16_u32));
                let mut nodes = 1 + random.below(64_usize);
                let used = random.below(nodes as u64 * 100);
                let mut decisions = Vec::new();
                for second in 0..1000 {
                    let capacities = vec![100; nodes];
                    match policy.decide(MemoryUse { used, capacities: &capacities }, initial, LIMITS, at(second)) {
                        ScaleDecision::Add { nodes: more, .. } => {
                            nodes += more as usize;
                            decisions.push('+');
                        }
                        ScaleDecision::Remove { nodes: fewer, .. } => {
                            nodes -= fewer as usize;
                            decisions.push('-');
                        }
                        ScaleDecision::Stay(_) => {}
                    }
                    assert!((1..=64).contains(&nodes) && used <= nodes as u64 * 100);
                }
                let text: String = decisions.iter().collect();
                assert!(!text.contains("-+"), "{text}");
            }
        }
    }

    #[test]
    fn decisions_are_told_in_words() {
        assert_eq!(ScaleDecision::Add { nodes: 2, percent: 96 }.to_string(), "add 2 nodes: 96 % of the memory is used");
        assert!(ScaleDecision::Stay(StayReason::AtMaximum).to_string().contains("as many nodes as it may have"));
    }
}
