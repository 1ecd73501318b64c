//! Objects: bytes put and got as one under a key. An object is the file at the path that its key is, so every way in sees it.
//!
//! ```text
//!   put   <= 4 KiB   one message: walked to, checked, made, named           > 4 KiB   its stripes first, then the same message
//!   get   one message where the node has the bytes too, else one more for each stripe
//! ```
//!
//! [`Objects`] needs no open files and no runtime: its futures may be polled by any executor. What several calls have under way
//! together is bounded; a call above that waits for others of the same `Objects`, or clone of it.
//!
//! What it does not do: keep bytes. Of folders it remembers where they were (`folders`) and where bytes in them are to lie (`placings`), and
//! has both proved with each use.

mod flow;
mod folders;
mod get;
mod ids;
mod key;
mod list;
mod many;
mod placings;
mod put;
mod spread;
mod upload;

use crate::Client;
use bytes::{Bytes, BytesMut};
use flow::Flow;
use folders::Folders;
use ids::Ids;
use placement::{Placing, Policy};
use placings::Placings;
use std::sync::Arc;
use wire::{Object, ObjectAttributes, Outcome, Refusal};

pub use key::{KEY_BYTES_MAX, Key};
pub use list::{Asked, Page};
pub use upload::Upload;
pub use wire::{Condition, Head, Version};

/// Something that others change again and again is tried so often.
const TRIES: u32 = 64;

/// Objects of a pool. Cheap to clone; clones share their bounds.
#[derive(Clone, Debug)]
pub struct Objects {
    client: Client,
    /// Where what is put shall lie; the rest is as folders say.
    placing: Placing,
    /// What is put has these attributes.
    attributes: ObjectAttributes,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    folders: Folders,
    ids: Ids,
    placings: Placings,
    flow: Flow,
}

/// An object's bytes, as they were put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// What is known of the object.
    pub head: Head,
    /// The bytes, one piece after the other. Views of the pool's memory, where that is in this process.
    pub pieces: Vec<Bytes>,
}

impl Value {
    /// The bytes as one piece; copied where there are several.
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

    /// How many bytes these are.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Objects {
    /// Objects over a client.
    pub fn new(client: Client) -> Self {
        Self { client, placing: Placing::default(), attributes: Box::default(), shared: Arc::default() }
    }

    /// The same objects; what is put through this lies so, and where that says nothing as its folder says.
    ///
    /// Refused as `Invalid` when it names a node that holds no data.
    pub fn placed(&self, placing: Placing) -> Outcome<Self> {
        if let Some(Policy::At(node)) = placing.policy {
            self.client.check_node(Object::Pool, node)?;
        }
        Ok(Self { placing, ..self.clone() })
    }

    /// The same objects; what is put through this has these attributes from the moment that it has its key.
    #[must_use]
    pub fn with_attributes(&self, attributes: ObjectAttributes) -> Self {
        Self { attributes, ..self.clone() }
    }

    /// The same by another handle of the client.
    fn through(&self, client: Client) -> Self {
        Self { client, ..self.clone() }
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Ends the client's session, and with it what puts have begun and not done. Nothing can be done with it, or its clones, afterwards.
    pub async fn close(&self) -> Outcome<()> {
        self.client.close().await
    }
}

/// A refusal that names the key, not the directory entry that it led to.
fn about(key: &Key, refusal: Refusal) -> Refusal {
    let object = || Object::text(key.as_bytes());
    match refusal {
        Refusal::NotFound(_) => Refusal::NotFound(object()),
        Refusal::IsDirectory(_) => Refusal::IsDirectory(object()),
        Refusal::NotDirectory(Object::File(_)) => Refusal::NotDirectory(object()),
        Refusal::Busy(_) => Refusal::Busy(object()),
        Refusal::MaybeDone(_) => Refusal::MaybeDone(object()),
        Refusal::Changed { present, .. } => Refusal::Changed { object: object(), present },
        Refusal::Unavailable { tries, why, .. } => Refusal::Unavailable { object: object(), tries, why },
        other => other,
    }
}
