//! Intents: changes that touch several partitions, and take effect in all of them or in none.

use crate::Session;
use placement::PartitionId;
use serde::{Deserialize, Serialize};

/// One change over several partitions. Never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Intent {
    /// Counted by the client that drives it. First, so that older intents of all clients are smaller.
    pub number: u64,
    /// That client.
    pub session: Session,
    /// The partition that decides: whether it was done there is whether it was done.
    pub coordinator: PartitionId,
}
