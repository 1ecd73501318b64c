//! The answer to one request: consumed by giving it, at once or later and from any thread.

use std::{sync::Arc, time::Duration};

use rustix::io::Errno;

use crate::{
    abi::{errno, op},
    encode,
    interrupts::Interrupted,
    line::Line,
    listing::Listing,
    values::{Attributes, Entry, Lock, Opened, Statfs, Statx},
};

/// Owes the kernel an answer. Dropped without one, it answers EIO.
///
/// Which answer fits which operation stands at `Operation`; another one is refused by the kernel, and the caller gets EIO.
#[derive(Debug)]
#[must_use = "dropped without an answer it answers EIO"]
pub struct Reply {
    line: Arc<Line>,
    unique: u64,
    opcode: u32,
    answered: bool,
}

impl Reply {
    pub(crate) fn new(line: Arc<Line>, unique: u64, opcode: u32) -> Self {
        Self { line, unique, opcode, answered: false }
    }

    /// Resolves when the caller gave up, by a signal or its death, or the connection ended. No interrupt since the request
    /// came is missed. An answer is still owed.
    pub fn interrupted(&self) -> Interrupted {
        self.line.interrupts.wait(self.unique)
    }

    /// It failed, by this error number (positive). One that the kernel does not know becomes EIO.
    pub fn error(mut self, number: i32) {
        self.fail(number);
    }

    /// It is done, and there is nothing more to say.
    pub fn done(self) {
        self.send(&[]);
    }

    /// A name's inode. False when the kernel did not take it, as its caller was gone: then it did not count as a lookup.
    pub fn entry(self, entry: &Entry) -> bool {
        self.send(&[&encode::entry(entry)])
    }

    /// Attributes, and how long they may be believed.
    pub fn attributes(self, attributes: &Attributes, valid: Duration) {
        self.send(&[&encode::attributes(attributes, valid)]);
    }

    /// A file or directory is open. False when the kernel did not take it: no `Release` will come.
    pub fn opened(self, opened: Opened) -> bool {
        self.send(&[&encode::opened(&opened)])
    }

    /// A file was made and opened. False when the kernel did not take it: no lookup, and no open, was counted.
    pub fn created(self, entry: &Entry, opened: Opened) -> bool {
        self.send(&[&encode::created(entry, &opened)])
    }

    /// Bytes: of a file, a link's target, an attribute's value, a list of names.
    pub fn data(self, data: &[u8]) {
        self.send(&[data]);
    }

    /// The same in pieces, which are not put together here.
    pub fn data_parts(self, parts: &[&[u8]]) {
        self.send(parts);
    }

    /// So many bytes were written.
    pub fn written(self, bytes: u32) {
        self.copied(u64::from(bytes));
    }

    /// So many bytes were copied; what an older kernel cannot hear in 32 bits is told as less.
    pub fn copied(self, bytes: u64) {
        if self.opcode == op::COPY_FILE_RANGE_64 {
            self.send(&[&bytes.to_ne_bytes()]);
            return;
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.send(&[&bytes.to_ne_bytes(), &[0; 4]]);
    }

    /// How full it is.
    pub fn statfs(self, statfs: &Statfs) {
        self.send(&[&encode::statfs(statfs)]);
    }

    /// How long the attribute, or the list of names, is.
    pub fn xattr_size(self, bytes: u32) {
        self.send(&[&bytes.to_ne_bytes(), &[0; 4]]);
    }

    /// The lock that stands in the way, or one of kind `Unlock`.
    pub fn lock(self, lock: &Lock) {
        self.send(&[&encode::lock(lock)]);
    }

    /// A position in the file.
    pub fn offset(self, offset: u64) {
        self.send(&[&offset.to_ne_bytes()]);
    }

    /// Entries of a directory. False when the kernel did not take it: none of them counted as a lookup.
    pub fn listing(self, listing: &Listing) -> bool {
        self.send(&[listing.bytes()])
    }

    /// What statx(2) tells, and how long it may be believed.
    pub fn statx(self, statx: &Statx, valid: Duration) {
        self.send(&[&encode::statx(statx, valid)]);
    }

    /// Which events are ready.
    pub fn polled(self, events: u32) {
        self.send(&[&events.to_ne_bytes(), &[0; 4]]);
    }

    /// The result of an ioctl, and the bytes that it gives back.
    pub fn ioctl(self, result: i32, data: &[u8]) {
        self.send(&[&result.to_ne_bytes(), &[0; 12], data]);
    }

    /// Whether the kernel took it.
    fn send(mut self, parts: &[&[u8]]) -> bool {
        self.answered = true;
        let sent = self.line.send(self.unique, 0, parts);
        if sent.as_ref().is_err_and(|error| error.raw_os_error() != Some(Errno::NOENT.raw_os_error())) {
            self.fail(errno::EIO);
        }
        sent.is_ok()
    }

    /// Nobody is there to hear that an error could not be told: the request, or the whole connection, is gone.
    fn fail(&mut self, number: i32) {
        self.answered = true;
        let known = if (1..=errno::MAX).contains(&number) { number } else { errno::EIO };
        self.line.send(self.unique, -known, &[]).ok();
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.answered {
            self.fail(errno::EIO);
        }
    }
}
