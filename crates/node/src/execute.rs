//! Commands for a partition: space is reserved before a command, and the unused part is released
//! after it.

use crate::{
    Node, clock,
    extent_ops::{ExtentOp, extent_request},
    extents::{ExtentPin, ExtentSlots},
    partitions::PartitionGuard,
    space::EngineFull,
    subscriber::AckWait,
};
use bytes::Bytes;
use partition::{Applied, CommandCaller, Effects, EntryBody, Invalidation, LogEntry, Partition};
use placement::{FileId, NodeId, PartitionId};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};
use store::{EngineError, StripeStore};
use wire::{
    Answer, Command, Content, Credentials, Extent, FoundObject, HostedAnswer, Object, OpenedFile, Outcome,
    RangeContent, Recall, Refusal, RequestId, Session, SpaceShortage,
};

/// A command in progress, kept until there is space for it.
#[derive(Debug)]
pub struct CommandCall {
    pub session: Session,
    pub skip_ack: bool,
    pub partition: PartitionId,
    pub request_id: Option<RequestId>,
    /// The command; taken when it is executed.
    pub command: Option<Command>,
    /// Credentials of the user on whose behalf the path was walked, if they are to be checked.
    pub credentials: Option<Credentials>,
    /// The invalidation acks that the answer waits for; set when the command is executed.
    pub ack_wait: Option<AckWait>,
    /// Work on an extent that found no space, with the partition's answer: the rest of a command
    /// that is executed already.
    pub remaining: Option<(ExtentOp, Answer)>,
}

impl CommandCall {
    /// A call of a session without a request id; the command is still to be filled in.
    pub fn new(session: Session, partition: PartitionId) -> Self {
        Self {
            session,
            skip_ack: false,
            partition,
            request_id: None,
            command: None,
            credentials: None,
            ack_wait: None,
            remaining: None,
        }
    }

    /// A call that changes something, with its request id.
    pub fn with_id(request_id: RequestId, partition: PartitionId, command: Command) -> Self {
        let (session, request_id, command) = (request_id.session, Some(request_id), Some(command));
        Self {
            session,
            skip_ack: false,
            partition,
            request_id,
            command,
            credentials: None,
            ack_wait: None,
            remaining: None,
        }
    }
}

/// A command that may be executed now: its partition is locked, and there is space for it.
struct AdmittedCommand<'a> {
    partition: PartitionGuard<'a>,
    caller: CommandCaller,
    /// Bytes that were reserved for it.
    reserved: u64,
    /// The extent that was given to it.
    extent: Option<Extent>,
}

/// The end of the admission of a command.
enum CommandAdmission<'a> {
    Execute(AdmittedCommand<'a>),
    /// It was refused, or executed before.
    Answered(Outcome<Answer>),
}

/// The range of a read: the rest of the answer is read into it without the partition's lock.
#[derive(Clone, Copy)]
pub enum ReadRange {
    /// Bytes of a file from an offset on.
    File(FileId, u64),
    /// Bytes of an object from an offset on.
    Object(u64),
}

impl ReadRange {
    pub fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Read { file, offset, .. } => Some(Self::File(*file, *offset)),
            Command::GetObject { offset, .. } | Command::GetFile { offset, .. } => Some(Self::Object(*offset)),
            _ => None,
        }
    }
}

/// A command that its partition has executed, with what is left to do.
struct AppliedCommand<'a> {
    partition: PartitionGuard<'a>,
    caller: CommandCaller,
    read: Option<ReadRange>,
    op: Option<ExtentOp>,
    effects: Effects,
    invalidations: Vec<Invalidation>,
    /// Bytes that were reserved and not used.
    unneeded: u64,
    /// An extent that was given and not used.
    unused: Option<Extent>,
}

/// The result of a command in a partition.
struct ServedCommand {
    answer: Outcome<Answer>,
    effects: Effects,
    invalidations: Vec<Invalidation>,
    /// Bytes that were reserved and not used.
    unneeded: u64,
}

impl Node {
    /// Executes the command, unless there is no space for what it may add: it is admitted, applied
    /// by its partition, and its effects are run; then the answer gets the bytes that it names.
    pub(crate) fn try_execute(&self, call: &mut CommandCall) -> Result<Outcome<Answer>, EngineFull> {
        let admitted = match self.admit(call)? {
            CommandAdmission::Answered(outcome) => return Ok(outcome),
            CommandAdmission::Execute(admitted) => admitted,
        };
        let (answer, applied) = self.apply_admitted(admitted, call);
        let (read, mut pin) = (applied.read, None);
        let answer = self.run_command_effects(answer, applied, call, &mut pin)?;
        Ok(answer.and_then(|mut answer| {
            self.remove_deleted_stripes(&mut answer);
            self.fill_bytes(answer, read, pin)
        }))
    }

