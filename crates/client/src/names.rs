//! Names: lookup, listing, creation and removal, also across two partitions.

use crate::{
    Client,
    conflict::ConflictBackoff,
    files::OpenedInode,
    intent::{PLANS_MAX, TransactionPlan},
};
use placement::{FileId, PlacementSpec};
use wire::{
    Attributes, Body, Command, Credentials, DirEntry, ExtentRequest, FoundEntry, Kind, LIST_ENTRIES_MAX, Mode, Name,
    NewInode, NewKind, Object, OpenedFile, Outcome, Owner, Part, Refusal, RemovalAnswer, Target, Timestamp, WalkEnd,
};

impl Client {
    /// The attributes of an entry: one message, or two if the inode is in another partition.
    pub async fn lookup(&self, parent: FileId, name: &Name) -> Outcome<Attributes> {
        match self.find(parent, name).await? {
            (_, _, Some(attributes)) => Ok(attributes),
            (file, _, None) => Box::pin(self.lookup_remote_inode(parent, name, file)).await,
        }
    }

    /// The attributes of an entry whose inode is in another partition. If the inode is gone, or has
    /// no name left and is only open, the entry has changed, so it is looked up again.
    pub(crate) async fn lookup_remote_inode(&self, parent: FileId, name: &Name, file: FileId) -> Outcome<Attributes> {
        let mut file = file;
        for _ in 0..PLANS_MAX {
            match self.stat(file).await {
                Err(Refusal::NotFound(_)) => {}
                Ok(attributes) if attributes.links == 0 => {}
                outcome => return outcome,
            }
            match self.find(parent, name).await? {
                (_, _, Some(attributes)) => return Ok(attributes),
                (again, _, None) => file = again,
            }
        }
        Err(Refusal::Busy(Object::entry(parent, name)))
    }

    /// Walks down from a directory through others, in one message, as far as one node holds them.
    /// Returns the directory reached, and how many names are left. At most 256 names. Refused as
    /// `NotDirectory` if one of them is anything else, a symbolic link too. With credentials, the
    /// walk ends before a directory that may not let that user pass.
    pub async fn walk_down(
        &self,
        top: FileId,
        names: &[Name],
        credentials: Option<&Credentials>,
    ) -> Outcome<(FileId, u32)> {
        let (partition, components, credentials) = (top.partition(), names.to_vec(), credentials.cloned());
        let walk = Body::Walk { start: top, components, credentials, action: None };
        let WalkEnd { reached, remaining } = self.send(partition, &walk).await?.walked()?;
        Ok((reached, remaining))
    }

    /// Looks up an entry; returns its inode, with attributes if they are in the same partition.
    pub(crate) async fn find(&self, parent: FileId, name: &Name) -> Outcome<(FileId, Kind, Option<Attributes>)> {
        let attempt = |slot: FileId| self.query(slot.partition(), Command::lookup(slot, name.clone()));
        let FoundEntry { file, kind, attributes } = self.run_in_slot(parent, name, attempt).await?;
        Ok((file, kind, attributes))
    }

    /// The attributes of a file: one message, unless it is a directory that is split.
    pub async fn stat(&self, file: FileId) -> Outcome<Attributes> {
        if self.is_known_as_split(file) {
            return Box::pin(self.stat_fragments(file)).await;
        }
        match self.query(file.partition(), Command::stat(file)).await {
            Err(Refusal::Split { directory, .. }) => Box::pin(self.stat_fragments(directory)).await,
            outcome => outcome,
        }
    }

    /// The owner of a directory, from the fragment `slot`: for a split directory, `stat` would ask
    /// all fragments.
    pub(crate) async fn directory_owner(&self, directory: FileId, slot: FileId) -> Outcome<Owner> {
        let attributes = match self.query(slot.partition(), Command::stat(slot)).await {
            Err(Refusal::Split { .. }) => self.stat(directory).await?,
            outcome => outcome?,
        };
        Ok(attributes.owner)
    }

    /// Entries after the cookie `after` (0: from the start), at most `max`; none at the end.
    pub async fn list(&self, directory: FileId, after: u64, max: usize) -> Outcome<Vec<DirEntry>> {
        let max = u32::try_from(max).unwrap_or(LIST_ENTRIES_MAX);
        let mut fragments = self.fragments_of(directory);
        if fragments.is_empty() {
            match self.query(directory.partition(), Command::list(directory, after, max)).await {
                Err(Refusal::Split { directory, bits }) => self.learn_split(directory, bits).await?,
                outcome => return outcome,
            }
            fragments = self.fragments_of(directory);
        }
        Box::pin(self.list_split(&fragments, after, max)).await
    }

