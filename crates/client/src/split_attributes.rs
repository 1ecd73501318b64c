//! Attributes of a split directory: its own, combined with those of all its fragments.
//!
//! Each `stat` would take a message to each, and a kernel asks again after each change that it
//! makes itself. So a subscribed session caches the attributes that are granted to it, and asks
//! only for those that may have changed:
//!
//! ```text
//!   others change a fragment     the node invalidates the directory's attributes: all its
//!                                cached attributes are dropped
//!   this session changes one     it has begun a change in that partition since, or has one in
//!                                flight: that fragment is asked
//! ```

use crate::{Client, router::sequence::Sequences};
use parking_lot::Mutex;
use placement::FileId;
use std::collections::HashMap;
use wire::{Attributes, Command, Object, Outcome, Recall, Refusal};

/// Most directories whose attributes are cached; beyond it all are dropped.
const DIRECTORIES_MAX: usize = 1024;

/// The attribute cache of split directories.
#[derive(Debug, Default)]
pub struct AttributeCache(Mutex<CachedDirectories>);

#[derive(Debug, Default)]
struct CachedDirectories {
    /// Number of invalidations. An answer to a query sent before one may be outdated.
    invalidations: u64,
    /// The directory itself first, then its fragments.
    directories: HashMap<FileId, Box<[Option<FragmentAttributes>]>>,
}

/// Attributes that may be cached, and the number of this session's last change in their partition.
#[derive(Clone, Copy, Debug)]
struct FragmentAttributes {
    attributes: Attributes,
    number: u64,
}

impl CachedDirectories {
    fn clear(&mut self) {
        self.invalidations += 1;
        self.directories.clear();
    }
}

/// The attributes of one directory and its fragments; those that are `None` must be asked for.
#[derive(Debug)]
struct CachedAttributes {
    invalidations: u64,
    parts: Vec<Option<FragmentAttributes>>,
}

impl AttributeCache {
    /// The cached attributes that are still valid.
    fn lookup(&self, directory: FileId, files: &[FileId], sequences: &Sequences) -> CachedAttributes {
        let known = self.0.lock();
        let mut parts =
            known.directories.get(&directory).map_or_else(|| vec![None; files.len()], |parts| parts.to_vec());
        for (part, file) in parts.iter_mut().zip(files) {
            *part = part.filter(|part| sequences.last_if_idle(file.partition()) == Some(part.number));
        }
        CachedAttributes { invalidations: known.invalidations, parts }
    }

    /// Caches what was found, unless something was invalidated meanwhile.
    fn store(&self, directory: FileId, found: CachedAttributes) {
        let mut known = self.0.lock();
        if known.invalidations != found.invalidations {
            return;
        }
        if known.directories.len() >= DIRECTORIES_MAX {
            known.directories.clear();
        }
        known.directories.insert(directory, found.parts.into());
    }

    /// Drops what these invalidations concern.
    pub fn invalidate(&self, recalls: &[Recall]) {
        let mut known = self.0.lock();
        for recall in recalls {
            match recall {
                Recall::Attributes(file) => {
                    known.invalidations += 1;
                    known.directories.remove(file);
                }
                Recall::All => known.clear(),
                Recall::Bytes(_) | Recall::Names(_) | Recall::Removed(_) | Recall::Greet(_) => {}
            }
        }
    }

    /// Drops everything.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

impl Client {
    /// The attributes of a split directory.
    pub(crate) async fn stat_fragments(&self, directory: FileId) -> Outcome<Attributes> {
        let mut fragments = self.fragments_of(directory);
        if fragments.is_empty() {
            fragments = self.query_fragments(directory).await?.1;
        }
        let files: Vec<FileId> = std::iter::once(directory).chain(fragments.iter().copied()).collect();
        let state = self.session_state();
        let mut found = self.inner.attribute_cache.lookup(directory, &files, &state.sequences);
        let all_known = found.parts.iter().all(Option::is_some);
        let mut whole: Option<Attributes> = None;
        for (cached, file) in found.parts.iter_mut().zip(&files) {
            let part = match *cached {
                Some(part) => Some(part.attributes),
                None => self.query_fragment(&state.sequences, (directory, *file), cached).await?,
            };
            match (&mut whole, part) {
                (None, own) => whole = own,
                (Some(whole), Some(part)) => add(whole, &part),
                // The directory is being removed.
                (Some(whole), None) => whole.cacheable = false,
            }
        }
        if !all_known {
            self.inner.attribute_cache.store(directory, found);
        }
        whole.ok_or(Refusal::NotFound(Object::File(directory)))
    }

    /// Asks for the attributes of the directory or a fragment, and stores them in `cached` if they
    /// may be cached and no change of ours is in flight there. `None` if it is gone.
    async fn query_fragment(
        &self,
        sequences: &Sequences,
        (directory, file): (FileId, FileId),
        cached: &mut Option<FragmentAttributes>,
    ) -> Outcome<Option<Attributes>> {
        let before = sequences.last_if_idle(file.partition());
        let attributes = if file == directory {
            self.query_fragments(directory).await?.0
        } else {
            match self.query(file.partition(), Command::stat(file)).await {
                Ok(attributes) => attributes,
                Err(Refusal::NotFound(_)) => return Ok(None),
                Err(refusal) => return Err(refusal),
            }
        };
        let unchanged =
            before.filter(|before| attributes.cacheable && sequences.last_if_idle(file.partition()) == Some(*before));
        *cached = unchanged.map(|number| FragmentAttributes { attributes, number });
        Ok(Some(attributes))
    }
}

/// Adds the attributes of a fragment.
fn add(whole: &mut Attributes, part: &Attributes) {
    whole.size += part.size;
    whole.links += part.links.saturating_sub(2);
    whole.modified = whole.modified.max(part.modified);
    whole.changed = whole.changed.max(part.changed);
    whole.cacheable &= part.cacheable;
}
