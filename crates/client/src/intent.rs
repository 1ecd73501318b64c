//! The transaction driver: an intent is prepared at the other partitions, committed at its
//! coordinator, and settled at the others.
//!
//! The caller states what must be there ([`wire::Part`]). If something else is there, nothing was
//! done and the refusal is `Stale`; the caller looks again and makes another plan. Intents cannot
//! deadlock: one that conflicts with an older intent releases what it has prepared before it waits.

use crate::{Client, client::poll_now, conflict::ConflictBackoff};
use placement::{FileId, PartitionId};
use std::future::Future;
use wire::{Command, Decision, Intent, Object, Outcome, Part, Refusal};

/// Most times that a change is planned anew because the tree has changed since it was read.
pub const PLANS_MAX: u32 = 256;

/// The parts of a transaction, by partition.
#[derive(Debug)]
pub struct TransactionPlan {
    coordinator: PartitionId,
    /// The coordinator's parts.
    coordinator_parts: Vec<Part>,
    /// The parts of the others, in the order in which they are prepared.
    others: Vec<(PartitionId, Vec<Part>)>,
}

impl TransactionPlan {
    pub fn new(coordinator: PartitionId) -> Self {
        Self { coordinator, coordinator_parts: Vec::new(), others: Vec::new() }
    }

    pub fn add(&mut self, partition: PartitionId, part: Part) {
        if partition == self.coordinator {
            return self.coordinator_parts.push(part);
        }
        match self.others.iter_mut().find(|(other, _)| *other == partition) {
            Some((_, parts)) => parts.push(part),
            None => self.others.push((partition, vec![part])),
        }
    }
}

impl TransactionPlan {
    /// The coordinator's parts alone.
    pub fn into_coordinator_parts(self) -> Vec<Part> {
        self.coordinator_parts
    }
}

/// An intent in progress. If it is dropped before it is committed, it is taken back, as far as
/// nodes answer at once; otherwise the next client that conflicts with it does that.
#[derive(Debug)]
pub struct TransactionDriver<'a> {
    client: &'a Client,
    /// Bound to the session of the intent: what it prepares ends with that session.
    bound: Client,
    intent: Intent,
    /// The partitions in which something is prepared.
    prepared: Vec<PartitionId>,
    conflicts: &'a ConflictBackoff,
    open: bool,
}

impl Client {
    /// Begins an intent.
    pub(crate) fn begin_transaction<'a>(
        &'a self,
        coordinator: PartitionId,
        conflicts: &'a ConflictBackoff,
    ) -> TransactionDriver<'a> {
        let bound = self.bind_to_session();
        let intent = Intent { number: self.next_intent(), session: bound.session(), coordinator };
        TransactionDriver { client: self, bound, intent, prepared: Vec::new(), conflicts, open: true }
    }

    /// Runs an attempt at a change over several partitions, which plans and executes it, until the
    /// tree is as it was planned for.
    pub(crate) async fn retry_plan<T, F>(&self, object: impl Fn() -> Object, attempt: impl Fn() -> F) -> Outcome<T>
    where
        F: Future<Output = Outcome<T>>,
    {
        for _ in 0..PLANS_MAX {
            let state = self.session_state();
            match attempt().await {
                Err(Refusal::Stale(_)) => {}
                Err(Refusal::SessionEnded) => self.renew_session(&state).await?,
                Err(Refusal::Split { directory, bits }) => self.learn_split(directory, bits).await?,
                outcome => return outcome,
            }
        }
        Err(Refusal::Busy(object()))
    }
}

