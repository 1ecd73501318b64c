//! Benchmark of objects over TCP: 8 clients, each with a connection of its own, to one node in
//! another process.
//!
//! `cargo run --release -p transport --example objects [SECONDS [tasks|threads [BYTES CLIENTS
//! UNDER_WAY]]]`: each line takes SECONDS (2); with BYTES only one case runs. The clients are tasks
//! of one runtime that also drives their connections, or threads. Unpipelined, each client has one
//! object in flight; pipelined, it puts or gets 16 and waits for all, as `redis-benchmark -P 16`
//! does. CPU seconds are those of both processes; the ends of sessions do not count. All objects
//! are put twice before: the first time the directory that they are in splits, and the second time
//! objects from before the split move beside their names.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "an example that shows numbers")]

use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use client::{
    Client, Objects, RetryPolicy,
    objects::{Condition, Value},
};
use node::NodeSettings;
use std::{
    error::Error,
    future::Future,
    io::{self, BufRead, BufReader},
    pin::pin,
    process::{Child, Command, Stdio},
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Builder, Handle},
    sync::Barrier,
};
use transport::{Address, Listener, Remote, ServerLimits};
use wire::handshake::Token;

type Failed = Box<dyn Error + Send + Sync>;

const CLIENTS: usize = 8;
/// Size of all values of a case; there are at most `VALUES_MAX`, as in the benchmark of the peers.
const VALUES_BYTES: usize = 64 << 20;
const VALUES_MAX: usize = 20_000;
/// Threads of the runtime of all clients: one writes while another reads.
const THREADS: usize = 2;
const TOKEN: &[u8] = b"an example's token, not a secret";

#[derive(Clone, Copy)]
struct Case {
    length: usize,
    puts: bool,
    clients: usize,
    under_way: usize,
    time: Duration,
}

fn main() -> Result<(), Failed> {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("serve") {
        return serve();
    }
    let time = Duration::from_secs_f64(argument.map_or(Ok(2.0), |text| text.parse())?);
    let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    let tasks = (std::env::args().nth(2).as_deref() != Some("threads")).then_some(runtime.handle());
    let asked = std::env::args().skip(3).map(|text| text.parse()).collect::<Result<Vec<usize>, _>>()?;
    let cases = match asked[..] {
        [] => [(64, 1), (64, 16), (4096, 1), (1 << 20, 1), (1 << 20, 4)]
            .map(|(length, under_way)| (length, CLIENTS, under_way))
            .into(),
        [length, clients, under_way] => vec![(length, clients, under_way)],
        _ => return Err("a case is its bytes, clients and how many are under way".into()),
    };
    let (mut node, address) = start_node()?;
    println!(
        "{:>9}{:>6}{:>11}{:>12}{:>9}{:>9}{:>9}{:>12}{:>12}",
        "bytes", "verb", "under way", "objects/s", "GB/s", "p50 us", "p99 us", "CPU us each", "CPU s/GiB"
    );
    for (length, clients, under_way) in cases {
        for puts in [true, false] {
            measure((&address, tasks), node.id(), Case { length, puts, clients, under_way, time })?;
        }
    }
    node.kill()?;
    node.wait()?;
    Ok(())
}

/// Runs the node: prints its address, and serves until standard input ends.
fn serve() -> Result<(), Failed> {
    let settings = NodeSettings { memory: base::ByteSize::mib(512), ..NodeSettings::default() };
    let options =
        ArenaOptions { stripe_bytes: settings.stripe_bytes, ..ArenaOptions::with_capacity(settings.memory.0) };
    let node = node::embedded(settings, Arc::new(Arena::new(options)?));
    let server = transport::serve(
        node,
        Listener::bind(&"tcp:127.0.0.1:0".parse()?)?,
        &Token::new(TOKEN)?,
        ServerLimits::default(),
    )?;
    println!("{}", server.address());
    io::stdin().lines().for_each(drop); // until the process that started us is gone
    Ok(())
}

fn start_node() -> Result<(Child, Address), Failed> {
    let itself = std::env::current_exe()?;
    let mut node = Command::new(itself).arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut told = String::new();
    BufReader::new(node.stdout.take().ok_or("no output")?).read_line(&mut told)?;
    Ok((node, told.trim().parse()?))
}

