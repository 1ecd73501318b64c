//! Tests of snapshots: the page of their format, and what is no snapshot.

use crate::{
    Partition, SnapshotError,
    extent_file_test::random_extent_command,
    inode_test::random_about_inode,
    partition_test::{Bench, STRIPE, at, name, random_command},
    snapshot::{SnapshotVersion, VERSION},
};
use placement::{FileId, Layout, NodeId, PlacementSpec, Policy, StripeSize};
use test_support::{FormatPage, Random, Shapes, fenced};
use wire::{
    Command, ExtentRequest, HostFile, Intent, Kind, NewInode, NewKind, Owner, Part, Session, Timestamp, WritePlace,
};

const ROOT: FileId = FileId::ROOT;

/// A partition in which much has happened.
fn busy(seed: u64) -> Partition {
    let (mut random, mut bench) = (Random::new(seed), Bench::new());
    for _ in 0..600 {
        let command = match random.below(3) {
            0 => random_command(&mut random),
            1 => random_about_inode(&mut random),
            _ => random_extent_command(&mut random),
        };
        // Some are refused.
        let _ = bench.try_to(command);
    }
    bench.partition
}

/// A partition with all that is rare.
fn rare() -> Partition {
    let mut bench = Bench::new();
    let host = HostFile { node: NodeId(1), path: "/f".into(), size: 5, modified: at(3), executable: false };
    for (text, kind) in [("node", NewKind::Node(Kind::Fifo)), ("bound", NewKind::Bound(Box::new(host)))] {
        bench.create(ROOT, text, kind);
    }
    let placing = PlacementSpec { policy: Some(Policy::Here), stripe_size: StripeSize::new(4096).ok() };
    let inode = NewInode { placing: Some(Box::new(placing)), ..NewInode::new(NewKind::File, 0o644, Owner::default()) };
    bench.apply(Command::Create { parent: ROOT, name: name("here"), inode, open: false, extent: ExtentRequest::None });
    let layout = Layout::striped(STRIPE);
    bench.apply(Command::Reserve { count: 1, stripes: 1, layout, policy: Some(Policy::Here) });
    let inline = bench.create(ROOT, "inline", NewKind::File).file;
    bench.write(inline, WritePlace::At(0), b"bytes");
    let intent = Intent { number: 1, session: Session(1), coordinator: ROOT.partition() };
    bench.apply(Command::Prepare { intent, parts: vec![Part::MoveLease] });
    let split = bench.create(ROOT, "split", NewKind::Directory).file;
    let inode = NewInode::new(NewKind::Directory, 0o755, Owner::default());
    let fragment = Part::Fragment { directory: split, inode, entries: Vec::new() };
    let intent = Intent { number: 2, ..intent };
    bench.apply(Command::Prepare { intent, parts: vec![fragment] });
    bench.apply(Command::Settle { intent, commit: true });
    let intent = Intent { number: 3, ..intent };
    bench.apply(Command::Prepare { intent, parts: vec![Part::LockEntries { directory: split }] });
    bench.apply(Command::Commit {
        intent,
        others: Vec::new(),
        parts: vec![Part::Split { directory: split, fragments: vec![split; 16] }],
    });
    bench.apply(Command::CloseSession { session: Session(9) });
    bench.partition.kept.insert(split);
    bench.partition
}

/// The shapes of the types that the page of the protocol does not have.
fn shapes() -> Shapes {
    let mut shapes = Shapes::default();
    (0..20).for_each(|seed| shapes.add(&busy(seed)));
    shapes.add(&rare());
    let protocol = FormatPage::new("wire").part("shapes");
    let of_protocol = |name: &str| protocol.lines().any(|line| line.starts_with(&format!("{name} = ")));
    shapes.0.retain(|name, _| !of_protocol(name));
    shapes
}

/// `FIX=1 cargo test -p partition snapshot` writes these parts of the page.
#[test]
fn the_page_has_what_a_snapshot_has() {
    let text = shapes().text();
    let unknown: Vec<_> = text.lines().filter(|line| line.contains("_?") || line.contains("[_]")).collect();
    assert!(unknown.is_empty(), "no partition has something in {unknown:?}");
    let hash = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
    let version = format!("Version {}; the shapes have the hash `{hash:016x}`.\n", VERSION.0);
    let page = FormatPage::new("partition");
    page.check_version("version", &version, "raise VERSION in snapshot.rs");
    page.check("version", &version);
    page.check("shapes", &fenced(&text));
}

#[test]
fn what_is_no_snapshot_is_refused_with_the_reason() {
    let partition = busy(1);
    let snapshot = partition.snapshot();
    assert_eq!(Partition::restore(&snapshot).unwrap().snapshot(), snapshot);
    let restore = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = snapshot.clone();
        change(&mut changed);
        Partition::restore(&changed).err()
    };
    assert_eq!(restore(&|bytes| bytes.clear()), Some(SnapshotError::NoSnapshot));
    assert_eq!(restore(&|bytes| bytes[0] = b'X'), Some(SnapshotError::NoSnapshot));
    assert_eq!(restore(&|bytes| bytes[8] = 99), Some(SnapshotError::Version(SnapshotVersion(99, VERSION.1))));
    assert_eq!(restore(&|bytes| bytes[10] = 99), Some(SnapshotError::Version(SnapshotVersion(VERSION.0, 99))));
    assert_eq!(restore(&|bytes| bytes.push(0)), Some(SnapshotError::Damaged));
    for length in 12..snapshot.len() {
        assert_eq!(restore(&|bytes| bytes.truncate(length)), Some(SnapshotError::Damaged), "{length} bytes");
    }
}

#[test]
fn a_node_whose_clock_is_behind_dates_no_change_before_those_that_came_along() {
    let (partition, latest) = (busy(1), at(i64::MAX / 2));
    assert_eq!(partition.time_of_change(at(-1)), Timestamp::default());
    let last = partition.inodes.values().map(|inode| inode.changed).max().unwrap();
    let moved = Partition::restore(&partition.snapshot()).unwrap();
    assert_eq!([at(-1), latest].map(|now| moved.time_of_change(now)), [last, latest]);
}
