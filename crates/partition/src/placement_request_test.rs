//! Tests of placement decisions in one partition.

use crate::{
    Partition, Settings,
    partition_test::{Bench, name},
};
use bytes::Bytes;
use placement::{
    Distribution, FileId, Layout, NodeId, PartitionId, PlacementSpec, Policy, StripeSize, single_partition,
};
use wire::{
    AllocateMode, Answer, BytePlacement, ChangedFile, Command, ExtentRequest, NewInode, NewKind, OpenedFile, Outcome,
    Owner, PLACEMENT, PendingTruncate, PlacementChoice, Refusal, STRIPE_SIZE, StripedWrite, Timestamp, WritePlace,
    XattrMode,
};

const ROOT: FileId = FileId::ROOT;
const STRIPE: u32 = 1 << 20;

fn bench() -> Bench {
    let settings = Settings { partitions: 64, ..Settings::new(7, STRIPE) };
    let partition = Partition::with_root(settings, Owner::default(), 0o755, Timestamp::default());
    let mut bench = Bench::new();
    bench.partition = partition;
    bench
}

fn set(bench: &mut Bench, file: FileId, name: &'static [u8], value: &'static str) -> Outcome<Answer> {
    let (name, value) = (Bytes::from_static(name), value.into());
    bench.try_to(Command::SetXattr { file, name, value, mode: XattrMode::Set, kill_set_group_id: false })
}

fn write(file: FileId, length: u32) -> Command {
    Command::Write { file, place: WritePlace::At(0), length, data: Bytes::new(), kill_set_id: false }
}

fn layout(bench: &mut Bench, file: FileId) -> (PlacementSpec, Layout, bool) {
    match bench.apply(Command::Placement { file }) {
        Answer::Placement(BytePlacement { placing, layout, decided, .. }) => (placing, layout, decided),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_has_its_layout_from_the_start_where_a_hash_says_it() {
    let mut bench = bench();
    let usual = bench.create(ROOT, "usual", NewKind::File).file;
    assert_eq!(layout(&mut bench, usual), (PlacementSpec::default(), Layout::striped(STRIPE), true));
    set(&mut bench, ROOT, PLACEMENT, "single").unwrap();
    set(&mut bench, ROOT, STRIPE_SIZE, "64KiB").unwrap();
    let mut homes = Vec::new();
    for number in 0..200 {
        let text = format!("f{number}");
        let file = bench.create(ROOT, &text, NewKind::File).file;
        let (placing, layout, decided) = layout(&mut bench, file);
        assert_eq!((placing.policy, placing.stripe_size), (Some(Policy::Single), StripeSize::new(65_536).ok()));
        let home = single_partition(7, ROOT, text.as_bytes(), 64);
        assert_eq!((layout.distribution(), layout.stripe_bytes(), decided), (Distribution::Single(home), 65_536, true));
        homes.push(home);
    }
    homes.sort();
    homes.dedup();
    assert!(homes.len() > 50, "they spread");
    assert_eq!(layout(&mut bench, usual).0, PlacementSpec::default(), "what was there before stays as it was");
}

#[test]
fn a_file_whose_policy_needs_a_client_is_placed_once_before_it_has_stripes() {
    let mut bench = bench();
    set(&mut bench, ROOT, PLACEMENT, "at(3)").unwrap();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    let by_hash = Layout::striped(STRIPE).in_partition(single_partition(7, ROOT, b"f", 64));
    let unplaced = Answer::NeedsPlacement(PlacementChoice { policy: Policy::At(NodeId(3)), layout: by_hash });
    assert_eq!(bench.apply(write(file, 5000)), unplaced);
    let mode = AllocateMode::Extend;
    assert_eq!(bench.apply(Command::Allocate { file, offset: 0, length: 9000, mode }), unplaced);
    let (_, shown, decided) = layout(&mut bench, file);
    assert_eq!((shown, decided), (by_hash, false));
    let place = |partition| Command::Place { file, partition: PartitionId(partition) };
    assert!(matches!(bench.try_to(place(64)), Err(Refusal::Invalid { .. })), "there is no such partition");
    bench.apply(place(9));
    bench.apply(place(10));
    let layout = by_hash.in_partition(PartitionId(9));
    assert_eq!(
        bench.apply(write(file, 5000)),
        Answer::Stripes(StripedWrite { offset: 0, generation: 0, size: 0, layout })
    );
    assert!(matches!(set(&mut bench, file, PLACEMENT, "single"), Err(Refusal::AlreadyPlaced(_))));
    bench.apply(Command::PublishSize { file, generation: 0, end: 5000 });
    let changes = wire::Changes { size: Some(10), ..wire::Changes::default() };
    let Answer::Changed(ChangedFile { truncation: Some(PendingTruncate { layout: cut, .. }), .. }) =
        bench.apply(Command::Change { file, changes })
    else {
        panic!("stripes are to be cut")
    };
    let removed = bench.apply(Command::Unlink { parent: ROOT, name: name("f") });
    let Answer::Removed(Some(deleted)) = removed else { panic!("{removed:?}") };
    assert_eq!((cut, deleted.layout), (layout, layout));
}

#[test]
fn who_makes_a_file_may_say_where_it_lies() {
    let mut bench = bench();
    set(&mut bench, ROOT, PLACEMENT, "here").unwrap();
    set(&mut bench, ROOT, STRIPE_SIZE, "4MiB").unwrap();
    let placing = PlacementSpec { policy: Some(Policy::Striped), stripe_size: None };
    let inode = NewInode { placing: placing.boxed(), ..NewInode::new(NewKind::File, 0o600, Owner::default()) };
    let create = Command::Create { parent: ROOT, name: name("f"), inode, open: false, extent: ExtentRequest::None };
    let Answer::Opened(OpenedFile { attributes, .. }) = bench.apply(create) else { panic!("it is made") };
    let (placing, layout, decided) = layout(&mut bench, attributes.file);
    assert_eq!((placing.policy, decided), (Some(Policy::Striped), true));
    assert_eq!(layout, Layout::sized(STRIPE, StripeSize::new(4 << 20).unwrap()));
}
