//! Tests of one inode: extended attributes, dropped privileges, locks, files without a name, space
//! of ranges.

use crate::{
    LogEntry, Partition,
    partition_test::{Bench, at, name, random_command},
};
use bytes::Bytes;
use placement::{FileId, PartitionId};
use test_support::Random;
use wire::{
    ACL_ACCESS, ACL_DEFAULT, AllocateMode, Answer, Changes, Command, ExtentRequest, Lock, LockKind, LockOwner,
    LockStyle, Mode, NewInode, NewKind, Object, OpenFlags, OpenedFile, Outcome, Owner, Refusal, RequestId, SeekTo,
    Session, WritePlace, XattrMode,
};

const ROOT: FileId = FileId::ROOT;

fn set(file: FileId, name: &'static [u8], value: impl Into<Bytes>, mode: XattrMode) -> Command {
    let (name, value) = (Bytes::from_static(name), value.into());
    Command::SetXattr { file, name, value, mode, kill_set_group_id: false }
}

fn get(bench: &mut Bench, file: FileId, name: &'static [u8]) -> Outcome<Bytes> {
    match bench.try_to(Command::Xattr { file, name: Bytes::from_static(name) })? {
        Answer::Xattr(value) => Ok(value),
        other => panic!("{other:?}"),
    }
}

/// Encodes an ACL with the permissions of owner, user 7, group, mask, others.
fn acl(permissions: [u16; 5]) -> Bytes {
    let tags = [(0x01_u16, u32::MAX), (0x02, 7), (0x04, u32::MAX), (0x10, u32::MAX), (0x20, u32::MAX)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for ((tag, id), permission) in tags.into_iter().zip(permissions) {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permission.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes.into()
}

#[test]
fn attributes_are_made_replaced_listed_and_removed() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    bench.apply(set(file, b"user.b", "1", XattrMode::Create));
    let before = bench.times(file);
    assert_eq!(bench.try_to(set(file, b"user.b", "2", XattrMode::Create)), Err(Refusal::Exists(Object::File(file))));
    let missing = Err(Refusal::NoAttribute(Object::File(file)));
    assert_eq!(bench.try_to(set(file, b"user.a", "2", XattrMode::Replace)), missing);
    assert_eq!(bench.times(file), before, "what is refused changes nothing");
    bench.apply(set(file, b"user.b", "2", XattrMode::Replace));
    bench.apply(set(file, b"trusted.a", "", XattrMode::Set));
    assert_eq!(bench.times(file).0, before.0, "the bytes have not changed");
    assert!(bench.times(file).1 > before.1);
    let names = vec![Bytes::from_static(b"trusted.a"), Bytes::from_static(b"user.b")];
    assert_eq!(bench.apply(Command::Xattrs { file }), Answer::Xattrs(names));
    assert_eq!(get(&mut bench, file, b"user.b"), Ok(Bytes::from_static(b"2")));
    let remove = |name: &'static [u8]| Command::RemoveXattr { file, name: Bytes::from_static(name) };
    bench.apply(remove(b"user.b"));
    assert_eq!(bench.try_to(remove(b"user.b")), missing);
    assert_eq!(get(&mut bench, file, b"user.b"), Err(Refusal::NoAttribute(Object::File(file))));
}

#[test]
fn attributes_count_in_the_pool_and_have_limits() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    let plain = bench.partition.bytes();
    bench.apply(set(file, b"user.large", vec![1; 65_536], XattrMode::Set));
    assert!(bench.partition.bytes() >= plain + 65_536);
    let limit = Err(Refusal::AttributeTooLong { object: Object::File(file), limit: 65_536 });
    assert_eq!(bench.try_to(set(file, b"user.larger", vec![1; 65_537], XattrMode::Set)), limit);
    bench.apply(Command::RemoveXattr { file, name: Bytes::from_static(b"user.large") });
    assert_eq!(bench.partition.bytes(), plain, "nothing is left of what is removed");
    let long = |number: usize| Bytes::from(format!("user.{number:0250}").into_bytes());
    let set = |name, value| Command::SetXattr { file, name, value, mode: XattrMode::Set, kill_set_group_id: false };
    let taken = (0..1000).take_while(|number| bench.try_to(set(long(*number), Bytes::new())).is_ok()).count();
    assert_eq!(taken, 65_536 / 256, "the names fit in one list");
    let full = Err(Refusal::TooManyAttributes(Object::File(file)));
    assert_eq!(bench.try_to(set(long(999), Bytes::new())), full);
    let placed = set(Bytes::from_static(wire::PLACEMENT), Bytes::from_static(b"single"));
    assert_eq!(bench.try_to(placed), full, "those of ours are listed too");
    bench.apply(set(long(0), Bytes::from_static(b"replaced")));
    let name = Bytes::from([b"user.".as_slice(), &[b'x'; 251]].concat());
    let limit = Err(Refusal::AttributeTooLong { object: Object::File(file), limit: 255 });
    assert_eq!(bench.try_to(set(name, Bytes::new())), limit);
}