impl TransactionDriver<'_> {
    /// Checks and prepares parts at a partition; returns the ids of the inodes that they make.
    pub async fn prepare(&mut self, partition: PartitionId, parts: Vec<Part>) -> Outcome<Vec<FileId>> {
        loop {
            let prepare = Command::prepare(self.intent, parts.clone());
            match self.bound.mutate_or_conflict(partition, prepare).await {
                Ok(made) => {
                    if !self.prepared.contains(&partition) {
                        self.prepared.push(partition);
                    }
                    return Ok(made);
                }
                Err(Refusal::LockedByIntent { intent }) => self.yield_to(intent, partition).await?,
                Err(refusal) => return Err(self.handle_refusal(refusal).await),
            }
        }
    }

    /// Prepares all of a plan except the coordinator's parts.
    pub async fn prepare_others(&mut self, plan: &mut TransactionPlan) -> Outcome<()> {
        for (partition, parts) in std::mem::take(&mut plan.others) {
            self.prepare(partition, parts).await?;
        }
        Ok(())
    }

    /// Prepares the remaining parts of a plan at the others, and commits.
    pub async fn execute(mut self, mut plan: TransactionPlan) -> Outcome<()> {
        self.prepare_others(&mut plan).await?;
        self.commit(plan.coordinator_parts).await
    }

    /// Executes the coordinator's parts, which commits the intent, and settles it at the others.
    pub async fn commit(mut self, parts: Vec<Part>) -> Outcome<()> {
        let (intent, coordinator) = (self.intent, self.intent.coordinator);
        let others: Vec<PartitionId> = self.prepared.iter().copied().filter(|other| *other != coordinator).collect();
        loop {
            let commit = Command::commit(intent, parts.clone(), others.clone());
            match self.bound.mutate_or_conflict(coordinator, commit).await {
                Ok(deleted) => {
                    self.open = false;
                    for deleted in deleted {
                        self.client.purge(Some(deleted)).await;
                    }
                    break;
                }
                Err(Refusal::LockedByIntent { intent }) => self.yield_to(intent, coordinator).await?,
                Err(refusal) => return Err(self.handle_refusal(refusal).await),
            }
        }
        if !others.is_empty()
            && let Err(error) = self.client.settle_everywhere(intent, others).await
        {
            tracing::warn!(%error, "a transaction is committed, but not settled at every partition yet: the next client that conflicts with it settles it");
        }
        Ok(())
    }

    /// Resolves a conflict with an intent that holds what this one needs; releases what is prepared
    /// first if that intent is older.
    async fn yield_to(&mut self, held: Intent, partition: PartitionId) -> Outcome<()> {
        let older = held < self.intent && !self.prepared.is_empty();
        if older {
            self.abort().await;
        }
        self.client.resolve_conflict(held, partition, self.conflicts).await?;
        if older { Err(Refusal::Stale(Object::Pool)) } else { Ok(()) }
    }

    /// Handles the refusal of a part: nothing of the intent is done.
    async fn handle_refusal(&mut self, refusal: Refusal) -> Refusal {
        if matches!(refusal, Refusal::Unavailable { .. } | Refusal::OutcomeUnknown(_)) {
            // The intent may be committed. Clients that conflict with it find out.
            self.open = false;
        } else {
            self.abort().await;
        }
        refusal
    }

    /// Releases everything that is prepared. The intent cannot be committed: the commit was refused
    /// or not sent.
    pub async fn abort(&mut self) {
        self.open = false;
        let (intent, client) = (self.intent, self.client);
        if self.prepared.is_empty() {
            return;
        }
        for partition in std::mem::take(&mut self.prepared) {
            if let Err(error) = client.settle(intent, partition, false).await {
                tracing::warn!(%error, "an aborted transaction still holds its locks: the next client that conflicts with it ends it");
            }
        }
        if let Err(error) = client.mutate_or_conflict(intent.coordinator, Command::forget_intent(intent)).await {
            tracing::debug!(%error, "a coordinator keeps the record of an aborted transaction for longer");
        }
    }
}

impl Drop for TransactionDriver<'_> {
    fn drop(&mut self) {
        if !self.open || self.prepared.is_empty() {
            return;
        }
        let (intent, client) = (self.intent, self.client);
        let decide = client.mutate_or_conflict(intent.coordinator, Command::decide(intent));
        let (others, commit) = match poll_now(decide) {
            Some(Ok(Decision::Aborted)) => (std::mem::take(&mut self.prepared), false),
            Some(Ok(Decision::Committed { others })) => (others, true),
            _ => return,
        };
        for other in others {
            if !matches!(poll_now(client.settle(intent, other, commit)), Some(Ok(()))) {
                return;
            }
        }
        let _ = poll_now(client.mutate_or_conflict(intent.coordinator, Command::forget_intent(intent)));
    }
}
