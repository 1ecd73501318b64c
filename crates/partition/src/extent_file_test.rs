//! Tests of extent files, command by command.

use crate::{
    Effects, ExtentHead, LogEntry, Partition,
    inode::{FileBody, InodeBody},
    memory_cost,
    partition_test::*,
};
use bytes::Bytes;
use placement::{FileId, NodeId};
use std::ops::Range;
use test_support::Random;
use wire::{
    AllocateMode, Answer, Changes, Command, Content, Extent, ExtentRequest, NewInode, NewKind, OpenFlags, OpenedFile,
    Owner, RangeContent, Refusal, SeekTo, Session, StripeAllocation, StripeRuns, TimeChange, Times, WritePlace,
};

fn extent(slot: u32) -> Extent {
    Extent { node: NodeId(1), slot, generation: 1 }
}

fn create(text: &str, extent: ExtentRequest) -> Command {
    let inode = NewInode::new(NewKind::File, 0o644, Owner::default());
    Command::Create { parent: FileId::ROOT, name: name(text), inode, open: true, extent }
}

/// Creates an open file in this extent.
fn created(bench: &mut Bench, text: &str, slot: u32) -> FileId {
    match bench.apply(create(text, ExtentRequest::Allocated(extent(slot)))) {
        Answer::Opened(OpenedFile { attributes, .. }) => {
            assert_eq!(attributes.extent, Some(extent(slot)));
            attributes.file
        }
        other => panic!("{other:?}"),
    }
}

fn open(file: FileId, extent: ExtentRequest) -> Command {
    Command::Open { file, flags: OpenFlags::READ_WRITE, extent }
}

fn demote(file: FileId, slot: u32) -> Command {
    let times = Times { accessed: at(3), modified: at(4), changed: at(5) };
    Command::Demote { file, extent: extent(slot), bytes: Bytes::from_static(b"small"), times }
}

#[test]
fn bytes_of_an_extent_file_are_in_its_extent() {
    let mut bench = Bench::new();
    let file = created(&mut bench, "f", 7);
    assert_eq!(bench.partition.extent(file), Some(extent(7)));
    for length in [5_u32, 5000] {
        let data = if length == 5 { Bytes::from_static(b"bytes") } else { Bytes::new() };
        for place in [WritePlace::At(3), WritePlace::End] {
            let command = Command::Write { file, place, length, data: data.clone(), kill_set_id: false };
            assert_eq!(bench.apply(command), Answer::Extent(extent(7)));
        }
    }
    let read = bench.apply(Command::Read { file, offset: 9, length: 100 });
    assert_eq!(read, Answer::Content(RangeContent { length: 100, content: Content::Extent(extent(7)) }));
}

#[test]
fn an_extent_is_requested_for_a_new_file_or_for_a_small_one_that_nobody_else_has_open() {
    let mut bench = Bench::new();
    let empty = Some(ExtentHead { bytes: &[], size: 0 });
    assert_eq!(bench.partition.extent_head(&create("f", ExtentRequest::Any)), empty);
    let file = bench.create(FileId::ROOT, "f", NewKind::File).file;
    assert_eq!(bench.partition.extent_head(&create("f", ExtentRequest::Any)), None, "it is there");
    bench.write(file, WritePlace::At(0), b"hello");
    bench.change(file, Changes { size: Some(9), ..Changes::default() });
    let head = Some(ExtentHead { bytes: b"hello", size: 9 });
    assert_eq!(bench.partition.extent_head(&open(file, ExtentRequest::Any)), head);
    let truncate = OpenFlags { truncate: true, ..OpenFlags::WRITE };
    assert_eq!(
        bench.partition.extent_head(&Command::Open { file, flags: truncate, extent: ExtentRequest::Any }),
        empty
    );
    let read = |extent| Command::Open { file, flags: OpenFlags::READ, extent };
    assert_eq!(bench.partition.extent_head(&read(ExtentRequest::Any)), head, "who reads it by itself");
    assert_eq!(bench.partition.extent_head(&read(ExtentRequest::None)), None, "else it is best where it is");
    bench.apply(read(ExtentRequest::None));
    assert_eq!(bench.partition.extent_head(&open(file, ExtentRequest::Any)), None, "somebody has it open");
    bench.apply(Command::Close { file });
    bench.apply(open(file, ExtentRequest::Allocated(extent(2))));
    assert_eq!(bench.partition.extent(file), Some(extent(2)));
}

