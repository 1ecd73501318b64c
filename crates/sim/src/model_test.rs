//! Compares the whole stack with a reference file system, simple enough to be right by reading it,
//! by thousands of random operations. Over a perfect connection and one that loses, duplicates and
//! delays messages; over the model engine and the arena.

use crate::{pool::*, reference_fs::*};
use bytes::Bytes;
use client::{
    RetryPolicy,
    testing::{FaultRates, FaultyConnection},
};
use placement::FileId;
use std::{collections::BTreeMap, time::Duration};
use test_support::Random;
use vfs::Vfs;
use wire::{Changes, Kind, OpenFlags, PLACEMENT, Refusal, RenameMode, STRIPE_SIZE, XattrMode};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Offsets and lengths around the limits at which a file's storage changes.
const LENGTHS: [usize; 10] = [0, 1, 100, 4095, 4096, 4097, 9000, 65_535, 65_537, 140_000];

/// The two file systems that are compared.
struct Comparison {
    reference: ReferenceFs,
    vfs: Vfs,
    /// Another client of the pool; each step uses a random one of the two.
    other: Vfs,
    /// Ids of the reference file system's numbers.
    ids: BTreeMap<usize, FileId>,
    rng: Random,
}

impl Comparison {
    fn new(vfs: Vfs, other: Vfs, seed: u64) -> Self {
        let reference = ReferenceFs::default();
        Self { reference, vfs, other, ids: [(0, FileId::ROOT)].into(), rng: Random::new(seed) }
    }

    fn place(&mut self) -> (usize, FileId, &'static str) {
        let directories = self.reference.directories();
        let directory = self.rng.pick(&directories);
        (directory, self.ids[&directory], self.rng.pick(&NAMES))
    }

    async fn step(&mut self) {
        if self.rng.below(2) == 0 {
            std::mem::swap(&mut self.vfs, &mut self.other);
        }
        match self.rng.below(12) {
            0 | 1 => self.create().await,
            2 => self.make_directory().await,
            3 => self.remove().await,
            4 | 5 => self.rename().await,
            6 | 7 => self.write().await,
            8 => self.truncate().await,
            9 | 10 => self.read().await,
            _ => self.list().await,
        }
    }

    fn agree<A, B>(reference: &Result<A, FsError>, real: &Result<B, Refusal>) {
        assert_eq!(reference.as_ref().err().copied(), real.as_ref().err().map(fs_error), "{:?}", real.as_ref().err());
    }

    async fn create(&mut self) {
        let (directory, id, name) = self.place();
        let reference = self.reference.make(directory, name, ReferenceInode::File(Vec::new()));
        let flags = OpenFlags { exclusive: true, use_extent: self.rng.below(2) == 0, ..OpenFlags::READ_WRITE };
        let real = self.vfs.create(id, name.as_bytes(), 0o644, OWNER, flags).await;
        Self::agree(&reference, &real);
        if let (Ok(number), Ok((attributes, handle))) = (reference, real) {
            self.ids.insert(number, attributes.file);
            self.vfs.close(handle).await.unwrap();
        }
    }

    async fn make_directory(&mut self) {
        let (directory, id, name) = self.place();
        let node = ReferenceInode::Directory { entries: BTreeMap::new(), parent: directory };
        let reference = self.reference.make(directory, name, node);
        let real = self.vfs.make_directory(id, name.as_bytes(), 0o755, OWNER).await;
        Self::agree(&reference, &real);
        if let (Ok(number), Ok(attributes)) = (reference, real) {
            self.ids.insert(number, attributes.file);
        }
    }

    async fn remove(&mut self) {
        let (directory, id, name) = self.place();
        let directories = self.rng.below(2) == 0;
        let reference = self.reference.remove(directory, name, directories);
        let real = if directories {
            self.vfs.remove_directory(id, name.as_bytes()).await
        } else {
            self.vfs.unlink(id, name.as_bytes()).await
        };
        Self::agree(&reference, &real);
    }

