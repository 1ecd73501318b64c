//! The state of one partition, and how its inodes are reached.

use crate::{
    Endings,
    answered::Answered,
    directory::{Directory, HASH_BITS, NameHash},
    grants::Grants,
    inode::Inode,
    intents::{Intents, What},
    object::Reserved,
    whole::Told,
};
use placement::{BuildNumberHasher, FRAGMENT_BITS, FileId, PartitionId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use wire::{Answer, Attributes, Gone, NewInode, NewKind, Object, Outcome, Owner, Refusal, Stamp, Timestamp};

/// A directory with more entries is split, unless the settings say otherwise: above this, one partition would be most of a
/// large directory's load, and below it one message less is worth more.
pub const SPLIT_ENTRIES: u32 = 4096;

/// What all partitions of a pool share.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// What hashes are seeded with.
    pub seed: u64,
    /// How long stripes usually are, bytes: a power of two, the longest that engines keep.
    pub stripe_bytes: u32,
    /// How many partitions the pool has.
    pub partitions: u32,
    /// How many bits of a name's hash are used, 1 to 54; fewer only in tests, so that hashes collide.
    pub name_bits: u32,
    /// A directory with more entries than this is split.
    pub split_entries: u32,
}

impl Settings {
    /// The usual ones, of a pool with one partition.
    pub fn new(seed: u64, stripe_bytes: u32) -> Self {
        Self { seed, stripe_bytes, partitions: 1, name_bits: HASH_BITS, split_entries: SPLIT_ENTRIES }
    }
}

/// One partition. An empty one holds no memory of its own.
#[derive(Debug, Serialize, Deserialize)]
pub struct Partition {
    id: PartitionId,
    settings: Settings,
    /// How many ids were given; none is given twice.
    made: u64,
    /// Each apart: a table that grows by doubling would else hold room for twice as many.
    pub(crate) inodes: HashMap<FileId, Box<Inode>, BuildNumberHasher>,
    /// Files that are gone, whose stripes may still be there.
    pub(crate) gone: BTreeMap<FileId, Gone>,
    /// Files that have stripes and no inode yet.
    pub(crate) reserved: Reserved,
    pub(crate) answered: Answered,
    pub(crate) grants: Grants,
    pub(crate) intents: Intents,
    /// What all this counts for, bytes.
    pub(crate) bytes: u64,
    /// What the node has not yet asked for.
    pub(crate) told: Told,
}

impl Partition {
    /// An empty partition.
    pub fn new(id: PartitionId, settings: Settings) -> Self {
        let (inodes, gone, answered) = (HashMap::default(), BTreeMap::new(), Answered::default());
        let (grants, told, intents) = (Grants::default(), Told::default(), Intents::default());
        let reserved = Reserved::default();
        Self { id, settings, made: 0, inodes, gone, reserved, answered, grants, intents, bytes: 0, told }
    }

    /// The first partition of a pool, with the root directory.
    pub fn with_root(settings: Settings, owner: Owner, mode: u32, now: Timestamp) -> Self {
        let mut first = Self::new(PartitionId(0), settings);
        let root = NewInode::new(NewKind::Directory, mode, owner);
        let file = first.add(Inode::new(root, FileId::ROOT, None, now));
        assert_eq!(file, FileId::ROOT, "the root is the first inode of partition 0");
        first
    }

    /// One that knows which sessions have ended from the others of its node.
    #[must_use]
    pub fn sharing(mut self, endings: Endings) -> Self {
        self.answered.ended = endings;
        self
    }

    /// What inodes and entries count for in the pool, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many inodes there are.
    pub fn files(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// What was answered to this change, when it was done before: it needs no space to be answered again.
    pub fn recall(&self, stamp: Stamp) -> Option<Outcome<Answer>> {
        self.answered.recall(stamp)
    }

    /// Keeps another answer than was given: for what a node did itself, once.
    pub fn keep(&mut self, stamp: Stamp, answer: Outcome<Answer>) {
        if !self.answered.has_ended(stamp.session) {
            self.answered.amend(stamp, answer);
        }
    }

    pub(crate) fn names(&self) -> NameHash {
        NameHash { seed: self.settings.seed, bits: self.settings.name_bits }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether the inode, if there is one, is here.
    pub(crate) fn is_home_of(&self, file: FileId) -> bool {
        file.partition() == self.id
    }

    pub(crate) fn inode(&self, file: FileId) -> Outcome<&Inode> {
        let inode = self.inodes.get(&file).filter(|inode| !self.grants.hides(file, inode));
        inode.map(Box::as_ref).ok_or_else(|| self.missing(file))
    }

    /// Why an inode is not here: it is gone, or made by an intent that is not settled yet.
    fn missing(&self, file: FileId) -> Refusal {
        match self.intents.holder(file, What::Inode) {
            Some(intent) => Refusal::Held { intent },
            None => Refusal::NotFound(Object::File(file)),
        }
    }

    pub(crate) fn directory(&self, file: FileId) -> Outcome<&Directory> {
        self.inode(file)?.directory(file)
    }

    /// A directory or fragment whose entries are here; refused as `Split` when they are in fragments.
    pub(crate) fn entries_of(&self, file: FileId) -> Outcome<&Directory> {
        let directory = self.directory(file)?;
        if directory.fragments().is_empty() { Ok(directory) } else { Err(split(file)) }
    }

    /// Whether it is a directory here whose entries are in fragments.
    pub(crate) fn is_split(&self, file: FileId) -> bool {
        self.directory(file).is_ok_and(|directory| !directory.fragments().is_empty())
    }

    /// The directory that a fragment belongs to; anything else is itself.
    pub fn directory_of(&self, file: FileId) -> FileId {
        self.inodes.get(&file).map_or(file, |inode| inode.directory_of(file))
    }

    pub(crate) fn split_entries(&self) -> usize {
        self.settings.split_entries as usize
    }

    pub(crate) fn attributes(&self, file: FileId) -> Outcome<Attributes> {
        Ok(self.inode(file)?.attributes(file))
    }

    /// An id that was never given.
    pub(crate) fn next_id(&mut self) -> FileId {
        self.made += 1;
        FileId::new(self.id, self.made)
    }

    /// Gives a new inode its id.
    pub(crate) fn add(&mut self, inode: Inode) -> FileId {
        let file = self.next_id();
        self.insert_inode(file, inode);
        file
    }

    /// Adds an inode whose id was given before.
    pub(crate) fn insert_inode(&mut self, file: FileId, mut inode: Inode) {
        inode.granted.astray = self.grants.asker.others;
        self.bytes += inode.weight();
        self.inodes.insert(file, Box::new(inode));
    }

    /// Changes an inode, keeps count of what it weighs, and takes back what kernels keep of what has changed.
    pub(crate) fn edit<R>(&mut self, file: FileId, change: impl FnOnce(&mut Inode) -> Outcome<R>) -> Outcome<R> {
        let inode = self.inodes.get_mut(&file).filter(|inode| !self.grants.hides(file, inode));
        let Some(inode) = inode else { return Err(self.missing(file)) };
        let (before, shown) = (inode.weight(), self.grants.shown(inode));
        let outcome = change(inode);
        self.bytes = self.bytes + inode.weight() - before;
        self.grants.changed(file, inode, &shown);
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
                self.grants.entries_changed(directory, inode);
            }
        })
    }
}

/// What a client is told that looks for entries in a directory which is split.
pub fn split(directory: FileId) -> Refusal {
    Refusal::Split { directory, bits: u8::try_from(FRAGMENT_BITS).expect("a few bits") }
}
