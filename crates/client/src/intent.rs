//! Driving an intent: prepared at the others, committed at its coordinator, settled at the others.
//!
//! The caller says what must be there ([`wire::Part`]); when something else is, nothing was done, the refusal is `Stale`, and
//! the caller looks again and makes another plan. Two intents that wait for each other cannot be: who meets an older one lets
//! go of what it has before it waits.

use crate::{
    Client,
    client::{at_once, unexpected},
    meet::Meetings,
};
use placement::{FileId, PartitionId};
use std::future::Future;
use wire::{Answer, Command, Decision, Intent, Object, Outcome, Part, Refusal};

/// A change that finds the tree other than it looked at is planned anew, at most so often.
pub const PLANS_MAX: u32 = 256;

/// What is to be done where, besides what the coordinator does.
#[derive(Debug)]
pub struct Plan {
    coordinator: PartitionId,
    /// The coordinator's parts.
    last: Vec<Part>,
    /// In the order in which they are prepared.
    others: Vec<(PartitionId, Vec<Part>)>,
}

impl Plan {
    pub fn new(coordinator: PartitionId) -> Self {
        Self { coordinator, last: Vec::new(), others: Vec::new() }
    }

    pub fn add(&mut self, partition: PartitionId, part: Part) {
        if partition == self.coordinator {
            return self.last.push(part);
        }
        match self.others.iter_mut().find(|(other, _)| *other == partition) {
            Some((_, parts)) => parts.push(part),
            None => self.others.push((partition, vec![part])),
        }
    }
}

impl Plan {
    /// The coordinator's parts alone.
    pub fn into_last(self) -> Vec<Part> {
        self.last
    }
}

/// An intent on its way. Dropped before it is committed, it is taken back, as far as nodes answer at once; else others do
/// that when they meet it.
#[derive(Debug)]
pub struct Drive<'a> {
    client: &'a Client,
    /// In the session of the intent: what it prepares and commits ends with that.
    bound: Client,
    intent: Intent,
    /// Where something is prepared.
    prepared: Vec<PartitionId>,
    meetings: &'a Meetings,
    open: bool,
}

impl Client {
    /// Begins an intent.
    pub(crate) fn intend<'a>(&'a self, coordinator: PartitionId, meetings: &'a Meetings) -> Drive<'a> {
        let bound = self.bound();
        let intent = Intent { number: self.0.next_intent(), session: bound.session(), coordinator };
        Drive { client: self, bound, intent, prepared: Vec::new(), meetings, open: true }
    }

    /// Has a change over several partitions planned and done, until it meets what it was planned for.
    pub(crate) async fn until_done<T, F>(&self, object: impl Fn() -> Object, attempt: impl Fn() -> F) -> Outcome<T>
    where
        F: Future<Output = Outcome<T>>,
    {
        for _ in 0..PLANS_MAX {
            let life = self.life()?;
            match attempt().await {
                Err(Refusal::Stale(_)) => {}
                Err(Refusal::Ended) => self.next_life(&life).await?,
                Err(Refusal::Split { directory, bits }) => self.learn_split(directory, bits).await?,
                outcome => return outcome,
            }
        }
        Err(Refusal::Busy(object()))
    }
}

