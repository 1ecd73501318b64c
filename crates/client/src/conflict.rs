//! Conflicts with intents of other clients: wait a little, then have the intent decided, and settle
//! it as decided.

use crate::{Client, RetryPolicy};
use node::sleep_until;
use parking_lot::Mutex;
use placement::PartitionId;
use std::time::Duration;
use wire::{Answer, Command, Decision, Intent, Object, Outcome, Refusal, TypedCommand, UnsettledAnswer};

/// The conflict with one intent at which it is decided instead of waited for: its driver counts as
/// dead. Each pause before that is twice as long as the one before. A driver that is alive begins
/// anew; nothing is lost.
const PAUSES_MAX: u32 = 8;
/// Divisor that gives the first pause from the first pause between tries at a node: an intent takes
/// as long as a few messages.
const PAUSE_SHARE: u32 = 8;
/// Most intents that one call conflicts with before it is refused as busy.
const CONFLICTS_MAX: usize = 1000;

/// The conflicts of one call so far, over all its plans.
#[derive(Debug)]
pub struct ConflictBackoff {
    pause_first: Duration,
    /// Each intent, with the number of conflicts.
    seen: Mutex<Vec<(Intent, u32)>>,
}

/// How to proceed with an intent that is not decided.
#[derive(Debug, PartialEq, Eq)]
enum ConflictAction {
    Wait(Duration),
    Decide,
    GiveUp,
}

impl ConflictBackoff {
    pub fn new(retry_policy: RetryPolicy) -> Self {
        Self { pause_first: retry_policy.pause_first / PAUSE_SHARE, seen: Mutex::default() }
    }

    fn on(&self, intent: Intent) -> ConflictAction {
        let mut seen = self.seen.lock();
        let at = seen.iter().position(|(known, _)| *known == intent).unwrap_or_else(|| {
            seen.push((intent, 0));
            seen.len() - 1
        });
        seen[at].1 += 1;
        match seen[at].1 {
            _ if seen.len() > CONFLICTS_MAX => ConflictAction::GiveUp,
            PAUSES_MAX.. => ConflictAction::Decide,
            times => ConflictAction::Wait(self.pause_first.saturating_mul(1 << (times - 1))),
        }
    }
}

impl Client {
    /// The state of a call without conflicts so far.
    pub(crate) fn conflict_backoff(&self) -> ConflictBackoff {
        ConflictBackoff::new(self.router().retry_policy)
    }

    /// Repeats a query until its answer is consistent: no intent that holds part of it was
    /// committed when it was given.
    pub(crate) async fn query_settled(&self, partition: PartitionId, command: Command) -> Outcome<Answer> {
        match self.ask_settled(partition, command.clone()).await {
            Ok(Answer::Hosted(hosted)) => self.finish_query(partition, command, hosted).await,
            outcome => outcome,
        }
    }

    /// Like [`Self::query_settled`]; the answer may be one that another node must finish.
    pub(crate) async fn ask_settled(&self, partition: PartitionId, command: Command) -> Outcome<Answer> {
        let conflicts = ConflictBackoff::new(self.router().retry_policy);
        // Intents that were found undecided while they held what was asked for. One that still
        // holds it was not committed in between, so the state without it was right at that moment.
        let mut open: Vec<Intent> = Vec::new();
        loop {
            match self.query_once(partition, command.clone()).await {
                Ok(Answer::Unsettled(UnsettledAnswer { intents: held, answer }))
                    if held.iter().all(|intent| open.contains(intent)) =>
                {
                    return into_settled(*answer, &command);
                }
                Ok(Answer::Unsettled(UnsettledAnswer { intents: held, .. })) => {
                    for intent in held {
                        self.probe_intent(intent, partition, &mut open).await?;
                    }
                }
                Err(Refusal::LockedByIntent { intent }) => self.resolve_conflict(intent, partition, &conflicts).await?,
                outcome => return outcome,
            }
        }
    }

