//! A private tmpfs, made with fsmount and never attached. So it has no path, nobody else can name
//! its files, and it vanishes with this process, however it ends.
//!
//! It needs `CAP_SYS_ADMIN`, or the right to create a user namespace, in which this process has
//! that capability. The file system then belongs to that namespace and is resized by a child that
//! enters it ([`namespace_child`](crate::namespace_child)), which takes 60 us on the reference
//! machine.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, fstatvfs, mkdirat, open, openat, unlinkat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, fsconfig_create, fsconfig_reconfigure, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, fspick,
};
use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::namespace_child::{ChildNamespaces, run_in_namespace};

/// The huge-page policy: huge pages where the file's length covers one.
const HUGE: &str = "within_size";

/// A private tmpfs, with huge pages in files that are long enough.
#[derive(Debug)]
pub struct Tmpfs {
    mount: OwnedFd,
    /// The namespaces in which it is resized; `None` if it was created in those of this process.
    namespaces: Option<Namespaces>,
}

/// A user namespace and a mount namespace owned by it, kept alive by these descriptors.
#[derive(Debug)]
struct Namespaces {
    user: OwnedFd,
    mounts: OwnedFd,
}

impl Tmpfs {
    /// Creates a tmpfs without a size limit.
    pub fn unbounded() -> io::Result<Self> {
        Self::new(0)
    }

    /// Creates a tmpfs limited to `bytes`, at least 1, rounded up to whole pages.
    pub fn bounded(bytes: u64) -> io::Result<Self> {
        debug_assert!(bytes > 0, "a size of 0 is no bound");
        Self::new(bytes)
    }

    fn new(bytes: u64) -> io::Result<Self> {
        let size = bytes.to_string();
        match create(&size) {
            Ok(mount) => Ok(Self { mount, namespaces: None }),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Self::new_in_namespace(&size),
            Err(error) => Err(error),
        }
    }

    /// Creates a tmpfs in a new user namespace.
    fn new_in_namespace(size: &str) -> io::Result<Self> {
        // Map only this process's user and group to themselves: files need an owner that is mapped.
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        let (user, group) = (format!("{user} {user} 1"), format!("{group} {group} 1"));
        run_in_namespace(ChildNamespaces::New, || {
            write_file(c"/proc/self/setgroups", "deny")?;
            write_file(c"/proc/self/uid_map", &user)?;
            write_file(c"/proc/self/gid_map", &group)?;
            Ok(Self { mount: create(size)?, namespaces: Some(Namespaces::current()?) })
        })
    }

    /// Creates an empty file that never has a name.
    pub fn nameless_file(&self) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(openat(&self.mount, ".", flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Creates a directory, opens it twice and removes its name. `name` must not be in use
    /// meanwhile.
    pub fn nameless_directory(&self, name: &str) -> io::Result<[OwnedFd; 2]> {
        // Readable by all: a program may change its user, and the directory is empty.
        mkdirat(&self.mount, name, Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH)?;
        let reopen = || openat(&self.mount, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let opened = reopen().and_then(|one| Ok([one, reopen()?]));
        unlinkat(&self.mount, name, AtFlags::REMOVEDIR)?;
        Ok(opened?)
    }

    /// Sets the size limit to `bytes`, at least 1. Fails if more is used.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        debug_assert!(bytes > 0, "a size of 0 is no bound");
        self.reconfigure("size", &bytes.to_string())
    }

    /// Chooses huge pages (in files long enough for one) or small pages for future writes. Existing
    /// pages stay as they are.
    pub fn set_huge(&self, huge: bool) -> io::Result<()> {
        self.reconfigure("huge", if huge { HUGE } else { "never" })
    }

    fn reconfigure(&self, key: &str, value: &str) -> io::Result<()> {
        match &self.namespaces {
            None => self.set(key, value),
            Some(namespaces) => run_in_namespace(ChildNamespaces::Inherited, || {
                namespaces.enter()?;
                self.set(key, value)
            }),
        }
    }

    fn set(&self, key: &str, value: &str) -> io::Result<()> {
        let context = fspick(self.mount.as_fd(), c"", FsPickFlags::FSPICK_EMPTY_PATH | FsPickFlags::FSPICK_CLOEXEC)?;
        fsconfig_set_string(&context, key, value)?;
        Ok(fsconfig_reconfigure(&context)?)
    }

    /// Bytes held by its files. For a tmpfs with a size limit only.
    pub fn used(&self) -> io::Result<u64> {
        let status = fstatvfs(&self.mount)?;
        Ok((status.f_blocks - status.f_bfree) * status.f_frsize)
    }
}

impl Namespaces {
    fn current() -> io::Result<Self> {
        let open = |path: &CStr| open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        Ok(Self { user: open(c"/proc/self/ns/user")?, mounts: open(c"/proc/self/ns/mnt")? })
    }

    /// Moves this process, which has one thread, into the namespaces.
    fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.user.as_fd(), Some(LinkNameSpaceType::User))?;
        Ok(move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount))?)
    }
}

