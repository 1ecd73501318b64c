//! Message suite of `vfs`, within TLS.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

mod common;

use node::Node;
use std::sync::{Arc, LazyLock};
use transport::{Identity, Listener, Remote, Server, ServerLimits};
use vfs::{Handle, Vfs};

#[allow(dead_code, reason = "the suite uses some of it")]
#[path = "../../vfs/src/pool_test.rs"]
mod theirs;

#[path = "../../sim/src/message_test.rs"]
mod message_test;

#[path = "common/pool.rs"]
mod pool_test;

static IDENTITY: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());

/// Server of a node, and a connection to it.
fn serve_remote(node: &Arc<Node>) -> (Server, Remote) {
    let listener = Listener::bind_tls(&"tls:127.0.0.1:0".parse().unwrap(), &IDENTITY).unwrap();
    let server = transport::serve(node.clone(), listener, &common::token(), ServerLimits::default()).unwrap();
    let remote = common::remote_of(server.address(), Some(IDENTITY.certificate()));
    (server, remote)
}
