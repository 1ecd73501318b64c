//! Tests of cache grants, command by command.

use crate::{CommandCaller, EntryBody, LogEntry, Partition, Settings, SubscriberId, SubscriberIds, UnlinkedDecisions};
use bytes::Bytes;
use placement::{FileId, Layout, NodeId};
use wire::{
    Answer, Attributes, Changes, Command, Extent, ExtentRequest, Name, NewInode, NewKind, OpenFlags, OpenedFile,
    Outcome, Owner, Recall, Refusal, RequestId, Session, StripedWrite, Timestamp, WritePlace, XattrMode,
};

const ROOT: FileId = FileId::ROOT;

/// A partition and its subscribers: session 1 is subscriber 0, and so on. Session 0 is not
/// subscribed.
pub struct Bench {
    pub partition: Partition,
    subscribers: usize,
    /// Subscribers whose kernels support prune notices.
    pub pruning: SubscriberIds,
    numbers: [u64; 4],
}

pub fn subscriber(session: u64) -> Option<SubscriberId> {
    SubscriberId::new(usize::try_from(session).unwrap().checked_sub(1)?)
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

impl Bench {
    pub fn new(subscribers: usize) -> Self {
        let partition =
            Partition::with_root(Settings::new(7, 8192), Owner::default(), 0o755, Timestamp { secs: 1, nanos: 0 });
        Self { partition, subscribers, pruning: SubscriberIds::NONE, numbers: [0; 4] }
    }

    fn caller(&self, session: u64) -> CommandCaller {
        let subscriber = subscriber(session);
        let all = (0..self.subscribers).filter_map(SubscriberId::new).fold(SubscriberIds::NONE, SubscriberIds::with);
        let others = subscriber.map_or(all, |own| all.without(own));
        CommandCaller { session: Session(session), subscriber, others, pruning: self.pruning }
    }

    /// Executes a command for a session; returns the answer and the invalidations by session.
    pub fn apply(&mut self, session: u64, command: Command) -> (Outcome<Answer>, Vec<(u64, Recall)>) {
        let caller = self.caller(session);
        let number = &mut self.numbers[usize::try_from(session).unwrap()];
        *number += 1;
        let request_id = RequestId { session: Session(session), number: *number, settled: *number };
        let request_id = command.is_mutation().then_some(request_id);
        let now = Timestamp { secs: 9, nanos: 0 };
        let (applied, invalidations) = self.partition.serve(caller, request_id, command, now);
        let answer = applied.answer;
        let by_session = |invalidation: &crate::Invalidation| {
            let recall = invalidation.recall;
            invalidation
                .notify
                .iter()
                .map(move |subscriber| (subscriber.number() as u64 + 1, recall))
                .collect::<Vec<_>>()
        };
        (answer, invalidations.iter().flat_map(by_session).collect())
    }

    pub fn invalidated_by(&mut self, session: u64, command: Command) -> Vec<(u64, Recall)> {
        let (answer, invalidations) = self.apply(session, command);
        answer.unwrap();
        invalidations
    }

    pub fn create(&mut self, session: u64, text: &str) -> Attributes {
        let inode = NewInode::new(NewKind::File, 0o644, Owner::default());
        let (parent, name) = (ROOT, name(text));
        let (answer, _) =
            self.apply(session, Command::Create { parent, name, inode, open: false, extent: ExtentRequest::None });
        let Ok(Answer::Opened(OpenedFile { attributes, .. })) = answer else { panic!("{answer:?}") };
        attributes
    }

    pub fn stat(&mut self, session: u64, file: FileId) -> Attributes {
        match self.apply(session, Command::Stat { file }).0 {
            Ok(Answer::Attributes(attributes)) => attributes,
            other => panic!("{other:?}"),
        }
    }
}

pub fn find(text: &str) -> Command {
    Command::Lookup { parent: ROOT, name: name(text) }
}

fn write(file: FileId) -> Command {
    let data = Bytes::from_static(b"bytes");
    Command::Write { file, place: WritePlace::At(0), length: 5, data, kill_set_id: false }
}

fn mode(file: FileId, mode: u32) -> Command {
    Command::Change { file, changes: Changes { mode: Some(mode), ..Changes::default() } }
}

#[test]
fn an_answer_grants_what_it_shows_and_a_change_by_another_takes_that_back_once() {
    let mut bench = Bench::new(2);
    let file = bench.create(0, "f").file;
    assert!(bench.stat(1, file).cacheable);
    assert!(!bench.stat(0, file).cacheable, "it does not watch");
    assert_eq!(bench.invalidated_by(2, mode(file, 0o600)), [(1, Recall::Attributes(file))]);
    assert_eq!(bench.invalidated_by(2, mode(file, 0o644)), [], "it was invalidated already");
    bench.stat(1, file);
    assert_eq!(bench.invalidated_by(0, mode(file, 0o600)), [(1, Recall::Attributes(file))], "whoever changes it");
}

#[test]
fn a_change_does_not_invalidate_its_own_kernel() {
    let mut bench = Bench::new(1);
    let file = bench.create(1, "f");
    assert!(file.cacheable);
    for command in
        [find("f"), write(file.file), mode(file.file, 0o600), Command::Unlink { parent: ROOT, name: name("f") }]
    {
        assert_eq!(bench.invalidated_by(1, command), []);
    }
}

#[test]
fn names_and_their_absence_are_granted_with_the_directory() {
    let mut bench = Bench::new(2);
    assert!(matches!(bench.apply(1, find("f")).0, Err(Refusal::NotFound(_))));
    let inode = NewInode::new(NewKind::File, 0o644, Owner::default());
    let create = Command::Create { parent: ROOT, name: name("f"), inode, open: false, extent: ExtentRequest::None };
    assert_eq!(bench.invalidated_by(2, create), [(1, Recall::Names(ROOT))]);
    bench.invalidated_by(1, Command::List { directory: ROOT, after: 0, max: 10 });
    let invalidations = bench.invalidated_by(0, Command::Unlink { parent: ROOT, name: name("f") });
    assert!(
        invalidations.contains(&(1, Recall::Names(ROOT))) && invalidations.contains(&(2, Recall::Names(ROOT))),
        "its maker too"
    );
}

#[test]
fn bytes_are_granted_to_who_read_or_wrote_them() {
    let mut bench = Bench::new(3);
    let file = bench.create(0, "f").file;
    bench.invalidated_by(1, Command::Read { file, offset: 0, length: 10 });
    assert_eq!(bench.invalidated_by(2, write(file)), [(1, Recall::Bytes(file))]);
    let invalidations = bench.invalidated_by(3, write(file));
    assert_eq!(invalidations, [(2, Recall::Bytes(file))], "an invalidation is not sent again, and a writer has pages");
    let size = Some(1);
    assert_eq!(
        bench.invalidated_by(0, Command::Change { file, changes: Changes { size, ..Changes::default() } }),
        [(3, Recall::Bytes(file))]
    );
}

#[test]
fn a_striped_write_is_published_in_any_case_while_others_are_subscribed() {
    for (subscribers, published) in [(1, 9000), (2, 0)] {
        let mut bench = Bench::new(subscribers);
        let file = bench.create(1, "f").file;
        let long =
            || Command::Write { file, place: WritePlace::At(0), length: 9000, data: Bytes::new(), kill_set_id: false };
        bench.invalidated_by(1, long());
        bench.invalidated_by(1, Command::PublishSize { file, generation: 0, end: 9000 });
        let (answer, _) = bench.apply(1, long());
        assert_eq!(
            answer,
            Ok(Answer::Stripes(StripedWrite {
                offset: 0,
                generation: 0,
                size: published,
                layout: Layout::striped(8192)
            }))
        );
    }
}

#[test]
fn access_rules_are_invalidated_even_when_stat_shows_no_change() {
    let mut bench = Bench::new(2);
    let file = bench.create(0, "f").file;
    let set = |value: &'static [u8]| Command::SetXattr {
        file,
        name: Bytes::from_static(b"user.x"),
        value: Bytes::from_static(value),
        mode: XattrMode::Set,
        kill_set_group_id: false,
    };
    bench.invalidated_by(2, set(b"1"));
    bench.stat(1, file);
    assert_eq!(bench.invalidated_by(2, set(b"2")), [(1, Recall::Attributes(file))], "in the same tick of the clock");
}

