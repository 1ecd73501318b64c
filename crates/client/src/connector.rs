//! The connector: makes connections to the nodes that a client learns of from the partition map.

use crate::Connection;
use placement::NodeId;
use std::{fmt, sync::Arc};

/// Makes connections to nodes.
pub trait Connector: Send + Sync + fmt::Debug {
    /// The connection to a node; `address` is the text that the map has of it. Sends nothing: the
    /// connection is opened at its first call. An error says why there is no way to the node.
    fn connect(&self, node: NodeId, address: &str) -> Result<Arc<dyn Connection>, String>;
}
