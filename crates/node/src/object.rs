//! The object operations of a node: bytes of objects that are stored here, path walks to objects,
//! and removal of the stripes of deleted files.

use crate::{Node, ReplyFuture, execute::CommandCall, execute::refusal_from, space::EngineFull};
use bytes::Bytes;
use partition::Partition;
use placement::{FileId, Layout, PartitionId, StripeNo, fragment_of, name_hash};
use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use store::{EngineError, Generation, Slot, StoreCompletion, StripeKey};
use wire::{
    Answer, Command, Condition, Content, Contents, Credentials, DirAccess, DirectoryFragments, Extent, Failure,
    FoundEntry, FoundObject, Kind, Name, Object, ObjectMeta, Outcome, PENDING_DELETES_MAX, PendingDelete, Refusal,
    RenamedEntry, Session, StoredObject, Version, WalkAction, WalkEnd, codec::RUNS_MAX,
};

/// Most stripes of a deleted file that the node removes itself. Beyond that the client removes
/// them, because it can wait between them: this thread answers nobody else meanwhile.
const CLEARED_STRIPES_MAX: usize = 64;
/// Most stripes of an object in one answer. Beyond that the client asks for each: the partition
/// answers nobody else meanwhile.
const PIECES_MAX: u64 = RUNS_MAX as u64;

impl Node {
    /// Walks a path, and executes the command at its end if the walk reached the directory that the
    /// client expected.
    pub(crate) fn walk_path(
        self: &Arc<Self>,
        (session, skip_ack): (Session, bool),
        (start, names, credentials): (FileId, &[Name], Option<Credentials>),
        action: Option<WalkAction>,
    ) -> ReplyFuture {
        if action.as_ref().is_some_and(|action| self.is_recorded(action)) {
            return self.execute_at_target(
                (session, skip_ack),
                action.expect("a recorded action is present"),
                credentials,
            );
        }
        let walked = self.walk_local(session, (start, names, credentials.as_ref()));
        match (walked, action) {
            (Ok((reached, 0)), Some(action))
                if reached == action.directory
                    && self.partitions.serves(action.partition)
                    && credentials
                        .as_ref()
                        .is_none_or(|credentials| self.permits(reached, credentials, credentials.access)) =>
            {
                self.execute_at_target((session, skip_ack), action, credentials)
            }
            (walked, action) => {
                let answer = walked.map(|(reached, left)| {
                    let left = u32::try_from(left).expect("a request has few names");
                    Answer::Walked(WalkEnd { reached, remaining: left })
                });
                // Record the answer: a resend of this request must not execute the command.
                if let Some(WalkAction { partition: id, request_id: Some(request_id), .. }) = action
                    && let Some(mut held) = self.partitions.lock(id)
                {
                    self.session_index.note(request_id.session, id);
                    self.record_reply(&mut held, request_id, answer.clone());
                }
                ReplyFuture::ready(answer.map_err(Failure::Refused))
            }
        }
    }

    fn is_recorded(&self, action: &WalkAction) -> bool {
        let cached = |request_id| self.partitions.lock(action.partition)?.cached_reply(request_id);
        action.request_id.is_some_and(|request_id| cached(request_id).is_some())
    }

    fn execute_at_target(
        self: &Arc<Self>,
        (session, skip_ack): (Session, bool),
        action: WalkAction,
        credentials: Option<Credentials>,
    ) -> ReplyFuture {
        let WalkAction { partition, request_id, command, .. } = action;
        let command = Some(command);
        self.execute(CommandCall { skip_ack, request_id, command, credentials, ..CommandCall::new(session, partition) })
    }

