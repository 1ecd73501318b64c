//! Replaces `sim::pool` for the suites of `sim`, with sockets below.

use client::{Client, Connection, Nodes, OnInvalidate, RetryPolicy};
use node::{Node, ReplyFuture};
pub use sim::pool::*;
use std::sync::Arc;
use transport::{Remote, Server};
use vfs::Vfs;
use wire::{Request, Session};

/// Connection with its server.
#[derive(Debug)]
pub struct Served {
    remote: Remote,
    _server: Server,
}

impl Connection for Served {
    fn call(&self, request: Request) -> ReplyFuture {
        self.remote.call(request)
    }

    fn subscribe(&self, session: Session, on_invalidate: &OnInvalidate) -> ReplyFuture {
        self.remote.subscribe(session, on_invalidate)
    }

    fn set_supports_prune(&self, session: Session) {
        self.remote.set_supports_prune(session);
    }

    fn unsubscribe(&self, session: Session) {
        self.remote.unsubscribe(session);
    }
}

pub fn direct(node: &Arc<Node>) -> Served {
    let (server, remote) = super::serve_remote(node);
    Served { remote, _server: server }
}

/// Nodes that are reached over sockets.
pub struct Pool(sim::pool::Pool);

impl Pool {
    pub fn of(nodes: u32) -> Self {
        Self(sim::pool::Pool::of(nodes))
    }

    pub fn that_splits(nodes: u32, split_entries: u32) -> Self {
        Self(sim::pool::Pool::that_splits(nodes, split_entries))
    }

    pub async fn over<C: Connection + 'static>(&self, wrap: impl Fn(Served) -> C, retry_policy: RetryPolicy) -> Vfs {
        let connect = |node: &Arc<Node>| (node.id(), Arc::new(wrap(direct(node))) as Arc<dyn Connection>);
        let nodes: Nodes = self.0.nodes().iter().map(connect).collect();
        Vfs::new(Client::connect_all(nodes, retry_policy).await.unwrap())
    }

    pub async fn client(&self) -> Vfs {
        self.over(|node| node, IMPATIENT).await
    }

    pub fn nodes(&self) -> &[Arc<Node>] {
        self.0.nodes()
    }
}
