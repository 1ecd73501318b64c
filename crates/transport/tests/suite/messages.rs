//! Message suite of `sim` over sockets: the same tests, each connection a server and a `Remote`.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use super::common;
use node::Node;
use std::sync::Arc;
use transport::{Remote, Server};

#[path = "../../../sim/src/message_test.rs"]
mod message_test;

#[path = "common/pool.rs"]
mod pool;

/// Server of a node, and a connection to it.
fn serve_remote(node: &Arc<Node>) -> (Server, Remote) {
    let server = common::serve(node, &common::any_port());
    let remote = common::remote(server.address());
    (server, remote)
}
