//! The state of one partition, and how its inodes are reached.

use crate::{
    answered::Answered,
    directory::{Directory, HASH_BITS, NameHash},
    grants::Grants,
    hasher::BuildFileHasher,
    inode::Inode,
    whole::Told,
};
use placement::{FileId, PartitionId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use wire::{Answer, Attributes, NewInode, NewKind, Object, Outcome, Owner, Refusal, Stamp, StripeRuns, Timestamp};

/// What all partitions of a pool share.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// What hashes are seeded with.
    pub seed: u64,
    /// Length of a stripe, bytes: a power of two.
    pub stripe_bytes: u32,
    /// How many bits of a name's hash are used, 1 to 54; fewer only in tests, so that hashes collide.
    pub name_bits: u32,
}

impl Settings {
    /// The usual ones.
    pub fn new(seed: u64, stripe_bytes: u32) -> Self {
        Self { seed, stripe_bytes, name_bits: HASH_BITS }
    }
}

/// One partition. An empty one holds no memory of its own.
#[derive(Debug, Serialize, Deserialize)]
pub struct Partition {
    id: PartitionId,
    settings: Settings,
    /// How many ids were given; none is given twice.
    made: u64,
    pub(crate) inodes: HashMap<FileId, Inode, BuildFileHasher>,
    /// Files that are gone, whose stripes may still be there.
    pub(crate) gone: BTreeMap<FileId, StripeRuns>,
    pub(crate) answered: Answered,
    pub(crate) grants: Grants,
    /// What all this counts for, bytes.
    pub(crate) bytes: u64,
    /// What the node has not yet asked for.
    pub(crate) told: Told,
}

impl Partition {
    /// An empty partition.
    pub fn new(id: PartitionId, settings: Settings) -> Self {
        let (inodes, gone, answered) = (HashMap::default(), BTreeMap::new(), Answered::default());
        let (grants, told) = (Grants::default(), Told::default());
        Self { id, settings, made: 0, inodes, gone, answered, grants, bytes: 0, told }
    }

    /// The first partition of a pool, with the root directory.
    pub fn with_root(settings: Settings, owner: Owner, mode: u32, now: Timestamp) -> Self {
        let mut first = Self::new(PartitionId(0), settings);
        let file = first.add(Inode::new(NewInode::new(NewKind::Directory, mode, owner), FileId::ROOT, now));
        assert_eq!(file, FileId::ROOT, "the root is the first inode of partition 0");
        first
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
        self.answered.amend(stamp, answer);
    }

    pub(crate) fn names(&self) -> NameHash {
        NameHash { seed: self.settings.seed, bits: self.settings.name_bits }
    }

    pub(crate) fn stripe_bytes(&self) -> u64 {
        self.settings.stripe_bytes.into()
    }

    /// Whether the inode, if there is one, is here.
    pub(crate) fn is_home_of(&self, file: FileId) -> bool {
        file.partition() == self.id
    }

    pub(crate) fn inode(&self, file: FileId) -> Outcome<&Inode> {
        let inode = self.inodes.get(&file).filter(|inode| !self.grants.hides(file, inode));
        inode.ok_or(Refusal::NotFound(Object::File(file)))
    }

    pub(crate) fn directory(&self, file: FileId) -> Outcome<&Directory> {
        self.inode(file)?.directory(file)
    }

    pub(crate) fn attributes(&self, file: FileId) -> Outcome<Attributes> {
        Ok(self.inode(file)?.attributes(file, self.stripe_bytes()))
    }

    /// Gives a new inode its id.
    pub(crate) fn add(&mut self, inode: Inode) -> FileId {
        self.made += 1;
        let file = FileId::new(self.id, self.made);
        self.bytes += inode.weight();
        self.inodes.insert(file, inode);
        file
    }

    /// Changes an inode, keeps count of what it weighs, and takes back what kernels keep of what has changed.
    pub(crate) fn edit<R>(&mut self, file: FileId, change: impl FnOnce(&mut Inode) -> Outcome<R>) -> Outcome<R> {
        let stripe_bytes = self.stripe_bytes();
        let inode = self.inodes.get_mut(&file).filter(|inode| !self.grants.hides(file, inode));
        let inode = inode.ok_or(Refusal::NotFound(Object::File(file)))?;
        let (before, shown) = (inode.weight(), self.grants.shown(inode, stripe_bytes));
        let outcome = change(inode);
        self.bytes = self.bytes + inode.weight() - before;
        self.grants.changed(file, inode, &shown, stripe_bytes);
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
