//! A memory file system of our own: made with fsmount and never attached, so it has no path, nobody else can name what is in
//! it, and it is gone with this process, however that ends. Needs `CAP_SYS_ADMIN`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, fstatvfs, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, fsconfig_create, fsconfig_reconfigure, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, fspick,
};

/// A private tmpfs, in huge pages where a file has enough for one.
#[derive(Debug)]
pub struct Tmpfs(OwnedFd);

impl Tmpfs {
    /// One without a bound of its own.
    pub fn unbounded() -> io::Result<Self> {
        Self::new(0)
    }

    /// One of at most so many bytes, at least 1: rounded up to whole pages.
    pub fn bounded(bytes: u64) -> io::Result<Self> {
        debug_assert!(bytes > 0, "a size of 0 is no bound");
        Self::new(bytes)
    }

    fn new(bytes: u64) -> io::Result<Self> {
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&context, "size", bytes.to_string())?;
        // Who makes files here bounds their number.
        fsconfig_set_string(&context, "nr_inodes", "0")?;
        fsconfig_set_string(&context, "huge", "within_size")?;
        // Older kernels do not know it; there the pool may be swapped out, as any memory may.
        let _ = fsconfig_set_flag(&context, "noswap");
        fsconfig_create(&context)?;
        // Not NOEXEC: a program maps a library in the pool to be executed, through a descriptor of the library's own extent. Nobody
        // runs anything here by name, since nothing has one.
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        Ok(Self(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?))
    }

    /// An empty file that has no name and never had one.
    pub fn nameless_file(&self) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(openat(&self.0, ".", flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Moves the bound to so many bytes, at least 1; refused when more is used.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        debug_assert!(bytes > 0, "a size of 0 is no bound");
        let context = fspick(self.0.as_fd(), c"", FsPickFlags::FSPICK_EMPTY_PATH | FsPickFlags::FSPICK_CLOEXEC)?;
        fsconfig_set_string(&context, "size", bytes.to_string())?;
        Ok(fsconfig_reconfigure(&context)?)
    }

    /// What its files hold, bytes. Of one with a bound.
    pub fn used(&self) -> io::Result<u64> {
        let told = fstatvfs(&self.0)?;
        Ok((told.f_blocks - told.f_bfree) * told.f_frsize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::StatVfsMountFlags;
    use std::os::unix::fs::FileExt;

    /// None where this process may not make one.
    fn bounded(bytes: u64) -> Option<Tmpfs> {
        Tmpfs::bounded(bytes).ok()
    }

    #[test]
    fn what_is_in_it_may_be_mapped_to_be_executed_and_gives_nobody_rights() {
        let Some(home) = bounded(1 << 20) else { return };
        let flags = fstatvfs(&home.0).unwrap().f_flag;
        assert!(!flags.contains(StatVfsMountFlags::NOEXEC) && flags.contains(StatVfsMountFlags::NOSUID), "{flags:?}");
    }

    #[test]
    fn a_bound_holds_moves_and_is_never_below_what_is_used() {
        let Some(home) = bounded(1 << 20) else { return };
        let file = home.nameless_file().unwrap();
        assert_eq!(home.used().unwrap(), 0);
        assert!(file.write_all_at(&vec![1; 2 << 20], 0).is_err(), "beyond the bound");
        assert_eq!(home.used().unwrap(), 1 << 20);
        assert!(home.resize(1 << 19).is_err(), "more is used");
        home.resize(3 << 20).unwrap();
        file.write_all_at(&vec![1; 2 << 20], 0).unwrap();
        file.set_len(5).unwrap();
        home.resize(4096).unwrap();
        assert_eq!(home.used().unwrap(), 4096);
        assert!(file.write_all_at(b"x", 1 << 20).is_err());
    }
}
