//! Guarantees of objects, over pools of 1, 2, 4 and 8 nodes, beside files with the same names.

use crate::{
    Client, Objects,
    objects::{Condition, ListPage, ListRequest},
    pool_test::*,
    testing::CountingConnection,
};
use bytes::Bytes;
use node::NodeSettings;
use placement::{FRAGMENTS, FileId, NodeId, PlacementSpec, Policy};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use store::ModelEngine;
use wire::{Kind, OpenFlags, Outcome, Refusal, RenameMode, SpaceUsage};

pub const ALWAYS: Condition = Condition::Always;

pub fn objects(fs: &TestFs) -> Objects {
    Objects::new(fs.0.clone())
}

pub fn bytes(fill: u8, length: u32) -> Bytes {
    filled(fill, length).into()
}

/// A byte for a number; it differs from that of the next number.
pub fn fill_of(number: usize) -> u8 {
    u8::try_from(number % 251).unwrap()
}

/// Lengths at which the storage changes: 0, 1, inline, one stripe, several.
pub const LENGTHS: [u32; 8] = [0, 1, 4096, 4097, STRIPE - 1, STRIPE, STRIPE + 1, 5 * STRIPE + 7];

#[tokio::test]
async fn what_is_put_is_got_whole_and_seen_as_a_file() {
    for nodes in NODES {
        let pool = Pool::of(nodes);
        let (fs, objects) = (pool.client().await, objects(&pool.client().await));
        for key in ["key", "a/b/c"] {
            for (fill, length) in (1..).zip(LENGTHS) {
                let version = objects.put(key.as_bytes(), bytes(fill, length), ALWAYS).await.unwrap();
                let value = objects.get(key.as_bytes()).await.unwrap();
                assert_eq!((value.head.version, value.head.size), (version, length.into()));
                assert!(value.into_bytes() == bytes(fill, length), "{key} {length}");
                assert!(fs.read_file(key.as_bytes()).await.unwrap() == filled(fill, length), "{key} {length}");
                assert_eq!(objects.head(key.as_bytes()).await.unwrap().version, version);
            }
        }
        let file = fs.resolve(b"a/b/c").await.unwrap();
        assert_eq!((file.kind, file.mode, file.owner, file.links), (Kind::File, 0o644, OWNER, 1));
    }
}

#[tokio::test]
async fn what_files_verbs_write_is_got_and_has_a_version_of_its_own() {
    for pool in [Pool::of(4), Pool::of_arenas(1, 64 << 20)] {
        let (fs, objects) = (pool.client().await, objects(&pool.client().await));
        let mut versions = Vec::new();
        for (fill, length) in (1..).zip(LENGTHS) {
            fs.write_file(b"f", &filled(fill, length)).await.unwrap();
            let value = objects.get(b"f").await.unwrap();
            versions.push(value.head.version);
            assert!(value.into_bytes() == bytes(fill, length), "{length}");
        }
        let file = fs.resolve(b"f").await.unwrap().file;
        let handle = fs.open(file, OpenFlags { use_extent: true, ..OpenFlags::READ_WRITE }).await.unwrap();
        for offset in [0, 0, 1, 70_000, 1 << 20] {
            fs.write(handle, offset, Bytes::from_static(b"x")).await.unwrap();
            versions.push(objects.head(b"f").await.unwrap().version);
        }
        fs.close_file(handle).await.unwrap();
        let count = versions.len();
        versions.sort_by_key(|version| (version.file, version.change));
        versions.dedup();
        assert_eq!(versions.len(), count, "each change has its own");
    }
}

