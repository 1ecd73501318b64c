//! File ids: the partition that assigned the id, and a counter within that partition.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::PartitionId;

/// Bits of a [`FileId`] that count within a partition: 2^48 files, a thousand a second for 8,900
/// years.
const COUNTER_BITS: u32 = 48;
const COUNTER_MASK: u64 = (1 << COUNTER_BITS) - 1;

/// The id of a file, directory or link: 16 bits of partition above 48 bits of counter.
///
/// A pool never reuses an id. In human-readable formats such as JSON it is a string of decimal
/// digits, because a JSON number holds only 53 bits; in binary formats it is a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileId(pub u64);

impl FileId {
    /// The pool's root directory: the first file of partition 0. Its value is also FUSE's root
    /// inode number.
    pub const ROOT: Self = Self(1);

    /// The largest counter, and so the most ids that one partition can assign. Counters start at 1.
    pub const COUNTER_MAX: u64 = COUNTER_MASK;

    /// The id of the `counter`th file (from 1) that `partition` made. Panics if `counter` is above
    /// [`Self::COUNTER_MAX`].
    pub const fn new(partition: PartitionId, counter: u64) -> Self {
        assert!(counter <= COUNTER_MASK, "a partition ran out of file ids");
        Self((partition.0 as u64) << COUNTER_BITS | counter)
    }

    /// The partition that assigned this id and holds the file's metadata.
    pub const fn partition(self) -> PartitionId {
        PartitionId((self.0 >> COUNTER_BITS) as u16)
    }

    /// The file's number in its partition.
    pub const fn counter(self) -> u64 {
        self.0 & COUNTER_MASK
    }
}

impl From<FileId> for u64 {
    fn from(file: FileId) -> Self {
        file.0
    }
}

impl Serialize for FileId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { to.collect_str(self) } else { to.serialize_u64(self.0) }
    }
}

impl<'de> Deserialize<'de> for FileId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            String::deserialize(from)?.parse().map_err(de::Error::custom)
        } else {
            u64::deserialize(from).map(Self)
        }
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The error of parsing a text that is not a file id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseFileIdError {
    text: String,
}

impl fmt::Display for ParseFileIdError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}` is not a file id; write it in decimal digits, for example \"1\" for the root", self.text)
    }
}

impl std::error::Error for ParseFileIdError {}

impl FromStr for FileId {
    type Err = ParseFileIdError;

    /// Parses the form that `Display` writes. Refuses a sign, blanks and leading zeros, so that an
    /// id has exactly one spelling.
    fn from_str(text: &str) -> Result<Self, ParseFileIdError> {
        let refused = || ParseFileIdError { text: text.to_owned() };
        let canonical = text == "0" || text.starts_with(|first: char| ('1'..='9').contains(&first));
        if !canonical {
            return Err(refused());
        }
        text.parse().map(Self).map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_root_is_the_first_file_of_partition_zero_and_fuses_inode_one() {
        assert_eq!(FileId::new(PartitionId(0), 1), FileId::ROOT);
        assert_eq!(u64::from(FileId::ROOT), 1);
    }

    #[test]
    #[should_panic(expected = "ran out of file ids")]
    fn a_counter_never_reaches_into_the_partition_bits() {
        let _ = FileId::new(PartitionId(0), FileId::COUNTER_MAX + 1);
    }

    #[test]
    fn an_id_is_a_string_in_json_beyond_53_bits_too() {
        let file = FileId::new(PartitionId(u16::MAX), FileId::COUNTER_MAX);
        let json = serde_json::to_string(&file).unwrap();
        assert_eq!(json, "\"18446744073709551615\"");
        assert_eq!(serde_json::from_str::<FileId>(&json).unwrap(), file);
    }

    #[test]
    fn what_is_no_id_is_refused_by_its_text() {
        for text in ["", "-1", "+1", " 1", "01", "x", "18446744073709551616"] {
            let error = text.parse::<FileId>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
        assert!(serde_json::from_str::<FileId>("1").is_err(), "a bare number");
    }

    proptest! {
        #[test]
        fn an_id_gives_back_its_parts_and_its_text(partition: u16, counter in 0..=FileId::COUNTER_MAX) {
            let file = FileId::new(PartitionId(partition), counter);
            prop_assert_eq!((file.partition(), file.counter()), (PartitionId(partition), counter));
            prop_assert_eq!(file.to_string().parse(), Ok(file));
        }
    }
}
