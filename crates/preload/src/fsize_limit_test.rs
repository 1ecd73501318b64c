//! File size limit of a process: it holds in the pool as on the host.

use crate::pool_test::{answer, in_child, number, same_everywhere, why};
use std::io::{IoSlice, Write};
use std::os::unix::fs::FileExt;

#[test]
fn a_write_ends_at_the_file_size_limit_of_the_process() {
    same_everywhere(|test_dir| {
        let mut file = test_dir.file("f", b"");
        in_child(|| {
            // SAFETY: a child of its own, which has no other thread; a local structure.
            unsafe {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                libc::setrlimit(libc::RLIMIT_FSIZE, &libc::rlimit { rlim_cur: 10, rlim_max: 10 });
            }
            let ends = [
                why(file.write(b"012345")),
                why(file.write(b"6789abcd")),
                why(file.write(b"e")),
                why(file.write(b"")),
                why(file.write_at(b"xyz", 8)),
                why(file.write_at(b"xyz", 10)),
                why(file.write_vectored(&[IoSlice::new(b"ab")])),
                why(file.set_len(11)).map(|()| 0),
                why(file.set_len(9)).map(|()| 0),
                why(file.set_len(10)).map(|()| 0),
                // SAFETY: takes numbers, and a nul-terminated string.
                answer(unsafe { libc::truncate(test_dir.c("f").as_ptr(), 11) }).map(|_| 0),
                // SAFETY: as above.
                answer(unsafe { libc::fallocate(number(&file), 0, 5, 6) }).map(|_| 0),
                // SAFETY: as above.
                Ok(unsafe { libc::posix_fallocate(number(&file), 5, 6) }.unsigned_abs() as usize),
                // SAFETY: as above.
                answer(unsafe { libc::truncate(test_dir.c("f").as_ptr(), 3) }).map(|_| 0),
            ];
            format!("{ends:?} {:?}", file.metadata().unwrap().len())
        })
    });
}
