//! Benchmark of opens by a program that has a descriptor of its own, over a Unix socket, us: open,
//! read all, close, one after the other.
//!
//! The file is small and opened for reading: with its own extent, and, while another session has it
//! open inline, with a placeholder descriptor and a message.
//!
//! ```text
//! cargo run --release -p transport --example opens
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example that measures")]

use arena::{Arena, ArenaOptions};
use client::{Client, RetryPolicy};
use node::NodeSettings;
use std::{fs::File, os::unix::fs::FileExt, sync::Arc, time::Instant};
use transport::{Address, Listener, Remote, ServerLimits};
use vfs::Vfs;
use wire::{LeaseKind, OpenFlags, handshake::Token};

const TURNS: u32 = 20_000;
const BYTES: usize = 64;

#[tokio::main]
async fn main() {
    let settings = NodeSettings::new(base::ByteSize::mib(256));
    let engine =
        Arena::new(ArenaOptions { stripe_bytes: settings.stripe_bytes, ..ArenaOptions::with_capacity(256 << 20) })
            .unwrap();
    let (node, token) = (node::embedded(settings, Arc::new(engine)), Token::new(b"a token of an example").unwrap());
    let directory = tempfile::tempdir().unwrap();
    let listener = Listener::bind(&Address::Unix(directory.path().join("pool"))).unwrap();
    let server = transport::serve(node, listener, &token, ServerLimits::default()).unwrap();
    let connect = || async {
        let remote = Remote::new(server.address().clone(), &token);
        Vfs::new(Client::connect(Arc::new(remote), RetryPolicy::default()).await.unwrap())
    };
    let (vfs, other) = (connect().await, connect().await);
    let file = vfs.write_file(b"small", &[7; BYTES]).await.unwrap().file;
    for inline in [false, true, false, true] {
        let held = if inline { Some(other.open(file, OpenFlags::READ).await.unwrap()) } else { None };
        let begun = Instant::now();
        for _ in 0..TURNS {
            let program = vfs.open_for_program(file, OpenFlags::READ).await.unwrap();
            let descriptor = File::from(program.descriptor);
            match program.lease.kind {
                LeaseKind::Extent(_) => assert_eq!(descriptor.read_at(&mut [0; BYTES + 1], 0).unwrap(), BYTES),
                _ => assert_eq!(vfs.read_for_program(file, 0, 4096).await.unwrap().len(), BYTES),
            }
            drop(descriptor);
            vfs.probe_lease(program.lease.id).await.unwrap();
        }
        let each = begun.elapsed() / TURNS;
        println!("{}: {:.1} us", if inline { "stand-in" } else { "extent" }, each.as_secs_f64() * 1e6);
        if let Some(held) = held {
            other.close(held).await.unwrap();
        }
    }
}
