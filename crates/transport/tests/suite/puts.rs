//! Clients in other processes put bytes where they stay: acknowledged puts are right, and offered
//! blocks are free, whichever process dies or sleeps at any time.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "in a test a panic is the failure; processes talk by their output"
)]

use super::common::{
    host::{ChildProcess, ChildTest, Host, child_orders},
    remote,
};
use bytes::Bytes;
use client::{Client, Objects, RetryPolicy, objects::Condition};
use placement::{FileId, PartitionId, StripeNo};
use rustix::process::Signal;
use std::{io::BufRead, sync::Arc};
use store::{Generation, SharedMemory, StripeKey, StripeStore};
use test_support::until_polled;
use transport::{Address, ServerLimits};
use wire::Refusal;

/// Client that the tests start.
const CLIENT: ChildTest = ChildTest(concat!(module_path!(), "::a_client_in_a_process_of_its_own"));
const STRIPE: usize = 64 << 10;
const MEMORY: u64 = 8 << 20;

fn host() -> Host {
    Host::start_with(MEMORY, ServerLimits { min_write_bytes: 4096, ..ServerLimits::default() })
}

async fn objects(address: &Address) -> Objects {
    let remote = Arc::new(remote(address));
    Objects::new(Client::connect(remote, RetryPolicy::default()).await.unwrap())
}

/// Object of a number, with a length that follows from it.
fn object_of(number: u64) -> Bytes {
    let words = 513 + usize::try_from(number % 7).unwrap() * STRIPE / 16;
    number.to_le_bytes().repeat(words).into()
}

async fn put(objects: &Objects, number: u64) {
    objects.put(format!("o/{}", number % 5).as_bytes(), object_of(number), Condition::Always).await.unwrap();
}

/// Gets an object, checks that it is one that was put, and returns its number.
async fn got(objects: &Objects, key: u64) -> Option<u64> {
    match objects.get(format!("o/{key}").as_bytes()).await {
        Ok(value) => {
            let bytes = value.into_bytes();
            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert!(bytes == object_of(number) && number % 5 == key, "object {number} as {key}");
            Some(number)
        }
        Err(Refusal::NotFound(_)) => None,
        Err(refusal) => panic!("{refusal}"),
    }
}

impl Host {
    /// Bytes in use, without the tables and blocks of write segments.
    fn blocks(&self) -> u64 {
        let usage = self.engine.usage();
        usage.used - usage.reserved
    }

    /// Fills the pool with the stripes for which it reports room; one more must fail.
    fn fill(&self) {
        let room = self.engine.usage().free() / STRIPE as u64;
        let key = |stripe| StripeKey { partition: PartitionId(0), file: FileId(1 << 40), stripe: StripeNo(stripe) };
        let stripe = |number| self.engine.write(key(number), Generation(0), 0, &vec![7; STRIPE]);
        (0..room).for_each(|number| stripe(number).unwrap());
        assert!(stripe(room).is_err());
    }

    fn empty(&self) {
        let key = |stripe| StripeKey { partition: PartitionId(0), file: FileId(1 << 40), stripe: StripeNo(stripe) };
        (0..MEMORY / STRIPE as u64).for_each(|stripe| self.engine.remove(key(stripe)).unwrap());
    }

    fn bays_gone(&self) -> u64 {
        self.engine.closed_segments()
    }
}

/// Waits for `puts` more acknowledged puts; returns the last of them.
fn acknowledged(child: &mut ChildProcess, puts: u64) -> u64 {
    let mut line = String::new();
    for _ in 0..puts {
        line.clear();
        child.stdout.read_line(&mut line).unwrap();
    }
    line.trim_end().parse().unwrap()
}

