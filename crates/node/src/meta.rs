//! Commands for a partition: space is reserved before a command, and the unused part is released
//! after it.

use crate::{
    Node, clock,
    space::Full,
    watch::Hearing,
    whole::{Pin, Wholes},
    whole_calls::{Todo, wish},
};
use bytes::Bytes;
use partition::{Asker, Partition};
use placement::{FileId, PartitionId};
use std::sync::atomic::Ordering::Relaxed;
use store::{Engine, EngineError};
use wire::{Answer, Command, Content, Credentials, Extent, Object, Outcome, Recall, Refusal, RequestId, Session};

/// A command in progress, kept until there is space for it.
#[derive(Debug)]
pub struct MetaCall {
    pub session: Session,
    pub skip_ack: bool,
    pub partition: PartitionId,
    pub request_id: Option<RequestId>,
    /// The command; taken when it is executed.
    pub command: Option<Command>,
    /// Credentials of the user on whose behalf the path was walked, if they are to be checked.
    pub who: Option<Credentials>,
    /// The invalidation acks that the answer waits for; set when the command is executed.
    pub hearing: Option<Hearing>,
    /// Work on an extent that found no space, with the partition's answer: the rest of a command
    /// that is executed already.
    pub rest: Option<(Todo, Answer)>,
}

impl MetaCall {
    /// A call of a session without a request id; the command is still to be filled in.
    pub fn asking(session: Session, partition: PartitionId) -> Self {
        Self {
            session,
            skip_ack: false,
            partition,
            request_id: None,
            command: None,
            who: None,
            hearing: None,
            rest: None,
        }
    }

    /// A call that changes something, with its request id.
    pub fn of(request_id: RequestId, partition: PartitionId, command: Command) -> Self {
        let (session, request_id, command) = (request_id.session, Some(request_id), Some(command));
        Self { session, skip_ack: false, partition, request_id, command, who: None, hearing: None, rest: None }
    }
}

impl Node {
    /// Executes the command, unless there is no space for what it may add.
    pub(crate) fn try_meta(&self, call: &mut MetaCall) -> Result<Outcome<Answer>, Full> {
        let Some(partition) = self.partitions.get(call.partition) else {
            return Ok(Err(self.not_here(call.partition)));
        };
        let too_much = call.command.as_ref().and_then(|command| self.too_much(command));
        if let Err(refusal) = too_much.map_or_else(|| self.store_first(call), |refusal| Ok(Err(refusal)))? {
            return Ok(Err(refusal));
        }
        let mut partition = partition.lock();
        if let Some((todo, answer)) = call.rest.take() {
            return self.settle(&mut partition, call, Some(todo), Ok(answer));
        }
        let asker = self.watches.asker(call.session);
        self.note_sessions(call, asker);
        if let Some(answer) = call.request_id.and_then(|request_id| partition.recall(request_id)) {
            // The request is a resend. Acks for what the first execution invalidated may still be
            // outstanding.
            call.hearing = self.watches.pending(asker).filter(|_| !call.skip_ack);
            return Ok(self.filled(&partition, answer));
        }
        if matches!(call.command, Some(Command::OpenName { .. })) {
            call.command = call.command.take().map(|command| partition.resolved(command, call.who.as_ref()));
        }
        let wished = call.command.as_mut().and_then(wish).copied();
        let given = call.command.as_mut().and_then(|command| self.grant_wish(&partition, command));
        let wanted = call.command.as_ref().map_or(0, |command| partition.new_bytes_max(command));
        match reserve(&*self.engine, wanted) {
            Ok(None) => {}
            refused => {
                drop(partition);
                self.revoke_wish(call.command.as_mut(), wished, given);
                return refused.map(|refusal| Err(refusal.expect("else it was granted")));
            }
        }
        let mut command = call.command.take().expect("a command is done once");
        if self.whole.any() {
            self.known_to(&partition, &mut command);
        }
        let (read, object) = (file_read(&command), object_read(&command));
        let todo = if self.whole.any() { Todo::of(&command) } else { None };
        let (answer, unneeded) = self.apply(&mut partition, asker, call.request_id, command, wanted);
        let unused = given.filter(|extent| !uses(&answer, *extent));
        let told = partition.told();
        let answer = self.settle(&mut partition, call, todo, answer);
        let answer = match object {
            Some(offset) => answer.map(|answer| answer.and_then(|answer| self.fill_object(answer, offset))),
            None => answer,
        };
        let pin = if let Ok(Ok(answer)) = &answer { self.pin_read(answer) } else { None };
        // A read returns attributes that may have changed, so it waits for outstanding acks of
        // attribute invalidations of that file. Nobody waits for the invalidation that the read
        // itself causes.
        let waits = read.filter(|_| !call.skip_ack);
        let unheard = waits.and_then(|(file, _)| self.watches.unheard(Recall::Attributes(file)));
        let hearing = self.watches.tell(asker, &partition.take_notes());
        drop(partition);
        // A read does not wait for any other ack: a kernel that fills its cache holds page locks,
        // and another subscriber's ack may need those pages.
        call.hearing = if read.is_some() { unheard } else { hearing }.filter(|_| !call.skip_ack);
        self.return_unused(unneeded, unused);
        if let Some(told) = told {
            self.heed(told);
        }
        Ok(answer?.and_then(|mut answer| {
            self.clear_gone(&mut answer);
            self.fill_bytes(answer, read, object, pin)
        }))
    }