#[test]
fn attributes_stand_where_linux_lets_them() {
    let mut bench = Bench::new();
    let link = bench.create(ROOT, "l", NewKind::Symlink(Bytes::from_static(b"t"))).file;
    bench.apply(set(link, b"trusted.a", "1", XattrMode::Set));
    assert!(matches!(bench.try_to(set(link, b"user.a", "1", XattrMode::Set)), Err(Refusal::NotPermitted(_))));
    let acl = set(link, ACL_ACCESS, acl([7, 7, 7, 7, 7]), XattrMode::Set);
    assert!(matches!(bench.try_to(acl), Err(Refusal::Unsupported { .. })));
    assert!(matches!(bench.try_to(set(ROOT, b"other.a", "1", XattrMode::Set)), Err(Refusal::Unsupported { .. })));
    assert!(matches!(bench.try_to(set(ROOT, b"user.", "1", XattrMode::Set)), Err(Refusal::Invalid { .. })));
    bench.apply(set(ROOT, b"user.a", "1", XattrMode::Set));
}

#[test]
fn an_acl_and_the_permission_bits_follow_each_other() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    bench.change(file, Changes { mode: Some(0o2755), ..Changes::default() });
    bench.apply(set(file, ACL_ACCESS, acl([7, 6, 5, 4, 1]), XattrMode::Set));
    assert_eq!(bench.stat(file).mode, 0o2741, "the mask shows as the group");
    bench.change(file, Changes { mode: Some(0o620), ..Changes::default() });
    assert_eq!(get(&mut bench, file, ACL_ACCESS), Ok(acl([6, 6, 5, 2, 0])));
    let value = acl([7, 6, 5, 4, 1]);
    let (name, mode) = (Bytes::from_static(ACL_ACCESS), XattrMode::Set);
    bench.change(file, Changes { mode: Some(0o2755), ..Changes::default() });
    bench.apply(Command::SetXattr { file, name, value, mode, kill_set_group_id: true });
    assert_eq!(bench.stat(file).mode, 0o741, "whoever set it is not of the group");
    let torn = set(file, ACL_ACCESS, acl([7; 5]).slice(..10), XattrMode::Set);
    assert!(matches!(bench.try_to(torn), Err(Refusal::Invalid { .. })));
    let remove = Command::RemoveXattr { file, name: Bytes::from_static(ACL_ACCESS) };
    bench.apply(remove.clone());
    bench.apply(remove);
    assert!(get(&mut bench, file, ACL_ACCESS).is_err());
    assert_eq!(bench.stat(file).mode, 0o741, "the bits stay");
    let only_bits =
        Bytes::from([&acl([6, 0, 4, 0, 0])[..12], &acl([0, 0, 4, 0, 0])[20..28], &acl([0; 5])[36..]].concat());
    bench.apply(set(file, ACL_ACCESS, only_bits, XattrMode::Set));
    assert_eq!(bench.stat(file).mode, 0o640);
    assert!(get(&mut bench, file, ACL_ACCESS).is_err(), "what bits say needs no list");
}

