//! Several caching kernels on one node: each cache is consistent with the pool.

use crate::{kernel_model::KernelModel, pool::*};
use arena::{Arena, ArenaOptions};
use client::Client;
use node::NodeSettings;
use placement::FileId;
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Waker},
    thread,
};
use store::{Engine, ModelEngine};
use test_support::{Random, until, until_polled};
use vfs::Vfs;
use wire::{Attributes, Changes, OpenFlags, Outcome, Refusal, RenameMode, Timestamp};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Enough names for a directory that splits above eight entries.
const MANY: [&str; 14] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"];
const LENGTHS: [u64; 5] = [0, 10, 4096, 70_000, 200_000];

/// Kernels, and a client without a cache to compare them with.
pub struct CachingKernels {
    pub truth: Vfs,
    pub kernels: Vec<KernelModel>,
    pub random: Random,
    pub names: &'static [&'static str],
    /// Kernels that cache nothing.
    _idle: Vec<KernelModel>,
}

impl CachingKernels {
    /// With every fourth seed so many others subscribe before that the kernels have the last number
    /// whose grants are in the inode, and the first numbers whose grants are not.
    pub async fn new(truth: Vfs, names: &'static [&'static str], seed: u64) -> Self {
        let (mut idle, mut kernels) = (Vec::new(), Vec::new());
        for _ in 0..if seed.is_multiple_of(4) { 15 } else { 0 } {
            idle.push(KernelModel::mount(&truth).await);
        }
        for _ in 0..3 {
            kernels.push(KernelModel::mount(&truth).await);
        }
        Self { truth, kernels, random: Random::new(seed), names, _idle: idle }
    }

    /// The root and its directories.
    async fn directories(&self) -> Vec<FileId> {
        let entries = self.truth.list(FileId::ROOT, 0, 100).await.unwrap();
        let below = entries.iter().filter(|entry| entry.kind == wire::Kind::Directory).map(|entry| entry.file);
        [FileId::ROOT].into_iter().chain(below).collect()
    }

    pub async fn change(&mut self) {
        let directories = self.directories().await;
        let (one, other) = (self.random.pick(&directories), self.random.pick(&directories));
        let (name, target) = (self.random.pick(self.names), self.random.pick(self.names));
        let (offset, length) = (self.random.pick(&LENGTHS), self.random.pick(&LENGTHS));
        let (verb, byte) = (self.random.below(13), self.random.byte());
        let mode = self.random.pick(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
        let who = self.random.below(self.kernels.len());
        let top = self.random.pick(&NAMES[..2]);
        let kernel = &self.kernels[who];
        let done = match verb {
            0 | 1 => kernel.create(one, name).await.map(drop),
            2 => kernel.make_directory(FileId::ROOT, top).await.map(drop),
            3 => kernel.remove(one, name).await,
            4 | 5 => kernel.rename((one, name), (other, target), mode).await,
            verb => match self.truth.lookup(one, name.as_bytes()).await {
                Ok(found) if found.kind == wire::Kind::File => {
                    let data = vec![byte; usize::try_from(length).unwrap()];
                    Self::change_file(kernel, found.file, verb, (offset, data)).await
                }
                _ => Ok(()),
            },
        };
        if let Err(Refusal::Io { object, why }) = done {
            panic!("{object}: {why}");
        }
    }

    async fn change_file(kernel: &KernelModel, file: FileId, verb: u64, (offset, data): (u64, Vec<u8>)) -> Outcome<()> {
        match verb {
            6 => kernel.write(file, offset, data, false).await,
            7 => kernel.write(file, 0, data, true).await,
            8 => kernel.change(file, Changes { size: Some(offset), ..Changes::default() }).await,
            9 | 10 => kernel.open_backing(file, verb == 9).await,
            _ => {
                kernel
                    .change(file, Changes { mode: Some(0o600 + u32::from(data.is_empty())), ..Changes::default() })
                    .await
            }
        }
    }

    /// Writes past the pool to open extent files.
    pub async fn write_to_backings(&mut self) {
        let (offset, byte) = (self.random.pick(&LENGTHS), self.random.byte());
        let closing = self.random.below(3) == 0;
        for kernel in &self.kernels {
            kernel.write_to_backings(offset, &[byte; 5000]);
            if closing {
                kernel.close_backings().await.unwrap();
            }
        }
    }

    /// A change by a session without a cache, as the workflow runner makes.
    pub async fn change_uncached(&mut self) {
        let name = self.random.pick(&NAMES);
        let done = match self.random.below(3) {
            0 => self.truth.unlink(FileId::ROOT, name.as_bytes()).await,
            1 => self.truth.write_file(name.as_bytes(), name.as_bytes()).await.map(drop),
            _ => self.truth.rename(from(FileId::ROOT, name), to(FileId::ROOT, "a"), RenameMode::Replace).await,
        };
        drop(done);
    }

    /// Ends a kernel in the middle, and starts another.
    pub async fn replace_a_kernel(&mut self) {
        let who = self.random.below(self.kernels.len());
        let fresh = KernelModel::mount(&self.truth).await;
        let old = std::mem::replace(&mut self.kernels[who], fresh);
        old.close_backings().await.unwrap();
        old.vfs.end_session().await.unwrap();
    }

    pub async fn check(&self) {
        for directory in self.directories().await {
            for name in self.names {
                let truth = self.truth.lookup(directory, name.as_bytes()).await.ok();
                for kernel in &self.kernels {
                    let found = kernel.find(directory, name).await.unwrap();
                    assert_eq!(found, truth.map(|found| found.file), "`{name}` in {directory}");
                }
                if let Some(found) = truth {
                    self.check_file(found.file).await;
                }
            }
            self.check_file(directory).await;
        }
    }

    async fn check_file(&self, file: FileId) {
        for kernel in &self.kernels {
            let truth = self.truth.stat(file).await.unwrap();
            assert_eq!(visible(kernel.stat(file).await.unwrap()), visible(truth));
            if truth.kind == wire::Kind::File {
                let handle = self.truth.open(file, OpenFlags::READ).await.unwrap();
                let bytes = self.truth.read(handle, 0, 1 << 20).await.unwrap();
                self.truth.close(handle).await.unwrap();
                assert!(kernel.bytes(file).await.unwrap() == bytes, "the bytes of {file}");
            }
        }
    }
}

