//! The reply to READDIR: directory entries up to the requested size.

use crate::{
    encode::{self, ENTRY, FixedBuf},
    types::FuseEntry,
};

/// Length of the fields before each name: inode, offset, length of the name, type.
const BEFORE_NAME: usize = 24;
/// Alignment of entries.
const ALIGNMENT: usize = 8;

/// One entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct FuseDirent<'a> {
    /// The inode of the entry.
    pub inode: u64,
    /// The offset of the next entry: the `offset` of a `Readdir` that continues the listing.
    pub next: u64,
    /// The inode's mode; only its type is used.
    pub mode: u32,
    /// The name.
    pub name: &'a [u8],
}

/// A directory listing, limited to the requested size.
#[derive(Debug)]
pub struct Listing {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Listing {
    /// Creates an empty listing; `size` is that of the `Readdir`. An empty reply ends the
    /// directory.
    pub fn new(size: u32) -> Self {
        Self { bytes: Vec::new(), bytes_max: size as usize }
    }

    /// Adds an entry to a plain listing. Returns false, without adding it, if it does not fit.
    #[must_use]
    pub fn push(&mut self, name: FuseDirent<'_>) -> bool {
        self.add(&[], name)
    }

    /// Adds an entry to a `plus` listing. An entry counts as a lookup unless its inode is 0; the
    /// kernel looks that up itself.
    #[must_use]
    pub fn push_with_entry(&mut self, name: FuseDirent<'_>, entry: &FuseEntry) -> bool {
        self.add(&encode::entry(entry), name)
    }

    /// Returns true if this entry of a `plus` listing fits.
    pub fn has_room_with_entry(&self, name: &FuseDirent<'_>) -> bool {
        self.has_room(length(ENTRY, name))
    }

    /// Returns true if no entry was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The encoded entries.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn add(&mut self, before: &[u8], name: FuseDirent<'_>) -> bool {
        debug_assert!(before.is_empty() || before.len() == ENTRY, "an entry or none");
        let length = length(before.len(), &name);
        let Ok(name_length) = u32::try_from(name.name.len()) else { return false };
        if !self.has_room(length) {
            return false;
        }
        let end = self.bytes.len() + length;
        let head: [u8; BEFORE_NAME] =
            FixedBuf::new().u64(name.inode).u64(name.next).u32(name_length).u32((name.mode & 0o170_000) >> 12).finish();
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(name.name);
        self.bytes.resize(end, 0);
        true
    }

    fn has_room(&self, length: usize) -> bool {
        self.bytes.len() + length <= self.bytes_max
    }
}

/// Length of an entry with `before` bytes before its head.
fn length(before: usize, name: &FuseDirent<'_>) -> usize {
    (before + BEFORE_NAME + name.name.len()).next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: FuseDirent<'_> = FuseDirent { inode: 7, next: 9, mode: 0o100_644, name: b"abc" };

    #[test]
    fn entries_are_padded_to_eight_bytes_and_carry_the_type() {
        let mut listing = Listing::new(64);
        assert!(listing.push(NAME));
        let mut expected = [7u64.to_ne_bytes(), 9u64.to_ne_bytes()].concat();
        expected.extend([3u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat());
        expected.extend(b"abc\0\0\0\0\0");
        assert_eq!(listing.bytes(), expected);
    }

    #[test]
    fn what_does_not_fit_is_not_added() {
        let mut listing = Listing::new(63);
        assert!(listing.push(NAME));
        assert!(!listing.push(NAME));
        assert_eq!(listing.bytes().len(), 32);
        assert!(!Listing::new(159).push_with_entry(NAME, &FuseEntry::default()));
        assert!(Listing::new(160).push_with_entry(NAME, &FuseEntry::default()));
        assert!(!Listing::new(159).has_room_with_entry(&NAME) && Listing::new(160).has_room_with_entry(&NAME));
    }
}
