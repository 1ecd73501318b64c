//! Encoding of each structure, compared with bytes written by hand after the kernel's header.

use super::*;
use crate::types::BackingId;

const ATTRIBUTES_VALUE: FuseAttributes = FuseAttributes {
    inode: 0x0101,
    size: 0x0202,
    blocks: 0x0303,
    accessed: Time { seconds: -1, nanoseconds: 4 },
    modified: Time { seconds: 5, nanoseconds: 6 },
    changed: Time { seconds: 7, nanoseconds: 8 },
    mode: 0o100_644,
    links: 9,
    uid: 10,
    gid: 11,
    device: 0x0803,
    block_size: 4096,
};

fn joined(longs: &[u64], words: &[u32]) -> Vec<u8> {
    let longs = longs.iter().flat_map(|value| value.to_ne_bytes());
    longs.chain(words.iter().flat_map(|value| value.to_ne_bytes())).collect()
}

fn attributes_bytes() -> Vec<u8> {
    joined(&[0x0101, 0x0202, 0x0303, u64::MAX, 5, 7], &[4, 6, 8, 0o100_644, 9, 10, 11, 0x0803, 4096, 0])
}

fn entry_value() -> FuseEntry {
    FuseEntry {
        inode: 1,
        generation: 2,
        attributes: ATTRIBUTES_VALUE,
        entry_valid: Duration::new(3, 5),
        attributes_valid: Duration::new(4, 6),
    }
}

#[test]
fn an_entry_has_its_times_before_its_attributes() {
    let expected = [joined(&[1, 2, 3, 4], &[5, 6]), attributes_bytes()].concat();
    assert_eq!(entry(&entry_value()).as_slice(), expected);
}

#[test]
fn attributes_have_their_time_before_them() {
    let expected = [joined(&[3], &[5, 0]), attributes_bytes()].concat();
    assert_eq!(attributes(&ATTRIBUTES_VALUE, Duration::new(3, 5)).as_slice(), expected);
}

#[test]
fn what_is_made_is_an_entry_and_an_open() {
    let opened_as = FuseOpen { handle: 77, keep_cache: true, no_flush: true, ..FuseOpen::default() };
    let expected = [entry(&entry_value()).to_vec(), joined(&[77], &[0b10_0010, 0])].concat();
    assert_eq!(created(&entry_value(), &opened_as).as_slice(), expected);
}

#[test]
fn each_way_of_opening_has_its_flag() {
    let flags_of = |value: FuseOpen| u32::from_ne_bytes(opened(&value)[8..12].try_into().unwrap());
    let each = [
        FuseOpen { direct: true, ..FuseOpen::default() },
        FuseOpen { keep_cache: true, ..FuseOpen::default() },
        FuseOpen { not_seekable: true, ..FuseOpen::default() },
        FuseOpen { cache_dir: true, ..FuseOpen::default() },
        FuseOpen { stream: true, ..FuseOpen::default() },
        FuseOpen { no_flush: true, ..FuseOpen::default() },
        FuseOpen { parallel_direct_writes: true, ..FuseOpen::default() },
        FuseOpen { backing: Some(BackingId(5)), ..FuseOpen::default() },
    ];
    for (at, value) in each.into_iter().enumerate() {
        assert_eq!(flags_of(value), 1 << at);
    }
    assert_eq!(opened(&each[7])[12..], 5u32.to_ne_bytes(), "the backing's number is last");
}

#[test]
fn statfs_ends_with_what_the_kernel_keeps_for_itself() {
    let value = Statfs {
        blocks: 1,
        blocks_free: 2,
        blocks_available: 3,
        files: 4,
        files_free: 5,
        block_size: 6,
        name_bytes_max: 7,
        fragment_size: 8,
    };
    assert_eq!(statfs(&value).as_slice(), joined(&[1, 2, 3, 4, 5], &[6, 7, 8, 0, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn locks_have_the_numbers_of_fcntl() {
    for (number, kind) in [FuseLockKind::Read, FuseLockKind::Write, FuseLockKind::Unlock].into_iter().enumerate() {
        let value = FuseLock { start: 1, end: 2, kind, pid: 4 };
        assert_eq!(lock(&value).as_slice(), joined(&[1, 2], &[u32::try_from(number).unwrap(), 4]));
    }
}

#[test]
fn statx_tells_the_birth_only_where_it_is_known() {
    let value = Statx {
        attributes: ATTRIBUTES_VALUE,
        born: Some(Time { seconds: 9, nanoseconds: 1 }),
        flags: 3,
        flags_mask: 7,
    };
    let bytes = statx(&value, Duration::from_secs(1));
    let mode_and_spare = [0o100_644u16.to_ne_bytes(), [0; 2]].concat();
    let expected = [
        joined(&[1, 0, 0, 0], &[0xfff, 4096]),
        joined(&[3], &[9, 10, 11]),
        mode_and_spare,
        joined(&[0x0101, 0x0202, 0x0303, 7], &[]),
        joined(&[u64::MAX], &[4, 0]),
        joined(&[9], &[1, 0]),
        joined(&[7], &[8, 0]),
        joined(&[5], &[6, 0]),
        joined(&[], &[8, 3, 0, 0]),
        vec![0; 112],
    ];
    assert_eq!(bytes.as_slice(), expected.concat());
    let unborn = statx(&Statx { born: None, ..value }, Duration::ZERO);
    assert_eq!(unborn[32..36], 0x7ffu32.to_ne_bytes());
}
