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
    /// True while this thread decodes an answer within another answer.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Guard that resets [`INSIDE`] when it is dropped.
struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Decodes a value that may not contain another of the same type: unbounded nesting would overflow
/// the stack.
pub fn once<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    if INSIDE.replace(true) {
        return Err(D::Error::custom("an unsettled answer holds another"));
    }
    let _inside = Inside;
    T::deserialize(from)
}

/// Decodes a list of at most [`PARTS_MAX`] elements.
pub fn few<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(Few(PhantomData))
}

struct Few<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {PARTS_MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let mut read = Vec::new();
        while let Some(element) = from.next_element()? {
            if read.len() == PARTS_MAX {
                return Err(A::Error::invalid_length(PARTS_MAX + 1, &self));
            }
            read.push(element);
        }
        Ok(read)
    }
}
