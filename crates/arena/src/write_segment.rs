//! Write segments ("bays"): shared memory that one client process writes; filled blocks become
//! stripes without a copy.
//!
//! A write segment has a file beside the arena's own and its own pages in the ledger. Its empty
//! blocks are *offered* in its table. An offered block counts as allocated, but a request that
//! needs space takes it back. A block that its writer has filled is *down* until a write of exactly
//! these bytes makes it the block of a stripe.
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
use store::{Bay, Place, SLOTS, TABLE_BYTES, Table};

use crate::backing::{FILES, Mapped};
use crate::block::{Block, Pool, bytes_of};
use crate::buddy::{Buddy, Page, Span};
use crate::extent_quota::Room;
use crate::ledger::Ledger;
use crate::recv_buffer::Counted;

/// Address space per byte of capacity, so that full-size blocks fit beside blocks that were cut.
const ADDRESS_FACTOR: u64 = 2;
/// Maximum length of a write segment in bytes, which takes address space in every process that maps
/// it. A writer that has filled its segment sends bytes over the socket.
const BAY_BYTES_MAX: u64 = 64 << 30;
/// Maximum number of write segments: at full length they take an eighth of a process's address
/// space. Further writers send bytes over the socket.
const BAYS_MAX: usize = 256;
/// The inverse of the share of free space that is offered to all writers together, so that others
/// rarely have to take it back.
const OFFERED_PART: u64 = 8;

/// The memory of a write segment.
pub struct Memory {
    /// Its number among the segments.
    pub number: u32,
    pub mapped: Mapped,
    table: Table,
}

/// All write segments of an arena, except for their pages.
pub struct Bays {
    by_start: RwLock<BTreeMap<usize, Arc<Memory>>>,
    next: AtomicU32,
    gone: AtomicU64,
    /// Filled blocks by mapped address, each with the length of its bytes.
    down: Mutex<HashMap<usize, (usize, Block)>>,
    /// Number of filled blocks, to be read without the lock.
    downs: AtomicUsize,
}

/// Blocks offered to writers. Stored with the ledger, behind its lock.
#[derive(Default)]
pub struct Offers {
    bays: BTreeMap<u32, Offered>,
    bytes: u64,
}

/// Blocks offered in one write segment, by slot.
struct Offered {
    memory: Arc<Memory>,
    slots: [Option<Span>; SLOTS as usize],
    /// First page behind the block that was offered last.
    next: Page,
}

impl Memory {
    fn block_of(span: Span) -> u32 {
        span.first >> span.order
    }
}

impl Bays {
    /// An empty set of write segments.
    pub fn new() -> Self {
        let first = u32::try_from(FILES).expect("a few");
        Self {
            by_start: RwLock::default(),
            next: AtomicU32::new(first),
            gone: AtomicU64::new(0),
            down: Mutex::default(),
            downs: AtomicUsize::new(0),
        }
    }

    /// Number of write segments that were closed and removed.
    pub fn gone(&self) -> u64 {
        self.gone.load(Ordering::Relaxed)
    }

    /// Bytes that the system holds for the write segments.
    pub fn resident(&self) -> io::Result<u64> {
        self.by_start.read().values().map(|memory| memory.mapped.resident()).sum()
    }

    /// Location of these bytes; `None` if they are in no write segment.
    pub fn place(&self, bytes: &[u8]) -> Option<Place> {
        let bays = self.by_start.read();
        let (_, memory) = bays.range(..=bytes.as_ptr().addr()).next_back()?;
        let offset = memory.mapped.find(bytes)?;
        Some(Place { segment: memory.number, offset: offset as u64 })
    }

    /// Returns true if these bytes are exactly those of a filled block.
    pub fn has_down(&self, bytes: &[u8]) -> bool {
        let is_down = || self.down.lock().get(&bytes.as_ptr().addr()).is_some_and(|(length, _)| *length == bytes.len());
        self.downs.load(Ordering::Relaxed) > 0 && is_down()
    }

    /// Takes the filled block that holds exactly these bytes; the caller owns it from now on.
    pub fn pick_up(&self, bytes: &[u8]) -> Option<Block> {
        self.has_down(bytes).then(|| self.take_down(bytes.as_ptr().addr())).flatten()
    }

