//! A fast hasher for numbers that are counted, which need no protection against chosen keys: ids of files, of requests.

use std::hash::{BuildHasherDefault, Hasher};

/// For maps keyed by such numbers.
pub type BuildNumberHasher = BuildHasherDefault<NumberHasher>;

/// Multiplies, then turns the well-mixed high bits to where the table looks first.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        // 2^64 divided by the golden ratio, odd: Fibonacci hashing.
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
