//! Allocating, punching, zeroing and searching ranges of a file.
//!
//! A small file does this at once. For a striped file, the partition returns the stripes to change,
//! as it does for a write. It records a punched stripe as a hole only after that has been cut
//! ([`Partition::punch_done`]), and only if no write to it was planned meanwhile: a stripe that is
//! reported as a hole has no bytes.

use crate::{
    Partition,
    apply::CommandContext,
    files::check_end,
    inode::{DataLocation, FileBody, InodeBody, PAGE_BYTES, Striped},
    memory_cost,
};
use placement::FileId;
use std::{borrow::Cow, ops::Range};
use wire::{
    AllocateMode, Answer, INLINE_BYTES_MAX, InlineSpill, Object, Outcome, Refusal, SeekTo, StripeAllocation, StripeRuns,
};

impl Partition {
    pub(crate) fn allocate(
        &mut self,
        context: CommandContext,
        file: FileId,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> Outcome<Answer> {
        if length == 0 {
            return Err(Refusal::invalid(Object::File(file), "a range of no bytes"));
        }
        if matches!(mode, AllocateMode::ZeroRange | AllocateMode::ZeroRangeKeepSize) {
            return Err(Refusal::invalid(Object::File(file), "a client punches the range and then takes its space"));
        }
        let range = offset..check_end(file, offset.checked_add(length))?;
        self.edit(file, |inode| {
            let body = inode.file_mut(file)?;
            let answer = body.allocate(range, mode);
            if matches!(answer, Answer::Allocated(..)) {
                inode.touch(context.now);
            }
            Ok(answer)
        })
    }

    /// Records that the stripes inside the punched range are cut to nothing.
    pub(crate) fn punch_done(&mut self, _: CommandContext, file: FileId, generation: u32) -> Outcome<Answer> {
        self.edit(file, |inode| {
            let body = inode.file_mut(file)?;
            if let DataLocation::Striped(striped) = &mut body.location
                && body.generation == generation
            {
                striped.settle_holes();
                inode.marks.touched = true;
            }
            Ok(Answer::Done)
        })
    }

    /// Records that an allocation failed from this stripe on.
    pub(crate) fn allocation_failed(
        &mut self,
        _: CommandContext,
        file: FileId,
        generation: u32,
        stripe: u64,
    ) -> Outcome<Answer> {
        self.edit(file, |inode| {
            let body = inode.file_mut(file)?;
            let stripe_bytes = body.stripe_bytes();
            if let DataLocation::Striped(striped) = &mut body.location
                && body.generation == generation
            {
                let missing = std::mem::take(&mut striped.cutting);
                striped.note_empty(stripe.max(missing.start), missing.end);
                striped.kept = striped.kept.min(stripe * stripe_bytes);
            }
            Ok(Answer::Done)
        })
    }

    pub(crate) fn seek(&mut self, _: CommandContext, file: FileId, offset: u64, to: SeekTo) -> Outcome<Answer> {
        let found = match &self.inode(file)?.body {
            InodeBody::File(body) => match body.extent() {
                Some(extent) => return Ok(Answer::Extent(extent)),
                None => body.seek(offset, to),
            },
            InodeBody::Bound(host) => seek_in(std::iter::once(0..host.size), host.size, offset, to),
            _ => return Err(Refusal::invalid(Object::File(file), "it has no bytes")),
        };
        found.map(Answer::Offset).ok_or(Refusal::BeyondEnd(Object::File(file)))
    }
}

impl FileBody {
    /// Executes it inline, or returns how to change the stripes.
    fn allocate(&mut self, range: Range<u64>, mode: AllocateMode) -> Answer {
        let takes = mode != AllocateMode::PunchHole;
        if let DataLocation::Inline(bytes) = &mut self.location
            && (!takes || range.end <= INLINE_BYTES_MAX.into())
        {
            allocate_inline(bytes, &range, takes);
            if mode == AllocateMode::Extend {
                self.size = self.size.max(range.end);
            }
            let (generation, layout) = (self.generation, self.placement.layout);
            return Answer::Allocated(StripeAllocation { generation, stripes: StripeRuns::new(), layout });
        }
        if let Some(first) = self.go_striped() {
            return first;
        }
        let (layout, stripe_bytes) = (self.placement.layout, self.stripe_bytes());
        let stripes = range.start / stripe_bytes..range.end.div_ceil(stripe_bytes);
        if !takes {
            self.outdate_plans();
        }
        let generation = self.generation;
        let DataLocation::Striped(striped) = &mut self.location else {
            unreachable!("it was made striped, or that is answered")
        };
        if takes {
            let had =
                striped.data_runs().within(stripes.clone()).ranges().next_back().map_or(stripes.start, |run| run.end);
            striped.plan(stripes.clone());
            striped.cutting = had..stripes.end;
            striped.kept = striped.kept.max(range.end);
            return Answer::Allocated(StripeAllocation { generation, stripes: runs(stripes), layout });
        }
        striped.cutting = range.start.div_ceil(stripe_bytes)..range.end / stripe_bytes;
        Answer::Allocated(StripeAllocation { generation, stripes: striped.stripes.within(stripes), layout })
    }

