//! Registration of backing files for FUSE passthrough.

use std::{io, os::fd::AsFd, sync::Arc};

use crate::{device::DeviceIo, ioctl, types::BackingId};

/// Registers backing files, which the kernel reads, writes and maps itself. Needs `CAP_SYS_ADMIN`
/// and `Negotiated::passthrough`.
#[derive(Debug, Clone)]
pub struct Backings(Arc<DeviceIo>);

impl Backings {
    pub(crate) fn new(device: Arc<DeviceIo>) -> Self {
        Self(device)
    }

    /// Registers a file. The kernel takes its own reference, so the descriptor may be closed.
    pub fn open(&self, file: impl AsFd) -> io::Result<BackingId> {
        ioctl::open_backing(self.0.fd(), file.as_fd()).map(BackingId)
    }

    /// Removes a registration. Files that were opened with it stay in passthrough.
    pub fn close(&self, id: BackingId) -> io::Result<()> {
        ioctl::close_backing(self.0.fd(), id.0)
    }
}
