//! Memory growth of a node's process when many connections announce as much as they may, send most
//! of it, and then stall. In a binary of its own: nothing else takes memory meanwhile.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test a panic is the failure; the growth is told")]

#[path = "suite/common/mod.rs"]
mod common;

use common::*;
use std::{
    fs,
    io::{ErrorKind, Write},
    time::{Duration, Instant},
};
use transport::ServerLimits;
use wire::{
    frame::{FrameKind, Header, LARGE_META_BYTES_MAX, PAYLOAD_BYTES_MAX},
    handshake::VERSIONS,
};

const CONNECTIONS: usize = 100;
/// Memory of each connection: buffers for short frames, and its other state.
const EACH_BYTES: usize = 256 << 10;

/// Resident memory of this process, bytes.
fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Header of a request with these lengths. Its check is that of an empty meta, which the node
/// notices when the meta has come.
fn announced(meta: u32, payload: u32) -> [u8; 32] {
    let none = Header::new(FrameKind::Request, 1, &[], payload as usize).unwrap();
    Header { meta, ..none }.encode()
}

/// Sends to all connections in turn while any takes bytes; gives up when none does for a second.
fn pour(connections: &mut [RawClient], bytes: &[u8]) {
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
    let limits = ServerLimits::default();
    let server = serve_with(&node(), &any_port(), limits);
    let bytes = vec![7_u8; PAYLOAD_BYTES_MAX as usize];
    let before = resident();
    let (meta, payload) = (LARGE_META_BYTES_MAX, PAYLOAD_BYTES_MAX);
    for (what, meta, payload) in
        [("metas", meta, 0), ("metas before payloads", meta, payload), ("payloads", 0, payload)]
    {
        let mut connections: Vec<RawClient> = (0..CONNECTIONS).map(|_| RawClient::connect(&server)).collect();
        for raw in &mut connections {
            raw.shake_hands(token(), VERSIONS).unwrap();
            raw.stream.write_all(&announced(meta, payload)).unwrap();
            raw.stream.set_nonblocking(true).unwrap();
        }
        // All but the last byte, as far as it is taken.
        let first = if meta > 0 { meta } else { payload };
        pour(&mut connections, &bytes[..first as usize - 1]);
        let grown = resident().saturating_sub(before);
        println!("{CONNECTIONS} connections that stall in their {what}: {} MiB more", grown >> 20);
        // The allocator may keep what the rounds before have freed.
        assert!(grown < 3 * limits.arriving_bytes + CONNECTIONS * EACH_BYTES, "{} MiB", grown >> 20);
        // Short frames need no budget.
        vfs(server.address()).await.write_file(b"f", b"bytes").await.unwrap();
        drop(connections);
    }
    server.stop().await;
}
