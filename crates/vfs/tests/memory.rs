//! Created and removed files leave no memory in use, by the pool's own count and by the system's.
//! The only test in its binary, because the numbers are those of the whole process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use client::Client;
use node::NodeSettings;
use std::{
    fs,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use store::Engine;
use vfs::Vfs;
use wire::{OpenFlags, Owner};

const MIB: u64 = 1 << 20;
/// Allowance for freed memory that the allocator retains, and for the table of extent slots.
const SLACK: u64 = 12 * MIB;

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing waits here"),
    }
}

/// Anonymous memory of the process; files in memory do not count.
fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

struct Pool {
    arena: Arc<Arena>,
    vfs: Vfs,
}

/// Memory in use: of the process, in files of memory, and by the pool's own count.
#[derive(Debug)]
struct MemoryUse {
    anonymous: u64,
    memory: u64,
    used: u64,
    files: u64,
}

impl Pool {
    fn new() -> Self {
        let arena = Arc::new(Arena::new(ArenaOptions::with_capacity(256 * MIB)).unwrap());
        let node = node::embedded(NodeSettings::default(), arena.clone());
        Self { arena, vfs: Vfs::new(Client::embedded(node)) }
    }

    fn memory_use(&self) -> MemoryUse {
        let usage = self.vfs.usage();
        let memory = self.arena.resident().unwrap();
        MemoryUse { anonymous: anonymous(), memory, used: usage.used, files: usage.files }
    }

    fn make(&self, name: &str, data: &Bytes, whole: bool) {
        let flags = OpenFlags { use_extent: whole, ..OpenFlags::READ_WRITE };
        let (_, handle) = now(self.vfs.create(Vfs::root(), name.as_bytes(), 0o644, Owner::default(), flags)).unwrap();
        if let Some(backing) = self.vfs.backing(handle) {
            assert_eq!(rustix::io::pwrite(&backing, data, 0).unwrap(), data.len());
        } else {
            assert_eq!(now(self.vfs.write(handle, 0, data.clone())).unwrap() as usize, data.len());
        }
        now(self.vfs.close(handle)).unwrap();
    }

    fn remove(&self, name: &str) {
        now(self.vfs.unlink(Vfs::root(), name.as_bytes())).unwrap();
    }
}

/// Asserts that memory use is as before, within a constant.
fn assert_restored(before: &MemoryUse, after: &MemoryUse, warm: u64) {
    assert_eq!((after.used, after.files), (before.used, before.files));
    assert!(after.anonymous <= before.anonymous + SLACK, "{before:?} {after:?}");
    assert!(after.memory <= before.memory + warm, "{before:?} {after:?}");
}

#[test]
fn what_was_made_and_removed_leaves_no_memory_behind() {
    let small = Bytes::from(vec![7; 1024]);
    let large = Bytes::from(vec![7; 1 << 20]);
    for whole in [false, true] {
        let pool = Pool::new();
        let before = pool.memory_use();
        // More files at a time than may stay extent files after their close.
        for number in 0..100_000_u32 {
            pool.make(&format!("small{number}"), &small, whole);
            if number >= 500 {
                pool.remove(&format!("small{}", number - 500));
            }
        }
        (99_500..100_000).for_each(|number| pool.remove(&format!("small{number}")));
        assert_restored(&before, &pool.memory_use(), 0);
        let slots = pool.arena.extents().map_or(0, |extents| extents.slot_counts().0);
        for _ in 0..10_000 {
            pool.make("large", &large, whole);
            pool.remove("large");
        }
        // A freed block stays resident for reuse.
        assert_restored(&before, &pool.memory_use(), 2 * MIB);
        let after = pool.arena.extents().map_or((0, 0), |extents| extents.slot_counts());
        assert!(after.0 <= slots + 1 && after.0 == after.1, "all slots are in the stock: {after:?}");
    }
}
