//! Programs that have descriptors of their own from a node of their host: copied, inherited, and
//! left when they are killed.
//!
//! They are processes of their own: this binary again.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "in a test a panic is the failure; processes talk by their output"
)]

use super::common::{
    OWNER, any_port,
    host::{ChildTest, Host, child_orders, connect},
    node, remote, serve,
};
use client::{Client, PathHint, RetryPolicy, WalkedPath, testing::CountingConnection};
use placement::FileId;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env,
    fs::File,
    io::{BufRead, Read, Seek, Write},
    os::{fd::OwnedFd, unix::fs::FileExt},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use test_support::{Random, until_polled};
use transport::Address;
use vfs::{ProgramFile, Vfs};
use wire::{
    Changes, Credentials, DirAccess, ExtentRequest, LeaseKind, Lock, LockKind, LockOwner, LockStyle, Name, NewInode,
    NewKind, Object, OpenFlags, OpenLeaseId, Owner, Refusal, RenameFrom, RenameMode, RenameTo,
};

/// Client that the tests start.
pub const CLIENT: ChildTest = ChildTest(concat!(module_path!(), "::a_client_in_a_process_of_its_own"));
/// Number of processes to kill, unless `KILLS` says otherwise.
const KILLS: u64 = 12;
/// Longest life of one of them.
const LIFE_MAX_MICROS: u64 = 30_000;

async fn create(vfs: &Vfs, name: &str, flags: OpenFlags) -> ProgramFile {
    vfs.create_for_program(Vfs::root(), name.as_bytes(), 0o644, OWNER, flags).await.unwrap()
}

#[tokio::test]
async fn a_program_has_the_file_itself_with_an_offset_and_an_access_of_its_own() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let vfs = connect(host.server.address()).await;
    let ProgramFile { descriptor, lease, attributes, .. } = create(&vfs, "f", OpenFlags::READ_WRITE).await;
    assert!(matches!(lease.kind, LeaseKind::Extent(_)), "{lease:?}");
    let mut file = File::from(descriptor);
    file.write_all(b"past the node").unwrap();
    assert_eq!(host.truth.read_file(b"f").await.unwrap(), &b"past the node"[..]);
    let reader = vfs.open_for_program(attributes.file, OpenFlags::READ).await.unwrap();
    let (mut reads, mut text) = (File::from(reader.descriptor), String::new());
    assert!(reads.write_at(b"x", 0).is_err());
    reads.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), file.stream_position().unwrap()), ("past the node", 13));
    drop((file, reads));
    for lease in [lease.id, reader.lease.id] {
        assert!(!vfs.probe_lease(lease).await.unwrap());
    }
    // The file is small, and demoted to its inode.
    until_polled("no extent is left", || host.used() == 0).await;
    assert_eq!(host.truth.read_file(b"f").await.unwrap(), &b"past the node"[..]);
}

#[tokio::test]
async fn what_a_child_has_inherited_stays_the_file_though_its_parent_was_killed_and_goes_with_the_child() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let mut parent = host.child(CLIENT, "leave a child");
    parent.send_line("f");
    parent.expect_line("left");
    let mut child = String::new();
    parent.stdout.read_line(&mut child).unwrap();
    let file = host.truth.lookup(Vfs::root(), b"f").await.unwrap().file;
    host.truth.unlink(Vfs::root(), b"f").await.unwrap();
    parent.kill();
    until_polled("the session has ended, and its lease has not", || host.node.scan_leases() == (1, 1)).await;
    assert_eq!((host.used(), host.truth.stat(file).await.unwrap().size), (1, 4));
    let child = Pid::from_raw(child.trim().parse().unwrap()).unwrap();
    kill_process(child, Signal::KILL).unwrap();
    // Nobody reports the end of the child: the node's scan finds it.
    until_polled("no extent is left", || host.used() == 0).await;
    assert_eq!(host.node.scan_leases(), (0, 0));
    assert!(host.truth.stat(file).await.is_err());
}

