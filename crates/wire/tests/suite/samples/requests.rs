//! Sample requests.

use super::{
    DIRECTORY, EXTENT, FILE, INTENT, KINDS, LEASE, OWNER, SESSION, TIME, TIMES, host, inherited, inode, layout, name,
    placing,
};
use bytes::Bytes;
use placement::{Epoch, PartitionId, Policy, StripeNo};
use wire::{
    AllocateMode, Body, Changes, Command, Condition, Contents, Credentials, DirAccess, DirEntry, ExtentAction,
    ExtentRequest, Kind, Lock, LockKind, LockOwner, LockStyle, Mode, NewInode, NewKind, OpenFlags, Part, RenameFrom,
    RenameMode, RenameTo, Request, RequestId, SeekTo, StripeAction, TimeChange, Version, WalkAction, WritePlace,
    XattrMode,
};

const LONG: &[u8] = &[0xa5; 3000];

pub fn requests() -> Vec<Request> {
    let mut bodies = vec![Body::Hello, Body::Usage, Body::Stop];
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
    bodies.extend(walks());
    bodies.push(Body::ProbeLease { lease: LEASE });
    bodies.push(Body::FindLeases { device: 57, inode: 1 << 33, after: LEASE });
    bodies.extend(stripe_actions().into_iter().map(|action| Body::Stripe { file: FILE, stripe: StripeNo(5), action }));
    let request = |(count, body)| Request {
        epoch: Epoch(3),
        session: SESSION,
        skip_ack: count % 2 == 1,
        partition: PartitionId(4095),
        body,
    };
    bodies.into_iter().enumerate().map(request).collect()
}

/// Returns commands that encode like any other, and are rejected when a client sends them.
pub fn never_from_clients() -> Vec<Command> {
    let given = ExtentRequest::Allocated(EXTENT);
    let bytes = Bytes::from_static(b"folded");
    vec![
        Command::Demote { file: FILE, extent: EXTENT, bytes, times: TIMES },
        Command::Release { file: FILE, session: SESSION, to: Some(SESSION) },
        Command::Create { parent: DIRECTORY, name: name("f"), inode: inode(NewKind::File), open: true, extent: given },
        Command::Open { file: FILE, flags: OpenFlags::READ_WRITE, extent: given },
        Command::OpenName { parent: DIRECTORY, name: name("f"), flags: OpenFlags::READ, extent: given },
    ]
}

fn commands() -> Vec<Command> {
    [queries(), about_locks(), made(), written(), named(), of_one_inode(), of_objects(), ended(), of_intents()].concat()
}

fn queries() -> Vec<Command> {
    let (parent, directory, file) = (DIRECTORY, DIRECTORY, FILE);
    vec![
        Command::Lookup { parent, name: name("x") },
        Command::Stat { file },
        Command::List { directory, after: u64::MAX, max: 4096 },
        Command::ReadLink { file },
        Command::Parent { directory },
        Command::CheckName { parent, name: wire::Name::new(&[0xff; 255]).unwrap() },
        Command::Read { file, offset: 1 << 62, length: u32::MAX },
        Command::ListUnfinished,
        Command::Xattr { file, name: Bytes::from_static(b"user.a") },
        Command::Xattrs { file },
        Command::Seek { file, offset: 0, to: SeekTo::Data },
        Command::Seek { file, offset: 1, to: SeekTo::Hole },
        Command::ForgetInode { file },
        Command::Status { intent: INTENT },
        Command::Fragments { directory },
        Command::UnownedStripes { file, stripes: super::answers::runs() },
        Command::Placement { file },
    ]
}

fn about_locks() -> Vec<Command> {
    let (file, session) = (FILE, SESSION);
    let lock = |kind, style| Lock { owner: LockOwner::Session(u64::MAX), kind, style, pid: 1 };
    let of = |owner| Lock { owner, ..lock(LockKind::Read, LockStyle::Whole) };
    vec![
        Command::TestLock { file, session, lock: lock(LockKind::Read, LockStyle::EVERYWHERE) },
        Command::Lock { file, lock: lock(LockKind::Write, LockStyle::Whole), wait: true },
        Command::Lock { file, lock: of(LockOwner::Process(0)), wait: false },
        Command::Lock { file, lock: of(LockOwner::Open(LEASE)), wait: false },
        Command::Lock { file, lock: lock(LockKind::Unlock, LockStyle::Range { start: 9, end: 9 }), wait: false },
    ]
}

