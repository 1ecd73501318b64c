//! A client that dies between any two messages leaves a consistent tree, and its unfinished work is
//! completed or undone.

use crate::pool::*;
use bytes::Bytes;
use client::testing::{CountingConnection, CrashingConnection};
use placement::FileId;
use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Waker},
    time::Duration,
};
use vfs::Vfs;
use wire::{AllocateMode, Changes, Kind, OpenFlags, Outcome, RenameMode};

/// Paths of all entries, with the length of a file and `None` for a directory.
type TreeListing = BTreeMap<String, Option<u64>>;

/// Walks the whole tree and checks it: every entry leads to an inode of its kind, every directory
/// counts its subdirectories, and every file its names.
async fn tree(vfs: &Vfs) -> TreeListing {
    let (mut listing, mut todo) = (TreeListing::new(), vec![(FileId::ROOT, String::new())]);
    let mut names: BTreeMap<FileId, (u32, u32)> = BTreeMap::new();
    while let Some((directory, path)) = todo.pop() {
        let entries = all(vfs, directory).await;
        let subdirectories = entries.iter().filter(|entry| entry.kind == Kind::Directory).count();
        assert_eq!(vfs.stat(directory).await.unwrap().links as usize, 2 + subdirectories, "links of `{path}`");
        for entry in entries {
            let path = format!("{path}/{}", entry.name);
            let found = vfs.lookup(directory, entry.name.as_bytes()).await.unwrap();
            assert_eq!((found.file, found.kind), (entry.file, entry.kind), "{path}");
            let directory = found.kind == Kind::Directory;
            listing.insert(path.clone(), (!directory).then_some(found.size));
            if directory {
                assert_eq!(vfs.stat(vfs.parent(found.file).await.unwrap()).await.unwrap().kind, Kind::Directory);
                todo.push((found.file, path));
            } else {
                let count = names.entry(found.file).or_insert((0, found.links));
                count.0 += 1;
            }
        }
    }
    assert!(names.values().all(|(there, links)| there == links), "files count their names: {names:?}");
    listing
}

/// Creates directories in the root, each with two directories, a small and a large file, so that
/// inodes are in many partitions. One file also has a name in another directory, and one directory
/// once had five entries.
async fn furnish(vfs: &Vfs) {
    for top in ["a", "b", "c"] {
        vfs.make_directories(format!("{top}/dir").as_bytes()).await.unwrap();
        vfs.make_directories(format!("{top}/dir2").as_bytes()).await.unwrap();
        vfs.write_file(format!("{top}/small").as_bytes(), &filled(1, 100)).await.unwrap();
        vfs.write_file(format!("{top}/large").as_bytes(), &filled(2, 150_000)).await.unwrap();
    }
    let (twice, above) = (vfs.resolve(b"a/large").await.unwrap().file, vfs.resolve(b"c").await.unwrap().file);
    vfs.link(twice, above, b"twice").await.unwrap();
    let hollow = vfs.make_directory(above, b"hollow", 0o755, OWNER).await.unwrap().file;
    for name in ["one", "two", "three", "four", "five"] {
        vfs.make_symlink(hollow, name.as_bytes(), b"t", OWNER).await.unwrap();
    }
    for name in ["one", "two", "three", "four", "five"] {
        vfs.unlink(hollow, name.as_bytes()).await.unwrap();
    }
}

type OperationFuture = Pin<Box<dyn Future<Output = Outcome<()>>>>;

/// Runs an operation on a client that dies after an ever larger number of messages, until the
/// operation succeeds. After each death every client must see a consistent tree, either as before
/// or as after the operation. Another client must be able to do the operation then. After the dead
/// client's session has been ended, nothing of it may be left.
async fn at_every_message(what: &str, operation: impl Fn(Vfs) -> OperationFuture) {
    at_every_message_where(what, &SPLIT_NEVER, operation).await;
}

