//! Intents: a partition's part in a transaction over several partitions.
//!
//! Prepare checks everything, sets locks and reserves space, so that settling cannot fail. A locked
//! target accepts no other change ([`wire::Refusal::LockedByIntent`]). A query gets the answer
//! without the intent, and the ids of the intents that have locked something in it
//! ([`wire::Answer::Unsettled`]). The coordinator's commit is the decision; a partition never
//! decides for another.

use crate::{
    Partition,
    apply::CommandContext,
    intents::{Decided, LockTarget, Prepared},
    memory_cost,
};
use placement::{FileId, PartitionId};
use wire::{Answer, Decision, Intent, Object, Outcome, Part, PendingDelete, Refusal, UnsettledAnswer};

/// Maximum number of prepared intents in one partition: each is one call of a client.
const PREPARED_MAX: usize = 1024;
/// Maximum number of remembered decisions: each belongs to a client that was slow, or died.
const DECIDED_MAX: usize = 65_536;

impl Partition {
    pub(crate) fn prepare(&mut self, _: CommandContext, intent: Intent, parts: Vec<Part>) -> Outcome<Answer> {
        if matches!(self.intents.decided.get(&intent), Some(Decided::Aborted)) {
            return Err(Refusal::Stale(Object::Pool));
        }
        if self.intents.prepared.len() >= PREPARED_MAX && !self.intents.prepared.contains_key(&intent) {
            return Err(Refusal::Busy(Object::Pool));
        }
        parts.iter().try_for_each(|part| self.check_part(intent, part))?;
        self.check_alone(intent, &parts)?;
        let reserved = parts.iter().map(memory_cost::part).sum::<u64>();
        let parts: Vec<_> = parts.into_iter().map(|part| self.lock_part(intent, part)).collect();
        let made = parts.iter().filter_map(|(_, made)| *made).collect();
        let prepared = self.intents.prepared.entry(intent).or_default();
        prepared.parts.extend(parts);
        prepared.reserved += reserved;
        self.bytes += reserved;
        Ok(Answer::Prepared(made))
    }

    pub(crate) fn commit(
        &mut self,
        context: CommandContext,
        intent: Intent,
        parts: Vec<Part>,
        others: Vec<PartitionId>,
    ) -> Outcome<Answer> {
        if !others.is_empty() && self.intents.decided.len() >= DECIDED_MAX {
            return Err(Refusal::Busy(Object::Pool));
        }
        self.prepare(context, intent, parts)?;
        if !others.is_empty() {
            self.intents.decided.insert(intent, Decided::Committed(others));
        }
        self.settle(context, intent, true)
    }

    /// Applies or discards the prepared parts. An unknown intent was settled before.
    pub(crate) fn settle(&mut self, context: CommandContext, intent: Intent, commit: bool) -> Outcome<Answer> {
        let Some(Prepared { parts, reserved }) = self.intents.remove(intent) else {
            return Ok(Answer::Settled(Vec::new()));
        };
        self.bytes -= reserved;
        self.attribute_changes_to(intent.session);
        let named: Vec<FileId> = parts.iter().filter_map(|(part, _)| renamed_inode(part)).collect();
        let mut deleted: Vec<PendingDelete> = Vec::new();
        if commit {
            deleted.extend(parts.into_iter().filter_map(|(part, made)| self.apply_part(part, made, context.now)));
        }
        deleted.extend(named.into_iter().filter_map(|file| self.remove_if_unused(file)));
        Ok(Answer::Settled(deleted))
    }

    pub(crate) fn decide(&mut self, context: CommandContext, intent: Intent) -> Outcome<Answer> {
        match self.decision(intent) {
            Decision::Open => {}
            decided => return Ok(Answer::Decided(decided)),
        }
        if !self.replies.has_ended(intent.session) {
            if self.intents.decided.len() >= DECIDED_MAX {
                return Err(Refusal::Busy(Object::Pool));
            }
            self.intents.decided.insert(intent, Decided::Aborted);
        }
        self.settle(context, intent, false)?;
        Ok(Answer::Decided(Decision::Aborted))
    }

    pub(crate) fn status(&mut self, _: CommandContext, intent: Intent) -> Outcome<Answer> {
        Ok(Answer::Decided(self.decision(intent)))
    }

    fn decision(&self, intent: Intent) -> Decision {
        match self.intents.decided.get(&intent) {
            Some(Decided::Committed(others)) => Decision::Committed { others: others.clone() },
            Some(Decided::Aborted) => Decision::Aborted,
            None => Decision::Open,
        }
    }

    pub(crate) fn forget_intent(&mut self, _: CommandContext, intent: Intent) -> Outcome<Answer> {
        self.intents.decided.remove(&intent);
        Ok(Answer::Done)
    }

    /// Wraps an answer that is valid while none of the intents is committed.
    pub(crate) fn unsettled(held: Vec<Intent>, answer: Answer) -> Answer {
        if held.is_empty() {
            answer
        } else {
            Answer::Unsettled(UnsettledAnswer { intents: held, answer: Box::new(answer) })
        }
    }

    /// Sets the locks of a part, and gives an id to the inode that it creates.
    fn lock_part(&mut self, intent: Intent, part: Part) -> (Part, Option<FileId>) {
        let mut made = None;
        match &part {
            Part::Entry { directory, name, .. } => {
                self.lock_target(*directory, LockTarget::Entry(name.clone()), intent);
            }
            Part::AddLink { file } | Part::DropLink { file } | Part::Moved { file, .. } => {
                self.lock_target(*file, LockTarget::Inode, intent);
            }
            Part::Remove { directory, .. } | Part::Change { directory, .. } | Part::Xattr { directory, .. } => {
                self.lock_target(*directory, LockTarget::Inode, intent);
                self.lock_target(*directory, LockTarget::AllEntries, intent);
            }
            Part::MoveLease => self.lock_target(FileId::ROOT, LockTarget::MoveLease, intent),
            Part::LockEntries { directory } | Part::Split { directory, .. } => {
                self.lock_target(*directory, LockTarget::AllEntries, intent);
            }
            Part::CreateDirectory { .. } | Part::Fragment { .. } => {
                let file = self.next_id();
                self.lock_target(file, LockTarget::Inode, intent);
                made = Some(file);
            }
        }
        (part, made)
    }

    fn lock_target(&mut self, file: FileId, target: LockTarget, intent: Intent) {
        if target != LockTarget::MoveLease {
            self.invalidate_locked(file, matches!(target, LockTarget::Entry(_)));
        }
        self.intents.lock(file, target, intent);
    }
}

/// Returns the inode whose names the part may change, or that it kept locked while others removed
/// the last name: it may have no name left when the intent is settled.
fn renamed_inode(part: &Part) -> Option<FileId> {
    match part {
        Part::AddLink { file } | Part::DropLink { file } | Part::Moved { file, .. } => Some(*file),
        Part::Remove { directory, .. } => Some(*directory),
        _ => None,
    }
}
