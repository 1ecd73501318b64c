//! State of one partition, and access to its inodes.

use crate::{
    cache_grants::Grants,
    directory::{Directory, HASH_BITS, NameHash},
    entry::EntryState,
    inode::Inode,
    inode_grants::GrantSet,
    intents::{Intents, LockTarget},
    object::Reserved,
    reply_cache::ReplyCache,
};
use placement::{BuildNumberHasher, FRAGMENT_BITS, FileId, PartitionId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use wire::{
    Answer, Attributes, NewInode, NewKind, Object, Outcome, Owner, PendingDelete, Refusal, RequestId, Session,
    Timestamp,
};

/// Default for the number of entries above which a directory is split. With a higher limit, one
/// partition would carry most of a large directory's load. With a lower limit, the additional
/// message of a split directory would cost more than the split gains.
pub const SPLIT_ENTRIES: u32 = 4096;

/// Settings that all partitions of a pool share.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Seed of all hashes.
    pub seed: u64,
    /// Default length of a stripe, bytes: a power of two, the longest that engines store.
    pub stripe_bytes: u32,
    /// Number of partitions of the pool.
    pub partitions: u32,
    /// Number of bits of a name's hash in use, 1 to 54. Only tests use fewer, so that hashes
    /// collide.
    pub name_bits: u32,
    /// Number of entries above which a directory is split.
    pub split_entries: u32,
}

impl Settings {
    /// Default settings, for a pool with one partition.
    pub fn new(seed: u64, stripe_bytes: u32) -> Self {
        Self { seed, stripe_bytes, partitions: 1, name_bits: HASH_BITS, split_entries: SPLIT_ENTRIES }
    }
}

/// One partition. An empty one allocates no memory.
#[derive(Debug, Serialize, Deserialize)]
pub struct Partition {
    id: PartitionId,
    settings: Settings,
    /// Number of ids given so far; ids are never reused.
    made: u64,
    /// Boxed: otherwise a table that grows by doubling would reserve space for twice as many
    /// inodes.
    #[serde(with = "crate::snapshot::inodes")]
    pub(crate) inodes: HashMap<FileId, Box<Inode>, BuildNumberHasher>,
    /// Deleted files whose stripes may still exist.
    pub(crate) deleted: BTreeMap<FileId, PendingDelete>,
    /// Files that have stripes and no inode yet.
    pub(crate) reserved: Reserved,
    pub(crate) replies: ReplyCache,
    pub(crate) intents: Intents,
    /// Unlinked files that no session has open and that stay for kernels.
    pub(crate) kept: BTreeSet<FileId>,
    /// Memory cost of all of this, bytes.
    pub(crate) bytes: u64,
    /// State of the entry that is executed.
    #[serde(skip)]
    pub(crate) step: EntryState,
    /// Soft state of the node that serves.
    #[serde(skip)]
    pub(crate) grants: Grants,
    /// The latest change of an inode when the partition came to this node.
    #[serde(skip)]
    arrived_at: Timestamp,
}

impl Partition {
    /// Creates an empty partition.
    pub fn new(id: PartitionId, settings: Settings) -> Self {
        Self {
            id,
            settings,
            made: 0,
            inodes: HashMap::default(),
            deleted: BTreeMap::new(),
            reserved: Reserved::default(),
            replies: ReplyCache::default(),
            intents: Intents::default(),
            kept: BTreeSet::new(),
            bytes: 0,
            step: EntryState::default(),
            grants: Grants::default(),
            arrived_at: Timestamp::default(),
        }
    }

    /// Notes of what time the inodes are that a node begins to serve.
    pub(crate) fn note_arrival(&mut self) {
        self.arrived_at = self.inodes.values().map(|inode| inode.changed).max().unwrap_or_default();
    }

    /// The time of a change that is made at `now` by the clock of this node: timestamps do not go
    /// back when the clock of the node before was ahead.
    pub fn time_of_change(&self, now: Timestamp) -> Timestamp {
        now.max(self.arrived_at)
    }

    /// Creates the first partition of a pool, with the root directory, whose inode is not counted:
    /// nobody reserves space for it.
    pub fn with_root(settings: Settings, owner: Owner, mode: u32, now: Timestamp) -> Self {
        let mut first = Self::new(PartitionId(0), settings);
        let root = NewInode::new(NewKind::Directory, mode, owner);
        let file = first.add(Inode::new(root, FileId::ROOT, None, now));
        assert_eq!(file, FileId::ROOT, "the root is the first inode of partition 0");
        first.bytes = 0;
        first
    }

