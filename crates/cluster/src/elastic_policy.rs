//! A decision from the usage of the pool: add nodes, remove nodes, or stay, and why.
//!
//! Nodes are removed only after the usage has been low for a while without growing, and only so
//! many that the others hold the data without being too full at once. Otherwise a pool would be
//! scaled in and out in turns (paper 004, sections 3.3.3 and 3.4.3).
//!
//! With foresight a decision is not about what is used, but about what will be: the graph of a
//! workflow tells which bytes are about to be written and freed.

use crate::{
    InvalidScaleRule,
    scale_rule::{ScaleRule, ScaleRules, parse_rules},
};
use std::{fmt, str::FromStr, time::Duration};

/// Time for which usage must be low before nodes are removed.
const HOLD: Duration = Duration::from_secs(45);
/// The same, if a workflow tells what will be used.
const FORESIGHT_HOLD: Duration = Duration::from_secs(5);
/// Most of the memory that may be used with foresight, percent.
const FORESIGHT_FULL: u8 = 90;
/// Most of the memory that may be used with foresight after nodes were removed, percent.
const FORESIGHT_REST: u8 = 75;

/// The usage of a pool at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse<'a> {
    /// Used memory, bytes.
    pub used: u64,
    /// The capacity of each node, bytes.
    pub capacities: &'a [u64],
    /// True if requests wait for space: some node is full, whatever the others have.
    pub is_short: bool,
    /// The bytes that will be used, if that is known.
    pub foreseen: Option<ForeseenUse>,
}

/// The bytes that a workflow will use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForeseenUse {
    /// The most at a time while the next tasks run, bytes.
    pub soon: u64,
    /// The most at a time until its end, bytes.
    pub ever: u64,
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
        /// The reason.
        reason: ScaleReason,
    },
    /// Remove this number of nodes.
    Remove {
        /// The number.
        nodes: u32,
        /// The reason.
        reason: ScaleReason,
    },
    /// Neither.
    Stay(StayReason),
}

