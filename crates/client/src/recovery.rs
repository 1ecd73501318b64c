//! Finishing: truncating and removing stripes, and recovery of what a dead client left.

use crate::Client;
use placement::{FileId, Layout, NodeId, PartitionId, StripeNo};
use std::{collections::BTreeSet, future::poll_fn, mem, task::Poll};
use wire::{
    Body, Command, Outcome, PENDING_DELETES_MAX, PendingDelete, PendingTruncate, Refusal, Session, StripeAction,
    StripeRuns, UnfinishedWork,
};

/// Stripes that are handled before the task yields.
const STRIPES_AT_ONCE: u64 = 64;
/// Runs of stripes in one request: it stays short, and the partition is locked only for a moment.
const RUNS_AT_ONCE: usize = 4096;

/// Most nodes that are asked whether another has left: one that does not know yet hears of it
/// within a second.
const NODES_ASKED_MAX: usize = 3;

impl Client {
    /// Those of the stripes that the file does not have and nobody has reserved, according to the
    /// node of the file's partition.
    pub async fn find_unplanned(&self, file: FileId, stripes: &StripeRuns) -> Outcome<StripeRuns> {
        let (mut unplanned, mut ranges) = (StripeRuns::new(), stripes.ranges().peekable());
        while ranges.peek().is_some() {
            let mut some = StripeRuns::new();
            ranges.by_ref().take(RUNS_AT_ONCE).for_each(|range| some.insert(range.start, range.end));
            let found = self.query(file.partition(), Command::unowned_stripes(file, some)).await?;
            found.ranges().for_each(|range| unplanned.insert(range.start, range.end));
        }
        Ok(unplanned)
    }

    /// Removes the stripes of a deleted file. Stripes that cannot be removed are left to
    /// [`Self::recover`].
    pub async fn purge(&self, deleted: Option<PendingDelete>) {
        if let Some(deleted) = deleted
            && let Err(error) = self.remove_stripes(&deleted).await
        {
            tracing::debug!(file = %deleted.file, "its stripes could not be removed");
            tracing::warn!(%error, "the memory of a removed file is not free yet: it is freed when the client that used it ends");
        }
    }

    async fn remove_stripes(&self, deleted: &PendingDelete) -> Outcome<()> {
        for stripe in deleted.stripes.iter() {
            yield_between(stripe).await;
            self.send_stripe(deleted.file, deleted.layout, StripeNo(stripe), StripeAction::Remove).await?;
        }
        self.mutate_or_conflict(deleted.file.partition(), Command::purge_done(deleted.file)).await
    }

    /// Removes stripes that were written or truncated while another client removed their file, and
    /// so may have missed them.
    pub(crate) async fn discard_stripes(&self, file: FileId, layout: Layout, stripes: impl Iterator<Item = u64>) {
        for stripe in stripes {
            yield_between(stripe).await;
            if let Err(error) = self.send_stripe(file, layout, StripeNo(stripe), StripeAction::Remove).await {
                tracing::debug!(%error, %file, stripe, "a stripe of a removed file is freed when this session ends at the latest");
            }
        }
    }

