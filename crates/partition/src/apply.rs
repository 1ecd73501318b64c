//! Dispatch of commands: the only entry point of a partition.

use crate::{
    Partition,
    intents::LockTarget,
    locks::Holder,
    object::ReservedStripes,
    partition::split,
    xattr::{is_inheritable, placement_attr},
};
use placement::FileId;
use wire::{Answer, Command, Object, Outcome, Refusal, RequestId, Session, Timestamp, XattrMode};

impl Partition {
    /// Executes the command, or returns the cached reply if it was executed before.
    ///
    /// `now` is the wall clock. A change needs a request id and is refused without one.
    pub fn apply(&mut self, request_id: Option<RequestId>, command: Command, now: Timestamp) -> Outcome<Answer> {
        let Some(request_id) = request_id else { return self.query(command, now) };
        if let Some(answer) = self.replies.get(request_id) {
            return answer;
        }
        if self.replies.has_ended(request_id.session) {
            return self.perform_late(request_id, command, now);
        }
        let leaving = matches!(command, Command::CloseSession { session } if session == request_id.session);
        let waits = matches!(command, Command::Lock { wait: true, .. });
        let answer = self.perform(request_id, command, now);
        let comes_again = waits && matches!(answer, Err(Refusal::Locked(_)));
        if !leaving && !comes_again {
            self.replies.insert(request_id, answer.clone());
        }
        answer
    }

    /// Executes a late command of an ended session: it may be closed again and may report purged
    /// stripes. All else is refused.
    fn perform_late(&mut self, request_id: RequestId, command: Command, now: Timestamp) -> Outcome<Answer> {
        match command {
            Command::CloseSession { .. } | Command::PurgeDone { .. } => self.perform(request_id, command, now),
            _ => Err(Refusal::SessionEnded),
        }
    }

    /// Executes a query.
    fn query(&mut self, command: Command, now: Timestamp) -> Outcome<Answer> {
        match command {
            Command::Lookup { parent, name } => self.lookup(parent, &name),
            Command::Stat { file } => self.stat(file),
            Command::List { directory, after, max } => self.list(directory, after, max),
            Command::ReadLink { file } => self.read_link(file),
            Command::Parent { directory } => self.parent(directory),
            Command::Fragments { directory } => self.fragments(directory),
            Command::UnownedStripes { file, stripes } => {
                Ok(Answer::UnownedStripes(self.unowned_stripes(file, &stripes)))
            }
            Command::Placement { file } => self.placement(file),
            Command::Status { intent } => Ok(Answer::Decided(self.decision(intent))),
            Command::CheckName { parent, name } => self.check_name(parent, &name),
            Command::Read { file, offset, length } => self.read(file, offset, length, now),
            Command::Xattr { file, name } => self.xattr(file, &name),
            Command::Xattrs { file } => self.xattrs(file),
            Command::TestLock { file, session, lock } => self.test_lock(Holder::new(session, lock.owner), file, &lock),
            Command::Seek { file, offset, to } => self.seek(file, offset, to),
            Command::ListUnfinished => Ok(Answer::UnfinishedWork(self.unfinished_work())),
            Command::ForgetInode { file } => Ok(self.forget_inode(file)),
            other => self.query_object(other, now),
        }
    }

    fn query_object(&mut self, command: Command, now: Timestamp) -> Outcome<Answer> {
        match command {
            Command::GetObject { parent, name, offset, length } => {
                self.get_object(parent, &name, (offset, length), now)
            }
            Command::GetFile { file, offset, length } => self.get_file(file, (offset, length), now),
            Command::ListNames { directory, prefix, from, max } => self.list_names(directory, &prefix, &from, max),
            _ => Err(Refusal::invalid(Object::Pool, "a change came without session and number")),
        }
    }

    fn perform(&mut self, request_id: RequestId, command: Command, now: Timestamp) -> Outcome<Answer> {
        let session = request_id.session;
        match command {
            Command::Create { parent, name, inode, open, extent } => {
                self.create(parent, name, inode, (open.then_some(session), extent), now)
            }
            Command::Open { .. } | Command::Close { .. } | Command::Release { .. } => {
                self.perform_on_opens(session, &command, now)
            }
            Command::OpenName { .. } => {
                let resolved = self.resolve_open(command, None);
                self.perform(request_id, resolved, now)
            }
            Command::Change { file, changes } => {
                self.check_changeable(file)?;
                self.change(file, &changes, now)
            }
            Command::Write { file, place, length, data, kill_set_id } => {
                self.write(file, place, length, (&data, kill_set_id), now)
            }
            Command::PublishSize { file, generation, end } => self.publish_size(file, generation, end, now),
            Command::Abandon { file, generation, offset, length } => {
                self.abandon(file, generation, offset..offset.saturating_add(length.into()))
            }
            Command::SpillDone { file, generation } => self.spill_done(file, generation),
            Command::TruncateDone { file, generation } => self.truncate_done(file, generation),
            Command::Demote { file, extent, bytes, times } => self.demote(file, extent, &bytes, times),
            Command::PurgeDone { file } => Ok(self.purge_done(file)),
            Command::Unlink { parent, name } => self.unlink(parent, &name, now),
            Command::RemoveDirectory { parent, name } => self.remove_directory(parent, &name, now),
            Command::CloseSession { session } => Ok(self.close_session(session)),
            other => self.perform_on_inode(session, other, now),
        }
    }

