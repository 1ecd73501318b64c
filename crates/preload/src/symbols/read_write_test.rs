//! Reads, writes and related calls end in the pool as on the host.

use super::*;
use crate::pool_test::{Place, TestDir, answer, digest, number, same_everywhere, why};
use std::fs::{self, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::{null, null_mut, without_provenance, without_provenance_mut};

/// Address where nothing is.
const NOWHERE: usize = 64;
/// Longer than one step of a copy and one stripe.
const LONG: usize = 3 * STEP_BYTES / 2;

/// Bytes that differ from place to place.
fn pattern(length: usize) -> Vec<u8> {
    (0_u8..251).cycle().take(length).collect()
}

#[test]
fn the_start_of_a_seek_is_checked_as_in_the_kernel() {
    let (inval, nxio) = (Errno::INVAL, Errno::NXIO);
    for (from, at, target) in [
        (libc::SEEK_SET, 0, Ok(SeekFrom::Start(0))),
        (libc::SEEK_SET, off_t::MAX, Ok(SeekFrom::Start(off_t::MAX.unsigned_abs()))),
        (libc::SEEK_SET, -1, Err(inval)),
        (libc::SEEK_CUR, -1, Ok(SeekFrom::Current(-1))),
        (libc::SEEK_END, off_t::MIN, Ok(SeekFrom::End(off_t::MIN))),
        (libc::SEEK_DATA, 5, Ok(SeekFrom::Data(5))),
        (libc::SEEK_DATA, -1, Err(nxio)),
        (libc::SEEK_HOLE, 5, Ok(SeekFrom::Hole(5))),
        (libc::SEEK_HOLE, -1, Err(nxio)),
        (5, 0, Err(inval)),
        (-1, 0, Err(inval)),
    ] {
        assert_eq!(seek_target(from, at), target, "{from} {at}");
    }
}

#[test]
fn the_sum_of_buffers_does_not_overflow_and_stays_below_the_limit_of_one_call() {
    let pieces = |lengths: &[usize]| {
        lengths.iter().map(|length| iovec { iov_base: null_mut(), iov_len: *length }).collect::<Vec<_>>()
    };
    for (lengths, sum) in
        [(&[][..], 0), (&[1, 0, 2], 3), (&[ONCE_BYTES, 1], ONCE_BYTES), (&[usize::MAX, usize::MAX], ONCE_BYTES)]
    {
        assert_eq!(total(&pieces(lengths)), sum, "{lengths:?}");
    }
}

#[test]
fn a_list_of_buffers_is_refused_if_it_is_too_long_or_unreadable() {
    let list = [iovec { iov_base: null_mut(), iov_len: 0 }; 2];
    // SAFETY: a list of two entries, or an address where nothing is.
    unsafe {
        assert_eq!(pieces(list.as_ptr(), 2).map(<[_]>::len), Ok(2));
        assert_eq!(pieces(null(), 0).map(<[_]>::len), Ok(0));
        for (count, errno) in [(-1, Errno::INVAL), (1025, Errno::INVAL), (1, Errno::FAULT), (1024, Errno::FAULT)] {
            assert_eq!(pieces(without_provenance(NOWHERE), count).map(<[_]>::len), Err(errno), "{count}");
        }
    }
}

#[test]
fn an_offset_of_the_program_is_absent_or_writable_and_aligned() {
    let mut offsets = [3_i64, 4];
    // SAFETY: the test's own offsets, or an address where nothing is.
    unsafe {
        assert_eq!(place(null_mut()), Ok(None));
        assert_eq!(place(&raw mut offsets[0]), Ok(Some(&mut 3)));
        assert_eq!(place(without_provenance_mut(NOWHERE)), Err(Errno::FAULT));
        assert_eq!(place((&raw mut offsets[0]).byte_add(1)), Err(Errno::FAULT));
    }
}

#[test]
fn bytes_are_where_they_were_written_and_holes_are_zero() {
    same_everywhere(|test_dir| {
        let mut file = test_dir.file("f", b"");
        let mut ends = vec![
            why(file.write(b"0123456789")),
            why(file.write_at(b"xy", 4)),
            why(file.write_at(b"end", 70_000)),
            why(file.write(b"")),
            why(file.write(b"a")),
        ];
        let mut buffer = [b'-'; 8];
        ends.extend([69_996, 70_002, 70_003, 1 << 40].map(|at| why(file.read_at(&mut buffer, at))));
        ends.push(why(file.read(&mut [])));
        ends.push(why(file.read(&mut buffer)));
        (
            ends,
            buffer,
            why(file.stream_position()),
            digest(&test_dir.bytes("f")),
            why(file.metadata()).map(|found| found.len()),
        )
    });
}

#[test]
fn long_reads_and_writes_pass_every_byte() {
    let bytes = pattern(LONG);
    same_everywhere(|test_dir| {
        let mut file = test_dir.file("f", b"");
        file.write_all(&bytes).unwrap();
        file.rewind().unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert!(read == bytes);
        read[..9].fill(0);
        file.read_exact_at(&mut read[..9], (1 << 20) - 4).unwrap();
        (file.stream_position().unwrap(), read[..9].to_vec())
    });
}

#[test]
fn seeks_move_to_starts_ends_data_and_holes() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"0123456789");
        let seeks = [
            (3, libc::SEEK_SET),
            (2, libc::SEEK_CUR),
            (-6, libc::SEEK_CUR),
            (-1, libc::SEEK_SET),
            (-11, libc::SEEK_END),
            (-10, libc::SEEK_END),
            (5, libc::SEEK_END),
            (0, libc::SEEK_CUR),
            (0, libc::SEEK_DATA),
            (0, libc::SEEK_HOLE),
            (10, libc::SEEK_DATA),
            (11, libc::SEEK_HOLE),
            (-1, libc::SEEK_DATA),
            (0, 9),
            (i64::MAX, libc::SEEK_SET),
            (1, libc::SEEK_CUR),
        ];
        // SAFETY: takes numbers only.
        seeks.map(|(at, from)| answer(unsafe { libc::lseek(number(&file), at, from) }))
    });
}

