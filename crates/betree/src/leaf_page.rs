//! The page of a leaf: entries sorted by key, immutable, the same bytes in memory and on the
//! device.
//!
//! ```text
//!   header | prefix | heads: 8 each | fingerprints: 2 each | items: 20 each | heap
//! ```
//!
//! The prefix is what all keys begin with. The head of a key is the next 8 bytes, the tail what
//! follows. Heads order entries, for searches by order. Fingerprints, which are parts of a hash of
//! the whole key, find an entry: many are compared at a time, and nearly all others are passed
//! over.

use crate::{
    bytes_at::{u16_at, u32_at, u64_at},
    page_error::PageError,
    stored_value::{LogSpan, StoredValue},
};
use std::{cmp::Ordering, fmt};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: u32 = u32::from_le_bytes(*b"leaf");
const HEADER_BYTES: usize = 24;
const HEAD_BYTES: usize = 8;
const FINGERPRINT_BYTES: usize = 2;
const ITEM_BYTES: usize = 20;
/// Length of an item's value if the value is in the log: the top bit is set.
const LOGGED: u32 = 1 << 31;

/// A hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(u64);

impl KeyHash {
    pub fn of(key: &[u8]) -> Self {
        Self(xxh3_64(key))
    }

    /// The part that pages and leaves keep.
    #[expect(clippy::cast_possible_truncation, reason = "the low bits")]
    pub fn fingerprint(self) -> u16 {
        self.0 as u16
    }
}

/// An immutable page of sorted entries.
#[derive(Clone, PartialEq, Eq)]
pub struct LeafPage {
    bytes: Box<[u8]>,
    count: usize,
    prefix_length: usize,
}

/// An entry of a page: a key in parts, and the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafEntry<'a> {
    pub key: SplitKey<'a>,
    pub value: StoredValue<'a>,
}

/// A key in a page: the bytes of the three parts, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitKey<'a> {
    pub prefix: &'a [u8],
    head: [u8; HEAD_BYTES],
    head_length: u8,
    pub tail: &'a [u8],
}

impl SplitKey<'_> {
    /// The bytes after the prefix that are in the head.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_length.into()]
    }

    /// Replaces what a buffer has by the key.
    pub fn copy_to(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        for part in [self.prefix, self.head(), self.tail] {
            buffer.extend_from_slice(part);
        }
    }

    /// Its order beside a key.
    pub fn compare(&self, key: &[u8]) -> Ordering {
        let mut rest = key;
        for part in [self.prefix, self.head()] {
            let (start, after) = rest.split_at(rest.len().min(part.len()));
            match part.cmp(start) {
                Ordering::Equal => rest = after,
                order => return order,
            }
        }
        self.tail.cmp(rest)
    }
}

impl LeafPage {
    /// A page without entries.
    pub fn empty() -> Self {
        Self::build(&[])
    }

