//! The engine of a node: who needs what of it asks for that trait.

use std::fmt;
use std::sync::Arc;

use crate::{Extents, Placeholders, SharedMemory, StripeStore};

/// An engine: a store of stripes, and what else it offers.
pub trait Engine: Send + Sync + fmt::Debug {
    /// The store of its stripes.
    fn stripes(self: Arc<Self>) -> Arc<dyn StripeStore>;

    /// Its memory, for other processes to map; `None` if they cannot.
    fn shared_memory(self: Arc<Self>) -> Option<Arc<dyn SharedMemory>> {
        None
    }

    /// The extent files; `None` if it has none.
    fn extents(&self) -> Option<Arc<dyn Extents>> {
        None
    }

    /// The placeholder descriptors; `None` if it has none.
    fn placeholders(self: Arc<Self>) -> Option<Arc<dyn Placeholders>> {
        None
    }
}
