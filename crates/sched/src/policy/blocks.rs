//! Blocks of the queue: neighbours that run at one place.
//!
//! Where no place is better than another for tasks, neighbours in the queue should still run at one
//! place, because they often have readers in common, which then find their inputs together. So each
//! place works on a *block*: a range of the queue, from its front on. Blocks are made when they are
//! needed (lazy binary splitting: Tzannes and others, 2010): a place without a block takes its
//! share of the tasks that are in none, or else the second half of the largest block.
//!
//! A block is a range of numbers in the order of arrival, so it is divided without counting its
//! tasks. It contains tasks of one priority. Tasks are in no block if they come last (the *rest*),
//! or if they come back to a part of the queue that was done.
//!
//! It does not know which tasks fit, and which places are idle.

use super::queue::QueueOrder;
use crate::resources::PlaceId;
use flow::TaskId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A range of the queue, up to but without `end`, at which one place works.
#[derive(Debug, Clone, Copy)]
struct Block {
    end: u64,
    place: PlaceId,
}

/// The blocks of one priority. They do not overlap.
#[derive(Debug, Default)]
struct BlockMap {
    /// The blocks by their starts.
    all: BTreeMap<u64, Block>,
    /// The start of each place's block.
    of_place: HashMap<PlaceId, u64>,
    /// The lengths and starts of all blocks.
    lengths: BTreeSet<(u64, u64)>,
    /// The start of the part of the queue that no place has taken yet.
    rest: u64,
}

impl BlockMap {
    fn insert(&mut self, start: u64, end: u64, place: PlaceId) {
        self.all.insert(start, Block { end, place });
        self.of_place.insert(place, start);
        self.lengths.insert((end - start, start));
    }

    fn remove(&mut self, start: u64) -> Option<Block> {
        let block = self.all.remove(&start)?;
        self.of_place.remove(&block.place);
        self.lengths.remove(&(block.end - start, start));
        Some(block)
    }
}

/// The tasks for which no place is better than another, in blocks.
#[derive(Debug, Default)]
pub struct Blocks {
    tasks: BTreeMap<QueueOrder, TaskId>,
    /// The blocks by priority.
    maps: HashMap<i32, BlockMap>,
}

impl Blocks {
    /// Adds a task.
    pub fn insert(&mut self, order: QueueOrder, task: TaskId) {
        let (Reverse(priority), number) = order;
        if self.ends_of(priority, 0, u64::MAX).is_none() {
            self.maps.insert(priority, BlockMap { rest: number, ..BlockMap::default() });
        }
        self.tasks.insert(order, task);
    }

    /// Removes a task; returns whether it was there.
    pub fn remove(&mut self, order: QueueOrder) -> bool {
        self.tasks.remove(&order).is_some()
    }

    /// Returns whether a task is there.
    pub fn contains(&self, order: QueueOrder) -> bool {
        self.tasks.contains_key(&order)
    }

