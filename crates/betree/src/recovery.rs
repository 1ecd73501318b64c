//! Opening a store: its last checkpoint, and the changes that were logged after it.
//!
//! Changes are done again in the order of their numbers, up to the first number that is missing.
//! What the log has after that was never acknowledged. It must not be found later, when its numbers
//! are given again: so each log with records after the checkpoint goes on in a new segment, and
//! another checkpoint is made at once.

use crate::{
    catalog::{Catalog, DatabaseEntry, FoundSuperblock, Superblock, VERSION, empty_store},
    checkpoint::{CheckpointState, LastCheckpoint},
    database::DatabaseState,
    device::StoreDevice,
    leaf::{ChangedValue, Leaf, LeafChange},
    leaf_page::LeafPage,
    log::{LogSegment, LogShared, RedoLog, SegmentTable},
    log_record::{LogRecord, RecordKind},
    sequencer::Sequencer,
    space::{BLOCK_BYTES, FreeSpace, SpaceExtent},
    store::{Options, StoreCore},
    store_error::StoreError,
    stored_value::{LogSpan, StoredValue},
    tree::SeparatedLeaves,
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, path::Path, sync::Arc};
use xxhash_rust::xxh3::xxh3_64;

/// The blocks of the superblocks.
const SUPERBLOCKS: SpaceExtent = SpaceExtent { offset: 0, length: 2 * BLOCK_BYTES };

/// A change that the log has.
struct LoggedChange {
    sequence: u64,
    database: usize,
    kind: RecordKind,
    key: Box<[u8]>,
    segment: Arc<LogSegment>,
    span: LogSpan,
}

/// The log of a database after the checkpoint.
struct ReadLog {
    segment: Arc<LogSegment>,
    offset: usize,
    has_records: bool,
}

/// Opens the store in a device; an empty device becomes an empty store.
pub fn open(device: Arc<dyn StoreDevice>, path: &Path, options: Options) -> Result<StoreCore, StoreError> {
    let Some(superblock) = find_superblock(&*device, path)? else {
        let space = Mutex::new(FreeSpace::around([SUPERBLOCKS]));
        let log = LogShared { device, space, sequencer: Sequencer::after(0), segments: Arc::default() };
        log.device.reserve(SUPERBLOCKS.offset, SUPERBLOCKS.length)?;
        log.device.write(SUPERBLOCKS.offset, &empty_store())?;
        log.device.sync()?;
        let core = StoreCore::new(log, CheckpointState::after(LastCheckpoint::default()), options, 0);
        core.make_checkpoint()?;
        return Ok(core);
    };
    let catalog = read_catalog(&*device, &superblock)?;
    let segments = open_segments(&*device, &catalog)?;
    let mut log = LogShared { device, space: Mutex::default(), sequencer: Sequencer::after(0), segments };
    let (ends, changes) = read_logs(&log, &catalog)?;
    let changes = prefix(changes, catalog.sequence);
    let last = changes.last().map_or(catalog.sequence, |change| change.sequence);
    log.sequencer = Sequencer::after(last);
    *log.space.lock() = FreeSpace::around(used_space(&superblock, &catalog, &log.segments));
    let pages = catalog.pages.iter().map(|page| (page.number, page.extent)).collect();
    let leaves = catalog.databases.iter().map(|database| read_leaves(&log, database, &pages));
    let leaves = leaves.collect::<Result<Vec<_>, StoreError>>()?;
    let is_replayed = ends.iter().any(|end| end.has_records);
    let checkpoint = LastCheckpoint::at(superblock.generation, superblock.catalog, pages);
    let core = StoreCore::new(log, CheckpointState::after(checkpoint), options, catalog.last_page);
    let mut databases = Vec::new();
    for ((entry, leaves), end) in catalog.databases.iter().zip(leaves).zip(ends) {
        let log = if end.has_records { RedoLog::new(&core.log)? } else { RedoLog::at(end.segment, end.offset) };
        databases.push(Arc::new(DatabaseState::new(&entry.name, &leaves, log)));
    }
    for change in changes {
        let LoggedChange { sequence, database, kind, key, segment, span } = change;
        let value = ChangedValue::of(kind, segment.value(span), span);
        if let Some(ChangedValue::Logged(span)) = value {
            segment.add_live(span.length.into());
        }
        databases[database].replay(&core, LeafChange { sequence, key, value });
    }
    core.databases.write().extend(databases.into_iter().map(|state| (state.name.clone(), state)));
    if is_replayed {
        core.make_checkpoint()?;
    }
    Ok(core)
}

/// The superblock that counts; `None` if the device is empty, or a store that was not made to the
/// end. Other files may begin with zeros too, so a longer one that does is no store.
fn find_superblock(device: &dyn StoreDevice, path: &Path) -> Result<Option<Superblock>, StoreError> {
    let length = device.length()?;
    let mut blocks = vec![0; usize::try_from(length.min(SUPERBLOCKS.length)).expect("two blocks")];
    device.read(0, &mut blocks)?;
    let begins = blocks.strip_prefix(&*empty_store()).unwrap_or(&blocks);
    let is_begun = begins.len() < blocks.len() || length <= SUPERBLOCKS.length;
    if is_begun && begins.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    blocks.resize(usize::try_from(SUPERBLOCKS.length).expect("two blocks"), 0);
    let (first, second) = blocks.split_at(blocks.len() / 2);
    let mut best: Option<Superblock> = None;
    for block in [first, second] {
        match Superblock::decode(block) {
            FoundSuperblock::Whole(found) if best.is_none_or(|best| best.generation < found.generation) => {
                best = Some(found);
            }
            FoundSuperblock::Newer(found) => {
                return Err(StoreError::NewerFormat { path: path.into(), found, known: VERSION });
            }
            FoundSuperblock::Whole(_) | FoundSuperblock::None => {}
        }
    }
    best.map(Some).ok_or_else(|| StoreError::NoStore { path: path.into() })
}

