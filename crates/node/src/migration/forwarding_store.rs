//! A store that forwards what is done to stripes of a partition while the partition is copied to
//! another node.
//!
//! ```text
//!   the partition    a change of one of its stripes
//!   is served        is done
//!   is copied        is done, and queued: as it is if the stripe was copied, else with a copy
//!   is closed        is refused as `Moved`
//! ```
//!
//! The queue has the order in which changes take effect. A queued change is complete when the
//! target has it, or when the move has ended without success.

use bytes::Bytes;
use parking_lot::Mutex;
use placement::{FileId, PartitionId, StripeNo};
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
};
use store::{
    EngineError, EngineUsage, FreedHook, Generation, PendingOperation, Promise, StoreCompletion, StripeKey, StripeScan,
    StripeSnapshot, StripeStore,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use wire::StripeAction;

/// Phases of a partition's stripes.
const SERVED: u8 = 0;
const COPIED: u8 = 1;
const CLOSED: u8 = 2;

/// The store of a node, with the copies that are under way.
pub struct ForwardingStore {
    store: Arc<dyn StripeStore>,
    /// The phase of each partition. Readers look no further if it is served.
    phases: Box<[AtomicU8]>,
    copies: Mutex<HashMap<PartitionId, Arc<Mutex<StripeCopyState>>>>,
}

/// The copy of a partition's stripes.
struct StripeCopyState {
    /// Stripes of which the target has, or will have, all that was done before they were queued.
    copied: HashSet<(FileId, StripeNo)>,
    /// True if the scan has ended: stripes that it did not find are new, and none is left to copy.
    scanned: bool,
    closed: bool,
    /// `None` if the move has ended without success.
    queue: Option<UnboundedSender<QueuedChange>>,
}

/// A change for the target of a move.
pub struct QueuedChange {
    pub key: StripeKey,
    pub action: QueuedAction,
    /// The operation here, if it goes on. What fails here is not done there.
    local: Option<PendingOperation<()>>,
    promise: Option<Promise<()>>,
}

/// The content of a queued change.
pub enum QueuedAction {
    /// The whole stripe, as it was when this was queued.
    Copy(StoreCompletion<Option<StripeSnapshot>>),
    /// The same, of a stripe of which the target may have another version.
    CopyAgain(StoreCompletion<Option<StripeSnapshot>>),
    /// The operation that was done to it.
    Change(StripeAction),
}

/// The promise to whoever waits for a change that is done here. It is kept when this is dropped.
pub struct ChangePromise(Option<Promise<()>>);

impl Drop for ChangePromise {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|promise| promise.keep(Ok(())));
    }
}

impl QueuedChange {
    /// Waits for the operation here. If it has failed it is complete, and only a copy is left to
    /// do.
    pub async fn await_local(mut self) -> Option<Self> {
        let Some(local) = self.local.take() else { return Some(self) };
        let failed = match local.await {
            Ok(()) => return Some(self),
            failed => failed,
        };
        let Self { key, action, promise, .. } = self;
        if let Some(promise) = promise {
            promise.keep(failed);
        }
        let is_copy = !matches!(action, QueuedAction::Change(_));
        is_copy.then_some(Self { key, action, local: None, promise: None })
    }

    /// Its parts. It is done here, so it is complete when the promise is dropped, whether the move
    /// goes on or not.
    pub fn split(self) -> (StripeKey, QueuedAction, Option<ChangePromise>) {
        (self.key, self.action, self.promise.map(|promise| ChangePromise(Some(promise))))
    }

    /// Completes it without the target.
    pub fn complete(mut self) {
        let outcome = self.local.take().map_or(Ok(()), |local| StoreCompletion::Pending(local).wait());
        if let Some(promise) = self.promise {
            promise.keep(outcome);
        }
    }
}

impl ForwardingStore {
    /// Passes everything on to `store`, until a copy begins.
    pub fn new(store: Arc<dyn StripeStore>, partitions: u32) -> Self {
        let phases = (0..partitions).map(|_| AtomicU8::new(SERVED)).collect();
        Self { store, phases, copies: Mutex::default() }
    }

    /// The store inside, for stripes of partitions that are not served here.
    pub fn inner(&self) -> &Arc<dyn StripeStore> {
        &self.store
    }

    /// Begins to queue what is done to a partition's stripes. The caller then finds all of them by
    /// a scan and calls [`Self::copy`] for each.
    pub fn begin_copy(&self, partition: PartitionId) -> UnboundedReceiver<QueuedChange> {
        let (queue, changes) = unbounded_channel();
        let state = StripeCopyState { copied: HashSet::new(), scanned: false, closed: false, queue: Some(queue) };
        self.copies.lock().insert(partition, Arc::new(Mutex::new(state)));
        self.set_phase(partition, COPIED);
        changes
    }

