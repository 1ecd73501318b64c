//! Opens of programs: each lives as long as its descriptor, whichever process has that, and
//! whatever happens to the process that opened it.

use crate::{ProgramFile, Vfs, pool_test::*};
use bytes::Bytes;
use client::{Client, poll_now};
use node::{Node, NodeSettings};
use placement::FileId;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, MetadataExt},
    },
    sync::Arc,
    time::Duration,
};
use store::{Engine, ModelEngine, StripeStore};
use test_support::Random;
use wire::{
    LeaseKind, Lock, LockKind, LockOwner, LockStyle, OpenFlags, OpenLeaseId, Outcome, Refusal, WritePlace, XattrMode,
};

/// A node over the model engine: descriptors have lifetimes, but no bytes. Closed files are demoted
/// to inline immediately.
fn model() -> (Arc<Node>, Arc<ModelEngine>) {
    let engine = Arc::new(ModelEngine::with_extents(16 << 20, STRIPE));
    let settings = NodeSettings { space_wait: Duration::ZERO, closed_extents_max: 0, ..settings() };
    (node::embedded(settings, engine.clone()), engine)
}

/// Completes a call that does not have to wait.
#[track_caller]
fn now<T>(future: impl Future<Output = T>) -> T {
    poll_now(future).expect("nothing to wait for")
}

fn client(node: &Arc<Node>) -> Vfs {
    Vfs::new(Client::embedded(node.clone()))
}

fn create(vfs: &Vfs, name: &str, flags: OpenFlags) -> ProgramFile {
    now(vfs.create_for_program(Vfs::root(), name.as_bytes(), 0o644, OWNER, flags)).unwrap()
}

fn open(vfs: &Vfs, file: FileId, flags: OpenFlags) -> ProgramFile {
    now(vfs.open_for_program(file, flags)).unwrap()
}

fn is_there(vfs: &Vfs, file: FileId) -> bool {
    now(vfs.stat(file)).is_ok()
}

fn copy(program: &ProgramFile) -> OwnedFd {
    program.descriptor.try_clone().unwrap()
}

/// Marks that `which` returns for a descriptor.
fn found_leases(vfs: &Vfs, descriptor: &OwnedFd) -> Vec<OpenLeaseId> {
    let found = File::from(descriptor.try_clone().unwrap()).metadata().unwrap();
    let (node, file) = (vfs.local_nodes()[0], (found.dev(), found.ino()));
    now(vfs.find_leases(node, file)).unwrap().into_iter().map(|lease| lease.id).collect()
}

#[test]
fn what_a_program_wrote_takes_no_more_than_it_needs_after_its_last_close() {
    let node = arena_node(16 << 20, Duration::ZERO);
    let vfs = client(&node);
    let (name, striped) = (b"user.tidemill.placement", Bytes::from_static(b"striped"));
    now(vfs.set_xattr(Vfs::root(), name, striped, XattrMode::Set, false)).unwrap();
    let before = vfs.usage().used;
    let program = create(&vfs, "f", OpenFlags::READ_WRITE);
    assert_eq!(program.lease.kind, LeaseKind::Bytes);
    let (file, lease) = (program.lease.file, program.lease.id);
    for part in 0..7_u64 {
        let data = Bytes::from(vec![7; 100 << 10]);
        now(vfs.write_for_program(file, WritePlace::At(part * (100 << 10)), data, false)).unwrap();
    }
    drop(program);
    assert!(!now(vfs.probe_lease(lease)).unwrap());
    let taken = vfs.usage().used - before;
    assert!(taken < 800 << 10, "{taken} bytes for 700 KiB");
}

#[test]
fn a_program_reads_and_writes_the_files_own_bytes_past_us() {
    let node = arena_node(16 << 20, Duration::ZERO);
    if !node.supports_extent_files() {
        return;
    }
    let vfs = client(&node);
    let ProgramFile { descriptor, lease, attributes, .. } = create(&vfs, "f", OpenFlags::READ_WRITE);
    assert!(matches!(lease.kind, LeaseKind::Extent(_)), "{lease:?}");
    let mut file = File::from(descriptor);
    file.write_all(b"low tide").unwrap();
    assert_eq!(now(vfs.read_file(b"f")).unwrap(), &b"low tide"[..]);
    let appends = open(&vfs, attributes.file, OpenFlags::APPEND);
    let mut end = File::from(appends.descriptor);
    assert!(end.read(&mut [0]).is_err(), "it was opened to append");
    end.write_all(b", high tide").unwrap();
    let reads = File::from(open(&vfs, attributes.file, OpenFlags::READ).descriptor);
    assert!(reads.write_at(b"x", 0).is_err(), "it was opened to read");
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "low tide, high tide");
    assert_eq!(now(vfs.stat(attributes.file)).unwrap().size, 19);
    drop((file, end, reads));
    for lease in [lease.id, appends.lease.id] {
        assert!(!now(vfs.probe_lease(lease)).unwrap());
    }
    assert_eq!(node.scan_leases(), (0, 0), "the reader was seen without being told of");
    assert_eq!(now(vfs.read_file(b"f")).unwrap(), &b"low tide, high tide"[..]);
}

