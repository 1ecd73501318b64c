//! Names: looking them up, listing them, making them.

use crate::{
    Partition, acl,
    directory::{Directory, Entry},
    inode::{Body, Inode},
};
use placement::FileId;
use wire::{
    ACL_DEFAULT, Answer, Heritage, Kind, LIST_ENTRIES_MAX, Name, NewInode, NewKind, Object, Outcome, Refusal,
    SET_GROUP_ID, Session, Timestamp, Wish,
};

impl Partition {
    pub(crate) fn lookup(&self, parent: FileId, name: &Name) -> Outcome<Answer> {
        let entry = self.entry(parent, name)?;
        let attributes = self.attributes(entry.file).ok();
        Ok(Answer::Found { file: entry.file, kind: entry.kind, attributes })
    }

    pub(crate) fn list(&self, directory: FileId, after: u64, max: u32) -> Outcome<Answer> {
        let max = max.min(LIST_ENTRIES_MAX) as usize;
        Ok(Answer::Entries(self.directory(directory)?.list(after, max)))
    }

    pub(crate) fn read_link(&self, file: FileId) -> Outcome<Answer> {
        match &self.inode(file)?.body {
            Body::Symlink(target) => Ok(Answer::Target(target.clone())),
            _ => Err(Refusal::invalid(Object::File(file), "not a symbolic link")),
        }
    }

    pub(crate) fn probe(&self, parent: FileId, name: &Name) -> Outcome<Answer> {
        self.check_free(parent, name)?;
        self.heritage(parent).map(Answer::Heritage)
    }

    pub(crate) fn create(
        &mut self,
        parent: FileId,
        name: Name,
        new: NewInode,
        (opener, whole): (Option<Session>, Wish),
        now: Timestamp,
    ) -> Outcome<Answer> {
        self.check_free(parent, &name)?;
        let new = acl::inherit(&self.heritage(parent)?, new);
        let mut inode = Inode::new(new, parent, now);
        inode.become_whole(whole);
        if let Some(session) = opener {
            inode.opened(session);
        }
        let kind = inode.kind();
        let file = self.add(inode);
        if let Err(refusal) = self.edit_entries(parent, now, |entries, hash| entries.insert(hash, name, file, kind)) {
            self.remove_inode(file);
            return Err(refusal);
        }
        self.opened_answer(file, None)
    }

    /// A file that has no name, open for the session.
    pub(crate) fn create_unnamed(
        &mut self,
        parent: FileId,
        new: NewInode,
        linkable: bool,
        opener: Session,
        now: Timestamp,
    ) -> Outcome<Answer> {
        self.open_directory(parent)?;
        let new = acl::inherit(&self.heritage(parent)?, NewInode { kind: NewKind::File, ..new });
        let mut inode = Inode::new(new, parent, now);
        (inode.names, inode.linkable) = (0, linkable);
        inode.opened(opener);
        let file = self.add(inode);
        self.opened_answer(file, None)
    }

    pub(crate) fn make_directory(
        &mut self,
        parent: FileId,
        new: &NewInode,
        heritage: &Heritage,
        now: Timestamp,
    ) -> Answer {
        let new = acl::inherit(heritage, NewInode::new(NewKind::Directory, new.mode, new.owner));
        let inode = Inode::new(new, parent, now);
        let attributes = inode.attributes(parent, self.stripe_bytes());
        let file = self.add(inode);
        Answer::Attributes(wire::Attributes { file, ..attributes })
    }

    pub(crate) fn enter(
        &mut self,
        parent: FileId,
        name: Name,
        (file, kind): (FileId, Kind),
        now: Timestamp,
    ) -> Outcome<Answer> {
        self.check_free(parent, &name)?;
        self.edit_entries(parent, now, |entries, hash| entries.insert(hash, name, file, kind))?;
        Ok(Answer::Done)
    }

    /// What the directory hands down to what is made in it.
    pub(crate) fn heritage(&self, directory: FileId) -> Outcome<Heritage> {
        let above = self.inode(directory)?;
        let group = (above.mode & SET_GROUP_ID != 0).then_some(above.owner.gid);
        let default_acl = above.xattr(ACL_DEFAULT).cloned().unwrap_or_default();
        Ok(Heritage { group, default_acl })
    }

    /// The entry; refused when there is none.
    pub(crate) fn entry(&self, parent: FileId, name: &Name) -> Outcome<&Entry> {
        let found = self.directory(parent)?.get(self.names(), name);
        found.ok_or_else(|| Refusal::NotFound(Object::entry(parent, name)))
    }

    /// The entry, when it may be changed now: not while it is on its way elsewhere.
    pub(crate) fn settled_entry(&self, parent: FileId, name: &Name) -> Outcome<(FileId, Kind)> {
        let entry = self.entry(parent, name)?;
        if entry.moving.is_some() {
            return Err(Refusal::Busy(Object::entry(parent, name)));
        }
        Ok((entry.file, entry.kind))
    }

    /// The directory, when it takes entries: it is not removed, and not about to be.
    pub(crate) fn open_directory(&self, directory: FileId) -> Outcome<&Directory> {
        let inode = self.inode(directory)?;
        let entries = inode.directory(directory)?;
        if inode.names == 0 {
            return Err(Refusal::NotFound(Object::File(directory)));
        }
        if entries.seal.is_some() {
            return Err(Refusal::Busy(Object::File(directory)));
        }
        Ok(entries)
    }

    fn check_free(&self, parent: FileId, name: &Name) -> Outcome<()> {
        match self.open_directory(parent)?.get(self.names(), name) {
            Some(_) => Err(Refusal::Exists(Object::entry(parent, name))),
            None => Ok(()),
        }
    }
}
