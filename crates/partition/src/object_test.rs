//! Tests of objects in one partition, command by command.

use crate::partition_test::{Bench, STRIPE, name};
use bytes::Bytes;
use placement::{FileId, Layout, NodeId, PartitionId, PlacementSpec, Policy};
use wire::{
    AllocateMode, Answer, BytePlacement, Command, Condition, Content, Contents, FoundObject, Kind, NewKind, Outcome,
    Refusal, Session, StoredObject, StripeRuns, Version, WritePlace, XattrMode,
};

const ROOT: FileId = FileId::ROOT;

fn put(condition: Condition, contents: Contents) -> Command {
    let (placing, attributes) = (PlacementSpec::default(), Box::default());
    Command::PutObject { parent: ROOT, name: name("k"), condition, placing, attributes, contents }
}

fn reserve(count: u32, stripes: u64) -> Command {
    Command::Reserve { count, stripes, layout: Layout::striped(STRIPE), policy: None }
}

fn small(bytes: &'static [u8]) -> Contents {
    Contents::Inline(Bytes::from_static(bytes))
}

fn version(answer: Outcome<Answer>) -> Version {
    match answer {
        Ok(Answer::ObjectStored(StoredObject { version, .. })) => version,
        other => panic!("{other:?}"),
    }
}

