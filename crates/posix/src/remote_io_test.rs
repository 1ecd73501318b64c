//! Tests of reads and writes of files that have only a placeholder descriptor.

use crate::pool_test::{CREATE, TestPool, at};
use crate::{Errno, FdKind};
use rustix::fs::{OFlags, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use wire::FILE_BYTES_MAX;

/// Pool with a file whose descriptors are placeholders.
struct RemoteFile {
    pool: TestPool,
    descriptor: OwnedFd,
}

impl RemoteFile {
    fn with(bytes: &[u8]) -> Self {
        let pool = TestPool::start();
        pool.mkdir_striped("d");
        pool.make("d/f", bytes);
        let (descriptor, kind) = pool.open_kind("d/f", OFlags::RDWR).unwrap();
        assert_eq!(kind, FdKind::Remote);
        Self { pool, descriptor }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn open(&self, flags: OFlags) -> OwnedFd {
        self.pool.open("d/f", flags).unwrap()
    }

    fn read(&self, bytes: usize, at: Option<i64>) -> Result<Vec<u8>, Errno> {
        let mut into = vec![0; bytes];
        let read = self.pool.process.read(self.fd(), &mut into, at)?;
        into.truncate(read);
        Ok(into)
    }

    fn write(&self, bytes: &[u8], at: Option<i64>) -> Result<usize, Errno> {
        self.pool.process.write(self.fd(), bytes, at)
    }

    fn offset(&self) -> u64 {
        self.seek(SeekFrom::Current(0)).unwrap()
    }

    fn seek(&self, to: SeekFrom) -> Result<u64, Errno> {
        self.pool.process.seek(self.fd(), to)
    }
}

#[test]
fn the_offset_advances_by_what_was_transferred_and_only_without_a_given_place() {
    let file = RemoteFile::with(b"high tide");
    assert_eq!(file.read(4, None), Ok(b"high".to_vec()));
    assert_eq!(file.read(2, Some(5)), Ok(b"ti".to_vec()));
    assert_eq!(file.offset(), 4);
    assert_eq!(file.read(100, None), Ok(b" tide".to_vec()));
    assert_eq!(file.offset(), 9, "the end of the file, and not where 100 bytes would end");
    assert_eq!(file.read(100, None), Ok(vec![]));
    assert_eq!(file.write(b"s", None), Ok(1));
    assert_eq!(file.write(b"H", Some(0)), Ok(1));
    assert_eq!((file.offset(), file.read(100, Some(0))), (10, Ok(b"High tides".to_vec())));
    assert_eq!(file.write(b"", None), Ok(0));
    assert_eq!(file.offset(), 10);
}

#[test]
fn a_place_before_the_start_is_invalid_and_moves_nothing() {
    let file = RemoteFile::with(b"tide");
    assert_eq!(file.read(1, Some(-1)), Err(Errno::INVAL));
    assert_eq!(file.write(b"x", Some(i64::MIN)), Err(Errno::INVAL));
    assert_eq!(file.seek(SeekFrom::Current(-1)), Err(Errno::INVAL));
    assert_eq!(file.seek(SeekFrom::End(-5)), Err(Errno::INVAL));
    assert_eq!(file.offset(), 0);
    assert_eq!(file.read(9, None), Ok(b"tide".to_vec()));
}

#[test]
fn an_access_needs_a_descriptor_opened_for_it() {
    let file = RemoteFile::with(b"tide");
    let (reader, writer) = (file.open(OFlags::RDONLY), file.open(OFlags::WRONLY));
    let process = &file.pool.process;
    assert_eq!(process.read(writer.as_fd(), &mut [0], None), Err(Errno::BADF));
    assert_eq!(process.write(reader.as_fd(), b"x", None), Err(Errno::BADF));
    assert_eq!(process.write(reader.as_fd(), b"", None), Err(Errno::BADF));
    assert_eq!(process.set_size(reader.as_fd(), 0), Err(Errno::INVAL));
    assert_eq!(process.allocate(reader.as_fd(), 0, 0, 1), Err(Errno::BADF));
    let directory = file.pool.open("d", OFlags::RDONLY).unwrap();
    assert_eq!(process.read(directory.as_fd(), &mut [0], None), Err(Errno::ISDIR));
    let cases = [(&reader, false, true), (&reader, true, false), (&writer, false, false), (&writer, true, false)];
    for (descriptor, shared_and_written, may) in cases {
        let expected = if may { Ok(()) } else { Err(Errno::ACCESS) };
        assert_eq!(process.check_map(descriptor.as_fd(), shared_and_written), expected);
    }
    assert_eq!(process.check_map(file.fd(), true), Ok(()));
}

#[test]
fn a_duplicate_shares_the_offset_and_another_open_does_not() {
    let file = RemoteFile::with(b"high tide");
    let (copy, other) = (file.descriptor.try_clone().unwrap(), file.open(OFlags::RDONLY));
    file.pool.process.record_dup(file.fd(), copy.as_raw_fd());
    file.read(5, None).unwrap();
    let next = |descriptor: &OwnedFd| {
        let mut into = [0; 4];
        file.pool.process.read(descriptor.as_fd(), &mut into, None).unwrap();
        into
    };
    assert_eq!((&next(&copy), &next(&other)), (b"tide", b"high"));
}

#[test]
fn an_append_goes_to_the_end_wherever_the_offset_is_until_the_flag_is_cleared() {
    let file = RemoteFile::with(b"low");
    let process = &file.pool.process;
    process.set_flags(file.fd(), OFlags::APPEND).unwrap();
    assert_eq!(file.write(b" and", None), Ok(4));
    assert_eq!(file.offset(), 7);
    assert_eq!(file.write(b" high", Some(0)), Ok(5), "pwrite(2) on Linux appends too");
    assert_eq!((file.offset(), file.read(20, Some(0))), (7, Ok(b"low and high".to_vec())));
    process.set_flags(file.fd(), OFlags::empty()).unwrap();
    assert_eq!(file.write(b"L", Some(0)), Ok(1));
    assert_eq!(file.read(20, Some(0)), Ok(b"Low and high".to_vec()));
}

#[test]
fn getfl_reports_the_access_the_append_flag_and_what_setfl_may_change() {
    let file = RemoteFile::with(b"");
    let process = &file.pool.process;
    let large = OFlags::from_bits_retain(0o100_000);
    for access in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
        let descriptor = file.open(access | OFlags::APPEND);
        assert_eq!(process.flags(descriptor.as_fd()), Ok(access | OFlags::APPEND | large), "{access:?}");
        process.set_flags(descriptor.as_fd(), OFlags::NONBLOCK | OFlags::RDWR | OFlags::DIRECT).unwrap();
        assert_eq!(process.flags(descriptor.as_fd()), Ok(access | OFlags::NONBLOCK | large), "{access:?}");
    }
}

#[test]
fn a_seek_finds_the_end_data_and_holes() {
    let file = RemoteFile::with(b"");
    let process = &file.pool.process;
    process.set_size(file.fd(), 8 << 20).unwrap();
    file.write(b"tide", Some(4 << 20)).unwrap();
    let cases = [
        (SeekFrom::End(0), Ok(8 << 20)),
        (SeekFrom::End(-1), Ok((8 << 20) - 1)),
        (SeekFrom::End(1), Ok((8 << 20) + 1)),
        (SeekFrom::End(i64::MAX), Err(Errno::INVAL)),
        (SeekFrom::Start(3), Ok(3)),
        (SeekFrom::Current(2), Ok(5)),
        (SeekFrom::Data(0), Ok(4 << 20)),
        (SeekFrom::Hole(4 << 20), Ok(5 << 20)),
        (SeekFrom::Hole(0), Ok(0)),
        (SeekFrom::Data(6 << 20), Err(Errno::NXIO)),
        (SeekFrom::Hole(8 << 20), Err(Errno::NXIO)),
    ];
    for (to, expected) in cases {
        assert_eq!(file.seek(to), expected, "{to:?}");
    }
    assert_eq!(file.offset(), 0, "the last success");
}

#[test]
fn a_size_is_set_within_the_limits_and_the_bytes_between_are_zero() {
    let file = RemoteFile::with(b"tide");
    let process = &file.pool.process;
    assert_eq!(process.set_size(file.fd(), -1), Err(Errno::INVAL));
    process.set_size(file.fd(), 2).unwrap();
    process.set_size(file.fd(), 4).unwrap();
    assert_eq!(file.read(9, Some(0)), Ok(b"ti\0\0".to_vec()));
    process.set_size(file.fd(), FILE_BYTES_MAX.cast_signed()).unwrap();
    assert_eq!(process.readable_bytes(file.fd()), Ok(i32::MAX), "an int holds no more");
    process.set_size(file.fd(), 4).unwrap();
    file.seek(SeekFrom::Start(1)).unwrap();
    assert_eq!(process.readable_bytes(file.fd()), Ok(3));
    file.seek(SeekFrom::Start(100)).unwrap();
    assert_eq!((process.readable_bytes(file.fd()), file.read(1, None)), (Ok(0), Ok(vec![])));
}

#[test]
fn fallocate_reserves_punches_and_zeroes_and_knows_no_other_mode() {
    const KEEP: u32 = 0x01;
    const PUNCH: u32 = 0x02;
    const ZERO: u32 = 0x10;
    let file = RemoteFile::with(b"high tide");
    let allocate = |mode, at, bytes| file.pool.process.allocate(file.fd(), mode, at, bytes);
    let size = || file.seek(SeekFrom::End(0)).unwrap();
    allocate(PUNCH | KEEP, 0, 4).unwrap();
    assert_eq!(file.read(20, Some(0)), Ok(b"\0\0\0\0 tide".to_vec()));
    allocate(ZERO | KEEP, 5, 100).unwrap();
    assert_eq!((file.read(20, Some(0)), size()), (Ok(b"\0\0\0\0 \0\0\0\0".to_vec()), 9));
    allocate(KEEP, 0, 100).unwrap();
    assert_eq!(size(), 9);
    allocate(ZERO, 0, 10).unwrap();
    assert_eq!(size(), 10);
    allocate(0, 5, 7).unwrap();
    assert_eq!(size(), 12);
    for (mode, at, bytes, errno) in [
        (0, -1, 1, Errno::INVAL),
        (0, 0, 0, Errno::INVAL),
        (0, 0, -1, Errno::INVAL),
        (PUNCH, 0, 1, Errno::OPNOTSUPP),
        (0x08, 0, 1, Errno::OPNOTSUPP),
        (0x20 | KEEP, 0, 1, Errno::OPNOTSUPP),
        (0, 0, 1 << 40, Errno::NOSPC),
    ] {
        assert_eq!(allocate(mode, at, bytes), Err(errno), "{mode:x} {at} {bytes}");
    }
}

#[test]
fn a_transfer_larger_than_a_request_is_made_in_pieces() {
    let file = RemoteFile::with(b"");
    let bytes: Vec<u8> = (0..(17_u32 << 19)).map(|at| u8::try_from(at / 1000 % 251).unwrap()).collect();
    assert_eq!(file.write(&bytes, None), Ok(bytes.len()));
    assert_eq!(file.offset(), bytes.len() as u64);
    file.seek(SeekFrom::Start(0)).unwrap();
    assert!(file.read(bytes.len() + 1, None) == Ok(bytes), "what was read differs from what was written");
}

#[test]
fn a_write_that_finds_no_space_for_its_end_reports_what_was_written() {
    let file = RemoteFile::with(b"");
    let bytes = vec![7; 40 << 20];
    let written = file.write(&bytes, None).unwrap();
    assert!((8 << 20..32 << 20).contains(&written), "{written} bytes in a pool of 32 MiB");
    assert_eq!(file.offset(), written as u64);
    assert_eq!(file.write(&bytes[..8 << 20], None), Err(Errno::NOSPC));
    assert_eq!(file.offset(), written as u64, "nothing was written");
}

#[test]
fn threads_that_share_an_offset_overwrite_nothing() {
    const WRITES: u32 = 50;
    let file = RemoteFile::with(b"");
    let next = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..WRITES {
                    let record = next.fetch_add(1, Relaxed).to_le_bytes();
                    assert_eq!(file.write(&record, None), Ok(4));
                }
            });
        }
    });
    let bytes = file.read(4096, Some(0)).unwrap();
    let mut found: Vec<u32> = bytes.chunks(4).map(|record| u32::from_le_bytes(record.try_into().unwrap())).collect();
    found.sort_unstable();
    assert_eq!(found, (0..4 * WRITES).collect::<Vec<_>>());
}