#[test]
fn an_extent_is_free_when_its_file_has_neither_name_nor_opener() {
    let mut bench = Bench::new();
    let file = created(&mut bench, "f", 1);
    assert!(bench.effects.is_empty());
    bench.apply(Command::Unlink { parent: FileId::ROOT, name: name("f") });
    assert!(bench.effects.is_empty(), "it is open");
    bench.apply(Command::Close { file });
    let effects = std::mem::take(&mut bench.effects);
    assert_eq!((effects.freed, effects.closed), (vec![(file, extent(1))], vec![]));
    assert!(bench.effects.is_empty(), "it is reported once");
}

#[test]
fn the_last_close_is_reported_whoever_closes() {
    let mut bench = Bench::new();
    let file = created(&mut bench, "f", 1);
    bench.apply(open(file, ExtentRequest::None));
    bench.apply(Command::Close { file });
    assert!(bench.effects.is_empty());
    bench.apply(Command::CloseSession { session: Session(1) });
    assert_eq!(std::mem::take(&mut bench.effects).closed, vec![(file, extent(1))]);
}

#[test]
fn a_demotion_is_done_only_to_a_closed_file_that_is_still_in_its_extent() {
    let mut bench = Bench::new();
    let file = created(&mut bench, "f", 1);
    assert!(matches!(bench.try_to(demote(file, 1)), Err(Refusal::Stale(_))), "it is open");
    bench.apply(Command::Close { file });
    assert!(matches!(bench.try_to(demote(file, 2)), Err(Refusal::Stale(_))), "it is elsewhere");
    bench.apply(demote(file, 1));
    let found = bench.stat(file);
    assert_eq!((found.size, found.modified, found.changed, found.extent), (5, at(4), at(5), None));
    assert_eq!(bench.read(file), "small");
    assert!(matches!(bench.try_to(demote(file, 1)), Err(Refusal::Stale(_))), "it is folded");
}

#[test]
fn times_that_were_set_are_left_to_the_extent() {
    let mut bench = Bench::new();
    let file = created(&mut bench, "f", 1);
    let before = bench.stat(file);
    let modified = Some(TimeChange::At(at(-50)));
    bench.change(file, Changes { modified, ..Changes::default() });
    let after = bench.stat(file);
    assert!(after.modified < at(-50), "whatever the extent says is later");
    assert_eq!(after.accessed, before.accessed);
    assert!(after.changed > before.changed);
}

/// Creates a closed file in this extent, of which stripes 0 to 2 are planned; returns the
/// generation too.
fn evacuating(bench: &mut Bench, text: &str, slot: u32) -> (FileId, u32) {
    let file = created(bench, text, slot);
    bench.apply(Command::Close { file });
    bench.effects = Effects::default();
    let (generation, earlier) = planned(bench.apply(evacuate(file, slot, 0..3)));
    assert!(earlier.is_empty());
    (file, generation)
}

fn evacuate(file: FileId, slot: u32, range: Range<u64>) -> Command {
    Command::Evacuate { file, extent: extent(slot), stripes: runs(range) }
}

fn runs(range: Range<u64>) -> StripeRuns {
    let mut runs = StripeRuns::new();
    runs.insert(range.start, range.end);
    runs
}

/// The generation of planned stripes, and the stripes of earlier copies.
fn planned(answer: Answer) -> (u32, StripeRuns) {
    match answer {
        Answer::Allocated(StripeAllocation { generation, stripes, .. }) => (generation, stripes),
        other => panic!("{other:?}"),
    }
}

fn evacuate_done(file: FileId, slot: u32, generation: u32, size: u64) -> Command {
    let times = Times { accessed: at(3), modified: at(400), changed: at(500) };
    Command::EvacuateDone { file, extent: extent(slot), generation, size, times }
}

