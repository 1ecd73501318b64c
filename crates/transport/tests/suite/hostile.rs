//! Garbage, silence and floods on one connection affect no other.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use super::common::*;
use bytes::Bytes;
use client::Connection;
use placement::{Epoch, FileId, NodeId, PartitionId, StripeNo};
use std::{io::Write, net::Shutdown, time::Duration};
use test_support::{Random, until_polled};
use transport::{Remote, ServerLimits};
use vfs::Vfs;
use wire::{
    Answer, Extent, Failure, OpenFlags, Refusal, Session,
    codec::{
        LeaseFd, ShmPayload, ToClient, encode_lease_fd, encode_leases_returned, encode_ping, encode_request,
        encode_request_in_shm, encode_segment_mapped, encode_subscribe,
    },
    handshake::{HandshakeFailed, ProtocolVersion, ProtocolVersions, Token, VERSIONS},
};
use wire::{Body, Request, StripeAction};

fn hello() -> Request {
    Request {
        epoch: Epoch::FIRST,
        session: Session::NONE,
        skip_ack: false,
        partition: PartitionId(0),
        body: Body::Hello,
    }
}

fn encoded(request: &Request, id: u64) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(encode_request(request, id, &mut out).unwrap().is_empty());
    out
}

#[test]
fn over_a_network_nothing_is_lent_and_nothing_placed() {
    let node = node();
    let server = serve(&node, &any_port());
    let mut raw = RawClient::connect(&server);
    raw.shake_hands(token(), VERSIONS).unwrap();
    let extent = Extent { node: NodeId(1), slot: 0, generation: 1 };
    let mut bytes = Vec::new();
    encode_segment_mapped(0, &mut bytes);
    encode_leases_returned(&[1, 2, u64::MAX], &mut bytes);
    encode_lease_fd(LeaseFd { extent, flags: OpenFlags::READ_WRITE }, 1, &mut bytes);
    raw.stream.write_all(&bytes).unwrap();
    assert_eq!(raw.next(), Some(ToClient::Reply { id: 1, reply: Ok(Answer::Done) }));
}

#[test]
fn who_publishes_what_it_has_not_put_down_is_cut_off() {
    let node = node();
    let server = serve(&node, &any_port());
    let mut raw = RawClient::connect(&server);
    raw.shake_hands(token(), VERSIONS).unwrap();
    let action = StripeAction::Fill { data: Bytes::new() };
    let body = Body::Stripe { file: FileId::ROOT, stripe: StripeNo(0), action };
    let mut bytes = Vec::new();
    encode_request_in_shm(&Request { body, ..hello() }, ShmPayload { slot: 0, length: 5 }, 1, &mut bytes).unwrap();
    raw.stream.write_all(&bytes).unwrap();
    let Some(ToClient::Goodbye(why)) = raw.next() else { panic!("a goodbye") };
    assert!(why.contains("there are no bytes where the request said"), "{why}");
}