    /// Queues a copy of a stripe that the scan has found, unless there was one.
    pub fn copy(&self, key: StripeKey) {
        let Some(copy) = self.copy_of(key.partition) else { return };
        let mut state = copy.lock();
        if state.copied.insert((key.file, key.stripe)) {
            let action = QueuedAction::Copy(self.store.snapshot(key));
            if let Some(queue) = &state.queue {
                // Without a receiver the move has ended.
                drop(queue.send(QueuedChange { key, action, local: None, promise: None }));
            }
        }
    }

    /// Ends the scan: every stripe has been copied, or is new.
    pub fn end_scan(&self, partition: PartitionId) {
        if let Some(copy) = self.copy_of(partition) {
            let mut state = copy.lock();
            state.scanned = true;
            state.copied = HashSet::new();
        }
    }

    /// Refuses further changes of a partition's stripes. All that were done are queued by now.
    pub fn close(&self, partition: PartitionId) {
        if let Some(copy) = self.copy_of(partition) {
            copy.lock().closed = true;
        }
        self.set_phase(partition, CLOSED);
    }

    /// The partition has left: its stripes stay closed.
    pub fn end_copy(&self, partition: PartitionId) {
        self.close(partition);
        self.copies.lock().remove(&partition);
    }

    /// The partition is served here, and is not moved.
    pub fn serve(&self, partition: PartitionId) {
        let copy = self.copies.lock().remove(&partition);
        self.set_phase(partition, SERVED);
        if let Some(copy) = copy {
            let mut state = copy.lock();
            (state.queue, state.closed) = (None, false);
        }
    }

    fn copy_of(&self, partition: PartitionId) -> Option<Arc<Mutex<StripeCopyState>>> {
        self.copies.lock().get(&partition).cloned()
    }

    fn phase(&self, partition: PartitionId) -> u8 {
        self.phases.get(usize::from(partition.0)).map_or(SERVED, |phase| phase.load(SeqCst))
    }

    fn set_phase(&self, partition: PartitionId, phase: u8) {
        if let Some(known) = self.phases.get(usize::from(partition.0)) {
            known.store(phase, SeqCst);
        }
    }

    /// Submits a change, and queues it if its partition is copied.
    fn change(
        &self,
        key: StripeKey,
        submit: impl FnOnce(&dyn StripeStore) -> StoreCompletion<()>,
        action: impl FnOnce() -> StripeAction,
    ) -> StoreCompletion<()> {
        if self.phase(key.partition) != SERVED {
            return self.forward(key, true, submit, action);
        }
        let done = submit(&*self.store);
        if self.phase(key.partition) == SERVED {
            return done;
        }
        // The copy began meanwhile: the scan may have passed the stripe before the change, or after
        // it.
        self.forward(key, false, |_| done, action)
    }

    /// Submits a change of a stripe whose partition is not served, or was not a moment ago. If it
    /// is not `in_order`, whether the scan came before it is not known: then the stripe is copied.
    #[cold]
    fn forward(
        &self,
        key: StripeKey,
        in_order: bool,
        submit: impl FnOnce(&dyn StripeStore) -> StoreCompletion<()>,
        action: impl FnOnce() -> StripeAction,
    ) -> StoreCompletion<()> {
        let Some(copy) = self.copy_of(key.partition) else {
            return if self.phase(key.partition) == CLOSED { moved(key) } else { submit(&*self.store) };
        };
        let mut state = copy.lock();
        if state.closed {
            return moved(key);
        }
        let done = submit(&*self.store);
        let local = match done {
            StoreCompletion::Ready(Ok(())) => None,
            StoreCompletion::Ready(failed) => return failed.into(),
            StoreCompletion::Pending(pending) => Some(pending),
        };
        let is_copied = state.scanned || state.copied.contains(&(key.file, key.stripe));
        let action = match action() {
            StripeAction::Remove if !is_copied => return local.map_or(Ok(()).into(), StoreCompletion::Pending),
            change if is_copied && in_order => QueuedAction::Change(change),
            _ if is_copied => QueuedAction::CopyAgain(self.store.snapshot(key)),
            _ => {
                state.copied.insert((key.file, key.stripe));
                QueuedAction::Copy(self.store.snapshot(key))
            }
        };
        let Some(queue) = &state.queue else { return local.map_or(Ok(()).into(), StoreCompletion::Pending) };
        let (promise, completion) = StoreCompletion::promised();
        match queue.send(QueuedChange { key, action, local, promise: Some(promise) }) {
            Ok(()) => completion,
            Err(unsent) => {
                let QueuedChange { local, promise, .. } = unsent.0;
                drop(promise); // nobody waits for it
                local.map_or(Ok(()).into(), StoreCompletion::Pending)
            }
        }
    }
}

