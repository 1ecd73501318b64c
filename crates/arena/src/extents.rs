//! Extent files: a pool of nameless files in a private tmpfs, which share a quota.
//!
//! The file of a slot is created once and stays open as long as the arena; it is reused after
//! truncation. So most new files of the pool need no new tmpfs file, and a kernel that caches a
//! descriptor can cache it by slot.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{
    FallocateFlags, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fallocate, fcntl_getfl,
    fcntl_setfl, futimens, open, seek,
};
use rustix::io::{Errno, ReadWriteFlags, pread, pwritev2};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::{
    Access, EngineError, ExtentState, Extents, FallocateMode, LeaseNumber, PageChecks, SeekTarget, Slot, WriteResult,
};

use crate::PAGE_BYTES;
use crate::block::BlockPool;
use crate::extent_quota::Quota;
use crate::page_size::PageSizeMonitor;
use crate::tmpfs::Tmpfs;
use crate::{lease_probe, open_probe, thin};

/// Slots per allocated chunk of the slot table; a chunk is allocated when it is first needed.
const CHUNK_SLOTS: usize = 1024;
/// Maximum number of slots. Each costs a kernel slightly more than 1 KiB, even while it is free.
const SLOTS_MAX: usize = 65_536;
/// Number of append locks; two slots may share one.
const APPEND_LOCKS: usize = 64;
/// Unit of the block count of `stat`, on every file system.
const STAT_BLOCK_BYTES: u64 = 512;
/// Reads longer than this, the maximum of a kernel request, look up the file length before they
/// allocate a buffer.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Data runs examined to tell if a file is dense. 64 MiB are dense if half of them is in this many
/// runs, 512 KiB each on average.
const RUNS_MAX: u32 = 64;
/// Attempts of a call that finds no space, with a request for a larger quota before each retry.
const SPACE_TRIES: u32 = 4;

/// Files of neighbouring slots.
type SlotChunk = Box<[OnceLock<File>]>;

/// All slots of an arena.
pub struct Slots {
    pool: Arc<BlockPool>,
    files: Box<[OnceLock<SlotChunk>]>,
    allocator: Mutex<SlotAllocator>,
    /// Locks of the file positions, which show where our own appends went.
    appends: [Mutex<()>; APPEND_LOCKS],
    page_size: Arc<PageSizeMonitor>,
    weak_self: Weak<Self>,
}

/// The free list of slots.
struct SlotAllocator {
    free: Vec<u32>,
    created: u32,
    /// Maximum number of slots that may be made.
    limit: u32,
    /// Slots whose times were set; the times are reset before reuse.
    timed: HashSet<u32>,
    /// Slots with preallocated space.
    reserved: HashSet<u32>,
}

impl Slots {
    /// Creates an empty pool. Fails if a tmpfs can be created neither here nor in a user namespace.
    ///
    /// Raises the soft limit of open files of this process to the hard limit, because each extent
    /// file is an open file. A quarter of the limit is left for other files.
    pub fn new(pool: &Arc<BlockPool>) -> io::Result<Arc<Self>> {
        pool.set_extent_tmpfs(Tmpfs::bounded(PAGE_BYTES.into())?);
        let limit = usize::try_from(raise_fd_limit() / 4 * 3).unwrap_or(SLOTS_MAX).min(SLOTS_MAX);
        let files = (0..limit.div_ceil(CHUNK_SLOTS)).map(|_| OnceLock::new()).collect();
        let limit = u32::try_from(limit).expect("at most SLOTS_MAX");
        let allocator = Mutex::new(SlotAllocator {
            free: Vec::new(),
            created: 0,
            limit,
            timed: HashSet::new(),
            reserved: HashSet::new(),
        });
        Ok(Arc::new_cyclic(|weak_self| Self {
            pool: Arc::clone(pool),
            files,
            allocator,
            appends: [const { Mutex::new(()) }; APPEND_LOCKS],
            page_size: Arc::default(),
            weak_self: weak_self.clone(),
        }))
    }

    /// The tmpfs of all slots.
    pub fn tmpfs(&self) -> &Tmpfs {
        self.pool.extent_tmpfs()
    }

