//! Tests of a node whose engine answers late.

use crate::{Node, NodeSettings, ReplyFuture, embedded};
use bytes::Bytes;
use placement::{Epoch, FileId, Layout, PartitionId, PlacementSpec, StripeNo};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};
use store::{EngineOp, FaultyStore, LateStore, ModelEngine, StripeStore};
use wire::{
    Answer, Body, Command, Condition, Contents, Failure, Name, Refusal, Request, RequestId, Session, StripeAction,
};

const STRIPE: u32 = 8192;

type Reply = Result<Answer, Failure>;

/// A node over a store of `stripes` stripes that answers late.
struct SlowNode {
    node: Arc<Node>,
    store: Arc<LateStore<FaultyStore<ModelEngine>>>,
    /// Writes fail.
    is_broken: Arc<AtomicBool>,
    numbers: u64,
}

impl SlowNode {
    fn new(stripes: u64) -> Self {
        let is_broken = Arc::new(AtomicBool::new(false));
        let broken = is_broken.clone();
        let model = ModelEngine::new(stripes * u64::from(STRIPE), STRIPE);
        let faulty = FaultyStore::when(model, move |call| call.op == EngineOp::Write && broken.load(SeqCst));
        let store = Arc::new(LateStore::new(faulty, 1));
        let settings = NodeSettings { partitions: 1, stripe_bytes: STRIPE, ..NodeSettings::default() };
        Self { node: embedded(settings, store.clone()), store, is_broken, numbers: 0 }
    }

    fn submit(&self, body: Body) -> ReplyFuture {
        let (epoch, session, partition) = (Epoch::FIRST, Session(1), PartitionId(0));
        self.node.handle(Request { epoch, session, skip_ack: false, partition, body })
    }

    fn stripe(&self, stripe: u64, action: StripeAction) -> ReplyFuture {
        self.submit(Body::Stripe { file: FileId(9), stripe: StripeNo(stripe), action })
    }

    fn change(&mut self, command: Command) -> ReplyFuture {
        self.numbers += 1;
        let request_id = Some(RequestId { session: Session(1), number: self.numbers, settled: 1 });
        self.submit(Body::Meta { request_id, command })
    }

    /// Waits for a reply that nothing else keeps waiting than the store.
    fn wait(mut reply: ReplyFuture) -> Reply {
        let answer = (0..100_000).find_map(|_| match poll(&mut reply) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        });
        answer.expect("the store has answered")
    }
}

fn poll(reply: &mut ReplyFuture) -> Poll<Reply> {
    Pin::new(reply).poll(&mut Context::from_waker(Waker::noop()))
}

fn write(byte: u8) -> StripeAction {
    StripeAction::Write { generation: 0, offset: 0, ends: true, data: vec![byte; STRIPE as usize].into() }
}

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("a short name")
}

#[test]
fn requests_for_a_stripe_are_done_in_their_order_and_no_other_waits_for_them() {
    let slow = SlowNode::new(4);
    let first = slow.stripe(0, write(1));
    let read = slow.stripe(0, StripeAction::Read { offset: 0, length: 2 });
    let second = slow.stripe(0, write(2));
    let mut stat = slow.submit(Body::Meta { request_id: None, command: Command::Stat { file: FileId::ROOT } });
    assert!(matches!(poll(&mut stat), Poll::Ready(Ok(Answer::Attributes(_)))));
    assert_eq!(slow.store.usage().stripes, 0, "nothing is written yet");
    assert_eq!(SlowNode::wait(second), Ok(Answer::Done));
    assert_eq!(SlowNode::wait(read), Ok(Answer::Bytes(Bytes::from_static(&[1, 1]))));
    assert_eq!(SlowNode::wait(first), Ok(Answer::Done));
}

#[test]
fn a_request_that_is_given_up_is_done_all_the_same() {
    let slow = SlowNode::new(4);
    drop(slow.stripe(0, write(1)));
    let read = slow.stripe(0, StripeAction::Read { offset: 0, length: 1 });
    assert_eq!(SlowNode::wait(read), Ok(Answer::Bytes(Bytes::from_static(&[1]))));
}

#[test]
fn a_write_that_finds_no_space_late_waits_until_there_is_some() {
    let slow = SlowNode::new(1);
    assert_eq!(SlowNode::wait(slow.stripe(0, write(1))), Ok(Answer::Done));
    let mut more = slow.stripe(1, write(2));
    for _ in 0..1000 {
        assert!(poll(&mut more).is_pending(), "there is no space");
    }
    assert_eq!(slow.node.usage().waiting, 1);
    assert_eq!(SlowNode::wait(slow.stripe(0, StripeAction::Remove)), Ok(Answer::Done));
    assert_eq!(SlowNode::wait(more), Ok(Answer::Done));
}

#[test]
fn a_write_of_a_session_that_ends_before_the_store_has_done_it_leaves_nothing() {
    let slow = SlowNode::new(4);
    let late = slow.stripe(0, write(1));
    slow.node.end_session(Session(1));
    assert_eq!(slow.node.remote_stray_files(Session(1)), []);
    drop(late);
    slow.store.settle();
    assert_eq!(slow.store.usage().stripes, 0);
}

#[test]
fn an_object_gets_its_name_only_when_the_store_has_its_bytes() {
    let mut slow = SlowNode::new(4);
    let layout = Layout::striped(STRIPE);
    let reserve = Command::Reserve { count: 2, stripes: 1, layout, policy: None };
    let Ok(Answer::Reserved(files)) = SlowNode::wait(slow.change(reserve)) else { panic!("not reserved") };
    let put = |file, text| Command::PutObject {
        parent: FileId::ROOT,
        name: name(text),
        condition: Condition::Always,
        placing: PlacementSpec::default(),
        attributes: Box::default(),
        contents: Contents::Striped { file, size: 6000, first: vec![7; 6000].into() },
    };
    let lookup = |slow: &SlowNode, text| {
        let command = Command::Lookup { parent: FileId::ROOT, name: name(text) };
        SlowNode::wait(slow.submit(Body::Meta { request_id: None, command })).is_ok()
    };
    let stored = slow.change(put(files[0], "stored"));
    assert!(!lookup(&slow, "stored"), "its bytes are not written yet");
    assert!(matches!(SlowNode::wait(stored), Ok(Answer::ObjectStored(_))));
    assert!(lookup(&slow, "stored"));
    slow.is_broken.store(true, SeqCst);
    let failed = SlowNode::wait(slow.change(put(files[1], "failed")));
    assert!(matches!(failed, Err(Failure::Refused(Refusal::Io { .. }))), "{failed:?}");
    assert!(!lookup(&slow, "failed"));
}