fn moved(key: StripeKey) -> StoreCompletion<()> {
    Err(EngineError::Moved { key }).into()
}

impl StripeStore for ForwardingStore {
    fn stripe_bytes(&self) -> u32 {
        self.store.stripe_bytes()
    }

    fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &Bytes) -> StoreCompletion<()> {
        let action = || StripeAction::Write { generation: generation.0, offset, ends: false, data: data.clone() };
        self.change(key, |store| store.write(key, generation, offset, data), action)
    }

    fn read(&self, key: StripeKey, offset: u32, len: u32) -> StoreCompletion<Bytes> {
        self.store.read(key, offset, len)
    }

    fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()> {
        let action = || StripeAction::Truncate { generation: generation.0, length: len };
        self.change(key, |store| store.truncate(key, generation, len), action)
    }

    fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> StoreCompletion<()> {
        let action = || StripeAction::Zero { generation: generation.0, offset, length: len };
        self.change(key, |store| store.zero(key, generation, offset, len), action)
    }

    fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> StoreCompletion<()> {
        let action = || StripeAction::Extend { generation: generation.0, length: len };
        self.change(key, |store| store.extend(key, generation, len), action)
    }

    fn remove(&self, key: StripeKey) -> StoreCompletion<()> {
        self.change(key, |store| store.remove(key), || StripeAction::Remove)
    }

    /// Changes no byte, so it is not queued.
    fn shrink_to_fit(&self, key: StripeKey) -> StoreCompletion<()> {
        self.store.shrink_to_fit(key)
    }

    fn snapshot(&self, key: StripeKey) -> StoreCompletion<Option<StripeSnapshot>> {
        self.store.snapshot(key)
    }

    fn scan(&self) -> Box<dyn StripeScan> {
        self.store.scan()
    }

    fn scan_partition(&self, partition: PartitionId) -> Box<dyn StripeScan> {
        self.store.scan_partition(partition)
    }

    fn sync(&self) -> StoreCompletion<()> {
        self.store.sync()
    }

    fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        self.store.reserve(bytes)
    }

    fn release(&self, bytes: u64) {
        self.store.release(bytes);
    }

    fn usage(&self) -> EngineUsage {
        self.store.usage()
    }

    fn peak(&self) -> u64 {
        self.store.peak()
    }

    fn on_freed(&self, hook: FreedHook) {
        self.store.on_freed(hook);
    }
}

