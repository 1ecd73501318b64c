//! Copies of data at the nodes of hosts: which are made, who hears of them, and when they go.

use super::{EventLoop, LoopContext};
use crate::host_copies::{CopyChanges, UnusedCopies, mark_shared};
use crate::order::AttemptOrder;
use flow::{DataId, TaskId};
use report::ReadBytes;
use sched::{PlaceId, SchedulerEvent, WorkerId};

impl EventLoop<'_> {
    /// Marks the inputs of an order of which the worker's host should make copies.
    pub(super) fn mark_shared(&self, worker: WorkerId, order: &mut AttemptOrder) {
        let Some(place) = self.context.places.place_of_worker(worker) else { return };
        let known = |data: DataId| {
            let is_elsewhere = self.context.places.of(data) != Some(place);
            is_elsewhere.then(|| (self.scheduler.bytes_of(data), self.scheduler.readers_left(data)))
        };
        mark_shared(&mut order.inputs, &known);
    }

    /// A place has other copies than before.
    pub(super) fn on_copies(&mut self, place: PlaceId, copies: Vec<(DataId, u64)>) {
        let CopyChanges { added, removed } = self.context.places.copies.update(place, copies);
        for data in added {
            let bytes = self.scheduler.bytes_of(data);
            self.send_event(SchedulerEvent::Located { data, place, bytes });
        }
        self.unlocate(place, removed);
    }

    /// A place is lost with its copies.
    pub(super) fn lose_copies(&mut self, place: PlaceId) {
        let lost = self.context.places.copies.lose(place);
        self.unlocate(place, lost);
    }

    fn unlocate(&mut self, place: PlaceId, removed: Vec<DataId>) {
        for data in removed {
            // A member that was lost and made again may lie there itself.
            if self.context.places.of(data) != Some(place) {
                self.send_event(SchedulerEvent::Unlocated { data, place });
            }
        }
    }

    /// Lets the copies of a member go that nobody will read any more.
    pub(super) fn drop_copies(&mut self, data: DataId) {
        for place in self.context.places.copies.places_of(data) {
            self.executor.drop_copies(place, UnusedCopies { data: vec![data], tools: None });
        }
    }

    /// Lets the copies go that a lane leaves behind when a task starts there.
    pub(super) fn clean(&mut self, (worker, slot): (WorkerId, u32), task: TaskId) {
        let Some(place) = self.context.places.place_of_worker(worker) else { return };
        let LoopContext { flow, places, .. } = &mut self.context;
        let unused = places.copies.clean((place, slot), flow.inputs(task), &flow.tool_of(task).here);
        self.executor.drop_copies(place, unused);
    }

    /// Records where an attempt has its inputs from: as far as is known when it starts, or as its
    /// host told at its end which of them were `cached`.
    pub(super) fn record_reads(&mut self, task: TaskId, worker: WorkerId, cached: Option<&[DataId]>) {
        let places = &self.context.places;
        let Some(place) = places.place_of_worker(worker) else { return };
        let is_bound = |data: &DataId| self.context.files.as_ref().is_some_and(|files| files.bound(*data).is_some());
        let uses_own = places.has_inputs(place, self.context.flow.inputs(task).filter(is_bound));
        let mut reads = ReadBytes::default();
        for (data, bytes, is_near) in self.scheduler.inputs_at(task, place) {
            let is_copy = places.copies.has(place, data);
            let is_near = is_near && (uses_own || !is_bound(&data));
            let part = match cached.map_or(is_copy, |cached| cached.contains(&data)) {
                true => &mut reads.cached,
                // The attempt itself had the copy made.
                false if is_copy || !is_near => &mut reads.remote,
                false => &mut reads.local,
            };
            *part += bytes;
        }
        self.recorder.reads(task, reads);
    }
}
