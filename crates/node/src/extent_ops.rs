//! Operations on extents, for commands and requests about extent files.
//!
//! A partition never sees bytes of an extent file. It says which extent has them, and its node does
//! the rest here. Operations that change the extent together with the inode (truncation, times,
//! small writes) are done under the partition's lock, in the order of the commands. Reads and large
//! writes copy without that lock, under a pin.

use crate::{
    Node, clock,
    execute::{hosted, refusal_from},
    extents::{ExtentPin, ExtentSlots},
    object::change_count,
    space::EngineFull,
};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use partition::Partition;
use placement::{Distribution, FileId, Layout, PlacementDecision, Policy};
use std::time::SystemTime;
use store::{EngineError, ExtentState, FallocateMode, Slot, WriteResult};
use wire::{
    AllocateMode, Answer, Attributes, ChangedFile, Changes, Command, Content, Extent, ExtentAction, ExtentRequest,
    ExtentWrite, FoundEntry, FoundObject, NewInode, NewKind, Object, OpenedFile, Outcome, RangeContent, Refusal,
    RequestId, SeekTo, StripeAllocation, StripeRuns, TimeChange, Timestamp, UnsettledAnswer, WritePlace,
};

/// Number of locks for appends. Appends to one extent wait for each other, so that a resent append
/// is done once. Two extents may share a lock.
const APPEND_LOCKS: usize = 64;
/// The times of an extent that nobody has read or written since its file got it: earlier than those
/// of any inode.
const UNTOUCHED: SystemTime = SystemTime::UNIX_EPOCH;

/// Locks for appends, chosen by slot.
#[derive(Debug)]
pub struct AppendLocks([Mutex<()>; APPEND_LOCKS]);

impl AppendLocks {
    /// Locks the changes of an extent that must be done once.
    pub fn lock(&self, extent: Extent) -> MutexGuard<'_, ()> {
        self.0[extent.slot as usize % APPEND_LOCKS].lock()
    }
}

impl Default for AppendLocks {
    fn default() -> Self {
        Self([const { Mutex::new(()) }; APPEND_LOCKS])
    }
}

/// The part of a command that is done to the file's extent.
#[derive(Debug)]
pub enum ExtentOp {
    Write { place: WritePlace, data: Bytes },
    Allocate { file: FileId, offset: u64, length: u64, mode: AllocateMode },
    Seek { file: FileId, offset: u64, target: SeekTo },
    Change(Changes),
}

/// A request about an extent, kept until there is space for it.
#[derive(Debug)]
pub struct ExtentCall {
    pub request_id: Option<RequestId>,
    pub file: FileId,
    pub extent: Extent,
    pub action: ExtentAction,
}

impl ExtentOp {
    /// The operation of a command on the extent, if the file has one.
    pub fn from_command(command: &Command) -> Option<Self> {
        Some(match command {
            Command::Write { place, data, .. } if !data.is_empty() => Self::Write { place: *place, data: data.clone() },
            Command::Allocate { file, offset, length, mode } => {
                Self::Allocate { file: *file, offset: *offset, length: *length, mode: *mode }
            }
            Command::Seek { file, offset, to } => Self::Seek { file: *file, offset: *offset, target: *to },
            Command::Change { changes, .. } => Self::Change(*changes),
            Command::Open { flags, .. } | Command::OpenName { flags, .. } if flags.truncate => {
                Self::Change(Changes { size: Some(0), ..Changes::default() })
            }
            _ => return None,
        })
    }
}

impl Node {
    /// Takes the extent that a command requests, filled with the bytes that it must hold, and puts
    /// it into the command. `None` if it gets none.
    pub(crate) fn grant_extent(&self, partition: &Partition, command: &mut Command) -> Option<Extent> {
        let requested = extent_request(command).copied().unwrap_or_default();
        let wanted = matches!(requested, ExtentRequest::Any | ExtentRequest::Local) && self.extents.is_supported();
        let given = if wanted && self.may_grant_extent(partition.placement_for(command), requested) {
            self.allocate_filled(partition, command)
        } else {
            None
        };
        if let Some(request) = extent_request(command) {
            *request = given.map_or(ExtentRequest::None, ExtentRequest::Allocated);
        }
        given
    }