#[test]
fn buffers_are_filled_and_written_in_their_order() {
    same_everywhere(|test_dir| {
        let mut file = test_dir.file("f", b"");
        let written = why(file.write_vectored(&[b"abc", &b""[..], b"defgh"].map(IoSlice::new)));
        file.rewind().unwrap();
        let (mut first, mut second, mut third) = ([b'-'; 2], [b'-'; 5], [b'-'; 4]);
        let mut into = [&mut first[..], &mut second, &mut third].map(IoSliceMut::new);
        let read = why(file.read_vectored(&mut into));
        let read_at_end = why(file.read_vectored(&mut into));
        let (position, descriptor) = (file.stream_position().unwrap(), number(&file));
        let piece = [iovec { iov_base: first.as_mut_ptr().cast(), iov_len: 2 }];
        // SAFETY: a list of one buffer.
        let others = unsafe {
            [
                answer(libc::preadv(descriptor, piece.as_ptr(), 1, 5)),
                answer(libc::pwritev(descriptor, piece.as_ptr(), 1, 0)),
                answer(libc::preadv(descriptor, piece.as_ptr(), 1, -1)),
                answer(libc::preadv2(descriptor, piece.as_ptr(), 1, 3, 0)),
                answer(libc::preadv2(descriptor, piece.as_ptr(), 1, -1, 0)),
                answer(libc::pwritev2(descriptor, piece.as_ptr(), 1, -1, 0)),
                answer(libc::readv(descriptor, piece.as_ptr(), -1)),
                answer(libc::writev(descriptor, piece.as_ptr(), 1025)),
                answer(libc::readv(descriptor, piece.as_ptr(), 0)),
            ]
        };
        (written, read, read_at_end, position, (first, second, third), others, test_dir.bytes("f"))
    });
}

#[test]
fn an_appended_write_goes_to_the_end_whatever_the_offset_is() {
    same_everywhere(|test_dir| {
        let mut first = OpenOptions::new().append(true).create(true).open(test_dir.path("f")).unwrap();
        let mut second = OpenOptions::new().append(true).read(true).open(test_dir.path("f")).unwrap();
        let ends = [
            why(first.write(b"one ")),
            why(second.write(b"two ")),
            why(first.write_vectored(&[b"thr", b"ee "].map(|text| IoSlice::new(text)))),
            why(second.write_at(b"four", 0)),
        ];
        (ends, first.stream_position().unwrap(), second.stream_position().unwrap(), test_dir.bytes("f"))
    });
}

#[test]
fn bytes_are_refused_as_the_descriptor_was_opened() {
    same_everywhere(|test_dir| {
        test_dir.file("f", b"0123");
        let open = |name: &str, flags| {
            // SAFETY: a nul-terminated string.
            let descriptor = unsafe { libc::open(test_dir.c(name).as_ptr(), flags) };
            assert!(descriptor >= 0);
            descriptor
        };
        let mut buffer = [0_u8; 4];
        [("f", libc::O_RDONLY), ("f", libc::O_WRONLY), ("f", libc::O_PATH), (".", libc::O_RDONLY)].map(
            |(name, flags)| {
                let descriptor = open(name, flags);
                // SAFETY: the test's own buffer and descriptor.
                let ends = unsafe {
                    let into = buffer.as_mut_ptr().cast();
                    vec![
                        answer(libc::read(descriptor, into, 4)),
                        answer(libc::pread(descriptor, into, 4, 0)),
                        answer(libc::write(descriptor, into, 0)),
                        answer(libc::write(descriptor, into, 4)),
                        answer(libc::pwrite(descriptor, into, 4, 0)),
                        answer(libc::ftruncate(descriptor, 4)),
                        answer(libc::fsync(descriptor)),
                        answer(libc::fdatasync(descriptor)),
                    ]
                };
                // SAFETY: opened above.
                unsafe { libc::close(descriptor) };
                ends
            },
        )
    });
}

