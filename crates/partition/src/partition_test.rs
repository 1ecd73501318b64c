//! Tests of one partition, command by command.

use crate::{Effects, LogEntry, Partition, Settings};
use bytes::Bytes;
use placement::{FileId, Layout, PartitionId};
use test_support::Random;
use wire::{
    Answer, Attributes, ChangedFile, Changes, Command, Content, ExtentRequest, InheritedAttributes, InlineSpill,
    Intent, Kind, Name, NewInode, NewKind, OpenFlags, OpenedFile, Outcome, Owner, Part, RangeContent, Refusal,
    RenameFrom, RenameMode, RenameTo, RequestId, Session, StripedWrite, TimeChange, Timestamp, WritePlace,
};

const ROOT: FileId = FileId::ROOT;
pub const STRIPE: u32 = 8192;
const LAYOUT: Layout = Layout::striped(STRIPE);

/// A partition, its only client, and a clock that advances a second with each command.
pub struct Bench {
    pub partition: Partition,
    pub session: Session,
    /// Effects of all commands so far.
    pub effects: Effects,
    number: u64,
    now: i64,
}

impl Bench {
    pub fn new() -> Self {
        Self::of(1)
    }

    /// Creates the first of this many partitions.
    pub fn of(partitions: u32) -> Self {
        let settings = Settings { name_bits: 4, partitions, ..Settings::new(7, STRIPE) };
        let partition = Partition::with_root(settings, Owner::default(), 0o755, at(0));
        Self { partition, session: Session(1), effects: Effects::default(), number: 0, now: 0 }
    }

    pub fn request_id(&mut self) -> RequestId {
        self.number += 1;
        RequestId { session: self.session, number: self.number, settled: self.number }
    }

    pub fn try_to(&mut self, command: Command) -> Outcome<Answer> {
        self.now += 1;
        let request_id = command.is_mutation().then(|| self.request_id());
        let (before, most) = (self.partition.bytes(), self.partition.new_bytes_max(&command));
        let applied = self.partition.apply(LogEntry::command(request_id, command, at(self.now)));
        self.effects.freed.extend(applied.effects.freed);
        self.effects.closed.extend(applied.effects.closed);
        assert!(self.partition.bytes() <= before + most, "a command adds no more than it said");
        assert_eq!(before.checked_add_signed(applied.delta.bytes), Some(self.partition.bytes()));
        applied.answer
    }

    pub fn apply(&mut self, command: Command) -> Answer {
        self.try_to(command).unwrap()
    }

    pub fn create(&mut self, parent: FileId, text: &str, kind: NewKind) -> Attributes {
        let inode = NewInode::new(kind, 0o644, Owner { uid: 5, gid: 6 });
        match self.apply(Command::Create { parent, name: name(text), inode, open: false, extent: ExtentRequest::None })
        {
            Answer::Opened(OpenedFile { attributes, .. }) => attributes,
            other => panic!("{other:?}"),
        }
    }

    pub fn stat(&mut self, file: FileId) -> Attributes {
        match self.apply(Command::Stat { file }) {
            Answer::Attributes(attributes) => attributes,
            other => panic!("{other:?}"),
        }
    }

    pub fn write(&mut self, file: FileId, place: WritePlace, data: &'static [u8]) -> Answer {
        let length = u32::try_from(data.len()).unwrap();
        self.apply(Command::Write { file, place, length, data: Bytes::from_static(data), kill_set_id: false })
    }

    pub fn change(&mut self, file: FileId, changes: Changes) -> Answer {
        self.apply(Command::Change { file, changes })
    }

