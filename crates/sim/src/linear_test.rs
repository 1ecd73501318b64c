//! Concurrent clients with messages interleaved by a seed; some clients are dropped in the middle.
//! Their results must be linearizable: there is *some* order in which a plain file system gives
//! these results, and in which no operation precedes another that had ended before it began.

use crate::{clients::*, linearizability::*, names_model::*, pool::*};
use client::testing::SteppedConnection;
use node::NodeSettings;
use placement::FileId;
use std::{sync::Arc, time::Duration};
use store::ModelEngine;
use test_support::Random;
use wire::RenameMode;

/// Parameters of the runs of a test.
#[derive(Clone, Copy)]
struct Trial {
    clients: usize,
    operations: usize,
    /// Directories with more entries are split.
    split: u32,
    /// Drops one client at a random point.
    dies: bool,
    random_operation: fn(&mut Random, &NameTree) -> NameOperation,
}

/// A pool of four nodes for every fourth seed, otherwise of one.
fn pool_of(seed: u64, split: u32) -> Pool {
    let nodes = if seed.is_multiple_of(4) { 4 } else { 1 };
    let settings = NodeSettings { partitions: 16, space_wait: Duration::ZERO, split_entries: split, ..settings() };
    Pool::start(nodes, &settings, || Arc::new(ModelEngine::new(64 << 20, STRIPE)))
}

/// Operations on one name in two directories, which is renamed to and fro and looked up.
fn random_rename(rng: &mut Random, tree: &NameTree) -> NameOperation {
    let (one, other) = ((tree.directories[1], "x"), (tree.directories[3], "x"));
    let (one, other) = if rng.below(2) == 0 { (one, other) } else { (other, one) };
    match rng.below(8) {
        0 => NameOperation::Rename(one, other, RenameMode::Exchange),
        1 | 2 => NameOperation::Rename(one, other, RenameMode::Replace),
        3 => NameOperation::Link(tree.files[0], one),
        _ => NameOperation::Lookup(one),
    }
}

/// Operations on one directory that is removed and replaced while entries are created in it.
fn random_removal(rng: &mut Random, tree: &NameTree) -> NameOperation {
    let (above, inner, beside) = (tree.directories[1], tree.directories[2], tree.directories[3]);
    let inside = (inner, rng.pick(&["x", "y"]));
    match rng.below(8) {
        0 | 1 => NameOperation::RemoveDirectory((above, "d")),
        2 => NameOperation::Rename((beside, "d"), (above, "d"), RenameMode::Replace),
        3 | 4 => NameOperation::Rename((beside, "x"), inside, RenameMode::Replace),
        5 => NameOperation::Link(tree.files[1], inside),
        6 => NameOperation::Rename(inside, (beside, "x"), RenameMode::Replace),
        _ => NameOperation::MakeDirectory(inside),
    }
}

fn try_seed(seed: u64, trial: Trial) {
    let pool = pool_of(seed, trial.split);
    let healthy = block_on(pool.over(|node| node, RETRY_WITHOUT_PAUSES));
    let before = healthy.usage();
    let (mut tree, mut rng) = (NameTree::new(), Random::new(seed));
    block_on(create_initial_tree(&healthy, &mut tree));
    let client = |rng: &mut Random| InterleavedClient {
        vfs: block_on(pool.over(SteppedConnection::new, RETRY_WITHOUT_PAUSES)),
        remaining: (0..trial.operations).map(|_| (trial.random_operation)(rng, &tree)).collect(),
        in_flight: None,
    };
    let mut clients: Vec<InterleavedClient> = (0..trial.clients).map(|_| client(&mut rng)).collect();
    let (mut history, dead) = interleave(&mut clients, &mut rng, trial.dies);
    read_back(&healthy, &tree, &mut history);
    assert!(is_linearizable(&tree, &history), "seed {seed}: in no order it is so:\n{}", format_history(&history));
    for session in dead {
        block_on(healthy.client().recover(session)).unwrap();
    }
    for (top, _) in block_on(sorted_entries(&healthy, FileId::ROOT)).unwrap() {
        block_on(healthy.remove_tree(top.as_bytes())).unwrap();
    }
    let (after, fragments) = (healthy.usage(), block_on(healthy.stat(FileId::ROOT)).unwrap());
    assert_eq!((fragments.size, fragments.links), (0, 2), "seed {seed}");
    // The root stays split.
    let left = after.files - before.files;
    assert!(left == 0 || trial.split < 4096 && left == 16, "seed {seed}: {left} inodes were left");
    assert!(left > 0 || after.used == before.used, "seed {seed}: space was left");
}

