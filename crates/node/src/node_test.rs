//! Tests of a node, request by request.

use crate::{Node, NodeSettings, embedded, partitions::PartitionGuard};
use bytes::Bytes;
use placement::{Epoch, FileId, Layout, NodeId, PartitionEntry, PartitionId, PartitionMap, StripeNo};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use store::ModelEngine;
use wire::{
    AllocateMode, Answer, Body, Command, Extent, ExtentAction, ExtentRequest, ExtentWrite, Failure, Intent, Lock,
    LockKind, LockOwner, LockStyle, Name, NewInode, NewKind, OpenFlags, OpenedFile, Owner, Part, Refusal, Request,
    RequestId, Session, StripeAction, WalkAction, WritePlace,
};

const STRIPE: u32 = 4096;

fn node() -> Arc<Node> {
    let settings = NodeSettings { partitions: 64, stripe_bytes: STRIPE, ..NodeSettings::default() };
    embedded(settings, Arc::new(ModelEngine::new(1 << 20, STRIPE)))
}

fn ask(node: &Arc<Node>, epoch: Epoch, partition: u16, body: Body) -> Result<Answer, Failure> {
    let mut reply =
        node.handle(Request { epoch, session: Session(1), skip_ack: false, partition: PartitionId(partition), body });
    match Pin::new(&mut reply).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it has no reason to wait"),
    }
}

fn stat_root() -> Body {
    Body::Meta { request_id: None, command: Command::Stat { file: FileId::ROOT } }
}

fn stripe(action: StripeAction) -> Body {
    Body::Stripe { file: FileId(9), stripe: StripeNo(0), action }
}

