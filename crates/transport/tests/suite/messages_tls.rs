//! Message suite of `sim`, within TLS.
#![allow(
    clippy::unwrap_used,
    clippy::duplicate_mod,
    reason = "in a test a panic is the failure; the same files once more, over other connections"
)]

use super::common;
use node::Node;
use std::sync::{Arc, LazyLock};
use transport::{Identity, Listener, Remote, Server, ServerLimits};

#[path = "../../../sim/src/message_test.rs"]
mod message_test;

#[path = "common/pool.rs"]
mod pool;

static IDENTITY: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());

/// Server of a node, and a connection to it.
fn serve_remote(node: &Arc<Node>) -> (Server, Remote) {
    let listener = Listener::bind_tls(&"tls:127.0.0.1:0".parse().unwrap(), &IDENTITY).unwrap();
    let server = transport::serve(node.clone(), listener, &common::token(), ServerLimits::default()).unwrap();
    let remote = common::remote_of(server.address(), Some(IDENTITY.certificate()));
    (server, remote)
}