/// Attributes that must be consistent. The access time is not: its changes are sent, but not waited
/// for. Neither is the version, of which no kernel knows: it changes when a file is demoted.
fn visible(attributes: Attributes) -> Attributes {
    Attributes { accessed: Timestamp::default(), cacheable: false, extent: None, version: 0, ..attributes }
}

#[tokio::test]
async fn what_several_kernels_keep_is_what_is_true() {
    for (seed, nodes) in (0..6).zip(NODES.into_iter().cycle()) {
        run_kernels(Pool::of(nodes).client().await, &NAMES, 250, seed).await;
    }
}

#[tokio::test]
async fn what_several_kernels_keep_is_what_is_true_of_extent_files_too() {
    for (seed, nodes) in (10..14).zip([1, 2, 4, 1]) {
        let engine = || Arc::new(Arena::new(ArenaOptions::with_capacity(256 << 20)).unwrap()) as Arc<dyn Engine>;
        run_kernels(Pool::start(nodes, &settings(), engine).client().await, &NAMES, 250, seed).await;
    }
}

#[tokio::test]
async fn what_several_kernels_keep_is_what_is_true_of_directories_that_split() {
    for (seed, nodes) in (20..24).zip([1, 4, 8, 1]) {
        run_kernels(Pool::that_splits(nodes, 8).client().await, &MANY, 120, seed).await;
    }
}