    /// Walks as far as directories are held here and their permissions surely let the user pass.
    /// Returns the directory reached and how many names are left.
    fn walk_local(
        &self,
        session: Session,
        (start, names, credentials): (FileId, &[Name], Option<&Credentials>),
    ) -> Outcome<(FileId, usize)> {
        let mut at = start;
        for (done, name) in names.iter().enumerate() {
            let left = names.len() - done;
            if credentials.is_some_and(|credentials| !self.permits(at, credentials, DirAccess::Lookup)) {
                return Ok((at, left));
            }
            let mut found = self.lookup(session, at, name);
            if let Some(Err(Refusal::Split { directory, .. })) = found {
                found = self.find_fragment(session, directory, name).and_then(|slot| self.lookup(session, slot, name));
            }
            match found {
                Some(Ok(Answer::Found(FoundEntry { file, kind: Kind::Directory, .. }))) => at = file,
                Some(Ok(Answer::Found(..))) => return Err(Refusal::NotDirectory(Object::entry(at, name))),
                Some(Err(refusal @ Refusal::NotFound(Object::Entry { .. }))) => return Err(refusal),
                _ => return Ok((at, left)),
            }
        }
        Ok((at, 0))
    }

    /// True if a directory is held here, and its permissions surely let the user do what `needs`
    /// says.
    fn permits(&self, directory: FileId, credentials: &Credentials, needs: DirAccess) -> bool {
        self.partitions.lock(directory.partition()).is_some_and(|held| held.permits(directory, credentials, needs))
    }

    /// Looks up an entry; `None` if its directory is not held here.
    fn lookup(&self, session: Session, parent: FileId, name: &Name) -> Option<Outcome<Answer>> {
        self.query_local(session, parent.partition(), Command::Lookup { parent, name: name.clone() })
    }

    /// Returns the fragment of a split directory that holds a name.
    fn find_fragment(&self, session: Session, directory: FileId, name: &Name) -> Option<FileId> {
        match self.query_local(session, directory.partition(), Command::Fragments { directory }) {
            Some(Ok(Answer::Fragments(DirectoryFragments { fragments, .. }))) => {
                fragments.get(fragment_of(name_hash(self.settings().seed, name.as_bytes()))).copied()
            }
            _ => None,
        }
    }

    /// Queries a partition. `None` if it is not held here, or if its answer must wait: then the
    /// client sends the command itself, and waits.
    fn query_local(&self, session: Session, partition: PartitionId, command: Command) -> Option<Outcome<Answer>> {
        if !self.partitions.serves(partition) {
            return None;
        }
        let mut call = CommandCall { command: Some(command), ..CommandCall::new(session, partition) };
        let answer = self.try_execute(&mut call).ok()?;
        if call.ack_wait.is_some() { None } else { Some(answer) }
    }

    /// Submits the write of the bytes that come with an object to its first stripe, before the
    /// object gets its name. `None` if there is nothing to write.
    pub(crate) fn submit_first_stripe(&self, call: &CommandCall) -> Option<Outcome<StoreCompletion<()>>> {
        let (file, first) = first_stripe(call)?;
        let Some(partition) = self.partitions.lock(call.partition) else {
            return Some(Err(self.moved(call.partition)));
        };
        if call.request_id.is_some_and(|request_id| partition.cached_reply(request_id).is_some()) {
            return None;
        }
        let reserved = partition.reserved(file, call.session);
        drop(partition);
        let Some(layout) = reserved else { return Some(Err(Refusal::Stale(Object::File(file)))) };
        let key = self.stripe_key(file, layout, 0);
        if !self.partitions.serves(key.partition) {
            return Some(Err(self.moved(key.partition)));
        }
        let submitted = self.write_last(key, Generation(0), 0, first);
        let is_expected =
            |partition: &Partition| partition.reserved(file, call.session).is_some() || partition.has(file);
        if self.partitions.lock(call.partition).is_some_and(|partition| !is_expected(&partition)) {
            // The session has ended meanwhile, or an earlier copy of this request was executed and
            // the file that it made is already removed.
            drop(self.engine.remove(key));
        }
        Some(Ok(submitted))
    }

