//! Write segments: shared memory that one client process writes; filled blocks become stripes
//! without a copy.
//!
//! A write segment has a file beside the arena's own and its own pages in the ledger. Its empty
//! blocks are *offered* in its table. An offered block counts as allocated, but a request that
//! needs space takes it back. A block that its writer has filled stays registered until a write of
//! exactly these bytes makes it the block of a stripe.
//!
//! The blocks of a write segment are offered to its own writer only, so a late store by that writer
//! cannot hit bytes of others. The segment closes when its writer is gone: its free memory goes
//! back to the system, and its file is closed with the last block.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use store::{OFFER_SLOTS, OFFER_TABLE_BYTES, OfferTable, SegmentPosition, WriteSegment};

use crate::backing::{FILES, Mapped};
use crate::block::{Block, BlockPool, order_bytes};
use crate::buddy::{BlockRange, Buddy, PageNo};
use crate::extent_quota::Quota;
use crate::ledger::Ledger;
use crate::recv_buffer::RecvQuota;

/// Address space per byte of capacity, so that full-size blocks fit beside blocks that were cut.
const ADDRESS_FACTOR: u64 = 2;
/// Maximum length of a write segment in bytes, which takes address space in every process that maps
/// it. A writer that has filled its segment sends bytes over the socket.
const SEGMENT_BYTES_MAX: u64 = 64 << 30;
/// Maximum number of write segments: at full length they take an eighth of a process's address
/// space. Further writers send bytes over the socket.
const SEGMENTS_MAX: usize = 256;
/// The inverse of the share of free space that is offered to all writers together, so that others
/// rarely have to take it back.
const OFFER_PART: u64 = 8;

/// The memory of a write segment.
pub struct SegmentMemory {
    /// Its number among the segments.
    pub number: u32,
    pub mapped: Mapped,
    table: OfferTable,
}

/// All write segments of an arena, except for their pages.
pub struct WriteSegments {
    by_start: RwLock<BTreeMap<usize, Arc<SegmentMemory>>>,
    next: AtomicU32,
    closed: AtomicU64,
    /// Filled blocks by mapped address, each with the length of its bytes.
    filled: Mutex<HashMap<usize, (usize, Block)>>,
    /// Number of filled blocks, to be read without the lock.
    filled_count: AtomicUsize,
}

/// Blocks offered to writers. Stored with the ledger, behind its lock.
#[derive(Default)]
pub struct BlockOffers {
    segments: BTreeMap<u32, SegmentOffers>,
    bytes: u64,
}

/// Blocks offered in one write segment, by slot.
struct SegmentOffers {
    memory: Arc<SegmentMemory>,
    slots: [Option<BlockRange>; OFFER_SLOTS as usize],
    /// First page behind the block that was offered last.
    next: PageNo,
}

impl SegmentMemory {
    fn block_index(range: BlockRange) -> u32 {
        range.first >> range.order
    }
}

impl WriteSegments {
    /// An empty set of write segments.
    pub fn new() -> Self {
        let first = u32::try_from(FILES).expect("a few");
        Self {
            by_start: RwLock::default(),
            next: AtomicU32::new(first),
            closed: AtomicU64::new(0),
            filled: Mutex::default(),
            filled_count: AtomicUsize::new(0),
        }
    }

    /// Number of write segments that were closed and removed.
    pub fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// Bytes that the system holds for the write segments.
    pub fn resident(&self) -> io::Result<u64> {
        self.by_start.read().values().map(|memory| memory.mapped.resident()).sum()
    }

    /// Location of these bytes; `None` if they are in no write segment.
    pub fn locate(&self, bytes: &[u8]) -> Option<SegmentPosition> {
        let segments = self.by_start.read();
        let (_, memory) = segments.range(..=bytes.as_ptr().addr()).next_back()?;
        let offset = memory.mapped.find(bytes)?;
        Some(SegmentPosition { segment: memory.number, offset: offset as u64 })
    }

    /// Returns true if these bytes are exactly those of a filled block.
    pub fn has_filled(&self, bytes: &[u8]) -> bool {
        let is_filled =
            || self.filled.lock().get(&bytes.as_ptr().addr()).is_some_and(|(length, _)| *length == bytes.len());
        self.filled_count.load(Ordering::Relaxed) > 0 && is_filled()
    }

    /// Takes the filled block that holds exactly these bytes; the caller owns it from now on.
    pub fn adopt(&self, bytes: &[u8]) -> Option<Block> {
        self.has_filled(bytes).then(|| self.remove_filled(bytes.as_ptr().addr())).flatten()
    }

