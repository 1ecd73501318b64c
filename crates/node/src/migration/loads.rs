//! The load of each partition here, for those who decide what moves.

use crate::{Node, execute::refusal_without_wait};
use placement::PartitionId;
use std::collections::BTreeMap;
use store::StripeEntry;
use tokio::task::yield_now;
use wire::{Object, Outcome};

/// Stripes of a page of the scan.
const SCAN_PAGE: usize = 1024;

/// The load of a partition that is served here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalLoad {
    /// Bytes of its stripes and its metadata.
    pub bytes: u64,
    /// Those of them that a user has placed at this node, by `here` or `at`: in stripes of files
    /// whose inodes are here, and in inodes. Directories below a placed one are made at the node of
    /// the bytes, with the inodes of their files. Of a file whose inode is elsewhere nothing
    /// counts.
    pub placed_bytes: u64,
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
            let placed_bytes = partition.inline_bytes_placed_at(self.id());
            loads.insert(partition.id(), LocalLoad { bytes: partition.bytes(), placed_bytes, pins });
        }
        let mut scan = self.engine.scan();
        let io = |error| refusal_without_wait(error, Object::Pool);
        while let Some(page) = scan.next_page(SCAN_PAGE).done().await.map_err(io)? {
            for StripeEntry { key, length, .. } in page {
                let Some(load) = loads.get_mut(&key.partition) else { continue };
                load.bytes += u64::from(length);
                let home = self.partitions.lock(key.file.partition());
                if home.is_some_and(|home| home.is_placed_at(key.file, self.id())) {
                    load.placed_bytes += u64::from(length);
                }
            }
            yield_now().await;
        }
        Ok(loads)
    }
}