fn get(bench: &mut Bench) -> Option<(Version, Bytes)> {
    match bench.try_to(Command::GetObject { parent: ROOT, name: name("k"), offset: 0, length: 100 }) {
        Ok(Answer::Object(FoundObject { head, content: Content::Bytes(bytes), .. })) => Some((head.version, bytes)),
        Err(Refusal::NotFound(_)) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn stripes_are_planned_that_a_file_has_whatever_its_size_or_that_anybody_has_reserved() {
    let mut bench = Bench::new();
    let unplanned = |bench: &mut Bench, file| {
        let mut stripes = StripeRuns::new();
        stripes.insert(0, 4);
        stripes.insert(8, 9);
        match bench.apply(Command::UnownedStripes { file, stripes }) {
            Answer::UnownedStripes(unplanned) => unplanned.ranges().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    let file = bench.create(ROOT, "f", NewKind::File).file;
    assert_eq!(unplanned(&mut bench, file), [0..4, 8..9], "its bytes are with the inode");
    let stripe = u64::from(STRIPE);
    let keep = |from, count| Command::Allocate {
        file,
        offset: from * stripe,
        length: count * stripe,
        mode: AllocateMode::KeepSize,
    };
    bench.apply(keep(1, 2));
    bench.apply(keep(8, 1));
    assert_eq!((bench.stat(file).size, unplanned(&mut bench, file)), (0, vec![0..1, 3..4]));
    let Answer::Reserved(reserved) = bench.apply(reserve(1, 2)) else { panic!("not reserved") };
    assert_eq!(unplanned(&mut bench, reserved[0]), [2..4, 8..9]);
    assert_eq!(unplanned(&mut bench, ROOT), [0..4, 8..9]);
    assert_eq!(unplanned(&mut bench, FileId(1 << 40)), [0..4, 8..9], "there is no such file");
}

#[test]
fn a_put_replaces_what_has_the_name_under_its_condition_and_takes_no_more_space() {
    let mut bench = Bench::new();
    assert_eq!(get(&mut bench), None);
    let first = version(bench.try_to(put(Condition::Absent, small(b"one"))));
    let bytes = bench.partition.bytes();
    assert_eq!(get(&mut bench), Some((first, Bytes::from_static(b"one"))));
    let refused = |answer, now| matches!(answer, Err(Refusal::VersionMismatch { present, .. }) if present == now);
    assert!(refused(bench.try_to(put(Condition::Absent, small(b"two"))), Some(first)));
    let second = version(bench.try_to(put(Condition::Is(first), small(b"two"))));
    assert!(second.file != first.file && bench.partition.bytes() == bytes && bench.partition.files() == 2);
    assert!(refused(bench.try_to(put(Condition::Is(first), small(b"three"))), Some(second)));
    assert_eq!(get(&mut bench), Some((second, Bytes::from_static(b"two"))));
    bench.write(second.file, WritePlace::At(0), b"T");
    let (written, _) = get(&mut bench).unwrap();
    assert!(written.file == second.file && written.change > second.change, "a write in the same moment counts too");
    let delete = |condition| Command::DeleteObject { parent: ROOT, name: name("k"), condition };
    assert!(refused(bench.try_to(delete(Condition::Is(second))), Some(written)));
    assert_eq!(bench.try_to(delete(Condition::Is(written))), Ok(Answer::Removed(None)));
    assert!(refused(bench.try_to(delete(Condition::Is(written))), None));
    assert!(matches!(bench.try_to(delete(Condition::Always)), Err(Refusal::NotFound(_))));
    assert_eq!((bench.partition.bytes(), bench.partition.files()), (bytes - bytes_of_entry(), 1));
}

/// Memory cost of an object of three bytes, with its name.
fn bytes_of_entry() -> u64 {
    crate::INODE_BYTES + crate::ENTRY_BYTES + 1 + 3
}

#[test]
fn a_directory_is_never_replaced_and_anything_else_is() {
    let mut bench = Bench::new();
    bench.create(ROOT, "k", NewKind::Directory);
    for condition in [Condition::Always, Condition::Absent] {
        assert!(matches!(bench.try_to(put(condition, small(b"x"))), Err(Refusal::IsDirectory(_))));
    }
    bench.apply(Command::RemoveDirectory { parent: ROOT, name: name("k") });
    bench.create(ROOT, "k", NewKind::Symlink(Bytes::from_static(b"there")));
    let get = Command::GetObject { parent: ROOT, name: name("k"), offset: 0, length: 1 };
    assert!(matches!(bench.try_to(get), Err(Refusal::Invalid { .. })), "a link is not followed");
    version(bench.try_to(put(Condition::Always, small(b"x"))));
    assert_eq!(bench.partition.files(), 2);
}

#[test]
fn what_is_reserved_is_its_sessions_until_it_is_put_given_up_or_the_session_ends() {
    let mut bench = Bench::new();
    let before = bench.partition.bytes();
    let Answer::Reserved(files) = bench.apply(reserve(4, 2)) else { panic!("not reserved") };
    let striped = |file, size| put(Condition::Always, Contents::Striped { file, size, first: Bytes::new() });
    assert!(matches!(bench.try_to(striped(files[0], 3 * 8192)), Err(Refusal::Invalid { .. })), "too long");
    let stored = version(bench.try_to(striped(files[0], 9000)));
    assert_eq!(stored.file, files[0]);
    assert!(matches!(bench.try_to(striped(files[0], 9000)), Err(Refusal::Stale(_))), "once");
    bench.session = Session(2);
    assert!(matches!(bench.try_to(striped(files[1], 9000)), Err(Refusal::Stale(_))), "another's");
    let unreserve = |file| Command::Unreserve { file };
    assert_eq!(bench.apply(unreserve(files[1])), Answer::Removed(None), "another's");
    bench.session = Session(1);
    assert_eq!(bench.apply(unreserve(files[0])), Answer::Removed(None), "an object stays");
    let Answer::Removed(Some(deleted)) = bench.apply(unreserve(files[1])) else { panic!("it was reserved") };
    assert_eq!((deleted.file, deleted.stripes.iter().count()), (files[1], 2));
    bench.apply(Command::PurgeDone { file: files[1] });
    let Answer::Closed(deleted) = bench.apply(Command::CloseSession { session: Session(1) }) else {
        panic!("not closed")
    };
    assert_eq!(deleted.iter().map(|deleted| deleted.file).collect::<Vec<_>>(), files[2..]);
    for file in &files[2..] {
        bench.apply(Command::PurgeDone { file: *file });
    }
    bench.session = Session(2);
    let removed =
        bench.apply(Command::DeleteObject { parent: ROOT, name: name("k"), condition: Condition::Is(stored) });
    assert!(matches!(removed, Answer::Removed(Some(deleted)) if deleted.file == files[0]));
    bench.apply(Command::PurgeDone { file: files[0] });
    assert_eq!((bench.partition.bytes(), bench.partition.files()), (before, 1));
}

#[test]
fn names_are_listed_as_keys_are_ordered() {
    let mut bench = Bench::new();
    for (text, kind) in [("a", NewKind::Directory), ("a-b", NewKind::File), ("a0", NewKind::File), ("b", NewKind::File)]
    {
        bench.create(ROOT, text, kind);
    }
    let mut listed = |prefix: &'static str, from: &'static str, max| {
        let command = Command::ListNames { directory: ROOT, prefix: prefix.into(), from: from.into(), max };
        match bench.apply(command) {
            Answer::Entries(entries) => {
                let suffix = |kind| if kind == Kind::Directory { "/" } else { "" };
                entries.iter().map(|entry| format!("{}{}", entry.name, suffix(entry.kind))).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(listed("", "", 10), ["a-b", "a/", "a0", "b"]);
    assert_eq!(listed("", "a/", 2), ["a/", "a0"]);
    assert_eq!(listed("a", "a0", 10), ["a0"]);
    assert_eq!(listed("a/", "", 10), ["a/"]);
    assert_eq!(listed("c", "", 10), Vec::<String>::new());
}

#[test]
fn an_object_has_its_attributes_from_the_moment_of_its_put_and_loses_them_with_the_next() {
    let mut bench = Bench::new();
    let with = |attributes: &[(&'static [u8], &'static [u8])], contents| {
        let attributes = attributes.iter().map(|(name, value)| (Bytes::from_static(name), Bytes::from_static(value)));
        let (placing, attributes) = (PlacementSpec::default(), attributes.collect());
        let (name, condition) = (name("k"), Condition::Always);
        Command::PutObject { parent: ROOT, name, condition, placing, attributes, contents }
    };
    let shape = |bench: &mut Bench, file| bench.try_to(Command::Xattr { file, name: Bytes::from_static(wire::SHAPE) });
    let before = bench.partition.bytes();
    let first = version(bench.try_to(with(&[(wire::SHAPE, b"[3]"), (b"user.mine", b"x")], small(b"one"))));
    assert_eq!(shape(&mut bench, first.file), Ok(Answer::Xattr(Bytes::from_static(b"[3]"))));
    let Answer::Reserved(files) = bench.apply(reserve(1, 2)) else { panic!() };
    let striped = Contents::Striped { file: files[0], size: 9000, first: Bytes::new() };
    let second = version(bench.try_to(with(&[(wire::SHAPE, b"[9000]")], striped)));
    assert_eq!(shape(&mut bench, second.file), Ok(Answer::Xattr(Bytes::from_static(b"[9000]"))));
    let third = version(bench.try_to(with(&[], small(b"two"))));
    assert!(matches!(shape(&mut bench, third.file), Err(Refusal::NoAttribute(_))));
    for kept in [wire::PLACEMENT, wire::ACL_ACCESS, b"user.tidemill.other", b"trusted.x"] {
        let refused = bench.try_to(with(&[(kept, b"whole")], small(b"three")));
        assert!(matches!(refused, Err(Refusal::NotPermitted(_))), "{refused:?}");
    }
    assert_eq!(get(&mut bench), Some((third, Bytes::from_static(b"two"))), "a put that is refused changes nothing");
    bench.apply(Command::PurgeDone { file: second.file });
    bench.apply(Command::DeleteObject { parent: ROOT, name: name("k"), condition: Condition::Always });
    assert_eq!(bench.partition.bytes(), before);
}

#[test]
fn stripes_that_do_not_lie_as_their_directory_says_are_put_elsewhere() {
    let mut bench = Bench::of(64);
    let at = |node| PlacementSpec { policy: Some(Policy::At(NodeId(node))), stripe_size: None };
    let set = |value: &'static [u8]| Command::SetXattr {
        file: ROOT,
        name: Bytes::from_static(wire::PLACEMENT),
        value: Bytes::from_static(value),
        mode: XattrMode::Set,
        kill_set_group_id: false,
    };
    bench.apply(set(b"at(2)"));
    let there = Layout::striped(STRIPE).in_partition(PartitionId(3));
    let reserved = |bench: &mut Bench, layout, by| match bench.apply(Command::Reserve {
        count: 1,
        stripes: 2,
        layout,
        policy: by,
    }) {
        Answer::Reserved(files) => files[0],
        other => panic!("{other:?}"),
    };
    let put = |file, placing| {
        let contents = Contents::Striped { file, size: 9000, first: Bytes::new() };
        let (condition, attributes) = (Condition::Always, Box::default());
        Command::PutObject { parent: ROOT, name: name("k"), condition, placing, attributes, contents }
    };
    let usual = reserved(&mut bench, Layout::striped(STRIPE), None);
    assert_eq!(bench.apply(put(usual, PlacementSpec::default())), Answer::WrongPlacement(at(2)));
    let other = reserved(&mut bench, there, Some(Policy::At(NodeId(1))));
    assert_eq!(bench.apply(put(other, PlacementSpec::default())), Answer::WrongPlacement(at(2)));
    assert_eq!(get(&mut bench), None, "nothing was put");
    let Answer::Removed(Some(deleted)) = bench.apply(Command::Unreserve { file: other }) else {
        panic!("it was reserved")
    };
    assert_eq!(deleted.layout, there);
    bench.apply(Command::PurgeDone { file: other });
    let right = reserved(&mut bench, there, Some(Policy::At(NodeId(2))));
    assert_eq!(version(bench.try_to(put(right, PlacementSpec::default()))).file, right);
    let placement = |bench: &mut Bench, file| bench.apply(Command::Placement { file });
    let Answer::Placement(BytePlacement { placing, layout, decided: true, stripes, .. }) = placement(&mut bench, right)
    else {
        panic!()
    };
    assert_eq!((placing, layout, stripes.iter().next()), (at(2), there, Some(0)));
    // The placement of the put takes precedence over that of its directory.
    let striped = PlacementSpec { policy: Some(Policy::Striped), stripe_size: None };
    let Answer::ObjectStored(StoredObject { version, deleted: Some(deleted) }) = bench.apply(put(usual, striped))
    else {
        panic!("not put")
    };
    assert_eq!((version.file, deleted.file, deleted.layout), (usual, right, there));
    let beyond = there.in_partition(PartitionId(u16::MAX));
    for impossible in [beyond, Layout::striped(STRIPE * 2)] {
        let refused = bench.try_to(Command::Reserve { count: 1, stripes: 1, layout: impossible, policy: None });
        assert!(matches!(refused, Err(Refusal::Invalid { .. })), "{impossible:?}");
    }
}

#[test]
fn an_object_has_as_many_stripes_as_it_is_long_however_many_were_reserved() {
    let mut bench = Bench::new();
    let Answer::Reserved(files) = bench.apply(reserve(1, 16)) else { panic!("not reserved") };
    let contents = Contents::Striped { file: files[0], size: u64::from(STRIPE) + 1, first: Bytes::new() };
    version(bench.try_to(put(Condition::Always, contents)));
    let delete = Command::DeleteObject { parent: ROOT, name: name("k"), condition: Condition::Always };
    let Answer::Removed(Some(deleted)) = bench.apply(delete) else { panic!("it had stripes") };
    assert_eq!(deleted.stripes.iter().count(), 2);
}