    fn remove_filled(&self, at: usize) -> Option<Block> {
        let (_, block) = self.filled.lock().remove(&at)?;
        self.filled_count.fetch_sub(1, Ordering::Relaxed);
        Some(block)
    }

    fn insert_filled(&self, at: usize, length: usize, block: Block) {
        self.filled_count.fetch_add(1, Ordering::Relaxed);
        let before = self.filled.lock().insert(at, (length, block));
        debug_assert!(before.is_none(), "a block is registered as filled once");
    }
}

impl BlockOffers {
    /// Bytes of all offered blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The memory of a write segment.
    pub fn memory(&self, number: u32) -> Option<&Arc<SegmentMemory>> {
        self.segments.get(&number).map(|offers| &offers.memory)
    }

    /// Takes back one offered block. Returns false if writers have claimed all that are left.
    pub fn revoke_one(&mut self, ledger: &mut Ledger) -> bool {
        let revoked = self.segments.iter_mut().find_map(|(number, SegmentOffers { memory, slots, .. })| {
            let revoke = |(slot, range): &(u32, &mut Option<BlockRange>)| {
                range.is_some_and(|range| memory.table.revoke(*slot, SegmentMemory::block_index(range)))
            };
            let (_, range) = (0..).zip(slots.iter_mut()).find(revoke)?;
            Some((*number, range.take()?))
        });
        let Some((number, range)) = revoked else { return false };
        self.bytes -= u64::from(order_bytes(range.order));
        ledger.free(number, range.into());
        true
    }

    /// Takes back all blocks of a segment, claimed or not, because its writer is gone.
    fn revoke_all(&mut self, ledger: &mut Ledger, number: u32) {
        let Some(SegmentOffers { memory, slots, .. }) = self.segments.get_mut(&number) else { return };
        for (slot, range) in (0..).zip(slots) {
            if let Some(range) = range.take() {
                memory.table.revoke(slot, SegmentMemory::block_index(range));
                self.bytes -= u64::from(order_bytes(range.order));
                ledger.free(number, range.into());
            }
        }
    }
}

/// The handle of a write segment, owned as long as its writer is connected.
pub struct WriterHandle {
    pool: Arc<BlockPool>,
    memory: Arc<SegmentMemory>,
    top: u8,
}

impl WriterHandle {
    /// Creates a write segment with blocks of order `top`.
    pub fn new(pool: &Arc<BlockPool>, top: u8) -> io::Result<Self> {
        if pool.write_segments.by_start.read().len() >= SEGMENTS_MAX {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the maximum number of write segments exists"));
        }
        pool.reserve(OFFER_TABLE_BYTES).map_err(|_| io::ErrorKind::StorageFull)?;
        let created = create_segment(pool, top);
        if created.is_err() {
            pool.release(OFFER_TABLE_BYTES);
        }
        Ok(Self { pool: pool.clone(), memory: created?, top })
    }

    /// Blocks that may be offered in addition to `offered` bytes.
    fn blocks_allowed(&self, quota: &Quota, offered: u64) -> u64 {
        (quota.free(offered) / OFFER_PART).saturating_sub(offered) / u64::from(order_bytes(self.top))
    }
}

fn create_segment(pool: &Arc<BlockPool>, top: u8) -> io::Result<Arc<SegmentMemory>> {
    let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
    let block_bytes = u64::from(order_bytes(top));
    let wanted = pool.account().0.saturating_mul(ADDRESS_FACTOR).min(SEGMENT_BYTES_MAX);
    let blocks = u32::try_from(wanted.div_ceil(block_bytes)).map_err(too_large)?;
    let length = u64::from(blocks) * block_bytes;
    let mapped = pool.backing().create_file(usize::try_from(length + OFFER_TABLE_BYTES).map_err(too_large)?)?;
    let table = OfferTable::map(mapped.file(), length)?;
    let number = pool.write_segments.next.fetch_add(1, Ordering::Relaxed);
    let memory = Arc::new(SegmentMemory { number, mapped, table });
    pool.write_segments.by_start.write().insert(memory.mapped.start(), memory.clone());
    let mut state = pool.lock_state();
    state.ledger.open_segment(number, Buddy::new(blocks, top));
    let offers = SegmentOffers { memory: memory.clone(), slots: [None; OFFER_SLOTS as usize], next: 0 };
    state.offers.segments.insert(number, offers);
    Ok(memory)
}

impl BlockPool {
    /// Registers a block as filled with `length` bytes and returns these. `quota` keeps them
    /// counted as received while they exist.
    pub fn register_filled(self: &Arc<Self>, mut block: Block, length: u32, quota: Option<RecvQuota>) -> Bytes {
        let view = block.view(0, length);
        self.write_segments.insert_filled(view.as_ptr().addr(), view.len(), block);
        Bytes::from_owner(FilledBlock { pool: self.clone(), view, _quota: quota })
    }