async fn run_kernels(truth: Vfs, names: &'static [&'static str], steps: u64, seed: u64) {
    let mut kernels = CachingKernels::new(truth, names, seed).await;
    for step in 0..steps {
        match step % 25 {
            7 => kernels.replace_a_kernel().await,
            3 | 12 | 19 => kernels.change_uncached().await,
            5 | 9 | 14 | 21 => kernels.write_to_backings().await,
            _ => kernels.change().await,
        }
        kernels.check().await;
    }
    let asked: u64 = kernels.kernels.iter().map(|kernel| kernel.requests.load(SeqCst)).sum();
    let looks = steps * 3 * names.len() as u64;
    assert!(asked > 0 && asked < looks * 6, "they keep what they may: {asked} of far more looks were asked for");
}

/// Polls a future to completion on this thread.
fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Makes changes on one thread while others look through the kernels. Each look must see at least
/// the state that any earlier reply showed. `change` makes the change of this number. `look`
/// returns the latest change that it sees, given one that must be visible.
fn change_while_reading(
    steps: u64,
    change: impl Fn(u64) + Sync,
    look: impl Fn(&KernelModel, u64) -> u64 + Sync,
    kernels: &[KernelModel],
) {
    let (floor, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for kernel in kernels {
            let (floor, over, look) = (&floor, &over, &look);
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    let least = floor.load(SeqCst);
                    let seen = look(kernel, least);
                    assert!(seen >= least, "{seen} is older than {least}, which somebody has seen");
                    floor.fetch_max(seen, SeqCst);
                }
            });
        }
        for step in 1..=steps {
            change(step);
            floor.fetch_max(step, SeqCst);
        }
        over.store(true, SeqCst);
    });
}

#[test]
fn who_looks_after_an_answer_sees_no_less_of_a_file_that_grows() {
    for nodes in FEW_NODES {
        let truth = now(Pool::of(nodes).client());
        let kernels = [(); 3].map(|()| now(KernelModel::mount(&truth)));
        let file = now(kernels[0].create(FileId::ROOT, "f")).unwrap();
        let change = |_| now(kernels[0].write(file, 0, vec![1], true)).unwrap();
        change_while_reading(1500, change, |kernel, _| now(kernel.stat(file)).unwrap().size, &kernels[1..]);
    }
}

#[test]
fn who_looks_after_an_answer_sees_no_less_of_names_that_come_and_go() {
    for nodes in FEW_NODES {
        let truth = now(Pool::of(nodes).client());
        let kernels = [(); 3].map(|()| now(KernelModel::mount(&truth)));
        let file = now(kernels[0].create(FileId::ROOT, "n0")).unwrap();
        let name = |number: u64| format!("n{number}");
        let change = |step: u64| {
            now(kernels[0].rename((FileId::ROOT, &name(step - 1)), (FileId::ROOT, &name(step)), RenameMode::Replace))
                .unwrap();
        };
        let look = |kernel: &KernelModel, least: u64| {
            // The file now has this name or a later one; the previous name is gone for good.
            if least > 0 {
                assert_eq!(now(kernel.find(FileId::ROOT, &name(least - 1))).unwrap(), None);
            }
            let here = now(kernel.find(FileId::ROOT, &name(least))).unwrap();
            assert!(here.is_none_or(|found| found == file));
            if here.is_some() { least } else { least + 1 }
        };
        change_while_reading(800, change, look, &kernels[1..]);
    }
}

#[test]
fn what_was_written_is_read_through_every_kernel_when_the_write_was_answered() {
    for nodes in FEW_NODES {
        let truth = now(Pool::of(nodes).client());
        let kernels = [(); 3].map(|()| now(KernelModel::mount(&truth)));
        let file = now(kernels[0].create(FileId::ROOT, "f")).unwrap();
        now(kernels[0].write(file, 0, vec![0; 70_000], false)).unwrap();
        let floor = AtomicU64::new(0);
        thread::scope(|scope| {
            for kernel in &kernels[1..] {
                let floor = &floor;
                scope.spawn(move || {
                    while floor.load(SeqCst) < 200 {
                        let least = floor.load(SeqCst);
                        let bytes = now(kernel.bytes(file)).unwrap();
                        assert!(u64::from(bytes[69_999]) >= least, "{} is older than {least}", bytes[69_999]);
                    }
                });
            }
            for step in 1..=200_u8 {
                now(kernels[0].write(file, 60_000, vec![step; 10_000], false)).unwrap();
                floor.store(step.into(), SeqCst);
            }
        });
    }
}

