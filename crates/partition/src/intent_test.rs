//! Tests of intents in one partition: checks, locks, reservations, effects and decisions.

use crate::{ENTRY_BYTES, INODE_BYTES, LogEntry, Partition, Settings};
use bytes::Bytes;
use placement::{FileId, PartitionId};
use wire::{
    Answer, Command, Decision, DirEntry, DirectoryFragments, ExtentRequest, FoundEntry, InheritedAttributes, Intent,
    Kind, Name, NewInode, NewKind, Object, OpenFlags, OpenedFile, Outcome, Owner, Part, PendingDelete, Refusal,
    RequestId, Session, Timestamp, UnsettledAnswer, WritePlace,
};

const ROOT: FileId = FileId::ROOT;
/// An inode of another partition.
const REMOTE: FileId = FileId::new(PartitionId(9), 1);
const OTHERS: PartitionId = PartitionId(9);

/// A partition with two clients; the second one interferes.
struct Bench {
    partition: Partition,
    numbers: [u64; 2],
}

impl Bench {
    fn new() -> Self {
        let settings = Settings { split_entries: 8, ..Settings::new(7, 8192) };
        Self { partition: Partition::with_root(settings, Owner::default(), 0o755, at(0)), numbers: [0; 2] }
    }

    fn request_id(&mut self, session: u64) -> RequestId {
        let number = &mut self.numbers[usize::try_from(session - 1).unwrap()];
        *number += 1;
        RequestId { session: Session(session), number: *number, settled: *number }
    }

    fn by(&mut self, session: u64, command: Command) -> Outcome<Answer> {
        let request_id = command.is_mutation().then(|| self.request_id(session));
        let (before, most) = (self.partition.bytes(), self.partition.new_bytes_max(&command));
        let answer = self.partition.apply(LogEntry::command(request_id, command, at(5))).answer;
        assert!(self.partition.bytes() <= before + most, "a command adds no more than it said");
        answer
    }

    fn one(&mut self, command: Command) -> Outcome<Answer> {
        self.by(1, command)
    }

    fn other(&mut self, command: Command) -> Outcome<Answer> {
        self.by(2, command)
    }

    fn create(&mut self, parent: FileId, text: &str, kind: NewKind) -> FileId {
        match self.one(create(parent, text, kind)).unwrap() {
            Answer::Opened(OpenedFile { attributes, .. }) => attributes.file,
            other => panic!("{other:?}"),
        }
    }

    fn lookup(&mut self, text: &str) -> Outcome<Answer> {
        self.other(Command::Lookup { parent: ROOT, name: name(text) })
    }
}

fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn create(parent: FileId, text: &str, kind: NewKind) -> Command {
    let inode = NewInode::new(kind, 0o644, Owner::default());
    Command::Create { parent, name: name(text), inode, open: false, extent: ExtentRequest::None }
}

fn intent(number: u64) -> Intent {
    Intent { number, session: Session(1), coordinator: PartitionId(0) }
}

fn put(text: &str, file: FileId) -> Part {
    Part::Entry { directory: ROOT, name: name(text), before: None, after: Some((file, Kind::File)) }
}

fn prepare(number: u64, parts: Vec<Part>) -> Command {
    Command::Prepare { intent: intent(number), parts }
}

fn commit(number: u64, parts: Vec<Part>) -> Command {
    Command::Commit { intent: intent(number), parts, others: vec![OTHERS] }
}

fn settle(number: u64, commit: bool) -> Command {
    Command::Settle { intent: intent(number), commit }
}

fn is_locked(outcome: &Outcome<Answer>, number: u64) -> bool {
    matches!(outcome, Err(Refusal::LockedByIntent { intent: held }) if *held == intent(number))
}

const SETTLED: Outcome<Answer> = Ok(Answer::Settled(Vec::new()));

#[test]
fn what_is_prepared_does_not_show_until_it_is_settled() {
    let mut bench = Bench::new();
    bench.one(prepare(1, vec![put("f", REMOTE)])).unwrap();
    let unsettled =
        Ok(Answer::Unsettled(UnsettledAnswer { intents: vec![intent(1)], answer: Box::new(Answer::NoEntry) }));
    assert_eq!(bench.lookup("f"), unsettled, "what it was, and who may have changed it");
    assert!(is_locked(&bench.other(create(ROOT, "f", NewKind::File)), 1), "nobody else takes the name");
    bench.other(create(ROOT, "g", NewKind::File)).unwrap();
    assert_eq!(bench.one(settle(1, true)), SETTLED);
    let found = Answer::Found(FoundEntry { file: REMOTE, kind: Kind::File, attributes: None });
    assert_eq!(bench.lookup("f"), Ok(found));
    assert_eq!(bench.one(settle(1, true)), SETTLED, "again: nothing more is to be done");
}