    /// Executes a change of one inode, other than of its bytes and names.
    fn perform_on_inode(&mut self, session: Session, command: Command, now: Timestamp) -> Outcome<Answer> {
        match command {
            Command::CreateTmpfile { parent, name, inode, linkable } => {
                self.create_tmpfile((parent, name), inode, linkable, session, now)
            }
            Command::SetXattr { file, name, value, mode, kill_set_group_id } => {
                self.check_xattr_changeable(file, &name, (true, mode))?;
                self.set_xattr(file, (name, value), mode, kill_set_group_id, now)
            }
            Command::RemoveXattr { file, name } => {
                self.check_xattr_changeable(file, &name, (false, XattrMode::Set))?;
                self.remove_xattr(file, &name, now)
            }
            Command::Lock { file, lock, .. } => self.lock(Holder::new(session, lock.owner), file, &lock),
            Command::Allocate { file, offset, length, mode } => self.allocate(file, (offset, length), mode, now),
            Command::Place { file, partition } => self.place(file, partition),
            Command::PunchDone { file, generation } => self.punch_done(file, generation),
            Command::AllocationFailed { file, generation, stripe } => self.allocation_failed(file, generation, stripe),
            Command::PutObject { parent, name, condition, placing, attributes, contents } => {
                self.put_object(session, (parent, &name), condition, (placing, attributes, contents), now)
            }
            Command::DeleteObject { parent, name, condition } => self.delete_object(parent, &name, condition, now),
            Command::Reserve { count, stripes, layout, policy: by } => {
                self.reserve(session, count, ReservedStripes { count: stripes, layout, by })
            }
            Command::Unreserve { file } => Ok(Answer::Removed { deleted: self.unreserve(file, session) }),
            named => self.perform_named(named, now),
        }
    }

    /// Executes an open or close.
    fn perform_on_opens(&mut self, session: Session, command: &Command, now: Timestamp) -> Outcome<Answer> {
        match *command {
            Command::Open { file, flags, extent } => self.open(session, file, (flags, extent), now),
            Command::Close { file } => self.close(session, file),
            Command::Release { file, session, to } => self.release_open(file, session, to),
            _ => Err(Refusal::invalid(Object::Pool, "neither an open nor a close")),
        }
    }

    /// Executes a change of existing inodes' names, or a step of an intent.
    fn perform_named(&mut self, command: Command, now: Timestamp) -> Outcome<Answer> {
        match command {
            Command::Link { file, parent, name } => self.link(file, parent, name, now),
            Command::Rename { from, to, mode } => self.rename(&from, &to, mode, now),
            Command::UpdateCtime { file } => Ok(self.update_ctime(file, now)),
            Command::Prepare { intent, parts } => self.prepare(intent, parts),
            Command::Commit { intent, parts, others } => self.commit(intent, parts, others, now),
            Command::Settle { intent, commit } => Ok(self.settle(intent, commit, now)),
            Command::Decide { intent } => self.decide(intent, now),
            Command::ForgetIntent { intent } => Ok(self.forget_intent(intent)),
            query => self.query(query, now),
        }
    }

    /// As [`Self::check_changeable`], but only for inheritable attributes: fragments store no
    /// others. Also checks the placement mode, because only the directory itself knows which values
    /// were set on it.
    fn check_xattr_changeable(&self, file: FileId, name: &[u8], (sets, mode): (bool, XattrMode)) -> Outcome<()> {
        if !is_inheritable(name) {
            return Ok(());
        }
        if let Some(attr) = placement_attr(name) {
            self.inode(file)?.check_placement_mode(file, attr, (sets, mode))?;
        }
        self.check_changeable(file)
    }

    /// Refuses a change of a directory that is split or about to be: its fragments must change with
    /// it.
    pub(crate) fn check_changeable(&self, file: FileId) -> Outcome<()> {
        if self.is_split(file) {
            return Err(split(file));
        }
        self.intents.check(file, LockTarget::AllEntries, None)
    }
}
