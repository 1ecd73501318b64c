//! What a node's process grows by when many connections announce as much as they may, send most of it, and then stall. Alone in its
//! process: nothing else takes memory meanwhile.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test a panic is the failure; the growth is told")]

mod common;

use common::*;
use link::Limits;
use std::{
    fs,
    io::{ErrorKind, Write},
    time::{Duration, Instant},
};
use wire::{
    frame::{Header, Kind, LARGE_META_BYTES_MAX, PAYLOAD_BYTES_MAX},
    handshake::VERSIONS,
};

const CONNECTIONS: usize = 100;
/// Buffers for short frames, of each connection, and what else it has.
const EACH_BYTES: usize = 256 << 10;

/// What this process has in memory, bytes.
fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// The header of a request that is as long as this; that its meta is none is seen when it has come.
fn announced(meta: u32, payload: u32) -> [u8; 32] {
    let none = Header::of(Kind::Request, 1, &[], payload as usize).unwrap();
    Header { meta, ..none }.encode()
}

/// Sends to all in turn as long as any takes something; gives up on those that take nothing.
fn pour(connections: &mut [Raw], bytes: &[u8]) {
    let (mut sent, mut last) = (vec![0; connections.len()], Instant::now());
    while last.elapsed() < Duration::from_secs(1) {
        for (raw, sent) in connections.iter_mut().zip(&mut sent) {
            match raw.stream.write(&bytes[*sent..]) {
                Ok(0) => {}
                Ok(count) => (*sent, last) = (*sent + count, Instant::now()),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn connections_that_announce_as_much_as_they_may_and_stall_take_no_more_memory_than_the_budget() {
    let limits = Limits::default();
    let server = serve_with(&node(), &any_port(), limits);
    let bytes = vec![7_u8; PAYLOAD_BYTES_MAX as usize];
    let before = resident();
    let (meta, payload) = (LARGE_META_BYTES_MAX, PAYLOAD_BYTES_MAX);
    for (what, meta, payload) in
        [("metas", meta, 0), ("metas before payloads", meta, payload), ("payloads", 0, payload)]
    {
        let mut connections: Vec<Raw> = (0..CONNECTIONS).map(|_| Raw::connect(&server)).collect();
        for raw in &mut connections {
            raw.greet(token(), VERSIONS).unwrap();
            raw.stream.write_all(&announced(meta, payload)).unwrap();
            raw.stream.set_nonblocking(true).unwrap();
        }
        // All but the last byte, of what is taken.
        let first = if meta > 0 { meta } else { payload };
        pour(&mut connections, &bytes[..first as usize - 1]);
        let grown = resident().saturating_sub(before);
        println!("{CONNECTIONS} connections that stall in their {what}: {} MiB more", grown >> 20);
        // What was freed the allocator may keep for the next.
        assert!(grown < 2 * limits.arriving_bytes + CONNECTIONS * EACH_BYTES, "{} MiB", grown >> 20);
        // Short ones pass by.
        vfs(server.address()).await.write_file(b"f", b"bytes").await.unwrap();
        drop(connections);
    }
    server.stop().await;
}
