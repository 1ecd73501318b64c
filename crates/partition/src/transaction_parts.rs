//! Parts of intents: their preconditions and their effects.

use crate::{Partition, acl, inode::Inode, inode_grants::InodeGrants, intents::LockTarget, partition::split};
use placement::FileId;
use wire::{
    DirEntry, Intent, Kind, Name, NewInode, NewKind, Object, Outcome, Part, PendingDelete, Refusal, Target, Timestamp,
};

/// Maximum number of parts of an intent in one partition: several times the maximum of one request.
const INTENT_PARTS_MAX: usize = 1024;
const CHECKED: &str = "the part was checked and its targets locked when it was prepared";

impl Partition {
    /// Checks that a part can be applied here, now and at any later time.
    pub(crate) fn check_part(&self, intent: Intent, part: &Part) -> Outcome<()> {
        let own = Some(intent);
        match part {
            Part::Entry { directory, name, before: was, after: becomes } => {
                self.check_entry_part(own, *directory, name, *was, *becomes)
            }
            Part::AddLink { file } => self.check_linkable(*file, own),
            Part::DropLink { file } => self.check_drop_link(*file, own),
            Part::Moved { file, .. } => {
                self.intents.check(*file, LockTarget::Inode, own)?;
                self.inode_or_stale(*file).map(drop)
            }
            Part::Remove { directory, fragments } => self.check_remove(*directory, fragments, own),
            Part::LockEntries { directory } => {
                self.intents.check_all(*directory, own)?;
                self.open_directory_for(*directory, own).map(drop)
            }
            Part::Split { directory, .. } => match self.intents.holder(*directory, LockTarget::AllEntries) {
                held if held == own => Ok(()),
                _ => Err(Refusal::Stale(Object::File(*directory))),
            },
            Part::Change { directory, changes } if changes.size.is_some() => {
                Err(Refusal::IsDirectory(Object::File(*directory)))
            }
            Part::Change { directory, .. } => self.check_change(*directory, own).map(drop),
            Part::Xattr { directory, name, value, .. } => {
                self.check_change(*directory, own)?.check_inheritable(*directory, name, value.as_deref())
            }
            Part::MoveLease => self.intents.check(FileId::ROOT, LockTarget::MoveLease, own),
            Part::CreateDirectory { .. } | Part::Fragment { .. } => Ok(()),
        }
    }

    /// Checks that no two parts of an intent exclude each other, including those prepared before.
    /// Each part was checked as if it were the only one.
    pub(crate) fn check_alone(&self, intent: Intent, parts: &[Part]) -> Outcome<()> {
        let prepared = self.intents.prepared.get(&intent);
        let before = prepared.iter().flat_map(|prepared| prepared.parts.iter().map(|(part, _)| part));
        let all: Vec<&Part> = before.chain(parts).collect();
        if all.len() > INTENT_PARTS_MAX {
            return Err(Refusal::invalid(Object::Pool, "an intent has too many parts in one partition"));
        }
        let excluded = |at: usize| all[..at].iter().any(|other| excludes(all[at], other));
        if (0..all.len()).any(excluded) {
            return Err(Refusal::invalid(Object::Pool, "two parts of an intent cannot both be done"));
        }
        Ok(())
    }

    fn check_entry_part(
        &self,
        own: Option<Intent>,
        directory: FileId,
        name: &Name,
        was: Option<Target>,
        becomes: Option<Target>,
    ) -> Outcome<()> {
        self.check_entry_free(directory, name, own)?;
        if becomes.is_some() {
            self.open_directory_for(directory, own)?;
        }
        let found = self.entries_of(directory)?.get(self.names(), name).map(|entry| (entry.file, entry.kind));
        match (was, found) {
            (None, Some(_)) => Err(Refusal::Exists(Object::entry(directory, name))),
            (was, found) if was != found => Err(Refusal::Stale(Object::entry(directory, name))),
            (None, None) if becomes.is_some() => self.check_space(directory, name),
            _ => Ok(()),
        }
    }

    fn check_drop_link(&self, file: FileId, own: Option<Intent>) -> Outcome<()> {
        self.intents.check(file, LockTarget::Inode, own)?;
        match self.inode_or_stale(file)?.names {
            0 => Err(Refusal::Stale(Object::File(file))),
            _ => Ok(()),
        }
    }

    fn check_remove(&self, directory: FileId, fragments: &[FileId], own: Option<Intent>) -> Outcome<()> {
        self.intents.check_all(directory, own)?;
        let inode = self.inode_or_stale(directory)?;
        let entries = inode.directory(directory)?;
        if inode.names == 0 {
            return Err(Refusal::Stale(Object::File(directory)));
        }
        if entries.fragments() != fragments {
            return Err(split(directory));
        }
        if entries.is_empty() { Ok(()) } else { Err(Refusal::NotEmpty(Object::File(directory))) }
    }

    fn check_change(&self, directory: FileId, own: Option<Intent>) -> Outcome<&Inode> {
        self.intents.check_all(directory, own)?;
        let inode = self.inode_or_stale(directory)?;
        inode.directory(directory)?;
        if inode.names == 0 { Err(Refusal::Stale(Object::File(directory))) } else { Ok(inode) }
    }

