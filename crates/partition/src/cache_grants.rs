//! Cache grants: the state that kernels may cache, and the subscribers to notify when it changes.
//!
//! A *subscriber* is a session with a kernel that caches answers. A **grant** lets it cache a part
//! of an answer; it is one bit with the inode. A change by another session clears the bits of all
//! others and makes invalidations. The node, which holds the partition's lock, sends these to the
//! subscribers ([`Partition::serve`]), and answers the change after that.
//!
//! All of this is soft state: no snapshot has it, and no entry depends on it, but for what
//! `unlinked` decides.
//!
//! ```text
//!   answer                           grants the caller         invalidated by others'
//!   Found, Attributes, new Opened    attributes of the inode   Partition::edit, drop_name,
//!                                                                record_rename, an atime update
//!   Found, NotFound of a Lookup,     names of the directory,   Partition::edit_entries
//!     Entries, any entry it made       and their absence
//!   Content, any write               bytes                     Inode::touch within an edit
//! ```
//!
//! - A kernel knows its own requests, so its own changes invalidate nothing in it: FUSE drops times
//!   and sizes of directories and files that it changed, and updates their link counts. It cannot
//!   know that a write cleared set-id bits: then its own bit is cleared too.
//! - Answers to `Change` and to a link grant nothing: the kernel uses their attributes even if they
//!   were invalidated since its request.
//! - A query queues a note of the state that it has seen, without subscribers to notify. If an
//!   earlier invalidation of that state is still in flight to any kernel, the query's answer waits
//!   for its ack too. Otherwise its reader could then see older state through another kernel, or
//!   through its own.
//! - Bits stay set when a kernel drops cached state by itself. A superfluous invalidation costs one
//!   message; a missing one would make a cache stale.
//!
//! An extent file is read and written directly, past the node, by the sessions that have it open.
//! Only their kernels know of that. Its attributes are therefore granted to the only session that
//! has it open, or to any session while none has; an open by another session invalidates them. Not
//! even that kernel knows of stores into a mapping: while there may be one, the node lets no kernel
//! cache the extent's attributes. No kernel caches the bytes of an extent file: frontends read it
//! through its backing file, or directly.
//!
//! The same bits record which kernels *know* an inode; `unlinked.rs` explains the use.
//!
//! This module sends no notices, never waits, and knows no kernels.

use crate::{
    Applied, EntryBody, LogEntry, Partition, SubscriberId, SubscriberIds, UnlinkedDecisions,
    inode::Inode,
    inode_grants::{EditMarks, GrantSet},
    unlinked::UnlinkedInodes,
};
use placement::FileId;
use wire::{
    Answer, Attributes, Command, DirectoryFragments, FoundEntry, FoundObject, OpenedFile, Outcome, Owner, Recall,
    Refusal, RequestId, Session, StripedWrite, Timestamp, UnsettledAnswer,
};

/// The caller of a command, for cache grants.
#[derive(Clone, Copy, Debug)]
pub struct CommandCaller {
    /// Its session.
    pub session: Session,
    /// Its subscriber number, if it is subscribed.
    pub subscriber: Option<SubscriberId>,
    /// All other subscribers.
    pub others: SubscriberIds,
    /// Subscribers, including the caller, whose kernels support prune notices.
    pub pruning: SubscriberIds,
}

impl CommandCaller {
    /// Creates a caller in a pool without subscribers.
    pub fn unsubscribed(session: Session) -> Self {
        Self { session, subscriber: None, others: SubscriberIds::NONE, pruning: SubscriberIds::NONE }
    }
}

impl CommandCaller {
    /// Returns the caller of a request that no kernel made: its session's own kernel does not know
    /// of the request either.
    fn bypassing_kernel(self) -> Self {
        let others = self.subscriber.map_or(self.others, |own| self.others.with(own));
        Self { subscriber: None, others, ..self }
    }
}

impl Default for CommandCaller {
    fn default() -> Self {
        Self::unsubscribed(Session::NONE)
    }
}

