//! Decoding of each request from bytes written by hand after the kernel's header, and of random
//! bytes.

use proptest::{collection::vec, prelude::*};

use super::*;

/// A body of 8-byte numbers, 4-byte numbers and trailing bytes.
fn body(longs: &[u64], words: &[u32], rest: &[u8]) -> Vec<u8> {
    let longs = longs.iter().flat_map(|value| value.to_ne_bytes());
    longs.chain(words.iter().flat_map(|value| value.to_ne_bytes())).chain(rest.iter().copied()).collect()
}

/// Compares all fields of a decoded operation with their debug output, the shortest form.
#[track_caller]
fn check(opcode: u32, bytes: &[u8], expected: &str) {
    let read = operation(opcode, bytes).expect("a whole request");
    assert_eq!(format!("{read:?}").replace("[97]", "a").replace("[98]", "b"), expected);
}

#[test]
fn the_header_is_read_and_its_length_must_be_true() {
    let bytes = body(&[], &[44, op::OPEN], &body(&[6, 7], &[8, 9, 10, 0, 0xabcd], &[]));
    let (header, rest) = Header::split(&bytes).unwrap();
    assert_eq!(header, Header { opcode: op::OPEN, unique: 6, inode: 7, uid: 8, gid: 9, pid: 10 });
    assert_eq!(rest, 0xabcdu32.to_ne_bytes());
    assert!(Header::split(&bytes[..43]).is_none() && Header::split(&bytes[..20]).is_none());
}

#[test]
fn requests_on_names() {
    check(op::LOOKUP, b"a\0", "Lookup { name: a }");
    check(op::SYMLINK, b"a\0b\0", "Symlink { name: a, target: b }");
    check(op::MKNOD, &body(&[], &[1, 2, 3, 0], b"a\0"), "Mknod { name: a, mode: 1, umask: 3, device: 2 }");
    check(op::MKDIR, &body(&[], &[1, 2], b"a\0"), "Mkdir { name: a, mode: 1, umask: 2 }");
    check(op::UNLINK, b"a\0", "Unlink { name: a }");
    check(op::RMDIR, b"a\0", "Rmdir { name: a }");
    check(op::RENAME, &body(&[1], &[], b"a\0b\0"), "Rename { name: a, new_parent: 1, new_name: b, flags: 0 }");
    check(op::RENAME2, &body(&[1], &[2, 0], b"a\0b\0"), "Rename { name: a, new_parent: 1, new_name: b, flags: 2 }");
    check(op::LINK, &body(&[5], &[], b"a\0"), "Link { inode: 5, new_name: a }");
}

#[test]
fn requests_that_open_and_close() {
    check(op::OPEN, &body(&[], &[2, 1], &[]), "Open { flags: 2, kill_set_id: true }");
    let created = "Create { name: a, flags: 1, mode: 2, umask: 3, kill_set_id: false }";
    check(op::CREATE, &body(&[], &[1, 2, 3, 0], b"a\0"), created);
    check(op::TMPFILE, &body(&[], &[1, 2, 3, 0], b"/\0"), "Tmpfile { flags: 1, mode: 2, umask: 3 }");
    check(op::OPENDIR, &body(&[], &[4, 0], &[]), "Opendir { flags: 4 }");
    let released = body(&[], &[], &body(&[1], &[2, 3], &4u64.to_ne_bytes()));
    check(op::RELEASE, &released, "Release { handle: 1, flags: 2, lock_owner: 4, flush: true, flock_unlock: true }");
    check(op::RELEASEDIR, &released, "Releasedir { handle: 1, flags: 2 }");
    check(op::FLUSH, &body(&[1, 0, 3], &[], &[]), "Flush { handle: 1, lock_owner: 3 }");
    check(op::FSYNC, &body(&[1], &[1, 0], &[]), "Fsync { handle: 1, data_only: true }");
    check(op::FSYNCDIR, &body(&[1], &[0, 0], &[]), "Fsyncdir { handle: 1, data_only: false }");
}

#[test]
fn requests_on_bytes() {
    let place = |bits: u32, data: &[u8]| body(&[1, 2], &[1, bits], &[body(&[4], &[5, 0], &[]), data.to_vec()].concat());
    check(op::READ, &place(2, &[]), "Read { handle: 1, offset: 2, size: 1, lock_owner: Some(4), flags: 5 }");
    check(op::READ, &place(0, &[]), "Read { handle: 1, offset: 2, size: 1, lock_owner: None, flags: 5 }");
    let written =
        "Write { handle: 1, offset: 2, data: a, lock_owner: Some(4), flags: 5, kill_set_id: true, from_cache: true }";
    check(op::WRITE, &place(7, b"a"), written);
    assert!(operation(op::WRITE, &place(7, b"")).is_none(), "less data than it says");
    check(op::FALLOCATE, &body(&[1, 2, 3], &[4, 0], &[]), "Fallocate { handle: 1, offset: 2, length: 3, mode: 4 }");
    check(op::LSEEK, &body(&[1, 2], &[3, 0], &[]), "Lseek { handle: 1, offset: 2, whence: 3 }");
    let copied =
        "CopyFileRange { handle: 1, offset: 2, new_inode: 3, new_handle: 4, new_offset: 5, length: 6, flags: 7 }";
    check(op::COPY_FILE_RANGE, &body(&[1, 2, 3, 4, 5, 6, 7], &[], &[]), copied);
    check(op::COPY_FILE_RANGE_64, &body(&[1, 2, 3, 4, 5, 6, 7], &[], &[]), copied);
    check(op::READDIR, &body(&[1, 2], &[3], &[]), "Readdir { handle: 1, offset: 2, size: 3, plus: false }");
    check(op::READDIRPLUS, &body(&[1, 2], &[3], &[]), "Readdir { handle: 1, offset: 2, size: 3, plus: true }");
}

