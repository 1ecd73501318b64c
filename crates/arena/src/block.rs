//! The block pool: the mapped memory, blocks of it, and views of blocks.
//!
//! All unsafe access to the arena's memory is here. It relies on three facts:
//! 1. **Blocks are disjoint.** The ledger gives each page to one [`BlockMemory`] at a time and gets
//!    it back when that is dropped. In a write segment, an offered page belongs to no block until
//!    its writer, a trusted process of our user, has said that it will not touch it again.
//! 2. **Viewed bytes are not written.** A [`Block`] is the only writer of its memory. It knows how
//!    far its views reach and refuses to write before that point while a view exists.
//! 3. **The mapping outlives all.** A block's memory holds its pool, and the pool the mapping.
//!    Every byte of the mapping is initialised (zero).

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLock};
use store::{EngineError, FreedHook};

use crate::PAGE_BYTES;
use crate::backing::BackingMemory;
use crate::buddy::{BlockRange, Buddy, PageRun};
use crate::extent_quota::Quota;
use crate::high_water::HighWater;
use crate::ledger::{Ledger, NoSpace, OWN_MEMORY};
use crate::recv_buffer::RecvBytes;
use crate::tmpfs::Tmpfs;
use crate::write_segment::{BlockOffers, SegmentMemory, WriteSegments};

/// Address space per byte of capacity, so that large blocks fit while the free pages are scattered.
/// No mix of sizes was seen to need four times. If even that is used up, the arena is full before
/// it reaches its capacity.
const ADDRESS_FACTOR: u64 = 4;

/// Attempts to shrink the quota of extent files while their use keeps growing.
const RECLAIM_TRIES: u32 = 16;

/// The block pool: the memory of an arena and its allocation state.
pub struct BlockPool {
    backing: BackingMemory,
    capacity: u64,
    state: Mutex<AllocState>,
    /// Write segments: memory that other processes write into.
    pub write_segments: WriteSegments,
    /// Bytes of blocks that are receive buffers.
    pub recv_bytes: RecvBytes,
    hook: RwLock<Option<FreedHook>>,
    /// The tmpfs of the extent files; unset if there are none.
    extent_tmpfs: OnceLock<Tmpfs>,
}

/// The allocation state, behind one lock.
pub struct AllocState {
    pub ledger: Ledger,
    /// Blocks offered to writers and not yet taken.
    pub offers: BlockOffers,
    /// The high-water mark of usage.
    high_water: HighWater,
}

impl BlockPool {
    /// Reserves address space for `capacity` bytes in blocks of at most order `top`. Touches no
    /// memory.
    pub fn new(capacity: u64, top: u8) -> io::Result<Arc<Self>> {
        let top_bytes = u64::from(PAGE_BYTES) << top;
        let tops_least = capacity.div_ceil(top_bytes).max(1);
        let tops_most = u64::from((u32::MAX - 1) >> top);
        if tops_least > tops_most {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an arena reaches to 16 TiB at most"));
        }
        // Larger pages cannot be given back one block at a time. There the arena may be full early
        // when its free space is scattered.
        let discards = rustix::param::page_size() <= PAGE_BYTES as usize;
        let tops_liked = if discards { tops_most.min(tops_least * ADDRESS_FACTOR) } else { tops_least };
        // If address space is limited (strict overcommit, a ulimit), fall back to the minimum.
        let (backing, tops) = BackingMemory::new(tops_liked, top_bytes)
            .map(|backing| (backing, tops_liked))
            .or_else(|_| BackingMemory::new(tops_least, top_bytes).map(|backing| (backing, tops_least)))?;
        let buddy = Buddy::new(u32::try_from(tops).expect("at most tops_most"), top);
        let (ledger, high_water) = (Ledger::new(capacity, buddy, discards), HighWater::new(capacity));
        let state = Mutex::new(AllocState { ledger, offers: BlockOffers::default(), high_water });
        let (write_segments, recv_bytes, hook) = (WriteSegments::new(), RecvBytes::default(), RwLock::default());
        Ok(Arc::new(Self { backing, capacity, state, write_segments, recv_bytes, hook, extent_tmpfs: OnceLock::new() }))
    }

