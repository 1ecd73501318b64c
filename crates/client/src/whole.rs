//! Writing to whole files: the partition names the extent, its node takes the bytes.

use crate::{Client, client::unexpected};
use bytes::Bytes;
use placement::FileId;
use wire::{Answer, Body, Extent, ExtentAction, Object, Outcome, Refusal, WritePlace};

impl Client {
    /// Writes to the extent of a whole file; none when its bytes are there no longer, and the write is to be planned anew.
    pub(crate) async fn write_whole(
        &self,
        file: FileId,
        extent: Extent,
        place: WritePlace,
        data: &Bytes,
    ) -> Outcome<Option<(u64, u32)>> {
        let data = data.clone();
        let (number, action) = match place {
            WritePlace::At(offset) => (None, ExtentAction::Write { offset, data }),
            WritePlace::End => {
                let none = || Refusal::invalid(Object::File(file), "the pool has no such partition");
                let number = self.0.numbers.begin(self.0.session, file.partition()).ok_or_else(none)?;
                (Some(number), ExtentAction::Append { data })
            }
        };
        let stamp = number.as_ref().map(crate::numbers::Number::stamp);
        match self.send(file.partition(), Body::Extent { stamp, file, extent, action }).await {
            Ok(Answer::Put { offset, length }) => Ok(Some((offset, length))),
            Ok(other) => Err(unexpected(&other)),
            Err(Refusal::Stale(_)) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}