#[tokio::test]
async fn after_an_exec_a_program_learns_what_its_descriptors_are_of() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let before = connect(host.server.address()).await;
    let one = create(&before, "f", OpenFlags::READ_WRITE).await;
    let two = before.open_for_program(one.attributes.file, OpenFlags::APPEND).await.unwrap();
    drop(before);
    // The state after an exec: descriptors, and no session that has them open.
    until_polled("the session has ended, and its leases have not", || host.node.scan_leases() == (2, 2)).await;
    let after = connect(host.server.address()).await;
    let found = rustix::fs::fstat(&two.descriptor).unwrap();
    let lease = after.find_leases(after.local_nodes()[0], (found.st_dev, found.st_ino)).await.unwrap();
    assert_eq!(lease, [one.lease, two.lease]);
    drop(two.descriptor);
    assert!(!after.probe_lease(two.lease.id).await.unwrap());
    assert!(after.probe_lease(one.lease.id).await.unwrap());
}

fn lock(owner: LockOwner, kind: LockKind) -> Lock {
    Lock { owner, kind, style: LockStyle::EVERYWHERE, pid: 7 }
}

#[tokio::test]
async fn locks_of_a_process_outlive_its_session_and_end_with_it_though_it_says_nothing() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let mut child = host.child(CLIENT, "lock");
    child.send_line("f");
    child.expect_line("locked");
    // The process has no session any more, as after an exec, but still its descriptor.
    until_polled("the session has ended, and its lease has not", || host.node.scan_leases() == (1, 1)).await;
    let file = host.truth.lookup(Vfs::root(), b"f").await.unwrap().file;
    let mine = lock(LockOwner::Session(1), LockKind::Write);
    assert_eq!(host.truth.lock_for_program(file, mine, false).await, Err(Refusal::Locked(Object::File(file))));
    let waiting = tokio::spawn(host.truth.lock_for_program(file, mine, true));
    until_polled("the session has ended, and its lease has not", || host.node.scan_leases() == (1, 1)).await;
    child.kill();
    waiting.await.unwrap().unwrap();
    let other = connect(host.server.address()).await;
    let theirs = lock(LockOwner::THIS_PROCESS, LockKind::Read);
    assert_eq!(other.lock_for_program(file, theirs, false).await, Err(Refusal::Locked(Object::File(file))));
}

#[tokio::test]
async fn a_process_that_closes_a_descriptor_of_a_file_loses_its_locks_of_that_and_no_others() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let vfs = connect(host.server.address()).await;
    let one = create(&vfs, "f", OpenFlags::READ_WRITE).await;
    let again = vfs.open_for_program(one.attributes.file, OpenFlags::READ).await.unwrap();
    let other = create(&vfs, "g", OpenFlags::READ_WRITE).await;
    let files = [one.attributes.file, other.attributes.file];
    for file in files {
        vfs.lock_for_program(file, lock(LockOwner::THIS_PROCESS, LockKind::Write), false).await.unwrap();
    }
    drop(again.descriptor);
    vfs.probe_lease(again.lease.id).await.unwrap();
    let mine = lock(LockOwner::Session(1), LockKind::Write);
    host.truth.lock_for_program(files[0], mine, false).await.unwrap();
    assert_eq!(host.truth.lock_for_program(files[1], mine, false).await, Err(Refusal::Locked(Object::File(files[1]))));
}

/// Client, and the number of requests that it has sent.
async fn counted(address: &Address) -> (Client, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let connection = Arc::new(CountingConnection::new(remote(address), calls.clone()));
    (Client::connect(connection, RetryPolicy::default()).await.unwrap(), calls)
}

fn new_file() -> NewInode {
    NewInode::new(NewKind::File, 0o644, OWNER)
}

