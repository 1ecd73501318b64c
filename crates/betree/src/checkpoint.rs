//! Checkpoints: all databases as of a sequence number, on the device.
//!
//! ```text
//!   choose     nobody merges: the number, the sequence, the leaves, the ends of the logs
//!   image      each leaf that has changed: by the checkpoint, or by a writer that merges it before
//!   write      images and the catalog to free space, sync, superblock, sync
//!   free       what the checkpoint before had, and segments whose values nobody has any more
//! ```

use crate::{
    catalog::{Catalog, DatabaseEntry, PageEntry, SegmentEntry, Superblock},
    database::DatabaseState,
    leaf_page::LeafPage,
    log::{LogPlace, LogSegment},
    space::SpaceExtent,
    store::StoreCore,
    store_error::StoreError,
    tree::SeparatedLeaves,
};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::{collections::BTreeMap, io, mem, sync::Arc};
use xxhash_rust::xxh3::xxh3_64;

/// Epochs after which no reader may look for what was retired.
const EPOCHS: usize = 3;

/// The checkpoints of a store.
#[derive(Debug)]
pub struct CheckpointState {
    chosen: ArcSwapOption<ChosenCheckpoint>,
    images: Mutex<Vec<(u32, LeafPage)>>,
    /// Held while a checkpoint is made.
    last: Mutex<LastCheckpoint>,
}

/// A checkpoint that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenCheckpoint {
    pub number: u64,
    pub sequence: u64,
}

/// The checkpoint on the device, and what the next one needs.
#[derive(Debug, Default)]
pub struct LastCheckpoint {
    generation: u64,
    /// The number of the last checkpoint that was begun.
    attempts: u64,
    catalog: Option<SpaceExtent>,
    /// Where pages are, by their numbers.
    pages: BTreeMap<u32, SpaceExtent>,
    /// Images that were made for a checkpoint that could not be written.
    unwritten: BTreeMap<u32, LeafPage>,
    /// Segments that nobody uses, which readers may still have.
    retired: Vec<Arc<LogSegment>>,
}

/// The state of which a checkpoint is made.
struct ChosenState {
    chosen: ChosenCheckpoint,
    last_segment: u64,
    databases: Vec<(Arc<DatabaseState>, LogPlace, SeparatedLeaves)>,
    segments: Vec<Arc<LogSegment>>,
    dead: Vec<Arc<LogSegment>>,
}

impl LastCheckpoint {
    /// The checkpoint that was read.
    pub fn at(generation: u64, catalog: SpaceExtent, pages: BTreeMap<u32, SpaceExtent>) -> Self {
        Self { generation, catalog: Some(catalog), pages, ..Self::default() }
    }
}

impl CheckpointState {
    /// Goes on after the last checkpoint.
    pub fn after(last: LastCheckpoint) -> Self {
        Self { chosen: ArcSwapOption::empty(), images: Mutex::default(), last: Mutex::new(last) }
    }

    /// The checkpoint that is being made.
    pub fn chosen(&self) -> Option<Arc<ChosenCheckpoint>> {
        self.chosen.load_full()
    }

    /// Adds an image of a leaf.
    pub fn add_image(&self, number: u32, image: LeafPage) {
        self.images.lock().push((number, image));
    }
}

impl StoreCore {
    /// Makes a checkpoint.
    pub fn make_checkpoint(&self) -> Result<(), StoreError> {
        let mut last = self.checkpoint.last.lock();
        self.check_writable()?;
        last.attempts = last.attempts.max(last.generation) + 1;
        let state = self.choose(last.attempts);
        self.log.sequencer.wait_for(state.chosen.sequence);
        for (_, _, leaves) in &state.databases {
            for (_, leaf) in leaves {
                let mut latch = leaf.latch();
                if latch.imaged < state.chosen.number {
                    let now = leaf.load();
                    self.image_before_merge(leaf, &now, &mut latch);
                    latch.is_changed = !now.is_as_of(state.chosen.sequence);
                }
            }
        }
        self.checkpoint.chosen.store(None);
        let images = mem::take(&mut *self.checkpoint.images.lock());
        last.unwritten.extend(images);
        self.write_checkpoint(&mut last, &state)
    }

