//! Records of the log: bytes of changes, each with a checksum.
//!
//! ```text
//!   0 checksum: 8 | 8 sequence: 8 | 16 key length: 2 | 18 kind: 1 | 19 zero | 20 value length: 4
//!   24 key | value | up to a multiple of 8
//! ```
//!
//! The checksum covers all after it, and begins with the number of the segment: what an earlier use
//! of the same space has left there is no record.

use crate::bytes_at::{u16_at, u32_at, u64_at};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Length of a record without key and value.
pub const RECORD_HEADER: usize = 24;

/// The effect of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Gives a key a value.
    Put,
    /// Removes a key.
    Delete,
    /// The log goes on in another segment, which the value names. It has no sequence number.
    Next,
}

impl RecordKind {
    fn code(self) -> u8 {
        match self {
            Self::Put => 1,
            Self::Delete => 2,
            Self::Next => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Put, Self::Delete, Self::Next].into_iter().find(|kind| kind.code() == code)
    }
}

/// A record, without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord<'a> {
    pub sequence: u64,
    pub kind: RecordKind,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

impl<'a> LogRecord<'a> {
    /// The bytes that a record with such a key and value takes.
    pub fn length(key: usize, value: usize) -> usize {
        (RECORD_HEADER + key + value).next_multiple_of(8)
    }

    /// The header, for a segment with this number.
    pub fn header(&self, segment: u64) -> [u8; RECORD_HEADER] {
        let mut header = [0; RECORD_HEADER];
        header[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        let key_length = u16::try_from(self.key.len()).expect("a key is shorter than 64 KiB");
        header[16..18].copy_from_slice(&key_length.to_le_bytes());
        header[18] = self.kind.code();
        let value_length = u32::try_from(self.value.len()).expect("a value is shorter than 4 GiB");
        header[20..24].copy_from_slice(&value_length.to_le_bytes());
        let mut checksum = Xxh3::with_seed(segment);
        checksum.update(&header[8..]);
        checksum.update(self.key);
        checksum.update(self.value);
        header[..8].copy_from_slice(&checksum.digest().to_le_bytes());
        header
    }

    /// The record at the beginning of these bytes of a segment, if a whole one is there.
    pub fn decode(bytes: &'a [u8], segment: u64) -> Option<Self> {
        let header = bytes.get(..RECORD_HEADER)?;
        let (key, value) = (usize::from(u16_at(header, 16)), u32_at(header, 20) as usize);
        let kind = RecordKind::from_code(header[18])?;
        let end = RECORD_HEADER.checked_add(key)?.checked_add(value)?;
        let covered = bytes.get(8..end)?;
        if xxh3_64_with_seed(covered, segment) != u64_at(header, 0) {
            return None;
        }
        let (key, value) = bytes[RECORD_HEADER..end].split_at(key);
        Some(Self { sequence: u64_at(header, 8), kind, key, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::Random;

    fn encoded(record: &LogRecord<'_>, segment: u64) -> Vec<u8> {
        [&record.header(segment), record.key, record.value].concat()
    }

    #[test]
    fn a_record_is_read_as_it_was_written_in_its_segment_alone() {
        let mut random = Random::new(1);
        for _ in 0..500 {
            let (key, value) = (random.below(70_usize), random.below(3000_usize));
            let (key, value) = (random.bytes(key), random.bytes(value));
            let kind = random.pick(&[RecordKind::Put, RecordKind::Delete, RecordKind::Next]);
            let record = LogRecord { sequence: random.next_u64(), kind, key: &key, value: &value };
            let mut bytes = encoded(&record, 7);
            assert!(bytes.len() <= LogRecord::length(key.len(), value.len()));
            bytes.extend_from_slice(b"what follows");
            assert_eq!(LogRecord::decode(&bytes, 7), Some(record));
            assert_eq!(LogRecord::decode(&bytes, 8), None);
        }
    }

    #[test]
    fn a_record_that_is_not_whole_is_none() {
        let mut random = Random::new(2);
        let record = LogRecord { sequence: 5, kind: RecordKind::Put, key: b"some key", value: &random.bytes(100) };
        let whole = encoded(&record, 1);
        for length in 0..whole.len() {
            assert_eq!(LogRecord::decode(&whole[..length], 1), None, "{length} bytes");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << random.below(8);
            // Nobody looks at the byte that is always zero, but it is covered.
            assert_eq!(LogRecord::decode(&bytes, 1), None, "byte {at}");
        }
        assert_eq!(LogRecord::decode(&[0; 64], 1), None);
    }
}
