//! Benchmark of metadata operations and short objects: one process on the node's host that uses the
//! library, and one node in another process, over a Unix socket.
//!
//! `cargo run --release -p transport --example names [SECONDS] [--reactor]`: each line takes
//! SECONDS (1). Files are made and looked up, and objects of 64 B fetched, one at a time; files and
//! objects also with 256 in flight. The connection is driven by the caller's own runtime, by
//! threads of the crate, and by the caller's reactor, which busy-polls for a while before it sleeps
//! (or sleeps at once); with `--reactor` only by the reactor. Percentiles are of rounds; CPU is
//! that of both processes.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "an example that shows numbers")]

use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use client::{Client, Objects, RetryPolicy, objects::Condition};
use futures_util::future::join_all;
use node::NodeSettings;
use placement::FileId;
use std::{
    env,
    error::Error,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use transport::{Address, Listener, Reactor, Remote, ServerLimits};
use wire::{ExtentRequest, Mode, Name, NewInode, NewKind, Owner, handshake::Token};

type Done<T> = Result<T, Box<dyn Error>>;

const TOKEN: &[u8] = b"an example's token, not a secret";
/// Calls of a round with many.
const MANY: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Create,
    Stat,
    Put,
    Head,
    Get,
}

fn main() -> Done<()> {
    if let Ok(address) = env::var("NAMES_NODE") {
        return serve(&address.parse()?);
    }
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let count = arguments.len();
    arguments.retain(|argument| argument != "--reactor");
    let reactor_only = arguments.len() < count;
    let time = Duration::from_secs_f64(arguments.first().map_or(Ok(1.0), |text| text.parse())?);
    println!("{:<30}{:>10}{:>12}{:>9}{:>9}{:>13}", "what", "at once", "a second", "p50 us", "p99 us", "CPU us each");
    if !reactor_only {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let own = |address, token: &Token| Remote::on_runtime(runtime.handle(), address, token);
        with_node("own runtime", own, |remote, how, node| runtime.block_on(measure(remote, how, node, time)))?;
        let threads = |address, token: &Token| Remote::new(address, token);
        with_node("threads of the crate", threads, |remote, how, node| {
            runtime.block_on(measure(remote, how, node, time))
        })?;
    }
    for (how, reactor) in [("hand", Reactor::new()?), ("hand, no spin", Reactor::with_spin(Duration::ZERO)?)] {
        let with_reactor =
            |address, token: &Token| Remote::with_reactor(&reactor, address, token, None).expect("no TLS");
        with_node(how, with_reactor, |remote, how, node| reactor.block_on(measure(remote, how, node, time)))?;
    }
    Ok(())
}

/// Runs a measurement over a connection to a node of its own, in another process.
fn with_node(
    how: &str,
    connect: impl FnOnce(Address, &Token) -> Remote,
    measure: impl FnOnce(Remote, &str, u32) -> Done<()>,
) -> Done<()> {
    let socket = Address::Unix(env::temp_dir().join(format!("tidemill-names-{}", std::process::id())));
    let mut node =
        Command::new(env::current_exe()?).env("NAMES_NODE", socket.to_string()).stdin(Stdio::piped()).spawn()?;
    let measured = measure(connect(socket, &Token::new(TOKEN)?), how, node.id());
    drop(node.stdin.take()); // the node ends with this
    node.wait()?;
    measured
}

/// Serves a node until standard input ends.
fn serve(address: &Address) -> Done<()> {
    let settings = NodeSettings { memory: base::ByteSize::mib(2048), ..NodeSettings::default() };
    let options =
        ArenaOptions { stripe_bytes: settings.stripe_bytes, ..ArenaOptions::with_capacity(settings.memory.0) };
    let node = node::embedded(settings, Arc::new(Arena::new(options)?));
    let server = transport::serve(node, Listener::bind(address)?, &Token::new(TOKEN)?, ServerLimits::default())?;
    std::io::stdin().lines().for_each(drop);
    drop(server);
    Ok(())
}