    /// Returns the maximum memory cost that allocating or punching this range adds.
    pub fn allocate_cost(&self, range: Range<u64>, mode: AllocateMode) -> u64 {
        match &self.location {
            _ if mode == AllocateMode::PunchHole => 0,
            DataLocation::Inline(bytes) if range.end <= INLINE_BYTES_MAX.into() => {
                range.end.saturating_sub(bytes.len() as u64)
            }
            DataLocation::Inline(_) => 2 * memory_cost::RUN_BYTES,
            DataLocation::Spilling(_) | DataLocation::Extent(_) | DataLocation::Evacuating(_) => 0,
            DataLocation::Striped(striped) => {
                let stripe_bytes = self.stripe_bytes();
                striped.plan_cost(range.start / stripe_bytes..range.end.div_ceil(stripe_bytes))
            }
        }
    }

    /// Returns the maximum memory cost of recording the cut stripes as holes.
    pub fn punch_cost(&self) -> u64 {
        if let DataLocation::Striped(striped) = &self.location { striped.holes_cost() } else { 0 }
    }

    /// Makes the file striped, or returns the answer for a write that does not fit inline: a step
    /// to do first, or the extent that holds all bytes.
    pub(crate) fn go_striped(&mut self) -> Option<Answer> {
        if let DataLocation::Inline(_) = &self.location
            && let Some(first) = self.needs_placement()
        {
            return Some(first);
        }
        if let DataLocation::Inline(bytes) = &mut self.location {
            self.location = match std::mem::take(bytes) {
                empty if empty.is_empty() => DataLocation::striped(),
                head => DataLocation::Spilling(head),
            };
        }
        match &self.location {
            DataLocation::Inline(bytes) | DataLocation::Spilling(bytes) => {
                let (generation, layout) = (self.generation, self.placement.layout);
                Some(Answer::NeedsSpill(InlineSpill { generation, layout, head: bytes.clone().into() }))
            }
            DataLocation::Striped(_) => self.truncation().map(Answer::NeedsTruncate),
            DataLocation::Extent(extent) => Some(Answer::Extent(*extent)),
            DataLocation::Evacuating(copied) => {
                let extent = copied.extent;
                self.outdate_evacuation();
                Some(Answer::Extent(extent))
            }
        }
    }

    fn seek(&self, offset: u64, to: SeekTo) -> Option<u64> {
        match &self.location {
            DataLocation::Extent(_) | DataLocation::Evacuating(_) => None,
            DataLocation::Inline(bytes) | DataLocation::Spilling(bytes) => {
                let end = (bytes.len() as u64).min(self.size);
                seek_in(std::iter::once(0..end), self.size, offset, to)
            }
            DataLocation::Striped(striped) => {
                let (data, stripe_bytes) = (striped.data_runs(), self.stripe_bytes());
                let bytes = |run: Range<u64>| run.start * stripe_bytes..run.end.saturating_mul(stripe_bytes);
                seek_in(data.ranges().map(bytes), self.size, offset, to)
            }
        }
    }
}

/// Zeroes the range. To allocate, extends the bytes to its end; to punch a range that reaches the
/// end, truncates the bytes before it.
fn allocate_inline(bytes: &mut Vec<u8>, range: &Range<u64>, takes: bool) {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(INLINE_BYTES_MAX as usize);
    let (start, end) = (at(range.start), at(range.end));
    if takes {
        bytes.resize(bytes.len().max(end), 0);
    } else if end >= bytes.len() {
        bytes.truncate(start);
    } else {
        bytes[start..end].fill(0);
    }
}

fn runs(stripes: Range<u64>) -> StripeRuns {
    let mut runs = StripeRuns::new();
    runs.insert(stripes.start, stripes.end);
    runs
}

/// Searches runs of data, in ascending order; each is clipped to `size`. The end of the file counts
/// as a hole.
fn seek_in(data: impl Iterator<Item = Range<u64>>, size: u64, offset: u64, to: SeekTo) -> Option<u64> {
    if offset >= size {
        return None;
    }
    let mut data = data.map(|run| run.start..run.end.min(size)).filter(|run| run.end > offset && !run.is_empty());
    match to {
        SeekTo::Data => data.next().map(|run| run.start.max(offset)),
        SeekTo::Hole => {
            let mut hole = offset;
            for run in data {
                if run.start > hole {
                    break;
                }
                hole = run.end;
            }
            Some(hole)
        }
    }
}

impl Striped {
    /// Records that these stripes may have bytes from now on.
    pub fn plan(&mut self, stripes: Range<u64>) {
        self.stripes.insert(stripes.start, stripes.end);
        if !self.holes.is_empty() {
            self.holes.remove(stripes.start, stripes.end);
        }
        if stripes.start < self.cutting.end && self.cutting.start < stripes.end {
            self.cutting = 0..0;
        }
    }

