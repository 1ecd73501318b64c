//! The space of a device: which parts are free.
//!
//! What a checkpoint on the device reaches must not be overwritten before a later one is there. So
//! space is given back when that is so.

use std::collections::BTreeMap;

/// The unit of space: what devices write at once.
pub const BLOCK_BYTES: u64 = 4096;

/// A part of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceExtent {
    pub offset: u64,
    pub length: u64,
}

impl SpaceExtent {
    pub fn end(self) -> u64 {
        self.offset + self.length
    }
}

/// The free parts of a device, and its end.
#[derive(Debug, Default)]
pub struct FreeSpace {
    /// Free parts before the end, which do not touch one another: offset and length.
    free: BTreeMap<u64, u64>,
    end: u64,
}

impl FreeSpace {
    /// The space of a device of which these parts are used.
    pub fn around(used: impl IntoIterator<Item = SpaceExtent>) -> Self {
        let mut used: Vec<_> = used.into_iter().collect();
        used.sort_unstable();
        let mut space = Self::default();
        for SpaceExtent { offset, length } in used {
            if offset > space.end {
                space.free.insert(space.end, offset - space.end);
            }
            space.end = space.end.max(offset + length);
        }
        space
    }

    /// The length that the device needs.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The number of bytes before the end that are free now.
    pub fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    /// Takes whole blocks for this number of bytes: the first free part that is long enough, else
    /// new space at the end.
    pub fn take(&mut self, bytes: u64) -> SpaceExtent {
        let length = bytes.max(1).next_multiple_of(BLOCK_BYTES);
        let found = self.free.iter().find(|(_, free)| **free >= length).map(|(offset, free)| (*offset, *free));
        let Some((offset, free)) = found else {
            // The last free part may reach the end.
            let offset = self.free.last_key_value().filter(|(at, free)| *at + *free == self.end).map(|(at, _)| *at);
            let offset = offset.unwrap_or(self.end);
            self.free.remove(&offset);
            self.end = offset + length;
            return SpaceExtent { offset, length };
        };
        self.free.remove(&offset);
        if free > length {
            self.free.insert(offset + length, free - length);
        }
        SpaceExtent { offset, length }
    }

    /// Gives a part back that no checkpoint on the device reaches, nor one that is being made.
    pub fn give_back(&mut self, extent: SpaceExtent) {
        let SpaceExtent { mut offset, mut length } = extent;
        if let Some((before, free)) = self.free.range(..offset).next_back().map(|(at, free)| (*at, *free))
            && before + free == offset
        {
            (offset, length) = (before, length + free);
        }
        if let Some(after) = self.free.remove(&extent.end()) {
            length += after;
        }
        self.free.insert(offset, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::Random;

    const BLOCKS: u64 = 300;

    #[test]
    fn no_part_is_given_twice_and_what_is_free_is_used_before_the_device_grows() {
        let mut random = Random::new(1);
        for _ in 0..50 {
            let (mut space, mut taken, mut most) = (FreeSpace::default(), Vec::<SpaceExtent>::new(), 0);
            for _ in 0..400 {
                if random.one_in(2) && !taken.is_empty() {
                    space.give_back(taken.swap_remove(random.below(taken.len())));
                } else if space.end() < BLOCKS * BLOCK_BYTES {
                    let extent = space.take(1 + random.below(5 * BLOCK_BYTES));
                    let overlaps = |other: &SpaceExtent| other.offset < extent.end() && extent.offset < other.end();
                    assert!(!taken.iter().any(overlaps), "{extent:?} of {taken:?}");
                    taken.push(extent);
                }
                let used: u64 = taken.iter().map(|extent| extent.length).sum();
                most = most.max(used);
                assert_eq!(space.free_bytes() + used, space.end());
            }
            assert!(space.end() <= 3 * most, "{} for {most}", space.end());
            taken.drain(..).for_each(|extent| space.give_back(extent));
            let whole = space.end();
            assert_eq!(space.take(whole), SpaceExtent { offset: 0, length: whole }, "free parts join");
        }
    }

    #[test]
    fn space_around_what_is_used_is_free() {
        let used = [(4, 2), (1, 1), (8, 1)]
            .map(|(at, blocks)| SpaceExtent { offset: at * BLOCK_BYTES, length: blocks * BLOCK_BYTES });
        let mut space = FreeSpace::around(used);
        assert_eq!((space.end(), space.free_bytes()), (9 * BLOCK_BYTES, 5 * BLOCK_BYTES));
        assert_eq!(space.take(2 * BLOCK_BYTES).offset, 2 * BLOCK_BYTES);
        assert_eq!(space.take(2 * BLOCK_BYTES).offset, 6 * BLOCK_BYTES);
        assert_eq!(space.take(2).offset, 0);
        assert_eq!(space.take(2).offset, 9 * BLOCK_BYTES);
    }
}