#[test]
fn a_copied_file_is_in_its_extent_until_its_node_reports_that_the_stripes_have_all() {
    let mut bench = Bench::new();
    let (file, generation) = evacuating(&mut bench, "f", 1);
    let size = 5 * u64::from(STRIPE) - 7;
    assert_eq!((bench.partition.extent(file), bench.stat(file).extent), (Some(extent(1)), Some(extent(1))));
    let read = Command::Read { file, offset: 9, length: 100 };
    let content = Content::Extent(extent(1));
    assert_eq!(bench.apply(read.clone()), Answer::Content(RangeContent { length: 100, content }));
    assert!(bench.partition.expects(file, 2, Session(1)) && !bench.partition.expects(file, 3, Session(1)));
    let (bytes, memory) = (bench.partition.bytes(), memory_cost::EXTENT_BYTES);
    bench.apply(evacuate_done(file, 1, generation, size));
    let found = bench.stat(file);
    assert_eq!((found.size, found.modified, found.changed, found.extent), (size, at(400), at(500), None));
    assert_eq!(found.allocated, 3 * u64::from(STRIPE), "the rest is a hole");
    assert!(matches!(bench.apply(read), Answer::Content(RangeContent { content: Content::Striped(_), .. })));
    assert_eq!(bench.partition.bytes(), bytes - memory);
    let again = bench.try_to(evacuate_done(file, 1, generation, size));
    assert!(matches!(again, Err(Refusal::Stale(_))), "it is striped");
    assert!(bench.effects.is_empty(), "its node frees the extent");
}

#[test]
fn whatever_may_change_a_copied_file_lets_its_copy_end_without_effect() {
    let change = |changes| move |file| Command::Change { file, changes };
    let allocate = |file| Command::Allocate { file, offset: 0, length: 1, mode: AllocateMode::PunchHole };
    let write = |file| Command::Write { file, place: WritePlace::End, length: 1, data: "x".into(), kill_set_id: false };
    let modified = Changes { modified: Some(TimeChange::At(at(-50))), ..Changes::default() };
    let opens: [&dyn Fn(FileId) -> Command; 2] = [&|file| open(file, ExtentRequest::None), &|file| Command::Open {
        file,
        flags: OpenFlags { truncate: true, ..OpenFlags::WRITE },
        extent: ExtentRequest::None,
    }];
    let others: [&dyn Fn(FileId) -> Command; 4] =
        [&write, &allocate, &change(Changes { size: Some(1), ..Changes::default() }), &change(modified)];
    for (at, command) in opens.into_iter().chain(others).enumerate() {
        let mut bench = Bench::new();
        let (file, generation) = evacuating(&mut bench, "f", 1);
        bench.apply(command(file));
        if at < opens.len() {
            bench.apply(Command::Close { file });
        }
        let done = bench.try_to(evacuate_done(file, 1, generation, 5));
        assert!(matches!(done, Err(Refusal::Stale(_))), "{at}: {done:?}");
        assert_eq!(bench.partition.extent(file), Some(extent(1)));
    }
    let mut bench = Bench::new();
    let (file, generation) = evacuating(&mut bench, "f", 1);
    bench.change(file, Changes { mode: Some(0o600), ..Changes::default() });
    bench.apply(evacuate_done(file, 1, generation, 5));
    assert_eq!(bench.stat(file).mode & 0o777, 0o600, "that is not about its bytes");
}

#[test]
fn a_file_that_somebody_has_open_is_neither_copied_nor_becomes_striped() {
    let mut bench = Bench::new();
    let (file, generation) = evacuating(&mut bench, "f", 1);
    bench.apply(Command::Open { file, flags: OpenFlags::READ, extent: ExtentRequest::None });
    for command in [evacuate_done(file, 1, generation, 5), evacuate(file, 1, 0..1)] {
        assert!(matches!(bench.try_to(command), Err(Refusal::Stale(_))));
    }
    bench.apply(Command::Close { file });
    for command in [evacuate_done(file, 2, generation, 5), evacuate(file, 2, 0..1)] {
        assert!(matches!(bench.try_to(command), Err(Refusal::Stale(_))), "it is elsewhere");
    }
    bench.apply(evacuate_done(file, 1, generation, 5));
    assert_eq!(bench.partition.extent(file), None);
}

