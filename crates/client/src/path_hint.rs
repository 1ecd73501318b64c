//! Operations on names in directories whose paths were walked before.
//!
//! The directory that a path led to the last time is a hint, used only as an address. The command
//! is sent there together with the names of the directories, and is executed only if they still
//! lead there. A path whose directories are all on one node is one message, however deep it is;
//! otherwise it takes one more each time that the path leaves a node. No client has to be notified
//! when a directory moves.
//!
//! As with any path, each directory had its name at some moment of the call.

use crate::{Client, OpenedInode, WalkedPath, call::Route};
use placement::FileId;
use wire::{
    Answer, Attributes, Command, Credentials, FoundEntry, Name, NewInode, NewKind, Object, OpenFlags, OpenNameAnswer,
    OpenedFile, Outcome, Refusal, RemovalAnswer, RenameAnswer, RenameFrom, RenameMode, RenameTo, TypedCommand,
};

/// A path that was walked before.
#[derive(Clone, Copy, Debug)]
pub struct PathHint<'a> {
    /// The path, with the directory that it led to the last time.
    pub path: &'a WalkedPath,
    /// The user on whose behalf the path is walked, if permissions are to be checked. Then the
    /// command is executed only if the nodes are sure that this user may do it.
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
                let found = Box::pin(self.lookup_remote_inode(hint.path.directory(), name, file)).await;
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
                Box::pin(self.unlink_across_partitions(hint.path.directory(), name)).await?;
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Renames an entry within its directory. False, with nothing done, if the path no longer leads
    /// there, or if one message is not enough.
    pub async fn rename_at_hint(&self, hint: PathHint<'_>, from: &Name, to: &Name, mode: RenameMode) -> Outcome<bool> {
        let directory = hint.path.directory();
        let slots = [from, to].map(|name| self.slot(directory, name).partition());
        if slots[0] != slots[1] {
            return Ok(false);
        }
        let rename = |parent| {
            let target = RenameTo { parent: self.slot(directory, to), name: to.clone() };
            Command::rename(RenameFrom { parent, name: from.clone() }, target, mode)
        };
        match self.execute_at_hint(hint, from, rename).await? {
            Some(RenameAnswer::Renamed(renamed)) => self.finish_rename(renamed).await,
            Some(RenameAnswer::NeedsTransaction) | None => return Ok(false),
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
    pub(crate) async fn execute_at_hint<V>(
        &self,
        hint: PathHint<'_>,
        name: &Name,
        call: impl Fn(FileId) -> TypedCommand<V>,
    ) -> Outcome<Option<V>> {
        let directory = hint.path.directory();
        let attempt = |slot: FileId| {
            let TypedCommand { command, take } = call(slot);
            async move {
                let Some(route) = self.route(hint, slot).await? else { return Ok(None) };
                match self.execute_by_route(route, slot.partition(), command).await? {
                    Answer::Walked(_) => Ok(None),
                    answer => take(answer).map(Some),
                }
            }
        };
        match self.run_in_slot(directory, name, attempt).await {
            Err(Refusal::NotDirectory(_)) => Ok(None),
            // An error about the last name is the answer. One about a name before it means that the
            // path leads elsewhere.
            Err(Refusal::NotFound(object)) if object != Object::entry(self.slot(directory, name), name) => Ok(None),
            outcome => outcome,
        }
    }

    /// Walks all parts of a path but the last, and returns the route of a command through that one.
    /// `None` if the path leads elsewhere by now, or if no node can check the user's access to the
    /// directory and execute the command.
    async fn route<'a>(&self, hint: PathHint<'a>, slot: FileId) -> Outcome<Option<Route<'a>>> {
        let PathHint { path, credentials } = hint;
        let directory = path.directory();
        let is_with_slot =
            |start: FileId| self.router().home(start.partition()) == self.router().home(slot.partition());
        if credentials.is_some() && !is_with_slot(directory) {
            return Ok(None);
        }
        let mut parts = path.parts();
        let (top, names, _) = parts.next_back().expect("a path has a part");
        for (start, names, end) in parts {
            if self.walk_down(start, names, credentials).await? != (end, 0) {
                return Ok(None);
            }
        }
        if is_with_slot(top) && !(names.is_empty() && credentials.is_none()) {
            return Ok(Some(Route::ByPath { top, names, directory, credentials }));
        }
        if !names.is_empty() && self.walk_down(top, names, credentials).await? != (directory, 0) {
            return Ok(None);
        }
        let checked = credentials.map(|_| Route::ByPath { top: directory, names: &[], directory, credentials });
        Ok(Some(checked.unwrap_or(Route::ById)))
    }
}