    /// Removes a write segment that has no block left and whose writer is gone.
    pub fn remove_segment(&self, number: u32) {
        let ended = self.lock_state().offers.segments.remove(&number);
        let Some(SegmentOffers { memory, .. }) = ended else { return };
        self.write_segments.by_start.write().remove(&memory.mapped.start());
        self.write_segments.closed.fetch_add(1, Ordering::Relaxed);
        self.release(OFFER_TABLE_BYTES);
    }
}

impl WriteSegment for WriterHandle {
    fn segment(&self) -> u32 {
        self.memory.number
    }

    fn length(&self) -> u64 {
        self.memory.mapped.bytes() - OFFER_TABLE_BYTES
    }

    fn block_bytes(&self) -> u32 {
        order_bytes(self.top)
    }

    fn open(&self) -> io::Result<OwnedFd> {
        self.memory.mapped.reopen(true)
    }

    fn offer(&self, blocks: u32) {
        let mut guard = self.pool.lock_state();
        let state = &mut *guard;
        let Some(SegmentOffers { slots, next, .. }) = state.offers.segments.get_mut(&self.memory.number) else {
            return;
        };
        let offered_now = slots.iter().flatten().count();
        let missing = (blocks.min(OFFER_SLOTS) as usize).saturating_sub(offered_now);
        if missing == 0 {
            return;
        }
        let allowed = self.blocks_allowed(&self.pool.quota(&state.ledger), state.offers.bytes);
        let missing = missing.min(usize::try_from(allowed).unwrap_or(usize::MAX));
        let block_bytes = u64::from(order_bytes(self.top));
        let mut fresh = Vec::with_capacity(missing);
        for (slot, place) in (0..).zip(slots).filter(|(_, place)| place.is_none()).take(missing) {
            self.pool.reclaim_quota(&mut state.ledger, block_bytes);
            let Ok(range) = state.ledger.allocate_in_row(self.memory.number, self.top, *next) else { break };
            *place = Some(range);
            *next = range.first + (1 << self.top);
            state.offers.bytes += block_bytes;
            fresh.push((slot, range));
        }
        // Excess memory is given back before these blocks are offered. A block that was taken back
        // meanwhile is not offered.
        self.pool.settle(guard);
        let state = self.pool.lock_state();
        let Some(SegmentOffers { slots, .. }) = state.offers.segments.get(&self.memory.number) else { return };
        for (slot, range) in fresh {
            if slots[slot as usize] == Some(range) {
                self.memory.table.offer(slot, SegmentMemory::block_index(range));
            }
        }
    }

    fn take(&self, slot: u32, length: u32) -> Option<Bytes> {
        let mut state = self.pool.lock_state();
        let SegmentOffers { slots, .. } = state.offers.segments.get_mut(&self.memory.number)?;
        let place = slots.get_mut(slot as usize)?;
        let range = (*place)?;
        let fits = (1..=order_bytes(range.order)).contains(&length);
        if !fits || !self.memory.table.take(slot, SegmentMemory::block_index(range)) {
            return None;
        }
        *place = None;
        state.offers.bytes -= u64::from(order_bytes(range.order));
        self.pool.settle(state);
        let block = Block::new(&self.pool, Some(self.memory.clone()), range);
        Some(self.pool.register_filled(block, length, None))
    }
}

impl Drop for WriterHandle {
    fn drop(&mut self) {
        let mut guard = self.pool.lock_state();
        let state = &mut *guard;
        state.offers.revoke_all(&mut state.ledger, self.memory.number);
        let is_empty = state.ledger.close_segment(self.memory.number);
        self.pool.settle(guard);
        if is_empty {
            self.pool.remove_segment(self.memory.number);
        }
        self.pool.notify();
    }
}

impl fmt::Debug for WriterHandle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("WriterHandle").field("segment", &self.segment()).field("length", &self.length()).finish()
    }
}

/// Bytes of a filled block. The block is freed with them unless a stripe adopted it.
struct FilledBlock {
    pool: Arc<BlockPool>,
    view: Bytes,
    _quota: Option<RecvQuota>,
}

impl AsRef<[u8]> for FilledBlock {
    fn as_ref(&self) -> &[u8] {
        &self.view
    }
}

impl Drop for FilledBlock {
    fn drop(&mut self) {
        drop(self.pool.write_segments.remove_filled(self.view.as_ptr().addr()));
    }
}
