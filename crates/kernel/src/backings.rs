//! Files that the kernel reads, writes and maps by itself, without asking.

use std::{io, os::fd::AsFd, sync::Arc};

use crate::{ioctl, line::Line, values::BackingId};

/// Registers files for passthrough. Needs `CAP_SYS_ADMIN`, and `Granted::passthrough`.
#[derive(Debug, Clone)]
pub struct Backings(Arc<Line>);

impl Backings {
    pub(crate) fn new(line: Arc<Line>) -> Self {
        Self(line)
    }

    /// Registers a file; the kernel keeps a reference of its own, so the descriptor may be closed.
    pub fn open(&self, file: impl AsFd) -> io::Result<BackingId> {
        ioctl::open_backing(self.0.fd(), file.as_fd()).map(BackingId)
    }

    /// Takes a registration back; files that were opened with it go on.
    pub fn close(&self, id: BackingId) -> io::Result<()> {
        ioctl::close_backing(self.0.fd(), id.0)
    }
}
