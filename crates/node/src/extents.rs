//! Extent slots: which file's bytes are in which slot, how many users it has, and when it returns
//! to the stock.
//!
//! ```text
//!   Stock --allocate--> Live --its file is gone--> Freed --nobody uses it--> Stock
//! ```
//!
//! An extent is used by pins (requests of this node, backings of frontends) and by kernels that
//! have it open or mapped. Pins are counted here; the engine is asked whether the extent is idle. A
//! busy extent is asked about again later: whenever usage is queried, a request finds no space, or
//! a file is closed.

use parking_lot::Mutex;
use placement::NodeId;
use std::{borrow::Borrow, collections::VecDeque, fmt, os::fd::BorrowedFd, sync::Arc};
use store::{Extents, PageChecks, Slot};
use wire::{Extent, OpenFlags};

/// All extents of a node; none if its engine has none.
pub struct ExtentSlots {
    node: NodeId,
    engine: Option<Arc<dyn Extents>>,
    slots: Mutex<Vec<ExtentSlot>>,
    /// Freed slots that were still busy.
    busy: Mutex<VecDeque<u32>>,
}

/// State of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct ExtentSlot {
    generation: u32,
    pins: u32,
    state: SlotState,
    /// True if its descriptor was given out since the slot was taken. Otherwise nobody can have it
    /// open or mapped.
    leased: bool,
    /// True if somebody may have it mapped for writing; such stores go unnoticed.
    maybe_mapped: bool,
    /// True if it may have changed since [`ExtentSlots::begin_copy`].
    changed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SlotState {
    #[default]
    Stock,
    Live,
    Freed,
}

impl ExtentSlots {
    pub fn new(node: NodeId, engine: Option<Arc<dyn Extents>>) -> Arc<Self> {
        Arc::new(Self { node, engine, slots: Mutex::default(), busy: Mutex::default() })
    }

    /// True if there can be extent files at all.
    pub fn is_supported(&self) -> bool {
        self.engine.is_some()
    }

    /// The engine's extents.
    pub fn engine(&self) -> &dyn Extents {
        self.engine.as_deref().expect("a node with extents has an engine for them")
    }

    /// Takes a new, empty extent from the stock.
    pub fn allocate(&self) -> Option<Extent> {
        let slot = self.engine.as_ref()?.allocate_slot()?.0;
        let mut slots = self.slots.lock();
        if slots.len() <= slot as usize {
            slots.resize(slot as usize + 1, ExtentSlot::default());
        }
        let entry = &mut slots[slot as usize];
        debug_assert!(entry.state == SlotState::Stock && entry.pins == 0, "slot {slot} was allocated twice: {entry:?}");
        *entry = ExtentSlot {
            generation: entry.generation.wrapping_add(1),
            state: SlotState::Live,
            ..ExtentSlot::default()
        };
        Some(Extent { node: self.node, slot, generation: entry.generation })
    }

    /// Frees an extent whose file was removed or never made.
    pub fn free(&self, extent: Extent) {
        if self.end(extent, false) {
            self.retire(extent.slot);
        }
    }

    /// Ends an extent if it is not pinned: from now on nobody can pin it. Then it is either
    /// returned to the stock or [revived](Self::revive).
    pub fn end_unpinned(&self, extent: Extent) -> bool {
        self.end(extent, true)
    }

    fn end(&self, extent: Extent, unpinned: bool) -> bool {
        let mut slots = self.slots.lock();
        let Some(entry) = live_slot(&mut slots, extent).filter(|entry| !unpinned || entry.pins == 0) else {
            return false;
        };
        entry.state = SlotState::Freed;
        true
    }

    /// Makes an ended extent live again.
    pub fn revive(&self, extent: Extent) {
        let entry = &mut self.slots.lock()[extent.slot as usize];
        debug_assert_eq!(
            (entry.generation, entry.state),
            (extent.generation, SlotState::Freed),
            "only an ended extent is revived"
        );
        entry.state = SlotState::Live;
    }

    /// Returns an ended extent to the stock. It must be idle.
    pub fn return_to_stock(&self, extent: Extent) {
        self.slots.lock()[extent.slot as usize].state = SlotState::Stock;
        self.engine().free_slot(Slot(extent.slot));
    }

    /// True if no kernel has the extent open or mapped.
    pub fn is_idle(&self, extent: Extent) -> bool {
        let leased = self.slots.lock()[extent.slot as usize].leased;
        !leased || self.engine().is_idle(Slot(extent.slot))
    }

