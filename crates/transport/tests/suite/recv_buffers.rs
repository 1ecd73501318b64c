//! Payloads that come over TCP are received into blocks where they stay, if there is room.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use super::common::*;
use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use client::{Client, Objects, RetryPolicy, objects::Condition};
use node::NodeSettings;
use placement::{Epoch, FileId, PartitionId, StripeNo};
use std::{io::Write, net::Shutdown, sync::Arc};
use store::{Generation, StripeKey, StripeStore};
use test_support::until_polled;
use transport::Server;
use wire::{Body, Request, Session, StripeAction, codec::encode_request, handshake::VERSIONS};

const MEMORY: u64 = 4 << 20;
const STRIPES: u64 = MEMORY / STRIPE as u64;

/// Starts a node whose memory was all touched before, and is free.
fn host() -> (Arc<Arena>, Server) {
    let engine =
        Arc::new(Arena::new(ArenaOptions { stripe_bytes: STRIPE, ..ArenaOptions::with_capacity(MEMORY) }).unwrap());
    fill(&engine);
    (0..STRIPES).for_each(|stripe| engine.remove(key(stripe)).unwrap());
    let settings = NodeSettings {
        partitions: 16,
        stripe_bytes: STRIPE,
        space_wait: LONG,
        owner: OWNER,
        ..NodeSettings::default()
    };
    let node = node::embedded(settings, engine.clone());
    (engine, serve(&node, &any_port()))
}

fn key(stripe: u64) -> StripeKey {
    StripeKey { partition: PartitionId(0), file: FileId(1 << 40), stripe: StripeNo(stripe) }
}

/// Fills the memory up to the last stripe for which there is room; returns the number of stripes.
fn fill(engine: &Arena) -> u64 {
    let stripe = |stripe| engine.write(key(stripe), Generation(0), 0, &vec![7; STRIPE as usize]);
    (0..STRIPES).take_while(|number| stripe(*number).is_ok()).count() as u64
}

async fn objects(server: &Server) -> Objects {
    let remote = Arc::new(remote(server.address()));
    Objects::new(Client::connect(remote, RetryPolicy::default()).await.unwrap())
}

fn object_of(byte: u8, length: usize) -> Bytes {
    (0..length).map(|at| byte ^ u8::try_from(at % 251).unwrap()).collect()
}

#[tokio::test]
async fn a_payload_that_breaks_off_takes_memory_only_until_its_connection_ends() {
    let (engine, server) = host();
    let before = engine.usage().used;
    let mut raw = RawClient::connect(&server);
    raw.shake_hands(token(), VERSIONS).unwrap();
    let action = StripeAction::Fill { data: vec![7; STRIPE as usize].into() };
    let body = Body::Stripe { file: FileId::ROOT, stripe: StripeNo(0), action };
    let request =
        Request { epoch: Epoch::FIRST, session: Session::NONE, skip_ack: false, partition: PartitionId(0), body };
    let mut bytes = Vec::new();
    let payload = encode_request(&request, 1, &mut bytes).unwrap();
    raw.stream.write_all(&bytes).unwrap();
    raw.stream.write_all(&payload[..payload.len() / 2]).unwrap();
    until_polled("the stripe has its space", || engine.usage().used == before + u64::from(STRIPE)).await;
    raw.stream.shutdown(Shutdown::Both).unwrap();
    until_polled("the space is given back", || engine.usage().used == before).await;
}

#[tokio::test]
async fn what_is_put_is_got_wherever_it_was_received_and_its_memory_is_used_again() {
    let (engine, server) = host();
    let client = objects(&server).await;
    let lengths = [5000, 32 << 10, 50_000, 64 << 10, 100_000, 700_000];
    for round in 0..20_u8 {
        let values: Vec<_> = lengths.map(|length| object_of(round, length)).into();
        let keys: Vec<_> = lengths.iter().map(|length| format!("o/{length}")).collect();
        let all: Vec<_> =
            keys.iter().zip(&values).map(|(key, value)| (key.as_bytes(), value.clone(), Condition::Always)).collect();
        assert!(client.put_many(&all).await.iter().all(Result::is_ok));
        for (key, value) in keys.iter().zip(values) {
            assert!(client.get(key.as_bytes()).await.unwrap().into_bytes() == value, "{key} of round {round}");
        }
    }
    for length in lengths {
        client.delete(format!("o/{length}").as_bytes(), Condition::Always).await.unwrap();
    }
    client.close().await.unwrap();
    let usage = || engine.usage();
    until_polled("no block is left", || usage().used == usage().reserved).await;
}

#[tokio::test]
async fn in_a_full_pool_a_put_waits_for_room_as_ever() {
    let (engine, server) = host();
    let client = objects(&server).await;
    client.put(b"o", object_of(1, STRIPE as usize), Condition::Always).await.unwrap();
    let filled = fill(&engine);
    let value = object_of(2, STRIPE as usize);
    let mut put = Box::pin(client.put(b"o", value.clone(), Condition::Always));
    tokio::select! {
        biased;
        put = &mut put => panic!("{put:?} in a full pool"),
        () = async { client.head(b"o").await.map(drop).unwrap() } => {}
    }
    (0..filled).for_each(|stripe| engine.remove(key(stripe)).unwrap());
    put.await.unwrap();
    assert!(client.get(b"o").await.unwrap().into_bytes() == value);
}