#[test]
fn opening_and_closing_invalidate_nothing() {
    let mut bench = Bench::new(2);
    let file = bench.create(0, "f").file;
    bench.stat(1, file);
    let flags = OpenFlags::READ_WRITE;
    let (opened, invalidations) = bench.apply(2, Command::Open { file, flags, extent: ExtentRequest::None });
    assert!(matches!(opened, Ok(Answer::Opened(OpenedFile { shared: false, .. }))));
    assert_eq!(invalidations, []);
    let (opened, _) = bench.apply(1, Command::Open { file, flags, extent: ExtentRequest::None });
    assert!(
        matches!(opened, Ok(Answer::Opened(OpenedFile { shared: true, .. }))),
        "another has it open: keep no bytes"
    );
    assert_eq!(bench.invalidated_by(2, Command::Close { file }), []);
}

#[test]
fn attributes_of_a_file_that_another_has_open_do_not_last() {
    let mut bench = Bench::new(2);
    let file = bench.create(0, "f").file;
    bench.invalidated_by(1, Command::Open { file, flags: OpenFlags::READ_WRITE, extent: ExtentRequest::None });
    assert!(bench.stat(1, file).cacheable && !bench.stat(2, file).cacheable);
    bench.invalidated_by(1, Command::Close { file });
    assert!(bench.stat(2, file).cacheable);
}

