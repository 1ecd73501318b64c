//! Execution of entries: the only way to change the durable state of a partition.

use crate::{Applied, EntryBody, LogEntry, Partition, PartitionDelta, intents::LockTarget, partition::split};
use placement::FileId;
use wire::{Answer, Command, ExtentRequest, Name, Object, OpenFlags, Outcome, Refusal, RequestId, Session, Timestamp};

/// The session and the time that a command is executed with.
#[derive(Clone, Copy, Debug)]
pub struct CommandContext {
    /// The session that sends it; none for a query.
    pub session: Session,
    /// The wall clock.
    pub now: Timestamp,
}

/// Executes a command by the method of its name, which takes the fields.
macro_rules! execute {
    ($partition:ident $context:ident $command:ident $($method:ident $variant:ident { $($field:ident)* })*) => {
        match $command {
            $(Command::$variant { $($field),* } => $partition.$method($context $(, $field)*),)*
        }
    };
}

impl Partition {
    /// Executes an entry. A command that was executed before is not executed again, and gets the
    /// cached reply. A change needs a request id and is refused without one.
    pub fn apply(&mut self, entry: LogEntry) -> Applied {
        let LogEntry { request_id, body, now, unlinked } = entry;
        let (bytes, files) = (self.bytes, self.files());
        self.step.unlinked = unlinked;
        let answer = match body {
            EntryBody::Command(command) => self.answer(request_id, command, now),
            EntryBody::Reply(answer) => self.replace_reply(request_id, answer),
        };
        let step = std::mem::take(&mut self.step);
        let delta = PartitionDelta {
            bytes: self.bytes.wrapping_sub(bytes).cast_signed(),
            files: self.files().wrapping_sub(files).cast_signed(),
        };
        Applied { answer, effects: step.effects, delta, unlinked: step.unlinked, is_durable: step.is_durable }
    }

    fn replace_reply(&mut self, request_id: Option<RequestId>, answer: Outcome<Answer>) -> Outcome<Answer> {
        if let Some(request_id) = request_id.filter(|request_id| !self.replies.has_ended(request_id.session)) {
            self.step.is_durable = true;
            self.replies.replace(request_id, answer.clone());
        }
        answer
    }

    fn answer(&mut self, request_id: Option<RequestId>, command: Command, now: Timestamp) -> Outcome<Answer> {
        let Some(request_id) = request_id else {
            if command.is_mutation() {
                return Err(Refusal::invalid(Object::Pool, "a change came without session and number"));
            }
            return self.execute(Session::NONE, command, now);
        };
        if let Some(answer) = self.replies.get(request_id) {
            return answer;
        }
        self.step.is_durable = command.is_mutation();
        if self.replies.has_ended(request_id.session) {
            return self.perform_late(request_id, command, now);
        }
        let leaving = matches!(command, Command::CloseSession { session } if session == request_id.session);
        let waits = matches!(command, Command::Lock { wait: true, .. });
        let answer = self.execute(request_id.session, command, now);
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
            Command::CloseSession { .. } | Command::PurgeDone { .. } => self.execute(request_id.session, command, now),
            _ => Err(Refusal::SessionEnded),
        }
    }

    fn execute(&mut self, session: Session, command: Command, now: Timestamp) -> Outcome<Answer> {
        let (partition, context) = (self, CommandContext { session, now });
        wire::for_each_command!(execute partition context command)
    }

    /// Opens a file by its name, if that is possible; otherwise looks the name up.
    fn open_name(
        &mut self,
        context: CommandContext,
        parent: FileId,
        name: Name,
        flags: OpenFlags,
        extent: ExtentRequest,
    ) -> Outcome<Answer> {
        let resolved = self.resolve_open(Command::OpenName { parent, name, flags, extent }, None);
        self.execute(context.session, resolved, context.now)
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
