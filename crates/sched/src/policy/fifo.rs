//! First come, first served: the highest priority first, on the least loaded worker.
//!
//! If the first task does not fit, later ones that fit may overtake it, a limited number of times.

use super::queue::ReadyQueue;
use super::{Assignment, ClusterView, LOOK_AHEAD, QueuedTask, SchedulingPolicy};
use crate::resources::{SlotId, WorkerId};
use crate::workers::Workers;
use flow::TaskId;

/// First come, first served.
#[derive(Debug, Default)]
pub struct FifoPolicy(ReadyQueue);

impl SchedulingPolicy for FifoPolicy {
    fn add(&mut self, task: QueuedTask) {
        self.0.add(task);
    }

    fn choose(&mut self, view: &ClusterView) -> Option<Assignment> {
        if !view.workers.has_free() {
            return None;
        }
        if let Some(urgent) = self.0.choose_urgent(view) {
            return Some(urgent);
        }
        let queue = &self.0;
        let found = queue.first(LOOK_AHEAD).find_map(|task| {
            let (worker, slot) = queue.fit_anywhere(task, view)?;
            Some(Assignment { task: task.id, worker, slot, reason: queue.plain_reason(task) })
        });
        found.or_else(|| self.0.choose_hard(None, view))
    }

    fn assign(&self, task: TaskId, view: &ClusterView) -> Option<Assignment> {
        self.0.assign(task, std::iter::empty(), view)
    }

    fn start(&mut self, assignment: &Assignment, _: SlotId, chosen: bool, workers: &Workers) {
        self.0.start(assignment, chosen, workers, |_| true);
    }

    fn remove(&mut self, task: TaskId) {
        self.0.remove(task);
    }

    fn relocate(&mut self, _: QueuedTask) {}

    fn on_free(&mut self, worker: WorkerId, workers: &Workers) {
        self.0.wake(worker, workers);
    }

    fn on_worker_gone(&mut self, worker: WorkerId, workers: &Workers) -> Vec<TaskId> {
        self.0.on_worker_gone(worker, workers)
    }

    fn uses_places(&self) -> bool {
        false
    }

    fn take_unlocatable(&mut self, workers: &Workers) -> Vec<TaskId> {
        self.0.take_unlocatable(workers)
    }

    fn is_reserved(&self, worker: WorkerId) -> bool {
        self.0.is_reserved(worker)
    }

    fn get(&self, task: TaskId) -> Option<&QueuedTask> {
        self.0.get(task)
    }

    fn ahead_of(&self, task: TaskId) -> Option<usize> {
        self.0.ahead_of(task)
    }
}