    async fn rename(&mut self) {
        let ((source, from_id, from_name), (target, to_id, to_name)) = (self.place(), self.place());
        let mode = self.rng.pick(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
        let reference = self.reference.rename((source, from_name), (target, to_name), mode);
        let real = self.vfs.rename(from(from_id, from_name), to(to_id, to_name), mode).await;
        Self::agree(&reference, &real);
    }

    /// A random existing file, if the random name is one.
    fn file(&mut self) -> Option<(usize, FileId)> {
        let (directory, _, name) = self.place();
        let found = self.reference.find(directory, name).ok().filter(|found| !self.reference.is_directory(*found))?;
        Some((found, self.ids[&found]))
    }

    fn bytes(&mut self, file: usize) -> &mut Vec<u8> {
        self.reference.bytes(file)
    }

    async fn write(&mut self) {
        let Some((file, id)) = self.file() else { return };
        let append = self.rng.below(2) == 0;
        let (start, length) = (self.rng.pick(&LENGTHS), self.rng.pick(&LENGTHS));
        let data: Vec<u8> = (0..length).map(|_| self.rng.byte()).collect();
        let flags = if append { OpenFlags::APPEND } else { OpenFlags::WRITE };
        let flags = OpenFlags { use_extent: self.rng.below(3) == 0, truncate: self.rng.below(8) == 0, ..flags };
        let handle = self.vfs.open(id, flags).await.unwrap();
        let written = self.vfs.write(handle, start as u64, Bytes::from(data.clone())).await.unwrap();
        assert_eq!(written as usize, length);
        self.vfs.close(handle).await.unwrap();
        let bytes = self.bytes(file);
        if flags.truncate {
            bytes.clear();
        }
        let start = if append { bytes.len() } else { start };
        if length > 0 {
            bytes.resize(bytes.len().max(start + length), 0);
            bytes[start..start + length].copy_from_slice(&data);
        }
    }

    async fn truncate(&mut self) {
        let Some((file, id)) = self.file() else { return };
        let size = self.rng.pick(&LENGTHS);
        let changes = Changes { size: Some(size as u64), ..Changes::default() };
        let attributes = self.vfs.change(id, changes).await.unwrap();
        assert_eq!(attributes.size, size as u64);
        self.bytes(file).resize(size, 0);
    }

    async fn read(&mut self) {
        let Some((file, id)) = self.file() else { return };
        let handle = self.vfs.open(id, OpenFlags::READ).await.unwrap();
        let (start, length) = (self.rng.pick(&LENGTHS), self.rng.pick(&LENGTHS));
        let real = self.vfs.read(handle, start as u64, u32::try_from(length).unwrap()).await.unwrap();
        let size = self.vfs.stat(id).await.unwrap().size;
        self.vfs.close(handle).await.unwrap();
        let bytes = self.bytes(file);
        let expected = &bytes[start.min(bytes.len())..(start + length).min(bytes.len())];
        assert!(real == expected, "{} bytes at {start}: they differ", expected.len());
        assert_eq!(size, bytes.len() as u64);
    }

    async fn list(&mut self) {
        let (directory, id, _) = self.place();
        let real = all(&self.vfs, id).await;
        let mut real: Vec<_> = real.iter().map(|e| (e.name.to_string(), e.kind == Kind::Directory, e.file)).collect();
        real.sort();
        let entries = self.reference.entries(directory).clone();
        let listed =
            entries.iter().map(|(name, node)| ((*name).to_owned(), self.reference.is_directory(*node), self.ids[node]));
        assert_eq!(real, listed.collect::<Vec<_>>());
        let subdirectories = real.iter().filter(|(_, directory, _)| *directory).count();
        assert_eq!(self.vfs.stat(id).await.unwrap().links as usize, 2 + subdirectories);
    }
}

/// Runs the comparison. `judge` is a client of the pool over a perfect connection.
async fn compare(judge: Vfs, [vfs, other]: [Vfs; 2], seed: u64, steps: usize) {
    let mut pair = Comparison::new(vfs, other, seed);
    let before = judge.usage();
    for _ in 0..steps {
        pair.step().await;
    }
    for name in NAMES {
        match pair.vfs.remove_tree(name.as_bytes()).await {
            Ok(()) | Err(Refusal::NotFound(_)) => {}
            Err(refusal) => panic!("{refusal}"),
        }
    }
    let after = judge.usage();
    assert_eq!((after.used, after.files), (before.used, before.files), "nothing is left when all is removed");
}

#[tokio::test]
async fn the_pool_does_what_a_plain_file_system_does() {
    for (seed, nodes) in (0..12).zip(NODES.into_iter().cycle()) {
        let pool = Pool::of(nodes).client().await;
        compare(pool.clone(), [pool.clone(), pool], seed, 1500).await;
    }
}

#[tokio::test]
async fn two_clients_see_one_file_system_of_inline_striped_and_extent_files() {
    for (seed, nodes) in (100..106).zip(FEW_NODES.into_iter().cycle()) {
        let pool = Pool::of_arenas(nodes, 256 << 20);
        let (one, other) = (pool.client().await, pool.client().await);
        // In a pool of several nodes this makes some files extent files, and others not.
        one.set_xattr(FileId::ROOT, PLACEMENT, "single".into(), XattrMode::Set, false).await.unwrap();
        compare(one.clone(), [one, other], seed, 1500).await;
    }
}

#[tokio::test]
async fn the_pool_does_the_same_wherever_bytes_are_to_lie() {
    let policies = ["striped", "single", "here", "at(4)", "balanced"];
    for (seed, policy) in (400..410).zip(policies.into_iter().cycle()) {
        let pool = if seed < 405 { Pool::of(4) } else { Pool::of_arenas(4, 256 << 20) };
        let (one, other) = (pool.client().await, pool.client().await);
        let set = |name, value: &'static str| one.set_xattr(FileId::ROOT, name, value.into(), XattrMode::Set, false);
        set(PLACEMENT, policy).await.unwrap();
        if seed % 2 == 0 {
            set(STRIPE_SIZE, "128KiB").await.unwrap();
        }
        compare(one.clone(), [one.clone(), other], seed, 1000).await;
    }
}

#[tokio::test]
async fn the_pool_does_the_same_when_every_directory_is_split() {
    for (seed, nodes) in (300..306).zip([1, 1, 4, 4, 2, 8]) {
        let pool = Pool::that_splits(nodes, 1);
        let vfs = pool.client().await;
        // The root stays split: its space is no leak.
        split_root(&vfs).await;
        let lossy = |node| FaultyConnection::new(node, FaultRates::MANY, seed);
        let retry_policy = RetryPolicy { tries: 60, pause_first: Duration::ZERO, pause_max: Duration::ZERO };
        let other = if seed % 2 == 0 { vfs.clone() } else { pool.over(lossy, retry_policy).await };
        compare(vfs.clone(), [vfs, other], seed, 800).await;
    }
}

async fn split_root(vfs: &Vfs) {
    for name in ["g", "h"] {
        vfs.make_symlink(FileId::ROOT, name.as_bytes(), b"t", OWNER).await.unwrap();
    }
    for name in ["g", "h"] {
        vfs.unlink(FileId::ROOT, name.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn lost_doubled_and_late_messages_change_nothing() {
    let retry_policy = RetryPolicy { tries: 60, pause_first: Duration::ZERO, pause_max: Duration::ZERO };
    for seed in 200..208 {
        let nodes = if seed < 204 { 1 } else { 4 };
        let pool = if seed % 2 == 0 { Pool::of(nodes) } else { Pool::of_arenas(nodes, 256 << 20) };
        let lossy = |node| FaultyConnection::new(node, FaultRates::MANY, seed);
        let clients = [pool.over(lossy, retry_policy).await, pool.over(lossy, retry_policy).await];
        compare(pool.client().await, clients, seed, 800).await;
    }
}
