//! Commands to verbs: the one door into a partition.

use crate::{Partition, locks::Holder};
use wire::{Answer, Command, Object, Outcome, Refusal, Session, Stamp, Timestamp};

impl Partition {
    /// Does the command, or answers what was answered when it was done before.
    ///
    /// `now` is the wall clock. A change needs a stamp; without one it is refused.
    pub fn apply(&mut self, stamp: Option<Stamp>, command: Command, now: Timestamp) -> Outcome<Answer> {
        let Some(stamp) = stamp else { return self.ask(command, now) };
        if let Some(answer) = self.answered.recall(stamp) {
            return answer;
        }
        let leaving = matches!(command, Command::CloseSession { session } if session == stamp.session);
        let waits = matches!(command, Command::Lock { wait: true, .. });
        let answer = self.perform(stamp, command, now);
        let comes_again = waits && matches!(answer, Err(Refusal::Locked(_)));
        if !leaving && !comes_again {
            self.answered.keep(stamp, answer.clone());
        }
        answer
    }

    /// Commands that change nothing.
    fn ask(&mut self, command: Command, now: Timestamp) -> Outcome<Answer> {
        match command {
            Command::Lookup { parent, name } => self.lookup(parent, &name),
            Command::Stat { file } => self.attributes(file).map(Answer::Attributes),
            Command::List { directory, after, max } => self.list(directory, after, max),
            Command::ReadLink { file } => self.read_link(file),
            Command::Parent { directory } => Ok(Answer::Parent(self.directory(directory)?.parent)),
            Command::Probe { parent, name } => self.probe(parent, &name),
            Command::Read { file, offset, length } => self.read(file, offset, length, now),
            Command::Xattr { file, name } => self.xattr(file, &name),
            Command::Xattrs { file } => self.xattrs(file),
            Command::TestLock { file, session, lock } => {
                self.test_lock(Holder { session, owner: lock.owner }, file, &lock)
            }
            Command::Seek { file, offset, to } => self.seek(file, offset, to),
            Command::Leftovers => Ok(Answer::Leftovers(self.leftovers())),
            Command::Forgotten { file } => Ok(self.forgotten(file)),
            _ => Err(Refusal::invalid(Object::Pool, "a change came without session and number")),
        }
    }

    fn perform(&mut self, stamp: Stamp, command: Command, now: Timestamp) -> Outcome<Answer> {
        let session = stamp.session;
        match command {
            Command::Create { parent, name, inode, open, whole } => {
                self.create(parent, name, inode, (open.then_some(session), whole), now)
            }
            Command::MakeDirectory { parent, inode, heritage } => {
                Ok(self.make_directory(parent, &inode, &heritage, now))
            }
            Command::Enter { parent, name, file, kind } => self.enter(parent, name, (file, kind), now),
            Command::Open { .. } | Command::Close { .. } => self.hold(session, &command, now),
            Command::Change { file, changes } => self.change(file, &changes, now),
            Command::Write { file, place, length, data, kill_set_id } => {
                self.write(file, place, length, (&data, kill_set_id), now)
            }
            Command::Wrote { file, generation, end } => self.wrote(file, generation, end, now),
            Command::Abandon { file, generation, offset, length } => {
                self.abandon(file, generation, offset..offset.saturating_add(length.into()))
            }
            Command::SpillDone { file, generation } => self.spill_done(file, generation),
            Command::TrimDone { file, generation } => self.trim_done(file, generation),
            Command::Fold { file, extent, bytes, times } => self.fold(file, extent, &bytes, times),
            Command::Purged { file } => Ok(self.purged(file)),
            Command::Unlink { parent, name } => self.unlink(parent, &name, now),
            Command::DropLink { file } => Ok(self.drop_link(file, now)),
            Command::RemoveDirectory { parent, name } => self.remove_directory(parent, &name, now),
            Command::Seal { directory } => self.seal(directory, (session, stamp.number)),
            Command::Unseal { directory, mark } => self.unseal(directory, (session, mark)),
            Command::RemoveEntry { parent, name, directory } => self.remove_entry(parent, &name, directory, now),
            Command::DropDirectory { directory } => self.drop_directory(directory, now),
            Command::CloseSession { session } => Ok(self.close_session(session)),
            other => self.perform_on_inode(session, other, now),
        }
    }

    /// What concerns one inode besides its bytes and names.
    fn perform_on_inode(&mut self, session: Session, command: Command, now: Timestamp) -> Outcome<Answer> {
        match command {
            Command::CreateUnnamed { parent, inode, linkable } => {
                self.create_unnamed(parent, inode, linkable, session, now)
            }
            Command::SetXattr { file, name, value, mode, kill_set_group_id } => {
                self.set_xattr(file, (name, value), mode, kill_set_group_id, now)
            }
            Command::RemoveXattr { file, name } => self.remove_xattr(file, &name, now),
            Command::Lock { file, lock, .. } => self.lock(Holder { session, owner: lock.owner }, file, &lock),
            Command::Allocate { file, offset, length, mode } => self.allocate(file, (offset, length), mode, now),
            Command::Punched { file, generation } => self.punched(file, generation),
            moving => self.perform_move(session, moving, now),
        }
    }

    /// Opens and closes.
    fn hold(&mut self, session: Session, command: &Command, now: Timestamp) -> Outcome<Answer> {
        match *command {
            Command::Open { file, flags, whole } => self.open(session, file, (flags, whole), now),
            Command::Close { file } => self.close(session, file),
            _ => Err(Refusal::invalid(Object::Pool, "neither an open nor a close")),
        }
    }

    /// Renames, whole or in steps.
    fn perform_move(&mut self, session: Session, command: Command, now: Timestamp) -> Outcome<Answer> {
        match command {
            Command::Rename { from, to, mode, sealed } => self.rename(&from, &to, mode, sealed, now),
            Command::MoveOut { from, to, exchange } => self.move_out(session, &from, to, exchange),
            Command::MoveIn { to, file, kind, mode, expected } => self.move_in(&to, (file, kind), mode, expected, now),
            Command::MoveDone { from, file } => self.move_done(&from, file, now),
            Command::MoveBack { from, file } => self.move_back(&from, file),
            Command::SetParent { directory, parent } => self.set_parent(directory, parent, now),
            asked => self.ask(asked, now),
        }
    }
}
