//! Objects: entries that are put, got and deleted as a whole, under a precondition.
//!
//! A put creates a new inode and replaces the old one under the name, so every reader sees either
//! the old object or the new one. Bytes beyond the inline limit are written earlier, to the stripes
//! of a *reserved* file: it has an id and no inode yet.
//!
//! ```text
//!   Reserve --> id --(a client writes its stripes)--> PutObject: the inode with its bytes and name
//!                |                                     `--not placed as the directory wants-->
//!                |                                     `WrongPlacement`: the client starts over
//!                `--the session ends, or the client cancels it--> the stripes are to be removed
//! ```

use crate::{
    Partition, acl,
    apply::CommandContext,
    inode::{DataLocation, FileBody, Inode, InodeBody, Striped},
    intents::LockTarget,
    memory_cost,
};
use bytes::Bytes;
use placement::{Distribution, FileId, Layout, PartitionId, PlacementDecision, PlacementSpec, Policy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{
    Answer, Condition, Content, Contents, DirEntry, FoundEntry, FoundObject, INLINE_BYTES_MAX, Kind, LIST_ENTRIES_MAX,
    Name, NewInode, NewKind, Object, ObjectAttributes, ObjectMeta, Outcome, PendingDelete, RESERVED_MAX, RangeContent,
    Refusal, Session, StoredObject, StripeRuns, Target, Timestamp, Version,
};

/// Permission bits of new objects.
const OBJECT_MODE: u32 = 0o644;

/// Reserved files, which have no inode, each with its session.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Reserved(BTreeMap<FileId, (Session, ReservedStripes)>);

/// Stripes that a reserved file may have.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReservedStripes {
    /// Maximum number of stripes.
    pub count: u64,
    /// Layout of the stripes.
    pub layout: Layout,
    /// Policy by which a client chose their partition, if one did.
    pub by: Option<Policy>,
}

impl Reserved {
    /// Returns the sessions that have reserved files.
    pub fn sessions(&self) -> impl Iterator<Item = Session> {
        self.0.values().map(|(session, _)| *session)
    }

    /// Returns the stripes of a reserved file if it is this session's.
    fn stripes(&self, file: FileId, session: Session) -> Option<ReservedStripes> {
        self.0.get(&file).filter(|(holder, _)| *holder == session).map(|(_, stripes)| *stripes)
    }
}

/// Parts of a new object.
struct NewObject {
    inode: NewInode,
    directory: FileId,
    /// Wanted placement of its stripes.
    wanted: PlacementDecision,
}

impl Partition {
    /// Returns the object, with the bytes of the range that are here. If an intent has locked the
    /// entry, returns the entry without the intent; the client then gets the object by its file id.
    pub(crate) fn get_object(
        &mut self,
        context: CommandContext,
        parent: FileId,
        name: Name,
        offset: u64,
        length: u32,
    ) -> Outcome<Answer> {
        let found = self.entry(parent, &name).map(|entry| (entry.file, entry.kind));
        if !self.intents.is_empty() && self.intents.holder(parent, LockTarget::Entry(name.clone())).is_some() {
            return self.lookup(context, parent, name);
        }
        match found? {
            (_, Kind::Directory) => Err(Refusal::IsDirectory(Object::entry(parent, &name))),
            (file, _) if self.is_home_of(file) => self.get_file(context, file, offset, length),
            (file, kind) => Ok(Answer::Found(FoundEntry { file, kind, attributes: None })),
        }
    }

