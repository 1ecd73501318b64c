//! Leaves against versions of a map, and readers beside a writer.

use super::*;
use std::{collections::BTreeMap, thread};
use test_support::Random;

fn some_key(random: &mut Random) -> Box<[u8]> {
    (0..random.below(4)).map(|_| random.pick(b"ab")).collect()
}

/// The entries of a map, as a page gets them.
fn now_of(map: &BTreeMap<Box<[u8]>, Box<[u8]>>) -> Vec<(&[u8], StoredValue<'_>)> {
    map.iter().map(|(key, value)| (&**key, StoredValue::Inline(value))).collect()
}

/// The entries of a leaf from a key on, as of a sequence number.
fn entries(leaf: &Leaf, from: &[u8], up_to: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (state, mut found) = (leaf.load(), Vec::new());
    let each = |key: &[u8], value| {
        let StoredValue::Inline(value) = value else { panic!("{value:?}") };
        found.push((key.to_vec(), value.to_vec()));
    };
    state.merged(from, up_to, each, |_| {});
    found
}

#[test]
fn a_leaf_has_what_a_map_has_after_the_same_changes_also_as_of_earlier_ones() {
    let mut random = Random::new(1);
    for _ in 0..100 {
        let (leaf, mut map) = (Leaf::new(0, LeafPage::empty()), BTreeMap::new());
        let mut versions = vec![map.clone()];
        let mut merged_at = 0;
        for sequence in 1..=120 {
            let latch = leaf.latch();
            if leaf.load().is_full() {
                let now = now_of(&map);
                leaf.replace(&latch, LeafPage::build(&now));
                merged_at = sequence - 1;
            }
            let key = some_key(&mut random);
            let value: Option<Box<[u8]>> = (!random.one_in(3)).then(|| [random.byte()].into());
            let hash = KeyHash::of(&key);
            let changed = value.clone().map(ChangedValue::Inline);
            leaf.push(&latch, hash, LeafChange { sequence, key: key.clone(), value: changed });
            match value {
                Some(value) => drop(map.insert(key, value)),
                None => drop(map.remove(&key)),
            }
            versions.push(map.clone());
            let asked = some_key(&mut random);
            let found = leaf.load().get(&asked, KeyHash::of(&asked)).map(|value| format!("{value:?}"));
            assert_eq!(found, map.get(&asked).map(|value| format!("{:?}", StoredValue::Inline(value))));
            let up_to = merged_at + random.below(sequence + 1 - merged_at);
            let expected = versions[usize::try_from(up_to).unwrap()].range(asked.clone()..);
            let expected: Vec<_> = expected.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            assert_eq!(entries(&leaf, &asked, up_to), expected);
        }
    }
}

#[test]
fn readers_beside_a_writer_see_a_key_always_and_its_values_in_order() {
    let leaf = Leaf::new(0, LeafPage::empty());
    let (key, hash) = (b"key", KeyHash::of(b"key"));
    let value = |number: u64| ChangedValue::Inline(number.to_le_bytes().into());
    let change = |sequence| LeafChange { sequence, key: key[..].into(), value: Some(value(sequence)) };
    leaf.push(&leaf.latch(), hash, change(1));
    let last = 20_000;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut before = 0;
                while before < last {
                    let state = leaf.load();
                    let Some(StoredValue::Inline(found)) = state.get(key, hash) else { panic!("it is gone") };
                    let found = u64::from_le_bytes(found.try_into().unwrap());
                    assert!(found >= before, "{found} after {before}");
                    before = found;
                }
            });
        }
        for sequence in 2..=last {
            let latch = leaf.latch();
            if leaf.load().is_full() {
                let before = (sequence - 1).to_le_bytes();
                leaf.replace(&latch, LeafPage::build(&[(&key[..], StoredValue::Inline(&before))]));
            }
            leaf.push(&latch, hash, change(sequence));
        }
    });
}
