//! Probes if a file is idle: a write lease is granted only if nobody else has it open or mapped.
//!
//! A file that a kernel opened for a passthrough mount counts as open while it is open there or a
//! mapping made through it lives, even after its handle was released. Mappings made through the
//! probed descriptor itself do not count.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns true if `fd` is the only open of its file. Does not work for memfds, whose file system
/// does not support leases.
pub fn is_idle(fd: BorrowedFd<'_>) -> bool {
    let granted = set_lease(fd, libc::F_WRLCK);
    if granted {
        // Released at once: the lease served as a probe only.
        set_lease(fd, libc::F_UNLCK);
    }
    granted
}

fn set_lease(fd: BorrowedFd<'_>, lease: libc::c_int) -> bool {
    // SAFETY: the call takes two integers and touches no memory of ours; the descriptor is
    // borrowed, so it is open.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, lease) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tmpfs::Tmpfs;
    use memmap2::MmapOptions;
    use std::fs::File;
    use std::os::fd::AsFd;

    /// Opens a file once more, as a kernel does for a mount.
    fn reopen(file: &File, write: bool) -> File {
        File::options().read(true).write(write).open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
    }

    #[test]
    fn an_open_file_is_not_idle_and_neither_is_a_mapping_that_outlives_it() {
        let Ok(tmpfs) = Tmpfs::unbounded() else { return };
        let file = tmpfs.nameless_file().unwrap();
        file.set_len(4096).unwrap();
        assert!(is_idle(file.as_fd()));
        for write in [false, true] {
            let other = reopen(&file, write);
            assert!(!is_idle(file.as_fd()), "open, write {write}");
            let map = MmapOptions::new().len(4096).map_raw_read_only(&other).unwrap();
            drop(other);
            assert!(!is_idle(file.as_fd()), "mapped, write {write}");
            drop(map);
            assert!(is_idle(file.as_fd()), "write {write}");
        }
    }
}