    /// A page of these entries, which are sorted by key, each key once.
    pub fn build(entries: &[(&[u8], StoredValue<'_>)]) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "keys of a page are sorted, each once");
        let prefix = match (entries.first(), entries.last()) {
            (Some((first, _)), Some((last, _))) => common_prefix(first, last),
            _ => &[],
        };
        let count = entries.len();
        let layout = PageLayout::new(count, prefix.len());
        let mut bytes = vec![0; layout.heap];
        bytes[layout.prefix..layout.prefix + prefix.len()].copy_from_slice(prefix);
        for (at, (key, value)) in entries.iter().enumerate() {
            let rest = &key[prefix.len()..];
            let (head, tail) = rest.split_at(rest.len().min(HEAD_BYTES));
            let head_at = layout.heads + at * HEAD_BYTES;
            bytes[head_at..head_at + head.len()].copy_from_slice(head);
            let fingerprint_at = layout.fingerprints + at * FINGERPRINT_BYTES;
            let fingerprint = KeyHash::of(key).fingerprint();
            bytes[fingerprint_at..fingerprint_at + FINGERPRINT_BYTES].copy_from_slice(&fingerprint.to_le_bytes());
            let tail_at = heap_offset(&bytes);
            bytes.extend_from_slice(tail);
            let (value, value_length) = match value {
                StoredValue::Inline(inline) => {
                    let value_at = u64::from(heap_offset(&bytes));
                    bytes.extend_from_slice(inline);
                    (value_at, u32::try_from(inline.len()).expect("an inline value is short"))
                }
                StoredValue::Logged(LogSpan { slot, offset, length }) => {
                    (u64::from(*slot) << 32 | u64::from(*offset), length | LOGGED)
                }
            };
            let rest_length = u16::try_from(rest.len()).expect("a key is shorter than 64 KiB");
            let item = &mut bytes[layout.items + at * ITEM_BYTES..][..ITEM_BYTES];
            item[..8].copy_from_slice(&value.to_le_bytes());
            item[8..12].copy_from_slice(&value_length.to_le_bytes());
            item[12..16].copy_from_slice(&tail_at.to_le_bytes());
            item[16..18].copy_from_slice(&rest_length.to_le_bytes());
        }
        Self::seal(bytes, count, prefix.len())
    }

    fn seal(mut bytes: Vec<u8>, count: usize, prefix_length: usize) -> Self {
        let length = heap_offset(&bytes);
        bytes[8..12].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        bytes[16..20].copy_from_slice(&u32::try_from(count).expect("fewer than bytes").to_le_bytes());
        bytes[20..22].copy_from_slice(&u16::try_from(prefix_length).expect("a key is short").to_le_bytes());
        let checksum = xxh3_64(&bytes[8..]);
        bytes[..8].copy_from_slice(&checksum.to_le_bytes());
        Self { bytes: bytes.into(), count, prefix_length }
    }

    /// Takes a page that was read, if it is whole. What follows the page's end is not looked at.
    pub fn decode(bytes: &[u8]) -> Result<Self, PageError> {
        if bytes.len() < HEADER_BYTES || u32_at(bytes, 8) != MAGIC {
            return Err(PageError::OtherKind);
        }
        let length = u32_at(bytes, 12) as usize;
        let bytes = bytes.get(..length).filter(|_| length >= HEADER_BYTES).ok_or(PageError::Length)?;
        if xxh3_64(&bytes[8..]) != u64_at(bytes, 0) {
            return Err(PageError::Checksum);
        }
        let (count, prefix_length) = (u32_at(bytes, 16) as usize, usize::from(u16_at(bytes, 20)));
        let page = Self { bytes: bytes.into(), count, prefix_length };
        page.check()?;
        Ok(page)
    }

    /// Checks that all parts lie within the page, and that keys ascend: so no search can fail.
    fn check(&self) -> Result<(), PageError> {
        let layout = self.layout();
        if self.count > self.bytes.len() || layout.heap > self.bytes.len() {
            return Err(PageError::Parts);
        }
        let mut before: Option<SplitKey<'_>> = None;
        for at in 0..self.count {
            let item = self.item(at);
            let tail = (u32_at(item, 12) as usize, usize::from(u16_at(item, 16)).saturating_sub(HEAD_BYTES));
            let length = u32_at(item, 8);
            let inline = if length & LOGGED == 0 { length as usize } else { 0 };
            let value = (usize::try_from(u64_at(item, 0)).unwrap_or(usize::MAX), inline);
            let fits = |(at, length): (usize, usize)| at.checked_add(length).is_some_and(|end| end <= self.bytes.len());
            if !fits(tail) || length & LOGGED == 0 && !fits(value) {
                return Err(PageError::Parts);
            }
            let key = self.entry(at).key;
            if before.is_some_and(|before| compare_split(&before, &key) != Ordering::Less) {
                return Err(PageError::Order);
            }
            before = Some(key);
        }
        Ok(())
    }

    /// The page as it is written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The value of a key with this hash.
    pub fn get(&self, key: &[u8], hash: KeyHash) -> Option<StoredValue<'_>> {
        let rest = key.strip_prefix(self.prefix())?;
        let at = self.layout().fingerprints;
        let fingerprints = self.bytes[at..at + self.count * FINGERPRINT_BYTES].chunks_exact(FINGERPRINT_BYTES);
        let wanted = hash.fingerprint().to_le_bytes();
        let mut candidates = fingerprints.enumerate().filter(|(_, fingerprint)| **fingerprint == wanted);
        let (_, value) = candidates.find_map(|(at, _)| {
            let entry = self.entry(at);
            let is_same = entry.key.head().len() + entry.key.tail.len() == rest.len()
                && rest.starts_with(entry.key.head())
                && rest.ends_with(entry.key.tail);
            is_same.then_some((at, entry.value))
        })?;
        Some(value)
    }

    /// The number of entries whose keys are smaller.
    fn lower_bound(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.entry(middle).key.compare(key) {
                Ordering::Less => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// The entry at an index below the number of entries.
    fn entry(&self, at: usize) -> LeafEntry<'_> {
        let item = self.item(at);
        let (value, length) = (u64_at(item, 0), u32_at(item, 8));
        let (tail_at, rest_length) = (u32_at(item, 12) as usize, usize::from(u16_at(item, 16)));
        let head_at = self.layout().heads + at * HEAD_BYTES;
        let head = self.bytes[head_at..head_at + HEAD_BYTES].try_into().expect("as long");
        let head_length = u8::try_from(rest_length.min(HEAD_BYTES)).expect("at most 8");
        let tail = &self.bytes[tail_at..tail_at + rest_length.saturating_sub(HEAD_BYTES)];
        let value = if length & LOGGED == 0 {
            let at = usize::try_from(value).expect("checked when it was read");
            StoredValue::Inline(&self.bytes[at..at + length as usize])
        } else {
            let (slot, offset) = (u32::try_from(value >> 32), u32::try_from(value & u64::from(u32::MAX)));
            let [slot, offset] = [slot, offset].map(|half| half.expect("half of the bits"));
            StoredValue::Logged(LogSpan { slot, offset, length: length & !LOGGED })
        };
        LeafEntry { key: SplitKey { prefix: self.prefix(), head, head_length, tail }, value }
    }

    /// The entries from a key on, in order.
    pub fn entries_from(&self, key: &[u8]) -> impl ExactSizeIterator<Item = LeafEntry<'_>> {
        (self.lower_bound(key)..self.count).map(|at| self.entry(at))
    }

    fn prefix(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..HEADER_BYTES + self.prefix_length]
    }