#[tokio::test]
async fn a_descriptor_comes_with_what_opens_it_in_one_go() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let (client, calls) = counted(host.server.address()).await;
    let (name, before) = (Name::new(b"f").unwrap(), calls.load(Relaxed));
    let create = |client: Client| {
        let name = name.clone();
        async move { client.create(FileId::ROOT, &name, new_file(), true, ExtentRequest::Any).await }
    };
    let made = client.open_with_fd(OpenFlags::READ_WRITE, create).await.unwrap();
    assert_eq!(calls.load(Relaxed) - before, 1, "requests and asked descriptors");
    File::from(made.descriptor.try_clone().unwrap()).write_all(b"its own").unwrap();
    let file = made.lease.file;
    let open = |client: Client| async move { client.open(file, OpenFlags::READ).await };
    let opened = client.open_with_fd(OpenFlags::READ, open).await.unwrap();
    assert_eq!(calls.load(Relaxed) - before, 2);
    assert!(
        matches!((made.lease.kind, opened.lease.kind), (LeaseKind::Extent(made), LeaseKind::Extent(opened)) if made == opened)
    );
    let (mut reads, mut text) = (File::from(opened.descriptor), String::new());
    reads.read_to_string(&mut text).unwrap();
    assert_eq!(text, "its own");
    let refused = client.open_with_fd(OpenFlags::READ_WRITE, create).await.unwrap_err();
    assert!(matches!(refused, Refusal::Exists(_)), "{refused}");
    assert_eq!(host.node.scan_leases(), (2, 0));
    drop((made.descriptor, reads));
    assert_eq!(host.node.scan_leases(), (0, 0));
    assert_eq!(host.used(), 0, "nothing is open");
}

#[tokio::test]
async fn what_is_closed_is_told_with_what_is_said_next_and_ends_when_the_last_copy_is_closed() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let (client, calls) = counted(host.server.address()).await;
    let create = |client: Client, name: &'static [u8]| async move {
        client.create(FileId::ROOT, &Name::new(name).unwrap(), new_file(), true, ExtentRequest::Any).await
    };
    let one = client.open_with_fd(OpenFlags::READ_WRITE, |client| create(client, b"f")).await.unwrap();
    let two = client.open_with_fd(OpenFlags::READ_WRITE, |client| create(client, b"g")).await.unwrap();
    let (copy, before) = (two.descriptor.try_clone().unwrap(), calls.load(Relaxed));
    drop((one.descriptor, two.descriptor));
    for lease in [one.lease, two.lease] {
        assert!(client.notify_closed(lease.id, lease.file));
    }
    assert_eq!((calls.load(Relaxed) - before, host.used()), (0, 2), "nobody was told");
    client.stat(one.lease.file).await.unwrap();
    until_polled("one extent is left", || host.used() == 1).await;
    assert_eq!(host.node.scan_leases(), (1, 0), "its copy is open");
    drop(copy);
    assert!(client.notify_closed(two.lease.id, two.lease.file));
    drop(client);
    until_polled("no extent is left", || host.used() == 0).await;
}

#[tokio::test]
async fn many_stripes_of_a_removed_file_go_when_the_node_itself_finds_that_nobody_has_it() {
    let host = Host::start(64 << 20);
    let vfs = connect(host.server.address()).await;
    let file = host.truth.write_file(b"f", &vec![7; 32 << 20]).await.unwrap().file;
    let program = vfs.open_for_program(file, OpenFlags::READ).await.unwrap();
    assert_eq!(program.lease.kind, LeaseKind::Bytes);
    host.truth.unlink(Vfs::root(), b"f").await.unwrap();
    assert!(host.node.usage().used >= 32 << 20, "somebody has it");
    drop(program.descriptor); // as when a process is killed: nobody is notified
    until_polled("all space is given back", || host.node.usage().used == 0).await;
    drop(vfs);
}

#[tokio::test]
async fn a_close_that_is_told_late_ends_no_lock_that_came_after_it() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let (client, _) = counted(host.server.address()).await;
    let create = |client: Client| async move {
        client.create(FileId::ROOT, &Name::new(b"f").unwrap(), new_file(), true, ExtentRequest::Any).await
    };
    let one = client.open_with_fd(OpenFlags::READ_WRITE, create).await.unwrap();
    let file = one.lease.file;
    let open = |client: Client| async move { client.open(file, OpenFlags::READ_WRITE).await };
    let two = client.open_with_fd(OpenFlags::READ_WRITE, open).await.unwrap();
    client.lock(file, lock(LockOwner::THIS_PROCESS, LockKind::Write), false).await.unwrap();
    drop(one.descriptor);
    assert!(client.notify_closed(one.lease.id, file));
    // The close goes ahead of this request, so it ends the lock from before, and not this one.
    client.lock(file, lock(LockOwner::THIS_PROCESS, LockKind::Read), false).await.unwrap();
    until_polled("one lease is left", || host.node.scan_leases() == (1, 0)).await;
    let mine = |kind| host.truth.lock_for_program(file, lock(LockOwner::Session(1), kind), false);
    assert_eq!(mine(LockKind::Write).await, Err(Refusal::Locked(Object::File(file))));
    mine(LockKind::Read).await.unwrap();
    drop(two);
}