    pub fn read(&mut self, file: FileId) -> Bytes {
        match self.apply(Command::Read { file, offset: 0, length: 4096 }) {
            Answer::Content(RangeContent { content: Content::Bytes(bytes), .. }) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Returns mtime and ctime, in seconds.
    pub fn times(&mut self, file: FileId) -> (i64, i64) {
        let found = self.stat(file);
        (found.modified.secs, found.changed.secs)
    }
}

pub fn intent(number: u64) -> Intent {
    Intent { number, session: Session(1), coordinator: PartitionId(0) }
}

pub fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn rename(source: &str, target: &str) -> Command {
    let (from, to) = (RenameFrom { parent: ROOT, name: name(source) }, RenameTo { parent: ROOT, name: name(target) });
    Command::Rename { from, to, mode: RenameMode::Replace }
}

#[test]
fn a_resent_change_is_answered_and_not_done_again() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    let data = Bytes::from_static(b"abc");
    let command = Command::Write { file, place: WritePlace::End, length: 3, data, kill_set_id: false };
    let request_id = bench.request_id();
    let answers: Vec<_> = (0..3)
        .map(|_| bench.partition.apply(LogEntry::command(Some(request_id), command.clone(), at(9))).answer)
        .collect();
    assert_eq!(answers, vec![Ok(Answer::Written(0)); 3]);
    assert_eq!(bench.read(file), "abc");
    let other = RequestId { session: Session(2), ..request_id };
    assert_eq!(
        bench.partition.apply(LogEntry::command(Some(other), command, at(9))).answer,
        Ok(Answer::Written(3)),
        "another client"
    );
}

#[test]
fn a_change_without_session_and_number_is_refused() {
    let mut bench = Bench::new();
    let command = Command::Unlink { parent: ROOT, name: name("f") };
    assert!(matches!(
        bench.partition.apply(LogEntry::command(None, command, at(1))).answer,
        Err(Refusal::Invalid { .. })
    ));
}

#[test]
fn a_directory_shows_when_its_entries_changed() {
    let mut bench = Bench::new();
    bench.create(ROOT, "f", NewKind::File);
    assert_eq!(bench.times(ROOT), (1, 1), "create");
    bench.create(ROOT, "d", NewKind::Directory);
    assert_eq!((bench.times(ROOT), bench.stat(ROOT).links), ((3, 3), 3), "mkdir");
    bench.apply(rename("f", "g"));
    assert_eq!(bench.times(ROOT), (6, 6), "rename");
    bench.apply(Command::RemoveDirectory { parent: ROOT, name: name("d") });
    assert_eq!((bench.times(ROOT), bench.stat(ROOT).links), ((8, 8), 2), "rmdir");
    bench.apply(Command::Unlink { parent: ROOT, name: name("g") });
    assert_eq!(bench.times(ROOT), (11, 11), "unlink");
}

#[test]
fn a_file_shows_when_its_bytes_and_when_its_attributes_changed() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    assert_eq!(bench.times(file), (1, 1));
    bench.write(file, WritePlace::End, b"abc");
    assert_eq!(bench.times(file), (3, 3), "write");
    bench.change(file, Changes { mode: Some(0o7600), ..Changes::default() });
    assert_eq!((bench.times(file), bench.stat(file).mode), ((3, 5), 0o7600), "chmod");
    bench.change(file, Changes { size: Some(1), ..Changes::default() });
    assert_eq!(bench.times(file), (8, 8), "truncate");
    let modified = Some(TimeChange::At(at(-5)));
    bench.change(file, Changes { modified, accessed: Some(TimeChange::Now), ..Changes::default() });
    assert_eq!((bench.times(file), bench.stat(file).accessed), ((-5, 10), at(10)), "utimens");
    bench.apply(rename("f", "g"));
    assert_eq!(bench.times(file), (-5, 13), "rename");
    bench.change(file, Changes::default());
    assert_eq!(bench.times(file), (-5, 15), "a chown that names nobody");
}

#[test]
fn the_last_read_moves_as_with_relatime() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    bench.read(file);
    assert_eq!(bench.stat(file).accessed, at(2), "read after the change");
    bench.read(file);
    assert_eq!(bench.stat(file).accessed, at(2), "read since the change already");
    bench.write(file, WritePlace::End, b"abc");
    bench.read(file);
    assert_eq!(bench.stat(file).accessed, at(7), "changed since");
    bench.now += 24 * 3600 + 1;
    bench.read(file);
    assert_eq!(bench.stat(file).accessed, at(bench.now - 1), "a day old");
}

#[test]
fn a_set_group_id_directory_hands_down_its_group() {
    let mut bench = Bench::new();
    bench.change(ROOT, Changes { mode: Some(0o2775), gid: Some(77), ..Changes::default() });
    let (file, directory) = (bench.create(ROOT, "f", NewKind::File), bench.create(ROOT, "d", NewKind::Directory));
    assert_eq!((file.owner, file.mode), (Owner { uid: 5, gid: 77 }, 0o644));
    assert_eq!((directory.owner.gid, directory.mode), (77, 0o2644));
}

