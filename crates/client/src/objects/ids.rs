//! Files that are reserved for large objects: a few ahead, so that most puts need not ask.

use crate::{Client, client::unexpected};
use parking_lot::Mutex;
use placement::{FileId, Layout, PartitionId, Policy};
use std::collections::HashMap;
use wire::{Answer, Command, Outcome, Session};

/// At most so many are reserved ahead at once; the first time one, then twice as many as the time before.
const AHEAD_MAX: u32 = 32;
/// Files of several stripes are reserved ahead for so many: for longer objects the one message counts for little.
const SEVERAL: u64 = 16;

/// What is reserved and not used.
#[derive(Debug, Default)]
pub struct Ids {
    shelves: Mutex<Shelves>,
    /// Those whose put was dropped in the middle: whether they were put is not known.
    dropped: Mutex<Vec<FileId>>,
}

#[derive(Debug, Default)]
struct Shelves {
    /// Whose they are: with a session all ends that it had reserved.
    session: Option<Session>,
    /// By how many stripes each file may have.
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
    /// Their stripes lie as usual.
    files: Vec<FileId>,
    /// How many were reserved the last time.
    ahead: u32,
}

/// A reserved file for a put that is under way. Dropped before it is known what became of it, it is looked after later.
#[derive(Debug)]
pub struct Taken<'a> {
    ids: &'a Ids,
    pub file: FileId,
    settled: bool,
}

impl Ids {
    /// A file of this partition that may have so many stripes, which lie so, in a partition that was chosen by a policy or a hash.
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
        let mut files = match client.change(partition, Command::Reserve { count, stripes, layout, by }).await? {
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

/// What was not put will not be; its stripes go.
async fn give_back(client: &Client, file: FileId) {
    match client.change(file.partition(), Command::Unreserve { file }).await {
        Ok(Answer::Removed { gone }) => client.purge(gone).await,
        Ok(other) => tracing::debug!(error = %unexpected(&other), %file, "what was put in vain goes with the session"),
        Err(error) => tracing::debug!(%error, %file, "what was put in vain goes with the session"),
    }
}

impl Taken<'_> {
    /// It is an object now.
    pub fn used(mut self) {
        self.settled = true;
    }

    /// It is not, and will not be.
    pub async fn give_back(mut self, client: &Client) {
        // Should this be dropped while it waits, it is done again.
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