#[test]
fn a_buffer_that_cannot_be_used_is_refused_after_the_descriptor_and_the_offset() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"0123456789");
        let (descriptor, write_only) =
            (number(&file), OpenOptions::new().write(true).open(test_dir.path("f")).unwrap());
        // SAFETY: an address where nothing is.
        let ends = unsafe {
            let into: *mut c_void = without_provenance_mut(NOWHERE);
            [
                answer(libc::read(descriptor, into, 4)),
                answer(libc::pread(descriptor, into, 4, 3)),
                answer(libc::pread(descriptor, into, 4, 10)),
                answer(libc::pread(descriptor, into, 4, -1)),
                answer(libc::pread(descriptor, into, 0, 0)),
                answer(libc::write(descriptor, into, 4)),
                answer(libc::pwrite(descriptor, into, 4, -1)),
                answer(libc::read(number(&write_only), into, 4)),
            ]
        };
        (ends, test_dir.bytes("f"))
    });
}

#[test]
fn only_the_buffers_before_an_unusable_one_are_used() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"0123456789");
        let mut good = [b'a'; 3];
        let bad = iovec { iov_base: without_provenance_mut(NOWHERE), iov_len: 4 };
        let good = iovec { iov_base: good.as_mut_ptr().cast(), iov_len: 3 };
        // SAFETY: lists of two buffers, of which one is unusable.
        let ends = unsafe {
            [
                answer(libc::readv(number(&file), [bad, good].as_ptr(), 2)),
                answer(libc::writev(number(&file), [bad, good].as_ptr(), 2)),
                answer(libc::readv(number(&file), without_provenance(NOWHERE), 2)),
            ]
        };
        (ends, test_dir.bytes("f"))
    });
}

#[test]
fn sizes_change_as_asked_and_only_within_their_limits() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"0123456789");
        let descriptor = number(&file);
        let sizes = [4, 200_000, 0, 6, -1, i64::MIN].map(|bytes| {
            // SAFETY: takes numbers only.
            let ended = answer(unsafe { libc::ftruncate(descriptor, bytes) });
            (ended, file.metadata().unwrap().len())
        });
        let allocated = [
            (0, 0, 10),
            (0, 100_000, 10),
            (libc::FALLOC_FL_KEEP_SIZE, 0, 300_000),
            (0, -1, 10),
            (0, 0, 0),
            (0, 10, -1),
            (0, i64::MAX, 1),
        ]
        .map(|(mode, at, bytes)| {
            // SAFETY: takes numbers only.
            let ended = answer(unsafe { libc::fallocate(descriptor, mode, at, bytes) });
            (ended, file.metadata().unwrap().len())
        });
        let by_number = [(0, 200_000), (-1, 1), (0, 0)].map(|(at, bytes)| {
            // SAFETY: takes numbers only.
            (unsafe { libc::posix_fallocate(descriptor, at, bytes) }, file.metadata().unwrap().len())
        });
        (sizes, allocated, by_number)
    });
}

#[test]
fn a_punched_hole_reads_as_zero_and_keeps_the_size() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", &pattern(200_000));
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: takes numbers only.
        let ends = [(50_000, 100_000), (10, 5), (199_990, 100)]
            .map(|(at, bytes)| answer(unsafe { libc::fallocate(number(&file), mode, at, bytes) }));
        (ends, digest(&test_dir.bytes("f")))
    });
}

#[test]
fn files_are_copied_by_the_kernels_calls() {
    same_everywhere(|test_dir| {
        let (from, to) = (test_dir.file("from", &pattern(LONG)), test_dir.file("to", b""));
        let (mut from_at, mut to_at, source, target) = (10, 5, number(&from), number(&to));
        // SAFETY: the test's own offsets, or none.
        let ends = unsafe {
            [
                answer(libc::sendfile(target, source, null_mut(), 100)),
                answer(libc::sendfile(target, source, &raw mut from_at, 50)),
                answer(libc::copy_file_range(source, &raw mut from_at, target, null_mut(), LONG, 0)),
                answer(libc::copy_file_range(source, null_mut(), target, &raw mut to_at, 7, 0)),
                answer(libc::copy_file_range(source, null_mut(), target, null_mut(), 7, 1)),
                answer(libc::copy_file_range(source, null_mut(), target, null_mut(), 0, 0)),
                answer(libc::sendfile(target, source, without_provenance_mut(NOWHERE), 1)),
            ]
        };
        let positions = [&from, &to].map(|mut file| file.stream_position().unwrap());
        (ends, (from_at, to_at), positions, digest(&test_dir.bytes("to")))
    });
}

