//! Work beside requests: one abstraction for all of it, and one list that tells what it did.
//!
//! ```text
//!   wait_for_work --> work --> WorkerRecord      a task for each worker, where the node is served
//!        ^----------------------------'
//!   request --> turn -------> WorkerRecord       the same work, when a request needs it done
//! ```
//!
//! A request that waits for space reclaims what it can, and a close demotes files that were closed
//! long before. A node in the process that uses it has only such turns: nobody runs its workers.

use crate::Node;
use parking_lot::Mutex;
use std::{
    fmt::Display,
    future::Future,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use store::PageChecks;
use wire::{Outcome, WorkerStatus};

/// The kinds of work beside requests; each has a row in `WORKERS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerKind {
    /// Moves the bytes of small, closed extent files to their inodes.
    Demotion,
    /// Frees the unwritten parts of huge pages.
    Thinning,
    /// Ends the opens whose descriptors nobody has any more.
    Leases,
    /// Ends the locks of processes that have ended.
    Locks,
    /// Removes the stripes of files that were deleted without a request of a client.
    Deletes,
    /// Does what other nodes need to know of this host, and it of them.
    Hosted,
    /// Removes the stripes of partitions that have left, and ends sessions that have ended
    /// elsewhere in those that have arrived, or whose clients have not come after them.
    Moves,
    /// Removes the stripes that belong to no file, of long and of ended sessions.
    Strays,
    /// Ends what a session had open, when its connection has ended.
    Sessions,
    /// Waits until nobody uses the memory and descriptors that a client that has ended had leased.
    Pins,
    /// Adds up recorded times, if metrics are served.
    Metrics,
}

/// A row of the list of workers.
struct WorkerRow {
    name: &'static str,
    /// Does the work that is due; returns how many things were done. `None` for work that needs
    /// other nodes or a server.
    turn: Option<fn(&Node) -> u64>,
    backlog: fn(&Node) -> usize,
}

/// The list, in the order of [`WorkerKind`].
const WORKERS: [WorkerRow; 11] = [
    WorkerRow { name: "demotion", turn: Some(Node::demote_due), backlog: |node| node.demotions.len() },
    WorkerRow { name: "thinning", turn: Some(Node::thin_next), backlog: |node| node.thinning_queue.len() },
    WorkerRow { name: "leases", turn: Some(Node::probe_next_leases), backlog: |node| node.open_leases.len() },
    WorkerRow { name: "locks", turn: Some(Node::unlock_ended_processes), backlog: |node| node.process_monitor.len() },
    WorkerRow { name: "deletes", turn: None, backlog: |node| node.open_leases.pending_deletes() },
    WorkerRow { name: "hosted", turn: None, backlog: |node| node.hosted.waiting() },
    WorkerRow { name: "moves", turn: None, backlog: |node| node.arrivals.leftovers() },
    WorkerRow { name: "strays", turn: None, backlog: |node| node.stray_stripes.files() },
    WorkerRow { name: "sessions", turn: None, backlog: |_| 0 },
    WorkerRow { name: "pins", turn: None, backlog: |_| 0 },
    WorkerRow { name: "metrics", turn: None, backlog: |_| 0 },
];

/// Work that goes on beside requests.
pub trait BackgroundWorker: Send + Sync {
    /// The record of what it does.
    fn record(&self) -> &WorkerRecord;

    /// Waits until there may be work.
    fn wait_for_work(&self) -> impl Future<Output = ()> + Send;

    /// Does the work that is due; returns how many things were done.
    fn work(&self) -> impl Future<Output = Outcome<u64>> + Send;
}

/// Runs a worker. It ends when this future is dropped, in the midst of its work too.
pub async fn run_worker(worker: impl BackgroundWorker) {
    loop {
        worker.wait_for_work().await;
        if let Err(error) = worker.record().track(worker.work()).await {
            tracing::warn!(%error, "work beside requests has failed, and is tried again");
        }
    }
}

/// The record of what one worker did.
#[derive(Debug, Default)]
pub struct WorkerRecord {
    running: AtomicU64,
    turns: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// Counts a turn as running for as long as it lives.
struct RunningTurn<'a>(&'a WorkerRecord);

impl WorkerRecord {
    /// Records a turn that may fail.
    pub async fn track<E: Display>(&self, work: impl Future<Output = Result<u64, E>>) -> Result<u64, E> {
        let running = self.begin();
        let outcome = work.await;
        drop(running);
        self.turns.fetch_add(1, Relaxed);
        match &outcome {
            Ok(done) => drop(self.done.fetch_add(*done, Relaxed)),
            Err(error) => {
                self.failed.fetch_add(1, Relaxed);
                *self.last_error.lock() = Some(error.to_string());
            }
        }
        outcome
    }

