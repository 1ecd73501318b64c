//! What one kernel knows of the pool's inodes and holds open, kept so that our answers fit what it was told before.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kernel::{Notifier, Opened};
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

/// No listing is on its way for longer: the kernel digests it in the system call that asked.
const LISTED_LATELY: Duration = Duration::from_secs(1);
/// Where others changed names within this time, listings give names that do not last: recalls need not wait for those.
const QUIET: Duration = Duration::from_secs(10);

/// What names the kernel may be about to keep.
#[derive(Debug, Default)]
struct Listings {
    /// When a listing began whose names last.
    listed: Option<Instant>,
    /// When names were recalled last.
    recalled: Option<Instant>,
}

/// How files are opened that are not passed through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ordinary {
    /// Whether files opened only for writing bypass the page cache.
    pub(crate) direct_writes: bool,
    /// Whether closing a file must be told.
    pub(crate) flush: bool,
}

/// One kernel's inodes.
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
    /// The same pool for what no kernel asks.
    beside: Vfs,
    parking: Arc<Parking>,
}

impl Known {
    /// Of the kernel that `notifier` reaches, with the session `vfs` behind it, and one beside it that keeps nothing.
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

    /// Whether files can be passed through.
    pub(crate) fn passes_through(&self) -> bool {
        self.through.is_on()
    }

    /// Where the kernel is told what to forget.
    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Whether the kernel knows `file`, or is about to.
    pub(crate) fn is_known(&self, file: FileId) -> bool {
        self.lookups.has(file)
    }

    /// All that the kernel knows, or is about to.
    pub(crate) fn all(&self) -> Vec<FileId> {
        let mut all = self.lookups.all();
        all.push(FileId::ROOT);
        all
    }

    /// What the kernel may be told of by requests that are under way now.
    pub(crate) fn under_way(&self) -> UnderWay {
        self.looks.under_way()
    }

    /// A listing begins that tells the kernel of names with their inodes; says whether they may last.
    pub(crate) fn lists(&self) -> bool {
        let mut listings = self.listings.lock();
        let quiet = listings.recalled.is_none_or(|at| at.elapsed() > QUIET);
        if quiet {
            listings.listed = Some(Instant::now());
        }
        quiet
    }

    /// Names are recalled; says whether a listing whose names last may still be on its way into the kernel. Once: those that
    /// begin from now on give none.
    pub(crate) fn recalls_names(&self) -> bool {
        let mut listings = self.listings.lock();
        listings.recalled = Some(Instant::now());
        listings.listed.take().is_some_and(|at| at.elapsed() < LISTED_LATELY)
    }

    /// The pool is about to be asked what the kernel may be told of; until that is dropped, at the earliest when it was told.
    pub(crate) fn looks(&self) -> Look {
        self.looks.begin()
    }

    /// The kernel is about to be told of `file` once more.
    pub(crate) fn gained(&self, file: FileId) {
        self.lookups.gained(file);
    }

    /// The kernel gives lookups back, or was not told after all. With the last it knows `file` no more.
    pub(crate) fn lost(&self, file: FileId, lookups: u64) {
        if self.lookups.lost(file, lookups) {
            self.opens.lock().forgotten(file);
            if !self.removed.given_back(file, self.looks.under_way()) {
                self.parking.run("forget", self.vfs.forgotten(file));
            }
        }
    }

    /// From now on the kernel is made to let go of what [`Self::was_removed`]; says whether that can be.
    pub(crate) fn lets_go(self: &Arc<Self>) -> bool {
        let started = self.removed.start(self);
        if let Err(error) = &started {
            tracing::warn!("names that other mounts remove may be stale for a moment: no thread: {error}");
        }
        started.is_ok()
    }

    /// Others removed `file`: the kernel shall know it no more.
    pub(crate) fn was_removed(&self, file: FileId) {
        // In this order: what is not known now may be told by what is under way then, and by nothing else.
        let under_way = self.looks.under_way();
        self.removed.note(file, under_way);
    }

    /// Makes the kernel let go of what is due.
    pub(crate) fn let_go(&self, due: &Due) {
        let inodes: Vec<u64> = due.prune.iter().map(|file| file.0).collect();
        if let Err(error) = self.notifier.prune(&inodes) {
            tracing::debug!("{} inodes are not let go of: {error}", inodes.len());
        }
        for file in &due.gone {
            self.parking.run("forget", self.vfs.forgotten(*file));
        }
    }

    /// How the kernel is to treat a file that was opened. Called before it is told.
    pub(crate) fn enter(&self, file: FileId, handle: Handle, flags: OpenFlags) -> Opened {
        let way = self.opens.lock().enter(file, || self.through.offer(&self.vfs, handle, flags));
        let opened = Opened { handle: handle.0, no_flush: !self.ordinary.flush, ..Opened::default() };
        match way {
            Way::Through(held) => {
                self.forget_attributes(file, flags);
                Opened { backing: Some(held.id), ..opened }
            }
            Way::Ordinary { outdated } => {
                let direct = self.vfs.is_whole(handle) || self.vfs.shared(handle) || self.ordinary.is_direct(flags);
                Opened { direct, parallel_direct_writes: direct, keep_cache: !direct && !outdated, ..opened }
            }
        }
    }

    /// The last byte of a file and its offset, if the kernel has it open and reads it by requests to us.
    pub(crate) fn last_byte(&self, file: FileId) -> Option<(u64, u8)> {
        if !self.opens.lock().is_ordinary(file) {
            return None;
        }
        // An error is told to who reads.
        self.parking.wait(self.beside.last_byte(file)).ok().flatten()
    }

    /// The kernel has let go of one open of `file`.
    pub(crate) fn leave(&self, file: FileId) {
        let held = self.opens.lock().leave(file);
        // Closing a backing is a system call: not under the lock. Before the pool closes the file: a pinned one stays whole.
        drop(held);
        self.removed.closed(file);
    }

    /// The kernel was not told of an open after all.
    pub(crate) fn undo(&self, file: FileId, handle: Handle) {
        self.leave(file);
        self.parking.run("close", self.vfs.close(handle));
    }

    /// Stores into a mapping of a backing change its times without the kernel's noticing: what it holds must not last.
    fn forget_attributes(&self, file: FileId, flags: OpenFlags) {
        if can_map(flags)
            && let Err(error) = self.notifier.drop_attributes(file.0)
        {
            tracing::trace!("attributes of {file} are not dropped: {error}");
        }
    }
}

/// Whether who opened a file so may store into a mapping of it.
pub(crate) fn can_map(flags: OpenFlags) -> bool {
    flags.read && flags.write
}

impl Ordinary {
    /// Files opened only for writing go past the page cache: that saves a copy and the second home of every temporary. Such a
    /// file cannot be mapped through that descriptor anyway, and the kernel drops cached pages that a direct write overlaps. So
    /// do whole files, whose bytes others may write past this kernel, and those that another mount has open, which would wait for
    /// each other's pages. All others keep what is cached from open to open: the
    /// kernel knows of every change through this mount, and is told of those beside it.
    fn is_direct(self, flags: OpenFlags) -> bool {
        self.direct_writes && flags.write && !flags.read
    }
}
