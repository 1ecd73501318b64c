//! The cache of directories' placements: the bytes of large objects are written before their
//! directory is asked.
//!
//! Cached placements may be stale; a put is validated against its directory.

use super::Objects;
use parking_lot::Mutex;
use placement::{FileId, PlacementSpec};
use std::collections::HashMap;
use wire::{Outcome, Refusal};

/// Most directories whose placements are cached; beyond it all are dropped.
const PLACEMENTS_MAX: usize = 16 << 10;

/// The last known placements of directories.
#[derive(Debug, Default)]
pub struct PlacementCache(Mutex<HashMap<FileId, PlacementSpec>>);

impl PlacementCache {
    fn get(&self, directory: FileId) -> Option<PlacementSpec> {
        self.0.lock().get(&directory).copied()
    }

    pub fn learn(&self, directory: FileId, placing: PlacementSpec) {
        let mut known = self.0.lock();
        if known.len() >= PLACEMENTS_MAX {
            known.clear();
        }
        known.insert(directory, placing);
    }
}

impl Objects {
    /// The placement of objects in a directory. If it is not cached, it is asked for only if
    /// `query`.
    pub(super) async fn placement_in(&self, directory: FileId, query: bool) -> Outcome<PlacementSpec> {
        let above = match self.shared.placements.get(directory) {
            Some(known) => known,
            None if query => match self.client.placement_spec(directory).await {
                Ok(spec) => {
                    self.shared.placements.learn(directory, spec);
                    spec
                }
                // The directory is no longer where the key led before. Where it leads now is seen
                // when the object gets its name.
                Err(Refusal::NotFound(_)) => PlacementSpec::default(),
                Err(refusal) => return Err(refusal),
            },
            None => PlacementSpec::default(),
        };
        Ok(self.placing.or(above))
    }
}
