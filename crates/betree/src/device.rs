//! A device: a file or block device as a store uses it.

mod file_device;
#[cfg(test)]
pub mod simulated_device;

pub use file_device::FileDevice;

use std::{fmt, io, sync::Arc};

/// A run of bytes that outlive the process once they are written, and the machine once they are
/// synced.
///
/// Writes that do not overlap may come from several threads at a time. Offsets and lengths are
/// bytes.
pub trait StoreDevice: Send + Sync + fmt::Debug + 'static {
    /// The length of what was written or reserved.
    fn length(&self) -> io::Result<u64>;

    /// Makes sure that these bytes can be written: fails with `StorageFull` otherwise. What was
    /// there stays.
    fn reserve(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Reads these bytes. Fails with `UnexpectedEof` past the end.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes bytes.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when all that was written, also through mappings, survives the loss of power.
    fn sync(&self) -> io::Result<()>;

    /// Gives the space of these bytes back to the system, where that can be done; they may be
    /// anything then.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Maps bytes that are reserved, to write them at the speed of memory.
    fn map(&self, offset: u64, length: usize) -> io::Result<Arc<dyn MappedRange>>;
}

/// Mapped bytes of a device.
#[expect(unsafe_code, reason = "who stores and who reads is known to the log alone")]
pub trait MappedRange: Send + Sync + fmt::Debug + 'static {
    /// Stores bytes, that is, writes them. Panics if they do not fit.
    ///
    /// # Safety
    /// Nobody reads or stores these bytes meanwhile, nor has a reference to them.
    unsafe fn store(&self, at: usize, bytes: &[u8]);

    /// Bytes of the range. Panics if there are not as many.
    ///
    /// # Safety
    /// Nobody stores to these bytes while the reference lives.
    unsafe fn bytes(&self, at: usize, length: usize) -> &[u8];
}
