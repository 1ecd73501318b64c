//! Unlinked inodes that still exist because kernels know them.
//!
//! A kernel that has learned of an inode may ask for it at any moment. An open in flight when the
//! last name is removed must find the inode, as in a local file system. An unlinked inode is
//! therefore kept for each subscriber whose kernel knows it, until that kernel has forgotten it or
//! the session has ended. For all others it is deleted.
//!
//! ```text
//!   last name removed: who knows it? --> Recall::Removed --> kernel prunes unused names
//!                                        (no ack)            |
//!                                                            `--> Forgotten: not kept for this one
//!                                                                 any more; deleted with the last
//! ```
//!
//! - The session that removes a name drops it in its own kernel and needs no notice, as long as no
//!   other session had changed the inode's names. Otherwise that kernel may still have a name that
//!   others removed. Or it may not know the inode at all, because it met the inode only by removing
//!   a name that another session had made (`Granted::astray`). It is then notified as well.
//! - A kernel without support for prune notices may remember an inode forever. For it, only inodes
//!   that it removed itself are kept.
//! - An answer in flight may tell a kernel of an inode after its removal here. A notified client
//!   watches for that, and always reports in the end that the inode is forgotten.
//!
//! This module does not send notices, and knows no kernels.

use crate::{
    Partition, Watcher, Watchers,
    grants::{Asker, Grants, Note},
    inode::Inode,
};
use placement::FileId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{Answer, Recall, Session};

/// Unlinked inodes, and the subscribers that they are kept for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Subscribers of each inode. With none left, the inode is deleted when the next session ends.
    inodes: BTreeMap<FileId, Watchers>,
    /// Session of each subscriber number; [`Session::NONE`] until its first command here, and after
    /// its end.
    sessions: [Session; Watcher::MAX],
}

impl Default for Kept {
    fn default() -> Self {
        Self { inodes: BTreeMap::new(), sessions: [Session::NONE; Watcher::MAX] }
    }
}

impl Kept {
    /// Returns the subscribers whose sessions are alive.
    fn living(&self) -> Watchers {
        let all = Watchers::ALL.iter();
        all.filter(|watcher| self.sessions[watcher.number()] != Session::NONE).fold(Watchers::NONE, Watchers::with)
    }

    /// Records that a subscriber's kernel has forgotten the inode; returns true if it was kept for
    /// that one alone.
    fn let_go_of(&mut self, file: FileId, watcher: Watcher) -> bool {
        let Some(keepers) = self.inodes.get_mut(&file) else { return false };
        *keepers = keepers.without(watcher);
        let last = keepers.is_empty();
        if last {
            self.inodes.remove(&file);
        }
        last
    }

    /// Removes a subscriber. Inodes that were kept for it alone stay until [`Grants::let_go`].
    pub fn ended(&mut self, watcher: Watcher) {
        self.sessions[watcher.number()] = Session::NONE;
        for keepers in self.inodes.values_mut() {
            *keepers = keepers.without(watcher);
        }
    }
}

impl Grants {
    /// Returns true if an unlinked inode is kept for any kernel.
    pub fn keeps(&self, file: FileId) -> bool {
        !self.kept.inodes.is_empty() && self.kept.inodes.contains_key(&file)
    }

    /// Returns true if an unlinked inode exists only for kernels of other sessions.
    pub fn hides(&self, file: FileId, inode: &Inode) -> bool {
        let watcher = self.asker.watcher;
        inode.names == 0
            && inode.opens.is_empty()
            && self.kept.inodes.get(&file).is_some_and(|keepers| !watcher.is_some_and(|watcher| keepers.has(watcher)))
    }

    /// Ends a session; returns the inodes that were kept for it alone.
    pub fn let_go(&mut self, session: Session) -> Vec<FileId> {
        let number = self.kept.sessions.iter().position(|known| *known == session && session != Session::NONE);
        if let Some(watcher) = number.and_then(Watcher::new) {
            self.kept.ended(watcher);
        }
        let deleted =
            self.kept.inodes.iter().filter(|(_, keepers)| keepers.is_empty()).map(|(file, _)| *file).collect();
        self.kept.inodes.retain(|_, keepers| !keepers.is_empty());
        deleted
    }
}

impl Partition {
    /// Records the session of a subscriber number if it is new.
    pub(crate) fn meet(&mut self, Asker { session, watcher, .. }: Asker) {
        let Some(watcher) = watcher else { return };
        let known = self.grants.kept.sessions[watcher.number()];
        if known != session && !self.answered.has_ended(session) {
            self.grants.kept.sessions[watcher.number()] = session;
        }
    }

    /// Handles the loss of a name. If it was the last, keeps the inode for the subscribers whose
    /// kernels know it, and notifies these.
    pub(crate) fn keep_if_known(&mut self, file: FileId) {
        let Asker { watcher, others, pruning, .. } = self.grants.asker;
        let Some(inode) = self.inodes.get(&file) else { return };
        if inode.names > 0 {
            return self.name_moved(file);
        }
        let own = watcher.map_or(Watchers::NONE, |own| Watchers::NONE.with(own));
        let keepers = inode.granted.known.both(own.or(pruning));
        // No kernel knows a fragment, although its directory's subscribers query its attributes.
        if keepers.is_empty() || inode.directory_of(file) != file {
            return;
        }
        let keepers = keepers.both(self.grants.kept.living());
        let tell = keepers.both(pruning).both(others.or(inode.granted.astray));
        if !keepers.is_empty() {
            self.grants.kept.inodes.insert(file, keepers);
        }
        if !tell.is_empty() {
            self.grants.notes.push(Note::changed(Recall::Removed(file), tell));
        }
    }

    /// Handles the removal or move of a name: kernels of other sessions may have the old one.
    pub(crate) fn name_moved(&mut self, file: FileId) {
        let others = self.grants.asker.others;
        if let Some(inode) = self.inodes.get_mut(&file).filter(|_| !others.is_empty()) {
            inode.granted.astray = inode.granted.astray.or(others);
        }
    }

    /// Records that the kernel of the calling session has forgotten the inode.
    pub(crate) fn forgotten(&mut self, file: FileId) -> Answer {
        let Some(watcher) = self.grants.asker.watcher else { return Answer::Removed { deleted: None } };
        if let Some(inode) = self.inodes.get_mut(&file) {
            inode.granted.known = inode.granted.known.without(watcher);
        }
        let last = self.grants.kept.let_go_of(file, watcher);
        Answer::Removed { deleted: if last { self.remove_if_unused(file) } else { None } }
    }
}