    /// True if somebody has pinned the extent, or has it open or mapped.
    pub fn is_used(&self, extent: Extent) -> bool {
        let pins = self.slots.lock().get(extent.slot as usize).map_or(0, |entry| entry.pins);
        pins > 0 || !self.is_idle(extent)
    }

    /// Returns a freed slot to the stock, unless it is in use; then it is tried again later.
    fn retire(&self, slot: u32) {
        let leased = {
            let entry = &mut self.slots.lock()[slot as usize];
            if entry.state != SlotState::Freed || entry.pins > 0 {
                return;
            }
            // Claimed: no other thread retires it now.
            entry.state = SlotState::Stock;
            entry.leased
        };
        if !leased || self.engine().is_idle(Slot(slot)) {
            self.engine().free_slot(Slot(slot));
        } else {
            self.slots.lock()[slot as usize].state = SlotState::Freed;
            self.busy.lock().push_back(slot);
        }
    }

    /// Tries to retire the freed slots that were busy; true if some still are.
    pub fn retire_idle(&self) -> bool {
        let due = self.busy.lock().len();
        for _ in 0..due {
            let Some(slot) = self.busy.lock().pop_front() else { break };
            self.retire(slot);
        }
        !self.busy.lock().is_empty()
    }

    /// Pins an extent: it is not given to another file as long as the pin lives. `None` if it
    /// already belongs to another file, or its file is gone.
    pub fn pin<W: Borrow<Self>>(slots: W, extent: Extent) -> Option<ExtentPin<W>> {
        let held = slots.borrow();
        if extent.node != held.node {
            return None;
        }
        live_slot(&mut held.slots.lock(), extent)?.pins += 1;
        Some(ExtentPin { slots, extent })
    }

    fn unpin(&self, extent: Extent) {
        let free = {
            let entry = &mut self.slots.lock()[extent.slot as usize];
            entry.pins -= 1;
            entry.pins == 0 && entry.state == SlotState::Freed
        };
        if free {
            self.retire(extent.slot);
        }
    }

    /// Records that somebody may have the extent open or mapped from now on. An open for reading
    /// and writing may store into a mapping.
    pub fn mark_leased(&self, extent: Extent, flags: OpenFlags) {
        {
            let entry = &mut self.slots.lock()[extent.slot as usize];
            entry.leased = true;
            entry.maybe_mapped |= flags.read && flags.write;
            entry.changed |= flags.write;
        }
        if flags.write {
            self.engine().begin_direct_writes(Slot(extent.slot));
        }
    }

    /// Records that an extent is changed. The caller has pinned it, or holds the lock of its file's
    /// partition.
    pub fn note_change(&self, extent: Extent) {
        if let Some(entry) = live_slot(&mut self.slots.lock(), extent) {
            entry.changed = true;
        }
    }

    /// Begins to watch an extent for changes, while nobody can use it.
    pub fn begin_copy(&self, extent: Extent) {
        self.slots.lock()[extent.slot as usize].changed = false;
    }

    /// True if the extent may have changed since [`Self::begin_copy`], or is not used any more.
    pub fn has_changed(&self, extent: Extent) -> bool {
        let slots = self.slots.lock();
        let entry = slots.get(extent.slot as usize).filter(|entry| entry.generation == extent.generation);
        entry.is_none_or(|entry| entry.changed)
    }

    /// True if somebody may change the extent by a store into a mapping.
    pub fn may_be_mapped(&self, extent: Extent) -> bool {
        // Under the lock, so that nobody maps it between the question and its answer.
        let entry = &mut self.slots.lock()[extent.slot as usize];
        entry.maybe_mapped = entry.maybe_mapped && (entry.pins > 0 || !self.engine().is_idle(Slot(extent.slot)));
        entry.maybe_mapped
    }

    /// The checks that the engine has made by itself.
    pub fn page_checks(&self) -> PageChecks {
        self.engine.as_ref().map_or_else(PageChecks::default, |extents| extents.page_checks())
    }

    /// The descriptor of an extent.
    pub fn fd(&self, extent: Extent) -> Option<BorrowedFd<'_>> {
        self.engine.as_ref()?.fd(Slot(extent.slot))
    }
}

fn live_slot(slots: &mut [ExtentSlot], extent: Extent) -> Option<&mut ExtentSlot> {
    let entry = slots.get_mut(extent.slot as usize)?;
    (entry.state == SlotState::Live && entry.generation == extent.generation).then_some(entry)
}

