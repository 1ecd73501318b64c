//! The block pool: the mapped memory, blocks of it, and views of blocks.
//!
//! All unsafe access to the arena's memory is here. It relies on three facts:
//! 1. **Blocks are disjoint.** The ledger gives each page to one [`Extent`] at a time and gets it
//!    back when the extent is dropped. In a write segment, an offered page belongs to no block
//!    until its writer, a trusted process of our user, has said that it will not touch it again.
//! 2. **Viewed bytes are not written.** A [`Block`] is the only writer of its extent. It knows how
//!    far its views reach and refuses to write before that point while a view exists.
//! 3. **The mapping outlives all.** An extent holds its pool, and the pool the mapping; every byte
//!    of the mapping is initialised (zero).

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLock};
use store::{EngineError, FreedHook};

use crate::PAGE_BYTES;
use crate::backing::Backing;
use crate::buddy::{Buddy, PageRun, Span};
use crate::extent_quota::Room;
use crate::high_water::HighWater;
use crate::ledger::{Ledger, NoRoom, OWN};
use crate::recv_buffer::Landed;
use crate::tmpfs::Tmpfs;
use crate::write_segment::{Bays, Memory, Offers};

/// Address space per byte of capacity, so that large blocks fit while the free pages are scattered.
/// No mix of sizes was seen to need four times. If even that is used up, the arena is full before
/// it reaches its capacity.
const ADDRESS_FACTOR: u64 = 4;

/// Attempts to shrink the quota of extent files while their use keeps growing.
const TAKE_BACK_TRIES: u32 = 16;

/// The block pool: the memory of an arena and its allocation state.
pub struct Pool {
    memory: Backing,
    capacity: u64,
    books: Mutex<Books>,
    /// Write segments: memory that other processes write into.
    pub bays: Bays,
    /// Bytes of blocks that are receive buffers.
    pub landed: Landed,
    hook: RwLock<Option<FreedHook>>,
    /// The tmpfs of the extent files; unset if there are none.
    whole: OnceLock<Tmpfs>,
}

/// The allocation state, behind one lock.
pub struct Books {
    pub ledger: Ledger,
    /// Blocks offered to writers and not yet taken.
    pub offers: Offers,
    /// The high-water mark of usage.
    high_water: HighWater,
}