    fn inode_or_stale(&self, file: FileId) -> Outcome<&Inode> {
        self.inodes.get(&file).map(Box::as_ref).ok_or(Refusal::Stale(Object::File(file)))
    }

    /// Applies a part. Cannot fail.
    pub(crate) fn apply_part(&mut self, part: Part, made: Option<FileId>, now: Timestamp) -> Option<PendingDelete> {
        match part {
            Part::Entry { directory, name, before: was, after: becomes } => {
                self.apply_entry(directory, name, was, becomes, now);
            }
            Part::AddLink { file } => self.add_name(file, now).expect(CHECKED),
            Part::DropLink { file } => return self.drop_name(file, now),
            Part::CreateDirectory { parent, inode, inherited } => {
                let inode = acl::inherit(&inherited, NewInode::new(NewKind::Directory, inode.mode, inode.owner));
                self.insert_inode(made.expect(CHECKED), Inode::new(inode, parent, None, now));
            }
            Part::Remove { directory, .. } => return self.remove_directory_inode(directory, now),
            Part::Moved { file, parent } => self.record_rename(file, parent, now),
            Part::Split { directory, fragments } => self.split_directory(directory, fragments),
            Part::Fragment { directory, inode, entries } => {
                self.insert_inode(made.expect(CHECKED), fragment(directory, inode, entries));
            }
            Part::Change { directory, changes } => drop(self.change_inode(directory, &changes, now).expect(CHECKED)),
            Part::Xattr { directory, name, value, kill_set_group_id } => {
                self.set_inheritable(directory, name, value, kill_set_group_id, now).expect(CHECKED);
            }
            Part::MoveLease | Part::LockEntries { .. } => {}
        }
        None
    }

    fn apply_entry(
        &mut self,
        directory: FileId,
        name: Name,
        was: Option<Target>,
        becomes: Option<Target>,
        now: Timestamp,
    ) {
        if was == becomes {
            return;
        }
        let done = self.edit_entries(directory, now, |entries, hash| match (was, becomes) {
            (None, Some((file, kind))) => entries.insert(hash, name, file, kind),
            (_, Some((file, kind))) => {
                entries.replace(hash, &name, file, kind);
                Ok(())
            }
            (_, None) => {
                entries.remove(hash, &name);
                Ok(())
            }
        });
        done.expect(CHECKED);
    }

    /// Removes an empty directory, even if it was split.
    fn remove_directory_inode(&mut self, directory: FileId, now: Timestamp) -> Option<PendingDelete> {
        self.edit(directory, |inode| {
            inode.directory_mut(directory)?.set_fragments(Vec::new());
            Ok(())
        })
        .expect(CHECKED);
        self.drop_name(directory, now)
    }

    fn split_directory(&mut self, directory: FileId, fragments: Vec<FileId>) {
        self.edit(directory, |inode| {
            inode.directory_mut(directory)?.set_fragments(fragments);
            Ok(())
        })
        .expect(CHECKED);
    }
}

/// Returns true if only one of the two parts can be applied: they are the same, or one may delete
/// the inode of the other.
fn excludes(one: &Part, other: &Part) -> bool {
    match (one, other) {
        (Part::Entry { directory: one, name, .. }, Part::Entry { directory: other, name: other_name, .. }) => {
            one == other && name == other_name
        }
        (Part::AddLink { file: one }, Part::AddLink { file: other }) => one == other,
        _ => [(one, other), (other, one)]
            .iter()
            .any(|(one, other)| deleted_inode(one).is_some_and(|file| needed_inode(other) == Some(file))),
    }
}

/// Returns the inode that a part may delete.
fn deleted_inode(part: &Part) -> Option<FileId> {
    match part {
        Part::DropLink { file } | Part::Remove { directory: file, .. } => Some(*file),
        _ => None,
    }
}

/// Returns the inode that a part needs; `None` if it creates one.
fn needed_inode(part: &Part) -> Option<FileId> {
    match part {
        Part::AddLink { file } | Part::DropLink { file } | Part::Moved { file, .. } => Some(*file),
        Part::Entry { directory, .. }
        | Part::Remove { directory, .. }
        | Part::LockEntries { directory }
        | Part::Split { directory, .. }
        | Part::Change { directory, .. }
        | Part::Xattr { directory, .. } => Some(*directory),
        Part::MoveLease | Part::CreateDirectory { .. } | Part::Fragment { .. } => None,
    }
}

/// Creates a fragment's inode. Its times are ignored until its first change: until then the
/// directory's count.
fn fragment(directory: FileId, new: NewInode, entries: Vec<DirEntry>) -> Inode {
    let mut inode = Inode::new(NewInode { kind: NewKind::Directory, ..new }, directory, None, Timestamp::default());
    if let Ok(body) = inode.directory_mut(directory) {
        body.fill(directory, entries);
    }
    inode.grants = InodeGrants::for_fragment();
    debug_assert_eq!(inode.kind(), Kind::Directory);
    inode
}