#[test]
fn a_file_spills_once_and_late_copies_of_its_head_are_told_apart() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    bench.write(file, WritePlace::At(0), b"head");
    let large =
        Command::Write { file, place: WritePlace::At(5000), length: 9000, data: Bytes::new(), kill_set_id: false };
    let spill = Answer::NeedsSpill(InlineSpill { generation: 0, layout: LAYOUT, head: Bytes::from_static(b"head") });
    assert_eq!(bench.apply(large.clone()), spill);
    assert_eq!(bench.apply(large.clone()), spill, "whoever comes may do it");
    assert_eq!(bench.read(file), "head", "reads are answered from the head until then");
    bench.apply(Command::SpillDone { file, generation: 0 });
    bench.apply(Command::SpillDone { file, generation: 0 });
    assert_eq!(
        bench.apply(large),
        Answer::Stripes(StripedWrite { offset: 5000, generation: 1, size: 4, layout: LAYOUT })
    );
    assert_eq!(bench.apply(Command::PublishSize { file, generation: 1, end: 14_000 }), Answer::Done);
    assert_eq!(bench.stat(file).size, 14_000);
}

#[test]
fn a_truncated_file_grows_only_after_its_stripes_are_cut() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    let large = |place| Command::Write { file, place, length: 20_000, data: Bytes::new(), kill_set_id: false };
    assert_eq!(
        bench.apply(large(WritePlace::End)),
        Answer::Stripes(StripedWrite { offset: 0, generation: 0, size: 0, layout: LAYOUT })
    );
    bench.apply(Command::PublishSize { file, generation: 0, end: 20_000 });
    let Answer::Changed(ChangedFile { truncation: Some(truncation), .. }) =
        bench.change(file, Changes { size: Some(10), ..Changes::default() })
    else {
        panic!("stripes are to be cut")
    };
    assert_eq!(
        (truncation.generation, truncation.length, truncation.stripes.iter().collect::<Vec<_>>()),
        (1, 10, vec![0, 1, 2])
    );
    assert!(bench.try_to(Command::PublishSize { file, generation: 0, end: 20_000 }).is_err(), "planned before");
    let grow = Changes { size: Some(30_000), ..Changes::default() };
    assert_eq!(bench.change(file, grow), Answer::NeedsTruncate(truncation.clone()));
    assert_eq!(bench.apply(large(WritePlace::At(0))), Answer::NeedsTruncate(truncation));
    assert_eq!(bench.stat(file).size, 10);
    bench.apply(Command::TruncateDone { file, generation: 1 });
    assert!(matches!(bench.change(file, grow), Answer::Changed(ChangedFile { truncation: None, .. })));
    assert_eq!(bench.stat(file).size, 30_000);
}

#[test]
fn appends_keep_their_places_when_the_size_is_set_to_what_it_is() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    let append = Command::Write { file, place: WritePlace::End, length: 5000, data: Bytes::new(), kill_set_id: false };
    assert_eq!(
        bench.apply(append.clone()),
        Answer::Stripes(StripedWrite { offset: 0, generation: 0, size: 0, layout: LAYOUT })
    );
    bench.change(file, Changes { size: Some(0), ..Changes::default() });
    assert_eq!(
        bench.apply(append.clone()),
        Answer::Stripes(StripedWrite { offset: 5000, generation: 0, size: 0, layout: LAYOUT })
    );
    bench.apply(Command::Abandon { file, generation: 0, offset: 5000, length: 5000 });
    assert_eq!(
        bench.apply(append),
        Answer::Stripes(StripedWrite { offset: 5000, generation: 0, size: 0, layout: LAYOUT }),
        "given back"
    );
}

#[test]
fn a_removed_directory_that_is_open_takes_no_entry() {
    let mut bench = Bench::new();
    let directory = bench.create(ROOT, "d", NewKind::Directory).file;
    bench.apply(Command::Open { file: directory, flags: OpenFlags::READ, extent: ExtentRequest::None });
    bench.apply(Command::RemoveDirectory { parent: ROOT, name: name("d") });
    let enter = Part::Entry { directory, name: name("f"), before: None, after: Some((ROOT, Kind::File)) };
    let enter = Command::Prepare { intent: intent(1), parts: vec![enter] };
    assert!(matches!(bench.try_to(enter), Err(Refusal::NotFound(_))));
    assert_eq!(bench.stat(directory).links, 0);
    bench.apply(Command::Close { file: directory });
    assert!(bench.try_to(Command::Stat { file: directory }).is_err());
}

fn next_kind(drawn: u64) -> NewKind {
    match drawn {
        0 => NewKind::Directory,
        1 => NewKind::Symlink(Bytes::from_static(b"target")),
        _ => NewKind::File,
    }
}

