//! Sample requests.

use super::{
    DIRECTORY, EXTENT, FILE, Fields, INTENT, KINDS, LEASE, OWNER, SESSION, TIME, TIMES, host, inherited, inode, layout,
    name, placing, samples,
};
use bytes::Bytes;
use placement::{Epoch, FileId, Layout, NodeId, PartitionId, PlacementSpec, Policy, StripeNo};
use wire::{
    AllocateMode, Answer, Body, Changes, Command, Condition, Content, Contents, Credentials, DirAccess, DirEntry,
    Extent, ExtentAction, ExtentRequest, FieldSamples, Intent, Kind, Lock, LockKind, LockOwner, LockStyle, Mode,
    MoveStep, NOT_FOR_CLIENTS, Name, NewInode, NewKind, ObjectAttributes, OpenFlags, Part, RangeContent, RenameFrom,
    RenameMode, RenameTo, Request, RequestId, SeekTo, Session, StripeAction, StripeRuns, TimeChange, Times, Version,
    WalkAction, WritePlace, XattrMode,
};

const LONG: &[u8] = &[0xa5; 3000];

// The first sample of each type goes together with those of all others.
samples! {
    bool: [false, true],
    u32: [64, 0, 3000, 1 << 20, u32::MAX],
    u64: [1 << 33, 0, u64::MAX],
    Bytes: [Bytes::from_static(&[0x5a; 64]), Bytes::new(), Bytes::from_static(LONG)],
    Name: [name("new"), Name::new(&[0xff; 255]).unwrap()],
    Option<Name>: [None, Some(name("later"))],
    FileId: [FILE, DIRECTORY],
    PartitionId: [PartitionId(4095)],
    Vec<PartitionId>: [Vec::new(), vec![PartitionId(0), PartitionId(4095)]],
    Session: [SESSION],
    Option<Session>: [None, Some(SESSION)],
    Intent: [INTENT],
    Extent: [EXTENT],
    Times: [TIMES],
    Layout: [layout()],
    PlacementSpec: [placing(Policy::Single), PlacementSpec::default()],
    Option<Policy>: [None, Some(Policy::Here)],
    StripeRuns: [super::answers::runs(), StripeRuns::new()],
    SeekTo: [SeekTo::Data, SeekTo::Hole],
    WritePlace: [WritePlace::At(1 << 40), WritePlace::End],
    XattrMode: [XattrMode::Set, XattrMode::Create, XattrMode::Replace],
    AllocateMode: [
        AllocateMode::Extend,
        AllocateMode::KeepSize,
        AllocateMode::PunchHole,
        AllocateMode::ZeroRange,
        AllocateMode::ZeroRangeKeepSize,
    ],
    OpenFlags: [OpenFlags::APPEND, OpenFlags::READ_WRITE],
    ExtentRequest: [ExtentRequest::None, ExtentRequest::Any, ExtentRequest::Local, ExtentRequest::Allocated(EXTENT)],
    RenameFrom: [RenameFrom { parent: DIRECTORY, name: name("old") }],
    RenameTo: [RenameTo { parent: FILE, name: name("new") }],
    RenameMode: [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange],
    Condition: [Condition::Always, Condition::Absent, Condition::Is(Version { file: FILE, change: u64::MAX })],
    ObjectAttributes: [
        [(Bytes::from_static(b"user.tidemill.shape"), Bytes::from_static(b"[2, 3]"))].into(),
        ObjectAttributes::default(),
    ],
    Contents: [
        Contents::Inline(Bytes::from_static(b"value")),
        Contents::Inline(Bytes::new()),
        Contents::Striped { file: FILE, size: 1 << 40, first: Bytes::new() },
        Contents::Striped { file: FILE, size: LONG.len() as u64, first: Bytes::from_static(LONG) },
    ],
    Changes: [Changes::default(), all_changes()],
}

impl FieldSamples<Lock> for Fields {
    fn samples() -> Vec<Lock> {
        let lock = |kind, style| Lock { owner: LockOwner::Session(u64::MAX), kind, style, pid: 1 };
        let of = |owner| Lock { owner, ..lock(LockKind::Read, LockStyle::Whole) };
        vec![
            lock(LockKind::Read, LockStyle::EVERYWHERE),
            lock(LockKind::Write, LockStyle::Whole),
            lock(LockKind::Unlock, LockStyle::Range { start: 9, end: 9 }),
            of(LockOwner::Process { node: NodeId(2), process: 0 }),
            of(LockOwner::Open(LEASE)),
        ]
    }
}

