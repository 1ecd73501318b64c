//! Compares the whole stack with a reference file system, simple enough to be right by reading it,
//! by thousands of random operations. Over a perfect connection and one that loses, duplicates and
//! delays messages; over the model engine and the arena.

use crate::{Vfs, pool_test::*};
use bytes::Bytes;
use client::{
    RetryPolicy,
    testing::{FaultRates, FaultyConnection},
};
use placement::FileId;
use std::{collections::BTreeMap, time::Duration};
use wire::{Changes, Kind, OpenFlags, PLACEMENT, Refusal, RenameMode, STRIPE_SIZE, XattrMode};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Offsets and lengths around the limits at which a file's storage changes.
const LENGTHS: [usize; 10] = [0, 1, 100, 4095, 4096, 4097, 9000, 65_535, 65_537, 140_000];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Why {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    Invalid,
}

fn why(refusal: &Refusal) -> Why {
    match refusal {
        Refusal::NotFound(_) => Why::NotFound,
        Refusal::Exists(_) => Why::Exists,
        Refusal::NotDirectory(_) => Why::NotDirectory,
        Refusal::IsDirectory(_) => Why::IsDirectory,
        Refusal::NotEmpty(_) => Why::NotEmpty,
        Refusal::Invalid { .. } => Why::Invalid,
        other => panic!("unexpected: {other}"),
    }
}

#[derive(Debug)]
enum Node {
    File(Vec<u8>),
    Directory { entries: BTreeMap<&'static str, usize>, parent: usize },
}

/// Reference file system: nodes by number; 0 is the root. Removed nodes stay in the list,
/// unreachable.
#[derive(Debug)]
struct Plain(Vec<Node>);

impl Plain {
    fn entries(&mut self, directory: usize) -> &mut BTreeMap<&'static str, usize> {
        match &mut self.0[directory] {
            Node::Directory { entries, .. } => entries,
            Node::File(_) => panic!("only directories are asked"),
        }
    }

    fn is_directory(&self, node: usize) -> bool {
        matches!(self.0[node], Node::Directory { .. })
    }

    fn find(&mut self, directory: usize, name: &str) -> Result<usize, Why> {
        self.entries(directory).get(name).copied().ok_or(Why::NotFound)
    }

    fn make(&mut self, parent: usize, name: &'static str, node: Node) -> Result<usize, Why> {
        if self.entries(parent).contains_key(name) {
            return Err(Why::Exists);
        }
        self.0.push(node);
        let made = self.0.len() - 1;
        self.entries(parent).insert(name, made);
        Ok(made)
    }

    fn remove(&mut self, parent: usize, name: &str, directory: bool) -> Result<(), Why> {
        let node = self.find(parent, name)?;
        match (self.is_directory(node), directory) {
            (true, false) => return Err(Why::IsDirectory),
            (false, true) => return Err(Why::NotDirectory),
            (true, true) if !self.entries(node).is_empty() => return Err(Why::NotEmpty),
            _ => {}
        }
        self.entries(parent).remove(name);
        Ok(())
    }

    /// True if `node` is `above` or a descendant of it.
    fn is_in(&self, mut node: usize, above: usize) -> bool {
        while node != above {
            match self.0[node] {
                Node::Directory { parent, .. } if node != 0 => node = parent,
                _ => return false,
            }
        }
        true
    }

    fn rename(&mut self, from: (usize, &'static str), to: (usize, &'static str), mode: RenameMode) -> Result<(), Why> {
        let moved = self.find(from.0, from.1)?;
        let taken = self.find(to.0, to.1).ok();
        if mode == RenameMode::Exchange && taken.is_none() {
            return Err(Why::NotFound);
        }
        if from == to {
            return if mode == RenameMode::NoReplace { Err(Why::Exists) } else { Ok(()) };
        }
        if self.is_directory(moved) && self.is_in(to.0, moved) {
            return Err(Why::Invalid);
        }
        match (mode, taken) {
            (RenameMode::NoReplace, Some(_)) => return Err(Why::Exists),
            (RenameMode::Exchange, Some(other)) => {
                if self.is_directory(other) && self.is_in(from.0, other) {
                    return Err(Why::Invalid);
                }
                self.put(from.0, from.1, other);
                self.put(to.0, to.1, moved);
                return Ok(());
            }
            (_, Some(other)) => match (self.is_directory(moved), self.is_directory(other)) {
                (true, false) => return Err(Why::NotDirectory),
                (false, true) => return Err(Why::IsDirectory),
                (true, true) if !self.entries(other).is_empty() => return Err(Why::NotEmpty),
                _ => {}
            },
            _ => {}
        }
        self.entries(from.0).remove(from.1);
        self.put(to.0, to.1, moved);
        Ok(())
    }

    fn put(&mut self, directory: usize, name: &'static str, node: usize) {
        self.entries(directory).insert(name, node);
        if let Node::Directory { parent, .. } = &mut self.0[node] {
            *parent = directory;
        }
    }

