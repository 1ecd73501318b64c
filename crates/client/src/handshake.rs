//! The handshake: the first node that answers gives the session, the others are told of it.
//!
//! All answers must be of one pool. A node that does not answer now is skipped: requests to it fail
//! until it answers, all others are served.

use crate::{Client, Connection, Nodes, RetryPolicy, call::call_until_answered};
use placement::{Epoch, NodeId, PartitionId};
use std::sync::Arc;
use wire::{Body, HelloReply, Object, Outcome, Refusal, Request, Session};

/// The nodes' answers to a hello.
pub struct HandshakeResult {
    pub reply: HelloReply,
    /// For each node, in the order of their ids, whether it answered.
    pub reached: Vec<bool>,
}

impl Client {
    /// Connects to a pool of one node. Refused as `Unavailable` if no answer comes, as `Invalid` if
    /// the pool has more nodes.
    pub async fn connect(connection: Arc<dyn Connection>, retry_policy: RetryPolicy) -> Outcome<Self> {
        let reply = send_hello(&*connection, Session::NONE, retry_policy).await?;
        let nodes = Nodes::one(reply.node, connection);
        Self::from_handshake(nodes, retry_policy, HandshakeResult { reply, reached: vec![true] })
    }

    /// Connects to a pool, with a connection to each of its nodes. Refused as `Unavailable` if no
    /// node answers, as `Invalid` if a connection is missing, leads to another node, or into
    /// another pool.
    pub async fn connect_all(nodes: Nodes, retry_policy: RetryPolicy) -> Outcome<Self> {
        let handshake = handshake(&nodes, retry_policy).await?;
        Self::from_handshake(nodes, retry_policy, handshake)
    }

    fn from_handshake(nodes: Nodes, retry_policy: RetryPolicy, handshake: HandshakeResult) -> Outcome<Self> {
        match handshake.reply.map.nodes().into_iter().find(|node| nodes.get(*node).is_none()) {
            None => Ok(Self::new(nodes, retry_policy, handshake)),
            Some(node) => {
                Err(pool_mismatch(format!("there is no connection to its node {node}: connect to all of its nodes")))
            }
        }
    }
}

/// Sends a hello to all nodes. The first that answers gives the session.
pub async fn handshake(nodes: &Nodes, retry_policy: RetryPolicy) -> Outcome<HandshakeResult> {
    let (mut known, mut silent): (Option<HelloReply>, Option<Refusal>) = (None, None);
    let mut reached = Vec::with_capacity(nodes.len());
    for (node, connection) in nodes.iter() {
        let session = known.as_ref().map_or(Session::NONE, |known| known.session);
        let answered = match nodes.admit(node, || hello_request(session), || Object::Pool).await {
            Ok(()) => send_hello(connection, session, retry_policy).await,
            Err(refusal) => Err(refusal),
        };
        reached.push(answered.is_ok());
        match answered {
            Ok(reply) => known = Some(check_same_pool(known, node, reply)?),
            Err(ref refusal @ Refusal::Unavailable { tries, ref why, .. }) => {
                nodes.record_outage(node, tries, why);
                silent.get_or_insert_with(|| refusal.clone());
            }
            Err(refusal) => return Err(refusal),
        }
    }
    let none = || silent.unwrap_or(Refusal::invalid(Object::Pool, "a pool has nodes: connect to them"));
    Ok(HandshakeResult { reply: known.ok_or_else(none)?, reached })
}

/// Starts a session, or announces one that another node has given.
pub async fn send_hello(
    connection: &dyn Connection,
    session: Session,
    retry_policy: RetryPolicy,
) -> Outcome<HelloReply> {
    call_until_answered(connection, retry_policy, || hello_request(session)).await?.hello()
}

fn hello_request(session: Session) -> Request {
    let (epoch, partition) = (Epoch::FIRST, PartitionId(0));
    Request { epoch, session, skip_ack: false, partition, body: Body::Hello }
}

/// Checks that a node's answer is from the node that was asked and from the same pool; returns the
/// answer with the newer entries of both maps.
fn check_same_pool(known: Option<HelloReply>, expected: NodeId, reply: HelloReply) -> Outcome<HelloReply> {
    if reply.node != expected {
        return Err(pool_mismatch(format!(
            "the connection to node {expected} leads to node {}: look at the addresses",
            reply.node
        )));
    }
    let Some(mut known) = known else { return Ok(reply) };
    let pool = |reply: &HelloReply| (reply.seed, reply.stripe_bytes, reply.map.partitions());
    if pool(&known) != pool(&reply) || known.session != reply.session {
        let (one, other) = (known.node, reply.node);
        return Err(pool_mismatch(format!(
            "nodes {one} and {other} are not of the same pool: start them with the same settings"
        )));
    }
    Arc::make_mut(&mut known.map).learn_all(&reply.map);
    Ok(known)
}

fn pool_mismatch(why: String) -> Refusal {
    Refusal::Invalid { object: Object::Pool, why: why.into() }
}