#[test]
fn an_open_ends_with_the_last_copy_of_its_descriptor_and_not_before() {
    let (node, _) = model();
    let vfs = client(&node);
    let program = create(&vfs, "f", OpenFlags::READ_WRITE);
    let (file, lease) = (program.attributes.file, program.lease.id);
    let inherited = copy(&program);
    now(vfs.unlink(Vfs::root(), b"f")).unwrap();
    drop(program);
    assert!(now(vfs.probe_lease(lease)).unwrap() && is_there(&vfs, file), "somebody has it");
    assert_eq!(node.scan_leases(), (1, 0));
    drop(inherited);
    assert!(!now(vfs.probe_lease(lease)).unwrap() && !is_there(&vfs, file), "it had no name any more");
    assert!(!now(vfs.probe_lease(lease)).unwrap(), "asked again it is the same");
}

#[test]
fn who_has_it_last_keeps_the_file_when_who_opened_it_is_gone_and_may_be_another_session() {
    let (node, engine) = model();
    let (parent, child) = (client(&node), client(&node));
    for remote in [false, true] {
        let flags = OpenFlags::READ_WRITE;
        let program = create(&parent, "f", flags);
        let (file, lease) = (program.attributes.file, program.lease.id);
        let program = if remote {
            // While another session has the file open, its bytes stay with its inode. So the
            // program gets a placeholder.
            drop(program);
            assert!(!now(parent.probe_lease(lease)).unwrap());
            let others = now(child.open(file, flags)).unwrap();
            let program = open(&parent, file, flags);
            now(child.close(others)).unwrap();
            program
        } else {
            program
        };
        let (kind, lease) = (program.lease.kind, program.lease.id);
        assert_eq!(kind == LeaseKind::Bytes, remote, "{kind:?}");
        let inherited = copy(&program);
        now(child.unlink(Vfs::root(), b"f")).unwrap();
        // The parent's descriptors are closed first, then its session ends.
        drop(program);
        now(node_ends(&node, &parent)).unwrap();
        assert!(is_there(&child, file), "{kind:?}");
        assert_eq!(node.scan_leases(), (1, 1));
        assert_eq!(found_leases(&child, &inherited), [lease]);
        assert!(now(child.probe_lease(lease)).unwrap());
        drop(inherited);
        assert!(!now(child.probe_lease(lease)).unwrap() && !is_there(&child, file), "{kind:?}");
        assert_eq!(node.scan_leases(), (0, 0));
    }
    assert_eq!(
        engine.extents().unwrap().slot_counts().0,
        engine.extents().unwrap().slot_counts().1,
        "all extents are back"
    );
}

/// Ends the session, like that of a killed process.
async fn node_ends(node: &Arc<Node>, vfs: &Vfs) -> Outcome<()> {
    Client::embedded(node.clone()).recover(vfs.client.session()).await
}

#[test]
fn a_session_that_ends_leaves_nothing_of_what_nobody_has() {
    let (node, engine) = model();
    let (vfs, other) = (client(&node), client(&node));
    let mut files = Vec::new();
    for number in 0..20 {
        let name = number.to_string();
        let program = create(&vfs, &name, OpenFlags::READ_WRITE);
        files.push(program.attributes.file);
        now(vfs.unlink(Vfs::root(), name.as_bytes())).unwrap();
    }
    assert_eq!(node.scan_leases().1, 0);
    now(node_ends(&node, &vfs)).unwrap();
    assert!(files.iter().all(|file| !is_there(&other, *file)));
    assert_eq!((node.scan_leases(), engine.usage().used), ((0, 0), 0));
}

#[test]
fn an_open_without_bytes_of_its_own_is_one_of_the_system_too() {
    let (node, _) = model();
    let vfs = client(&node);
    let directory = now(vfs.make_directory(Vfs::root(), b"d", 0o755, OWNER)).unwrap().file;
    let program = open(&vfs, directory, OpenFlags::READ);
    assert_eq!(program.lease.kind, LeaseKind::Directory);
    now(vfs.remove_directory(Vfs::root(), b"d")).unwrap();
    assert!(is_there(&vfs, directory), "it is open");
    assert_eq!(found_leases(&vfs, &program.descriptor), [program.lease.id]);
    drop(program.descriptor);
    node.scan_leases();
    assert!(!is_there(&vfs, directory));
}

