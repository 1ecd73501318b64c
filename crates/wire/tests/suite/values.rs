//! Values keep their invariants when they are decoded from messages and from the JSON of snapshots.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use placement::{FileId, NodeId, PartitionEntry, PartitionId, PartitionMap};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fmt::Debug,
    os::unix::ffi::OsStrExt,
};
use wire::{HostFile, LockStyle, Name, StripeRuns, Timestamp};

/// Encodes a value, and decodes it as another type of the same shape.
fn reread<T: DeserializeOwned>(value: &impl Serialize) -> Option<T> {
    let bytes = postcard::to_allocvec(value).unwrap();
    postcard::from_bytes(&bytes).ok()
}

/// Checks that the value survives a round trip through both formats.
#[track_caller]
fn kept<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    assert_eq!(reread::<T>(value).as_ref(), Some(value));
    let json = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), value, "{json}");
}

#[test]
fn names_that_no_directory_can_have_are_not_read() {
    kept(&Name::new(&[0xff, b'x']).unwrap());
    kept(&Name::new(&[b'x'; 255]).unwrap());
    let text = |bytes: &[u8]| bytes::Bytes::copy_from_slice(bytes);
    for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]] {
        assert_eq!(reread::<Name>(&text(bad)), None, "{bad:?}");
        assert!(serde_json::from_value::<Name>(serde_json::json!(bad)).is_err(), "{bad:?}");
    }
}

#[test]
fn runs_of_stripes_that_touch_overlap_or_are_empty_are_not_read() {
    let mut runs = StripeRuns::new();
    kept(&runs);
    runs.insert(0, 1);
    runs.insert(2, 9);
    runs.insert(u64::MAX - 1, u64::MAX);
    kept(&runs);
    let as_read = |runs: &[(u64, u64)]| {
        let runs: BTreeMap<u64, u64> = runs.iter().copied().collect();
        reread::<StripeRuns>(&runs)
    };
    assert!(as_read(&[(0, 3), (4, 5)]).is_some());
    for bad in [&[(0, 0)][..], &[(3, 2)], &[(0, 3), (3, 5)], &[(0, 5), (3, 4)], &[(0, u64::MAX), (u64::MAX, 1)]] {
        assert_eq!(as_read(bad), None, "{bad:?}");
    }
}

#[test]
fn moments_and_ranges_of_locks_that_cannot_be_are_not_read() {
    kept(&Timestamp { secs: i64::MIN, nanos: 999_999_999 });
    assert_eq!(reread::<Timestamp>(&(0_i64, 1_000_000_000_u32)), None);
    kept(&LockStyle::Whole);
    kept(&LockStyle::EVERYWHERE);
    kept(&LockStyle::Range { start: 7, end: 7 });
    assert_eq!(reread::<LockStyle>(&LockStyle::Range { start: 8, end: 7 }), None);
}

#[test]
fn a_map_with_an_impossible_number_of_partitions_is_not_read() {
    let nodes = (BTreeMap::<NodeId, String>::new(), BTreeSet::<NodeId>::new());
    let entries = |count| (vec![PartitionEntry::first(NodeId(1)); count], nodes.clone());
    assert!(reread::<PartitionMap>(&entries(64)).is_some());
    assert_eq!(reread::<PartitionMap>(&entries(63)), None);
    assert_eq!(reread::<PartitionMap>(&entries(0)), None);
}

#[test]
fn a_file_is_a_number_in_messages_and_text_in_json() {
    let file = FileId::new(PartitionId(3), 9);
    kept(&file);
    assert_eq!(postcard::to_allocvec(&file), postcard::to_allocvec(&file.0));
    assert_eq!(serde_json::to_string(&file).unwrap(), format!("\"{file}\""));
}

#[test]
fn a_host_path_need_not_be_text() {
    let path = OsStr::from_bytes(b"/data/\xff\xfe").into();
    kept(&HostFile { node: NodeId(1), path, size: 1, modified: Timestamp::default(), executable: false });
}