    /// The target of a symbolic link.
    pub async fn read_link(&self, file: FileId) -> Outcome<Vec<u8>> {
        self.query(file.partition(), Command::read_link(file)).await.map(Vec::from)
    }

    /// The parent of a directory.
    pub async fn parent(&self, directory: FileId) -> Outcome<FileId> {
        self.query(directory.partition(), Command::parent(directory)).await
    }

    /// Makes an inode in the partition of its entry, and opens it if `open`. One message. For a
    /// directory use [`Self::make_directory`].
    pub async fn create(
        &self,
        parent: FileId,
        name: &Name,
        inode: NewInode,
        open: bool,
        extent: ExtentRequest,
    ) -> Outcome<OpenedInode> {
        let attempt = |slot: FileId| {
            let (name, inode) = (name.clone(), inode.clone());
            let extent =
                if extent == ExtentRequest::Any { self.extent_request(slot.partition()) } else { ExtentRequest::None };
            self.mutate(slot.partition(), Command::create(slot, name, inode, open, extent))
        };
        let OpenedFile { attributes, host, shared, .. } = self.run_in_slot(parent, name, attempt).await?;
        Ok(OpenedInode { attributes, host, shared })
    }

    /// Makes a directory, in the partition given by a hash of its parent and name: one message if
    /// its entry is in that partition too. If the parent's policy names a node for the bytes, the
    /// directory is in a partition of that node.
    pub async fn make_directory(&self, parent: FileId, name: &Name, mode: Mode, owner: Owner) -> Outcome<Attributes> {
        let inode = NewInode::new(NewKind::Directory, mode, owner);
        let object = || Object::entry(parent, name);
        let conflicts = self.conflict_backoff();
        let attempt = || self.try_make_directory((parent, name), inode.clone(), &conflicts);
        self.retry_plan(object, attempt).await
    }

    async fn try_make_directory(
        &self,
        (parent, name): (FileId, &Name),
        inode: NewInode,
        conflicts: &ConflictBackoff,
    ) -> Outcome<Attributes> {
        let slot = self.slot(parent, name);
        if self.directory_home(PlacementSpec::default(), parent, name) == slot.partition() {
            return Ok(self.create(parent, name, inode, false, ExtentRequest::None).await?.attributes);
        }
        let inherited = self.query(slot.partition(), Command::check_name(slot, name.clone())).await?;
        let home = self.directory_home(inherited.placing, parent, name);
        if home == slot.partition() {
            return Ok(self.create(parent, name, inode, false, ExtentRequest::None).await?.attributes);
        }
        let (mode, owner) = (inode.mode, inode.owner);
        let mut driver = self.begin_transaction(slot.partition(), conflicts);
        let made = driver.prepare(home, vec![Part::CreateDirectory { parent, inode, inherited }]).await?;
        let file = *made.first().ok_or_else(|| Refusal::invalid(Object::Pool, "a node made no directory of a part"))?;
        let becomes = Some((file, Kind::Directory));
        driver.commit(vec![Part::Entry { directory: slot, name: name.clone(), before: None, after: becomes }]).await?;
        // The directory may be removed by now; making it has succeeded all the same.
        or_at_creation(self.stat(file).await, || attributes_at_creation(file, mode, owner))
    }

    /// Adds a name to a file: one message if its inode is in the partition of the new entry.
    pub async fn link(&self, file: FileId, parent: FileId, name: &Name) -> Outcome<Attributes> {
        let conflicts = self.conflict_backoff();
        self.retry_plan(|| Object::entry(parent, name), || self.try_link(file, parent, name, &conflicts)).await
    }

    async fn try_link(
        &self,
        file: FileId,
        parent: FileId,
        name: &Name,
        conflicts: &ConflictBackoff,
    ) -> Outcome<Attributes> {
        let slot = self.slot(parent, name);
        if file.partition() == slot.partition() {
            return self.mutate(slot.partition(), Command::link(file, slot, name.clone())).await;
        }
        let known = self.stat(file).await?;
        let mut plan = TransactionPlan::new(slot.partition());
        plan.add(file.partition(), Part::AddLink { file });
        let becomes = Some((file, known.kind));
        plan.add(slot.partition(), Part::Entry { directory: slot, name: name.clone(), before: None, after: becomes });
        self.begin_transaction(slot.partition(), conflicts).execute(plan).await?;
        or_at_creation(self.stat(file).await, || Attributes { links: known.links + 1, ..known })
    }

