//! Benchmark of requests over a socket: stripes of 1 MiB and 64 B written and read, over TCP, TLS
//! and a Unix socket of this host.
//!
//! `cargo run --release -p transport --example stream [SECONDS]`: each line takes SECONDS (2), with
//! 1 and with 16 requests in flight.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "an example that shows numbers")]

use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use client::Connection;
use node::NodeSettings;
use placement::{Epoch, FileId, PartitionId, StripeNo};
use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};
use transport::{Address, Identity, Listener, Remote, ServerLimits};
use wire::{Answer, Body, HelloReply, Request, Session, StripeAction, handshake::Token};

const FILE: FileId = FileId::new(PartitionId(1), 4711);
const STRIPES: u64 = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(2), |text| text.parse())?;
    let settings = NodeSettings { memory: base::ByteSize::mib(512), ..NodeSettings::default() };
    let options =
        ArenaOptions { stripe_bytes: settings.stripe_bytes, ..ArenaOptions::with_capacity(settings.memory.0) };
    let node = node::embedded(settings, Arc::new(Arena::new(options)?));
    let token = Token::new(b"an example's token, not a secret")?;
    let socket = Address::Unix(std::env::temp_dir().join(format!("tidemill-stream-{}", std::process::id())));
    println!("{:<6}{:>9}{:>6}{:>11}{:>12}{:>9}", "", "bytes", "verb", "under way", "requests/s", "GB/s");
    let identity = Identity::generate()?;
    for address in ["tcp:127.0.0.1:0".parse()?, "tls:127.0.0.1:0".parse()?, socket] {
        let listener = Listener::bind_tls(&address, &identity)?;
        let server = transport::serve(node.clone(), listener, &token, ServerLimits::default())?;
        let remote = Remote::with_certificate(server.address().clone(), &token, identity.certificate())?;
        let welcome = hello(&remote).await?;
        for length in [64, 1 << 20] {
            for (verb, under_way) in [("put", 1), ("put", 16), ("get", 1), ("get", 16)] {
                let action = action(verb, length);
                let rate = rate(&remote, &welcome, &action, under_way, Duration::from_secs(seconds)).await?;
                let kind = match address {
                    Address::Tcp { .. } => "tcp",
                    Address::Tls { .. } => "tls",
                    Address::Unix(_) => "unix",
                };
                let bytes = rate * f64::from(length) / 1e9;
                println!("{kind:<6}{length:>9}{verb:>6}{under_way:>11}{rate:>12.0}{bytes:>9.2}");
            }
        }
        drop(remote);
        server.stop().await;
    }
    Ok(())
}

async fn hello(remote: &Remote) -> Result<HelloReply, Box<dyn Error>> {
    let (epoch, session, partition) = (Epoch::FIRST, Session::NONE, PartitionId(0));
    match remote.call(Request { epoch, session, skip_ack: false, partition, body: Body::Hello }).await? {
        Answer::Hello(welcome) => Ok(welcome),
        other => Err(format!("no welcome: {other:?}").into()),
    }
}

fn action(verb: &str, length: u32) -> StripeAction {
    match verb {
        "put" => {
            StripeAction::Write { generation: 0, offset: 0, ends: false, data: Bytes::from(vec![7; length as usize]) }
        }
        _ => StripeAction::Read { offset: 0, length },
    }
}

/// Requests per second with `under_way` in flight.
async fn rate(
    remote: &Remote,
    welcome: &HelloReply,
    action: &StripeAction,
    under_way: u64,
    time: Duration,
) -> Result<f64, Box<dyn Error>> {
    let (epoch, session, partition) = (Epoch::FIRST, welcome.session, FILE.partition());
    let call = |number: u64| {
        let body = Body::Stripe { file: FILE, stripe: StripeNo(number % STRIPES), action: action.clone() };
        remote.call(Request { epoch, session, skip_ack: false, partition, body })
    };
    let (start, mut sent) = (Instant::now(), 0);
    let mut calls = std::collections::VecDeque::new();
    while start.elapsed() < time {
        while (calls.len() as u64) < under_way {
            calls.push_back(call(sent));
            sent += 1;
        }
        if let Some(call) = calls.pop_front() {
            call.await?;
        }
    }
    let done = sent - calls.len() as u64;
    let rate = done as f64 / start.elapsed().as_secs_f64();
    for call in calls {
        call.await?;
    }
    Ok(rate)
}