#[tokio::test]
async fn the_bytes_of_an_object_become_its_stripes_where_they_were_put() {
    let host = host();
    let client = objects(host.server.address()).await;
    let own = host.engine.lengths().len();
    let place = async |number: u64| {
        let truth = Objects::new(Client::embedded(host.node.clone()));
        let value = truth.get(format!("o/{}", number % 5).as_bytes()).await.unwrap();
        let place = host.engine.locate(&value.pieces[0]).unwrap();
        assert!(value.into_bytes() == object_of(number));
        place.segment as usize
    };
    for number in 0..30 {
        put(&client, number).await;
        let segment = place(number).await;
        // The first put is sent: only then does the node offer blocks.
        assert_eq!(segment >= own, number > 0, "object {number} in segment {segment}");
    }
    for key in 0..5 {
        assert_eq!(got(&client, key).await, Some(25 + key));
    }
    let other = objects(host.server.address()).await;
    for _ in 0..2 {
        for key in 0..5 {
            assert_eq!(got(&other, key).await, Some(25 + key), "also where it was not mapped before");
        }
    }
    drop(client);
    for key in 0..5 {
        assert_eq!(got(&other, key).await, Some(25 + key), "also when who put it is gone");
        other.delete(format!("o/{key}").as_bytes(), Condition::Always).await.unwrap();
    }
    until_polled("the write segment and its blocks are gone", || host.blocks() == 0 && host.bays_gone() == 1).await;
    host.fill();
}

#[tokio::test]
async fn a_writer_that_is_killed_leaves_what_was_acknowledged_and_nothing_that_was_offered() {
    let host = host();
    let healthy = objects(host.server.address()).await;
    for round in 0..12 {
        let mut child = host.child(CLIENT, "put");
        child.send_line(&(round * 1000).to_string());
        let last = acknowledged(&mut child, 1 + round * round % 37);
        child.kill();
        let mut newest = 0;
        for key in 0..5 {
            newest = newest.max(got(&healthy, key).await.unwrap_or(0));
        }
        assert!(newest >= last, "{last} was acknowledged, {newest} is there");
        for key in 0..5 {
            let _ = healthy.delete(format!("o/{key}").as_bytes(), Condition::Always).await;
        }
        // The session of the process ends a little later, and its write segment after that.
        until_polled("the write segment and its blocks are gone", || {
            host.blocks() == 0 && host.bays_gone() == round + 1
        })
        .await;
    }
    host.fill();
}

#[tokio::test]
async fn a_writer_that_sleeps_keeps_nobody_from_what_it_was_offered() {
    let host = host();
    let mut child = host.child(CLIENT, "put");
    child.send_line("0");
    for round in 0..10 {
        acknowledged(&mut child, 3 + round);
        child.signal(Signal::STOP);
        // The child may have claimed blocks, which are its own.
        let healthy = objects(host.server.address()).await;
        let room = host.engine.usage().free() / STRIPE as u64;
        let key = |stripe| StripeKey { partition: PartitionId(0), file: FileId(1 << 40), stripe: StripeNo(stripe) };
        let stripe = |number| host.engine.write(key(number), Generation(0), 0, &vec![7; STRIPE]);
        let filled = (0..room).take_while(|number| stripe(*number).is_ok()).count() as u64;
        // It may have claimed as many as an object has stripes.
        assert!(filled + 8 >= room, "{filled} of {room}");
        for key in 0..5 {
            got(&healthy, key).await;
        }
        child.signal(Signal::CONT);
        host.empty();
    }
    child.kill();
}

#[tokio::test]
async fn in_a_full_pool_a_put_waits_for_space_and_is_right() {
    let host = host();
    let client = objects(host.server.address()).await;
    for number in 1..10 {
        put(&client, number).await;
    }
    host.fill();
    let putting = tokio::spawn({
        let client = client.clone();
        async move { put(&client, 13).await }
    });
    until_polled("the writer waits", || host.node.usage().waiting > 0).await;
    host.empty();
    putting.await.unwrap();
    assert_eq!(got(&client, 3).await, Some(13));
}

/// Not a test: the client that the tests start.
#[tokio::test]
async fn a_client_in_a_process_of_its_own() {
    let Some((_, _, mut orders)) = child_orders().await else { return };
    let objects = objects(&std::env::var("ADDRESS").unwrap().parse().unwrap()).await;
    let first: u64 = orders.next().unwrap().parse().unwrap();
    for number in first.. {
        put(&objects, number).await;
        println!("{number}");
    }
}