/// Split limit that no directory reaches.
const SPLIT_NEVER: u32 = 4096;
/// Split limit equal to the number of entries in the directories of [`furnish`], so that one more
/// splits them.
const SPLIT_SOON: u32 = 4;

async fn at_every_message_where(what: &str, split: &u32, operation: impl Fn(Vfs) -> OperationFuture) {
    for nodes in FEW_NODES {
        let what = format!("{what} over {nodes} nodes");
        at_every_message_over(&what, || Pool::that_splits(nodes, *split), *split, &operation).await;
    }
}

async fn at_every_message_over(
    what: &str,
    start: impl Fn() -> Pool,
    split: u32,
    operation: &impl Fn(Vfs) -> OperationFuture,
) {
    let after = expected(&start(), operation).await;
    for messages in 1.. {
        assert!(messages < 300, "{what} never ends");
        let pool = start();
        let healthy = pool.client().await;
        furnish(&healthy).await;
        let before = tree(&healthy).await;
        let mortal = mortal(&pool, messages).await;
        let outcome = operation(mortal.clone()).await;
        let left = tree(&healthy).await;
        assert!(left == before || left == after, "{what} after {messages} messages: {left:?}");
        if messages % 2 == 0 && left == before {
            let again = pool.client().await;
            operation(again.clone()).await.unwrap_or_else(|error| panic!("{what} after {messages}, again: {error}"));
            again.client().close().await.unwrap();
            assert_eq!(tree(&healthy).await, after, "{what} after {messages} messages, again");
        }
        healthy.client().recover(mortal.client().session()).await.unwrap();
        let left = tree(&healthy).await;
        assert!(left == before || left == after, "{what} after {messages} messages, recovered: {left:?}");
        for top in ["a", "b", "c"] {
            healthy.remove_tree(top.as_bytes()).await.unwrap();
        }
        let usage = healthy.usage();
        // A root that was split stays split.
        let root_is_split = usage.files == 17 && split < 3;
        assert!(usage.stripes == 0 && (usage.files == 1 || root_is_split), "{what} after {messages}: left {usage:?}");
        assert!(usage.used == 0 || root_is_split, "{what} after {messages} messages: space was left");
        if outcome.is_ok() {
            assert_eq!(left, after, "{what}");
            return;
        }
    }
}

/// A client that dies after this number of messages, to any of the nodes.
async fn mortal(pool: &Pool, messages: u64) -> Vfs {
    let left = Arc::new(AtomicU64::new(messages));
    pool.over(|node| CrashingConnection::sharing(node, left.clone()), IMPATIENT).await
}

/// The tree after an undisturbed operation.
async fn expected(pool: &Pool, operation: &impl Fn(Vfs) -> OperationFuture) -> TreeListing {
    let vfs = pool.client().await;
    furnish(&vfs).await;
    operation(vfs.clone()).await.unwrap();
    tree(&vfs).await
}

async fn renamed(vfs: Vfs, source: (&str, &str), target: (&str, &str), mode: RenameMode) -> Outcome<()> {
    let (old, new) = (vfs.resolve(source.0.as_bytes()).await?.file, vfs.resolve(target.0.as_bytes()).await?.file);
    vfs.rename(from(old, source.1), to(new, target.1), mode).await
}

#[tokio::test]
async fn making_and_removing_directories() {
    at_every_message("mkdir", |vfs| {
        Box::pin(async move {
            let above = vfs.resolve(b"a").await?.file;
            vfs.make_directory(above, b"new", 0o755, OWNER).await.map(drop)
        })
    })
    .await;
    at_every_message("rmdir", |vfs| {
        Box::pin(async move {
            let above = vfs.resolve(b"a").await?.file;
            vfs.remove_directory(above, b"dir").await
        })
    })
    .await;
}