impl FieldSamples<NewInode> for Fields {
    fn samples() -> Vec<NewInode> {
        let special = |kind: &Kind| !matches!(kind, Kind::File | Kind::Directory | Kind::Symlink);
        let target = Bytes::from_static(b"../there");
        let kinds = [NewKind::File, NewKind::Directory, NewKind::Symlink(target), NewKind::Bound(Box::new(host()))];
        let nodes = KINDS.into_iter().filter(special).map(NewKind::Node);
        let mut inodes: Vec<_> = kinds.into_iter().chain(nodes).map(inode).collect();
        inodes.push(NewInode::new(NewKind::File, Mode::default(), OWNER));
        inodes
    }
}

impl FieldSamples<Vec<Part>> for Fields {
    fn samples() -> Vec<Vec<Part>> {
        vec![parts(), vec![Part::MoveLease], Vec::new()]
    }
}

pub fn requests() -> Vec<Request> {
    let mut bodies = vec![Body::Hello, Body::Usage, Body::Stop, Body::Workers];
    bodies.extend(commands().into_iter().map(|command| {
        let request_id =
            command.is_mutation().then_some(RequestId { session: SESSION, number: 70_000, settled: 69_999 });
        Body::Meta { request_id, command }
    }));
    let request_id = Some(RequestId { session: SESSION, number: 1, settled: 1 });
    let data = Bytes::from_static(LONG);
    let write = ExtentAction::Write { offset: 1 << 33, data: data.clone() };
    bodies.push(Body::Extent { request_id: None, file: FILE, extent: EXTENT, action: write });
    bodies.push(Body::Extent { request_id, file: FILE, extent: EXTENT, action: ExtentAction::Append { data } });
    let command = Box::new(Command::Read { file: FILE, offset: 0, length: 1 << 20 });
    let answer = Answer::Content(RangeContent { length: 1 << 20, content: Content::Extent(EXTENT) });
    bodies.push(Body::Finish { request_id: None, file: FILE, command, answer: Box::new(answer) });
    let command = Box::new(Command::Change { file: FILE, changes: all_changes() });
    bodies.push(Body::Finish { request_id, file: FILE, command, answer: Box::new(Answer::Extent(EXTENT)) });
    bodies.push(Body::NoteUnused { file: FILE });
    let process = LockOwner::Process { node: NodeId(2), process: 0 };
    let lock = Lock { owner: process, kind: LockKind::Read, style: LockStyle::Whole, pid: 1 };
    bodies.push(Body::NoteLock { file: FILE, lock });
    bodies.extend(walks());
    bodies.push(Body::ProbeLease { lease: LEASE });
    bodies.push(Body::EndSession { session: SESSION });
    bodies.extend([false, true].map(|left| Body::EndMovedSession { session: SESSION, left }));
    bodies.push(Body::FindLeases { device: 57, inode: 1 << 33, after: LEASE });
    let (file, stripe) = (FILE, StripeNo(5));
    let stripes = stripe_actions().into_iter().map(|action| MoveStep::Stripe { file, stripe, action });
    let state = MoveStep::State { data: Bytes::from_static(LONG) };
    let steps = [MoveStep::Reserve { bytes: 1 << 40 }, state, MoveStep::Prepare, MoveStep::Cancel];
    bodies.extend(stripes.chain(steps).map(|step| Body::Move { step }));
    bodies.push(Body::Manage { message: Bytes::from_static(LONG) });
    bodies.extend(stripe_actions().into_iter().map(|action| Body::Stripe { file: FILE, stripe: StripeNo(5), action }));
    bodies.into_iter().enumerate().map(|(count, body)| request(body, count % 2 == 1)).collect()
}

fn request(body: Body, skip_ack: bool) -> Request {
    Request { epoch: Epoch(3), session: SESSION, skip_ack, partition: PartitionId(4095), body }
}

