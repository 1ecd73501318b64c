//! The mapping, blocks of it, and views of blocks.
//!
//! All unsafe code is here, and all of it stands on three facts:
//! 1. **Blocks are disjoint.** The ledger gives each page to one [`Extent`] at a time, and gets it back when that is dropped.
//!    Of a bay, a page that was offered is nobody's block before its writer, a process of our user that is trusted so far, has said
//!    that it never touches it again.
//! 2. **What a view can see is not written.** A [`Block`] is the only writer of its extent, it knows how far its views reach,
//!    and it refuses to write before that point for as long as one is out.
//! 3. **The mapping outlives all.** An extent holds its pool, the pool the mapping; every byte of it is initialised (zero).

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLock};
use store::{EngineError, FreedHook};

use crate::PAGE_BYTES;
use crate::backing::Backing;
use crate::bay::{Bays, Memory, Offers};
use crate::buddy::{Buddy, PageRun, Span};
use crate::grant::Room;
use crate::high_water::HighWater;
use crate::landing::Landed;
use crate::ledger::{Ledger, NoRoom, OWN};
use crate::tmpfs::Tmpfs;

/// Address space per byte of capacity: room for large blocks while all that is free is scattered. Four times is more than any
/// mix of sizes was seen to need; where even that is used up, the arena is full early.
const ADDRESS_FACTOR: u64 = 4;

/// Taking back what whole files do not use is tried so often while they use ever more.
const TAKE_BACK_TRIES: u32 = 16;

/// The memory of an arena, and who holds what of it.
pub struct Pool {
    memory: Backing,
    capacity: u64,
    books: Mutex<Books>,
    /// What other processes write into.
    pub bays: Bays,
    /// What is being received.
    pub landed: Landed,
    hook: RwLock<Option<FreedHook>>,
    /// Where whole files lie, when there are any.
    whole: OnceLock<Tmpfs>,
}

/// Who has what, behind one lock.
pub struct Books {
    pub ledger: Ledger,
    /// What of it is offered and not taken.
    pub offers: Offers,
    /// The most that was used.
    high_water: HighWater,
}

impl Pool {
    /// Address space for `capacity` bytes in blocks of at most order `top`; no memory is touched yet.
    pub fn new(capacity: u64, top: u8) -> io::Result<Arc<Self>> {
        let top_bytes = u64::from(PAGE_BYTES) << top;
        let tops_least = capacity.div_ceil(top_bytes).max(1);
        let tops_most = u64::from((u32::MAX - 1) >> top);
        if tops_least > tops_most {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an arena reaches to 16 TiB at most"));
        }
        // Larger pages cannot be given back one block at a time; there the arena may fill early when its free space is scattered.
        let discards = rustix::param::page_size() <= PAGE_BYTES as usize;
        let tops_liked = if discards { tops_most.min(tops_least * ADDRESS_FACTOR) } else { tops_least };
        // Where address space is counted (strict overcommit, a limit on it), what is needed must do.
        let (memory, tops) = Backing::new(tops_liked, top_bytes)
            .map(|memory| (memory, tops_liked))
            .or_else(|_| Backing::new(tops_least, top_bytes).map(|memory| (memory, tops_least)))?;
        let buddy = Buddy::new(u32::try_from(tops).expect("at most tops_most"), top);
        let (ledger, high_water) = (Ledger::new(capacity, buddy, discards), HighWater::new(capacity));
        let books = Mutex::new(Books { ledger, offers: Offers::default(), high_water });
        let (bays, landed, hook) = (Bays::new(), Landed::default(), RwLock::default());
        Ok(Arc::new(Self { memory, capacity, books, bays, landed, hook, whole: OnceLock::new() }))
    }

    /// A block of `order`, its bytes unspecified.
    pub fn take(self: &Arc<Self>, order: u8) -> Result<Block, EngineError> {
        let mut books = self.books();
        let bytes = u64::from(PAGE_BYTES) << order;
        self.make_room(&mut books, bytes);
        let span = books.ledger.take(OWN, order).map_err(|no_room| self.full(no_room, bytes))?;
        self.settle(books);
        Ok(Block::of(self, None, span))
    }

    /// The same of memory that was touched before, if so many bytes may be free before; none where there is none.
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

