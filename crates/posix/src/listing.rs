//! Directory listings: `.` and `..` first, then the pool's entries in the order of their cookies.

use crate::attributes::file_type;
use crate::fd_table::OpenDescription;
use crate::{Errno, PosixProcess};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use wire::{COOKIE_FIRST, DirEntry, Kind};

/// Number of entries fetched per request.
const PAGE_ENTRIES: usize = 512;
/// Positions and names of the two entries that the pool does not store. Every cookie of the pool is
/// far larger.
const DOTS: [(i64, &[u8]); 2] = [(1, b"."), (2, b"..")];

/// Directory entry, as readdir(3) returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEntry {
    /// Inode number.
    pub inode: u64,
    /// Position of the next entry (`d_off`).
    pub next: i64,
    /// Type (`DT_REG` and the like).
    pub kind: u8,
    /// Name.
    pub name: Vec<u8>,
}

/// Open directory stream.
#[derive(Debug)]
pub struct DirectoryListing {
    open: Arc<OpenDescription>,
    position: i64,
    fetched: VecDeque<DirEntry>,
    ended: bool,
}

impl PosixProcess {
    /// Opens a stream of the directory that a descriptor refers to.
    ///
    /// # Errors
    /// `EBADF`, `ENOTDIR`.
    pub fn listing(&self, descriptor: BorrowedFd<'_>) -> Result<DirectoryListing, Errno> {
        let open = self.table.get(descriptor)?;
        open.directory()?;
        self.check_not_path_only(descriptor)?;
        Ok(DirectoryListing { open, position: 0, fetched: VecDeque::new(), ended: false })
    }

    /// Returns the next entry, or `None` at the end.
    ///
    /// # Errors
    /// As readdir(3).
    pub fn next_entry(&self, listing: &mut DirectoryListing) -> Result<Option<ListedEntry>, Errno> {
        let at = usize::try_from(listing.position).unwrap_or(usize::MAX);
        if let Some((next, name)) = DOTS.get(at) {
            listing.position = *next;
            let inode = if at == 0 { listing.open.file } else { self.parent_of(listing)? };
            return Ok(Some(ListedEntry {
                inode: inode.0,
                next: *next,
                kind: type_of(Kind::Directory),
                name: name.to_vec(),
            }));
        }
        if listing.fetched.is_empty() && !listing.ended {
            let after = u64::try_from(listing.position).unwrap_or(0);
            let after = if after < COOKIE_FIRST { 0 } else { after };
            let entries = self.wait(async {
                self.client.list(listing.open.file, after, PAGE_ENTRIES).await.map_err(|refusal| crate::errno(&refusal))
            })?;
            listing.ended = entries.is_empty();
            listing.fetched = entries.into();
        }
        let Some(entry) = listing.fetched.pop_front() else { return Ok(None) };
        listing.position = i64::try_from(entry.cookie).unwrap_or(i64::MAX);
        let (inode, kind) = (entry.file.0, type_of(entry.kind));
        Ok(Some(ListedEntry { inode, next: listing.position, kind, name: entry.name.as_bytes().to_vec() }))
    }

    /// Returns the parent directory, or the directory itself if it was removed.
    fn parent_of(&self, listing: &DirectoryListing) -> Result<placement::FileId, Errno> {
        let parent = self.wait(async { Ok(self.client.parent(listing.open.file).await) })?;
        Ok(parent.unwrap_or(listing.open.file))
    }
}

impl DirectoryListing {
    /// Continues at a position that [`DirectoryListing::position`] returned. Position 0 restarts,
    /// and shows entries added since.
    pub fn seek(&mut self, position: i64) {
        self.position = position;
        self.fetched.clear();
        self.ended = false;
    }

    /// Returns the position of the next entry.
    pub fn position(&self) -> i64 {
        self.position
    }
}

/// Returns `d_type`, which is the type part of a mode (readdir(3), `IFTODT`).
fn type_of(kind: Kind) -> u8 {
    u8::try_from(file_type(kind).as_raw_mode() >> 12).unwrap_or(0)
}
