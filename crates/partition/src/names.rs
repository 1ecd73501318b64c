//! Names: lookup, listing and creation.

use crate::{
    Partition, acl,
    apply::CommandContext,
    directory::{Directory, HASH_NAMES_MAX, StoredEntry},
    inode::{Inode, InodeBody, LINKS_MAX},
    intents::LockTarget,
    partition::split,
};
use placement::FileId;
use wire::{
    ACL_DEFAULT, Answer, DirEntry, DirectoryFragments, DirectoryUsage, ExtentRequest, FoundEntry, InheritedAttributes,
    Intent, Kind, LIST_ENTRIES_MAX, Name, NewInode, NewKind, Object, Outcome, Refusal, SET_GROUP_ID, SubtreeUsage,
    Target, Timestamp,
};

impl Partition {
    pub(crate) fn lookup(&mut self, _: CommandContext, parent: FileId, name: Name) -> Outcome<Answer> {
        let answer = match self.entry(parent, &name) {
            Ok(StoredEntry { file, kind, .. }) => {
                Answer::Found(FoundEntry { file: *file, kind: *kind, attributes: self.complete_attributes(*file).ok() })
            }
            Err(Refusal::NotFound(Object::Entry { .. })) if !self.intents.is_empty() => Answer::NoEntry,
            Err(refusal) => return Err(refusal),
        };
        if self.intents.is_empty() {
            return Ok(answer);
        }
        match self.intents.holder(parent, LockTarget::Entry(name.clone())) {
            None if answer == Answer::NoEntry => Err(Refusal::NotFound(Object::entry(parent, &name))),
            held => Ok(Self::unsettled(held.into_iter().collect(), answer)),
        }
    }

    /// Returns attributes that need nothing from fragments elsewhere, and that no intent is about
    /// to change.
    fn complete_attributes(&self, file: FileId) -> Outcome<wire::Attributes> {
        match self.settled_attributes(file)? {
            Answer::Attributes(attributes) => Ok(attributes),
            _ => Err(Refusal::Stale(Object::File(file))),
        }
    }

    pub(crate) fn stat(&mut self, _: CommandContext, file: FileId) -> Outcome<Answer> {
        self.settled_attributes(file)
    }

    fn settled_attributes(&self, file: FileId) -> Outcome<Answer> {
        let attributes = self.attributes(file)?;
        if self.is_split(file) {
            return Err(split(file));
        }
        Ok(Self::unsettled(self.intents.holders(file), Answer::Attributes(attributes)))
    }

    pub(crate) fn fragments(&mut self, _: CommandContext, directory: FileId) -> Outcome<Answer> {
        let (attributes, inherited) = (self.attributes(directory)?, Box::new(self.inherited(directory)?));
        let fragments = self.directory(directory)?.fragments().to_vec();
        let held = self.intents.holder(directory, LockTarget::Inode);
        Ok(Self::unsettled(
            held.into_iter().collect(),
            Answer::Fragments(DirectoryFragments { attributes, inherited, fragments }),
        ))
    }

    pub(crate) fn parent(&mut self, _: CommandContext, directory: FileId) -> Outcome<Answer> {
        let answer = Answer::Parent(self.directory(directory)?.parent);
        let held = self.intents.holder(directory, LockTarget::Inode);
        Ok(Self::unsettled(held.into_iter().collect(), answer))
    }

    pub(crate) fn list(&mut self, _: CommandContext, directory: FileId, after: u64, max: u32) -> Outcome<Answer> {
        let max = max.min(LIST_ENTRIES_MAX) as usize;
        let answer = Answer::Entries(self.entries_of(directory)?.list(after, max));
        Ok(Self::unsettled(self.intents.entry_holders(directory), answer))
    }

