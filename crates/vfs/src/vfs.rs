//! The file system itself, and what is asked of it as a whole.

use crate::handles::Handles;
use client::Client;
use placement::{FileId, NodeId};
use std::sync::Arc;
use wire::{Outcome, Usage};

/// Files of a pool. Cheap to clone; clones share their open files.
#[derive(Clone, Debug)]
pub struct Vfs {
    pub(crate) client: Client,
    pub(crate) handles: Arc<Handles>,
}

impl Vfs {
    /// Files over a client.
    pub fn new(client: Client) -> Self {
        Self { client, handles: Arc::default() }
    }

    /// The root directory.
    pub fn root() -> FileId {
        FileId::ROOT
    }

    /// How full the pool is, as far as its nodes say so at once, as those in this process do; else as they said last. Cheap.
    pub fn usage(&self) -> Usage {
        self.client.usage()
    }

    /// How full the pool is, all its nodes asked. One that does not answer counts as it did when it answered last; refused as
    /// `Unavailable` when none ever did.
    pub fn ask_usage(&self) -> impl Future<Output = Outcome<Usage>> + Send + use<> {
        let client = self.client.clone();
        async move { client.ask_usage().await }
    }

    /// Whether a node of the pool holds data: files may be placed there.
    pub fn holds_data(&self, node: NodeId) -> bool {
        self.client.holds_data(node)
    }

    /// How long stripes usually are, bytes: reads and writes that stay within one are cheapest.
    pub fn stripe_bytes(&self) -> u32 {
        self.client.stripe_bytes()
    }
}
