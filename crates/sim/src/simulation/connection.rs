//! A client's connection over the simulated network.
//!
//! Requests and answers are lost, doubled and reordered. A request may arrive long after its sender
//! has given it up or has died.
//!
//! Requests that change stripes have no id by which a node would know them again. A real connection
//! keeps their order; when it breaks, their session ends at the node, and none of them is executed
//! later. So they go over an [`OrderedLink`] that may lose or double them, but brings none late.

use crate::simulation::{
    executor::{SimState, sim_sleep},
    network::{Host, SimEvent, answer_bytes, request_bytes},
    ordered_link::OrderedLink,
};
use client::{Connection, Connector, Nodes, RetryPolicy};
use node::{ReplyFuture, sleep_until};
use parking_lot::Mutex;
use placement::NodeId;
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::oneshot;
use wire::{Answer, Body, Failure, Request, StripeAction};

/// Time without an answer after which a sender counts its request as lost.
pub const LOST_AFTER: Duration = Duration::from_millis(40);
/// Retry policy with so many tries that a client never gives up; simulated time costs nothing.
pub const RETRY_LONG: RetryPolicy =
    RetryPolicy { tries: 200, pause_first: Duration::from_millis(1), pause_max: Duration::from_millis(30) };

/// Makes the connections of a host.
#[derive(Clone)]
pub struct SimConnector {
    pub state: Arc<SimState>,
    pub from: Host,
}

impl SimConnector {
    /// The nodes of the pool, of which some are known.
    pub fn nodes(&self, known: &[NodeId]) -> Nodes {
        let first: Vec<_> = known.iter().map(|id| (*id, self.connection(*id))).collect();
        Nodes::with_connector(Arc::new(self.clone()), first)
    }

    fn connection(&self, to: NodeId) -> Arc<dyn Connection> {
        let (from, state) = (self.from, self.state.clone());
        let stripes = OrderedLink::losing(state.clone(), from, to);
        Arc::new(SimConnection { from, to, state, stripes })
    }
}

impl Connector for SimConnector {
    fn connect(&self, node: NodeId, _: &str) -> Result<Arc<dyn Connection>, String> {
        Ok(self.connection(node))
    }
}

impl fmt::Debug for SimConnector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SimConnector({:?})", self.from)
    }
}

/// A connection to a node.
struct SimConnection {
    from: Host,
    to: NodeId,
    state: Arc<SimState>,
    stripes: OrderedLink,
}

impl fmt::Debug for SimConnection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SimConnection({:?}, {})", self.from, self.to)
    }
}

/// Sender of the answer, until one copy of the request has brought it.
type AnswerSlot = Arc<Mutex<Option<oneshot::Sender<Result<Answer, Failure>>>>>;

impl SimConnection {
    /// Sends one copy of a request; the answer goes to the sender if it still waits.
    fn send(&self, request: Request, slot: AnswerSlot) {
        let (state, from, to) = (self.state.clone(), self.from, self.to);
        let arrival = state.arrival(from, Host::Node(to), request_bytes(&request));
        self.state.spawn(Some(Host::Node(to)), async move {
            sleep_until(arrival).await;
            if state.network.is_cut(from, Host::Node(to)) {
                state.network.count(SimEvent::MessageCut);
                return;
            }
            let Some(node) = state.network.node(to) else { return };
            if slot.lock().as_ref().is_some_and(oneshot::Sender::is_closed) {
                state.network.count(SimEvent::RequestLate);
            }
            let answer = state.network.serve(&node, request).await;
            sleep_until(state.arrival(Host::Node(to), from, answer_bytes(&answer))).await;
            if !state.network.is_calm() && state.one_in(25) || state.network.is_cut(from, Host::Node(to)) {
                state.network.count(SimEvent::AnswerLost);
                return;
            }
            // A sender that has given up does not receive it.
            if let Some(sender) = slot.lock().take() {
                drop(sender.send(answer));
            }
        });
    }

    fn copies(&self) -> usize {
        let copies = match self.state.random(50) {
            _ if self.state.network.is_calm() => 1,
            0 | 1 => 0,
            2 | 3 => 2,
            4 => 3,
            _ => 1,
        };
        match copies {
            0 => self.state.network.count(SimEvent::RequestLost),
            1 => {}
            _ => self.state.network.count(SimEvent::RequestDoubled),
        }
        copies
    }
}

impl Connection for SimConnection {
    fn call(&self, request: Request) -> ReplyFuture {
        let Some(node) = self.state.network.node(self.to) else {
            let state = self.state.clone();
            let latency = state.random_time(Duration::from_millis(1));
            return ReplyFuture::deferred(async move {
                sim_sleep(latency).await;
                Err(Failure::Unreachable("nobody listens there".into()))
            });
        };
        if self.from == Host::Observer || self.from == Host::Node(self.to) {
            let state = self.state.clone();
            return ReplyFuture::deferred(async move { state.network.serve(&node, request).await });
        }
        if let Body::Stripe { action, .. } = &request.body
            && !matches!(action, StripeAction::Read { .. })
        {
            return self.stripes.call(request);
        }
        let (sender, mut answered) = oneshot::channel();
        let slot: AnswerSlot = Arc::new(Mutex::new(Some(sender)));
        for _ in 0..self.copies() {
            self.send(request.clone(), slot.clone());
        }
        // The tasks that answer hold the sending end; this future holds it too until the time
        // limit.
        ReplyFuture::deferred(async move {
            let late = sim_sleep(LOST_AFTER);
            let answer = tokio::select! {
                biased;
                Ok(answer) = &mut answered => answer,
                () = late => Err(Failure::Lost("no answer came in time".into())),
            };
            drop(slot);
            answer
        })
    }
}
