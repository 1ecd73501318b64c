//! Behaviour of a full pool.

use crate::{Handle, Vfs, pool_test::*};
use arena::{Arena, ArenaOptions};
use bytes::Bytes;
use client::{Client, Objects, objects::Condition};
use node::NodeSettings;
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};
use store::Engine;
use wire::{Changes, Object, OpenFlags, PLACEMENT, Refusal, RenameMode, STRIPE_SIZE, XattrMode};

const MEMORY: u64 = 1 << 20;

fn small_pool(space_wait: Duration) -> Vfs {
    Vfs::new(Client::embedded(node(MEMORY, space_wait)))
}

/// Fills the pool with one file; returns its length and its handle.
async fn fill(vfs: &Vfs) -> (u64, Handle) {
    let (_, handle) = vfs.create(Vfs::root(), b"filler", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    let mut size = 0;
    for length in [STRIPE, 8192, 4097] {
        while let Ok(written) = vfs.write(handle, size, Bytes::from(vec![b'x'; length as usize])).await {
            size += u64::from(written);
        }
    }
    (size, handle)
}

#[tokio::test]
async fn a_full_pool_refuses_says_how_full_it_is_and_loses_nothing() {
    let vfs = small_pool(Duration::from_millis(10));
    let (size, handle) = fill(&vfs).await;
    assert!(size > MEMORY / 2, "most of the memory holds bytes");
    let Err(Refusal::NoSpace(shortage)) = vfs.write(handle, size, Bytes::from(vec![1; 60_000])).await else {
        panic!("the pool is full")
    };
    assert_eq!(shortage.capacity, MEMORY);
    assert!(shortage.used <= MEMORY && shortage.used + shortage.wanted > MEMORY);
    assert!(shortage.waited >= Duration::from_millis(10));
    let whole = vfs.read_file(b"filler").await.unwrap();
    assert_eq!(whole.len() as u64, size);
    assert!(whole.iter().all(|byte| *byte == b'x'));
    let usage = vfs.usage();
    assert!(usage.refused >= 3 && usage.waited >= usage.refused && usage.waiting == 0, "{usage:?}");
}

#[tokio::test]
async fn what_removes_works_in_a_full_pool_and_makes_it_usable_again() {
    let vfs = small_pool(Duration::ZERO);
    vfs.make_directories(b"d/e").await.unwrap();
    vfs.write_file(b"long-name", b"x").await.unwrap();
    let (_, handle) = fill(&vfs).await;
    let mut made = 0;
    while vfs.create(Vfs::root(), format!("m{made}").as_bytes(), 0o600, OWNER, OpenFlags::READ).await.is_ok() {
        made += 1;
    }
    let root = Vfs::root();
    vfs.rename(from(root, "long-name"), to(root, "short"), RenameMode::Replace).await.unwrap();
    vfs.remove_tree(b"d").await.unwrap();
    let file = vfs.resolve(b"filler").await.unwrap().file;
    vfs.change(file, Changes { size: Some(10), ..Changes::default() }).await.unwrap();
    vfs.close(handle).await.unwrap();
    vfs.unlink(root, b"filler").await.unwrap();
    vfs.write_file(b"again", &filled(5, 300_000)).await.unwrap();
}

#[tokio::test]
async fn names_alone_fill_the_pool_too_and_never_beyond_its_capacity() {
    let vfs = small_pool(Duration::ZERO);
    let before = vfs.usage();
    let mut made = 0;
    let refusal = loop {
        match vfs.make_directory(Vfs::root(), format!("d{made}").as_bytes(), 0o755, OWNER).await {
            Ok(_) => made += 1,
            Err(refusal) => break refusal,
        }
        assert!(vfs.usage().used <= MEMORY);
    };
    assert!(matches!(refusal, Refusal::NoSpace(_)), "{refusal}");
    assert!((1000..4000).contains(&made), "{made} directories in a mebibyte");
    for number in 0..made {
        vfs.remove_directory(Vfs::root(), format!("d{number}").as_bytes()).await.unwrap();
    }
    let after = vfs.usage();
    assert_eq!((after.used, after.files), (before.used, before.files));
}

#[tokio::test]
async fn a_writer_that_waits_goes_on_when_space_is_freed() {
    let vfs = small_pool(Duration::from_mins(1));
    vfs.write_file(b"large", &filled(1, 600_000)).await.unwrap();
    let file = vfs.write_file(b"f", b"").await.unwrap().file;
    let handle = vfs.open(file, OpenFlags::WRITE).await.unwrap();
    for stripe in 0..6 {
        vfs.write(handle, stripe * u64::from(STRIPE), Bytes::from(vec![2; STRIPE as usize])).await.unwrap();
    }
    let mut writing = Box::pin(vfs.write(handle, 6 * u64::from(STRIPE), Bytes::from(vec![2; STRIPE as usize])));
    assert!(writing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!((vfs.usage().waiting, vfs.usage().waited), (1, 1));
    vfs.unlink(Vfs::root(), b"large").await.unwrap();
    assert_eq!(writing.await, Ok(STRIPE));
    assert_eq!((vfs.usage().waiting, vfs.usage().refused), (0, 0));
}

#[tokio::test]
async fn a_writer_that_is_dropped_while_it_waits_leaves_nothing_behind() {
    let vfs = small_pool(Duration::from_mins(1));
    let file = vfs.write_file(b"log", &filled(b'l', 8 * STRIPE)).await.unwrap().file;
    let other = vfs.write_file(b"other", &filled(b'o', 7 * STRIPE)).await.unwrap().file;
    let (log, handle) =
        (vfs.open(file, OpenFlags::APPEND).await.unwrap(), vfs.open(other, OpenFlags::WRITE).await.unwrap());
    let before = vfs.usage();
    {
        let mut append = pin!(vfs.write(log, 0, Bytes::from(vec![1; STRIPE as usize])));
        let mut write = pin!(vfs.write(handle, 7 * u64::from(STRIPE), Bytes::from(vec![1; STRIPE as usize])));
        let mut context = Context::from_waker(Waker::noop());
        assert!(append.as_mut().poll(&mut context).is_pending());
        assert!(write.as_mut().poll(&mut context).is_pending());
        assert_eq!(vfs.usage().waiting, 2);
    }
    assert_eq!((vfs.usage().waiting, vfs.usage().used), (0, before.used));
    vfs.unlink(Vfs::root(), b"other").await.unwrap();
    vfs.close(handle).await.unwrap();
    vfs.write(log, 0, Bytes::from_static(b"next")).await.unwrap();
    let whole = vfs.read_file(b"log").await.unwrap();
    assert_eq!(whole[8 * STRIPE as usize..], b"next"[..], "the reserved end was given back");
}

#[tokio::test]
async fn of_a_long_write_that_finds_no_room_nothing_is_left_behind_what_counts() {
    let vfs = small_pool(Duration::ZERO);
    vfs.write_file(b"large", &filled(1, 400_000)).await.unwrap();
    let (_, handle) = vfs.create(Vfs::root(), b"f", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
    vfs.write(handle, 0, Bytes::from(vec![2; STRIPE as usize])).await.unwrap();
    // Space for the last piece, but not for a whole stripe.
    let usage = vfs.usage();
    let brim = usage.capacity - usage.used - u64::from(STRIPE) + 4096;
    vfs.write_file(b"brim", &vec![1; usize::try_from(brim).unwrap()]).await.unwrap();
    let before = vfs.usage().used;
    let refused = vfs.write(handle, u64::from(STRIPE), Bytes::from(vec![3; STRIPE as usize + 5000])).await;
    assert!(matches!(refused, Err(Refusal::NoSpace(_))), "{refused:?}");
    assert_eq!(vfs.usage().used, before);
    vfs.unlink(Vfs::root(), b"large").await.unwrap();
    let end = 3 * u64::from(STRIPE);
    vfs.write(handle, end, Bytes::from_static(b"end")).await.unwrap();
    let hole = vfs.read(handle, u64::from(STRIPE), 2 * STRIPE).await.unwrap();
    assert!(hole.len() == 2 * STRIPE as usize && hole.iter().all(|byte| *byte == 0), "it reads as a hole");
}

#[tokio::test]
async fn making_waits_for_space_as_writing_does() {
    let vfs = small_pool(Duration::from_mins(1));
    fill_to_the_brim(&vfs).await;
    let mut making = Box::pin(vfs.make_symlink(Vfs::root(), b"link", &[b't'; 4000], OWNER));
    assert!(making.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    vfs.unlink(Vfs::root(), b"brim").await.unwrap();
    assert_eq!(making.await.unwrap().size, 4000);
}

async fn fill_to_the_brim(vfs: &Vfs) {
    let free = vfs.usage().capacity - vfs.usage().used;
    vfs.write_file(b"brim", &vec![1; usize::try_from(free).unwrap() - 8000]).await.unwrap();
    let refused = vfs.write_file(b"a/b", b"").await;
    assert_eq!(refused.err(), Some(Refusal::NotFound(Object::Entry { parent: Vfs::root(), name: name("a") })));
    let mut left = vfs.usage();
    while left.capacity - left.used > 4000 {
        vfs.make_symlink(Vfs::root(), format!("s{}", left.files).as_bytes(), &[b't'; 1000], OWNER).await.unwrap();
        left = vfs.usage();
    }
}

#[tokio::test]
async fn short_stripes_and_objects_keep_no_room_that_nobody_will_want() {
    let memory = || Arc::new(Arena::new(ArenaOptions::with_capacity(64 << 20)).unwrap()) as Arc<dyn Engine>;
    let settings = NodeSettings { stripe_bytes: 1 << 20, space_wait: Duration::ZERO, ..settings() };
    for nodes in NODES {
        let vfs = Pool::start(nodes, &settings, memory).client().await;
        let objects = Objects::new(vfs.client.clone());
        let directory = vfs.make_directories(b"d").await.unwrap().file;
        for (name, value) in [(PLACEMENT, "striped"), (STRIPE_SIZE, "64KiB")] {
            vfs.set_xattr(directory, name, value.into(), XattrMode::Set, false).await.unwrap();
        }
        let before = vfs.usage().used;
        let (_, handle) = vfs.create(directory, b"f", 0o600, OWNER, OpenFlags::READ_WRITE).await.unwrap();
        for at in 0..100 {
            vfs.write(handle, at * 30_000, Bytes::from(vec![1; 30_000])).await.unwrap();
        }
        vfs.close(handle).await.unwrap();
        for number in 0..8 {
            objects
                .put(format!("o{number}").as_bytes(), Bytes::from(vec![2; 250 << 10]), Condition::Always)
                .await
                .unwrap();
        }
        let used = vfs.usage().used - before;
        assert!((5_000_000..5_500_000).contains(&used), "{used} bytes are used for 5,048,000");
    }
}
