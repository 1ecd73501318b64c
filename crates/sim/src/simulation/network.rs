//! The network: hosts, and what it does to messages between them.
//!
//! A message takes the time of its bytes on the link, one after the other, and then a latency. It
//! is lost if its hosts are cut from each other when it would arrive.

use crate::simulation::executor::SimState;
use node::Node;
use parking_lot::Mutex;
use placement::NodeId;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use test_support::Random;
use wire::{Answer, Body, Failure, MoveStep, Refusal, Request, Session, StripeAction};

/// Longest latency of a message: longer than its sender waits.
const LATENCY_MAX: Duration = Duration::from_millis(100);
/// Longest latency of most messages.
const LATENCY: Duration = Duration::from_micros(500);
/// Bytes of a message beside its payload.
const HEADER_BYTES: u64 = 100;

/// Bytes that the metadata of a partition takes. Its true length depends on the time of day, which
/// is in it.
const STATE_BYTES: usize = 4000;

/// A host, or somebody who has one of his own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    Client(usize),
    Node(NodeId),
    /// The managers: none of them is the only one.
    Managers,
    /// The observer of the simulation, to whom the network does nothing.
    Observer,
}

/// What happens in a world. Each kind is counted, so that the tests see that it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimEvent {
    RequestLost,
    AnswerLost,
    RequestDoubled,
    /// A request was executed after its sender had given it up.
    RequestLate,
    /// A message between hosts that were cut from each other.
    MessageCut,
    /// A link of a move broke.
    LinkBroken,
    ClientDied,
    NodeSilent,
    NodesCut,
    TargetDied,
    SourceDied,
    EntryLate,
    EntryDoubled,
    EntryRefused,
    LeaderLost,
    ReportLost,
    NodeJoined,
    NodeLeft,
    MoveCommitted,
    MoveAbandoned,
    BytesWritten,
    BytesRead,
    ObjectPut,
    /// A request was refused because its partition had moved.
    RequestMoved,
    /// A write was forwarded to the target of a move.
    WriteForwarded,
    /// A node was told to wait for the client of a session, after another one had left.
    SessionAwaited,
    /// Such a client did not come in time.
    SessionOverdue,
}

/// All kinds of events.
pub const EVENTS: [SimEvent; 26] = [
    SimEvent::RequestLost,
    SimEvent::AnswerLost,
    SimEvent::RequestDoubled,
    SimEvent::RequestLate,
    SimEvent::MessageCut,
    SimEvent::LinkBroken,
    SimEvent::ClientDied,
    SimEvent::NodeSilent,
    SimEvent::NodesCut,
    SimEvent::TargetDied,
    SimEvent::SourceDied,
    SimEvent::EntryLate,
    SimEvent::EntryDoubled,
    SimEvent::EntryRefused,
    SimEvent::LeaderLost,
    SimEvent::ReportLost,
    SimEvent::NodeJoined,
    SimEvent::NodeLeft,
    SimEvent::MoveCommitted,
    SimEvent::MoveAbandoned,
    SimEvent::BytesWritten,
    SimEvent::BytesRead,
    SimEvent::ObjectPut,
    SimEvent::RequestMoved,
    SimEvent::WriteForwarded,
    SimEvent::SessionAwaited,
];

/// Number of events of each kind.
pub type EventCounts = BTreeMap<SimEvent, usize>;

/// Hosts that are cut from each other for a while; from all others, if there is one.
#[derive(Clone, Copy, Debug)]
struct Cut {
    one: Host,
    other: Option<Host>,
    until: Instant,
}

impl Cut {
    fn parts(&self, one: Host, other: Host) -> bool {
        match self.other {
            Some(second) => (self.one, second) == (one, other) || (self.one, second) == (other, one),
            None => self.one == one || self.one == other,
        }
    }
}

/// The hosts and the links between them.
pub struct Network {
    /// Bytes that a link carries in a millisecond.
    bytes_per_milli: u64,
    nodes: Mutex<BTreeMap<NodeId, Arc<Node>>>,
    dead: Mutex<BTreeSet<Host>>,
    cuts: Mutex<Vec<Cut>>,
    /// The time until which each link is busy.
    busy_until: Mutex<BTreeMap<(Host, Host), Instant>>,
    counts: Mutex<EventCounts>,
    /// The sessions that have said hello to a node, and have not ended there.
    live_sessions: Mutex<BTreeSet<(NodeId, Session)>>,
    /// The nodes that take no connections any more, because they leave.
    closed: Mutex<BTreeSet<NodeId>>,
    /// True if nothing is lost, doubled, late or cut any more.
    is_calm: AtomicBool,
    /// True if a node has died with partitions.
    has_lost_partitions: AtomicBool,
}

impl Network {
    /// A network without hosts.
    pub fn new(rng: &mut Random) -> Self {
        Self {
            bytes_per_milli: rng.pick(&[300, 2_000, 50_000]),
            nodes: Mutex::default(),
            dead: Mutex::default(),
            cuts: Mutex::default(),
            busy_until: Mutex::default(),
            counts: Mutex::default(),
            live_sessions: Mutex::default(),
            closed: Mutex::default(),
            is_calm: AtomicBool::new(true),
            has_lost_partitions: AtomicBool::new(false),
        }
    }

    /// Begins or ends the time in which the network has faults.
    pub fn set_calm(&self, is_calm: bool) {
        self.is_calm.store(is_calm, Relaxed);
    }

    pub fn is_calm(&self) -> bool {
        self.is_calm.load(Relaxed)
    }

