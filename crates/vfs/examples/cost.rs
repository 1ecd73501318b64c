//! Measures the cost of a small file: the time to create, write and close it, and its memory beside
//! its bytes.
//!
//! ```text
//! cargo run --release -p vfs --example cost ordinary|whole|past-us [FILES [metrics]]
//! ```
//!
//! "ordinary" makes ordinary files, "whole" and "past-us" extent files. "past-us" writes to their
//! backing, as a kernel does for a mount; the others write through the pool. With "metrics" the
//! node records metrics.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is for reading, and a panic is a failure")]

use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use client::Client;
use metrics_exporter_prometheus::PrometheusBuilder;
use node::NodeSettings;
use std::{
    fs,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Instant,
};
use vfs::Vfs;
use wire::{OpenFlags, Owner};

#[derive(Clone, Copy, Debug, PartialEq)]
enum WritePath {
    Ordinary,
    Whole,
    PastUs,
}

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing waits here"),
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = match arguments.next().as_deref() {
        Some("ordinary") => WritePath::Ordinary,
        Some("whole") => WritePath::Whole,
        Some("past-us") => WritePath::PastUs,
        _ => panic!("say ordinary, whole or past-us"),
    };
    let files = arguments.next().map_or(100_000, |text| text.parse().unwrap());
    let metrics = arguments.next().is_some_and(|word| word == "metrics");
    let (arena, vfs) = pool(metrics);
    // Memory first: the allocator retains what the timing run frees.
    memory(&arena, &vfs, path, files);
    time(&vfs, path, files / 5);
}

fn pool(metrics: bool) -> (Arc<Arena>, Vfs) {
    let arena = Arc::new(Arena::new(ArenaOptions::with_capacity(4 << 30)).unwrap());
    let node = node::embedded(NodeSettings::default(), arena.clone());
    if metrics {
        node.record_metrics(Arc::new(PrometheusBuilder::new().build_recorder()));
    }
    (arena, Vfs::new(Client::embedded(node)))
}

fn make(vfs: &Vfs, directory: placement::FileId, number: u32, path: WritePath, data: &Bytes) {
    let flags = OpenFlags { use_extent: path != WritePath::Ordinary, ..OpenFlags::READ_WRITE };
    let name = format!("file-{number:06}");
    let (_, handle) = now(vfs.create(directory, name.as_bytes(), 0o644, Owner::default(), flags)).unwrap();
    if let Some(backing) = vfs.backing(handle).filter(|_| path == WritePath::PastUs) {
        rustix::io::pwrite(&backing, data, 0).unwrap();
    } else {
        now(vfs.write(handle, 0, data.clone())).unwrap();
    }
    now(vfs.close(handle)).unwrap();
}

fn time(vfs: &Vfs, path: WritePath, files: u32) {
    let data = Bytes::from(vec![7; 4096]);
    let mut best = f64::MAX;
    for _ in 0..5 {
        let directory = now(vfs.make_directories(b"time")).unwrap().file;
        let start = Instant::now();
        (0..files).for_each(|number| make(vfs, directory, number, path, &data));
        best = best.min(start.elapsed().as_secs_f64());
        now(vfs.remove_tree(b"time")).unwrap();
    }
    println!("{path:?}: create, write 4 KiB, close: {:.2} us a file", best * 1e6 / f64::from(files));
}

fn memory(arena: &Arena, vfs: &Vfs, path: WritePath, files: u32) {
    let directory = now(vfs.make_directories(b"memory")).unwrap().file;
    let data = Bytes::from(vec![7; 1024]);
    let before = anonymous() + arena.resident().unwrap();
    (0..files).for_each(|number| make(vfs, directory, number, path, &data));
    let used = vfs.usage().used;
    let taken = anonymous() + arena.resident().unwrap() - before;
    let beside = taken.saturating_sub(u64::from(files) * 1024) / u64::from(files);
    println!(
        "{path:?}: {files} files of 1 KiB: {beside} B a file beside their bytes; the pool counts {} B a file",
        used / u64::from(files)
    );
}

/// Anonymous memory of the process; files in memory do not count.
fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
