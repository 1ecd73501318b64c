//! Clients in other processes view stripes in the node's memory: never torn, never recycled,
//! whichever process dies or sleeps at any time.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "in a test a panic is the failure; processes talk by their output"
)]

use super::common::{
    OWNER,
    host::{ChildProcess, ChildTest, Host, child_orders, connect},
    is_view,
};
use bytes::Bytes;
use rustix::process::Signal;
use std::collections::VecDeque;
use store::StripeStore;
use test_support::{Random, until_polled};
use transport::ServerLimits;
use vfs::{Handle, Vfs};
use wire::{Changes, OpenFlags, WritePlace};

/// Client that the tests start.
const CLIENT: ChildTest = ChildTest(concat!(module_path!(), "::a_client_in_a_process_of_its_own"));
const STRIPE: usize = 64 << 10;
const STRIPES: u64 = 16;
/// Views that a reader holds at a time.
const HELD: usize = 20;
/// Processes that write at a time.
const WRITERS: u64 = 2;

/// Stripe filled with a number.
fn stripe_of(number: u64) -> Bytes {
    number.to_le_bytes().repeat(STRIPE / 8).into()
}

/// Returns whether all bytes are of one write.
fn is_whole(bytes: &[u8]) -> bool {
    bytes.chunks(8).all(|word| word == &bytes[..word.len()])
}

/// File that is overwritten, cut and removed under its readers.
struct Writer<'a> {
    host: &'a Host,
    handle: Handle,
    random: Random,
    written: u64,
}

