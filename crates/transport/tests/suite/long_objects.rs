//! Objects of many stripes, got by a client in another process of the node's host: with one
//! message, as few pieces.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use super::common::{OWNER, host::Host, remote};
use bytes::Bytes;
use client::{Client, Connection, Objects, RetryPolicy, objects::Condition};
use placement::{Epoch, FileId};
use rustix::io::pwrite;
use std::{io::Write, sync::Arc};
use store::StripeStore;
use test_support::until_polled;
use transport::{Remote, ServerLimits};
use vfs::Vfs;
use wire::{Answer, Body, Command, Content, FoundObject, Name, OpenFlags, Request, Session};

const STRIPE: usize = 64 << 10;

fn host() -> Host {
    Host::start_with(16 << 20, ServerLimits { min_write_bytes: 4096, ..ServerLimits::default() })
}

async fn connect(host: &Host) -> (Arc<Remote>, Client, Objects) {
    let remote = Arc::new(remote(host.server.address()));
    let client = Client::connect(remote.clone(), RetryPolicy::default()).await.unwrap();
    (remote, client.clone(), Objects::new(client))
}

/// Bytes that differ by their position.
fn bytes(seed: u32, length: usize) -> Bytes {
    (0..).flat_map(|at: u32| at.wrapping_mul(seed).to_le_bytes()).take(length).collect()
}

/// Reply of the node to a get of a range: its length and content.
async fn asked(remote: &Remote, session: Session, key: &str, (offset, length): (u64, u32)) -> (u32, Content) {
    let name = Name::new(key.as_bytes()).unwrap();
    let command = Command::GetObject { parent: FileId::ROOT, name, offset, length };
    let body = Body::Meta { request_id: None, command };
    let (epoch, partition) = (Epoch::FIRST, FileId::ROOT.partition());
    match remote.call(Request { epoch, session, skip_ack: false, partition, body }).await {
        Ok(Answer::Object(FoundObject { length, content, .. })) => (length, content),
        other => panic!("{other:?}"),
    }
}

fn blocks(host: &Host) -> u64 {
    let usage = host.engine.usage();
    usage.used - usage.reserved
}

#[tokio::test]
async fn an_object_of_many_stripes_is_got_by_one_message_as_few_pieces_where_it_is() {
    let host = host();
    let (remote, client, objects) = connect(&host).await;
    let length = 24 * STRIPE + 1000;
    for seed in [3, 5, 7] {
        objects.put(b"long", bytes(seed, length), Condition::Always).await.unwrap();
        assert!(objects.get(b"long").await.unwrap().into_bytes() == bytes(seed, length), "also before it is mapped");
    }
    let (told, content) = asked(&remote, client.session(), "long", (0, 1 << 30)).await;
    let Content::Pieces(pieces) = content else { panic!("{content:?}") };
    assert_eq!((told as usize, pieces.iter().map(Bytes::len).sum::<usize>()), (length, length));
    assert!(pieces.len() <= 4, "24 stripes are {} rows", pieces.len());
    assert!(pieces.concat() == bytes(7, length));
    // A range across stripes is a view of the same memory.
    let (from, to) = (STRIPE - 10, 3 * STRIPE + 20);
    let part = objects.get_range(b"long", from as u64, (to - from) as u64).await.unwrap();
    assert!(part.pieces.concat() == bytes(7, length)[from..to]);
    assert_eq!(part.pieces[0].as_ptr(), pieces[0][from..].as_ptr());
}

#[tokio::test]
async fn what_is_looked_at_is_free_when_the_last_piece_of_it_is_dropped() {
    let host = host();
    let (_, _, objects) = connect(&host).await;
    let length = 40 * STRIPE;
    for seed in [3, 5] {
        objects.put(b"long", bytes(seed, length), Condition::Always).await.unwrap();
        drop(objects.get(b"long").await.unwrap());
    }
    let value = objects.get(b"long").await.unwrap();
    objects.delete(b"long", Condition::Always).await.unwrap();
    // This object takes the free blocks: it would overwrite leased ones if they were among them.
    objects.put(b"other", bytes(9, length), Condition::Always).await.unwrap();
    assert!(value.pieces.concat() == bytes(5, length));
    objects.delete(b"other", Condition::Always).await.unwrap();
    let mut pieces = value.pieces;
    let last = pieces.pop().unwrap();
    drop(pieces);
    assert!(bytes(5, length).ends_with(&last));
    drop(last);
    // Releases are sent with the next call.
    let _ = objects.head(b"long").await;
    until_polled("no block is left", || blocks(&host) == 0).await;
}

#[tokio::test]
async fn a_hole_is_zeros() {
    let host = host();
    let (_, _, objects) = connect(&host).await;
    let (_, handle) = host.truth.create(Vfs::root(), b"sparse", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    host.truth.write(handle, 5 * STRIPE as u64, bytes(3, STRIPE)).await.unwrap();
    host.truth.close(handle).await.unwrap();
    for _ in 0..3 {
        let got = objects.get(b"sparse").await.unwrap().into_bytes();
        assert!(got == [vec![0; 5 * STRIPE], bytes(3, STRIPE).to_vec()].concat());
    }
}

#[tokio::test]
async fn of_whole_and_bound_files_no_more_than_a_stripe_is_read_at_once_however_much_is_asked_for() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let (remote, client, objects) = connect(&host).await;
    let expected = bytes(3, 5 * STRIPE + 100);
    let flags = OpenFlags { use_extent: true, ..OpenFlags::READ_WRITE };
    let (_, handle) = host.truth.create(Vfs::root(), b"whole", 0o600, OWNER, flags).await.unwrap();
    pwrite(host.truth.backing(handle).unwrap(), &expected, 0).unwrap();
    host.truth.close(handle).await.unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&expected).unwrap();
    host.truth.bind(Vfs::root(), b"bound", file.path()).await.unwrap();
    for key in ["whole", "bound"] {
        let (told, content) = asked(&remote, client.session(), key, (10, 1 << 30)).await;
        let came: usize = match content {
            Content::Bytes(bytes) => bytes.len(),
            Content::Pieces(pieces) => pieces.iter().map(Bytes::len).sum(),
            other => panic!("{other:?}"),
        };
        assert_eq!((told as usize, came), (STRIPE, STRIPE), "{key}");
        assert!(objects.get(key.as_bytes()).await.unwrap().into_bytes() == expected, "{key}");
    }
}
