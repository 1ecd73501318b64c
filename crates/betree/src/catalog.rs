//! The parts of a checkpoint beside the pages: the catalog, and the superblocks that lead to it.
//!
//! ```text
//!   block 0, block 1: superblocks, written in turn; of whole ones the higher generation counts
//!   catalog: sequence number, segments, and for each database: name, end of its log, leaves
//! ```

use crate::{
    bytes_at::{u16_at, u32_at, u64_at},
    log::LogPlace,
    space::{BLOCK_BYTES, SpaceExtent},
};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"tm-betre";
/// The version of the format.
pub const VERSION: u32 = 1;
const SUPERBLOCK_LENGTH: usize = 56;

/// Where the last checkpoint of a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The number of the checkpoint.
    pub generation: u64,
    pub catalog: SpaceExtent,
    /// Length of the catalog without what fills its last block.
    pub catalog_length: u64,
    pub catalog_checksum: u64,
}

/// The content of a block at the place of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundSuperblock {
    /// A whole one.
    Whole(Superblock),
    /// One of a newer format.
    Newer(u32),
    /// Something else, or a damaged one.
    None,
}

/// The first block of a store until its first checkpoint is there.
pub fn empty_store() -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes()].concat()
}

impl Superblock {
    /// The offset of the block of a generation.
    pub fn offset(generation: u64) -> u64 {
        generation % 2 * BLOCK_BYTES
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SUPERBLOCK_LENGTH);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let Self { generation, catalog, catalog_length, catalog_checksum } = *self;
        debug_assert_eq!(catalog.length, catalog_length.max(1).next_multiple_of(BLOCK_BYTES));
        for number in [generation, catalog.offset, catalog_length, catalog_checksum] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// Takes a block that was read.
    pub fn decode(block: &[u8]) -> FoundSuperblock {
        let Some(bytes) = block.get(..SUPERBLOCK_LENGTH).filter(|bytes| bytes[..8] == *MAGIC) else {
            return FoundSuperblock::None;
        };
        let version = u32_at(bytes, 8);
        if version > VERSION {
            return FoundSuperblock::Newer(version);
        }
        let (covered, checksum) = bytes.split_at(SUPERBLOCK_LENGTH - 8);
        if xxh3_64(covered) != u64_at(checksum, 0) {
            return FoundSuperblock::None;
        }
        let [generation, offset, catalog_length, catalog_checksum] = [16, 24, 32, 40].map(|at| u64_at(bytes, at));
        let length = catalog_length.max(1).next_multiple_of(BLOCK_BYTES);
        let catalog = SpaceExtent { offset, length };
        FoundSuperblock::Whole(Self { generation, catalog, catalog_length, catalog_checksum })
    }
}

/// The content of a checkpoint, but for the pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// All changes up to this one are in the pages.
    pub sequence: u64,
    /// The last number that a segment of the log got.
    pub last_segment: u64,
    /// The last number that a page got.
    pub last_page: u32,
    pub segments: Vec<SegmentEntry>,
    pub databases: Vec<DatabaseEntry>,
    /// Where pages are, by their numbers.
    pub pages: Vec<PageEntry>,
}

/// A segment of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    pub slot: u32,
    pub number: u64,
    pub extent: SpaceExtent,
}

/// A database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseEntry {
    pub name: Box<str>,
    /// Where its log goes on after the checkpoint.
    pub log: LogPlace,
    /// The separators and the pages of its leaves, in order.
    pub leaves: Vec<(Box<[u8]>, u32)>,
}

/// A page that is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEntry {
    pub number: u32,
    pub extent: SpaceExtent,
}

