//! Number of messages of the usual operations: each costs a round trip if the partition is on
//! another host.

use super::pool::*;
use bytes::Bytes;
use client::testing::{CountingConnection, CrashingConnection};
use node::NodeSettings;
use placement::PartitionEntry;
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use vfs::Vfs;
use wire::{Changes, Kind, OpenFlags, Outcome, Refusal, RenameMode};

struct CountingClient {
    vfs: Vfs,
    calls: Arc<AtomicU64>,
}

impl CountingClient {
    async fn over(pool: &Pool) -> Self {
        let calls = Arc::new(AtomicU64::new(0));
        let vfs = pool.over(|node| CountingConnection::new(node, calls.clone()), IMPATIENT).await;
        for node in pool.nodes() {
            // The hello is not counted with what follows.
            vfs.client().find_leases(node.id(), (0, 0)).await.unwrap();
        }
        Self { vfs, calls }
    }

    async fn expect<T>(&self, calls: u64, what: &str, operation: impl Future<Output = Outcome<T>>) -> T {
        let before = self.calls.load(Relaxed);
        let done = operation.await.unwrap();
        assert_eq!(self.calls.load(Relaxed) - before, calls, "{what}");
        done
    }
}

#[tokio::test]
async fn the_usual_operations_in_a_directory_are_one_message() {
    for nodes in NODES {
        let counted = CountingClient::over(&Pool::of(nodes)).await;
        let vfs = &counted.vfs;
        let directory = vfs.make_directories(b"d").await.unwrap().file;
        let flags = OpenFlags::READ_WRITE;
        let (made, handle) = counted.expect(1, "create", vfs.create(directory, b"f", 0o600, OWNER, flags)).await;
        counted.expect(1, "write a little", vfs.write(handle, 0, Bytes::from_static(b"hello"))).await;
        counted.expect(1, "read a little", vfs.read(handle, 0, 100)).await;
        counted.expect(1, "close", vfs.close(handle)).await;
        counted.expect(1, "lookup", vfs.lookup(directory, b"f")).await;
        counted.expect(1, "stat", vfs.stat(made.file)).await;
        counted.expect(1, "chmod", vfs.change(made.file, Changes { mode: Some(0o644), ..Changes::default() })).await;
        counted.expect(1, "rename", vfs.rename(from(directory, "f"), to(directory, "g"), RenameMode::Replace)).await;
        counted.expect(1, "list", vfs.list(directory, 0, 100)).await;
        counted.expect(1, "symlink", vfs.make_symlink(directory, b"l", b"g", OWNER)).await;
        counted.expect(1, "unlink", vfs.unlink(directory, b"g")).await;
    }
}

#[tokio::test]
async fn the_usual_operations_in_a_split_directory_are_one_message_when_the_split_is_known() {
    for nodes in NODES {
        let pool = Pool::that_splits(nodes, 8);
        let healthy = pool.client().await;
        let directory = healthy.make_directories(b"d").await.unwrap().file;
        for number in 0..100 {
            healthy.make_symlink(directory, format!("n{number}").as_bytes(), b"t", OWNER).await.unwrap();
        }
        let counted = CountingClient::over(&pool).await;
        let vfs = &counted.vfs;
        counted.expect(3, "a lookup that learns of the split", vfs.lookup(directory, b"n99")).await;
        let flags = OpenFlags::READ_WRITE;
        let (made, handle) = counted.expect(1, "create", vfs.create(directory, b"f", 0o600, OWNER, flags)).await;
        counted.expect(1, "close", vfs.close(handle)).await;
        counted.expect(1, "lookup", vfs.lookup(directory, b"f")).await;
        counted.expect(1, "stat", vfs.stat(made.file)).await;
        let listed = counted.expect(1, "list", vfs.list(directory, 0, 3)).await;
        counted.expect(1, "list on", vfs.list(directory, listed[0].cookie, 1)).await;
        let beside = beside(vfs, directory, "f").await;
        counted
            .expect(1, "rename", vfs.rename(from(directory, "f"), to(directory, &beside), RenameMode::Replace))
            .await;
        counted.expect(1, "unlink", vfs.unlink(directory, beside.as_bytes())).await;
        counted.expect(17, "stat of the directory: itself and its fragments", vfs.stat(directory)).await;
    }
}

/// An unused name in the fragment of `name`.
async fn beside(vfs: &Vfs, directory: placement::FileId, name: &str) -> String {
    let seed = NodeSettings::default().seed;
    let fragment = |name: &str| placement::fragment_of(placement::name_hash(seed, name.as_bytes()));
    let wanted = fragment(name);
    let found = (0..1000).map(|number| format!("g{number}")).find(|other| fragment(other) == wanted).unwrap();
    assert!(vfs.lookup(directory, found.as_bytes()).await.is_err());
    found
}

#[tokio::test]
async fn what_touches_two_partitions_is_four_messages_after_it_was_looked_at() {
    for nodes in NODES {
        let counted = CountingClient::over(&Pool::of(nodes)).await;
        let vfs = &counted.vfs;
        let (one, other) =
            (vfs.make_directories(b"a").await.unwrap().file, vfs.make_directories(b"b").await.unwrap().file);
        assert_ne!(one.partition(), other.partition());
        let file = vfs.make_node(one, b"f", Kind::File, 0o600, OWNER).await.unwrap().file;
        counted.expect(1 + 4 + 1, "link: look, intent, look", vfs.link(file, other, b"g")).await;
        counted.expect(1 + 1 + 4, "unlink elsewhere: try, look, intent", vfs.unlink(other, b"g")).await;
        counted.expect(2 + 4, "rename", vfs.rename(from(one, "f"), to(other, "f"), RenameMode::Replace)).await;
        counted.expect(1 + 4 + 1, "mkdir: look, intent, look", vfs.make_directory(one, b"d", 0o700, OWNER)).await;
        counted.expect(1 + 1 + 4, "rmdir: try, look, intent", vfs.remove_directory(one, b"d")).await;
    }
}

