//! Notifications: unsolicited messages that invalidate or fill caches of the kernel.
//!
//! The kernel handles a notification within the call. `drop_entry` takes the directory's lock;
//! `drop_bytes` and `store` wait for pages that are being read or written. They deadlock on a
//! thread that such an operation waits for. `drop_attributes` and `new_epoch` take no lock and do
//! not wait.

use std::{io, sync::Arc};

use rustix::io::Errno;

use crate::{abi::notify, encode::Bytes, line::Line};

/// Maximum number of inodes in one message, which must fit in a page.
const PRUNE_MAX: usize = 500;

/// Sends notifications to the kernel. A result of false means that the kernel did not know the
/// object; a reply that names it may still be on its way.
#[derive(Debug, Clone)]
pub struct Notifier(Arc<Line>);

impl Notifier {
    pub(crate) fn new(line: Arc<Line>) -> Self {
        Self(line)
    }

    /// Invalidates the inode's attributes and ACLs. Does not wait.
    pub fn drop_attributes(&self, inode: u64) -> io::Result<bool> {
        self.drop_inode(inode, -1, 0)
    }

    /// Invalidates the inode's attributes and its cached bytes in a range; length 0 means to the
    /// end. Waits for pages being read or written.
    pub fn drop_bytes(&self, inode: u64, offset: u64, length: u64) -> io::Result<bool> {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.drop_inode(inode, signed(offset), signed(length))
    }

    /// Stores bytes in the kernel's cache of an inode. The kernel then takes the file to be at
    /// least as long as their end, even if it discards a reply with the new size because of a
    /// notification in between. Waits for pages being read or written.
    pub fn store(&self, inode: u64, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let head: [u8; 24] = Bytes::new().u64(inode).u64(offset).u32(length_of(bytes)?).u32(0).done();
        self.tell(notify::STORE, &[&head, bytes])
    }

    /// Invalidates a name. Waits for operations on its directory.
    pub fn drop_entry(&self, parent: u64, name: &[u8]) -> io::Result<bool> {
        let head: [u8; 16] = Bytes::new().u64(parent).u32(length_of(name)?).done();
        self.tell(notify::INVAL_ENTRY, &[&head, name, b"\0"])
    }

    /// Reports that a name of `child` was removed, also to file system watchers (inotify). Waits
    /// for operations on the directory.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> io::Result<bool> {
        let head: [u8; 24] = Bytes::new().u64(parent).u64(child).u32(length_of(name)?).done();
        self.tell(notify::DELETE, &[&head, name, b"\0"])
    }

    /// Makes the kernel drop unused inodes, which it reports as `forget`.
    pub fn prune(&self, inodes: &[u64]) -> io::Result<bool> {
        let mut known = false;
        for some in inodes.chunks(PRUNE_MAX) {
            let count = u32::try_from(some.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
            let head: [u8; 16] = Bytes::new().u32(count).done();
            let numbers: Vec<u8> = some.iter().flat_map(|inode| inode.to_ne_bytes()).collect();
            known |= self.tell(notify::PRUNE, &[&head, &numbers])?;
        }
        Ok(known)
    }

    /// Invalidates all names cached now. Does not wait.
    pub fn new_epoch(&self) -> io::Result<bool> {
        self.tell(notify::INC_EPOCH, &[])
    }

    fn drop_inode(&self, inode: u64, offset: i64, length: i64) -> io::Result<bool> {
        let body: [u8; 24] = Bytes::new().u64(inode).i64(offset).i64(length).done();
        self.tell(notify::INVAL_INODE, &[&body])
    }

    fn tell(&self, code: i32, parts: &[&[u8]]) -> io::Result<bool> {
        match self.0.send(0, code, parts) {
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(false),
            told => told.map(|()| true),
        }
    }
}

fn length_of(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
