//! Unlinked inodes that still exist because kernels know them.
//!
//! A kernel that has learned of an inode may ask for it at any moment. An open in flight when the
//! last name is removed must find the inode, as in a local file system. An unlinked inode is
//! therefore kept for each subscriber whose kernel knows it, until that kernel has forgotten it or
//! the session has ended. For all others it is deleted.
//!
//! ```text
//!   last name removed: who knows it? --> Recall::Removed --> kernel prunes unused names
//!                                        (no ack)            |
//!                                                            `--> ForgetInode: not kept for this
//!                                                                 one any more; deleted with the
//!                                                                 last
//! ```
//!
//! - The session that removes a name drops it in its own kernel and needs no notice, as long as no
//!   other session had changed the inode's names. Otherwise that kernel may still have a name that
//!   others removed. Or it may not know the inode at all, because it met the inode only by removing
//!   a name that another session had made (`GrantSet::UnsureHolders`). It is then notified as
//!   well.
//! - A kernel without support for prune notices may remember an inode forever. For it, only inodes
//!   that it removed itself are kept.
//! - An answer in flight may tell a kernel of an inode after its removal here. A notified client
//!   watches for that, and always reports in the end that the inode is forgotten.
//!
//! The kernels that know an inode are soft state; the partition records which inodes are kept
//! (`Partition::kept`). The node that serves decides, and each entry has its decisions.
//!
//! This module does not send notices, and knows no kernels.

use crate::{
    Partition, SubscriberId, SubscriberIds,
    apply::CommandContext,
    cache_grants::{CommandCaller, Grants, Invalidation},
    inode::Inode,
    inode_grants::GrantSet,
};
use placement::FileId;
use std::collections::BTreeMap;
use wire::{Answer, Command, Object, Outcome, Recall, Session};

/// The subscribers that unlinked inodes are kept for.
#[derive(Debug, Default)]
pub struct UnlinkedInodes {
    /// Subscribers of each inode. With none left, the inode is deleted when the next session ends.
    pub inodes: BTreeMap<FileId, SubscriberIds>,
    /// Session of each subscriber number; [`Session::NONE`] until its first command here, and after
    /// its end. As long as the highest number needs, because a pool has thousands of partitions.
    sessions: Vec<Session>,
}

impl UnlinkedInodes {
    /// Returns the subscribers that have sent commands, with their sessions.
    pub fn sessions(&self) -> impl Iterator<Item = (SubscriberId, Session)> {
        let all = SubscriberIds::ALL.iter().zip(self.sessions.iter().copied());
        all.filter(|(_, session)| *session != Session::NONE)
    }

    /// Records the session of a subscriber.
    pub fn set_session(&mut self, subscriber: SubscriberId, session: Session) {
        let number = subscriber.number();
        if self.sessions.len() <= number {
            self.sessions.resize(number + 1, Session::NONE);
        }
        self.sessions[number] = session;
    }

    /// Returns the subscribers whose sessions are alive.
    fn alive(&self) -> SubscriberIds {
        self.sessions().map(|(subscriber, _)| subscriber).collect()
    }

    /// Records that a subscriber's kernel has forgotten the inode; returns true if it was kept for
    /// that one alone.
    fn forget(&mut self, file: FileId, subscriber: SubscriberId) -> bool {
        let Some(keepers) = self.inodes.get_mut(&file) else { return false };
        *keepers = keepers.without(subscriber);
        let last = keepers.is_empty();
        if last {
            self.inodes.remove(&file);
        }
        last
    }

    /// Removes a subscriber. Inodes that were kept for it alone stay until [`Grants::end_session`].
    pub fn remove_subscriber(&mut self, subscriber: SubscriberId) {
        if let Some(session) = self.sessions.get_mut(subscriber.number()) {
            *session = Session::NONE;
        }
        for keepers in self.inodes.values_mut() {
            *keepers = keepers.without(subscriber);
        }
    }
}

impl Grants {
    /// Returns true if an unlinked inode is kept for the kernel of the calling session.
    fn keeps_for_caller(&self, file: FileId) -> bool {
        let keepers = self.unlinked.inodes.get(&file);
        keepers.is_some_and(|keepers| self.caller.subscriber.is_some_and(|subscriber| keepers.has(subscriber)))
    }

    /// Ends a session; returns the inodes that were kept for it alone.
    fn end_session(&mut self, session: Session) -> Vec<FileId> {
        let number = self.unlinked.sessions.iter().position(|known| *known == session && session != Session::NONE);
        if let Some(subscriber) = number.and_then(SubscriberId::new) {
            self.unlinked.remove_subscriber(subscriber);
        }
        let deleted =
            self.unlinked.inodes.iter().filter(|(_, keepers)| keepers.is_empty()).map(|(file, _)| *file).collect();
        self.unlinked.inodes.retain(|_, keepers| !keepers.is_empty());
        deleted
    }
}

