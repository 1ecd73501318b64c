//! What folders say of where bytes lie: remembered, since the bytes of large objects are written before their folder is asked.
//!
//! What was true once may be so no more. That does not matter: a put is done only if its bytes lie as the folder says then.

use super::Objects;
use parking_lot::Mutex;
use placement::{FileId, Placing};
use std::collections::HashMap;
use wire::{Outcome, Refusal};

/// Of so many folders; then it begins anew.
const PLACINGS_MAX: usize = 16 << 10;

/// What folders said last.
#[derive(Debug, Default)]
pub struct Placings(Mutex<HashMap<FileId, Placing>>);

impl Placings {
    fn get(&self, directory: FileId) -> Option<Placing> {
        self.0.lock().get(&directory).copied()
    }

    pub fn learn(&self, directory: FileId, placing: Placing) {
        let mut known = self.0.lock();
        if known.len() >= PLACINGS_MAX {
            known.clear();
        }
        known.insert(directory, placing);
    }
}

impl Objects {
    /// Where the bytes are to lie of what is put into a folder; `asks`: if that is not known, it is worth a message.
    pub(super) async fn placing_in(&self, directory: FileId, asks: bool) -> Outcome<Placing> {
        let above = match self.shared.placings.get(directory) {
            Some(known) => known,
            None if asks => match self.client.placing(directory).await {
                Ok(said) => {
                    self.shared.placings.learn(directory, said);
                    said
                }
                // It was where the key led before: where that leads now is seen when the name is given.
                Err(Refusal::NotFound(_)) => Placing::default(),
                Err(refusal) => return Err(refusal),
            },
            None => Placing::default(),
        };
        Ok(self.placing.or(above))
    }
}
