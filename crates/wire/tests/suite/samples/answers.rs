//! Sample answers and failures.

use super::{EXTENT, FILE, INTENT, KINDS, LEASE, OWNER, SESSION, TIME, host, inherited, layout, name, placing};
use bytes::Bytes;
use placement::{Epoch, Layout, NodeId, PartitionId, PartitionMap, PlacementSpec, Policy};
use std::{sync::Arc, time::Duration};
use wire::{
    Answer, Attributes, Content, Decision, DirEntry, Extent, Failure, HelloReply, LeaseKind, LeaseStatus, Lock,
    LockKind, LockOwner, LockStyle, Object, ObjectMeta, OpenFlags, OpenLease, PendingDelete, PendingTruncate, Refusal,
    SpaceShortage, SpaceUsage, StripeRuns, UnfinishedWork, Version, codec::ShmRange,
};

pub fn replies() -> Vec<Result<Answer, Failure>> {
    let answers = [basic(), of_files(), of_bytes(), of_objects(), of_open_leases(), of_intents()].concat();
    let mut replies: Vec<_> = answers.into_iter().map(Ok).collect();
    replies.extend(refusals().into_iter().map(|refusal| Err(Failure::Refused(refusal))));
    replies.extend([
        Err(Failure::StaleMap(map())),
        Err(Failure::Lost("the connection broke".into())),
        Err(Failure::Unreachable("too many requests".into())),
    ]);
    replies
}

fn map() -> Arc<PartitionMap> {
    let nodes = (0..64).map(|partition| NodeId(partition % 5 * 1000)).collect();
    Arc::new(PartitionMap::new(Epoch(1 << 40), nodes).unwrap())
}

fn attributes(whole: Option<Extent>) -> Attributes {
    Attributes {
        file: FILE,
        kind: KINDS[0],
        size: 1 << 40,
        allocated: 4096,
        mode: 0o755,
        links: 1,
        owner: OWNER,
        accessed: TIME,
        modified: TIME,
        changed: TIME,
        created: TIME,
        version: 1 << 40,
        extent: whole,
        cacheable: whole.is_none(),
    }
}

pub fn runs() -> StripeRuns {
    let mut runs = StripeRuns::new();
    runs.insert(0, 3);
    runs.insert(u64::MAX - 9, u64::MAX);
    runs
}

fn deleted() -> PendingDelete {
    PendingDelete { file: FILE, layout: layout(), stripes: runs() }
}

fn truncation() -> PendingTruncate {
    PendingTruncate { layout: layout().in_partition(PartitionId(9)), generation: 8, length: 1 << 21, stripes: runs() }
}

fn basic() -> Vec<Answer> {
    let welcome = HelloReply { node: NodeId(7), session: SESSION, map: map(), seed: u64::MAX, stripe_bytes: 1 << 20 };
    let usage = SpaceUsage { capacity: 1 << 40, used: 5, waiting: 1, extent_free: Some(3), ..SpaceUsage::default() };
    let leftovers = UnfinishedWork { prepared: vec![INTENT], committed: vec![INTENT; 2], deleted: vec![deleted()] };
    vec![
        Answer::Done,
        Answer::Hello(welcome),
        Answer::Usage(usage),
        Answer::Usage(SpaceUsage::default()),
        Answer::UnfinishedWork(leftovers),
        Answer::UnfinishedWork(UnfinishedWork::default()),
        Answer::Closed(vec![
            deleted(),
            PendingDelete { file: FILE, layout: Layout::striped(65_536), stripes: StripeRuns::new() },
        ]),
    ]
}

