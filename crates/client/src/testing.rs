//! Test doubles of connections: one with faults by a seed, one that counts, one that crashes, one
//! that is driven step by step.

use crate::{Connection, FdLeaseFuture, ProgramFdFuture};
use node::{BackingFd, MoveError, MoveLink, Node, OnInvalidate, ReplyFuture, sleep_until};
use parking_lot::Mutex;
use placement::{Epoch, PartitionEntry, PartitionId};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use test_support::Random;
use wire::{Body, Extent, Failure, OpenFlags, OpenLeaseId, Request, Session, codec::ProgramFd};

/// Forwards the descriptor methods to the connection in this field.
macro_rules! forward_descriptors {
    ($inner:tt) => {
        fn backing(&self, extent: Extent, flags: OpenFlags) -> Option<BackingFd> {
            self.$inner.backing(extent, flags)
        }

        fn lease_fd(&self, extent: Extent, flags: OpenFlags) -> Option<FdLeaseFuture> {
            self.$inner.lease_fd(extent, flags)
        }

        fn is_on_local_host(&self) -> bool {
            self.$inner.is_on_local_host()
        }

        fn is_in_process(&self) -> bool {
            self.$inner.is_in_process()
        }
    };
}

/// Forwards the subscription methods to the connection in this field.
macro_rules! forward_subscription {
    ($inner:tt) => {
        fn subscribe(&self, session: Session, on_invalidate: &OnInvalidate) -> ReplyFuture {
            self.$inner.subscribe(session, on_invalidate)
        }

        fn set_supports_prune(&self, session: Session) {
            self.$inner.set_supports_prune(session);
        }

        fn unsubscribe(&self, session: Session) {
            self.$inner.unsubscribe(session);
        }
    };
}

/// Moves a partition from node to node in this process, as the managers of a pool have it done.
/// They give up what fails.
pub async fn hand_over(from: &Arc<Node>, to: &Arc<Node>, partition: PartitionId) -> Result<PartitionEntry, MoveError> {
    let before = from.entry(partition).ok_or(MoveError::NotServed)?;
    let target = to.clone();
    let link: MoveLink = Arc::new(move |request| target.handle(request));
    let moved = from.send_partition((partition, before.epoch), to.id(), link).await;
    let entry = before.moved(if moved.is_ok() { to.id() } else { before.server });
    to.learn(partition, &entry);
    from.learn(partition, &entry);
    to.close_arrived_sessions().await;
    for node in [from, to] {
        node.clear_leftovers().await.expect("an engine in memory does not fail");
    }
    moved.map(|()| entry)
}

/// Rates of faults, per thousand calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRates {
    /// The request never arrives.
    pub request_lost: u32,
    /// The request is executed, but its answer never arrives.
    pub answer_lost: u32,
    /// The request arrives twice; the second answer is returned.
    pub doubled: u32,
    /// The client's map is declared stale.
    pub stale: u32,
    /// The node cannot be reached.
    pub unreachable: u32,
    /// The request arrives a millisecond late.
    pub delayed: u32,
}

impl FaultRates {
    /// Some of every fault.
    pub const MANY: Self =
        Self { request_lost: 60, answer_lost: 80, doubled: 60, stale: 40, unreachable: 40, delayed: 10 };
}

/// A connection with faults: the same ones for the same seed and the same calls.
#[derive(Debug)]
pub struct FaultyConnection<C> {
    inner: Arc<C>,
    rates: FaultRates,
    random: Mutex<Random>,
}

impl<C: Connection> FaultyConnection<C> {
    /// Adds faults to `inner`.
    pub fn new(inner: C, rates: FaultRates, seed: u64) -> Self {
        Self { inner: Arc::new(inner), rates, random: Mutex::new(Random::new(seed)) }
    }

    /// A random number below a thousand.
    fn draw(&self) -> u32 {
        self.random.lock().below(1000)
    }
}

