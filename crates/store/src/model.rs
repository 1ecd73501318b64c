//! The reference implementation of an engine for tests, simple enough to be checked by reading it.
//!
//! It copies where real engines share, recounts where they keep counters, and uses one lock. It
//! counts bytes, not blocks, so it returns [`EngineError::Full`] later than an engine of the same
//! capacity that allocates whole blocks.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;

use crate::completion::lock;
use crate::model_extents::{ModelExtents, ModelFiles};
use crate::{
    Engine, EngineError, EngineUsage, Extents, FreedHook, Generation, LeaseNumber, PlaceholderHandle, PlaceholderKind,
    Placeholders, StoreCompletion, StripeEntry, StripeKey, StripeScan, StripeSnapshot, StripeStore,
};

/// An engine over a `BTreeMap`: for tests of an engine's users, and as the reference for other
/// engines.
pub struct ModelEngine {
    pub(crate) capacity: u64,
    stripe_bytes: u32,
    pub(crate) state: Arc<Mutex<ModelState>>,
    pub(crate) hook: SharedHook,
    has_extents: bool,
}

/// The callback for freed space.
pub type SharedHook = Arc<Mutex<Option<FreedHook>>>;

#[derive(Default)]
pub struct ModelState {
    stripes: BTreeMap<StripeKey, Stripe>,
    /// Contents that were replaced or removed while views held them; they count as used until the
    /// last view is dropped.
    retired: Vec<Weak<Vec<u8>>>,
    reserved: u64,
    pub(crate) extents: ModelFiles,
}

#[derive(Default)]
struct Stripe {
    seen: Generation,
    /// Never changed, only replaced, because views share it.
    content: Arc<Vec<u8>>,
    /// The length of the stripe: less than that of `content` after a truncation while it was
    /// viewed.
    len: usize,
}

/// A view that a reader holds.
struct StripeView {
    content: Option<Arc<Vec<u8>>>,
    start: usize,
    end: usize,
    hook: SharedHook,
}

/// The engine's end of a socket pair whose other end is a placeholder descriptor.
#[derive(Debug)]
pub struct PlaceholderPeer(pub UnixStream);

impl PlaceholderHandle for PlaceholderPeer {
    fn is_open(&self) -> bool {
        // Nobody writes to the other end, so the stream ends when its last copy is closed, and not
        // before.
        (&self.0).read(&mut [0]).is_err()
    }
}

impl ModelEngine {
    /// An empty engine of `capacity` bytes for stripes of at most `stripe_bytes` bytes.
    pub fn new(capacity: u64, stripe_bytes: u32) -> Self {
        Self { capacity, stripe_bytes, state: Arc::default(), hook: Arc::default(), has_extents: false }
    }

    /// An empty engine that has extent files too.
    pub fn with_extents(capacity: u64, stripe_bytes: u32) -> Self {
        Self { has_extents: true, ..Self::new(capacity, stripe_bytes) }
    }

    fn freed(&self) {
        run_hook(&self.hook);
    }

    fn view(&self, stripe: &Stripe, offset: u32, len: u32) -> Bytes {
        let start = (offset as usize).min(stripe.len);
        let end = (start + len as usize).min(stripe.len);
        if start == end {
            return Bytes::new();
        }
        let (content, hook) = (Some(Arc::clone(&stripe.content)), Arc::clone(&self.hook));
        Bytes::from_owner(StripeView { content, start, end, hook })
    }
}

/// The operations of a store in memory, whose results need no completion.
impl ModelEngine {
    /// Writes, as [`StripeStore::write`] does, at once.
    pub fn write(&self, key: StripeKey, generation: Generation, offset: u32, data: &[u8]) -> Result<(), EngineError> {
        let end = u64::from(offset) + data.len() as u64;
        if end > u64::from(self.stripe_bytes) {
            return Err(EngineError::TooLong { key, end, limit: self.stripe_bytes });
        }
        lock(&self.state).write(self.capacity, key, generation, offset as usize, data)?;
        self.freed();
        Ok(())
    }

    /// Reads, as [`StripeStore::read`] does, at once.
    pub fn read(&self, key: StripeKey, offset: u32, len: u32) -> Result<Bytes, EngineError> {
        let state = lock(&self.state);
        Ok(state.stripes.get(&key).map_or_else(Bytes::new, |stripe| self.view(stripe, offset, len)))
    }

    /// Truncates, as [`StripeStore::truncate`] does, at once.
    pub fn truncate(&self, key: StripeKey, generation: Generation, len: u32) -> Result<(), EngineError> {
        lock(&self.state).truncate(key, generation, len as usize)?;
        self.freed();
        Ok(())
    }