async fn measure(remote: Remote, how: &str, node: u32, time: Duration) -> Done<()> {
    let retry_policy = RetryPolicy { tries: 100, ..RetryPolicy::default() };
    let objects = Objects::new(Client::connect(Arc::new(remote), retry_policy).await?);
    let directory = objects
        .client()
        .make_directory(FileId::ROOT, &Name::new(b"f")?, Mode { bits: 0o755, umask: 0 }, OWNER)
        .await?
        .file;
    for (verb, at_once) in [
        (Verb::Create, 1),
        (Verb::Create, MANY),
        (Verb::Stat, 1),
        (Verb::Stat, MANY),
        (Verb::Put, MANY),
        (Verb::Head, MANY),
        (Verb::Get, 1),
    ] {
        let (mut waits, mut made) = (Vec::new(), 0);
        let (begun, before) = (Instant::now(), cpu_seconds(node)?);
        while begun.elapsed() < time {
            let start = Instant::now();
            round(&objects, directory, verb, made..made + at_once).await?;
            waits.push(start.elapsed());
            // Lookups and gets use names that exist, the first of them again and again.
            let again = if verb == Verb::Get { MANY } else { 16 * MANY };
            made = if matches!(verb, Verb::Create | Verb::Put) { made + at_once } else { (made + at_once) % again };
        }
        let (took, used) = (begun.elapsed().as_secs_f64(), cpu_seconds(node)? - before);
        let count = (waits.len() * at_once) as f64;
        waits.sort_unstable();
        let percentile = |percent: usize| waits[(waits.len() - 1) * percent / 100].as_micros();
        let what = format!("{verb:?}, {how}").to_lowercase();
        println!(
            "{what:<30}{at_once:>10}{:>12.0}{:>9}{:>9}{:>13.1}",
            count / took,
            percentile(50),
            percentile(99),
            used / count * 1e6
        );
    }
    objects.close().await?;
    Ok(())
}

const OWNER: Owner = Owner { uid: 0, gid: 0 };

/// Runs one round: a call for each of the numbers at once, each of its own name.
async fn round(objects: &Objects, directory: FileId, verb: Verb, numbers: std::ops::Range<usize>) -> Done<()> {
    let client = objects.client();
    // Files that are made alone and many at a time have names of their own. Objects are put many at
    // a time.
    let made_by = if verb == Verb::Get { MANY } else { numbers.len() };
    let names: Vec<String> = numbers.clone().map(|number| format!("{made_by}{number:08}")).collect();
    let keys: Vec<String> = names.iter().map(|name| format!("o/{name}")).collect();
    match verb {
        Verb::Create => {
            let inode = || NewInode::new(NewKind::File, Mode { bits: 0o644, umask: 0 }, OWNER);
            let names = names.iter().map(|name| Name::new(name.as_bytes())).collect::<Result<Vec<_>, _>>()?;
            let made = names.iter().map(|name| client.create(directory, name, inode(), false, ExtentRequest::None));
            join_all(made).await.into_iter().try_for_each(|made| made.map(drop))?;
        }
        Verb::Stat => {
            let names = names.iter().map(|name| Name::new(name.as_bytes())).collect::<Result<Vec<_>, _>>()?;
            let found = join_all(names.iter().map(|name| client.lookup(directory, name))).await;
            found.into_iter().try_for_each(|found| found.map(drop))?;
        }
        Verb::Put => {
            let all: Vec<_> =
                keys.iter().map(|key| (key.as_bytes(), Bytes::from_static(&[7; 64]), Condition::Always)).collect();
            objects.put_many(&all).await.into_iter().try_for_each(|put| put.map(drop))?;
        }
        Verb::Get => {
            for key in &keys {
                objects.get(key.as_bytes()).await?;
            }
        }
        Verb::Head => {
            let all: Vec<_> = keys.iter().map(String::as_bytes).collect();
            objects.head_many(&all).await.into_iter().try_for_each(|head| head.map(drop))?;
        }
    }
    Ok(())
}

/// User and system time of this process and of the node's.
fn cpu_seconds(node: u32) -> Done<f64> {
    let of = |process: &str| -> Done<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        Ok(ticks / 100.0)
    };
    Ok(of("self")? + of(&node.to_string())?)
}
