//! The retry policy: a state machine without a clock.

use node::sleep_until;
use std::time::Duration;
use wire::{Failure, MovedPartition, Object, Outcome, Refusal};

/// Limits of a client's retries.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Number of times that a call is sent before its node counts as unavailable.
    pub tries: u32,
    /// The pause before the second try; each later one is twice as long.
    pub pause_first: Duration,
    /// The longest pause.
    pub pause_max: Duration,
}

impl Default for RetryPolicy {
    /// About two seconds in all: longer than a node pauses, shorter than a person waits.
    fn default() -> Self {
        Self { tries: 16, pause_first: Duration::from_millis(1), pause_max: Duration::from_millis(200) }
    }
}

/// Most entries of the map that a call learns without counting a try: a partition that has moved
/// again and again is no progress.
const MOVES_MAX: u32 = 16;

/// The tries of one call.
#[derive(Debug)]
pub struct RetryState {
    retry_policy: RetryPolicy,
    tries: u32,
    /// Number of entries that were learnt.
    moves: u32,
    /// True if a try may have been executed, though no answer came.
    lost: bool,
}

/// How to proceed after a failure.
#[derive(Debug, PartialEq)]
pub enum RetryDecision {
    /// Resend after a pause.
    Resend(Duration),
    /// Take this entry of the map, and resend by it.
    Learn(Box<MovedPartition>),
    /// Give up.
    Refuse(Refusal),
}

impl RetryState {
    pub fn new(retry_policy: RetryPolicy) -> Self {
        Self { retry_policy, tries: 0, moves: 0, lost: false }
    }

    /// Decides how to proceed after a failure of a call about `object`.
    pub fn on(&mut self, failure: Failure, object: impl FnOnce() -> Object) -> RetryDecision {
        self.lost |= matches!(failure, Failure::Lost(_));
        match failure {
            Failure::Refused(Refusal::Moved(moved)) if self.moves < MOVES_MAX => {
                self.moves += 1;
                RetryDecision::Learn(moved)
            }
            Failure::Refused(refusal) if !matches!(refusal, Refusal::Moved(_)) => RetryDecision::Refuse(refusal),
            failure => match self.pause() {
                Some(pause) => RetryDecision::Resend(pause),
                None => RetryDecision::Refuse(Refusal::Unavailable {
                    object: object(),
                    tries: self.tries,
                    why: failure.to_string().into(),
                }),
            },
        }
    }

    /// True if a try may have been executed, though no answer came.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// The pause before the next try; `None` if there is no further try.
    pub fn pause(&mut self) -> Option<Duration> {
        self.tries += 1;
        let doubled = self.retry_policy.pause_first.saturating_mul(1 << (self.tries - 1).min(20));
        (self.tries < self.retry_policy.tries).then(|| doubled.min(self.retry_policy.pause_max))
    }

    /// Waits before the next try after a refusal; returns the refusal if there is no further try.
    pub async fn pause_after(&mut self, refusal: Refusal) -> Outcome<()> {
        let Some(pause) = self.pause() else { return Err(refusal) };
        sleep_until(node::now() + pause).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::{NodeId, PartitionEntry, PartitionId};

    const PATIENCE: RetryPolicy =
        RetryPolicy { tries: 4, pause_first: Duration::from_millis(1), pause_max: Duration::from_millis(3) };

    #[test]
    fn pauses_grow_to_a_limit_and_tries_end() {
        let mut retry = RetryState::new(PATIENCE);
        let mut on = || retry.on(Failure::Lost("cut".into()), || Object::Pool);
        assert_eq!(on(), RetryDecision::Resend(Duration::from_millis(1)));
        assert_eq!(on(), RetryDecision::Resend(Duration::from_millis(2)));
        assert_eq!(on(), RetryDecision::Resend(Duration::from_millis(3)));
        let RetryDecision::Refuse(Refusal::Unavailable { tries: 4, why, .. }) = on() else { panic!("it gives up") };
        assert!(why.contains("cut"));
    }

    #[test]
    fn a_new_entry_of_the_map_costs_no_try_but_not_for_ever() {
        let entry = PartitionEntry::first(NodeId(2));
        let moved = Box::new(MovedPartition { partition: PartitionId(3), entry });
        let failure = Failure::Refused(Refusal::Moved(moved.clone()));
        let mut retry = RetryState::new(PATIENCE);
        for _ in 0..MOVES_MAX {
            assert_eq!(retry.on(failure.clone(), || Object::Pool), RetryDecision::Learn(moved.clone()));
        }
        assert_eq!(retry.on(failure, || Object::Pool), RetryDecision::Resend(PATIENCE.pause_first));
    }

    #[test]
    fn a_refusal_is_not_tried_again() {
        let refusal = Refusal::NotFound(Object::Pool);
        let step = RetryState::new(PATIENCE).on(Failure::Refused(refusal.clone()), || Object::Pool);
        assert_eq!(step, RetryDecision::Refuse(refusal));
    }
}
