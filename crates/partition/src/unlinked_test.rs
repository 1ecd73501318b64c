//! Tests of inodes that are kept for kernels after their last name is removed.

use crate::{
    Partition, SubscriberIds,
    cache_grants_test::{Bench, find, name, subscriber},
    partition_test::at,
};
use bytes::Bytes;
use placement::{FileId, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use test_support::Random;
use wire::{
    Answer, Command, Extent, ExtentRequest, FoundEntry, Intent, NewInode, NewKind, OpenFlags, OpenedFile, Owner, Part,
    Recall, Refusal, RenameFrom, RenameMode, RenameTo, Session, StripeRuns, Times,
};

const ROOT: FileId = FileId::ROOT;

/// Creates `watching` subscribers; the kernels of the sessions in `pruning` support prune notices.
fn bench(watching: usize, pruning: &[u64]) -> Bench {
    let pruning =
        pruning.iter().filter_map(|session| subscriber(*session)).fold(SubscriberIds::NONE, SubscriberIds::with);
    let mut bench = Bench::new(watching);
    bench.pruning = pruning;
    bench
}

fn unlink(text: &str) -> Command {
    Command::Unlink { parent: ROOT, name: name(text) }
}

fn rename(from: &str, to: &str) -> Command {
    let (from, to) = (RenameFrom { parent: ROOT, name: name(from) }, RenameTo { parent: ROOT, name: name(to) });
    Command::Rename { from, to, mode: RenameMode::Replace }
}

fn link(file: FileId, text: &str) -> Command {
    Command::Link { file, parent: ROOT, name: name(text) }
}

fn is_there(bench: &mut Bench, session: u64, file: FileId) -> bool {
    bench.apply(session, Command::Stat { file }).0.is_ok()
}

/// Returns the sessions that are notified of a removal.
fn notified_of_removal(bench: &mut Bench, session: u64, command: Command) -> Vec<u64> {
    let invalidations = bench.invalidated_by(session, command);
    invalidations
        .into_iter()
        .filter(|(_, recall)| matches!(recall, Recall::Removed(_)))
        .map(|(session, _)| session)
        .collect()
}

#[test]
fn what_loses_its_last_name_stays_for_every_kernel_that_knows_it_until_each_has_forgotten_it() {
    let mut bench = bench(3, &[1, 2, 3]);
    let file = bench.create(1, "f").file;
    bench.stat(2, file);
    let files = bench.partition.files();
    assert_eq!(notified_of_removal(&mut bench, 1, unlink("f")), [2], "the remover drops the name by itself");
    assert!(is_there(&mut bench, 1, file) && is_there(&mut bench, 2, file));
    assert!(!is_there(&mut bench, 3, file) && !is_there(&mut bench, 0, file), "they did not know it");
    bench.invalidated_by(3, Command::ForgetInode { file });
    bench.invalidated_by(2, Command::ForgetInode { file });
    assert!(is_there(&mut bench, 1, file) && !is_there(&mut bench, 2, file));
    bench.invalidated_by(1, Command::ForgetInode { file });
    assert_eq!(bench.partition.files(), files - 1);
}

#[test]
fn a_node_that_has_the_bytes_does_not_take_an_inode_for_gone_that_a_kernel_knows() {
    let mut bench = bench(2, &[1, 2]);
    let file = bench.create(1, "f").file;
    bench.apply(1, unlink("f")).0.unwrap();
    assert!(!is_there(&mut bench, 2, file));
    let extent = Extent { node: NodeId(1), slot: 1, generation: 1 };
    let times = Times { accessed: at(1), modified: at(1), changed: at(1) };
    let demote = Command::Demote { file, extent, bytes: Bytes::new(), times };
    let evacuate = Command::Evacuate { file, extent, stripes: StripeRuns::new() };
    let done = Command::EvacuateDone { file, extent, generation: 1, size: 1, times };
    for command in [demote, evacuate, done] {
        let refused = bench.apply(2, command).0;
        assert!(matches!(refused, Err(Refusal::Stale(_))), "it has no such extent: {refused:?}");
    }
}

#[test]
fn nothing_stays_for_a_kernel_without_prune_support_but_what_it_removed_itself() {
    let mut bench = bench(2, &[]);
    for (remover, kept) in [(1, true), (2, false), (0, false)] {
        let file = bench.create(1, "f").file;
        let files = bench.partition.files();
        assert!(notified_of_removal(&mut bench, remover, unlink("f")).is_empty());
        assert_eq!((is_there(&mut bench, 1, file), bench.partition.files() == files), (kept, kept));
        bench.invalidated_by(1, Command::ForgetInode { file });
    }
}

#[test]
fn a_kernel_that_may_have_outdated_names_is_notified_of_its_own_removal_too() {
    type Move = fn(&mut Bench, FileId);
    let moves: [Move; 3] = [
        |bench, _| drop(bench.invalidated_by(2, rename("f", "last"))),
        |bench, file| {
            bench.invalidated_by(2, link(file, "last"));
            bench.invalidated_by(2, unlink("f"));
        },
        |bench, file| {
            bench.invalidated_by(1, rename("f", "last"));
            bench.invalidated_by(2, Command::UpdateCtime { file });
        },
    ];
    for moved in moves {
        let mut bench = bench(2, &[1, 2]);
        let file = bench.create(1, "f").file;
        moved(&mut bench, file);
        assert!(notified_of_removal(&mut bench, 1, unlink("last")).contains(&1));
    }
    let mut bench = bench(2, &[1, 2]);
    bench.create(2, "g");
    bench.apply(1, find("g")).0.unwrap();
    assert_eq!(notified_of_removal(&mut bench, 1, unlink("g")), [1, 2], "another has made it");
    bench.create(1, "f");
    bench.invalidated_by(1, rename("f", "last"));
    assert!(notified_of_removal(&mut bench, 1, unlink("last")).is_empty(), "it has moved the name itself");
}

#[test]
fn what_is_replaced_or_a_directory_stays_like_what_is_unlinked() {
    let mut bench = bench(2, &[1, 2]);
    let replaced = bench.create(1, "f").file;
    bench.create(2, "g");
    assert_eq!(notified_of_removal(&mut bench, 2, rename("g", "f")), [1]);
    assert!(is_there(&mut bench, 1, replaced));
    let inode = NewInode::new(NewKind::Directory, 0o755, Owner::default());
    bench.invalidated_by(
        1,
        Command::Create { parent: ROOT, name: name("d"), inode, open: false, extent: ExtentRequest::None },
    );
    let Ok(Answer::Found(FoundEntry { file: directory, .. })) = bench.apply(1, find("d")).0 else { panic!() };
    assert_eq!(notified_of_removal(&mut bench, 2, Command::RemoveDirectory { parent: ROOT, name: name("d") }), [1]);
    assert!(is_there(&mut bench, 1, directory));
}

#[test]
fn whoever_settles_anothers_removal_and_who_asked_for_it_both_find_what_their_kernels_know() {
    for settler in [1, 2, 3] {
        let mut bench = bench(3, &[1, 2, 3]);
        let file = bench.create(1, "f").file;
        bench.stat(2, file);
        let intent = Intent { number: 1, session: Session(1), coordinator: ROOT.partition() };
        bench.invalidated_by(1, Command::Prepare { intent, parts: vec![Part::DropLink { file }] });
        let invalidations = notified_of_removal(&mut bench, settler, Command::Settle { intent, commit: true });
        assert_eq!(invalidations, if settler == 1 { vec![2] } else { vec![1, 2] });
        assert!(is_there(&mut bench, 1, file) && is_there(&mut bench, 2, file) && !is_there(&mut bench, 3, file));
        bench.invalidated_by(1, Command::ForgetInode { file });
        bench.invalidated_by(2, Command::ForgetInode { file });
        assert_eq!(bench.partition.files(), 1);
    }
}

/// A lookup that is answered while an intent has locked the entry tells the kernel of the inode,
/// like any other lookup.
#[test]
fn what_was_found_while_an_intent_held_its_name_stays_for_the_kernel_that_found_it() {
    let mut bench = bench(3, &[1, 2, 3]);
    let file = bench.create(1, "f").file;
    let intent = Intent { number: 1, session: Session(1), coordinator: ROOT.partition() };
    let kind = wire::Kind::File;
    let (was, becomes) = (Some((file, kind)), Some((file, kind)));
    let held = Part::Entry { directory: ROOT, name: name("f"), before: was, after: becomes };
    bench.invalidated_by(1, Command::Prepare { intent, parts: vec![held] });
    let (found, _) = bench.apply(2, find("f"));
    assert!(matches!(found, Ok(Answer::Unsettled(..))), "{found:?}");
    bench.invalidated_by(1, Command::Settle { intent, commit: false });
    assert_eq!(notified_of_removal(&mut bench, 1, unlink("f")), [2]);
    assert!(is_there(&mut bench, 2, file));
}

/// An intent that was planned for an inode keeps it for a moment after its removal: the last kernel
/// may forget the inode just then.
#[test]
fn what_an_intent_held_when_the_last_kernel_forgot_it_goes_when_that_is_settled() {
    let mut bench = bench(2, &[1, 2]);
    let files = bench.partition.files();
    let file = bench.create(1, "f").file;
    let intent = Intent { number: 1, session: Session(2), coordinator: ROOT.partition() };
    bench.invalidated_by(2, unlink("f"));
    bench.invalidated_by(2, Command::Prepare { intent, parts: vec![Part::Moved { file, parent: ROOT }] });
    bench.invalidated_by(1, Command::ForgetInode { file });
    bench.invalidated_by(2, Command::Settle { intent, commit: false });
    assert_eq!(bench.partition.files(), files, "nothing refers to it");
}

#[test]
fn what_is_kept_goes_with_the_last_session_it_was_kept_for() {
    let mut bench = bench(2, &[1, 2]);
    let file = bench.create(1, "f").file;
    bench.stat(2, file);
    bench.invalidated_by(0, unlink("f"));
    bench.invalidated_by(0, Command::CloseSession { session: Session(1) });
    bench.partition.remove_subscriber(subscriber(1).unwrap());
    assert!(!is_there(&mut bench, 1, file) && is_there(&mut bench, 2, file));
    bench.invalidated_by(2, Command::CloseSession { session: Session(2) });
    assert_eq!(bench.partition.files(), 1);
}

#[test]
fn nothing_is_kept_for_a_session_that_is_ending() {
    let mut bench = bench(2, &[1, 2]);
    let file = bench.create(2, "f").file;
    bench.invalidated_by(1, Command::CloseSession { session: Session(1) });
    bench.stat(1, file);
    bench.invalidated_by(0, unlink("f"));
    bench.invalidated_by(2, Command::ForgetInode { file });
    assert_eq!(bench.partition.files(), 1);
}

/// The state of one kernel.
#[derive(Default)]
struct Kernel {
    known: BTreeSet<FileId>,
    /// Number of opens of each inode.
    open: BTreeMap<FileId, u32>,
}

/// Executes a random command of a session, and updates its kernel's state.
fn step(bench: &mut Bench, kernels: &mut [Kernel], random: &mut Random) {
    let texts = ["a", "b", "c"];
    let mut text = || random.pick(&texts);
    let (one, other) = (text(), text());
    let session = 1 + random.below(3);
    let kernel = &mut kernels[usize::try_from(session).unwrap() - 1];
    let some = kernel.known.iter().nth(random.below(4)).copied();
    let inode = NewInode::new(NewKind::File, 0o644, Owner::default());
    let (parent, flags) = (ROOT, OpenFlags::READ);
    let command = match (random.below(9), some) {
        (0, _) => Command::Create { parent, name: name(one), inode, open: false, extent: ExtentRequest::None },
        (1 | 2, _) => find(one),
        (3, _) => unlink(one),
        (4, _) => rename(one, other),
        (5, Some(file)) => link(file, one),
        (6, Some(file)) => Command::Open { file, flags, extent: ExtentRequest::None },
        (7, Some(file)) if kernel.open.contains_key(&file) => Command::Close { file },
        (8, Some(file)) if !kernel.open.contains_key(&file) => Command::ForgetInode { file },
        _ => return,
    };
    let (executed, (answer, invalidations)) = (command.clone(), bench.apply(session, command));
    match (executed, answer) {
        (Command::Create { .. }, Ok(Answer::Opened(OpenedFile { attributes, .. }))) => {
            kernel.known.insert(attributes.file);
        }
        (Command::Lookup { .. }, Ok(Answer::Found(FoundEntry { file, .. }))) => drop(kernel.known.insert(file)),
        (Command::Open { file, .. }, opened) => {
            opened.expect("what a kernel knows can be opened");
            *kernel.open.entry(file).or_default() += 1;
        }
        (Command::Close { file }, _) => {
            let count = kernel.open.get_mut(&file).unwrap();
            *count -= 1;
            if *count == 0 {
                kernel.open.remove(&file);
            }
        }
        (Command::ForgetInode { file }, _) => drop(kernel.known.remove(&file)),
        _ => {}
    }
    for (watching, recall) in invalidations {
        let known = &kernels[usize::try_from(watching).unwrap() - 1].known;
        assert!(!matches!(recall, Recall::Removed(file) if !known.contains(&file)), "it knows it not: {recall:?}");
    }
}

fn unnamed(partition: &Partition) -> usize {
    partition.inodes.values().filter(|inode| inode.names == 0).count()
}

#[test]
fn whatever_kernels_do_each_finds_what_it_knows_and_when_all_have_forgotten_nothing_without_a_name_is_left() {
    let mut kept_once = 0;
    for seed in 0..300 {
        let (mut bench, mut random) = (bench(3, &[1, 2, 3]), Random::new(seed));
        let mut kernels = [Kernel::default(), Kernel::default(), Kernel::default()];
        for _ in 0..120 {
            step(&mut bench, &mut kernels, &mut random);
            for (session, kernel) in (1..).zip(&kernels) {
                for file in &kernel.known {
                    assert!(is_there(&mut bench, session, *file), "seed {seed}: {file} for {session}");
                }
            }
        }
        kept_once += unnamed(&bench.partition);
        for (session, kernel) in (1..).zip(kernels) {
            if random.below(4) == 0 {
                bench.invalidated_by(session, Command::CloseSession { session: Session(session) });
                continue;
            }
            for (file, count) in kernel.open {
                (0..count).for_each(|_| drop(bench.invalidated_by(session, Command::Close { file })));
            }
            kernel
                .known
                .iter()
                .for_each(|file| drop(bench.invalidated_by(session, Command::ForgetInode { file: *file })));
        }
        assert_eq!(unnamed(&bench.partition), 0, "seed {seed}");
    }
    assert!(kept_once > 100, "{kept_once}: else nothing was tried");
}