    /// True if placement allows the bytes to be in an extent of this node. A writer with a
    /// descriptor cannot be sent to another node when this one is full, so an extent is given only
    /// where one node was asked for, or where this is the only node.
    fn may_grant_extent(&self, placement: Option<PlacementDecision>, requested: ExtentRequest) -> bool {
        let Some(PlacementDecision { layout, pending_policy }) = placement else { return self.partitions.serves_all() };
        match (pending_policy, layout.distribution()) {
            (Some(Policy::Here), _) => requested == ExtentRequest::Local,
            (Some(Policy::At(node)), _) => node == self.id(),
            (Some(_), _) | (None, Distribution::Striped) => false,
            (None, Distribution::Single(partition)) => self.partitions.serves(partition),
        }
    }

    fn allocate_filled(&self, partition: &Partition, command: &Command) -> Option<Extent> {
        let head = partition.extent_head(command)?;
        let extent = self.extents.allocate()?;
        let (extents, slot) = (self.extents.engine(), Slot(extent.slot));
        let put = head.bytes.is_empty()
            || extents.write_at(slot, 0, head.bytes).is_ok_and(|put| put.length as usize == head.bytes.len());
        let sized = head.size == head.bytes.len() as u64 || extents.truncate(slot, head.size).is_ok();
        if !put || !sized {
            self.extents.free(extent);
            return None;
        }
        if matches!(command, Command::Open { .. }) {
            // The inode has the times until somebody reads or writes. If this fails, the times are
            // too late, no worse.
            extents.set_times(slot, Some(UNTOUCHED), Some(UNTOUCHED)).ok();
        }
        Some(extent)
    }

    /// Names this node as the one that reads a file of its host that is being bound.
    pub(crate) fn bind_to_own_host(&self, command: &mut Command) {
        if let Command::Create { inode: NewInode { kind: NewKind::Bound(host), .. }, .. }
        | Command::CreateTmpfile { inode: NewInode { kind: NewKind::Bound(host), .. }, .. } = command
        {
            host.node = self.id();
        }
    }

    /// Takes back an extent from a command that cannot be executed yet, and restores its request
    /// for one.
    pub(crate) fn revoke_extent(&self, command: &mut Command, requested: Option<ExtentRequest>, given: Option<Extent>) {
        if let Some(extent) = given {
            self.extents.free(extent);
        }
        if let Some(request) = extent_request(command)
            && let Some(requested) = requested
        {
            *request = requested;
        }
    }

    /// Does to an extent of this node what the partition's answer leaves to the node. Returns the
    /// answer that replaces it, or `None` if the partition's answer stands. `EngineFull` if an
    /// allocation finds no space.
    pub(crate) fn run_extent_op(&self, op: &ExtentOp, answer: &Answer) -> Result<Option<Outcome<Answer>>, EngineFull> {
        let done = match (answer, op) {
            (Answer::Extent(extent), _) if extent.node != self.id() => Ok(None),
            (Answer::Extent(extent), ExtentOp::Write { place, data }) => self.write_small(*extent, *place, data),
            (Answer::Extent(extent), ExtentOp::Allocate { offset, length, mode, .. }) => {
                let range = *offset..offset + length;
                let layout = Layout::striped(self.settings().stripe_bytes);
                self.extents.note_change(*extent);
                let allocated =
                    Answer::Allocated(StripeAllocation { generation: 0, stripes: StripeRuns::new(), layout });
                self.extents
                    .engine()
                    .fallocate(Slot(extent.slot), range, allocate_mode(*mode))
                    .map(|()| Some(allocated))
            }
            (Answer::Extent(extent), ExtentOp::Seek { offset, target, .. }) => {
                return Ok(Some(self.seek_extent(*extent, *offset, *target)));
            }
            (
                Answer::Changed(ChangedFile { attributes, .. }) | Answer::Opened(OpenedFile { attributes, .. }),
                ExtentOp::Change(changes),
            ) => {
                let here = attributes.extent.filter(|extent| extent.node == self.id());
                here.map_or(Ok(()), |extent| self.mutate_extent(extent, changes)).map(|()| None)
            }
            _ => Ok(None),
        };
        match done {
            Ok(answer) => Ok(answer.map(Ok)),
            Err(error) => refusal_from(error, Object::Pool).map(|refusal| Some(Err(refusal))),
        }
    }