    fn item(&self, at: usize) -> &[u8] {
        &self.bytes[self.layout().items + at * ITEM_BYTES..][..ITEM_BYTES]
    }

    fn layout(&self) -> PageLayout {
        PageLayout::new(self.count, self.prefix_length)
    }
}

impl fmt::Debug for LeafPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafPage")
            .field("entries", &self.count)
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// Where the parts of a page begin.
struct PageLayout {
    prefix: usize,
    heads: usize,
    fingerprints: usize,
    items: usize,
    heap: usize,
}

impl PageLayout {
    #[inline]
    fn new(count: usize, prefix_length: usize) -> Self {
        let heads = HEADER_BYTES + prefix_length;
        let fingerprints = heads + count.saturating_mul(HEAD_BYTES);
        let items = fingerprints.saturating_add(count.saturating_mul(FINGERPRINT_BYTES));
        let heap = items.saturating_add(count.saturating_mul(ITEM_BYTES));
        Self { prefix: HEADER_BYTES, heads, fingerprints, items, heap }
    }
}

fn heap_offset(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a page is shorter than 4 GiB")
}

fn common_prefix<'a>(a: &'a [u8], b: &[u8]) -> &'a [u8] {
    &a[..a.iter().zip(b).take_while(|(a, b)| a == b).count()]
}

fn compare_split(a: &SplitKey<'_>, b: &SplitKey<'_>) -> Ordering {
    a.head().cmp(b.head()).then_with(|| a.tail.cmp(b.tail))
}

#[cfg(test)]
#[path = "leaf_page_test.rs"]
mod tests;