    /// Records the stripes that were being cut as holes.
    fn settle_holes(&mut self) {
        let cut = std::mem::take(&mut self.cutting);
        self.holes.insert(cut.start, cut.end);
    }

    /// Records that all stripes from this one on are cut to nothing.
    pub fn cut_from(&mut self, first: u64) {
        let end = self.stripes.ranges().next_back().map_or(0, |run| run.end);
        self.note_empty(first, end);
    }

    /// Records stripes as holes, unless that needs memory that was not reserved.
    fn note_empty(&mut self, first: u64, end: u64) {
        let room = self.stripes.runs().saturating_sub(self.holes.runs());
        if room >= self.holes.runs_added(first, end) {
            self.holes.insert(first, end);
        }
    }

    /// Returns the maximum memory cost of settling holes.
    pub fn holes_cost(&self) -> u64 {
        self.holes.runs_added(self.cutting.start, self.cutting.end) as u64 * memory_cost::RUN_BYTES
    }

    /// Returns the memory cost of the runs, bytes. Space for as many holes as runs is reserved from
    /// the start.
    pub fn memory_cost(&self) -> u64 {
        let (runs, holes) = (self.stripes.runs() as u64, self.holes.runs() as u64);
        (runs + runs.max(holes)) * memory_cost::RUN_BYTES
    }

    /// Returns the maximum memory cost of planning these stripes.
    pub fn plan_cost(&self, stripes: Range<u64>) -> u64 {
        let (added, split) = (self.stripes.runs_added(stripes.start, stripes.end), usize::from(!self.holes.is_empty()));
        (2 * added + split) as u64 * memory_cost::RUN_BYTES
    }

    /// Returns the approximate space that its stripes use: full stripes, and the pages of the last
    /// one.
    pub fn allocated(&self, size: u64, stripe_bytes: u64) -> u64 {
        let end = size.max(self.kept);
        let last = end / stripe_bytes;
        let data = if self.holes.is_empty() { Cow::Borrowed(&self.stripes) } else { Cow::Owned(self.data_runs()) };
        let (full, with_last) = (data.count_below(last), data.count_below(last + 1));
        let tail = if with_last > full { (end % stripe_bytes).next_multiple_of(PAGE_BYTES) } else { 0 };
        full * stripe_bytes + tail
    }

    /// Returns the runs of stripes that may have bytes.
    pub fn data_runs(&self) -> StripeRuns {
        let mut data = self.stripes.clone();
        self.holes.ranges().for_each(|hole| data.remove(hole.start, hole.end));
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_holes_are_found_as_in_a_plain_map_of_bytes() {
        let data = [2..4_u64, 4..5, 8..20];
        let (size, is_data) = (12, |at: u64| data.iter().any(|run| run.contains(&at)));
        for offset in 0..15 {
            let of = |wanted: bool| (offset..size).find(|at| is_data(*at) == wanted);
            assert_eq!(seek_in(data.iter().cloned(), size, offset, SeekTo::Data), of(true), "data from {offset}");
            let hole = (offset < size).then(|| of(false).unwrap_or(size));
            assert_eq!(seek_in(data.iter().cloned(), size, offset, SeekTo::Hole), hole, "hole from {offset}");
        }
    }
}