    /// Fills with zeros, as [`StripeStore::zero`] does, at once.
    pub fn zero(&self, key: StripeKey, generation: Generation, offset: u32, len: u32) -> Result<(), EngineError> {
        let mut state = lock(&self.state);
        let (start, len) = (offset as usize, len as usize);
        match state.len(key) {
            held if len == 0 => state.truncate(key, generation, held)?,
            held if start + len >= held => state.truncate(key, generation, start)?,
            _ => state.write(self.capacity, key, generation, start, &vec![0; len])?,
        }
        drop(state);
        self.freed();
        Ok(())
    }

    /// Extends, as [`StripeStore::extend`] does, at once.
    pub fn extend(&self, key: StripeKey, generation: Generation, len: u32) -> Result<(), EngineError> {
        if len > self.stripe_bytes {
            return Err(EngineError::TooLong { key, end: len.into(), limit: self.stripe_bytes });
        }
        let mut state = lock(&self.state);
        let held = state.len(key);
        let missing = vec![0; (len as usize).saturating_sub(held)];
        state.write(self.capacity, key, generation, held, &missing)
    }

    /// Removes, as [`StripeStore::remove`] does, at once.
    pub fn remove(&self, key: StripeKey) -> Result<(), EngineError> {
        let mut state = lock(&self.state);
        let removed = state.stripes.remove(&key);
        state.retire(removed);
        drop(state);
        self.freed();
        Ok(())
    }

    /// Frees unused space, as [`StripeStore::shrink_to_fit`] does, at once.
    pub fn shrink_to_fit(&self, key: StripeKey) -> Result<(), EngineError> {
        if let Some(stripe) = lock(&self.state).stripes.get_mut(&key) {
            stripe.shrink();
        }
        self.freed();
        Ok(())
    }
}

impl StripeStore for ModelEngine {
    fn stripe_bytes(&self) -> u32 {
        self.stripe_bytes
    }

    crate::complete_at_once!();

    fn snapshot(&self, key: StripeKey) -> StoreCompletion<Option<StripeSnapshot>> {
        let state = lock(&self.state);
        let found = state
            .stripes
            .get(&key)
            .map(|stripe| StripeSnapshot { generation: stripe.seen, content: self.view(stripe, 0, u32::MAX) });
        Ok(found).into()
    }

    fn scan(&self) -> Box<dyn StripeScan> {
        Box::new(ModelScan { state: Arc::clone(&self.state), after: None })
    }

    fn reserve(&self, bytes: u64) -> Result<(), EngineError> {
        let mut state = lock(&self.state);
        let used = state.used();
        if bytes > self.capacity - used {
            return Err(EngineError::Full { capacity: self.capacity, used, wanted: bytes });
        }
        state.reserved += bytes;
        Ok(())
    }

    fn release(&self, bytes: u64) {
        let mut state = lock(&self.state);
        assert!(bytes <= state.reserved, "released {bytes} bytes of {} reserved ones", state.reserved);
        state.reserved -= bytes;
        drop(state);
        self.freed();
    }

    fn usage(&self) -> EngineUsage {
        let state = lock(&self.state);
        let stripes = state.stripes.len() as u64;
        EngineUsage {
            capacity: self.capacity,
            used: state.used(),
            reserved: state.reserved,
            stripes,
            extent_free: None,
        }
    }

    fn on_freed(&self, hook: FreedHook) {
        *lock(&self.hook) = Some(hook);
    }
}

impl Engine for ModelEngine {
    fn stripes(self: Arc<Self>) -> Arc<dyn StripeStore> {
        self
    }

    fn extents(&self) -> Option<Arc<dyn Extents>> {
        let (capacity, state, hook) = (self.capacity, Arc::clone(&self.state), Arc::clone(&self.hook));
        self.has_extents.then(|| Arc::new(ModelExtents { capacity, state, hook }) as Arc<dyn Extents>)
    }

    fn placeholders(self: Arc<Self>) -> Option<Arc<dyn Placeholders>> {
        Some(self)
    }
}

impl Placeholders for ModelEngine {
    /// A descriptor with the lifetime of any other; it is a socket, neither a file nor a directory.
    fn create_placeholder(
        &self,
        _kind: PlaceholderKind,
        _lease: LeaseNumber,
    ) -> io::Result<(OwnedFd, Box<dyn PlaceholderHandle>)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((theirs.into(), Box::new(PlaceholderPeer(ours))))
    }
}

/// A walk over the stripes in the order of their keys.
struct ModelScan {
    state: Arc<Mutex<ModelState>>,
    after: Option<StripeKey>,
}

