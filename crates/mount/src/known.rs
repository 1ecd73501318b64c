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
    lookups::{Look, Looks, Lookups, UnderWay},
    opens::{Opens, Way},
    park::Parking,
    removed::{Due, Removed},
    through::{Held, Through},
};

/// Upper limit of the time that a listing is in flight: the kernel consumes it within the system
/// call that asked for it.
const LISTED_LATELY: Duration = Duration::from_secs(1);
/// Time after an invalidation of names during which listings give names that must not be cached.
/// Then invalidations need not wait for such listings.
const QUIET: Duration = Duration::from_secs(10);

/// Listings in flight whose names the kernel may cache.
#[derive(Debug, Default)]
struct Listings {
    /// Start of the last listing with names to be cached.
    listed: Option<Instant>,
    /// Time of the last invalidation of names.
    recalled: Option<Instant>,
}

/// Options for opens without passthrough.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ordinary {
    /// Files opened only for writing bypass the page cache.
    pub(crate) direct_writes: bool,
    /// The kernel must send a flush for each close.
    pub(crate) flush: bool,
}

/// State of one kernel.
#[derive(Debug)]
pub(crate) struct Known {
    ordinary: Ordinary,
    lookups: Lookups,
    looks: Looks,
    opens: Mutex<Opens<Arc<Held>>>,
    through: Through,
    listings: Mutex<Listings>,
    removed: Removed,
    notifier: Notifier,
    vfs: Vfs,
    /// Session beside the kernel's own, for the mount's internal requests.
    beside: Vfs,
    parking: Arc<Parking>,
}

impl Known {
    /// State of the kernel behind `notifier`. `vfs` is the kernel's session, and `beside` another
    /// session, for which nothing is cached.
    pub(crate) fn new(
        ordinary: Ordinary,
        through: Through,
        notifier: Notifier,
        (vfs, beside): (Vfs, Vfs),
        parking: Arc<Parking>,
    ) -> Self {
        Self {
            ordinary,
            lookups: Lookups::default(),
            looks: Looks::default(),
            opens: Mutex::default(),
            through,
            listings: Mutex::default(),
            removed: Removed::default(),
            notifier,
            vfs,
            beside,
            parking,
        }
    }

    /// True if files can be passed through.
    pub(crate) fn passes_through(&self) -> bool {
        self.through.is_on()
    }

    /// Sends invalidations to the kernel.
    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// True if the kernel knows `file`, or a reply that hands it out is being sent.
    pub(crate) fn is_known(&self, file: FileId) -> bool {
        self.lookups.has(file)
    }

    /// All inodes that the kernel knows, or that a reply being sent hands out.
    pub(crate) fn all(&self) -> Vec<FileId> {
        let mut all = self.lookups.all();
        all.push(FileId::ROOT);
        all
    }

    /// The requests in flight now that may hand inodes to the kernel.
    pub(crate) fn under_way(&self) -> UnderWay {
        self.looks.under_way()
    }

    /// Starts a listing that hands names and inodes to the kernel. Returns true if the names may be
    /// cached.
    pub(crate) fn lists(&self) -> bool {
        let mut listings = self.listings.lock();
        let quiet = listings.recalled.is_none_or(|at| at.elapsed() > QUIET);
        if quiet {
            listings.listed = Some(Instant::now());
        }
        quiet
    }

    /// Records an invalidation of names. Returns true if a listing with names to be cached may
    /// still be in flight. Later invalidations need not ask again: listings from now on give none.
    pub(crate) fn recalls_names(&self) -> bool {
        let mut listings = self.listings.lock();
        listings.recalled = Some(Instant::now());
        listings.listed.take().is_some_and(|at| at.elapsed() < LISTED_LATELY)
    }

    /// Starts a request that may hand inodes to the kernel, before the pool is asked. The guard
    /// must be held at least until the reply was counted.
    pub(crate) fn looks(&self) -> Look {
        self.looks.begin()
    }

    /// Counts one lookup of `file`, before the reply is sent.
    pub(crate) fn gained(&self, file: FileId) {
        self.lookups.gained(file);
    }

