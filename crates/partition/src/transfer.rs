//! The state of a partition on its way to another node.

use crate::{Partition, SnapshotError, SoftState, SubscriberId};
use bytes::Bytes;
use placement::FileId;
use serde::{Deserialize, Serialize};
use wire::{Session, StripeRuns};

/// All that another node needs to serve a partition, beside its stripes.
#[derive(Debug, Serialize, Deserialize)]
pub struct PartitionTransfer {
    /// The durable state; see [`Partition::snapshot`].
    snapshot: Bytes,
    /// State that kernels may cache, by the numbers that subscribers have at the source.
    pub soft_state: SoftState,
    /// The subscribers of the source, with their sessions.
    pub subscribers: Vec<(SubscriberId, Session)>,
    /// Sessions with state in the partition that have ended at the source.
    pub ended: Vec<Session>,
    /// Stripes in the partition that sessions wrote for files of other partitions, and that may
    /// belong to no file.
    pub strays: Vec<(Session, FileId, StripeRuns)>,
}

impl PartitionTransfer {
    /// The state of a partition that its node has ceased to serve.
    pub fn new(partition: &Partition, subscribers: Vec<(SubscriberId, Session)>) -> Self {
        let (snapshot, soft_state) = (partition.snapshot().into(), partition.soft_state());
        Self { snapshot, soft_state, subscribers, ended: Vec::new(), strays: Vec::new() }
    }

    /// The partition, without its soft state.
    pub fn restore(&self) -> Result<Partition, SnapshotError> {
        Partition::restore(&self.snapshot)
    }

    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, Vec::new()).expect("every state can be encoded")
    }

    /// Decodes what [`Self::encode`] made.
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        match postcard::take_from_bytes(bytes) {
            Ok((transfer, [])) => Ok(transfer),
            _ => Err(SnapshotError::Damaged),
        }
    }
}