impl StripeScan for ModelScan {
    fn next_page(&mut self, limit: usize) -> StoreCompletion<Option<Vec<StripeEntry>>> {
        let state = lock(&self.state);
        let rest = (self.after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let entry = |(key, stripe): (&StripeKey, &Stripe)| {
            let length = u32::try_from(stripe.len).expect("at most a stripe");
            StripeEntry { key: *key, generation: stripe.seen, length }
        };
        let page: Vec<_> = state.stripes.range(rest).take(limit).map(entry).collect();
        self.after = page.last().map_or(self.after, |last| Some(last.key));
        Ok((!page.is_empty()).then_some(page)).into()
    }
}

impl ModelState {
    fn check_generation(&self, key: StripeKey, given: Generation) -> Result<(), EngineError> {
        match self.stripes.get(&key) {
            Some(stripe) if given < stripe.seen => Err(EngineError::Stale { key, given, seen: stripe.seen }),
            _ => Ok(()),
        }
    }

    fn len(&self, key: StripeKey) -> usize {
        self.stripes.get(&key).map_or(0, |stripe| stripe.len)
    }

    fn write(
        &mut self,
        capacity: u64,
        key: StripeKey,
        generation: Generation,
        offset: usize,
        data: &[u8],
    ) -> Result<(), EngineError> {
        self.check_generation(key, generation)?;
        if data.is_empty() {
            return Ok(());
        }
        let old = self.stripes.get(&key);
        let content = written(old.map(Stripe::bytes).unwrap_or_default(), offset, data);
        let (used, freed) = (self.used(), old.map_or(0, Stripe::unviewed_bytes));
        let wanted = (content.len() as u64).saturating_sub(freed);
        if wanted > capacity - used {
            return Err(EngineError::Full { capacity, used, wanted });
        }
        let stripe = Stripe { seen: generation, len: content.len(), content: Arc::new(content) };
        let replaced = self.stripes.insert(key, stripe);
        self.retire(replaced);
        Ok(())
    }

    fn truncate(&mut self, key: StripeKey, generation: Generation, len: usize) -> Result<(), EngineError> {
        self.check_generation(key, generation)?;
        let stripe = self.stripes.entry(key).or_default();
        stripe.seen = generation;
        stripe.len = stripe.len.min(len);
        stripe.shrink();
        Ok(())
    }

    /// Counts content that left the map as used for as long as it is viewed.
    fn retire(&mut self, stripe: Option<Stripe>) {
        let content = stripe.map(|stripe| Arc::downgrade(&stripe.content));
        self.retired.extend(content);
        self.retired.retain(|content| content.strong_count() > 0);
    }

    pub(crate) fn used(&self) -> u64 {
        let held = self.stripes.values().map(|stripe| stripe.content.len());
        let viewed = self.retired.iter().filter_map(Weak::upgrade).map(|content| content.len());
        self.reserved + self.extents.bytes() + held.chain(viewed).sum::<usize>() as u64
    }
}

impl Stripe {
    fn bytes(&self) -> Vec<u8> {
        self.content[..self.len].to_vec()
    }

    /// The bytes that are freed at once if this stripe is replaced.
    fn unviewed_bytes(&self) -> u64 {
        if Arc::strong_count(&self.content) == 1 { self.content.len() as u64 } else { 0 }
    }

    /// Frees the bytes that were cut, unless a view holds them.
    fn shrink(&mut self) {
        if let Some(content) = Arc::get_mut(&mut self.content) {
            content.truncate(self.len);
        }
    }
}

impl AsRef<[u8]> for StripeView {
    fn as_ref(&self) -> &[u8] {
        self.content.as_ref().map_or(&[], |content| &content[self.start..self.end])
    }
}

impl Drop for StripeView {
    fn drop(&mut self) {
        drop(self.content.take());
        run_hook(&self.hook);
    }
}

impl fmt::Debug for ModelEngine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ModelEngine")
            .field("stripe_bytes", &self.stripe_bytes)
            .field("usage", &self.usage())
            .finish_non_exhaustive()
    }
}

fn written(mut bytes: Vec<u8>, offset: usize, data: &[u8]) -> Vec<u8> {
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
    bytes
}

/// Calls the hook without holding its lock, so that the hook may set another.
pub fn run_hook(hook: &Mutex<Option<FreedHook>>) {
    let hook = lock(hook).clone();
    if let Some(hook) = hook {
        hook();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::conformance_tests!(|stripes: u64| ModelEngine::new(stripes * 16384, 16384));
    crate::extents_conformance_tests!(|bytes: u64| Arc::new(ModelEngine::with_extents(bytes, 16384)) as Arc<dyn Engine>);
}
