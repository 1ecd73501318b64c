//! Node served within TLS: clients that are admitted, and refusals of the others.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use super::common::*;
use client::{Client, Connection, RetryPolicy};
use placement::{Epoch, PartitionId};
use std::sync::Arc;
use transport::{Address, Identity, Listener, Remote, Server, ServerLimits};
use vfs::Vfs;
use wire::{Body, Failure, Refusal, Request, Session};

fn served(identity: &Identity) -> Server {
    let listener = Listener::bind_tls(&"tls:127.0.0.1:0".parse().unwrap(), identity).unwrap();
    transport::serve(node(), listener, &token(), ServerLimits::default()).unwrap()
}

/// Same port as another kind of address.
fn as_kind(kind: &str, address: &Address) -> Address {
    let text = address.to_string();
    format!("{kind}:{}", text.split_once(':').unwrap().1).parse().unwrap()
}

/// Reason why a hello over this connection is refused.
async fn refused(remote: &Remote) -> String {
    let (epoch, session, partition) = (Epoch::FIRST, Session::NONE, PartitionId(0));
    match remote.call(Request { epoch, session, skip_ack: false, partition, body: Body::Hello }).await {
        Err(Failure::Refused(Refusal::Io { why, .. } | Refusal::NotAdmitted { why })) => why.into_owned(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn who_has_the_pools_certificate_and_token_comes_in_and_moves_bytes_of_any_length() {
    let identity = Identity::generate().unwrap();
    let server = served(&identity);
    let remote = Remote::with_certificate(server.address().clone(), &token(), identity.certificate()).unwrap();
    let vfs = Vfs::new(Client::connect(Arc::new(remote), RetryPolicy::default()).await.unwrap());
    for length in [0, 1, 4096, 4097, 65_536, 3_000_000] {
        let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
        vfs.write_file(b"f", &bytes).await.unwrap();
        assert!(vfs.read_file(b"f").await.unwrap() == bytes, "{length}");
    }
    server.stop().await;
}

#[tokio::test]
async fn who_is_shown_another_certificate_trusts_nobody_there_and_says_so() {
    let (identity, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let server = served(&identity);
    let address = server.address().clone();
    let wrong = Remote::with_certificate(address.clone(), &token(), other.certificate()).unwrap();
    let said = refused(&wrong).await;
    assert!(said.contains("another certificate than the pool's"), "{said}");
    let said = refused(&Remote::new(address, &token())).await;
    assert!(said.contains("needs the pool's certificate"), "{said}");
    server.stop().await;
}

#[tokio::test]
async fn who_speaks_plainly_to_tls_and_who_speaks_tls_to_the_plain_are_told_so() {
    let identity = Identity::generate().unwrap();
    let server = served(&identity);
    let said = refused(&Remote::new(as_kind("tcp", server.address()), &token())).await;
    assert!(said.contains("tls:HOST:PORT"), "{said}");
    server.stop().await;
    let server = serve(&node(), &any_port());
    let remote = Remote::with_certificate(as_kind("tls", server.address()), &token(), identity.certificate()).unwrap();
    let said = refused(&remote).await;
    assert!(said.contains("no TLS is spoken there"), "{said}");
    assert!(vfs(server.address()).await.list(Vfs::root(), 0, 9).await.unwrap().is_empty(), "others notice nothing");
    server.stop().await;
}

#[tokio::test]
async fn a_wrong_token_is_told_within_tls_as_without() {
    let identity = Identity::generate().unwrap();
    let server = served(&identity);
    let wrong = wire::handshake::Token::new(b"another token, not of the pool").unwrap();
    let remote = Remote::with_certificate(server.address().clone(), &wrong, identity.certificate()).unwrap();
    let said = refused(&remote).await;
    assert!(said.contains("token is wrong"), "{said}");
    server.stop().await;
}

#[test]
fn nobody_listens_plainly_where_others_hear_it_unless_told_so_by_name() {
    let identity = Identity::generate().unwrap();
    let address = |text: &str| text.parse::<Address>().unwrap();
    let open = address("tcp:0.0.0.0:0");
    for refused in [Listener::bind(&open), Listener::bind_tls(&open, &identity)] {
        assert!(refused.unwrap_err().to_string().contains("tls:HOST:PORT"));
    }
    for refused in [Listener::bind(&address("tls:127.0.0.1:0")), Listener::bind_plain(&address("tls:0.0.0.0:0"))] {
        assert!(refused.unwrap_err().to_string().contains("certificate and key"));
    }
    assert!(matches!(Listener::bind_plain(&open).unwrap().address(), Address::Tcp { port: 1.., .. }));
    assert!(matches!(Listener::bind_tls(&address("tls:0.0.0.0:0"), &identity).unwrap().address(), Address::Tls { .. }));
    assert!(matches!(Listener::bind(&address("tcp:localhost:0")).unwrap().address(), Address::Tcp { .. }));
}