#[tokio::test]
async fn garbage_at_every_stage_ends_its_connection_and_no_other() {
    let node = node();
    let server = serve(&node, &any_port());
    let healthy = vfs(server.address()).await;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut raw = RawClient::connect(&server);
        let greeted = seed % 3 > 0;
        if greeted {
            raw.shake_hands(token(), VERSIONS).unwrap();
        }
        let mut bytes = encoded(&hello(), 1);
        match seed % 6 {
            0 | 1 => {
                let length = 32 + random.below(400);
                bytes = random.bytes(length);
            }
            2 | 4 => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            _ => bytes.truncate(1 + random.below(bytes.len() - 1)),
        }
        let _ = raw.stream.write_all(&bytes);
        let _ = raw.stream.shutdown(Shutdown::Write);
        if greeted {
            let last = raw.next();
            assert!(matches!(last, Some(ToClient::Goodbye(_)) | None), "seed {seed}: {last:?}");
        }
        healthy.write_file(b"f", &bytes).await.unwrap();
    }
    assert!(healthy.read_file(b"f").await.is_ok());
    server.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_frame_is_said_before_the_connection_ends() {
    let server = serve(&node(), &any_port());
    let says = |bytes: Vec<u8>| {
        let mut raw = RawClient::connect(&server);
        raw.shake_hands(token(), VERSIONS).unwrap();
        raw.stream.write_all(&bytes).unwrap();
        match raw.next() {
            Some(ToClient::Goodbye(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(says(vec![b'x'; 64]).contains("does not start with `tide`"));
    let mut oversized = encoded(&hello(), 1);
    oversized[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(says(oversized).contains("damaged"), "its check is of other bytes");
    let twice = [encoded(&hello(), 7), encoded(&hello(), 7)].concat();
    let mut raw = RawClient::connect(&server);
    raw.shake_hands(token(), VERSIONS).unwrap();
    raw.stream.write_all(&twice).unwrap();
    assert!(matches!(raw.next(), Some(ToClient::Reply { id: 7, reply: Ok(_) })));
    assert!(matches!(raw.next(), Some(ToClient::Goodbye(why)) if why.contains("ids grow")));
    assert_eq!(raw.next(), None);
    server.stop().await;
}

#[tokio::test]
async fn who_does_not_know_the_token_or_speaks_no_common_version_is_told_so() {
    let server = serve(&node(), &any_port());
    let wrong = Token::new(b"another token, not of the pool").unwrap();
    let refused = RawClient::connect(&server).shake_hands(wrong.clone(), VERSIONS).unwrap_err();
    assert!(matches!(&refused, HandshakeFailed::Refused { why, .. } if why.contains("token is wrong")), "{refused}");
    let later = ProtocolVersions::new(ProtocolVersion(u16::MAX - 1), ProtocolVersion(u16::MAX)).unwrap();
    let refused = RawClient::connect(&server).shake_hands(token(), later).unwrap_err();
    assert!(matches!(&refused, HandshakeFailed::Refused { why, .. } if why.contains("versions")), "{refused}");
    let remote = Remote::new(server.address().clone(), &wrong);
    let failure = remote.call(hello()).await.unwrap_err();
    assert!(
        matches!(&failure, Failure::Refused(Refusal::NotAdmitted { why }) if why.contains("token is wrong")),
        "{failure}"
    );
    assert!(vfs(server.address()).await.list(Vfs::root(), 0, 10).await.unwrap().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn who_does_not_finish_the_handshake_is_cut_off() {
    let limits = ServerLimits { handshake: Duration::from_millis(30), ..ServerLimits::default() };
    let server = serve_with(&node(), &any_port(), limits);
    let mut raw = RawClient::connect(&server);
    raw.stream.write_all(b"tid").unwrap();
    let refused = raw.shake_hands(token(), ProtocolVersions::new(ProtocolVersion(1), ProtocolVersion(1)).unwrap());
    assert!(refused.is_err(), "what was begun is no hello");
    let mut silent = RawClient::connect(&server);
    assert!(ends(&mut silent), "it is closed");
    server.stop().await;
}

/// Reads to the end; returns whether there is one.
fn ends(raw: &mut RawClient) -> bool {
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut raw.stream, &mut all).is_ok()
}

#[tokio::test]
async fn too_many_connections_are_told_so_and_those_that_are_there_go_on() {
    let limits = ServerLimits { connections: 2, ..ServerLimits::default() };
    let server = serve_with(&node(), &any_port(), limits);
    let one = vfs(server.address()).await;
    let mut other = RawClient::connect(&server);
    other.shake_hands(token(), VERSIONS).unwrap();
    let refused = RawClient::connect(&server).shake_hands(token(), VERSIONS).unwrap_err();
    assert!(matches!(&refused, HandshakeFailed::Refused { why, .. } if why.contains("2 connections")), "{refused}");
    let full = Remote::new(server.address().clone(), &token()).call(hello()).await.unwrap_err();
    assert!(
        matches!(&full, Failure::Unreachable(why) if why.contains("2 connections")),
        "later there may be room: {full}"
    );
    one.write_file(b"f", b"on it goes").await.unwrap();
    drop(other);
    while RawClient::connect(&server).shake_hands(token(), VERSIONS).is_err() {}
    server.stop().await;
}

#[tokio::test]
async fn a_session_is_served_on_its_own_connection_only() {
    let server = serve(&node(), &any_port());
    let remote = std::sync::Arc::new(Remote::new(server.address().clone(), &token()));
    let one = client::Client::connect(remote, client::RetryPolicy::default()).await.unwrap();
    let mut raw = RawClient::connect(&server);
    raw.shake_hands(token(), VERSIONS).unwrap();
    let (mut bytes, session) = (Vec::new(), one.session());
    encode_subscribe(session, 1, &mut bytes);
    let stranger = Request {
        session,
        body: Body::Meta { request_id: None, command: wire::Command::Stat { file: FileId::ROOT } },
        ..hello()
    };
    bytes.extend(encoded(&stranger, 2));
    encode_ping(9, &mut bytes);
    raw.stream.write_all(&bytes).unwrap();
    for id in [1, 2] {
        let reply = raw.next();
        assert_eq!(reply, Some(ToClient::Reply { id, reply: Err(Refusal::SessionEnded.into()) }));
    }
    assert_eq!(raw.next(), Some(ToClient::Pong(9)));
    server.stop().await;
}

#[tokio::test]
async fn strangers_who_say_nothing_keep_nobody_out() {
    let limits = ServerLimits { connections: 4, unauthenticated: 4, ..ServerLimits::default() };
    let server = serve_with(&node(), &any_port(), limits);
    let silent: Vec<RawClient> = (0..40).map(|_| RawClient::connect(&server)).collect();
    for _ in 0..10 {
        RawClient::connect(&server).shake_hands(token(), VERSIONS).unwrap();
    }
    let mut first = silent.into_iter().next().unwrap();
    assert!(ends(&mut first), "it made way");
    server.stop().await;
}

#[tokio::test]
async fn a_full_address_keeps_nobody_out_of_another() {
    let limits = ServerLimits { connections: 1, unauthenticated: 1, ..ServerLimits::default() };
    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    let mut server = serve_with(&node, &any_port(), limits);
    let socket = transport::Address::Unix(directory.path().join("socket"));
    server.add_listener(transport::Listener::bind(&socket).unwrap()).unwrap();
    let mut inside = RawClient::connect(&server);
    inside.shake_hands(token(), VERSIONS).unwrap();
    assert!(RawClient::connect(&server).shake_hands(token(), VERSIONS).is_err(), "it is full");
    vfs(&socket).await.write_file(b"f", b"bytes").await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn payloads_that_are_announced_by_many_take_no_more_memory_than_the_budget() {
    let limits = ServerLimits { arriving_bytes: 1 << 20, ..ServerLimits::default() };
    let server = serve_with(&node(), &any_port(), limits);
    let action = StripeAction::Fill { data: vec![7; 1 << 20].into() };
    let body = Body::Stripe { file: FileId::ROOT, stripe: StripeNo(0), action };
    let (mut head, mut stalled) = (Vec::new(), Vec::new());
    let payload = encode_request(&Request { body, ..hello() }, 1, &mut head).unwrap();
    for _ in 0..8 {
        let mut raw = RawClient::connect(&server);
        raw.shake_hands(token(), VERSIONS).unwrap();
        raw.stream.write_all(&head).unwrap();
        raw.stream.write_all(&payload[..100_000]).unwrap();
        stalled.push(raw);
    }
    // Short frames need no budget.
    let healthy = vfs(server.address()).await;
    healthy.write_file(b"f", b"bytes").await.unwrap();
    // Each waiting connection is read as soon as there is budget.
    std::thread::scope(|scope| {
        for mut raw in stalled {
            let rest = payload.slice(100_000..);
            scope.spawn(move || {
                raw.stream.write_all(&rest).unwrap();
                assert!(matches!(raw.next(), Some(ToClient::Reply { id: 1, .. })));
            });
        }
    });
    server.stop().await;
}

#[tokio::test]
async fn stripes_of_files_that_are_none_go_with_the_session_that_wrote_them() {
    let node = node();
    let server = serve(&node, &any_port());
    let before = node.usage();
    let remote = Remote::new(server.address().clone(), &token());
    let Ok(Answer::Hello(welcome)) = remote.call(hello()).await else { panic!("no welcome") };
    for file in 0..28 {
        let data = Bytes::from(vec![7; STRIPE as usize]);
        let action = StripeAction::Write { generation: 0, offset: 0, ends: false, data };
        let body = Body::Stripe { file: FileId(1_000_000 + file), stripe: StripeNo(file), action };
        assert_eq!(remote.call(Request { session: welcome.session, body, ..hello() }).await, Ok(Answer::Done));
    }
    assert_eq!(node.usage().stripes, 28);
    drop(remote);
    until_polled("the stripes are gone", || node.usage() == before).await;
    server.stop().await;
}

#[tokio::test]
async fn a_session_that_was_never_given_is_not_served() {
    let server = serve(&node(), &any_port());
    let mut raw = RawClient::connect(&server);
    raw.shake_hands(token(), VERSIONS).unwrap();
    let session = Session::new(NodeId(1), 99).unwrap();
    let stranger = Request { session, ..hello() };
    raw.stream.write_all(&encoded(&stranger, 1)).unwrap();
    let reply = raw.next();
    let Some(ToClient::Reply { reply: Err(Failure::Refused(Refusal::Invalid { .. })), .. }) = reply else {
        panic!("{reply:?}")
    };
    server.stop().await;
}
