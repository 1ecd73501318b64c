//! Marks of opens: a lock of the open file description, on one byte far behind the bytes of any file.
//!
//! Such a lock goes with the last copy of the descriptor, in whatever process that is, and with the last mapping made through it; and
//! the system tells through any other open of the file whether it is there. So nobody has to count who copies what.
//!
//! These locks are advice: they keep nobody from anything. A program that locks to the end of a file by the system itself, not by us,
//! meets those of others; one that unlocks all of it looks closed. A file is given to nobody else before it is quiet, too.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use store::{Access, Mark};

/// The byte of mark 0. Twice the longest file that a tmpfs can have; all marks fit between here and the end of what can be locked.
const FIRST_BYTE: i64 = 1 << 62;

/// Marks what was just opened.
pub fn set(opened: BorrowedFd<'_>, mark: Mark, access: Access) -> io::Result<()> {
    // A lock that lets others read can be had by who may read only; the other kind by who may write only.
    let kind = if access.read { libc::F_RDLCK } else { libc::F_WRLCK };
    call(opened, libc::F_OFD_SETLK, &mut lock(kind, mark))
}

/// Whether a mark is set through another open of the file than this one. Where the system does not tell, it is.
pub fn is_held(file: BorrowedFd<'_>, mark: Mark) -> bool {
    let mut found = lock(libc::F_WRLCK, mark);
    call(file, libc::F_OFD_GETLK, &mut found).is_err() || found.l_type != kind_of(libc::F_UNLCK)
}

fn lock(kind: libc::c_int, mark: Mark) -> libc::flock {
    let at = i64::try_from(mark.0).ok().and_then(|mark| FIRST_BYTE.checked_add(mark)).expect("a mark is below 2^62");
    // No process: the lock is of the open itself.
    libc::flock { l_type: kind_of(kind), l_whence: kind_of(libc::SEEK_SET), l_start: at, l_len: 1, l_pid: 0 }
}

fn kind_of(constant: libc::c_int) -> libc::c_short {
    libc::c_short::try_from(constant).expect("constants of locks are small")
}

fn call(file: BorrowedFd<'_>, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    let lock: *mut libc::flock = lock;
    // SAFETY: the structure is whole, ours alone and lives as long as the call, which keeps no pointer to it; the descriptor is
    // borrowed, so it is open.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, lock) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tmpfs::Tmpfs;
    use memmap2::MmapOptions;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::{fs::File, os::fd::AsFd};

    /// A file of each kind that extents are made of here.
    fn files() -> Vec<File> {
        let memfd = memfd_create("mark", MemfdFlags::CLOEXEC).unwrap();
        Tmpfs::unbounded().and_then(|home| home.nameless_file()).into_iter().chain([memfd.into()]).collect()
    }

    #[test]
    fn a_mark_is_held_by_a_mapping_that_outlives_the_descriptor() {
        for file in files() {
            file.set_len(4096).unwrap();
            for access in [(true, false), (true, true)] {
                let (read, write) = access;
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                let open = File::options().read(read).write(write).open(path).unwrap();
                set(open.as_fd(), Mark(7), Access { read, write, append: false }).unwrap();
                assert!(!is_held(open.as_fd(), Mark(7)), "not for who holds it");
                let map = MmapOptions::new().len(4096).map_raw_read_only(&open).unwrap();
                drop(open);
                assert!(is_held(file.as_fd(), Mark(7)) && !is_held(file.as_fd(), Mark(8)), "mapped, {access:?}");
                drop(map);
                assert!(!is_held(file.as_fd(), Mark(7)), "{access:?}");
            }
        }
    }
}
