//! Writes to extent files: the partition names the extent, its node takes the bytes.

use crate::Client;
use bytes::Bytes;
use placement::FileId;
use wire::{Answer, Body, Extent, ExtentAction, ExtentWrite, Outcome, Refusal, WritePlace};

impl Client {
    /// Writes to the extent of a file. `None` if the bytes have left that extent, so that the write
    /// must be planned anew.
    pub(crate) async fn write_extent(
        &self,
        file: FileId,
        extent: Extent,
        place: WritePlace,
        data: &Bytes,
    ) -> Outcome<Option<(u64, u32)>> {
        let (data, home) = (data.clone(), file.partition());
        let body = |action| Body::Extent { request_id: None, file, extent, action };
        let put = match place {
            WritePlace::At(offset) => self.send(home, &body(ExtentAction::Write { offset, data })).await,
            WritePlace::End => self.send_with_id(home, home, &body(ExtentAction::Append { data })).await,
        };
        match put.and_then(Answer::extent_written) {
            Ok(ExtentWrite { offset, length }) => Ok(Some((offset, length))),
            Err(Refusal::Stale(_)) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}
