//! Placement requests of users: a policy, a stripe size.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::NodeId;

/// The policy that decides where the bytes of a file lie. As text: `striped`, `single`, `here`,
/// `at(3)`, `balanced`. The old word of `single`, `whole`, is still read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// In stripes over all partitions, by a hash.
    Striped,
    /// All at one node, chosen by a hash of the parent directory and the name under which the file
    /// is made.
    Single,
    /// All at the node of the client that first writes more bytes than fit in the inode. If that
    /// client runs on no node's host, as `Single`.
    Here,
    /// All at this node.
    At(NodeId),
    /// All at the node with the most free memory at the time when the file first grows beyond its
    /// inode.
    Balanced,
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Striped => out.write_str("striped"),
            Self::Single => out.write_str("single"),
            Self::Here => out.write_str("here"),
            Self::At(node) => write!(out, "at({node})"),
            Self::Balanced => out.write_str("balanced"),
        }
    }
}

impl FromStr for Policy {
    type Err = InvalidPlacementSpec;

    fn from_str(text: &str) -> Result<Self, InvalidPlacementSpec> {
        match text {
            "striped" => return Ok(Self::Striped),
            "single" | "whole" => return Ok(Self::Single),
            "here" => return Ok(Self::Here),
            "balanced" => return Ok(Self::Balanced),
            _ => {}
        }
        let node = text.strip_prefix("at(").and_then(|rest| rest.strip_suffix(')'));
        let node = node.filter(|node| node.bytes().all(|byte| byte.is_ascii_digit()));
        node.and_then(|node| node.parse().ok()).map(|node| Self::At(NodeId(node))).ok_or(INVALID_POLICY)
    }
}

/// The error of parsing an invalid policy or stripe size. The message says what is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidPlacementSpec(&'static str);

/// The error of a text that is not a policy.
const INVALID_POLICY: InvalidPlacementSpec =
    InvalidPlacementSpec("no placement; choose striped, single, here, at(NODE) or balanced");
/// The error of an invalid stripe size.
const INVALID_STRIPE_SIZE: InvalidPlacementSpec =
    InvalidPlacementSpec("no length of stripes; choose a power of two from 64KiB to 64MiB, in bytes or as 4MiB");

impl fmt::Display for InvalidPlacementSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

impl std::error::Error for InvalidPlacementSpec {}

/// A stripe size: so many consecutive bytes of a file lie together. A power of two from
/// [`Self::MIN`] to [`Self::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct StripeSize(u32);

impl StripeSize {
    /// 64 KiB. For a shorter stripe, addressing costs more than moving its bytes.
    pub const MIN: u32 = 64 << 10;
    /// 64 MiB. Few files have several stripes longer than this.
    pub const MAX: u32 = 64 << 20;

    /// A size of `bytes`. Fails unless that is a power of two within the bounds.
    pub const fn new(bytes: u32) -> Result<Self, InvalidPlacementSpec> {
        if bytes.is_power_of_two() && Self::MIN <= bytes && bytes <= Self::MAX {
            Ok(Self(bytes))
        } else {
            Err(INVALID_STRIPE_SIZE)
        }
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for StripeSize {
    type Error = InvalidPlacementSpec;

    fn try_from(bytes: u32) -> Result<Self, InvalidPlacementSpec> {
        Self::new(bytes)
    }
}

impl From<StripeSize> for u32 {
    fn from(size: StripeSize) -> Self {
        size.0
    }
}

impl fmt::Display for StripeSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl FromStr for StripeSize {
    type Err = InvalidPlacementSpec;

    /// Parses a number of bytes, or a number followed by `K`, `KiB`, `M` or `MiB`, all of which are
    /// powers of two.
    fn from_str(text: &str) -> Result<Self, InvalidPlacementSpec> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = match unit {
            "" => 1,
            "K" | "KiB" => 1 << 10,
            "M" | "MiB" => 1 << 20,
            _ => return Err(INVALID_STRIPE_SIZE),
        };
        let bytes = number.parse().ok().and_then(|number: u32| number.checked_mul(unit));
        Self::new(bytes.ok_or(INVALID_STRIPE_SIZE)?)
    }
}

/// The placement that a user requested for a file, or for new files in a directory. A field is
/// `None` if nothing was requested: then the bytes lie where it is best for their writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlacementSpec {
    /// The policy.
    pub policy: Option<Policy>,
    /// The stripe size.
    pub stripe_size: Option<StripeSize>,
}

impl PlacementSpec {
    /// This request in a box; `None` if it requests nothing.
    #[must_use]
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }

    /// This request, with its `None` fields taken from `inherited`.
    #[must_use]
    pub fn or(self, inherited: Self) -> Self {
        Self { policy: self.policy.or(inherited.policy), stripe_size: self.stripe_size.or(inherited.stripe_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_as_they_are_written_and_nothing_else_is() {
        let policies = [Policy::Striped, Policy::Single, Policy::Here, Policy::At(NodeId(300)), Policy::Balanced];
        assert!(policies.iter().all(|policy| policy.to_string().parse() == Ok(*policy)));
        let wrong =
            ["", "Whole", "at", "at()", "at(x)", "at(+1)", "at(-1)", "at(1", "at(1))", "at(99999999999)", "here "];
        assert!(wrong.iter().all(|text| text.parse::<Policy>() == Err(INVALID_POLICY)));
    }

    #[test]
    fn the_old_word_of_a_policy_is_read_and_never_written() {
        assert_eq!("whole".parse(), Ok(Policy::Single));
        assert_eq!(Policy::Single.to_string(), "single");
    }

    #[test]
    fn stripe_sizes_are_powers_of_two_within_the_bounds() {
        let good = [("65536", 65_536), ("64K", 65_536), ("1MiB", 1 << 20), ("64M", 64 << 20), ("128KiB", 128 << 10)];
        assert!(good.iter().all(|(text, bytes)| text.parse() == StripeSize::new(*bytes)));
        let wrong = ["", "0", "32768", "65537", "128MiB", "1G", "MiB", "-65536", "4294967296", "1 MiB", "8192M"];
        assert!(wrong.iter().all(|text| text.parse::<StripeSize>() == Err(INVALID_STRIPE_SIZE)));
        let shown = StripeSize::new(1 << 20).unwrap();
        assert_eq!(shown.to_string().parse(), Ok(shown));
        assert!(serde_json::from_str::<StripeSize>("3").is_err());
    }

    #[test]
    fn what_is_left_open_is_as_above() {
        let size = StripeSize::new(1 << 20).ok();
        let inherited = PlacementSpec { policy: Some(Policy::Here), stripe_size: size };
        let own = PlacementSpec { policy: Some(Policy::Single), stripe_size: None };
        assert_eq!(own.or(inherited), PlacementSpec { policy: Some(Policy::Single), stripe_size: size });
        assert_eq!(PlacementSpec::default().or(inherited), inherited);
    }
}
