//! Extent slots: which file's bytes are in which slot, how many users it has, and when it returns
//! to the stock.
//!
//! ```text
//!   Stock --take--> Live --its file is gone--> Freed --nobody uses it--> Stock
//! ```
//!
//! An extent is used by pins (requests of this node, backings of frontends) and by kernels that
//! have it open or mapped. Pins are counted here; the engine is asked whether the extent is idle. A
//! busy extent is asked about again later: whenever usage is queried, a request finds no space, or
//! a file is closed.

use parking_lot::Mutex;
use placement::NodeId;
use std::{borrow::Borrow, collections::VecDeque, fmt, os::fd::BorrowedFd, sync::Arc};
use store::{Extents, Slot};
use wire::{Extent, OpenFlags};

/// All extents of a node; none if its engine has none.
pub struct Wholes {
    node: NodeId,
    extents: Option<Arc<dyn Extents>>,
    lives: Mutex<Vec<Life>>,
    /// Freed slots that were still busy.
    loud: Mutex<VecDeque<u32>>,
}

/// State of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    generation: u32,
    pins: u32,
    state: State,
    /// True if its descriptor was given out since the slot was taken. Otherwise nobody can have it
    /// open or mapped.
    lent: bool,
    /// True if somebody may have it mapped for writing; such stores go unnoticed.
    mapped: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Stock,
    Live,
    Freed,
}

impl Wholes {
    pub fn new(node: NodeId, extents: Option<Arc<dyn Extents>>) -> Arc<Self> {
        Arc::new(Self { node, extents, lives: Mutex::default(), loud: Mutex::default() })
    }

    /// True if there can be extent files at all.
    pub fn any(&self) -> bool {
        self.extents.is_some()
    }

    /// The engine's extents.
    pub fn extents(&self) -> &dyn Extents {
        self.extents.as_deref().expect("only who has an extent asks")
    }

    /// Takes a new, empty extent from the stock.
    pub fn take(&self) -> Option<Extent> {
        let slot = self.extents.as_ref()?.allocate_slot()?.0;
        let mut lives = self.lives.lock();
        if lives.len() <= slot as usize {
            lives.resize(slot as usize + 1, Life::default());
        }
        let life = &mut lives[slot as usize];
        debug_assert!(life.state == State::Stock && life.pins == 0, "slot {slot} was given twice: {life:?}");
        *life = Life { generation: life.generation.wrapping_add(1), state: State::Live, ..Life::default() };
        Some(Extent { node: self.node, slot, generation: life.generation })
    }

    /// Frees an extent whose file was removed or never made.
    pub fn free(&self, extent: Extent) {
        if self.end(extent, false) {
            self.retire(extent.slot);
        }
    }

    /// Ends an extent if it is not pinned: from now on nobody can pin it. Then it is either given
    /// back or [revived](Self::revive).
    pub fn end_unpinned(&self, extent: Extent) -> bool {
        self.end(extent, true)
    }

    fn end(&self, extent: Extent, unpinned: bool) -> bool {
        let mut lives = self.lives.lock();
        let Some(life) = living(&mut lives, extent).filter(|life| !unpinned || life.pins == 0) else { return false };
        life.state = State::Freed;
        true
    }

    /// Makes an ended extent live again.
    pub fn revive(&self, extent: Extent) {
        let life = &mut self.lives.lock()[extent.slot as usize];
        debug_assert_eq!(
            (life.generation, life.state),
            (extent.generation, State::Freed),
            "only what was ended is revived"
        );
        life.state = State::Live;
    }

    /// Returns an ended extent to the stock. It must be idle.
    pub fn give_back(&self, extent: Extent) {
        self.lives.lock()[extent.slot as usize].state = State::Stock;
        self.extents().free_slot(Slot(extent.slot));
    }

    /// True if no kernel has the extent open or mapped.
    pub fn is_quiet(&self, extent: Extent) -> bool {
        let lent = self.lives.lock()[extent.slot as usize].lent;
        !lent || self.extents().is_idle(Slot(extent.slot))
    }

    /// Returns a freed slot to the stock, unless it is in use; then it is tried again later.
    fn retire(&self, slot: u32) {
        let lent = {
            let life = &mut self.lives.lock()[slot as usize];
            if life.state != State::Freed || life.pins > 0 {
                return;
            }
            // Claimed: no other thread retires it now.
            life.state = State::Stock;
            life.lent
        };
        if !lent || self.extents().is_idle(Slot(slot)) {
            self.extents().free_slot(Slot(slot));
        } else {
            self.lives.lock()[slot as usize].state = State::Freed;
            self.loud.lock().push_back(slot);
        }
    }

    /// Tries to retire the freed slots that were busy; true if some still are.
    pub fn sweep(&self) -> bool {
        let due = self.loud.lock().len();
        for _ in 0..due {
            let Some(slot) = self.loud.lock().pop_front() else { break };
            self.retire(slot);
        }
        !self.loud.lock().is_empty()
    }