    fn take_down(&self, at: usize) -> Option<Block> {
        let (_, block) = self.down.lock().remove(&at)?;
        self.downs.fetch_sub(1, Ordering::Relaxed);
        Some(block)
    }

    fn put_down(&self, at: usize, length: usize, block: Block) {
        self.downs.fetch_add(1, Ordering::Relaxed);
        let before = self.down.lock().insert(at, (length, block));
        debug_assert!(before.is_none(), "a block is down once");
    }
}

impl Offers {
    /// Bytes of all offered blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The memory of a write segment.
    pub fn memory(&self, number: u32) -> Option<&Arc<Memory>> {
        self.bays.get(&number).map(|offered| &offered.memory)
    }

    /// Takes back one offered block. Returns false if writers have begun all that are left.
    pub fn revoke_one(&mut self, ledger: &mut Ledger) -> bool {
        let revoked = self.bays.iter_mut().find_map(|(number, Offered { memory, slots, .. })| {
            let revoke = |(slot, span): &(u32, &mut Option<Span>)| {
                span.is_some_and(|span| memory.table.revoke(*slot, Memory::block_of(span)))
            };
            let (_, span) = (0..).zip(slots.iter_mut()).find(revoke)?;
            Some((*number, span.take()?))
        });
        let Some((number, span)) = revoked else { return false };
        self.bytes -= u64::from(bytes_of(span.order));
        ledger.give(number, span.into());
        true
    }

    /// Takes back all blocks of a segment, begun or not, because its writer is gone.
    fn end(&mut self, ledger: &mut Ledger, number: u32) {
        let Some(Offered { memory, slots, .. }) = self.bays.get_mut(&number) else { return };
        for (slot, span) in (0..).zip(slots) {
            if let Some(span) = span.take() {
                memory.table.revoke(slot, Memory::block_of(span));
                self.bytes -= u64::from(bytes_of(span.order));
                ledger.give(number, span.into());
            }
        }
    }
}

/// The handle of a write segment, owned as long as its writer is connected.
pub struct Berth {
    pool: Arc<Pool>,
    memory: Arc<Memory>,
    top: u8,
}

impl Berth {
    /// Creates a write segment with blocks of order `top`.
    pub fn new(pool: &Arc<Pool>, top: u8) -> io::Result<Self> {
        if pool.bays.by_start.read().len() >= BAYS_MAX {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "there are as many bays as there may be"));
        }
        pool.reserve(TABLE_BYTES).map_err(|_| io::ErrorKind::StorageFull)?;
        let made = make(pool, top);
        if made.is_err() {
            pool.release(TABLE_BYTES);
        }
        Ok(Self { pool: pool.clone(), memory: made?, top })
    }

    /// Blocks that may be offered in addition to `offered` bytes.
    fn allowed(&self, room: &Room, offered: u64) -> u64 {
        (room.free(offered) / OFFERED_PART).saturating_sub(offered) / u64::from(bytes_of(self.top))
    }
}

fn make(pool: &Arc<Pool>, top: u8) -> io::Result<Arc<Memory>> {
    let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
    let block_bytes = u64::from(bytes_of(top));
    let wanted = pool.account().0.saturating_mul(ADDRESS_FACTOR).min(BAY_BYTES_MAX);
    let blocks = u32::try_from(wanted.div_ceil(block_bytes)).map_err(too_large)?;
    let length = u64::from(blocks) * block_bytes;
    let mapped = pool.memory().another(usize::try_from(length + TABLE_BYTES).map_err(too_large)?)?;
    let table = Table::map(mapped.file(), length)?;
    let number = pool.bays.next.fetch_add(1, Ordering::Relaxed);
    let memory = Arc::new(Memory { number, mapped, table });
    pool.bays.by_start.write().insert(memory.mapped.start(), memory.clone());
    let mut books = pool.books();
    books.ledger.open_bay(number, Buddy::new(blocks, top));
    books.offers.bays.insert(number, Offered { memory: memory.clone(), slots: [None; SLOTS as usize], next: 0 });
    Ok(memory)
}

