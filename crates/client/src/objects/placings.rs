//! The cache of folders' placements: the bytes of large objects are written before their folder is
//! asked.
//!
//! Cached placements may be stale; a put is validated against its folder.

use super::Objects;
use parking_lot::Mutex;
use placement::{FileId, PlacementSpec};
use std::collections::HashMap;
use wire::{Outcome, Refusal};

/// Most folders whose placements are cached; beyond it all are dropped.
const PLACINGS_MAX: usize = 16 << 10;

/// The last known placements of folders.
#[derive(Debug, Default)]
pub struct Placings(Mutex<HashMap<FileId, PlacementSpec>>);

impl Placings {
    fn get(&self, directory: FileId) -> Option<PlacementSpec> {
        self.0.lock().get(&directory).copied()
    }

    pub fn learn(&self, directory: FileId, placing: PlacementSpec) {
        let mut known = self.0.lock();
        if known.len() >= PLACINGS_MAX {
            known.clear();
        }
        known.insert(directory, placing);
    }
}

impl Objects {
    /// The placement of objects in a folder. If it is not cached, it is asked for only if `asks`.
    pub(super) async fn placing_in(&self, directory: FileId, asks: bool) -> Outcome<PlacementSpec> {
        let above = match self.shared.placings.get(directory) {
            Some(known) => known,
            None if asks => match self.client.placing(directory).await {
                Ok(said) => {
                    self.shared.placings.learn(directory, said);
                    said
                }
                // The folder is no longer where the key led before. Where it leads now is seen when
                // the object gets its name.
                Err(Refusal::NotFound(_)) => PlacementSpec::default(),
                Err(refusal) => return Err(refusal),
            },
            None => PlacementSpec::default(),
        };
        Ok(self.placing.or(above))
    }
}
