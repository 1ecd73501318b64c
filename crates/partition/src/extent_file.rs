//! Extent files: all their bytes are in one extent of a node, which reads, writes and truncates it.
//!
//! ```text
//!   (new)   --Create; a node gave an extent------------------->  Extent
//!   Inline  --first open requests one; a node gave it--------->  Extent  (node copied the bytes)
//!   Extent  --Demote, after the last close-------------------->  Inline  (the bytes come with it)
//!
//!   Extent      --Evacuate, after the last close-->  Evacuating  (its node copies the bytes)
//!   Evacuating  --EvacuateDone-------------------->  Striped
//! ```
//!
//! A large extent file is evacuated: the extent's node plans stripes, copies the bytes to them, and
//! reports that. Until then the file is an extent file in all respects. Whatever may change the
//! bytes meanwhile gives the file another generation, and the report is refused. The stripes remain
//! planned, so that they are removed with the file; the next copy cuts them first.
//!
//! Size, space and times of an extent file are the extent's: its node fills them in before
//! attributes leave the node. Each time is the later one of the extent's and the inode's, because
//! the inode knows what happened before the file moved to the extent. When times are set, the
//! extent's are set too and the inode drops its own.
//!
//! The extent's node need not be the one that serves the partition. The node that serves gets files
//! that are gone or closed as effects beside the answer, and tells the extent's node.

use crate::{
    Partition,
    apply::CommandContext,
    files::check_end,
    inode::{DataLocation, EvacuatingExtent, FileBody, Inode, InodeBody, Striped},
    memory_cost,
};
use bytes::Bytes;
use placement::{FileId, NodeId};
use wire::{
    Answer, Changes, Command, Extent, ExtentRequest, INLINE_BYTES_MAX, NewKind, Object, Outcome, Refusal, Session,
    StripeAllocation, StripeRuns, Times, Timestamp,
};

/// A time before any that a file can have: the extent's time wins.
const TIME_UNSET: Timestamp = Timestamp { secs: i64::MIN, nanos: 0 };

/// Effects of commands for the node, besides the answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Files that are gone, with the extents that they had.
    pub freed: Vec<(FileId, Extent)>,
    /// Bound files that are gone, with the nodes that read them.
    pub unbound: Vec<(FileId, NodeId)>,
    /// Extent files that no session has open any more.
    pub closed: Vec<(FileId, Extent)>,
}

impl Effects {
    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.freed.is_empty() && self.unbound.is_empty() && self.closed.is_empty()
    }
}

/// Contents that an extent must have before a file moves to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentHead<'a> {
    /// Bytes at the start.
    pub bytes: &'a [u8],
    /// Length of the file: a hole follows the bytes.
    pub size: u64,
}

impl Partition {
    /// Returns the extent of an extent file.
    pub fn extent(&self, file: FileId) -> Option<Extent> {
        self.inodes.get(&file)?.extent()
    }

