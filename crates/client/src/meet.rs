//! Conflicts with intents of other clients: wait a little, then have the intent decided, and settle
//! it as decided.

use crate::{Client, Patience, client::unexpected};
use node::sleep_until;
use parking_lot::Mutex;
use placement::PartitionId;
use std::time::Duration;
use wire::{Answer, Command, Decision, Intent, Object, Outcome, Refusal};

/// The conflict with one intent at which it is decided instead of waited for: its driver counts as
/// dead. Each pause before that is twice as long as the one before. A driver that is alive begins
/// anew; nothing is lost.
const PAUSES_MAX: u32 = 8;
/// Divisor that gives the first pause from the first pause between tries at a node: an intent takes
/// as long as a few messages.
const PAUSE_SHARE: u32 = 8;
/// Most intents that one call conflicts with before it is refused as busy.
const MEETINGS_MAX: usize = 1000;

/// The conflicts of one call so far, over all its plans.
#[derive(Debug)]
pub struct Meetings {
    pause_first: Duration,
    /// Each intent, with the number of conflicts.
    met: Mutex<Vec<(Intent, u32)>>,
}

/// How to proceed with an intent that is not decided.
#[derive(Debug, PartialEq, Eq)]
enum Patient {
    Wait(Duration),
    Decide,
    GiveUp,
}

impl Meetings {
    pub fn new(patience: Patience) -> Self {
        Self { pause_first: patience.pause_first / PAUSE_SHARE, met: Mutex::default() }
    }

    fn on(&self, intent: Intent) -> Patient {
        let mut met = self.met.lock();
        let at = met.iter().position(|(known, _)| *known == intent).unwrap_or_else(|| {
            met.push((intent, 0));
            met.len() - 1
        });
        met[at].1 += 1;
        match met[at].1 {
            _ if met.len() > MEETINGS_MAX => Patient::GiveUp,
            PAUSES_MAX.. => Patient::Decide,
            times => Patient::Wait(self.pause_first.saturating_mul(1 << (times - 1))),
        }
    }
}

impl Client {
    /// The state of a call without conflicts so far.
    pub(crate) fn meetings(&self) -> Meetings {
        Meetings::new(self.0.patience)
    }

    /// Repeats a query until its answer is consistent: no intent that holds part of it was
    /// committed when it was given.
    pub(crate) async fn ask_settled(&self, partition: PartitionId, command: Command) -> Outcome<Answer> {
        let meetings = Meetings::new(self.0.patience);
        // Intents that were found undecided while they held what was asked for. One that still
        // holds it was not committed in between, so the state without it was right at that moment.
        let mut open: Vec<Intent> = Vec::new();
        loop {
            match self.ask_once(partition, command.clone()).await {
                Ok(Answer::Unsettled { intents: held, answer }) if held.iter().all(|intent| open.contains(intent)) => {
                    return settled(*answer, &command);
                }
                Ok(Answer::Unsettled { intents: held, .. }) => {
                    for intent in held {
                        self.look_at(intent, partition, &mut open).await?;
                    }
                }
                Err(Refusal::LockedByIntent { intent }) => self.meet(intent, partition, &meetings).await?,
                outcome => return outcome,
            }
        }
    }

    async fn look_at(&self, intent: Intent, partition: PartitionId, open: &mut Vec<Intent>) -> Outcome<()> {
        if open.len() >= MEETINGS_MAX {
            return Err(Refusal::Busy(Object::Pool));
        }
        match self.status(intent).await? {
            Decision::Committed { others } => self.settle_everywhere(intent, others).await,
            Decision::Aborted => self.settle(intent, partition, false).await,
            Decision::Open => {
                open.push(intent);
                Ok(())
            }
        }
    }

    /// Waits for an intent that holds something in a partition, or has it decided and settles it.
    pub(crate) async fn meet(&self, intent: Intent, partition: PartitionId, meetings: &Meetings) -> Outcome<()> {
        match (self.status(intent).await?, meetings.on(intent)) {
            (_, Patient::GiveUp) => Err(Refusal::Busy(Object::Pool)),
            (Decision::Committed { others }, _) => self.settle_everywhere(intent, others).await,
            (Decision::Aborted, _) => self.settle(intent, partition, false).await,
            (Decision::Open, Patient::Wait(pause)) => {
                sleep_until(node::now() + pause).await;
                Ok(())
            }
            (Decision::Open, Patient::Decide) => self.finish(intent, partition).await,
        }
    }

    /// Has an intent decided, and settles it: everywhere if it is committed, otherwise in this
    /// partition.
    pub(crate) async fn finish(&self, intent: Intent, partition: PartitionId) -> Outcome<()> {
        match decided(self.change_unheld(intent.coordinator, Command::Decide { intent }).await?)? {
            Decision::Committed { others } => self.settle_everywhere(intent, others).await,
            Decision::Aborted | Decision::Open => self.settle(intent, partition, false).await,
        }
    }

    async fn status(&self, intent: Intent) -> Outcome<Decision> {
        decided(self.ask_once(intent.coordinator, Command::Status { intent }).await?)
    }

    /// Settles a committed intent at all other partitions, then lets its coordinator forget it.
    pub(crate) async fn settle_everywhere(&self, intent: Intent, others: Vec<PartitionId>) -> Outcome<()> {
        for other in others {
            self.settle(intent, other, true).await?;
        }
        self.change_unheld(intent.coordinator, Command::ForgetIntent { intent }).await.map(drop)
    }

    pub(crate) async fn settle(&self, intent: Intent, partition: PartitionId, commit: bool) -> Outcome<()> {
        match self.change_unheld(partition, Command::Settle { intent, commit }).await? {
            Answer::Settled { deleted } => {
                for deleted in deleted {
                    self.purge(Some(deleted)).await;
                }
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }
}

fn decided(answer: Answer) -> Outcome<Decision> {
    match answer {
        Answer::Decided(decision) => Ok(decision),
        other => Err(unexpected(&other)),
    }
}

/// The answer itself; a missing entry becomes a refusal.
fn settled(answer: Answer, command: &Command) -> Outcome<Answer> {
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
        let meeting = Meetings::new(Patience { pause_first: Duration::from_millis(8), ..Patience::default() });
        let intent = Intent { number: 1, session: Session(1), coordinator: PartitionId(0) };
        assert_eq!(meeting.on(intent), Patient::Wait(Duration::from_millis(1)));
        assert_eq!(meeting.on(intent), Patient::Wait(Duration::from_millis(2)));
        let other = Intent { number: 2, ..intent };
        assert_eq!(meeting.on(other), Patient::Wait(Duration::from_millis(1)), "each has its time");
        let waits = (0..100).take_while(|_| meeting.on(other) != Patient::Decide).count();
        assert_eq!(waits, 6);
    }

    #[test]
    fn a_call_that_meets_ever_new_intents_ends() {
        let meeting = Meetings::new(Patience::default());
        let intent = |number| Intent { number, session: Session(1), coordinator: PartitionId(0) };
        assert!((0..2 * MEETINGS_MAX as u64).any(|number| meeting.on(intent(number)) == Patient::GiveUp));
    }
}