#[test]
fn stripes_of_earlier_copies_stay_the_files_own_until_it_is_removed() {
    let mut bench = Bench::new();
    let (file, first) = evacuating(&mut bench, "f", 1);
    let (second, earlier) = planned(bench.apply(evacuate(file, 1, 5..6)));
    assert!(earlier == runs(0..3) && second > first);
    assert!(matches!(bench.try_to(evacuate_done(file, 1, first, 5)), Err(Refusal::Stale(_))));
    let small = bench.try_to(demote(file, 1));
    assert!(matches!(small, Err(Refusal::AlreadyPlaced(_))), "an inline file has no stripes: {small:?}");
    let mut all = runs(0..3);
    all.insert(5, 6);
    let Answer::Removed(Some(deleted)) = bench.apply(Command::Unlink { parent: FileId::ROOT, name: name("f") }) else {
        panic!("its stripes are to be removed")
    };
    assert_eq!((deleted.stripes, bench.effects.freed.clone()), (all, vec![(file, extent(1))]));
}

#[test]
fn stripes_beyond_the_end_are_holes_when_the_file_grows_again() {
    let mut bench = Bench::new();
    let (file, _) = evacuating(&mut bench, "f", 1);
    let (generation, _) = planned(bench.apply(evacuate(file, 1, 0..1)));
    bench.apply(evacuate_done(file, 1, generation, 5));
    bench.change(file, Changes { size: Some(3 * u64::from(STRIPE)), ..Changes::default() });
    let seek = |to| Command::Seek { file, offset: 0, to };
    assert_eq!(bench.apply(seek(SeekTo::Hole)), Answer::Offset(STRIPE.into()));
}

/// Draws a random command of any kind; some creates and opens bring an extent, and some commands
/// demote or evacuate a file.
pub fn random_extent_command(random: &mut Random) -> Command {
    let slot = random.below(6);
    match (random_command(random), random.below(3)) {
        (Command::Create { parent, name, inode, open, .. }, 0 | 1) => {
            Command::Create { parent, name, inode, open, extent: ExtentRequest::Allocated(extent(slot)) }
        }
        (Command::Open { file, flags, .. }, 0 | 1) => {
            Command::Open { file, flags, extent: ExtentRequest::Allocated(extent(slot)) }
        }
        (Command::Close { file } | Command::PublishSize { file, .. }, 0) => demote(file, slot),
        (Command::Close { file } | Command::Open { file, .. } | Command::PublishSize { file, .. }, 1 | 2) => {
            evacuate(file, slot, random.below(2)..random.below(4))
        }
        (command, _) => command,
    }
}

/// Draws a random command, or one about the evacuation of a file that is in an extent.
fn random_command_in(partition: &Partition, random: &mut Random) -> Command {
    let mut files: Vec<(FileId, Extent)> =
        partition.inodes.keys().copied().filter_map(|file| Some((file, partition.extent(file)?))).collect();
    files.sort_unstable_by_key(|(file, _)| *file);
    if files.is_empty() || !random.one_in(8) {
        return random_extent_command(random);
    }
    let (file, Extent { slot, .. }) = random.pick(&files);
    let InodeBody::File(FileBody { generation, .. }) = partition.inodes[&file].body else { unreachable!("a file") };
    match random.below(4) {
        0 | 1 => Command::Close { file },
        2 => evacuate(file, slot, random.below(2)..2 + random.below(3_u64)),
        _ => evacuate_done(file, slot, generation, random.below(4_u64) * u64::from(STRIPE)),
    }
}

#[test]
fn a_snapshot_with_extent_files_goes_on_as_its_original_does_and_counts_what_is_there() {
    let mut evacuated = 0;
    for seed in 0..20 {
        let (mut random, mut bench) = (Random::new(seed), Bench::new());
        for _ in 0..400 {
            let command = random_command_in(&bench.partition, &mut random);
            let _ = bench.try_to(command);
        }
        let mut copy = Partition::restore(&bench.partition.snapshot()).unwrap();
        let mut folded = 0;
        for _ in 0..400 {
            let (command, request_id) = (random_command_in(&bench.partition, &mut random), bench.request_id());
            folded += u32::from(matches!(command, Command::Demote { .. }));
            let done = matches!(command, Command::EvacuateDone { .. });
            let entry = LogEntry::command(Some(request_id), command, at(1000));
            let (ours, copies) = (bench.partition.apply(entry.clone()), copy.apply(entry));
            evacuated += u32::from(done && ours.answer.is_ok());
            assert_eq!((copies.answer, copies.effects), (ours.answer, ours.effects), "seed {seed}");
        }
        assert!(folded > 0, "seed {seed}");
        assert_eq!(copy.bytes(), bench.partition.bytes());
    }
    assert!(evacuated > 10, "{evacuated}");
}
