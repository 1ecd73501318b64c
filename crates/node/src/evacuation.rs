//! Evacuation: a large extent file whose inode is at another node becomes striped, once nobody has
//! it open.
//!
//! ```text
//!   client in this process             node of the inode        nodes of the stripes
//!   begin_evacuation: idle?
//!   Evacuate {stripes} ------------->  plans the stripes
//!   read_evacuated, a few MiB at once ------------------------>  Write
//!   freeze_evacuation: unchanged?
//!   EvacuateDone {size, times} ----->  striped from now on
//!   end_evacuation: frees the extent
//! ```
//!
//! The extent is used as before while it is copied, and frozen only for the last message. Whatever
//! changes it meanwhile ends the copy: a request notes the change, and a kernel or program must
//! open the extent first, which is noted too ([`ExtentSlots::mark_leased`]). As long as the outcome
//! of the last message is not known, the extent stays frozen, and the message is sent again.
//!
//! This module sends no messages: `client::Client` does.
//!
//! [`ExtentSlots::mark_leased`]: crate::extents::ExtentSlots::mark_leased

use crate::{
    Node,
    extents::{ExtentPin, ExtentSlots},
    hosted::failed,
};
use bytes::Bytes;
use placement::{FileId, Layout, StripeNo};
use std::ops::Range;
use store::{EngineError, Extents, SeekTarget, Slot};
use wire::{Command, Extent, Object, Outcome, Refusal, StripeRuns, Times};

/// Most runs of stripes that are planned. In a file with more of them, short holes are written as
/// zeros.
const RUNS_MAX: usize = 4096;

/// A large extent file whose bytes are copied to stripes.
#[derive(Clone, Copy, Debug)]
pub struct HostedEvacuation {
    /// The file.
    pub file: FileId,
    /// Its extent.
    pub extent: Extent,
    /// Its length, bytes.
    pub size: u64,
    /// Its times in the extent, before the copy reads it.
    pub times: Times,
}

/// A file whose stripes hold all its bytes, while the node of its inode learns of it.
#[derive(Clone, Debug)]
pub struct FrozenEvacuation {
    /// The file in its extent, which nobody can pin.
    pub copied: HostedEvacuation,
    /// Generation at the time of planning.
    pub generation: u32,
    /// Layout of the stripes.
    pub layout: Layout,
    /// All stripes that were planned.
    pub stripes: StripeRuns,
}

impl FrozenEvacuation {
    /// The command that makes the file striped.
    pub fn command(&self) -> Command {
        let HostedEvacuation { file, extent, size, times } = self.copied;
        Command::EvacuateDone { file, extent, generation: self.generation, size, times }
    }
}

impl Node {
    /// Begins to copy a file of this host whose inode is elsewhere. `None` if it has no extent
    /// here; [`Refusal::Busy`] if that is in use.
    pub fn begin_evacuation(&self, file: FileId) -> Outcome<Option<HostedEvacuation>> {
        let Some(extent) = self.hosted.extent(file) else { return Ok(None) };
        self.freeze_idle(file, extent)?;
        self.extents.begin_copy(extent);
        let found = self.size_and_times(file, extent);
        self.thaw(file, extent);
        found.map(|(size, times)| Some(HostedEvacuation { file, extent, size, times }))
    }

    /// The stripes that have bytes of the file.
    pub fn evacuated_stripes(&self, begun: &HostedEvacuation, layout: Layout) -> Outcome<StripeRuns> {
        let pin = self.pin_unchanged(begun)?;
        let stripe_bytes = layout.stripe_bytes().into();
        let found = stripes_with_data(pin.slots().engine(), pin.slot(), begun.size, stripe_bytes);
        found.map(limited).map_err(|error| failed(begun.file, &error))
    }

    /// The bytes of the file in a stripe, with their offset there: none if it is a hole.
    /// [`Refusal::Busy`] if the file may have changed since the copy began.
    pub fn read_evacuated(
        &self,
        begun: &HostedEvacuation,
        layout: Layout,
        stripe: StripeNo,
    ) -> Outcome<Option<(u32, Bytes)>> {
        let pin = self.pin_unchanged(begun)?;
        let start = stripe.0 * u64::from(layout.stripe_bytes());
        let end = begun.size.min(start + u64::from(layout.stripe_bytes()));
        let read = || {
            let Some(data) = data_within(pin.slots().engine(), pin.slot(), start..end)? else { return Ok(None) };
            let within = |offset: u64| u32::try_from(offset).expect("at most the length of a stripe");
            let bytes = pin.slots().engine().read_at(pin.slot(), data.start, within(data.end - data.start))?;
            Ok(Some((within(data.start - start), bytes)))
        };
        read().map_err(|error| failed(begun.file, &error))
    }