#[tokio::test]
async fn a_command_goes_with_its_way_in_one_message_and_is_not_done_when_that_leads_elsewhere() {
    let host = Host::start(64 << 20);
    let (client, calls) = counted(host.server.address()).await;
    let directories = [Name::new(b"a").unwrap(), Name::new(b"b").unwrap()];
    let mut directory = FileId::ROOT;
    for name in &directories {
        directory = client.make_directory(directory, name, 0o755.into(), OWNER).await.unwrap().file;
    }
    let path = client.walk_path(FileId::ROOT, directories.to_vec(), None).await.unwrap();
    assert_eq!((path.directory(), path.is_whole()), (directory, true));
    let (hint, name) = (PathHint { path: &path, credentials: None }, Name::new(b"f").unwrap());
    let before = calls.load(Relaxed);
    let missing = client.lookup_at_hint(hint, &name).await.unwrap_err();
    assert!(matches!(missing, Refusal::NotFound(_)), "{missing}");
    let made = client.create_at_hint(hint, &name, new_file()).await.unwrap().unwrap().attributes;
    assert_eq!(client.lookup_at_hint(hint, &name).await.unwrap().unwrap().file, made.file);
    assert_eq!(calls.load(Relaxed) - before, 3);
    client.close_file(made.file).await.unwrap();
    let refused = client.create_at_hint(hint, &name, new_file()).await.unwrap_err();
    assert!(matches!(refused, Refusal::Exists(_)), "{refused}");
    // The same names lead elsewhere now, then nowhere, then through a file.
    let truth = &host.truth;
    let root = Vfs::root();
    let from = RenameFrom { parent: root, name: directories[0].clone() };
    let to = RenameTo { parent: root, name: Name::new(b"c").unwrap() };
    truth.rename(from, to, RenameMode::Replace).await.unwrap();
    let again = truth.make_directory(root, b"a", 0o755, OWNER).await.unwrap().file;
    truth.make_directory(again, b"b", 0o755, OWNER).await.unwrap();
    let other = Name::new(b"g").unwrap();
    assert_eq!(client.lookup_at_hint(hint, &name).await.unwrap(), None);
    assert!(client.create_at_hint(hint, &other, new_file()).await.unwrap().is_none());
    truth.remove_directory(again, b"b").await.unwrap();
    assert_eq!(client.lookup_at_hint(hint, &name).await.unwrap(), None);
    truth.write_file(b"a/b", b"a file").await.unwrap();
    assert!(client.create_at_hint(hint, &other, new_file()).await.unwrap().is_none());
    let kept = vec![Name::new(b"c").unwrap(), directories[1].clone()];
    let kept = client.walk_path(FileId::ROOT, kept, None).await.unwrap();
    let kept = PathHint { path: &kept, ..hint };
    let missing = client.lookup_at_hint(kept, &other).await.unwrap_err();
    assert!(matches!(missing, Refusal::NotFound(_)), "nothing was made: {missing}");
}