impl fmt::Debug for ForwardingStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ForwardingStore").field("store", &self.store).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use store::ModelEngine;
    use test_support::Random;

    const STRIPE: u32 = 4096;
    const PARTITION: PartitionId = PartitionId(1);

    store::conformance_tests!(|stripes: u64| {
        let model = Arc::new(ModelEngine::new(stripes * u64::from(STRIPE), STRIPE));
        ForwardingStore::new(model, 1)
    });

    fn key(stripe: u64) -> StripeKey {
        StripeKey { partition: PARTITION, file: FileId(7), stripe: StripeNo(stripe) }
    }

    /// Does at the target what is queued, and lets those who wait go on.
    fn deliver(changes: &mut UnboundedReceiver<QueuedChange>, target: &ModelEngine) {
        while let Ok(change) = changes.try_recv() {
            let (key, action, promise) = change.split();
            match action {
                QueuedAction::Copy(snapshot) => {
                    if let Some(found) = snapshot.now().unwrap() {
                        found.write_to(target, key).now().unwrap();
                    }
                }
                QueuedAction::CopyAgain(snapshot) => match snapshot.now().unwrap() {
                    None => target.remove(key).unwrap(),
                    Some(found) => {
                        let length = u32::try_from(found.content.len()).unwrap();
                        found.write_to(target, key).now().unwrap();
                        target.truncate(key, found.generation, length).unwrap();
                    }
                },
                QueuedAction::Change(StripeAction::Write { generation, offset, data, .. }) => {
                    target.write(key, Generation(generation), offset, &data).unwrap();
                }
                QueuedAction::Change(StripeAction::Truncate { generation, length }) => {
                    target.truncate(key, Generation(generation), length).unwrap();
                }
                QueuedAction::Change(StripeAction::Remove) => target.remove(key).unwrap(),
                QueuedAction::Change(other) => panic!("nobody does {other:?}"),
            }
            drop(promise);
        }
    }

    fn content(store: &dyn StripeStore) -> BTreeMap<u64, (Generation, Bytes)> {
        let held = (0..8).filter_map(|stripe| Some((stripe, store.snapshot(key(stripe)).now().unwrap()?)));
        held.map(|(stripe, found)| (stripe, (found.generation, found.content))).collect()
    }

    /// Changes some stripe at random.
    fn change(store: &ForwardingStore, random: &mut Random, generation: &mut u32) -> StoreCompletion<()> {
        let stripe = key(random.below(8));
        match random.below(4) {
            0 => store.remove(stripe),
            1 => {
                *generation += 1;
                store.truncate(stripe, Generation(*generation), random.below(64))
            }
            _ => {
                let data = Bytes::from(vec![random.byte(); 1 + random.below(64_usize)]);
                store.write(stripe, Generation(*generation), random.below(64), &data)
            }
        }
    }

    #[test]
    fn the_target_has_all_that_was_done_at_the_source_whenever_the_scan_came_by() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let source = Arc::new(ModelEngine::new(1 << 20, STRIPE));
            let (store, target) = (ForwardingStore::new(source.clone(), 2), ModelEngine::new(1 << 20, STRIPE));
            let mut generation = 0;
            for _ in 0..random.below(20) {
                drop(change(&store, &mut random, &mut generation));
            }
            let mut changes = store.begin_copy(PARTITION);
            let mut scan = 0..8;
            loop {
                match random.below(3) {
                    0 => drop(change(&store, &mut random, &mut generation)),
                    1 => deliver(&mut changes, &target),
                    _ => match scan.next() {
                        Some(stripe) => store.copy(key(stripe)),
                        None => break,
                    },
                }
            }
            store.end_scan(PARTITION);
            for _ in 0..random.below(10) {
                drop(change(&store, &mut random, &mut generation));
            }
            store.close(PARTITION);
            let late = store.write(key(0), Generation(generation), 0, &Bytes::from_static(b"late")).now();
            assert!(matches!(late, Err(EngineError::Moved { .. })));
            deliver(&mut changes, &target);
            assert_eq!(content(&*source), content(&target), "seed {seed}");
        }
    }

    #[test]
    fn a_change_of_what_was_copied_is_complete_when_the_target_has_it_and_any_other_at_once() {
        let store = ForwardingStore::new(Arc::new(ModelEngine::new(1 << 20, STRIPE)), 2);
        let target = ModelEngine::new(1 << 20, STRIPE);
        let bytes = Bytes::from_static(b"bytes");
        let write = |stripe| store.write(stripe, Generation(0), 0, &bytes);
        write(key(0)).now().unwrap();
        let mut changes = store.begin_copy(PARTITION);
        store.copy(key(0));
        let waits = write(key(0));
        assert!(matches!(waits, StoreCompletion::Pending(_)));
        write(StripeKey { partition: PartitionId(0), ..key(0) }).now().unwrap();
        deliver(&mut changes, &target);
        waits.wait().unwrap();
    }

    #[test]
    fn a_change_that_was_submitted_before_the_copy_began_and_ends_after_it_leaves_the_target_as_the_source() {
        let source = Arc::new(ModelEngine::new(1 << 20, STRIPE));
        let (store, target) = (ForwardingStore::new(source.clone(), 2), ModelEngine::new(1 << 20, STRIPE));
        let late = |stripe, action| store.forward(key(stripe), false, |_| Ok(()).into(), || action);
        for stripe in 0..2 {
            source.write(key(stripe), Generation(0), 0, &Bytes::from(vec![1; 100])).unwrap();
        }
        let mut changes = store.begin_copy(PARTITION);
        store.copy(key(0));
        source.truncate(key(0), Generation(1), 50).unwrap();
        drop(late(0, StripeAction::Truncate { generation: 1, length: 50 }));
        source.remove(key(1)).unwrap();
        drop(store.write(key(1), Generation(0), 0, &Bytes::from_static(b"anew")));
        drop(late(1, StripeAction::Remove));
        deliver(&mut changes, &target);
        assert_eq!(content(&*source), content(&target));
    }

    #[test]
    fn a_move_that_is_given_up_leaves_nobody_waiting_and_the_store_as_it_was() {
        let store = ForwardingStore::new(Arc::new(ModelEngine::new(1 << 20, STRIPE)), 2);
        let bytes = Bytes::from_static(b"bytes");
        let mut changes = store.begin_copy(PARTITION);
        let waits = store.write(key(0), Generation(0), 0, &bytes);
        store.close(PARTITION);
        store.serve(PARTITION);
        while let Ok(change) = changes.try_recv() {
            change.complete();
        }
        waits.wait().unwrap();
        store.write(key(0), Generation(0), 5, &bytes).now().unwrap();
        assert_eq!(&*store.read(key(0), 0, 10).now().unwrap(), b"bytesbytes");
        drop(changes);
    }
}
