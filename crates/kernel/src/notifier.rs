//! What the kernel shall forget: messages that nobody asked for.
//!
//! The kernel works on a notification before the call returns. `drop_entry` takes the directory's lock, `drop_bytes` waits
//! and `store` wait for pages that are being read or written: from a thread that such an operation waits for they would wait for ever.
//! `drop_attributes` and `new_epoch` take no lock and wait for nothing.

use std::{io, sync::Arc};

use rustix::io::Errno;

use crate::{abi::notify, encode::Bytes, line::Line};

/// How many inodes one message names: what fits into a page.
const PRUNE_MAX: usize = 500;

/// Tells the kernel what to forget. Answers tell whether it knew the thing at all; false may also mean that an answer
/// which names it is still on its way.
#[derive(Debug, Clone)]
pub struct Notifier(Arc<Line>);

impl Notifier {
    pub(crate) fn new(line: Arc<Line>) -> Self {
        Self(line)
    }

    /// The inode's attributes and ACLs are asked for anew. Waits for nothing.
    pub fn drop_attributes(&self, inode: u64) -> io::Result<bool> {
        self.drop_inode(inode, -1, 0)
    }

    /// The inode's attributes, and its cached bytes from here on; length 0 is all the rest. Waits for pages under way.
    pub fn drop_bytes(&self, inode: u64, offset: u64, length: u64) -> io::Result<bool> {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.drop_inode(inode, signed(offset), signed(length))
    }

    /// Puts bytes into the kernel's cache of an inode. The kernel takes the inode to be at least as long as they reach, also where it
    /// drops an answer that says so because a notification came in between. Waits for pages under way.
    pub fn store(&self, inode: u64, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let head: [u8; 24] = Bytes::new().u64(inode).u64(offset).u32(length_of(bytes)?).u32(0).done();
        self.tell(notify::STORE, &[&head, bytes])
    }

    /// A name is looked up anew. Waits for operations on its directory.
    pub fn drop_entry(&self, parent: u64, name: &[u8]) -> io::Result<bool> {
        let head: [u8; 16] = Bytes::new().u64(parent).u32(length_of(name)?).done();
        self.tell(notify::INVAL_ENTRY, &[&head, name, b"\0"])
    }

    /// A name that led to `child` is gone: watchers of the file system hear of it. Waits for operations on its directory.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> io::Result<bool> {
        let head: [u8; 24] = Bytes::new().u64(parent).u64(child).u32(length_of(name)?).done();
        self.tell(notify::DELETE, &[&head, name, b"\0"])
    }

    /// Inodes that nobody uses are let go, and come back as `forget`.
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

    /// Every name that is known now is looked up anew before it is used again. Waits for nothing.
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
