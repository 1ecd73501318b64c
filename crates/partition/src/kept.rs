//! Inodes without names that are still there because kernels know them.
//!
//! A kernel that was told of an inode may ask for it at any moment: an open that was on its way when the last name went shall find
//! it, as on a local file system. So a removed inode is **kept** for every watcher whose kernel knows it, until that kernel has
//! forgotten it or its session has ended. For all others it is gone.
//!
//! ```text
//!   the last name goes: who knows it? --> Recall::Removed --> its kernel lets go of unused names --> Forgotten: not for this one
//!                                         (nobody waits)                                             any more; the last takes it along
//! ```
//!
//! - Who removes a name drops it in its own kernel, and need not be told, as long as nobody else had to do with the inode's names.
//!   Else that kernel may still hold one that others took away, or not know the inode at all, which it has met only by removing the
//!   name that another one had (`Granted::astray`): then it is told as well.
//! - A kernel that cannot be told to let go may keep what it knows for ever. Nothing is kept for it but what it removed itself.
//! - A kernel may be handed an inode after that was removed here, by an answer that was on its way: whoever is told of the removal
//!   watches for that, and in the end says that it is forgotten in any case.
//!
//! What it does not do: tell anybody; know kernels.

use crate::{
    Partition, Watcher, Watchers,
    grants::{Asker, Grants, Note},
    inode::Inode,
};
use placement::FileId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{Answer, Recall, Session};

/// What is kept, and for whom.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Nobody: it goes with the next session that ends.
    inodes: BTreeMap<FileId, Watchers>,
    /// Whose each watcher's number is; [`Session::NONE`] until it asked for something here, and from its end on.
    sessions: [Session; Watcher::MAX],
}

impl Default for Kept {
    fn default() -> Self {
        Self { inodes: BTreeMap::new(), sessions: [Session::NONE; Watcher::MAX] }
    }
}

impl Kept {
    /// Those whose sessions go on.
    fn living(&self) -> Watchers {
        let all = Watchers::ALL.iter();
        all.filter(|watcher| self.sessions[watcher.number()] != Session::NONE).fold(Watchers::NONE, Watchers::with)
    }

    /// A watcher's kernel knows it no more; says whether it was kept for that one alone.
    fn let_go_of(&mut self, file: FileId, watcher: Watcher) -> bool {
        let Some(keepers) = self.inodes.get_mut(&file) else { return false };
        *keepers = keepers.without(watcher);
        let last = keepers.is_empty();
        if last {
            self.inodes.remove(&file);
        }
        last
    }

    /// A watcher is no more. What was kept for it alone stays until [`Grants::let_go`].
    pub fn ended(&mut self, watcher: Watcher) {
        self.sessions[watcher.number()] = Session::NONE;
        for keepers in self.inodes.values_mut() {
            *keepers = keepers.without(watcher);
        }
    }
}

impl Grants {
    /// Whether an inode is kept for a kernel.
    pub fn keeps(&self, file: FileId) -> bool {
        !self.kept.inodes.is_empty() && self.kept.inodes.contains_key(&file)
    }

    /// Whether an inode without names is there for other sessions' kernels only.
    pub fn hides(&self, file: FileId, inode: &Inode) -> bool {
        let watcher = self.asker.watcher;
        inode.names == 0
            && inode.opens.is_empty()
            && self.kept.inodes.get(&file).is_some_and(|keepers| !watcher.is_some_and(|watcher| keepers.has(watcher)))
    }

    /// A session ends: what was kept for it alone.
    pub fn let_go(&mut self, session: Session) -> Vec<FileId> {
        let number = self.kept.sessions.iter().position(|known| *known == session && session != Session::NONE);
        if let Some(watcher) = number.and_then(Watcher::new) {
            self.kept.ended(watcher);
        }
        let gone = self.kept.inodes.iter().filter(|(_, keepers)| keepers.is_empty()).map(|(file, _)| *file).collect();
        self.kept.inodes.retain(|_, keepers| !keepers.is_empty());
        gone
    }
}

impl Partition {
    /// Notes whose number a watcher's is, when that is new.
    pub(crate) fn meet(&mut self, Asker { session, watcher, .. }: Asker) {
        let Some(watcher) = watcher else { return };
        let known = self.grants.kept.sessions[watcher.number()];
        if known != session && !self.answered.has_ended(session) {
            self.grants.kept.sessions[watcher.number()] = session;
        }
    }

    /// An inode has lost a name. When that was its last it is kept for those whose kernels know it, and these are told.
    pub(crate) fn keep_if_known(&mut self, file: FileId) {
        let Asker { watcher, others, pruning, .. } = self.grants.asker;
        let Some(inode) = self.inodes.get(&file) else { return };
        if inode.names > 0 {
            return self.name_moved(file);
        }
        let own = watcher.map_or(Watchers::NONE, |own| Watchers::NONE.with(own));
        let keepers = inode.granted.known.both(own.or(pruning));
        // What is in fragments no kernel knows of, though its keeper asks for their attributes.
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

    /// A name of an inode was taken away or moved: the kernels of others may hold the old one.
    pub(crate) fn name_moved(&mut self, file: FileId) {
        let others = self.grants.asker.others;
        if let Some(inode) = self.inodes.get_mut(&file).filter(|_| !others.is_empty()) {
            inode.granted.astray = inode.granted.astray.or(others);
        }
    }

    /// The kernel of the session that asks knows the inode no more.
    pub(crate) fn forgotten(&mut self, file: FileId) -> Answer {
        let Some(watcher) = self.grants.asker.watcher else { return Answer::Removed { gone: None } };
        if let Some(inode) = self.inodes.get_mut(&file) {
            inode.granted.known = inode.granted.known.without(watcher);
        }
        let last = self.grants.kept.let_go_of(file, watcher);
        Answer::Removed { gone: if last { self.remove_if_unused(file) } else { None } }
    }
}