fn made() -> Vec<Command> {
    let (parent, file) = (DIRECTORY, FILE);
    let mut kinds = vec![
        NewKind::File,
        NewKind::Directory,
        NewKind::Symlink(Bytes::from_static(b"../there")),
        NewKind::Bound(Box::new(host())),
    ];
    kinds.extend(
        KINDS
            .into_iter()
            .filter(|kind| !matches!(kind, Kind::File | Kind::Directory | Kind::Symlink))
            .map(NewKind::Node),
    );
    let create = |kind| Command::Create {
        parent,
        name: name("new"),
        inode: inode(kind),
        open: false,
        extent: ExtentRequest::None,
    };
    let mut commands: Vec<_> = kinds.into_iter().map(create).collect();
    let plain = NewInode::new(NewKind::File, Mode::default(), OWNER);
    commands.extend([
        Command::Create { parent, name: name("new"), inode: plain.clone(), open: true, extent: ExtentRequest::Any },
        Command::CreateTmpfile { parent, name: None, inode: plain.clone(), linkable: true },
        Command::CreateTmpfile { parent, name: Some(name("later")), inode: plain, linkable: true },
        Command::Open { file, flags: OpenFlags::APPEND, extent: ExtentRequest::Local },
        Command::OpenName { parent, name: name("f"), flags: OpenFlags::READ, extent: ExtentRequest::Local },
        Command::Close { file },
        Command::Change { file, changes: Changes::default() },
        Command::Change { file, changes: all_changes() },
    ]);
    commands
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

fn written() -> Vec<Command> {
    let (file, generation, stripe) = (FILE, 4, 70);
    let small = Bytes::from_static(&[0x5a; 64]);
    let allocate = |mode| Command::Allocate { file, offset: 4096, length: 1 << 30, mode };
    vec![
        Command::Write { file, place: WritePlace::At(1 << 40), length: 64, data: small, kill_set_id: true },
        Command::Write {
            file,
            place: WritePlace::End,
            length: 3000,
            data: Bytes::from_static(LONG),
            kill_set_id: false,
        },
        Command::Write { file, place: WritePlace::End, length: 1 << 20, data: Bytes::new(), kill_set_id: false },
        Command::Write { file, place: WritePlace::End, length: 0, data: Bytes::new(), kill_set_id: false },
        Command::PublishSize { file, generation, end: 1 << 50 },
        Command::Abandon { file, generation, offset: 77, length: 78 },
        Command::SpillDone { file, generation },
        Command::TruncateDone { file, generation },
        Command::PurgeDone { file },
        Command::PunchDone { file, generation },
        Command::AllocationFailed { file, generation, stripe },
        allocate(AllocateMode::Extend),
        allocate(AllocateMode::KeepSize),
        allocate(AllocateMode::PunchHole),
        allocate(AllocateMode::ZeroRange),
        allocate(AllocateMode::ZeroRangeKeepSize),
    ]
}

fn named() -> Vec<Command> {
    let parent = DIRECTORY;
    let rename = |mode| Command::Rename {
        from: RenameFrom { parent, name: name("old") },
        to: RenameTo { parent: FILE, name: name("new") },
        mode,
    };
    vec![
        Command::Unlink { parent, name: name("u") },
        Command::RemoveDirectory { parent, name: name("d") },
        Command::Link { file: FILE, parent, name: name("l") },
        rename(RenameMode::Replace),
        rename(RenameMode::NoReplace),
        rename(RenameMode::Exchange),
        Command::UpdateCtime { file: FILE },
    ]
}

fn of_one_inode() -> Vec<Command> {
    let (file, name) = (FILE, Bytes::from_static(b"user.b"));
    let set = |mode, value: &'static [u8], kill_set_group_id| {
        let value = Bytes::from_static(value);
        Command::SetXattr { file, name: Bytes::from_static(b"user.b"), value, mode, kill_set_group_id }
    };
    vec![
        set(XattrMode::Set, b"v", false),
        set(XattrMode::Create, b"", true),
        set(XattrMode::Replace, &[1; 64 << 10], false),
        Command::RemoveXattr { file, name },
        Command::Place { file, partition: PartitionId(4095) },
    ]
}

fn of_objects() -> Vec<Command> {
    let (parent, directory, file) = (DIRECTORY, DIRECTORY, FILE);
    let put = |condition, contents| Command::PutObject {
        parent,
        name: name("key"),
        condition,
        placing: placing(Policy::Single),
        attributes: [(Bytes::from_static(b"user.tidemill.shape"), Bytes::from_static(b"[2, 3]"))].into(),
        contents,
    };
    let is = Condition::Is(Version { file, change: u64::MAX });
    let long = Bytes::from_static(LONG);
    vec![
        Command::GetObject { parent, name: name("key"), offset: 1 << 40, length: 1 << 20 },
        Command::GetFile { file, offset: 0, length: 0 },
        Command::ListNames { directory, prefix: "p".into(), from: "q".into(), max: 1000 },
        put(Condition::Always, Contents::Inline(Bytes::from_static(b"value"))),
        put(Condition::Absent, Contents::Inline(Bytes::new())),
        put(is, Contents::Striped { file, size: 1 << 40, first: Bytes::new() }),
        put(is, Contents::Striped { file, size: LONG.len() as u64, first: long }),
        Command::DeleteObject { parent, name: name("key"), condition: is },
        Command::Reserve { count: 256, stripes: 1, layout: layout(), policy: Some(Policy::Here) },
        Command::Unreserve { file },
    ]
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
    walks.extend(of_objects().into_iter().map(|command| walk(vec![name("a"), name("b")], then(command))));
    walks
}

fn ended() -> Vec<Command> {
    let intent = INTENT;
    vec![
        Command::Settle { intent, commit: true },
        Command::Decide { intent },
        Command::ForgetIntent { intent },
        Command::CloseSession { session: SESSION },
    ]
}

fn of_intents() -> Vec<Command> {
    let others = vec![PartitionId(0), PartitionId(4095)];
    vec![
        Command::Prepare { intent: INTENT, parts: parts() },
        Command::Commit { intent: INTENT, parts: vec![Part::MoveLease], others },
        Command::Commit { intent: INTENT, parts: Vec::new(), others: Vec::new() },
    ]
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