#[test]
fn what_is_made_in_a_directory_with_a_default_acl_begins_with_it() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "plain", NewKind::File).file;
    let refused = bench.try_to(set(file, ACL_DEFAULT, acl([7; 5]), XattrMode::Set));
    assert!(matches!(refused, Err(Refusal::NotPermitted(_))), "only directories hand something down");
    bench.apply(set(ROOT, ACL_DEFAULT, acl([7, 6, 5, 7, 4]), XattrMode::Set));
    let make = |bench: &mut Bench, text, kind| {
        let inode = NewInode::new(kind, Mode { bits: 0o666, umask: 0o077 }, Owner::default());
        match bench.apply(Command::Create {
            parent: ROOT,
            name: name(text),
            inode,
            open: false,
            extent: ExtentRequest::None,
        }) {
            Answer::Opened(OpenedFile { attributes, .. }) => attributes,
            other => panic!("{other:?}"),
        }
    };
    let file = make(&mut bench, "f", NewKind::File);
    assert_eq!(file.mode, 0o664, "the umask does not count");
    assert_eq!(get(&mut bench, file.file, ACL_ACCESS), Ok(acl([6, 6, 5, 6, 4])));
    assert!(get(&mut bench, file.file, ACL_DEFAULT).is_err());
    let directory = make(&mut bench, "d", NewKind::Directory).file;
    assert_eq!(get(&mut bench, directory, ACL_DEFAULT), Ok(acl([7, 6, 5, 7, 4])));
    let inode = NewInode::new(NewKind::File, Mode { bits: 0o600, umask: 0o077 }, Owner::default());
    let Answer::Opened(OpenedFile { attributes, .. }) =
        bench.apply(Command::CreateTmpfile { parent: ROOT, name: None, inode, linkable: true })
    else {
        panic!("it is made")
    };
    assert_eq!(get(&mut bench, attributes.file, ACL_ACCESS), Ok(acl([6, 6, 5, 0, 0])));
}

#[test]
fn set_id_bits_go_where_linux_takes_them() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    let kill = Changes { kill_set_id: true, ..Changes::default() };
    let write = |kill_set_id, length| Command::Write {
        file,
        place: WritePlace::At(0),
        length,
        data: Bytes::from(vec![1; length as usize]),
        kill_set_id,
    };
    let open = |kill_set_id| {
        let flags = OpenFlags { truncate: true, kill_set_id, ..OpenFlags::WRITE };
        Command::Open { file, flags, extent: ExtentRequest::None }
    };
    let cases: [(Command, u32); 8] = [
        (write(true, 1), 0o755),
        (write(false, 1), 0o6755),
        (write(true, 0), 0o6755),
        (open(true), 0o755),
        (open(false), 0o6755),
        (Command::Change { file, changes: Changes { size: Some(3), ..kill } }, 0o755),
        (Command::Change { file, changes: Changes { uid: Some(9), ..kill } }, 0o755),
        (Command::Change { file, changes: Changes { uid: Some(9), ..Changes::default() } }, 0o6755),
    ];
    for (command, expected) in cases {
        bench.change(file, Changes { mode: Some(0o6755), ..Changes::default() });
        bench.apply(command.clone());
        assert_eq!(bench.stat(file).mode, expected, "{command:?}");
    }
    bench.change(file, Changes { mode: Some(0o6745), ..Changes::default() });
    bench.apply(write(true, 1));
    assert_eq!(bench.stat(file).mode, 0o745);
    bench.change(file, Changes { mode: Some(0o6745), ..Changes::default() });
    bench.change(file, Changes { uid: Some(9), ..kill });
    assert_eq!(bench.stat(file).mode, 0o2745, "the group may not run it: the bit means something else");
    let directory = bench.create(ROOT, "d", NewKind::Directory).file;
    bench.change(directory, Changes { mode: Some(0o6755), ..Changes::default() });
    bench.change(directory, Changes { gid: Some(4), ..kill });
    assert_eq!(bench.stat(directory).mode, 0o6755);
}