#[tokio::test]
async fn small_changes_of_a_whole_file_change_its_version_and_a_condition_on_it_holds() {
    let pool = Pool::of_arenas(1, 64 << 20);
    let (fs, objects) = (pool.client().await, objects(&pool.client().await));
    let flags = OpenFlags { use_extent: true, ..OpenFlags::READ_WRITE };
    let (_, handle) = fs.create(FileId::ROOT, b"f", 0o644, OWNER, flags).await.unwrap();
    let mut last = objects.head(b"f").await.unwrap().version;
    for round in 0..50_u64 {
        fs.write(handle, round * 1000, bytes(7, 5000)).await.unwrap();
        let now = objects.head(b"f").await.unwrap().version;
        assert_ne!(now, last, "round {round}");
        last = now;
    }
    let refused = objects.put(b"f", bytes(1, 10), Condition::Absent).await.unwrap_err();
    assert!(matches!(refused, Refusal::VersionMismatch { present: Some(present), .. } if present == last), "{refused}");
    objects.put(b"f", bytes(1, 10), Condition::Is(last)).await.unwrap();
    assert!(fs.read(handle, 0, 1).await.unwrap() == b"\x07"[..], "who has the old one open keeps it");
    fs.close_file(handle).await.unwrap();
    assert!(objects.get(b"f").await.unwrap().into_bytes() == bytes(1, 10));
}

#[tokio::test]
async fn a_condition_that_does_not_hold_changes_nothing_and_tells_what_is_there() {
    for nodes in NODES {
        let objects = objects(&Pool::of(nodes).client().await);
        for length in [10, STRIPE, 3 * STRIPE] {
            let absent = objects.put(b"d/k", bytes(1, length), Condition::Absent).await.unwrap();
            for refused in [
                objects.put(b"d/k", bytes(2, length), Condition::Absent).await.unwrap_err(),
                objects.delete(b"d/k", Condition::Absent).await.unwrap_err(),
            ] {
                let tells =
                    matches!(&refused, Refusal::VersionMismatch { present: Some(present), .. } if *present == absent);
                assert!(tells && refused.to_string().contains("d/k"), "{refused}");
            }
            let swapped = objects.put(b"d/k", bytes(3, length), Condition::Is(absent)).await.unwrap();
            for refused in [
                objects.put(b"d/k", bytes(4, length), Condition::Is(absent)).await.map(drop),
                objects.delete(b"d/k", Condition::Is(absent)).await,
            ] {
                assert!(matches!(refused, Err(Refusal::VersionMismatch { present: Some(now), .. }) if now == swapped));
            }
            assert!(objects.get(b"d/k").await.unwrap().into_bytes() == bytes(3, length));
            objects.delete(b"d/k", Condition::Is(swapped)).await.unwrap();
            let refused = objects.put(b"d/k", bytes(5, length), Condition::Is(swapped)).await.unwrap_err();
            assert!(matches!(refused, Refusal::VersionMismatch { present: None, .. }), "{refused}");
            assert!(matches!(objects.delete(b"d/k", ALWAYS).await, Err(Refusal::NotFound(_))));
            let refused = objects.get(b"d/k").await.unwrap_err();
            assert!(matches!(refused, Refusal::NotFound(_)) && refused.to_string().contains("d/k"), "{refused}");
        }
    }
}

#[tokio::test]
async fn an_object_whose_inode_is_elsewhere_is_got_replaced_and_deleted_as_any() {
    for nodes in FEW_NODES {
        let pool = Pool::of(nodes);
        let (fs, objects) = (pool.client().await, objects(&pool.client().await));
        let before = fs.usage();
        for length in [10, STRIPE, 3 * STRIPE] {
            let first = objects.put(b"one/k", bytes(1, length), ALWAYS).await.unwrap();
            let (one, other) =
                (fs.resolve(b"one").await.unwrap().file, fs.make_directories(b"other").await.unwrap().file);
            assert_ne!(one.partition(), other.partition());
            fs.rename(from(one, "k"), to(other, "k"), RenameMode::Replace).await.unwrap();
            assert!(matches!(objects.get(b"one/k").await, Err(Refusal::NotFound(_))));
            let value = objects.get(b"other/k").await.unwrap();
            assert!(value.head.version == first && value.into_bytes() == bytes(1, length), "a rename changes no bytes");
            let refused = objects.put(b"other/k", bytes(2, length), Condition::Absent).await.unwrap_err();
            assert!(
                matches!(refused, Refusal::VersionMismatch { present: Some(now), .. } if now == first),
                "{refused}"
            );
            let second = objects.put(b"other/k", bytes(2, length), Condition::Is(first)).await.unwrap();
            assert_eq!(objects.head(b"other/k").await.unwrap().version, second);
            fs.link(second.file, one, b"linked").await.unwrap();
            let third = objects.put(b"one/linked", bytes(3, length), ALWAYS).await.unwrap();
            assert_ne!(second, third);
            assert!(objects.get(b"other/k").await.unwrap().into_bytes() == bytes(2, length), "other names stay");
            fs.link(second.file, one, b"again").await.unwrap();
            assert!(matches!(
                objects.delete(b"one/again", Condition::Is(third)).await,
                Err(Refusal::VersionMismatch { .. })
            ));
            objects.delete(b"one/again", Condition::Is(second)).await.unwrap();
            fs.link(second.file, one, b"again").await.unwrap();
            objects.delete(b"one/again", ALWAYS).await.unwrap();
            for top in [b"one".as_slice(), b"other"] {
                fs.remove_tree(top).await.unwrap();
            }
        }
        objects.close().await.unwrap();
        assert_eq!(fs.usage(), before);
    }
}