    /// Freezes the extent of a file whose bytes are copied: nobody can use it until
    /// [`Self::end_evacuation`]. [`Refusal::Busy`] if it is in use, or may have changed.
    pub fn freeze_evacuation(&self, frozen: FrozenEvacuation) -> Outcome<()> {
        let HostedEvacuation { file, extent, .. } = frozen.copied;
        self.freeze_idle(file, extent)?;
        if self.extents.has_changed(extent) || self.hosted.extent(file) != Some(extent) {
            self.thaw(file, extent);
            return Err(Refusal::Busy(Object::File(file)));
        }
        self.hosted.evacuations.lock().insert(file, frozen);
        Ok(())
    }

    /// The copied file, while it is not known whether its inode has left the extent.
    pub fn frozen_evacuation(&self, file: FileId) -> Option<FrozenEvacuation> {
        self.hosted.evacuations.lock().get(&file).cloned()
    }

    /// Ends an evacuation: the file has left the extent, or stays.
    pub fn end_evacuation(&self, file: FileId, has_left: bool) {
        if let Some(FrozenEvacuation { copied, .. }) = self.hosted.evacuations.lock().remove(&file) {
            self.end_frozen(file, copied.extent, has_left);
        }
    }

    fn pin_unchanged(&self, begun: &HostedEvacuation) -> Outcome<ExtentPin<&ExtentSlots>> {
        let pin = ExtentSlots::pin(&*self.extents, begun.extent).filter(|_| !self.extents.has_changed(begun.extent));
        pin.ok_or(Refusal::Busy(Object::File(begun.file)))
    }
}

fn stripes_with_data(
    extents: &dyn Extents,
    slot: Slot,
    size: u64,
    stripe_bytes: u64,
) -> Result<StripeRuns, EngineError> {
    let (mut stripes, mut from) = (StripeRuns::new(), 0);
    while from < size
        && let Some(data) = extents.seek(slot, from, SeekTarget::Data)?
    {
        let end = extents.seek(slot, data, SeekTarget::Hole)?.unwrap_or(data + 1).div_ceil(stripe_bytes);
        stripes.insert(data / stripe_bytes, end);
        from = end * stripe_bytes;
    }
    Ok(stripes)
}

/// The range from the first byte of data to the last one.
fn data_within(extents: &dyn Extents, slot: Slot, range: Range<u64>) -> Result<Option<Range<u64>>, EngineError> {
    let next = |from| Ok(extents.seek(slot, from, SeekTarget::Data)?.filter(|data| *data < range.end));
    let Some(start) = next(range.start)? else { return Ok(None) };
    let (mut data, mut end) = (Some(start), start);
    while let Some(from) = data {
        end = extents.seek(slot, from, SeekTarget::Hole)?.unwrap_or(range.end).min(range.end);
        data = next(end)?;
    }
    Ok(Some(start..end))
}

/// Fills the shortest holes between runs until there are few enough.
fn limited(mut stripes: StripeRuns) -> StripeRuns {
    let mut hole_max = 1;
    while stripes.runs() > RUNS_MAX {
        let runs: Vec<Range<u64>> = stripes.ranges().collect();
        for pair in runs.windows(2).filter(|pair| pair[1].start - pair[0].end <= hole_max) {
            stripes.insert(pair[0].end, pair[1].start);
        }
        hole_max *= 2;
    }
    stripes
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Engine, ModelEngine};

    const PAGE: u64 = 4096;

    fn runs(ranges: &[Range<u64>]) -> StripeRuns {
        let mut runs = StripeRuns::new();
        for range in ranges {
            runs.insert(range.start, range.end);
        }
        runs
    }

    #[test]
    fn only_what_has_data_is_copied() {
        let extents = ModelEngine::with_extents(1 << 20, 4096).extents().unwrap();
        let slot = extents.allocate_slot().unwrap();
        for page in [1, 3, 4, 9] {
            extents.write_at(slot, page * PAGE, &[1; 4096]).unwrap();
        }
        extents.truncate(slot, 20 * PAGE).unwrap();
        let stripes = stripes_with_data(&*extents, slot, 20 * PAGE, 2 * PAGE).unwrap();
        assert_eq!(stripes, runs(&[0..3, 4..5]));
        let within = |pages: Range<u64>| data_within(&*extents, slot, pages.start * PAGE..pages.end * PAGE).unwrap();
        assert_eq!(within(0..2), Some(PAGE..2 * PAGE));
        assert_eq!(within(2..10), Some(3 * PAGE..10 * PAGE));
        assert_eq!(within(4..8), Some(4 * PAGE..5 * PAGE));
        assert_eq!(within(5..9), None);
    }

    #[test]
    fn runs_beyond_the_limit_are_joined_over_their_shortest_holes() {
        let few = runs(&[0..1, 2..3]);
        assert_eq!(limited(few.clone()), few);
        let mut many = runs(&[0..1, 10_000..10_001]);
        (0..RUNS_MAX as u64).for_each(|run| many.insert(20_000 + 2 * run, 20_001 + 2 * run));
        let joined = limited(many);
        assert_eq!(joined, runs(&[0..1, 10_000..10_001, 20_000..20_000 + 2 * RUNS_MAX as u64 - 1]));
    }
}
