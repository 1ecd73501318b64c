//! The [`Vfs`] type, and operations on the pool as a whole.

use crate::handles::Handles;
use client::Client;
use placement::{FileId, NodeId};
use std::sync::Arc;
use wire::{Outcome, SpaceUsage};

/// File system of a pool. Cheap to clone; clones share their open files.
#[derive(Clone, Debug)]
pub struct Vfs {
    pub(crate) client: Client,
    pub(crate) handles: Arc<Handles>,
}

impl Vfs {
    /// Creates a file system over a client.
    pub fn new(client: Client) -> Self {
        Self { client, handles: Arc::default() }
    }

    /// The client below, for what is not an operation on files: objects, recovery of sessions.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Id of the root directory.
    pub fn root() -> FileId {
        FileId::ROOT
    }

    /// Space usage of the pool, without messages: up to date for nodes in this process, and as last
    /// reported by the others. Cheap.
    pub fn usage(&self) -> SpaceUsage {
        self.client.usage()
    }

    /// Space usage of the pool, asked from all nodes. A node that does not answer counts with its
    /// last report. Refused as `Unavailable` if no node has ever answered.
    pub fn query_usage(&self) -> impl Future<Output = Outcome<SpaceUsage>> + Send + use<> {
        let client = self.client.clone();
        async move { client.query_usage().await }
    }

    /// True if a node of the pool holds data, so that files may be placed there.
    pub fn holds_data(&self, node: NodeId) -> bool {
        self.client.holds_data(node)
    }

    /// Default stripe length, bytes. Reads and writes within one stripe are cheapest.
    pub fn stripe_bytes(&self) -> u32 {
        self.client.stripe_bytes()
    }
}
