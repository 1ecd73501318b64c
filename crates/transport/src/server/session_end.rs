//! The end of sessions whose connection has ended: here, then at the other nodes.

use crate::server::server_connection::{ServerState, request};
use node::WorkerKind;
use placement::PartitionId;
use std::collections::BTreeSet;
use tokio::task::yield_now;
use wire::{Answer, Body, Command, Failure, Outcome, Refusal, Session};

impl ServerState {
    /// Ends what sessions hold: opens, locks, unfinished transactions.
    pub async fn end_sessions(&self, sessions: BTreeSet<Session>, stopping: bool) {
        for session in sessions {
            let ending = async { self.end_session(session, stopping).await.map(|()| 1) };
            match self.node.worker_record(WorkerKind::Sessions).track(ending).await {
                Ok(_) => {}
                Err(error @ Failure::Refused(Refusal::Unavailable { .. })) => {
                    tracing::warn!(%error, session = session.0, "cleanup after a client failed at another node: its stripes stay there");
                }
                Err(error) => {
                    tracing::error!(%error, session = session.0, "cleanup after a client failed: its opens and locks stay");
                }
            }
            if !stopping {
                // An error was logged already.
                let removing = async { self.remove_strays(session).await.map(|()| 1) };
                let _ = self.node.worker_record(WorkerKind::Strays).track(removing).await;
            }
            yield_now().await;
            self.live_sessions.lock().remove(&session);
        }
    }

    /// Ends a session here, then finishes at the other nodes. If one of them is not reachable, the
    /// client that runs into the rest finishes it.
    async fn end_session(&self, session: Session, stopping: bool) -> Result<(), Failure> {
        let partitions = if stopping { self.node.leave_session(session) } else { self.node.end_session(session) };
        let left = self.end_local(session, partitions).await?;
        if !left.is_empty() && !stopping {
            self.cleanup.end_session(session, left).await?;
        }
        Ok(())
    }

    /// Removes stripes that a session wrote here if their file has not planned them and nobody has
    /// reserved them. An error says why some could not be checked; the others are.
    pub async fn remove_strays(&self, session: Session) -> Outcome<()> {
        let mut outcome = Ok(());
        for file in self.node.remote_stray_files(session) {
            let Some(question) = self.node.stray_query(session, file) else { continue };
            match self.cleanup.unplanned(file, &question.stripes).await {
                Ok(unplanned) => self.node.remove_strays(&question, &unplanned),
                Err(refusal) => {
                    tracing::debug!(%file, "its home does not answer which of its stripes here are planned");
                    tracing::warn!(%refusal, "stripes of a client that has ended could not be checked: those of no file stay in use until the pool ends");
                    self.node.end_stray_query(&question);
                    outcome = Err(refusal);
                }
            }
            yield_now().await;
        }
        outcome
    }

    /// Ends the sessions whose clients have not come in time after another node had left. Returns
    /// their number.
    pub async fn end_overdue_sessions(&self) -> u64 {
        let mut due: BTreeSet<Session> = self.node.take_overdue_sessions().into_iter().collect();
        {
            // No connection takes them from now on.
            let mut live = self.live_sessions.lock();
            due.retain(|session| live.insert(*session));
        }
        let ended = due.len() as u64;
        self.end_sessions(due, false).await;
        ended
    }

    /// Ends a session that has ended at this node in the partitions that it touched. Returns those
    /// in which something is left that other nodes may have a part of; most clients leave nothing.
    async fn end_local(&self, session: Session, partitions: Vec<PartitionId>) -> Result<Vec<PartitionId>, Failure> {
        let mut left = Vec::new();
        for partition in partitions {
            yield_now().await;
            let mut is_left = !self.node.close_session_in(session, partition).await?.is_empty();
            let Some(epoch) = self.node.served_epoch(partition) else { continue };
            let list = Body::Meta { request_id: None, command: Command::ListUnfinished };
            let found = self.node.handle(request(epoch, session, partition, list)).await?;
            if let Answer::UnfinishedWork(found) = found {
                is_left |= found.prepared.iter().chain(&found.committed).any(|intent| intent.session == session);
            }
            left.extend(is_left.then_some(partition));
        }
        Ok(left)
    }
}
