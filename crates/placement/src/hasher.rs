//! A fast hasher for sequential numbers such as file ids and request ids. It does not protect
//! against keys chosen by an attacker.

use std::hash::{BuildHasherDefault, Hasher};

/// The `BuildHasher` for maps keyed by sequential numbers.
pub type BuildNumberHasher = BuildHasherDefault<NumberHasher>;

/// Multiplies, then rotates the well-mixed high bits to the position that the hash table uses
/// first.
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