    /// Returns true if the first runs of a file hold at least half of its `allocated` bytes.
    pub fn is_dense(&self, slot: Slot, allocated: u64) -> bool {
        let (mut at, mut found) = (0, 0);
        for _ in 0..RUNS_MAX {
            let Ok(Some(start)) = self.seek(slot, at, SeekTarget::Data) else { break };
            let Ok(Some(end)) = self.seek(slot, start, SeekTarget::Hole) else { break };
            found += end - start;
            at = end;
        }
        found >= allocated / 2
    }

    fn file(&self, slot: Slot) -> &File {
        let (chunk, within) = (slot.0 as usize / CHUNK_SLOTS, slot.0 as usize % CHUNK_SLOTS);
        let chunk = self.files.get(chunk).and_then(OnceLock::get);
        chunk.and_then(|chunk| chunk[within].get()).expect("an allocated slot")
    }

    /// Makes one more slot; `None` at the limit, or if the file cannot be created.
    fn create_slot(&self, allocator: &mut SlotAllocator) -> Option<u32> {
        if allocator.created >= allocator.limit {
            return None;
        }
        let file = self.pool.extent_tmpfs().nameless_file().ok()?;
        let slot = allocator.created as usize;
        let chunk = self.files[slot / CHUNK_SLOTS].get_or_init(|| (0..CHUNK_SLOTS).map(|_| OnceLock::new()).collect());
        chunk[slot % CHUNK_SLOTS].set(file).expect("a slot is made once");
        allocator.created += 1;
        Some(allocator.created - 1)
    }

    fn full_error(&self, wanted: u64) -> EngineError {
        let (capacity, used, _) = self.pool.account();
        EngineError::Full { capacity, used, wanted }
    }

    /// Runs a call that takes space. If it finds none, asks for `wanted` more bytes and retries, as
    /// long as the quota grows.
    fn with_space<T>(
        &self,
        slot: Slot,
        action: &'static str,
        wanted: u64,
        attempt: impl Fn() -> rustix::io::Result<T>,
    ) -> Result<T, EngineError> {
        for _ in 0..SPACE_TRIES {
            match attempt() {
                Err(Errno::NOSPC) if !self.raise_quota(wanted) => break,
                Err(Errno::NOSPC | Errno::INTR) => {}
                done => return done.map_err(|errno| EngineError::Extent { slot, action, source: errno.into() }),
            }
        }
        Err(self.full_error(wanted))
    }

    /// Raises the quota for a writer that needs `wanted` bytes. Returns whether it grew.
    fn raise_quota(&self, wanted: u64) -> bool {
        let before = self.pool.granted();
        self.pool.raise_quota(|quota| quota.for_write(wanted)).granted > before
    }

    /// Runs an internal read of the file that does not change its access time.
    fn without_atime<T>(&self, slot: Slot, action: impl FnOnce() -> T) -> Option<T> {
        let file = self.file(slot);
        let flags = fcntl_getfl(file).ok()?.difference(OFlags::NOATIME);
        fcntl_setfl(file, flags | OFlags::NOATIME).ok()?;
        let done = action();
        fcntl_setfl(file, flags).ok()?;
        Some(done)
    }

    fn preallocate(&self, slot: Slot, range: &Range<u64>, keep_size: bool) -> Result<(), EngineError> {
        self.allocator.lock().reserved.insert(slot.0);
        let flags = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let len = range.end - range.start;
        self.with_space(slot, "allocate", len, || fallocate(self.file(slot), flags, range.start, len))
    }

    /// Frees the space of a range (punches a hole).
    pub fn punch(&self, slot: Slot, range: &Range<u64>) -> Result<(), EngineError> {
        self.pool.sample_extents();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.file(slot), flags, range.start, range.end - range.start)
            .map_err(|errno| EngineError::Extent { slot, action: "punch", source: errno.into() })?;
        self.pool.notify();
        Ok(())
    }
}

impl Extents for Slots {
    fn allocate_slot(&self) -> Option<Slot> {
        if !self.reserve_headroom() {
            return None;
        }
        let mut allocator = self.allocator.lock();
        let slot = match allocator.free.pop() {
            Some(slot) => slot,
            None => self.create_slot(&mut allocator)?,
        };
        Some(Slot(slot))
    }