    /// Allocates a block of `order`; its bytes are unspecified.
    pub fn allocate(self: &Arc<Self>, order: u8) -> Result<Block, EngineError> {
        let mut state = self.lock_state();
        let bytes = u64::from(PAGE_BYTES) << order;
        self.reclaim(&mut state, bytes);
        let range = state.ledger.allocate(OWN_MEMORY, order).map_err(|no_space| self.full_error(no_space, bytes))?;
        self.settle(state);
        Ok(Block::new(self, None, range))
    }

    /// Allocates a block of `order` from memory that was touched before. Returns `None` if there is
    /// no such block or if `may`, called with the number of free bytes, refuses.
    pub fn allocate_warm(self: &Arc<Self>, order: u8, may: impl FnOnce(u64) -> bool) -> Option<Block> {
        let mut state = self.lock_state();
        if !state.ledger.has_warm(order) || !may(self.quota(&state.ledger).free(state.offers.bytes())) {
            return None;
        }
        self.reclaim(&mut state, u64::from(PAGE_BYTES) << order);
        let range = state.ledger.allocate(OWN_MEMORY, order).ok()?;
        self.settle(state);
        Some(Block::new(self, None, range))
    }

    /// Locks the allocation state.
    pub fn lock_state(&self) -> MutexGuard<'_, AllocState> {
        self.state.lock()
    }

    /// Reserves `bytes` for memory that is kept elsewhere.
    pub fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        let mut state = self.lock_state();
        self.reclaim(&mut state, bytes);
        state.ledger.reserve(bytes).map_err(|no_space| self.full_error(no_space, bytes))?;
        self.settle(state);
        Ok(())
    }

    /// Releases a reservation and notifies requests that wait for space.
    pub fn release(&self, bytes: u64) {
        let mut state = self.lock_state();
        state.ledger.release(bytes);
        self.settle(state);
        self.notify();
    }

    /// Returns capacity, bytes used and bytes reserved. Offered blocks do not count as used,
    /// because they are taken back on demand.
    pub fn account(&self) -> (u64, u64, u64) {
        let state = self.lock_state();
        let used = state.committed() + self.extent_bytes(&state.ledger);
        (self.capacity, used, state.ledger.reserved())
    }

    /// Peak usage in bytes, with extent files as the system counts them.
    pub fn peak(&self) -> u64 {
        self.sample_peak(&mut self.lock_state())
    }

    /// Records the usage of extent files for the peak. To be called before they free space.
    pub fn sample_extents(&self) {
        self.sample_peak(&mut self.lock_state());
    }

    fn sample_peak(&self, state: &mut AllocState) -> u64 {
        let (committed, extents) = (state.committed(), self.extent_bytes(&state.ledger));
        state.high_water.sample(committed, extents)
    }

    /// Bytes that extent files may still use within their quota; `None` if they use none.
    pub fn extent_free(&self) -> Option<u64> {
        let state = self.lock_state();
        let used = self.extent_bytes(&state.ledger);
        (used > 0).then(|| state.ledger.granted() - used)
    }

    /// Bytes of blocks that are allocated or warm.
    pub fn touched(&self) -> u64 {
        self.lock_state().ledger.touched()
    }

    /// Bytes that the system holds for the pool, extent files included.
    pub fn resident(&self) -> io::Result<u64> {
        Ok(self.backing.resident()?
            + self.write_segments.resident()?
            + self.extent_tmpfs.get().map_or(Ok(0), Tmpfs::used)?)
    }

    /// Read access to the memory.
    pub fn backing(&self) -> &BackingMemory {
        &self.backing
    }

    pub fn set_hook(&self, hook: FreedHook) {
        *self.hook.write() = Some(hook);
    }

    /// Calls the freed-space hook. To be called with no lock held.
    pub fn notify(&self) {
        let hook = self.hook.read().clone();
        if let Some(hook) = hook {
            hook();
        }
    }

    /// Sets the tmpfs of the extent files. May be called once.
    pub fn set_extent_tmpfs(&self, tmpfs: Tmpfs) {
        let is_first = self.extent_tmpfs.set(tmpfs).is_ok();
        assert!(is_first, "a pool has one tmpfs for extent files");
    }

    /// The tmpfs of the extent files.
    pub fn extent_tmpfs(&self) -> &Tmpfs {
        self.extent_tmpfs.get().expect("a pool with extent files has a tmpfs for them")
    }

    /// The quota of the extent files in bytes.
    pub fn granted(&self) -> u64 {
        self.lock_state().ledger.granted()
    }

    /// Raises the quota of the extent files to the result of `decide`, which must fit in the
    /// capacity. Returns the quota figures afterwards.
    pub fn raise_quota(&self, decide: impl Fn(&Quota) -> u64) -> Quota {
        let mut state = self.lock_state();
        let granted = state.ledger.granted();
        let quota = self.quota(&state.ledger);
        let wanted = decide(&quota);
        if wanted > granted {
            state.ledger.set_granted(wanted);
            self.discard_excess(&mut state);
            if self.extent_tmpfs().resize(wanted).is_err() {
                state.ledger.set_granted(granted);
            }
        }
        Quota { granted: state.ledger.granted(), ..quota }
    }

    /// Reclaims unused space of others until `wanted` bytes fit: first offers, then the extent
    /// quota.
    fn reclaim(&self, state: &mut AllocState, wanted: u64) {
        while state.ledger.check_space(wanted).is_err() && state.offers.revoke_one(&mut state.ledger) {}
        self.reclaim_quota(&mut state.ledger, wanted);
    }

    /// Shrinks the extent quota to what extent files use, as far as `wanted` bytes need it.
    pub fn reclaim_quota(&self, ledger: &mut Ledger, wanted: u64) {
        if ledger.granted() == 0 {
            return;
        }
        // The kernel may write more between the usage query and the resize, which then fails. Each
        // turn sees the higher usage.
        for _ in 0..RECLAIM_TRIES {
            if ledger.check_space(wanted).is_ok() {
                return;
            }
            let left = self.quota(ledger).for_reclaim(wanted);
            if left >= ledger.granted() {
                return;
            }
            if self.extent_tmpfs().resize(left).is_ok() {
                ledger.set_granted(left);
            }
        }
    }

    pub fn quota(&self, ledger: &Ledger) -> Quota {
        let used = self.extent_bytes(ledger);
        Quota { capacity: self.capacity, committed: ledger.committed(), granted: ledger.granted(), used }
    }

    /// Bytes that extent files hold; their whole quota if the system reports no usage.
    fn extent_bytes(&self, ledger: &Ledger) -> u64 {
        let granted = ledger.granted();
        let used = || self.extent_tmpfs.get().map_or(Ok(0), Tmpfs::used);
        if granted == 0 { 0 } else { used().unwrap_or(granted).min(granted) }
    }

    fn full_error(&self, NoSpace { used }: NoSpace, wanted: u64) -> EngineError {
        EngineError::Full { capacity: self.capacity, used, wanted }
    }

    /// Gives excess warm memory back to the system, updates the peak and unlocks the state.
    pub fn settle(&self, mut state: MutexGuard<'_, AllocState>) {
        self.discard_excess(&mut state);
        let committed = state.committed();
        if state.high_water.record(committed) {
            self.sample_peak(&mut state);
        }
    }

    fn discard_excess(&self, state: &mut AllocState) {
        while let Some((memory, range)) = state.ledger.excess() {
            let (start, len) = (page_offset(range.first), order_bytes(range.order) as usize);
            // The range is free and stays free while the state is locked: no block and no view
            // refers to it (fact 1). If the system refuses, the memory stays touched: that wastes
            // memory but breaks no promise to a reader.
            let discarded = match memory {
                OWN_MEMORY => self.backing.discard(start, len),
                segment => state.offers.memory(segment).map_or(Ok(()), |segment| segment.mapped.discard(start, len)),
            };
            if let Err(error) = discarded {
                debug_assert!(false, "memory could not be given back: {error}");
            }
        }
    }
}