    /// Truncates the stripes of a truncated file, so that it may grow again.
    pub(crate) async fn finish_truncate(&self, file: FileId, truncation: PendingTruncate) -> Outcome<()> {
        let layout = truncation.layout;
        let stripe_bytes = u64::from(layout.stripe_bytes());
        for stripe in truncation.stripes.iter() {
            yield_between(stripe).await;
            let kept = truncation.length.saturating_sub(stripe * stripe_bytes).min(stripe_bytes);
            let length = u32::try_from(kept).expect("at most the length of a stripe");
            let action = StripeAction::Truncate { generation: truncation.generation, length };
            match self.send_stripe(file, layout, StripeNo(stripe), action).await {
                Ok(_) | Err(Refusal::Stale(_)) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        let done = self.mutate(file.partition(), Command::truncate_done(file, truncation.generation)).await;
        if matches!(done, Err(Refusal::NotFound(_))) {
            self.discard_stripes(file, layout, truncation.stripes.iter()).await;
        }
        done
    }

    /// Finishes or undoes the unfinished work of a client that no longer exists (intents, files to
    /// remove), and ends its session and its opens.
    pub async fn recover(&self, session: Session) -> Outcome<()> {
        self.recover_in(session, self.partitions().collect()).await
    }

    /// Like [`Self::recover`], in these partitions alone: for a session whose connection to their
    /// node has ended.
    pub async fn recover_in(&self, session: Session, partitions: Vec<PartitionId>) -> Outcome<()> {
        // End the session everywhere first, so that none of its requests that are still in flight
        // is executed later.
        let mut broadcast = Broadcast::new(self);
        let mut asked = BTreeSet::new();
        loop {
            let before = asked.len();
            // A node that has left says by its silence that its partitions are at others.
            while let Some(home) = self.homes(&partitions).find(|home| !asked.contains(home)) {
                asked.insert(home);
                broadcast.ask(home, self.end_session(home, session)).await;
            }
            if asked.len() == before {
                return broadcast.finish();
            }
            for partition in &partitions {
                if let Some(left) = broadcast.query(*partition, self.unfinished_work(*partition)).await {
                    broadcast.record(self.finish_work(session, *partition, left).await);
                }
            }
            // The answers have told of partitions that were at other nodes by then.
        }
    }

    /// Finishes the work that a session left in a partition. A write of the session that is still
    /// in flight to a stripe at another node is removed there, when the session ends there.
    async fn finish_work(&self, session: Session, partition: PartitionId, left: UnfinishedWork) -> Outcome<()> {
        let mut deleted = left.deleted;
        let intents = left.prepared.into_iter().chain(left.committed);
        for intent in intents.filter(|intent| intent.session == session) {
            self.finish_intent(intent, partition).await?;
            // The file that the intent was to give a name to may have been removed with it.
            deleted = self.unfinished_work(partition).await?.deleted;
        }
        self.remove_deleted(partition, deleted).await
    }

    /// Removes the stripes of the deleted files of a partition, of which these are the first.
    async fn remove_deleted(&self, partition: PartitionId, mut deleted: Vec<PendingDelete>) -> Outcome<()> {
        loop {
            for deleted in &deleted {
                self.remove_stripes(deleted).await?;
            }
            if deleted.len() < PENDING_DELETES_MAX {
                return Ok(());
            }
            deleted = self.unfinished_work(partition).await?.deleted;
        }
    }

    async fn purge_deleted(&self, partition: PartitionId) -> Outcome<()> {
        let deleted = self.unfinished_work(partition).await?.deleted;
        self.remove_deleted(partition, deleted).await
    }

    /// Ends this client's session, and earlier ones at nodes whose connections did not break, with
    /// everything that they hold open. In a forked child the sessions of its parent go on.
    pub async fn close(&self) -> Outcome<()> {
        let bound = self.bind_to_session();
        let mut sessions = self.router().earlier_sessions();
        sessions.push(bound.session_state());
        let (mut broadcast, mut left) = (Broadcast::new(&bound), BTreeSet::new());
        for session in &sessions {
            let mut asked = BTreeSet::new();
            // One that has left says by its silence which others have its partitions.
            while let Some(node) = self.router().nodes_of(session).into_iter().find(|node| !asked.contains(node)) {
                asked.insert(node);
                left.extend(broadcast.ask(node, bound.end_session(node, session.id)).await.unwrap_or_default());
            }
        }
        // No stripe is written any more once the sessions have ended everywhere.
        for partition in left {
            broadcast.query(partition, bound.purge_deleted(partition)).await;
        }
        match broadcast.finish() {
            // A session that has ended already is what the caller wanted.
            Ok(()) | Err(Refusal::SessionEnded) => {}
            Err(refusal) => return Err(refusal),
        }
        self.router().forget_earlier_sessions();
        self.router().forget_due_hellos();
        Ok(())
    }

    /// The nodes that hold these partitions.
    fn homes(&self, partitions: &[PartitionId]) -> impl Iterator<Item = NodeId> {
        partitions.iter().filter_map(|partition| self.router().home(*partition))
    }

    fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let last = u16::try_from(self.router().partitions - 1).expect("a map has at most 2^16 partitions");
        (0..=last).map(PartitionId)
    }

    /// True if a node that does not answer has left the pool, as far as others know.
    pub(crate) async fn has_left(&self, node: NodeId) -> bool {
        let router = self.router();
        let links = router.nodes.links().into_iter();
        let others = links.filter(|other| other.node != node && other.is_available());
        for other in others.take(NODES_ASKED_MAX) {
            if router.has_departed(node) {
                break;
            }
            if let Ok(map) = router.query_map(other).await {
                router.learn_map(&map);
            }
        }
        router.has_departed(node)
    }

    async fn unfinished_work(&self, partition: PartitionId) -> Outcome<UnfinishedWork> {
        self.query(partition, Command::list_unfinished()).await
    }

    /// Ends a session at a node; returns the partitions in which files were deleted with it, whose
    /// stripes remain.
    async fn end_session(&self, node: NodeId, session: Session) -> Outcome<Vec<PartitionId>> {
        let deleted = self.query_node(node, Body::EndSession { session }).await?.closed()?;
        if deleted.len() >= PENDING_DELETES_MAX {
            return Ok(self.partitions().filter(|partition| self.router().home(*partition) == Some(node)).collect());
        }
        let partitions: BTreeSet<PartitionId> = deleted.iter().map(|deleted| deleted.file.partition()).collect();
        Ok(partitions.into_iter().collect())
    }
}

/// Yields to other tasks of this thread every [`STRIPES_AT_ONCE`] stripes. Calls to nodes in this
/// process never yield by themselves.
async fn yield_between(stripe: u64) {
    let mut again = stripe.is_multiple_of(STRIPES_AT_ONCE);
    poll_fn(|context| {
        if !mem::take(&mut again) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A broadcast to nodes or partitions. A node that does not answer is asked once, not for each of
/// its partitions; one that has left the pool has nothing any more. A refusal does not end the
/// broadcast.
struct Broadcast<'a> {
    client: &'a Client,
    unavailable: Vec<NodeId>,
    /// The first refusal.
    refused: Option<Refusal>,
}

impl<'a> Broadcast<'a> {
    fn new(client: &'a Client) -> Self {
        Self { client, unavailable: Vec::new(), refused: None }
    }

    async fn query<T>(&mut self, partition: PartitionId, call: impl Future<Output = Outcome<T>>) -> Option<T> {
        let home = self.client.router().home(partition)?;
        self.ask(home, call).await
    }

    /// Waits for a call to a node, unless that has not answered before.
    async fn ask<T>(&mut self, node: NodeId, call: impl Future<Output = Outcome<T>>) -> Option<T> {
        if self.unavailable.contains(&node) {
            return None;
        }
        let answer = call.await;
        if matches!(answer, Err(Refusal::Unavailable { .. })) {
            if self.client.has_left(node).await {
                return None;
            }
            self.unavailable.push(node);
        }
        self.record(answer)
    }

    fn record<T>(&mut self, outcome: Outcome<T>) -> Option<T> {
        outcome.map_err(|refusal| self.refused.get_or_insert(refusal)).ok()
    }

    fn finish(self) -> Outcome<()> {
        self.refused.map_or(Ok(()), Err)
    }
}
