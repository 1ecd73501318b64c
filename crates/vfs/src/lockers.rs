//! Lock owners by file and handle, so that a close releases the locks it must. A close costs no
//! message if nobody has locked the file.

use crate::Handle;
use parking_lot::Mutex;
use placement::FileId;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};
use wire::{LockOwner, LockStyle};

/// Lock owners by file.
#[derive(Debug, Default)]
pub struct Lockers {
    files: Mutex<HashMap<FileId, Vec<Locker>>>,
    /// Number of files with lock owners, readable without taking the lock.
    known: AtomicUsize,
}

/// An owner of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Locker {
    handle: Handle,
    owner: LockOwner,
    whole: bool,
}

impl Lockers {
    /// Records that the owner may have locks of this style on the file, set through the handle.
    pub fn note(&self, file: FileId, handle: Handle, owner: LockOwner, style: LockStyle) {
        let locker = Locker { handle, owner, whole: style == LockStyle::Whole };
        let mut files = self.files.lock();
        let lockers = files.entry(file).or_default();
        if !lockers.contains(&locker) {
            lockers.push(locker);
        }
        self.known.store(files.len(), Relaxed);
    }

    /// Forgets the owner's locks of this style on the file. Returns true if the owner may have had
    /// any.
    pub fn forget(&self, file: FileId, owner: LockOwner, style: LockStyle) -> bool {
        let whole = style == LockStyle::Whole;
        !self.take(file, |locker| locker.owner == owner && locker.whole == whole).is_empty()
    }

    /// Forgets all locks set through the handle; returns their owners and styles.
    pub fn close(&self, file: FileId, handle: Handle) -> Vec<(LockOwner, LockStyle)> {
        let taken = self.take(file, |locker| locker.handle == handle);
        let style = |locker: &Locker| if locker.whole { LockStyle::Whole } else { LockStyle::EVERYWHERE };
        taken.iter().map(|locker| (locker.owner, style(locker))).collect()
    }

    fn take(&self, file: FileId, chosen: impl Fn(&Locker) -> bool) -> Vec<Locker> {
        if self.known.load(Relaxed) == 0 {
            return Vec::new();
        }
        let mut files = self.files.lock();
        let Some(lockers) = files.get_mut(&file) else { return Vec::new() };
        let taken = lockers.extract_if(.., |locker| chosen(locker)).collect();
        if lockers.is_empty() {
            files.remove(&file);
        }
        self.known.store(files.len(), Relaxed);
        taken
    }
}
