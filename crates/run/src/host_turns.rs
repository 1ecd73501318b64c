//! Turns of attempts on a host: those that were sent ahead wait for processors in the order of
//! their coming.

use crate::order::AttemptTurn;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The longest time that an attempt waits for its turn. The scheduler counts it as running, so it
/// must not wait for an attempt that itself waits, for example for space in the pool.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Processors of a host, as permits.
#[derive(Debug)]
pub struct HostTurns {
    slots: u32,
    processors: Arc<Semaphore>,
}

impl Default for HostTurns {
    /// No processors: the first attempt says how many there are.
    fn default() -> Self {
        Self { slots: 0, processors: Arc::new(Semaphore::new(0)) }
    }
}

impl HostTurns {
    /// Takes the processors of an attempt: at once, or when its turn has come. The future returns
    /// `None` if the attempt begins without free processors.
    pub fn take(&mut self, turn: AttemptTurn) -> impl Future<Output = Option<OwnedSemaphorePermit>> + use<> {
        if self.slots != turn.slots {
            // Attempts that run give back the processors that they took before.
            (self.slots, self.processors) = (turn.slots, Arc::new(Semaphore::new(turn.slots as usize)));
        }
        let processors = self.processors.clone();
        let free = processors.clone().try_acquire_many_owned(turn.cpus).ok();
        async move {
            if free.is_some() || !turn.waits {
                return free;
            }
            let taken = tokio::time::timeout(WAIT_MAX, processors.acquire_many_owned(turn.cpus)).await;
            taken.ok().and_then(Result::ok)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: AttemptTurn = AttemptTurn { cpus: 1, slots: 1, waits: true };

    #[tokio::test]
    async fn attempts_that_were_sent_ahead_begin_one_after_another_in_their_order() {
        let mut turns = HostTurns::default();
        let first = turns.take(AttemptTurn { waits: false, ..WAITS }).await;
        let (second, third) = (tokio::spawn(turns.take(WAITS)), tokio::spawn(turns.take(WAITS)));
        tokio::task::yield_now().await;
        assert!(first.is_some() && !second.is_finished());
        drop(first);
        let second = second.await.expect("it does not panic");
        assert!(second.is_some() && !third.is_finished());
        drop(second);
        assert!(third.await.expect("it does not panic").is_some());
    }

    #[tokio::test]
    async fn an_attempt_that_must_not_wait_begins_without_free_processors() {
        let mut turns = HostTurns::default();
        let first = turns.take(WAITS).await;
        assert!(turns.take(AttemptTurn { waits: false, ..WAITS }).await.is_none() && first.is_some());
    }

    #[tokio::test]
    async fn no_attempt_waits_forever_for_one_that_does_not_end() {
        let mut turns = HostTurns::default();
        let first = turns.take(WAITS).await;
        assert!(turns.take(WAITS).await.is_none() && first.is_some());
    }
}
