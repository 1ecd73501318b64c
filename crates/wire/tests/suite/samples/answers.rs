//! Sample answers and failures.

use super::{EXTENT, FILE, Fields, INTENT, KINDS, LEASE, OWNER, SESSION, TIME, host, inherited, layout, name, samples};
use bytes::Bytes;
use placement::{
    Epoch, FileId, Layout, NodeId, PartitionEntry, PartitionId, PartitionMap, PartitionReplica, Policy, ReplicaState,
};
use std::{sync::Arc, time::Duration};
use wire::{
    Answer, Attributes, Content, Decision, DirEntry, Extent, Failure, FieldSamples, FoundObject, HelloReply, HostFile,
    InheritedAttributes, Intent, Kind, LeaseKind, LeaseStatus, Lock, LockKind, LockOwner, LockStyle, MovedPartition,
    Object, ObjectMeta, OpenFlags, OpenLease, PendingDelete, PendingTruncate, RangeContent, Refusal, SpaceShortage,
    SpaceUsage, StripeRuns, UnfinishedWork, Version, WorkerStatus, codec::ShmRange,
};

pub fn replies() -> Vec<Result<Answer, Failure>> {
    let mut replies: Vec<_> = answers().into_iter().map(Ok).collect();
    replies.extend(refusals().into_iter().map(|refusal| Err(Failure::Refused(refusal))));
    replies.extend([
        Err(Failure::Lost("the connection broke".into())),
        Err(Failure::Unreachable("too many requests".into())),
    ]);
    replies
}

fn map() -> Arc<PartitionMap> {
    let map = PartitionMap::new((0..64).map(|partition| entry(NodeId(partition % 5 * 1000))).collect()).unwrap();
    let mut map = map.with_addresses([(NodeId(1000), "host".into()), (NodeId(2000), "".into())]);
    map.depart(NodeId(3));
    Arc::new(map)
}

fn entry(server: NodeId) -> PartitionEntry {
    let replica = |state| PartitionReplica { node: NodeId(7), state };
    let others = [ReplicaState::Joins, ReplicaState::Follows].map(replica);
    PartitionEntry { epoch: Epoch(1 << 40), server, others: (server == NodeId(0)).then(|| others.into()) }
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

fn entries() -> Vec<DirEntry> {
    let entry =
        |(at, kind)| DirEntry { name: name(&format!("entry {at}")), file: FILE, kind, cookie: (1 << 62) + at as u64 };
    KINDS.into_iter().enumerate().map(entry).collect()
}

// The first sample of each type goes together with those of all others.
samples! {
    HelloReply: [HelloReply { node: NodeId(7), session: SESSION, map: map(), seed: u64::MAX, stripe_bytes: 1 << 20 }],
    SpaceUsage: [
        SpaceUsage { capacity: 1 << 40, used: 5, waiting: 1, extent_free: Some(3), ..SpaceUsage::default() },
        SpaceUsage::default(),
    ],
    Attributes: [attributes(None), attributes(Some(EXTENT))],
    Option<Attributes>: [None, Some(attributes(Some(EXTENT)))],
    Kind: KINDS,
    Option<Arc<HostFile>>: [None, Some(Arc::new(host()))],
    PendingTruncate: [truncation()],
    Option<PendingTruncate>: [None, Some(truncation())],
    Option<PendingDelete>: [None, Some(deleted())],
    Vec<PendingDelete>: [
        vec![deleted()],
        vec![deleted(), PendingDelete { file: FILE, layout: Layout::striped(65_536), stripes: StripeRuns::new() }],
    ],
    UnfinishedWork: [
        UnfinishedWork { prepared: vec![INTENT], committed: vec![INTENT; 2], deleted: vec![deleted()] },
        UnfinishedWork::default(),
    ],
    Vec<DirEntry>: [entries(), Vec::new()],
    Vec<FileId>: [vec![FILE; 3], vec![FILE; 16]],
    Vec<Bytes>: [vec![Bytes::from_static(b"user.a"), Bytes::from_static(b"user.b")]],
    Vec<Intent>: [vec![INTENT]],
    Policy: [Policy::Balanced, Policy::Striped, Policy::Single],
    Option<Layout>: [None, Some(layout())],
    InheritedAttributes: [inherited()],
    Box<InheritedAttributes>: [Box::new(inherited())],
    Decision: [Decision::Open, Decision::Committed { others: vec![PartitionId(1)] }, Decision::Aborted],
    ObjectMeta: [ObjectMeta { version: Version { file: FILE, change: 9 }, size: 1 << 40, modified: TIME }],
    Version: [Version { file: FILE, change: 9 }],
    Option<Lock>: [
        None,
        Some(Lock { owner: LockOwner::Session(1), kind: LockKind::Write, style: LockStyle::Whole, pid: 77 }),
    ],
    Content: [
        Content::Bytes(Bytes::from_static(b"short")),
        Content::Bytes(Bytes::new()),
        Content::Striped(layout()),
        Content::Bound(Arc::new(host())),
        Content::Extent(EXTENT),
        Content::Shm(vec![ShmRange { segment: 17, offset: 1 << 40, length: 64 }]),
    ],
    LeaseStatus: [
        LeaseStatus::Open,
        LeaseStatus::Ended { deleted: None },
        LeaseStatus::Ended { deleted: Some(deleted()) },
        LeaseStatus::EndedRemote { file: FILE, session: SESSION, locked: true },
    ],
    Vec<OpenLease>: [
        Vec::new(),
        [LeaseKind::Extent(EXTENT), LeaseKind::Bytes, LeaseKind::Directory]
            .map(|kind| OpenLease { id: LEASE, file: FILE, flags: OpenFlags::APPEND, kind })
            .into(),
    ],
    Vec<WorkerStatus>: [
        vec![
            WorkerStatus { name: "leases".into(), turns: 1 << 40, done: 7, backlog: 3, ..WorkerStatus::default() },
            WorkerStatus { running: 1, failed: 1, last_error: Some("why".into()), ..WorkerStatus::default() },
        ],
        Vec::new(),
    ],
    NodeId: [NodeId(300)],
    Option<NodeId>: [None, Some(NodeId(300))],
    LockOwner: [LockOwner::Process { node: NodeId(300), process: 1 << 20 }],
    Box<Answer>: [Box::new(Answer::NoEntry), Box::new(long_content(3000))],
}

fn long_content(length: u32) -> Answer {
    Answer::Content(RangeContent { length, content: Content::Bytes(Bytes::from(vec![4; length as usize])) })
}

fn answers() -> Vec<Answer> {
    let valid = Answer::samples::<Fields>().into_iter().filter(|answer| answer.check().is_ok());
    let head = ObjectMeta { version: Version { file: FILE, change: 9 }, size: 1 << 40, modified: TIME };
    let content = Content::Bytes(Bytes::from(vec![6; 3000]));
    let object = Answer::Object(FoundObject { head, striped: None, length: 3000, content });
    let others = [
        long_content(70_000),
        object,
        Answer::Bytes(Bytes::from(vec![1; 4097])),
        Answer::Xattr(Bytes::from(vec![3; 64 << 10])),
    ];
    valid.chain(others).collect()
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
        Refusal::Moved(Box::new(MovedPartition { partition: PartitionId(7), entry: entry(NodeId(0)) })),
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