    fn free_slot(&self, slot: Slot) {
        let file = self.file(slot);
        self.pool.sample_extents();
        self.page_size.unwatch(self, slot);
        // Truncation to zero needs no space. If the system refuses nevertheless, the slot is not
        // reused.
        if file.set_len(0).is_err() {
            return;
        }
        let mut allocator = self.allocator.lock();
        allocator.reserved.remove(&slot.0);
        if allocator.timed.remove(&slot.0) {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let _ = futimens(file, &Timestamps { last_access: now, last_modification: now });
        }
        debug_assert!(!allocator.free.contains(&slot.0), "{slot} was freed twice");
        allocator.free.push(slot.0);
        drop(allocator);
        self.pool.notify();
    }

    fn reserve_headroom(&self) -> bool {
        !self.pool.raise_quota(Quota::for_open).is_mostly_used()
    }

    fn fd(&self, slot: Slot) -> Option<BorrowedFd<'_>> {
        Some(self.file(slot).as_fd())
    }

    fn begin_direct_writes(&self, slot: Slot) {
        self.page_size.watch(self, &self.weak_self, slot);
    }

    fn end_direct_writes(&self, slot: Slot) {
        self.page_size.unwatch(self, slot);
    }

    fn has_slack(&self, slot: Slot) -> bool {
        if self.allocator.lock().reserved.contains(&slot.0) {
            return false;
        }
        let length = self.state(slot).map_or(0, |state| state.length);
        length >= thin::BYTES_MIN
            && self.without_atime(slot, || thin::is_worthwhile(self, slot, length)).unwrap_or(false)
    }

    fn thin(&self, slot: Slot, from: u64) -> Option<u64> {
        let ExtentState { length, modified, .. } = self.state(slot).ok()?;
        let next = self.without_atime(slot, || thin::thin_piece(self, slot, from..length));
        self.set_times(slot, None, Some(modified)).ok()?;
        next.flatten().filter(|next| *next < length)
    }

    fn open(&self, slot: Slot, access: Access, lease: LeaseNumber) -> io::Result<OwnedFd> {
        let mode = match access {
            Access { read: true, write: true, .. } => OFlags::RDWR,
            Access { write: true, .. } => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        let append = if access.append { OFlags::APPEND } else { OFlags::empty() };
        // A file without a name is reopened through its descriptor.
        let path = format!("/proc/self/fd/{}", self.file(slot).as_raw_fd());
        let opened = open(path, mode | append | OFlags::CLOEXEC, Mode::empty())?;
        open_probe::set_lock(opened.as_fd(), lease, access)?;
        Ok(opened)
    }

    fn is_open(&self, slot: Slot, lease: LeaseNumber) -> bool {
        open_probe::is_open(self.file(slot).as_fd(), lease)
    }

    fn state(&self, slot: Slot) -> Result<ExtentState, EngineError> {
        let status =
            self.file(slot).metadata().map_err(|source| EngineError::Extent { slot, action: "stat", source })?;
        Ok(ExtentState {
            length: status.len(),
            allocated: status.blocks() * STAT_BLOCK_BYTES,
            accessed: system_time(status.atime(), status.atime_nsec()),
            modified: system_time(status.mtime(), status.mtime_nsec()),
            changed: system_time(status.ctime(), status.ctime_nsec()),
        })
    }

    fn read_at(&self, slot: Slot, offset: u64, len: u32) -> Result<Bytes, EngineError> {
        let len = if len > REQUEST_BYTES_MAX {
            self.state(slot)?.length.saturating_sub(offset).min(len.into())
        } else {
            len.into()
        };
        let len = usize::try_from(len).expect("at most what was asked for");
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            match pread(self.file(slot), rustix::buffer::spare_capacity(&mut bytes), at) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(EngineError::Extent { slot, action: "read", source: errno.into() }),
            }
        }
        bytes.truncate(len);
        Ok(bytes.into())
    }

    fn write_at(&self, slot: Slot, offset: u64, data: &[u8]) -> Result<WriteResult, EngineError> {
        let mut done = 0;
        while done < data.len() {
            let (at, rest) = (offset + done as u64, &data[done..]);
            let attempt = || rustix::io::pwrite(self.file(slot), rest, at);
            match self.with_space(slot, "write", rest.len() as u64, attempt) {
                Ok(put) => done += put,
                Err(EngineError::Full { .. }) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(WriteResult { offset, length: length(done) })
    }

    fn append(&self, slot: Slot, data: &[u8]) -> Result<WriteResult, EngineError> {
        let file = self.file(slot);
        let _guard = self.appends[slot.0 as usize % APPEND_LOCKS].lock();
        // The append must succeed in one call: other bytes could come between two parts.
        self.pool.raise_quota(|quota| {
            if quota.granted - quota.used < data.len() as u64 {
                quota.for_write(data.len() as u64)
            } else {
                quota.granted
            }
        });
        // Appends at the file's own position, which the call moves to the end of the new bytes; the
        // seek below reads it.
        let put = self.with_space(slot, "append", data.len() as u64, || {
            pwritev2(file, &[IoSlice::new(data)], u64::MAX, ReadWriteFlags::APPEND)
        })?;
        let end = seek(file, SeekFrom::Current(0)).map_err(|errno| EngineError::Extent {
            slot,
            action: "append",
            source: errno.into(),
        })?;
        Ok(WriteResult { offset: end - put as u64, length: length(put) })
    }

    fn truncate(&self, slot: Slot, length: u64) -> Result<(), EngineError> {
        self.pool.sample_extents();
        self.page_size.extend(self, slot, length);
        self.file(slot).set_len(length).map_err(|source| EngineError::Extent { slot, action: "truncate", source })?;
        self.pool.notify();
        Ok(())
    }

    fn fallocate(&self, slot: Slot, range: Range<u64>, mode: FallocateMode) -> Result<(), EngineError> {
        match mode {
            FallocateMode::Extend => self.preallocate(slot, &range, false),
            FallocateMode::KeepSize => self.preallocate(slot, &range, true),
            FallocateMode::PunchHole => self.punch(slot, &range),
            FallocateMode::ZeroRange | FallocateMode::ZeroRangeKeepSize => {
                // Allocate first, so that a lack of space is reported before anything has changed.
                self.preallocate(slot, &range, true)?;
                self.punch(slot, &range)?;
                self.preallocate(slot, &range, mode == FallocateMode::ZeroRangeKeepSize)
            }
        }
    }

    fn seek(&self, slot: Slot, offset: u64, target: SeekTarget) -> Result<Option<u64>, EngineError> {
        let _guard = self.appends[slot.0 as usize % APPEND_LOCKS].lock();
        let from = match target {
            SeekTarget::Data => SeekFrom::Data(offset),
            SeekTarget::Hole => SeekFrom::Hole(offset),
        };
        match seek(self.file(slot), from) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(EngineError::Extent { slot, action: "seek", source: errno.into() }),
        }
    }

    fn set_times(
        &self,
        slot: Slot,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<(), EngineError> {
        self.allocator.lock().timed.insert(slot.0);
        let times = Timestamps { last_access: timespec(accessed), last_modification: timespec(modified) };
        futimens(self.file(slot), &times).map_err(|errno| EngineError::Extent {
            slot,
            action: "set times",
            source: errno.into(),
        })
    }

    fn is_idle(&self, slot: Slot) -> bool {
        lease_probe::is_idle(self.file(slot).as_fd())
    }

    fn slot_counts(&self) -> (u64, u64) {
        let allocator = self.allocator.lock();
        (allocator.created.into(), allocator.free.len() as u64)
    }

    fn page_checks(&self) -> PageChecks {
        self.page_size.page_checks()
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Slots").field("slots", &self.slot_counts()).finish_non_exhaustive()
    }
}

/// Raises the limit of descriptors of this process to its maximum and returns it.
fn raise_fd_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    // Without a limit, any large number will do.
    if raised.is_ok() { limit.maximum } else { limit.current }.unwrap_or(u64::MAX)
}