    /// Returns bytes that were reserved for a command, and an extent, that it did not use.
    fn return_unused(&self, bytes: u64, extent: Option<Extent>) {
        if bytes > 0 {
            self.engine.release(bytes);
        }
        if let Some(extent) = extent {
            self.whole.free(extent);
        }
    }

    /// Fills in what only extents know. Must be called under the lock of the partition that
    /// answered.
    fn filled(&self, partition: &Partition, answer: Outcome<Answer>) -> Outcome<Answer> {
        match answer {
            Ok(answer) => self.fill_whole(partition, answer),
            Err(refusal) => Err(self.fill_changed(partition, refusal)),
        }
    }

    /// Does the work on extents that remains, under the partition's lock. Work that finds no space
    /// is kept with the call.
    fn settle(
        &self,
        partition: &mut Partition,
        call: &mut MetaCall,
        todo: Option<Todo>,
        answer: Outcome<Answer>,
    ) -> Result<Outcome<Answer>, Full> {
        let (Some(todo), Ok(planned)) = (todo, &answer) else {
            return Ok(self.filled(partition, answer));
        };
        match self.finish_whole(partition, call.request_id, &todo, planned) {
            Ok(None) => Ok(answer.and_then(|answer| self.fill_whole(partition, answer))),
            Ok(Some(done)) => Ok(done),
            Err(full) => {
                call.rest = Some((todo, planned.clone()));
                Err(full)
            }
        }
    }

    /// Applies a command; returns the answer and the unused part of the reservation.
    pub(crate) fn apply(
        &self,
        partition: &mut Partition,
        asker: Asker,
        request_id: Option<RequestId>,
        command: Command,
        wanted: u64,
    ) -> (Outcome<Answer>, u64) {
        let (bytes, files) = (partition.bytes(), partition.files());
        let answer = partition.apply_for(asker, request_id, command, clock::now());
        let delta = partition.files().wrapping_sub(files);
        if delta != 0 {
            self.files.fetch_add(delta, Relaxed);
        }
        let unneeded = (bytes + wanted).checked_sub(partition.bytes());
        (answer, unneeded.expect("a command never adds more than it said"))
    }

    /// Reads the bytes of a bound file or an extent file into the answer that names it.
    fn fill_bytes(
        &self,
        answer: Answer,
        read: Option<(FileId, u64)>,
        object: Option<u64>,
        pin: Option<Pin<&Wholes>>,
    ) -> Outcome<Answer> {
        if let (Answer::Object { head, striped, length, content }, Some(offset)) = (&answer, object) {
            // A client that views stripes in shared memory may ask for more than one read returns.
            // Bytes of bound and extent files are copied: at most a stripe of them.
            let length = if matches!(content, Content::Bound(_) | Content::Extent(_)) {
                (*length).min(self.settings().stripe_bytes)
            } else {
                *length
            };
            let (head, striped, asked) = (*head, *striped, Answer::Content { length, content: content.clone() });
            return match self.fill_bytes(asked, Some((head.version.file, offset)), None, pin)? {
                Answer::Content { length, content } => Ok(Answer::Object { head, striped, length, content }),
                other => Ok(other),
            };
        }
        match (answer, read) {
            (Answer::Content { length, content: Content::Bound(host) }, Some((file, offset))) => {
                let bytes = if length == 0 { Vec::new() } else { self.hosts.read(file, &host, offset, length)? };
                Ok(Answer::Content { length, content: Content::Bytes(Bytes::from(bytes)) })
            }
            (Answer::Content { length, content: Content::Extent(_) }, Some((file, offset))) => {
                let pin = pin.ok_or(Refusal::Stale(Object::File(file)))?;
                self.read_whole(&pin, Object::File(file), offset, length)
            }
            (answer, _) => Ok(answer),
        }
    }
}

fn file_read(command: &Command) -> Option<(FileId, u64)> {
    match command {
        Command::Read { file, offset, .. } => Some((*file, *offset)),
        _ => None,
    }
}

/// The offset at which an object's bytes are read.
fn object_read(command: &Command) -> Option<u64> {
    match command {
        Command::GetObject { offset, .. } | Command::GetFile { offset, .. } => Some(*offset),
        _ => None,
    }
}

/// True if the file that was made or opened has this extent.
fn uses(answer: &Outcome<Answer>, extent: Extent) -> bool {
    matches!(answer, Ok(Answer::Opened { attributes, .. }) if attributes.extent == Some(extent))
}

/// Reserves space. Returns `Some` refusal if the engine failed.
fn reserve(engine: &dyn Engine, wanted: u64) -> Result<Option<Refusal>, Full> {
    if wanted == 0 {
        return Ok(None);
    }
    match engine.reserve(wanted) {
        Ok(()) => Ok(None),
        Err(error) => refusal_of(error, Object::Pool).map(Some),
    }
}

/// Maps an engine error to a refusal. `Full` is kept apart, because the caller may wait for space.
pub fn refusal_of(error: EngineError, object: Object) -> Result<Refusal, Full> {
    Ok(match error {
        EngineError::Full { capacity, used, wanted } => return Err(Full { capacity, used, wanted }),
        EngineError::Stale { .. } => Refusal::Stale(object),
        EngineError::TooLong { limit, .. } => Refusal::TooLarge { object, limit: limit.into() },
        other => Refusal::Io { object, why: other.to_string().into() },
    })
}