#[test]
fn a_resent_creation_grants_nothing_that_was_recalled_since() {
    let mut bench = Bench::new(2);
    let inode = NewInode::new(NewKind::File, 0o644, Owner::default());
    let create = Command::Create { parent: ROOT, name: name("f"), inode, open: false, extent: ExtentRequest::None };
    let (answer, _) = bench.apply(1, create.clone());
    let Ok(Answer::Opened(OpenedFile { attributes, .. })) = answer else { panic!("{answer:?}") };
    bench.invalidated_by(2, mode(attributes.file, 0o600));
    bench.numbers[1] -= 1;
    let (answer, _) = bench.apply(1, create);
    assert!(
        matches!(answer, Ok(Answer::Opened(OpenedFile { attributes, .. })) if !attributes.cacheable && attributes.mode == 0o644)
    );
}

#[test]
fn a_snapshot_has_the_inodes_that_are_kept_for_kernels_and_no_grants() {
    let mut bench = Bench::new(2);
    let (file, kept) = (bench.create(2, "f").file, bench.create(1, "kept").file);
    bench.stat(1, file);
    bench.invalidated_by(1, Command::Unlink { parent: ROOT, name: name("kept") });
    let files = bench.partition.files();
    bench.partition = Partition::restore(&bench.partition.snapshot()).unwrap();
    assert_eq!(bench.invalidated_by(2, mode(file, 0o600)), []);
    assert_eq!(bench.partition.files(), files);
    assert!(bench.apply(1, Command::Stat { file: kept }).0.is_err(), "no kernel is known to know it");
    let command = EntryBody::Command(Command::ForgetInode { file: kept });
    let unlinked = UnlinkedDecisions { released: vec![kept], ..UnlinkedDecisions::default() };
    let entry = LogEntry { request_id: None, body: command, now: Timestamp::default(), unlinked };
    assert!(bench.partition.apply(entry).is_durable);
    assert_eq!(bench.partition.files(), files - 1, "it went with the last kernel that knew it");
}

#[test]
fn a_number_that_is_given_again_inherits_nothing() {
    let mut bench = Bench::new(1);
    let file = bench.create(1, "f").file;
    bench.partition.remove_subscriber(subscriber(1).unwrap());
    assert_eq!(bench.invalidated_by(0, mode(file, 0o600)), []);
    bench.invalidated_by(1, Command::Unlink { parent: ROOT, name: name("f") });
    assert!(bench.apply(1, Command::Stat { file }).0.is_err(), "its kernel did not know it: it is not kept");
}

/// Creates an extent file, open for a session.
fn extent_file_open_by(bench: &mut Bench, session: u64, text: &str) -> Attributes {
    let inode = NewInode::new(NewKind::File, 0o644, Owner::default());
    let extent = Extent { node: NodeId(1), slot: 3, generation: 1 };
    let (parent, name) = (ROOT, name(text));
    let made = Command::Create { parent, name, inode, open: true, extent: ExtentRequest::Allocated(extent) };
    let (answer, _) = bench.apply(session, made);
    let Ok(Answer::Opened(OpenedFile { attributes, .. })) = answer else { panic!("{answer:?}") };
    attributes
}

#[test]
fn only_the_kernel_that_alone_has_an_extent_file_open_keeps_its_attributes() {
    let mut bench = Bench::new(2);
    let made = extent_file_open_by(&mut bench, 1, "f");
    let file = made.file;
    assert!(made.cacheable && bench.stat(1, file).cacheable, "it notices what it reads and writes itself");
    assert!(!bench.stat(2, file).cacheable, "this one would not");
    let open = |flags| Command::Open { file, flags, extent: ExtentRequest::None };
    assert_eq!(
        bench.invalidated_by(2, open(OpenFlags::READ)),
        [(1, Recall::Attributes(file))],
        "a read moves a time unseen"
    );
    assert!(!bench.stat(1, file).cacheable && !bench.stat(2, file).cacheable);
    bench.invalidated_by(2, Command::Close { file });
    assert!(bench.stat(1, file).cacheable);
    bench.invalidated_by(1, Command::Close { file });
    assert!(bench.stat(1, file).cacheable && bench.stat(2, file).cacheable, "nobody has it open");
    let mut invalidations = bench.invalidated_by(2, open(OpenFlags::WRITE));
    invalidations.dedup();
    assert!(invalidations.contains(&(1, Recall::Attributes(file))), "{invalidations:?}");
}