#[tokio::test]
async fn an_open_by_name_goes_with_its_way_and_brings_the_descriptor_in_one_message() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let (client, calls) = counted(host.server.address()).await;
    let name = |name: &[u8]| Name::new(name).unwrap();
    let directory = client.make_directory(FileId::ROOT, &name(b"d"), 0o755.into(), OWNER).await.unwrap().file;
    let truth = &host.truth;
    let path = client.walk_path(FileId::ROOT, vec![name(b"d")], None).await.unwrap();
    let hint = PathHint { path: &path, credentials: None };
    truth.write_file(b"d/f", b"text").await.unwrap();
    let link = NewInode::new(NewKind::Symlink("f".into()), 0o777, OWNER);
    client.create(directory, &name(b"l"), link, false, ExtentRequest::None).await.unwrap();
    let open = |said: &'static [u8], flags| {
        client.try_open_with_fd(flags, move |client| async move {
            client.open_at_hint(hint, &Name::new(said).unwrap(), flags).await
        })
    };
    let before = calls.load(Relaxed);
    let opened = open(b"f", OpenFlags::READ).await.unwrap().unwrap();
    let (mut file, mut text) = (File::from(opened.descriptor), String::new());
    file.read_to_string(&mut text).unwrap();
    assert_eq!((calls.load(Relaxed) - before, text.as_str()), (1, "text"));
    let cut = OpenFlags { truncate: true, ..OpenFlags::WRITE };
    assert_eq!(open(b"f", cut).await.unwrap().unwrap().opened.attributes.size, 0);
    assert_eq!(calls.load(Relaxed) - before, 2);
    // Nothing is opened if the file is of another kind, or the path leads elsewhere.
    assert!(open(b"l", OpenFlags::READ).await.unwrap().is_none(), "a link is to be followed");
    let missing = open(b"none", OpenFlags::READ).await.unwrap_err();
    assert!(matches!(missing, Refusal::NotFound(_)), "{missing}");
    let root = WalkedPath::of_start(FileId::ROOT);
    let root = PathHint { path: &root, ..hint };
    assert!(client.open_at_hint(root, &name(b"d"), OpenFlags::READ).await.unwrap().is_none(), "a directory");
    assert!(client.unlink_at_hint(hint, &name(b"f")).await.unwrap());
    assert!(truth.lookup(directory, b"f").await.is_err());
}

#[tokio::test]
async fn a_way_ends_where_it_is_not_sure_that_a_directory_lets_its_user_through() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let (client, _) = counted(host.server.address()).await;
    let name = |name: &[u8]| Name::new(name).unwrap();
    let owner = Owner { uid: 1000, gid: 1000 };
    let directory = client.make_directory(FileId::ROOT, &name(b"d"), 0o700.into(), owner).await.unwrap().file;
    let path = client.walk_path(FileId::ROOT, vec![name(b"d")], None).await.unwrap();
    let as_user = |uid, needs| Credentials { uid, gid: uid, groups: Vec::new(), access: needs };
    let set = async |mode| {
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        client.change_attributes(directory, changes).await.unwrap();
    };
    for (mode, uid, passes, makes) in [
        (0o700, 1000, true, true),
        (0o700, 1001, false, false),
        (0o755, 1001, true, false),
        (0o500, 1000, true, false),
        (0o600, 1000, false, false),
        (0o1777, 1001, true, true),
    ] {
        set(mode).await;
        let (pass, make, remove) =
            (as_user(uid, DirAccess::Lookup), as_user(uid, DirAccess::Create), as_user(uid, DirAccess::Remove));
        let hint = |who| PathHint { path: &path, credentials: Some(who) };
        let looked = client.lookup_at_hint(hint(&pass), &name(b"none")).await;
        assert_eq!(looked.is_err(), passes, "{mode:o} {uid}: {looked:?}");
        let made = client.create_at_hint(hint(&make), &name(b"f"), new_file()).await.unwrap();
        assert_eq!(made.is_some(), makes, "{mode:o} {uid}");
        let removed = made.is_some() && client.unlink_at_hint(hint(&remove), &name(b"f")).await.unwrap();
        assert_eq!(removed, makes && mode & 0o1000 == 0, "{mode:o} {uid}: another's directory has the sticky bit");
    }
    // A file that is not surely open to the user is left to a closer check.
    let other = NewInode::new(NewKind::File, 0o600, OWNER);
    client.create(directory, &name(b"mine"), other, false, ExtentRequest::None).await.unwrap();
    let pass = as_user(1001, DirAccess::Lookup);
    let hint = PathHint { path: &path, credentials: Some(&pass) };
    let opened = client.open_at_hint(hint, &name(b"mine"), OpenFlags::READ).await.unwrap();
    assert!(opened.is_none());
}

