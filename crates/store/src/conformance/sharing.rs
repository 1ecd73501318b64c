//! Promises about views and threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use bytes::Bytes;

use super::{FIRST, content, key, pattern, write};
use crate::StripeStore;

/// The number of rounds of a test with threads: enough to catch a torn read on two cores in most
/// runs, few enough for a debug build.
const ROUNDS: u32 = 200;

/// The bytes of a view never change, whatever happens to the stripe and to its space.
pub fn a_view_stays_the_same_bytes(engine: &dyn StripeStore) {
    let len = engine.stripe_bytes();
    let first = pattern(1, len / 2);
    write(engine, key(0), 0, &first);
    let whole = view(engine, 0);
    write(engine, key(0), 3, b"overwritten");
    let overwritten = view(engine, 0);
    write(engine, key(0), len / 2, b"appended");
    engine.truncate(key(0), FIRST, 20).wait().expect("a truncation needs no room");
    write(engine, key(0), 0, &[0xFF; 40]);
    engine.remove(key(0)).wait().expect("removable");
    write(engine, key(0), 0, &vec![0xEE; len as usize]);
    write(engine, key(1), 0, &vec![0xDD; len as usize]);
    let mut expected = first.clone();
    assert_eq!(whole, first);
    expected[3..14].copy_from_slice(b"overwritten");
    assert_eq!(overwritten, expected);
}

/// The space of a removed stripe counts as used until its last view is dropped; then the hook runs.
pub fn a_dropped_view_frees_its_space_and_calls_the_hook(engine: &dyn StripeStore) {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    write(engine, key(0), 0, &pattern(1, engine.stripe_bytes()));
    let (one, two) = (view(engine, 0), view(engine, 0).slice(5..9));
    engine.remove(key(0)).wait().expect("removable");
    engine.on_freed(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    assert_eq!(engine.usage().stripes, 0);
    assert!(engine.usage().used >= engine.stripe_bytes().into(), "both views hold it");
    drop(one);
    assert!(engine.usage().used >= engine.stripe_bytes().into(), "one view holds it");
    let before = calls.load(Ordering::SeqCst);
    drop(two);
    assert_eq!(engine.usage().used, 0);
    assert!(calls.load(Ordering::SeqCst) > before, "the hook was not called");
}

/// A reader beside two writers sees one write whole, never parts of two.
pub fn a_write_is_seen_whole_or_not_at_all(engine: &dyn StripeStore) {
    let len = engine.stripe_bytes() as usize;
    write(engine, key(0), 0, &vec![0; len]);
    let (start, done) = (Barrier::new(3), AtomicBool::new(false));
    thread::scope(|scope| {
        let writers = [1_u8, 2].map(|byte| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                let data = vec![byte; len];
                // A view may hold the space of another stripe; the engine has enough for these few.
                (0..ROUNDS).for_each(|_| write(engine, key(0), 0, &data));
            })
        });
        scope.spawn(|| {
            start.wait();
            while !done.load(Ordering::SeqCst) {
                let seen = view(engine, 0);
                assert_eq!(seen.len(), len);
                assert!(seen.iter().all(|byte| *byte == seen[0]), "a torn read");
            }
        });
        // Stop the reader before a writer's failure is reported.
        let ends = writers.map(thread::ScopedJoinHandle::join);
        done.store(true, Ordering::SeqCst);
        assert!(ends.iter().all(Result::is_ok), "a writer failed");
    });
}

/// Threads that append to stripes of their own, and also use one shared stripe, find all their
/// bytes.
pub fn appends_by_many_threads_to_their_own_stripes_all_stand(engine: &dyn StripeStore) {
    let (threads, piece) = (4_u32, engine.stripe_bytes() / 64);
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for round in 0..ROUNDS / 10 {
                    append_and_check(engine, thread, round, piece);
                }
            });
        }
    });
    let shared = content(engine, key(100));
    assert!((0..threads).all(|thread| shared[thread as usize] == 1), "{shared:?}");
}

fn append_and_check(engine: &dyn StripeStore, thread: u32, round: u32, piece: u32) {
    let own = key(thread.into());
    let data = pattern(thread * 1000 + round, piece * 32);
    for (number, part) in (0..).zip(data.chunks(piece as usize)) {
        write(engine, own, number * piece, part);
        write(engine, key(100), thread, &[1]);
    }
    assert_eq!(content(engine, own), data, "thread {thread}, round {round}");
    engine.remove(own).wait().expect("removable");
}

fn view(engine: &dyn StripeStore, stripe: u64) -> Bytes {
    engine.read(key(stripe), 0, u32::MAX).wait().expect("readable")
}