/// Invalidation of changed state, or a note of state that a query has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalidation {
    /// The state.
    pub recall: Recall,
    /// Subscribers that had been granted it and must be notified.
    pub notify: SubscriberIds,
    /// True if it was only queried. The answer bypasses the cache of the caller's own kernel, so
    /// that kernel must have dropped its older state. Otherwise the next query, answered from that
    /// cache, would show older state.
    pub seen: bool,
}

impl Invalidation {
    pub(crate) fn changed(recall: Recall, notify: SubscriberIds) -> Self {
        Self { recall, notify, seen: false }
    }
}

/// State of cache grants in a partition: soft, of the node that serves.
#[derive(Debug, Default)]
pub struct Grants {
    pub(crate) unlinked: UnlinkedInodes,
    /// Caller of the current command.
    pub(crate) caller: CommandCaller,
    /// True if the current command asks to change mode or owner, so that the caller's kernel knows
    /// of the change.
    changes_access: bool,
    pub(crate) invalidations: Vec<Invalidation>,
}

/// Visible state of an inode before a change.
pub struct VisibleState {
    access: (u32, Owner),
    /// Attributes; `None` if there are no other subscribers.
    attributes: Option<Attributes>,
}

impl Grants {
    /// Returns the visible state of an inode before a change.
    pub fn visible_state(&self, inode: &Inode) -> VisibleState {
        let attributes = (!self.caller.others.is_empty()).then(|| inode.attributes(FileId::ROOT));
        VisibleState { access: inode.access(), attributes }
    }

    /// Queues invalidations if the visible state of an inode has changed. The state of a fragment
    /// belongs to its directory.
    pub fn record_change(&mut self, file: FileId, inode: &mut Inode, before: &VisibleState) {
        let file = inode.directory_of(file);
        let CommandCaller { subscriber, others, .. } = self.caller;
        let EditMarks { touched, outdated } = std::mem::take(&mut inode.marks);
        let unexpected = !self.changes_access && before.access != inode.access();
        if let Some(own) = subscriber.filter(|_| unexpected) {
            let notify = inode.grants.take(GrantSet::Attributes, SubscriberIds::of(own));
            self.invalidations.push(Invalidation::changed(Recall::Attributes(file), notify));
        }
        let Some(attributes) = &before.attributes else { return };
        if touched || outdated || inode.attributes(FileId::ROOT) != *attributes {
            self.invalidations
                .push(Invalidation::changed(Recall::Attributes(file), inode.grants.take(GrantSet::Attributes, others)));
        }
        if touched && inode.is_file() {
            self.invalidations
                .push(Invalidation::changed(Recall::Bytes(file), inode.grants.take(GrantSet::Content, others)));
        }
    }

    /// Queues invalidations after a read has updated the atime.
    pub fn record_read(&mut self, file: FileId, inode: &mut Inode) {
        let notify = inode.grants.take(GrantSet::Attributes, self.caller.others);
        if !notify.is_empty() {
            self.invalidations.push(Invalidation::changed(Recall::Attributes(file), notify));
        }
    }

    /// Queues invalidations after entries of a directory have changed. The caller may cache the
    /// entries that it changed.
    pub fn record_entries_change(&mut self, directory: FileId, inode: &mut Inode) {
        let CommandCaller { subscriber, others, .. } = self.caller;
        if !others.is_empty() {
            let recall = Recall::Names(inode.directory_of(directory));
            self.invalidations.push(Invalidation::changed(recall, inode.grants.take(GrantSet::Content, others)));
        }
        if let Some(subscriber) = subscriber {
            inode.grants.add(GrantSet::Content, SubscriberIds::of(subscriber));
        }
    }

    /// Notes that a query has seen this state: the answer must wait for the acks of its earlier
    /// invalidations.
    fn note_seen(&mut self, recall: Recall) {
        if self.caller.subscriber.is_some() || !self.caller.others.is_empty() {
            self.invalidations.push(Invalidation { recall, notify: SubscriberIds::NONE, seen: true });
        }
    }
}

/// State that a command queries and that a kernel may cache.
#[derive(Clone, Copy)]
enum GrantScope {
    Nothing,
    /// Attributes of an inode.
    Inode,
    /// Names of this directory, and attributes of the inodes found.
    Names(FileId),
    /// A new inode.
    New,
    /// Bytes of this file.
    Bytes(FileId),
    /// An object, found by name in this directory; none of it is cached.
    Object(Option<FileId>),
}