#[test]
fn which_open_a_descriptor_is_of_is_told_by_the_marks_that_live_on_its_file() {
    let node = arena_node(16 << 20, Duration::ZERO);
    if !node.supports_extent_files() {
        return;
    }
    let vfs = client(&node);
    let first = create(&vfs, "f", OpenFlags::READ_WRITE);
    let more: Vec<ProgramFile> = (0..3).map(|_| open(&vfs, first.attributes.file, OpenFlags::READ_WRITE)).collect();
    let another = create(&vfs, "g", OpenFlags::READ_WRITE);
    let leases: Vec<OpenLeaseId> = [&first].into_iter().chain(&more).map(|program| program.lease.id).collect();
    assert_eq!(found_leases(&vfs, &first.descriptor), leases);
    assert_eq!(found_leases(&vfs, &another.descriptor), [another.lease.id]);
    drop(more);
    assert_eq!(found_leases(&vfs, &first.descriptor), [first.lease.id], "those that ended are none");
    assert!(matches!(now(vfs.find_leases(placement::NodeId(9), (0, 0))), Err(Refusal::Unavailable { .. })));
}

#[test]
fn who_wants_space_finds_what_a_program_has_let_go_of_without_a_word() {
    let (node, _) = model();
    let vfs = client(&node);
    let ProgramFile { descriptor, attributes, .. } = create(&vfs, "f", OpenFlags::READ_WRITE);
    let handle = now(vfs.open(attributes.file, OpenFlags::READ_WRITE)).unwrap();
    now(vfs.write(handle, 0, filled(7, 7 << 20).into())).unwrap();
    now(vfs.close(handle)).unwrap();
    now(vfs.unlink(Vfs::root(), b"f")).unwrap();
    drop(descriptor);
    now(vfs.write_file(b"g", &filled(8, 12 << 20))).unwrap();
}

/// A file, one of its opens, and a copy of the descriptor.
type ProgramDescriptor = (FileId, OpenLeaseId, OwnedFd);

/// Model of processes: the session and descriptors of each.
#[derive(Default)]
struct OpenCopies {
    members: Vec<(Vfs, Vec<ProgramDescriptor>)>,
}

#[test]
fn whatever_processes_do_a_file_lives_as_long_as_somebody_has_it_and_no_longer() {
    for seed in 0..60 {
        let (node, engine) = model();
        let mut random = Random::new(seed);
        let mut copies = OpenCopies::default();
        copies.members.push((client(&node), Vec::new()));
        for _ in 0..200 {
            step(&node, &mut copies, &mut random);
            let mut held: BTreeMap<FileId, Vec<OpenLeaseId>> = BTreeMap::new();
            for (file, lease, _) in copies.members.iter().flat_map(|(_, open)| open) {
                held.entry(*file).or_default().push(*lease);
            }
            let watcher = client(&node);
            assert!(held.keys().all(|file| is_there(&watcher, *file)), "seed {seed}: somebody has it");
        }
        copies.members.clear();
        node.scan_leases();
        assert_eq!((node.scan_leases(), engine.usage().used), ((0, 0), 0), "seed {seed}: nobody has anything");
    }
}

fn step(node: &Arc<Node>, copies: &mut OpenCopies, random: &mut Random) {
    if copies.members.is_empty() {
        copies.members.push((client(node), Vec::new()));
    }
    let at = random.below(copies.members.len());
    let (vfs, open) = &mut copies.members[at];
    match random.below(8) {
        0..3 => {
            let program = create(vfs, "f", OpenFlags::READ_WRITE);
            now(vfs.unlink(Vfs::root(), b"f")).unwrap();
            open.push((program.attributes.file, program.lease.id, program.descriptor));
        }
        3 | 4 if !open.is_empty() => {
            let (_, lease, descriptor) = open.swap_remove(random.below(open.len()));
            drop(descriptor);
            // The process may or may not report the close.
            if random.below(2) == 0 {
                now(vfs.probe_lease(lease)).unwrap();
            }
        }
        5 if copies.members.len() < 6 => {
            // A child inherits all open descriptors.
            let inherited =
                copies.members[at].1.iter().map(|(file, lease, fd)| (*file, *lease, fd.try_clone().unwrap()));
            let inherited = inherited.collect();
            copies.members.push((client(node), inherited));
        }
        6 => {
            let (vfs, open) = copies.members.swap_remove(at);
            // When a process is killed, the system may close the socket before its descriptors.
            let kept = if random.below(2) == 0 { open } else { Vec::new() };
            now(node_ends(node, &vfs)).unwrap();
            drop(kept);
        }
        _ => drop(node.scan_leases()),
    }
}