    /// Chooses the state of the next checkpoint.
    fn choose(&self, number: u64) -> ChosenState {
        let _alone = self.merge_gate.write();
        let databases: Vec<_> = self.databases.read().values().cloned().collect();
        // Before the ends of the logs: a later segment is found by the records that lead to it.
        let last_segment = self.log.segments.last_number();
        // Before the sequence number: what is before the ends has smaller ones.
        let databases: Vec<_> = databases
            .into_iter()
            .map(|database| (database.clone(), database.log.end(), database.tree.leaves()))
            .collect();
        let chosen = ChosenCheckpoint { number, sequence: self.log.sequencer.last() };
        self.checkpoint.chosen.store(Some(Arc::new(chosen)));
        let is_written = |segment: &LogSegment| databases.iter().any(|(_, end, _)| end.slot == segment.slot);
        let mut segments = self.log.segments.all();
        segments.retain(|segment| segment.number <= last_segment && !segment.is_retired());
        let (dead, segments) = segments.into_iter().partition(|known| known.live() == 0 && !is_written(known));
        ChosenState { chosen, last_segment, databases, segments, dead }
    }

    fn write_checkpoint(&self, last: &mut LastCheckpoint, state: &ChosenState) -> Result<(), StoreError> {
        let mut taken = Vec::new();
        let written = self.write_parts(last, state, &mut taken);
        let superblock = match written {
            Ok(superblock) => superblock,
            Err(error) => {
                // Nothing reaches it.
                for (_, extent) in taken {
                    self.log.space.lock().give_back(extent);
                }
                self.note_failure(&error);
                return Err(error.into());
            }
        };
        let device = &self.log.device;
        let turned = device.write(Superblock::offset(superblock.generation), &superblock.encode());
        // Until it is known whether it is there, both checkpoints stay.
        turned.and_then(|()| device.sync()).inspect_err(|error| self.note_failure(error))?;
        let mut space = self.log.space.lock();
        for (number, extent) in taken {
            let before = match number {
                Some(number) => last.pages.insert(number, extent),
                None => last.catalog.replace(extent),
            };
            if let Some(before) = before {
                space.give_back(before);
            }
        }
        last.generation = superblock.generation;
        last.unwritten.clear();
        drop(space);
        self.retire(last, &state.dead);
        Ok(())
    }

    /// Writes the images and the catalog. `taken` gets the space of each, the pages with their
    /// numbers.
    fn write_parts(
        &self,
        last: &LastCheckpoint,
        state: &ChosenState,
        taken: &mut Vec<(Option<u32>, SpaceExtent)>,
    ) -> io::Result<Superblock> {
        let device = &self.log.device;
        let mut write = |number: Option<u32>, bytes: &[u8]| {
            let extent = self.log.space.lock().take(bytes.len() as u64);
            taken.push((number, extent));
            device.reserve(extent.offset, extent.length)?;
            device.write(extent.offset, bytes)?;
            io::Result::Ok(extent)
        };
        let mut pages = last.pages.clone();
        for (number, image) in &last.unwritten {
            pages.insert(*number, write(Some(*number), image.as_bytes())?);
        }
        let catalog = self.catalog(state, &pages).encode();
        let extent = write(None, &catalog)?;
        device.sync()?;
        Ok(Superblock {
            generation: last.generation + 1,
            catalog: extent,
            catalog_length: catalog.len() as u64,
            catalog_checksum: xxh3_64(&catalog),
        })
    }

    fn catalog(&self, state: &ChosenState, pages: &BTreeMap<u32, SpaceExtent>) -> Catalog {
        let databases = state.databases.iter().map(|(database, log, leaves)| DatabaseEntry {
            name: database.name.clone(),
            log: *log,
            leaves: leaves.iter().map(|(separator, leaf)| (separator.clone(), leaf.number())).collect(),
        });
        let segments = state.segments.iter().map(|segment| SegmentEntry {
            slot: segment.slot,
            number: segment.number,
            extent: segment.extent,
        });
        Catalog {
            sequence: state.chosen.sequence,
            last_segment: state.last_segment,
            last_page: self.last_page(),
            segments: segments.collect(),
            databases: databases.collect(),
            pages: pages.iter().map(|(number, extent)| PageEntry { number: *number, extent: *extent }).collect(),
        }
    }

    /// Gives segments back that the checkpoint does not reach, as soon as no reader has them.
    fn retire(&self, last: &mut LastCheckpoint, dead: &[Arc<LogSegment>]) {
        for segment in dead {
            last.retired.push(segment.clone());
            segment.retire(&self.log.segments);
        }
        // Those that were retired before are forgotten now, unless a reader is slow.
        (0..EPOCHS).for_each(|_| crossbeam_epoch::pin().flush());
        let is_free = |segment: &mut Arc<LogSegment>| Arc::get_mut(segment).is_some();
        for segment in last.retired.extract_if(.., is_free) {
            let extent = segment.extent;
            drop(segment);
            // What cannot be given back to the system is used again all the same.
            drop(self.log.device.discard(extent.offset, extent.length));
            self.log.space.lock().give_back(extent);
        }
    }
}
