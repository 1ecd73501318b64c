//! Captured output of a process, with a size limit: the first and last bytes, and the total length.

use std::collections::VecDeque;
use std::fmt;

/// Maximum bytes stored of each end: a long stack trace fits, and 1,000 failed tasks stay below 256
/// MiB.
pub const KEPT_BYTES_MAX: usize = 64 << 10;

/// The captured output of one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputCapture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl OutputCapture {
    /// Appends the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(KEPT_BYTES_MAX - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(KEPT_BYTES_MAX)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(KEPT_BYTES_MAX);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// Total number of bytes written.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns true if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Number of bytes left out between head and tail.
    pub fn left_out(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// The first bytes.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The last bytes, without those in the head.
    pub fn tail(&self) -> Vec<u8> {
        self.tail.iter().copied().collect()
    }
}

/// Formats as text; replaces invalid UTF-8, and marks left-out bytes with a line.
impl fmt::Display for OutputCapture {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.left_out() == 0 {
            let all: Vec<u8> = self.head.iter().chain(&self.tail).copied().collect();
            return out.write_str(&String::from_utf8_lossy(&all));
        }
        let (head, tail) = (String::from_utf8_lossy(&self.head), self.tail());
        write!(out, "{head}\n[... {} bytes left out ...]\n{}", self.left_out(), String::from_utf8_lossy(&tail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(pieces: &[&[u8]]) -> OutputCapture {
        let mut captured = OutputCapture::default();
        for piece in pieces {
            captured.push(piece);
        }
        captured
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let long = vec![b'x'; KEPT_BYTES_MAX + 10];
        let all = captured(&[b"one ", b"two", &long]);
        assert_eq!(all.left_out(), 0);
        assert_eq!(all.to_string(), format!("one two{}", "x".repeat(long.len())));
    }

    #[test]
    fn of_more_the_ends_are_kept_and_the_rest_is_counted() {
        let middle = vec![b'.'; KEPT_BYTES_MAX];
        let all = captured(&[b"begin", &middle, &middle, &middle, b"end"]);
        assert_eq!(all.total(), 3 * KEPT_BYTES_MAX as u64 + 8);
        assert_eq!((all.head().len(), all.tail().len()), (KEPT_BYTES_MAX, KEPT_BYTES_MAX));
        assert!(all.head().starts_with(b"begin") && all.tail().ends_with(b".end"));
        assert!(all.to_string().contains("bytes left out"));
    }

    #[test]
    fn one_huge_piece_is_bounded_too() {
        let huge = vec![b'h'; 10 * KEPT_BYTES_MAX];
        let all = captured(&[&huge]);
        assert_eq!(all.left_out(), 8 * KEPT_BYTES_MAX as u64);
    }
}
