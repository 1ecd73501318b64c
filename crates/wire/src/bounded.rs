//! Decoding that stays small whatever stands in a message: what could nest, and lists of elements that are far larger in memory
//! than in a message.

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use std::{cell::Cell, fmt, marker::PhantomData};

/// The most parts that an intent may have in one request: several times what a change of two split directories has.
pub const PARTS_MAX: usize = 256;

thread_local! {
    /// An answer inside another is being read on this thread.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Ends with the answer that is being read, however that ends.
struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Reads a value in which there may be none of the same again: without an end, nesting would use up the stack.
pub fn once<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    if INSIDE.replace(true) {
        return Err(D::Error::custom("an unsettled answer holds another"));
    }
    let _inside = Inside;
    T::deserialize(from)
}

/// Reads at most [`PARTS_MAX`] elements.
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
