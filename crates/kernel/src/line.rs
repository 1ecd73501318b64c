//! The descriptor: requests are read from it, answers and notifications are written to it.

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

/// An open `/dev/fuse` with which a mount was made.
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

/// Answers of more parts than this allocate a list of them.
const PARTS_SMALL: usize = 7;

/// One descriptor of a connection, with what its session shares.
#[derive(Debug)]
pub(crate) struct Line {
    device: OwnedFd,
    pub(crate) interrupts: Arc<Interrupts>,
}

/// What reading a request came to.
pub(crate) enum Heard {
    /// A request of so many bytes.
    Request(usize),
    /// Nothing this time.
    Nothing,
    /// The kernel has let go.
    End,
}

impl Line {
    pub(crate) fn new(device: Device) -> Self {
        Self { device: device.0, interrupts: Arc::default() }
    }

    /// A further descriptor of the same connection, with a queue of its own for what it has read.
    pub(crate) fn another(&self) -> io::Result<Self> {
        let fresh = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
        ioctl::clone_into(&fresh, self.device.as_fd())?;
        Ok(Self { device: fresh.into(), interrupts: Arc::clone(&self.interrupts) })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Waits for the next request. Errors are those that no retry mends.
    pub(crate) fn hear(&self, buffer: &mut [u8]) -> io::Result<Heard> {
        match rustix::io::read(&self.device, buffer) {
            Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Heard::End),
            Ok(length) => Ok(Heard::Request(length)),
            // NOENT: the request was taken back before we had it.
            Err(Errno::INTR | Errno::NOENT) => Ok(Heard::Nothing),
            Err(Errno::AGAIN) => self.await_request(),
            Err(error) => Err(error.into()),
        }
    }

    /// For a device that was opened not to block.
    fn await_request(&self) -> io::Result<Heard> {
        match poll(&mut [PollFd::new(&self.device, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(Heard::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends one message; `error` is a notification's code, or an error number below zero.
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