    /// Returns its id.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// Returns the memory cost of inodes and entries, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of inodes.
    pub fn files(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// Returns the number of the last change of the nodes' own.
    pub fn last_own_number(&self) -> u64 {
        self.replies.settled(Session::NONE)
    }

    /// Returns the cached reply to this change, if it was executed before. Repeating the reply
    /// needs no space.
    pub fn cached_reply(&self, request_id: RequestId) -> Option<Outcome<Answer>> {
        self.replies.get(request_id)
    }

    pub(crate) fn names(&self) -> NameHash {
        NameHash { seed: self.settings.seed, bits: self.settings.name_bits }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns true if the id belongs to this partition, whether or not the inode exists.
    pub(crate) fn is_home_of(&self, file: FileId) -> bool {
        file.partition() == self.id
    }

    pub(crate) fn inode(&self, file: FileId) -> Outcome<&Inode> {
        self.inodes.get(&file).map(Box::as_ref).ok_or_else(|| self.missing(file))
    }

    /// Returns the error for a missing inode: it is deleted, or an unsettled intent will create it.
    pub(crate) fn missing(&self, file: FileId) -> Refusal {
        match self.intents.holder(file, LockTarget::Inode) {
            Some(intent) => Refusal::LockedByIntent { intent },
            None => Refusal::NotFound(Object::File(file)),
        }
    }

    pub(crate) fn directory(&self, file: FileId) -> Outcome<&Directory> {
        self.inode(file)?.directory(file)
    }

    /// Returns a directory or fragment whose entries are here; refuses with `Split` if they are in
    /// fragments.
    pub(crate) fn entries_of(&self, file: FileId) -> Outcome<&Directory> {
        let directory = self.directory(file)?;
        if directory.fragments().is_empty() { Ok(directory) } else { Err(split(file)) }
    }

    /// Returns true if this is a directory here whose entries are in fragments.
    pub(crate) fn is_split(&self, file: FileId) -> bool {
        self.directory(file).is_ok_and(|directory| !directory.fragments().is_empty())
    }

    /// Returns the directory of a fragment; any other id is returned unchanged.
    pub fn directory_of(&self, file: FileId) -> FileId {
        self.inodes.get(&file).map_or(file, |inode| inode.directory_of(file))
    }

    pub(crate) fn split_entries(&self) -> usize {
        self.settings.split_entries as usize
    }

    pub(crate) fn attributes(&self, file: FileId) -> Outcome<Attributes> {
        Ok(self.inode(file)?.attributes(file))
    }

    /// Returns a new id.
    pub(crate) fn next_id(&mut self) -> FileId {
        self.made += 1;
        FileId::new(self.id, self.made)
    }

    /// Adds a new inode under a new id.
    pub(crate) fn add(&mut self, inode: Inode) -> FileId {
        let file = self.next_id();
        self.insert_inode(file, inode);
        file
    }

    /// Adds an inode under an id given before.
    pub(crate) fn insert_inode(&mut self, file: FileId, mut inode: Inode) {
        inode.grants.add(GrantSet::UnsureHolders, self.grants.caller.others);
        self.bytes += inode.memory_cost();
        self.inodes.insert(file, Box::new(inode));
    }

    /// Changes an inode, updates the memory cost, and invalidates the changed state in the caches
    /// of other kernels.
    pub(crate) fn edit<R>(&mut self, file: FileId, change: impl FnOnce(&mut Inode) -> Outcome<R>) -> Outcome<R> {
        let Some(inode) = self.inodes.get_mut(&file) else { return Err(self.missing(file)) };
        let (before, shown) = (inode.memory_cost(), self.grants.visible_state(inode));
        let outcome = change(inode);
        self.bytes = self.bytes + inode.memory_cost() - before;
        self.grants.record_change(file, inode, &shown);
        outcome
    }

    /// Changes a directory's entries, and its times with them.
    pub(crate) fn edit_entries<R>(
        &mut self,
        directory: FileId,
        now: Timestamp,
        change: impl FnOnce(&mut Directory, NameHash) -> Outcome<R>,
    ) -> Outcome<R> {
        let names = self.names();
        self.edit(directory, |inode| {
            let result = change(inode.directory_mut(directory)?, names)?;
            inode.touch(now);
            Ok(result)
        })
        .inspect(|_| {
            if let Some(inode) = self.inodes.get_mut(&directory) {
                self.grants.record_entries_change(directory, inode);
            }
        })
    }
}

/// Returns the error for a lookup of entries in a split directory.
pub fn split(directory: FileId) -> Refusal {
    Refusal::Split { directory, bits: u8::try_from(FRAGMENT_BITS).expect("a few bits") }
}
