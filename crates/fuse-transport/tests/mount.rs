//! The transport under a real mount: requests of children arrive with their fields, and replies
//! reach the children.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the failure")]

mod common;

use common::{
    Mounted,
    server::{CACHED, FILE, PASSED},
};
use fuse_transport::Config;
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::{pread, pwrite},
    process::{Pid, Signal, kill_process},
};

/// Not a test: the entry point of child processes.
#[test]
#[ignore = "run by the other tests, in processes of their own"]
fn child() {
    common::child::run();
}

/// A configuration in which the kernel forwards every operation.
fn config() -> Config {
    Config { posix_acl: false, ..Config::default() }
}

/// An operation, its name, and the start of the expected request (names are lists of bytes).
const FILES: [(&str, &str, &str); 13] = [
    ("open", "file", "2 Open { flags: "),
    ("create", "new", "1 Create { name: [110, 101, 119], flags: "),
    ("tmpfile", "dir", "4 Tmpfile { flags: "),
    ("read", "file", "2 Read { handle: 102, offset: 3, size: 100, lock_owner: Some("),
    ("write", "file", "2 Write { handle: 102, offset: 5, data: [97, 98, 99], lock_owner: "),
    ("fsync", "file", "2 Fsync { handle: 102, data_only: false }"),
    ("fdatasync", "file", "2 Fsync { handle: 102, data_only: true }"),
    ("flock", "file", "2 Setlk { handle: 102, owner: "),
    ("lock", "file", "2 Setlk { handle: 102, owner: "),
    ("fallocate", "file", "2 Fallocate { handle: 102, offset: 10, length: 20, mode: 3 }"),
    ("lseek", "file", "2 Lseek { handle: 102, offset: 4, whence: 3 }"),
    (
        "copy",
        "file",
        "2 CopyFileRange { handle: 102, offset: 1, new_inode: 3, new_handle: 103, new_offset: 2, length: 9, flags: 0 }",
    ),
    ("truncate", "file", "2 Setattr(Setattr { mode: None, uid: None, gid: None, size: Some(77), "),
];
const INODES: [(&str, &str, &str); 10] = [
    ("stat", "file", "1 Lookup { name: [102, 105, 108, 101] }"),
    ("statx", "file", "2 Statx { handle: None, flags: "),
    ("access", "file", "2 Access { mask: 2 }"),
    ("statfs", "", "1 Statfs"),
    ("chmod", "file", "2 Setattr(Setattr { mode: Some(33152), uid: None"),
    ("chown", "file", "2 Setattr(Setattr { mode: None, uid: Some(5)"),
    (
        "setxattr",
        "file",
        "2 Setxattr { name: [117, 115, 101, 114, 46, 97], value: [118, 97, 108, 117, 101], flags: 1, ",
    ),
    ("getxattr", "file", "2 Getxattr { name: [117, 115, 101, 114, 46, 97], size: 100 }"),
    ("listxattr", "file", "2 Listxattr { size: 100 }"),
    ("removexattr", "file", "2 Removexattr { name: [117, 115, 101, 114, 46, 97] }"),
];
const NAMES: [(&str, &str, &str); 9] = [
    ("readlink", "link", "5 Readlink"),
    ("symlink", "new", "1 Symlink { name: [110, 101, 119], target: [116, 97, 114, 103, 101, 116] }"),
    ("mkdir", "new", "1 Mkdir { name: [110, 101, 119], mode: 488, umask: 18 }"),
    ("mknod", "new", "1 Mknod { name: [110, 101, 119], mode: 4480, umask: 18, device: 0 }"),
    ("rmdir", "dir", "1 Rmdir { name: [100, 105, 114] }"),
    ("unlink", "file", "1 Unlink { name: [102, 105, 108, 101] }"),
    ("link", "file", "1 Link { inode: 2, new_name: [110, 101, 119] }"),
    ("rename", "file", "1 Rename { name: [102, 105, 108, 101], new_parent: 1, new_name: [110, 101, 119], flags: 1 }"),
    ("readdir", "dir", "4 Readdir { handle: "),
];

/// Checks that each operation succeeds and that its request arrived.
fn check(verbs: &[(&str, &str, &str)]) {
    let Some(mounted) = Mounted::new(&config()) else { return };
    for (verb, name, expected) in verbs {
        assert_eq!(mounted.act(verb, name), 0, "{verb} succeeds");
        assert!(mounted.server.count(expected) >= 1, "{verb}: {:?}", mounted.server.requests());
    }
}