#[test]
fn what_is_dropped_leaves_nothing() {
    let mut bench = Bench::new();
    let before = bench.partition.bytes();
    let make = Part::CreateDirectory {
        parent: ROOT,
        inode: NewInode::new(NewKind::Directory, 0o755, Owner::default()),
        inherited: InheritedAttributes::default(),
    };
    let Ok(Answer::Prepared(made)) = bench.one(prepare(1, vec![make, put("f", REMOTE)])) else { panic!() };
    assert_eq!(bench.partition.bytes(), before + INODE_BYTES + ENTRY_BYTES + 1, "it is paid for");
    assert!(is_locked(&bench.other(Command::Stat { file: made[0] }), 1), "an id that may become an inode");
    assert_eq!(bench.other(settle(1, false)), SETTLED, "whoever knows may say so");
    assert_eq!(bench.partition.bytes(), before);
    assert!(matches!(bench.lookup("f"), Err(Refusal::NotFound(_))));
    assert!(matches!(bench.other(Command::Stat { file: made[0] }), Err(Refusal::NotFound(_))));
}

#[test]
fn a_commit_is_done_at_once_and_remembered_until_it_has_ended() {
    let mut bench = Bench::new();
    let status = || Command::Status { intent: intent(1) };
    let decide = || Command::Decide { intent: intent(1) };
    assert_eq!(bench.other(status()), Ok(Answer::Decided(Decision::Open)), "a look decides nothing");
    assert_eq!(bench.one(commit(1, vec![put("f", REMOTE)])), SETTLED);
    assert!(matches!(bench.lookup("f"), Ok(Answer::Found(..))));
    let committed = Ok(Answer::Decided(Decision::Committed { others: vec![OTHERS] }));
    assert_eq!((bench.other(status()), bench.other(decide())), (committed.clone(), committed));
    bench.one(Command::ForgetIntent { intent: intent(1) }).unwrap();
    assert_eq!(bench.other(status()), Ok(Answer::Decided(Decision::Open)));
    assert_eq!(bench.other(Command::ListUnfinished), Ok(Answer::UnfinishedWork(wire::UnfinishedWork::default())));
}

#[test]
fn what_was_decided_against_is_never_done() {
    let mut bench = Bench::new();
    bench.one(prepare(1, vec![Part::MoveLease])).unwrap();
    assert_eq!(bench.other(Command::Decide { intent: intent(1) }), Ok(Answer::Decided(Decision::Aborted)));
    bench
        .other(Command::Prepare { intent: Intent { session: Session(2), ..intent(1) }, parts: vec![Part::MoveLease] })
        .unwrap();
    let late = bench.one(commit(1, vec![put("f", REMOTE)]));
    assert!(matches!(late, Err(Refusal::Stale(_))), "the client was slow: it begins anew");
    assert!(matches!(bench.lookup("f"), Err(Refusal::NotFound(_))));
    assert!(matches!(bench.one(prepare(1, vec![put("f", REMOTE)])), Err(Refusal::Stale(_))));
}

#[test]
fn a_session_that_has_ended_commits_nothing_and_is_forgotten() {
    let mut bench = Bench::new();
    bench.one(prepare(1, vec![put("f", REMOTE)])).unwrap();
    bench.one(commit(2, vec![put("g", REMOTE)])).unwrap();
    bench.other(Command::Decide { intent: intent(3) }).unwrap();
    bench.other(Command::CloseSession { session: Session(1) }).unwrap();
    let Ok(Answer::UnfinishedWork(left)) = bench.other(Command::ListUnfinished) else { panic!() };
    assert_eq!((left.prepared, left.committed), (vec![intent(1)], vec![intent(2)]), "others finish these");
    assert!(bench.partition.intents.decided.len() == 1, "that intent 3 must not be is known from its session's end");
    assert_eq!(bench.other(Command::Decide { intent: intent(1) }), Ok(Answer::Decided(Decision::Aborted)));
    assert_eq!(bench.one(commit(1, Vec::new())), Err(Refusal::SessionEnded), "a message that was on its way");
    bench.other(Command::ForgetIntent { intent: intent(2) }).unwrap();
    assert_eq!(bench.other(Command::ListUnfinished), Ok(Answer::UnfinishedWork(wire::UnfinishedWork::default())));
}