    pub(crate) fn usage_in(&mut self, _: CommandContext, directory: FileId, after: u64, max: u32) -> Outcome<Answer> {
        let page = self.entries_of(directory)?.list(after, max.min(LIST_ENTRIES_MAX) as usize);
        let next = page.last().map_or(0, |last| last.cookie);
        let (mut sum, mut others, mut directories) = (SubtreeUsage::default(), Vec::new(), Vec::new());
        for DirEntry { file, kind, .. } in page {
            match self.inodes.get(&file) {
                _ if kind == Kind::Directory => directories.push(file),
                Some(inode) if inode.names == 1 && inode.extent().is_none() => {
                    sum = sum.with(SubtreeUsage::of_file(&inode.attributes(file)));
                }
                _ => others.push(file),
            }
        }
        sum.directories = directories.len() as u64;
        let usage = DirectoryUsage { sum, others, directories, next };
        Ok(Self::unsettled(self.intents.entry_holders(directory), Answer::DirectoryUsage(usage)))
    }

    pub(crate) fn read_link(&mut self, _: CommandContext, file: FileId) -> Outcome<Answer> {
        match &self.inode(file)?.body {
            InodeBody::Symlink(target) => Ok(Answer::Target(target.clone())),
            _ => Err(Refusal::invalid(Object::File(file), "not a symbolic link")),
        }
    }

    pub(crate) fn check_name(&mut self, _: CommandContext, parent: FileId, name: Name) -> Outcome<Answer> {
        self.check_free(parent, &name)?;
        self.inherited(parent).map(Answer::Inherited)
    }

    pub(crate) fn create(
        &mut self,
        context: CommandContext,
        parent: FileId,
        name: Name,
        inode: NewInode,
        open: bool,
        extent: ExtentRequest,
    ) -> Outcome<Answer> {
        self.check_free(parent, &name)?;
        let (new, directory) = (acl::inherit(&self.inherited(parent)?, inode), self.directory_of(parent));
        let placement = self.placement_at(new.placing(), directory, name.as_bytes());
        let mut inode = Inode::new(new, directory, Some(placement), context.now);
        inode.move_to_extent(extent);
        if open {
            inode.add_open(context.session);
        }
        let kind = inode.kind();
        let file = self.add(inode);
        if let Err(refusal) =
            self.edit_entries(parent, context.now, |entries, hash| entries.insert(hash, name, file, kind))
        {
            self.remove_inode(file);
            return Err(refusal);
        }
        self.opened_answer(context.session, file, None)
    }

    /// Creates a file without a name, open for the session.
    pub(crate) fn create_tmpfile(
        &mut self,
        context: CommandContext,
        parent: FileId,
        name: Option<Name>,
        inode: NewInode,
        linkable: bool,
    ) -> Outcome<Answer> {
        self.check_takes_inodes(parent)?;
        let new = acl::inherit(&self.inherited(parent)?, NewInode { kind: NewKind::File, ..inode });
        let file = self.next_id();
        // Without a name, its number chooses the placement.
        let number = file.0.to_le_bytes();
        let by = name.as_ref().map_or(&number[..], Name::as_bytes);
        let placement = self.placement_at(new.placing(), self.directory_of(parent), by);
        let mut inode = Inode::new(new, parent, Some(placement), context.now);
        (inode.names, inode.linkable) = (0, linkable);
        inode.add_open(context.session);
        self.insert_inode(file, inode);
        self.opened_answer(context.session, file, None)
    }

    /// Checks that a directory, split or not, is not removed.
    fn check_takes_inodes(&self, directory: FileId) -> Outcome<()> {
        match self.inode(directory)?.names {
            0 => Err(Refusal::NotFound(Object::File(directory))),
            _ => self.directory(directory).map(drop),
        }
    }

    pub(crate) fn link(
        &mut self,
        context: CommandContext,
        file: FileId,
        parent: FileId,
        name: Name,
    ) -> Outcome<Answer> {
        self.check_linkable(file, None)?;
        self.check_free(parent, &name)?;
        let kind = self.inode(file)?.kind();
        self.edit_entries(parent, context.now, |entries, hash| entries.insert(hash, name, file, kind))?;
        self.add_name(file, context.now)?;
        self.attributes(file).map(Answer::Attributes)
    }

