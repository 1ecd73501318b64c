//! Protocol versions.

use crate::command::PROTOCOL_VERSION;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The versions that this build supports.
pub const VERSIONS: ProtocolVersions =
    ProtocolVersions { lowest: ProtocolVersion(PROTOCOL_VERSION), highest: ProtocolVersion(PROTOCOL_VERSION) };

/// A protocol version, counted from 1. It grows with each incompatible change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProtocolVersion(pub u16);

/// An inclusive range of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawProtocolVersions")]
pub struct ProtocolVersions {
    lowest: ProtocolVersion,
    highest: ProtocolVersion,
}

/// A range of versions in a message, not yet validated.
#[derive(Deserialize)]
struct RawProtocolVersions {
    lowest: ProtocolVersion,
    highest: ProtocolVersion,
}

/// The range of versions is empty or contains 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("versions {lowest} to {highest} are not a range: versions are counted from 1, the lowest first")]
pub struct InvalidVersionRange {
    /// Lowest version.
    pub lowest: ProtocolVersion,
    /// Highest version.
    pub highest: ProtocolVersion,
}

impl ProtocolVersions {
    /// Creates a range; fails if it is empty or contains 0.
    pub const fn new(lowest: ProtocolVersion, highest: ProtocolVersion) -> Result<Self, InvalidVersionRange> {
        if lowest.0 == 0 || lowest.0 > highest.0 {
            return Err(InvalidVersionRange { lowest, highest });
        }
        Ok(Self { lowest, highest })
    }

    /// Returns the highest version in both ranges.
    pub fn agree(self, other: Self) -> Option<ProtocolVersion> {
        let highest = self.highest.min(other.highest);
        (self.contains(highest) && other.contains(highest)).then_some(highest)
    }

    /// Returns true if the range has this version.
    pub fn contains(self, version: ProtocolVersion) -> bool {
        (self.lowest..=self.highest).contains(&version)
    }

    /// Encodes the range for proofs: two numbers of 16 bits, little-endian.
    pub(super) fn encode(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.lowest.0.to_le_bytes(), self.highest.0.to_le_bytes());
        [a, b, c, d]
    }
}

impl TryFrom<RawProtocolVersions> for ProtocolVersions {
    type Error = InvalidVersionRange;

    fn try_from(RawProtocolVersions { lowest, highest }: RawProtocolVersions) -> Result<Self, InvalidVersionRange> {
        Self::new(lowest, highest)
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ProtocolVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.lowest, self.highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(lowest: u16, highest: u16) -> ProtocolVersions {
        ProtocolVersions::new(ProtocolVersion(lowest), ProtocolVersion(highest)).unwrap()
    }

    #[test]
    fn the_highest_version_that_both_speak_is_spoken() {
        for (ours, theirs, agreed) in [
            ((1, 1), (1, 1), Some(1)),
            ((1, 3), (1, 3), Some(3)),
            ((1, 3), (2, 2), Some(2)),
            ((1, 3), (2, 9), Some(3)),
            ((4, 9), (1, 4), Some(4)),
            ((1, 1), (2, 2), None),
            ((1, 3), (4, 9), None),
            ((u16::MAX, u16::MAX), (1, u16::MAX), Some(u16::MAX)),
        ] {
            let (ours, theirs) = (versions(ours.0, ours.1), versions(theirs.0, theirs.1));
            assert_eq!(ours.agree(theirs), agreed.map(ProtocolVersion), "{ours} and {theirs}");
            assert_eq!(theirs.agree(ours), agreed.map(ProtocolVersion), "{theirs} and {ours}");
        }
    }

    #[test]
    fn versions_that_are_none_are_refused() {
        for (lowest, highest) in [(0, 0), (0, 3), (3, 2)] {
            assert!(
                ProtocolVersions::new(ProtocolVersion(lowest), ProtocolVersion(highest)).is_err(),
                "{lowest} to {highest}"
            );
        }
    }
}
