//! Benchmark of a client in another process of the host that views the node's memory: a round trip;
//! a stripe of 1 MiB got as a view; reading its bytes compared with private memory; objects put,
//! compared with a copy over the same memory.
//!
//! `cargo run --release -p transport --example shared [TIMES]`: medians of TIMES (2000) operations,
//! or as many puts as have TIMES MiB, each of another stripe of 512 MiB.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "an example that shows numbers")]

use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use client::{Client, Connection, Objects, RetryPolicy, objects::Condition};
use node::NodeSettings;
use placement::{Epoch, FileId, PartitionId, StripeNo};
use std::{
    env,
    error::Error,
    hint::black_box,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use transport::{Address, Listener, Remote, ServerLimits};
use wire::{Answer, Body, HelloReply, Request, Session, StripeAction, handshake::Token};

const FILE: FileId = FileId::new(PartitionId(1), 4711);
const STRIPES: usize = 512;
const MIB: usize = 1 << 20;
/// Bytes to get where only the round trip is measured.
const SHORT: u32 = 64;

type Done<T> = Result<T, Box<dyn Error>>;

fn main() -> Done<()> {
    let token = Token::new(b"an example's token, not a secret")?;
    if let Ok(address) = env::var("SHARED_NODE") {
        let placed = env::var("SHARED_PLACED")?.parse()?;
        return serve(&address.parse()?, &token, placed);
    }
    let times = env::args().nth(1).map_or(Ok(2000), |text| text.parse())?;
    let socket = Address::Unix(env::temp_dir().join(format!("tidemill-shared-{}", std::process::id())));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for (how, driver) in [("", None), (", own runtime", Some(runtime.handle()))] {
        for mib in [1, 4, 64] {
            let remote = || match driver {
                None => Remote::new(socket.clone(), &token),
                Some(driver) => Remote::on_runtime(driver, socket.clone(), &token),
            };
            let what = format!("{mib} MiB{how}");
            with_node(&socket, ServerLimits::default().min_view_bytes, || {
                runtime.block_on(put(remote(), &what, mib, times))
            })?;
        }
    }
    with_node(&socket, ServerLimits::default().min_view_bytes, || runtime.block_on(measure(&socket, &token, times)))?;
    for (how, placed) in [("sent", usize::MAX), ("placed", 1)] {
        with_node(&socket, placed, || runtime.block_on(compare(&socket, &token, how, times)))?;
    }
    Ok(())
}

/// Runs `work` with a node in a process of its own. Replies of at least `placed` bytes are views.
fn with_node<T>(socket: &Address, placed: usize, work: impl FnOnce() -> Done<T>) -> Done<T> {
    let mut node = Command::new(env::current_exe()?)
        .env("SHARED_NODE", socket.to_string())
        .env("SHARED_PLACED", placed.to_string())
        .stdin(Stdio::piped())
        .spawn()?;
    let done = work();
    drop(node.stdin.take()); // the node ends with this
    node.wait()?;
    done
}

/// Serves a node until standard input ends.
fn serve(address: &Address, token: &Token, placed: usize) -> Done<()> {
    let settings = NodeSettings { memory: base::ByteSize::mib(1024), ..NodeSettings::default() };
    let options =
        ArenaOptions { stripe_bytes: settings.stripe_bytes, ..ArenaOptions::with_capacity(settings.memory.0) };
    let node = node::embedded(settings, Arc::new(Arena::new(options)?));
    let server = transport::serve(
        node,
        Listener::bind(address)?,
        token,
        ServerLimits { min_view_bytes: placed, ..ServerLimits::default() },
    )?;
    std::io::stdin().lines().for_each(drop);
    drop(server);
    Ok(())
}

/// Puts objects, alternating with copies of as many bytes. Both walk over 512 MiB of sources, far
/// apart, so that caches help neither.
async fn put(remote: Remote, what: &str, mib: usize, times: usize) -> Done<()> {
    let retry_policy = RetryPolicy { tries: 100, ..RetryPolicy::default() };
    let objects = Objects::new(Client::connect(Arc::new(remote), retry_policy).await?);
    let (length, sources) = (mib * MIB, Bytes::from(vec![7_u8; STRIPES * MIB]));
    let mut target = vec![1_u8; STRIPES * MIB];
    let several = STRIPES / mib;
    let piece = |at: usize| at % several * length..(at % several + 1) * length;
    let times = times.div_ceil(mib).max(3 * several);
    for round in 0..2 {
        let (mut put, mut copied) = (Vec::new(), Vec::new());
        for at in 0..times {
            let (key, source) = (format!("o{}", at % several), sources.slice(piece(at)));
            let start = Instant::now();
            objects.put(key.as_bytes(), source, Condition::Always).await?;
            put.push(start.elapsed());
            let range = piece(at + several / 2);
            copied.extend(timed(1, |_| target[range.clone()].copy_from_slice(&sources[range.clone()])));
        }
        if round > 0 {
            show(&format!("put, {what}"), &put, length);
            show(&format!("copy, {what}"), &copied, length);
            println!("{:<28} {:.2}", "copy / put", median(&copied).as_secs_f64() / median(&put).as_secs_f64());
        }
    }
    objects.close().await?;
    Ok(())
}

fn median(took: &[Duration]) -> Duration {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

async fn measure(socket: &Address, token: &Token, times: usize) -> Done<()> {
    let node = Node::at(socket, token).await?;
    // Sources far apart, so that caches help neither side.
    let sources: Vec<Bytes> = (0..STRIPES).map(|at| Bytes::from(vec![at.to_le_bytes()[0]; MIB])).collect();
    for round in 0..2 {
        let put = node.each(times.max(STRIPES), |at| node.put(at, sources[at % STRIPES].clone())).await?;
        if round > 0 {
            show("write of a stripe, 1 MiB", &put, MIB);
        }
    }
    let mut target = vec![1_u8; STRIPES * MIB];
    for _ in 0..2 {
        let copied = timed(times, |at| {
            let at = at % STRIPES;
            target[at * MIB..][..MIB].copy_from_slice(&sources[at]);
        });
        show("copy of 1 MiB", &copied, MIB);
    }
    // Alternating, so that both see the same state of this machine.
    let (mut latencies, mut got) = (Vec::new(), Vec::new());
    for at in 0..times {
        latencies.extend(node.each(1, async |_| node.get(at, SHORT).await).await?);
        got.extend(node.each(1, async |_| node.get(at, 1 << 20).await).await?);
    }
    show("get, 64 B", &latencies, SHORT as usize);
    show("get, 1 MiB", &got, MIB);
    let mut views = Vec::new();
    for at in 0..STRIPES {
        views.push(node.get(at, 1 << 20).await?);
    }
    for _ in 0..2 {
        show("sum of a view", &timed(times, |at| sum(&views[at % STRIPES])), MIB);
        show("sum of private memory", &timed(times, |at| sum(&sources[at % STRIPES])), MIB);
    }
    Ok(())
}

/// Compares short stripes that are sent with views, to find the length from which views pay.
async fn compare(socket: &Address, token: &Token, how: &str, times: usize) -> Done<()> {
    let node = Node::at(socket, token).await?;
    for at in 0..STRIPES {
        node.put(at, Bytes::from(vec![1; 1 << 18])).await?;
    }
    for length in [4 << 10, 16 << 10, 64 << 10, 256 << 10] {
        let took = node.each(times, async |at| node.get(at, length).await.map(|bytes| sum(&bytes))).await?;
        show(&format!("get, {} KiB, {how}", length >> 10), &took, length as usize);
    }
    Ok(())
}

fn sum(bytes: &[u8]) {
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    black_box(words.fold(0, u64::wrapping_add));
}

struct Node {
    remote: Arc<Remote>,
    welcome: HelloReply,
}

impl Node {
    async fn at(socket: &Address, token: &Token) -> Done<Self> {
        let remote = Arc::new(Remote::new(socket.clone(), token));
        Client::connect(remote.clone(), RetryPolicy { tries: 100, ..RetryPolicy::default() }).await?;
        Ok(Self { welcome: hello(&remote).await?, remote })
    }

    async fn each<T>(&self, times: usize, act: impl AsyncFn(usize) -> Done<T>) -> Done<Vec<Duration>> {
        let mut took = Vec::with_capacity(times);
        for at in 0..times {
            let start = Instant::now();
            let done = act(at).await?;
            took.push(start.elapsed());
            drop(done);
        }
        Ok(took)
    }

    async fn ask(&self, at: usize, action: StripeAction) -> Done<Answer> {
        let (epoch, session, partition) = (Epoch::FIRST, self.welcome.session, FILE.partition());
        let body = Body::Stripe { file: FILE, stripe: StripeNo((at % STRIPES) as u64), action };
        Ok(self.remote.call(Request { epoch, session, skip_ack: false, partition, body }).await?)
    }

    async fn put(&self, at: usize, data: Bytes) -> Done<()> {
        self.ask(at, StripeAction::Write { generation: 0, offset: 0, ends: false, data }).await.map(drop)
    }

    async fn get(&self, at: usize, length: u32) -> Done<Bytes> {
        match self.ask(at, StripeAction::Read { offset: 0, length }).await? {
            Answer::Bytes(bytes) if bytes.len() == length as usize => Ok(bytes),
            other => Err(format!("no bytes: {other:?}").chars().take(200).collect::<String>().into()),
        }
    }
}

async fn hello(remote: &Remote) -> Done<HelloReply> {
    let (epoch, session, partition) = (Epoch::FIRST, Session::NONE, PartitionId(0));
    match remote.call(Request { epoch, session, skip_ack: false, partition, body: Body::Hello }).await? {
        Answer::Hello(welcome) => Ok(welcome),
        other => Err(format!("no welcome: {other:?}").into()),
    }
}

fn timed(times: usize, mut act: impl FnMut(usize)) -> Vec<Duration> {
    let mut took = Vec::with_capacity(times);
    for at in 0..times {
        let start = Instant::now();
        act(at);
        took.push(start.elapsed());
    }
    took
}

fn show(what: &str, took: &[Duration], bytes: usize) {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    let (median, worst) = (sorted[sorted.len() / 2], sorted[sorted.len() * 99 / 100]);
    let rate = bytes as f64 / median.as_secs_f64() / 1e9;
    println!("{what:<28} p50 {:>8.1} us  p99 {:>8.1} us  {rate:>7.2} GB/s", micros(median), micros(worst));
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