    /// Removes the entry of anything but a directory. One message, unless stripes or an inode of
    /// another partition are to be removed.
    pub async fn unlink(&self, parent: FileId, name: &Name) -> Outcome<()> {
        let attempt = |slot: FileId| self.mutate(slot.partition(), Command::unlink(slot, name.clone()));
        match self.run_in_slot(parent, name, attempt).await? {
            RemovalAnswer::Removed(deleted) => {
                self.purge(deleted).await;
                Ok(())
            }
            RemovalAnswer::NeedsTransaction => Box::pin(self.unlink_across_partitions(parent, name)).await,
        }
    }

    /// Unlinks a file whose inode is in another partition than its entry.
    pub(crate) async fn unlink_across_partitions(&self, parent: FileId, name: &Name) -> Outcome<()> {
        let conflicts = &self.conflict_backoff();
        let attempt = || async {
            let (file, kind, _) = self.find(parent, name).await?;
            if kind == Kind::Directory {
                return Err(Refusal::IsDirectory(Object::entry(parent, name)));
            }
            let slot = self.slot(parent, name);
            let mut plan = TransactionPlan::new(file.partition());
            plan.add(slot.partition(), removal_part(slot, name, (file, kind)));
            plan.add(file.partition(), Part::DropLink { file });
            self.begin_transaction(file.partition(), conflicts).execute(plan).await
        };
        self.retry_plan(|| Object::entry(parent, name), attempt).await
    }

    /// Removes an empty directory: one message if its inode is in the partition of its entry.
    pub async fn remove_directory(&self, parent: FileId, name: &Name) -> Outcome<()> {
        let attempt = |slot: FileId| self.mutate(slot.partition(), Command::remove_directory(slot, name.clone()));
        match self.run_in_slot(parent, name, attempt).await? {
            RemovalAnswer::Removed(_) => Ok(()),
            RemovalAnswer::NeedsTransaction => Box::pin(self.remove_directory_across_partitions(parent, name)).await,
        }
    }

    /// Removes a directory whose inode is in another partition than its entry, or which has
    /// fragments.
    async fn remove_directory_across_partitions(&self, parent: FileId, name: &Name) -> Outcome<()> {
        let conflicts = &self.conflict_backoff();
        let attempt = || async {
            let (file, kind, _) = self.find(parent, name).await?;
            if kind != Kind::Directory {
                return Err(Refusal::NotDirectory(Object::entry(parent, name)));
            }
            let slot = self.slot(parent, name);
            // Prepare the entry first: then a refusal for not being empty is about the directory
            // that has this name.
            let mut plan = TransactionPlan::new(file.partition());
            plan.add(slot.partition(), removal_part(slot, name, (file, kind)));
            self.plan_removal(&mut plan, file);
            self.begin_transaction(file.partition(), conflicts).execute(plan).await
        };
        let done = self.retry_plan(|| Object::entry(parent, name), attempt).await;
        done.map_err(|refusal| with_entry_name(refusal, parent, name))
    }

    /// Adds the parts that remove a directory and its fragments.
    pub(crate) fn plan_removal(&self, plan: &mut TransactionPlan, directory: FileId) {
        let fragments = self.fragments_of(directory).to_vec();
        for fragment in &fragments {
            plan.add(fragment.partition(), Part::Remove { directory: *fragment, fragments: Vec::new() });
        }
        plan.add(directory.partition(), Part::Remove { directory, fragments });
    }
}

/// The attributes, or those at creation if the inode is gone by now.
fn or_at_creation(outcome: Outcome<Attributes>, made: impl FnOnce() -> Attributes) -> Outcome<Attributes> {
    match outcome {
        Err(Refusal::NotFound(_)) => Ok(made()),
        outcome => outcome,
    }
}

/// Attributes of a directory that was removed before its maker could read them.
fn attributes_at_creation(file: FileId, mode: Mode, owner: Owner) -> Attributes {
    let never = Timestamp::default();
    Attributes {
        file,
        kind: Kind::Directory,
        size: 0,
        allocated: 0,
        mode: mode.bits & !mode.umask & 0o7777,
        links: 2,
        owner,
        accessed: never,
        modified: never,
        changed: never,
        created: never,
        version: 0,
        extent: None,
        cacheable: false,
    }
}

/// The part that removes an entry.
fn removal_part(slot: FileId, name: &Name, was: Target) -> Part {
    Part::Entry { directory: slot, name: name.clone(), before: Some(was), after: None }
}

/// Names the entry in a refusal about its inode, which was removed between two messages, or is a
/// directory that is not empty.
pub(crate) fn with_entry_name(refusal: Refusal, parent: FileId, name: &Name) -> Refusal {
    match refusal {
        Refusal::NotFound(_) => Refusal::NotFound(Object::entry(parent, name)),
        Refusal::NotEmpty(_) => Refusal::NotEmpty(Object::entry(parent, name)),
        other => other,
    }
}
