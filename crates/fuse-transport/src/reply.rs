//! The reply to one request, sent by consuming it, immediately or later and from any thread.

use std::{sync::Arc, time::Duration};

use rustix::io::Errno;

use crate::{
    abi::{errno, op},
    device::DeviceIo,
    encode,
    interrupts::Interruption,
    listing::Listing,
    types::{FuseAttributes, FuseEntry, FuseLock, FuseOpen, Statfs, Statx},
};

/// A pending reply. Dropping it answers EIO.
///
/// [`FuseOp`](crate::FuseOp) says which method answers which operation. The kernel refuses
/// any other, and the caller gets EIO.
#[derive(Debug)]
#[must_use = "dropped without an answer it answers EIO"]
pub struct FuseReply {
    device: Arc<DeviceIo>,
    unique: u64,
    opcode: u32,
    answered: bool,
}

impl FuseReply {
    pub(crate) fn new(device: Arc<DeviceIo>, unique: u64, opcode: u32) -> Self {
        Self { device, unique, opcode, answered: false }
    }

    /// Returns a future that resolves when the caller has given up (by a signal or death) or the
    /// connection has ended. Includes interrupts since the request arrived. A reply is still due.
    pub fn interrupted(&self) -> Interruption {
        self.device.interrupts.wait(self.unique)
    }

    /// Fails with this positive error number. A number that the kernel does not know becomes EIO.
    pub fn error(mut self, number: i32) {
        self.fail(number);
    }

    /// Reports success without data.
    pub fn done(self) {
        self.send(&[]);
    }

    /// Sends the inode of a name. Returns false if the kernel did not take it because the caller
    /// was gone; it then does not count as a lookup.
    pub fn entry(self, entry: &FuseEntry) -> bool {
        self.send(&[&encode::entry(entry)])
    }

    /// Sends attributes and their validity.
    pub fn attributes(self, attributes: &FuseAttributes, valid: Duration) {
        self.send(&[&encode::attributes(attributes, valid)]);
    }

    /// Reports an open file or directory. Returns false if the kernel did not take it; there will
    /// be no `Release`.
    pub fn opened(self, opened: FuseOpen) -> bool {
        self.send(&[&encode::opened(&opened)])
    }

    /// Reports a file that was created and opened. Returns false if the kernel did not take it;
    /// neither a lookup nor an open was counted.
    pub fn created(self, entry: &FuseEntry, opened: FuseOpen) -> bool {
        self.send(&[&encode::created(entry, &opened)])
    }

    /// Sends bytes: of a file, a link's target, an attribute's value, or a list of names.
    pub fn data(self, data: &[u8]) {
        self.send(&[data]);
    }

    /// Sends bytes in parts, which are not joined in memory.
    pub fn data_parts(self, parts: &[&[u8]]) {
        self.send(parts);
    }

    /// Reports the number of bytes written.
    pub fn written(self, bytes: u32) {
        self.copied(u64::from(bytes));
    }

    /// Reports the number of bytes copied; limited to 32 bits for older kernels.
    pub fn copied(self, bytes: u64) {
        if self.opcode == op::COPY_FILE_RANGE_64 {
            self.send(&[&bytes.to_ne_bytes()]);
            return;
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.send(&[&bytes.to_ne_bytes(), &[0; 4]]);
    }

    /// Sends the usage of the file system.
    pub fn statfs(self, statfs: &Statfs) {
        self.send(&[&encode::statfs(statfs)]);
    }

    /// Sends the length of an attribute or of the list of names.
    pub fn xattr_size(self, bytes: u32) {
        self.send(&[&bytes.to_ne_bytes(), &[0; 4]]);
    }

    /// Sends the conflicting lock, or one of kind `Unlock` if there is none.
    pub fn lock(self, lock: &FuseLock) {
        self.send(&[&encode::lock(lock)]);
    }

    /// Sends a position in the file.
    pub fn offset(self, offset: u64) {
        self.send(&[&offset.to_ne_bytes()]);
    }

    /// Sends directory entries. Returns false if the kernel did not take them; none counted as a
    /// lookup.
    pub fn listing(self, listing: &Listing) -> bool {
        self.send(&[listing.bytes()])
    }

    /// Sends the fields of statx(2) and their validity.
    pub fn statx(self, statx: &Statx, valid: Duration) {
        self.send(&[&encode::statx(statx, valid)]);
    }

    /// Sends the ready events of a poll.
    pub fn polled(self, events: u32) {
        self.send(&[&events.to_ne_bytes(), &[0; 4]]);
    }

    /// Sends the result of an ioctl and its output bytes.
    pub fn ioctl(self, result: i32, data: &[u8]) {
        self.send(&[&result.to_ne_bytes(), &[0; 12], data]);
    }

    /// Sends the reply. Returns true if the kernel took it.
    fn send(mut self, parts: &[&[u8]]) -> bool {
        self.answered = true;
        let sent = self.device.send(self.unique, 0, parts);
        if sent.as_ref().is_err_and(|error| error.raw_os_error() != Some(Errno::NOENT.raw_os_error())) {
            self.fail(errno::EIO);
        }
        sent.is_ok()
    }

    /// Sends an error. A failure to send it is ignored: the request, or the connection, is gone.
    fn fail(&mut self, number: i32) {
        self.answered = true;
        let known = if (1..=errno::MAX).contains(&number) { number } else { errno::EIO };
        self.device.send(self.unique, -known, &[]).ok();
    }
}

impl Drop for FuseReply {
    fn drop(&mut self) {
        if !self.answered {
            self.fail(errno::EIO);
        }
    }
}