/// A pinned extent: it is not given to another file as long as this lives.
#[derive(Debug)]
pub struct ExtentPin<W: Borrow<ExtentSlots>> {
    slots: W,
    extent: Extent,
}

impl<W: Borrow<ExtentSlots>> ExtentPin<W> {
    pub fn extent(&self) -> Extent {
        self.extent
    }

    pub fn slots(&self) -> &ExtentSlots {
        self.slots.borrow()
    }

    pub fn slot(&self) -> Slot {
        Slot(self.extent.slot)
    }
}

impl<W: Borrow<ExtentSlots>> Drop for ExtentPin<W> {
    fn drop(&mut self) {
        self.slots.borrow().unpin(self.extent);
    }
}

impl fmt::Debug for ExtentSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.engine.as_ref().map(|extents| extents.slot_counts());
        f.debug_struct("ExtentSlots")
            .field("slots", &slots)
            .field("busy", &self.busy.lock().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Engine, ModelEngine};

    fn slots() -> (Arc<ExtentSlots>, Arc<dyn Extents>) {
        let extents = ModelEngine::with_extents(1 << 20, 4096).extents().unwrap();
        (ExtentSlots::new(NodeId(1), Some(extents.clone())), extents)
    }

    fn in_stock(extents: &Arc<dyn Extents>) -> u64 {
        extents.slot_counts().1
    }

    #[test]
    fn a_pinned_extent_goes_back_when_its_last_pin_does() {
        let (slots, extents) = slots();
        let extent = slots.allocate().unwrap();
        let pins = [ExtentSlots::pin(&*slots, extent).unwrap(), ExtentSlots::pin(&*slots, extent).unwrap()];
        slots.free(extent);
        assert!(ExtentSlots::pin(&*slots, extent).is_none(), "a freed extent cannot be pinned");
        for pin in pins {
            assert_eq!(in_stock(&extents), 0);
            drop(pin);
        }
        assert_eq!(in_stock(&extents), 1);
    }

    #[test]
    fn an_extent_of_an_earlier_life_is_not_the_one_of_the_next() {
        let (slots, _) = slots();
        let old = slots.allocate().unwrap();
        slots.free(old);
        let new = slots.allocate().unwrap();
        assert_eq!((old.slot, old.generation + 1), (new.slot, new.generation));
        assert!(ExtentSlots::pin(&*slots, old).is_none() && ExtentSlots::pin(&*slots, new).is_some());
        slots.free(old);
        assert!(ExtentSlots::pin(&*slots, new).is_some(), "an extent of an earlier life cannot be ended again");
    }

    #[test]
    fn an_extent_of_another_node_is_not_the_one_of_the_same_number_here() {
        let (slots, _) = slots();
        let own = slots.allocate().unwrap();
        let other = Extent { node: NodeId(2), ..own };
        assert!(ExtentSlots::pin(&*slots, other).is_none() && ExtentSlots::pin(&*slots, own).is_some());
    }

    #[test]
    fn an_extent_has_changed_when_somebody_has_written_or_may_write_to_it_since_its_copy_began() {
        let (slots, _) = slots();
        let extent = slots.allocate().unwrap();
        let changed_by = |change: &dyn Fn()| {
            slots.begin_copy(extent);
            change();
            slots.has_changed(extent)
        };
        assert!(!changed_by(&|| slots.mark_leased(extent, OpenFlags::READ)));
        assert!(changed_by(&|| slots.mark_leased(extent, OpenFlags::WRITE)));
        assert!(changed_by(&|| slots.note_change(extent)));
        slots.free(extent);
        let next = slots.allocate().unwrap();
        assert!(slots.has_changed(extent) && !slots.has_changed(next), "it is of another file");
    }

    #[test]
    fn an_ended_extent_is_pinned_by_nobody_until_it_is_revived() {
        let (slots, _) = slots();
        let extent = slots.allocate().unwrap();
        let pin = ExtentSlots::pin(&*slots, extent).unwrap();
        assert!(!slots.end_unpinned(extent), "it is pinned");
        drop(pin);
        assert!(slots.end_unpinned(extent));
        assert!(ExtentSlots::pin(&*slots, extent).is_none());
        slots.revive(extent);
        assert!(ExtentSlots::pin(&*slots, extent).is_some());
    }
}