#[test]
fn operations_on_open_files_arrive_with_their_fields() {
    check(&FILES);
}

#[test]
fn operations_on_inodes_arrive_with_their_fields() {
    check(&INODES);
}

#[test]
fn operations_on_names_arrive_with_their_fields() {
    check(&NAMES);
}

#[test]
fn times_are_set_to_now_or_to_a_moment() {
    check(&[(
        "utimens",
        "file",
        "2 Setattr(Setattr { mode: None, uid: None, gid: None, size: None, accessed: Some(Now), modified: Some(At(Time { seconds: 12, nanoseconds: 34 }))",
    )]);
}

#[test]
fn locks_tell_their_style_their_process_and_whether_they_wait() {
    let Some(mounted) = Mounted::new(&config()) else { return };
    assert_eq!((mounted.act("flock", "file"), mounted.act("lock", "file")), (0, 0));
    let asked = mounted.server.requests();
    let locks: Vec<_> = asked.iter().filter(|line| line.contains("Setlk") && !line.contains("Unlock")).collect();
    assert!(locks[0].contains("kind: Write") && locks[0].ends_with("flock: true, wait: false }"), "{locks:?}");
    assert!(locks[1].contains("start: 0, end: 9223372036854775807, kind: Read"), "{locks:?}");
    assert!(locks[1].ends_with("flock: false, wait: false }"), "{locks:?}");
}

#[test]
fn a_closed_file_is_flushed_and_released_with_its_handle() {
    let Some(mounted) = Mounted::new(&config()) else { return };
    assert_eq!(mounted.act("open", "file"), 0);
    assert!(mounted.server.await_count("2 Flush { handle: 102, ", 1));
    assert!(mounted.server.await_count("2 Release { handle: 102, ", 1), "released some time after close(2)");
}

#[test]
fn without_locks_of_ours_the_kernel_keeps_them() {
    let Some(mounted) = Mounted::new(&Config { locks: false, ..config() }) else { return };
    assert_eq!((mounted.act("flock", "file"), mounted.act("lock", "file")), (0, 0));
    assert_eq!(mounted.server.count("2 Setlk"), 0);
}

#[test]
fn a_panic_and_a_dropped_reply_and_a_wild_number_cost_one_operation() {
    let Some(mounted) = Mounted::new(&Config { threads: 1, ..config() }) else { return };
    for name in ["panic", "dropped", "errno"] {
        assert_eq!(mounted.act("stat", name), 5, "EIO for {name}");
    }
    assert_eq!(mounted.act("stat", "file"), 0, "and the only thread lives on");
    assert_eq!(mounted.act("stat", "absent"), 2, "ENOENT");
}

#[test]
fn a_caller_that_is_killed_interrupts_its_parked_request() {
    let Some(mounted) = Mounted::new(&config()) else { return };
    let waiting: Vec<_> = (0..8).map(|_| mounted.spawn("wait", "file")).collect();
    assert!(mounted.server.await_count("2 Setlk", 8), "all are parked");
    for child in waiting {
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        assert_eq!(mounted.wait(child), -1, "killed, and gone");
    }
    assert_eq!(mounted.act("stat", "file"), 0);
}

#[test]
fn parked_requests_end_with_the_connection() {
    let Some(mounted) = Mounted::new(&config()) else { return };
    let waiting = mounted.spawn("wait", "file");
    assert!(mounted.server.await_count("2 Setlk", 1));
    mounted.abort();
    assert_ne!(mounted.wait(waiting), 0, "the caller hears an error");
    assert!(mounted.server.await_count("interrupted", 1), "who waited for the caller's end was woken");
    assert!(mounted.server.await_count("ended", 1) && mounted.server.is_closed());
}

#[test]
fn passed_through_files_are_read_and_written_without_asking() {
    let Some(mounted) = Mounted::new(&config()) else { return };
    if !mounted.negotiated.passthrough {
        return eprintln!("SKIPPED: the kernel has no passthrough");
    }
    let file = memfd_create("backing", MemfdFlags::CLOEXEC).unwrap();
    let id = mounted.backings.open(&file).unwrap();
    mounted.server.pass(PASSED, id);
    assert_eq!(mounted.act("cycle", "passed"), 0);
    let mut bytes = [0; 16];
    assert_eq!(pread(&file, &mut bytes, 0), Ok(7), "what the child wrote is in the backing file");
    assert_eq!(&bytes[..7], b"through");
    assert_eq!((mounted.server.count("6 Read"), mounted.server.count("6 Write")), (0, 0));
    mounted.backings.close(id).unwrap();
    assert!(mounted.backings.close(id).is_err(), "it is gone");
}

