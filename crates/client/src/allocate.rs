//! Space of a range: taken beforehand, given back, looked for.

use crate::{Client, client::unexpected};
use placement::FileId;
use wire::{AllocateMode, Answer, Command, Object, Outcome, Refusal, SeekTo};

impl Client {
    /// Takes or gives back the space of a range, or fills it with zeros.
    pub async fn allocate(&self, file: FileId, _offset: u64, _length: u64, _mode: AllocateMode) -> Outcome<()> {
        Err(Refusal::Unsupported { object: Object::File(file), what: "allocating space".into() })
    }

    /// Where data or a hole begins, at `offset` or behind. Refused with `BeyondEnd` when there is none.
    pub async fn seek(&self, file: FileId, offset: u64, to: SeekTo) -> Outcome<u64> {
        match self.ask(file.partition(), Command::Seek { file, offset, to }).await? {
            Answer::Offset(offset) => Ok(offset),
            other => Err(unexpected(&other)),
        }
    }
}
