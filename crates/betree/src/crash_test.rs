//! Stores that end at any write: what was acknowledged is there when they are opened again.

use super::*;
use crate::device::simulated_device::SimulatedDevice;
use std::{
    collections::BTreeMap,
    ops::{Bound, RangeInclusive},
};
use test_support::Random;

const MANUAL: Options = Options { acknowledged: Acknowledged::Kept, checkpoint_bytes: u64::MAX };
const NAMES: [&str; 2] = ["a", "b"];
const CHANGES: usize = 120;

/// All entries, by database.
type Content = BTreeMap<(&'static str, Vec<u8>), Vec<u8>>;

/// How a history ends, as of the moment of an image.
#[derive(Clone, Copy, Debug, Default)]
struct HistoryPoint {
    /// Changes that were acknowledged.
    acknowledged: usize,
    /// Changes that were synced.
    synced: usize,
}

struct CrashImage {
    bytes: Vec<u8>,
    lost_power: bool,
    /// The numbers of changes that may be found.
    found: RangeInclusive<usize>,
}

fn content(store: &Store) -> Content {
    let mut content = Content::new();
    for name in NAMES.into_iter().filter(|name| store.databases().iter().any(|known| known == name)) {
        let entries = store.database(name).unwrap().scan(Bound::Unbounded, usize::MAX);
        content.extend(entries.into_iter().map(|(key, value)| ((name, key), value.to_vec())));
    }
    content
}

/// The content in short: keys, and lengths of values.
fn summary(content: &Content) -> String {
    let entries =
        content.iter().map(|((name, key), value)| format!("{name}{}:{}", key.last().unwrap_or(&0), value.len()));
    entries.collect::<Vec<_>>().join(" ")
}

fn open(device: &SimulatedDevice) -> Store {
    Store::open_device(Arc::new(device.clone()), Path::new("simulated"), MANUAL).unwrap()
}

/// Takes images at about one in `rarely` operations.
fn take_images(
    device: &SimulatedDevice,
    at: &Arc<Mutex<HistoryPoint>>,
    seed: u64,
    rarely: u64,
) -> Arc<Mutex<Vec<CrashImage>>> {
    let images = Arc::<Mutex<Vec<CrashImage>>>::default();
    let (into, at, mut random) = (images.clone(), at.clone(), Random::new(seed));
    device.before_each(move |_, device| {
        if random.one_in(rarely) {
            let lost_power = random.one_in(2);
            let bytes = if lost_power { device.image_after_power_loss(&mut random) } else { device.image() };
            let HistoryPoint { acknowledged, synced } = *at.lock();
            let found = if lost_power { synced } else { acknowledged }..=acknowledged + 1;
            into.lock().push(CrashImage { bytes, lost_power, found });
        }
    });
    images
}

/// Runs a history; returns its contents after each change, and images taken meanwhile.
fn run(seed: u64) -> (Vec<Content>, Vec<CrashImage>) {
    let mut random = Random::new(seed);
    let device = SimulatedDevice::new(&[]);
    let at = Arc::new(Mutex::new(HistoryPoint::default()));
    let images = take_images(&device, &at, !seed, 8);
    let mut store = open(&device);
    let mut contents = vec![Content::new()];
    while contents.len() <= CHANGES {
        match random.below(60) {
            0 => store.checkpoint().unwrap(),
            1 => {
                store.commit().unwrap();
                let mut at = at.lock();
                at.synced = at.acknowledged;
            }
            2 => {
                drop(store);
                store = open(&device);
            }
            _ => {
                let name = random.pick(&NAMES);
                let database = store.database(name).unwrap();
                let key = vec![b'k', random.below(40)];
                let mut content = contents.last().unwrap().clone();
                // Known before it is done: it may be found as soon as it begins.
                if random.one_in(4) {
                    content.remove(&(name, key.clone()));
                    contents.push(content);
                    database.delete(&key).unwrap();
                } else {
                    let length = random.pick(&[3_usize, 100, 700, 6000]);
                    let value = random.bytes(length);
                    content.insert((name, key.clone()), value.clone());
                    contents.push(content);
                    database.put(&key, &value).unwrap();
                }
                at.lock().acknowledged += 1;
            }
        }
    }
    device.before_each(|_, _| {});
    let images = std::mem::take(&mut *images.lock());
    (contents, images)
}

/// Opens an image, and checks that a prefix of the changes is found; returns images taken
/// meanwhile.
fn recover(image: &CrashImage, contents: &[Content], context: &str) -> Vec<CrashImage> {
    let device = SimulatedDevice::new(&image.bytes);
    let images = take_images(&device, &Arc::default(), image.bytes.len() as u64, 4);
    let store = open(&device);
    device.before_each(|_, _| {});
    let found = content(&store);
    let prefix = image.found.clone().rev().find(|length| contents.get(*length) == Some(&found));
    let prefix = prefix.unwrap_or_else(|| {
        let (found, least) = (summary(&found), summary(&contents[*image.found.start()]));
        panic!(
            "{context}, power lost: {}: no prefix of the history in {:?}: {found}, not {least}",
            image.lost_power, image.found
        )
    });
    // It can be written, and that is found too.
    let database = store.database("a").unwrap();
    database.put(b"after", &[9; 400]).unwrap();
    drop((database, store));
    let reopened = content(&open(&SimulatedDevice::new(&device.image())));
    let mut expected = found;
    expected.insert(("a", b"after".to_vec()), vec![9; 400]);
    assert_eq!(reopened, expected, "{context}: written after recovery");
    let mut images = std::mem::take(&mut *images.lock());
    // Nothing is changed while a store is opened.
    for image in &mut images {
        image.found = prefix..=prefix;
    }
    images
}

fn check(seeds: std::ops::Range<u64>) -> usize {
    let mut checked = 0;
    for seed in seeds {
        let (contents, images) = run(seed);
        for (number, image) in images.iter().enumerate() {
            let context = format!("seed {seed}, image {number}");
            let again = recover(image, &contents, &context);
            checked += 1;
            for (second, image) in again.into_iter().enumerate().take(2) {
                recover(&image, &contents, &format!("{context}, then {second}"));
                checked += 1;
            }
        }
    }
    checked
}

#[test]
fn a_store_that_ends_at_any_write_has_a_prefix_of_its_changes_with_all_that_were_acknowledged() {
    let checked = check(0..12);
    assert!(checked > 500, "{checked}");
}

/// Of three changes the second is lost with the power, and the third one is on the device behind
/// it. It is no change of the store then, so its number is given again. It must not come back when
/// another record of the same length takes the place of the lost one.
#[test]
fn a_change_behind_a_lost_one_never_comes_back() {
    for third in NAMES {
        let device = SimulatedDevice::new(&[]);
        let store = open(&device);
        for name in NAMES {
            store.database(name).unwrap();
        }
        store.database("a").unwrap().put(b"first", b"synced").unwrap();
        store.commit().unwrap();
        store.database("a").unwrap().put(b"second", &[0xbb; 300]).unwrap();
        store.database(third).unwrap().put(b"third", b"left behind").unwrap();
        let mut image = device.image();
        let lost = image.windows(300).position(|bytes| bytes == [0xbb; 300]).unwrap();
        image[lost..lost + 300].fill(0);
        let device = SimulatedDevice::new(&image);
        for value in [1, 2] {
            let store = open(&device);
            assert!(store.database(third).unwrap().get(b"third").is_none(), "in {third}");
            store.database("a").unwrap().put(b"second", &[value; 300]).unwrap();
        }
        let store = open(&device);
        assert!(store.database(third).unwrap().get(b"third").is_none(), "in {third}");
        assert_eq!(store.database("a").unwrap().get(b"second").as_deref(), Some(&[2; 300][..]));
    }
}