fn length(put: usize) -> u32 {
    u32::try_from(put).expect("a call puts at most 2 GiB")
}

/// Converts a time of `stat`. Before 1970 the seconds are negative and the nanoseconds still count
/// forward.
fn system_time(secs: i64, nanos: i64) -> SystemTime {
    let whole = Duration::from_secs(secs.unsigned_abs());
    let base = if secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nanos.unsigned_abs()))).unwrap_or(UNIX_EPOCH)
}

fn timespec(time: Option<SystemTime>) -> Timespec {
    let Some(time) = time else { return Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT } };
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec { tv_sec: after.as_secs().cast_signed(), tv_nsec: after.subsec_nanos().into() },
        Err(before) => {
            let back = before.duration();
            let borrowed = i64::from(back.subsec_nanos() > 0);
            let nanos = (1_000_000_000 - back.subsec_nanos()) % 1_000_000_000;
            Timespec { tv_sec: -back.as_secs().cast_signed() - borrowed, tv_nsec: nanos.into() }
        }
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a test says what it could not try")]
mod tests {
    use crate::{Arena, ArenaOptions};
    use placement::{FileId, PartitionId, StripeNo};
    use rustix::process::geteuid;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::sync::Arc;
    use store::{Engine, Extents, FallocateMode, Generation, ModelEngine, Slot, StripeKey, StripeStore};

