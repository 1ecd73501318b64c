//! Tests of other files, over connections that a reactor drives.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::duplicate_mod,
    reason = "in a test a panic is the failure; processes talk by their output; the same files once more"
)]

#[path = "common/mod.rs"]
mod common;

use client::{Client, RetryPolicy};
use common::*;
use std::sync::Arc;
use transport::{Identity, Listener, Remote, ServerLimits};
use vfs::Vfs;

#[path = "killed.rs"]
mod killed;
#[path = "programs.rs"]
mod programs;
#[path = "puts.rs"]
mod puts;
#[path = "reconnect.rs"]
mod reconnect;
#[path = "recv_buffers.rs"]
mod recv_buffers;
#[path = "same_host.rs"]
mod same_host;
#[path = "session_ends.rs"]
mod session_ends;
#[path = "values.rs"]
mod values;
#[path = "views.rs"]
mod views;

#[tokio::test]
async fn within_tls_a_node_is_known_by_its_certificate() {
    let (identity, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let listener = Listener::bind_tls(&"tls:127.0.0.1:0".parse().unwrap(), &identity).unwrap();
    let server = transport::serve(node(), listener, &token(), ServerLimits::default()).unwrap();
    let vfs = |remote: Remote| async { Client::connect(Arc::new(remote), RetryPolicy::default()).await.map(Vfs::new) };
    let known = vfs(remote_of(server.address(), Some(identity.certificate()))).await.unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    known.write_file(b"f", &bytes).await.unwrap();
    assert!(known.read_file(b"f").await.unwrap() == bytes);
    let refused = vfs(remote_of(server.address(), Some(other.certificate()))).await.unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
    let refused = vfs(remote(server.address())).await.unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
    server.stop().await;
}
