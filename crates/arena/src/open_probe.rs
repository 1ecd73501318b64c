//! Open leases: a lock of the open file description on one byte far behind any file's
//! data.
//!
//! The lock ends with the last copy of the descriptor, in any process, and the last mapping made
//! through it. Any other open of the file can query the lock. So nobody has to track copies of the
//! descriptor.
//!
//! The locks are advisory and block nothing. A program that locks up to the end of a file directly
//! in the system, not through us, conflicts with the open leases of others. A program that unlocks
//! the whole file appears to have closed it. A file must also be idle before it is reused.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use store::{Access, LeaseNumber};

/// The byte of lease 0, far behind the data of any file. Numbers below 2^62 fit before the end of
/// the lockable range.
const LOCK_START: i64 = 1 << 62;

/// Sets the lock of `lease` on an open file.
pub fn set_lock(opened: BorrowedFd<'_>, lease: LeaseNumber, access: Access) -> io::Result<()> {
    // A shared lock needs read access, an exclusive lock needs write access.
    let kind = if access.read { libc::F_RDLCK } else { libc::F_WRLCK };
    fcntl_lock(opened, libc::F_OFD_SETLK, &mut lock(kind, lease))
}

/// Returns true if the lease is held through another open of the file. Also true if the query
/// fails.
pub fn is_open(file: BorrowedFd<'_>, lease: LeaseNumber) -> bool {
    let mut found = lock(libc::F_WRLCK, lease);
    fcntl_lock(file, libc::F_OFD_GETLK, &mut found).is_err() || found.l_type != lock_type(libc::F_UNLCK)
}

fn lock(kind: libc::c_int, lease: LeaseNumber) -> libc::flock {
    let at = i64::try_from(lease.0)
        .ok()
        .and_then(|lease| LOCK_START.checked_add(lease))
        .expect("a lease number is below 2^62");
    // The process id is 0: the lock belongs to the open file description.
    libc::flock { l_type: lock_type(kind), l_whence: lock_type(libc::SEEK_SET), l_start: at, l_len: 1, l_pid: 0 }
}

fn lock_type(constant: libc::c_int) -> libc::c_short {
    libc::c_short::try_from(constant).expect("constants of locks are small")
}

fn fcntl_lock(file: BorrowedFd<'_>, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    let lock: *mut libc::flock = lock;
    // SAFETY: the structure is initialised, exclusively borrowed and outlives the call, which keeps
    // no pointer to it; the descriptor is borrowed, so it is open.
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

    /// A file of each kind that this module is used on.
    fn files() -> Vec<File> {
        let memfd = memfd_create("lease", MemfdFlags::CLOEXEC).unwrap();
        Tmpfs::unbounded().and_then(|tmpfs| tmpfs.nameless_file()).into_iter().chain([memfd.into()]).collect()
    }

    #[test]
    fn a_lease_is_held_by_a_mapping_that_outlives_the_descriptor() {
        for file in files() {
            file.set_len(4096).unwrap();
            for access in [(true, false), (true, true)] {
                let (read, write) = access;
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                let open = File::options().read(read).write(write).open(path).unwrap();
                set_lock(open.as_fd(), LeaseNumber(7), Access { read, write, append: false }).unwrap();
                assert!(!is_open(open.as_fd(), LeaseNumber(7)), "the holder does not see its own lock");
                let map = MmapOptions::new().len(4096).map_raw_read_only(&open).unwrap();
                drop(open);
                assert!(
                    is_open(file.as_fd(), LeaseNumber(7)) && !is_open(file.as_fd(), LeaseNumber(8)),
                    "mapped, {access:?}"
                );
                drop(map);
                assert!(!is_open(file.as_fd(), LeaseNumber(7)), "{access:?}");
            }
        }
    }
}