    pub(crate) fn get_file(
        &mut self,
        context: CommandContext,
        file: FileId,
        offset: u64,
        length: u32,
    ) -> Outcome<Answer> {
        match self.read(context, file, offset, length)? {
            Answer::Content(RangeContent { length, content }) => {
                let head = ObjectMeta::from(&self.attributes(file)?);
                Ok(Answer::Object(FoundObject { head, striped: layout_of(&content), length, content }))
            }
            other => Ok(other),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "it takes the fields of its command")]
    pub(crate) fn put_object(
        &mut self,
        context: CommandContext,
        parent: FileId,
        name: Name,
        condition: Condition,
        placing: PlacementSpec,
        attributes: ObjectAttributes,
        contents: Contents,
    ) -> Outcome<Answer> {
        let (CommandContext { session, now }, name) = (context, &name);
        self.open_directory(parent)?;
        let taken = match self.settled_entry(parent, name) {
            Err(Refusal::NotFound(Object::Entry { .. })) => None,
            found => Some(found?),
        };
        if !self.check_object(parent, name, taken, condition)? {
            return Ok(Answer::NeedsTransaction);
        }
        if taken.is_none() {
            self.check_space(parent, name)?;
        }
        let new = self.new_object((parent, name), placing)?;
        if let Contents::Striped { file, .. } = contents
            && let Some(stripes) = self.reserved.stripes(file, session)
            && !new.wanted.is_satisfied_by(stripes.layout, stripes.by)
        {
            return Ok(Answer::WrongPlacement(self.inode(parent)?.placement_request.placing));
        }
        let (file, inode) = self.filled_object((session, parent), new, (attributes, contents), now)?;
        let version = Version { file, change: inode.version };
        self.insert_inode(file, inode);
        let pointed = self.edit_entries(parent, now, |entries, hash| {
            if taken.is_none() {
                return entries.insert(hash, name.clone(), file, Kind::File);
            }
            entries.replace(hash, name, file, Kind::File);
            Ok(())
        });
        pointed.expect("the entry exists, or has space");
        Ok(Answer::ObjectStored(StoredObject {
            version,
            deleted: taken.and_then(|(taken, _)| self.drop_name(taken, now)),
        }))
    }

    pub(crate) fn delete_object(
        &mut self,
        context: CommandContext,
        parent: FileId,
        name: Name,
        condition: Condition,
    ) -> Outcome<Answer> {
        let taken = match (self.settled_entry(parent, &name), condition) {
            (Err(Refusal::NotFound(Object::Entry { .. })), Condition::Is(_)) => None,
            (found, _) => Some(found?),
        };
        if !self.check_object(parent, &name, taken, condition)? {
            return Ok(Answer::NeedsTransaction);
        }
        self.unlink(context, parent, name)
    }

