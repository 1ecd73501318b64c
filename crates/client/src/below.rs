//! Names in folders that were walked to before.
//!
//! Where a way led the last time is only an address: the command goes there with the names of the folders, and is done if they lead there now. So it is
//! one message, in place of a walk and what follows it, and nobody has to be told when a folder moves.

use crate::{Client, Opened, call::Via, client::unexpected};
use placement::{FileId, PartitionId};
use wire::{Answer, Attributes, Command, Credentials, Name, NewInode, NewKind, Object, OpenFlags, Outcome, Refusal};

/// A way down from a directory, which led somewhere.
#[derive(Clone, Copy, Debug)]
pub struct Below<'a> {
    /// Where it begins.
    pub top: FileId,
    /// The names, at most 256.
    pub folders: &'a [Name],
    /// Where it led the last time.
    pub directory: FileId,
    /// Who goes, if that is to be checked: what it is not sure that this user may do is not done.
    pub who: Option<&'a Credentials>,
}

impl Client {
    /// The attributes of an entry, if the way leads there as it did; else none, and nothing is said of it.
    pub async fn lookup_below(&self, below: Below<'_>, name: &Name) -> Outcome<Option<Attributes>> {
        let command = |parent| Command::Lookup { parent, name: name.clone() };
        match self.do_below(below, name, command).await? {
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
        let command = |parent: FileId| {
            let (name, inode, whole) = (name.clone(), inode.clone(), self.wish(parent.partition()));
            Command::Create { parent, name, inode, open: true, whole }
        };
        self.opened_by(self.do_below(below, name, command).await?).await
    }

    /// Opens a file for a program that has a descriptor of its own, if the way leads there as it did; else none: also where it is no file, elsewhere than its
    /// name, or not surely open to who goes.
    pub async fn open_below(&self, below: Below<'_>, name: &Name, flags: OpenFlags) -> Outcome<Option<Opened>> {
        let command = |parent: FileId| {
            let whole = self.wish(parent.partition());
            Command::OpenName { parent, name: name.clone(), flags, whole }
        };
        self.opened_by(self.do_below(below, name, command).await?).await
    }

    /// Removes the entry of anything but a directory, if the way leads there as it did; says whether.
    pub async fn unlink_below(&self, below: Below<'_>, name: &Name) -> Outcome<bool> {
        let command = |parent| Command::Unlink { parent, name: name.clone() };
        match self.do_below(below, name, command).await? {
            Some(Answer::Removed { gone }) => self.purge(gone).await,
            Some(Answer::Spread) => Box::pin(self.unlink_spread(below.directory, name)).await?,
            Some(other) => return Err(unexpected(&other)),
            None => return Ok(false),
        }
        Ok(true)
    }

    async fn opened_by(&self, answer: Option<Answer>) -> Outcome<Option<Opened>> {
        match answer {
            Some(Answer::Opened { attributes, host, trim, shared }) => {
                if let Some(trim) = trim {
                    Box::pin(self.finish_trim(attributes.file, trim)).await?;
                }
                Ok(Some(Opened { attributes, host, shared }))
            }
            // What a look tells.
            Some(Answer::Found { .. } | Answer::Unsettled { .. } | Answer::NoEntry) | None => Ok(None),
            Some(other) => Err(unexpected(&other)),
        }
    }

    /// Does a command about an entry at the end of a way; none where that leads elsewhere by now, or may.
    async fn do_below(
        &self,
        below: Below<'_>,
        name: &Name,
        command: impl Fn(FileId) -> Command,
    ) -> Outcome<Option<Answer>> {
        let attempt = |slot: FileId| {
            let (via, command, partition) = (self.via(below, slot.partition()), command(slot), slot.partition());
            async move {
                let Some(via) = via else { return Ok(None) };
                self.do_via(via, partition, command).await.map(Some)
            }
        };
        match self.in_slot(below.directory, name, attempt).await {
            Ok(Some(Answer::Walked { .. })) | Err(Refusal::NotDirectory(_)) => Ok(None),
            // The last name is what is not there, or one before it.
            Err(Refusal::NotFound(object)) if object != Object::entry(self.slot(below.directory, name), name) => {
                Ok(None)
            }
            outcome => outcome,
        }
    }

    /// How a command gets there; none where its directory and the begin of the way are at two nodes.
    fn via<'a>(&self, below: Below<'a>, partition: PartitionId) -> Option<Via<'a>> {
        let Below { top, folders, directory, who } = below;
        if folders.is_empty() && who.is_none() {
            return Some(Via::Plain);
        }
        let together = self.0.home(top.partition()) == self.0.home(partition);
        together.then_some(Via::Walk { top, folders, directory, who })
    }
}