fn measure((address, tasks): (&Address, Option<&Handle>), node: u32, case: Case) -> Result<(), Failed> {
    let start = Arc::new(Barrier::new(case.clients + 1));
    let clients: Vec<_> = (0..case.clients)
        .map(|number| {
            let start = start.clone();
            if let Some(tasks) = tasks {
                let remote = Remote::on_runtime(tasks, address.clone(), &Token::new(TOKEN)?);
                return Ok(Running::Task(tasks.spawn(run(remote, number, case, start))));
            }
            let remote = Remote::new(address.clone(), &Token::new(TOKEN)?);
            Ok(Running::Thread(thread::spawn(move || block_on(run(remote, number, case, start)))))
        })
        .collect::<Result<_, Failed>>()?;
    block_on(start.wait());
    let (begun, used) = (Instant::now(), cpu_seconds(node)?);
    block_on(start.wait());
    let (took, used) = (begun.elapsed().as_secs_f64(), cpu_seconds(node)? - used);
    let mut waits = Vec::new();
    for client in clients {
        waits.extend(client.end()?);
    }
    waits.sort_unstable();
    let Case { length, under_way, .. } = case;
    let count = (waits.len() * under_way) as f64;
    let percentile = |percent: usize| waits[(waits.len() - 1) * percent / 100].as_micros();
    println!(
        "{length:>9}{:>6}{under_way:>11}{:>12.0}{:>9.2}{:>9}{:>9}{:>12.1}{:>12.2}",
        if case.puts { "put" } else { "get" },
        count / took,
        count * length as f64 / took / 1e9,
        percentile(50),
        percentile(99),
        used / count * 1e6,
        used / (count * length as f64 / f64::from(1 << 30)),
    );
    Ok(())
}

type Waits = Result<Vec<Duration>, Failed>;

/// Running client.
enum Running {
    Task(tokio::task::JoinHandle<Waits>),
    Thread(thread::JoinHandle<Waits>),
}

impl Running {
    fn end(self) -> Waits {
        match self {
            Self::Task(task) => block_on(task)?,
            Self::Thread(thread) => thread.join().map_err(|_| "a client has panicked")?,
        }
    }
}

/// Runs one client; returns the time of each of its rounds.
async fn run(remote: Remote, number: usize, case: Case, start: Arc<Barrier>) -> Waits {
    let Case { length, puts, clients, under_way, time } = case;
    let objects = Objects::new(Client::connect(Arc::new(remote), RetryPolicy::default()).await?);
    let count = (VALUES_BYTES / length).clamp(clients * under_way, VALUES_MAX) / clients;
    let keys: Vec<String> = (0..count.next_multiple_of(under_way)).map(|at| format!("k{number:02}:{at:06}")).collect();
    let value = Bytes::from(vec![b'a' + u8::try_from(number)?; length]);
    for _ in 0..2 {
        round(&objects, &keys, &value, true).await?;
    }
    start.wait().await;
    let (begun, mut waits) = (Instant::now(), Vec::new());
    for some in keys.chunks(under_way).cycle() {
        let before = Instant::now();
        round(&objects, some, &value, puts).await?;
        waits.push(before.elapsed());
        if begun.elapsed() >= time {
            break;
        }
    }
    // The end of the session is not measured.
    start.wait().await;
    objects.close().await?;
    Ok(waits)
}

async fn round(objects: &Objects, keys: &[String], value: &Bytes, puts: bool) -> Result<(), Failed> {
    if let ([key], true) = (keys, puts) {
        objects.put(key.as_bytes(), value.clone(), Condition::Always).await?;
    } else if let [key] = keys {
        check(&objects.get(key.as_bytes()).await?, value)?;
    } else if puts {
        let all: Vec<_> = keys.iter().map(|key| (key.as_bytes(), value.clone(), Condition::Always)).collect();
        objects.put_many(&all).await.into_iter().try_for_each(|put| put.map(drop))?;
    } else {
        let all: Vec<_> = keys.iter().map(String::as_bytes).collect();
        for got in objects.get_many(&all).await {
            check(&got?, value)?;
        }
    }
    Ok(())
}

fn check(got: &Value, value: &Bytes) -> Result<(), Failed> {
    let first = got.pieces.first().and_then(|piece| piece.first());
    let right = got.len() == value.len() && first == value.first();
    if right { Ok(()) } else { Err("other bytes came than were put".into()) }
}

/// User and system time of this process and of the node's.
fn cpu_seconds(node: u32) -> Result<f64, Failed> {
    let of = |process: &str| -> Result<f64, Failed> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        Ok(ticks / 100.0)
    };
    Ok(of("self")? + of(&node.to_string())?)
}

/// Wakes a thread that waits for a future.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Sleeper(thread::current()))));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}
