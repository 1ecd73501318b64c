//! Files reserved for large objects: some ahead, so that most puts need not ask.

use crate::{Client, client::unexpected};
use parking_lot::Mutex;
use placement::{FileId, Layout, PartitionId, Policy};
use std::collections::HashMap;
use wire::{Answer, Command, Outcome, Session};

/// Most files that are reserved ahead at once. The first time it is one, then twice as many as the
/// time before.
const AHEAD_MAX: u32 = 32;
/// Files of 2 to this many stripes share one pool, reserved for this many. For longer objects the
/// one message hardly matters.
const SEVERAL: u64 = 16;

/// Files that are reserved and not used.
#[derive(Debug, Default)]
pub struct Ids {
    shelves: Mutex<Shelves>,
    /// Files whose put was dropped half-way: it is not known whether they were put.
    dropped: Mutex<Vec<FileId>>,
}

#[derive(Debug, Default)]
struct Shelves {
    /// The session that has reserved them: its reservations end with it.
    session: Option<Session>,
    /// By partition, and by the number of stripes that each file may have.
    of: HashMap<(PartitionId, u64), Shelf>,
}

impl Shelves {
    fn get(&mut self, client: &Client, of: (PartitionId, u64)) -> &mut Shelf {
        let session = Some(client.session());
        if self.session != session {
            (self.session, self.of) = (session, HashMap::new());
        }
        self.of.entry(of).or_default()
    }
}

#[derive(Debug, Default)]
struct Shelf {
    /// Files with the default layout.
    files: Vec<FileId>,
    /// The number that was reserved the last time.
    ahead: u32,
}

/// A reserved file for a put in progress. If it is dropped before the outcome is known, it is
/// cleaned up later.
#[derive(Debug)]
pub struct Taken<'a> {
    ids: &'a Ids,
    pub file: FileId,
    settled: bool,
}

impl Ids {
    /// Takes a file of this partition that may have this many stripes with this layout, whose
    /// partition a policy (`by`) or a hash has chosen.
    pub async fn take(
        &self,
        client: &Client,
        partition: PartitionId,
        stripes: u64,
        (layout, by): (Layout, Option<Policy>),
    ) -> Outcome<Taken<'_>> {
        self.give_back_dropped(client).await;
        let stripes = match stripes {
            2..=SEVERAL => SEVERAL,
            one_or_many => one_or_many,
        };
        let shelf =
            (stripes <= SEVERAL && layout == Layout::striped(client.stripe_bytes())).then_some((partition, stripes));
        if let Some(file) = shelf.and_then(|shelf| self.shelves.lock().get(client, shelf).files.pop()) {
            return Ok(self.taken(file));
        }
        let count = shelf.map_or(1, |shelf| self.count(client, shelf));
        let mut files = match client.change(partition, Command::Reserve { count, stripes, layout, policy: by }).await? {
            Answer::Reserved(files) if !files.is_empty() => files,
            other => return Err(unexpected(&other)),
        };
        let file = files.pop().expect("there is one");
        if let Some(shelf) = shelf.filter(|_| !files.is_empty()) {
            self.shelves.lock().get(client, shelf).files.extend(files);
        }
        Ok(self.taken(file))
    }

    fn count(&self, client: &Client, of: (PartitionId, u64)) -> u32 {
        let mut shelves = self.shelves.lock();
        let shelf = shelves.get(client, of);
        shelf.ahead = (shelf.ahead * 2).clamp(1, AHEAD_MAX);
        shelf.ahead
    }

    fn taken(&self, file: FileId) -> Taken<'_> {
        Taken { ids: self, file, settled: false }
    }

    async fn give_back_dropped(&self, client: &Client) {
        let dropped = std::mem::take(&mut *self.dropped.lock());
        for file in dropped {
            give_back(client, file).await;
        }
    }
}

/// Ends a reservation that was not used, and removes its stripes.
async fn give_back(client: &Client, file: FileId) {
    match client.change(file.partition(), Command::Unreserve { file }).await {
        Ok(Answer::Removed { deleted }) => client.purge(deleted).await,
        Ok(other) => tracing::debug!(error = %unexpected(&other), %file, "what was put in vain goes with the session"),
        Err(error) => tracing::debug!(%error, %file, "what was put in vain goes with the session"),
    }
}

impl Taken<'_> {
    /// Marks the file as an object now.
    pub fn used(mut self) {
        self.settled = true;
    }

    /// Ends the reservation: the file will not be an object.
    pub async fn give_back(mut self, client: &Client) {
        // If this is dropped while it waits, the file is cleaned up later.
        give_back(client, self.file).await;
        self.settled = true;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.ids.dropped.lock().push(self.file);
        }
    }
}