impl Pool {
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
        let (memory, tops) = Backing::new(tops_liked, top_bytes)
            .map(|memory| (memory, tops_liked))
            .or_else(|_| Backing::new(tops_least, top_bytes).map(|memory| (memory, tops_least)))?;
        let buddy = Buddy::new(u32::try_from(tops).expect("at most tops_most"), top);
        let (ledger, high_water) = (Ledger::new(capacity, buddy, discards), HighWater::new(capacity));
        let books = Mutex::new(Books { ledger, offers: Offers::default(), high_water });
        let (bays, landed, hook) = (Bays::new(), Landed::default(), RwLock::default());
        Ok(Arc::new(Self { memory, capacity, books, bays, landed, hook, whole: OnceLock::new() }))
    }

    /// Allocates a block of `order`; its bytes are unspecified.
    pub fn take(self: &Arc<Self>, order: u8) -> Result<Block, EngineError> {
        let mut books = self.books();
        let bytes = u64::from(PAGE_BYTES) << order;
        self.make_room(&mut books, bytes);
        let span = books.ledger.take(OWN, order).map_err(|no_room| self.full(no_room, bytes))?;
        self.settle(books);
        Ok(Block::of(self, None, span))
    }

    /// Allocates a block of `order` from memory that was touched before. Returns `None` if there is
    /// no such block or if `may`, called with the number of free bytes, refuses.
    pub fn take_warm(self: &Arc<Self>, order: u8, may: impl FnOnce(u64) -> bool) -> Option<Block> {
        let mut books = self.books();
        if !books.ledger.has_warm(order) || !may(self.room_of(&books.ledger).free(books.offers.bytes())) {
            return None;
        }
        self.make_room(&mut books, u64::from(PAGE_BYTES) << order);
        let span = books.ledger.take(OWN, order).ok()?;
        self.settle(books);
        Some(Block::of(self, None, span))
    }

    /// Locks the allocation state.
    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock()
    }

    /// Reserves `bytes` for memory that is kept elsewhere.
    pub fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        let mut books = self.books();
        self.make_room(&mut books, bytes);
        books.ledger.reserve(bytes).map_err(|no_room| self.full(no_room, bytes))?;
        self.settle(books);
        Ok(())
    }

    /// Releases a reservation and notifies requests that wait for space.
    pub fn release(&self, bytes: u64) {
        let mut books = self.books();
        books.ledger.release(bytes);
        self.settle(books);
        self.notify();
    }

    /// Returns capacity, bytes used and bytes reserved. Offered blocks do not count as used,
    /// because they are taken back on demand.
    pub fn account(&self) -> (u64, u64, u64) {
        let books = self.books();
        let used = books.kept_by_us() + self.used_by_whole(&books.ledger);
        (self.capacity, used, books.ledger.reserved())
    }

    /// Peak usage in bytes, with extent files as the system counts them.
    pub fn peak(&self) -> u64 {
        self.look_at_whole(&mut self.books())
    }

    /// Records the usage of extent files for the peak. To be called before they free space.
    pub fn note_whole(&self) {
        self.look_at_whole(&mut self.books());
    }

    fn look_at_whole(&self, books: &mut Books) -> u64 {
        let (kept, whole) = (books.kept_by_us(), self.used_by_whole(&books.ledger));
        books.high_water.look(kept, whole)
    }

    /// Bytes that extent files may still use within their quota; `None` if they use none.
    pub fn own_room(&self) -> Option<u64> {
        let books = self.books();
        let used = self.used_by_whole(&books.ledger);
        (used > 0).then(|| books.ledger.granted() - used)
    }

    /// Bytes of blocks that are allocated or warm.
    pub fn touched(&self) -> u64 {
        self.books().ledger.touched()
    }

    /// Bytes that the system holds for the pool, extent files included.
    pub fn resident(&self) -> io::Result<u64> {
        Ok(self.memory.resident()? + self.bays.resident()? + self.whole.get().map_or(Ok(0), Tmpfs::used)?)
    }

    /// Read access to the memory.
    pub fn memory(&self) -> &Backing {
        &self.memory
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
    pub fn keep_whole_files_in(&self, home: Tmpfs) {
        let kept = self.whole.set(home).is_ok();
        assert!(kept, "a pool keeps its whole files in one place");
    }

    /// The tmpfs of the extent files.
    pub fn home(&self) -> &Tmpfs {
        self.whole.get().expect("only who keeps whole files asks where")
    }

    /// The quota of the extent files in bytes.
    pub fn granted(&self) -> u64 {
        self.books().ledger.granted()
    }

    /// Raises the quota of the extent files to the result of `decide`, which must fit in the
    /// capacity. Returns the quota figures afterwards.
    pub fn regrant(&self, decide: impl Fn(&Room) -> u64) -> Room {
        let mut books = self.books();
        let granted = books.ledger.granted();
        let room = self.room_of(&books.ledger);
        let wanted = decide(&room);
        if wanted > granted {
            books.ledger.grant(wanted);
            self.give_back_excess(&mut books);
            if self.home().resize(wanted).is_err() {
                books.ledger.grant(granted);
            }
        }
        Room { granted: books.ledger.granted(), ..room }
    }

    /// Reclaims unused space of others until `wanted` bytes fit: first offers, then the extent
    /// quota.
    fn make_room(&self, books: &mut Books, wanted: u64) {
        while books.ledger.check_room(wanted).is_err() && books.offers.revoke_one(&mut books.ledger) {}
        self.make_room_beside_offers(&mut books.ledger, wanted);
    }

    /// Shrinks the extent quota to what extent files use, as far as `wanted` bytes need it.
    pub fn make_room_beside_offers(&self, ledger: &mut Ledger, wanted: u64) {
        if ledger.granted() == 0 {
            return;
        }
        // The kernel may write more between the usage query and the resize, which then fails. Each
        // turn sees the higher usage.
        for _ in 0..TAKE_BACK_TRIES {
            if ledger.check_room(wanted).is_ok() {
                return;
            }
            let left = self.room_of(ledger).when_short(wanted);
            if left >= ledger.granted() {
                return;
            }
            if self.home().resize(left).is_ok() {
                ledger.grant(left);
            }
        }
    }

    pub fn room_of(&self, ledger: &Ledger) -> Room {
        let used = self.used_by_whole(ledger);
        Room { capacity: self.capacity, kept: ledger.kept(), granted: ledger.granted(), used }
    }

    /// Bytes that extent files hold; their whole quota if the system reports no usage.
    fn used_by_whole(&self, ledger: &Ledger) -> u64 {
        let granted = ledger.granted();
        let used = || self.whole.get().map_or(Ok(0), Tmpfs::used);
        if granted == 0 { 0 } else { used().unwrap_or(granted).min(granted) }
    }

    fn full(&self, NoRoom { used }: NoRoom, wanted: u64) -> EngineError {
        EngineError::Full { capacity: self.capacity, used, wanted }
    }

    /// Gives excess warm memory back to the system, updates the peak and unlocks the state.
    pub fn settle(&self, mut books: MutexGuard<'_, Books>) {
        self.give_back_excess(&mut books);
        let kept = books.kept_by_us();
        if books.high_water.note(kept) {
            self.look_at_whole(&mut books);
        }
    }

    fn give_back_excess(&self, books: &mut Books) {
        while let Some((home, span)) = books.ledger.excess() {
            let (start, len) = (offset_of(span.first), bytes_of(span.order) as usize);
            // The span is free and stays free while the state is locked: no block and no view
            // refers to it (fact 1). If the system refuses, the memory stays touched: that wastes
            // memory but breaks no promise to a reader.
            let given_back = match home {
                OWN => self.memory.give_back(start, len),
                bay => books.offers.memory(bay).map_or(Ok(()), |bay| bay.mapped.give_back(start, len)),
            };
            if let Err(error) = given_back {
                debug_assert!(false, "memory could not be given back: {error}");
            }
        }
    }
}

