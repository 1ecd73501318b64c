//! Renames within this partition, in one command. A rename that touches other partitions is
//! answered with [`wire::Answer::NeedsTransaction`]: the client then uses an intent.

use crate::{Partition, apply::CommandContext, intents::LockTarget};
use placement::FileId;
use wire::{
    Answer, Kind, Object, Outcome, PendingDelete, Refusal, RenameFrom, RenameMode, RenameTo, RenamedEntry, Target,
    Timestamp,
};

impl Partition {
    pub(crate) fn rename(
        &mut self,
        context: CommandContext,
        from: RenameFrom,
        to: RenameTo,
        mode: RenameMode,
    ) -> Outcome<Answer> {
        let (from, to, now) = (&from, &to, context.now);
        let moved = self.settled_entry(from.parent, &from.name)?;
        if (from.parent, &from.name) == (to.parent, &to.name) && mode != RenameMode::NoReplace {
            return Ok(renamed(None, Vec::new()));
        }
        self.open_directory(to.parent)?;
        let taken = match self.settled_entry(to.parent, &to.name) {
            Err(Refusal::NotFound(_)) => None,
            found => Some(found?),
        };
        if self.is_between_directories(from, to) && moves_directory(moved, taken, mode) {
            return Ok(Answer::NeedsTransaction);
        }
        if !mode.check(moved, taken, || Object::entry(to.parent, &to.name))? {
            return Ok(renamed(None, Vec::new()));
        }
        match (mode, taken) {
            (RenameMode::Exchange, Some(taken)) => self.exchange(from, to, moved, taken, now),
            (_, Some(taken)) => self.rename_over(from, to, moved, taken, now),
            (_, None) => self.rename_new(from, to, moved, now),
        }
    }

    /// Returns true if the two ends are in different directories, and not only in different
    /// fragments of one.
    fn is_between_directories(&self, from: &RenameFrom, to: &RenameTo) -> bool {
        self.directory_of(from.parent) != self.directory_of(to.parent)
    }

    fn exchange(
        &mut self,
        from: &RenameFrom,
        to: &RenameTo,
        moved: Target,
        taken: Target,
        now: Timestamp,
    ) -> Outcome<Answer> {
        self.replace_entry(to, moved, now)?;
        let back = RenameTo { parent: from.parent, name: from.name.clone() };
        self.replace_entry(&back, taken, now)?;
        let elsewhere = self.set_parents([(moved.0, to.parent), (taken.0, from.parent)], now);
        Ok(renamed(None, elsewhere))
    }

    fn rename_over(
        &mut self,
        from: &RenameFrom,
        to: &RenameTo,
        moved: Target,
        taken: Target,
        now: Timestamp,
    ) -> Outcome<Answer> {
        if !self.is_home_of(taken.0) {
            return Ok(Answer::NeedsTransaction);
        }
        if taken.1 == Kind::Directory {
            if self.is_split(taken.0) {
                return Ok(Answer::NeedsTransaction);
            }
            self.check_removable(taken.0)?;
        }
        self.intents.check(taken.0, LockTarget::Inode, None)?;
        self.replace_entry(to, moved, now)?;
        self.remove_entry(from, now)?;
        let deleted = self.drop_name(taken.0, now);
        Ok(renamed(deleted, self.set_parents([(moved.0, to.parent)], now)))
    }

    fn rename_new(
        &mut self,
        from: &RenameFrom,
        to: &RenameTo,
        (file, kind): Target,
        now: Timestamp,
    ) -> Outcome<Answer> {
        if from.parent != to.parent {
            self.check_space(to.parent, &to.name)?;
        }
        self.edit_entries(to.parent, now, |entries, hash| entries.insert(hash, to.name.clone(), file, kind))?;
        self.remove_entry(from, now)?;
        Ok(renamed(None, self.set_parents([(file, to.parent)], now)))
    }

    /// Removes the old name.
    fn remove_entry(&mut self, from: &RenameFrom, now: Timestamp) -> Outcome<()> {
        self.edit_entries(from.parent, now, |entries, hash| {
            entries.remove(hash, &from.name);
            Ok(())
        })
    }

    fn replace_entry(&mut self, to: &RenameTo, (file, kind): Target, now: Timestamp) -> Outcome<()> {
        self.edit_entries(to.parent, now, |entries, hash| {
            entries.replace(hash, &to.name, file, kind);
            Ok(())
        })
    }

    /// Updates the parents of renamed inodes; returns those that are in another partition.
    fn set_parents<const N: usize>(&mut self, moved: [(FileId, FileId); N], now: Timestamp) -> Vec<FileId> {
        for (file, parent) in moved {
            self.record_rename(file, self.directory_of(parent), now);
        }
        moved.into_iter().map(|(file, _)| file).filter(|file| !self.is_home_of(*file)).collect()
    }

    /// Updates the parent and ctime of a renamed inode, if it is here.
    pub(crate) fn record_rename(&mut self, file: FileId, parent: FileId, now: Timestamp) {
        let moved = self.edit(file, |inode| {
            inode.changed = now;
            if let Ok(entries) = inode.directory_mut(file) {
                entries.parent = parent;
            }
            Ok(())
        });
        drop(moved); // it may be in another partition
        self.record_name_change(file);
    }

    /// Updates the ctime of an inode that was renamed in another partition.
    pub(crate) fn update_ctime(&mut self, context: CommandContext, file: FileId) -> Outcome<Answer> {
        let touched = self.edit(file, |inode| {
            inode.changed = context.now;
            Ok(())
        });
        drop(touched); // it may be deleted
        self.record_name_change(file);
        Ok(Answer::Done)
    }
}

/// Returns true if a directory would get another parent, which needs the lease for moving
/// directories.
fn moves_directory(moved: Target, taken: Option<Target>, mode: RenameMode) -> bool {
    let exchanged = taken.filter(|_| mode == RenameMode::Exchange);
    moved.1 == Kind::Directory || exchanged.is_some_and(|(_, kind)| kind == Kind::Directory)
}

fn renamed(deleted: Option<PendingDelete>, elsewhere: Vec<FileId>) -> Answer {
    Answer::Renamed(RenamedEntry { deleted, remote: elsewhere })
}