impl Drive<'_> {
    /// Checks and marks parts at a partition; gives the ids of inodes that they make.
    pub async fn prepare(&mut self, partition: PartitionId, parts: Vec<Part>) -> Outcome<Vec<FileId>> {
        loop {
            let command = Command::Prepare { intent: self.intent, parts: parts.clone() };
            match self.bound.change_unheld(partition, command).await {
                Ok(Answer::Prepared { made }) => {
                    if !self.prepared.contains(&partition) {
                        self.prepared.push(partition);
                    }
                    return Ok(made);
                }
                Err(Refusal::Held { intent }) => self.give_way(intent, partition).await?,
                outcome => return Err(self.refused(outcome).await),
            }
        }
    }

    /// Prepares all of a plan but what its coordinator does.
    pub async fn prepare_others(&mut self, plan: &mut Plan) -> Outcome<()> {
        for (partition, parts) in std::mem::take(&mut plan.others) {
            self.prepare(partition, parts).await?;
        }
        Ok(())
    }

    /// Prepares what a plan still has at others, and commits.
    pub async fn carry_out(mut self, mut plan: Plan) -> Outcome<()> {
        self.prepare_others(&mut plan).await?;
        self.commit(plan.last).await
    }

    /// Does the coordinator's parts, and with that all.
    pub async fn commit(mut self, parts: Vec<Part>) -> Outcome<()> {
        let (intent, coordinator) = (self.intent, self.intent.coordinator);
        let others: Vec<PartitionId> = self.prepared.iter().copied().filter(|other| *other != coordinator).collect();
        loop {
            let command = Command::Commit { intent, parts: parts.clone(), others: others.clone() };
            match self.bound.change_unheld(coordinator, command).await {
                Ok(Answer::Settled { gone }) => {
                    self.open = false;
                    for gone in gone {
                        self.client.purge(Some(gone)).await;
                    }
                    break;
                }
                Err(Refusal::Held { intent }) => self.give_way(intent, coordinator).await?,
                outcome => return Err(self.refused(outcome).await),
            }
        }
        if !others.is_empty()
            && let Err(error) = self.client.settle_everywhere(intent, others).await
        {
            tracing::warn!(%error, "a change is done, but not everywhere yet: whoever meets it settles it");
        }
        Ok(())
    }

    /// Another intent holds what this one needs.
    async fn give_way(&mut self, held: Intent, partition: PartitionId) -> Outcome<()> {
        let older = held < self.intent && !self.prepared.is_empty();
        if older {
            self.take_back().await;
        }
        self.client.meet(held, partition, self.meetings).await?;
        if older { Err(Refusal::Stale(Object::Pool)) } else { Ok(()) }
    }

    /// A part was refused: nothing of the intent is done.
    async fn refused(&mut self, outcome: Outcome<Answer>) -> Refusal {
        let refusal = match outcome {
            Ok(answer) => unexpected(&answer),
            Err(refusal) => refusal,
        };
        if matches!(refusal, Refusal::Unavailable { .. } | Refusal::MaybeDone(_)) {
            // It may be committed. Others find out when they meet it.
            self.open = false;
        } else {
            self.take_back().await;
        }
        refusal
    }

    /// Lets go of all that is prepared. It cannot have been committed: that was refused, or not asked for.
    pub async fn take_back(&mut self) {
        self.open = false;
        let (intent, client) = (self.intent, self.client);
        if self.prepared.is_empty() {
            return;
        }
        for partition in std::mem::take(&mut self.prepared) {
            if let Err(error) = client.settle(intent, partition, false).await {
                tracing::warn!(%error, "a change that was refused holds on: whoever meets it ends it");
            }
        }
        if let Err(error) = client.change_unheld(intent.coordinator, Command::Ended { intent }).await {
            tracing::debug!(%error, "a coordinator remembers for longer that an intent was taken back");
        }
    }
}

impl Drop for Drive<'_> {
    fn drop(&mut self) {
        if !self.open || self.prepared.is_empty() {
            return;
        }
        let (intent, client) = (self.intent, self.client);
        let decide = client.change_unheld(intent.coordinator, Command::Decide { intent });
        let (others, commit) = match at_once(decide) {
            Some(Ok(Answer::Decided(Decision::Aborted))) => (std::mem::take(&mut self.prepared), false),
            Some(Ok(Answer::Decided(Decision::Committed { others }))) => (others, true),
            _ => return,
        };
        for other in others {
            if !matches!(at_once(client.settle(intent, other, commit)), Some(Ok(()))) {
                return;
            }
        }
        let _ = at_once(client.change_unheld(intent.coordinator, Command::Ended { intent }));
    }
}
