//! Operations on names in directories whose paths were walked before.
//!
//! The directory that a path led to the last time is a hint, used only as an address. The command
//! is sent there together with the names of the directories, and is executed only if they still
//! lead there. So one message does the walk and the command, and no client has to be notified when
//! a directory moves.

use crate::{Client, Opened, call::Via, client::unexpected};
use placement::{FileId, PartitionId};
use wire::{Answer, Attributes, Command, Credentials, Name, NewInode, NewKind, Object, OpenFlags, Outcome, Refusal};

/// A path down from a directory, with the directory that it led to the last time.
#[derive(Clone, Copy, Debug)]
pub struct Below<'a> {
    /// The start of the path.
    pub top: FileId,
    /// The names, at most 256.
    pub folders: &'a [Name],
    /// The directory that the path led to the last time.
    pub directory: FileId,
    /// The user on whose behalf the path is walked, if permissions are to be checked. Then the
    /// command is executed only if the node is sure that this user may do it.
    pub who: Option<&'a Credentials>,
}

impl Client {
    /// The attributes of an entry. `None`, without any statement about the entry, if the path no
    /// longer leads there.
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

    /// Makes a file and opens it. `None`, with nothing done, if the path no longer leads there.
    pub async fn create_below(&self, below: Below<'_>, name: &Name, inode: NewInode) -> Outcome<Option<Opened>> {
        debug_assert!(inode.kind == NewKind::File, "only files are opened where they are made");
        let command = |parent: FileId| {
            let (name, inode, whole) = (name.clone(), inode.clone(), self.wish(parent.partition()));
            Command::Create { parent, name, inode, open: true, extent: whole }
        };
        self.opened_by(self.do_below(below, name, command).await?).await
    }

    /// Opens a file for a program with a descriptor of its own. `None` if the path no longer leads
    /// there, if the name is not a file, if the inode is in another partition than its name, or if
    /// the node is not sure that the user may open it.
    pub async fn open_below(&self, below: Below<'_>, name: &Name, flags: OpenFlags) -> Outcome<Option<Opened>> {
        let command = |parent: FileId| {
            let whole = self.wish(parent.partition());
            Command::OpenName { parent, name: name.clone(), flags, extent: whole }
        };
        self.opened_by(self.do_below(below, name, command).await?).await
    }

    /// Removes the entry of anything but a directory. False, with nothing done, if the path no
    /// longer leads there.
    pub async fn unlink_below(&self, below: Below<'_>, name: &Name) -> Outcome<bool> {
        let command = |parent| Command::Unlink { parent, name: name.clone() };
        match self.do_below(below, name, command).await? {
            Some(Answer::Removed { deleted }) => self.purge(deleted).await,
            Some(Answer::NeedsTransaction) => Box::pin(self.unlink_spread(below.directory, name)).await?,
            Some(other) => return Err(unexpected(&other)),
            None => return Ok(false),
        }
        Ok(true)
    }

    async fn opened_by(&self, answer: Option<Answer>) -> Outcome<Option<Opened>> {
        match answer {
            Some(Answer::Opened { attributes, host, truncation, shared }) => {
                if let Some(truncation) = truncation {
                    Box::pin(self.finish_trim(attributes.file, truncation)).await?;
                }
                Ok(Some(Opened { attributes, host, shared }))
            }
            // The node has answered with a lookup instead of an open.
            Some(Answer::Found { .. } | Answer::Unsettled { .. } | Answer::NoEntry) | None => Ok(None),
            Some(other) => Err(unexpected(&other)),
        }
    }

    /// Executes a command about an entry at the end of a path. `None` if the path leads elsewhere
    /// by now, or may.
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
            // An error about the last name is the answer. One about a name before it means that the
            // path leads elsewhere.
            Err(Refusal::NotFound(object)) if object != Object::entry(self.slot(below.directory, name), name) => {
                Ok(None)
            }
            outcome => outcome,
        }
    }

    /// The route of a command. `None` if its directory and the start of the path are at different
    /// nodes.
    fn via<'a>(&self, below: Below<'a>, partition: PartitionId) -> Option<Via<'a>> {
        let Below { top, folders, directory, who } = below;
        if folders.is_empty() && who.is_none() {
            return Some(Via::Plain);
        }
        let together = self.0.home(top.partition()) == self.0.home(partition);
        together.then_some(Via::Walk { top, folders, directory, who })
    }
}