impl AllocState {
    /// Bytes of blocks and reservations, without blocks that are only offered.
    fn committed(&self) -> u64 {
        self.ledger.committed() - self.offers.bytes()
    }
}

impl fmt::Debug for BlockPool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (capacity, used, reserved) = self.account();
        out.debug_struct("BlockPool")
            .field("capacity", &capacity)
            .field("used", &used)
            .field("reserved", &reserved)
            .finish_non_exhaustive()
    }
}

/// An allocated page run, shared by a block and the views of it.
struct BlockMemory {
    pool: Arc<BlockPool>,
    /// The write segment of the pages; `None` for the pool's own memory.
    segment: Option<Arc<SegmentMemory>>,
    first: u32,
    /// Changed by the block only. Stored here because the last owner of the memory must know it.
    pages: AtomicU32,
}

impl BlockMemory {
    fn run(&self) -> PageRun {
        PageRun { first: self.first, pages: self.pages.load(Ordering::Relaxed) }
    }

    fn bytes(&self) -> u32 {
        self.run().pages * PAGE_BYTES
    }

    /// Offset of byte `at` in the pool or write segment that the pages belong to.
    fn offset(&self, at: u32) -> usize {
        page_offset(self.first) + at as usize
    }

    fn pointer(&self, at: u32) -> *const u8 {
        debug_assert!(at <= self.bytes());
        // Within the mapping, so wrapping arithmetic cannot wrap.
        match &self.segment {
            Some(segment) => segment.mapped.pointer(self.offset(at)),
            None => self.pool.backing.pointer(self.offset(at)),
        }
    }