    /// Returns true if the precondition holds; false if only another partition can check it.
    fn check_object(&self, parent: FileId, name: &Name, taken: Option<Target>, condition: Condition) -> Outcome<bool> {
        let object = || Object::entry(parent, name);
        let present = match taken {
            None => None,
            Some((_, Kind::Directory)) => return Err(Refusal::IsDirectory(object())),
            Some((file, _)) if !self.is_home_of(file) => return Ok(false),
            Some((file, _)) => {
                self.intents.check(file, LockTarget::Inode, None)?;
                Some(Version { file, change: self.inode(file)?.version })
            }
        };
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => present.is_none(),
            Condition::Is(version) => present == Some(version),
        };
        if holds { Ok(true) } else { Err(Refusal::VersionMismatch { object: object(), present }) }
    }

    /// Prepares a new object. Its owner is that of the directory, which the client need not know.
    fn new_object(&self, (parent, name): (FileId, &Name), placing: PlacementSpec) -> Outcome<NewObject> {
        let new = NewInode {
            placing: placing.boxed(),
            ..NewInode::new(NewKind::File, OBJECT_MODE, self.inode(parent)?.owner)
        };
        let (inode, directory) = (acl::inherit(&self.inherited(parent)?, new), self.directory_of(parent));
        let wanted = self.placement_at(inode.placing(), directory, name.as_bytes());
        Ok(NewObject { inode, directory, wanted })
    }

    /// Creates its inode, with the bytes and attributes.
    fn filled_object(
        &mut self,
        (session, parent): (Session, FileId),
        NewObject { inode, directory, wanted }: NewObject,
        (attributes, contents): (ObjectAttributes, Contents),
        now: Timestamp,
    ) -> Outcome<(FileId, Inode)> {
        let mut inode = Inode::new(inode, directory, Some(wanted), now);
        inode.describe(parent, attributes)?;
        let (file, size, location, placement) = match contents {
            Contents::Inline(bytes) if bytes.len() > INLINE_BYTES_MAX as usize => {
                return Err(Refusal::invalid(Object::File(parent), "more bytes than live with an inode"));
            }
            Contents::Inline(bytes) => {
                (self.next_id(), bytes.len() as u64, DataLocation::Inline(bytes.to_vec()), wanted)
            }
            Contents::Striped { file, size, .. } => {
                let (location, layout) = self.take_reserved(session, file, size)?;
                (file, size, location, PlacementDecision { layout, pending_policy: None })
            }
        };
        inode.body = InodeBody::File(FileBody { size, location, ..FileBody::new(placement) });
        Ok((file, inode))
    }

    /// Takes the stripes of a reserved file for its new inode.
    fn take_reserved(&mut self, session: Session, file: FileId, size: u64) -> Outcome<(DataLocation, Layout)> {
        let object = Object::File(file);
        let Some(ReservedStripes { count, layout, .. }) = self.reserved.stripes(file, session) else {
            return Err(Refusal::Stale(object));
        };
        let stripes = size.div_ceil(u64::from(layout.stripe_bytes()));
        if stripes > count {
            return Err(Refusal::invalid(object, "an object is longer than what was reserved for it"));
        }
        self.forget_reserved(file);
        let mut runs = StripeRuns::new();
        runs.insert(0, stripes);
        Ok((DataLocation::Striped(Box::new(Striped { stripes: runs, planned: size, ..Striped::default() })), layout))
    }

    pub(crate) fn reserve(
        &mut self,
        context: CommandContext,
        count: u32,
        stripes: u64,
        layout: Layout,
        policy: Option<Policy>,
    ) -> Outcome<Answer> {
        let stripes = ReservedStripes { count: stripes, layout, by: policy };
        if count > RESERVED_MAX || stripes.count == 0 {
            return Err(Refusal::invalid(Object::Pool, "at most 256 files are reserved at once, of a stripe or more"));
        }
        let there = |partition: PartitionId| u32::from(partition.0) < self.settings().partitions;
        let possible = match stripes.layout.distribution() {
            Distribution::Striped => true,
            Distribution::Single(partition) => there(partition),
        };
        if !possible || stripes.layout.stripe_bytes() > self.settings().stripe_bytes {
            return Err(Refusal::invalid(Object::Pool, "stripes cannot lie so in this pool"));
        }
        let files: Vec<FileId> = (0..count).map(|_| self.next_id()).collect();
        self.bytes += u64::from(count) * memory_cost::RESERVED_BYTES;
        self.reserved.0.extend(files.iter().map(|file| (*file, (context.session, stripes))));
        Ok(Answer::Reserved(files))
    }

    /// Ends the reservation of a file: it has an inode now, or its stripes are removed.
    pub(crate) fn forget_reserved(&mut self, file: FileId) {
        if self.reserved.0.remove(&file).is_some() {
            self.bytes -= memory_cost::RESERVED_BYTES;
        }
    }

    /// Cancels the reservations of a session that ends; their stripes are to be removed.
    pub(crate) fn end_reserved(&mut self, session: Session) -> Vec<PendingDelete> {
        let left = self.reserved.0.iter().filter(|(_, (holder, _))| *holder == session);
        let left: Vec<FileId> = left.map(|(file, _)| *file).collect();
        left.into_iter().filter_map(|file| self.cancel_reservation(file, session)).collect()
    }

    /// Cancels a session's reservation of a file; its stripes are to be removed.
    pub(crate) fn unreserve(&mut self, context: CommandContext, file: FileId) -> Outcome<Answer> {
        Ok(Answer::Removed(self.cancel_reservation(file, context.session)))
    }

    fn cancel_reservation(&mut self, file: FileId, session: Session) -> Option<PendingDelete> {
        let ReservedStripes { count, layout, .. } = self.reserved.stripes(file, session)?;
        self.forget_reserved(file);
        let mut stripes = StripeRuns::new();
        stripes.insert(0, count);
        self.bytes += memory_cost::runs(&stripes);
        let deleted = PendingDelete { file, layout, stripes };
        self.deleted.insert(file, deleted.clone());
        Some(deleted)
    }

    /// Returns the layout of a file that has no inode yet and that this session has reserved.
    pub fn reserved(&self, file: FileId, session: Session) -> Option<Layout> {
        self.reserved.stripes(file, session).map(|stripes| stripes.layout)
    }

    /// Returns true if a session may write this stripe: it is a stripe of the file, or the session
    /// has reserved it.
    pub fn expects(&self, file: FileId, stripe: u64, session: Session) -> bool {
        match self.inodes.get(&file).map(|inode| &inode.body) {
            Some(InodeBody::File(body)) => body.expects(stripe),
            Some(_) => false,
            None => self.reserved.stripes(file, session).is_some_and(|reserved| stripe < reserved.count),
        }
    }

    /// Returns those of these stripes that are neither the file's nor reserved.
    pub(crate) fn unowned_stripes(&mut self, _: CommandContext, file: FileId, stripes: StripeRuns) -> Outcome<Answer> {
        Ok(Answer::UnownedStripes(self.find_unowned(file, &stripes)))
    }

    /// Returns those of these stripes that are neither the file's nor reserved.
    #[must_use]
    pub fn find_unowned(&self, file: FileId, stripes: &StripeRuns) -> StripeRuns {
        match self.inodes.get(&file).map(|inode| &inode.body) {
            Some(InodeBody::File(body)) => body.unowned_stripes(stripes),
            Some(_) => stripes.clone(),
            None => match self.reserved.0.get(&file) {
                Some((_, reserved)) => stripes.within(reserved.count..u64::MAX),
                None => stripes.clone(),
            },
        }
    }

    /// Returns true if the inode exists, whatever its type.
    pub fn has(&self, file: FileId) -> bool {
        self.inodes.contains_key(&file)
    }

    pub(crate) fn list_names(
        &mut self,
        _: CommandContext,
        directory: FileId,
        prefix: Bytes,
        from: Bytes,
        max: u32,
    ) -> Outcome<Answer> {
        let max = max.min(LIST_ENTRIES_MAX) as usize;
        let entries = self.entries_of(directory)?.list_names(&prefix, &from, max);
        Ok(Self::unsettled(self.intents.entry_holders(directory), Answer::Entries(entries)))
    }
}