#[test]
fn kernels_that_change_and_keep_the_same_tree_all_at_once_never_wait_for_each_other_for_ever() {
    for nodes in FEW_NODES {
        let truth = now(Pool::of(nodes).client());
        let kernels: Vec<KernelModel> = (0..4).map(|_| now(KernelModel::mount(&truth))).collect();
        let shared = now(truth.make_directory(FileId::ROOT, b"d", 0o755, OWNER)).unwrap().file;
        thread::scope(|scope| {
            for (seed, kernel) in (0..).zip(&kernels) {
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..400 {
                        let (name, target) = (random.pick(&NAMES), random.pick(&NAMES));
                        let done = match random.below(5) {
                            0 => now(kernel.create(shared, name)).map(drop),
                            1 => now(kernel.remove(shared, name)),
                            2 => now(kernel.rename((shared, name), (shared, target), RenameMode::Replace)),
                            _ => now(kernel.find(shared, name)).map(drop),
                        };
                        drop(done);
                    }
                });
            }
        });
        let kernel = now(KernelModel::mount(&truth));
        for name in NAMES {
            let file = now(truth.lookup(shared, name.as_bytes())).ok().map(|found| found.file);
            for kernel in kernels.iter().chain([&kernel]) {
                assert_eq!(now(kernel.find(shared, name)).unwrap(), file);
            }
        }
    }
}

#[tokio::test]
async fn no_kernel_is_notified_of_what_it_did_itself_or_does_not_keep() {
    for nodes in FEW_NODES {
        let truth = Pool::of(nodes).client().await;
        let (one, other) = (KernelModel::mount(&truth).await, KernelModel::mount(&truth).await);
        let file = one.create(FileId::ROOT, "f").await.unwrap();
        one.stat(file).await.unwrap();
        one.write(file, 0, vec![1; 5000], false).await.unwrap();
        one.rename((FileId::ROOT, "f"), (FileId::ROOT, "g"), RenameMode::Replace).await.unwrap();
        assert_eq!((one.invalidations.load(SeqCst), other.invalidations.load(SeqCst)), (0, 0));
        other.stat(file).await.unwrap();
        one.write(file, 0, vec![2; 5000], false).await.unwrap();
        one.write(file, 0, vec![3; 5000], false).await.unwrap();
        assert_eq!(
            other.invalidations.load(SeqCst),
            1,
            "its attributes, once: it did not ask again, and keeps no bytes"
        );
    }
}

#[tokio::test]
async fn a_write_that_takes_set_id_bits_away_invalidates_its_own_kernel_too() {
    let truth = pool();
    let kernel = KernelModel::mount(&truth).await;
    let file = kernel.create(FileId::ROOT, "f").await.unwrap();
    kernel.change(file, Changes { mode: Some(0o4755), ..Changes::default() }).await.unwrap();
    assert_eq!(kernel.stat(file).await.unwrap().mode, 0o4755);
    let handle = kernel.vfs.open(file, OpenFlags::WRITE).await.unwrap();
    kernel.vfs.write_placed(handle, wire::WritePlace::At(0), vec![1].into(), true).await.unwrap();
    assert_eq!(kernel.stat(file).await.unwrap().mode, 0o755);
}

