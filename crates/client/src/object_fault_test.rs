//! Objects over bad connections, and of clients that die or give up.

use crate::{
    Objects, RetryPolicy,
    object_test::{ALWAYS, LENGTHS, bytes, fill_of, objects},
    objects::{ListRequest, Value},
    pool_test::*,
    testing::{CrashingConnection, FaultRates, FaultyConnection, SteppedConnection},
};
use placement::FileId;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use test_support::Random;
use wire::{Refusal, RenameMode, SpaceUsage};

/// Reference model of objects, simple enough to be right by reading it.
type ObjectMap = BTreeMap<String, Vec<u8>>;

#[tokio::test]
async fn objects_over_a_bad_connection_are_what_a_map_is() {
    for (seed, nodes) in [(1, 1), (2, 4), (3, 8), (4, 1)] {
        let pool = Pool::that_splits(nodes, 8);
        let retry_policy = RetryPolicy { tries: 60, ..IMPATIENT };
        let counter = AtomicU64::new(seed * 100);
        let bad = pool
            .over(|node| FaultyConnection::new(node, FaultRates::MANY, counter.fetch_add(1, Relaxed)), retry_policy)
            .await;
        let (objects, fs) = (objects(&bad), pool.client().await);
        let (mut model, mut random) = (ObjectMap::new(), Random::new(seed));
        for round in 0..400 {
            let key = format!("{}{}", random.pick(&["", "a/", "a/b/"]), random.below(6) + 10);
            let length = random.pick(&LENGTHS);
            match random.below(6) {
                0..=2 => {
                    let value = bytes(fill_of(round), length);
                    objects.put(key.as_bytes(), value.clone(), ALWAYS).await.unwrap();
                    model.insert(key, value.into());
                }
                3 => assert_eq!(
                    objects.delete(key.as_bytes(), ALWAYS).await.is_ok(),
                    model.remove(&key).is_some(),
                    "{key}"
                ),
                _ => {
                    let got = objects.get(key.as_bytes()).await.ok().map(|value| value.into_bytes().to_vec());
                    assert!(got.as_ref() == model.get(&key), "seed {seed}, round {round}: {key}");
                }
            }
        }
        let listed = objects.list(ListRequest::default(), 1000).await.unwrap().keys;
        assert!(listed.iter().map(Vec::as_slice).eq(model.keys().map(String::as_bytes)), "seed {seed}");
        for (key, value) in &model {
            assert!(fs.read_file(key.as_bytes()).await.unwrap() == *value, "seed {seed}: {key}");
        }
        for key in model.keys() {
            objects.delete(key.as_bytes(), ALWAYS).await.unwrap();
        }
        fs.recover(bad.session()).await.unwrap();
        assert_eq!(fs.usage().stripes, 0, "seed {seed}");
    }
}

#[tokio::test]
async fn a_client_that_dies_in_the_middle_of_a_put_or_delete_has_done_it_or_not_and_leaves_nothing() {
    for nodes in FEW_NODES {
        for (key, length) in [("k", 10), ("k", STRIPE), ("a/b/k", 3 * STRIPE), ("a/new/k", 10), ("moved/k", STRIPE)] {
            for what in ["put", "delete"] {
                for messages in 1.. {
                    assert!(messages < 100, "{what} never ends");
                    let pool = Pool::of(nodes);
                    let (fs, healthy) = (pool.client().await, objects(&pool.client().await));
                    furnish(&fs, &healthy, key).await;
                    let was = healthy.get(key.as_bytes()).await.ok().map(copied);
                    let left = Arc::new(AtomicU64::new(messages));
                    let mortal = pool.over(|node| CrashingConnection::sharing(node, left.clone()), IMPATIENT).await;
                    let objects = objects(&mortal);
                    let done = match what {
                        "put" => objects.put(key.as_bytes(), bytes(9, length), ALWAYS).await.map(drop),
                        _ => objects.delete(key.as_bytes(), ALWAYS).await,
                    };
                    let is = healthy.get(key.as_bytes()).await.ok().map(copied);
                    let new = (what == "put").then(|| filled(9, length));
                    assert!(is == was || is == new, "{what} {key} after {messages} messages");
                    fs.recover(mortal.session()).await.unwrap();
                    let still = healthy.get(key.as_bytes()).await.ok().map(copied);
                    assert!(still == was || still == new, "{what} {key} after {messages} messages, recovered");
                    for entry in all(&fs, FileId::ROOT).await {
                        fs.remove_tree(entry.name.as_bytes()).await.unwrap();
                    }
                    healthy.close().await.unwrap();
                    let SpaceUsage { used, files, stripes, .. } = fs.usage();
                    assert_eq!(
                        (used, files, stripes),
                        (0, 1, 0),
                        "{what} {key} after {messages} messages over {nodes} nodes"
                    );
                    if done.is_ok() || matches!(done, Err(Refusal::NotFound(_))) {
                        break;
                    }
                }
            }
        }
    }
}

/// A copy of the value: a view would count as used.
fn copied(value: Value) -> Vec<u8> {
    value.into_bytes().to_vec()
}

/// Creates the initial objects: one in the root, one in a directory, one whose inode is elsewhere.
async fn furnish(fs: &TestFs, objects: &Objects, key: &str) {
    fs.make_directories(b"a/b").await.unwrap();
    if key == "moved/k" {
        let (a, moved) = (fs.resolve(b"a").await.unwrap().file, fs.make_directories(b"moved").await.unwrap().file);
        objects.put(b"a/k", bytes(1, 2 * STRIPE), ALWAYS).await.unwrap();
        fs.rename(from(a, "k"), to(moved, "k"), RenameMode::Replace).await.unwrap();
    } else if key != "a/new/k" {
        objects.put(key.as_bytes(), bytes(1, 2 * STRIPE), ALWAYS).await.unwrap();
    }
}

#[tokio::test]
async fn what_a_session_had_reserved_goes_with_it_and_the_next_reserves_anew() {
    let pool = Pool::of(1);
    let (fs, objects) = (pool.client().await, objects(&pool.client().await));
    objects.put(b"k", bytes(1, STRIPE), ALWAYS).await.unwrap();
    objects.put(b"k", bytes(1, STRIPE), ALWAYS).await.unwrap();
    fs.recover(objects.client().session()).await.unwrap();
    objects.put(b"k", bytes(2, STRIPE), ALWAYS).await.unwrap();
    assert!(fs.read_file(b"k").await.unwrap() == filled(2, STRIPE));
    objects.close().await.unwrap();
    fs.unlink(FileId::ROOT, b"k").await.unwrap();
    assert_eq!(fs.usage().used, 0);
}

#[tokio::test]
async fn a_put_that_is_dropped_at_any_moment_leaves_no_bytes() {
    for drops in 0..40_u32 {
        let pool = Pool::of(4);
        let late = pool.over(SteppedConnection::new, IMPATIENT).await;
        let (fs, objects) = (pool.client().await, objects(&late));
        let mut put = Box::pin(objects.put(b"d/k", bytes(1, 3 * STRIPE), ALWAYS));
        let mut done = false;
        for _ in 0..drops {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            done = put.as_mut().poll(&mut context).is_ready();
            if done {
                break;
            }
        }
        drop(put);
        objects.put(b"d/k", bytes(2, 2 * STRIPE), ALWAYS).await.unwrap();
        assert_eq!(fs.usage().stripes, 2, "after {drops} steps");
        assert!(objects.get(b"d/k").await.unwrap().into_bytes() == bytes(2, 2 * STRIPE));
        if done {
            break;
        }
    }
}
