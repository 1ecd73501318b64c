//! Files: open, read, write, truncate, and the move from inline to stripes.

use crate::{
    Partition,
    apply::CommandContext,
    inode::{DataLocation, FileBody, InodeBody, Striped, first_stripe},
};
use bytes::Bytes;
use placement::{FileId, Layout, StripeNo};
use std::ops::Range;
use wire::{
    Answer, ChangedFile, Changes, Content, ExtentRequest, FILE_BYTES_MAX, INLINE_BYTES_MAX, Object, OpenFlags,
    OpenedFile, Outcome, PendingTruncate, RangeContent, Refusal, Session, StripedWrite, TimeChange, Timestamp,
    WritePlace,
};

/// Result of a truncation.
enum ResizeResult {
    /// The size is set; these stripes are still to be truncated.
    Done(Option<PendingTruncate>),
    /// Not done: an earlier truncation must be finished first.
    First(PendingTruncate),
}

impl Partition {
    pub(crate) fn open(
        &mut self,
        context: CommandContext,
        file: FileId,
        flags: OpenFlags,
        extent: ExtentRequest,
    ) -> Outcome<Answer> {
        let truncation = self.edit(file, |inode| {
            if flags.write || flags.truncate {
                inode.file_mut(file)?;
            }
            let mut truncation = None;
            if flags.truncate {
                truncation = inode.file_mut(file)?.resize(0).truncation();
                inode.lose_privileges(flags.kill_set_id);
                inode.touch(context.now);
            }
            inode.move_to_extent(extent);
            inode.add_open(context.session);
            match inode.extent() {
                Some(_) if flags.write => {
                    inode.marks.touched = true; // written directly from now on
                    inode.file_mut(file)?.outdate_evacuation();
                }
                Some(_) => inode.marks.outdated = true, // read directly from now on
                None => {}
            }
            Ok(truncation)
        })?;
        self.opened_answer(context.session, file, truncation)
    }

    /// Returns the answer to a session that has opened the file.
    pub(crate) fn opened_answer(
        &self,
        session: Session,
        file: FileId,
        truncation: Option<PendingTruncate>,
    ) -> Outcome<Answer> {
        let host = match &self.inode(file)?.body {
            InodeBody::Bound(host) => Some(host.clone()),
            _ => None,
        };
        let shared = self.inode(file)?.opens.iter().any(|(holder, _)| holder.client() != session.client());
        Ok(Answer::Opened(OpenedFile { attributes: self.attributes(file)?, host, truncation, shared }))
    }