impl Catalog {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(Vec::new());
        out.u64(self.sequence);
        out.u64(self.last_segment);
        out.u32(self.last_page);
        out.count(self.segments.len());
        for SegmentEntry { slot, number, extent } in &self.segments {
            out.u32(*slot);
            out.u64(*number);
            out.extent(*extent);
        }
        out.count(self.databases.len());
        for DatabaseEntry { name, log, leaves } in &self.databases {
            out.bytes(name.as_bytes());
            out.u32(log.slot);
            out.u32(log.offset);
            out.count(leaves.len());
            for (separator, page) in leaves {
                out.bytes(separator);
                out.u32(*page);
            }
        }
        out.count(self.pages.len());
        for PageEntry { number, extent } in &self.pages {
            out.u32(*number);
            out.extent(*extent);
        }
        out.0
    }

    /// Takes bytes that were read; `None` if they are no catalog.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Decoder(bytes);
        let (sequence, last_segment, last_page) = (from.u64()?, from.u64()?, from.u32()?);
        let segments =
            from.list(|from| Some(SegmentEntry { slot: from.u32()?, number: from.u64()?, extent: from.extent()? }))?;
        let databases = from.list(|from| {
            let name = std::str::from_utf8(from.bytes()?).ok()?.into();
            let log = LogPlace { slot: from.u32()?, offset: from.u32()? };
            let leaves = from.list(|from| Some((from.bytes()?.into(), from.u32()?)))?;
            Some(DatabaseEntry { name, log, leaves })
        })?;
        let pages = from.list(|from| Some(PageEntry { number: from.u32()?, extent: from.extent()? }))?;
        from.0.is_empty().then_some(Self { sequence, last_segment, last_page, segments, databases, pages })
    }
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("fewer than 4 Gi"));
    }

    fn extent(&mut self, SpaceExtent { offset, length }: SpaceExtent) {
        self.u64(offset);
        self.u64(length);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let length = u16::try_from(bytes.len()).expect("names and keys are shorter than 64 KiB");
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(bytes);
    }
}

struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32_at(self.take(4)?, 0))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64_at(self.take(8)?, 0))
    }

    fn extent(&mut self) -> Option<SpaceExtent> {
        let extent = SpaceExtent { offset: self.u64()?, length: self.u64()? };
        extent.offset.checked_add(extent.length).map(|_| extent)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = u16_at(self.take(2)?, 0);
        self.take(length.into())
    }

    fn list<T>(&mut self, each: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()?;
        (0..count).map(|_| each(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::Random;

    fn catalog(random: &mut Random) -> Catalog {
        let extent = |random: &mut Random| SpaceExtent { offset: random.below(1 << 40), length: random.below(1 << 30) };
        let leaves = |random: &mut Random| {
            let key = |random: &mut Random| {
                let length = random.below(30_usize);
                random.bytes(length).into()
            };
            (0..random.below(9)).map(|_| (key(random), random.below(u32::MAX))).collect()
        };
        let databases = (0..random.below(4)).map(|number| DatabaseEntry {
            name: format!("database {number}").into(),
            log: LogPlace { slot: random.below(9), offset: random.below(1 << 20) },
            leaves: leaves(random),
        });
        Catalog {
            databases: databases.collect(),
            sequence: random.next_u64(),
            last_segment: random.next_u64(),
            last_page: random.below(u32::MAX),
            segments: (0..random.below(5))
                .map(|slot| SegmentEntry { slot, number: random.next_u64(), extent: extent(random) })
                .collect(),
            pages: (0..random.below(20)).map(|number| PageEntry { number, extent: extent(random) }).collect(),
        }
    }

    #[test]
    fn a_catalog_is_read_as_it_was_written_and_none_is_read_from_a_part_of_it() {
        let mut random = Random::new(1);
        for _ in 0..200 {
            let catalog = catalog(&mut random);
            let bytes = catalog.encode();
            assert_eq!(Catalog::decode(&bytes).as_ref(), Some(&catalog));
            assert_eq!(Catalog::decode(&bytes[..random.below(bytes.len())]), None);
        }
    }

    #[test]
    fn a_superblock_is_whole_or_none() {
        let catalog = SpaceExtent { offset: 1 << 20, length: 2 * BLOCK_BYTES };
        let written = Superblock { generation: 7, catalog, catalog_length: 5000, catalog_checksum: 99 };
        let mut block = written.encode();
        block.resize(4096, 0);
        assert_eq!(Superblock::decode(&block), FoundSuperblock::Whole(written));
        for at in 16..SUPERBLOCK_LENGTH {
            let mut damaged = block.clone();
            damaged[at] ^= 4;
            assert_eq!(Superblock::decode(&damaged), FoundSuperblock::None, "byte {at}");
        }
        block[8] = 2;
        assert_eq!(Superblock::decode(&block), FoundSuperblock::Newer(2));
        assert_eq!(Superblock::decode(&[0; 4096]), FoundSuperblock::None);
    }
}