    fn live(&mut self) -> Vec<usize> {
        let (mut live, mut next) = (vec![0], 0);
        while next < live.len() {
            let children: Vec<usize> = self.entries(live[next]).values().copied().collect();
            live.extend(children.into_iter().filter(|child| self.is_directory(*child)));
            next += 1;
        }
        live
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// The two file systems that are compared.
struct Pair {
    plain: Plain,
    vfs: Vfs,
    /// Another client of the pool; each step uses a random one of the two.
    other: Vfs,
    /// Ids of the reference file system's numbers.
    ids: BTreeMap<usize, FileId>,
    random: Random,
}

impl Pair {
    fn new(vfs: Vfs, other: Vfs, seed: u64) -> Self {
        let plain = Plain(vec![Node::Directory { entries: BTreeMap::new(), parent: 0 }]);
        Self { plain, vfs, other, ids: [(0, FileId::ROOT)].into(), random: Random(seed) }
    }

    fn place(&mut self) -> (usize, FileId, &'static str) {
        let directories = self.plain.live();
        let directory = self.random.pick(&directories);
        (directory, self.ids[&directory], self.random.pick(&NAMES))
    }

    async fn step(&mut self) {
        if self.random.below(2) == 0 {
            std::mem::swap(&mut self.vfs, &mut self.other);
        }
        match self.random.below(12) {
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

    fn agree<A, B>(plain: &Result<A, Why>, real: &Result<B, Refusal>) {
        assert_eq!(plain.as_ref().err().copied(), real.as_ref().err().map(why), "{:?}", real.as_ref().err());
    }

    async fn create(&mut self) {
        let (directory, id, name) = self.place();
        let plain = self.plain.make(directory, name, Node::File(Vec::new()));
        let flags = OpenFlags { exclusive: true, use_extent: self.random.below(2) == 0, ..OpenFlags::READ_WRITE };
        let real = self.vfs.create(id, name.as_bytes(), 0o644, OWNER, flags).await;
        Self::agree(&plain, &real);
        if let (Ok(number), Ok((attributes, handle))) = (plain, real) {
            self.ids.insert(number, attributes.file);
            self.vfs.close(handle).await.unwrap();
        }
    }

    async fn make_directory(&mut self) {
        let (directory, id, name) = self.place();
        let node = Node::Directory { entries: BTreeMap::new(), parent: directory };
        let plain = self.plain.make(directory, name, node);
        let real = self.vfs.make_directory(id, name.as_bytes(), 0o755, OWNER).await;
        Self::agree(&plain, &real);
        if let (Ok(number), Ok(attributes)) = (plain, real) {
            self.ids.insert(number, attributes.file);
        }
    }

    async fn remove(&mut self) {
        let (directory, id, name) = self.place();
        let directories = self.random.below(2) == 0;
        let plain = self.plain.remove(directory, name, directories);
        let real = if directories {
            self.vfs.remove_directory(id, name.as_bytes()).await
        } else {
            self.vfs.unlink(id, name.as_bytes()).await
        };
        Self::agree(&plain, &real);
    }

    async fn rename(&mut self) {
        let ((source, from_id, from_name), (target, to_id, to_name)) = (self.place(), self.place());
        let mode = self.random.pick(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
        let plain = self.plain.rename((source, from_name), (target, to_name), mode);
        let real = self.vfs.rename(from(from_id, from_name), to(to_id, to_name), mode).await;
        Self::agree(&plain, &real);
    }

    /// A random existing file, if the random name is one.
    fn file(&mut self) -> Option<(usize, FileId)> {
        let (directory, _, name) = self.place();
        let found = self.plain.find(directory, name).ok().filter(|found| !self.plain.is_directory(*found))?;
        Some((found, self.ids[&found]))
    }

    fn bytes(&mut self, file: usize) -> &mut Vec<u8> {
        match &mut self.plain.0[file] {
            Node::File(bytes) => bytes,
            Node::Directory { .. } => panic!("only files are asked"),
        }
    }

    async fn write(&mut self) {
        let Some((file, id)) = self.file() else { return };
        let append = self.random.below(2) == 0;
        let (start, length) = (self.random.pick(&LENGTHS), self.random.pick(&LENGTHS));
        let data: Vec<u8> = (0..length).map(|_| self.random.byte()).collect();
        let flags = if append { OpenFlags::APPEND } else { OpenFlags::WRITE };
        let flags = OpenFlags { use_extent: self.random.below(3) == 0, truncate: self.random.below(8) == 0, ..flags };
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
        let size = self.random.pick(&LENGTHS);
        let changes = Changes { size: Some(size as u64), ..Changes::default() };
        let attributes = self.vfs.change(id, changes).await.unwrap();
        assert_eq!(attributes.size, size as u64);
        self.bytes(file).resize(size, 0);
    }

    async fn read(&mut self) {
        let Some((file, id)) = self.file() else { return };
        let handle = self.vfs.open(id, OpenFlags::READ).await.unwrap();
        let (start, length) = (self.random.pick(&LENGTHS), self.random.pick(&LENGTHS));
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
        let entries = self.plain.entries(directory).clone();
        let told =
            entries.iter().map(|(name, node)| ((*name).to_owned(), self.plain.is_directory(*node), self.ids[node]));
        assert_eq!(real, told.collect::<Vec<_>>());
        let subdirectories = real.iter().filter(|(_, directory, _)| *directory).count();
        assert_eq!(self.vfs.stat(id).await.unwrap().links as usize, 2 + subdirectories);
    }
}

/// Runs the comparison. `judge` is a client of the pool over a perfect connection.
async fn compare(judge: Vfs, [vfs, other]: [Vfs; 2], seed: u64, steps: usize) {
    let mut pair = Pair::new(vfs, other, seed);
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
async fn two_clients_see_one_file_system_of_inline_striped_and_whole_files() {
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
