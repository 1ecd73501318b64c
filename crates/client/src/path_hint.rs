//! Operations on names in directories whose paths were walked before.
//!
//! The directory that a path led to the last time is a hint, used only as an address. The command
//! is sent there together with the names of the directories, and is executed only if they still
//! lead there. So one message does the walk and the command, and no client has to be notified when
//! a directory moves.

use crate::{Client, OpenedInode, call::Route};
use placement::{FileId, PartitionId};
use wire::{
    Answer, Attributes, Command, Credentials, FoundEntry, Name, NewInode, NewKind, Object, OpenFlags, OpenNameAnswer,
    OpenedFile, Outcome, Refusal, RemovalAnswer, TypedCommand,
};

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
        let lookup = |parent| Command::lookup(parent, name.clone());
        match self.execute_at_hint(hint, name, lookup).await? {
            Some(FoundEntry { attributes: Some(attributes), .. }) => Ok(Some(attributes)),
            Some(FoundEntry { file, .. }) => {
                let found = Box::pin(self.lookup_remote_inode(hint.directory, name, file)).await;
                found.map(Some)
            }
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
        let create = |parent: FileId| {
            Command::create(parent, name.clone(), inode.clone(), true, self.extent_request(parent.partition()))
        };
        match self.execute_at_hint(hint, name, create).await? {
            Some(opened) => self.finish_open(opened).await.map(Some),
            None => Ok(None),
        }
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
        let open =
            |parent: FileId| Command::open_name(parent, name.clone(), flags, self.extent_request(parent.partition()));
        match self.execute_at_hint(hint, name, open).await? {
            Some(OpenNameAnswer::Opened(opened)) => self.finish_open(opened).await.map(Some),
            // The node has answered with a lookup instead of an open.
            Some(OpenNameAnswer::Found(_) | OpenNameAnswer::Unsettled(_) | OpenNameAnswer::NoEntry) | None => Ok(None),
        }
    }

    /// Removes the entry of anything but a directory. False, with nothing done, if the path no
    /// longer leads there.
    pub async fn unlink_at_hint(&self, hint: PathHint<'_>, name: &Name) -> Outcome<bool> {
        let unlink = |parent| Command::unlink(parent, name.clone());
        match self.execute_at_hint(hint, name, unlink).await? {
            Some(RemovalAnswer::Removed(deleted)) => self.purge(deleted).await,
            Some(RemovalAnswer::NeedsTransaction) => {
                Box::pin(self.unlink_across_partitions(hint.directory, name)).await?;
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    async fn finish_open(&self, opened: OpenedFile) -> Outcome<OpenedInode> {
        let OpenedFile { attributes, host, truncation, shared } = opened;
        if let Some(truncation) = truncation {
            Box::pin(self.finish_truncate(attributes.file, truncation)).await?;
        }
        Ok(OpenedInode { attributes, host, shared })
    }

    /// Executes a command about an entry at the end of a path. `None` if the path leads elsewhere
    /// by now, or may.
    async fn execute_at_hint<V>(
        &self,
        hint: PathHint<'_>,
        name: &Name,
        call: impl Fn(FileId) -> TypedCommand<V>,
    ) -> Outcome<Option<V>> {
        let attempt = |slot: FileId| {
            let (route, call, partition) = (self.route(hint, slot.partition()), call(slot), slot.partition());
            let TypedCommand { command, take } = call;
            async move {
                let Some(route) = route else { return Ok(None) };
                match self.execute_by_route(route, partition, command).await? {
                    Answer::Walked(_) => Ok(None),
                    answer => take(answer).map(Some),
                }
            }
        };
        match self.run_in_slot(hint.directory, name, attempt).await {
            Err(Refusal::NotDirectory(_)) => Ok(None),
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
        let together = self.router().home(top.partition()) == self.router().home(partition);
        together.then_some(Route::ByPath { top, names, directory, credentials })
    }
}
