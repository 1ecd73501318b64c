//! State of one kernel's inodes: what the kernel knows of the pool and holds open, so that replies
//! are consistent with earlier ones.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fuse_transport::{FuseOpen, Notifier};
use parking_lot::Mutex;
use placement::FileId;
use vfs::{Handle, Vfs};
use wire::OpenFlags;

use crate::{
    deferred::DeferredReplies,
    forget_reports::ForgetReports,
    lookup_counts::{InFlight, InFlightSet, InFlightSnapshot, LookupCounts},
    open_path::{OpenInodes, OpenPath},
    passthrough::{BackingGuard, Passthrough},
    prune::{DueItems, Pruner},
};

/// Upper limit of the time that a listing is in flight: the kernel consumes it within the system
/// call that asked for it.
const LISTING_IN_FLIGHT_MAX: Duration = Duration::from_secs(1);
/// Time after an invalidation of names during which listings give names that must not be cached.
/// Then invalidations need not wait for such listings.
const NO_CACHE_AFTER_INVALIDATION: Duration = Duration::from_secs(10);

/// Listings in flight whose names the kernel may cache.
#[derive(Debug, Default)]
struct DirListings {
    /// Start of the last listing with names to be cached.
    last_cacheable: Option<Instant>,
    /// Time of the last invalidation of names.
    last_invalidation: Option<Instant>,
}

/// Options for opens without passthrough.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenMode {
    /// Files opened only for writing bypass the page cache.
    pub(crate) direct_writes: bool,
    /// The kernel must send a flush for each close.
    pub(crate) flush: bool,
}

/// An open file that the kernel has no answer of yet; closed when dropped. A signal may end its
/// request.
pub(crate) struct UnansweredOpen {
    kernel: Arc<KernelState>,
    /// The pool's handle; `None` once taken.
    handle: Option<Handle>,
}

/// State of one kernel.
#[derive(Debug)]
pub(crate) struct KernelState {
    open_mode: OpenMode,
    lookup_counts: LookupCounts,
    in_flight: Arc<InFlightSet>,
    reports: Arc<ForgetReports>,
    open_inodes: Mutex<OpenInodes<Arc<BackingGuard>>>,
    passthrough: Passthrough,
    listings: Mutex<DirListings>,
    pruner: Pruner,
    notifier: Notifier,
    vfs: Vfs,
    /// Session beside the kernel's own, for the mount's internal requests.
    uncached_vfs: Vfs,
    deferred: Arc<DeferredReplies>,
}

impl KernelState {
    /// State of the kernel behind `notifier`. `vfs` is the kernel's session, and `uncached_vfs`
    /// another session, for which nothing is cached.
    pub(crate) fn new(
        open_mode: OpenMode,
        passthrough: Passthrough,
        notifier: Notifier,
        (vfs, uncached_vfs): (Vfs, Vfs),
        deferred: Arc<DeferredReplies>,
    ) -> Self {
        let in_flight = Arc::new(InFlightSet::default());
        Self {
            open_mode,
            lookup_counts: LookupCounts::default(),
            reports: Arc::new(ForgetReports::new(Arc::clone(&in_flight))),
            in_flight,
            open_inodes: Mutex::default(),
            passthrough,
            listings: Mutex::default(),
            pruner: Pruner::default(),
            notifier,
            vfs,
            uncached_vfs,
            deferred,
        }
    }

    /// True if files can be passed through.
    pub(crate) fn supports_passthrough(&self) -> bool {
        self.passthrough.is_enabled()
    }

    /// Sends invalidations to the kernel.
    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// True if the kernel knows `file`, or a reply that hands it out is being sent.
    pub(crate) fn is_known(&self, file: FileId) -> bool {
        self.lookup_counts.contains(file)
    }

    /// All inodes that the kernel knows, or that a reply being sent hands out.
    pub(crate) fn inodes(&self) -> Vec<FileId> {
        let mut inodes = self.lookup_counts.inodes();
        inodes.push(FileId::ROOT);
        inodes
    }

    /// The requests in flight now that may hand inodes to the kernel.
    pub(crate) fn requests_in_flight(&self) -> InFlightSnapshot {
        self.in_flight.snapshot()
    }

