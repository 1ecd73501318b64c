//! Pages against sorted maps, and damaged pages.

use super::*;
use std::collections::BTreeMap;
use test_support::Random;

/// Entries as a page gets them.
fn page_of(entries: &BTreeMap<Vec<u8>, Vec<u8>>) -> LeafPage {
    let sorted: Vec<_> = entries.iter().map(|(key, value)| (&**key, StoredValue::Inline(value))).collect();
    LeafPage::build(&sorted)
}

fn to_vec(key: &SplitKey<'_>) -> Vec<u8> {
    let mut bytes = b"before".to_vec();
    key.copy_to(&mut bytes);
    bytes
}

/// Random entries whose keys share beginnings, differ late, or are beginnings of others.
fn random_entries(random: &mut Random) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let length = random.below(20_usize);
    let shared = random.bytes(length);
    let count = random.below(200_usize);
    let entries = (0..count).map(|_| {
        let mut key = shared.clone();
        for _ in 0..random.below(14) {
            key.push(random.pick(b"\0ab\xff"));
        }
        let length = random.below(40_usize);
        (key, random.bytes(length))
    });
    entries.collect()
}

#[test]
fn a_page_answers_as_a_sorted_map_does() {
    let mut random = Random::new(1);
    for _ in 0..500 {
        let entries = random_entries(&mut random);
        let page = page_of(&entries);
        assert_eq!(page.entries_from(&[]).len(), entries.len());
        let listed = page.entries_from(&[]).map(|entry| (to_vec(&entry.key), entry.value));
        assert!(listed.eq(entries.iter().map(|(key, value)| (key.clone(), StoredValue::Inline(value)))));
        let asked = random_entries(&mut random).into_keys().chain(entries.keys().cloned());
        for key in asked {
            let found = page.get(&key, KeyHash::of(&key));
            assert_eq!(found, entries.get(&key).map(|value| StoredValue::Inline(value)), "{key:?}");
            assert_eq!(page.lower_bound(&key), entries.range(..key.clone()).count(), "{key:?}");
        }
    }
}

#[test]
fn a_page_that_was_written_is_read_as_it_was() {
    let mut random = Random::new(2);
    for _ in 0..200 {
        let page = page_of(&random_entries(&mut random));
        let padded = [page.as_bytes(), &[7; 100]].concat();
        assert_eq!(LeafPage::decode(&padded), Ok(page));
    }
    let span = LogSpan { slot: 1 << 30, offset: 3 << 30, length: 1 << 28 };
    let logged = LeafPage::build(&[(b"k", StoredValue::Logged(span))]);
    let found = LeafPage::decode(logged.as_bytes()).unwrap();
    assert_eq!(found.get(b"k", KeyHash::of(b"k")), Some(StoredValue::Logged(span)));
}

#[test]
fn a_page_of_which_a_bit_is_flipped_or_bytes_are_missing_is_refused() {
    let mut random = Random::new(3);
    let whole = page_of(&random_entries(&mut random));
    for _ in 0..2000 {
        let mut bytes = whole.as_bytes().to_vec();
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        assert!(LeafPage::decode(&bytes).is_err(), "byte {at}");
    }
    for length in 0..whole.as_bytes().len() {
        assert!(LeafPage::decode(&whole.as_bytes()[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn a_page_that_lies_under_a_right_checksum_is_refused_or_read_within_its_bounds() {
    let mut random = Random::new(4);
    let whole = page_of(&random_entries(&mut random));
    let mut refused = 0;
    for _ in 0..5000 {
        let mut bytes = whole.as_bytes().to_vec();
        for _ in 0..=random.below(3) {
            let at = 8 + random.below(bytes.len() - 8);
            bytes[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]);
        }
        let checksum = xxh3_64(&bytes[8..]);
        bytes[..8].copy_from_slice(&checksum.to_le_bytes());
        match LeafPage::decode(&bytes) {
            Ok(page) => {
                page.entries_from(&[]).for_each(|entry| drop(to_vec(&entry.key)));
                page.get(b"a", KeyHash::of(b"a"));
                page.lower_bound(b"ab\xff");
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 1000, "{refused}");
}