#[tokio::test]
async fn who_is_not_on_the_nodes_host_gets_no_descriptor_and_leaves_nothing_open() {
    let node = node();
    let server = serve(&node, &any_port());
    let far = connect(server.address()).await;
    let refused = far.create_for_program(Vfs::root(), b"f", 0o644, OWNER, OpenFlags::READ_WRITE).await.unwrap_err();
    assert!(matches!(refused, Refusal::Unavailable { .. }) && refused.to_string().contains("host"), "{refused}");
    let file = far.lookup(Vfs::root(), b"f").await.unwrap().file;
    far.unlink(Vfs::root(), b"f").await.unwrap();
    assert!(far.stat(file).await.is_err(), "it is not open");
    let file = far.write_file(b"g", b"x").await.unwrap().file;
    for owner in [LockOwner::THIS_PROCESS, LockOwner::Open(OpenLeaseId::new(node.id(), 1).unwrap())] {
        let refused = far.lock_for_program(file, lock(owner, LockKind::Read), false).await.unwrap_err();
        assert!(matches!(refused, Refusal::Unsupported { .. }), "{refused}");
    }
}

#[tokio::test]
async fn programs_that_are_killed_at_any_moment_leave_nothing() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let kills = env::var("KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut random = Random::new(env::var("KILL_SEED").map_or(1, |seed| seed.parse().unwrap()));
    for round in 0..kills {
        let mut child = host.child(CLIENT, "work");
        child.send_line(&round.to_string());
        tokio::time::sleep(Duration::from_micros(random.below(LIFE_MAX_MICROS))).await;
        child.kill();
    }
    until_polled("no lease is left", || host.node.scan_leases() == (0, 0)).await;
    for entry in host.truth.list(Vfs::root(), 0, 4096).await.unwrap() {
        host.truth.unlink(Vfs::root(), entry.name.as_bytes()).await.unwrap();
    }
    until_polled("no extent is left", || host.used() == 0).await;
    until_polled("all space is given back", || host.node.usage().used == 0).await;
}

/// Not a test: the program that the tests start.
#[tokio::test]
async fn a_client_in_a_process_of_its_own() {
    let Some((vfs, what, mut orders)) = child_orders().await else { return };
    let order = orders.next().unwrap();
    if what == "work" {
        return work(&vfs, &order).await;
    }
    let program = create(&vfs, &order, OpenFlags::READ_WRITE).await;
    let file = File::from(program.descriptor);
    if what == "lock" {
        let mine = lock(LockOwner::THIS_PROCESS, LockKind::Write);
        vfs.lock_for_program(program.attributes.file, mine, false).await.unwrap();
        drop(vfs);
        println!("locked");
        drop(orders.last());
        return;
    }
    file.write_at(b"mine", 0).unwrap();
    let inherited = Stdio::from(OwnedFd::from(file));
    let child = Command::new("sleep").arg("600").stdin(inherited).stdout(Stdio::null()).spawn().unwrap().id();
    println!("left\n{child}");
    drop(orders.last());
}

/// Opens, writes, renames and removes until it is killed. Closes that it does not report must not
/// matter.
async fn work(vfs: &Vfs, name: &str) {
    let (begun, mut kept) = (Instant::now(), Vec::new());
    for turn in 0_u32.. {
        assert!(begun.elapsed() < Duration::from_mins(5), "nobody has killed it");
        let (one, other) = (format!("{name}.one"), format!("{name}.other"));
        let program = create(vfs, &one, OpenFlags::READ_WRITE).await;
        let file = File::from(program.descriptor);
        file.write_at(&vec![7; 1 << (turn % 17)], 0).unwrap();
        let from = RenameFrom { parent: Vfs::root(), name: Name::new(one.as_bytes()).unwrap() };
        let to = RenameTo { parent: Vfs::root(), name: Name::new(other.as_bytes()).unwrap() };
        vfs.rename(from, to, RenameMode::Replace).await.unwrap();
        match turn % 4 {
            0 => kept.push(file),
            1 => drop(file),
            _ => {
                drop(file);
                vfs.probe_lease(program.lease.id).await.unwrap();
            }
        }
        kept.truncate(20);
        if turn % 5 == 0 {
            vfs.unlink(Vfs::root(), other.as_bytes()).await.unwrap();
        }
    }
}