#[tokio::test]
async fn a_directory_that_is_moved_or_made_anew_misleads_nobody() {
    for nodes in NODES {
        let pool = Pool::of(nodes);
        let (fs, objects) = (pool.client().await, objects(&pool.client().await));
        let root = FileId::ROOT;
        for length in [10, STRIPE] {
            objects.put(b"a/b/c/k", bytes(1, length), ALWAYS).await.unwrap();
            assert!(objects.get(b"a/b/c/k").await.is_ok(), "the way is remembered");
            fs.rename(from(root, "a"), to(root, "z"), RenameMode::Replace).await.unwrap();
            assert!(matches!(objects.get(b"a/b/c/k").await, Err(Refusal::NotFound(_))));
            assert!(matches!(objects.delete(b"a/b/c/k", ALWAYS).await, Err(Refusal::NotFound(_))));
            objects.put(b"a/b/c/k", bytes(2, length), Condition::Absent).await.unwrap();
            assert!(objects.get(b"z/b/c/k").await.unwrap().into_bytes() == bytes(1, length));
            let exchange = RenameMode::Exchange;
            fs.rename(from(root, "a"), to(root, "z"), exchange).await.unwrap();
            assert!(objects.get(b"z/b/c/k").await.unwrap().into_bytes() == bytes(2, length));
            assert!(objects.get(b"a/b/c/k").await.unwrap().into_bytes() == bytes(1, length));
            fs.remove_tree(b"a").await.unwrap();
            objects.put(b"a/b/c/k", bytes(3, length), Condition::Absent).await.unwrap();
            assert!(objects.get(b"a/b/c/k").await.unwrap().into_bytes() == bytes(3, length));
            fs.remove_tree(b"z").await.unwrap();
            fs.remove_tree(b"a").await.unwrap();
        }
        objects.put(b"file", bytes(1, 1), ALWAYS).await.unwrap();
        assert!(matches!(objects.put(b"file/k", bytes(1, 1), ALWAYS).await, Err(Refusal::NotDirectory(_))));
        objects.put(b"d/k", bytes(1, 1), ALWAYS).await.unwrap();
        for refused in [objects.put(b"d", bytes(1, 1), ALWAYS).await.map(drop), objects.delete(b"d", ALWAYS).await] {
            assert!(matches!(refused, Err(Refusal::IsDirectory(_))));
        }
        assert!(matches!(objects.get(b"d").await, Err(Refusal::IsDirectory(_))));
    }
}