#[tokio::test]
async fn a_removed_inode_that_its_removers_kernel_knows_is_kept_for_it_alone_until_it_is_forgotten() {
    for nodes in FEW_NODES {
        let truth = Pool::of(nodes).client().await;
        let (one, other) = (KernelModel::mount(&truth).await, KernelModel::mount(&truth).await);
        let before = truth.usage();
        for forgets in [true, false] {
            let kernel = if forgets { &one } else { &other };
            let file = kernel.create(FileId::ROOT, "f").await.unwrap();
            kernel.write(file, 0, vec![7; 100_000], false).await.unwrap();
            kernel.remove(FileId::ROOT, "f").await.unwrap();
            let others = if forgets { &other } else { &one };
            assert!(matches!(others.vfs.stat(file).await, Err(Refusal::NotFound(_))), "it is gone for others");
            assert!(matches!(others.vfs.open(file, OpenFlags::READ).await, Err(Refusal::NotFound(_))));
            others.vfs.report_forgotten(file).await.unwrap();
            assert_eq!(kernel.bytes(file).await.unwrap().len(), 100_000, "an open on its way still succeeds");
            assert_eq!(kernel.stat(file).await.unwrap().links, 0);
            assert!(truth.usage().used > before.used, "its space is counted");
            if forgets {
                kernel.vfs.report_forgotten(file).await.unwrap();
            } else {
                kernel.vfs.end_session().await.unwrap();
            }
            assert!(matches!(kernel.vfs.stat(file).await, Err(Refusal::NotFound(_))));
            assert_eq!(
                (truth.usage().used, truth.usage().files, truth.usage().stripes),
                (before.used, before.files, 0)
            );
        }
    }
}

#[tokio::test]
async fn what_is_removed_and_unknown_to_its_removers_kernel_goes_at_once() {
    let truth = pool();
    let kernel = KernelModel::mount(&truth).await;
    truth.write_file(b"f", b"bytes").await.unwrap();
    let before = truth.usage().files;
    kernel.vfs.unlink(FileId::ROOT, b"f").await.unwrap();
    assert_eq!(truth.usage().files, before - 1);
}

/// A session whose kernel is slow to acknowledge invalidations.
struct SlowSession {
    vfs: Vfs,
    entered: Arc<AtomicBool>,
    held: Arc<AtomicBool>,
}