    /// All that is written down.
    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock()
    }

    /// Counts `bytes` that are kept elsewhere.
    pub fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        let mut books = self.books();
        self.make_room(&mut books, bytes);
        books.ledger.reserve(bytes).map_err(|no_room| self.full(no_room, bytes))?;
        self.settle(books);
        Ok(())
    }

    /// Ends a reservation and says so.
    pub fn release(&self, bytes: u64) {
        let mut books = self.books();
        books.ledger.release(bytes);
        self.settle(books);
        self.notify();
    }

    /// Capacity, bytes used and bytes reserved. What is offered is not used: it is taken back when it is wanted.
    pub fn account(&self) -> (u64, u64, u64) {
        let books = self.books();
        let used = books.kept_by_us() + self.used_by_whole(&books.ledger);
        (self.capacity, used, books.ledger.reserved())
    }

    /// The most that was ever used, whole files as the system counts them.
    pub fn peak(&self) -> u64 {
        self.look_at_whole(&mut self.books())
    }

    /// To be called before whole files give something back: what they held until now counts.
    pub fn note_whole(&self) {
        self.look_at_whole(&mut self.books());
    }

    fn look_at_whole(&self, books: &mut Books) -> u64 {
        let (kept, whole) = (books.kept_by_us(), self.used_by_whole(&books.ledger));
        books.high_water.look(kept, whole)
    }

    /// What whole files may still take without asking; none when they have nothing.
    pub fn own_room(&self) -> Option<u64> {
        let books = self.books();
        let used = self.used_by_whole(&books.ledger);
        (used > 0).then(|| books.ledger.granted() - used)
    }

    /// Bytes of blocks that are held or warm.
    pub fn touched(&self) -> u64 {
        self.books().ledger.touched()
    }

    /// The memory that the system holds for the pool, whole files included, in bytes.
    pub fn resident(&self) -> io::Result<u64> {
        Ok(self.memory.resident()? + self.bays.resident()? + self.whole.get().map_or(Ok(0), Tmpfs::used)?)
    }

    /// The memory itself, to be looked at.
    pub fn memory(&self) -> &Backing {
        &self.memory
    }

    pub fn set_hook(&self, hook: FreedHook) {
        *self.hook.write() = Some(hook);
    }

    /// Tells who waits that space was given back. To be called with no lock held.
    pub fn notify(&self) {
        let hook = self.hook.read().clone();
        if let Some(hook) = hook {
            hook();
        }
    }

    /// Whole files shall lie in this tmpfs from now on.
    pub fn keep_whole_files_in(&self, home: Tmpfs) {
        let kept = self.whole.set(home).is_ok();
        assert!(kept, "a pool keeps its whole files in one place");
    }

    /// Where whole files lie.
    pub fn home(&self) -> &Tmpfs {
        self.whole.get().expect("only who keeps whole files asks where")
    }

    /// What whole files may take, in bytes.
    pub fn granted(&self) -> u64 {
        self.books().ledger.granted()
    }

    /// Enlarges the grant of whole files to what `decide` says, which has room by its decision; tells how the space is dealt then.
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

    /// Takes back what others have and do not use: offers, then the grant of whole files.
    fn make_room(&self, books: &mut Books, wanted: u64) {
        while books.ledger.check_room(wanted).is_err() && books.offers.revoke_one(&mut books.ledger) {}
        self.make_room_beside_offers(&mut books.ledger, wanted);
    }

    /// Takes back from the grant of whole files what they do not use, where others need it.
    pub fn make_room_beside_offers(&self, ledger: &mut Ledger, wanted: u64) {
        if ledger.granted() == 0 {
            return;
        }
        // Writers past us may use more between the look and the cut, which is refused then; each turn sees more used.
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

    /// What whole files hold. Where the system does not tell, all that they may hold.
    fn used_by_whole(&self, ledger: &Ledger) -> u64 {
        let granted = ledger.granted();
        let used = || self.whole.get().map_or(Ok(0), Tmpfs::used);
        if granted == 0 { 0 } else { used().unwrap_or(granted).min(granted) }
    }

    fn full(&self, NoRoom { used }: NoRoom, wanted: u64) -> EngineError {
        EngineError::Full { capacity: self.capacity, used, wanted }
    }

    /// Gives back to the system what is too much, then lets others at the ledger.
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
            // The span is free, and stays so while the ledger is locked: no block and no view refers to it (fact 1). If the
            // system refuses, it stays touched, which costs memory and no promise to a reader.
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
    /// Blocks and reservations, without what is only offered.
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

/// Pages that someone holds: a block, and the views of it.
struct Extent {
    pool: Arc<Pool>,
    /// The bay that it is of; none for the pool's own memory.
    bay: Option<Arc<Memory>>,
    first: u32,
    /// Changed by the block only; here, because whoever drops the extent last must know it.
    pages: AtomicU32,
}

impl Extent {
    fn run(&self) -> PageRun {
        PageRun { first: self.first, pages: self.pages.load(Ordering::Relaxed) }
    }

    fn bytes(&self) -> u32 {
        self.run().pages * PAGE_BYTES
    }

    /// Where in the pool's memory byte `at` of the extent lies.
    fn offset(&self, at: u32) -> usize {
        offset_of(self.first) + at as usize
    }

    fn pointer(&self, at: u32) -> *const u8 {
        debug_assert!(at <= self.bytes());
        // In bounds of the mapping, which wrapping arithmetic does not need to be told.
        match &self.bay {
            Some(bay) => bay.mapped.pointer(self.offset(at)),
            None => self.pool.memory.pointer(self.offset(at)),
        }
    }

    fn home(&self) -> u32 {
        self.bay.as_ref().map_or(OWN, |bay| bay.number)
    }

    /// The bytes from `start` to `end`.
    ///
    /// # Safety
    /// The range lies in the extent, and its bytes are not written as long as the slice lives.
    unsafe fn slice(&self, start: u32, end: u32) -> &[u8] {
        // SAFETY: the caller promises the range and that nobody writes; the bytes are initialised and live as long as the
        // pool and the bay do, which this extent holds (fact 3).
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

/// Memory of one stripe: contiguous, the beginning of a block. Dropping it gives it back once its last view is gone.
pub struct Block {
    extent: Arc<Extent>,
    /// No view reaches beyond this; meaningless once none is out.
    viewed_end: u32,
}

impl Block {
    /// The block of pages that the ledger gave, of a bay or of the pool's own memory.
    pub fn of(pool: &Arc<Pool>, bay: Option<Arc<Memory>>, span: Span) -> Self {
        let PageRun { first, pages } = span.into();
        let extent = Extent { pool: Arc::clone(pool), bay, first, pages: AtomicU32::new(pages) };
        Self { extent: Arc::new(extent), viewed_end: 0 }
    }

    /// How many bytes it has room for.
    pub fn bytes(&self) -> u32 {
        self.extent.bytes()
    }

    /// Whether no view can see a byte from `start` on.
    pub fn is_writable(&mut self, start: u32) -> bool {
        // Sole ownership also means that all that was read through dropped views was read before now.
        if Arc::get_mut(&mut self.extent).is_some() {
            self.viewed_end = 0;
        }
        start >= self.viewed_end
    }

    /// Puts `data` at `start`, where it must fit and be writable. Fails where the system has no memory left.
    ///
    /// The kernel writes, behind the back of the compiler: the range lies in the extent, whose only writer is this exclusively
    /// borrowed block, and no view sees it (both asserted), so no slice that is alive changes (facts 1 and 2).
    pub fn write(&mut self, start: u32, data: &[u8]) -> io::Result<()> {
        self.assert_writable(start, data.len());
        let at = self.extent.offset(start);
        match &self.extent.bay {
            Some(bay) => bay.mapped.write(at, data),
            None => self.extent.pool.memory.write(at, data),
        }
    }

    /// The bytes from `start` to `end`, which must be writable, to be written; what is in them is unspecified.
    pub fn space(&mut self, start: u32, end: u32) -> &mut [u8] {
        assert!(start <= end, "bytes {start} to {end}");
        self.assert_writable(start, (end - start) as usize);
        // SAFETY: the range lies in the extent, whose only writer is this block, exclusively borrowed as long as the slice lives, and no
        // view sees it, both asserted (facts 1 and 2); it is mapped for writing, initialised, and lives as long as the extent (fact 3).
        unsafe { std::slice::from_raw_parts_mut(self.extent.pointer(start).cast_mut(), (end - start) as usize) }
    }

    /// Puts `len` zeros at `start`, where they must fit and be writable. As `write` otherwise.
    pub fn zero(&mut self, start: u32, len: u32) -> io::Result<()> {
        self.assert_writable(start, len as usize);
        let at = self.extent.offset(start);
        match &self.extent.bay {
            Some(bay) => bay.mapped.zero(at, len as usize),
            None => self.extent.pool.memory.zero(at, len as usize),
        }
    }

    /// The bytes from `start` to `end`, for as long as the block is borrowed.
    pub fn content(&self, start: u32, end: u32) -> &[u8] {
        assert!(start <= end && end <= self.bytes(), "bytes {start} to {end} of a block of {}", self.bytes());
        // SAFETY: the range was checked; only this block writes the extent, for which it would have to be borrowed exclusively.
        unsafe { self.extent.slice(start, end) }
    }

    /// A view of the bytes from `start` to `end`, which keeps them as they are and the block's memory in use.
    pub fn view(&mut self, start: u32, end: u32) -> Bytes {
        assert!(start <= end && end <= self.bytes(), "bytes {start} to {end} of a block of {}", self.bytes());
        self.viewed_end = self.viewed_end.max(end);
        Bytes::from_owner(View { extent: Arc::clone(&self.extent), start, end })
    }

    /// Makes room for `2^order` pages where it stands; false when others are in the way.
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

    /// Gives back all but the first `pages`, unless they are viewed; says whether it did. The caller notifies.
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

/// Bytes that someone looks at.
struct View {
    extent: Arc<Extent>,
    start: u32,
    end: u32,
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the block checked the range and does not write it while this view holds the extent (fact 2); nor is the
        // extent cut to less than is viewed.
        unsafe { self.extent.slice(self.start, self.end) }
    }
}

pub fn bytes_of(order: u8) -> u32 {
    PAGE_BYTES << order
}

pub fn offset_of(page: u32) -> usize {
    page as usize * PAGE_BYTES as usize
}