/// The reason for which nodes are added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleReason {
    /// So much of the memory is used, percent.
    Used(u64),
    /// So much of the memory will be used, percent.
    Foreseen(u64),
    /// Requests wait for space.
    Short,
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
    rules: PolicyRules,
    hold: Duration,
    /// The time since when usage has been low, and the most that was used since then.
    low_since: Option<(Duration, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyRules {
    /// Nodes come and go by the share of memory that is used.
    Thresholds(ScaleRules),
    /// As many nodes as what is foreseen needs.
    Foresight,
}

impl FromStr for ElasticPolicy {
    type Err = InvalidScaleRule;

    fn from_str(text: &str) -> Result<Self, InvalidScaleRule> {
        let (rules, hold) = match text.trim() {
            "foresight" => (PolicyRules::Foresight, FORESIGHT_HOLD),
            text => (PolicyRules::Thresholds(parse_rules(text)?), HOLD),
        };
        Ok(Self { rules, hold, low_since: None })
    }
}

impl ElasticPolicy {
    /// This policy with another time for which usage must be low before nodes are removed.
    #[must_use]
    pub fn with_hold(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    /// True if it decides by what is foreseen.
    pub fn has_foresight(&self) -> bool {
        self.rules == PolicyRules::Foresight
    }

    /// Decides at the time `now`, counted from any moment. `initial` is the number of nodes that
    /// the pool was started with. Called once a second, but not while nodes come or go.
    pub fn decide(&mut self, usage: MemoryUse<'_>, initial: u32, limits: NodeLimits, now: Duration) -> ScaleDecision {
        match self.rules {
            PolicyRules::Thresholds(rules) => self.decide_by(rules, usage, initial, limits, now),
            PolicyRules::Foresight => self.decide_ahead(usage, limits, now),
        }
    }

    fn decide_by(
        &mut self,
        (out, back): ScaleRules,
        usage: MemoryUse<'_>,
        initial: u32,
        limits: NodeLimits,
        now: Duration,
    ) -> ScaleDecision {
        let nodes = usage.nodes();
        let is_needed = |rule: &ScaleRule| usage.is_short || usage.is_above(rule.percent);
        if let Some(rule) = out.filter(is_needed) {
            let reason =
                if usage.is_above(rule.percent) { ScaleReason::Used(usage.percent()) } else { ScaleReason::Short };
            return self.add(rule.amount.nodes(initial, nodes), nodes, limits, reason);
        }
        let Some(rule) = back.filter(|rule| usage.is_below(rule.percent)) else {
            self.low_since = None;
            return ScaleDecision::Stay(StayReason::Between);
        };
        let full = out.map_or(100, |rule| rule.percent);
        let most = rule.amount.nodes(initial, nodes);
        self.remove((most, full), usage, limits, (ScaleReason::Used(usage.percent()), self.hold, now))
    }

    /// Decides by the most bytes that will be used at a time. Without a workflow that is what is
    /// used.
    fn decide_ahead(&mut self, usage: MemoryUse<'_>, limits: NodeLimits, now: Duration) -> ScaleDecision {
        let at_least = |bytes: u64| MemoryUse { used: usage.used.max(bytes), ..usage };
        let foreseen = usage.foreseen.unwrap_or_default();
        let (soon, ever) = (at_least(foreseen.soon), at_least(foreseen.soon.max(foreseen.ever)));
        let nodes = usage.nodes();
        if soon.is_above(FORESIGHT_FULL) || usage.is_short {
            let mean = u128::from(u64::try_from(usage.capacity()).unwrap_or(u64::MAX)) / u128::from(nodes.max(1));
            let wanted = (u128::from(soon.used) * 100).div_ceil((mean * u128::from(FORESIGHT_FULL)).max(1));
            let added = u32::try_from(wanted).unwrap_or(u32::MAX).saturating_sub(nodes).max(1);
            let reason =
                if soon.is_above(FORESIGHT_FULL) { ScaleReason::Foreseen(soon.percent()) } else { ScaleReason::Short };
            return self.add(added, nodes, limits, reason);
        }
        if !ever.is_below(FORESIGHT_REST) {
            self.low_since = None;
            return ScaleDecision::Stay(StayReason::Between);
        }
        let hold = if usage.foreseen.is_some() { self.hold } else { self.hold.max(HOLD) };
        let reason = ScaleReason::Foreseen(ever.percent());
        self.remove((u32::MAX, FORESIGHT_REST), ever, limits, (reason, hold, now))
    }

    fn add(&mut self, wanted: u32, nodes: u32, limits: NodeLimits, reason: ScaleReason) -> ScaleDecision {
        self.low_since = None;
        match wanted.min(limits.max.saturating_sub(nodes)) {
            0 => ScaleDecision::Stay(StayReason::AtMaximum),
            nodes => ScaleDecision::Add { nodes, reason },
        }
    }

    /// Removes nodes, at most this number, so that the others are less than `full` percent full.
    fn remove(
        &mut self,
        (most, full): (u32, u8),
        usage: MemoryUse<'_>,
        limits: NodeLimits,
        (reason, hold, now): (ScaleReason, Duration, Duration),
    ) -> ScaleDecision {
        if !self.has_been_low(usage.used, hold, now) {
            return ScaleDecision::Stay(StayReason::NotLongEnough);
        }
        let possible = most.min(usage.nodes().saturating_sub(limits.min));
        if possible == 0 {
            return ScaleDecision::Stay(StayReason::AtMinimum);
        }
        match (1..=possible).rev().find(|removed| usage.fits_without(*removed, full)) {
            None => ScaleDecision::Stay(StayReason::WouldNotFit),
            Some(nodes) => {
                self.low_since = None;
                ScaleDecision::Remove { nodes, reason }
            }
        }
    }

    /// True if usage has been low for the hold time and has not grown since.
    fn has_been_low(&mut self, used: u64, hold: Duration, now: Duration) -> bool {
        match self.low_since {
            Some((since, most)) if used <= most => now.saturating_sub(since) >= hold,
            _ => {
                self.low_since = Some((now, used));
                hold.is_zero()
            }
        }
    }
}

impl MemoryUse<'_> {
    fn nodes(&self) -> u32 {
        u32::try_from(self.capacities.len()).unwrap_or(u32::MAX)
    }

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
        MemoryUse { capacities: &capacities, ..*self }.is_below(percent)
    }
}