#[test]
fn a_resent_step_is_answered_and_not_done_again() {
    let mut bench = Bench::new();
    let steps = [
        prepare(1, vec![put("f", REMOTE)]),
        commit(1, vec![put("g", REMOTE)]),
        Command::ForgetIntent { intent: intent(1) },
    ];
    for step in steps {
        let request_id = Some(bench.request_id(1));
        let answers =
            [(); 3].map(|()| bench.partition.apply(LogEntry::command(request_id, step.clone(), at(5))).answer);
        assert!(answers[0].is_ok() && answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
    let Ok(Answer::Entries(entries)) = bench.other(Command::List { directory: ROOT, after: 0, max: 10 }) else {
        panic!()
    };
    assert_eq!(entries.len(), 2);
}

#[test]
fn a_part_is_refused_when_something_else_is_there_than_was_looked_at() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File);
    let entry = |was, becomes| Part::Entry { directory: ROOT, name: name("f"), before: was, after: becomes };
    let refused = |bench: &mut Bench, part| bench.one(prepare(1, vec![part])).unwrap_err();
    assert!(matches!(refused(&mut bench, put("f", REMOTE)), Refusal::Exists(_)));
    let other = Some((REMOTE, Kind::File));
    assert!(matches!(refused(&mut bench, entry(other, None)), Refusal::Stale(_)));
    assert!(matches!(refused(&mut bench, Part::DropLink { file: FileId::new(PartitionId(0), 99) }), Refusal::Stale(_)));
    assert!(matches!(refused(&mut bench, Part::AddLink { file: ROOT }), Refusal::NotPermitted(_)), "a directory");
    let intersection = vec![entry(Some((file, Kind::File)), None), put("f", REMOTE)];
    assert!(bench.one(prepare(1, intersection)).is_err());
    bench.other(Command::Unlink { parent: ROOT, name: name("f") }).expect("a part that was refused left no lock");
}

#[test]
fn a_directory_that_is_being_removed_takes_no_entry_and_one_that_takes_an_entry_is_not_removed() {
    let mut bench = Bench::new();
    let directory = bench.create(ROOT, "d", NewKind::Directory);
    let remove = || Part::Remove { directory, fragments: Vec::new() };
    bench.one(prepare(1, vec![remove()])).unwrap();
    assert!(is_locked(&bench.other(create(directory, "f", NewKind::File)), 1));
    assert!(is_locked(&bench.other(Command::RemoveDirectory { parent: ROOT, name: name("d") }), 1));
    bench.one(settle(1, false)).unwrap();
    let enter = Part::Entry { directory, name: name("f"), before: None, after: Some((REMOTE, Kind::File)) };
    bench.one(prepare(2, vec![enter])).unwrap();
    assert!(is_locked(&bench.other(Command::RemoveDirectory { parent: ROOT, name: name("d") }), 2));
    assert!(is_locked(&bench.other(prepare(3, vec![remove()])), 2));
    bench.one(settle(2, true)).unwrap();
    assert!(matches!(bench.other(prepare(3, vec![remove()])), Err(Refusal::NotEmpty(_))));
}

#[test]
fn parts_of_which_one_takes_away_what_the_other_needs_are_refused_together() {
    let change = wire::Changes { mode: Some(0o700), ..wire::Changes::default() };
    for intersection in 0..6 {
        let mut bench = Bench::new();
        let directory = bench.create(ROOT, "d", NewKind::Directory);
        let file = bench.create(ROOT, "f", NewKind::File);
        let remove = Part::Remove { directory, fragments: Vec::new() };
        let (value, name_of) = (Some("here".into()), wire::PLACEMENT);
        let parts = match intersection {
            0 => [remove, Part::Change { directory, changes: change }],
            1 => [remove, Part::Xattr { directory, name: name_of.into(), value, kill_set_group_id: false }],
            2 => [remove, Part::Entry { directory, name: name("x"), before: None, after: Some((REMOTE, Kind::File)) }],
            3 => [Part::DropLink { file }, Part::AddLink { file }],
            4 => [Part::DropLink { file }, Part::DropLink { file }],
            _ => [Part::DropLink { file: directory }, Part::Change { directory, changes: change }],
        };
        let mut turned = parts.clone();
        turned.reverse();
        for parts in [&parts, &turned] {
            let refused = bench.one(commit(1, parts.to_vec()));
            assert!(matches!(refused, Err(Refusal::Invalid { .. })), "{intersection}: {refused:?}");
        }
        let [first, second] = turned;
        bench.one(prepare(2, vec![first])).unwrap();
        let refused = bench.one(commit(2, vec![second]));
        assert!(
            matches!(refused, Err(Refusal::Invalid { .. })),
            "one after the other too: {intersection}: {refused:?}"
        );
        bench.one(settle(2, false)).unwrap();
        assert!(
            matches!(bench.lookup("d"), Ok(Answer::Found(..))) && matches!(bench.lookup("f"), Ok(Answer::Found(..)))
        );
    }
}