    /// Writes a few bytes. `None` if there is no space: then the client sends them again, and
    /// waits.
    fn write_small(&self, extent: Extent, place: WritePlace, data: &Bytes) -> Result<Option<Answer>, EngineError> {
        let slot = Slot(extent.slot);
        self.extents.note_change(extent);
        let put = match place {
            WritePlace::At(offset) => self.extents.engine().write_at(slot, offset, data),
            WritePlace::End => self.extents.engine().append(slot, data),
        };
        match put {
            Ok(WriteResult { offset, length }) => Ok(Some(Answer::ExtentWritten(ExtentWrite { offset, length }))),
            Err(EngineError::Full { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn seek_extent(&self, extent: Extent, offset: u64, target: SeekTo) -> Outcome<Answer> {
        let target = match target {
            SeekTo::Data => store::SeekTarget::Data,
            SeekTo::Hole => store::SeekTarget::Hole,
        };
        match self.extents.engine().seek(Slot(extent.slot), offset, target) {
            Ok(Some(offset)) => Ok(Answer::Offset(offset)),
            Ok(None) => Err(Refusal::BeyondEnd(Object::Pool)),
            Err(error) => Err(Refusal::Io { object: Object::Pool, why: error.to_string().into() }),
        }
    }

    fn mutate_extent(&self, extent: Extent, changes: &Changes) -> Result<(), EngineError> {
        let (extents, slot) = (self.extents.engine(), Slot(extent.slot));
        self.extents.note_change(extent);
        if let Some(size) = changes.size {
            extents.truncate(slot, size)?;
        }
        if changes.accessed.is_some() || changes.modified.is_some() {
            extents.set_times(slot, changes.accessed.map(system_time), changes.modified.map(system_time))?;
        }
        Ok(())
    }

    /// Fills in what only the extent knows. Must be called under the lock of the partition that
    /// answered.
    pub(crate) fn fill_attributes(&self, partition: &Partition, mut answer: Answer) -> Outcome<Answer> {
        if let Answer::Unsettled(UnsettledAnswer { answer: settled, .. }) = &mut answer {
            **settled = self.fill_attributes(partition, (**settled).clone())?;
            return Ok(answer);
        }
        let is_open = matches!(answer, Answer::Opened(_));
        let Some(attributes) = attributes_of(&mut answer) else { return Ok(answer) };
        match attributes.extent {
            Some(extent) if partition.extent(attributes.file) == Some(extent) => {
                if extent.node == self.id() {
                    self.fill_from_extent(attributes, extent)?;
                } else if self.has_departed(extent.node) && !is_open {
                    // The bytes are lost. The file can be looked at and removed, but not opened.
                    (attributes.extent, attributes.cacheable) = (None, false);
                } else {
                    return Ok(hosted(extent.node, attributes.file, answer));
                }
            }
            // A resent answer; the file has left this extent since.
            Some(_) => {
                attributes.extent = None;
                attributes.modified = attributes.modified.max(attributes.created);
                attributes.accessed = attributes.accessed.max(attributes.created);
            }
            None => {}
        }
        clock::note_shown(attributes.changed);
        Ok(answer)
    }

    /// Fills size, space and times of an extent into the attributes of its file.
    pub(crate) fn fill_from_extent(&self, attributes: &mut Attributes, extent: Extent) -> Outcome<()> {
        let state = self.extents.engine().state(Slot(extent.slot));
        let object = Object::File(attributes.file);
        let state = state.map_err(|error| Refusal::Io { object, why: error.to_string().into() })?;
        attributes.cacheable &= !self.extents.may_be_mapped(extent);
        (attributes.size, attributes.allocated) = (state.length, state.allocated);
        attributes.version = attributes.version.wrapping_add(change_count(state.modified));
        attributes.accessed = attributes.accessed.max(state.accessed.into());
        attributes.modified = attributes.modified.max(state.modified.into());
        if is_touched(&state) {
            attributes.changed = attributes.changed.max(state.changed.into());
            clock::note_kernel_time(attributes.changed);
        }
        Ok(())
    }

    /// Pins the extent that the answer of a read names.
    pub(crate) fn pin_read(&self, answer: &Answer) -> Option<ExtentPin<&ExtentSlots>> {
        match answer {
            Answer::Content(RangeContent { content: Content::Extent(extent), .. })
            | Answer::Object(FoundObject { content: Content::Extent(extent), .. }) => {
                ExtentSlots::pin(&*self.extents, *extent)
            }
            _ => None,
        }
    }

    /// Reads a pinned extent.
    pub(crate) fn read_extent(
        &self,
        pin: &ExtentPin<&ExtentSlots>,
        file: Object,
        offset: u64,
        length: u32,
    ) -> Outcome<RangeContent> {
        let bytes = self.extents.engine().read_at(pin.slot(), offset, length);
        let bytes = bytes.map_err(|error| Refusal::Io { object: file, why: error.to_string().into() })?;
        let length = u32::try_from(bytes.len()).expect("at most what was asked for");
        Ok(RangeContent { length, content: Content::Bytes(bytes) })
    }

    /// Executes a request about an extent, unless it finds no space.
    pub(crate) fn try_execute_extent(&self, call: &ExtentCall) -> Result<Outcome<Answer>, EngineFull> {
        let object = || Object::File(call.file);
        let Some(pin) = ExtentSlots::pin(&*self.extents, call.extent) else { return Ok(Err(Refusal::Stale(object()))) };
        self.extents.note_change(call.extent);
        let put = match &call.action {
            ExtentAction::Write { offset, data } => self.extents.engine().write_at(pin.slot(), *offset, data),
            ExtentAction::Append { data } => return self.append_once(call, &pin, data),
        };
        match put {
            Ok(WriteResult { offset, length }) => Ok(Ok(Answer::ExtentWritten(ExtentWrite { offset, length }))),
            Err(error) => refusal_from(error, object()).map(Err),
        }
    }

    /// Appends, unless this request was executed before.
    fn append_once(
        &self,
        call: &ExtentCall,
        pin: &ExtentPin<&ExtentSlots>,
        data: &Bytes,
    ) -> Result<Outcome<Answer>, EngineFull> {
        let Some(request_id) = call.request_id else {
            return Ok(Err(Refusal::invalid(Object::File(call.file), "an append came without session and number")));
        };
        let _alone = self.append_locks.lock(call.extent);
        if let Some(reply) = self.hosted_reply(call.file, request_id) {
            return Ok(reply);
        }
        match self.extents.engine().append(pin.slot(), data) {
            Ok(WriteResult { offset, length }) => {
                let answer = Answer::ExtentWritten(ExtentWrite { offset, length });
                self.record_hosted_reply(call.file, request_id, &answer);
                Ok(Ok(answer))
            }
            Err(error) => refusal_from(error, Object::File(call.file)).map(Err),
        }
    }
}

/// True if somebody has written to an extent since its file got it.
pub fn is_touched(state: &ExtentState) -> bool {
    state.modified > UNTOUCHED
}

/// The attributes in an answer that has some.
pub fn attributes_of(answer: &mut Answer) -> Option<&mut Attributes> {
    match answer {
        Answer::Found(FoundEntry { attributes: Some(attributes), .. })
        | Answer::Attributes(attributes)
        | Answer::Opened(OpenedFile { attributes, .. })
        | Answer::Changed(ChangedFile { attributes, .. }) => Some(attributes),
        _ => None,
    }
}

/// The extent request of a command that can have one.
pub fn extent_request(command: &mut Command) -> Option<&mut ExtentRequest> {
    match command {
        Command::Create { extent, .. } | Command::Open { extent, .. } | Command::OpenName { extent, .. } => {
            Some(extent)
        }
        _ => None,
    }
}

fn allocate_mode(mode: AllocateMode) -> FallocateMode {
    match mode {
        AllocateMode::Extend => FallocateMode::Extend,
        AllocateMode::KeepSize => FallocateMode::KeepSize,
        AllocateMode::PunchHole => FallocateMode::PunchHole,
        AllocateMode::ZeroRange => FallocateMode::ZeroRange,
        AllocateMode::ZeroRangeKeepSize => FallocateMode::ZeroRangeKeepSize,
    }
}

fn system_time(change: TimeChange) -> SystemTime {
    match change {
        TimeChange::Now => clock::now().into(),
        TimeChange::At(time) => Timestamp::into(time),
    }
}