    /// Decides whether the command is executed now: not if it is refused, was executed before, or
    /// finds no space.
    fn admit(&self, call: &mut CommandCall) -> Result<CommandAdmission<'_>, EngineFull> {
        let oversized = call.command.as_ref().and_then(|command| self.refuse_oversized(command));
        if let Some(refusal) = oversized {
            return Ok(CommandAdmission::Answered(Err(refusal)));
        }
        let Some(mut partition) = self.partitions.lock(call.partition) else {
            return Ok(CommandAdmission::Answered(Err(self.moved(call.partition))));
        };
        if let Some((op, answer)) = call.remaining.take() {
            return self.finish_extent_op(&mut partition, call, Some(op), Ok(answer)).map(CommandAdmission::Answered);
        }
        let caller = self.subscribers.caller(call.session);
        self.note_sessions(call, caller);
        if let Some(answer) = call.request_id.and_then(|request_id| partition.cached_reply(request_id)) {
            tracing::trace!("the request was executed before: its cached reply is sent");
            // The request is a resend. Acks for what the first execution invalidated may still be
            // outstanding.
            call.ack_wait = self.subscribers.pending_acks(caller).filter(|_| !call.skip_ack);
            let op = call.command.as_ref().and_then(ExtentOp::from_command);
            return Ok(CommandAdmission::Answered(self.fill_answer(&partition, op.as_ref(), answer)));
        }
        if let Err(refusal) = self.check_not_ended(call) {
            return Ok(CommandAdmission::Answered(Err(refusal)));
        }
        if matches!(call.command, Some(Command::OpenName { .. })) {
            call.command =
                call.command.take().map(|command| partition.resolve_open(command, call.credentials.as_ref()));
        }
        let command = call.command.as_mut().expect("a command is executed once");
        self.bind_to_own_host(command);
        if let Err(refusal) = self.check_version_is_known(&partition, command) {
            return Ok(CommandAdmission::Answered(Err(refusal)));
        }
        let requested = extent_request(command).copied();
        let extent = self.grant_extent(&partition, command);
        let reserved = partition.new_bytes_max(command);
        match reserve(&*self.engine, reserved) {
            Ok(None) => Ok(CommandAdmission::Execute(AdmittedCommand { partition, caller, reserved, extent })),
            refused => {
                drop(partition);
                self.revoke_extent(command, requested, extent);
                let refusal = refused?.expect("a reservation that was not granted was refused");
                Ok(CommandAdmission::Answered(Err(refusal)))
            }
        }
    }

    /// Has the partition execute the command.
    fn apply_admitted<'a>(
        &self,
        admitted: AdmittedCommand<'a>,
        call: &mut CommandCall,
    ) -> (Outcome<Answer>, AppliedCommand<'a>) {
        let AdmittedCommand { mut partition, caller, reserved, extent } = admitted;
        let mut command = call.command.take().expect("a command is executed once");
        self.subtract_extent_changes(&partition, &mut command);
        let op = ExtentOp::from_command(&command);
        let read = ReadRange::of(&command);
        let served = self.serve(&mut partition, caller, call.request_id, command, reserved);
        let ServedCommand { answer, effects, invalidations, unneeded } = served;
        let unused = extent.filter(|extent| !uses_extent(&answer, *extent));
        (answer, AppliedCommand { partition, caller, read, op, effects, invalidations, unneeded, unused })
    }

    /// Runs what a command leaves to the node: its part on extents, invalidations, files to remove.
    /// Returns the answer, and puts the pin of the extent that it names into `pin`.
    fn run_command_effects<'a>(
        &'a self,
        answer: Outcome<Answer>,
        applied: AppliedCommand<'_>,
        call: &mut CommandCall,
        pin: &mut Option<ExtentPin<&'a ExtentSlots>>,
    ) -> Result<Outcome<Answer>, EngineFull> {
        let AppliedCommand { mut partition, caller, read, op, effects, invalidations, unneeded, unused } = applied;
        let answer = self.finish_extent_op(&mut partition, call, op, answer);
        let answer = match read {
            Some(ReadRange::Object(offset)) => {
                answer.map(|answer| answer.and_then(|answer| self.fill_object(answer, offset)))
            }
            _ => answer,
        };
        *pin = if let Ok(Ok(answer)) = &answer { self.pin_read(answer) } else { None };
        // A read returns attributes that may have changed, so it waits for outstanding acks of
        // attribute invalidations of that file. Nobody waits for the invalidation that the read
        // itself causes.
        let read_acks = match read {
            Some(ReadRange::File(file, _)) if !call.skip_ack => {
                self.subscribers.pending_acks_of(Recall::Attributes(file))
            }
            _ => None,
        };
        let acks = self.subscribers.invalidate(caller, &invalidations);
        drop(partition);
        // A read does not wait for any other ack: a kernel that fills its cache holds page locks,
        // and another subscriber's ack may need those pages.
        let waits = if matches!(read, Some(ReadRange::File(..))) { read_acks } else { acks };
        call.ack_wait = waits.filter(|_| !call.skip_ack);
        self.return_unused(unneeded, unused);
        self.run_effects(effects);
        answer
    }

    /// Returns bytes that were reserved for a command, and an extent, that it did not use.
    fn return_unused(&self, bytes: u64, extent: Option<Extent>) {
        if bytes > 0 {
            self.engine.release(bytes);
        }
        if let Some(extent) = extent {
            self.extents.free(extent);
        }
    }

    /// Fills in what only extents know, or leaves that to the extent's node. Must be called under
    /// the lock of the partition that answered.
    fn fill_answer(&self, partition: &Partition, op: Option<&ExtentOp>, answer: Outcome<Answer>) -> Outcome<Answer> {
        match (answer, op) {
            // What is to be written there is sent by the client in any case.
            (Ok(Answer::Extent(extent)), Some(ExtentOp::Allocate { file, .. } | ExtentOp::Seek { file, .. }))
                if extent.node != self.id() =>
            {
                Ok(hosted(extent.node, *file, Answer::Extent(extent)))
            }
            (Ok(answer), _) => self.fill_attributes(partition, answer),
            (Err(refusal), _) => Err(self.add_extent_changes(partition, refusal)),
        }
    }

    /// Does the work on extents that remains, under the partition's lock. Work that finds no space
    /// is kept with the call.
    fn finish_extent_op(
        &self,
        partition: &mut Partition,
        call: &mut CommandCall,
        op: Option<ExtentOp>,
        answer: Outcome<Answer>,
    ) -> Result<Outcome<Answer>, EngineFull> {
        let (Some(op), Ok(planned)) = (op, &answer) else {
            return Ok(self.fill_answer(partition, None, answer));
        };
        match self.run_extent_op(&op, planned) {
            Ok(None) => Ok(self.fill_answer(partition, Some(&op), answer)),
            Ok(Some(done)) => {
                if let (Ok(answer), Some(request_id)) = (&done, call.request_id) {
                    self.record_reply(partition, request_id, Ok(answer.clone()));
                }
                Ok(done)
            }
            Err(full) => {
                call.remaining = Some((op, planned.clone()));
                Err(full)
            }
        }
    }

    /// Has the partition execute a command, for which `reserved` bytes of space are reserved.
    fn serve(
        &self,
        partition: &mut Partition,
        caller: CommandCaller,
        request_id: Option<RequestId>,
        command: Command,
        reserved: u64,
    ) -> ServedCommand {
        let now = partition.time_of_change(clock::now());
        let logged = self.settings().entry_log.as_ref().map(|log| (log, EntryBody::Command(command.clone())));
        let (applied, invalidations) = partition.serve(caller, request_id, command, now);
        let Applied { answer, effects, delta, unlinked, is_durable } = applied;
        if let Some((log, body)) = logged.filter(|_| is_durable) {
            log.append(partition, LogEntry { request_id, body, now, unlinked });
        }
        if delta.files != 0 {
            self.files.fetch_add(delta.files.cast_unsigned(), Relaxed);
        }
        let unneeded = reserved.checked_add_signed(-delta.bytes);
        let unneeded = unneeded.expect("a command never adds more than was reserved for it");
        ServedCommand { answer, effects, invalidations, unneeded }
    }

    /// Executes a change of the node's own in a partition, for which `reserved` bytes of space are
    /// reserved. The caller passes the effects to [`Self::run_effects`] without the partition's
    /// lock.
    pub(crate) fn apply_own(
        &self,
        partition: &mut Partition,
        command: Command,
        reserved: u64,
    ) -> (Outcome<Answer>, Effects) {
        // Numbered under the lock, so that the numbers come in order.
        let number = self.demotions.next_number();
        let request_id = RequestId { session: Session::NONE, number, settled: number };
        let caller = CommandCaller::default();
        let ServedCommand { answer, effects, invalidations, unneeded } =
            self.serve(partition, caller, Some(request_id), command, reserved);
        self.subscribers.invalidate(caller, &invalidations);
        self.return_unused(unneeded, None);
        (answer, effects)
    }

    /// Replaces the cached reply to a change, for work that this node does once.
    pub(crate) fn record_reply(&self, partition: &mut Partition, request_id: RequestId, answer: Outcome<Answer>) {
        if !self.session_index.has_ended(request_id.session) {
            let entry = LogEntry::reply(request_id, answer, clock::now());
            let logged = self.settings().entry_log.as_ref().map(|log| (log, entry.clone()));
            partition.apply(entry);
            if let Some((log, entry)) = logged {
                log.append(partition, entry);
            }
        }
    }

    /// Reads the bytes of a bound file or an extent file into the answer that names it, if they are
    /// at this host.
    pub(crate) fn fill_bytes(
        &self,
        answer: Answer,
        read: Option<ReadRange>,
        pin: Option<ExtentPin<&ExtentSlots>>,
    ) -> Outcome<Answer> {
        match (answer, read) {
            (Answer::Content(range), Some(ReadRange::File(file, offset))) => match self.other_host(&range.content) {
                Some(node) => Ok(hosted(node, file, Answer::Content(range))),
                None => self.read_range((file, offset), range, pin).map(Answer::Content),
            },
            (Answer::Object(found), Some(ReadRange::Object(offset))) => {
                if let Some(node) = self.other_host(&found.content) {
                    return Ok(hosted(node, found.head.version.file, Answer::Object(found)));
                }
                let FoundObject { head, striped, length, content } = found;
                // A client that views stripes in shared memory may ask for more than one read
                // returns. Bytes of bound and extent files are copied: at most a stripe of them.
                let length = if matches!(content, Content::Bound(_) | Content::Extent(_)) {
                    length.min(self.settings().stripe_bytes)
                } else {
                    length
                };
                let range = RangeContent { length, content };
                let RangeContent { length, content } = self.read_range((head.version.file, offset), range, pin)?;
                Ok(Answer::Object(FoundObject { head, striped, length, content }))
            }
            (answer, _) => Ok(answer),
        }
    }

    fn read_range(
        &self,
        (file, offset): (FileId, u64),
        range: RangeContent,
        pin: Option<ExtentPin<&ExtentSlots>>,
    ) -> Outcome<RangeContent> {
        let RangeContent { length, content } = range;
        match content {
            Content::Bound(host) => {
                let bytes = if length == 0 { Vec::new() } else { self.host_files.read(file, &host, offset, length)? };
                Ok(RangeContent { length, content: Content::Bytes(Bytes::from(bytes)) })
            }
            Content::Extent(_) => {
                let pin = pin.ok_or(Refusal::Stale(Object::File(file)))?;
                self.read_extent(&pin, Object::File(file), offset, length)
            }
            content => Ok(RangeContent { length, content }),
        }
    }
}