#[tokio::test]
async fn large_files_take_a_message_to_the_inode_and_one_for_each_stripe() {
    for nodes in NODES {
        let counted = CountingClient::over(&Pool::of(nodes)).await;
        let vfs = &counted.vfs;
        let (made, handle) = vfs.create(Vfs::root(), b"f", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
        let stripe = Bytes::from(vec![7; STRIPE as usize]);
        counted.expect(3, "a new stripe: plan, bytes, size", vfs.write(handle, 0, stripe.clone())).await;
        counted.expect(2, "an old stripe: plan, bytes", vfs.write(handle, 0, stripe)).await;
        counted.expect(2, "read: plan, bytes", vfs.read(handle, 0, STRIPE)).await;
        counted.expect(2, "close: the last stripe fits, the open ends", vfs.close(handle)).await;
        let removal = if is_stripe_with_root(made.file, nodes) { 1 } else { 3 };
        counted.expect(removal, "unlink; elsewhere a stripe, its end", vfs.unlink(Vfs::root(), b"f")).await;
    }
}

/// True if a file's first stripe is at the node of the root directory.
fn is_stripe_with_root(file: placement::FileId, nodes: u32) -> bool {
    let NodeSettings { seed, partitions, .. } = settings();
    let home = placement::stripe_partition(seed, file, placement::StripeNo(0), partitions);
    u32::from(home.0) % nodes == 0
}

#[tokio::test]
async fn a_read_within_a_stripe_is_a_view_of_its_bytes() {
    let vfs = pool();
    let (_, handle) = vfs.create(Vfs::root(), b"f", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    vfs.write(handle, 0, Bytes::from(vec![7; 2 * STRIPE as usize])).await.unwrap();
    let (one, other) = (vfs.read(handle, 0, STRIPE).await.unwrap(), vfs.read(handle, 0, STRIPE).await.unwrap());
    assert_eq!(one.as_ptr(), other.as_ptr(), "two reads show the same memory");
    vfs.write(handle, 0, Bytes::from(vec![8; 100])).await.unwrap();
    assert!(one.iter().all(|byte| *byte == 7), "a view stays what it was");
}

#[test]
fn futures_of_the_hot_path_stay_small_enough_to_be_made_for_every_request() {
    let vfs = pool();
    let read = size_of_val(&vfs.read(vfs::Handle(1), 0, 1));
    let write = size_of_val(&vfs.write(vfs::Handle(1), 0, Bytes::new()));
    let lookup = size_of_val(&vfs.lookup(Vfs::root(), b"f"));
    assert!(read <= 2048 && write <= 3072 && lookup <= 2112, "read {read}, write {write}, lookup {lookup} bytes");
}

#[tokio::test]
async fn a_client_learns_a_new_entry_of_the_map_with_its_next_call_to_that_partition() {
    for nodes in NODES {
        let pool = Pool::of(nodes);
        let counted = CountingClient::over(&pool).await;
        let vfs = &counted.vfs;
        let root = Vfs::root().partition();
        let home = pool.nodes().iter().find(|node| node.served_epoch(root).is_some()).unwrap();
        home.learn(root, &PartitionEntry::first(home.id()).moved(home.id()));
        counted.expect(2, "refused with the new entry, sent by it", vfs.stat(Vfs::root())).await;
        counted.expect(1, "by the new entry", vfs.stat(Vfs::root())).await;
    }
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_reported_after_a_bounded_number_of_tries() {
    let calls = Arc::new(AtomicU64::new(0));
    let node = node(64 << 20, Duration::ZERO);
    let vfs = over(CountingConnection::new(CrashingConnection::new(direct(&node), 1), calls.clone()), IMPATIENT).await;
    let refusal = vfs.lookup(Vfs::root(), b"f").await.unwrap_err();
    assert!(matches!(refusal, Refusal::Unavailable { tries: 3, .. }), "{refusal}");
    assert!(refusal.to_string().contains("`f` in directory 1"), "{refusal}");
    assert_eq!(calls.load(Relaxed), 1 + 3, "hello, and three tries");
}

#[tokio::test]
async fn a_subscribed_session_asks_only_for_what_may_have_changed_of_a_split_directory() {
    for nodes in NODES {
        let pool = Pool::that_splits(nodes, 8);
        let counted = CountingClient::over(&pool).await;
        let (vfs, other) = (&counted.vfs, pool.client().await);
        vfs.subscribe(Arc::new(|_| {})).await.unwrap();
        let directory = vfs.make_directories(b"d").await.unwrap().file;
        let name = |number: u32| format!("f{number}").into_bytes();
        for number in 0..20 {
            vfs.make_node(directory, &name(number), Kind::File, 0o600, OWNER).await.unwrap();
        }
        vfs.stat(directory).await.unwrap();
        let kept = counted.expect(0, "stat again", vfs.stat(directory)).await;
        assert!(kept.cacheable && kept.size == 20);
        vfs.make_node(directory, &name(20), Kind::File, 0o600, OWNER).await.unwrap();
        let before = counted.calls.load(Relaxed);
        let grown = vfs.stat(directory).await.unwrap();
        assert!(grown.size == 21 && grown.modified >= kept.modified, "{kept:?} {grown:?}");
        let asked = counted.calls.load(Relaxed) - before;
        assert!((1..=4).contains(&asked), "{asked}: one for each fragment in the partition of its change");
        other.unlink(directory, &name(3)).await.unwrap();
        assert_eq!(vfs.stat(directory).await.unwrap().size, 20, "others' changes are recalled");
    }
}