    fn memory_id(&self) -> u32 {
        self.segment.as_ref().map_or(OWN_MEMORY, |segment| segment.number)
    }

    /// Returns the bytes from `start` to `end`.
    ///
    /// # Safety
    /// The range must lie in the memory, and its bytes must not be written while the slice lives.
    unsafe fn slice(&self, start: u32, end: u32) -> &[u8] {
        // SAFETY: the caller guarantees the range and that nobody writes it; the bytes are
        // initialised and live as long as the pool and the write segment, which this memory holds
        // (fact 3).
        unsafe { std::slice::from_raw_parts(self.pointer(start), (end - start) as usize) }
    }
}

impl Drop for BlockMemory {
    fn drop(&mut self) {
        let mut state = self.pool.lock_state();
        let is_closed = state.ledger.free(self.memory_id(), self.run());
        self.pool.settle(state);
        if is_closed {
            self.pool.remove_segment(self.memory_id());
        }
        self.pool.notify();
    }
}

/// Contiguous memory of one stripe: the beginning of a buddy block. After the drop of a `Block` its
/// pages are freed with their last view.
pub struct Block {
    memory: Arc<BlockMemory>,
    /// End of the bytes that views can see; meaningless once no view is left.
    viewed_end: u32,
}

impl Block {
    /// Wraps a range that the ledger allocated, in a write segment or in the pool's own memory.
    pub fn new(pool: &Arc<BlockPool>, segment: Option<Arc<SegmentMemory>>, range: BlockRange) -> Self {
        let PageRun { first, pages } = range.into();
        let memory = BlockMemory { pool: Arc::clone(pool), segment, first, pages: AtomicU32::new(pages) };
        Self { memory: Arc::new(memory), viewed_end: 0 }
    }

    /// Capacity of the block in bytes.
    pub fn bytes(&self) -> u32 {
        self.memory.bytes()
    }

    /// Returns true if no view can see a byte from `start` on.
    pub fn is_writable(&mut self, start: u32) -> bool {
        // Sole ownership also means that all reads through dropped views happened before now.
        if Arc::get_mut(&mut self.memory).is_some() {
            self.viewed_end = 0;
        }
        start >= self.viewed_end
    }

    /// Writes `data` at `start`, where it must fit and be writable. Fails if the system has no
    /// memory left.
    ///
    /// The kernel writes without the knowledge of the compiler. The range lies in the memory, whose
    /// only writer is this exclusively borrowed block, and no view sees it (both asserted). So no
    /// live slice changes (facts 1 and 2).
    pub fn write(&mut self, start: u32, data: &[u8]) -> io::Result<()> {
        self.assert_writable(start, data.len());
        let at = self.memory.offset(start);
        match &self.memory.segment {
            Some(segment) => segment.mapped.write(at, data),
            None => self.memory.pool.backing.write(at, data),
        }
    }

