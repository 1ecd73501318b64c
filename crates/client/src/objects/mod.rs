//! Objects: bytes put and got as one under a key. An object is the file at the path that its key
//! is, so every frontend sees it.
//!
//! ```text
//!   put   <= 4 KiB   one message: walk, check, make, name
//!          > 4 KiB   its stripes first, then that message
//!   get   one message if the node has the bytes too, otherwise one more for each stripe
//! ```
//!
//! [`Objects`] needs no open files and no runtime: its futures may be polled by any executor. The
//! calls and bytes in flight are bounded; a call beyond that waits for others of the same `Objects`
//! or its clones.
//!
//! Bytes are not cached. Of directories the client remembers where they were (`directory_paths`)
//! and where bytes in them are to be placed (`placement_cache`), and has both validated with each
//! use.

mod batch;
mod cross_partition;
mod directory_paths;
mod get;
mod id_pool;
mod key;
mod limiter;
mod list;
mod placement_cache;
mod put;
mod upload;

use crate::{Client, PathCache};
use bytes::{Bytes, BytesMut};
use id_pool::IdAllocator;
use limiter::Limiter;
use placement::{PlacementSpec, Policy};
use placement_cache::PlacementCache;
use std::sync::Arc;
use wire::{Object, ObjectAttributes, Outcome, Refusal};

pub use key::{KEY_BYTES_MAX, Key};
pub use list::{ListPage, ListRequest};
pub use upload::Upload;
pub use wire::{Condition, ObjectMeta, Version};

/// Most tries of an operation on something that others keep changing.
const TRIES: u32 = 64;

/// Objects of a pool. Cheap to clone; clones share their limits.
#[derive(Clone, Debug)]
pub struct Objects {
    client: Client,
    /// The placement of objects that are put; where it says nothing, that of the directory applies.
    placing: PlacementSpec,
    /// The extended attributes of objects that are put.
    attributes: ObjectAttributes,
    shared: Arc<SharedState>,
}

#[derive(Debug, Default)]
struct SharedState {
    paths: PathCache,
    ids: IdAllocator,
    placements: PlacementCache,
    limiter: Limiter,
}

/// An object's bytes, as they were put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The object's metadata.
    pub head: ObjectMeta,
    /// The bytes, one piece after the other; views of the pool's memory if that is in this process.
    pub pieces: Vec<Bytes>,
}

impl Value {
    /// The bytes as one piece; copied if there are several.
    pub fn into_bytes(mut self) -> Bytes {
        match self.pieces.len() {
            0 => Bytes::new(),
            1 => self.pieces.remove(0),
            _ => {
                let mut whole = BytesMut::with_capacity(self.len());
                self.pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
                whole.freeze()
            }
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Objects {
    /// Objects over a client.
    pub fn new(client: Client) -> Self {
        Self { client, placing: PlacementSpec::default(), attributes: Box::default(), shared: Arc::default() }
    }

    /// The same objects with a placement for what is put through this handle; where it says
    /// nothing, that of the directory applies.
    ///
    /// Refused as `Invalid` if it names a node that holds no data.
    pub fn with_placement(&self, placing: PlacementSpec) -> Outcome<Self> {
        if let Some(Policy::At(node)) = placing.policy {
            self.client.check_node(Object::Pool, node)?;
        }
        Ok(Self { placing, ..self.clone() })
    }

    /// The same objects with extended attributes for what is put through this handle: an object has
    /// them from the moment that it has its key.
    #[must_use]
    pub fn with_attributes(&self, attributes: ObjectAttributes) -> Self {
        Self { attributes, ..self.clone() }
    }

    /// The same objects over another handle of the client.
    fn with_client(&self, client: Client) -> Self {
        Self { client, ..self.clone() }
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Ends the client's session, and with it all puts that are not done. Neither the client nor
    /// its clones can be used afterwards.
    pub async fn close(&self) -> Outcome<()> {
        self.client.close().await
    }
}

/// Replaces the directory entry in a refusal with the key.
fn with_key(key: &Key, refusal: Refusal) -> Refusal {
    let object = || Object::text(key.as_bytes());
    match refusal {
        Refusal::NotFound(_) => Refusal::NotFound(object()),
        Refusal::IsDirectory(_) => Refusal::IsDirectory(object()),
        Refusal::NotDirectory(Object::File(_)) => Refusal::NotDirectory(object()),
        Refusal::Busy(_) => Refusal::Busy(object()),
        Refusal::OutcomeUnknown(_) => Refusal::OutcomeUnknown(object()),
        Refusal::VersionMismatch { present, .. } => Refusal::VersionMismatch { object: object(), present },
        Refusal::Unavailable { tries, why, .. } => Refusal::Unavailable { object: object(), tries, why },
        other => other,
    }
}
