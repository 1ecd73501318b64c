//! The handshake: the first node that answers gives the session, the others are told of it.
//!
//! All answers must be of one pool. A node that does not answer now is skipped: requests to it fail
//! until it answers, all others are served.

use crate::{Client, Connection, Nodes, Patience, call::until_answered, client::unexpected};
use placement::{Epoch, NodeId, PartitionId};
use std::sync::Arc;
use wire::{Answer, Body, HelloReply, Object, Outcome, Refusal, Request, Session};

/// The nodes' answers to a hello.
pub struct Greeted {
    pub welcome: HelloReply,
    /// For each node, in the order of their ids, whether it answered.
    pub greeted: Vec<bool>,
}

impl Client {
    /// Connects to a pool of one node. Refused as `Unavailable` if no answer comes, as `Invalid` if
    /// the pool has more nodes.
    pub async fn connect(connection: Arc<dyn Connection>, patience: Patience) -> Outcome<Self> {
        let welcome = hello(&*connection, Session::NONE, patience).await?;
        let nodes = Nodes::one(welcome.node, connection);
        Self::welcomed(nodes, patience, Greeted { welcome, greeted: vec![true] })
    }

    /// Connects to a pool, with a connection to each of its nodes. Refused as `Unavailable` if no
    /// node answers, as `Invalid` if a connection is missing, leads to another node, or into
    /// another pool.
    pub async fn connect_all(nodes: Nodes, patience: Patience) -> Outcome<Self> {
        let greeted = greet(&nodes, patience).await?;
        Self::welcomed(nodes, patience, greeted)
    }

    fn welcomed(nodes: Nodes, patience: Patience, greeted: Greeted) -> Outcome<Self> {
        match greeted.welcome.map.nodes().into_iter().find(|node| nodes.get(*node).is_none()) {
            None => Ok(Self::of(nodes, patience, greeted)),
            Some(node) => {
                Err(not_one(format!("there is no connection to its node {node}: connect to all of its nodes")))
            }
        }
    }
}

/// Sends a hello to all nodes. The first that answers gives the session.
pub async fn greet(nodes: &Nodes, patience: Patience) -> Outcome<Greeted> {
    let (mut known, mut silent): (Option<HelloReply>, Option<Refusal>) = (None, None);
    let mut greeted = Vec::with_capacity(nodes.len());
    for (node, connection) in nodes.iter() {
        let session = known.as_ref().map_or(Session::NONE, |known| known.session);
        let answered = match nodes.pass(node, || hello_request(session), || Object::Pool).await {
            Ok(()) => hello(connection, session, patience).await,
            Err(refusal) => Err(refusal),
        };
        greeted.push(answered.is_ok());
        match answered {
            Ok(welcome) => known = Some(one_pool(known, node, welcome)?),
            Err(ref refusal @ Refusal::Unavailable { tries, ref why, .. }) => {
                nodes.silent(node, tries, why);
                silent.get_or_insert_with(|| refusal.clone());
            }
            Err(refusal) => return Err(refusal),
        }
    }
    let none = || silent.unwrap_or(Refusal::invalid(Object::Pool, "a pool has nodes: connect to them"));
    Ok(Greeted { welcome: known.ok_or_else(none)?, greeted })
}

/// Starts a session, or announces one that another node has given.
pub async fn hello(connection: &dyn Connection, session: Session, patience: Patience) -> Outcome<HelloReply> {
    match until_answered(connection, patience, || hello_request(session), |_| {}).await? {
        Answer::Hello(welcome) => Ok(welcome),
        other => Err(unexpected(&other)),
    }
}

fn hello_request(session: Session) -> Request {
    let (epoch, partition) = (Epoch::FIRST, PartitionId(0));
    Request { epoch, session, skip_ack: false, partition, body: Body::Hello }
}

/// Checks that a node's answer is from the node that was asked and from the same pool; returns the
/// answer with the newer map.
fn one_pool(known: Option<HelloReply>, asked: NodeId, welcome: HelloReply) -> Outcome<HelloReply> {
    if welcome.node != asked {
        return Err(not_one(format!(
            "the connection to node {asked} leads to node {}: look at the addresses",
            welcome.node
        )));
    }
    let Some(known) = known else { return Ok(welcome) };
    let pool = |welcome: &HelloReply| (welcome.seed, welcome.stripe_bytes, welcome.map.partitions());
    if pool(&known) != pool(&welcome) || known.session != welcome.session {
        let (one, other) = (known.node, welcome.node);
        return Err(not_one(format!("nodes {one} and {other} are not of one pool: start them with the same settings")));
    }
    Ok(if welcome.map.epoch() > known.map.epoch() { welcome } else { known })
}

fn not_one(why: String) -> Refusal {
    Refusal::Invalid { object: Object::Pool, why: why.into() }
}
