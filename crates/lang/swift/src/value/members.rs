//! Members of an array: packed numbers as long as possible, else a map.

use super::{MemberMap, SwiftValue, ValueSlot};
use std::cmp::Ordering;
use std::ops::Bound;
use std::rc::Rc;

/// The numbers of a chunk.
const CHUNK: usize = 1024;
/// The largest distance of a further number behind the last one. A chunk costs 8 KiB.
const GAP_MAX: usize = 64 * CHUNK;

/// An index of an array.
#[derive(Debug, Clone)]
pub enum ArrayKey {
    /// A whole number.
    Int(i64),
    /// A number with a point.
    Float(f64),
    /// A string.
    Text(Rc<str>),
}

impl ArrayKey {
    /// The index that a value is.
    pub fn of(value: &SwiftValue) -> Self {
        match value {
            SwiftValue::Int(number) => Self::Int(*number),
            // Both zeros are the same index.
            SwiftValue::Float(number) => Self::Float(if *number == 0.0 { 0.0 } else { *number }),
            SwiftValue::Text(text) => Self::Text(text.clone()),
            other => panic!("{other:?} is no index"),
        }
    }

    /// The value that the index is.
    pub fn value(&self) -> SwiftValue {
        match self {
            Self::Int(number) => SwiftValue::Int(*number),
            Self::Float(number) => SwiftValue::Float(*number),
            Self::Text(text) => SwiftValue::Text(text.clone()),
        }
    }
}

impl std::fmt::Display for ArrayKey {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl Ord for ArrayKey {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Int(one), Self::Int(two)) => one.cmp(two),
            (Self::Float(one), Self::Float(two)) => one.total_cmp(two),
            (Self::Text(one), Self::Text(two)) => one.cmp(two),
            // An array has indices of one type.
            (Self::Int(_), _) | (Self::Float(_), Self::Text(_)) => Ordering::Less,
            _ => Ordering::Greater,
        }
    }
}

impl PartialOrd for ArrayKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ArrayKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ArrayKey {}

impl std::hash::Hash for ArrayKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match self {
            Self::Int(number) => number.hash(state),
            Self::Float(number) => number.to_bits().hash(state),
            Self::Text(text) => text.hash(state),
        }
    }
}

/// Numbers, with a bit for each that is set.
#[derive(Debug)]
struct Chunk {
    set: [u64; CHUNK / 64],
    numbers: [u64; CHUNK],
}

/// Numbers at indices from 0 on.
#[derive(Debug, Default)]
pub struct PackedNumbers {
    chunks: Vec<Option<Box<Chunk>>>,
    count: usize,
    /// The index behind the largest one.
    next: usize,
    are_floats: bool,
}

impl PackedNumbers {
    fn has(&self, index: usize) -> bool {
        let chunk = self.chunks.get(index / CHUNK).and_then(Option::as_ref);
        chunk.is_some_and(|chunk| chunk.set[index % CHUNK / 64] >> (index % 64) & 1 == 1)
    }

    fn get(&self, index: usize) -> Option<SwiftValue> {
        let bits =
            self.has(index).then(|| self.chunks[index / CHUNK].as_ref().expect("it is set").numbers[index % CHUNK])?;
        Some(if self.are_floats {
            SwiftValue::Float(f64::from_bits(bits))
        } else {
            SwiftValue::Int(bits.cast_signed())
        })
    }

    fn insert(&mut self, index: usize, bits: u64) {
        let at = index / CHUNK;
        if at >= self.chunks.len() {
            self.chunks.resize_with(at + 1, || None);
        }
        let chunk =
            self.chunks[at].get_or_insert_with(|| Box::new(Chunk { set: [0; CHUNK / 64], numbers: [0; CHUNK] }));
        chunk.set[index % CHUNK / 64] |= 1 << (index % 64);
        chunk.numbers[index % CHUNK] = bits;
        self.count += 1;
        self.next = self.next.max(index + 1);
    }

    /// The index and the bits of a member that fits here.
    fn fitting(&self, key: &ArrayKey, slot: &ValueSlot) -> Option<(usize, u64)> {
        let ArrayKey::Int(index) = key else { return None };
        let index = usize::try_from(*index).ok().filter(|index| *index < self.chunks.len() * CHUNK + GAP_MAX)?;
        let bits = match slot {
            ValueSlot::Value(SwiftValue::Int(number)) if !self.are_floats || self.count == 0 => number.cast_unsigned(),
            ValueSlot::Value(SwiftValue::Float(number)) if self.are_floats || self.count == 0 => number.to_bits(),
            _ => return None,
        };
        Some((index, bits))
    }

    fn iter(&self) -> impl Iterator<Item = (ArrayKey, SwiftValue)> + '_ {
        let indices = (0..self.next).filter_map(|index| Some((index, self.get(index)?)));
        indices.map(|(index, value)| (ArrayKey::Int(i64::try_from(index).expect("it was an index")), value))
    }
}

/// The members of an array.
#[derive(Debug)]
pub enum Members {
    /// Numbers that lie side by side.
    Packed(PackedNumbers),
    /// Anything else.
    Map(MemberMap),
}

impl Default for Members {
    fn default() -> Self {
        Self::Packed(PackedNumbers::default())
    }
}

