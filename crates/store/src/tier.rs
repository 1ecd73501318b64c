//! A tier: two stores as one, the upper fast and small, the lower large and perhaps slow.
//!
//! A stripe is in one of the two, and operations on it go there. New stripes begin in the upper
//! store. Moves are work beside operations ([`Tier::work`]): what is not used sinks when the upper
//! store fills up, and what is used rises again.
//!
//! ```text
//!   above --sinks--> below   operations go to the upper copy; if one changes it, the stripe stays
//!   below --rises--> above   operations are held, in their order, until the stripe has arrived
//! ```
//!
//! The upper store must complete its operations at once, as a store in memory does. An operation on
//! a stripe above then completes at once too. If the upper store is full, the result is
//! [`EngineError::Full`], and the freed hook tells when a move has made space. The stripes below
//! are listed in memory.
//!
//! No operation waits for a move but those on a rising stripe, and they only as long as somebody
//! polls [`Tier::work`].

mod migration;
mod recent;
mod scan;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Poll, Waker};

use bytes::Bytes;

use crate::completion::lock;
use crate::{
    EngineError, EngineUsage, FreedHook, Generation, StoreCompletion, StripeKey, StripeScan, StripeSnapshot,
    StripeStore,
};
use recent::{ColdFinder, RecentStripes};
use scan::TierScan;

/// Shards of the list of stripes below: many more than a node has threads.
const SHARDS: usize = 64;
/// The most stripes that a scan of the tier's own asks for at once: a page of 4 KiB.
const PAGE_STRIPES: usize = 128;

/// How full the upper store may get, in bytes that are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierMarks {
    /// Stripes sink when more than this is used.
    pub high: u64,
    /// Stripes sink until this is used, at most `high`.
    pub low: u64,
}

/// Two stores as one.
pub struct Tier {
    upper: Arc<dyn StripeStore>,
    lower: Arc<dyn StripeStore>,
    marks: TierMarks,
    places: Arc<StripePlaces>,
    recent: RecentStripes,
    cold: Mutex<ColdFinder>,
    demand: Arc<MoveDemand>,
    /// The number of scans. Nothing rises meanwhile: a scan could miss it.
    scans: Arc<Mutex<u64>>,
}

/// The place of a stripe that is not only in the upper store.
enum StripePlace {
    /// In the upper store. The lower one may have an old copy.
    Above {
        /// The old copy is being removed.
        clearing: bool,
    },
    /// In the upper store. The lower one is writing a copy.
    Sinking {
        /// It was changed since, so that the copy is old.
        changed: bool,
    },
    /// In the lower store.
    Below {
        /// It is to rise.
        queued: bool,
    },
    /// In the lower store, which is reading it. Operations are held.
    Rising { held: Mutex<Vec<HeldOperation>> },
}

/// An operation that is submitted to the store where its stripe is in the end.
type HeldOperation = Box<dyn FnOnce(&dyn StripeStore) + Send>;

/// The effect of an operation on its stripe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StripeUse {
    Read,
    Change,
}

/// The places of stripes; one that is not listed is in the upper store, or absent.
struct StripePlaces([RwLock<HashMap<StripeKey, StripePlace>>; SHARDS]);

impl StripePlaces {
    fn read(&self, key: StripeKey) -> RwLockReadGuard<'_, HashMap<StripeKey, StripePlace>> {
        self.shard(key).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, key: StripeKey) -> RwLockWriteGuard<'_, HashMap<StripeKey, StripePlace>> {
        self.shard(key).write().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, key: StripeKey) -> &RwLock<HashMap<StripeKey, StripePlace>> {
        &self.0[(key.mixed() >> 58) as usize]
    }
}

/// The demand for moves.
#[derive(Default)]
struct MoveDemand(Mutex<MoveDemandState>);

#[derive(Default)]
struct MoveDemandState {
    /// There may be work.
    is_due: bool,
    /// The bytes for which the upper store had no space.
    wanted: u64,
    /// Stripes below that were used, and old copies to remove.
    queue: VecDeque<StripeKey>,
    waker: Option<Waker>,
}

impl MoveDemand {
    fn announce(&self, change: impl FnOnce(&mut MoveDemandState)) {
        let mut state = lock(&self.0);
        change(&mut state);
        state.is_due = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Announces a result that says that there is no space.
    fn note<T>(&self, done: StoreCompletion<T>) -> StoreCompletion<T> {
        if let StoreCompletion::Ready(Err(EngineError::Full { wanted, .. })) = &done {
            self.announce(|state| state.wanted = state.wanted.max(*wanted));
        }
        done
    }
}

impl Tier {
    /// Makes one store of two. The lower one may have stripes, the upper one has none.
    pub async fn open(
        upper: Arc<dyn StripeStore>,
        lower: Arc<dyn StripeStore>,
        marks: TierMarks,
    ) -> Result<Self, EngineError> {
        let places = StripePlaces(std::array::from_fn(|_| RwLock::default()));
        let mut scan = lower.scan();
        while let Some(page) = scan.next_page(PAGE_STRIPES).done().await? {
            for found in page {
                places.write(found.key).insert(found.key, StripePlace::Below { queued: false });
            }
        }
        let (demand, scans) = (Arc::default(), Arc::default());
        let (recent, cold) = (RecentStripes::new(), Mutex::new(ColdFinder::new(&*upper)));
        Ok(Self { upper, lower, marks, places: Arc::new(places), recent, cold, demand, scans })
    }