impl SlowSession {
    async fn open(vfs: &Vfs) -> Self {
        let (entered, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let (enter, hold) = (entered.clone(), held.clone());
        let on_invalidate = move |_: &[wire::Recall]| {
            enter.store(true, SeqCst);
            until("the test acknowledges", || !hold.load(SeqCst));
        };
        let vfs = vfs.new_session().await.unwrap();
        vfs.subscribe(Arc::new(on_invalidate)).await.unwrap();
        Self { vfs, entered, held }
    }

    async fn wait_invalidated(&self) {
        until_polled("the invalidation has come", || self.entered.load(SeqCst)).await;
    }

    fn acknowledge(&self) {
        self.held.store(false, SeqCst);
    }
}

/// True if the future is still pending.
fn waits<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test]
async fn a_query_that_sees_a_change_that_others_have_not_acked_is_answered_when_they_have() {
    for nodes in FEW_NODES {
        let truth = Pool::of(nodes).client().await;
        truth.write_file(b"f", b"old").await.unwrap();
        let slow = SlowSession::open(&truth).await;
        let file = slow.vfs.lookup(FileId::ROOT, b"f").await.unwrap().file;
        let reader = truth.new_session().await.unwrap();
        let handle = reader.open(file, OpenFlags::READ).await.unwrap();
        let change = tokio::spawn(truth.change(file, Changes { size: Some(1), ..Changes::default() }));
        slow.wait_invalidated().await;
        let (mut stat, mut find) = (Box::pin(reader.stat(file)), Box::pin(reader.lookup(FileId::ROOT, b"f")));
        assert!(waits(&mut stat) && waits(&mut find), "else its caller could see the old size there");
        assert_eq!(reader.read(handle, 0, 10).await.unwrap().as_ref(), b"o", "a read waits for nobody");
        reader.stat(FileId::ROOT).await.unwrap();
        slow.acknowledge();
        assert_eq!((stat.await.unwrap().size, find.await.unwrap().size), (1, 1));
        change.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn what_a_kernel_writes_of_its_own_accord_waits_for_nobody() {
    let truth = pool();
    truth.write_file(b"f", b"old").await.unwrap();
    let slow = SlowSession::open(&truth).await;
    let file = slow.vfs.lookup(FileId::ROOT, b"f").await.unwrap().file;
    let handle = truth.open(file, OpenFlags::WRITE).await.unwrap();
    assert_eq!(truth.write_back(handle, 0, b"new"[..].into()).await.unwrap(), 3);
    slow.wait_invalidated().await;
    slow.acknowledge();
}

#[tokio::test]
async fn nobody_waits_for_a_session_that_has_ended_before_its_ack() {
    for nodes in FEW_NODES {
        let truth = Pool::of(nodes).client().await;
        let slow = SlowSession::open(&truth).await;
        slow.vfs.lookup(FileId::ROOT, b"f").await.unwrap_err();
        let change = tokio::spawn(truth.write_file(b"f", b"bytes"));
        slow.wait_invalidated().await;
        assert!(!change.is_finished(), "it is not answered before the ack");
        slow.vfs.end_session().await.unwrap();
        change.await.unwrap().unwrap();
        slow.acknowledge();
    }
}

#[tokio::test]
async fn the_number_of_subscribers_is_bounded_and_their_numbers_are_reused() {
    for nodes in FEW_NODES {
        let truth = Pool::of(nodes).client().await;
        for _ in 0..2 {
            let mut kernels = Vec::new();
            for _ in 0..128 {
                kernels.push(KernelModel::mount(&truth).await);
            }
            let one_more = truth.new_session().await.unwrap();
            let refused = one_more.subscribe(Arc::new(|_: &[wire::Recall]| ())).await;
            assert!(matches!(refused, Err(Refusal::TooManyOpen { limit: 128, .. })), "{refused:?}");
            assert!(kernels[0].vfs.subscribe(Arc::new(|_: &[wire::Recall]| ())).await.is_err(), "once for each");
            for kernel in kernels {
                kernel.vfs.end_session().await.unwrap();
            }
        }
    }
}

#[test]
fn a_kernel_that_alone_writes_an_extent_file_asks_for_its_attributes_once() {
    let engine = Arc::new(Arena::new(ArenaOptions::with_capacity(64 << 20)).unwrap());
    let settings = NodeSettings { partitions: 64, stripe_bytes: STRIPE, owner: OWNER, ..NodeSettings::default() };
    let truth = Vfs::new(Client::embedded(node::embedded(settings, engine)));
    let kernel = now(KernelModel::mount(&truth));
    let file = now(kernel.create(FileId::ROOT, "f")).unwrap();
    assert!(now(truth.stat(file)).unwrap().extent.is_some());
    now(kernel.stat(file)).unwrap();
    assert_eq!(kernel.requests.load(SeqCst), 1, "the attributes that it got with the new file last");
}

#[test]
fn a_kernel_keeps_the_names_of_a_directory_that_splits() {
    let settings = NodeSettings { split_entries: 8, stripe_bytes: STRIPE, owner: OWNER, ..NodeSettings::default() };
    let node = node::embedded(settings, Arc::new(ModelEngine::new(64 << 20, STRIPE)));
    let truth = Vfs::new(Client::embedded(node));
    let (kernel, other) = (now(KernelModel::mount(&truth)), now(KernelModel::mount(&truth)));
    let made: Vec<FileId> = MANY.iter().map(|name| now(kernel.create(FileId::ROOT, name)).unwrap()).collect();
    for (name, file) in MANY.iter().zip(&made) {
        assert_eq!(now(kernel.find(FileId::ROOT, name)).unwrap(), Some(*file));
    }
    assert_eq!(kernel.requests.load(SeqCst), MANY.len() as u64, "what it made it knows");
    for name in MANY {
        now(other.remove(FileId::ROOT, name)).unwrap();
        assert_eq!(now(kernel.find(FileId::ROOT, name)).unwrap(), None, "and is invalidated when it is removed");
    }
}