    /// The first tasks, in the order of the queue.
    pub fn first(&self, most: usize) -> impl Iterator<Item = TaskId> + '_ {
        self.tasks.values().take(most).copied()
    }

    /// The place in whose block the task is.
    pub fn place_of(&self, (Reverse(priority), number): QueueOrder) -> Option<PlaceId> {
        let (_, block) = self.maps.get(&priority)?.all.range(..=number).next_back()?;
        (number < block.end).then_some(block.place)
    }

    /// Returns whether no place has taken a part of the queue that contains the task or comes after
    /// it.
    fn is_in_rest(&self, (Reverse(priority), number): QueueOrder) -> bool {
        self.maps.get(&priority).is_none_or(|map| number >= map.rest)
    }

    /// The first tasks of the block of a place that has room for `first`, the first task of the
    /// queue that starts now; the place takes a block if it has none. There are `places` places.
    /// `first` comes alone if it belongs to no block.
    pub fn neighbours(&mut self, first: QueueOrder, place: PlaceId, places: u32, most: usize) -> Vec<TaskId> {
        if self.place_of(first).is_none() && !self.is_in_rest(first) {
            return self.tasks.get(&first).copied().into_iter().collect();
        }
        let Reverse(priority) = first.0;
        if !self.advance(priority, place) {
            self.take_block(priority, place, places);
        }
        let Some(map) = self.maps.get(&priority) else { return Vec::new() };
        let Some(start) = map.of_place.get(&place) else { return Vec::new() };
        let range = (Reverse(priority), *start)..(Reverse(priority), map.all[start].end);
        self.tasks.range(range).take(most).map(|(_, task)| *task).collect()
    }

    /// Lets the block of a place begin at its first task; returns whether there is one.
    fn advance(&mut self, priority: i32, place: PlaceId) -> bool {
        let Some(map) = self.maps.get_mut(&priority) else { return false };
        let Some(start) = map.of_place.get(&place).copied() else { return false };
        let block = map.all[&start];
        let mut left = self.tasks.range((Reverse(priority), start)..(Reverse(priority), block.end));
        let first = left.next().map(|((_, number), _)| *number);
        if first != Some(start) {
            map.remove(start);
            if let Some(first) = first {
                map.insert(first, block.end, place);
            }
        }
        first.is_some()
    }

    /// Gives a place that has no block its share of the rest, or else half of the largest block.
    fn take_block(&mut self, priority: i32, place: PlaceId, places: u32) {
        let Some(map) = self.maps.get(&priority) else { return };
        let Some((first, end)) = self.ends_of(priority, map.rest, u64::MAX) else {
            return self.split_largest(priority, place);
        };
        let map = self.maps.get_mut(&priority).expect("it is there");
        let without = places.saturating_sub(u32::try_from(map.of_place.len()).unwrap_or(u32::MAX));
        let share = (end - first).div_ceil(u64::from(without.max(1)));
        map.rest = first + share;
        map.insert(first, first + share, place);
    }

    fn split_largest(&mut self, priority: i32, place: PlaceId) {
        while let Some((_, start)) = self.maps.get(&priority).and_then(|map| map.lengths.last().copied()) {
            let map = self.maps.get_mut(&priority).expect("it is there");
            let block = map.remove(start).expect("it is there");
            let Some((first, end)) = self.ends_of(priority, start, block.end) else { continue };
            let middle = first + (end - first) / 2;
            let map = self.maps.get_mut(&priority).expect("it is there");
            if first < middle {
                map.insert(first, middle, block.place);
            }
            return map.insert(middle, end, place);
        }
    }

    /// The number of the first task of a range of the queue, and the number after that of the last
    /// one.
    fn ends_of(&self, priority: i32, start: u64, end: u64) -> Option<(u64, u64)> {
        let mut tasks = self.tasks.range((Reverse(priority), start)..(Reverse(priority), end));
        let ((_, first), _) = tasks.next()?;
        let last = tasks.next_back().map_or(*first, |((_, last), _)| *last);
        Some((*first, last + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: u32 = 2;

    fn order(number: u64) -> QueueOrder {
        (Reverse(0), number)
    }

    /// Blocks of tasks 0..count, whose numbers are those of their arrival.
    fn blocks(count: u32) -> Blocks {
        let mut blocks = Blocks::default();
        (0..count).for_each(|task| blocks.insert(order(task.into()), TaskId(task)));
        blocks
    }

    /// Starts the next task at a place; returns its number.
    fn start(blocks: &mut Blocks, place: u32) -> Option<u32> {
        let first = *blocks.tasks.first_key_value()?.0;
        let task = *blocks.neighbours(first, PlaceId(place), PLACES, 1).first()?;
        blocks.remove(order(task.0.into()));
        Some(task.0)
    }

    #[test]
    fn each_place_gets_a_part_of_the_queue_and_then_half_of_what_the_other_has_left() {
        let mut blocks = blocks(12);
        assert_eq!([0, 1, 0, 1].map(|place| start(&mut blocks, place)), [0, 6, 1, 7].map(Some));
        // Place 1 is quicker. Of 2 to 5 it takes 4 and 5, and then of 2 and 3 the second.
        assert_eq!([(); 7].map(|()| start(&mut blocks, 1)), [8, 9, 10, 11, 4, 5, 3].map(Some));
        assert_eq!([1, 0].map(|place| start(&mut blocks, place)), [Some(2), None]);
    }

    #[test]
    fn tasks_that_come_later_are_taken_before_blocks_are_divided() {
        let mut blocks = blocks(4);
        assert_eq!([0, 1].map(|place| start(&mut blocks, place)), [0, 2].map(Some));
        blocks.insert(order(4), TaskId(4));
        assert_eq!([1, 1, 1].map(|place| start(&mut blocks, place)), [3, 4, 1].map(Some));
    }

    #[test]
    fn a_task_that_comes_back_to_a_part_that_was_done_goes_first() {
        let mut blocks = blocks(4);
        assert_eq!([0, 0].map(|place| start(&mut blocks, place)), [0, 1].map(Some));
        start(&mut blocks, 0);
        blocks.insert(order(0), TaskId(0));
        assert_eq!(blocks.place_of(order(0)), None);
        assert_eq!(start(&mut blocks, 1), Some(0));
    }

    #[test]
    fn priorities_have_blocks_of_their_own() {
        let mut blocks = blocks(4);
        start(&mut blocks, 0);
        blocks.insert((Reverse(1), 4), TaskId(4));
        assert_eq!(blocks.neighbours((Reverse(1), 4), PlaceId(0), PLACES, 8), [TaskId(4)]);
        assert_eq!(blocks.place_of((Reverse(1), 4)), Some(PlaceId(0)));
        assert_eq!(blocks.place_of(order(1)), Some(PlaceId(0)));
    }

    #[test]
    fn every_task_is_started_once_by_whatever_places() {
        let mut random = test_support::Random::new(5);
        for _ in 0..200 {
            let count = 1 + random.below(60_u32);
            let (mut blocks, mut started) = (blocks(count / 2), BTreeSet::new());
            let mut next = count / 2;
            while started.len() < count as usize {
                if next < count && random.below(2_u32) == 0 {
                    blocks.insert(order(next.into()), TaskId(next));
                    next += 1;
                }
                if let Some(task) = start(&mut blocks, random.below(5_u32)) {
                    assert!(started.insert(task), "{task} started before");
                } else {
                    assert!(blocks.tasks.is_empty());
                }
            }
        }
    }
}
