//! A connection whose requests arrive in the order of the calls.
//!
//! It either loses and doubles single requests, and brings none after a later one; or it breaks:
//! then nobody hears of what was on its way, of which the first requests may arrive much later,
//! while the next connection is used already.

use crate::simulation::{
    connection::LOST_AFTER,
    executor::{SimState, sim_sleep},
    network::{Host, SimEvent, answer_bytes, request_bytes},
};
use node::{ReplyFuture, sleep_until};
use parking_lot::Mutex;
use placement::NodeId;
use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, oneshot};
use wire::{Answer, Body, Failure, MoveStep, Request, StripeAction};

/// Longest time after a break at which a request of the broken connection arrives.
const AFTERWARDS_MAX: Duration = Duration::from_secs(1);

/// A connection to a node that keeps the order of requests.
pub struct OrderedLink {
    state: Arc<SimState>,
    from: Host,
    to: NodeId,
    breaks: bool,
    current: Mutex<Option<Arc<LinkQueue>>>,
}

/// What is on its way over one connection.
#[derive(Default)]
struct LinkQueue {
    requests: Mutex<VecDeque<SentRequest>>,
    added: Notify,
    is_broken: AtomicBool,
}

struct SentRequest {
    arrival: Instant,
    request: Request,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

impl OrderedLink {
    /// A link that loses and doubles requests and answers, and does not break.
    pub fn losing(state: Arc<SimState>, from: Host, to: NodeId) -> Self {
        Self { state, from, to, breaks: false, current: Mutex::default() }
    }

    /// A link that breaks, and loses nothing else.
    pub fn breaking(state: Arc<SimState>, from: Host, to: NodeId) -> Self {
        Self { state, from, to, breaks: true, current: Mutex::default() }
    }

    /// Sends a request after those that were sent before.
    pub fn call(&self, request: Request) -> ReplyFuture {
        if !self.state.network.is_alive(self.from) || self.state.network.node(self.to).is_none() {
            return ReplyFuture::ready(Err(Failure::Unreachable("nobody listens there".into())));
        }
        let queue = self.connected();
        let (sender, answered) = oneshot::channel();
        {
            let mut requests = queue.requests.lock();
            let arrival = self.state.arrival(self.from, Host::Node(self.to), request_bytes(&request));
            let arrival = requests.back().map_or(arrival, |before| arrival.max(before.arrival));
            requests.push_back(SentRequest { arrival, request, answer: sender });
        }
        queue.added.notify_one();
        ReplyFuture::deferred(async move {
            answered.await.unwrap_or_else(|_| Err(Failure::Lost("the connection broke".into())))
        })
    }

    /// The connection, begun anew if there is none.
    fn connected(&self) -> Arc<LinkQueue> {
        let mut current = self.current.lock();
        if let Some(queue) = current.as_ref().filter(|queue| !queue.is_broken.load(Relaxed)) {
            return queue.clone();
        }
        let queue = Arc::new(LinkQueue::default());
        *current = Some(queue.clone());
        let carrier = LinkCarrier {
            state: self.state.clone(),
            from: self.from,
            to: self.to,
            breaks: self.breaks,
            queue: queue.clone(),
        };
        self.state.spawn(Some(Host::Node(self.to)), carrier.carry_all());
        queue
    }
}

/// Brings requests to the node of a connection.
struct LinkCarrier {
    state: Arc<SimState>,
    from: Host,
    to: NodeId,
    breaks: bool,
    queue: Arc<LinkQueue>,
}

impl Drop for LinkCarrier {
    /// The node has ended: those who wait for answers hear of it.
    fn drop(&mut self) {
        self.queue.is_broken.store(true, Relaxed);
        let lost = mem::take(&mut *self.queue.requests.lock());
        drop(lost);
    }
}

impl LinkCarrier {
    async fn carry_all(self) {
        let network = &self.state.network;
        loop {
            let Some(arrival) = self.queue.requests.lock().front().map(|first| first.arrival) else {
                self.queue.added.notified().await;
                continue;
            };
            sleep_until(arrival).await;
            let is_cut = network.is_cut(self.from, Host::Node(self.to));
            if is_cut {
                network.count(SimEvent::MessageCut);
            }
            if self.breaks && (is_cut || !network.is_calm() && self.state.one_in(120)) {
                return self.break_off(is_cut).await;
            }
            let Some(sent) = self.queue.requests.lock().pop_front() else { continue };
            if is_cut || !self.breaks && !network.is_calm() && self.state.one_in(25) {
                network.count(SimEvent::RequestLost);
                self.lose(sent.answer);
            } else {
                self.execute(sent);
            }
        }
    }

    /// Has the node execute a request, and brings its answer back.
    fn execute(&self, SentRequest { request, answer, .. }: SentRequest) {
        let (state, from, to) = (self.state.clone(), self.from, Host::Node(self.to));
        let Some(node) = state.network.node(self.to) else { return };
        if is_forwarded_write(&request) {
            state.network.count(SimEvent::WriteForwarded);
        }
        let mut replies = vec![node.handle(request.clone())];
        if !self.breaks && !state.network.is_calm() && state.one_in(20) {
            state.network.count(SimEvent::RequestDoubled);
            replies.push(node.handle(request));
        }
        let loses = !self.breaks && !state.network.is_calm() && state.one_in(25);
        let queue = self.queue.clone();
        state.clone().spawn(Some(to), async move {
            let mut last = Err(Failure::Lost("nobody has answered".into()));
            for reply in replies {
                last = reply.await;
            }
            state.network.count_answer(&last);
            sleep_until(state.arrival(to, from, answer_bytes(&last))).await;
            let is_broken = queue.is_broken.load(Relaxed);
            if is_broken || loses || state.network.is_cut(from, to) {
                state.network.count(SimEvent::AnswerLost);
                sim_sleep(LOST_AFTER).await;
            } else {
                drop(answer.send(last));
            }
        });
    }

    /// Has the sender of a request hear after a while that no answer comes.
    fn lose(&self, answer: oneshot::Sender<Result<Answer, Failure>>) {
        self.state.spawn(None, async move {
            sim_sleep(LOST_AFTER).await;
            drop(answer);
        });
    }

    /// Breaks the connection. What was sent before may arrive all the same.
    async fn break_off(self, is_cut: bool) {
        self.state.network.count(SimEvent::LinkBroken);
        self.queue.is_broken.store(true, Relaxed);
        let lost = mem::take(&mut *self.queue.requests.lock());
        let arrive = if is_cut { 0 } else { self.state.random(lost.len() + 1) };
        let requests: Vec<Request> = lost.iter().take(arrive).map(|sent| sent.request.clone()).collect();
        if is_cut {
            sim_sleep(LOST_AFTER).await;
        }
        drop(lost);
        sim_sleep(self.state.random_time(AFTERWARDS_MAX)).await;
        for request in requests {
            let Some(node) = self.state.network.node(self.to) else { return };
            let reply = node.handle(request);
            self.state.spawn(Some(Host::Node(self.to)), async move { drop(reply.await) });
        }
    }
}

/// True for a write that a client made while its stripe was moved; a copy is of a whole stripe.
fn is_forwarded_write(request: &Request) -> bool {
    let Body::Move { step: MoveStep::Stripe { action, .. } } = &request.body else { return false };
    matches!(action, StripeAction::Write { ends: false, .. })
}