#[test]
fn what_a_program_may_do_goes_with_any_change_of_its_bytes_or_owner() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    let capability = || set(file, b"security.capability", "caps", XattrMode::Set);
    bench.apply(capability());
    bench.change(file, Changes { mode: Some(0o700), ..Changes::default() });
    assert!(get(&mut bench, file, b"security.capability").is_ok(), "chmod leaves it");
    bench.write(file, WritePlace::End, b"x");
    assert!(get(&mut bench, file, b"security.capability").is_err());
    for changes in [Changes { size: Some(0), ..Changes::default() }, Changes { gid: Some(3), ..Changes::default() }] {
        bench.apply(capability());
        bench.change(file, changes);
        assert!(get(&mut bench, file, b"security.capability").is_err(), "{changes:?}");
    }
}

#[test]
fn a_file_without_a_name_goes_with_its_last_close() {
    let mut bench = Bench::new();
    let before = (bench.partition.bytes(), bench.partition.files());
    let make = |parent| {
        let inode = NewInode::new(NewKind::File, 0o600, Owner::default());
        Command::CreateTmpfile { parent, name: None, inode, linkable: true }
    };
    let Answer::Opened(OpenedFile { attributes, .. }) = bench.apply(make(ROOT)) else { panic!("it is made") };
    assert_eq!((attributes.links, bench.times(ROOT)), (0, (0, 0)), "its directory does not know of it");
    bench.write(attributes.file, WritePlace::End, b"bytes");
    bench.apply(Command::Close { file: attributes.file });
    assert_eq!((bench.partition.bytes(), bench.partition.files()), before);
    let file = bench.create(ROOT, "f", NewKind::File).file;
    assert!(matches!(bench.try_to(make(file)), Err(Refusal::NotDirectory(_))));
}

#[test]
fn locks_end_with_their_session_and_leave_no_weight() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    let before = bench.partition.bytes();
    let lock = |kind, start, end| {
        let lock = Lock { owner: LockOwner::Session(3), kind, style: LockStyle::Range { start, end }, pid: 9 };
        Command::Lock { file, lock, wait: false }
    };
    bench.apply(lock(LockKind::Write, 0, 99));
    bench.apply(lock(LockKind::Unlock, 10, 19));
    bench.apply(lock(LockKind::Read, 50, 59));
    assert!(bench.partition.bytes() > before);
    bench.session = Session(2);
    assert!(matches!(bench.try_to(lock(LockKind::Read, 0, 0)), Err(Refusal::Locked(_))));
    bench.apply(lock(LockKind::Write, 10, 19));
    bench.apply(lock(LockKind::Unlock, 0, u64::MAX));
    assert!(matches!(bench.try_to(lock(LockKind::Read, 7, 6)), Err(Refusal::Invalid { .. })));
    bench.apply(Command::CloseSession { session: Session(1) });
    assert_eq!(bench.partition.bytes(), before);
    bench.apply(lock(LockKind::Write, 0, 99));
}

#[test]
fn a_lock_that_is_waited_for_is_tried_anew_under_its_number() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    let lock = |owner, kind, wait| {
        let lock = Lock { owner: LockOwner::Session(owner), kind, style: LockStyle::Whole, pid: 9 };
        Command::Lock { file, lock, wait }
    };
    bench.apply(lock(1, LockKind::Write, false));
    let request_id = bench.request_id();
    let refused =
        bench.partition.apply(LogEntry::command(Some(request_id), lock(2, LockKind::Write, true), at(9))).answer;
    assert!(matches!(refused, Err(Refusal::Locked(_))));
    let later = RequestId { settled: request_id.number, ..bench.request_id() };
    bench.partition.apply(LogEntry::command(Some(later), lock(1, LockKind::Unlock, false), at(9))).answer.unwrap();
    assert_eq!(
        bench.partition.apply(LogEntry::command(Some(request_id), lock(2, LockKind::Write, true), at(9))).answer,
        Ok(Answer::Done)
    );
}