fn of_files() -> Vec<Answer> {
    let (file, lock) =
        (FILE, Lock { owner: LockOwner::Session(1), kind: LockKind::Write, style: LockStyle::Whole, pid: 77 });
    let entry = |(at, kind)| DirEntry { name: name(&format!("entry {at}")), file, kind, cookie: (1 << 62) + at as u64 };
    let found = |kind| Answer::Found { file, kind, attributes: None };
    let mut answers: Vec<_> = KINDS.into_iter().map(found).collect();
    let whole = attributes(Some(EXTENT));
    answers.extend([
        Answer::Attributes(attributes(None)),
        Answer::Found { file, kind: KINDS[1], attributes: Some(whole) },
        Answer::Opened {
            attributes: whole,
            host: Some(Arc::new(host())),
            truncation: Some(truncation()),
            shared: true,
        },
        Answer::Opened { attributes: whole, host: None, truncation: None, shared: false },
        Answer::Changed { attributes: whole, truncation: Some(truncation()) },
        Answer::Entries(KINDS.into_iter().enumerate().map(entry).collect()),
        Answer::Entries(Vec::new()),
        Answer::Target(Bytes::from_static(b"/a/b")),
        Answer::Parent(file),
        Answer::Removed { deleted: None },
        Answer::Removed { deleted: Some(deleted()) },
        Answer::Renamed { deleted: Some(deleted()), remote: vec![file; 3] },
        Answer::Fragments { attributes: whole, inherited: Box::new(inherited()), fragments: vec![file; 16] },
        Answer::Inherited(inherited()),
        Answer::Placement { placing: placing(Policy::Here), layout: layout(), decided: true, stripes: runs() },
        Answer::Placement {
            placing: PlacementSpec::default(),
            layout: layout(),
            decided: false,
            stripes: StripeRuns::new(),
        },
        Answer::UnownedStripes(runs()),
        Answer::UnownedStripes(StripeRuns::new()),
        Answer::Xattr(Bytes::from(vec![3; 64 << 10])),
        Answer::Xattrs(vec![Bytes::from_static(b"user.a"), Bytes::from_static(b"user.b")]),
        Answer::Conflict(None),
        Answer::Conflict(Some(lock)),
    ]);
    answers
}

fn of_bytes() -> Vec<Answer> {
    let content = |length, content| Answer::Content { length, content };
    vec![
        content(70_000, Content::Bytes(Bytes::from(vec![9; 70_000]))),
        content(9, Content::Bytes(Bytes::from_static(b"short"))),
        content(0, Content::Bytes(Bytes::new())),
        content(u32::MAX, Content::Striped(layout())),
        content(4, Content::Bound(Arc::new(host()))),
        content(5, Content::Extent(EXTENT)),
        Answer::Written { offset: 1 << 62 },
        Answer::Stripes { offset: 0, generation: 1, size: 2, layout: layout() },
        Answer::Extent(EXTENT),
        Answer::ExtentWritten { offset: 3, length: 4 },
        Answer::NeedsSpill { generation: 5, layout: layout(), head: Bytes::from_static(&[8; 4096]) },
        Answer::NeedsPlacement { policy: Policy::Balanced, layout: layout() },
        Answer::NeedsPlacement { policy: Policy::Striped, layout: layout() },
        Answer::NeedsPlacement { policy: Policy::Single, layout: layout() },
        Answer::NeedsTruncate(truncation()),
        Answer::Bytes(Bytes::from(vec![1; 4097])),
        Answer::Bytes(Bytes::new()),
        Answer::Offset(u64::MAX),
        Answer::Allocated { generation: 6, stripes: runs(), layout: layout() },
    ]
}

fn of_objects() -> Vec<Answer> {
    let version = Version { file: FILE, change: 9 };
    let head = ObjectMeta { version, size: 1 << 40, modified: TIME };
    let object = |striped, length, content| Answer::Object { head, striped, length, content };
    vec![
        object(Some(layout()), 1 << 20, Content::Striped(layout())),
        object(None, 3000, Content::Bytes(Bytes::from(vec![6; 3000]))),
        object(None, 0, Content::Bytes(Bytes::new())),
        object(Some(layout()), 3 << 20, Content::Shm(vec![ShmRange { segment: 17, offset: 1 << 40, length: 3 << 20 }])),
        Answer::ObjectStored { version, deleted: None },
        Answer::ObjectStored { version, deleted: Some(deleted()) },
        Answer::Reserved(vec![FILE; 2]),
        Answer::Walked { reached: FILE, remaining: 2 },
    ]
}

