//! Names in folders that were walked to before.
//!
//! Where a way led the last time is only an address: the command goes there with the names of the folders, and is done if they lead there now. So it is
//! one message, in place of a walk and what follows it, and nobody has to be told when a folder moves.

use crate::{Client, Opened, call::Via, client::unexpected};
use placement::{FileId, PartitionId};
use wire::{Answer, Attributes, Command, Name, NewInode, NewKind, Object, Outcome, Refusal};

/// A way down from a directory, which led somewhere.
#[derive(Clone, Copy, Debug)]
pub struct Below<'a> {
    /// Where it begins.
    pub top: FileId,
    /// The names, at most 256.
    pub folders: &'a [Name],
    /// Where it led the last time.
    pub directory: FileId,
}

impl Client {
    /// The attributes of an entry, if the way leads there as it did; else none, and nothing is said of it.
    pub async fn lookup_below(&self, below: Below<'_>, name: &Name) -> Outcome<Option<Attributes>> {
        let attempt = |slot: FileId| async move {
            let Some(via) = self.via(below, slot.partition()) else { return Ok(None) };
            self.ask_via(via, slot.partition(), Command::Lookup { parent: slot, name: name.clone() }).await.map(Some)
        };
        match self.by(below, name, self.in_slot(below.directory, name, attempt).await)? {
            Some(Answer::Found { attributes: Some(attributes), .. }) => Ok(Some(attributes)),
            Some(Answer::Found { file, .. }) => {
                let found = Box::pin(self.lookup_elsewhere(below.directory, name, file)).await;
                found.map(Some)
            }
            Some(other) => Err(unexpected(&other)),
            None => Ok(None),
        }
    }

    /// Makes a file and opens it, if the way leads there as it did; else none, and nothing is done.
    pub async fn create_below(&self, below: Below<'_>, name: &Name, inode: NewInode) -> Outcome<Option<Opened>> {
        debug_assert!(inode.kind == NewKind::File, "only files are opened where they are made");
        let attempt = |slot: FileId| {
            let (name, inode, whole) = (name.clone(), inode.clone(), self.wish(slot.partition()));
            async move {
                let Some(via) = self.via(below, slot.partition()) else { return Ok(None) };
                let command = Command::Create { parent: slot, name, inode, open: true, whole };
                self.change_via(via, slot.partition(), command).await.map(Some)
            }
        };
        match self.by(below, name, self.in_slot(below.directory, name, attempt).await)? {
            Some(Answer::Opened { attributes, host, shared, .. }) => Ok(Some(Opened { attributes, host, shared })),
            Some(other) => Err(unexpected(&other)),
            None => Ok(None),
        }
    }

    /// How a command gets there; none where its directory and the begin of the way are at two nodes.
    fn via<'a>(&self, Below { top, folders, directory }: Below<'a>, partition: PartitionId) -> Option<Via<'a>> {
        let together = self.0.home(top.partition()) == self.0.home(partition);
        together.then_some(Via::Walk { top, folders, directory })
    }

    /// What came of it; none where the way leads elsewhere by now, or may.
    fn by(&self, below: Below<'_>, name: &Name, outcome: Outcome<Option<Answer>>) -> Outcome<Option<Answer>> {
        match outcome {
            Ok(Some(Answer::Walked { .. })) | Err(Refusal::NotDirectory(_)) => Ok(None),
            // The last name is what is not there, or one before it.
            Err(Refusal::NotFound(object)) if object != Object::entry(self.slot(below.directory, name), name) => {
                Ok(None)
            }
            outcome => outcome,
        }
    }
}
