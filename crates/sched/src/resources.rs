//! The resources of one worker, those that are free, and the lanes that running tasks occupy.

/// A worker: it runs tasks. Numbers are dense, from 0, and never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

/// A place that stores data: the node of the pool on a host. Several workers may share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaceId(pub u32);

/// The lane of a running task on its worker, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// The resources that all running tasks of a worker share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MachineCapacity {
    /// The number of processors.
    pub slots: u32,
    /// The memory for tasks in bytes, without that of the pool.
    pub memory: u64,
}

impl MachineCapacity {
    /// Returns whether an idle machine of this capacity can run a task with this demand.
    pub fn holds(&self, demand: Demand) -> bool {
        self.slots >= demand.cpus && self.memory >= demand.memory
    }
}

/// The resources that one task takes while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// The number of processors, at least 1.
    pub cpus: u32,
    /// The memory in bytes; 0 if it is not accounted.
    pub memory: u64,
}

/// The lanes in which tasks run: a bit for each lane.
#[derive(Debug, Clone, Default)]
struct LaneSet {
    /// Lanes 0 to 63.
    first: u64,
    /// The further ones, 64 in each number.
    further: Vec<u64>,
}

impl LaneSet {
    /// The smallest free lane.
    fn first_free(&self) -> SlotId {
        let mut words = (0..).zip(std::iter::once(self.first).chain(self.further.iter().copied()));
        let free = words.find_map(|(word, taken)| (taken != u64::MAX).then(|| 64 * word + taken.trailing_ones()));
        SlotId(free.unwrap_or_else(|| 64 + 64 * u32::try_from(self.further.len()).expect("lanes are few")))
    }

    fn is_free(&self, SlotId(lane): SlotId) -> bool {
        let word = lane as usize / 64;
        let taken = if word == 0 { Some(&self.first) } else { self.further.get(word - 1) };
        taken.is_none_or(|taken| taken >> (lane % 64) & 1 == 0)
    }

    fn take(&mut self, slot: SlotId) {
        *self.word(slot) |= 1 << (slot.0 % 64);
    }

    fn free(&mut self, slot: SlotId) {
        *self.word(slot) &= !(1 << (slot.0 % 64));
    }

    fn word(&mut self, SlotId(lane): SlotId) -> &mut u64 {
        let word = lane as usize / 64;
        if word == 0 {
            return &mut self.first;
        }
        if word > self.further.len() {
            self.further.resize(word, 0);
        }
        &mut self.further[word - 1]
    }
}

/// The resources that are free now.
#[derive(Debug, Clone)]
pub struct FreeResources {
    machine: MachineCapacity,
    cpus: u32,
    /// The number of processors that running tasks take beyond those of the machine. Tasks that
    /// wait for space lend them.
    lent: u32,
    /// The number of processors of tasks that were sent ahead and wait. While it is not 0, none is
    /// free.
    ahead: u32,
    memory: u64,
    lanes: LaneSet,
}

impl FreeResources {
    /// The resources of an idle machine.
    pub fn new(machine: MachineCapacity) -> Self {
        let (cpus, memory) = (machine.slots, machine.memory);
        Self { machine, cpus, lent: 0, ahead: 0, memory, lanes: LaneSet::default() }
    }

    /// Changes the number of processors. Running tasks that take more lend the rest to each other;
    /// tasks that were sent ahead take what is free.
    pub(crate) fn resize(&mut self, slots: u32) {
        let taken = self.machine.slots - self.cpus + self.lent;
        self.machine.slots = slots;
        let free = slots.saturating_sub(taken);
        let passed = self.ahead.min(free);
        (self.cpus, self.ahead) = (free - passed, self.ahead - passed);
        self.lent = taken.saturating_sub(slots);
    }

