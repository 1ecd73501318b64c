//! The handshake: a session begins at the first node that answers. It is named to each other node
//! when that is first needed.
//!
//! All answers must be of one pool. A node that does not answer is left out: requests to it fail
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

/// Begins a session at the first node that answers; those of this host are asked first.
pub async fn handshake(nodes: &Nodes, retry_policy: RetryPolicy) -> Outcome<HandshakeResult> {
    let mut silent: Option<Refusal> = None;
    let local = nodes.local_node();
    let order = local.into_iter().chain(nodes.iter().map(|(node, _)| node).filter(|node| Some(*node) != local));
    for (node, connection) in order.filter_map(|node| Some((node, nodes.get(node)?))) {
        let answered = match nodes.admit(node, || hello_request(Session::NONE), || Object::Pool).await {
            Ok(()) => send_hello(connection, Session::NONE, retry_policy).await,
            Err(refusal) => Err(refusal),
        };
        match answered {
            Ok(reply) => {
                check_node(node, &reply)?;
                let reached = nodes.iter().map(|(other, _)| other == node).collect();
                return Ok(HandshakeResult { reply, reached });
            }
            Err(ref refusal @ Refusal::Unavailable { tries, ref why, .. }) => {
                nodes.record_outage(node, tries, why);
                silent.get_or_insert_with(|| refusal.clone());
            }
            Err(refusal) => return Err(refusal),
        }
    }
    Err(silent.unwrap_or(Refusal::invalid(Object::Pool, "a pool has nodes: connect to them")))
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

/// Checks that an answer is from the node that was asked.
fn check_node(expected: NodeId, reply: &HelloReply) -> Outcome<()> {
    if reply.node == expected {
        return Ok(());
    }
    let found = reply.node;
    Err(pool_mismatch(format!("the connection to node {expected} leads to node {found}: look at the addresses")))
}

/// Checks that an answer to a hello is from the node that was asked, of the pool with this seed,
/// stripe length and number of partitions.
pub fn check_same_pool(expected: NodeId, pool: (u64, u32, u32), reply: &HelloReply) -> Outcome<()> {
    check_node(expected, reply)?;
    if (reply.seed, reply.stripe_bytes, reply.map.partitions()) == pool {
        return Ok(());
    }
    Err(pool_mismatch(format!("node {expected} is not of the same pool: start all nodes with the same settings")))
}

fn pool_mismatch(why: String) -> Refusal {
    Refusal::Invalid { object: Object::Pool, why: why.into() }
}
