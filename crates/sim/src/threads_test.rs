//! Many threads on one pool over the arena: the tree stays consistent, and nothing is lost.

use crate::pool::*;
use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use client::Client;
use node::NodeSettings;
use placement::FileId;
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};
use test_support::Random;
use vfs::Vfs;
use wire::{Changes, Kind, OpenFlags, Outcome, Refusal, RenameMode};

const THREADS: u64 = 4;
const STEPS: u64 = 3000;

/// Polls a future until it is done; no call here waits long.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        thread::yield_now();
    }
}

/// The subdirectory of this name if there is one, else the directory itself.
fn deeper(vfs: &Vfs, directory: FileId, name: &[u8]) -> FileId {
    match now(vfs.lookup(directory, name)) {
        Ok(found) if found.kind == Kind::Directory => found.file,
        _ => directory,
    }
}

/// One random step. Directories may move into each other.
fn step(vfs: &Vfs, directories: &[FileId], random: &mut Random) -> Outcome<()> {
    let mut place = || {
        let directory = random.pick(directories);
        (directory, format!("n{}", random.below(5)))
    };
    let ((one, name), (other, target)) = (place(), place());
    let bytes = name.as_bytes();
    let (one, other) = match random.below(3) {
        0 => (deeper(vfs, one, target.as_bytes()), deeper(vfs, other, bytes)),
        _ => (one, other),
    };
    match random.below(10) {
        0 | 1 => {
            let flags = OpenFlags { use_extent: random.one_in(2), ..OpenFlags::APPEND };
            let (_, handle) = now(vfs.create(one, bytes, 0o644, OWNER, flags))?;
            let length = random.pick(&[10, 5000, 100_000]);
            let written = now(vfs.write(handle, 0, Bytes::from(filled(1, length))));
            now(vfs.close(handle))?;
            written.map(drop)
        }
        2 => now(vfs.make_directory(one, bytes, 0o755, OWNER)).map(drop),
        3 => now(vfs.unlink(one, bytes)),
        4 => now(vfs.remove_directory(one, bytes)),
        5 => now(vfs.rename(from(one, &name), to(one, &target), RenameMode::Replace)),
        8 => {
            let file = now(vfs.lookup(one, bytes))?.file;
            now(vfs.link(file, other, target.as_bytes())).map(drop)
        }
        6 => now(vfs.rename(from(one, &name), to(other, &target), RenameMode::NoReplace)),
        7 => {
            let file = now(vfs.lookup(one, bytes))?;
            let size = Some(random.below(100_000));
            now(vfs.change(file.file, Changes { size, ..Changes::default() })).map(drop)
        }
        _ => {
            let file = now(vfs.lookup(one, bytes))?;
            let handle = now(vfs.open(file.file, OpenFlags::READ))?;
            let read = now(vfs.read(handle, random.below(100_000), 70_000));
            now(vfs.close(handle))?;
            let read = read?;
            assert!(read.iter().all(|byte| *byte <= 1), "only what was written, or zeros");
            Ok(())
        }
    }
}

fn hammer(vfs: &Vfs, directories: &[FileId], seed: u64) -> u64 {
    let (mut random, mut done) = (Random::new(seed), 0);
    for _ in 0..STEPS {
        match step(vfs, directories, &mut random) {
            Ok(()) => done += 1,
            Err(
                refusal @ (Refusal::Io { .. }
                | Refusal::Busy(_)
                | Refusal::Stale(_)
                | Refusal::LockedByIntent { .. }
                | Refusal::Split { .. }),
            ) => {
                panic!("{refusal}")
            }
            Err(_) => {}
        }
    }
    done
}

#[test]
fn threads_that_do_what_they_like_leave_a_tree_in_order_and_no_space_lost() {
    let settings = NodeSettings {
        partitions: 64,
        stripe_bytes: STRIPE,
        space_wait: Duration::ZERO,
        closed_extents_max: 4,
        ..NodeSettings::default()
    };
    let node = node::embedded(settings, Arc::new(Arena::new(ArenaOptions::with_capacity(32 << 20)).unwrap()));
    let clients = [(); 2].map(|()| Vfs::new(Client::embedded(node.clone())));
    let vfs = &clients[0];
    let before = vfs.usage();
    let directories = ["a", "b", "c"].map(|top| now(vfs.make_directories(top.as_bytes())).unwrap().file);
    let done: u64 = thread::scope(|scope| {
        let started: Vec<_> = (0..THREADS)
            .map(|seed| (seed, &clients[usize::try_from(seed % 2).unwrap()]))
            .map(|(seed, vfs)| scope.spawn(move || hammer(vfs, &directories, seed)))
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(done > THREADS * STEPS / 10, "most steps mean something: {done}");
    for (top, directory) in ["a", "b", "c"].iter().zip(directories) {
        let entries = now(vfs.list(directory, 0, 100)).unwrap();
        let below = entries.iter().filter(|entry| entry.kind == Kind::Directory).count();
        assert_eq!(now(vfs.stat(directory)).unwrap().links as usize, 2 + below);
        for entry in entries {
            assert_eq!(now(vfs.lookup(directory, entry.name.as_bytes())).unwrap().kind, entry.kind);
        }
        now(vfs.remove_tree(top.as_bytes())).unwrap();
    }
    let after = vfs.usage();
    assert_eq!((after.files, after.stripes, after.used), (before.files, 0, before.used));
}
