//! The rules by which nodes are added and removed (paper 004, sections 3.4.2 and 3.4.3).

use std::str::FromStr;

/// A rule for adding or removing nodes: the threshold, and the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleRule {
    /// Used memory, percent of the capacity: above it nodes are added, below it removed.
    pub percent: u8,
    /// The number of nodes.
    pub amount: ScaleAmount,
}

/// A number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleAmount {
    /// This percentage of the nodes that the pool was started with.
    OfInitial(u8),
    /// This percentage of the nodes that there are.
    OfCurrent(u8),
    /// This number.
    Nodes(u32),
}

impl ScaleRule {
    /// CSO, conservative scale-out: half of the initial nodes.
    pub const CSO: Self = Self { percent: 95, amount: ScaleAmount::OfInitial(50) };
    /// NSO, neutral scale-out: as many as at the start.
    pub const NSO: Self = Self { percent: 95, amount: ScaleAmount::OfInitial(100) };
    /// ASO, aggressive scale-out: as many as there are, so that the number doubles.
    pub const ASO: Self = Self { percent: 95, amount: ScaleAmount::OfCurrent(100) };
    /// CSI, conservative scale-in: a quarter.
    pub const CSI: Self = Self { percent: 75, amount: ScaleAmount::OfCurrent(25) };
    /// ASI, aggressive scale-in: half.
    pub const ASI: Self = Self { percent: 50, amount: ScaleAmount::OfCurrent(50) };
}

impl ScaleAmount {
    /// The number of nodes, at least 1. `initial` is the number at the start, `current` that of
    /// now.
    pub fn nodes(self, initial: u32, current: u32) -> u32 {
        let part = |percent: u8, nodes: u32| u64::from(nodes) * u64::from(percent) / 100;
        let nodes = match self {
            Self::OfInitial(percent) => part(percent, initial),
            Self::OfCurrent(percent) => part(percent, current),
            Self::Nodes(nodes) => nodes.into(),
        };
        u32::try_from(nodes).unwrap_or(u32::MAX).max(1)
    }
}

/// The rules of a policy: for adding nodes, and for removing them.
pub type ScaleRules = (Option<ScaleRule>, Option<ScaleRule>);

/// The error of a text that names no rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no policy: {why}; write for example foresight, cso, nso+csi, aso+asi or step(90, 16, 50, 8)")]
pub struct InvalidScaleRule {
    /// The text.
    pub text: String,
    /// Its fault.
    pub why: &'static str,
}

/// Reads the rules from a text: `cso`, `nso` or `aso`, `csi` or `asi`, two of them joined by `+`,
/// or `step(OUT_AT, OUT_BY, IN_AT, IN_BY)` with percentages and numbers of nodes.
pub fn parse_rules(text: &str) -> Result<ScaleRules, InvalidScaleRule> {
    let invalid = |why| InvalidScaleRule { text: text.to_owned(), why };
    if let Some(numbers) = text.trim().strip_prefix("step(").and_then(|rest| rest.strip_suffix(')')) {
        return parse_step(numbers).map_err(invalid);
    }
    let (mut out, mut back) = (None, None);
    for word in text.split('+').map(str::trim) {
        let (slot, rule) = match word.to_ascii_lowercase().as_str() {
            "cso" => (&mut out, ScaleRule::CSO),
            "nso" => (&mut out, ScaleRule::NSO),
            "aso" => (&mut out, ScaleRule::ASO),
            "csi" => (&mut back, ScaleRule::CSI),
            "asi" => (&mut back, ScaleRule::ASI),
            _ => return Err(invalid("there is no such rule")),
        };
        if slot.replace(rule).is_some() {
            return Err(invalid("it has two rules for the same"));
        }
    }
    Ok((out, back))
}

fn parse_step(numbers: &str) -> Result<ScaleRules, &'static str> {
    let numbers: Result<Vec<u32>, _> = numbers.split(',').map(|number| u32::from_str(number.trim())).collect();
    let Ok([out_at, out_by, in_at, in_by]) = <[u32; 4]>::try_from(numbers.map_err(|_| "a step has whole numbers")?)
    else {
        return Err("a step has four numbers");
    };
    let percent = |at: u32| u8::try_from(at).ok().filter(|at| (1..=100).contains(at));
    let (Some(out_at), Some(in_at)) = (percent(out_at), percent(in_at)) else {
        return Err("the first and the third number are percentages, from 1 to 100");
    };
    if out_by == 0 || in_by == 0 {
        return Err("the second and the fourth number are nodes, at least 1");
    }
    if in_at >= out_at {
        return Err("nodes are removed below a lower percentage than they are added above");
    }
    let rule = |percent, nodes| Some(ScaleRule { percent, amount: ScaleAmount::Nodes(nodes) });
    Ok((rule(out_at, out_by), rule(in_at, in_by)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_the_paper_have_their_names_and_numbers() {
        let nodes = |rule: ScaleRule| (rule.percent, rule.amount.nodes(16, 40));
        assert_eq!(parse_rules("cso").unwrap(), (Some(ScaleRule::CSO), None));
        assert_eq!(parse_rules(" NSO + csi ").unwrap(), (Some(ScaleRule::NSO), Some(ScaleRule::CSI)));
        assert_eq!(parse_rules("asi+aso").unwrap(), (Some(ScaleRule::ASO), Some(ScaleRule::ASI)));
        assert_eq!([ScaleRule::CSO, ScaleRule::NSO, ScaleRule::ASO].map(nodes), [(95, 8), (95, 16), (95, 40)]);
        assert_eq!([ScaleRule::CSI, ScaleRule::ASI].map(nodes), [(75, 10), (50, 20)]);
        assert_eq!(ScaleRule::CSI.amount.nodes(1, 3), 1, "at least one");
        let (out, back) = parse_rules("step(90, 16, 50, 8)").unwrap();
        assert_eq!((nodes(out.unwrap()), nodes(back.unwrap())), ((90, 16), (50, 8)));
    }

    #[test]
    fn a_text_that_is_no_policy_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "no such rule"),
            ("fast", "no such rule"),
            ("cso+nso", "two rules"),
            ("csi+asi", "two rules"),
            ("step(90, 16, 50)", "four numbers"),
            ("step(90, x, 50, 8)", "whole numbers"),
            ("step(101, 1, 50, 1)", "percentages"),
            ("step(90, 0, 50, 1)", "at least 1"),
            ("step(50, 1, 50, 1)", "lower percentage"),
            ("step(90, 4294967296, 50, 1)", "whole numbers"),
        ] {
            let refused = parse_rules(text).unwrap_err().to_string();
            assert!(refused.contains(why) && refused.contains("for example"), "{text}: {refused}");
        }
    }
}
