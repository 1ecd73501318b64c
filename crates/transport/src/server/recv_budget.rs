//! Memory budget for frames that are being received (payloads and long metas), shared by all
//! connections. A connection whose frame finds no budget is not read meanwhile.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};

/// Frames below this length are read without budget: they are small beside the other memory of a
/// connection.
const LONG_BYTES: usize = 64 << 10;
/// Unit in which budgets are counted, bytes.
const PIECE_BYTES: usize = 4 << 10;
/// Time limit for a frame to arrive while others wait for its budget; a later frame ends its
/// connection.
pub const ARRIVAL_WAIT: Duration = Duration::from_secs(30);

type Acquired = Result<OwnedSemaphorePermit, AcquireError>;

/// Memory budget for arriving frames.
#[derive(Debug)]
pub struct RecvBudget {
    permits: Arc<Semaphore>,
    pieces: u32,
}

/// Share of one connection in a [`RecvBudget`].
#[derive(Default)]
pub struct RecvPermit {
    waits: Option<Pin<Box<dyn Future<Output = Acquired> + Send>>>,
    held: Option<HeldBudget>,
}

#[derive(Debug)]
struct HeldBudget {
    _permit: OwnedSemaphorePermit,
    since: Instant,
    deadline: Pin<Box<Sleep>>,
}

/// The frame has been arriving for too long.
#[derive(Debug, PartialEq)]
pub struct RecvTimedOut;

impl RecvBudget {
    /// Creates a budget for `bytes` bytes at a time.
    pub fn new(bytes: usize) -> Self {
        let pieces = u32::try_from(bytes.div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX).max(1);
        Self { permits: Arc::new(Semaphore::new(pieces as usize)), pieces }
    }

    /// Units that a frame needs. A frame longer than the budget takes all of it.
    fn pieces(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX).min(self.pieces)
    }
}

impl RecvPermit {
    /// Releases the budget: the frame has arrived, or there is none.
    pub fn release(&mut self) {
        *self = Self::default();
    }

    /// Ready if a frame of `bytes` bytes may be read now. The budget granted at first covers the
    /// whole frame: no frame grows while it arrives.
    pub fn poll(
        &mut self,
        budget: &RecvBudget,
        bytes: usize,
        now: Instant,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), RecvTimedOut>> {
        if bytes < LONG_BYTES {
            self.release();
            return Poll::Ready(Ok(()));
        }
        if self.held.is_none() {
            let acquire = || Box::pin(budget.permits.clone().acquire_many_owned(budget.pieces(bytes)));
            let acquired = ready!(self.waits.get_or_insert_with(|| acquire()).as_mut().poll(context));
            self.waits = None;
            self.held = Some(HeldBudget::from(acquired.expect("the budget is never closed"), now));
        }
        let Some(held) = &mut self.held else { unreachable!("it was just acquired") };
        if now.saturating_duration_since(held.since) >= ARRIVAL_WAIT {
            if budget.permits.available_permits() == 0 {
                return Poll::Ready(Err(RecvTimedOut));
            }
            (held.since, held.deadline) = (now, Box::pin(sleep(ARRIVAL_WAIT)));
        }
        // The timer only wakes this task; `now` decides whether the frame is late.
        let _ = held.deadline.as_mut().poll(context);
        Poll::Ready(Ok(()))
    }
}

impl HeldBudget {
    fn from(permit: OwnedSemaphorePermit, since: Instant) -> Self {
        Self { _permit: permit, since, deadline: Box::pin(sleep(ARRIVAL_WAIT)) }
    }
}

impl std::fmt::Debug for RecvPermit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RecvPermit").field("waits", &self.waits.is_some()).field("held", &self.held).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[tokio::test]
    async fn payloads_beyond_the_budget_wait_and_who_stalls_while_others_wait_is_ended() {
        let (budget, now) = (RecvBudget::new(1 << 20), Instant::now());
        let context = &mut Context::from_waker(Waker::noop());
        let [mut one, mut other, mut short] = [0; 3].map(|_| RecvPermit::default());
        assert_eq!(one.poll(&budget, 16 << 20, now, context), Poll::Ready(Ok(())), "alone, however long it is");
        assert_eq!(other.poll(&budget, 1 << 20, now, context), Poll::Pending);
        assert_eq!(short.poll(&budget, 4096, now, context), Poll::Ready(Ok(())));
        let late = now + ARRIVAL_WAIT;
        assert_eq!(one.poll(&budget, 16 << 20, late, context), Poll::Ready(Err(RecvTimedOut)));
        one.release();
        assert_eq!(other.poll(&budget, 1 << 20, late, context), Poll::Ready(Ok(())));
    }

    #[tokio::test]
    async fn a_slow_payload_goes_on_where_there_is_room_for_others() {
        let (budget, mut one, mut now) = (RecvBudget::new(1 << 20), RecvPermit::default(), Instant::now());
        let context = &mut Context::from_waker(Waker::noop());
        for _ in 0..5 {
            assert_eq!(one.poll(&budget, 128 << 10, now, context), Poll::Ready(Ok(())));
            now += ARRIVAL_WAIT;
        }
    }
}