impl fmt::Display for ScaleReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Used(percent) => write!(out, "{percent} % of the memory is used"),
            Self::Foreseen(percent) => write!(out, "{percent} % of the memory will be used"),
            Self::Short => out.write_str("requests wait for space"),
        }
    }
}

impl fmt::Display for ScaleDecision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |nodes: u32| format!("{nodes} node{}", if nodes == 1 { "" } else { "s" });
        match self {
            Self::Add { nodes, reason } => write!(out, "adds {}: {reason}", named(*nodes)),
            Self::Remove { nodes, reason } => {
                write!(out, "removes {}: {reason}, and that has not grown for a while", named(*nodes))
            }
            Self::Stay(reason) => write!(out, "stays: {reason}"),
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
        policy.decide(usage(used, &capacities), 4, LIMITS, at(seconds))
    }

    fn usage(used: u64, capacities: &[u64]) -> MemoryUse<'_> {
        MemoryUse { used, capacities, is_short: false, foreseen: None }
    }

    #[test]
    fn nodes_are_added_above_the_threshold_as_many_as_the_policy_says() {
        for (text, nodes) in [("cso", 2), ("nso", 4), ("aso", 8), ("step(90, 16, 50, 8)", 16)] {
            let mut policy = policy(text);
            assert_eq!(decide(&mut policy, 700, 8, 0), ScaleDecision::Stay(StayReason::Between), "{text}");
            assert_eq!(
                decide(&mut policy, 761, 8, 1),
                ScaleDecision::Add { nodes, reason: ScaleReason::Used(95) },
                "{text}"
            );
        }
        assert_eq!(
            decide(&mut policy("cso"), 760, 8, 0),
            ScaleDecision::Stay(StayReason::Between),
            "95 % is not above"
        );
        assert_eq!(
            decide(&mut policy("aso"), 4000, 40, 0),
            ScaleDecision::Add { nodes: 24, reason: ScaleReason::Used(100) }
        );
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
        assert_eq!(decide(&mut policy, 280, 8, 90), ScaleDecision::Remove { nodes: 2, reason: ScaleReason::Used(35) });
        assert_eq!(decide(&mut policy, 280, 6, 91), waits, "each time anew");
        assert_eq!(decide(&mut policy, 500, 6, 92), ScaleDecision::Stay(StayReason::Between));
        assert_eq!(decide(&mut policy, 280, 6, 137), waits, "it was not low all the time");
    }

    #[test]
    fn no_more_are_removed_than_the_others_can_do_without() {
        let removes = |used, nodes| decide(&mut policy("cso+csi").with_hold(Duration::ZERO), used, nodes, 0);
        assert_eq!(removes(296, 4), ScaleDecision::Stay(StayReason::WouldNotFit), "74 % of 4 is 99 % of 3");
        assert_eq!(removes(280, 4), ScaleDecision::Remove { nodes: 1, reason: ScaleReason::Used(70) });
        assert_eq!(
            removes(590, 8),
            ScaleDecision::Remove { nodes: 1, reason: ScaleReason::Used(73) },
            "two would be too many"
        );
        assert_eq!(removes(10, 1), ScaleDecision::Stay(StayReason::AtMinimum));
        let mut uneven = policy("cso+csi").with_hold(Duration::ZERO);
        assert_eq!(
            uneven.decide(usage(160, &[100, 100, 400]), 3, LIMITS, at(0)),
            ScaleDecision::Remove { nodes: 1, reason: ScaleReason::Used(26) }
        );
        assert_eq!(
            uneven.decide(usage(195, &[100, 100, 400]), 3, LIMITS, at(0)),
            ScaleDecision::Stay(StayReason::WouldNotFit)
        );
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
                    match policy.decide(usage(used, &capacities), initial, LIMITS, at(second)) {
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
    fn a_node_that_is_full_is_reason_enough_to_add_nodes() {
        let short = MemoryUse { is_short: true, ..usage(300, &[100; 8]) };
        for (text, nodes) in [("cso+csi", 2), ("foresight", 1)] {
            let wanted = ScaleDecision::Add { nodes, reason: ScaleReason::Short };
            assert_eq!(policy(text).decide(short, 4, LIMITS, at(0)), wanted, "{text}");
        }
        let stays = policy("csi").decide(short, 4, LIMITS, at(0));
        assert_eq!(stays, ScaleDecision::Stay(StayReason::NotLongEnough), "it has no rule for adding");
    }

    #[test]
    fn with_foresight_nodes_come_before_the_bytes_and_go_when_no_more_will_be_needed() {
        let mut policy = policy("foresight");
        let mut decide = |used, soon, ever, nodes: usize, seconds| {
            let capacities = vec![100; nodes];
            let foreseen = Some(ForeseenUse { soon, ever });
            policy.decide(MemoryUse { foreseen, ..usage(used, &capacities) }, 2, LIMITS, at(seconds))
        };
        let foreseen = |nodes, percent| ScaleDecision::Add { nodes, reason: ScaleReason::Foreseen(percent) };
        assert_eq!(decide(10, 180, 900, 2, 0), ScaleDecision::Stay(StayReason::Between), "90 % is not above");
        assert_eq!(decide(10, 541, 900, 2, 1), foreseen(5, 270), "541 need 7 nodes of which 90 % are used");
        assert_eq!(decide(100, 541, 900, 7, 2), ScaleDecision::Stay(StayReason::Between));
        let waits = ScaleDecision::Stay(StayReason::NotLongEnough);
        assert_eq!(decide(100, 140, 140, 7, 3), waits);
        assert_eq!(decide(100, 140, 150, 7, 7), waits, "it has grown");
        assert_eq!(decide(100, 140, 140, 7, 11), waits);
        let removes = ScaleDecision::Remove { nodes: 5, reason: ScaleReason::Foreseen(21) };
        assert_eq!(decide(100, 140, 149, 7, 12), removes, "149 fill 74 % of two");
    }

    #[test]
    fn without_a_workflow_foresight_goes_by_what_is_used() {
        let mut policy = policy("foresight");
        assert_eq!(decide(&mut policy, 375, 4, 0), ScaleDecision::Add { nodes: 1, reason: ScaleReason::Foreseen(93) });
        let waits = ScaleDecision::Stay(StayReason::NotLongEnough);
        assert_eq!(decide(&mut policy, 100, 4, 1), waits);
        assert_eq!(decide(&mut policy, 100, 4, 45), waits);
        let removes = ScaleDecision::Remove { nodes: 2, reason: ScaleReason::Foreseen(25) };
        assert_eq!(decide(&mut policy, 100, 4, 46), removes);
    }

    #[test]
    fn decisions_are_told_in_words() {
        let add = |reason| ScaleDecision::Add { nodes: 2, reason }.to_string();
        assert_eq!(add(ScaleReason::Used(96)), "adds 2 nodes: 96 % of the memory is used");
        assert_eq!(add(ScaleReason::Short), "adds 2 nodes: requests wait for space");
        assert!(ScaleDecision::Stay(StayReason::AtMaximum).to_string().contains("as many nodes as it may have"));
    }
}