    /// An unprivileged user.
    const NOBODY: u32 = 65_534;

    store::extents_conformance_tests!(with_extents);

    /// If a tmpfs can be created neither here nor in a user namespace, there is nothing to test,
    /// and the model replaces the arena.
    fn with_extents(bytes: u64) -> Arc<dyn Engine> {
        let arena = Arena::new(ArenaOptions { stripe_bytes: 1 << 16, ..ArenaOptions::with_capacity(bytes) }).unwrap();
        if arena.extents().is_some() {
            return Arc::new(arena);
        }
        println!("the model replaces the arena");
        Arc::new(ModelEngine::with_extents(bytes, 1 << 16))
    }

    #[test]
    fn without_rights_but_with_a_user_namespace_there_are_extent_files_too() {
        let as_nobody = |program: &str, arguments: &[&str]| {
            Command::new(program).args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/").output()
        };
        let may = as_nobody("unshare", &["--user", "--map-root-user", "true"]).is_ok_and(|done| done.status.success());
        if !geteuid().is_root() || !may {
            return println!("SKIPPED: this is not root, or others may make no user namespaces");
        }
        let tests = as_nobody("/proc/self/exe", &["--nocapture", "extents_conformance", "tmpfs::"]).unwrap();
        let output = String::from_utf8_lossy(&tests.stdout);
        assert!(tests.status.success() && !output.contains("running 0 tests"), "{output}");
        assert!(!output.contains("the model replaces the arena"), "{output}");
    }

    const MIB: u64 = 1 << 20;

    /// An arena with extent files and one of them that is written past the arena.
    fn written_directly() -> Option<(Arc<dyn Extents>, Slot, File)> {
        let extents = Arena::new(ArenaOptions::with_capacity(512 * MIB)).unwrap().extents()?;
        let slot = extents.allocate_slot().unwrap();
        extents.begin_direct_writes(slot);
        let file = extents.fd(slot)?.try_clone_to_owned().unwrap().into();
        Some((extents, slot, file))
    }

    fn allocated(extents: &Arc<dyn Extents>, slot: Slot) -> u64 {
        extents.state(slot).unwrap().allocated
    }

    #[test]
    fn bytes_far_apart_in_a_file_that_was_extended_take_a_small_page_each() {
        let Some((extents, slot, file)) = written_directly() else { return };
        extents.truncate(slot, 400 * MIB).unwrap();
        for number in 0..200 {
            file.write_all_at(b"x", number * 2 * MIB).unwrap();
        }
        assert_eq!(allocated(&extents, slot), 200 * 4096);
        extents.end_direct_writes(slot);
        extents.begin_direct_writes(slot);
        file.write_all_at(b"x", 2 * MIB - 1).unwrap();
        assert_eq!(allocated(&extents, slot), 201 * 4096, "likewise after it was opened again");
        extents.free_slot(slot);
    }

    #[test]
    fn a_file_that_is_filled_densely_after_it_was_extended_has_huge_pages_again_and_so_has_a_file_after_a_sparse_one() {
        let Some((extents, slot, file)) = written_directly() else { return };
        extents.truncate(slot, 400 * MIB).unwrap();
        let mut at = 0;
        // The size that one byte takes in an empty part of the file shows the page size.
        let has_huge = |probe: u64| {
            let before = allocated(&extents, slot);
            file.write_all_at(b"x", probe).unwrap();
            let taken = allocated(&extents, slot) - before;
            extents
                .fallocate(slot, probe / 4096 * 4096..probe / 4096 * 4096 + 2 * MIB, FallocateMode::PunchHole)
                .unwrap();
            taken > 4096
        };
        assert!(!has_huge(300 * MIB));
        while at < 64 * MIB {
            file.write_all_at(&vec![7; 1 << 16], at).unwrap();
            at += 1 << 16;
        }
        test_support::until("the file has large pages", || has_huge(300 * MIB));
        extents.truncate(slot, 500 * MIB).unwrap();
        assert!(!has_huge(450 * MIB), "a new hole");
        extents.end_direct_writes(slot);
        assert!(has_huge(450 * MIB), "nobody writes to it any more");
        extents.free_slot(slot);
    }

