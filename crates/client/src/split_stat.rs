//! Attributes of a directory that is split: put together from its own and those of all its fragments.
//!
//! That is a message for each, at every `stat`, and a kernel asks again after each change that it makes itself. So a session that
//! watches remembers the parts that last, and asks only for those that may have changed:
//!
//! ```text
//!   others change a part        the node recalls the directory's attributes: all its parts are forgotten
//!   this session changes one    it has begun a change in that partition since, or has one under way: that part is asked for
//! ```

use crate::{Client, client::unexpected, numbers::Numbers};
use parking_lot::Mutex;
use placement::FileId;
use std::collections::HashMap;
use wire::{Answer, Attributes, Command, Object, Outcome, Recall, Refusal};

/// The parts of more directories are not remembered; then all are forgotten.
const DIRECTORIES_MAX: usize = 1024;

/// What is remembered of directories that are split.
#[derive(Debug, Default)]
pub struct Parts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// How often something was recalled: an answer that was asked for before may be older.
    recalls: u64,
    /// The directory itself first, then its fragments.
    directories: HashMap<FileId, Box<[Option<Part>]>>,
}

/// Attributes that last, as of the change of this session in their partition with that number.
#[derive(Clone, Copy, Debug)]
struct Part {
    attributes: Attributes,
    number: u64,
}

impl Known {
    fn forget(&mut self) {
        self.recalls += 1;
        self.directories.clear();
    }
}

/// Parts of one directory, of which some are to be asked for.
#[derive(Debug)]
struct Found {
    recalls: u64,
    parts: Vec<Option<Part>>,
}

impl Parts {
    /// What of it is still right.
    fn find(&self, directory: FileId, files: &[FileId], numbers: &Numbers) -> Found {
        let known = self.0.lock();
        let mut parts =
            known.directories.get(&directory).map_or_else(|| vec![None; files.len()], |parts| parts.to_vec());
        for (part, file) in parts.iter_mut().zip(files) {
            *part = part.filter(|part| numbers.quiet(file.partition()) == Some(part.number));
        }
        Found { recalls: known.recalls, parts }
    }

    /// Remembers what was found, unless something was recalled meanwhile.
    fn keep(&self, directory: FileId, found: Found) {
        let mut known = self.0.lock();
        if known.recalls != found.recalls {
            return;
        }
        if known.directories.len() >= DIRECTORIES_MAX {
            known.directories.clear();
        }
        known.directories.insert(directory, found.parts.into());
    }

    /// These are not to be kept any longer.
    pub fn recalled(&self, recalls: &[Recall]) {
        let mut known = self.0.lock();
        for recall in recalls {
            match recall {
                Recall::Attributes(file) => {
                    known.recalls += 1;
                    known.directories.remove(file);
                }
                Recall::All => known.forget(),
                Recall::Bytes(_) | Recall::Names(_) | Recall::Removed(_) => {}
            }
        }
    }

    /// Nothing is to be kept any longer.
    pub fn forget(&self) {
        self.0.lock().forget();
    }
}

impl Client {
    /// The attributes of a directory that is split.
    pub(crate) async fn stat_split(&self, directory: FileId) -> Outcome<Attributes> {
        let mut fragments = self.fragments_of(directory);
        if fragments.is_empty() {
            fragments = self.ask_fragments(directory).await?.1;
        }
        let files: Vec<FileId> = std::iter::once(directory).chain(fragments.iter().copied()).collect();
        let life = self.life()?;
        let mut found = self.0.parts.find(directory, &files, &life.numbers);
        let all_known = found.parts.iter().all(Option::is_some);
        let mut whole: Option<Attributes> = None;
        for (place, file) in found.parts.iter_mut().zip(&files) {
            let part = match *place {
                Some(part) => Some(part.attributes),
                None => self.ask_part(&life.numbers, (directory, *file), place).await?,
            };
            match (&mut whole, part) {
                (None, own) => whole = own,
                (Some(whole), Some(part)) => add(whole, &part),
                // The directory is being removed.
                (Some(whole), None) => whole.lasting = false,
            }
        }
        if !all_known {
            self.0.parts.keep(directory, found);
        }
        whole.ok_or(Refusal::NotFound(Object::File(directory)))
    }

    /// Asks for a part, and notes it if it lasts and nothing of ours is under way there; none when it is gone.
    async fn ask_part(
        &self,
        numbers: &Numbers,
        (directory, file): (FileId, FileId),
        place: &mut Option<Part>,
    ) -> Outcome<Option<Attributes>> {
        let before = numbers.quiet(file.partition());
        let attributes = if file == directory {
            self.ask_fragments(directory).await?.0
        } else {
            match self.ask(file.partition(), Command::Stat { file }).await {
                Ok(Answer::Attributes(attributes)) => attributes,
                Ok(other) => return Err(unexpected(&other)),
                Err(Refusal::NotFound(_)) => return Ok(None),
                Err(refusal) => return Err(refusal),
            }
        };
        let unchanged = before.filter(|before| attributes.lasting && numbers.quiet(file.partition()) == Some(*before));
        *place = unchanged.map(|number| Part { attributes, number });
        Ok(Some(attributes))
    }
}

/// Adds what a fragment holds.
fn add(whole: &mut Attributes, part: &Attributes) {
    whole.size += part.size;
    whole.links += part.links.saturating_sub(2);
    whole.modified = whole.modified.max(part.modified);
    whole.changed = whole.changed.max(part.changed);
    whole.lasting &= part.lasting;
}
