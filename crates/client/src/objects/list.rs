//! Listing: keys in the order of their bytes.

use super::{Key, Objects, folders::Missing};
use crate::client::unexpected;
use bytes::Bytes;
use placement::FileId;
use std::collections::VecDeque;
use wire::{Answer, Command, DirEntry, Kind, LIST_ENTRIES_MAX, Outcome, Refusal};

/// What of the keys is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Keys that begin with this.
    pub prefix: &'a [u8],
    /// Keys behind this; as `by_folder` gave it, all of a folder are behind its name. Empty: from the first on.
    pub after: &'a [u8],
    /// Keys in which a `/` follows behind the prefix are given as one, cut behind that: as S3 does with the delimiter `/`. An empty folder is
    /// given too.
    pub by_folder: bool,
}

/// Some keys, in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Of objects.
    pub keys: Vec<Vec<u8>>,
    /// Of folders, with a `/` at their ends; none unless they were asked for.
    pub folders: Vec<Vec<u8>>,
    /// What to go on after; none at the end.
    pub next: Option<Vec<u8>>,
}

/// One folder whose entries are given.
struct Level {
    /// Its path with a slash at its end; empty for the root.
    path: Vec<u8>,
    directory: FileId,
    /// What names begin with.
    prefix: Bytes,
    /// Names not before this are still to be asked for; none when they are over.
    from: Option<Bytes>,
    /// What was asked for and is not given.
    entries: VecDeque<DirEntry>,
}

impl Objects {
    /// At most `max` keys and folders, at least one. One message for each folder that is entered, and 4,096 entries of it; more where one is split.
    ///
    /// Each key is there at some moment of the call; what is there all the time is in the list.
    pub async fn list(&self, asked: Asked<'_>, max: usize) -> Outcome<Page> {
        let (mut page, max) = (Page::default(), max.max(1));
        let Some(top) = self.top(asked).await? else { return Ok(page) };
        let mut levels = vec![top];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.entries.pop_front() else {
                if level.from.is_none() {
                    levels.pop();
                } else {
                    let wanted = max.saturating_sub(page.len()).saturating_add(1);
                    self.load(level, wanted).await?;
                }
                continue;
            };
            let mut path = [&level.path[..], entry.name.as_bytes()].concat();
            if !matches!(entry.kind, Kind::File | Kind::Directory) {
                continue;
            }
            if page.len() == max {
                page.next = page.last().map(<[u8]>::to_vec);
                return Ok(page);
            }
            match entry.kind {
                Kind::Directory => {
                    path.push(b'/');
                    if asked.by_folder {
                        page.folders.push(path);
                    } else {
                        levels.extend(Level::new(path, entry.file, b"", asked));
                    }
                }
                _ => page.keys.push(path),
            }
        }
        Ok(page)
    }

    /// The folder that all keys with the prefix are in.
    async fn top(&self, asked: Asked<'_>) -> Outcome<Option<Level>> {
        let at = asked.prefix.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (path, rest) = asked.prefix.split_at(at);
        let directory = match path.strip_suffix(b"/") {
            None => FileId::ROOT,
            Some(folder) => {
                Key::new(folder)?;
                match self.find_way(folder, Missing::Refused).await {
                    Err(Refusal::NotFound(_) | Refusal::NotDirectory(_)) => return Ok(None),
                    way => way?.directory,
                }
            }
        };
        Ok(Level::new(path.to_vec(), directory, rest, asked))
    }

    /// Asks for more entries.
    async fn load(&self, level: &mut Level, wanted: usize) -> Outcome<()> {
        let Some(from) = level.from.take() else { return Ok(()) };
        let max = u32::try_from(wanted).unwrap_or(LIST_ENTRIES_MAX).clamp(1, LIST_ENTRIES_MAX);
        let entries = match self.list_names(level.directory, &level.prefix, &from, max).await {
            Err(Refusal::NotFound(_)) => return Ok(()), // it is gone, and all that was in it
            entries => entries?,
        };
        if entries.len() == max as usize {
            let behind = entries.last().map(|last| [&listed_name(last)[..], b"\0"].concat().into());
            level.from = behind;
        }
        level.entries = entries.into();
        Ok(())
    }

    async fn list_names(&self, directory: FileId, prefix: &Bytes, from: &Bytes, max: u32) -> Outcome<Vec<DirEntry>> {
        let mut fragments = self.client.fragments_of(directory);
        if fragments.is_empty() {
            match self.list_part(directory, prefix, from, max).await {
                Err(Refusal::Split { directory, bits }) => self.client.learn_split(directory, bits).await?,
                entries => return entries,
            }
            fragments = self.client.fragments_of(directory);
        }
        let mut entries = Vec::new();
        for fragment in fragments.iter() {
            match self.list_part(*fragment, prefix, from, max).await {
                Err(Refusal::NotFound(_)) => {}
                part => entries.extend(part?),
            }
        }
        entries.sort_by_cached_key(listed_name);
        entries.truncate(max as usize);
        Ok(entries)
    }

    async fn list_part(&self, directory: FileId, prefix: &Bytes, from: &Bytes, max: u32) -> Outcome<Vec<DirEntry>> {
        let (prefix, from) = (prefix.clone(), from.clone());
        let command = Command::ListNames { directory, prefix, from, max };
        match self.client.ask(directory.partition(), command).await? {
            Answer::Entries(entries) => Ok(entries),
            other => Err(unexpected(&other)),
        }
    }
}

impl Level {
    /// None where nothing of it can be behind what was asked for.
    fn new(path: Vec<u8>, directory: FileId, prefix: &[u8], asked: Asked<'_>) -> Option<Self> {
        let from = match asked.after.strip_prefix(&path[..]) {
            None if asked.after > &path[..] => return None,
            None | Some(b"") => Bytes::new(),
            Some(behind) => match behind.iter().position(|byte| *byte == b'/') {
                None => [behind, b"\0"].concat().into(),
                // All of the folder was given as one.
                Some(slash) if asked.by_folder && slash + 1 == behind.len() => [&behind[..slash], b"0"].concat().into(),
                Some(slash) => behind[..=slash].to_vec().into(),
            },
        };
        let prefix = prefix.to_vec().into();
        Some(Self { path, directory, prefix, from: Some(from), entries: VecDeque::new() })
    }
}

/// What an entry is ordered by: keys below a directory have a slash behind its name.
fn listed_name(entry: &DirEntry) -> Vec<u8> {
    let slash: &[u8] = if entry.kind == Kind::Directory { b"/" } else { b"" };
    [entry.name.as_bytes(), slash].concat()
}

impl Page {
    /// How many keys and folders there are.
    pub fn len(&self) -> usize {
        self.keys.len() + self.folders.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn last(&self) -> Option<&[u8]> {
        self.keys.last().into_iter().chain(self.folders.last()).max().map(Vec::as_slice)
    }
}
