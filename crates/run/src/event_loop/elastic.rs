//! The pool of a run that grows and shrinks by itself: what happens to it, and what it is told.

use super::EventLoop;
use crate::elastic_run::{ElasticLink, describe};
use crate::event::RunEvent;
use flow::{DataId, TaskId};
use pool::{ElasticEvent, ForeseenUse};
use sched::{PlaceId, SchedulerEvent, WorkerId};
use std::future::pending;
use std::time::{Duration, Instant};

/// Interval of looks ahead.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The next event of the pool; never returns without such a pool.
pub async fn next_event(link: &mut Option<ElasticLink>) -> ElasticEvent {
    if let Some(link) = link
        && let Some(event) = link.events.recv().await
    {
        return event;
    }
    pending().await
}

impl EventLoop<'_> {
    /// Tells the user what happens to the pool.
    pub(super) fn on_elastic(&mut self, event: &ElasticEvent) {
        if let Some(link) = &mut self.context.elastic {
            match event {
                ElasticEvent::Failed(_) => link.is_stuck = true,
                ElasticEvent::Joined(_) => link.is_stuck = false,
                _ => {}
            }
        }
        let (text, is_usual) = describe(event);
        if is_usual {
            (self.on_event)(&RunEvent::Pool(text));
        } else {
            self.warn(text);
        }
    }

    /// Tells the pool what the workflow will use.
    pub(super) fn foresee(&mut self) {
        let Some(link) = &self.context.elastic else { return };
        if self.foreseen.is_some_and(|last| last.elapsed() < LOOK_INTERVAL) {
            return;
        }
        self.foreseen = Some(Instant::now());
        let sched::ForeseenBytes { soon, ever } = self.scheduler.foresee();
        *link.foreseen.lock() = Some(ForeseenUse { soon, ever });
    }

    /// The memory that the pool may come to have, bytes: tasks start as if it had grown already. 0
    /// if it does not grow by itself, or could not the last time.
    pub(super) fn potential(&self) -> u64 {
        self.context.elastic.as_ref().filter(|link| !link.is_stuck).map_or(0, |link| link.potential)
    }

    /// The bytes that a task is to find at the node where its directory is made. Where the pool
    /// grows, its task goes to a node that has them; elsewhere it waits for those that go.
    pub(super) fn bytes_for_node(&self, task: TaskId) -> u64 {
        self.context.elastic.as_ref().map_or(0, |_| self.scheduler.expected_bytes(task))
    }

    /// A worker is released: what lay at its host's node lies at others now.
    pub(super) fn on_released(&mut self, worker: WorkerId) {
        self.recorder.worker_lost(worker);
        let Some(place) = self.context.places.place_of_worker(worker) else { return };
        self.lose_copies(place);
        for data in self.context.places.lose(worker) {
            self.send_event(SchedulerEvent::Unlocated { data, place });
        }
        self.send_event(SchedulerEvent::LostWorker(worker));
        if let Some(files) = &self.context.files {
            files.remove_copies_at(placement::NodeId(place.0));
        }
    }

    /// Places that a member may lie at. In a pool that grows and shrinks by itself, parts of it may
    /// have moved to any.
    pub(super) fn places_of(&self, data: DataId) -> Vec<PlaceId> {
        let places = &self.context.places;
        match self.context.elastic {
            Some(_) => places.nodes().collect(),
            None => places.of(data).into_iter().collect(),
        }
    }
}