#[test]
fn requests_on_inodes() {
    let getattr = |bits: u32| body(&[], &[bits, 0], &9u64.to_ne_bytes());
    check(op::GETATTR, &getattr(1), "Getattr { handle: Some(9) }");
    check(op::GETATTR, &getattr(0), "Getattr { handle: None }");
    check(op::STATFS, &[], "Statfs");
    check(op::READLINK, &[], "Readlink");
    check(op::SYNCFS, &[0; 8], "Syncfs");
    check(op::ACCESS, &body(&[], &[4, 0], &[]), "Access { mask: 4 }");
    let statx = body(&[], &[1, 0], &body(&[9], &[2, 3], &[]));
    check(op::STATX, &statx, "Statx { handle: Some(9), flags: 2, mask: 3 }");
    let set = body(&[], &[1, 2, 1, 0], b"a\0b");
    check(op::SETXATTR, &set, "Setxattr { name: a, value: b, flags: 2, kill_set_group_id: true }");
    check(op::GETXATTR, &body(&[], &[5, 0], b"a\0"), "Getxattr { name: a, size: 5 }");
    check(op::LISTXATTR, &body(&[], &[5, 0], &[]), "Listxattr { size: 5 }");
    check(op::REMOVEXATTR, b"a\0", "Removexattr { name: a }");
    check(op::POLL, &body(&[1, 2], &[1, 4], &[]), "Poll { handle: 1, kernel_handle: 2, events: 4, wake: true }");
    let ioctl = body(&[1], &[2, 3], &body(&[4], &[1, 5], b"a"));
    check(op::IOCTL, &ioctl, "Ioctl { handle: 1, flags: 2, command: 3, argument: 4, data: a, out_size: 5 }");
    check(99, b"whatever", "Unknown(99)");
}

#[test]
fn locks_carry_their_owner_and_style() {
    let bytes = body(&[1, 2, 3, 4], &[1, 6, 1, 0], &[]);
    let lock = "handle: 1, owner: 2, lock: FuseLock { start: 3, end: 4, kind: Write, pid: 6 }, flock: true";
    check(op::GETLK, &bytes, &format!("Getlk {{ {lock} }}"));
    check(op::SETLK, &bytes, &format!("Setlk {{ {lock}, wait: false }}"));
    check(op::SETLKW, &bytes, &format!("Setlk {{ {lock}, wait: true }}"));
    assert!(operation(op::SETLK, &body(&[1, 2, 3, 4], &[3, 6, 1, 0], &[])).is_none(), "no such kind");
}

#[test]
fn only_the_attributes_that_are_marked_are_set() {
    let bytes = |valid: u32| {
        let times = body(&[12, 13, 14], &[15, 16, 17, 18, 0, 20, 21, 0], &[]);
        body(&[], &[valid, 0], &body(&[9, 10, 11], &[], &times))
    };
    let read = |valid: u32| setattr(&mut Fields(&bytes(valid))).unwrap();
    assert_eq!(read(0), Setattr::default());
    let at = |seconds, nanoseconds| Time { seconds, nanoseconds };
    let all = Setattr {
        mode: Some(18),
        uid: Some(20),
        gid: Some(21),
        size: Some(10),
        accessed: Some(SetTime::At(at(12, 15))),
        modified: Some(SetTime::At(at(13, 16))),
        changed: Some(at(14, 17)),
        handle: Some(9),
        lock_owner: Some(11),
        kill_set_id: true,
    };
    assert_eq!(read(0b1110_0111_1111), all);
    let now = Setattr { accessed: Some(SetTime::Now), modified: Some(SetTime::Now), ..all };
    assert_eq!(read(0b1111_1111_1111), now);
}

#[test]
fn forgets_end_where_the_bytes_do() {
    let bytes = body(&[], &[5, 0], &body(&[1, 2, 3, 4, 5], &[], &[]));
    assert_eq!(batch_forgotten(&bytes).collect::<Vec<_>>(), [(1, 2), (3, 4)]);
    assert_eq!(batch_forgotten(&[1]).count(), 0);
    assert_eq!(forgotten(&7u64.to_ne_bytes()), Some(7));
    assert_eq!(interrupted(&[0; 7]), None);
}

proptest! {
    /// Random bytes are decoded or refused, for all opcodes including unused ones.
    #[test]
    fn any_bytes_are_read_or_refused(opcode in 0u32..60, bytes in vec(any::<u8>(), 0..200)) {
        let read = match operation(opcode, &bytes) {
            Some(FuseOp::Write { data, .. }) => data.len(),
            Some(FuseOp::Setxattr { value, .. }) => value.len(),
            _ => 0,
        };
        prop_assert!(read <= bytes.len());
        batch_forgotten(&bytes).for_each(drop);
        Header::split(&bytes);
    }

    /// Truncated bodies are decoded or refused.
    #[test]
    fn no_shortened_body_reads_beyond_its_end(opcode in 0u32..60, length in 0usize..120) {
        operation(opcode, &vec![1; length]);
        operation(opcode, &vec![0; length]);
    }
}
