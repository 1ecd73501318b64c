//! The copy of a partition's stripes: they are sent while they are used, with the changes that come
//! meanwhile, in the order in which these were done.

use crate::{
    migration::{
        departure::Departure,
        forwarding_store::{ChangePromise, QueuedAction, QueuedChange},
        move_error::MoveError,
    },
    now, sleep_until,
};
use futures_util::{FutureExt, StreamExt, future::pending};
use std::time::Instant;
use store::{StripeEntry, StripeKey, StripeScan, StripeSnapshot, StripeStore};
use tokio::{select, task::yield_now};
use wire::{Answer, Failure, MoveStep, StripeAction};

/// Stripes of a page of the scan.
const SCAN_PAGE: usize = 256;
/// Most bytes of copies that are on their way at a time: enough for a fast network, and little
/// enough to leave space and turns to others.
const COPY_WINDOW_BYTES: u64 = 4 << 20;
/// Most changes that are on their way at a time.
const CHANGES_IN_FLIGHT_MAX: usize = 64;
/// Bytes and stripes of copies between two rests.
const COPY_BYTES: u64 = 256 << 10;
const COPY_STRIPES: u32 = 64;

/// A change that was sent, and the target's answer.
pub struct SentChange {
    bytes: u64,
    promise: Option<ChangePromise>,
    answer: Result<Answer, Failure>,
}

/// What a move handles while it copies.
enum MoveEvent {
    /// A change is to be sent.
    Queued(QueuedChange),
    /// The target has answered.
    Sent(SentChange),
}