impl<'a> Writer<'a> {
    async fn new(host: &'a Host, seed: u64) -> Self {
        let (_, handle) = host.truth.create(Vfs::root(), b"data", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
        let mut writer = Self { host, handle, random: Random::new(seed), written: 0 };
        for stripe in 0..STRIPES {
            writer.write(stripe).await;
        }
        writer
    }

    async fn write(&mut self, stripe: u64) {
        self.written += 1;
        let place = WritePlace::At(stripe * STRIPE as u64);
        let written = self.host.truth.write_placed(self.handle, place, stripe_of(self.written), false).await;
        assert_eq!(written, Ok(u32::try_from(STRIPE).unwrap()));
    }

    /// Makes changes of all kinds.
    async fn change(&mut self, times: u64) {
        let truth = &self.host.truth;
        for _ in 0..times {
            let stripe = self.random.below(STRIPES);
            match self.random.below(50) {
                0 => {
                    let size = Changes { size: Some(stripe * STRIPE as u64), ..Changes::default() };
                    let file = truth.lookup(Vfs::root(), b"data").await.unwrap().file;
                    truth.change(file, size).await.unwrap();
                }
                1 => {
                    let content = stripe_of(stripe).repeat(4);
                    truth.write_file(b"other", &content).await.unwrap();
                    truth.unlink(Vfs::root(), b"other").await.unwrap();
                }
                _ => self.write(stripe).await,
            }
        }
    }

    /// Removes the file, and waits until its memory is free.
    async fn end(self) {
        self.host.truth.unlink(Vfs::root(), b"data").await.unwrap();
        self.host.truth.close(self.handle).await.unwrap();
        let blocks = || self.host.engine.usage().used - self.host.engine.usage().reserved;
        until_polled("no block is left", || blocks() == 0).await;
    }
}

#[tokio::test]
async fn a_long_answer_is_looked_at_where_it_is_and_its_memory_is_free_when_nobody_does() {
    let host = Host::start(8 << 20);
    let writer = Writer::new(&host, 1).await;
    let client = connect(host.server.address()).await;
    let file = client.lookup(Vfs::root(), b"data").await.unwrap().file;
    let handle = client.open(file, OpenFlags::READ).await.unwrap();
    let view = client.read(handle, STRIPE as u64, u32::try_from(STRIPE).unwrap()).await.unwrap();
    assert!(is_view(&view) && view == stripe_of(2));
    let short = client.read(handle, 0, 5000).await.unwrap();
    assert!(!is_view(&short) && short == stripe_of(1)[..5000]);
    client.close(handle).await.unwrap();
    drop(client);
    // The connection ends, and the view does not.
    let held = view.slice(100..);
    drop(view);
    host.truth.unlink(Vfs::root(), b"data").await.unwrap();
    host.truth.close(writer.handle).await.unwrap();
    let blocks = || host.engine.usage().used - host.engine.usage().reserved;
    until_polled("one stripe is left", || blocks() == STRIPE as u64).await;
    assert!(held == stripe_of(2)[100..]);
    drop(held);
    until_polled("no block is left", || blocks() == 0).await;
}

#[tokio::test]
async fn more_than_one_client_may_look_at_is_sent_until_it_gives_something_back() {
    for limits in [
        ServerLimits { viewed_bytes: 2 * STRIPE, ..ServerLimits::default() },
        ServerLimits { leases: 2, ..ServerLimits::default() },
    ] {
        let host = Host::start_with(8 << 20, limits);
        let _writer = Writer::new(&host, 1).await;
        let client = connect(host.server.address()).await;
        let file = client.lookup(Vfs::root(), b"data").await.unwrap().file;
        let handle = client.open(file, OpenFlags::READ).await.unwrap();
        let get = async || client.read(handle, 0, u32::try_from(STRIPE).unwrap()).await.unwrap();
        let (one, _other, third) = (get().await, get().await, get().await);
        assert!(is_view(&one) && !is_view(&third) && one == third);
        drop(one);
        assert!(is_view(&get().await), "what is given back is told before the next request");
        client.close(handle).await.unwrap();
    }
}

#[tokio::test]
async fn no_reader_sees_bytes_of_two_writes_or_bytes_that_change_whatever_sleeps_or_dies() {
    // Little more than the file and the views of three readers, so that memory is reused at once.
    let host = Host::start((STRIPES + 3 * HELD as u64 + 8) * STRIPE as u64 * 2);
    for seed in 1..8_u64 {
        let mut writer = Writer::new(&host, seed).await;
        let mut readers: Vec<ChildProcess> = (0..3).map(|_| host.child(CLIENT, "read")).collect();
        for (at, reader) in (0_u64..).zip(&mut readers) {
            reader.send_line(&(seed * 10 + at).to_string());
            reader.expect_line("reading");
        }
        writer.change(100 + seed * 37 % 100).await;
        readers[1].signal(Signal::STOP);
        writer.change(300).await;
        readers[2].kill();
        writer.change(100).await;
        readers[1].signal(Signal::CONT);
        writer.change(100).await;
        for reader in &mut readers[..2] {
            reader.send_line("enough");
            reader.expect_line("all of one write");
        }
        // Reader 1 still lives and holds nothing any more; reader 2 was killed while it read.
        readers[0].kill();
        writer.end().await;
    }
}

#[tokio::test]
async fn no_reader_sees_bytes_of_two_writes_when_other_processes_put_them_where_they_stay() {
    let limits = ServerLimits { min_write_bytes: 4096, ..ServerLimits::default() };
    let host = Host::start_with((STRIPES + 2 * HELD as u64 + 20) * STRIPE as u64 * 2, limits);
    for seed in 1..5_u64 {
        let mut writer = Writer::new(&host, seed).await;
        let mut children: Vec<ChildProcess> =
            ["write", "write", "read", "read"].map(|what| host.child(CLIENT, what)).into();
        for (at, child) in (0_u64..).zip(&mut children) {
            child.send_line(&(seed * 10 + at).to_string());
            child.expect_line(if at < WRITERS { "writing" } else { "reading" });
        }
        writer.change(100 + seed * 37 % 100).await;
        children[0].signal(Signal::STOP);
        writer.change(200).await;
        children[1].kill();
        children[3].signal(Signal::STOP);
        writer.change(200).await;
        children[0].signal(Signal::CONT);
        children[3].signal(Signal::CONT);
        writer.change(100).await;
        for reader in &mut children[2..] {
            reader.send_line("enough");
            reader.expect_line("all of one write");
        }
        children.clear(); // the drop kills them
        writer.end().await;
    }
}

/// Overwrites stripes, and cuts and extends the file, until it is killed.
async fn write_on(vfs: Vfs, mut random: Random) {
    let file = vfs.lookup(Vfs::root(), b"data").await.unwrap().file;
    let handle = vfs.open(file, OpenFlags::READ_WRITE).await.unwrap();
    println!("writing");
    for number in 1.. {
        let place = WritePlace::At(random.below(STRIPES) * STRIPE as u64);
        vfs.write_placed(handle, place, stripe_of(number << 32 | random.below(1 << 30)), false).await.unwrap();
    }
}

/// Not a test: the client that the tests start.
#[tokio::test]
async fn a_client_in_a_process_of_its_own() {
    let Some((vfs, what, mut orders)) = child_orders().await else { return };
    if what == "write" {
        return write_on(vfs, Random::new(orders.next().unwrap().parse().unwrap())).await;
    }
    let mut random = Random::new(orders.next().unwrap().parse().unwrap());
    let file = vfs.lookup(Vfs::root(), b"data").await.unwrap().file;
    let handle = vfs.open(file, OpenFlags::READ).await.unwrap();
    let (send, enough) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(orders.next()));
    println!("reading");
    let mut held = VecDeque::<Bytes>::new();
    let (mut views, mut sent) = (0, 0);
    while enough.try_recv().is_err() {
        let offset = random.below(STRIPES) * STRIPE as u64;
        let bytes = vfs.read(handle, offset, u32::try_from(STRIPE).unwrap()).await.unwrap();
        assert!(is_whole(&bytes), "torn as it came");
        // A range that was cut off is read as zeros, which are no view.
        if bytes.len() == STRIPE && bytes[..8] != [0; 8] && views < 100 {
            // A segment in which another process writes is exported when it is first needed: until
            // then bytes are sent.
            sent += u64::from(!is_view(&bytes));
            assert!(sent <= WRITERS, "sent, and not looked at");
            views += 1;
        }
        held.push_back(bytes);
        if held.len() > HELD {
            let at = random.below(HELD);
            assert!(held.iter().all(|bytes| is_whole(bytes)), "torn while it was held");
            held.remove(at);
        }
    }
    assert!(held.iter().all(|bytes| is_whole(bytes)), "torn while it was held");
    drop(held);
    vfs.close(handle).await.unwrap();
    assert!(views > 0, "nothing was looked at");
    println!("all of one write");
    std::future::pending::<()>().await;
}
