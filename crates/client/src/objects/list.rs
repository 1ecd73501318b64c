//! Listing: keys in the order of their bytes.

use super::{Key, Objects, directory_paths::MissingPolicy};
use bytes::Bytes;
use placement::FileId;
use std::collections::VecDeque;
use wire::{Command, DirEntry, Kind, LIST_ENTRIES_MAX, Outcome, Refusal};

/// The keys to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListRequest<'a> {
    /// Only keys that begin with this.
    pub prefix: &'a [u8],
    /// Only keys after this one; empty: from the first on. A directory as returned with
    /// `by_directory` skips all keys in it.
    pub after: &'a [u8],
    /// True to return keys that have a `/` after the prefix as one, cut after that `/`: as S3 does
    /// with the delimiter `/`. An empty directory is returned too.
    pub by_directory: bool,
}

/// Some keys, in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Keys of objects.
    pub keys: Vec<Vec<u8>>,
    /// Directories, with a `/` at their ends; empty unless they were asked for.
    pub directories: Vec<Vec<u8>>,
    /// The `after` of the next page; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// One directory whose entries are being listed.
struct Level {
    /// Its path with a slash at its end; empty for the root.
    path: Vec<u8>,
    directory: FileId,
    /// The prefix of its entries' names.
    prefix: Bytes,
    /// The first name that is still to be asked for; `None` if there are no more.
    from: Option<Bytes>,
    /// Entries that were fetched and are not returned yet.
    entries: VecDeque<DirEntry>,
}

impl Objects {
    /// Lists at most `max` keys and directories (0 counts as 1). One message for each directory
    /// that is entered, and for each 4,096 of its entries; more for a directory that is split.
    ///
    /// Each key exists at some moment of the call; a key that exists all the time is in the list.
    pub async fn list(&self, request: ListRequest<'_>, max: usize) -> Outcome<ListPage> {
        let (mut page, max) = (ListPage::default(), max.max(1));
        let Some(top) = self.top_level(request).await? else { return Ok(page) };
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
                    if request.by_directory {
                        page.directories.push(path);
                    } else {
                        levels.extend(Level::new(path, entry.file, b"", request));
                    }
                }
                _ => page.keys.push(path),
            }
        }
        Ok(page)
    }

    /// The directory that contains all keys with the prefix.
    async fn top_level(&self, request: ListRequest<'_>) -> Outcome<Option<Level>> {
        let at = request.prefix.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (path, rest) = request.prefix.split_at(at);
        let directory = match path.strip_suffix(b"/") {
            None => FileId::ROOT,
            Some(directory) => {
                Key::new(directory)?;
                match self.find_directory(directory, MissingPolicy::Refuse).await {
                    Err(Refusal::NotFound(_) | Refusal::NotDirectory(_)) => return Ok(None),
                    found => found?,
                }
            }
        };
        Ok(Level::new(path.to_vec(), directory, rest, request))
    }

    /// Fetches more entries.
    async fn load(&self, level: &mut Level, wanted: usize) -> Outcome<()> {
        let Some(from) = level.from.take() else { return Ok(()) };
        let max = u32::try_from(wanted).unwrap_or(LIST_ENTRIES_MAX).clamp(1, LIST_ENTRIES_MAX);
        let entries = match self.list_names(level.directory, &level.prefix, &from, max).await {
            Err(Refusal::NotFound(_)) => return Ok(()), // the directory is gone, with all that was in it
            entries => entries?,
        };
        if entries.len() == max as usize {
            let behind = entries.last().map(|last| [&sort_key(last)[..], b"\0"].concat().into());
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
        entries.sort_by_cached_key(sort_key);
        entries.truncate(max as usize);
        Ok(entries)
    }

    async fn list_part(&self, directory: FileId, prefix: &Bytes, from: &Bytes, max: u32) -> Outcome<Vec<DirEntry>> {
        let (prefix, from) = (prefix.clone(), from.clone());
        self.client.query(directory.partition(), Command::list_names(directory, prefix, from, max)).await
    }
}

impl Level {
    /// `None` if nothing in the directory can be after the start.
    fn new(path: Vec<u8>, directory: FileId, prefix: &[u8], request: ListRequest<'_>) -> Option<Self> {
        let from = match request.after.strip_prefix(&path[..]) {
            None if request.after > &path[..] => return None,
            None | Some(b"") => Bytes::new(),
            Some(behind) => match behind.iter().position(|byte| *byte == b'/') {
                None => [behind, b"\0"].concat().into(),
                // The whole directory was returned as one.
                Some(slash) if request.by_directory && slash + 1 == behind.len() => {
                    [&behind[..slash], b"0"].concat().into()
                }
                Some(slash) => behind[..=slash].to_vec().into(),
            },
        };
        let prefix = prefix.to_vec().into();
        Some(Self { path, directory, prefix, from: Some(from), entries: VecDeque::new() })
    }
}

/// The sort key of an entry: keys below a directory have a slash after its name.
fn sort_key(entry: &DirEntry) -> Vec<u8> {
    let slash: &[u8] = if entry.kind == Kind::Directory { b"/" } else { b"" };
    [entry.name.as_bytes(), slash].concat()
}

impl ListPage {
    /// The number of keys and directories.
    pub fn len(&self) -> usize {
        self.keys.len() + self.directories.len()
    }

    /// True if there are no keys and no directories.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn last(&self) -> Option<&[u8]> {
        self.keys.last().into_iter().chain(self.directories.last()).max().map(Vec::as_slice)
    }
}