impl Departure<'_> {
    /// The next page of a scan.
    pub(super) async fn next_page(&mut self, scan: &mut dyn StripeScan) -> Result<Option<Vec<StripeEntry>>, MoveError> {
        let page = scan.next_page(SCAN_PAGE).done().await;
        let page = page.map_err(|error| MoveError::Unreadable(error.to_string()))?;
        yield_now().await;
        Ok(page)
    }

    /// Copies all stripes, and sends the changes that are queued meanwhile.
    pub(super) async fn copy_stripes(&mut self) -> Result<(), MoveError> {
        let node = self.node;
        let mut scan = node.forwarding.scan_partition(self.id);
        let (mut began, mut bytes, mut stripes) = (now(), 0, 0);
        while let Some(page) = self.next_page(&mut *scan).await? {
            for StripeEntry { key, length, .. } in page {
                node.forwarding.copy(key);
                self.send_queued().await?;
                bytes += u64::from(length);
                stripes += 1;
                if bytes >= COPY_BYTES || stripes == COPY_STRIPES {
                    self.rest_after(began).await?;
                    (began, bytes, stripes) = (now(), 0, 0);
                }
            }
            while let Some(Some(sent)) = self.in_flight.next().now_or_never() {
                self.settle(sent)?;
            }
        }
        node.forwarding.end_scan(self.id);
        self.settle_all().await?;
        node.move_pace.charge(now().saturating_duration_since(began), now());
        Ok(())
    }

    /// Rests for work since `began`, if clients use the node: then what was sent has to arrive
    /// first, since that is part of the work.
    async fn rest_after(&mut self, began: Instant) -> Result<(), MoveError> {
        if self.node.rest_of_moves().is_some() {
            self.settle_all().await?;
        }
        self.node.move_pace.charge(now().saturating_duration_since(began), now());
        self.rest().await
    }

    /// Rests as long as moves owe the clients of the node. Changes are sent meanwhile.
    pub(super) async fn rest(&mut self) -> Result<(), MoveError> {
        while let Some(until) = self.node.rest_of_moves() {
            while let Some(event) = self.next_event(Some(until)).await {
                self.handle(event).await?;
            }
        }
        Ok(())
    }

    /// Sends what is queued, until the target has all of it.
    pub(super) async fn settle_all(&mut self) -> Result<(), MoveError> {
        self.send_queued().await?;
        while !self.in_flight.is_empty() {
            self.settle_next().await?;
        }
        Ok(())
    }

    /// Sends what is queued now.
    async fn send_queued(&mut self) -> Result<(), MoveError> {
        loop {
            while !self.has_room() {
                self.settle_one().await?;
            }
            let Some(change) = self.changes.as_mut().and_then(|changes| changes.try_recv().ok()) else {
                return Ok(());
            };
            self.send(change).await?;
        }
    }

    /// True if more may be sent. What a connection cannot take at once would be overtaken by what
    /// is sent later.
    fn has_room(&self) -> bool {
        self.in_flight.len() < CHANGES_IN_FLIGHT_MAX && self.bytes_in_flight < COPY_WINDOW_BYTES
    }

    /// Waits for the answer to something that was sent.
    async fn settle_one(&mut self) -> Result<(), MoveError> {
        match self.in_flight.next().await {
            Some(sent) => self.settle(sent),
            None => Ok(()),
        }
    }

    /// Waits for the answer to something that was sent, or sends what is queued meanwhile.
    async fn settle_next(&mut self) -> Result<(), MoveError> {
        match self.next_event(None).await {
            Some(event) => self.handle(event).await,
            None => Ok(()),
        }
    }

    /// The next change that is queued, if there is room, or the next answer. `None` at the end of
    /// `until`; without that, if there are no changes to come.
    async fn next_event(&mut self, until: Option<Instant>) -> Option<MoveEvent> {
        let has_room = self.has_room();
        let Self { changes, in_flight, .. } = self;
        let next_change = async {
            match changes.as_mut().filter(|_| has_room) {
                Some(changes) => changes.recv().await,
                None => None,
            }
        };
        let end = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => pending().await,
            }
        };
        select! {
            biased;
            Some(change) = next_change => Some(MoveEvent::Queued(change)),
            Some(sent) = in_flight.next() => Some(MoveEvent::Sent(sent)),
            () = end => None,
            else => None,
        }
    }

    async fn handle(&mut self, event: MoveEvent) -> Result<(), MoveError> {
        match event {
            MoveEvent::Queued(change) => self.send(change).await,
            MoveEvent::Sent(sent) => self.settle(sent),
        }
    }

    fn settle(&mut self, SentChange { bytes, promise, answer }: SentChange) -> Result<(), MoveError> {
        self.bytes_in_flight -= bytes;
        drop(promise);
        answer.map_err(MoveError::Target)?;
        self.copied.add(bytes);
        self.node.moves.outgoing.add_bytes(bytes);
        Ok(())
    }

    /// Sends a change to the target, after those that were sent before.
    async fn send(&mut self, change: QueuedChange) -> Result<(), MoveError> {
        let Some(change) = change.await_local().await else { return Ok(()) };
        let (StripeKey { file, stripe, .. }, action, promise) = change.split();
        let (snapshot, is_again) = match action {
            QueuedAction::Change(action) => {
                self.send_action(MoveStep::Stripe { file, stripe, action }, promise);
                return Ok(());
            }
            QueuedAction::Copy(snapshot) => (snapshot, false),
            QueuedAction::CopyAgain(snapshot) => (snapshot, true),
        };
        let found = snapshot.done().await.map_err(|error| MoveError::Unreadable(error.to_string()))?;
        let send = |action| MoveStep::Stripe { file, stripe, action };
        let Some(StripeSnapshot { generation, content: data }) = found else {
            if is_again {
                self.send_action(send(StripeAction::Remove), promise);
            }
            return Ok(());
        };
        let (generation, length) = (generation.0, u32::try_from(data.len()).expect("at most a stripe"));
        let cut = StripeAction::Truncate { generation, length };
        if data.is_empty() {
            self.send_action(send(cut), promise);
            return Ok(());
        }
        self.send_action(send(StripeAction::Write { generation, offset: 0, ends: true, data }), promise);
        if is_again {
            // The target may have a longer one.
            self.send_action(send(cut), None);
        }
        Ok(())
    }

    fn send_action(&mut self, step: MoveStep, promise: Option<ChangePromise>) {
        let bytes = match &step {
            MoveStep::Stripe { action: StripeAction::Write { data, .. }, .. } => data.len() as u64,
            _ => 0,
        };
        let answer = self.step(step);
        self.bytes_in_flight += bytes;
        self.in_flight.push(Box::pin(async move { SentChange { bytes, promise, answer: answer.await } }));
    }
}
