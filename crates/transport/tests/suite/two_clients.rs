//! Two clients of one node, over sockets of both kinds.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use super::common::*;
use bytes::Bytes;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use tempfile::TempDir;
use transport::{Address, Server};
use vfs::Vfs;
use wire::{
    Changes, Kind, Lock, LockKind, LockOwner, LockStyle, Name, OpenFlags, Recall, Refusal, RenameFrom, RenameMode,
    RenameTo,
};

/// Server at each kind of address.
fn servers() -> [(Server, TempDir); 2] {
    let directory = || tempfile::tempdir().unwrap();
    let (one, other) = (directory(), directory());
    let socket = Address::Unix(other.path().join("pool"));
    [(serve(&node(), &any_port()), one), (serve(&node(), &socket), other)]
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

async fn names(vfs: &Vfs) -> Vec<String> {
    let mut names: Vec<String> =
        vfs.list(Vfs::root(), 0, 100).await.unwrap().iter().map(|entry| entry.name.to_string()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn what_one_writes_the_other_reads_whatever_its_length() {
    for (server, _directory) in servers() {
        let (one, other) = (vfs(server.address()).await, vfs(server.address()).await);
        for length in [0, 1, 4096, 4097, 65_536, 1_000_000] {
            let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            one.write_file(b"f", &bytes).await.unwrap();
            assert!(other.read_file(b"f").await.unwrap() == bytes, "{length}");
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn how_full_the_pool_is_is_told_as_the_node_knows_it() {
    let node = node();
    let server = serve(&node, &any_port());
    let vfs = vfs(server.address()).await;
    assert!([wire::SpaceUsage::default(), node.usage()].contains(&vfs.usage()), "nothing yet, or what it said already");
    vfs.write_file(b"f", &vec![7; 1_000_000]).await.unwrap();
    assert_eq!(vfs.query_usage().await, Ok(node.usage()));
    assert_eq!(vfs.usage(), node.usage(), "as it said last");
    server.stop().await;
}

#[tokio::test]
async fn names_are_made_moved_listed_and_removed() {
    for (server, _directory) in servers() {
        let (one, other) = (vfs(server.address()).await, vfs(server.address()).await);
        let directory = one.make_directories(b"d").await.unwrap().file;
        one.make_node(Vfs::root(), b"f", Kind::File, 0o600, OWNER).await.unwrap();
        assert_eq!(names(&other).await, ["d", "f"]);
        let (from, to) =
            (RenameFrom { parent: Vfs::root(), name: name("f") }, RenameTo { parent: directory, name: name("g") });
        other.rename(from, to, RenameMode::Replace).await.unwrap();
        assert_eq!(names(&one).await, ["d"]);
        let file = one.lookup(directory, b"g").await.unwrap().file;
        one.change(file, Changes { mode: Some(0o640), ..Changes::default() }).await.unwrap();
        assert_eq!(other.stat(file).await.unwrap().mode & 0o777, 0o640);
        other.unlink(directory, b"g").await.unwrap();
        assert!(matches!(one.lookup(directory, b"g").await, Err(Refusal::NotFound(_))));
        server.stop().await;
    }
}

#[tokio::test]
async fn many_requests_are_under_way_at_once_over_one_connection() {
    let (server, _directory) = &servers()[0];
    let one = vfs(server.address()).await;
    let writes: Vec<_> = (0..64_u8)
        .map(|number| {
            let one = one.clone();
            tokio::spawn(async move {
                let path = format!("f{number}");
                one.write_file(path.as_bytes(), &vec![number; 100_000]).await.unwrap();
                one.read_file(path.as_bytes()).await.unwrap()
            })
        })
        .collect();
    for (number, write) in (0..64_u8).zip(writes) {
        assert!(write.await.unwrap() == vec![number; 100_000]);
    }
}

#[tokio::test]
async fn a_lock_that_the_other_holds_is_waited_for() {
    for (server, _directory) in servers() {
        let (one, other) = (vfs(server.address()).await, vfs(server.address()).await);
        let file = one.write_file(b"f", b"bytes").await.unwrap().file;
        let (mine, yours) = (
            one.open(file, OpenFlags::READ_WRITE).await.unwrap(),
            other.open(file, OpenFlags::READ_WRITE).await.unwrap(),
        );
        let lock =
            |kind| Lock { owner: LockOwner::Session(1), kind, style: LockStyle::Range { start: 0, end: 9 }, pid: 1 };
        one.lock(mine, lock(LockKind::Write), false).await.unwrap();
        assert!(matches!(other.lock(yours, lock(LockKind::Write), false).await, Err(Refusal::Locked(_))));
        let waiting = tokio::spawn(other.lock(yours, lock(LockKind::Write), true));
        // `one` waits for no lock, so the wait of `other` for it is no deadlock.
        one.lock(mine, lock(LockKind::Unlock), false).await.unwrap();
        waiting.await.unwrap().unwrap();
        assert!(matches!(one.lock(mine, lock(LockKind::Write), false).await, Err(Refusal::Locked(_))));
        server.stop().await;
    }
}

#[tokio::test]
async fn what_one_keeps_is_recalled_before_the_others_change_is_answered() {
    for (server, _directory) in servers() {
        let (one, other) = (vfs(server.address()).await, vfs(server.address()).await);
        let recalls_seen: Arc<Mutex<Vec<Recall>>> = Arc::default();
        let recording_callback = recalls_seen.clone();
        one.subscribe(Arc::new(move |recalls: &[Recall]| recording_callback.lock().unwrap().extend(recalls)))
            .await
            .unwrap();
        let file = one.write_file(b"f", b"bytes").await.unwrap().file;
        assert!(one.lookup(Vfs::root(), b"f").await.unwrap().cacheable);
        recalls_seen.lock().unwrap().clear();
        other.change(file, Changes { mode: Some(0o640), ..Changes::default() }).await.unwrap();
        assert!(recalls_seen.lock().unwrap().contains(&Recall::Attributes(file)), "{:?}", recalls_seen.lock().unwrap());
        server.stop().await;
    }
}

#[tokio::test]
async fn a_face_that_panics_is_not_waited_for() {
    let (server, _directory) = &servers()[0];
    let (one, other) = (vfs(server.address()).await, vfs(server.address()).await);
    let told = Arc::new(AtomicUsize::new(0));
    let recording_callback = told.clone();
    let broken = move |_: &[Recall]| {
        recording_callback.fetch_add(1, SeqCst);
        panic!("as a face that is broken");
    };
    one.subscribe(Arc::new(broken)).await.unwrap();
    let file = one.write_file(b"f", b"bytes").await.unwrap().file;
    one.lookup(Vfs::root(), b"f").await.unwrap();
    other.change(file, Changes { mode: Some(0o640), ..Changes::default() }).await.unwrap();
    assert_eq!(told.load(SeqCst), 1);
    other.change(file, Changes { mode: Some(0o600), ..Changes::default() }).await.unwrap();
    assert_eq!(other.write_file(b"f", b"more").await.unwrap().size, 4);
}

#[tokio::test]
async fn a_connection_serves_threads_without_a_runtime() {
    let (server, _directory) = &servers()[0];
    let one = vfs(server.address()).await;
    let threads: Vec<_> = (0..4_u8)
        .map(|number| {
            let one = one.clone();
            std::thread::spawn(move || {
                let path = [b'f', b'0' + number];
                now(one.write_file(&path, &[number; 10_000])).unwrap();
                now(one.read_file(&path)).unwrap()
            })
        })
        .collect();
    for (number, thread) in (0..4_u8).zip(threads) {
        assert_eq!(thread.join().unwrap(), Bytes::from(vec![number; 10_000]));
    }
}

/// Polls until ready, as a thread that has nothing else to do.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        std::thread::yield_now();
    }
}