/// Returns commands that encode like any other, and are rejected when a client sends them.
pub fn never_from_clients() -> Vec<Command> {
    Command::samples::<Fields>().into_iter().filter(|command| command.check() == Err(NOT_FOR_CLIENTS)).collect()
}

fn commands() -> Vec<Command> {
    let valid = Command::samples::<Fields>().into_iter().filter(|command| command.check().is_ok());
    let data = Bytes::from_static(LONG);
    let inline = Command::Write { file: FILE, place: WritePlace::End, length: 3000, data, kill_set_id: false };
    let striped =
        Command::Write { file: FILE, place: WritePlace::End, length: 1 << 20, data: Bytes::new(), kill_set_id: false };
    valid.chain([inline, striped]).collect()
}

fn all_changes() -> Changes {
    Changes {
        mode: Some(0o644),
        uid: Some(0),
        gid: Some(u32::MAX - 1),
        size: Some(1 << 45),
        accessed: Some(TimeChange::Now),
        modified: Some(TimeChange::At(TIME)),
        kill_set_id: true,
    }
}

fn walks() -> Vec<Body> {
    let (top, directory, partition) = (DIRECTORY, FILE, PartitionId(9));
    let request_id =
        |command: &Command| command.is_mutation().then_some(RequestId { session: SESSION, number: 5, settled: 4 });
    let then = |command| Some(Box::new(WalkAction { directory, partition, request_id: request_id(&command), command }));
    let walk = |components: Vec<_>, then| Body::Walk { start: top, components, credentials: None, action: then };
    let mut walks = vec![walk(vec![name("a"); 256], None), walk(Vec::new(), None)];
    walks.extend([DirAccess::Lookup, DirAccess::Create, DirAccess::Remove].map(|needs| {
        let who = Some(Credentials { uid: 1000, gid: 100, groups: vec![4, 27], access: needs });
        Body::Walk { start: top, components: vec![name("a")], credentials: who, action: None }
    }));
    let of_objects = commands().into_iter().filter(|command| {
        matches!(command, Command::GetObject { .. } | Command::PutObject { .. } | Command::DeleteObject { .. })
    });
    walks.extend(of_objects.map(|command| walk(vec![name("a"), name("b")], then(command))));
    walks
}

fn parts() -> Vec<Part> {
    let (directory, file, parent) = (DIRECTORY, FILE, DIRECTORY);
    let fragments = vec![FILE; 16];
    let acl = Bytes::from_static(b"system.posix_acl_access");
    let entry = DirEntry { name: name("e"), file, kind: Kind::Symlink, cookie: 1 << 62 };
    vec![
        Part::Entry { directory, name: name("a"), before: None, after: Some((file, Kind::Directory)) },
        Part::Entry { directory, name: name("a"), before: Some((file, Kind::Fifo)), after: None },
        Part::AddLink { file },
        Part::DropLink { file },
        Part::CreateDirectory { parent, inode: inode(NewKind::Directory), inherited: inherited() },
        Part::Remove { directory, fragments: fragments.clone() },
        Part::Moved { file, parent },
        Part::MoveLease,
        Part::LockEntries { directory },
        Part::Split { directory, fragments },
        Part::Fragment { directory, inode: inode(NewKind::Directory), entries: vec![entry; 3] },
        Part::Change { directory, changes: all_changes() },
        Part::Xattr { directory, name: acl.clone(), value: None, kill_set_group_id: false },
        Part::Xattr { directory, name: acl, value: Some(Bytes::from_static(b"v")), kill_set_group_id: true },
    ]
}

fn stripe_actions() -> Vec<StripeAction> {
    let (generation, offset, length) = (2, 4096, 1 << 20);
    vec![
        StripeAction::Write { generation, offset, ends: true, data: Bytes::from(vec![7; 1 << 16]) },
        StripeAction::Write { generation, offset, ends: false, data: Bytes::new() },
        StripeAction::Fill { data: Bytes::from(vec![9; 5000]) },
        StripeAction::Read { offset, length },
        StripeAction::Truncate { generation, length },
        StripeAction::Remove,
        StripeAction::Zero { generation, offset, length },
        StripeAction::Extend { generation, length },
        StripeAction::Fit,
    ]
}