/// An answer that another node finishes.
pub fn hosted(node: NodeId, file: FileId, answer: Answer) -> Answer {
    Answer::Hosted(HostedAnswer { node, file, answer: Box::new(answer) })
}

/// True if the file that was made or opened has this extent.
fn uses_extent(answer: &Outcome<Answer>, extent: Extent) -> bool {
    matches!(answer, Ok(Answer::Opened(OpenedFile { attributes, .. })) if attributes.extent == Some(extent))
}

/// Reserves space. Returns `Some` refusal if the engine failed.
fn reserve(engine: &dyn StripeStore, wanted: u64) -> Result<Option<Refusal>, EngineFull> {
    if wanted == 0 {
        return Ok(None);
    }
    match engine.reserve(wanted) {
        Ok(()) => Ok(None),
        Err(error) => refusal_from(error, Object::Pool).map(Some),
    }
}

/// Maps an engine error to a refusal, for a caller that does not wait for space.
pub fn refusal_without_wait(error: EngineError, object: Object) -> Refusal {
    refusal_from(error, object).unwrap_or_else(|EngineFull { capacity, used, wanted }| {
        Refusal::NoSpace(SpaceShortage { node: None, capacity, used, wanted, waited: Duration::ZERO })
    })
}

/// Maps an engine error to a refusal. `EngineFull` is kept apart, because the caller may wait for
/// space.
pub fn refusal_from(error: EngineError, object: Object) -> Result<Refusal, EngineFull> {
    Ok(match error {
        EngineError::Full { capacity, used, wanted } => return Err(EngineFull { capacity, used, wanted }),
        EngineError::Stale { .. } => Refusal::Stale(object),
        EngineError::TooLong { limit, .. } => Refusal::TooLarge { object, limit: limit.into() },
        other => Refusal::Io { object, why: other.to_string().into() },
    })
}
