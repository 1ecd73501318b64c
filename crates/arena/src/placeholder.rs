//! Placeholder descriptors: sealed memfds, and nameless directories in the arena's own tmpfs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, open};
use store::{Access, LeaseNumber, PlaceholderHandle, PlaceholderKind, Placeholders};

use crate::Arena;
use crate::open_probe;
use crate::tmpfs::Tmpfs;

/// Another open of the placeholder, through which the open lease is queried.
#[derive(Debug)]
struct ProbeFd {
    file: OwnedFd,
    lease: LeaseNumber,
}

impl PlaceholderHandle for ProbeFd {
    fn is_open(&self) -> bool {
        open_probe::is_open(self.file.as_fd(), self.lease)
    }
}

impl Placeholders for Arena {
    fn create_placeholder(
        &self,
        kind: PlaceholderKind,
        lease: LeaseNumber,
    ) -> io::Result<(OwnedFd, Box<dyn PlaceholderHandle>)> {
        create_placeholder(self.pool.backing().tmpfs(), kind, lease)
    }
}

/// Creates a placeholder. Returns the descriptor for the program and the node's handle.
fn create_placeholder(
    tmpfs: Option<&Tmpfs>,
    kind: PlaceholderKind,
    lease: LeaseNumber,
) -> io::Result<(OwnedFd, Box<dyn PlaceholderHandle>)> {
    if let (PlaceholderKind::Directory, Some(tmpfs)) = (kind, tmpfs) {
        let [file, given] = tmpfs.nameless_directory(&lease.0.to_string())?;
        return with_open_lock(file, given, lease, Access { read: true, write: false, append: false });
    }
    let file = memfd_create("tidemill", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    // Direct access fails instead of losing data silently: the descriptor is write-only, and
    // writing is sealed.
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    let given = reopen(file.as_fd())?;
    with_open_lock(file, given, lease, Access { read: false, write: true, append: false })
}

fn with_open_lock(
    file: OwnedFd,
    given: OwnedFd,
    lease: LeaseNumber,
    access: Access,
) -> io::Result<(OwnedFd, Box<dyn PlaceholderHandle>)> {
    open_probe::set_lock(given.as_fd(), lease, access)?;
    Ok((given, Box::new(ProbeFd { file, lease })))
}

fn reopen(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{mkdirat, openat};
    use std::fs::{File, read_dir};

    #[test]
    fn a_placeholder_directory_is_empty_and_nothing_can_be_made_in_it() {
        let Ok(tmpfs) = Tmpfs::unbounded() else { return };
        let (directory, held) = create_placeholder(Some(&tmpfs), PlaceholderKind::Directory, LeaseNumber(5)).unwrap();
        assert!(File::from(directory.try_clone().unwrap()).metadata().unwrap().is_dir() && held.is_open());
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        assert_eq!(read_dir(path).unwrap().count(), 0);
        assert!(mkdirat(&directory, "x", Mode::RWXU).is_err());
        assert!(openat(&directory, "x", OFlags::CREATE | OFlags::RDWR, Mode::RWXU).is_err());
        drop(directory);
        assert!(!held.is_open());
        // The same number may recur, for instance from another arena.
        drop(create_placeholder(Some(&tmpfs), PlaceholderKind::Directory, LeaseNumber(5)).unwrap());
    }

    #[test]
    fn without_a_file_system_of_its_own_a_memfd_is_the_placeholder_of_a_directory_too() {
        let (stands, held) = create_placeholder(None, PlaceholderKind::Directory, LeaseNumber(5)).unwrap();
        assert!(File::from(stands).metadata().unwrap().is_file() && !held.is_open());
    }
}