impl GrantScope {
    fn of(command: &Command) -> Self {
        match command {
            Command::Stat { .. } | Command::Fragments { .. } => Self::Inode,
            Command::Lookup { parent, .. } => Self::Names(*parent),
            Command::List { directory, .. } | Command::ListNames { directory, .. } => Self::Names(*directory),
            Command::GetObject { parent, .. } => Self::Object(Some(*parent)),
            Command::GetFile { .. } => Self::Object(None),
            Command::Create { .. } => Self::New,
            Command::Read { file, .. } | Command::Write { file, .. } => Self::Bytes(*file),
            _ => Self::Nothing,
        }
    }
}

/// Returns true if the command changes names in a way that no kernel does.
fn is_about_objects(command: &Command) -> bool {
    matches!(command, Command::PutObject { .. } | Command::DeleteObject { .. })
}

impl Partition {
    /// Executes a command as the node that serves: grants cached state to its caller, and returns
    /// the invalidations for others. Soft state decides what the entry leaves to it.
    pub fn serve(
        &mut self,
        caller: CommandCaller,
        request_id: Option<RequestId>,
        command: Command,
        now: Timestamp,
    ) -> (Applied, Vec<Invalidation>) {
        let scope = if caller.subscriber.is_none() && caller.others.is_empty() {
            GrantScope::Nothing
        } else {
            GrantScope::of(&command)
        };
        self.register_subscriber(caller);
        let caller = if is_about_objects(&command) { caller.bypassing_kernel() } else { caller };
        self.grants.caller = caller;
        self.grants.changes_access = matches!(command, Command::Change { .. } | Command::SetXattr { .. });
        let mut applied = match self.check_not_hidden(&command) {
            Ok(()) => {
                let unlinked = UnlinkedDecisions { kept: Vec::new(), released: self.released_by(&command) };
                self.step.is_serving = true;
                self.apply(LogEntry { request_id, body: EntryBody::Command(command), now, unlinked })
            }
            Err(refusal) => Applied::refused(refusal),
        };
        self.grant(scope, &mut applied.answer);
        self.grants.caller = CommandCaller::default();
        (applied, std::mem::take(&mut self.grants.invalidations))
    }

    /// Removes a subscriber: its number may be reused.
    pub fn remove_subscriber(&mut self, subscriber: SubscriberId) {
        for inode in self.inodes.values_mut() {
            inode.grants.remove(subscriber);
        }
        self.grants.unlinked.remove_subscriber(subscriber);
    }

    fn grant(&mut self, scope: GrantScope, outcome: &mut Outcome<Answer>) {
        match (scope, outcome) {
            (_, Ok(Answer::Unsettled(UnsettledAnswer { answer, .. }))) => self.grant_unsettled(scope, answer),
            (
                GrantScope::Inode,
                Ok(Answer::Attributes(attributes) | Answer::Fragments(DirectoryFragments { attributes, .. })),
            ) => {
                self.grants.note_seen(Recall::Attributes(attributes.file));
                attributes.cacheable = self.grant_attributes(attributes.file);
            }
            (GrantScope::New, Ok(Answer::Opened(OpenedFile { attributes, .. }))) => {
                // A cached reply may be older than a later invalidation.
                let fresh = self.attributes(attributes.file).is_ok_and(|now| now == *attributes);
                attributes.cacheable = fresh && self.grant_attributes(attributes.file);
            }
            (GrantScope::Names(directory), found) => {
                self.grants.note_seen(Recall::Names(self.directory_of(directory)));
                if let Ok(Answer::Found(FoundEntry { attributes: Some(attributes), .. })) = found {
                    self.grants.note_seen(Recall::Attributes(attributes.file));
                    attributes.cacheable = self.grant_attributes(attributes.file);
                }
                if matches!(found, Ok(Answer::Found(..) | Answer::Entries(_)) | Err(Refusal::NotFound(_))) {
                    self.grant_content(directory);
                }
            }
            (GrantScope::Object(directory), found) => {
                if let Some(directory) = directory {
                    self.grants.note_seen(Recall::Names(self.directory_of(directory)));
                }
                if let Ok(Answer::Object(FoundObject { head, .. })) = found {
                    self.grants.note_seen(Recall::Attributes(head.version.file));
                }
            }
            (GrantScope::Bytes(file), Ok(answer)) => {
                self.grant_content(file);
                if let Answer::Stripes(StripedWrite { size, .. }) = answer
                    && !self.grants.caller.others.is_empty()
                {
                    *size = 0; // always publish: others may cache the old bytes until the write
                }
            }
            _ => {}
        }
    }

