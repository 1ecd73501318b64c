//! The pool of a run that grows and shrinks by itself: what happens to it, and what it is told.

use super::EventLoop;
use crate::elastic_run::{ElasticLink, describe};
use crate::event::RunEvent;
use pool::{ElasticEvent, ForeseenUse};
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
}
