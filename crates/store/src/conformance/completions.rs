//! Promises about operations that are not complete yet, scans, snapshots and syncs.

use std::collections::BTreeMap;

use bytes::Bytes;
use placement::PartitionId;

use super::{FIRST, content, key, pattern, write};
use crate::{Generation, StripeEntry, StripeKey, StripeScan, StripeSnapshot, StripeStore};

/// The stripes of a page of a scan in these tests: few, so that stripes change between pages.
const PAGE: usize = 3;

/// Operations on one stripe take effect in the order of their submission, in whatever order their
/// completions are waited for.
pub fn operations_on_one_stripe_take_effect_in_their_order(store: &dyn StripeStore) {
    let data = |byte: u8| Bytes::from(vec![byte; 50]);
    let mut writes = Vec::new();
    let mut reads = Vec::new();
    for byte in 1..=20 {
        writes.push(store.write(key(0), FIRST, 0, &data(byte)));
        reads.push((byte, store.read(key(0), 0, 100)));
        writes.push(store.truncate(key(0), FIRST, 10));
        writes.push(store.remove(key(1)));
        writes.push(store.write(key(1), FIRST, 0, &data(byte)));
    }
    let last = store.snapshot(key(0));
    for (byte, read) in reads.into_iter().rev() {
        assert_eq!(read.wait().expect("readable"), data(byte), "the read after write {byte}");
    }
    writes.into_iter().rev().for_each(|write| write.wait().expect("there is room"));
    let last = last.wait().expect("readable").expect("it was written");
    assert_eq!(last.content, data(20)[..10]);
    assert_eq!(content(store, key(1)), data(20));
}

/// An operation is done even if its completion is dropped.
pub fn an_operation_is_done_though_nobody_waits_for_it(store: &dyn StripeStore) {
    drop(store.write(key(0), FIRST, 0, &Bytes::from_static(b"written")));
    drop(store.extend(key(0), FIRST, 9));
    assert_eq!(content(store, key(0)), b"written\0\0");
    drop(store.remove(key(0)));
    assert!(content(store, key(0)).is_empty());
}

/// A snapshot has the generation and all bytes of one moment, and stays as it is.
pub fn a_snapshot_is_of_one_moment(store: &dyn StripeStore) {
    let snapshot = || store.snapshot(key(0)).wait().expect("readable");
    assert_eq!(snapshot(), None, "absent");
    store.truncate(key(0), Generation(3), 0).wait().expect("truncatable");
    assert_eq!(snapshot(), Some(StripeSnapshot { generation: Generation(3), content: Bytes::new() }));
    let bytes = Bytes::from(pattern(1, store.stripe_bytes()));
    store.write(key(0), Generation(4), 0, &bytes).wait().expect("there is room");
    let whole = snapshot();
    store.truncate(key(0), Generation(5), 7).wait().expect("truncatable");
    let cut = snapshot();
    store.remove(key(0)).wait().expect("removable");
    assert_eq!(snapshot(), None, "removed");
    assert_eq!(whole, Some(StripeSnapshot { generation: Generation(4), content: bytes.clone() }));
    assert_eq!(cut, Some(StripeSnapshot { generation: Generation(5), content: bytes.slice(..7) }));
}

/// A scan of a store at rest gives every stripe once, with its generation and length, in pages that
/// are not longer than asked for. It gives empty stripes too, whose generation is remembered.
pub fn a_scan_gives_every_stripe_with_its_generation_and_length(store: &dyn StripeStore) {
    assert_eq!(store.scan().next_page(PAGE).wait().expect("readable"), None);
    let mut expected = BTreeMap::new();
    for (stripe, length) in (0_u32..).zip([5, 0, 100, 1, 0, 7, 9, 80]) {
        let (key, generation) = (key(stripe.into()), Generation(stripe));
        store.write(key, generation, 0, &vec![1; length as usize].into()).wait().expect("there is room");
        store.truncate(key, generation, length).wait().expect("truncatable");
        expected.insert(key, StripeEntry { key, generation, length });
    }
    let mut scan = store.scan();
    while let Some(page) = scan.next_page(PAGE).wait().expect("readable") {
        assert!(page.len() <= PAGE, "{page:?}");
        for found in page {
            assert_eq!(expected.remove(&found.key), Some(found), "each is found once, as it is");
        }
    }
    assert!(expected.is_empty(), "not found: {expected:?}");
}

/// A scan of a partition gives all stripes of that partition, and no others.
pub fn a_scan_of_a_partition_gives_its_stripes_alone(store: &dyn StripeStore) {
    // Engines may keep several partitions together.
    for (stripe, partition) in (0..).zip([3, 3 + 64, 4, 3, 3 + 64, 3]) {
        let key = StripeKey { partition: PartitionId(partition), ..key(stripe) };
        write(store, key, 0, &[1]);
    }
    let mut found = Vec::new();
    let mut scan = store.scan_partition(PartitionId(3));
    while let Some(page) = scan.next_page(PAGE).wait().expect("readable") {
        found.extend(page.into_iter().map(|entry| entry.key.stripe.0));
    }
    found.sort_unstable();
    assert_eq!(found, [0, 3, 5]);
}

/// A scan finds the stripes that exist from its beginning to its end, while others are made and
/// removed.
pub fn a_scan_finds_what_stays_while_others_come_and_go(store: &dyn StripeStore) {
    let (stays, goes, comes) =
        (|stripe: u64| key(2 * stripe), |stripe: u64| key(2 * stripe + 1), |stripe: u64| key(1000 + stripe));
    let write = |key, data: &[u8]| {
        write(store, key, 0, data);
        store.shrink_to_fit(key).wait().expect("fits");
    };
    for stripe in 0..20 {
        write(stays(stripe), b"stays");
        write(goes(stripe), b"goes");
    }
    let mut found: Vec<StripeKey> = Vec::new();
    let mut scan: Box<dyn StripeScan> = store.scan();
    let mut round = 0;
    while let Some(page) = scan.next_page(PAGE).wait().expect("readable") {
        found.extend(page.iter().map(|found| found.key));
        if round < 20 {
            store.remove(goes(round)).wait().expect("removable");
            write(comes(round), b"new");
            write(stays(19 - round), b"STAYS");
        }
        round += 1;
    }
    assert!((0..20).all(|stripe| found.contains(&stays(stripe))), "{found:?}");
}

/// A sync completes and changes nothing.
pub fn what_is_synced_is_as_it_was(store: &dyn StripeStore) {
    write(store, key(0), 0, &pattern(1, 100));
    let usage = store.usage();
    store.sync().wait().expect("nothing has failed");
    assert_eq!((content(store, key(0)), store.usage()), (pattern(1, 100), usage));
}