fn read_catalog(device: &dyn StoreDevice, superblock: &Superblock) -> Result<Catalog, StoreError> {
    let damaged = || StoreError::Damaged { what: "the catalog".to_owned() };
    check_extent(device, superblock.catalog).ok_or_else(damaged)?;
    let mut bytes = vec![0; usize::try_from(superblock.catalog_length).map_err(|_| damaged())?];
    device.read(superblock.catalog.offset, &mut bytes)?;
    if xxh3_64(&bytes) != superblock.catalog_checksum {
        return Err(damaged());
    }
    Catalog::decode(&bytes).ok_or_else(damaged)
}

/// Checks that an extent lies within the device.
fn check_extent(device: &dyn StoreDevice, extent: SpaceExtent) -> Option<()> {
    let end = extent.offset.checked_add(extent.length)?;
    (end <= device.length().ok()?).then_some(())
}

fn open_segments(device: &dyn StoreDevice, catalog: &Catalog) -> Result<Arc<SegmentTable>, StoreError> {
    let segments = Arc::<SegmentTable>::default();
    segments.go_on_after(catalog.last_segment);
    for segment in &catalog.segments {
        let damaged = || StoreError::Damaged { what: format!("segment {} of the log", segment.number) };
        check_extent(device, segment.extent).ok_or_else(damaged)?;
        segments.restore(LogSegment::open(device, segment.slot, segment.number, segment.extent)?);
    }
    Ok(segments)
}

/// Reads the logs of all databases from the checkpoint on.
fn read_logs(log: &LogShared, catalog: &Catalog) -> Result<(Vec<ReadLog>, Vec<LoggedChange>), StoreError> {
    let (mut ends, mut changes) = (Vec::new(), Vec::new());
    for (database, entry) in catalog.databases.iter().enumerate() {
        let damaged = || StoreError::Damaged { what: format!("the log of database {:?}", entry.name) };
        let segment = log.segments.get(entry.log.slot).ok_or_else(damaged)?;
        let mut end = ReadLog { segment, offset: entry.log.offset as usize, has_records: false };
        while let Some(record) = end.segment.record(end.offset) {
            end.has_records = true;
            let LogRecord { sequence, kind, key, value } = record;
            if kind == RecordKind::Next {
                match log.open_next(value)? {
                    Some(next) => (end.segment, end.offset) = (next, 0),
                    None => break,
                }
                continue;
            }
            if sequence > catalog.sequence {
                let (key, span) = (key.into(), end.segment.span(end.offset, &record));
                changes.push(LoggedChange { sequence, database, kind, key, segment: end.segment.clone(), span });
            }
            end.offset += LogRecord::length(key.len(), value.len());
        }
        ends.push(end);
    }
    Ok((ends, changes))
}

/// The changes after a sequence number, in order, up to the first number that is missing.
fn prefix(mut changes: Vec<LoggedChange>, after: u64) -> Vec<LoggedChange> {
    changes.sort_by_key(|change| change.sequence);
    let numbers = (after + 1..).zip(&changes);
    let length = numbers.take_while(|(number, change)| change.sequence == *number).count();
    changes.truncate(length);
    changes
}

fn used_space(superblock: &Superblock, catalog: &Catalog, segments: &SegmentTable) -> Vec<SpaceExtent> {
    let mut used = vec![SUPERBLOCKS, superblock.catalog];
    used.extend(catalog.pages.iter().map(|page| page.extent));
    used.extend(segments.all().iter().map(|segment| segment.extent));
    used
}

/// Reads the leaves of a database.
fn read_leaves(
    log: &LogShared,
    database: &DatabaseEntry,
    pages: &BTreeMap<u32, SpaceExtent>,
) -> Result<SeparatedLeaves, StoreError> {
    let mut leaves = Vec::with_capacity(database.leaves.len());
    for (separator, number) in &database.leaves {
        let damaged =
            |why: String| StoreError::Damaged { what: format!("page {number} of {:?}: {why}", database.name) };
        let extent = *pages.get(number).ok_or_else(|| damaged("it is nowhere".to_owned()))?;
        check_extent(&*log.device, extent).ok_or_else(|| damaged("it lies outside".to_owned()))?;
        let mut bytes = vec![0; usize::try_from(extent.length).expect("within the device")];
        log.device.read(extent.offset, &mut bytes)?;
        let page = LeafPage::decode(&bytes).map_err(|error| damaged(error.to_string()))?;
        let leaf = Leaf::new(*number, page);
        for value in leaf.load().page_values() {
            if let StoredValue::Logged(span) = value {
                let segment = log.segments.get(span.slot).ok_or_else(|| damaged("a value is nowhere".to_owned()))?;
                segment.add_live(span.length.into());
            }
        }
        leaves.push((separator.clone(), Arc::new(leaf)));
    }
    if leaves.is_empty() {
        return Err(StoreError::Damaged { what: format!("database {:?}", database.name) });
    }
    Ok(leaves)
}