#[tokio::test]
async fn renames_between_directories() {
    for (source, target) in [("small", "new"), ("large", "small"), ("small", "large"), ("dir", "new"), ("dir", "dir2")]
    {
        at_every_message("rename", move |vfs| {
            Box::pin(renamed(vfs, ("a", source), ("b", target), RenameMode::Replace))
        })
        .await;
    }
    for name in ["small", "dir"] {
        at_every_message("exchange", move |vfs| {
            Box::pin(renamed(vfs, ("a", name), ("b", "large"), RenameMode::Exchange))
        })
        .await;
    }
    at_every_message("rename within", |vfs| Box::pin(renamed(vfs, ("a", "dir"), ("a", "dir2"), RenameMode::Replace)))
        .await;
}

#[tokio::test]
async fn links_and_their_removal() {
    at_every_message("link", |vfs| {
        Box::pin(async move {
            let (file, above) = (vfs.resolve(b"a/small").await?.file, vfs.resolve(b"b").await?.file);
            vfs.link(file, above, b"new").await.map(drop)
        })
    })
    .await;
    for (above, name) in [("c", "twice"), ("a", "large")] {
        at_every_message("unlink of one of two names", move |vfs| {
            Box::pin(async move {
                let above = vfs.resolve(above.as_bytes()).await?.file;
                vfs.unlink(above, name.as_bytes()).await
            })
        })
        .await;
    }
    at_every_message("rename over one of two names", |vfs| {
        Box::pin(renamed(vfs, ("b", "small"), ("c", "twice"), RenameMode::Replace))
    })
    .await;
}

#[tokio::test]
async fn directories_that_are_split_meanwhile() {
    at_every_message_where("create that splits", &SPLIT_SOON, |vfs| {
        Box::pin(async move {
            let above = vfs.resolve(b"a").await?.file;
            vfs.make_symlink(above, b"new", b"t", OWNER).await.map(drop)
        })
    })
    .await;
    at_every_message_where("rename that splits", &SPLIT_SOON, |vfs| {
        Box::pin(renamed(vfs, ("b", "dir"), ("a", "new"), RenameMode::Replace))
    })
    .await;
}

#[tokio::test]
async fn split_directories_that_are_changed_and_removed() {
    const SPLIT: u32 = 2;
    at_every_message_where("chmod", &SPLIT, |vfs| {
        Box::pin(async move {
            let above = vfs.resolve(b"a").await?.file;
            vfs.change(above, Changes { mode: Some(0o2755), ..Changes::default() }).await.map(drop)
        })
    })
    .await;
    for (source, target) in [("small", "large"), ("dir", "dir2"), ("dir", "new")] {
        at_every_message_where("rename", &SPLIT, move |vfs| {
            Box::pin(renamed(vfs, ("a", source), ("b", target), RenameMode::Replace))
        })
        .await;
    }
    at_every_message_where("rename over an empty one", &SPLIT, |vfs| {
        Box::pin(renamed(vfs, ("a", "dir"), ("c", "hollow"), RenameMode::Replace))
    })
    .await;
    at_every_message_where("rmdir", &SPLIT, |vfs| {
        Box::pin(async move {
            let above = vfs.resolve(b"c").await?.file;
            vfs.remove_directory(above, b"hollow").await
        })
    })
    .await;
}

#[tokio::test]
async fn removing_and_truncating_large_files() {
    at_every_message("unlink", |vfs| {
        Box::pin(async move {
            let above = vfs.resolve(b"a").await?.file;
            vfs.unlink(above, b"large").await
        })
    })
    .await;
    at_every_message("truncate", |vfs| {
        Box::pin(async move {
            let file = vfs.resolve(b"a/large").await?.file;
            vfs.change(file, Changes { size: Some(70_000), ..Changes::default() }).await.map(drop)
        })
    })
    .await;
}

#[tokio::test]
async fn a_client_that_dies_while_a_file_grows_loses_no_byte_that_was_there() {
    for nodes in NODES {
        grown_at_every_message(nodes).await;
    }
}

