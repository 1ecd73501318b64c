//! Guarantees for several clients of one pool.

use crate::{
    RetryPolicy,
    pool_test::*,
    testing::{FaultRates, FaultyConnection},
};
use bytes::Bytes;
use node::Node;
use placement::FileId;
use std::{sync::Arc, time::Duration};
use wire::{Changes, OpenFlags, Refusal};

/// A client with many late answers, so that the steps of two clients interleave.
async fn late(node: &Arc<Node>, seed: u64) -> TestFs {
    let troubles = FaultRates { delayed: 500, ..FaultRates::default() };
    over(FaultyConnection::new(direct(node), troubles, seed), RetryPolicy::default()).await
}

#[tokio::test]
async fn an_unlinked_file_lives_until_its_last_close() {
    let node = node(64 << 20, Duration::ZERO);
    let (one, other) = (over(direct(&node), IMPATIENT).await, over(direct(&node), IMPATIENT).await);
    let before = one.usage();
    let file = one.write_file(b"f", &filled(7, 200_000)).await.unwrap().file;
    let handles =
        [one.open(file, OpenFlags::READ).await.unwrap(), other.open(file, OpenFlags::READ_WRITE).await.unwrap()];
    one.unlink(FileId::ROOT, b"f").await.unwrap();
    assert_eq!(one.stat(file).await.unwrap().links, 0);
    assert_eq!(other.write(handles[1], 200_000, Bytes::from_static(b"more")).await, Ok(4));
    assert_eq!(one.read(handles[0], 199_999, 10).await.unwrap(), &b"\x07more"[..]);
    one.close_file(handles[0]).await.unwrap();
    assert_eq!(other.stat(file).await.unwrap().size, 200_004, "the other still holds it");
    other.close_file(handles[1]).await.unwrap();
    assert!(matches!(other.stat(file).await, Err(Refusal::NotFound(_))));
    assert_eq!(one.usage(), before);
}

#[tokio::test]
async fn what_a_client_held_open_goes_with_its_session() {
    let node = node(64 << 20, Duration::ZERO);
    let (one, other) = (over(direct(&node), IMPATIENT).await, over(direct(&node), IMPATIENT).await);
    let before = one.usage();
    let file = one.write_file(b"f", &filled(7, 200_000)).await.unwrap().file;
    other.open(file, OpenFlags::READ).await.unwrap();
    one.unlink(FileId::ROOT, b"f").await.unwrap();
    one.recover(other.session()).await.unwrap();
    assert!(matches!(one.stat(file).await, Err(Refusal::NotFound(_))));
    assert_eq!(one.usage(), before);
}

/// Appends records of `length` bytes, each with the writer's number and its own.
async fn append(fs: TestFs, writer: u8, records: u32, length: usize) {
    let file = fs.resolve(b"log").await.unwrap().file;
    let handle = fs.open(file, OpenFlags::APPEND).await.unwrap();
    for number in 0..records {
        let mut record = vec![writer; length];
        record[..4].copy_from_slice(&number.to_le_bytes());
        assert_eq!(fs.write(handle, 0, Bytes::from(record)).await, Ok(u32::try_from(length).unwrap()));
    }
    fs.close_file(handle).await.unwrap();
}

#[tokio::test]
async fn appends_of_two_clients_never_overlap_nor_leave_gaps() {
    for (seed, length) in [(1, 16), (2, 999), (3, 5000), (4, 70_000)] {
        let node = node(64 << 20, Duration::ZERO);
        let (one, other) = (late(&node, seed).await, late(&node, seed + 10).await);
        one.write_file(b"log", b"").await.unwrap();
        tokio::join!(append(one.clone(), 1, 40, length), append(other, 2, 40, length));
        let whole = one.read_file(b"log").await.unwrap();
        assert_eq!(whole.len(), 80 * length);
        let mut next = [0, 0_u32, 0];
        for record in whole.chunks(length) {
            let writer = record[4] as usize;
            assert!(record[4..].iter().all(|byte| *byte as usize == writer), "a record is torn");
            assert_eq!(record[..4], next[writer].to_le_bytes(), "a writer's records keep their order");
            next[writer] += 1;
        }
    }
}

/// Writes one half of a small file's head, then beyond it, so that the file spills to stripes.
async fn grow(fs: TestFs, half: usize) {
    let file = fs.resolve(b"f").await.unwrap().file;
    let handle = fs.open(file, OpenFlags::WRITE).await.unwrap();
    let (fill, offset) = ([b'A', b'B'][half], half * 1000);
    fs.write(handle, offset as u64, Bytes::from(vec![fill; 1000])).await.unwrap();
    let beyond = 10_000 * (half + 1);
    fs.write(handle, beyond as u64, Bytes::from(vec![fill; 10_000])).await.unwrap();
    fs.write(handle, offset as u64, Bytes::from(vec![fill + 2; 10])).await.unwrap();
    fs.close_file(handle).await.unwrap();
}

#[tokio::test]
async fn two_clients_that_grow_one_small_file_lose_no_byte() {
    for seed in 0..40 {
        let node = node(64 << 20, Duration::ZERO);
        let (one, other) = (late(&node, seed).await, late(&node, seed + 1000).await);
        one.write_file(b"f", &filled(b'.', 3000)).await.unwrap();
        tokio::join!(grow(one.clone(), 0), grow(other, 1));
        let mut expected = vec![0; 30_000];
        for (range, fill) in [
            (0..1000, b'A'),
            (1000..2000, b'B'),
            (2000..3000, b'.'),
            (10_000..20_000, b'A'),
            (20_000..30_000, b'B'),
            (0..10, b'C'),
            (1000..1010, b'D'),
        ] {
            expected[range].fill(fill);
        }
        assert!(one.read_file(b"f").await.unwrap() == expected, "seed {seed}");
    }
}

#[tokio::test]
async fn what_was_truncated_never_comes_back_even_under_writers() {
    for seed in 0..40 {
        let node = node(64 << 20, Duration::ZERO);
        let (one, other) = (late(&node, seed).await, late(&node, seed + 1000).await);
        let file = one.write_file(b"f", &filled(b'o', 150_000)).await.unwrap().file;
        let handle = other.open(file, OpenFlags::WRITE).await.unwrap();
        let resize = |size| one.change_attributes(file, Changes { size: Some(size), ..Changes::default() });
        let (cut, written) = tokio::join!(resize(500), other.write(handle, 100_000, Bytes::from(vec![b'n'; 1000])));
        cut.unwrap();
        assert_eq!(written, Ok(1000));
        resize(200_000).await.unwrap();
        let whole = one.read_file(b"f").await.unwrap();
        assert!(whole[..500].iter().all(|byte| *byte == b'o'));
        let rest_is_zeros_or_new = whole[500..]
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == 0 || *byte == b'n' && (100_000..101_000).contains(&(at + 500)));
        assert!(rest_is_zeros_or_new, "seed {seed}: old bytes came back");
    }
}