    /// Pins an extent: it is not given to another file as long as the pin lives. `None` if it
    /// already belongs to another file, or its file is gone.
    pub fn pin<W: Borrow<Self>>(wholes: W, extent: Extent) -> Option<Pin<W>> {
        let held = wholes.borrow();
        if extent.node != held.node {
            return None;
        }
        living(&mut held.lives.lock(), extent)?.pins += 1;
        Some(Pin { wholes, extent })
    }

    fn unpin(&self, extent: Extent) {
        let free = {
            let life = &mut self.lives.lock()[extent.slot as usize];
            life.pins -= 1;
            life.pins == 0 && life.state == State::Freed
        };
        if free {
            self.retire(extent.slot);
        }
    }

    /// Records that somebody may have the extent open or mapped from now on. An open for reading
    /// and writing may store into a mapping.
    pub fn lend(&self, extent: Extent, flags: OpenFlags) {
        {
            let life = &mut self.lives.lock()[extent.slot as usize];
            life.lent = true;
            life.mapped |= flags.read && flags.write;
        }
        if flags.write {
            self.extents().begin_direct_writes(Slot(extent.slot));
        }
    }

    /// True if somebody may change the extent by a store into a mapping.
    pub fn may_be_mapped(&self, extent: Extent) -> bool {
        // Under the lock, so that nobody maps it between the question and its answer.
        let life = &mut self.lives.lock()[extent.slot as usize];
        life.mapped = life.mapped && (life.pins > 0 || !self.extents().is_idle(Slot(extent.slot)));
        life.mapped
    }

    /// The descriptor of an extent.
    pub fn fd(&self, extent: Extent) -> Option<BorrowedFd<'_>> {
        self.extents.as_ref()?.fd(Slot(extent.slot))
    }
}

fn living(lives: &mut [Life], extent: Extent) -> Option<&mut Life> {
    let life = lives.get_mut(extent.slot as usize)?;
    (life.state == State::Live && life.generation == extent.generation).then_some(life)
}

/// A pinned extent: it is not given to another file as long as this lives.
#[derive(Debug)]
pub struct Pin<W: Borrow<Wholes>> {
    wholes: W,
    extent: Extent,
}

impl<W: Borrow<Wholes>> Pin<W> {
    pub fn extent(&self) -> Extent {
        self.extent
    }

    pub fn wholes(&self) -> &Wholes {
        self.wholes.borrow()
    }

    pub fn slot(&self) -> Slot {
        Slot(self.extent.slot)
    }
}

impl<W: Borrow<Wholes>> Drop for Pin<W> {
    fn drop(&mut self) {
        self.wholes.borrow().unpin(self.extent);
    }
}

impl fmt::Debug for Wholes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.extents.as_ref().map(|extents| extents.slot_counts());
        f.debug_struct("Wholes").field("slots", &slots).field("loud", &self.loud.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Engine, ModelEngine};

    fn wholes() -> (Arc<Wholes>, Arc<dyn Extents>) {
        let extents = ModelEngine::with_extents(1 << 20, 4096).extents().unwrap();
        (Wholes::new(NodeId(1), Some(extents.clone())), extents)
    }

    fn in_stock(extents: &Arc<dyn Extents>) -> u64 {
        extents.slot_counts().1
    }

    #[test]
    fn a_pinned_extent_goes_back_when_its_last_pin_does() {
        let (wholes, extents) = wholes();
        let extent = wholes.take().unwrap();
        let pins = [Wholes::pin(&*wholes, extent).unwrap(), Wholes::pin(&*wholes, extent).unwrap()];
        wholes.free(extent);
        assert!(Wholes::pin(&*wholes, extent).is_none(), "nobody comes to use what is gone");
        for pin in pins {
            assert_eq!(in_stock(&extents), 0);
            drop(pin);
        }
        assert_eq!(in_stock(&extents), 1);
    }

    #[test]
    fn an_extent_of_an_earlier_life_is_not_the_one_of_the_next() {
        let (wholes, _) = wholes();
        let old = wholes.take().unwrap();
        wholes.free(old);
        let new = wholes.take().unwrap();
        assert_eq!((old.slot, old.generation + 1), (new.slot, new.generation));
        assert!(Wholes::pin(&*wholes, old).is_none() && Wholes::pin(&*wholes, new).is_some());
        wholes.free(old);
        assert!(Wholes::pin(&*wholes, new).is_some(), "a second end of the first life is nothing");
    }

    #[test]
    fn an_extent_of_another_node_is_not_the_one_of_the_same_number_here() {
        let (wholes, _) = wholes();
        let own = wholes.take().unwrap();
        let other = Extent { node: NodeId(2), ..own };
        assert!(Wholes::pin(&*wholes, other).is_none() && Wholes::pin(&*wholes, own).is_some());
    }

    #[test]
    fn an_ended_extent_is_pinned_by_nobody_until_it_is_revived() {
        let (wholes, _) = wholes();
        let extent = wholes.take().unwrap();
        let pin = Wholes::pin(&*wholes, extent).unwrap();
        assert!(!wholes.end_unpinned(extent), "it is pinned");
        drop(pin);
        assert!(wholes.end_unpinned(extent));
        assert!(Wholes::pin(&*wholes, extent).is_none());
        wholes.revive(extent);
        assert!(Wholes::pin(&*wholes, extent).is_some());
    }
}