impl Books {
    /// Bytes of blocks and reservations, without blocks that are only offered.
    fn kept_by_us(&self) -> u64 {
        self.ledger.kept() - self.offers.bytes()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (capacity, used, reserved) = self.account();
        out.debug_struct("Pool")
            .field("capacity", &capacity)
            .field("used", &used)
            .field("reserved", &reserved)
            .finish_non_exhaustive()
    }
}

/// An allocated page run, shared by a block and the views of it.
struct Extent {
    pool: Arc<Pool>,
    /// The write segment of the pages; `None` for the pool's own memory.
    bay: Option<Arc<Memory>>,
    first: u32,
    /// Changed by the block only. Stored here because the last owner of the extent must know it.
    pages: AtomicU32,
}

impl Extent {
    fn run(&self) -> PageRun {
        PageRun { first: self.first, pages: self.pages.load(Ordering::Relaxed) }
    }

    fn bytes(&self) -> u32 {
        self.run().pages * PAGE_BYTES
    }

    /// Offset of byte `at` of the extent in the memory of the pool or write segment.
    fn offset(&self, at: u32) -> usize {
        offset_of(self.first) + at as usize
    }

    fn pointer(&self, at: u32) -> *const u8 {
        debug_assert!(at <= self.bytes());
        // Within the mapping, so wrapping arithmetic cannot wrap.
        match &self.bay {
            Some(bay) => bay.mapped.pointer(self.offset(at)),
            None => self.pool.memory.pointer(self.offset(at)),
        }
    }

    fn home(&self) -> u32 {
        self.bay.as_ref().map_or(OWN, |bay| bay.number)
    }

    /// Returns the bytes from `start` to `end`.
    ///
    /// # Safety
    /// The range must lie in the extent, and its bytes must not be written while the slice lives.
    unsafe fn slice(&self, start: u32, end: u32) -> &[u8] {
        // SAFETY: the caller guarantees the range and that nobody writes it; the bytes are
        // initialised and live as long as the pool and the write segment, which this extent holds
        // (fact 3).
        unsafe { std::slice::from_raw_parts(self.pointer(start), (end - start) as usize) }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let mut books = self.pool.books();
        let gone = books.ledger.give(self.home(), self.run());
        self.pool.settle(books);
        if gone {
            self.pool.end_bay(self.home());
        }
        self.pool.notify();
    }
}

/// Contiguous memory of one stripe: the beginning of a buddy block. After the drop of a `Block` its
/// pages are freed with their last view.
pub struct Block {
    extent: Arc<Extent>,
    /// End of the bytes that views can see; meaningless once no view is left.
    viewed_end: u32,
}

impl Block {
    /// Wraps a span that the ledger allocated, in a write segment or in the pool's own memory.
    pub fn of(pool: &Arc<Pool>, bay: Option<Arc<Memory>>, span: Span) -> Self {
        let PageRun { first, pages } = span.into();
        let extent = Extent { pool: Arc::clone(pool), bay, first, pages: AtomicU32::new(pages) };
        Self { extent: Arc::new(extent), viewed_end: 0 }
    }

    /// Capacity of the block in bytes.
    pub fn bytes(&self) -> u32 {
        self.extent.bytes()
    }

    /// Returns true if no view can see a byte from `start` on.
    pub fn is_writable(&mut self, start: u32) -> bool {
        // Sole ownership also means that all reads through dropped views happened before now.
        if Arc::get_mut(&mut self.extent).is_some() {
            self.viewed_end = 0;
        }
        start >= self.viewed_end
    }

