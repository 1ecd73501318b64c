//! The load of each partition here, for those who decide what moves.

use crate::{Node, execute::refusal_without_wait};
use placement::PartitionId;
use std::collections::BTreeMap;
use tokio::task::yield_now;
use wire::{Object, Outcome};

/// Stripes of a page of the scan.
const SCAN_PAGE: usize = 1024;

/// The load of a partition that is served here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalLoad {
    /// Bytes of its stripes and its metadata.
    pub bytes: u64,
    /// Files of it whose bytes belong to this host.
    pub pins: u32,
}

impl Node {
    /// Adds up the load of each partition that is served here.
    ///
    /// # Errors
    /// If the engine cannot say which stripes it has.
    pub async fn partition_loads(&self) -> Outcome<BTreeMap<PartitionId, LocalLoad>> {
        let mut loads: BTreeMap<PartitionId, LocalLoad> = BTreeMap::new();
        for partition in self.partitions.locked() {
            let pins = u32::try_from(partition.hosted_files(self.id()).count()).unwrap_or(u32::MAX);
            loads.insert(partition.id(), LocalLoad { bytes: partition.bytes(), pins });
        }
        let mut scan = self.engine.scan();
        let io = |error| refusal_without_wait(error, Object::Pool);
        while let Some(page) = scan.next_page(SCAN_PAGE).done().await.map_err(io)? {
            for entry in page {
                if let Some(load) = loads.get_mut(&entry.key.partition) {
                    load.bytes += u64::from(entry.length);
                }
            }
            yield_now().await;
        }
        Ok(loads)
    }
}
