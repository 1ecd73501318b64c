//! Replicas that follow the log of a pool's nodes stay equal to the partitions that serve, whatever
//! clients, kernels and programs do.

use crate::{
    clients::*,
    grants_test::CachingKernels,
    names_model::NameTree,
    pool::*,
    replicas::{EntryCounts, Replicas},
};
use arena::{Arena, ArenaOptions};
use node::NodeSettings;
use placement::FileId;
use std::sync::Arc;
use store::{Engine, ModelEngine};
use test_support::Random;
use vfs::Vfs;
use wire::{Lock, LockKind, LockOwner, LockStyle, OpenFlags};

/// Numbers of seeds of the two tests.
const INTERLEAVED: u64 = 60;
const WHOLE_PATH: u64 = 1000;
pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Clients whose messages interleave, with transactions; one of them dies, and its session is
/// recovered.
fn try_interleaved(seed: u64, split_entries: u32) -> u64 {
    let (settings, replicas) = Replicas::logged(split_entries);
    let pool = Pool::start(2, &settings, || Arc::new(ModelEngine::new(64 << 20, STRIPE)));
    let healthy = block_on(pool.client());
    let (mut tree, mut rng) = (NameTree::new(), Random::new(seed));
    block_on(create_initial_tree(&healthy, &mut tree));
    let mut clients = interleaved_clients(&pool, &tree, 6, &mut rng);
    let (mut history, dead) = interleave(&mut clients, &mut rng, true);
    read_back(&healthy, &tree, &mut history);
    for session in dead {
        block_on(healthy.client().recover(session)).unwrap();
    }
    assert!(block_on(healthy.lookup(FileId::ROOT, b"nothing")).is_err());
    replicas.entries().all
}

#[test]
fn replicas_follow_transactions_and_the_recovery_of_clients_that_died() {
    let entries: u64 = (0..INTERLEAVED).map(|seed| try_interleaved(seed, if seed % 3 == 2 { 2 } else { 4096 })).sum();
    assert!(entries > INTERLEAVED * 50, "{entries}");
}

/// Locks or unlocks a part of a random file, in the name of one of the kernels.
pub async fn change_a_lock(kernels: &mut CachingKernels) {
    let (name, who) = (kernels.random.pick(&NAMES), kernels.random.below(kernels.kernels.len()));
    let kind = kernels.random.pick(&[LockKind::Read, LockKind::Write, LockKind::Unlock]);
    let start = u64::from(kernels.random.byte());
    let vfs = &kernels.kernels[who].vfs;
    let Ok(found) = vfs.lookup(FileId::ROOT, name.as_bytes()).await else { return };
    let style = LockStyle::Range { start, end: start + 50 };
    let lock = Lock { owner: LockOwner::Session(1), kind, style, pid: 1 };
    // Another kernel may hold it, and directories have none.
    let _ = vfs.client().lock(found.file, lock, false).await;
}

/// Opens a file that is about to be removed, and closes it after that.
async fn close_after_removal(truth: &Vfs, name: &str) {
    let Ok(found) = truth.lookup(FileId::ROOT, name.as_bytes()).await else { return };
    let Ok(handle) = truth.open(found.file, OpenFlags::READ).await else { return };
    let _ = truth.unlink(FileId::ROOT, name.as_bytes()).await;
    truth.close(handle).await.unwrap();
}

/// Kernels that cache, extent files that they write past the pool, locks, and sessions that end.
async fn try_whole_path(seed: u64) -> EntryCounts {
    let (settings, replicas) = Replicas::logged(if seed.is_multiple_of(4) { 3 } else { 4096 });
    let settings = NodeSettings { closed_extents_max: 1, ..settings };
    let options = ArenaOptions { stripe_bytes: STRIPE, ..ArenaOptions::with_capacity(64 << 20) };
    let nodes = 1 + u32::try_from(seed % 2).unwrap();
    let pool = Pool::start(nodes, &settings, || Arc::new(Arena::new(options).unwrap()) as Arc<dyn Engine>);
    let mut kernels = CachingKernels::new(pool.client().await, &NAMES, seed).await;
    for _ in 0..40 {
        match kernels.random.below(12) {
            0 => kernels.replace_a_kernel().await,
            1 | 2 => kernels.change_uncached().await,
            3 | 4 => kernels.write_to_backings().await,
            5 | 6 => change_a_lock(&mut kernels).await,
            7 => close_after_removal(&kernels.truth, kernels.names[0]).await,
            _ => kernels.change().await,
        }
    }
    replicas.entries()
}

#[tokio::test]
async fn replicas_follow_kernels_extent_files_locks_and_the_ends_of_sessions() {
    let mut entries = EntryCounts::default();
    for seed in 0..WHOLE_PATH {
        entries.add(try_whole_path(seed).await);
    }
    let EntryCounts { all, unlinked, extents, locks, ends } = entries;
    assert!(all > WHOLE_PATH * 20, "{entries:?}");
    // Kernels that keep many unlinked files are in `unlinked_test`, with replicas too.
    assert!(unlinked > 50 && extents > 500 && locks > 1000 && ends > 1000, "{entries:?}");
}
