//! The resources of the machine, those that are free, and the lanes that running tasks occupy.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The lane of a running task, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// The resources that all running tasks share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// The number of processors.
    pub slots: u32,
    /// The memory for tasks in bytes, without that of the pool.
    pub memory: u64,
}

/// The resources that one task takes while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The number of processors, at least 1.
    pub cpus: u32,
    /// The memory in bytes; 0 if it is not accounted.
    pub memory: u64,
}

/// The resources that are free now.
#[derive(Debug, Clone)]
pub struct Room {
    machine: Machine,
    cpus: u32,
    /// The number of processors that running tasks take beyond those of the machine. Tasks that
    /// wait for space lend them.
    lent: u32,
    memory: u64,
    /// Free lanes below `fresh`.
    freed: BinaryHeap<Reverse<u32>>,
    /// The first lane that was never taken.
    fresh: u32,
}

impl Room {
    /// The resources of an idle machine.
    pub fn new(machine: Machine) -> Self {
        Self { machine, cpus: machine.slots, lent: 0, memory: machine.memory, freed: BinaryHeap::new(), fresh: 0 }
    }

    /// The total resources of the machine.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The number of free processors.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// The free memory in bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns whether a task with these needs can start now.
    pub fn fits(&self, needs: Needs) -> bool {
        needs.cpus <= self.cpus && needs.memory <= self.memory
    }

    /// Returns whether a task with these needs can start now if tasks that wait for space lend
    /// `lendable` processors in all.
    pub(crate) fn fits_lent(&self, needs: Needs, lendable: u32) -> bool {
        let missing = needs.cpus.saturating_sub(self.cpus);
        needs.memory <= self.memory && self.lent + missing <= lendable
    }

    /// Takes the resources of a starting task, and the smallest free lane. Processors that are not
    /// free are borrowed from tasks that wait for space.
    pub(crate) fn take(&mut self, needs: Needs) -> SlotId {
        assert!(needs.cpus > 0 && needs.memory <= self.memory, "a task starts only where it fits");
        let missing = needs.cpus.saturating_sub(self.cpus);
        self.lent += missing;
        assert!(self.lent <= self.machine.slots, "no more is lent than there is");
        self.cpus -= needs.cpus - missing;
        self.memory -= needs.memory;
        let slot = self.freed.pop().map_or(self.fresh, |Reverse(slot)| slot);
        self.fresh = self.fresh.max(slot + 1);
        SlotId(slot)
    }

    /// Returns the resources of an ended task, first to the tasks that lent processors.
    pub(crate) fn give(&mut self, needs: Needs, slot: SlotId) {
        let returned = self.lent.min(needs.cpus);
        self.lent -= returned;
        self.cpus += needs.cpus - returned;
        self.memory += needs.memory;
        self.freed.push(Reverse(slot.0));
        assert!(self.cpus <= self.machine.slots && self.memory <= self.machine.memory, "given back more than taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_free_lane_is_taken() {
        let one = Needs { cpus: 1, memory: 0 };
        let mut room = Room::new(Machine { slots: 3, memory: 0 });
        assert_eq!([room.take(one), room.take(one), room.take(one)], [SlotId(0), SlotId(1), SlotId(2)]);
        room.give(one, SlotId(2));
        room.give(one, SlotId(0));
        assert_eq!(room.take(one), SlotId(0));
    }

    #[test]
    fn what_is_lent_is_given_back_before_anything_is_free() {
        let one = Needs { cpus: 1, memory: 0 };
        let mut room = Room::new(Machine { slots: 1, memory: 0 });
        let first = room.take(one);
        assert!(!room.fits_lent(one, 0) && room.fits_lent(one, 1));
        let second = room.take(one);
        assert_eq!((first, second), (SlotId(0), SlotId(1)));
        assert!(!room.fits_lent(one, 1), "it is lent once");
        room.give(one, first);
        assert!(!room.fits(one), "the other still runs");
        room.give(one, second);
        assert!(room.fits(one));
    }

    #[test]
    fn memory_that_is_taken_is_not_there_twice() {
        let needs = Needs { cpus: 1, memory: 6 };
        let mut room = Room::new(Machine { slots: 2, memory: 10 });
        let slot = room.take(needs);
        assert!(!room.fits(needs));
        room.give(needs, slot);
        assert!(room.fits(needs));
    }
}