impl Pool {
    /// Registers a block as filled with `length` bytes and returns these. `counted` keeps them
    /// counted as received while they exist.
    pub fn put_down(self: &Arc<Self>, mut block: Block, length: u32, counted: Option<Counted>) -> Bytes {
        let view = block.view(0, length);
        self.bays.put_down(view.as_ptr().addr(), view.len(), block);
        Bytes::from_owner(Down { pool: self.clone(), view, _counted: counted })
    }

    /// Removes a write segment that has no block left and whose writer is gone.
    pub fn end_bay(&self, number: u32) {
        let ended = self.books().offers.bays.remove(&number);
        let Some(Offered { memory, .. }) = ended else { return };
        self.bays.by_start.write().remove(&memory.mapped.start());
        self.bays.gone.fetch_add(1, Ordering::Relaxed);
        self.release(TABLE_BYTES);
    }
}

impl Bay for Berth {
    fn segment(&self) -> u32 {
        self.memory.number
    }

    fn length(&self) -> u64 {
        self.memory.mapped.bytes() - TABLE_BYTES
    }

    fn block_bytes(&self) -> u32 {
        bytes_of(self.top)
    }

    fn open(&self) -> io::Result<OwnedFd> {
        self.memory.mapped.reopen(true)
    }

    fn offer(&self, blocks: u32) {
        let mut guard = self.pool.books();
        let books = &mut *guard;
        let Some(Offered { slots, next, .. }) = books.offers.bays.get_mut(&self.memory.number) else { return };
        let there = slots.iter().flatten().count();
        let missing = (blocks.min(SLOTS) as usize).saturating_sub(there);
        if missing == 0 {
            return;
        }
        let allowed = self.allowed(&self.pool.room_of(&books.ledger), books.offers.bytes);
        let missing = missing.min(usize::try_from(allowed).unwrap_or(usize::MAX));
        let block_bytes = u64::from(bytes_of(self.top));
        let mut fresh = Vec::with_capacity(missing);
        for (slot, place) in (0..).zip(slots).filter(|(_, place)| place.is_none()).take(missing) {
            self.pool.make_room_beside_offers(&mut books.ledger, block_bytes);
            let Ok(span) = books.ledger.take_in_row(self.memory.number, self.top, *next) else { break };
            *place = Some(span);
            *next = span.first + (1 << self.top);
            books.offers.bytes += block_bytes;
            fresh.push((slot, span));
        }
        // Excess memory is given back before these blocks are offered. A block that was taken back
        // meanwhile is not offered.
        self.pool.settle(guard);
        let books = self.pool.books();
        let Some(Offered { slots, .. }) = books.offers.bays.get(&self.memory.number) else { return };
        for (slot, span) in fresh {
            if slots[slot as usize] == Some(span) {
                self.memory.table.offer(slot, Memory::block_of(span));
            }
        }
    }

    fn take(&self, slot: u32, length: u32) -> Option<Bytes> {
        let mut books = self.pool.books();
        let Offered { slots, .. } = books.offers.bays.get_mut(&self.memory.number)?;
        let place = slots.get_mut(slot as usize)?;
        let span = (*place)?;
        let fits = (1..=bytes_of(span.order)).contains(&length);
        if !fits || !self.memory.table.take(slot, Memory::block_of(span)) {
            return None;
        }
        *place = None;
        books.offers.bytes -= u64::from(bytes_of(span.order));
        self.pool.settle(books);
        let block = Block::of(&self.pool, Some(self.memory.clone()), span);
        Some(self.pool.put_down(block, length, None))
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        let mut guard = self.pool.books();
        let books = &mut *guard;
        books.offers.end(&mut books.ledger, self.memory.number);
        let gone = books.ledger.close_bay(self.memory.number);
        self.pool.settle(guard);
        if gone {
            self.pool.end_bay(self.memory.number);
        }
        self.pool.notify();
    }
}

impl fmt::Debug for Berth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Berth").field("segment", &self.segment()).field("length", &self.length()).finish()
    }
}

/// Bytes of a filled block. The block is freed with them unless a stripe adopted it.
struct Down {
    pool: Arc<Pool>,
    view: Bytes,
    _counted: Option<Counted>,
}

impl AsRef<[u8]> for Down {
    fn as_ref(&self) -> &[u8] {
        &self.view
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        drop(self.pool.bays.take_down(self.view.as_ptr().addr()));
    }
}