#[test]
fn attributes_of_all_parts_of_a_directory_are_set_whatever_came_between_or_refused_before() {
    let mut bench = Bench::new();
    let directory = bench.create(ROOT, "d", NewKind::Directory);
    let part = |name: &'static [u8], value: Option<Bytes>| Part::Xattr {
        directory,
        name: name.into(),
        value,
        kill_set_group_id: false,
    };
    bench.one(prepare(1, vec![part(wire::PLACEMENT, Some("here".into()))])).unwrap();
    let plain = |number: u32| Command::SetXattr {
        file: directory,
        name: format!("user.{number:0250}").into(),
        value: Bytes::new(),
        mode: wire::XattrMode::Set,
        kill_set_group_id: false,
    };
    assert_eq!(
        (0..1000).take_while(|number| bench.other(plain(*number)).is_ok()).count(),
        256,
        "no name more is listed"
    );
    assert_eq!(bench.one(settle(1, true)), SETTLED, "what was prepared is done");
    bench.one(commit(2, vec![part(wire::STRIPE_SIZE, None)])).unwrap();
    // Longer than a value may be, and valid otherwise: an owner, users, a group, a mask and the
    // others.
    let entry = |(tag, id): (u8, u32)| [&[tag, 0, 6, 0][..], &id.to_le_bytes()].concat();
    let users = (0..9000).map(|id| (2, id));
    let entries = [(1, u32::MAX)].into_iter().chain(users).chain([4, 0x10, 0x20].map(|tag| (tag, u32::MAX)));
    let acl = [vec![2, 0, 0, 0], entries.flat_map(entry).collect()].concat();
    let refused = bench.one(commit(3, vec![part(wire::ACL_DEFAULT, Some(acl.into()))]));
    assert!(matches!(refused, Err(Refusal::AttributeTooLong { .. })), "{refused:?}");
}

#[test]
fn an_inode_that_may_get_a_name_outlives_its_last_close() {
    for commit in [true, false] {
        let mut bench = Bench::new();
        let inode = NewInode::new(NewKind::File, 0o600, Owner::default());
        let unnamed = bench.one(Command::CreateTmpfile { parent: ROOT, name: None, inode, linkable: true });
        let Ok(Answer::Opened(OpenedFile { attributes, .. })) = unnamed else { panic!() };
        let file = attributes.file;
        bench.one(prepare(1, vec![Part::AddLink { file }])).unwrap();
        bench.one(Command::Close { file }).unwrap();
        bench.one(settle(1, commit)).unwrap();
        let found = bench.other(Command::Stat { file });
        assert_eq!(found.is_ok(), commit, "{found:?}");
    }
}

#[test]
fn the_last_name_that_an_intent_takes_gives_the_stripes_to_whoever_settles() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File);
    let write = Command::Write { file, place: WritePlace::At(0), length: 9000, data: Bytes::new(), kill_set_id: false };
    bench.one(write).unwrap();
    bench.one(prepare(1, vec![Part::DropLink { file }])).unwrap();
    let Ok(Answer::Settled(deleted)) = bench.other(settle(1, true)) else { panic!() };
    assert!(matches!(&deleted[..], [PendingDelete { file: removed, .. }] if *removed == file), "{deleted:?}");
    let Ok(Answer::UnfinishedWork(left)) = bench.other(Command::ListUnfinished) else { panic!() };
    assert_eq!(left.deleted, deleted, "and is remembered until the stripes are removed");
}

#[test]
fn an_inode_has_at_most_65000_names() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File);
    bench.partition.inodes.get_mut(&file).unwrap().names = 64_999;
    let link = |text: &str| Command::Link { file, parent: ROOT, name: name(text) };
    bench.one(link("g")).unwrap();
    assert!(matches!(bench.one(link("h")), Err(Refusal::TooManyLinks { limit: 65_000, .. })));
    assert!(matches!(bench.one(prepare(1, vec![Part::AddLink { file }])), Err(Refusal::TooManyLinks { .. })));
    bench.one(Command::Unlink { parent: ROOT, name: name("f") }).unwrap();
    bench.one(link("h")).unwrap();
}