    async fn probe_intent(&self, intent: Intent, partition: PartitionId, open: &mut Vec<Intent>) -> Outcome<()> {
        if open.len() >= CONFLICTS_MAX {
            return Err(Refusal::Busy(Object::Pool));
        }
        match self.intent_status(intent).await? {
            Decision::Committed { others } => self.settle_everywhere(intent, others).await,
            Decision::Aborted => self.settle(intent, partition, false).await,
            Decision::Open => {
                open.push(intent);
                Ok(())
            }
        }
    }

    /// Waits for an intent that holds something in a partition, or has it decided and settles it.
    pub(crate) async fn resolve_conflict(
        &self,
        intent: Intent,
        partition: PartitionId,
        conflicts: &ConflictBackoff,
    ) -> Outcome<()> {
        match (self.intent_status(intent).await?, conflicts.on(intent)) {
            (_, ConflictAction::GiveUp) => Err(Refusal::Busy(Object::Pool)),
            (Decision::Committed { others }, _) => self.settle_everywhere(intent, others).await,
            (Decision::Aborted, _) => self.settle(intent, partition, false).await,
            (Decision::Open, ConflictAction::Wait(pause)) => {
                sleep_until(node::now() + pause).await;
                Ok(())
            }
            (Decision::Open, ConflictAction::Decide) => self.finish_intent(intent, partition).await,
        }
    }

    /// Has an intent decided, and settles it: everywhere if it is committed, otherwise in this
    /// partition.
    pub(crate) async fn finish_intent(&self, intent: Intent, partition: PartitionId) -> Outcome<()> {
        match self.mutate_or_conflict(intent.coordinator, Command::decide(intent)).await? {
            Decision::Committed { others } => self.settle_everywhere(intent, others).await,
            Decision::Aborted | Decision::Open => self.settle(intent, partition, false).await,
        }
    }

    async fn intent_status(&self, intent: Intent) -> Outcome<Decision> {
        let TypedCommand { command, take } = Command::status(intent);
        take(self.query_once(intent.coordinator, command).await?)
    }

    /// Settles a committed intent at all other partitions, then lets its coordinator forget it.
    pub(crate) async fn settle_everywhere(&self, intent: Intent, others: Vec<PartitionId>) -> Outcome<()> {
        for other in others {
            self.settle(intent, other, true).await?;
        }
        self.mutate_or_conflict(intent.coordinator, Command::forget_intent(intent)).await
    }

    pub(crate) async fn settle(&self, intent: Intent, partition: PartitionId, commit: bool) -> Outcome<()> {
        for deleted in self.mutate_or_conflict(partition, Command::settle(intent, commit)).await? {
            self.purge(Some(deleted)).await;
        }
        Ok(())
    }
}

/// The answer itself; a missing entry becomes a refusal.
fn into_settled(answer: Answer, command: &Command) -> Outcome<Answer> {
    match (answer, command) {
        (Answer::NoEntry, Command::Lookup { parent, name } | Command::GetObject { parent, name, .. }) => {
            Err(Refusal::NotFound(Object::entry(*parent, name)))
        }
        (answer, _) => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Session;

    #[test]
    fn an_intent_is_waited_for_a_little_and_then_decided() {
        let conflicts =
            ConflictBackoff::new(RetryPolicy { pause_first: Duration::from_millis(8), ..RetryPolicy::default() });
        let intent = Intent { number: 1, session: Session(1), coordinator: PartitionId(0) };
        assert_eq!(conflicts.on(intent), ConflictAction::Wait(Duration::from_millis(1)));
        assert_eq!(conflicts.on(intent), ConflictAction::Wait(Duration::from_millis(2)));
        let other = Intent { number: 2, ..intent };
        assert_eq!(conflicts.on(other), ConflictAction::Wait(Duration::from_millis(1)), "each has its time");
        let waits = (0..100).take_while(|_| conflicts.on(other) != ConflictAction::Decide).count();
        assert_eq!(waits, 6);
    }

    #[test]
    fn a_call_that_meets_ever_new_intents_ends() {
        let conflicts = ConflictBackoff::new(RetryPolicy::default());
        let intent = |number| Intent { number, session: Session(1), coordinator: PartitionId(0) };
        assert!((0..2 * CONFLICTS_MAX as u64).any(|number| conflicts.on(intent(number)) == ConflictAction::GiveUp));
    }
}