    /// Starts a listing that hands names and inodes to the kernel. Returns true if the names may be
    /// cached.
    pub(crate) fn begin_listing(&self) -> bool {
        let mut listings = self.listings.lock();
        let cacheable = listings.last_invalidation.is_none_or(|at| at.elapsed() > NO_CACHE_AFTER_INVALIDATION);
        if cacheable {
            listings.last_cacheable = Some(Instant::now());
        }
        cacheable
    }

    /// Records an invalidation of names. Returns true if a listing with names to be cached may
    /// still be in flight. Later invalidations need not ask again: listings from now on give none.
    pub(crate) fn record_name_invalidation(&self) -> bool {
        let mut listings = self.listings.lock();
        listings.last_invalidation = Some(Instant::now());
        listings.last_cacheable.take().is_some_and(|at| at.elapsed() < LISTING_IN_FLIGHT_MAX)
    }

    /// Starts a request that may hand inodes to the kernel, before the pool is asked. The guard
    /// must be held at least until the reply was counted.
    pub(crate) fn begin_lookup(&self) -> InFlight {
        self.in_flight.begin()
    }

    /// Counts one lookup of `file`, before the reply is sent. For an inode that the kernel cannot
    /// have forgotten: it is new, or the kernel holds it.
    pub(crate) fn add_lookup(&self, file: FileId) {
        self.lookup_counts.add(file);
    }

    /// Counts one lookup of `file`, before the reply is sent, unless a forget report overlaps with
    /// the request. Then the pool may take the inode for forgotten, and must be asked again, as the
    /// request that is returned. The former one should end before that: an invalidation that the
    /// pool's answer waits for may wait for it.
    pub(crate) fn count_lookup(&self, file: FileId, request: &InFlight) -> Result<(), InFlight> {
        self.lookup_counts.add(file);
        if !self.reports.overlaps(file, request) {
            return Ok(());
        }
        // Begun before the lookup is taken back: a report of that waits for it, so it does not
        // overlap too.
        let again = self.begin_lookup();
        self.forget_lookups(file, 1);
        Err(again)
    }

    /// Subtracts lookups that the kernel has forgotten, or that were not sent. After the last one
    /// the kernel no longer knows `file`.
    pub(crate) fn forget_lookups(&self, file: FileId, lookups: u64) {
        if self.lookup_counts.subtract(file, lookups) {
            self.open_inodes.lock().forget(file);
            let in_flight = self.in_flight.snapshot();
            if in_flight.is_finished() {
                self.report_forgotten(file);
            } else {
                self.pruner.on_forgotten(file, in_flight);
            }
        }
    }

    /// Reports to the node that the kernel has forgotten `file`; unless the kernel knows it again,
    /// and will forget it again.
    fn report_forgotten(&self, file: FileId) {
        let Some(report) = self.reports.begin(file, || self.is_known(file)) else { return };
        self.pruner.on_reported(file);
        let reported = self.vfs.report_forgotten(file);
        self.deferred.run("forget", async move {
            let outcome = reported.await;
            drop(report);
            outcome
        });
    }

    /// Starts pruning of inodes reported to [`Self::schedule_prune`]. Returns false if that is
    /// impossible.
    pub(crate) fn start_pruning(self: &Arc<Self>) -> bool {
        let started = self.pruner.start(self);
        if let Err(error) = &started {
            tracing::warn!("cannot start a thread: {error}; names that other mounts remove may be stale for a moment");
        }
        started.is_ok()
    }

    /// Schedules pruning of `file`, which another session removed.
    pub(crate) fn schedule_prune(&self, file: FileId) {
        // Taken before the inode is scheduled: if the kernel does not know the inode yet, only
        // these requests can hand it out.
        let in_flight = self.in_flight.snapshot();
        self.pruner.schedule(file, in_flight);
    }