#[test]
fn who_only_reads_a_small_file_has_its_bytes_too_and_nothing_of_it_changes() {
    let node = arena_node(16 << 20, Duration::ZERO);
    if !node.supports_extent_files() {
        return;
    }
    let vfs = client(&node);
    let file = now(vfs.write_file(b"f", b"low tide")).unwrap().file;
    let before = now(vfs.stat(file)).unwrap();
    assert_eq!(before.extent, None);
    let program = open(&vfs, file, OpenFlags::READ);
    assert!(matches!(program.lease.kind, LeaseKind::Extent(_)));
    let (mut read, mut text) = (File::from(program.descriptor), String::new());
    read.read_to_string(&mut text).unwrap();
    assert_eq!(text, "low tide");
    drop(read);
    assert!(!now(vfs.probe_lease(program.lease.id)).unwrap());
    let after = now(vfs.stat(file)).unwrap();
    assert_eq!((after.extent, after.modified, after.changed), (None, before.modified, before.changed), "it is folded");
    // A mount's reader is not affected: a kernel that began with cached pages continues with them.
    let whole = OpenFlags { use_extent: true, ..OpenFlags::READ };
    let handle = now(vfs.open(file, whole)).unwrap();
    assert!(!vfs.is_extent_file(handle));
    now(vfs.close(handle)).unwrap();
}

fn lock(owner: LockOwner, kind: LockKind, style: LockStyle) -> Lock {
    Lock { owner, kind, style, pid: 7 }
}

#[test]
fn locks_of_an_open_are_of_whoever_has_it_and_end_with_it() {
    let (node, _) = model();
    let (parent, child) = (client(&node), client(&node));
    let program = create(&parent, "f", OpenFlags::READ_WRITE);
    let (file, inherited) = (program.attributes.file, copy(&program));
    let other = open(&child, file, OpenFlags::READ_WRITE);
    for style in [LockStyle::EVERYWHERE, LockStyle::Whole] {
        let set =
            |vfs: &Vfs, lease, kind| now(vfs.lock_for_program(file, lock(LockOwner::Open(lease), kind, style), false));
        set(&parent, program.lease.id, LockKind::Write).unwrap();
        set(&child, program.lease.id, LockKind::Write).expect("it is the same open");
        assert!(set(&child, other.lease.id, LockKind::Read).is_err(), "this is another");
        let read = lock(LockOwner::Open(other.lease.id), LockKind::Read, style);
        assert_eq!(
            now(child.test_lock_for_program(file, read)).unwrap().unwrap().owner,
            LockOwner::Open(program.lease.id)
        );
    }
    drop(program.descriptor);
    now(node_ends(&node, &parent)).unwrap();
    for style in [LockStyle::EVERYWHERE, LockStyle::Whole] {
        let read = lock(LockOwner::Open(other.lease.id), LockKind::Read, style);
        assert!(now(child.lock_for_program(file, read, false)).is_err(), "the child has it");
    }
    drop(inherited);
    for style in [LockStyle::EVERYWHERE, LockStyle::Whole] {
        let read = lock(LockOwner::Open(other.lease.id), LockKind::Read, style);
        now(child.lock_for_program(file, read, false)).expect("nobody has it, though nobody said so");
    }
    drop(other.descriptor);
    node.scan_leases();
    let fresh = client(&node);
    let write = lock(LockOwner::Session(1), LockKind::Write, LockStyle::EVERYWHERE);
    now(fresh.lock_for_program(file, write, false)).unwrap();
}

#[test]
fn an_offset_is_shared_by_copies_alone() {
    let node = arena_node(16 << 20, Duration::ZERO);
    if !node.supports_extent_files() {
        return;
    }
    let vfs = client(&node);
    let program = create(&vfs, "f", OpenFlags::READ_WRITE);
    let mut one = File::from(copy(&program));
    one.seek(SeekFrom::Start(7)).unwrap();
    assert_eq!(File::from(copy(&program)).stream_position().unwrap(), 7);
    let again = open(&vfs, program.attributes.file, OpenFlags::READ);
    assert_eq!(File::from(again.descriptor).stream_position().unwrap(), 0);
}
