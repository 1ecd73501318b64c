//! Tests of the metrics of a node, as an exporter shows them.

use crate::{Node, NodeSettings, ReplyFuture};
use bytes::Bytes;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use placement::{Epoch, FileId, NodeId, PartitionId, PartitionMap, StripeNo};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use store::ModelEngine;
use wire::{Answer, Body, Command, Failure, Request, Session, StripeAction};

const STRIPE: u32 = 4096;
/// Stripes that fit into the engine.
const STRIPES: u64 = 4;

/// A node that records metrics and holds every partition but the root's, so that it takes any
/// stripe of a file there.
fn recording_node() -> (Arc<Node>, PrometheusHandle) {
    let (id, partitions) = (NodeId(2), 64);
    let map = PartitionMap::one_node(id, partitions).unwrap().with(PartitionId(0), NodeId(1));
    let settings = NodeSettings { partitions, stripe_bytes: STRIPE, ..NodeSettings::default() };
    let node = Node::in_pool(id, map, settings, Arc::new(ModelEngine::new(STRIPES * u64::from(STRIPE), STRIPE)));
    let recorder = PrometheusBuilder::new().build_recorder();
    let recorded = recorder.handle();
    node.record_metrics(Arc::new(recorder));
    (node, recorded)
}

fn send(node: &Arc<Node>, body: Body) -> ReplyFuture {
    node.handle(Request { epoch: Epoch::FIRST, session: Session(1), skip_ack: false, partition: PartitionId(1), body })
}

fn stripe(number: u64, action: StripeAction) -> Body {
    Body::Stripe { file: FileId(9), stripe: StripeNo(number), action }
}

fn write(number: u64) -> Body {
    let data = Bytes::from(vec![7; STRIPE as usize]);
    stripe(number, StripeAction::Write { generation: 0, offset: 0, ends: true, data })
}

fn polled(reply: &mut ReplyFuture) -> Poll<Result<Answer, Failure>> {
    Pin::new(reply).poll(&mut Context::from_waker(Waker::noop()))
}

#[track_caller]
fn answered(mut reply: ReplyFuture) -> Result<Answer, Failure> {
    match polled(&mut reply) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it has no reason to wait"),
    }
}

/// The value of a metric with this name and these labels; 0 if there is none.
fn value(node: &Node, recorded: &PrometheusHandle, name: &str) -> u64 {
    node.refresh_metrics();
    let page = recorded.render();
    let found = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.map_or(0, |value| value.parse().unwrap())
}

/// The node's engine is full, and one more write waits.
fn full_node() -> (Arc<Node>, PrometheusHandle, ReplyFuture) {
    let (node, recorded) = recording_node();
    for number in 0..STRIPES {
        answered(send(&node, write(number))).unwrap();
    }
    let mut waiting = send(&node, write(STRIPES));
    assert!(polled(&mut waiting).is_pending());
    (node, recorded, waiting)
}

const WRITES: &str = r#"tidemill_request_seconds_count{kind="StripeWrite"}"#;

#[test]
fn a_request_that_waits_for_space_is_counted_when_it_is_answered() {
    let (node, recorded, mut waiting) = full_node();
    let value = |name| value(&node, &recorded, name);
    assert_eq!((value(WRITES), value("tidemill_space_waiting"), value("tidemill_space_waits_total")), (STRIPES, 1, 1));
    answered(send(&node, stripe(0, StripeAction::Remove))).unwrap();
    assert_eq!(polled(&mut waiting), Poll::Ready(Ok(Answer::Done)));
    assert_eq!((value(WRITES), value("tidemill_space_waiting")), (STRIPES + 1, 0));
    assert_eq!(value("tidemill_received_bytes_total"), (STRIPES + 1) * u64::from(STRIPE));
}

#[test]
fn a_request_that_is_given_up_is_not_counted() {
    let (node, recorded, waiting) = full_node();
    drop(waiting);
    let value = |name| value(&node, &recorded, name);
    assert_eq!((value(WRITES), value("tidemill_space_waiting")), (STRIPES, 0));
}

#[test]
fn refusals_and_the_bytes_of_answers_are_counted_by_kind() {
    let (node, recorded) = recording_node();
    let value = |name| value(&node, &recorded, name);
    answered(send(&node, write(0))).unwrap();
    let read = stripe(0, StripeAction::Read { offset: 0, length: 100 });
    assert_eq!(answered(send(&node, read)).unwrap(), Answer::Bytes(Bytes::from(vec![7; 100])));
    let missing = Command::Stat { file: FileId::new(PartitionId(1), 5) };
    answered(send(&node, Body::Meta { request_id: None, command: missing })).unwrap_err();
    assert_eq!(value("tidemill_sent_bytes_total"), 100);
    assert_eq!(value(r#"tidemill_request_seconds_count{kind="Stat"}"#), 1);
    assert_eq!(value(r#"tidemill_requests_refused_total{kind="Stat"}"#), 1);
    assert_eq!(value(r#"tidemill_requests_refused_total{kind="StripeRead"}"#), 0);
    assert_eq!((value("tidemill_partitions"), value("tidemill_stripes")), (63, 1));
}

#[test]
fn every_metric_says_what_it_is_and_stands_on_the_page_for_users() {
    let (node, recorded) = recording_node();
    answered(send(&node, write(0))).unwrap();
    node.refresh_metrics();
    let page = recorded.render();
    let document = include_str!("../../../docs/METRICS.md");
    for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, _) = line.split_once(' ').unwrap();
        assert!(page.contains(&format!("# HELP {name} ")), "{name} has no description");
        let is_told = [format!("| `{name}` |"), format!("| `{name}{{")].iter().any(|told| document.contains(told));
        assert!(is_told, "docs/METRICS.md does not tell of {name}");
    }
}
