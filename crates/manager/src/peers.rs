//! Connections to the managers of other nodes.

use crate::message::{self, ManagerAnswer, ManagerRequest};
use bytes::Bytes;
use client::{Connection, Connector, InProcessConnection};
use cluster_log::MemberLink;
use futures_util::future::BoxFuture;
use node::Node;
use parking_lot::Mutex;
use placement::NodeId;
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::timeout;
use wire::Failure;

/// Time within which a manager answers. Messages are small, and are not repeated.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Time within which a member of the log answers. One that is asked to lead answers when it has
/// changed the members.
const MEMBER_WAIT: Duration = Duration::from_secs(10);

/// The connection to each node, made when it is first needed.
pub struct Peers {
    node: Weak<Node>,
    own: NodeId,
    connector: Arc<dyn Connector>,
    links: Mutex<HashMap<NodeId, Arc<dyn Connection>>>,
}

impl Peers {
    pub fn new(node: &Arc<Node>, connector: Arc<dyn Connector>) -> Self {
        Self { node: Arc::downgrade(node), own: node.id(), connector, links: Mutex::default() }
    }

    /// The connection to a node; an error says why there is none.
    pub fn connection(&self, to: NodeId) -> Result<Arc<dyn Connection>, String> {
        let node = self.node.upgrade().ok_or("this node has ended")?;
        if to == self.own {
            return Ok(Arc::new(InProcessConnection(node)));
        }
        let mut links = self.links.lock();
        if let Some(link) = links.get(&to) {
            return Ok(link.clone());
        }
        let map = node.known_map();
        let address = map.addresses().find(|(node, _)| *node == to).map(|(_, address)| address);
        let link = self.connector.connect(to, address.ok_or_else(|| format!("node {to} has no known address"))?)?;
        Ok(links.entry(to).or_insert(link).clone())
    }

    /// Sends a message to a manager, once.
    pub async fn ask(&self, to: NodeId, request: &ManagerRequest) -> Result<ManagerAnswer, String> {
        let reply = self.connection(to)?.call(message::request(request));
        let wait = if matches!(request, ManagerRequest::Member(_)) { MEMBER_WAIT } else { ANSWER_WAIT };
        match timeout(wait, reply).await {
            Ok(reply) => message::answer(reply).map_err(|failure: Failure| failure.to_string()),
            Err(_) => Err(format!("node {to} does not answer")),
        }
    }
}

/// Carries the messages of the log.
pub struct LogLink(pub Arc<Peers>);

impl MemberLink for LogLink {
    fn send(&self, to: NodeId, message: Bytes) -> BoxFuture<'static, Result<Bytes, String>> {
        let peers = self.0.clone();
        Box::pin(async move {
            match peers.ask(to, &ManagerRequest::Member(message)).await? {
                ManagerAnswer::Member(answer) => Ok(answer),
                ManagerAnswer::Failed(why) => Err(why),
                other => Err(format!("a member of the managers has answered with {other:?}")),
            }
        })
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("own", &self.own).finish_non_exhaustive()
    }
}