#[tokio::test]
async fn ranges_are_what_the_object_has_there() {
    for nodes in FEW_NODES {
        let pool = Pool::of(nodes);
        let (fs, objects) = (pool.client().await, objects(&pool.client().await));
        let whole: Vec<u8> = (0..5 * STRIPE + 7).map(|at| (at % 251) as u8).collect();
        objects.put(b"k", whole.clone().into(), ALWAYS).await.unwrap();
        let (length, stripe) = (whole.len() as u64, u64::from(STRIPE));
        for (offset, count) in
            [(0, 0), (0, 1), (stripe - 1, 2), (7, 3 * stripe), (length - 1, 5), (length, 1), (u64::MAX, 9)]
        {
            let value = objects.get_range(b"k", offset, count).await.unwrap();
            let start = usize::try_from(offset.min(length)).unwrap();
            let end = usize::try_from(offset.saturating_add(count).min(length)).unwrap();
            assert!(value.head.size == length && value.into_bytes() == whole[start..end], "{offset} {count}");
        }
        let file = fs.resolve(b"k").await.unwrap().file;
        let size = Some(9 * stripe);
        fs.change_attributes(file, wire::Changes { size, ..wire::Changes::default() }).await.unwrap();
        let hole = objects.get_range(b"k", 6 * stripe - 3, 2 * stripe).await.unwrap().into_bytes();
        assert!(hole.len() as u64 == 2 * stripe && hole.iter().all(|byte| *byte == 0), "holes are zeros");
    }
}

/// Number of messages that a call takes.
async fn counted<T>(calls: &AtomicU64, what: impl Future<Output = Outcome<T>>) -> u64 {
    let before = calls.load(Relaxed);
    what.await.unwrap();
    calls.load(Relaxed) - before
}

#[tokio::test]
async fn small_objects_are_one_message_and_those_of_a_stripe_two() {
    for nodes in NODES {
        let calls = Arc::new(AtomicU64::new(0));
        let fs = Pool::of(nodes).over(|node| CountingConnection::new(node, calls.clone()), IMPATIENT).await;
        let objects = objects(&fs);
        // On a single node directories cost no message; otherwise one each time that the path
        // leaves a node.
        let deep = if nodes == 1 { 1 } else { 4 };
        for (key, most) in [(&b"k"[..], 1), (b"a/b/c/k", deep)] {
            objects.put(key, bytes(1, 10), ALWAYS).await.unwrap();
            objects.put(key, bytes(1, 10), ALWAYS).await.unwrap();
            for length in [0, 64, 4096] {
                let put = counted(&calls, objects.put(key, bytes(2, length), ALWAYS)).await;
                let got = counted(&calls, objects.get(key)).await;
                let head = counted(&calls, objects.head(key)).await;
                assert!(put <= most && got <= most && head <= most, "{put} {got} {head} over {nodes} nodes");
            }
            assert!(counted(&calls, objects.delete(key, ALWAYS)).await <= most);
            let (mut puts, mut gets) = (0, 0);
            for round in 0..64 {
                let key = [key, format!("{round}").as_bytes()].concat();
                puts += counted(&calls, objects.put(&key, bytes(3, STRIPE), ALWAYS)).await;
                gets += counted(&calls, objects.get(&key)).await;
            }
            let (each, ahead) = (if nodes == 1 { most } else { most + 1 }, 8);
            assert!(puts <= 64 * each + ahead && gets <= 64 * each, "{puts} puts, {gets} gets over {nodes} nodes");
        }
    }
}

#[tokio::test]
async fn an_object_of_a_directory_that_was_split_is_replaced_without_asking_all_of_the_directory() {
    let calls = Arc::new(AtomicU64::new(0));
    let fs = Pool::that_splits(1, 8).over(|node| CountingConnection::new(node, calls.clone()), IMPATIENT).await;
    let objects = objects(&fs);
    let keys: Vec<String> = (0..32).map(|number| format!("k{number}")).collect();
    for key in &keys {
        objects.put(key.as_bytes(), bytes(1, 10), ALWAYS).await.unwrap();
    }
    for (round, most) in [(1, FRAGMENTS as u64), (2, 1)] {
        for key in &keys {
            let put = counted(&calls, objects.put(key.as_bytes(), bytes(2, 10), ALWAYS)).await;
            assert!(put <= most, "{put} messages for {key} in round {round}");
        }
    }
}