fn of_open_leases() -> Vec<Answer> {
    let open_lease = |kind| OpenLease { id: LEASE, file: FILE, flags: OpenFlags::APPEND, kind };
    vec![
        Answer::LeaseStatus(LeaseStatus::Open),
        Answer::LeaseStatus(LeaseStatus::Ended { deleted: None }),
        Answer::LeaseStatus(LeaseStatus::Ended { deleted: Some(deleted()) }),
        Answer::LeaseStatus(LeaseStatus::EndedRemote { file: FILE, session: SESSION }),
        Answer::OpenLeases(Vec::new()),
        Answer::OpenLeases([LeaseKind::Extent(EXTENT), LeaseKind::Bytes, LeaseKind::Directory].map(open_lease).into()),
    ]
}

fn of_intents() -> Vec<Answer> {
    let held = vec![INTENT];
    let bytes = Answer::Content { length: 3000, content: Content::Bytes(Bytes::from(vec![4; 3000])) };
    vec![
        Answer::NeedsTransaction,
        Answer::WrongPlacement(placing(Policy::Here)),
        Answer::Prepared { created: vec![FILE] },
        Answer::Settled { deleted: vec![deleted()] },
        Answer::Decided(Decision::Open),
        Answer::Decided(Decision::Committed { others: vec![PartitionId(1)] }),
        Answer::Decided(Decision::Aborted),
        Answer::Unsettled { intents: held.clone(), answer: Box::new(Answer::NoEntry) },
        Answer::Unsettled { intents: held, answer: Box::new(bytes) },
        Answer::NoEntry,
    ]
}

fn refusals() -> Vec<Refusal> {
    let object = || Object::File(FILE);
    let shortage = SpaceShortage {
        node: Some(NodeId(2)),
        capacity: 1,
        used: 2,
        wanted: 3,
        waited: Duration::new(u64::MAX, 999_999_999),
    };
    vec![
        Refusal::NotFound(Object::Entry { parent: FILE, name: name("lost") }),
        Refusal::Exists(Object::Handle(9)),
        Refusal::NotDirectory(Object::Text("a/b\u{e9}".into())),
        Refusal::IsDirectory(Object::Pool),
        Refusal::NotEmpty(object()),
        Refusal::NameTooLong(object()),
        Refusal::ReadOnly(object()),
        Refusal::NoSpace(shortage),
        Refusal::TooLarge { object: object(), limit: u64::MAX },
        Refusal::Invalid { object: object(), why: "no".into() },
        Refusal::NotPermitted(object()),
        Refusal::BadHandle(object()),
        Refusal::TooManyOpen { object: object(), limit: 1 },
        Refusal::Busy(object()),
        Refusal::LockedByIntent { intent: INTENT },
        Refusal::Split { directory: FILE, bits: 4 },
        Refusal::TooManyLinks { object: object(), limit: 65_000 },
        Refusal::Stale(object()),
        Refusal::SessionEnded,
        Refusal::OutcomeUnknown(object()),
        Refusal::VersionMismatch { object: object(), present: None },
        Refusal::VersionMismatch { object: object(), present: Some(Version { file: FILE, change: 1 }) },
        Refusal::CrossesPools,
        Refusal::Unavailable { object: object(), tries: 4, why: "gone".into() },
        Refusal::AlreadyPlaced(object()),
        Refusal::NoAttribute(object()),
        Refusal::AttributeTooLong { object: object(), limit: 255 },
        Refusal::TooManyAttributes(object()),
        Refusal::Locked(object()),
        Refusal::Deadlock(object()),
        Refusal::TooManyLocks { object: object(), limit: 2 },
        Refusal::BeyondEnd(object()),
        Refusal::TimedOut(object()),
        Refusal::Interrupted(object()),
        Refusal::Unsupported { object: object(), what: "this".into() },
        Refusal::NotAdmitted { why: "who".into() },
        Refusal::Incompatible { why: "old".into() },
        Refusal::Io { object: object(), why: "that".into() },
    ]
}