    /// Subtracts lookups that the kernel has forgotten, or that were not sent. After the last one
    /// the kernel no longer knows `file`.
    pub(crate) fn lost(&self, file: FileId, lookups: u64) {
        if self.lookups.lost(file, lookups) {
            self.opens.lock().forgotten(file);
            if !self.removed.given_back(file, self.looks.under_way()) {
                self.parking.run("forget", self.vfs.report_forgotten(file));
            }
        }
    }

    /// Starts pruning of inodes reported to [`Self::was_removed`]. Returns false if that is
    /// impossible.
    pub(crate) fn lets_go(self: &Arc<Self>) -> bool {
        let started = self.removed.start(self);
        if let Err(error) = &started {
            tracing::warn!("names that other mounts remove may be stale for a moment: no thread: {error}");
        }
        started.is_ok()
    }

    /// Schedules pruning of `file`, which another session removed.
    pub(crate) fn was_removed(&self, file: FileId) {
        // Taken before the inode is noted: if the kernel does not know the inode yet, only these
        // requests can hand it out.
        let under_way = self.looks.under_way();
        self.removed.note(file, under_way);
    }

    /// Sends prune notices and reports forgotten inodes, for the items that are due.
    pub(crate) fn let_go(&self, due: &Due) {
        let inodes: Vec<u64> = due.prune.iter().map(|file| file.0).collect();
        if let Err(error) = self.notifier.prune(&inodes) {
            tracing::debug!("{} inodes are not let go of: {error}", inodes.len());
        }
        for file in &due.gone {
            self.parking.run("forget", self.vfs.report_forgotten(*file));
        }
    }

    /// Registers an open and returns the kernel's options for it. Called before the reply is sent.
    pub(crate) fn enter(&self, file: FileId, handle: Handle, flags: OpenFlags) -> FuseOpen {
        let way = self.opens.lock().enter(file, || self.through.offer(&self.vfs, handle, flags));
        let opened = FuseOpen { handle: handle.0, no_flush: !self.ordinary.flush, ..FuseOpen::default() };
        match way {
            Way::Through(held) => {
                self.forget_attributes(file, flags);
                FuseOpen { backing: Some(held.id), ..opened }
            }
            Way::Ordinary { outdated } => {
                let direct =
                    self.vfs.is_extent_file(handle) || self.vfs.is_shared(handle) || self.ordinary.is_direct(flags);
                FuseOpen { direct, parallel_direct_writes: direct, keep_cache: !direct && !outdated, ..opened }
            }
        }
    }

    /// The last byte of a file and its offset, if the kernel has the file open without passthrough.
    pub(crate) fn last_byte(&self, file: FileId) -> Option<(u64, u8)> {
        if !self.opens.lock().is_ordinary(file) {
            return None;
        }
        // Errors are left to the program that reads the file.
        self.parking.wait(self.beside.last_byte(file)).ok().flatten()
    }

    /// Registers that the kernel has released one open of `file`.
    pub(crate) fn leave(&self, file: FileId) {
        let held = self.opens.lock().leave(file);
        // Dropped outside the lock, since closing a backing is a system call, and before the pool
        // closes the file: a pinned extent file is not demoted to inline.
        drop(held);
        self.removed.closed(file);
    }

    /// Undoes an open whose reply could not be sent.
    pub(crate) fn undo(&self, file: FileId, handle: Handle) {
        self.leave(file);
        self.parking.run("close", self.vfs.close(handle));
    }

    /// Invalidates cached attributes: stores into a mapping of a backing file change its times
    /// without notice to the kernel.
    fn forget_attributes(&self, file: FileId, flags: OpenFlags) {
        if can_map(flags)
            && let Err(error) = self.notifier.invalidate_attributes(file.0)
        {
            tracing::trace!("attributes of {file} are not dropped: {error}");
        }
    }
}

/// True if a file opened with these flags can be mapped for writing.
pub(crate) fn can_map(flags: OpenFlags) -> bool {
    flags.read && flags.write
}

impl Ordinary {
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