    #[test]
    fn what_was_written_backwards_is_thinned_to_its_pages_and_keeps_its_bytes_and_times() {
        let Some((extents, slot, file)) = written_directly() else { return };
        for number in (0..40_u64).rev() {
            // Alternately at the start, in the middle and at the end of a huge page.
            file.write_all_at(&[7; 100], number * 2 * MIB + number % 3 * (MIB - 50)).unwrap();
        }
        let all = extents.read_at(slot, 0, u32::MAX).unwrap();
        let before = extents.state(slot).unwrap();
        assert!(extents.has_slack(slot));
        let mut at = Some(0);
        while let Some(from) = at {
            at = extents.thin(slot, from);
        }
        let after = extents.state(slot).unwrap();
        assert!((40 * 4096..=2 * 40 * 4096).contains(&after.allocated), "{} of {}", after.allocated, before.allocated);
        assert_eq!((after.length, after.modified, after.accessed), (before.length, before.modified, before.accessed));
        assert!(extents.read_at(slot, 0, u32::MAX).unwrap() == all);
        extents.free_slot(slot);
    }

    #[test]
    fn what_is_full_of_bytes_or_zeros_or_was_set_aside_is_not_thinned() {
        let Some((extents, slot, file)) = written_directly() else { return };
        for (fill, reserved) in [(7, false), (0, false), (7, true)] {
            extents.truncate(slot, 0).unwrap();
            if reserved {
                extents.fallocate(slot, 0..40 * MIB, FallocateMode::Extend).unwrap();
                (0..20).for_each(|number| file.write_all_at(b"x", number * 2 * MIB).unwrap());
            } else {
                (0..40).for_each(|number| file.write_all_at(&vec![fill; 1 << 20], number * MIB).unwrap());
            }
            // A small page of written zeros is treated as unwritten, but a huge page of zeros is
            // kept.
            assert!(reserved || fill == 0 || !extents.has_slack(slot));
            let before = allocated(&extents, slot);
            if extents.has_slack(slot) {
                extents.thin(slot, 0);
            }
            assert_eq!(allocated(&extents, slot), before, "{fill} {reserved}");
        }
        extents.free_slot(slot);
    }

    #[test]
    fn the_peak_counts_blocks_and_extent_files_as_they_were_together_at_one_moment() {
        let arena =
            Arena::new(ArenaOptions { stripe_bytes: 1 << 16, ..ArenaOptions::with_capacity(16 << 20) }).unwrap();
        let Some(extents) = arena.extents() else { return println!("SKIPPED: no extent files here") };
        let key = |stripe: u64| StripeKey { partition: PartitionId(0), file: FileId(1), stripe: StripeNo(stripe) };
        for stripe in 0..10 {
            arena.write(key(stripe), Generation(0), 0, &vec![1; 1 << 16]).unwrap();
        }
        let slot = extents.allocate_slot().unwrap();
        extents.write_at(slot, 0, &vec![1; 1 << 20]).unwrap();
        let both = arena.usage().used;
        assert!(both >= (10 << 16) + (1 << 20));
        (0..10).for_each(|stripe| arena.remove(key(stripe)).unwrap());
        extents.free_slot(slot);
        arena.write(key(0), Generation(0), 0, &vec![1; 1 << 16]).unwrap();
        assert!(arena.usage().used < both);
        assert!((both..=both + (16 << 10)).contains(&arena.peak()), "{} of {both}", arena.peak());
    }

    #[test]
    fn without_the_right_or_the_option_there_are_no_extent_files() {
        let arena = Arena::new(ArenaOptions { extent_files: false, ..ArenaOptions::with_capacity(1 << 20) }).unwrap();
        assert!(arena.extents().is_none());
    }
}
