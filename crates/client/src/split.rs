//! Split directories: finding the fragment of a name, splitting a directory, and operations on all
//! fragments.
//!
//! Fragments are directories of their own in other partitions, with ids that only clients know. A
//! request for an entry of a split directory is refused with `Split`; the client then asks for the
//! fragments, and remembers them. A directory is split once and stays split, so what is remembered
//! is never wrong; at worst its directory is gone.

use crate::{
    Client,
    conflict::ConflictBackoff,
    intent::{PLANS_MAX, TransactionDriver, TransactionPlan},
};
use bytes::Bytes;
use parking_lot::RwLock;
use placement::{
    BuildNumberHasher, FRAGMENTS, FileId, PartitionId, PlacementSpec, fragment_of, fragment_partition, name_hash,
};
use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use wire::{
    Acls, Attributes, Changes, Command, DirEntry, DirectoryFragments, LIST_ENTRIES_MAX, Name, NewInode, NewKind,
    Object, Outcome, Part, Refusal, fragment_of_cookie,
};

/// Most directories that are remembered as split; beyond it all are forgotten, and asked for again.
const SPLITS_MAX: usize = 65_536;

/// The directories that are known to be split.
#[derive(Debug, Default)]
pub struct Splits {
    /// True if there is any. Most clients check no more than this.
    any: AtomicBool,
    known: RwLock<HashMap<FileId, Arc<[FileId]>, BuildNumberHasher>>,
}

impl Splits {
    fn get(&self, directory: FileId) -> Option<Arc<[FileId]>> {
        if !self.any.load(Relaxed) {
            return None;
        }
        self.known.read().get(&directory).cloned()
    }

    fn learn(&self, directory: FileId, fragments: Arc<[FileId]>) {
        let mut known = self.known.write();
        if known.len() >= SPLITS_MAX {
            known.clear();
        }
        known.insert(directory, fragments);
        self.any.store(true, Relaxed);
    }

    fn forget(&self, directory: FileId) {
        self.known.write().remove(&directory);
    }
}

impl Client {
    /// The directory that has the entry, as far as is known: the directory itself, or its fragment.
    pub(crate) fn slot(&self, directory: FileId, name: &Name) -> FileId {
        match self.inner.splits.get(directory) {
            Some(fragments) => fragments[fragment_of(name_hash(self.router().seed, name.as_bytes()))],
            None => directory,
        }
    }

    pub(crate) fn is_known_as_split(&self, directory: FileId) -> bool {
        self.inner.splits.any.load(Relaxed) && self.inner.splits.known.read().contains_key(&directory)
    }

    /// The fragments of a directory that is known to be split; otherwise empty.
    pub(crate) fn fragments_of(&self, directory: FileId) -> Arc<[FileId]> {
        self.inner.splits.get(directory).unwrap_or_default()
    }

    /// Runs an attempt on the directory or fragment that has the entry. Learns of a split on the
    /// way, or splits a directory that is full.
    pub(crate) async fn run_in_slot<T, F>(
        &self,
        directory: FileId,
        name: &Name,
        attempt: impl Fn(FileId) -> F,
    ) -> Outcome<T>
    where
        F: Future<Output = Outcome<T>>,
    {
        for _ in 0..PLANS_MAX {
            let (split, bits) = match attempt(self.slot(directory, name)).await {
                Err(Refusal::Split { directory, bits }) => (directory, bits),
                outcome => return outcome,
            };
            Box::pin(self.learn_split(split, bits)).await?;
        }
        Err(Refusal::Busy(Object::entry(directory, name)))
    }

    /// Handles `Split`: splits a directory that is full (`bits` is 0), or asks for the fragments of
    /// one that is split.
    pub(crate) async fn learn_split(&self, directory: FileId, bits: u8) -> Outcome<()> {
        match bits {
            0 => Box::pin(self.split(directory)).await,
            _ => Box::pin(self.query_fragments(directory)).await.map(drop),
        }
    }

    pub(crate) async fn query_fragments(&self, directory: FileId) -> Outcome<(Attributes, Arc<[FileId]>)> {
        let found = self.query(directory.partition(), Command::fragments(directory)).await?;
        let DirectoryFragments { attributes, fragments, .. } = found;
        let fragments: Arc<[FileId]> = fragments.into();
        if fragments.len() == FRAGMENTS {
            self.inner.splits.learn(directory, fragments.clone());
        } else {
            self.inner.splits.forget(directory);
        }
        Ok((attributes, fragments))
    }

    /// Splits a full directory: closes it to changes, copies its entries to fragments, and makes
    /// them visible by the commit.
    async fn split(&self, directory: FileId) -> Outcome<()> {
        let conflicts = self.conflict_backoff();
        self.retry_plan(|| Object::File(directory), || self.try_split(directory, &conflicts)).await
    }

    async fn try_split(&self, directory: FileId, conflicts: &ConflictBackoff) -> Outcome<()> {
        if self.inner.splits.get(directory).is_some() {
            return Ok(());
        }
        let mut driver = self.begin_transaction(directory.partition(), conflicts);
        driver.prepare(directory.partition(), vec![Part::LockEntries { directory }]).await?;
        let fragments = match self.copy_to_fragments(&mut driver, directory).await {
            Ok(fragments) => fragments,
            Err(refusal) => {
                driver.abort().await;
                return Err(refusal);
            }
        };
        let known: Arc<[FileId]> = fragments.clone().into();
        driver.commit(vec![Part::Split { directory, fragments }]).await?;
        self.inner.splits.learn(directory, known);
        Ok(())
    }