/// The entry of a partition by which the node refuses a request.
fn learned(answer: Result<Answer, Failure>) -> PartitionEntry {
    match answer {
        Err(Failure::Refused(Refusal::Moved(moved))) => moved.entry,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_by_an_old_entry_is_answered_with_the_new_one_and_those_of_other_partitions_are_done() {
    let node = node();
    let stat = |partition| Body::Meta {
        request_id: None,
        command: Command::Stat { file: FileId::new(PartitionId(partition), 1) },
    };
    assert!(ask(&node, Epoch::FIRST, 0, stat(0)).is_ok());
    let renewed = PartitionEntry::first(node.id()).moved(node.id());
    node.learn(PartitionId(0), &renewed);
    assert_eq!(learned(ask(&node, Epoch::FIRST, 0, stat(0))), renewed);
    assert!(ask(&node, renewed.epoch, 0, stat(0)).is_ok());
    let other = ask(&node, Epoch::FIRST, 1, stat(1));
    assert!(matches!(other, Err(Failure::Refused(Refusal::NotFound(_)))), "its entry is the same: {other:?}");
}

#[test]
fn a_request_by_an_entry_that_the_node_does_not_know_waits_until_it_does() {
    let node = node();
    let renewed = PartitionEntry::first(node.id()).moved(node.id());
    let (session, body) = (Session::NONE, stat_root());
    let request = Request { epoch: renewed.epoch, session, skip_ack: false, partition: PartitionId(0), body };
    let mut reply = node.handle(request);
    let mut poll = || Pin::new(&mut reply).poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    node.learn(PartitionId(1), &PartitionEntry::first(node.id()).moved(node.id()));
    assert!(poll().is_pending(), "the entry of another partition");
    node.learn(PartitionId(0), &renewed);
    assert!(matches!(poll(), Poll::Ready(Ok(Answer::Attributes(_)))));
}

fn hello(node: &Arc<Node>, session: Session) -> Result<Answer, Failure> {
    let (epoch, partition) = (Epoch(0), PartitionId(0));
    let mut reply = node.handle(Request { epoch, session, skip_ack: false, partition, body: Body::Hello });
    match Pin::new(&mut reply).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it has no reason to wait"),
    }
}

fn welcomed(node: &Arc<Node>, session: Session) -> (NodeId, Session) {
    match hello(node, session) {
        Ok(Answer::Hello(welcome)) => (welcome.node, welcome.session),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_hello_starts_another_session() {
    let node = node();
    assert_ne!(welcomed(&node, Session::NONE), welcomed(&node, Session::NONE));
}

/// The two nodes of a pool: the first has the even partitions.
fn two_nodes() -> [Arc<Node>; 2] {
    let settings = NodeSettings { partitions: 64, stripe_bytes: STRIPE, ..NodeSettings::default() };
    let ids = [NodeId(1), NodeId(40_000)];
    let map = PartitionMap::proportional(&ids.map(|id| (id, 1)), 64).unwrap();
    ids.map(|id| Node::in_pool(id, map.clone(), settings.clone(), Arc::new(ModelEngine::new(1 << 20, STRIPE))))
}

#[test]
fn a_node_answers_for_its_partitions_alone_and_says_whose_the_others_are() {
    let [one, other] = two_nodes();
    assert!(ask(&one, Epoch::FIRST, 0, stat_root()).is_ok());
    assert_eq!(other.usage().files, 0, "the root is where the first partition is");
    let read = || stripe(StripeAction::Read { offset: 0, length: 1 });
    assert_eq!(ask(&other, Epoch::FIRST, 1, read()), Ok(Answer::Bytes(Bytes::new())));
    for body in [stat_root(), read()] {
        let refused = ask(&other, Epoch::FIRST, 0, body);
        let shown = refused.as_ref().unwrap_err().to_string();
        assert!(shown.contains("node 1 serves partition 0, as of epoch 1"), "{shown}");
        assert_eq!(learned(refused), PartitionEntry::first(NodeId(1)));
    }
}

#[test]
fn no_two_nodes_give_the_same_session_and_one_that_is_known_stays_the_same() {
    let [one, other] = two_nodes();
    let (first, second) = (welcomed(&one, Session::NONE).1, welcomed(&other, Session::NONE).1);
    assert_ne!(first, second);
    assert_eq!(welcomed(&other, first), (NodeId(40_000), first));
    let earlier = Session::new(NodeId(40_000), 1).unwrap(); // from before the node was started
    for made_up in [Session(1), Session(second.0 + 1), earlier] {
        let refused = hello(&other, made_up);
        assert!(matches!(refused, Err(Failure::Refused(Refusal::Invalid { .. }))), "{made_up:?}: {refused:?}");
    }
}

#[test]
fn a_made_up_partition_or_range_is_refused() {
    let node = node();
    let refused = ask(&node, Epoch::FIRST, 64, stat_root());
    assert!(matches!(refused, Err(Failure::Refused(Refusal::Invalid { .. }))), "{refused:?}");
    let data = Bytes::from_static(&[0; 10]);
    let long = StripeAction::Write { generation: 0, offset: STRIPE - 1, ends: false, data };
    let refused = ask(&node, Epoch::FIRST, 0, stripe(long));
    assert!(matches!(refused, Err(Failure::Refused(Refusal::TooLarge { .. }))), "{refused:?}");
}

#[test]
fn more_stripes_than_the_pool_can_ever_hold_are_neither_reserved_nor_allocated() {
    let node = node();
    let change = |number, command| {
        let request_id = Some(RequestId { session: Session(1), number, settled: 1 });
        ask(&node, Epoch::FIRST, 0, Body::Meta { request_id, command })
    };
    let file = FileId::ROOT; // the command is refused before the file is looked at
    let allocate = |mode| Command::Allocate { file, offset: 0, length: 1 << 60, mode };
    for (number, command) in [
        (1, Command::Reserve { count: 1, stripes: 1 << 40, layout: Layout::striped(STRIPE), policy: None }),
        (2, Command::Reserve { count: 1, stripes: u64::MAX, layout: Layout::striped(STRIPE), policy: None }),
        (3, allocate(AllocateMode::Extend)),
        (4, allocate(AllocateMode::KeepSize)),
    ] {
        let refused = change(number, command);
        assert!(matches!(refused, Err(Failure::Refused(Refusal::NoSpace(_)))), "{refused:?}");
    }
    let stripes = node.settings().memory.0 / u64::from(STRIPE);
    let fits = Command::Reserve { count: 1, stripes, layout: Layout::striped(STRIPE), policy: None };
    assert!(matches!(change(5, fits), Ok(Answer::Reserved(_))));
}

#[test]
fn of_a_file_that_is_here_only_planned_stripes_are_written_and_what_belongs_to_none_goes_with_its_session() {
    let node = node();
    let write = |file, stripe| {
        let action = StripeAction::Write { generation: 0, offset: 0, ends: false, data: Bytes::from_static(b"x") };
        ask(&node, Epoch::FIRST, 0, Body::Stripe { file, stripe: StripeNo(stripe), action })
    };
    let stale = |answer| matches!(answer, Err(Failure::Refused(Refusal::Stale(_))));
    assert!(stale(write(FileId::ROOT, 0)), "a directory has none");
    assert!(write(FileId(9), u64::MAX).is_err());
    let request_id = Some(RequestId { session: Session(1), number: 1, settled: 1 });
    let layout = Layout::striped(STRIPE);
    let reserve = Body::Meta { request_id, command: Command::Reserve { count: 1, stripes: 2, layout, policy: None } };
    let Ok(Answer::Reserved(reserved)) = ask(&node, Epoch::FIRST, 0, reserve) else { panic!("not reserved") };
    for (file, stripe) in [(reserved[0], 1), (reserved[0], 2), (FileId(9), 1 << 40), (FileId(9), 0)] {
        assert_eq!(write(file, stripe), Ok(Answer::Done));
    }
    assert_eq!(node.usage().stripes, 4);
    node.end_session(Session(1));
    assert_eq!(node.remote_stray_files(Session(1)), []);
    assert_eq!(node.usage().stripes, 1, "what was reserved is its partition's to remove");
}

#[test]
fn a_stripe_that_was_written_while_its_file_was_asked_about_stays_and_is_asked_about_again() {
    let [node, _] = two_nodes();
    let file = FileId::new(PartitionId(1), 5);
    let write = |session, stripe| {
        let action = StripeAction::Write { generation: 0, offset: 0, ends: false, data: Bytes::from_static(b"x") };
        let body = Body::Stripe { file, stripe: StripeNo(stripe), action };
        let (epoch, session, partition) = (Epoch::FIRST, Session(session), PartitionId(0));
        let mut reply = node.handle(Request { epoch, session, skip_ack: false, partition, body });
        let answer = Pin::new(&mut reply).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(answer, Poll::Ready(Ok(Answer::Done)));
    };
    let question = |session| {
        assert_eq!(node.remote_stray_files(Session(session)), [file]);
        node.stray_query(Session(session), file).unwrap()
    };
    (0..3).for_each(|stripe| write(1, stripe));
    let first = question(1);
    assert_eq!(first.stripes.iter().collect::<Vec<_>>(), [0, 1, 2]);
    write(2, 1);
    let second = question(2);
    let all = first.stripes.clone();
    node.remove_strays(&first, &all);
    assert_eq!(node.usage().stripes, 1, "who wrote it since may have planned it");
    node.remove_strays(&second, &all);
    assert_eq!(node.usage().stripes, 0, "of what others wrote nothing was said");
    assert_eq!(node.remote_stray_files(Session(1)), []);
    write(3, 0);
    node.end_stray_query(&question(3));
    assert_eq!((node.usage().stripes, node.remote_stray_files(Session(3))), (1, Vec::new()));
}

#[test]
fn sessions_of_which_much_is_noted_are_looked_through_and_what_their_files_have_is_noted_no_more() {
    let [node, _] = two_nodes();
    let file = FileId::new(PartitionId(1), 5);
    for stripe in 0..1025 {
        let action = StripeAction::Truncate { generation: 1, length: 0 };
        let body = Body::Stripe { file, stripe: StripeNo(2 * stripe), action };
        assert_eq!(ask(&node, Epoch::FIRST, 0, body), Ok(Answer::Done));
        assert_eq!(node.sessions_with_due_strays().len(), usize::from(stripe == 1024));
    }
    assert_eq!(node.remote_stray_files(Session(1)), [file]);
    let question = node.stray_query(Session(1), file).unwrap();
    node.remove_strays(&question, &wire::StripeRuns::new());
    assert_eq!(node.sessions_with_due_strays(), []);
    assert_eq!(node.remote_stray_files(Session(1)), []);
}

#[test]
fn a_late_write_of_a_truncated_stripe_is_refused() {
    let node = node();
    let write = |generation| {
        let data = Bytes::from_static(b"x");
        ask(&node, Epoch::FIRST, 0, stripe(StripeAction::Write { generation, offset: 0, ends: false, data }))
    };
    assert_eq!(write(1), Ok(Answer::Done));
    assert_eq!(
        ask(&node, Epoch::FIRST, 0, stripe(StripeAction::Truncate { generation: 2, length: 0 })),
        Ok(Answer::Done)
    );
    assert!(matches!(write(1), Err(Failure::Refused(Refusal::Stale(_)))));
    assert_eq!(write(2), Ok(Answer::Done));
}

#[test]
fn a_reserved_file_is_filled_no_more_once_its_session_has_ended_in_any_partition() {
    let node = node();
    let fill = || {
        let data = Bytes::from_static(b"x");
        ask(&node, Epoch::FIRST, 0, stripe(StripeAction::Fill { data }))
    };
    assert_eq!(fill(), Ok(Answer::Done));
    let session = Session(1);
    let request_id = Some(RequestId { session, number: 1, settled: 1 });
    let closed = Body::Meta { request_id, command: Command::CloseSession { session } };
    assert_eq!(ask(&node, Epoch::FIRST, 5, closed), Ok(Answer::Closed(Vec::new())));
    assert_eq!(ask(&node, Epoch::FIRST, 0, stripe(StripeAction::Remove)), Ok(Answer::Done));
    assert_eq!(fill(), Err(Failure::Refused(Refusal::SessionEnded)));
    assert_eq!(node.usage().stripes, 0);
}

/// The partitions that hold any state of a session.
fn with_some_of(node: &Arc<Node>, session: Session) -> Vec<u16> {
    let text = format!("{session:?}");
    let has = |partition: &PartitionGuard<'_>| format!("{:?}", **partition).contains(&text);
    node.partitions.locked().filter(has).map(|partition| partition.id().0).collect()
}

fn meta(session: Session, number: u64, command: Command) -> Body {
    Body::Meta { request_id: Some(RequestId { session, number, settled: 1 }), command }
}

/// Makes a session leave state in several partitions: an open, a lock and an append in partition 0,
/// an intent in 9, and the answer of a walk that did not reach its directory in 20. In 30 another
/// session asks for the intent's decision. The lookup in 40 leaves nothing.
fn leave_much(session: Session) -> (Arc<Node>, Intent) {
    let (node, file, extent) = extent_file();
    let say = |partition, body| ask(&node, Epoch::FIRST, partition, body);
    say(0, meta(session, 1, Command::Open { file, flags: OpenFlags::WRITE, extent: ExtentRequest::None })).unwrap();
    let lock = Lock { owner: LockOwner::Session(5), kind: LockKind::Write, style: LockStyle::Whole, pid: 0 };
    say(0, meta(session, 2, Command::Lock { file, lock, wait: false })).unwrap();
    let request_id = |number| Some(RequestId { session, number, settled: 1 });
    let action = ExtentAction::Append { data: Bytes::from_static(b"x") };
    say(0, Body::Extent { request_id: request_id(3), file, extent, action }).unwrap();
    let intent = Intent { number: 1, session, coordinator: PartitionId(30) };
    let inode = NewInode::new(NewKind::Directory, 0o700, Owner::default());
    let parts =
        vec![Part::CreateDirectory { parent: FileId::ROOT, inode, inherited: wire::InheritedAttributes::default() }];
    say(9, meta(session, 4, Command::Prepare { intent, parts })).unwrap();
    let (elsewhere, name) = (FileId::new(PartitionId(40), 9), Name::new(b"f").unwrap());
    let command = Command::Unlink { parent: elsewhere, name: name.clone() };
    let then =
        Box::new(WalkAction { directory: elsewhere, partition: PartitionId(20), request_id: request_id(5), command });
    let walked =
        say(0, Body::Walk { start: FileId::ROOT, components: Vec::new(), credentials: None, action: Some(then) });
    assert!(matches!(walked, Ok(Answer::Walked(..))), "{walked:?}");
    say(30, meta(Session(1), 9, Command::Decide { intent })).unwrap();
    say(40, Body::Meta { request_id: None, command: Command::Lookup { parent: elsewhere, name } }).unwrap_err();
    (node, intent)
}

#[test]
fn a_session_ends_where_it_left_something_and_nowhere_else() {
    let session = Session(77);
    let (node, intent) = leave_much(session);
    assert_eq!(with_some_of(&node, session), [0, 9, 20, 30]);
    let touched = node.end_session(session);
    assert_eq!(touched, [0, 9, 20, 30].map(PartitionId), "no other is visited");
    for PartitionId(partition) in touched {
        ask(&node, Epoch::FIRST, partition, meta(session, u64::MAX, Command::CloseSession { session })).unwrap();
    }
    assert_eq!(with_some_of(&node, session), [9], "an intent waits for who finishes it");
    ask(&node, Epoch::FIRST, 9, meta(Session(1), 10, Command::Settle { intent, commit: false })).unwrap();
    let inode = NewInode::new(NewKind::File, 0o600, Owner::default());
    let late = Command::CreateTmpfile { parent: FileId::ROOT, name: None, inode, linkable: false };
    for partition in 0..64 {
        let refused = ask(&node, Epoch::FIRST, partition, meta(session, 6, late.clone()));
        assert_eq!(
            refused,
            Err(Failure::Refused(Refusal::SessionEnded)),
            "what was on its way to partition {partition}"
        );
    }
    assert_eq!(with_some_of(&node, session), [0_u16; 0]);
    assert_eq!(node.end_session(session), [], "it has left nothing since");
}

#[test]
fn metadata_counts_against_the_pool_and_is_given_back() {
    let node = node();
    let before = node.usage();
    let change = |number, command| {
        let request_id = Some(RequestId { session: Session(1), number, settled: number });
        ask(&node, Epoch::FIRST, 0, Body::Meta { request_id, command })
    };
    let (parent, name) = (FileId::ROOT, Name::new(b"f").unwrap());
    let inode = NewInode::new(NewKind::File, 0o600, Owner::default());
    change(1, Command::Create { parent, name: name.clone(), inode, open: false, extent: ExtentRequest::None }).unwrap();
    let made = node.usage();
    assert!(made.used > before.used && made.files == before.files + 1);
    change(2, Command::Unlink { parent, name }).unwrap();
    assert_eq!(node.usage(), before);
}

/// A node with extents, and a file in it that is open and has one.
fn extent_file() -> (Arc<Node>, FileId, Extent) {
    let settings =
        NodeSettings { partitions: 64, stripe_bytes: STRIPE, closed_extents_max: 0, ..NodeSettings::default() };
    let node = embedded(settings, Arc::new(ModelEngine::with_extents(1 << 20, STRIPE)));
    let (parent, name) = (FileId::ROOT, Name::new(b"f").unwrap());
    let inode = NewInode::new(NewKind::File, 0o600, Owner::default());
    let create = Command::Create { parent, name, inode, open: true, extent: ExtentRequest::Any };
    match change(&node, 1, create) {
        Ok(Answer::Opened(OpenedFile { attributes, .. })) => {
            let extent = attributes.extent.expect("the node has extents to give");
            (node, attributes.file, extent)
        }
        other => panic!("{other:?}"),
    }
}

fn change(node: &Arc<Node>, number: u64, command: Command) -> Result<Answer, Failure> {
    let request_id = Some(RequestId { session: Session(1), number, settled: 1 });
    ask(node, Epoch::FIRST, 0, Body::Meta { request_id, command })
}

fn put(node: &Arc<Node>, file: FileId, extent: Extent, number: u64, action: ExtentAction) -> Result<Answer, Failure> {
    let request_id = Some(RequestId { session: Session(1), number, settled: 1 });
    ask(node, Epoch::FIRST, 0, Body::Extent { request_id, file, extent, action })
}

#[test]
fn an_append_that_is_sent_again_is_answered_and_not_done_again() {
    let (node, file, extent) = extent_file();
    for (number, offset) in [(2, 0), (2, 0), (3, 9), (2, 0), (3, 9), (4, 18)] {
        let action = ExtentAction::Append { data: Bytes::from_static(b"nine byte") };
        let put = put(&node, file, extent, number, action);
        assert_eq!(put, Ok(Answer::ExtentWritten(ExtentWrite { offset, length: 9 })), "number {number}");
    }
    let place = WritePlace::End;
    for _ in 0..3 {
        let data = Bytes::from_static(b"x");
        let write = Command::Write { file, place, length: 1, data, kill_set_id: false };
        assert_eq!(
            change(&node, 5, write),
            Ok(Answer::ExtentWritten(ExtentWrite { offset: 27, length: 1 })),
            "a small one too"
        );
    }
}

#[test]
fn a_late_write_to_an_extent_whose_file_was_demoted_or_that_is_anothers_is_refused() {
    let (node, file, extent) = extent_file();
    let late = |file, number| {
        let action = ExtentAction::Write { offset: 0, data: Bytes::from_static(b"late") };
        put(&node, file, extent, number, action)
    };
    assert_eq!(late(file, 2), Ok(Answer::ExtentWritten(ExtentWrite { offset: 0, length: 4 })));
    change(&node, 3, Command::Close { file }).unwrap();
    assert!(matches!(late(file, 4), Err(Failure::Refused(Refusal::Stale(_)))), "it is demoted");
    let open = Command::Open { file, flags: OpenFlags::WRITE, extent: ExtentRequest::Any };
    let Ok(Answer::Opened(OpenedFile { attributes, .. })) = change(&node, 5, open) else { panic!("it can be opened") };
    let again = attributes.extent.unwrap();
    assert_eq!((again.slot, attributes.size), (extent.slot, 4), "the same slot, in another life");
    assert!(matches!(late(file, 6), Err(Failure::Refused(Refusal::Stale(_)))));
}

#[test]
fn a_client_cannot_say_which_extent_it_wants() {
    let (node, _, extent) = extent_file();
    let (parent, name) = (FileId::ROOT, Name::new(b"g").unwrap());
    let inode = NewInode::new(NewKind::File, 0o600, Owner::default());
    let create = Command::Create { parent, name, inode, open: true, extent: ExtentRequest::Allocated(extent) };
    let Ok(Answer::Opened(OpenedFile { attributes, .. })) = change(&node, 2, create) else { panic!("it is made") };
    assert_eq!(attributes.extent, None);
}

#[test]
fn a_node_that_is_asked_to_end_calls_its_hook_or_refuses() {
    let node = node();
    let refused = ask(&node, Epoch(0), 0, Body::Stop);
    assert!(matches!(refused, Err(Failure::Refused(Refusal::Unsupported { .. }))), "nobody could end it: {refused:?}");
    let (on_stop, stopped) = std::sync::mpsc::channel();
    node.on_stop(Box::new(move || on_stop.send(()).unwrap()));
    assert_eq!(ask(&node, Epoch(0), 0, Body::Stop), Ok(Answer::Done), "by any map");
    assert_eq!(stopped.try_recv(), Ok(()));
}