    /// Executes a command whose first stripe was written.
    pub(crate) fn execute_with_first_stripe(
        &self,
        call: &mut CommandCall,
        written: Result<(), EngineError>,
    ) -> Result<Outcome<Answer>, EngineFull> {
        let Some((file, _)) = first_stripe(call) else { return self.try_execute(call) };
        match written {
            Ok(()) => {}
            Err(EngineError::Moved { key }) => return Ok(Err(self.moved(key.partition))),
            Err(error) => return refusal_from(error, Object::File(file)).map(Err),
        }
        if let Some(Command::PutObject { contents: Contents::Striped { first, .. }, .. }) = &mut call.command {
            *first = Bytes::new();
        }
        self.try_execute(call)
    }

    /// The key of a stripe of a file with this layout.
    pub(crate) fn stripe_key(&self, file: FileId, layout: Layout, stripe: u64) -> StripeKey {
        let (settings, stripe) = (self.settings(), StripeNo(stripe));
        StripeKey { partition: layout.partition(settings.seed, file, stripe, settings.partitions), file, stripe }
    }

    /// Subtracts the extent's change count from the version in a condition: a partition's version
    /// does not include changes made in the extent.
    pub(crate) fn subtract_extent_changes(&self, partition: &Partition, command: &mut Command) {
        let (Command::PutObject { condition: Condition::Is(version), .. }
        | Command::DeleteObject { condition: Condition::Is(version), .. }) = command
        else {
            return;
        };
        if let Some(extent) = partition.extent(version.file) {
            version.change = version.change.wrapping_sub(self.extent_change_count(extent));
        }
    }

    /// Refuses a condition on the version of a file whose extent is at another node: only that node
    /// knows the version.
    pub(crate) fn check_version_is_known(&self, partition: &Partition, command: &Command) -> Outcome<()> {
        let (Command::PutObject { condition: Condition::Is(Version { file, .. }), .. }
        | Command::DeleteObject { condition: Condition::Is(Version { file, .. }), .. }) = command
        else {
            return Ok(());
        };
        match partition.extent(*file) {
            Some(extent) if extent.node != self.id() => Err(Refusal::Busy(Object::File(*file))),
            _ => Ok(()),
        }
    }