#[tokio::test]
async fn keys_are_listed_in_the_order_of_their_bytes_in_pages_and_by_directories() {
    for (nodes, split) in [(1, 4096), (4, 4096), (4, 8)] {
        let pool = Pool::that_splits(nodes, split);
        let (fs, objects) = (pool.client().await, objects(&pool.client().await));
        let mut keys: Vec<String> =
            ["a-b", "a.b", "a/x", "a/y/1", "a/y/2", "a0", "b", "c/d/e/f", "z"].map(str::to_owned).into();
        keys.extend((0..40).map(|number| format!("many/{number}")));
        for key in &keys {
            objects.put(key.as_bytes(), bytes(1, 1), ALWAYS).await.unwrap();
        }
        fs.make_directories(b"empty").await.unwrap();
        fs.make_symlink(FileId::ROOT, b"link", b"b", OWNER).await.unwrap();
        keys.sort();
        for prefix in ["", "a", "a/", "a/y", "a/y/", "many/1", "nothing/", "b/", "zz"] {
            let expected: Vec<&String> = keys.iter().filter(|key| key.starts_with(prefix)).collect();
            for max in [1, 2, 7, 1000] {
                let (mut listed, mut after) = (Vec::new(), Vec::new());
                loop {
                    let asked = ListRequest { prefix: prefix.as_bytes(), after: &after, by_directory: false };
                    let page = objects.list(asked, max).await.unwrap();
                    listed.extend(page.keys.iter().map(|key| String::from_utf8(key.clone()).unwrap()));
                    assert!(page.len() <= max && page.directories.is_empty());
                    let Some(next) = page.next else { break };
                    after = next;
                }
                assert!(listed.iter().eq(expected.iter().copied()), "{prefix} {max}: {listed:?}");
            }
        }
        let told = |page: &ListPage| {
            [&page.keys, &page.directories]
                .map(|some| some.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>())
        };
        let by_directory = ListRequest { by_directory: true, ..ListRequest::default() };
        let page = objects.list(by_directory, 100).await.unwrap();
        assert_eq!(told(&page), [vec!["a-b", "a.b", "a0", "b", "z"], vec!["a/", "c/", "empty/", "many/"]]);
        let after = ListRequest { after: b"a/", ..by_directory };
        assert_eq!(told(&objects.list(after, 2).await.unwrap()), [vec!["a0", "b"], vec![]]);
        let within = ListRequest { prefix: b"a/", ..by_directory };
        assert_eq!(told(&objects.list(within, 2).await.unwrap()), [vec!["a/x"], vec!["a/y/"]]);
        assert!(objects.list(ListRequest { prefix: b"../", ..by_directory }, 1).await.is_err());
    }
}

#[tokio::test]
async fn many_at_once_are_each_for_itself() {
    for nodes in FEW_NODES {
        let pool = Pool::that_splits(nodes, 64);
        let (fs, objects) = (pool.client().await, objects(&pool.client().await));
        let before = fs.usage();
        let mut names: Vec<String> = (0..300).map(|number| format!("d{}/{number}", number % 7)).collect();
        names.push("a//b".into());
        let keys: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let length = |at: usize| if at.is_multiple_of(10) { STRIPE + 9 } else { 50 };
        let puts: Vec<_> =
            keys.iter().enumerate().map(|(at, key)| (*key, bytes(fill_of(at), length(at)), ALWAYS)).collect();
        let put = objects.put_many(&puts).await;
        assert!(put[..300].iter().all(Result::is_ok) && matches!(put[300], Err(Refusal::Invalid { .. })));
        let (got, heads) = (objects.get_many(&keys).await, objects.head_many(&keys).await);
        for at in 0..300 {
            let value = got[at].clone().unwrap();
            assert_eq!(
                (value.head.version, heads[at].clone().unwrap().version),
                (*put[at].as_ref().unwrap(), value.head.version)
            );
            assert!(value.into_bytes() == puts[at].1);
        }
        assert!(got[300].is_err() && heads[300].is_err());
        drop(got); // views count as used
        let deleted = objects.delete_many(&keys).await;
        assert_eq!(deleted.iter().filter(|outcome| outcome.is_ok()).count(), 300);
        for top in 0..7 {
            fs.remove_tree(format!("d{top}").as_bytes()).await.unwrap();
        }
        objects.close().await.unwrap();
        let after = fs.usage();
        assert_eq!((after.stripes, after.used, after.files), (0, before.used, before.files));
    }
}