    /// Waits until there may be moves to make. One caller may wait.
    pub async fn wait_for_work(&self) {
        poll_fn(|context| {
            let mut state = lock(&self.demand.0);
            if std::mem::take(&mut state.is_due) {
                return Poll::Ready(());
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Submits an operation to the store where the stripe is.
    fn submit<T: Send + 'static>(
        &self,
        key: StripeKey,
        kind: StripeUse,
        op: impl FnOnce(&dyn StripeStore) -> StoreCompletion<T> + Send + 'static,
    ) -> StoreCompletion<T> {
        self.recent.add(key);
        let places = self.places.read(key);
        if !places.contains_key(&key) {
            // Under the lock, so that the stripe does not sink meanwhile.
            return self.demand.note(op(&*self.upper));
        }
        drop(places);
        let mut places = self.places.write(key);
        match places.get_mut(&key) {
            None | Some(StripePlace::Above { .. }) => self.demand.note(op(&*self.upper)),
            Some(StripePlace::Sinking { changed }) => {
                *changed |= kind == StripeUse::Change;
                self.demand.note(op(&*self.upper))
            }
            Some(StripePlace::Below { queued }) => {
                if !std::mem::replace(queued, true) {
                    self.demand.announce(|state| state.queue.push_back(key));
                }
                op(&*self.lower)
            }
            Some(StripePlace::Rising { held }) => {
                let (promise, submitted) = StoreCompletion::promised();
                let demand = Arc::clone(&self.demand);
                lock(held).push(Box::new(move |store| promise.keep(Ok(demand.note(op(store))))));
                StoreCompletion::Pending(Box::pin(async { submitted.done().await?.done().await }))
            }
        }
    }

    /// Submits an operation that may fill the upper store.
    fn submit_growth(
        &self,
        key: StripeKey,
        op: impl FnOnce(&dyn StripeStore) -> StoreCompletion<()> + Send + 'static,
    ) -> StoreCompletion<()> {
        let done = self.submit(key, StripeUse::Change, op);
        if self.upper.usage().used > self.marks.high {
            self.demand.announce(|_| {});
        }
        done
    }
}

impl StripeStore for Tier {
    fn stripe_bytes(&self) -> u32 {
        self.upper.stripe_bytes().min(self.lower.stripe_bytes())
    }

    fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &Bytes) -> StoreCompletion<()> {
        let data = data.clone();
        self.submit_growth(key, move |store| store.write(key, generation, offset, &data))
    }

    fn read(&self, key: StripeKey, offset: u32, len: u32) -> StoreCompletion<Bytes> {
        self.submit(key, StripeUse::Read, move |store| store.read(key, offset, len))
    }

    fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()> {
        self.submit(key, StripeUse::Change, move |store| store.truncate(key, generation, len))
    }

    fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> StoreCompletion<()> {
        self.submit(key, StripeUse::Change, move |store| store.zero(key, generation, offset, len))
    }

    fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()> {
        self.submit_growth(key, move |store| store.extend(key, generation, len))
    }

    fn remove(&self, key: StripeKey) -> StoreCompletion<()> {
        self.submit(key, StripeUse::Change, move |store| store.remove(key))
    }

    fn shrink_to_fit(&self, key: StripeKey) -> StoreCompletion<()> {
        self.submit(key, StripeUse::Read, move |store| store.shrink_to_fit(key))
    }

    fn snapshot(&self, key: StripeKey) -> StoreCompletion<Option<StripeSnapshot>> {
        self.submit(key, StripeUse::Read, move |store| store.snapshot(key))
    }

    /// Nothing rises during a scan.
    fn scan(&self) -> Box<dyn StripeScan> {
        Box::new(TierScan::new(&self.upper, &self.lower, &self.places, &self.scans))
    }

    /// Stripes below are durable then; those above are in memory.
    fn sync(&self) -> StoreCompletion<()> {
        self.lower.sync()
    }

    /// Counts the bytes against the capacity of the upper store.
    fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        self.demand.note(self.upper.reserve(bytes).into()).now()
    }

    fn release(&self, bytes: u64) {
        self.upper.release(bytes);
    }

    /// The sum of both. A stripe with copies in both counts twice.
    fn usage(&self) -> EngineUsage {
        let (upper, lower) = (self.upper.usage(), self.lower.usage());
        EngineUsage {
            capacity: upper.capacity + lower.capacity,
            used: upper.used + lower.used,
            stripes: upper.stripes + lower.stripes,
            ..upper
        }
    }

    fn peak(&self) -> u64 {
        self.upper.peak()
    }

    fn on_freed(&self, hook: FreedHook) {
        self.upper.on_freed(Arc::clone(&hook));
        self.lower.on_freed(hook);
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Tier").field("upper", &self.upper).field("lower", &self.lower).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "tier/tier_test.rs"]
mod tests;
