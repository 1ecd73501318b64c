//! I/O on a `/dev/fuse` descriptor: reads requests, writes replies and notifications.

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::{abi::OUT_HEADER, encode::header, interrupts::Interrupts, ioctl};

/// An open `/dev/fuse` of an existing mount.
#[derive(Debug)]
pub struct Device(OwnedFd);

impl From<OwnedFd> for Device {
    fn from(device: OwnedFd) -> Self {
        Self(device)
    }
}

impl From<File> for Device {
    fn from(device: File) -> Self {
        Self(device.into())
    }
}

/// Maximum number of parts of a reply without a heap allocation.
const PARTS_SMALL: usize = 7;

/// A descriptor of a connection, with the interrupts shared by its session.
#[derive(Debug)]
pub(crate) struct DeviceIo {
    device: OwnedFd,
    pub(crate) interrupts: Arc<Interrupts>,
}

/// The result of reading a request.
pub(crate) enum ReadResult {
    /// A request of this length.
    Message(usize),
    /// No request; read again.
    Retry,
    /// The kernel closed the connection.
    Closed,
}

impl DeviceIo {
    pub(crate) fn new(device: Device) -> Self {
        Self { device: device.0, interrupts: Arc::default() }
    }

    /// Opens a second descriptor of the connection, with its own queue of requests being processed.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let fresh = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
        ioctl::clone_into(&fresh, self.device.as_fd())?;
        Ok(Self { device: fresh.into(), interrupts: Arc::clone(&self.interrupts) })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Waits for the next request. Returns only permanent errors.
    pub(crate) fn read_request(&self, buffer: &mut [u8]) -> io::Result<ReadResult> {
        match rustix::io::read(&self.device, buffer) {
            Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => Ok(ReadResult::Closed),
            Ok(length) => Ok(ReadResult::Message(length)),
            // ENOENT: the request was cancelled before it was read.
            Err(Errno::INTR | Errno::NOENT) => Ok(ReadResult::Retry),
            Err(Errno::AGAIN) => self.wait_readable(),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until a non-blocking device is readable.
    fn wait_readable(&self) -> io::Result<ReadResult> {
        match poll(&mut [PollFd::new(&self.device, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(ReadResult::Retry),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a message. `error` is a notification code or a negated error number.
    pub(crate) fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        let length = OUT_HEADER + parts.iter().map(|part| part.len()).sum::<usize>();
        let length = u32::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let head = header(length, error, unique);
        if parts.len() > PARTS_SMALL {
            let slices: Vec<_> = std::iter::once(&head[..]).chain(parts.iter().copied()).map(IoSlice::new).collect();
            return self.write(&slices);
        }
        let mut slices = [IoSlice::new(&[]); PARTS_SMALL + 1];
        slices[0] = IoSlice::new(&head);
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        self.write(&slices[..=parts.len()])
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        loop {
            match rustix::io::writev(&self.device, slices) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