    /// Returns the last stripe of a striped file: the one that may have more memory than bytes.
    pub fn last_stripe(&self, file: FileId) -> Option<(Layout, StripeNo)> {
        match &self.inodes.get(&file)?.body {
            InodeBody::File(body) => match body.location {
                DataLocation::Striped(_) => Some((body.placement.layout, StripeNo(body.size / body.stripe_bytes()))),
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn change(&mut self, context: CommandContext, file: FileId, changes: Changes) -> Outcome<Answer> {
        self.check_changeable(file)?;
        self.change_inode(file, &changes, context.now)
    }

    /// As [`Self::change`], also in a directory that is split or about to be.
    pub(crate) fn change_inode(&mut self, file: FileId, changes: &Changes, now: Timestamp) -> Outcome<Answer> {
        let resized = match changes.size {
            Some(size) => self.truncate(file, size, now)?,
            None => ResizeResult::Done(None),
        };
        let truncation = match resized {
            ResizeResult::First(truncation) => return Ok(Answer::NeedsTruncate(truncation)),
            ResizeResult::Done(truncation) => truncation,
        };
        self.edit(file, |inode| {
            if changes.uid.or(changes.gid).is_some() {
                inode.lose_owners_privileges(changes.kill_set_id);
            } else if changes.size.is_some() || changes.kill_set_id {
                inode.lose_privileges(changes.kill_set_id);
            }
            if let Some(mode) = changes.mode {
                inode.set_mode(mode);
            }
            inode.owner.uid = changes.uid.unwrap_or(inode.owner.uid);
            inode.owner.gid = changes.gid.unwrap_or(inode.owner.gid);
            inode.accessed = changes.accessed.map_or(inode.accessed, |change| moment(change, now));
            inode.modified = changes.modified.map_or(inode.modified, |change| moment(change, now));
            inode.changed = now; // even without a change: chown(2) to the same owner counts as one
            inode.drop_times(changes);
            Ok(())
        })?;
        Ok(Answer::Changed(ChangedFile { attributes: self.attributes(file)?, truncation }))
    }

    fn truncate(&mut self, file: FileId, size: u64, now: Timestamp) -> Outcome<ResizeResult> {
        check_end(file, Some(size))?;
        self.edit(file, |inode| {
            let resized = inode.file_mut(file)?.resize(size);
            if matches!(resized, ResizeResult::Done(_)) {
                inode.touch(now);
            }
            Ok(resized)
        })
    }

    pub(crate) fn read(&mut self, context: CommandContext, file: FileId, offset: u64, length: u32) -> Outcome<Answer> {
        let inode = self.inodes.get_mut(&file).ok_or(Refusal::NotFound(Object::File(file)))?;
        let (size, content) = match &inode.body {
            InodeBody::File(body) => (body.size, body.content(offset, length)),
            InodeBody::Bound(host) => (host.size, Content::Bound(host.clone())),
            InodeBody::Directory(_) => return Err(Refusal::IsDirectory(Object::File(file))),
            InodeBody::Symlink(_) | InodeBody::Node(_) => {
                return Err(Refusal::invalid(Object::File(file), "it has no bytes"));
            }
        };
        if inode.extent().is_none() && inode.read_at(context.now) {
            self.step.is_durable = true;
            self.grants.record_read(file, inode);
        }
        let length = match content {
            // The extent's node knows where the file ends.
            Content::Extent(_) => length.into(),
            _ => u64::from(length).min(size.saturating_sub(offset)),
        };
        Ok(Answer::Content(RangeContent {
            length: u32::try_from(length).expect("at most what was asked for"),
            content,
        }))
    }

    pub(crate) fn write(
        &mut self,
        context: CommandContext,
        file: FileId,
        place: WritePlace,
        length: u32,
        data: Bytes,
        kill_set_id: bool,
    ) -> Outcome<Answer> {
        if length <= INLINE_BYTES_MAX && data.len() != length as usize {
            return Err(Refusal::invalid(Object::File(file), "a small write came without its bytes"));
        }
        self.edit(file, |inode| {
            let body = inode.file_mut(file)?;
            let offset = match place {
                WritePlace::At(offset) => offset,
                WritePlace::End => body.append_offset(),
            };
            let end = check_end(file, offset.checked_add(length.into()))?;
            let answer = body.write(offset..end, &data, place == WritePlace::End);
            let written_here = matches!(answer, Answer::Written(..) | Answer::Stripes(..));
            if length > 0 && (written_here || matches!(answer, Answer::Extent(_))) {
                inode.lose_privileges(kill_set_id);
            }
            if length > 0 && written_here {
                inode.touch(context.now);
            }
            Ok(answer)
        })
    }

    pub(crate) fn publish_size(
        &mut self,
        context: CommandContext,
        file: FileId,
        generation: u32,
        end: u64,
    ) -> Outcome<Answer> {
        self.edit(file, |inode| {
            let body = inode.file_mut(file)?;
            if body.generation != generation {
                return Err(Refusal::Stale(Object::File(file)));
            }
            body.size = body.size.max(check_end(file, Some(end))?);
            body.settle_reserved();
            inode.touch(context.now);
            Ok(Answer::Done)
        })
    }

    pub(crate) fn abandon(
        &mut self,
        _: CommandContext,
        file: FileId,
        generation: u32,
        offset: u64,
        length: u32,
    ) -> Outcome<Answer> {
        let reserved = offset..offset.saturating_add(length.into());
        self.edit(file, |inode| {
            let body = inode.file_mut(file)?;
            if body.generation == generation && body.reserved == reserved.end {
                body.reserved = reserved.start;
                body.settle_reserved();
            }
            Ok(Answer::Done)
        })
    }

    pub(crate) fn spill_done(&mut self, _: CommandContext, file: FileId, generation: u32) -> Outcome<Answer> {
        self.edit(file, |inode| {
            let body = inode.file_mut(file)?;
            if let DataLocation::Spilling(head) = &body.location
                && body.generation == generation
            {
                let planned = head.len() as u64;
                body.location =
                    DataLocation::Striped(Box::new(Striped { stripes: first_stripe(), planned, ..Striped::default() }));
                body.generation += 1;
            }
            Ok(Answer::Done)
        })
    }

    pub(crate) fn truncate_done(&mut self, _: CommandContext, file: FileId, generation: u32) -> Outcome<Answer> {
        self.edit(file, |inode| {
            let body = inode.file_mut(file)?;
            let stripe_bytes = body.stripe_bytes();
            if let DataLocation::Striped(striped) = &mut body.location
                && body.generation == generation
                && let Some(length) = striped.truncation.take()
            {
                striped.planned = length;
                striped.cut_from(length.div_ceil(stripe_bytes));
            }
            Ok(Answer::Done)
        })
    }
}

impl FileBody {
    /// Returns the bytes of the range, or their location. A truncation of stripes may be in
    /// progress, but the file size never reaches beyond it.
    fn content(&self, offset: u64, length: u32) -> Content {
        let bytes = match &self.location {
            DataLocation::Inline(bytes) | DataLocation::Spilling(bytes) => bytes,
            DataLocation::Striped(_) => return Content::Striped(self.placement.layout),
            DataLocation::Extent(extent) => return Content::Extent(*extent),
            DataLocation::Evacuating(copied) => return Content::Extent(copied.extent),
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        let end = start.saturating_add(length as usize).min(bytes.len()).min(size.max(start));
        Content::Bytes(Bytes::copy_from_slice(&bytes[start..end]))
    }

    /// Writes inline, or returns how to write to stripes.
    fn write(&mut self, range: Range<u64>, data: &[u8], append: bool) -> Answer {
        if range.is_empty() {
            return Answer::Written(range.start);
        }
        if let DataLocation::Inline(bytes) = &mut self.location
            && range.end <= INLINE_BYTES_MAX.into()
        {
            put(bytes, &range, data);
            self.size = self.size.max(range.end);
            return Answer::Written(range.start);
        }
        if let Some(first) = self.go_striped() {
            return first;
        }
        let (offset, generation, size) = (range.start, self.generation, self.size);
        let (layout, stripe_bytes) = (self.placement.layout, self.stripe_bytes());
        if let DataLocation::Striped(striped) = &mut self.location {
            striped.plan(range.start / stripe_bytes..range.end.div_ceil(stripe_bytes));
            striped.planned = striped.planned.max(range.end);
            self.reserved = if append { range.end } else { self.reserved };
        }
        Answer::Stripes(StripedWrite { offset, generation, size, layout })
    }

    /// Sets the size. Truncated bytes never reappear.
    fn resize(&mut self, size: u64) -> ResizeResult {
        let old = std::mem::replace(&mut self.size, size);
        match &mut self.location {
            DataLocation::Inline(bytes) => bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX)),
            DataLocation::Extent(_) => {}
            DataLocation::Evacuating(_) => self.outdate_evacuation(),
            DataLocation::Spilling(head) => {
                head.truncate(usize::try_from(size).unwrap_or(usize::MAX));
                self.outdate_plans();
            }
            DataLocation::Striped(striped) => match striped.truncation {
                Some(_) if size > old => return self.truncate_first(old),
                None if size > old && striped.planned > old => {
                    striped.truncation = Some(old);
                    striped.kept = striped.kept.min(old);
                    self.outdate_plans();
                    return self.truncate_first(old);
                }
                _ if size < old => {
                    striped.truncation = Some(size);
                    striped.kept = striped.kept.min(size);
                    self.outdate_plans();
                    return ResizeResult::Done(self.truncation());
                }
                _ => {}
            },
        }
        ResizeResult::Done(None)
    }

    /// Invalidates planned writes, and frees the ranges that appends have reserved.
    pub(crate) fn outdate_plans(&mut self) {
        self.generation += 1;
        self.reserved = 0;
    }

    /// Resets the size: the file cannot grow before the truncation of its stripes is finished.
    fn truncate_first(&mut self, size: u64) -> ResizeResult {
        self.size = size;
        self.truncation().map_or(ResizeResult::Done(None), ResizeResult::First)
    }

    /// Returns the truncation that is still to be applied to the stripes.
    pub(crate) fn truncation(&self) -> Option<PendingTruncate> {
        let DataLocation::Striped(striped) = &self.location else { return None };
        let length = striped.truncation?;
        let stripes = striped.stripes.clone().split_off(length / self.stripe_bytes());
        Some(PendingTruncate { layout: self.placement.layout, generation: self.generation, length, stripes })
    }

    /// Clears the reservation of appends once the size has reached it.
    fn settle_reserved(&mut self) {
        if self.reserved <= self.size {
            self.reserved = 0;
        }
    }
}

impl ResizeResult {
    fn truncation(self) -> Option<PendingTruncate> {
        match self {
            Self::Done(truncation) => truncation,
            Self::First(truncation) => Some(truncation),
        }
    }
}

/// Writes `data` to inline bytes; fills a gap before it with zeros.
fn put(bytes: &mut Vec<u8>, range: &Range<u64>, data: &[u8]) {
    let at = |offset: u64| usize::try_from(offset).expect("inline files are at most 4 KiB");
    if bytes.len() < at(range.end) {
        bytes.resize(at(range.end), 0);
    }
    bytes[at(range.start)..at(range.end)].copy_from_slice(data);
}

pub(crate) fn check_end(file: FileId, end: Option<u64>) -> Outcome<u64> {
    let limit = FILE_BYTES_MAX;
    end.filter(|end| *end <= limit).ok_or(Refusal::TooLarge { object: Object::File(file), limit })
}

fn moment(change: TimeChange, now: Timestamp) -> Timestamp {
    match change {
        TimeChange::Now => now,
        TimeChange::At(time) => time,
    }
}
