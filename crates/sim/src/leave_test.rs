//! Sessions with something at a node that has left the pool: those who have got its partitions wait
//! for their clients.

use crate::{hand_over_test::hand_on, hosted_test::do_host_work, pool::*};
use node::{Node, SimulatedTime, now, sleep_until};
use placement::{Epoch, FileId, PartitionId};
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};
use store::ModelEngine;
use vfs::Vfs;
use wire::{Body, OpenFlags, Refusal, Request, Session};

/// The time that a client has.
const TIME: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(1);
const ALMOST: Duration = Duration::from_millis(9_999);

/// A removed file that a client has open, in a pool of three nodes. It is at the second one.
struct Moved {
    time: SimulatedTime,
    pool: Pool,
    other: Vfs,
    file: FileId,
    session: Session,
    _holder: Vfs,
}

impl Moved {
    async fn new() -> Self {
        let time = SimulatedTime::begin();
        let pool = Pool::start_at_one(3, &settings(), || Arc::new(ModelEngine::new(64 << 20, STRIPE)));
        let (holder, other) = (pool.client().await, pool.client().await);
        let (made, _) = holder.create(FileId::ROOT, b"f", 0o644, OWNER, OpenFlags::READ_WRITE).await.unwrap();
        let (file, session) = (made.file, holder.client().session());
        other.unlink(FileId::ROOT, b"f").await.unwrap();
        hand_on(&pool, file.partition()).await.unwrap();
        Self { time, pool, other, file, session, _holder: holder }
    }

    fn node(&self, number: usize) -> &Arc<Node> {
        &self.pool.nodes()[number - 1]
    }

    /// A node ends, which has left the pool.
    async fn leave(&self, number: usize) {
        self.node(number).leave_session(self.session);
        self.node(number).pass_on_awaited_sessions();
        do_host_work(&self.pool, &self.other).await;
    }

    async fn say_hello(&self, number: usize) {
        let (epoch, session, partition) = (Epoch::FIRST, self.session, PartitionId(0));
        let hello = Request { epoch, session, skip_ack: false, partition, body: Body::Hello };
        self.node(number).handle(hello).await.unwrap();
    }

    /// Time passes; then nodes end the sessions of those who have not come.
    async fn wait(&self, time: Duration) {
        let end = now() + time;
        let mut sleep = pin!(sleep_until(end));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        while now() < end {
            assert!(self.time.advance());
        }
        for node in self.pool.nodes() {
            for session in node.take_overdue_sessions() {
                for partition in node.end_session(session) {
                    node.close_session_in(session, partition).await.unwrap();
                }
            }
        }
        do_host_work(&self.pool, &self.other).await;
    }

    async fn is_open(&self) -> bool {
        match self.other.stat(self.file).await {
            Err(Refusal::NotFound(_)) => false,
            found => found.map(|_| true).unwrap(),
        }
    }
}

#[tokio::test]
async fn who_comes_within_ten_seconds_after_a_node_has_left_keeps_what_was_open() {
    let moved = Moved::new().await;
    moved.leave(1).await;
    moved.wait(ALMOST).await;
    assert!(moved.is_open().await);
    moved.say_hello(2).await;
    moved.wait(10 * TIME).await;
    assert!(moved.is_open().await);
}

#[tokio::test]
async fn who_does_not_come_within_ten_seconds_after_a_node_has_left_loses_what_was_open() {
    let moved = Moved::new().await;
    moved.leave(1).await;
    moved.wait(TIME).await;
    assert!(!moved.is_open().await);
}

#[tokio::test]
async fn a_session_that_ends_at_a_node_that_stays_ends_at_once_where_its_partitions_are() {
    let moved = Moved::new().await;
    moved.node(1).end_session(moved.session);
    do_host_work(&moved.pool, &moved.other).await;
    assert!(!moved.is_open().await);
}

#[tokio::test]
async fn a_session_that_ends_while_its_client_is_awaited_ends_at_once() {
    let moved = Moved::new().await;
    moved.leave(1).await;
    let (epoch, session, partition) = (Epoch::FIRST, moved.session, PartitionId(0));
    let body = Body::EndMovedSession { session, left: false };
    moved.node(2).handle(Request { epoch, session: Session::NONE, skip_ack: false, partition, body }).await.unwrap();
    assert!(!moved.is_open().await && !moved.node(2).awaits_sessions());
}

#[tokio::test]
async fn a_node_that_leaves_while_it_awaits_a_client_has_the_next_one_wait() {
    let moved = Moved::new().await;
    moved.leave(1).await;
    moved.wait(TIME / 2).await;
    hand_on(&moved.pool, moved.file.partition()).await.unwrap();
    moved.leave(2).await;
    moved.wait(ALMOST).await;
    assert!(moved.is_open().await);
    moved.wait(MOMENT).await;
    assert!(!moved.is_open().await);
}

#[tokio::test]
async fn the_time_of_a_client_goes_on_when_the_partition_does_and_the_node_stays() {
    for comes in [false, true] {
        let moved = Moved::new().await;
        moved.leave(1).await;
        moved.wait(TIME / 2).await;
        hand_on(&moved.pool, moved.file.partition()).await.unwrap();
        if comes {
            moved.say_hello(2).await;
        }
        moved.wait(TIME / 2).await;
        assert_eq!(moved.is_open().await, comes);
    }
}

#[tokio::test]
async fn a_node_that_has_nothing_of_a_session_does_not_end_it() {
    let moved = Moved::new().await;
    let (epoch, session, partition) = (Epoch::FIRST, moved.session, PartitionId(0));
    let body = Body::EndMovedSession { session, left: true };
    moved.node(3).handle(Request { epoch, session: Session::NONE, skip_ack: false, partition, body }).await.unwrap();
    moved.wait(TIME).await;
    hand_on(&moved.pool, moved.file.partition()).await.unwrap();
    assert!(!moved.node(3).awaits_sessions() && moved.is_open().await);
}
