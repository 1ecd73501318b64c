//! Maps of files: those of local files are the kernel's, those of others are copies.

use crate::call::errno;
use crate::pool_test::{Place, TestDir, digest, number, same_everywhere};
use rustix::io::Errno;
use std::fs::File;
use std::ptr::null_mut;

#[test]
fn a_map_has_the_bytes_of_the_file_and_zeroes_after_its_end() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", &[b'm'; 6000]);
        let map = |may, flags, at| {
            // SAFETY: a new map.
            let mapped = unsafe { libc::mmap(null_mut(), 8192, may, flags, number(&file), at) };
            if mapped == libc::MAP_FAILED { Err(errno().unwrap()) } else { Ok(mapped.cast::<u8>()) }
        };
        let bytes = |mapped: *mut u8, length| {
            // SAFETY: a map of that many bytes at least.
            unsafe { digest(std::slice::from_raw_parts(mapped, length)) }
        };
        let read_only = map(libc::PROT_READ, libc::MAP_SHARED, 0).map(|mapped| bytes(mapped, 8192));
        let at_page = map(libc::PROT_READ, libc::MAP_PRIVATE, 4096).map(|mapped| bytes(mapped, 4096));
        let written = map(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE, 0).map(|mapped| {
            // SAFETY: a private map of the file.
            unsafe { mapped.write(b'x') };
            bytes(mapped, 3)
        });
        let refused =
            [1, -1, -4096, i64::MIN, i64::MAX - 4095].map(|at| map(libc::PROT_READ, libc::MAP_PRIVATE, at).map(drop));
        (read_only, at_page, written, refused, digest(&test_dir.bytes("f")))
    });
}

#[test]
fn a_placeholder_is_not_mapped_where_stores_would_be_lost() {
    let test_dir = TestDir::new(Place::Striped);
    let file = test_dir.file("f", b"0123");
    let read_only = File::open(test_dir.path("f")).unwrap();
    for (file, may, flags, why) in [
        (&file, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, Errno::NODEV),
        (&read_only, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, Errno::ACCESS),
    ] {
        // SAFETY: a map that is refused.
        let mapped = unsafe { libc::mmap(null_mut(), 4096, may, flags, number(file), 0) };
        assert_eq!((mapped, errno()), (libc::MAP_FAILED, Some(why)));
    }
    // SAFETY: a map that is refused.
    let mapped = unsafe { libc::mmap(null_mut(), 0, libc::PROT_READ, libc::MAP_PRIVATE, number(&file), 0) };
    assert_eq!((mapped, errno()), (libc::MAP_FAILED, Some(Errno::INVAL)));
}