    pub(crate) fn add_name(&mut self, file: FileId, now: Timestamp) -> Outcome<()> {
        self.edit(file, |inode| {
            (inode.names, inode.linkable, inode.changed) = (inode.names + 1, false, now);
            Ok(())
        })
    }

    /// Checks that an inode here may get one more name.
    pub(crate) fn check_linkable(&self, file: FileId, own: Option<Intent>) -> Outcome<()> {
        self.intents.check(file, LockTarget::Inode, own)?;
        let (inode, object) = (self.inode(file)?, Object::File(file));
        match inode.names {
            _ if inode.kind() == Kind::Directory => Err(Refusal::NotPermitted(object)),
            0 if !inode.linkable => Err(Refusal::NotFound(object)),
            LINKS_MAX.. => Err(Refusal::TooManyLinks { object, limit: LINKS_MAX }),
            _ => Ok(()),
        }
    }

    /// Returns the attributes that new inodes in the directory inherit.
    pub(crate) fn inherited(&self, directory: FileId) -> Outcome<InheritedAttributes> {
        let above = self.inode(directory)?;
        let group = (above.mode & SET_GROUP_ID != 0).then_some(above.owner.gid);
        let default_acl = above.xattr(ACL_DEFAULT).cloned().unwrap_or_default();
        Ok(InheritedAttributes { group, default_acl, placing: above.placement_request.placing })
    }

    /// Returns the entry; refuses if there is none.
    pub(crate) fn entry(&self, parent: FileId, name: &Name) -> Outcome<&StoredEntry> {
        let found = self.entries_of(parent)?.get(self.names(), name);
        found.ok_or_else(|| Refusal::NotFound(Object::entry(parent, name)))
    }

    /// Returns the entry if it may be changed now: no intent has locked it.
    pub(crate) fn settled_entry(&self, parent: FileId, name: &Name) -> Outcome<Target> {
        self.check_entry_free(parent, name, None)?;
        let entry = self.entry(parent, name)?;
        Ok((entry.file, entry.kind))
    }

    /// Refuses if another intent than `own` has locked the entry, or its whole directory.
    pub(crate) fn check_entry_free(&self, parent: FileId, name: &Name, own: Option<Intent>) -> Outcome<()> {
        if self.intents.is_empty() {
            return Ok(());
        }
        self.intents.check(parent, LockTarget::AllEntries, own)?;
        self.intents.check(parent, LockTarget::Entry(name.clone()), own)
    }

    /// Returns the directory if it accepts entries: it is neither removed nor about to be, and its
    /// entries are here.
    pub(crate) fn open_directory(&self, directory: FileId) -> Outcome<&Directory> {
        self.open_directory_for(directory, None)
    }

    /// As [`Self::open_directory`], for an intent that may have locked the directory itself.
    pub(crate) fn open_directory_for(&self, directory: FileId, own: Option<Intent>) -> Outcome<&Directory> {
        let entries = self.entries_of(directory)?;
        if self.inode(directory)?.names == 0 {
            return Err(Refusal::NotFound(Object::File(directory)));
        }
        self.intents.check(directory, LockTarget::AllEntries, own)?;
        Ok(entries)
    }

    fn check_free(&self, parent: FileId, name: &Name) -> Outcome<()> {
        let entries = self.open_directory(parent)?;
        self.check_entry_free(parent, name, None)?;
        match entries.get(self.names(), name) {
            Some(_) => Err(Refusal::Exists(Object::entry(parent, name))),
            None => self.check_space(parent, name),
        }
    }

    /// Refuses if the directory must be split before it gets one more entry, or if too many names
    /// have this hash.
    pub(crate) fn check_space(&self, directory: FileId, name: &Name) -> Outcome<()> {
        let (entries, held) = (self.entries_of(directory)?, self.intents.entries_held(directory));
        if entries.of.is_none() && entries.len() + held >= self.split_entries() {
            return Err(Refusal::Split { directory, bits: 0 });
        }
        if entries.has_space(self.names(), name, held) {
            return Ok(());
        }
        Err(Refusal::TooLarge { object: Object::text(name.as_bytes()), limit: HASH_NAMES_MAX })
    }
}