impl Partition {
    /// Records the session of a subscriber number if it is new.
    pub(crate) fn register_subscriber(&mut self, CommandCaller { session, subscriber, .. }: CommandCaller) {
        let Some(subscriber) = subscriber else { return };
        let known = self.grants.unlinked.sessions.get(subscriber.number());
        if known != Some(&session) && !self.replies.has_ended(session) {
            self.grants.unlinked.set_session(subscriber, session);
        }
    }

    /// Returns the unlinked inodes that no kernel will know any more when the command is executed.
    pub(crate) fn released_by(&mut self, command: &Command) -> Vec<FileId> {
        match command {
            Command::ForgetInode { file } if self.is_forgotten_by_caller(*file) => vec![*file],
            Command::CloseSession { session } => self.grants.end_session(*session),
            _ => Vec::new(),
        }
    }

    /// Records that the kernel of the calling session has forgotten the inode; returns true if the
    /// inode was kept for that one alone.
    fn is_forgotten_by_caller(&mut self, file: FileId) -> bool {
        let Some(subscriber) = self.grants.caller.subscriber else { return false };
        if let Some(inode) = self.inodes.get_mut(&file) {
            inode.grants.take(GrantSet::Known, SubscriberIds::of(subscriber));
        }
        self.grants.unlinked.forget(file, subscriber)
    }

    /// Refuses a command about an unlinked inode that is kept only for kernels of other sessions.
    pub(crate) fn check_not_hidden(&self, command: &Command) -> Outcome<()> {
        let is_for_all = matches!(
            command,
            // The extent's node must learn that the inode still exists.
            Command::ForgetInode { .. }
                | Command::Demote { .. }
                | Command::Evacuate { .. }
                | Command::EvacuateDone { .. }
        );
        if self.kept.is_empty() || is_for_all {
            return Ok(());
        }
        let (Object::File(file) | Object::Entry { parent: file, .. }) = command.object() else { return Ok(()) };
        let is_unused = |inode: &Inode| inode.names == 0 && inode.opens.is_empty();
        let is_hidden = self.kept.contains(&file)
            && !self.grants.keeps_for_caller(file)
            && self.inodes.get(&file).is_some_and(|inode| is_unused(inode));
        if is_hidden { Err(self.missing(file)) } else { Ok(()) }
    }

    /// Handles the loss of a name. If it was the last, the inode is kept for the subscribers whose
    /// kernels know it.
    pub(crate) fn keep_unlinked(&mut self, file: FileId) {
        let Some(inode) = self.inodes.get(&file) else { return };
        if inode.names > 0 {
            return self.record_name_change(file);
        }
        if self.step.is_serving && self.is_known_to_kernels(file) {
            self.step.unlinked.kept.push(file);
        }
        if self.step.unlinked.kept.contains(&file) {
            self.kept.insert(file);
        }
    }

    /// Returns true if kernels know an inode that has lost its last name; notifies them.
    fn is_known_to_kernels(&mut self, file: FileId) -> bool {
        let CommandCaller { subscriber, others, pruning, .. } = self.grants.caller;
        let Some(inode) = self.inodes.get(&file) else { return false };
        let own = subscriber.map_or(SubscriberIds::NONE, SubscriberIds::of);
        let keepers = inode.grants.get(GrantSet::Known).intersection(own.union(pruning));
        // No kernel knows a fragment, although its directory's subscribers query its attributes.
        if keepers.is_empty() || inode.directory_of(file) != file {
            return false;
        }
        let keepers = keepers.intersection(self.grants.unlinked.alive());
        let notify =
            keepers.intersection(pruning).intersection(others.union(inode.grants.get(GrantSet::UnsureHolders)));
        if !keepers.is_empty() {
            self.grants.unlinked.inodes.insert(file, keepers);
        }
        if !notify.is_empty() {
            self.grants.invalidations.push(Invalidation::changed(Recall::Removed(file), notify));
        }
        !keepers.is_empty()
    }

    /// Handles the removal or move of a name: kernels of other sessions may have the old one.
    pub(crate) fn record_name_change(&mut self, file: FileId) {
        let others = self.grants.caller.others;
        if let Some(inode) = self.inodes.get_mut(&file).filter(|_| !others.is_empty()) {
            inode.grants.add(GrantSet::UnsureHolders, others);
        }
    }

    /// Deletes an unlinked inode if the entry says that no kernel knows it any more.
    pub(crate) fn forget_inode(&mut self, _: CommandContext, file: FileId) -> Outcome<Answer> {
        let is_released = self.step.unlinked.released.contains(&file) && self.kept.remove(&file);
        self.step.is_durable |= is_released;
        Ok(Answer::Removed(if is_released { self.remove_if_unused(file) } else { None }))
    }
}
