//! Ranges of an open file: allocate, punch holes, seek data, copy.

use crate::{Handle, Vfs};
use wire::{AllocateMode, Outcome, SeekTo, WritePlace};

/// Largest length of one copy, bytes.
const COPY_BYTES_MAX: u64 = 64 << 20;
/// Length of the pieces in which a range is copied, bytes.
const PIECE_BYTES: u32 = 1 << 20;

impl Vfs {
    /// Allocates or frees the space of a range, or fills the range with zeros.
    pub fn allocate(
        &self,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let open = self.open_with_access(handle, |flags| flags.write);
        async move {
            let open = open?;
            open.client.allocate(open.file, offset, length, mode).await
        }
    }

    /// Offset of the next data or hole, at or after `offset`. Refused with `BeyondEnd` if there is
    /// none.
    pub fn seek(&self, handle: Handle, offset: u64, to: SeekTo) -> impl Future<Output = Outcome<u64>> + Send + use<> {
        let open = self.handles.get(handle);
        async move {
            let open = open?;
            open.client.seek(open.file, offset, to).await
        }
    }

    /// Copies a range from one open file to another, or within one file if the ranges do not
    /// overlap. Returns the number of bytes copied, which is less at the end of the source, in a
    /// full pool, and for a range longer than 64 MiB, so that other requests need not wait long
    /// behind it. Holes are copied as zeros.
    pub fn copy_range(
        &self,
        from: (Handle, u64),
        to: (Handle, u64),
        length: u64,
    ) -> impl Future<Output = Outcome<u64>> + Send + use<> {
        let (source, target) =
            (self.open_with_access(from.0, |flags| flags.read), self.open_with_access(to.0, |flags| flags.write));
        async move {
            let (source, target) = (source?, target?);
            let length = length.min(COPY_BYTES_MAX);
            let mut done = 0;
            while done < length {
                let wanted = u32::try_from((length - done).min(PIECE_BYTES.into())).expect("at most a piece");
                let bytes = source.client.read(source.file, from.1 + done, wanted).await?;
                if bytes.is_empty() {
                    break;
                }
                let at_end = bytes.len() < wanted as usize;
                let (read, place) = (bytes.len() as u64, WritePlace::At(to.1 + done));
                let written = match target.client.write(target.file, place, bytes, false).await {
                    Ok(written) => {
                        target.record_write(&written);
                        u64::from(written.length)
                    }
                    Err(refusal) if done == 0 => return Err(refusal),
                    Err(_) => break,
                };
                done += written;
                if written < read || at_end {
                    break;
                }
            }
            Ok(done)
        }
    }
}