/// Draws a random command of any kind, about few names and files.
pub fn random_command(random: &mut Random) -> Command {
    let text = |number| name(&format!("n{number}"));
    let file = FileId::new(PartitionId(0), 1 + random.below(12));
    let parent = if random.below(3) == 0 { file } else { ROOT };
    let flags = OpenFlags { truncate: random.below(3) == 0, ..OpenFlags::READ_WRITE };
    let (from, to) =
        (RenameFrom { parent, name: text(random.below(6)) }, RenameTo { parent: ROOT, name: text(random.below(6)) });
    let inode = NewInode::new(next_kind(random.below(4)), 0o644, Owner::default());
    let place = if random.one_in(2) { WritePlace::End } else { WritePlace::At(random.below(9000)) };
    let size = Some(random.below(9000));
    match random.below(22) {
        0..=3 => Command::Create {
            parent,
            name: text(random.below(6)),
            inode,
            open: random.one_in(2),
            extent: ExtentRequest::None,
        },
        4 => Command::Unlink { parent, name: text(random.below(6)) },
        5 => Command::RemoveDirectory { parent, name: text(random.below(6)) },
        6 => Command::Rename { from, to, mode: RenameMode::Replace },
        7 => Command::Rename { from, to, mode: RenameMode::Exchange },
        8 | 9 => Command::Write { file, place, length: 5, data: Bytes::from_static(b"bytes"), kill_set_id: false },
        10 => Command::Write { file, place, length: 5000, data: Bytes::new(), kill_set_id: false },
        11 => Command::PublishSize { file, generation: 1, end: random.below(9000) },
        12 => Command::SpillDone { file, generation: 0 },
        13 => Command::Change { file, changes: Changes { size, ..Changes::default() } },
        14 => Command::Open { file, flags, extent: ExtentRequest::None },
        15 => Command::Close { file },
        16 => Command::TruncateDone { file, generation: 1 + random.below(2) },
        _ => random_step(random, parent, file),
    }
}

/// Draws a random step of one of few intents, about the same names and files.
fn random_step(random: &mut Random, parent: FileId, file: FileId) -> Command {
    let intent = intent(random.below(6));
    match random.below(8) {
        0..=3 => Command::Prepare { intent, parts: vec![random_part(random, parent, file)] },
        4 => Command::Commit { intent, parts: vec![random_part(random, parent, file)], others: vec![PartitionId(1)] },
        5 => Command::Settle { intent, commit: random.one_in(2) },
        6 => Command::Decide { intent },
        _ => Command::ForgetIntent { intent },
    }
}

fn random_part(random: &mut Random, parent: FileId, file: FileId) -> Part {
    let mut target = || (random.one_in(2)).then_some((file, Kind::File));
    let (was, becomes) = (target(), target());
    let inode = NewInode::new(NewKind::Directory, 0o755, Owner::default());
    match random.below(9) {
        0..=3 => {
            Part::Entry { directory: parent, name: name(&format!("n{}", random.below(6))), before: was, after: becomes }
        }
        4 => Part::AddLink { file },
        5 => Part::DropLink { file },
        6 => Part::CreateDirectory { parent, inode, inherited: InheritedAttributes::default() },
        7 => Part::Remove { directory: file, fragments: Vec::new() },
        _ => Part::LockEntries { directory: parent },
    }
}

#[test]
fn a_snapshot_goes_on_as_its_original_does() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new();
        for _ in 0..400 {
            let _ = bench.try_to(random_command(&mut random));
        }
        let mut copy = Partition::restore(&bench.partition.snapshot()).unwrap();
        for _ in 0..400 {
            let (command, request_id) = (random_command(&mut random), bench.request_id());
            let answer = bench.partition.apply(LogEntry::command(Some(request_id), command.clone(), at(1000))).answer;
            assert_eq!(
                copy.apply(LogEntry::command(Some(request_id), command, at(1000))).answer,
                answer,
                "seed {seed}"
            );
        }
        assert_eq!((copy.bytes(), copy.files()), (bench.partition.bytes(), bench.partition.files()));
        assert!(copy.snapshot() == bench.partition.snapshot(), "seed {seed}");
    }
}

#[test]
fn what_is_counted_is_what_is_there() {
    for seed in 100..120 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new();
        let uncounted = bench.partition.inodes[&ROOT].memory_cost();
        for _ in 0..800 {
            let _ = bench.try_to(random_command(&mut random));
        }
        let inodes: u64 = bench.partition.inodes.values().map(|inode| inode.memory_cost()).sum();
        let deleted: u64 =
            bench.partition.deleted.values().map(|deleted| crate::memory_cost::runs(&deleted.stripes)).sum();
        let reserved: u64 = bench.partition.intents.prepared.values().map(|prepared| prepared.reserved).sum();
        assert_eq!(bench.partition.bytes() + uncounted, inodes + deleted + reserved, "seed {seed}");
    }
}