    /// Records a turn.
    fn turn(&self, work: impl FnOnce() -> u64) {
        let running = self.begin();
        let done = work();
        drop(running);
        self.turns.fetch_add(1, Relaxed);
        self.done.fetch_add(done, Relaxed);
    }

    fn begin(&self) -> RunningTurn<'_> {
        self.running.fetch_add(1, Relaxed);
        RunningTurn(self)
    }

    fn status(&self, name: &str, backlog: usize) -> WorkerStatus {
        WorkerStatus {
            name: name.to_owned(),
            running: self.running.load(Relaxed),
            turns: self.turns.load(Relaxed),
            done: self.done.load(Relaxed),
            failed: self.failed.load(Relaxed),
            last_error: self.last_error.lock().clone(),
            backlog: backlog as u64,
        }
    }
}

impl Drop for RunningTurn<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

/// The records of all workers of a node, in the order of [`WorkerKind`].
#[derive(Debug, Default)]
pub struct BackgroundWork([WorkerRecord; WORKERS.len()]);

impl Node {
    /// The record of a worker.
    pub fn worker_record(&self, kind: WorkerKind) -> &WorkerRecord {
        &self.background.0[kind as usize]
    }

    /// The status of all workers, also of those that nobody runs.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let rows = WORKERS.iter().zip(&self.background.0);
        let own = rows.map(|(row, record)| record.status(row.name, (row.backlog)(self)));
        own.chain([self.engine_worker()]).collect()
    }

    /// The status of what the engine does by itself.
    fn engine_worker(&self) -> WorkerStatus {
        let PageChecks { running, rounds, checked, watched } = self.extents.page_checks();
        WorkerStatus {
            name: "pages".into(),
            running: running.into(),
            turns: rounds,
            done: checked,
            backlog: watched,
            ..WorkerStatus::default()
        }
    }

    /// Does the work of a kind that is due and needs no other node; returns how many things were
    /// done. The caller records that.
    pub fn work_due(&self, kind: WorkerKind) -> u64 {
        WORKERS[kind as usize].turn.map_or(0, |turn| turn(self))
    }

    /// Does the work of a kind that is due, for a request.
    pub(crate) fn turn(&self, kind: WorkerKind) {
        self.turn_with(kind, || self.work_due(kind));
    }

    /// Like [`Self::turn`], with other work of that kind.
    pub(crate) fn turn_with(&self, kind: WorkerKind, work: impl FnOnce() -> u64) {
        self.worker_record(kind).turn(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use tokio::{select, task::yield_now};

    #[tokio::test]
    async fn a_turn_that_fails_is_recorded_with_its_reason_and_one_that_is_dropped_as_ended_in_nothing() {
        let record = WorkerRecord::default();
        assert_eq!(record.track(ready(Ok::<_, String>(3))).await, Ok(3));
        assert_eq!(record.track(ready(Err("no way"))).await, Err("no way"));
        select! {
            biased;
            _ = record.track(pending::<Result<u64, String>>()) => panic!("it never ends"),
            () = async {
                assert_eq!(record.status("w", 0).running, 1);
                yield_now().await;
            } => {}
        }
        let last_error = Some("no way".to_owned());
        let expected =
            WorkerStatus { name: "w".into(), running: 0, turns: 2, done: 3, failed: 1, last_error, backlog: 7 };
        assert_eq!(record.status("w", 7), expected);
    }

    /// A worker that has work a few times, and then asks for its end.
    struct Countdown {
        record: WorkerRecord,
        left: AtomicU64,
    }

    impl BackgroundWorker for &Countdown {
        fn record(&self) -> &WorkerRecord {
            &self.record
        }

        async fn wait_for_work(&self) {
            if self.left.load(Relaxed) == 0 {
                pending::<()>().await;
            }
        }

        async fn work(&self) -> Outcome<u64> {
            match self.left.fetch_sub(1, Relaxed) {
                2 => Err(wire::Refusal::SessionEnded),
                _ => Ok(10),
            }
        }
    }

    #[tokio::test]
    async fn a_worker_that_has_failed_goes_on_and_works_only_when_there_is_work() {
        let worker = Countdown { record: WorkerRecord::default(), left: AtomicU64::new(3) };
        select! {
            biased;
            () = run_worker(&worker) => panic!("a worker does not end by itself"),
            () = yield_now() => {}
        }
        let WorkerStatus { turns, done, failed, .. } = worker.record.status("w", 0);
        assert_eq!((turns, done, failed), (3, 20, 1));
    }
}