#[tokio::test]
async fn what_comes_piece_by_piece_is_put_whole_in_the_end_or_not_at_all() {
    for nodes in NODES {
        let pool = Pool::of(nodes);
        let objects = objects(&pool.client().await);
        objects.put(b"d/other", bytes(9, 1), Condition::Always).await.unwrap();
        let before: Vec<_> = pool.nodes().iter().map(|node| node.usage().used).collect();
        let pieces = [10, 4096, STRIPE, 3 * STRIPE + 1];
        for count in 0..=pieces.len() {
            let old = objects.put(b"d/k", bytes(1, 100), Condition::Always).await.unwrap();
            let mut upload = objects.upload(b"d/k", Condition::Is(old)).await.unwrap();
            for length in &pieces[..count] {
                upload.write(bytes(2, *length)).await.unwrap();
            }
            assert!(objects.get(b"d/k").await.unwrap().into_bytes() == bytes(1, 100), "it is not there before its end");
            let version = upload.finish().await.unwrap();
            let value = objects.get(b"d/k").await.unwrap();
            assert_eq!(value.head.version, version);
            assert!(value.into_bytes() == bytes(2, pieces[..count].iter().sum()));
            for (condition, given_up) in
                [(Condition::Absent, false), (Condition::Is(old), false), (Condition::Always, true)]
            {
                let mut upload = objects.upload(b"d/k", condition).await.unwrap();
                upload.write(bytes(3, 2 * STRIPE)).await.unwrap();
                if given_up {
                    upload.abandon().await.unwrap();
                } else {
                    let refused = upload.finish().await.unwrap_err();
                    assert!(
                        matches!(refused, Refusal::VersionMismatch { present: Some(there), .. } if there == version)
                    );
                }
            }
            assert_eq!(objects.head(b"d/k").await.unwrap().version, version);
            objects.delete(b"d/k", Condition::Always).await.unwrap();
            let after: Vec<_> = pool.nodes().iter().map(|node| node.usage().used).collect();
            assert_eq!(after, before, "of {count} pieces over {nodes} nodes");
        }
    }
}

#[tokio::test]
async fn memory_returns_when_objects_are_replaced_deleted_or_refused() {
    for nodes in NODES {
        let pool = Pool::of(nodes);
        let (fs, objects) = (pool.client().await, objects(&pool.client().await));
        let lengths = [10, 4097, STRIPE, 3 * STRIPE + 5];
        for length in lengths {
            objects.put(b"k", bytes(1, length), ALWAYS).await.unwrap();
        }
        objects.put(b"k", bytes(1, 1), ALWAYS).await.unwrap();
        let stripes = fs.usage().stripes;
        assert_eq!(stripes, 0, "of replaced objects");
        for length in lengths {
            assert!(objects.put(b"k", bytes(1, length), Condition::Absent).await.is_err());
        }
        assert_eq!(fs.usage().stripes, 0, "of refused objects");
        objects.delete(b"k", ALWAYS).await.unwrap();
        objects.close().await.unwrap();
        let SpaceUsage { used, files, .. } = fs.usage();
        assert_eq!((used, files), (0, 1), "over {nodes} nodes");
    }
}

#[tokio::test]
async fn a_full_pool_refuses_a_put_and_keeps_what_is_there() {
    let node = node(1 << 20, Duration::ZERO);
    let (fs, objects) = (over(direct(&node), IMPATIENT).await, objects(&over(direct(&node), IMPATIENT).await));
    objects.put(b"k", bytes(1, 5 * STRIPE), ALWAYS).await.unwrap();
    let before = fs.usage();
    for length in [20 * STRIPE, 14 * STRIPE] {
        assert!(matches!(objects.put(b"k", bytes(2, length), ALWAYS).await, Err(Refusal::NoSpace(_))));
        assert_eq!(fs.usage().stripes, before.stripes);
    }
    assert!(objects.get(b"k").await.unwrap().into_bytes() == bytes(1, 5 * STRIPE));
    objects.delete(b"k", ALWAYS).await.unwrap();
    objects.put(b"k", bytes(3, 14 * STRIPE), ALWAYS).await.unwrap();
}