/// Creates a tmpfs in the present namespaces of this process.
fn create(size: &str) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "size", size)?;
    // No inode limit: the creator of the files limits their number.
    fsconfig_set_string(&context, "nr_inodes", "0")?;
    fsconfig_set_string(&context, "huge", HUGE)?;
    // Best effort: older kernels lack the option, and it needs the capability in the initial
    // namespace. Without it the pool may be swapped out, as any memory.
    let _ = fsconfig_set_flag(&context, "noswap");
    fsconfig_create(&context)?;
    // Not NOEXEC: a program may map a library of the pool as executable, through a descriptor of
    // the library's extent. Nothing can be executed here by name, since no file has one.
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn write_file(path: &CStr, text: &str) -> io::Result<()> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text.as_bytes()).map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::StatVfsMountFlags;
    use std::os::unix::fs::FileExt;

    /// Returns `None` if this process may not create a tmpfs.
    fn bounded(bytes: u64) -> Option<Tmpfs> {
        Tmpfs::bounded(bytes).ok()
    }

    #[test]
    fn what_is_in_it_may_be_mapped_to_be_executed_and_gives_nobody_rights() {
        let Some(tmpfs) = bounded(1 << 20) else { return };
        let flags = fstatvfs(&tmpfs.mount).unwrap().f_flag;
        assert!(!flags.contains(StatVfsMountFlags::NOEXEC) && flags.contains(StatVfsMountFlags::NOSUID), "{flags:?}");
    }

    #[test]
    fn a_bound_holds_moves_and_is_never_below_what_is_used() {
        let Some(tmpfs) = bounded(1 << 20) else { return };
        let file = tmpfs.nameless_file().unwrap();
        tmpfs.set_huge(false).unwrap();
        tmpfs.set_huge(true).unwrap();
        assert_eq!(tmpfs.used().unwrap(), 0);
        assert!(file.write_all_at(&vec![1; 2 << 20], 0).is_err(), "beyond the bound");
        assert_eq!(tmpfs.used().unwrap(), 1 << 20);
        assert!(tmpfs.resize(1 << 19).is_err(), "more is used");
        tmpfs.resize(3 << 20).unwrap();
        file.write_all_at(&vec![1; 2 << 20], 0).unwrap();
        file.set_len(5).unwrap();
        tmpfs.resize(4096).unwrap();
        assert_eq!(tmpfs.used().unwrap(), 4096);
        assert!(file.write_all_at(b"x", 1 << 20).is_err());
    }

    #[test]
    fn in_a_user_namespace_it_is_the_same() {
        let Ok(tmpfs) = Tmpfs::new_in_namespace("1048576") else { return };
        let file = tmpfs.nameless_file().unwrap();
        assert!(file.write_all_at(&vec![1; 2 << 20], 0).is_err(), "beyond the bound");
        tmpfs.set_huge(false).unwrap();
        for pages in [600, 700, 256] {
            tmpfs.resize(pages << 12).unwrap();
            assert_eq!(fstatvfs(&tmpfs.mount).unwrap().f_blocks, pages);
        }
        assert!(tmpfs.resize(1 << 19).is_err(), "more is used");
        assert_eq!(tmpfs.used().unwrap(), 1 << 20);
    }
}
