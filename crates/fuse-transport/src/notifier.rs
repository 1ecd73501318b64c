//! Notifications: unsolicited messages that invalidate or fill caches of the kernel.
//!
//! The kernel handles a notification within the call. `invalidate_entry` takes the directory's
//! lock; `invalidate_bytes` and `store` wait for pages that are being read or written. They
//! deadlock on a thread that such an operation waits for. `invalidate_attributes` and
//! `increment_epoch` take no lock and do not wait.

use std::{io, sync::Arc};

use rustix::io::Errno;

use crate::{abi::notify, device::DeviceIo, encode::FixedBuf};

/// Maximum number of inodes in one message, which must fit in a page.
const PRUNE_MAX: usize = 500;

/// Sends notifications to the kernel. A result of false means that the kernel did not know the
/// object; a reply that names it may still be on its way.
#[derive(Debug, Clone)]
pub struct Notifier(Arc<DeviceIo>);

impl Notifier {
    pub(crate) fn new(device: Arc<DeviceIo>) -> Self {
        Self(device)
    }

    /// Invalidates the inode's attributes and ACLs. Does not wait.
    pub fn invalidate_attributes(&self, inode: u64) -> io::Result<bool> {
        self.invalidate_inode(inode, -1, 0)
    }

    /// Invalidates the inode's attributes and its cached bytes in a range; length 0 means to the
    /// end. Waits for pages being read or written.
    pub fn invalidate_bytes(&self, inode: u64, offset: u64, length: u64) -> io::Result<bool> {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.invalidate_inode(inode, signed(offset), signed(length))
    }

    /// Stores bytes in the kernel's cache of an inode. The kernel then takes the file to be at
    /// least as long as their end, even if it discards a reply with the new size because of a
    /// notification in between. Waits for pages being read or written.
    pub fn store(&self, inode: u64, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let head: [u8; 24] = FixedBuf::new().u64(inode).u64(offset).u32(length_of(bytes)?).u32(0).finish();
        self.send(notify::STORE, &[&head, bytes])
    }

    /// Invalidates a name. Waits for operations on its directory.
    pub fn invalidate_entry(&self, parent: u64, name: &[u8]) -> io::Result<bool> {
        let head: [u8; 16] = FixedBuf::new().u64(parent).u32(length_of(name)?).finish();
        self.send(notify::INVAL_ENTRY, &[&head, name, b"\0"])
    }

    /// Reports that a name of `child` was removed, also to file system watchers (inotify). Waits
    /// for operations on the directory.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> io::Result<bool> {
        let head: [u8; 24] = FixedBuf::new().u64(parent).u64(child).u32(length_of(name)?).finish();
        self.send(notify::DELETE, &[&head, name, b"\0"])
    }

    /// Makes the kernel drop unused inodes, which it reports as `forget`.
    pub fn prune(&self, inodes: &[u64]) -> io::Result<bool> {
        let mut known = false;
        for some in inodes.chunks(PRUNE_MAX) {
            let count = u32::try_from(some.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
            let head: [u8; 16] = FixedBuf::new().u32(count).finish();
            let numbers: Vec<u8> = some.iter().flat_map(|inode| inode.to_ne_bytes()).collect();
            known |= self.send(notify::PRUNE, &[&head, &numbers])?;
        }
        Ok(known)
    }

    /// Invalidates all names cached now. Does not wait.
    pub fn increment_epoch(&self) -> io::Result<bool> {
        self.send(notify::INC_EPOCH, &[])
    }

    fn invalidate_inode(&self, inode: u64, offset: i64, length: i64) -> io::Result<bool> {
        let body: [u8; 24] = FixedBuf::new().u64(inode).i64(offset).i64(length).finish();
        self.send(notify::INVAL_INODE, &[&body])
    }

    fn send(&self, code: i32, parts: &[&[u8]]) -> io::Result<bool> {
        match self.0.send(0, code, parts) {
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(false),
            sent => sent.map(|()| true),
        }
    }
}

fn length_of(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