    /// Adds the extent's change count to the version that a refused put or delete found.
    pub(crate) fn add_extent_changes(&self, partition: &Partition, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::VersionMismatch { object, present: Some(Version { file, change }) } => {
                let here = partition.extent(file).filter(|extent| extent.node == self.id());
                let more = here.map_or(0, |extent| self.extent_change_count(extent));
                Refusal::VersionMismatch { object, present: Some(Version { file, change: change.wrapping_add(more) }) }
            }
            other => other,
        }
    }

    fn extent_change_count(&self, extent: Extent) -> u64 {
        self.extents.engine().state(Slot(extent.slot)).map_or(0, |state| change_count(state.modified))
    }

    /// Fills in the bytes of an object whose stripes are all here; for an object in an extent, its
    /// length and state. Must be called under the lock of its partition: a stripe is removed only
    /// after its file.
    pub(crate) fn fill_object(&self, answer: Answer, offset: u64) -> Outcome<Answer> {
        match answer {
            Answer::Object(FoundObject { mut head, striped, length, content: Content::Extent(extent) })
                if extent.node == self.id() =>
            {
                let state = self.extents.engine().state(Slot(extent.slot));
                let object = Object::File(head.version.file);
                let state = state.map_err(|error| Refusal::Io { object, why: error.to_string().into() })?;
                head.size = state.length;
                head.modified = head.modified.max(state.modified.into());
                head.version.change = head.version.change.wrapping_add(change_count(state.modified));
                Ok(Answer::Object(FoundObject { head, striped, length, content: Content::Extent(extent) }))
            }
            Answer::Object(FoundObject { head, length, content: Content::Striped(layout), .. }) if length > 0 => {
                self.fill_striped(head, layout, offset, length)
            }
            other => Ok(other),
        }
    }

    fn fill_striped(&self, head: ObjectMeta, layout: Layout, offset: u64, length: u32) -> Outcome<Answer> {
        let (file, stripe_bytes) = (head.version.file, u64::from(layout.stripe_bytes()));
        let end = offset + u64::from(length);
        let stripes = offset / stripe_bytes..end.div_ceil(stripe_bytes);
        let answer = |content| Answer::Object(FoundObject { head, striped: Some(layout), length, content });
        let is_one = stripes.end - stripes.start == 1;
        let mut pieces = Vec::new();
        if stripes.end - stripes.start > PIECES_MAX {
            return Ok(answer(Content::Striped(layout)));
        }
        for stripe in stripes {
            let (from, to) = (offset.max(stripe * stripe_bytes), end.min((stripe + 1) * stripe_bytes));
            let within = u32::try_from(from % stripe_bytes).expect("below the length of a stripe");
            let length = u32::try_from(to - from).expect("at most a stripe");
            let key = self.stripe_key(file, layout, stripe);
            if !self.partitions.serves(key.partition) {
                return Ok(answer(Content::Striped(layout)));
            }
            let read = self.engine.read(key, within, length);
            // If it has left meanwhile, its stripes may have been removed.
            if !self.partitions.serves(key.partition) {
                return Ok(answer(Content::Striped(layout)));
            }
            match read {
                StoreCompletion::Ready(Ok(bytes)) if is_one => return Ok(answer(Content::Bytes(bytes))),
                StoreCompletion::Ready(Ok(bytes)) if bytes.len() == length as usize => pieces.push(bytes),
                // A hole: the client fills it in. Or the engine is slow: the client reads each
                // stripe, because the partition answers nobody else meanwhile.
                StoreCompletion::Ready(Ok(_)) | StoreCompletion::Pending(_) => {
                    return Ok(answer(Content::Striped(layout)));
                }
                StoreCompletion::Ready(Err(error)) => {
                    return Err(Refusal::Io { object: Object::File(file), why: error.to_string().into() });
                }
            }
        }
        Ok(answer(Content::Pieces(pieces)))
    }

    /// Removes the stripes of deleted files if they are few and all here. The client removes the
    /// others.
    pub(crate) fn remove_deleted_stripes(&self, answer: &mut Answer) {
        match answer {
            Answer::ObjectStored(StoredObject { deleted, .. })
            | Answer::Removed(deleted)
            | Answer::Renamed(RenamedEntry { deleted, .. }) => {
                *deleted = deleted.take().filter(|deleted| !self.try_remove_stripes(deleted));
            }
            // A list of `PENDING_DELETES_MAX` files may not be complete: then the client removes
            // the stripes of all of them.
            Answer::Settled(deleted) | Answer::Closed(deleted) if deleted.len() < PENDING_DELETES_MAX => {
                deleted.retain(|deleted| !self.try_remove_stripes(deleted));
            }
            _ => {}
        }
    }

    fn try_remove_stripes(&self, PendingDelete { file, layout, stripes }: &PendingDelete) -> bool {
        let few = stripes.iter().nth(CLEARED_STRIPES_MAX).is_none();
        let key = |stripe| self.stripe_key(*file, *layout, stripe);
        if !few || !stripes.iter().all(|stripe| self.partitions.serves(key(stripe).partition)) {
            return false;
        }
        // If the engine is slow, the client waits for the removal: it requests it once more.
        if !stripes.iter().all(|stripe| matches!(self.engine.remove(key(stripe)), StoreCompletion::Ready(Ok(())))) {
            return false;
        }
        let Some(mut partition) = self.partitions.lock(file.partition()) else { return false };
        let (purged, _) = self.apply_own(&mut partition, Command::PurgeDone { file: *file }, 0);
        purged.is_ok()
    }
}

/// The file and the bytes of the first stripe, if they come with the command.
fn first_stripe(call: &CommandCall) -> Option<(FileId, &Bytes)> {
    match &call.command {
        Some(Command::PutObject { contents: Contents::Striped { file, first, .. }, .. }) if !first.is_empty() => {
            Some((*file, first))
        }
        _ => None,
    }
}

/// Converts the modification time of an extent to a change count: nanoseconds since 1970. Each
/// change has a later count than the one before, because the kernel gives different times to
/// changes between which it was queried (Linux 6.13). It is 0 for an extent that nobody has written
/// to.
pub(crate) fn change_count(modified: SystemTime) -> u64 {
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
