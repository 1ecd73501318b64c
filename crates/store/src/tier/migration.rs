//! The moves of stripes between the two stores of a tier.

use std::mem;
use std::ops::ControlFlow;

use super::{HeldOperation, StripePlace, Tier};
use crate::completion::lock;
use crate::{EngineError, StoreCompletion, StripeKey, StripeSnapshot};

/// A move that goes on. If it is dropped before its end, the stripe is where it was, and an old
/// copy below is removed later.
struct StripeMove<'a> {
    tier: &'a Tier,
    key: StripeKey,
    has_ended: bool,
}

impl Drop for StripeMove<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.tier.abandon_move(self.key);
        }
    }
}

impl Tier {
    /// Makes the moves that are due; returns how many stripes have moved. A move that fails changes
    /// nothing. If the future is dropped, the moves in progress are given up.
    pub async fn work(&self) -> Result<u64, EngineError> {
        let (wanted, queue) = {
            let mut state = lock(&self.demand.0);
            (mem::take(&mut state.wanted), mem::take(&mut state.queue))
        };
        let mut queue = QueuedStripes { tier: self, keys: queue };
        let mut moved = self.sink_excess(wanted).await?;
        while let Some(key) = queue.keys.pop_front() {
            moved += u64::from(self.attend(key).await?);
        }
        Ok(moved)
    }

    /// Lets stripes sink if too much of the upper store is used, or if it had no space for `wanted`
    /// bytes.
    async fn sink_excess(&self, wanted: u64) -> Result<u64, EngineError> {
        let usage = self.upper.usage();
        if wanted == 0 && usage.used <= self.marks.high {
            return Ok(0);
        }
        let target = self.marks.low.min(usage.capacity.saturating_sub(wanted));
        // Free space may be in too small pieces, so one stripe sinks in any case.
        let (mut moved, mut left) = (0, usage.used.saturating_sub(target).max(1));
        let mut rounds_left = ROUNDS_MAX;
        while left > 0 {
            let cold = lock(&self.cold).next(&*self.upper, &self.recent, &mut rounds_left);
            let Some(found) = cold else { break };
            match self.sink(found.key).await? {
                ControlFlow::Break(()) => break,
                ControlFlow::Continue(false) => {}
                ControlFlow::Continue(true) => {
                    moved += 1;
                    left = left.saturating_sub(found.length.into());
                }
            }
        }
        Ok(moved)
    }

    /// Lets a stripe sink; false if it was used meanwhile. Breaks if there is no space below.
    async fn sink(&self, key: StripeKey) -> Result<ControlFlow<(), bool>, EngineError> {
        let Some((mut going_on, writing)) = self.begin_sinking(key) else {
            return Ok(ControlFlow::Continue(false));
        };
        let written = writing.done().await;
        going_on.has_ended = true;
        if self.end_sinking(key, written.is_ok()) {
            return Ok(ControlFlow::Continue(true));
        }
        match written {
            Ok(()) => self.clear_below(key).await.map(|()| ControlFlow::Continue(false)),
            Err(EngineError::Full { .. }) => Ok(ControlFlow::Break(())),
            Err(error) => Err(error),
        }
    }

    fn begin_sinking(&self, key: StripeKey) -> Option<(StripeMove<'_>, StoreCompletion<()>)> {
        let mut places = self.places.write(key);
        if places.contains_key(&key) {
            return None;
        }
        let found = self.upper.snapshot(key).now().ok()??;
        places.insert(key, StripePlace::Sinking { changed: false });
        Some((StripeMove { tier: self, key, has_ended: false }, found.write_to(&*self.lower, key)))
    }

    /// Returns true if the stripe is below now. If it was changed, an old copy is below.
    fn end_sinking(&self, key: StripeKey, is_written: bool) -> bool {
        let mut places = self.places.write(key);
        let Some(StripePlace::Sinking { changed }) = places.get(&key) else { unreachable!("only its move ends it") };
        if !is_written {
            places.remove(&key);
        } else if *changed {
            places.insert(key, StripePlace::Above { clearing: false });
        } else if self.upper.remove(key).now().is_ok() {
            places.insert(key, StripePlace::Below { queued: false });
            return true;
        } else {
            places.insert(key, StripePlace::Above { clearing: false });
        }
        false
    }