/// Returns the layout of striped content.
fn layout_of(content: &Content) -> Option<Layout> {
    match content {
        Content::Striped(layout) => Some(*layout),
        _ => None,
    }
}

/// Returns the bytes by which a name sorts: a directory sorts where the keys below it do.
pub fn listed_name(name: &Name, kind: Kind) -> impl Iterator<Item = u8> + Clone + '_ {
    let slash = (kind == Kind::Directory).then_some(b'/');
    name.as_bytes().iter().copied().chain(slash)
}

/// Returns true if the listing includes this entry.
pub fn is_listed(name: &Name, kind: Kind, prefix: &[u8], from: &[u8]) -> bool {
    let listed = || listed_name(name, kind);
    listed().take(prefix.len()).eq(prefix.iter().copied()) && listed().ge(from.iter().copied())
}

/// Returns the first `max` entries in listing order.
pub fn first_of(mut entries: Vec<DirEntry>, max: usize) -> Vec<DirEntry> {
    let order =
        |one: &DirEntry, other: &DirEntry| listed_name(&one.name, one.kind).cmp(listed_name(&other.name, other.kind));
    if max < entries.len() {
        entries.select_nth_unstable_by(max, order);
        entries.truncate(max);
    }
    entries.sort_unstable_by(order);
    entries
}