    /// Sends prune notices and reports forgotten inodes, for the items that are due.
    pub(crate) fn prune_due(&self, due: &DueItems) {
        let inodes: Vec<u64> = due.prune.iter().map(|file| file.0).collect();
        if let Err(error) = self.notifier.prune(&inodes) {
            tracing::debug!("{} inodes could not be pruned: {error}", inodes.len());
        }
        for file in &due.forgotten {
            self.report_forgotten(*file);
        }
        // The kernel still knows these, and no name leads to them. So a request that overlaps has
        // nothing to ask again.
        for file in &due.overdue {
            self.deferred.run("forget", self.vfs.report_forgotten(*file));
        }
    }

    /// Registers an open and returns the kernel's options for it. Called before the reply is sent.
    pub(crate) fn register_open(&self, file: FileId, handle: Handle, flags: OpenFlags) -> FuseOpen {
        let path = self.open_inodes.lock().acquire(file, || self.passthrough.open_backing(&self.vfs, handle, flags));
        let opened = FuseOpen { handle: handle.0, no_flush: !self.open_mode.flush, ..FuseOpen::default() };
        match path {
            OpenPath::Passthrough(backing) => {
                self.invalidate_attributes(file, flags);
                FuseOpen { backing: Some(backing.id), ..opened }
            }
            OpenPath::Ordinary { outdated } => {
                let direct =
                    self.vfs.is_extent_file(handle) || self.vfs.is_shared(handle) || self.open_mode.is_direct(flags);
                FuseOpen { direct, parallel_direct_writes: direct, keep_cache: !direct && !outdated, ..opened }
            }
        }
    }

    /// The last byte of a file and its offset, if the kernel has the file open without passthrough.
    pub(crate) fn last_byte(&self, file: FileId) -> Option<(u64, u8)> {
        if !self.open_inodes.lock().is_ordinary(file) {
            return None;
        }
        // Errors are left to the program that reads the file.
        self.deferred.wait(self.uncached_vfs.last_byte(file)).ok().flatten()
    }

    /// Registers that the kernel has released one open of `file`.
    pub(crate) fn register_release(&self, file: FileId) {
        let backing = self.open_inodes.lock().release(file);
        // Dropped outside the lock, since closing a backing is a system call, and before the pool
        // closes the file: a pinned extent file is not demoted to inline.
        drop(backing);
        self.pruner.on_closed(file);
    }

    /// Undoes an open whose reply could not be sent.
    pub(crate) fn undo_open(&self, file: FileId, handle: Handle) {
        self.register_release(file);
        self.deferred.run("close", self.vfs.close(handle));
    }

    /// Invalidates cached attributes: stores into a mapping of a backing file change its times
    /// without notice to the kernel.
    fn invalidate_attributes(&self, file: FileId, flags: OpenFlags) {
        if can_map(flags)
            && let Err(error) = self.notifier.invalidate_attributes(file.0)
        {
            tracing::trace!("{file}: cached attributes could not be invalidated: {error}");
        }
    }
}

impl UnansweredOpen {
    pub(crate) fn new(kernel: Arc<KernelState>, handle: Handle) -> Self {
        Self { kernel, handle: Some(handle) }
    }

    /// The handle, to be answered.
    pub(crate) fn into_handle(mut self) -> Option<Handle> {
        self.handle.take()
    }
}

impl Drop for UnansweredOpen {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.kernel.deferred.run("close", self.kernel.vfs.close(handle));
        }
    }
}

/// True if a file opened with these flags can be mapped for writing.
pub(crate) fn can_map(flags: OpenFlags) -> bool {
    flags.read && flags.write
}

impl OpenMode {
    /// True if a file opened only for writing bypasses the page cache. That saves a copy, and for
    /// every temporary file a second place in memory. Such a file cannot be mapped through that
    /// descriptor anyway, and the kernel drops cached pages that a direct write overlaps.
    ///
    /// Extent files opened without passthrough bypass the cache too: others may write their bytes
    /// past this kernel. So do files that another mount has open, since the two mounts would wait
    /// for each other's pages. All other files keep their cached pages from open to open: the
    /// kernel knows of each change through this mount, and is notified of all others.
    fn is_direct(self, flags: OpenFlags) -> bool {
        self.direct_writes && flags.write && !flags.read
    }
}