#[test]
fn a_link_needs_a_file_with_a_name() {
    let mut bench = Bench::new();
    let (file, directory) = (bench.create(ROOT, "f", NewKind::File), bench.create(ROOT, "d", NewKind::Directory));
    let link = |file, text: &str| Command::Link { file, parent: ROOT, name: name(text) };
    assert!(matches!(bench.one(link(directory, "e")), Err(Refusal::NotPermitted(_))));
    assert!(matches!(bench.one(link(file, "d")), Err(Refusal::Exists(_))));
    bench.one(Command::Open { file, flags: OpenFlags::READ, extent: ExtentRequest::None }).unwrap();
    bench.one(Command::Unlink { parent: ROOT, name: name("f") }).unwrap();
    assert_eq!(
        bench.one(link(file, "g")),
        Err(Refusal::NotFound(Object::File(file))),
        "it was removed, though it is open"
    );
}

#[test]
fn a_full_directory_is_split_before_it_takes_one_more() {
    let mut bench = Bench::new();
    for number in 0..7 {
        bench.create(ROOT, &format!("n{number}"), NewKind::File);
    }
    bench.one(prepare(1, vec![put("f", REMOTE)])).unwrap();
    let full = Err(Refusal::Split { directory: ROOT, bits: 0 });
    assert_eq!(bench.other(create(ROOT, "g", NewKind::File)), full, "the entry that may come counts");
    assert!(is_locked(&bench.other(prepare(2, vec![Part::LockEntries { directory: ROOT }])), 1));
    bench.one(settle(1, true)).unwrap();
    bench.other(create(ROOT, "n0", NewKind::File)).expect_err("a name that is there");
    bench.one(prepare(3, vec![Part::LockEntries { directory: ROOT }])).unwrap();
    assert!(is_locked(&bench.other(Command::Unlink { parent: ROOT, name: name("n0") }), 3));
    assert!(matches!(bench.lookup("n0"), Ok(Answer::Found(..))), "looking goes on");
    let fragments: Vec<FileId> = (1..=16).map(|number| FileId::new(OTHERS, number)).collect();
    bench.one(commit(3, vec![Part::Split { directory: ROOT, fragments: fragments.clone() }])).unwrap();
    let split = Refusal::Split { directory: ROOT, bits: 4 };
    assert_eq!(bench.lookup("n0"), Err(split.clone()));
    assert_eq!(bench.other(Command::Stat { file: ROOT }), Err(split.clone()));
    assert_eq!(bench.other(Command::List { directory: ROOT, after: 0, max: 1 }), Err(split));
    let Ok(Answer::Fragments(DirectoryFragments { fragments: listed, .. })) =
        bench.other(Command::Fragments { directory: ROOT })
    else {
        panic!()
    };
    assert_eq!(listed, fragments);
}

#[test]
fn a_fragment_has_the_entries_of_its_directory_under_their_cookies() {
    let mut bench = Bench::new();
    bench.create(ROOT, "a", NewKind::File);
    let Ok(Answer::Entries(entries)) = bench.one(Command::List { directory: ROOT, after: 0, max: 10 }) else {
        panic!()
    };
    let inode = NewInode::new(NewKind::Directory, 0o2755, Owner { uid: 1, gid: 77 });
    let fragment = Part::Fragment { directory: REMOTE, inode, entries: entries.clone() };
    let Ok(Answer::Prepared(made)) = bench.one(prepare(1, vec![fragment])) else { panic!() };
    bench.one(settle(1, true)).unwrap();
    let listed: Vec<DirEntry> = match bench.other(Command::List { directory: made[0], after: 0, max: 10 }) {
        Ok(Answer::Entries(entries)) => entries,
        other => panic!("{other:?}"),
    };
    assert_eq!(listed, entries);
    for number in 0..20 {
        bench.create(made[0], &format!("n{number}"), NewKind::File);
    }
    let inner = bench.create(made[0], "d", NewKind::Directory);
    assert_eq!(bench.other(Command::Parent { directory: inner }), Ok(Answer::Parent(REMOTE)));
    let Ok(Answer::Attributes(found)) = bench.other(Command::Stat { file: inner }) else { panic!() };
    assert_eq!((found.owner.gid, found.mode & 0o2000), (77, 0o2000), "it hands down what its directory does");
}