    async fn copy_to_fragments(&self, driver: &mut TransactionDriver<'_>, directory: FileId) -> Outcome<Vec<FileId>> {
        let inode = self.inherited_attributes(directory).await?;
        let mut shares: Vec<Vec<DirEntry>> = vec![Vec::new(); FRAGMENTS];
        for entry in self.all_entries(directory).await? {
            shares[fragment_of_cookie(entry.cookie)].push(entry);
        }
        let mut fragments = vec![directory; FRAGMENTS];
        let placing = inode.placing.as_deref().copied().unwrap_or_default();
        for (partition, numbers) in self.fragment_homes(directory, placing) {
            let part = |number: &usize| {
                let entries = std::mem::take(&mut shares[*number]);
                Part::Fragment { directory, inode: inode.clone(), entries }
            };
            let made = driver.prepare(partition, numbers.iter().map(part).collect()).await?;
            numbers.iter().zip(made).for_each(|(number, made)| fragments[*number] = made);
        }
        Ok(fragments)
    }

    /// The attributes that fragments need of their directory, because new inodes inherit them.
    async fn inherited_attributes(&self, directory: FileId) -> Outcome<NewInode> {
        let found = self.query(directory.partition(), Command::fragments(directory)).await?;
        let DirectoryFragments { attributes: above, inherited, .. } = found;
        let inode = NewInode::new(NewKind::Directory, above.mode, above.owner);
        let default = inherited.default_acl;
        let acls = (!default.is_empty()).then(|| Box::new(Acls { default, ..Acls::default() }));
        Ok(NewInode { acls, placing: inherited.placing.boxed(), ..inode })
    }

    async fn all_entries(&self, directory: FileId) -> Outcome<Vec<DirEntry>> {
        let (mut all, mut after, max) = (Vec::new(), 0, LIST_ENTRIES_MAX);
        loop {
            match self.query(directory.partition(), Command::list(directory, after, max)).await? {
                page if page.is_empty() => return Ok(all),
                page => all.extend(page),
            }
            after = all.last().map_or(0, |entry| entry.cookie);
        }
    }

    /// The fragments by the partition in which they are made.
    fn fragment_homes(&self, directory: FileId, placing: PlacementSpec) -> Vec<(PartitionId, Vec<usize>)> {
        let mut homes: Vec<(PartitionId, Vec<usize>)> = Vec::new();
        for number in 0..FRAGMENTS {
            let by_hash = fragment_partition(self.router().seed, directory, number, self.router().partitions);
            let home = self.inode_home(placing, by_hash);
            match homes.iter_mut().find(|(partition, _)| *partition == home) {
                Some((_, numbers)) => numbers.push(number),
                None => homes.push((home, vec![number])),
            }
        }
        homes
    }

    /// A page of a split directory, from the first fragment that has entries after `after`.
    pub(crate) async fn list_split(&self, fragments: &[FileId], after: u64, max: u32) -> Outcome<Vec<DirEntry>> {
        let first = if after == 0 { 0 } else { fragment_of_cookie(after) };
        for fragment in fragments.iter().skip(first) {
            match self.query(fragment.partition(), Command::list(*fragment, after, max)).await {
                Ok(page) if page.is_empty() => {}
                Ok(page) => return Ok(page),
                // The directory is being removed: it has no entries.
                Err(Refusal::NotFound(_)) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(Vec::new())
    }

    /// Changes attributes of a split directory and of its fragments, from which new inodes inherit.
    pub(crate) async fn change_split(&self, directory: FileId, changes: Changes) -> Outcome<Attributes> {
        if changes.size.is_some() {
            return Err(Refusal::IsDirectory(Object::File(directory)));
        }
        let part = |directory| Part::Change { directory, changes };
        self.apply_to_all_parts(directory, part).await?;
        self.stat_fragments(directory).await
    }

    /// Sets or removes an extended attribute of a split directory and of its fragments, from which
    /// new inodes inherit.
    pub(crate) async fn set_xattr_split(
        &self,
        directory: FileId,
        name: Bytes,
        value: Option<Bytes>,
        kill_set_group_id: bool,
    ) -> Outcome<()> {
        let part = |directory| Part::Xattr { directory, name: name.clone(), value: value.clone(), kill_set_group_id };
        self.apply_to_all_parts(directory, part).await
    }

    /// Applies a part to a split directory and all its fragments, in one intent.
    async fn apply_to_all_parts(&self, directory: FileId, part: impl Fn(FileId) -> Part) -> Outcome<()> {
        self.query_fragments(directory).await?;
        let conflicts = &self.conflict_backoff();
        let attempt = || async {
            let mut plan = TransactionPlan::new(directory.partition());
            plan.add(directory.partition(), part(directory));
            for fragment in self.fragments_of(directory).iter() {
                plan.add(fragment.partition(), part(*fragment));
            }
            self.begin_transaction(directory.partition(), conflicts).execute(plan).await
        };
        self.retry_plan(|| Object::File(directory), attempt).await
    }
}
