//! Tests of extent files, command by command.

use crate::{ExtentHead, LogEntry, Partition, partition_test::*};
use bytes::Bytes;
use placement::{FileId, NodeId};
use test_support::Random;
use wire::{
    Answer, Changes, Command, Content, Extent, ExtentRequest, NewInode, NewKind, OpenFlags, OpenedFile, Owner,
    RangeContent, Refusal, Session, TimeChange, Times, WritePlace,
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

/// Draws a random command of any kind; some creates and opens bring an extent, and some commands
/// demote a file.
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
        (command, _) => command,
    }
}

#[test]
fn a_snapshot_with_extent_files_goes_on_as_its_original_does_and_counts_what_is_there() {
    for seed in 0..20 {
        let (mut random, mut bench) = (Random::new(seed), Bench::new());
        for _ in 0..400 {
            let _ = bench.try_to(random_extent_command(&mut random));
        }
        let mut copy = Partition::restore(&bench.partition.snapshot()).unwrap();
        let mut folded = 0;
        for _ in 0..400 {
            let (command, request_id) = (random_extent_command(&mut random), bench.request_id());
            folded += u32::from(matches!(command, Command::Demote { .. }));
            let entry = LogEntry::command(Some(request_id), command, at(1000));
            let (ours, copies) = (bench.partition.apply(entry.clone()), copy.apply(entry));
            assert_eq!((copies.answer, copies.effects), (ours.answer, ours.effects), "seed {seed}");
        }
        assert!(folded > 0, "seed {seed}");
        assert_eq!(copy.bytes(), bench.partition.bytes());
    }
}