/// Draws a random command about one inode.
pub fn random_about_inode(random: &mut Random) -> Command {
    let file = FileId::new(PartitionId(0), 1 + random.below(8));
    let name: &'static [u8] = random.pick(&[&b"user.a"[..], b"user.b", b"trusted.c", ACL_ACCESS, ACL_DEFAULT]);
    let value = if name.starts_with(b"system") { acl([7, 6, 5, 4, random.below(8)]) } else { vec![1; 50].into() };
    let mode = random.pick(&[XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
    let kind = random.pick(&[LockKind::Read, LockKind::Write, LockKind::Unlock]);
    let start = random.below(50);
    let style =
        if random.below(4) == 0 { LockStyle::Whole } else { LockStyle::Range { start, end: start + random.below(20) } };
    let lock = Lock { owner: LockOwner::Session(random.below(3)), kind, style, pid: 1 };
    let ways = [AllocateMode::Extend, AllocateMode::KeepSize, AllocateMode::PunchHole];
    match random.below(9) {
        0 | 1 => set(file, name, value, mode),
        2 => Command::RemoveXattr { file, name: Bytes::from_static(name) },
        3 | 4 => Command::Lock { file, lock, wait: random.one_in(2) },
        5 | 6 => Command::Allocate {
            file,
            offset: random.below(60_000),
            length: random.below(60_000),
            mode: random.pick(&ways),
        },
        7 => Command::PunchDone { file, generation: random.below(4) },
        _ => Command::AllocationFailed { file, generation: random.below(4), stripe: random.below(8) },
    }
}

#[test]
fn a_snapshot_with_all_that_an_inode_can_have_goes_on_as_its_original_does() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new();
        let draw = |random: &mut Random| {
            if random.one_in(2) { random_command(random) } else { random_about_inode(random) }
        };
        for _ in 0..600 {
            let _ = bench.try_to(draw(&mut random));
        }
        let mut copy = Partition::restore(&bench.partition.snapshot()).unwrap();
        for _ in 0..400 {
            let (command, request_id) = (draw(&mut random), bench.request_id());
            let answer = bench.partition.apply(LogEntry::command(Some(request_id), command.clone(), at(1000))).answer;
            assert_eq!(
                copy.apply(LogEntry::command(Some(request_id), command, at(1000))).answer,
                answer,
                "seed {seed}"
            );
        }
        assert_eq!((copy.bytes(), copy.files()), (bench.partition.bytes(), bench.partition.files()));
        assert!(copy.snapshot() == bench.partition.snapshot(), "seed {seed}");
    }
}

#[test]
fn space_of_a_small_file_is_taken_and_given_back_at_once() {
    let mut bench = Bench::new();
    let file = bench.create(ROOT, "f", NewKind::File).file;
    bench.write(file, WritePlace::At(0), b"0123456789");
    let allocate = |offset, length, mode| Command::Allocate { file, offset, length, mode };
    bench.apply(allocate(2, 3, AllocateMode::PunchHole));
    assert_eq!(bench.read(file), "01\0\0\x0056789");
    bench.apply(allocate(8, 100, AllocateMode::PunchHole));
    assert_eq!((bench.stat(file).size, bench.read(file)), (10, Bytes::from_static(b"01\0\0\x00567")));
    let seek = |offset, to| Command::Seek { file, offset, to };
    assert_eq!(bench.apply(seek(1, SeekTo::Hole)), Answer::Offset(8));
    assert!(matches!(bench.try_to(seek(8, SeekTo::Data)), Err(Refusal::BeyondEnd(_))));
    assert_eq!((bench.stat(file).size, bench.stat(file).allocated), (10, 4096), "as much as in an extent");
    bench.apply(allocate(0, 1000, AllocateMode::KeepSize));
    assert_eq!((bench.stat(file).size, bench.stat(file).allocated), (10, 4096));
    bench.apply(allocate(0, 1000, AllocateMode::Extend));
    assert_eq!(bench.stat(file).size, 1000);
    assert!(matches!(bench.try_to(allocate(0, 0, AllocateMode::Extend)), Err(Refusal::Invalid { .. })));
    let beyond = bench.try_to(allocate(i64::MAX.cast_unsigned(), 5, AllocateMode::Extend));
    assert!(matches!(beyond, Err(Refusal::TooLarge { .. })));
}