#[test]
fn sendfile_is_refused_for_a_wrong_direction_a_directory_and_a_target_that_appends() {
    let file = RemoteFile::with(b"tide");
    let (reader, writer) = (file.open(OFlags::RDONLY), file.open(OFlags::WRONLY));
    let append = file.open(OFlags::WRONLY | OFlags::APPEND);
    let directory = file.pool.open("d", OFlags::RDONLY).unwrap();
    let check = |from: &OwnedFd, to: &OwnedFd| file.pool.process.check_sendfile(from.as_fd(), to.as_fd(), 1);
    assert_eq!(check(&reader, &writer), Ok(()));
    assert_eq!(check(&writer, &file.descriptor), Err(Errno::BADF));
    assert_eq!(check(&file.descriptor, &reader), Err(Errno::BADF));
    assert_eq!(check(&reader, &append), Err(Errno::INVAL));
    assert_eq!(check(&directory, &writer), Err(Errno::INVAL));
}

#[test]
fn copies_within_a_file_must_not_overlap() {
    let file = RemoteFile::with(b"high tide");
    let other = file.pool.open("d/other", CREATE).unwrap();
    let directory = file.pool.open("d", OFlags::RDONLY).unwrap();
    let append = file.open(OFlags::WRONLY | OFlags::APPEND);
    let check = |from, to, bytes, flags| file.pool.process.check_copy(from, to, bytes, flags);
    let own = |at| (file.fd(), Some(at));
    let cases = [
        (own(0), own(4), 4, Ok(())),
        (own(4), own(0), 4, Ok(())),
        (own(0), own(3), 4, Err(Errno::INVAL)),
        (own(3), own(0), 4, Err(Errno::INVAL)),
        (own(0), own(0), 1, Err(Errno::INVAL)),
        (own(0), own(9), 100, Ok(())),
        (own(9), own(9), 100, Ok(())),
        (own(0), own(8), usize::MAX, Err(Errno::INVAL)),
        (own(0), (file.fd(), None), 1, Err(Errno::INVAL)),
        (own(-1), own(0), 1, Err(Errno::INVAL)),
        (own(0), (other.as_fd(), Some(0)), 9, Ok(())),
        ((directory.as_fd(), None), own(0), 1, Err(Errno::ISDIR)),
        (own(0), (directory.as_fd(), None), 1, Err(Errno::ISDIR)),
        (own(0), (append.as_fd(), Some(9)), 1, Err(Errno::BADF)),
        ((append.as_fd(), None), own(0), 1, Err(Errno::BADF)),
    ];
    for (number, (from, to, bytes, expected)) in cases.into_iter().enumerate() {
        assert_eq!(check(from, to, bytes, 0), expected, "case {number}");
    }
    assert_eq!(check(own(0), own(4), 4, 1), Err(Errno::INVAL), "no flag is known");
}

#[test]
fn calls_on_any_descriptor_serve_those_of_the_host_too() {
    let file = RemoteFile::with(b"");
    let path = file.pool.host.path().join("host");
    let host = OwnedFd::from(std::fs::File::create_new(&path).unwrap());
    let process = &file.pool.process;
    for descriptor in [file.fd(), host.as_fd()] {
        assert_eq!(process.write_any(descriptor, b"tide", None), Ok(4));
        assert_eq!(process.write_any(descriptor, b"T", Some(0)), Ok(1));
        assert_eq!(process.write_any(descriptor, b"T", Some(-1)), Err(Errno::INVAL));
        assert_eq!(process.seek_any(descriptor, -1), Ok(()));
        assert_eq!(process.write_any(descriptor, b"e!", None), Ok(2));
    }
    assert_eq!((file.read(9, Some(0)), std::fs::read(&path).unwrap()), (Ok(b"Tide!".to_vec()), b"Tide!".to_vec()));
    assert_eq!(process.read(host.as_fd(), &mut [0], None), Err(Errno::BADF), "it is not of the pool");
    assert_eq!(process.stat(at("d/f"), rustix::fs::AtFlags::empty()).unwrap().size, 5);
}
