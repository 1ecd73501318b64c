//! Layer 3: the client of a pool: routes requests by the partition map, retries, stripes data.
#![forbid(unsafe_code)]

use node::Node;
use std::sync::Arc;

/// A client of a pool. Cheap to clone; clones are one session.
#[derive(Clone, Debug)]
pub struct Client {
    _node: Arc<Node>,
}

impl Client {
    /// A client of a node in this process.
    pub fn embedded(node: Arc<Node>) -> Self {
        Self { _node: node }
    }
}