    /// Invalidates the caches of others for an inode or entry that an intent locks, before the
    /// intent is decided.
    pub(crate) fn invalidate_locked(&mut self, file: FileId, entry: bool) {
        let others = self.grants.caller.others;
        let Some(inode) = self.inodes.get_mut(&file).filter(|_| !others.is_empty()) else { return };
        let shown = inode.directory_of(file);
        let notify = inode.grants.take(GrantSet::Attributes, others);
        self.grants.invalidations.push(Invalidation::changed(Recall::Attributes(shown), notify));
        if entry {
            let notify = inode.grants.take(GrantSet::Content, others);
            self.grants.invalidations.push(Invalidation::changed(Recall::Names(shown), notify));
        }
    }

    /// Returns the invalidation of the attributes in all caches, after a change that no request has
    /// made. Nothing waits for the acks.
    pub fn invalidate_attributes(&mut self, file: FileId) -> Option<Invalidation> {
        let notify = self.inodes.get_mut(&file)?.grants.take(GrantSet::Attributes, SubscriberIds::ALL);
        Some(Invalidation::changed(Recall::Attributes(file), notify))
    }

    /// Attributes the next changes to this session. If the caller is another session, its own
    /// kernel does not know of the changes, so its cache is invalidated too.
    pub(crate) fn attribute_changes_to(&mut self, session: Session) {
        let CommandCaller { session: doer, subscriber, others, pruning } = self.grants.caller;
        if let Some(own) = subscriber.filter(|_| doer.client() != session.client()) {
            self.grants.caller = CommandCaller { session: doer, subscriber: None, others: others.with(own), pruning };
        }
    }

    fn grant_content(&mut self, file: FileId) {
        let Some(subscriber) = self.grants.caller.subscriber else { return };
        if let Some(inode) = self.inodes.get_mut(&file) {
            inode.grants.add(GrantSet::Content, SubscriberIds::of(subscriber));
        }
    }

    /// Handles an answer while an intent has locked the queried state: none of it may be cached,
    /// but the kernel knows the inode from now on.
    fn grant_unsettled(&mut self, scope: GrantScope, answer: &Answer) {
        if let GrantScope::Names(directory) | GrantScope::Object(Some(directory)) = scope {
            self.grants.note_seen(Recall::Names(self.directory_of(directory)));
        }
        match answer {
            Answer::Attributes(attributes)
            | Answer::Fragments(DirectoryFragments { attributes, .. })
            | Answer::Found(FoundEntry { attributes: Some(attributes), .. }) => {
                self.grants.note_seen(Recall::Attributes(attributes.file));
                self.note_known(attributes.file);
            }
            Answer::Object(FoundObject { head, .. }) => self.grants.note_seen(Recall::Attributes(head.version.file)),
            _ => {}
        }
    }

    fn note_known(&mut self, file: FileId) {
        let Some(subscriber) = self.grants.caller.subscriber else { return };
        if let Some(inode) = self.inodes.get_mut(&file) {
            inode.grants.add(GrantSet::Known, SubscriberIds::of(subscriber));
        }
    }

    /// Grants the attributes to the caller and returns true, if it may cache them. The caller knows
    /// the inode in any case.
    fn grant_attributes(&mut self, file: FileId) -> bool {
        self.note_known(file);
        let Some(subscriber) = self.grants.caller.subscriber else { return false };
        let Some(inode) = self.inodes.get_mut(&file) else { return false };
        let lasting = inode.may_cache_attributes(self.grants.caller.session);
        if lasting {
            inode.grants.add(GrantSet::Attributes, SubscriberIds::of(subscriber));
        }
        lasting
    }
}
