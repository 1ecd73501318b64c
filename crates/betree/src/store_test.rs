//! Stores against maps: reopened, full, failed, used by several threads, opened in error.

use super::*;
use crate::{ValueBytes, device::simulated_device::SimulatedDevice};
use std::{collections::BTreeMap, ops::Bound};
use test_support::Random;

const MANUAL: Options = Options { acknowledged: Acknowledged::Kept, checkpoint_bytes: u64::MAX };

fn open(device: &SimulatedDevice) -> Store {
    Store::open_device(Arc::new(device.clone()), Path::new("simulated"), MANUAL).unwrap()
}

fn entries(database: &Database) -> Vec<(Vec<u8>, Vec<u8>)> {
    let found = database.scan(Bound::Unbounded, usize::MAX);
    found.into_iter().map(|(key, value)| (key, value.to_vec())).collect()
}

fn some_key(random: &mut Random) -> Vec<u8> {
    format!("user{:04}", random.below(900)).into_bytes()
}

#[test]
fn a_store_has_what_a_map_has_through_checkpoints_and_reopening() {
    let mut random = Random::new(1);
    for _ in 0..4 {
        let device = SimulatedDevice::new(&[]);
        let mut store = open(&device);
        let mut maps: BTreeMap<&str, BTreeMap<Vec<u8>, Vec<u8>>> = BTreeMap::new();
        let mut views: Vec<(ValueBytes, Vec<u8>)> = Vec::new();
        for _ in 0..4000 {
            let name = random.pick(&["one", "two"]);
            let database = store.database(name).unwrap();
            let (map, key) = (maps.entry(name).or_default(), some_key(&mut random));
            match random.below(1000_u32) {
                0..600 => {
                    let length = random.pick(&[0_usize, 10, 256, 257, 1000, 5000]);
                    let value = random.bytes(length);
                    database.put(&key, &value).unwrap();
                    map.insert(key, value);
                }
                600..800 => {
                    database.delete(&key).unwrap();
                    map.remove(&key);
                }
                800..980 => {
                    let found = database.get(&key);
                    assert_eq!(found.as_deref(), map.get(&key).map(|value| &**value));
                    views.extend(found.zip(map.get(&key).cloned()));
                }
                980..990 => {
                    let limit = random.below(60_usize);
                    let found = database.scan(Bound::Excluded(&key), limit);
                    let expected = map.range::<[u8], _>((Bound::Excluded(&*key), Bound::Unbounded)).take(limit);
                    assert!(
                        found
                            .iter()
                            .map(|(key, value)| (key, &**value))
                            .eq(expected.map(|(key, value)| (key, &**value)))
                    );
                }
                990..997 => store.checkpoint().unwrap(),
                997.. => {
                    views.clear();
                    drop(database);
                    drop(store);
                    store = open(&device);
                }
            }
        }
        assert!(views.iter().all(|(value, expected)| **value == **expected), "values stay as they were");
        for (name, map) in &maps {
            assert_eq!(entries(&store.database(name).unwrap()), map.clone().into_iter().collect::<Vec<_>>());
        }
    }
}

#[test]
fn space_of_values_that_were_replaced_is_used_again() {
    let mut random = Random::new(2);
    let device = SimulatedDevice::new(&[]);
    let store = open(&device);
    let database = store.database("d").unwrap();
    // More than the device has, in all.
    for round in 0..40 {
        for number in 0..40_u32 {
            database.put(&number.to_be_bytes(), &random.bytes(20_000)).unwrap();
        }
        // Values that nobody asks for any more are dropped when a leaf is merged.
        for number in 0..40_u32 {
            database.put(b"other", &number.to_be_bytes()).unwrap();
        }
        // Readers of other stores may hold up what is retired for a moment.
        let is_free = || {
            store.checkpoint().unwrap();
            store.stats().log_bytes <= 3 * (4 << 20)
        };
        assert!((0..10_000).any(|_| is_free()), "round {round}: {:?}", store.stats());
    }
}

