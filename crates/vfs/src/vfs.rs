//! The file system itself, and what is asked of it as a whole.

use crate::handles::Handles;
use client::Client;
use placement::FileId;
use std::sync::Arc;
use wire::Usage;

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

    /// How full the pool is; cheap.
    pub fn usage(&self) -> Usage {
        self.client.usage()
    }

    /// The length of a stripe, bytes: reads and writes that stay within one are cheapest.
    pub fn stripe_bytes(&self) -> u32 {
        self.client.stripe_bytes()
    }
}