    /// Attends to a stripe of the queue: lets it rise, or removes an old copy of it. True if it is
    /// above now.
    async fn attend(&self, key: StripeKey) -> Result<bool, EngineError> {
        let Some((mut going_on, reading)) = self.begin_rising(key) else {
            return self.clear_below(key).await.map(|()| false);
        };
        let found = reading.done().await;
        going_on.has_ended = true;
        let has_risen = self.end_rising(key, found)?;
        self.clear_below(key).await?;
        Ok(has_risen)
    }

    fn begin_rising(&self, key: StripeKey) -> Option<(StripeMove<'_>, StoreCompletion<Option<StripeSnapshot>>)> {
        let mut places = self.places.write(key);
        let place = places.get_mut(&key).filter(|place| matches!(place, StripePlace::Below { .. }))?;
        *place = StripePlace::Rising { held: Vec::new().into() };
        Some((StripeMove { tier: self, key, has_ended: false }, self.lower.snapshot(key)))
    }

    /// Returns true if the stripe is above now; an old copy is below.
    fn end_rising(
        &self,
        key: StripeKey,
        found: Result<Option<StripeSnapshot>, EngineError>,
    ) -> Result<bool, EngineError> {
        // No scan begins meanwhile.
        let scans = lock(&self.scans);
        let mut places = self.places.write(key);
        let held = take_held(places.get(&key));
        let is_absent = matches!(found, Ok(None));
        let has_risen = match &found {
            Ok(Some(found)) => *scans == 0 && found.write_to(&*self.upper, key).now().is_ok(),
            _ => false,
        };
        if is_absent {
            places.remove(&key);
        } else if has_risen {
            places.insert(key, StripePlace::Above { clearing: false });
        } else {
            places.insert(key, StripePlace::Below { queued: false });
        }
        let store = if is_absent || has_risen { &self.upper } else { &self.lower };
        for op in held {
            op(&**store);
        }
        found.map(|_| has_risen)
    }

    /// Removes the old copy of a stripe from the lower store, if there is one.
    async fn clear_below(&self, key: StripeKey) -> Result<(), EngineError> {
        let Some((mut going_on, removing)) = self.begin_clearing(key) else { return Ok(()) };
        removing.done().await?;
        going_on.has_ended = true;
        self.places.write(key).remove(&key);
        Ok(())
    }

    fn begin_clearing(&self, key: StripeKey) -> Option<(StripeMove<'_>, StoreCompletion<()>)> {
        let mut places = self.places.write(key);
        match places.get_mut(&key) {
            Some(StripePlace::Above { clearing }) if !*clearing => *clearing = true,
            _ => return None,
        }
        Some((StripeMove { tier: self, key, has_ended: false }, self.lower.remove(key)))
    }

    /// Gives up a move: the stripe is where it was.
    fn abandon_move(&self, key: StripeKey) {
        let mut places = self.places.write(key);
        let held = take_held(places.get(&key));
        let is_below = matches!(places.get(&key), Some(StripePlace::Rising { .. }));
        let place = if is_below { StripePlace::Below { queued: true } } else { StripePlace::Above { clearing: false } };
        places.insert(key, place);
        for op in held {
            op(&*self.lower);
        }
        lock(&self.demand.0).queue.push_back(key);
    }
}

/// The rounds over the upper store in which cold stripes are looked for: the first may find that
/// all were used since the last one.
const ROUNDS_MAX: u32 = 2;

/// The queue that a turn of work took; what is left of it goes back.
struct QueuedStripes<'a> {
    tier: &'a Tier,
    keys: std::collections::VecDeque<StripeKey>,
}

impl Drop for QueuedStripes<'_> {
    /// Puts them before a stripe whose move has failed: it does not hold them up again.
    fn drop(&mut self) {
        if !self.keys.is_empty() {
            self.tier.demand.announce(|state| {
                self.keys.append(&mut state.queue);
                state.queue = mem::take(&mut self.keys);
            });
        }
    }
}

fn take_held(place: Option<&StripePlace>) -> Vec<HeldOperation> {
    match place {
        Some(StripePlace::Rising { held }) => mem::take(&mut *lock(held)),
        _ => Vec::new(),
    }
}
