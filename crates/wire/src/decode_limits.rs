//! Decoding limits: bounds for nested values, and for lists whose elements are far larger in memory
//! than in a message.

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use std::{cell::Cell, fmt, marker::PhantomData};

/// Maximum number of parts of a transaction in one request: several times the parts of a change
/// over two split directories.
pub const PARTS_MAX: usize = 256;

thread_local! {
    /// Number of answers that this thread is decoding, each within the one before.
    static NESTED: Cell<u8> = const { Cell::new(0) };
}

/// Most answers within an answer: an unsettled one may hold one that another node finishes.
const NESTED_MAX: u8 = 2;

/// Guard that counts [`NESTED`] down when it is dropped.
struct DepthGuard;

impl Drop for DepthGuard {
    fn drop(&mut self) {
        NESTED.set(NESTED.get() - 1);
    }
}

/// Decodes an answer within an answer, and refuses one that is nested deeper than answers ever are:
/// unbounded nesting would overflow the stack.
pub fn nested_answer<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    if NESTED.get() == NESTED_MAX {
        return Err(D::Error::custom("answers are nested too deep"));
    }
    NESTED.set(NESTED.get() + 1);
    let _guard = DepthGuard;
    T::deserialize(from)
}

/// Decodes a list of at most [`PARTS_MAX`] elements.
pub fn bounded_vec<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(BoundedVec(PhantomData))
}

struct BoundedVec<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for BoundedVec<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {PARTS_MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = from.next_element()? {
            if elements.len() == PARTS_MAX {
                return Err(A::Error::invalid_length(PARTS_MAX + 1, &self));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}