    /// Returns the contents that an extent for this command must have first. `None` if the command
    /// cannot use an extent.
    pub fn extent_head(&self, command: &Command) -> Option<ExtentHead<'_>> {
        match command {
            Command::Create { parent, name, inode, open: true, .. } => {
                let makes = matches!(inode.kind, NewKind::File) && self.entry(*parent, name).is_err();
                makes.then_some(ExtentHead { bytes: &[], size: 0 })
            }
            // A read-only open requests an extent only if the client can read it directly.
            Command::Open { file, flags, extent } if flags.write || *extent != ExtentRequest::None => {
                let inode = self.inodes.get(file).filter(|inode| inode.opens.is_empty())?;
                let InodeBody::File(FileBody { size, location: DataLocation::Inline(bytes), .. }) = &inode.body else {
                    return None;
                };
                Some(if flags.truncate {
                    ExtentHead { bytes: &[], size: 0 }
                } else {
                    ExtentHead { bytes, size: *size }
                })
            }
            _ => None,
        }
    }

    /// Returns true if a session has the file open.
    pub fn is_open_by(&self, session: Session, file: FileId) -> bool {
        self.inodes.get(&file).is_some_and(|inode| inode.opens.iter().any(|(holder, _)| *holder == session))
    }

    /// Returns true if the file is still in this extent and no session has it open.
    pub fn is_closed(&self, file: FileId, extent: Extent) -> bool {
        self.inodes.get(&file).is_some_and(|inode| inode.opens.is_empty() && inode.extent() == Some(extent))
    }

    /// Returns true if a closed file in this extent may be demoted: it has no stripes.
    pub fn is_demotable(&self, file: FileId, extent: Extent) -> bool {
        self.is_closed(file, extent) && !self.inodes.get(&file).is_some_and(|inode| inode.has_copied_stripes())
    }

    /// Demotes a small extent file: moves its bytes back to the inode. The node frees the extent
    /// itself. Refused as `AlreadyPlaced` if the file has stripes: then it is evacuated, whatever
    /// its size.
    pub(crate) fn demote(
        &mut self,
        _: CommandContext,
        file: FileId,
        extent: Extent,
        bytes: Bytes,
        times: Times,
    ) -> Outcome<Answer> {
        self.inode(file)?;
        if bytes.len() > INLINE_BYTES_MAX as usize || !self.is_closed(file, extent) {
            return Err(Refusal::Stale(Object::File(file)));
        }
        if !self.is_demotable(file, extent) {
            return Err(Refusal::AlreadyPlaced(Object::File(file)));
        }
        self.edit(file, |inode| {
            let body = inode.file_mut(file)?;
            body.size = bytes.len() as u64;
            body.location = DataLocation::Inline(bytes.to_vec());
            inode.take_times(times);
            Ok(Answer::Done)
        })
    }

    /// Plans the stripes to which the bytes of a closed extent file are copied.
    pub(crate) fn evacuate(
        &mut self,
        _: CommandContext,
        file: FileId,
        extent: Extent,
        stripes: StripeRuns,
    ) -> Outcome<Answer> {
        self.inode(file)?;
        if !self.is_closed(file, extent) {
            return Err(Refusal::Stale(Object::File(file)));
        }
        self.edit(file, |inode| {
            let body = inode.file_mut(file)?;
            if let Some(first) = body.needs_placement() {
                return Ok(first);
            }
            let earlier = body.stripes();
            let mut planned = earlier.clone();
            stripes.ranges().for_each(|run| planned.insert(run.start, run.end));
            body.outdate_plans();
            body.location = DataLocation::Evacuating(Box::new(EvacuatingExtent { extent, stripes: planned }));
            let (generation, layout) = (body.generation, body.placement.layout);
            Ok(Answer::Allocated(StripeAllocation { generation, stripes: earlier, layout }))
        })
    }

    /// Makes an extent file striped: its stripes hold all bytes. The node frees the extent itself.
    pub(crate) fn evacuate_done(
        &mut self,
        _: CommandContext,
        file: FileId,
        extent: Extent,
        generation: u32,
        size: u64,
        times: Times,
    ) -> Outcome<Answer> {
        check_end(file, Some(size))?;
        self.inode(file)?;
        let is_closed = self.is_closed(file, extent);
        self.edit(file, |inode| {
            let body = inode.file_mut(file)?;
            let stripe_bytes = body.stripe_bytes();
            let stripes = match &mut body.location {
                DataLocation::Evacuating(copied) if is_closed && body.generation == generation => {
                    std::mem::take(&mut copied.stripes)
                }
                _ => return Err(Refusal::Stale(Object::File(file))),
            };
            let mut striped = Striped { stripes, planned: size, ..Striped::default() };
            striped.cut_from(size.div_ceil(stripe_bytes)); // of an earlier copy of more bytes
            body.size = size;
            body.location = DataLocation::Striped(Box::new(striped));
            inode.take_times(times);
            Ok(Answer::Done)
        })
    }

    /// Records that no session has this file open any more.
    pub(crate) fn note_closed(&mut self, file: FileId) {
        if let Some(extent) = self.extent(file) {
            self.step.effects.closed.push((file, extent));
        }
    }

    /// Returns the maximum memory cost that a demotion adds.
    pub fn demote_bytes_max(length: u64) -> u64 {
        length.saturating_sub(memory_cost::EXTENT_BYTES)
    }
}

impl Inode {
    /// Returns the extent of an extent file.
    pub fn extent(&self) -> Option<Extent> {
        match &self.body {
            InodeBody::File(body) => body.extent(),
            _ => None,
        }
    }

    /// Moves the file to the extent that a node gave; the extent has the bytes already.
    pub fn move_to_extent(&mut self, request: ExtentRequest) {
        if let (ExtentRequest::Allocated(extent), InodeBody::File(body)) = (request, &mut self.body)
            && matches!(body.location, DataLocation::Inline(_))
        {
            body.location = DataLocation::Extent(extent);
        }
    }

    /// Returns true if it is an extent file that has stripes too.
    fn has_copied_stripes(&self) -> bool {
        let InodeBody::File(FileBody { location: DataLocation::Evacuating(copied), .. }) = &self.body else {
            return false;
        };
        !copied.stripes.is_empty()
    }

    /// Takes over the times of the extent that the file has left.
    fn take_times(&mut self, times: Times) {
        // Those of the inode are earlier, unless the extent's node did not know them.
        self.accessed = self.accessed.max(times.accessed);
        self.modified = self.modified.max(times.modified);
        self.changed = self.changed.max(times.changed);
        self.version += 1; // changes in the extent were not counted here
    }

    /// Drops the inode's times after they were set in the extent too.
    pub fn drop_times(&mut self, changes: &Changes) {
        if self.extent().is_none() {
            return;
        }
        if let InodeBody::File(body) = &mut self.body
            && changes.accessed.or(changes.modified).is_some()
        {
            body.outdate_evacuation();
        }
        if changes.accessed.is_some() {
            self.accessed = TIME_UNSET;
        }
        if changes.modified.is_some() {
            self.modified = TIME_UNSET;
        }
    }
}

impl FileBody {
    /// Returns the extent of an extent file.
    pub fn extent(&self) -> Option<Extent> {
        match &self.location {
            DataLocation::Extent(extent) => Some(*extent),
            DataLocation::Evacuating(copied) => Some(copied.extent),
            _ => None,
        }
    }

    /// Lets a copy of the bytes to stripes end without effect: they may change meanwhile.
    pub(crate) fn outdate_evacuation(&mut self) {
        if matches!(self.location, DataLocation::Evacuating(_)) {
            self.outdate_plans();
        }
    }
}