async fn grown_at_every_message(nodes: u32) {
    for messages in 1.. {
        let pool = Pool::of(nodes);
        let healthy = pool.client().await;
        let file = healthy.write_file(b"f", &filled(1, 4000)).await.unwrap().file;
        let outcome = grow(mortal(&pool, messages).await, file).await;
        let whole = healthy.read_file(b"f").await.unwrap();
        assert!(whole[..4000].iter().all(|byte| *byte == 1), "after {messages} messages");
        assert!(whole.len() == 4000 || whole.len() == 104_000 && whole[4000..].iter().all(|byte| *byte == 2));
        grow(healthy.clone(), file).await.unwrap();
        assert_eq!(healthy.read_file(b"f").await.unwrap().len(), 104_000, "another client goes on");
        if outcome.is_ok() {
            return;
        }
    }
}

async fn grow(vfs: Vfs, file: FileId) -> Outcome<()> {
    let handle = vfs.open(file, OpenFlags::WRITE).await?;
    vfs.write(handle, 4000, Bytes::from(vec![2; 100_000])).await?;
    vfs.close(handle).await
}

#[tokio::test]
async fn taking_and_giving_back_space_of_ranges() {
    for (name, mode) in [
        ("small", AllocateMode::Extend),
        ("large", AllocateMode::Extend),
        ("large", AllocateMode::PunchHole),
        ("large", AllocateMode::ZeroRange),
    ] {
        at_every_message("fallocate", move |vfs| {
            Box::pin(async move {
                let file = vfs.resolve(format!("a/{name}").as_bytes()).await?.file;
                let handle = vfs.open(file, OpenFlags::READ_WRITE).await?;
                vfs.allocate(handle, 10_000, 250_000, mode).await?;
                vfs.close(handle).await
            })
        })
        .await;
    }
}

#[tokio::test]
async fn making_and_filling_a_file_without_a_name() {
    at_every_message("O_TMPFILE", |vfs| {
        Box::pin(async move {
            let above = vfs.resolve(b"a/dir").await?.file;
            let flags = OpenFlags::READ_WRITE;
            let (_, handle) = vfs.create_unnamed(above, 0o600, OWNER, flags, false).await?;
            vfs.write(handle, 0, Bytes::from(filled(3, 100_000))).await?;
            vfs.close(handle).await
        })
    })
    .await;
}

#[tokio::test]
async fn a_change_that_is_given_up_while_it_waits_for_space_holds_nothing_any_more() {
    let node = node(60_000, Duration::from_mins(1));
    let (one, calls) = (over(direct(&node), IMPATIENT).await, Arc::new(AtomicU64::new(0)));
    let (a, b) = (one.make_directories(b"a").await.unwrap().file, one.make_directories(b"b").await.unwrap().file);
    assert_ne!(a.partition(), b.partition());
    one.make_symlink(a, b"f", b"t", OWNER).await.unwrap();
    let polled = |future: &mut (dyn Future<Output = ()> + Unpin)| {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    let fills = |length: usize| {
        let (vfs, name) = (one.clone(), "x".repeat(length));
        Box::pin(async move { drop(vfs.make_symlink(b, name.as_bytes(), b"t", OWNER).await) })
    };
    let full = (1..=250).find(|length| !polled(&mut fills(*length)));
    assert!(full.is_some(), "it is full, and a creation waits");
    let (vfs, long) = (one.clone(), "y".repeat(255));
    let mut renamed = Box::pin(async move { drop(vfs.rename(from(a, "f"), to(b, &long), RenameMode::Replace).await) });
    assert!(!polled(&mut renamed), "it waits for space for the new name, and holds the old one");
    drop(renamed);
    let other = over(CountingConnection::new(direct(&node), calls.clone()), IMPATIENT).await;
    let before = calls.load(Relaxed);
    other.unlink(a, b"f").await.unwrap();
    assert_eq!(calls.load(Relaxed) - before, 1, "nobody holds it");
}
