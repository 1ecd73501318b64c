//! Workers of a served node: what it does beside requests, as `node` lists it.

use crate::server::server_connection::ServerState;
use node::{BackgroundWorker, WorkerKind, WorkerRecord, run_worker};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::time::timeout;
use wire::Outcome;

/// Interval of the turns of most workers; the longest delay until an open or a lock of a program
/// that ended without notice is found, while there are not more of them than a turn looks at.
const TURN_INTERVAL: Duration = Duration::from_secs(1);

/// Workers that the server runs. Connections end sessions, and a server of metrics does its own
/// work.
const RUN: [WorkerKind; 8] = [
    WorkerKind::Demotion,
    WorkerKind::Thinning,
    WorkerKind::Leases,
    WorkerKind::Locks,
    WorkerKind::Deletes,
    WorkerKind::Hosted,
    WorkerKind::Moves,
    WorkerKind::Strays,
];

/// A worker of a served node.
struct ServedWorker {
    state: Arc<ServerState>,
    kind: WorkerKind,
}

/// The workers of a served node; each runs until the server stops.
pub fn run_all(state: &Arc<ServerState>) -> impl Iterator<Item = impl Future<Output = ()> + Send + use<>> {
    RUN.map(|kind| (state.stopping.clone(), ServedWorker { state: state.clone(), kind })).into_iter().map(
        |(mut stopping, worker)| async move {
            tokio::select! {
                _ = stopping.wait_for(|stop| *stop) => {}
                () = run_worker(worker) => {}
            }
        },
    )
}

impl BackgroundWorker for ServedWorker {
    fn record(&self) -> &WorkerRecord {
        self.state.node.worker_record(self.kind)
    }

    async fn wait_for_work(&self) {
        match self.kind {
            WorkerKind::Deletes => self.state.node.pending_delete_added().await,
            // What could not be done is tried again after the interval.
            WorkerKind::Hosted => drop(timeout(TURN_INTERVAL, self.state.node.host_work_added()).await),
            _ => tokio::time::sleep(TURN_INTERVAL).await,
        }
    }

    async fn work(&self) -> Outcome<u64> {
        let node = &self.state.node;
        match self.kind {
            WorkerKind::Deletes => self.state.cleanup.purge(node.take_pending_deletes()).await,
            WorkerKind::Hosted => self.state.cleanup.do_host_work(node).await,
            WorkerKind::Moves => self.settle_moves().await,
            WorkerKind::Strays => self.settle_strays().await,
            kind => Ok(node.work_due(kind)),
        }
    }
}

impl ServedWorker {
    /// Finishes what moves of partitions have left here. Returns the number of stripes and
    /// sessions.
    async fn settle_moves(&self) -> Outcome<u64> {
        let node = &self.state.node;
        let (mut outcome, mut settled) = (Ok(()), self.state.end_overdue_sessions().await);
        for (session, partition) in node.close_arrived_sessions().await {
            match self.state.cleanup.end_session(session, vec![partition]).await {
                Ok(()) => settled += 1,
                failed => outcome = failed,
            }
        }
        settled += node.clear_leftovers().await?;
        outcome.map(|()| settled)
    }

    /// Settles the noted stripes of long sessions: those that a file of another node has are noted
    /// no more, the others are removed. Returns the number of sessions.
    async fn settle_strays(&self) -> Outcome<u64> {
        let (mut outcome, mut settled) = (Ok(()), 0);
        for session in self.state.node.sessions_with_due_strays() {
            match self.state.remove_strays(session).await {
                Ok(()) => settled += 1,
                failed => outcome = failed,
            }
        }
        outcome.map(|()| settled)
    }
}