impl Members {
    /// The number of members.
    pub fn len(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.count,
            Self::Map(map) => map.len(),
        }
    }

    /// Returns whether there is a member at an index.
    pub fn has(&self, key: &ArrayKey) -> bool {
        match (self, key) {
            (Self::Packed(packed), ArrayKey::Int(index)) => {
                usize::try_from(*index).is_ok_and(|index| packed.has(index))
            }
            (Self::Packed(_), _) => false,
            (Self::Map(map), key) => map.contains_key(key),
        }
    }

    /// The value at an index; `None` if there is no member, or it has no value yet.
    pub fn get(&self, key: &ArrayKey) -> Option<SwiftValue> {
        match (self, key) {
            (Self::Packed(packed), ArrayKey::Int(index)) => packed.get(usize::try_from(*index).ok()?),
            (Self::Packed(_), _) => None,
            (Self::Map(map), key) => map.get(key)?.get(),
        }
    }

    /// Adds a member; returns false if there is one at the index.
    pub fn insert(&mut self, key: ArrayKey, slot: ValueSlot) -> bool {
        if self.has(&key) {
            return false;
        }
        if let Self::Packed(packed) = self
            && let Some((index, bits)) = packed.fitting(&key, &slot)
        {
            packed.are_floats = matches!(slot, ValueSlot::Value(SwiftValue::Float(_)));
            packed.insert(index, bits);
            return true;
        }
        self.map().insert(key, slot);
        true
    }

    /// The members as a map, which they become if they are none.
    pub fn map(&mut self) -> &mut MemberMap {
        if let Self::Packed(packed) = self {
            *self = Self::Map(packed.iter().map(|(key, value)| (key, ValueSlot::Value(value))).collect());
        }
        let Self::Map(map) = self else { unreachable!("it is one now") };
        map
    }

    /// The members in the order of their indices.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (ArrayKey, Option<SwiftValue>)> + '_> {
        match self {
            Self::Packed(packed) => Box::new(packed.iter().map(|(key, value)| (key, Some(value)))),
            Self::Map(map) => Box::new(map.iter().map(|(key, slot)| (key.clone(), slot.get()))),
        }
    }

    /// The first member behind an index, or the first of all. Its value may come later.
    pub fn next_after(&mut self, last: Option<&ArrayKey>) -> Option<(ArrayKey, ValueSlot)> {
        match self {
            Self::Packed(packed) => {
                let from = match last {
                    Some(ArrayKey::Int(last)) => usize::try_from(*last).ok()? + 1,
                    _ => 0,
                };
                let index = (from..packed.next).find(|index| packed.has(*index))?;
                let key = ArrayKey::Int(i64::try_from(index).expect("it was an index"));
                Some((key, ValueSlot::Value(packed.get(index)?)))
            }
            Self::Map(map) => {
                let range = (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
                let (key, slot) = map.range_mut::<ArrayKey, _>(range).next()?;
                let given = match slot {
                    ValueSlot::Value(value) => ValueSlot::Value(value.clone()),
                    other => ValueSlot::Shared(other.share()),
                };
                Some((key.clone(), given))
            }
        }
    }

    /// The slot at an index, made if there is none, for what comes later.
    pub fn slot(&mut self, key: &ArrayKey) -> Option<ValueSlot> {
        match self {
            Self::Packed(_) => self.get(key).map(ValueSlot::Value),
            Self::Map(map) => map.get_mut(key).map(|slot| ValueSlot::Shared(slot.share())),
        }
    }

    /// The index behind the largest one, for appending.
    pub fn next_index(&self) -> i64 {
        match self {
            Self::Packed(packed) => i64::try_from(packed.next).expect("it was an index"),
            Self::Map(map) => match map.last_key_value() {
                Some((ArrayKey::Int(last), _)) => last.saturating_add(1),
                _ => 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(number: i64) -> ValueSlot {
        ValueSlot::Value(SwiftValue::Int(number))
    }

    #[test]
    fn numbers_near_each_other_are_packed_and_others_are_not() {
        let mut members = Members::default();
        assert!((0..5000).rev().all(|index| members.insert(ArrayKey::Int(index), int(index * 2))));
        assert!(matches!(members, Members::Packed(_)) && members.len() == 5000);
        assert!(!members.insert(ArrayKey::Int(7), int(0)), "an index is assigned once");
        assert!(matches!(members.get(&ArrayKey::Int(4999)), Some(SwiftValue::Int(9998))));
        assert!(members.get(&ArrayKey::Int(5000)).is_none() && members.next_index() == 5000);
        members.insert(ArrayKey::Int(-1), int(1));
        assert!(matches!(members, Members::Map(_)) && members.len() == 5001);
        assert!(matches!(members.get(&ArrayKey::Int(4999)), Some(SwiftValue::Int(9998))));
        let first: Vec<String> = members.iter().take(3).map(|(key, _)| key.to_string()).collect();
        assert_eq!(first, ["-1", "0", "1"]);
    }

    #[test]
    fn a_far_index_takes_no_memory_for_those_before_it() {
        let mut members = Members::default();
        members.insert(ArrayKey::Int(1 << 60), int(1));
        assert!(matches!(members, Members::Map(_)) && members.next_index() == (1 << 60) + 1);
    }

    #[test]
    fn floats_are_packed_too() {
        let mut members = Members::default();
        members.insert(ArrayKey::Int(0), ValueSlot::Value(SwiftValue::Float(0.5)));
        assert!(
            matches!(members.get(&ArrayKey::Int(0)), Some(SwiftValue::Float(number)) if number.to_bits() == 0.5_f64.to_bits())
        );
        members.insert(ArrayKey::Int(1), int(1));
        assert!(
            matches!(members.get(&ArrayKey::Int(1)), Some(SwiftValue::Int(1))) && matches!(members, Members::Map(_))
        );
    }
}