#[test]
fn whatever_two_clients_do_at_once_has_an_order() {
    (0..1500).for_each(|seed| {
        try_seed(seed, Trial { clients: 2, operations: 4, split: 4096, dies: false, random_operation });
    });
}

#[test]
fn whatever_three_clients_do_at_once_has_an_order() {
    (0..1000).for_each(|seed| {
        try_seed(seed, Trial { clients: 3, operations: 3, split: 4096, dies: false, random_operation });
    });
}

#[test]
fn a_name_that_moves_to_and_fro_is_never_seen_twice_or_not_at_all() {
    let trial = Trial { clients: 3, operations: 5, split: 4096, dies: false, random_operation: random_rename };
    (0..500).for_each(|seed| try_seed(seed, trial));
    (500..1000).for_each(|seed| try_seed(seed, Trial { dies: true, ..trial }));
}

#[test]
fn a_directory_that_is_removed_or_replaced_takes_nothing_with_it() {
    let trial = Trial { clients: 3, operations: 3, split: 4096, dies: false, random_operation: random_removal };
    (0..300).for_each(|seed| try_seed(seed, trial));
    (300..600).for_each(|seed| try_seed(seed, Trial { dies: true, ..trial }));
    (600..660).for_each(|seed| try_seed(seed, Trial { split: 1, ..trial }));
}

#[test]
fn a_client_that_dies_anywhere_is_as_if_it_had_done_its_last_operation_or_not() {
    (0..1500).for_each(|seed| {
        try_seed(seed, Trial { clients: 3, operations: 3, split: 4096, dies: true, random_operation });
    });
}

#[test]
fn directories_that_split_under_them_do_not_show() {
    (0..150)
        .for_each(|seed| try_seed(seed, Trial { clients: 2, operations: 5, split: 2, dies: false, random_operation }));
    (0..150)
        .for_each(|seed| try_seed(seed, Trial { clients: 3, operations: 4, split: 2, dies: true, random_operation }));
}

/// Moves each of two directories into the other, with message orders by many seeds.
#[test]
fn of_two_directories_that_are_moved_into_each_other_exactly_one_is() {
    for seed in 0..2000 {
        let pool = pool_of(seed, 4096);
        let healthy = block_on(pool.over(|node| node, RETRY_WITHOUT_PAUSES));
        let make =
            |name: &str| block_on(healthy.make_directory(FileId::ROOT, name.as_bytes(), 0o755, OWNER)).unwrap().file;
        let (one, other) = (make("one"), make("other"));
        let moves = [("one", other), ("other", one)];
        let client = |(name, target): (&'static str, FileId)| InterleavedClient {
            vfs: block_on(pool.over(SteppedConnection::new, RETRY_WITHOUT_PAUSES)),
            remaining: vec![NameOperation::Rename((FileId::ROOT, name), (target, "in"), RenameMode::Replace)],
            in_flight: None,
        };
        let mut clients: Vec<InterleavedClient> = moves.into_iter().map(client).collect();
        let (history, _) = interleave(&mut clients, &mut Random::new(seed), false);
        let done = history.iter().filter(|event| matches!(event.ended, Some((_, Ok(_))))).count();
        assert_eq!(done, 1, "seed {seed}:\n{}", format_history(&history));
        let tops = block_on(healthy.list(FileId::ROOT, 0, 10)).unwrap();
        assert_eq!(tops.len(), 1, "seed {seed}");
        assert_eq!(block_on(healthy.list(tops[0].file, 0, 10)).unwrap().len(), 1, "seed {seed}: the other is in it");
    }
}
