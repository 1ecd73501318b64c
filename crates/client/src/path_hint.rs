//! Operations on names in directories whose paths were walked before.
//!
//! The directory that a path led to the last time is a hint, used only as an address. The command
//! is sent there together with the names of the directories, and is executed only if they still
//! lead there. So one message does the walk and the command, and no client has to be notified when
//! a directory moves.

use crate::{Client, OpenedInode, call::Route, client::unexpected_answer};
use placement::{FileId, PartitionId};
use wire::{Answer, Attributes, Command, Credentials, Name, NewInode, NewKind, Object, OpenFlags, Outcome, Refusal};

/// A path down from a directory, with the directory that it led to the last time.
#[derive(Clone, Copy, Debug)]
pub struct PathHint<'a> {
    /// The start of the path.
    pub top: FileId,
    /// The names, at most 256.
    pub names: &'a [Name],
    /// The directory that the path led to the last time.
    pub directory: FileId,
    /// The user on whose behalf the path is walked, if permissions are to be checked. Then the
    /// command is executed only if the node is sure that this user may do it.
    pub credentials: Option<&'a Credentials>,
}

impl Client {
    /// The attributes of an entry. `None`, without any statement about the entry, if the path no
    /// longer leads there.
    pub async fn lookup_at_hint(&self, hint: PathHint<'_>, name: &Name) -> Outcome<Option<Attributes>> {
        let command = |parent| Command::Lookup { parent, name: name.clone() };
        match self.execute_at_hint(hint, name, command).await? {
            Some(Answer::Found { attributes: Some(attributes), .. }) => Ok(Some(attributes)),
            Some(Answer::Found { file, .. }) => {
                let found = Box::pin(self.lookup_remote_inode(hint.directory, name, file)).await;
                found.map(Some)
            }
            Some(other) => Err(unexpected_answer(&other)),
            None => Ok(None),
        }
    }

    /// Makes a file and opens it. `None`, with nothing done, if the path no longer leads there.
    pub async fn create_at_hint(
        &self,
        hint: PathHint<'_>,
        name: &Name,
        inode: NewInode,
    ) -> Outcome<Option<OpenedInode>> {
        debug_assert!(inode.kind == NewKind::File, "only files are opened where they are made");
        let command = |parent: FileId| {
            let (name, inode, extent) = (name.clone(), inode.clone(), self.extent_request(parent.partition()));
            Command::Create { parent, name, inode, open: true, extent }
        };
        self.finish_open(self.execute_at_hint(hint, name, command).await?).await
    }

    /// Opens a file for a program with a descriptor of its own. `None` if the path no longer leads
    /// there, if the name is not a file, if the inode is in another partition than its name, or if
    /// the node is not sure that the user may open it.
    pub async fn open_at_hint(
        &self,
        hint: PathHint<'_>,
        name: &Name,
        flags: OpenFlags,
    ) -> Outcome<Option<OpenedInode>> {
        let command = |parent: FileId| {
            let extent = self.extent_request(parent.partition());
            Command::OpenName { parent, name: name.clone(), flags, extent }
        };
        self.finish_open(self.execute_at_hint(hint, name, command).await?).await
    }

    /// Removes the entry of anything but a directory. False, with nothing done, if the path no
    /// longer leads there.
    pub async fn unlink_at_hint(&self, hint: PathHint<'_>, name: &Name) -> Outcome<bool> {
        let command = |parent| Command::Unlink { parent, name: name.clone() };
        match self.execute_at_hint(hint, name, command).await? {
            Some(Answer::Removed { deleted }) => self.purge(deleted).await,
            Some(Answer::NeedsTransaction) => Box::pin(self.unlink_across_partitions(hint.directory, name)).await?,
            Some(other) => return Err(unexpected_answer(&other)),
            None => return Ok(false),
        }
        Ok(true)
    }

    async fn finish_open(&self, answer: Option<Answer>) -> Outcome<Option<OpenedInode>> {
        match answer {
            Some(Answer::Opened { attributes, host, truncation, shared }) => {
                if let Some(truncation) = truncation {
                    Box::pin(self.finish_truncate(attributes.file, truncation)).await?;
                }
                Ok(Some(OpenedInode { attributes, host, shared }))
            }
            // The node has answered with a lookup instead of an open.
            Some(Answer::Found { .. } | Answer::Unsettled { .. } | Answer::NoEntry) | None => Ok(None),
            Some(other) => Err(unexpected_answer(&other)),
        }
    }

    /// Executes a command about an entry at the end of a path. `None` if the path leads elsewhere
    /// by now, or may.
    async fn execute_at_hint(
        &self,
        hint: PathHint<'_>,
        name: &Name,
        command: impl Fn(FileId) -> Command,
    ) -> Outcome<Option<Answer>> {
        let attempt = |slot: FileId| {
            let (route, command, partition) = (self.route(hint, slot.partition()), command(slot), slot.partition());
            async move {
                let Some(route) = route else { return Ok(None) };
                self.execute_by_route(route, partition, command).await.map(Some)
            }
        };
        match self.run_in_slot(hint.directory, name, attempt).await {
            Ok(Some(Answer::Walked { .. })) | Err(Refusal::NotDirectory(_)) => Ok(None),
            // An error about the last name is the answer. One about a name before it means that the
            // path leads elsewhere.
            Err(Refusal::NotFound(object)) if object != Object::entry(self.slot(hint.directory, name), name) => {
                Ok(None)
            }
            outcome => outcome,
        }
    }

    /// The route of a command. `None` if its directory and the start of the path are at different
    /// nodes.
    fn route<'a>(&self, hint: PathHint<'a>, partition: PartitionId) -> Option<Route<'a>> {
        let PathHint { top, names, directory, credentials } = hint;
        if names.is_empty() && credentials.is_none() {
            return Some(Route::ById);
        }
        let together = self.inner.home(top.partition()) == self.inner.home(partition);
        together.then_some(Route::ByPath { top, names, directory, credentials })
    }
}
