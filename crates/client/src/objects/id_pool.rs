//! Files reserved for large objects: some ahead, so that most puts need not ask.

use crate::Client;
use parking_lot::Mutex;
use placement::{FileId, Layout, PartitionId, Policy};
use std::collections::HashMap;
use wire::{Command, Object, Outcome, Refusal, Session};

/// Most files that are reserved ahead at once. The first time it is one, then twice as many as the
/// time before.
const BATCH_MAX: u32 = 32;
/// Files of 2 to this many stripes share one pool, reserved for this many. For longer objects the
/// one message hardly matters.
const POOLED_STRIPES: u64 = 16;

/// Files that are reserved and not used.
#[derive(Debug, Default)]
pub struct IdAllocator {
    pools: Mutex<IdPools>,
    /// Files whose put was dropped half-way: it is not known whether they were put.
    dropped: Mutex<Vec<FileId>>,
}

#[derive(Debug, Default)]
struct IdPools {
    /// The session that has reserved them: its reservations end with it.
    session: Option<Session>,
    /// By partition, and by the number of stripes that each file may have.
    pools: HashMap<(PartitionId, u64), IdPool>,
}

impl IdPools {
    fn get(&mut self, client: &Client, key: (PartitionId, u64)) -> &mut IdPool {
        let session = Some(client.session());
        if self.session != session {
            (self.session, self.pools) = (session, HashMap::new());
        }
        self.pools.entry(key).or_default()
    }
}

#[derive(Debug, Default)]
struct IdPool {
    /// Files with the default layout.
    files: Vec<FileId>,
    /// The number that was reserved the last time.
    batch: u32,
}

/// A reserved file for a put in progress. If it is dropped before the outcome is known, it is
/// cleaned up later.
#[derive(Debug)]
pub struct ReservedId<'a> {
    ids: &'a IdAllocator,
    pub file: FileId,
    settled: bool,
}

impl IdAllocator {
    /// Takes a file of this partition that may have this many stripes with this layout, whose
    /// partition a policy (`by`) or a hash has chosen.
    pub async fn allocate(
        &self,
        client: &Client,
        partition: PartitionId,
        stripes: u64,
        (layout, by): (Layout, Option<Policy>),
    ) -> Outcome<ReservedId<'_>> {
        self.release_dropped(client).await;
        let stripes = match stripes {
            2..=POOLED_STRIPES => POOLED_STRIPES,
            one_or_many => one_or_many,
        };
        let pool = (stripes <= POOLED_STRIPES && layout == Layout::striped(client.stripe_bytes()))
            .then_some((partition, stripes));
        if let Some(file) = pool.and_then(|pool| self.pools.lock().get(client, pool).files.pop()) {
            return Ok(self.reserved_id(file));
        }
        let count = pool.map_or(1, |pool| self.next_batch(client, pool));
        let mut files = client.mutate(partition, Command::reserve(count, stripes, layout, by)).await?;
        let file = files.pop().ok_or_else(|| Refusal::invalid(Object::Pool, "a node reserved no file"))?;
        if let Some(pool) = pool.filter(|_| !files.is_empty()) {
            self.pools.lock().get(client, pool).files.extend(files);
        }
        Ok(self.reserved_id(file))
    }

    fn next_batch(&self, client: &Client, key: (PartitionId, u64)) -> u32 {
        let mut pools = self.pools.lock();
        let pool = pools.get(client, key);
        pool.batch = (pool.batch * 2).clamp(1, BATCH_MAX);
        pool.batch
    }

    fn reserved_id(&self, file: FileId) -> ReservedId<'_> {
        ReservedId { ids: self, file, settled: false }
    }

    async fn release_dropped(&self, client: &Client) {
        let dropped = std::mem::take(&mut *self.dropped.lock());
        for file in dropped {
            release(client, file).await;
        }
    }
}

/// Ends a reservation that was not used, and removes its stripes.
async fn release(client: &Client, file: FileId) {
    match client.mutate(file.partition(), Command::unreserve(file)).await {
        Ok(deleted) => client.purge(deleted).await,
        Err(error) => tracing::debug!(%error, %file, "stripes of a failed put are removed when the session ends"),
    }
}

impl ReservedId<'_> {
    /// Marks the file as an object now.
    pub fn mark_used(mut self) {
        self.settled = true;
    }

    /// Ends the reservation: the file will not be an object.
    pub async fn release(mut self, client: &Client) {
        // If this is dropped while it waits, the file is cleaned up later.
        release(client, self.file).await;
        self.settled = true;
    }
}

impl Drop for ReservedId<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.ids.dropped.lock().push(self.file);
        }
    }
}
