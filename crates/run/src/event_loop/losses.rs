//! Events of the executor: workers that join and are lost, and what their loss means.

use super::{EventLoop, OngoingPlan, joined};
use crate::checked_workflow::CheckedWorkflow;
use crate::event::RunEvent;
use crate::executor::ExecutorEvent;
use crate::host_runner::AttemptKey;
use crate::layout::AttemptPlace;
use crate::outcome::{AttemptFailure, AttemptOutcome};
use crate::recorder::EndedAttempt;
use crate::run_files::RunFiles;
use flow::DataId;
use report::ReasonKind;
use sched::{AttemptId, PlaceId, SchedulerEvent, WorkerId};
use std::collections::{BTreeSet, HashSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// The end of an event loop.
#[derive(Debug)]
pub struct LoopEnd {
    /// The workflow, as far as it has grown.
    pub flow: Arc<CheckedWorkflow>,
    /// The run's files in the pool.
    pub files: Option<RunFiles>,
    /// The plan, which may go on in another pool.
    pub plan: OngoingPlan,
    /// Why the pool is lost, if it is: the tasks that are not done need another one.
    pub lost: Option<String>,
    /// True if a task was done.
    pub progressed: bool,
}

impl EventLoop<'_> {
    /// Begins when the workers that are there have joined: attempts that they run go on before
    /// anything starts.
    pub(super) async fn begin(&mut self) {
        loop {
            let executor = &mut *self.executor;
            let event = poll_fn(|context| Poll::Ready(executor.poll_event(context))).await;
            match event {
                Poll::Ready(joined @ ExecutorEvent::Joined { .. }) => self.on_executor(joined),
                other => {
                    self.send_event(SchedulerEvent::Begin);
                    if let Poll::Ready(event) = other {
                        self.on_executor(event);
                    }
                    return;
                }
            }
        }
    }

    pub(super) fn on_executor(&mut self, event: ExecutorEvent) {
        match event {
            ExecutorEvent::Ended(outcome) => self.on_outcome(*outcome),
            ExecutorEvent::Joined { worker, place, node, capacity, name, agent, runs, inputs } => {
                for former in self.recorder.former_workers(&name) {
                    self.scheduler.replace_worker(former, worker);
                }
                self.recorder.joined(worker, name, capacity.slots, agent);
                self.context.places.add_worker(worker, place, node);
                for data in &inputs {
                    let (data, bytes) = (*data, self.scheduler.bytes_of(*data));
                    self.send_event(SchedulerEvent::Located { data, place, bytes });
                }
                self.context.places.add_inputs(place, inputs);
                // Others were recorded as ended, or their tasks have had another attempt since.
                let running = &self.context.settled.running;
                let is_known =
                    |(task, attempt): &AttemptKey| running.get(task).is_some_and(|run| run.attempt == *attempt);
                let runs = runs.into_iter().filter(is_known).map(|(task, attempt)| AttemptId { task, attempt });
                let runs = runs.collect();
                self.send_event(SchedulerEvent::AddBusyWorker { worker, place, capacity, runs });
            }
            ExecutorEvent::Resized { worker, slots } => {
                self.recorder.resized(worker, slots);
                self.context.places.set_leaving(worker, slots == 0);
                self.send_event(SchedulerEvent::ResizeWorker { worker, slots });
            }
            ExecutorEvent::Copies { place, copies } => self.on_copies(place, copies),
            ExecutorEvent::Released { worker } => self.on_released(worker),
            ExecutorEvent::Lost { worker, why } => self.on_lost(worker, &why),
            ExecutorEvent::Warning(text) => self.warn(text),
            ExecutorEvent::PoolLost(why) if !self.cancel.is_cancelled() => self.lost = Some(why),
            ExecutorEvent::PoolLost(text) | ExecutorEvent::Failed(text) => {
                self.recorder.give_up(text.clone());
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
            let needed = leaving.is_some() || self.reads.contains(&data);
            self.send_event(SchedulerEvent::LostData { data, needed });
        }
        self.send_event(SchedulerEvent::LostWorker(worker));
        self.release_held();
    }

    /// Gives up what goes on in a pool that is lost. Exports that find their bytes all the same
    /// count; others fail soon.
    pub(super) async fn leave_pool(&mut self) {
        if self.lost.is_none() {
            return;
        }
        self.context.files.iter().for_each(RunFiles::give_up);
        while let Some(exported) = self.exporting.join_next().await {
            let exported = joined(exported);
            if exported.result.is_ok() {
                self.export_ended(exported);
            }
        }
        while self.keeping.join_next().await.is_some() {}
        let mut tasks = BTreeSet::new();
        for (AttemptId { task, .. }, running) in std::mem::take(&mut self.running) {
            if !running.superseded && tasks.insert(task) {
                self.recorder.attempt_lost(task, running.worker);
                self.retry(task);
            }
        }
        self.recorder.pool_lost();
    }

    /// Goes on with failed attempts, exports and reads whose hosts have been heard since, or are
    /// lost by now.
    pub(super) fn release_held(&mut self) {
        for attempt in std::mem::take(&mut self.held) {
            self.attempt_ended(attempt);
        }
        for exported in std::mem::take(&mut self.held_exports) {
            self.export_ended(exported);
        }
        for read in std::mem::take(&mut self.held_reads) {
            self.read_ended(read);
        }
    }

    /// Returns whether a failed attempt may have failed because the node of an input or of its
    /// directory is gone. That is known when the node's host has answered a beat that was sent
    /// after the failure: one of its own may have been under way when the node died.
    pub(super) fn is_doubtful(&mut self, id: AttemptId, ended: &EndedAttempt) -> bool {
        let own = self.running.get(&id).and_then(|running| running.place.node).map(|node| PlaceId(node.0));
        let inputs = self.context.flow.inputs(id.task).flat_map(|data| self.places_of(data));
        let places: Vec<PlaceId> = own.into_iter().chain(inputs).collect();
        !self.cancel.is_cancelled() && self.executor.is_silent_since(&places, ended.ended)
    }

    /// Refuses the success of an attempt if an input was lost while it ran and a node did not
    /// answer: a tool that goes on after an error may have read a part.
    pub(super) fn doubt_success(&self, place: AttemptPlace, outcome: &mut AttemptOutcome) {
        if !outcome.unanswered || outcome.result.is_err() || !self.scheduler.is_deprived(outcome.task) {
            return;
        }
        let text = "an input was lost while it ran, so what it read may be incomplete";
        outcome.result = Err(AttemptFailure::new(ReasonKind::NotStarted, text));
        if let Some(files) = &self.context.files {
            files.remove_attempt(outcome.task, place);
        }
    }

    /// Returns the same for an export or a read of a member that failed at `ended`.
    pub(super) fn is_doubtful_at(&mut self, data: DataId, ended: Instant) -> bool {
        let places = self.places_of(data);
        !self.cancel.is_cancelled() && self.executor.is_silent_since(&places, ended)
    }
}