    /// Notes that a node dies with partitions.
    pub fn lose_partitions(&self) {
        self.has_lost_partitions.store(true, Relaxed);
    }

    pub fn has_lost_partitions(&self) -> bool {
        self.has_lost_partitions.load(Relaxed)
    }

    pub fn add_node(&self, node: Arc<Node>) {
        self.nodes.lock().insert(node.id(), node);
    }

    /// The node at the other end of a connection; `None` if nobody listens there any more.
    pub fn node(&self, id: NodeId) -> Option<Arc<Node>> {
        let listens = self.is_alive(Host::Node(id)) && !self.closed.lock().contains(&id);
        self.nodes.lock().get(&id).filter(|_| listens).cloned()
    }

    /// The nodes that have not ended.
    pub fn live_nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.lock().values().filter(|node| self.is_alive(Host::Node(node.id()))).cloned().collect()
    }

    /// Notes that a host has ended; see [`SimState::kill`].
    pub fn bury(&self, host: Host) {
        self.dead.lock().insert(host);
    }

    pub fn is_alive(&self, host: Host) -> bool {
        !self.dead.lock().contains(&host)
    }

    /// True if hosts are cut from each other now.
    pub fn is_cut(&self, one: Host, other: Host) -> bool {
        if self.is_calm() {
            return false;
        }
        let now = node::now();
        let mut cuts = self.cuts.lock();
        cuts.retain(|cut| cut.until > now);
        cuts.iter().any(|cut| cut.parts(one, other))
    }

    pub fn count(&self, event: SimEvent) {
        *self.counts.lock().entry(event).or_default() += 1;
    }

    /// Counts an answer that says that a partition has moved.
    pub fn count_answer(&self, answer: &Result<Answer, Failure>) {
        if matches!(answer, Err(Failure::Refused(Refusal::Moved(_)))) {
            self.count(SimEvent::RequestMoved);
        }
    }

    pub fn counts(&self) -> EventCounts {
        self.counts.lock().clone()
    }
}

impl Network {
    /// Has a node answer a request of a client, as its server does: a session that lives here is
    /// not ended because it has ended elsewhere.
    pub async fn serve(&self, node: &Arc<Node>, request: Request) -> Result<Answer, Failure> {
        match request.body {
            Body::EndMovedSession { session, .. } if self.is_session_live(node.id(), session) => {
                return Ok(Answer::Closed(Vec::new()));
            }
            Body::EndMovedSession { left: true, .. } => self.count(SimEvent::SessionAwaited),
            Body::EndSession { session } => drop(self.live_sessions.lock().remove(&(node.id(), session))),
            _ => {}
        }
        let answer = node.handle(request).await;
        if let Ok(Answer::Hello(hello)) = &answer {
            self.live_sessions.lock().insert((node.id(), hello.session));
        }
        self.count_answer(&answer);
        answer
    }

    /// Ends the connections to a node that leaves; returns the sessions that they carried.
    pub fn close(&self, node: NodeId) -> Vec<Session> {
        self.closed.lock().insert(node);
        let mut live = self.live_sessions.lock();
        live.extract_if(.., |(at, _)| *at == node).map(|(_, session)| session).collect()
    }

    /// True if a session has said hello to a node, and has not ended there.
    pub fn is_session_live(&self, node: NodeId, session: Session) -> bool {
        self.live_sessions.lock().contains(&(node, session))
    }
}

impl SimState {
    /// Cuts a host from another, or from all others, for a while.
    pub fn cut(&self, one: Host, other: Option<Host>, time: Duration) {
        self.trace(|| format!("{one:?} is cut from {other:?} for {time:?}"));
        self.network.cuts.lock().push(Cut { one, other, until: node::now() + time });
    }

    /// The time at which a message that is sent now arrives.
    pub fn arrival(&self, from: Host, to: Host, bytes: u64) -> Instant {
        let takes = Duration::from_micros((HEADER_BYTES + bytes) * 1000 / self.network.bytes_per_milli);
        let mut links = self.network.busy_until.lock();
        let busy_until = links.entry((from, to)).or_insert_with(node::now);
        *busy_until = node::now().max(*busy_until) + takes;
        let is_late = !self.network.is_calm() && self.one_in(50);
        *busy_until + self.random_time(if is_late { LATENCY_MAX } else { LATENCY })
    }

    /// Waits for the arrival of a message; false if it does not arrive. For messages that nobody
    /// repeats.
    pub async fn carry(&self, from: Host, to: Host, bytes: u64) -> bool {
        if !self.network.is_alive(from) {
            return false;
        }
        let is_lost = !self.network.is_calm() && self.one_in(20);
        node::sleep_until(self.arrival(from, to, bytes)).await;
        if self.network.is_cut(from, to) {
            self.network.count(SimEvent::MessageCut);
            return false;
        }
        !is_lost && self.network.is_alive(to)
    }
}

/// About how many bytes a request has.
pub fn request_bytes(request: &Request) -> u64 {
    let action_bytes = |action: &StripeAction| match action {
        StripeAction::Write { data, .. } | StripeAction::Fill { data } => data.len(),
        _ => 0,
    };
    let payload = match &request.body {
        Body::Stripe { action, .. } | Body::Move { step: MoveStep::Stripe { action, .. } } => action_bytes(action),
        Body::Move { step: MoveStep::State { .. } } => STATE_BYTES,
        _ => 0,
    };
    payload as u64
}

/// About how many bytes an answer has.
pub fn answer_bytes(answer: &Result<Answer, Failure>) -> u64 {
    match answer {
        Ok(Answer::Bytes(bytes)) => bytes.len() as u64,
        _ => 0,
    }
}