    /// Writes `data` at `start`, where it must fit and be writable. Fails if the system has no
    /// memory left.
    ///
    /// The kernel writes without the knowledge of the compiler. The range lies in the extent, whose
    /// only writer is this exclusively borrowed block, and no view sees it (both asserted). So no
    /// live slice changes (facts 1 and 2).
    pub fn write(&mut self, start: u32, data: &[u8]) -> io::Result<()> {
        self.assert_writable(start, data.len());
        let at = self.extent.offset(start);
        match &self.extent.bay {
            Some(bay) => bay.mapped.write(at, data),
            None => self.extent.pool.memory.write(at, data),
        }
    }

    /// Returns the bytes from `start` to `end` for writing. They must be writable; their content is
    /// unspecified.
    pub fn space(&mut self, start: u32, end: u32) -> &mut [u8] {
        assert!(start <= end, "bytes {start} to {end}");
        self.assert_writable(start, (end - start) as usize);
        // SAFETY: the range lies in the extent, whose only writer is this block, exclusively
        // borrowed while the slice lives, and no view sees it, both asserted (facts 1 and 2). It is
        // mapped for writing, initialised, and lives as long as the extent (fact 3).
        unsafe { std::slice::from_raw_parts_mut(self.extent.pointer(start).cast_mut(), (end - start) as usize) }
    }

    /// Writes `len` zeros at `start`, under the same conditions as [`Self::write`].
    pub fn zero(&mut self, start: u32, len: u32) -> io::Result<()> {
        self.assert_writable(start, len as usize);
        let at = self.extent.offset(start);
        match &self.extent.bay {
            Some(bay) => bay.mapped.zero(at, len as usize),
            None => self.extent.pool.memory.zero(at, len as usize),
        }
    }

    /// Returns the bytes from `start` to `end` while the block is borrowed.
    pub fn content(&self, start: u32, end: u32) -> &[u8] {
        assert!(start <= end && end <= self.bytes(), "bytes {start} to {end} of a block of {}", self.bytes());
        // SAFETY: the range was checked. Only this block writes the extent, and that needs an
        // exclusive borrow.
        unsafe { self.extent.slice(start, end) }
    }

    /// Returns a view of the bytes from `start` to `end`. While it lives, the bytes do not change
    /// and their memory stays allocated.
    pub fn view(&mut self, start: u32, end: u32) -> Bytes {
        assert!(start <= end && end <= self.bytes(), "bytes {start} to {end} of a block of {}", self.bytes());
        self.viewed_end = self.viewed_end.max(end);
        Bytes::from_owner(View { extent: Arc::clone(&self.extent), start, end })
    }

    /// Enlarges the block in place to `2^order` pages. Returns false if the pages behind it are in
    /// use or the space is not available.
    pub fn grow(&mut self, order: u8) -> bool {
        let mut books = self.extent.pool.books();
        let added = u64::from(bytes_of(order) - self.bytes());
        self.extent.pool.make_room(&mut books, added);
        let grown = books.ledger.grow(self.extent.home(), self.extent.run(), order);
        if grown {
            self.extent.pages.store(1 << order, Ordering::Relaxed);
        }
        self.extent.pool.settle(books);
        grown
    }

    /// Frees all but the first `pages`, unless views see the rest. Returns whether it did; the
    /// caller notifies.
    pub fn shrink(&mut self, pages: u32) -> bool {
        let run = self.extent.run();
        if pages >= run.pages || !self.is_writable(pages * PAGE_BYTES) {
            return false;
        }
        let mut books = self.extent.pool.books();
        books.ledger.shrink(self.extent.home(), run, pages);
        self.extent.pages.store(pages, Ordering::Relaxed);
        self.extent.pool.settle(books);
        true
    }

    fn assert_writable(&mut self, start: u32, len: usize) {
        assert!(start as usize + len <= self.bytes() as usize, "{len} bytes at {start} of a block of {}", self.bytes());
        assert!(self.is_writable(start), "byte {start} is viewed");
    }
}

/// A view of an extent's bytes.
struct View {
    extent: Arc<Extent>,
    start: u32,
    end: u32,
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the block checked the range. While this view holds the extent, the block neither
        // writes the range (fact 2) nor shrinks the extent below the end of the view.
        unsafe { self.extent.slice(self.start, self.end) }
    }
}

pub fn bytes_of(order: u8) -> u32 {
    PAGE_BYTES << order
}

pub fn offset_of(page: u32) -> usize {
    page as usize * PAGE_BYTES as usize
}
