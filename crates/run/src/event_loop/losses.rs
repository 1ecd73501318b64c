//! Events of the executor: workers that join and are lost, and what their loss means.

use super::EventLoop;
use crate::event::RunEvent;
use crate::executor::ExecutorEvent;
use crate::recorder::EndedAttempt;
use sched::{AttemptId, PlaceId, SchedulerEvent, WorkerId};
use std::collections::HashSet;

impl EventLoop<'_> {
    pub(super) fn on_executor(&mut self, event: ExecutorEvent) {
        match event {
            ExecutorEvent::Ended(outcome) => self.on_outcome(*outcome),
            ExecutorEvent::Joined { worker, place, node, capacity, name, inputs } => {
                self.recorder.joined(worker, name, capacity.slots);
                self.context.places.add_worker(worker, place, node);
                for data in inputs {
                    let bytes = self.scheduler.bytes_of(data);
                    self.send_event(SchedulerEvent::Located { data, place, bytes });
                }
                self.send_event(SchedulerEvent::AddWorker { worker, place, capacity });
            }
            ExecutorEvent::Resized { worker, slots } => {
                self.recorder.resized(worker, slots);
                self.context.places.set_leaving(worker, slots == 0);
                self.send_event(SchedulerEvent::ResizeWorker { worker, slots });
            }
            ExecutorEvent::Copies { place, copies } => self.on_copies(place, copies),
            ExecutorEvent::Lost { worker, why } => self.on_lost(worker, &why),
            ExecutorEvent::Warning(text) => self.warn(text),
            ExecutorEvent::Failed(text) => {
                self.recorder.executor_failed(text.clone());
                self.warn(text);
                self.cancel.cancel();
                let workers: HashSet<WorkerId> = self.running.values().map(|running| running.worker).collect();
                for worker in workers {
                    self.lose(worker);
                }
            }
        }
    }

    pub(super) fn warn(&mut self, text: String) {
        (self.on_event)(&RunEvent::Warning(text.clone()));
        self.recorder.warning(text);
    }

    /// A worker is gone: its attempts will not end, and what they wrote is gone with its node.
    fn on_lost(&mut self, worker: WorkerId, why: &str) {
        let text = format!("{} is lost: {why}; its tasks run again", self.recorder.worker_name(worker));
        self.warn(text);
        self.lose(worker);
    }

    fn lose(&mut self, worker: WorkerId) {
        let lost: Vec<AttemptId> =
            self.running.iter().filter(|(_, running)| running.worker == worker).map(|(attempt, _)| *attempt).collect();
        for attempt in lost {
            self.running.remove(&attempt);
            self.recorder.attempt_lost(attempt.task, worker);
        }
        self.recorder.worker_lost(worker);
        if let Some(place) = self.context.places.place_of_worker(worker) {
            self.lose_copies(place);
        }
        for data in self.context.places.lose(worker) {
            // It is exported when it is there again.
            let leaving = self.leaving.remove(&data);
            if let (Some(true), Some(files)) = (leaving, &self.context.files) {
                files.retract_removal(self.scheduler.bytes_of(data));
            }
            self.drop_copies(data);
            let needed = leaving.is_some();
            self.send_event(SchedulerEvent::LostData { data, needed });
        }
        self.send_event(SchedulerEvent::LostWorker(worker));
        self.release_held();
    }

    /// Goes on with failed attempts whose inputs are at hosts that have been heard since, or are
    /// lost by now.
    pub(super) fn release_held(&mut self) {
        for attempt in std::mem::take(&mut self.held) {
            self.attempt_ended(attempt);
        }
    }

    /// Returns whether a failed attempt may have failed because the node of an input or of its
    /// directory is gone. That is known when the node's host has been heard after the failure.
    pub(super) fn is_doubtful(&self, id: AttemptId, ended: &EndedAttempt) -> bool {
        let own = self.running.get(&id).and_then(|running| running.place.node).map(|node| PlaceId(node.0));
        let inputs = self.context.flow.inputs(id.task).filter_map(|data| self.context.places.of(data));
        let mut places = own.into_iter().chain(inputs);
        !self.cancel.is_cancelled() && places.any(|place| self.executor.is_silent_since(place, ended.ended))
    }
}