#[test]
fn writers_and_readers_beside_checkpoints_agree() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let options = Options { checkpoint_bytes: 200_000, ..Options::default() };
    let writers = 3_u8;
    {
        let store = Store::open(&path, options).unwrap();
        let database = store.database("d").unwrap();
        thread::scope(|scope| {
            for writer in 0..writers {
                let database = database.clone();
                scope.spawn(move || {
                    let mut random = Random::new(writer.into());
                    let mut map = BTreeMap::new();
                    for _ in 0..6000 {
                        let key = [&[writer], &*some_key(&mut random)].concat();
                        let length = random.pick(&[5_usize, 300]);
                        let value = random.bytes(length);
                        database.put(&key, &value).unwrap();
                        map.insert(key, value);
                        let key = [&[writer], &*some_key(&mut random)].concat();
                        assert_eq!(database.get(&key).as_deref(), map.get(&key).map(|value| &**value));
                    }
                    let mine = database.scan(Bound::Included(&[writer]), map.len());
                    assert!(
                        mine.iter()
                            .map(|(key, value)| (key, value.to_vec()))
                            .eq(map.iter().map(|(key, value)| (key, value.clone())))
                    );
                });
            }
        });
    }
    let store = Store::open(&path, options).unwrap();
    let reopened = entries(&store.database("d").unwrap());
    assert!(reopened.len() > 2000 && reopened.iter().all(|(key, _)| key[0] < writers));
}

#[test]
fn of_many_who_swap_one_value_each_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("store"), MANUAL).unwrap();
    let database = store.database("d").unwrap();
    assert!(!database.compare_and_swap(b"n", Some(b"0"), Some(b"1")).unwrap(), "it has none");
    assert!(database.compare_and_swap(b"n", None, Some(b"0")).unwrap());
    let (threads, times) = (4, 500);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..times {
                    loop {
                        let before = database.get(b"n").unwrap();
                        let number: u32 = std::str::from_utf8(&before).unwrap().parse().unwrap();
                        let after = (number + 1).to_string();
                        if database.compare_and_swap(b"n", Some(&before), Some(after.as_bytes())).unwrap() {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(database.get(b"n").as_deref(), Some((threads * times).to_string().as_bytes()));
    assert!(database.compare_and_swap(b"n", Some(b"2000"), None).unwrap());
    assert!(database.get(b"n").is_none());
}

#[test]
fn what_is_no_store_or_is_open_or_too_long_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, b"something else").unwrap();
    let refused = Store::open(&path, MANUAL).unwrap_err().to_string();
    assert!(refused.contains("is no store"), "{refused}");
    // As images of discs do.
    let zeros = [vec![0; 40_000], b"precious".to_vec()].concat();
    std::fs::write(&path, &zeros).unwrap();
    assert!(matches!(Store::open(&path, MANUAL), Err(StoreError::NoStore { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), zeros);
    let path = folder.path().join("store");
    let store = Store::open(&path, MANUAL).unwrap();
    assert!(matches!(Store::open(&path, MANUAL), Err(StoreError::InUse { .. })));
    let database = store.database("d").unwrap();
    let mut key = vec![7; 1 << 16];
    assert!(matches!(database.put(&key, b""), Err(StoreError::KeyTooLong { length: 65536, max: 65535 })));
    assert!(matches!(database.put(b"k", &vec![0; (256 << 20) + 1]), Err(StoreError::ValueTooLong { .. })));
    key.pop();
    database.put(&key, b"longest").unwrap();
    assert_eq!(database.get(&key).as_deref(), Some(&b"longest"[..]));
}

#[test]
fn a_full_device_refuses_writes_and_a_failed_one_all_until_the_store_is_opened_again() {
    let device = SimulatedDevice::new(&[]);
    let mut map = BTreeMap::new();
    {
        let store = open(&device);
        let database = store.database("d").unwrap();
        device.set_capacity(1 << 20);
        let refused = (0..2000_u32).find_map(|number| {
            let (key, value) = (number.to_be_bytes(), vec![1; 1000]);
            let done = database.put(&key, &value);
            done.as_ref().ok().map(|()| map.insert(key.to_vec(), value));
            done.err()
        });
        assert!(matches!(refused, Some(StoreError::Full)), "{refused:?}");
        assert_eq!(entries(&database), map.clone().into_iter().collect::<Vec<_>>(), "reads go on");
        device.set_capacity(4 << 20);
        database.put(b"more", b"space").unwrap();
        map.insert(b"more".to_vec(), b"space".to_vec());
        device.set_failing(true);
        assert!(matches!(store.commit(), Err(StoreError::Io(_))));
        device.set_failing(false);
        assert!(matches!(database.put(b"k", b"v"), Err(StoreError::Failed { .. })));
        assert_eq!(database.get(b"more").as_deref(), Some(&b"space"[..]));
    }
    let store = open(&device);
    let database = store.database("d").unwrap();
    assert_eq!(entries(&database), map.into_iter().collect::<Vec<_>>());
    database.put(b"k", b"v").unwrap();
}
