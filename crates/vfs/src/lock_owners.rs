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
pub struct LockOwners {
    files: Mutex<HashMap<FileId, Vec<LockOwnerEntry>>>,
    /// Number of files with lock owners, readable without taking the lock.
    count: AtomicUsize,
}

/// An owner of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockOwnerEntry {
    handle: Handle,
    owner: LockOwner,
    whole: bool,
}

impl LockOwners {
    /// Records that the owner may have locks of this style on the file, set through the handle.
    pub fn record(&self, file: FileId, handle: Handle, owner: LockOwner, style: LockStyle) {
        let entry = LockOwnerEntry { handle, owner, whole: style == LockStyle::Whole };
        let mut files = self.files.lock();
        let entries = files.entry(file).or_default();
        if !entries.contains(&entry) {
            entries.push(entry);
        }
        self.count.store(files.len(), Relaxed);
    }

    /// Forgets the owner's locks of this style on the file. Returns true if the owner may have had
    /// any.
    pub fn forget(&self, file: FileId, owner: LockOwner, style: LockStyle) -> bool {
        let whole = style == LockStyle::Whole;
        !self.extract(file, |entry| entry.owner == owner && entry.whole == whole).is_empty()
    }

    /// Forgets all locks set through the handle; returns their owners and styles.
    pub fn close(&self, file: FileId, handle: Handle) -> Vec<(LockOwner, LockStyle)> {
        let extracted = self.extract(file, |entry| entry.handle == handle);
        let style = |entry: &LockOwnerEntry| if entry.whole { LockStyle::Whole } else { LockStyle::EVERYWHERE };
        extracted.iter().map(|entry| (entry.owner, style(entry))).collect()
    }

    fn extract(&self, file: FileId, chosen: impl Fn(&LockOwnerEntry) -> bool) -> Vec<LockOwnerEntry> {
        if self.count.load(Relaxed) == 0 {
            return Vec::new();
        }
        let mut files = self.files.lock();
        let Some(entries) = files.get_mut(&file) else { return Vec::new() };
        let extracted = entries.extract_if(.., |entry| chosen(entry)).collect();
        if entries.is_empty() {
            files.remove(&file);
        }
        self.count.store(files.len(), Relaxed);
        extracted
    }
}