impl<C: Connection + 'static> Connection for FaultyConnection<C> {
    fn call(&self, request: Request) -> ReplyFuture {
        let mut drawn = self.draw();
        let mut hit = |rate: u32| {
            let hit = drawn < rate;
            drawn = drawn.wrapping_sub(rate);
            hit
        };
        let FaultRates { request_lost, answer_lost, doubled, stale, unreachable, delayed } = self.rates;
        let inner = self.inner.clone();
        if hit(request_lost) {
            ReplyFuture::ready(Err(Failure::Lost("the request was lost".into())))
        } else if hit(answer_lost) {
            ReplyFuture::deferred(async move {
                let _ = inner.call(request).await;
                Err(Failure::Lost("the answer was lost".into()))
            })
        } else if hit(doubled) {
            ReplyFuture::deferred(async move {
                let _ = inner.call(request.clone()).await;
                inner.call(request).await
            })
        } else if hit(stale) && !matches!(request.body, Body::Hello) {
            inner.call(Request { epoch: Epoch(0), ..request })
        } else if hit(unreachable) {
            ReplyFuture::ready(Err(Failure::Unreachable("refused".into())))
        } else if hit(delayed) {
            ReplyFuture::deferred(async move {
                sleep_until(node::now() + Duration::from_millis(1)).await;
                inner.call(request).await
            })
        } else {
            inner.call(request)
        }
    }

    fn dup_fd_for_program(&self, request: ProgramFd) -> Option<ProgramFdFuture> {
        self.inner.dup_fd_for_program(request)
    }

    forward_descriptors!(inner);
    forward_subscription!(inner);
}

/// A connection that counts calls, and separate requests for descriptors.
#[derive(Debug)]
pub struct CountingConnection<C> {
    inner: C,
    calls: Arc<AtomicU64>,
}

impl<C: Connection> CountingConnection<C> {
    /// Counts the calls over `inner`, in `calls`.
    pub fn new(inner: C, calls: Arc<AtomicU64>) -> Self {
        Self { inner, calls }
    }
}

impl<C: Connection> Connection for CountingConnection<C> {
    fn call(&self, request: Request) -> ReplyFuture {
        self.calls.fetch_add(1, Relaxed);
        self.inner.call(request)
    }

    fn call_with_fd(&self, request: Request, flags: OpenFlags) -> (ReplyFuture, Option<ProgramFdFuture>) {
        self.calls.fetch_add(1, Relaxed);
        self.inner.call_with_fd(request, flags)
    }

    fn dup_fd_for_program(&self, request: ProgramFd) -> Option<ProgramFdFuture> {
        self.calls.fetch_add(1, Relaxed);
        self.inner.dup_fd_for_program(request)
    }

    fn notify_closed(&self, lease: OpenLeaseId) -> bool {
        self.inner.notify_closed(lease)
    }

    forward_descriptors!(inner);
    forward_subscription!(inner);
}

/// A connection that ends after some calls, as if its client had crashed.
#[derive(Debug)]
pub struct CrashingConnection<C> {
    inner: C,
    remaining: Arc<AtomicU64>,
}

impl<C: Connection> CrashingConnection<C> {
    /// Works for `calls` calls.
    pub fn new(inner: C, calls: u64) -> Self {
        Self::sharing(inner, Arc::new(AtomicU64::new(calls)))
    }

    /// Works for the calls that are left to all connections of one client.
    pub fn sharing(inner: C, remaining: Arc<AtomicU64>) -> Self {
        Self { inner, remaining }
    }
}

impl<C: Connection> Connection for CrashingConnection<C> {
    fn call(&self, request: Request) -> ReplyFuture {
        if self.remaining.fetch_update(Relaxed, Relaxed, |remaining| remaining.checked_sub(1)).is_ok() {
            self.inner.call(request)
        } else {
            ReplyFuture::ready(Err(Failure::Unreachable("the connection has ended".into())))
        }
    }
}

/// A connection on which each request takes one poll to arrive, and its answer one poll to return.
/// The order in which the futures of several clients are polled decides how their messages
/// interleave.
#[derive(Debug)]
pub struct SteppedConnection<C>(Arc<C>);

impl<C: Connection> SteppedConnection<C> {
    /// Adds the steps to `inner`.
    pub fn new(inner: C) -> Self {
        Self(Arc::new(inner))
    }
}

impl<C: Connection + 'static> Connection for SteppedConnection<C> {
    fn call(&self, request: Request) -> ReplyFuture {
        let inner = self.0.clone();
        ReplyFuture::deferred(async move {
            yield_once().await;
            let answer = inner.call(request).await;
            yield_once().await;
            answer
        })
    }

    forward_subscription!(0);
}

/// Is ready at its second poll.
async fn yield_once() {
    let mut polled = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut polled, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