    /// The total resources of the machine.
    pub fn machine(&self) -> MachineCapacity {
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
    pub fn fits(&self, demand: Demand) -> bool {
        demand.cpus <= self.cpus && demand.memory <= self.memory
    }

    /// Returns whether a task with these needs can start now if tasks that wait for space lend
    /// `lendable` processors in all.
    pub(crate) fn fits_borrowed(&self, demand: Demand, lendable: u32) -> bool {
        demand.memory <= self.memory && self.lent + self.missing(demand) <= lendable
    }

    /// The number of processors that a task with these needs would borrow.
    pub(crate) fn missing(&self, demand: Demand) -> u32 {
        demand.cpus.saturating_sub(self.cpus)
    }

    /// The number of processors that are lent.
    pub(crate) fn lent(&self) -> u32 {
        self.lent
    }

    /// The number of processors of tasks that wait at the worker for others to end.
    pub(crate) fn ahead(&self) -> u32 {
        self.ahead
    }

    /// Adds a free processor that a task which is sent ahead may take, until `withdraw`.
    pub(crate) fn offer(&mut self) {
        self.cpus += 1;
    }

    /// Removes the free processor that `offer` added.
    pub(crate) fn withdraw(&mut self) {
        self.cpus -= 1;
    }

    /// The smallest free lane.
    pub(crate) fn first_lane(&self) -> SlotId {
        self.lanes.first_free()
    }

    /// Returns whether no task runs in this lane.
    pub(crate) fn is_free_lane(&self, slot: SlotId) -> bool {
        self.lanes.is_free(slot)
    }

    /// Takes the resources of a starting task, and a free lane: `slot`, or else the smallest one.
    /// Processors that are not free are borrowed from tasks that wait for space.
    pub(crate) fn acquire(&mut self, demand: Demand, slot: Option<SlotId>) -> SlotId {
        assert!(demand.cpus > 0 && demand.memory <= self.memory, "a task starts only where it fits");
        let missing = demand.cpus.saturating_sub(self.cpus);
        self.lent += missing;
        assert!(self.lent <= self.machine.slots, "no more processors are lent than the machine has");
        self.cpus -= demand.cpus - missing;
        self.occupy(demand, slot)
    }

    /// Takes the memory of a task that is sent ahead, and a lane, as [`FreeResources::acquire`]
    /// does. Its processors are those of tasks that end.
    pub(crate) fn acquire_ahead(&mut self, demand: Demand, slot: Option<SlotId>) -> SlotId {
        assert!(demand.cpus > 0 && demand.memory <= self.memory, "a task is sent only where it fits");
        self.ahead += demand.cpus;
        self.occupy(demand, slot)
    }

    fn occupy(&mut self, demand: Demand, slot: Option<SlotId>) -> SlotId {
        self.memory -= demand.memory;
        let slot = slot.unwrap_or_else(|| self.first_lane());
        assert!(self.is_free_lane(slot), "a lane has one task");
        self.lanes.take(slot);
        slot
    }

    /// Returns the resources of an ended task: its processors first to tasks that were sent ahead,
    /// then to tasks that lent some.
    pub(crate) fn release(&mut self, demand: Demand, slot: SlotId) {
        let passed = self.ahead.min(demand.cpus);
        self.ahead -= passed;
        let returned = self.lent.min(demand.cpus - passed);
        self.lent -= returned;
        self.cpus += demand.cpus - passed - returned;
        self.memory += demand.memory;
        self.lanes.free(slot);
        assert!(
            self.cpus <= self.machine.slots && self.memory <= self.machine.memory,
            "no more is released than was acquired"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_free_lane_is_taken() {
        let one = Demand { cpus: 1, memory: 0 };
        let mut resources = FreeResources::new(MachineCapacity { slots: 3, memory: 0 });
        assert_eq!(
            [resources.acquire(one, None), resources.acquire(one, None), resources.acquire(one, None)],
            [SlotId(0), SlotId(1), SlotId(2)]
        );
        resources.release(one, SlotId(2));
        resources.release(one, SlotId(0));
        assert_eq!(resources.acquire(one, None), SlotId(0));
    }

    #[test]
    fn a_named_lane_is_taken_and_those_below_it_stay_free() {
        let one = Demand { cpus: 1, memory: 0 };
        let mut resources = FreeResources::new(MachineCapacity { slots: 3, memory: 0 });
        assert_eq!(resources.acquire(one, Some(SlotId(2))), SlotId(2));
        assert!(resources.is_free_lane(SlotId(1)) && !resources.is_free_lane(SlotId(2)));
        assert_eq!([resources.acquire(one, None), resources.acquire(one, None)], [SlotId(0), SlotId(1)]);
    }

    #[test]
    fn lanes_above_63_are_as_the_others() {
        let machine = MachineCapacity { slots: 200, memory: 0 };
        let (one, mut resources) = (Demand { cpus: 1, memory: 0 }, FreeResources::new(machine));
        for lane in 0..200 {
            assert!(resources.is_free_lane(SlotId(lane)));
            assert_eq!(resources.acquire(one, None), SlotId(lane));
            assert!(!resources.is_free_lane(SlotId(lane)));
        }
        for lane in [64, 127, 128, 199] {
            resources.release(one, SlotId(lane));
            assert_eq!(resources.acquire(one, None), SlotId(lane));
        }
    }

    #[test]
    fn what_is_lent_is_given_back_before_anything_is_free() {
        let one = Demand { cpus: 1, memory: 0 };
        let mut resources = FreeResources::new(MachineCapacity { slots: 1, memory: 0 });
        let first = resources.acquire(one, None);
        assert!(!resources.fits_borrowed(one, 0) && resources.fits_borrowed(one, 1));
        let second = resources.acquire(one, None);
        assert_eq!((first, second), (SlotId(0), SlotId(1)));
        assert!(!resources.fits_borrowed(one, 1), "it is lent once");
        resources.release(one, first);
        assert!(!resources.fits(one), "the other still runs");
        resources.release(one, second);
        assert!(resources.fits(one));
    }

    #[test]
    fn a_machine_that_shrinks_starts_nothing_until_its_tasks_fit_again() {
        let one = Demand { cpus: 1, memory: 0 };
        let mut resources = FreeResources::new(MachineCapacity { slots: 3, memory: 0 });
        let slots = [0, 1, 2].map(|_| resources.acquire(one, None));
        resources.resize(1);
        for slot in &slots[..2] {
            assert!(!resources.fits(one));
            resources.release(one, *slot);
        }
        assert_eq!((resources.cpus(), resources.lent()), (0, 0));
        resources.resize(4);
        assert_eq!(resources.cpus(), 3, "one task runs");
        resources.release(one, slots[2]);
        assert_eq!(resources.cpus(), 4);
    }

    #[test]
    fn a_task_that_was_sent_ahead_takes_the_processor_of_the_next_that_ends() {
        let one = Demand { cpus: 1, memory: 4 };
        let mut resources = FreeResources::new(MachineCapacity { slots: 1, memory: 10 });
        let first = resources.acquire(one, None);
        let second = resources.acquire_ahead(one, None);
        assert_eq!((second, resources.ahead(), resources.memory()), (SlotId(1), 1, 2));
        resources.release(one, first);
        assert_eq!((resources.ahead(), resources.cpus()), (0, 0), "the second one runs");
        resources.release(one, second);
        assert_eq!((resources.cpus(), resources.memory()), (1, 10));
    }

    #[test]
    fn memory_that_is_taken_is_not_there_twice() {
        let demand = Demand { cpus: 1, memory: 6 };
        let mut resources = FreeResources::new(MachineCapacity { slots: 2, memory: 10 });
        let slot = resources.acquire(demand, None);
        assert!(!resources.fits(demand));
        resources.release(demand, slot);
        assert!(resources.fits(demand));
    }
}
