//! The handshake: a node gives the session, and every node that is needed later hears of it by a
//! hello.
//!
//! All nodes must be of one pool. A client that begins says hello to one node that answers, and to
//! those that may be on its host: how bytes are read there depends on the connection. To all others
//! it says hello with its first request to them.

use crate::{
    Client, Connection, Nodes, RetryPolicy,
    router::{
        Router,
        nodes::NodeLink,
        retry::{RetryDecision, RetryState},
        send::call_until_answered,
        session::{Greeting, SessionState},
    },
};
use node::sleep_until;
use placement::{Epoch, NodeId, PartitionId, PartitionMap};
use std::{
    process,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use wire::{Answer, Body, Failure, HelloReply, Object, Outcome, Refusal, Request, Session};

impl Client {
    /// Connects to a pool of one node. Refused as `Unavailable` if no answer comes, as `Invalid` if
    /// the pool has more nodes.
    pub async fn connect(connection: Arc<dyn Connection>, retry_policy: RetryPolicy) -> Outcome<Self> {
        let reply = send_hello(&*connection, Session::NONE, retry_policy).await?;
        let (first, nodes) = (reply.node, Nodes::one(reply.node, connection));
        Self::begin(nodes, retry_policy, (reply, first)).await
    }

    /// Connects to a pool, of which these nodes are known. Refused as `Unavailable` if no node
    /// answers, as `Invalid` if there is no way to a node of it, or if a connection leads to
    /// another node, or into another pool. A node that does not answer now, and one that is not on
    /// this host, is told of the session with the first request to it.
    pub async fn connect_all(nodes: Nodes, retry_policy: RetryPolicy) -> Outcome<Self> {
        let first = handshake(&nodes, retry_policy).await?;
        Self::begin(nodes, retry_policy, first).await
    }

    async fn begin(nodes: Nodes, retry_policy: RetryPolicy, first: (HelloReply, NodeId)) -> Outcome<Self> {
        let client = Self::new(nodes, retry_policy, first);
        let router = client.router();
        if let Some(node) = router.data_nodes().into_iter().find(|node| router.nodes.link(*node).is_none()) {
            return Err(pool_mismatch(format!(
                "there is no connection to its node {node}: connect to all of its nodes"
            )));
        }
        let state = router.session_state();
        for link in router.nodes.links().into_iter().filter(|link| link.connection.is_near()) {
            match router.greet(&state, link).await {
                Ok(()) | Err(Refusal::Unavailable { .. }) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(client)
    }
}

/// Begins a session at the first node that answers; those that may be on this host are asked first.
pub async fn handshake(nodes: &Nodes, retry_policy: RetryPolicy) -> Outcome<(HelloReply, NodeId)> {
    let (links, mut silent) = (nodes.links(), None);
    let (near, far): (Vec<_>, Vec<_>) = links.into_iter().partition(|link| link.connection.is_near());
    for link in near.into_iter().chain(far) {
        let answered = match nodes.admit(link, || hello_request(Session::NONE), || Object::Pool).await {
            Ok(()) => send_hello(&*link.connection, Session::NONE, retry_policy).await,
            Err(refusal) => Err(refusal),
        };
        match answered {
            Ok(reply) => return check_node(link.node, reply).map(|reply| (reply, link.node)),
            Err(ref refusal @ Refusal::Unavailable { tries, ref why, .. }) => {
                nodes.record_outage(link, tries, why);
                silent.get_or_insert_with(|| refusal.clone());
            }
            Err(refusal) => return Err(refusal),
        }
    }
    Err(silent.unwrap_or(Refusal::invalid(Object::Pool, "a pool has nodes: connect to them")))
}

impl Router {
    /// Says hello to a node, and subscribes there if this client caches, unless the session has
    /// done so. Refused as `SessionEnded` in a forked child, whose session is its parent's.
    pub async fn greet(&self, state: &SessionState, link: &NodeLink) -> Outcome<()> {
        let _guard = link.hello_lock.lock().await;
        if state.has_greeted(link) {
            return Ok(());
        }
        if state.process != process::id() {
            return Err(Refusal::SessionEnded);
        }
        self.nodes.admit(link, || self.usage_request(), || Object::Pool).await?;
        let reply = check_node(link.node, self.say_hello(state, link).await?)?;
        self.check_pool(&reply)?;
        self.learn_map(&reply.map);
        let greeting = self.subscribe_at(state, link).await?;
        state.record(link, greeting);
        Ok(())
    }

    /// Says hello until an answer comes. While the node is not reached, others are asked: it may
    /// have left the pool, and then nobody needs it.
    async fn say_hello(&self, state: &SessionState, link: &NodeLink) -> Outcome<HelloReply> {
        let (mut retry, mut tries) = (RetryState::new(self.retry_policy), 0);
        loop {
            let failure = match link.connection.call(hello_request(state.id)).await {
                Ok(answer) => return answer.hello(),
                Err(failure) => failure,
            };
            tries += 1;
            let is_away = matches!(failure, Failure::Unreachable(_));
            match retry.on(failure, || Object::Pool) {
                RetryDecision::Refuse(refusal) => return Err(self.refusal_from(link, refusal)),
                RetryDecision::Learn(moved) => return Err(Refusal::Moved(moved)),
                RetryDecision::Resend(pause) => {
                    if is_away {
                        self.learn_from_others(state, link).await;
                    }
                    if !link.is_present() {
                        let why = format!("node {} has left the pool", link.node).into();
                        return Err(Refusal::Unavailable { object: Object::Pool, tries, why });
                    }
                    sleep_until(node::now() + pause).await;
                }
            }
        }
    }

    /// Learns of nodes that have joined and partitions that have moved, without a request for one
    /// of them. Does nothing if no node answers.
    pub async fn refresh_map(&self) {
        let state = self.session_state();
        for link in self.nodes.links().into_iter().filter(|link| state.has_greeted(link)) {
            if let Ok(map) = self.query_map(link).await {
                return self.learn_map(&map);
            }
        }
    }

    /// Says hello to a node, also to one that is not known yet.
    pub async fn introduce(&self, node: NodeId) -> Outcome<()> {
        let state = self.session_state();
        match self.find_link(&state, node).await {
            Some(link) => self.greet(&state, link).await,
            None => Err(Refusal::invalid(Object::Pool, "the pool has no such node")),
        }
    }

    /// The link to a node. If it is not known yet, those that know the session are asked for their
    /// maps.
    pub async fn find_link(&self, state: &SessionState, node: NodeId) -> Option<&NodeLink> {
        if let Some(link) = self.nodes.link(node) {
            return Some(link);
        }
        for link in self.nodes.links().into_iter().filter(|link| state.has_greeted(link)) {
            if let Ok(map) = self.query_map(link).await {
                self.learn_map(&map);
            }
            if let Some(found) = self.nodes.link(node) {
                return Some(found);
            }
        }
        None
    }

    /// Refuses the answer of a node of another pool.
    pub fn check_pool(&self, reply: &HelloReply) -> Outcome<()> {
        let own = (self.seed, self.stripe_bytes, self.partitions);
        if (reply.seed, reply.stripe_bytes, reply.map.partitions()) == own {
            return Ok(());
        }
        Err(pool_mismatch(format!(
            "node {} is not of the pool of the other nodes: start them with the same settings, or connect anew if another pool answers at its addresses now",
            reply.node
        )))
    }

    /// Asks a node that knows the current session for its map.
    pub async fn query_map(&self, link: &NodeLink) -> Outcome<Arc<PartitionMap>> {
        let state = self.session_state();
        Ok(send_hello(&*link.connection, state.id, self.retry_policy).await?.map)
    }

    /// Like [`Self::query_map`], with one try.
    pub async fn query_map_once(&self, link: &NodeLink) -> Result<Arc<PartitionMap>, Failure> {
        let answer = link.connection.call(hello_request(self.session_state().id)).await?;
        Ok(answer.hello()?.map)
    }

    /// Asks other nodes for the map, when one is not reached: it may have left the pool, with its
    /// partitions at other nodes. They are asked until one says that it has left, for some may not
    /// know yet; those that know the session first. Does nothing if they were asked a moment ago.
    pub async fn learn_from_others(&self, state: &SessionState, away: &NodeLink) {
        if !away.may_have_left() {
            return;
        }
        let links = self.nodes.links().into_iter().filter(|link| link.node != away.node && link.is_available());
        let (greeted, unknown): (Vec<_>, Vec<_>) = links.partition(|link| state.has_greeted(link));
        // In a forked child the session is its parent's.
        let unknown = unknown.into_iter().filter(|_| state.process == process::id());
        for other in greeted.into_iter().chain(unknown) {
            if let Ok(Answer::Hello(reply)) = other.connection.call(hello_request(state.id)).await {
                self.learn_map(&reply.map);
            }
            if !away.is_present() {
                return;
            }
        }
    }

    /// Subscribes a session at a node, if this client has a callback.
    pub async fn subscribe_at(&self, state: &SessionState, link: &NodeLink) -> Outcome<Greeting> {
        let Some(on_invalidate) = self.on_invalidate() else { return Ok(Greeting::Hello) };
        match link.connection.subscribe(state.id, &on_invalidate).await {
            Ok(answer) => answer.done()?,
            Err(Failure::Refused(refusal)) => return Err(refusal),
            Err(failure) => {
                let (object, why) = (Object::Pool, failure.to_string().into());
                return Err(Refusal::Unavailable { object, tries: 1, why });
            }
        }
        if self.supports_prune.load(Relaxed) {
            link.connection.set_supports_prune(state.id);
        }
        Ok(Greeting::Subscribed)
    }
}

/// Starts a session, or announces one that another node has given.
async fn send_hello(connection: &dyn Connection, session: Session, retry_policy: RetryPolicy) -> Outcome<HelloReply> {
    call_until_answered(connection, retry_policy, || hello_request(session)).await?.hello()
}

fn hello_request(session: Session) -> Request {
    let (epoch, partition) = (Epoch::FIRST, PartitionId(0));
    Request { epoch, session, skip_ack: false, partition, body: Body::Hello }
}

/// Refuses an answer of another node than was asked.
fn check_node(expected: NodeId, reply: HelloReply) -> Outcome<HelloReply> {
    if reply.node == expected {
        return Ok(reply);
    }
    let other = reply.node;
    Err(pool_mismatch(format!("the connection to node {expected} leads to node {other}: look at the addresses")))
}

fn pool_mismatch(why: String) -> Refusal {
    Refusal::Invalid { object: Object::Pool, why: why.into() }
}