#[test]
fn attributes_and_bytes_are_kept_until_they_are_dropped() {
    let Some(mounted) = Mounted::new(&Config { explicit_invalidation: true, ..config() }) else { return };
    let asked = |what: &str| mounted.server.count(what);
    for _ in 0..2 {
        assert_eq!(mounted.act("read", "cached"), 0);
    }
    // A read may change the access time, so the kernel requests the attributes once more.
    assert_eq!(mounted.act("stat", "cached"), 0);
    let before = asked("7 Getattr");
    assert_eq!((mounted.act("stat", "cached"), asked("7 Getattr")), (0, before), "kept");
    assert_eq!((asked("1 Lookup { name: [99"), asked("7 Read")), (1, 1), "kept");
    assert!(mounted.notifier.invalidate_attributes(CACHED).unwrap());
    assert_eq!((mounted.act("stat", "cached"), asked("7 Getattr")), (0, before + 1), "attributes are asked for again");
    assert_eq!((mounted.act("read", "cached"), asked("7 Read")), (0, 1), "bytes are not");
    let notifier = mounted.notifier.clone();
    assert!(mounted.watched("a notification", move || notifier.invalidate_bytes(CACHED, 0, 0)).unwrap());
    assert_eq!((mounted.act("read", "cached"), asked("7 Read")), (0, 2), "bytes are asked for again");
    assert!(!mounted.notifier.invalidate_attributes(12_345).unwrap(), "an inode that the kernel does not know");
}

#[test]
fn names_are_kept_until_they_are_dropped() {
    let Some(mounted) = Mounted::new(&config()) else { return };
    let asked = || mounted.server.count("1 Lookup { name: [99");
    assert_eq!((mounted.act("stat", "cached"), mounted.act("stat", "cached"), asked()), (0, 0, 1));
    let notifier = mounted.notifier.clone();
    assert!(mounted.watched("a notification", move || notifier.invalidate_entry(1, b"cached")).unwrap());
    assert_eq!((mounted.act("stat", "cached"), asked()), (0, 2));
    if mounted.negotiated.epochs {
        assert!(mounted.notifier.increment_epoch().unwrap());
        assert_eq!((mounted.act("stat", "cached"), asked()), (0, 3));
    }
    let notifier = mounted.notifier.clone();
    assert!(mounted.watched("a notification", move || notifier.delete(1, CACHED, b"cached")).unwrap());
    assert!(!mounted.notifier.invalidate_entry(1, b"never seen").unwrap());
}

#[test]
fn unused_inodes_that_are_pruned_are_forgotten() {
    let Some(mounted) = Mounted::new(&config()) else { return };
    if !mounted.negotiated.pruning {
        return eprintln!("SKIPPED: the kernel knows no pruning");
    }
    assert_eq!(mounted.act("stat", "cached"), 0);
    let notifier = mounted.notifier.clone();
    mounted.watched("a notification", move || notifier.prune(&[CACHED])).unwrap();
    assert!(mounted.server.await_count("7 Forget", 1));
}

#[test]
fn many_children_at_once_are_all_answered() {
    let Some(mounted) = Mounted::new(&Config { threads: 4, ..config() }) else { return };
    let children: Vec<_> = (0..24).map(|at| mounted.spawn(["read", "write", "create"][at % 3], "file")).collect();
    let ends: Vec<_> = children.into_iter().map(|child| mounted.wait(child)).collect();
    assert!(ends.iter().enumerate().all(|(at, end)| *end == if at % 3 == 2 { 17 } else { 0 }), "{ends:?}");
    assert!(mounted.server.count("2 Read") == 8 && mounted.server.count(&format!("{FILE} Write")) == 8);
}

#[test]
fn a_backing_that_is_no_regular_file_is_refused() {
    let Some(mounted) = Mounted::new(&config()) else { return };
    let (pipe, _other) = std::io::pipe().unwrap();
    assert!(mounted.backings.open(&pipe).is_err());
    assert!(pwrite(memfd_create("x", MemfdFlags::CLOEXEC).unwrap(), b"x", 0).is_ok());
}