#[test]
fn files_are_sent_across_the_border_of_the_pool() {
    let host = TestDir::new(Place::Host);
    same_everywhere(|test_dir| {
        [(test_dir, &host), (&host, test_dir)].map(|(from, to)| {
            let (from, target) = (from.file("from", &pattern(LONG)), to.file("to", b""));
            // SAFETY: no offset.
            let sent = answer(unsafe { libc::sendfile(number(&target), number(&from), null_mut(), LONG + 1) });
            (sent, digest(&to.bytes("to")))
        })
    });
}

#[test]
fn a_pipe_takes_and_gives_the_bytes_of_a_file() {
    same_everywhere(|test_dir| {
        let (from, to) = (test_dir.file("from", b"0123456789"), test_dir.file("to", b"........"));
        let (reads, writes) = std::io::pipe().unwrap();
        let (mut from_at, mut to_at) = (2, 3);
        // SAFETY: the test's own offsets, or none.
        let ends = unsafe {
            [
                answer(libc::splice(number(&from), &raw mut from_at, writes.as_raw_fd(), null_mut(), 4, 0)),
                answer(libc::splice(number(&from), null_mut(), writes.as_raw_fd(), null_mut(), 2, 0)),
                answer(libc::splice(reads.as_raw_fd(), null_mut(), number(&to), &raw mut to_at, 4, 0)),
                answer(libc::splice(reads.as_raw_fd(), null_mut(), number(&to), null_mut(), 2, 0)),
            ]
        };
        (ends, from_at, to_at, test_dir.bytes("to"))
    });
}

#[test]
fn a_copy_that_is_cut_short_leaves_the_offset_after_what_was_copied() {
    same_everywhere(|test_dir| {
        let (file, (reads, writes)) = (test_dir.file("f", &pattern(200_000)), std::io::pipe().unwrap());
        // SAFETY: takes numbers, and no offset.
        let sent = unsafe {
            assert_eq!(libc::fcntl(writes.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK), 0);
            [(), ()].map(|()| answer(libc::sendfile(writes.as_raw_fd(), number(&file), null_mut(), 200_000)))
        };
        drop(reads);
        (sent, (&file).stream_position().unwrap())
    });
}

#[test]
fn a_copy_by_the_standard_library_is_the_same_file() {
    let bytes = pattern(LONG);
    same_everywhere(|test_dir| {
        fs::write(test_dir.path("from"), &bytes).unwrap();
        let copied = fs::copy(test_dir.path("from"), test_dir.path("to")).unwrap();
        assert!(test_dir.bytes("to") == bytes);
        copied
    });
}

#[test]
fn advice_and_syncs_succeed_on_files_and_fail_on_a_location() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"0123");
        // SAFETY: a nul-terminated string; numbers.
        unsafe {
            let location = libc::open(test_dir.c("f").as_ptr(), libc::O_PATH);
            let ends = [number(&file), location].map(|descriptor| {
                [
                    i64::from(libc::posix_fadvise(descriptor, 0, 0, libc::POSIX_FADV_RANDOM)),
                    answer(libc::readahead(descriptor, 0, 4)).map_or_else(|errno| errno.raw_os_error().into(), |_| 0),
                    answer(libc::sync_file_range(descriptor, 0, 0, 0))
                        .map_or_else(|errno| errno.raw_os_error().into(), |_| 0),
                    answer(libc::syncfs(descriptor)).map_or_else(|errno| errno.raw_os_error().into(), |_| 0),
                ]
            });
            libc::close(location);
            ends
        }
    });
}

#[test]
fn a_fortified_read_stays_within_the_programs_buffer() {
    let test_dir = TestDir::new(Place::Striped);
    let file = test_dir.file("f", b"0123456789");
    let mut buffer = [b'-'; 10];
    // SAFETY: a buffer of ten bytes.
    unsafe {
        assert_eq!(__read_chk(number(&file), buffer.as_mut_ptr().cast(), 10, 4), 4);
        assert_eq!(&buffer, b"0123------");
        assert_eq!(__pread_chk(number(&file), buffer.as_mut_ptr().cast(), 10, 8, 2), 2);
        assert_eq!(&buffer, b"8923------");
    }
}