    /// Returns the bytes from `start` to `end` for writing. They must be writable; their content is
    /// unspecified.
    pub fn slice_mut(&mut self, start: u32, end: u32) -> &mut [u8] {
        assert!(start <= end, "bytes {start} to {end}");
        self.assert_writable(start, (end - start) as usize);
        // SAFETY: the range lies in the memory, whose only writer is this block, exclusively
        // borrowed while the slice lives, and no view sees it, both asserted (facts 1 and 2). It is
        // mapped for writing, initialised, and lives as long as the memory (fact 3).
        unsafe { std::slice::from_raw_parts_mut(self.memory.pointer(start).cast_mut(), (end - start) as usize) }
    }

    /// Writes `len` zeros at `start`, under the same conditions as [`Self::write`].
    pub fn zero(&mut self, start: u32, len: u32) -> io::Result<()> {
        self.assert_writable(start, len as usize);
        let at = self.memory.offset(start);
        match &self.memory.segment {
            Some(segment) => segment.mapped.zero(at, len as usize),
            None => self.memory.pool.backing.zero(at, len as usize),
        }
    }

    /// Returns the bytes from `start` to `end` while the block is borrowed.
    pub fn content(&self, start: u32, end: u32) -> &[u8] {
        assert!(start <= end && end <= self.bytes(), "bytes {start} to {end} of a block of {}", self.bytes());
        // SAFETY: the range was checked. Only this block writes the memory, and that needs an
        // exclusive borrow.
        unsafe { self.memory.slice(start, end) }
    }

    /// Returns a view of the bytes from `start` to `end`. While it lives, the bytes do not change
    /// and their memory stays allocated.
    pub fn view(&mut self, start: u32, end: u32) -> Bytes {
        assert!(start <= end && end <= self.bytes(), "bytes {start} to {end} of a block of {}", self.bytes());
        self.viewed_end = self.viewed_end.max(end);
        Bytes::from_owner(View { memory: Arc::clone(&self.memory), start, end })
    }

    /// Enlarges the block in place to `2^order` pages. Returns false if the pages behind it are in
    /// use or the space is not available.
    pub fn grow(&mut self, order: u8) -> bool {
        let mut state = self.memory.pool.lock_state();
        let added = u64::from(order_bytes(order) - self.bytes());
        self.memory.pool.reclaim(&mut state, added);
        let grown = state.ledger.grow(self.memory.memory_id(), self.memory.run(), order);
        if grown {
            self.memory.pages.store(1 << order, Ordering::Relaxed);
        }
        self.memory.pool.settle(state);
        grown
    }

    /// Frees all but the first `pages`, unless views see the rest. Returns whether it did; the
    /// caller notifies.
    pub fn shrink(&mut self, pages: u32) -> bool {
        let run = self.memory.run();
        if pages >= run.pages || !self.is_writable(pages * PAGE_BYTES) {
            return false;
        }
        let mut state = self.memory.pool.lock_state();
        state.ledger.shrink(self.memory.memory_id(), run, pages);
        self.memory.pages.store(pages, Ordering::Relaxed);
        self.memory.pool.settle(state);
        true
    }

    fn assert_writable(&mut self, start: u32, len: usize) {
        assert!(start as usize + len <= self.bytes() as usize, "{len} bytes at {start} of a block of {}", self.bytes());
        assert!(self.is_writable(start), "byte {start} is viewed");
    }
}

/// A view of a block's bytes.
struct View {
    memory: Arc<BlockMemory>,
    start: u32,
    end: u32,
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the block checked the range. While this view holds the memory, the block neither
        // writes the range (fact 2) nor shrinks the memory below the end of the view.
        unsafe { self.memory.slice(self.start, self.end) }
    }
}

pub fn order_bytes(order: u8) -> u32 {
    PAGE_BYTES << order
}

pub fn page_offset(page: u32) -> usize {
    page as usize * PAGE_BYTES as usize
}
