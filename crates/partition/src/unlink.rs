//! Removal of names, inodes, directories and sessions, and the unfinished work that clients
//! complete.

use crate::{
    Partition,
    apply::CommandContext,
    inode::InodeBody,
    intents::{Decided, LockTarget},
    memory_cost,
};
use placement::FileId;
use wire::{
    Answer, Intent, Kind, Name, Object, Outcome, PENDING_DELETES_MAX, PendingDelete, Refusal, Session, Timestamp,
    UnfinishedWork,
};

impl Partition {
    pub(crate) fn unlink(&mut self, context: CommandContext, parent: FileId, name: Name) -> Outcome<Answer> {
        let (file, kind) = self.settled_entry(parent, &name)?;
        if kind == Kind::Directory {
            return Err(Refusal::IsDirectory(Object::entry(parent, &name)));
        }
        if !self.is_home_of(file) {
            return Ok(Answer::NeedsTransaction);
        }
        self.intents.check(file, LockTarget::Inode, None)?;
        self.edit_entries(parent, context.now, |entries, hash| Ok(entries.remove(hash, &name)))?;
        Ok(Answer::Removed(self.drop_name(file, context.now)))
    }

    /// Removes one name. The inode is deleted with its last name, or with its last close after
    /// that.
    pub(crate) fn drop_name(&mut self, file: FileId, now: Timestamp) -> Option<PendingDelete> {
        self.edit(file, |inode| {
            inode.names = inode.names.saturating_sub(1);
            inode.changed = now;
            Ok(())
        })
        .ok()?;
        self.keep_unlinked(file);
        self.remove_if_unused(file)
    }

    /// Deletes an inode that has no name and no open, that no kernel knows, and that no intent may
    /// give a name.
    pub(crate) fn remove_if_unused(&mut self, file: FileId) -> Option<PendingDelete> {
        let held = self.kept.contains(&file) || self.intents.holder(file, LockTarget::Inode).is_some();
        let unused = self.inodes.get(&file)?.is_unused() && !held;
        if unused { self.remove_inode(file) } else { None }
    }

    /// Deletes an inode; records its stripes, if it may have some, until they are removed.
    pub(crate) fn remove_inode(&mut self, file: FileId) -> Option<PendingDelete> {
        let mut inode = self.inodes.remove(&file)?;
        self.bytes -= inode.memory_cost();
        let body = match &mut inode.body {
            InodeBody::File(body) => body,
            InodeBody::Bound(host) => {
                self.step.effects.unbound.push((file, host.node));
                return None;
            }
            _ => return None,
        };
        self.step.effects.freed.extend(body.extent().map(|extent| (file, extent)));
        let (stripes, layout) = (body.stripes(), body.placement.layout);
        if stripes.is_empty() {
            return None;
        }
        self.bytes += memory_cost::runs(&stripes);
        let deleted = PendingDelete { file, layout, stripes };
        self.deleted.insert(file, deleted.clone());
        Some(deleted)
    }

    /// Records that the stripes of a deleted file are removed.
    pub(crate) fn purge_done(&mut self, _: CommandContext, file: FileId) -> Outcome<Answer> {
        if let Some(deleted) = self.deleted.remove(&file) {
            self.bytes -= memory_cost::runs(&deleted.stripes);
        }
        Ok(Answer::Done)
    }

    pub(crate) fn close(&mut self, context: CommandContext, file: FileId) -> Outcome<Answer> {
        self.close_open(context.session, file)
    }

    fn close_open(&mut self, session: Session, file: FileId) -> Outcome<Answer> {
        let inode = self.inodes.get_mut(&file).ok_or(Refusal::NotFound(Object::File(file)))?;
        if !inode.remove_open(session) {
            return Err(Refusal::BadHandle(Object::File(file)));
        }
        let last = inode.opens.is_empty();
        let deleted = self.remove_if_unused(file);
        if last {
            self.note_closed(file);
        }
        Ok(Answer::Removed(deleted))
    }

    /// Ends an open of a session, or transfers it to another session.
    pub(crate) fn release(
        &mut self,
        _: CommandContext,
        file: FileId,
        session: Session,
        to: Option<Session>,
    ) -> Outcome<Answer> {
        let Some(to) = to else { return self.close_open(session, file) };
        let inode = self.inodes.get_mut(&file).ok_or(Refusal::NotFound(Object::File(file)))?;
        if !inode.remove_open(session) {
            return Err(Refusal::BadHandle(Object::File(file)));
        }
        inode.add_open(to);
        Ok(Answer::Removed(None))
    }

    pub(crate) fn remove_directory(&mut self, context: CommandContext, parent: FileId, name: Name) -> Outcome<Answer> {
        let (file, kind) = self.settled_entry(parent, &name)?;
        if kind != Kind::Directory {
            return Err(Refusal::NotDirectory(Object::entry(parent, &name)));
        }
        if !self.is_home_of(file) || self.is_split(file) {
            return Ok(Answer::NeedsTransaction);
        }
        self.check_removable(file)?;
        self.edit_entries(parent, context.now, |entries, hash| Ok(entries.remove(hash, &name)))?;
        Ok(Answer::Removed(self.drop_name(file, context.now)))
    }

    /// Checks that a directory is empty, and that no intent has locked any part of it.
    pub(crate) fn check_removable(&self, directory: FileId) -> Outcome<()> {
        self.intents.check_all(directory, None)?;
        let empty = self.open_directory(directory)?.is_empty();
        if empty { Ok(()) } else { Err(Refusal::NotEmpty(Object::File(directory))) }
    }

    /// Ends a session with all its opens, locks and reservations; returns the files that were
    /// deleted.
    pub(crate) fn close_session(&mut self, _: CommandContext, session: Session) -> Outcome<Answer> {
        let mut held: Vec<FileId> =
            self.inodes.iter().filter(|(_, inode)| inode.is_held_by(session)).map(|(file, _)| *file).collect();
        let released = std::mem::take(&mut self.step.unlinked.released);
        held.extend(released.iter().filter(|file| self.kept.remove(*file)));
        self.step.unlinked.released = released;
        held.sort_unstable();
        held.dedup();
        self.replies.end(session);
        self.intents.forget_aborted(session);
        let mut deleted = self.end_reserved(session);
        deleted.extend(held.into_iter().filter_map(|file| self.release_held(file, session)));
        deleted.truncate(PENDING_DELETES_MAX);
        Ok(Answer::Closed(deleted))
    }

    fn release_held(&mut self, file: FileId, session: Session) -> Option<PendingDelete> {
        let released = self.edit(file, |inode| {
            inode.release_session(session);
            Ok(inode.opens.is_empty())
        });
        let last = released.ok()?;
        let deleted = self.remove_if_unused(file);
        if last {
            self.note_closed(file);
        }
        deleted
    }

    /// Returns the unfinished work of ended clients: intents, and stripes of deleted files.
    pub(crate) fn list_unfinished(&mut self, _: CommandContext) -> Outcome<Answer> {
        let committed = |(intent, decided): (&Intent, &Decided)| match decided {
            Decided::Committed(_) => Some(*intent),
            Decided::Aborted => None,
        };
        let deleted = self.deleted.values().take(PENDING_DELETES_MAX).cloned().collect();
        Ok(Answer::UnfinishedWork(UnfinishedWork {
            prepared: self.intents.prepared.keys().copied().collect(),
            committed: self.intents.decided.iter().filter_map(committed).collect(),
            deleted,
        }))
    }
}