#[tokio::test]
async fn what_does_not_fit_waits_for_space_once_what_never_can_not_at_all_and_both_name_what_is_full() {
    for nodes in [1, 2] {
        let settings = NodeSettings { space_wait: Duration::from_millis(20), ..settings() };
        let pool = Pool::start(nodes, &settings, || Arc::new(ModelEngine::new(u64::from(64 * STRIPE), STRIPE)));
        let (fs, objects) = (pool.client().await, objects(&pool.client().await));
        let all = 64 * STRIPE * nodes;
        objects.put(b"k", bytes(1, all / 2), ALWAYS).await.unwrap();
        let refused = || fs.usage().refused;
        let shortage = |refusal| match refusal {
            Err(Refusal::NoSpace(shortage)) => shortage,
            other => panic!("{other:?}"),
        };
        let never = shortage(objects.put(b"k", bytes(2, all + 1), ALWAYS).await.map(drop));
        assert_eq!((never.capacity, never.node, refused()), (all.into(), None, 0), "it is known before");
        assert_eq!(shortage(objects.check_possible(u64::from(all) + 1).await), never);
        let full = shortage(objects.put(b"k", bytes(2, all * 3 / 4), ALWAYS).await.map(drop));
        assert_eq!(full.node.is_some(), nodes > 1, "{full}");
        assert!((1..=8).contains(&refused()), "what is under way waits, and nothing after it: {}", refused());
        let (before, mut upload) = (refused(), objects.upload(b"k", ALWAYS).await.unwrap());
        let mut written = Ok(());
        while written.is_ok() {
            written = upload.write(bytes(3, 4 * STRIPE)).await;
        }
        shortage(written);
        assert!((1..=4).contains(&(refused() - before)), "a piece that was cut off is not tried again");
        upload.abandon().await.unwrap();
        if nodes > 1 {
            let one = PlacementSpec { policy: Some(Policy::At(NodeId(2))), stripe_size: None };
            let put = objects.with_placement(one).unwrap().put(b"other", bytes(2, 65 * STRIPE), ALWAYS).await;
            assert_eq!(shortage(put.map(drop)).node, Some(NodeId(2)), "a node of its own may be too small");
        }
        assert!(objects.get(b"k").await.unwrap().into_bytes() == bytes(1, all / 2));
    }
}

#[tokio::test]
async fn bytes_that_an_upload_found_no_space_for_stand_there_once_when_they_are_written_again() {
    let settings = NodeSettings { space_wait: Duration::ZERO, ..settings() };
    let pool = Pool::start(1, &settings, || Arc::new(ModelEngine::new(u64::from(16 * STRIPE), STRIPE)));
    let objects = objects(&pool.client().await);
    objects.put(b"other", bytes(1, 10 * STRIPE), ALWAYS).await.unwrap();
    let mut upload = objects.upload(b"k", ALWAYS).await.unwrap();
    upload.write(bytes(2, STRIPE + 7)).await.unwrap();
    assert!(matches!(upload.write(bytes(3, 6 * STRIPE)).await, Err(Refusal::NoSpace(_))));
    objects.delete(b"other", ALWAYS).await.unwrap();
    upload.write(bytes(3, 6 * STRIPE)).await.unwrap();
    upload.finish().await.unwrap();
    let both = [bytes(2, STRIPE + 7), bytes(3, 6 * STRIPE)].concat();
    assert!(objects.get(b"k").await.unwrap().into_bytes() == both);
}

#[test]
fn futures_of_objects_may_go_to_another_thread() {
    fn goes<T: Send>(_: &T) {}
    let objects = Objects::new(Client::embedded(node(64 << 20, Duration::ZERO)));
    goes(&objects.put(b"k", Bytes::new(), ALWAYS));
    goes(&objects.get(b"k"));
    goes(&objects.delete(b"k", ALWAYS));
    goes(&objects.list(ListRequest::default(), 1));
    goes(&objects.put_many(&[]));
    goes(&objects.get_many(&[]));
    goes(&objects.head_many(&[]));
    goes(&objects.delete_many(&[]));
}
