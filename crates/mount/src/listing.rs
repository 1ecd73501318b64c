//! Directory listings: `.` and `..` first, then the pool's entries by cookie.

use fuse_transport::{FuseDirent, FuseEntry, FuseReply, Listing};
use placement::FileId;
use std::time::Duration;
use vfs::Vfs;
use wire::{Attributes, COOKIE_FIRST, DirEntry, Kind, Outcome, Refusal};

use crate::{cache_policy::CachePolicy, kernel_state::KernelState, lookup_counts::InFlight, translate};

/// Number of entries fetched for one request. The C library asks with 32 KiB, which holds at most
/// this many entries with names of usual length ...
const PLAIN_MAX: usize = 1024;
/// ... or this many with attributes.
const FULL_MAX: usize = 192;

/// Offsets of the two entries that the pool does not store; all cookies of the pool are far larger.
const DOTS: [(u64, &[u8]); 2] = [(1, b"."), (2, b"..")];
const _: () = assert!(COOKIE_FIRST > DOTS[1].0);

/// A piece of a listing.
pub(crate) struct ListingPage<T> {
    directory: FileId,
    /// Start of the piece: the offset of the previous entry.
    offset: u64,
    entries: Vec<T>,
}

/// Entries after `offset`.
pub(crate) async fn read_plain(vfs: Vfs, directory: FileId, offset: u64) -> Outcome<ListingPage<DirEntry>> {
    let entries = vfs.list(directory, cookie(offset), PLAIN_MAX).await?;
    Ok(ListingPage { directory, offset, entries })
}

/// Entries after `offset` with their attributes. An entry that is removed meanwhile is left out. If
/// a node does not answer, its entry and all later ones have no attributes; the kernel then looks
/// up those that a program uses.
pub(crate) async fn read_full(
    vfs: Vfs,
    directory: FileId,
    offset: u64,
) -> Outcome<ListingPage<(DirEntry, Option<Attributes>)>> {
    let listed = vfs.list(directory, cookie(offset), FULL_MAX).await?;
    let (mut entries, mut unavailable) = (Vec::with_capacity(listed.len()), false);
    for entry in listed {
        let attributes = if unavailable { Ok(None) } else { vfs.stat(entry.file).await.map(Some) };
        match attributes {
            Ok(found) => entries.push((entry, found)),
            Err(Refusal::NotFound(_)) => {}
            Err(Refusal::Unavailable { .. }) => {
                unavailable = true;
                entries.push((entry, None));
            }
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(ListingPage { directory, offset, entries })
}

fn cookie(offset: u64) -> u64 {
    if offset < COOKIE_FIRST { 0 } else { offset }
}

/// Sends as many entries of a piece as fit into the kernel's buffer.
pub(crate) fn send_plain(reply: FuseReply, page: &ListingPage<DirEntry>, buffer_size: u32) {
    let mut listing = Listing::new(buffer_size);
    // The kernel resolves `..` by itself; programs only want to see the names.
    let mut fits = page.dots().all(|dot| listing.push(dot));
    for entry in &page.entries {
        fits = fits && listing.push(named(entry));
    }
    reply.listing(&listing);
}

/// Sends as many entries of a piece as fit into the kernel's buffer, with attributes and cache
/// lifetimes; names may be cached if they are `lasting`. An entry that a forget report overlaps
/// with has no attributes, so the kernel looks it up.
pub(crate) fn send_full(
    reply: FuseReply,
    page: &ListingPage<(DirEntry, Option<Attributes>)>,
    (buffer_size, lasting): (u32, bool),
    cache_policy: &CachePolicy,
    (kernel, in_flight): (&KernelState, &InFlight),
) {
    let mut listing = Listing::new(buffer_size);
    let valid = if lasting { cache_policy.name_ttl() } else { Duration::ZERO };
    // Inode 0 marks an entry that the kernel does not cache: the dots, and entries without
    // attributes.
    let mut fits = page.dots().all(|dot| listing.push_with_entry(dot, &FuseEntry::default()));
    let mut sent = Vec::with_capacity(page.entries.len());
    for (entry, found) in &page.entries {
        fits = fits && listing.has_room_with_entry(&named(entry));
        if !fits {
            break;
        }
        let found = found.as_ref().filter(|found| kernel.count_lookup(found.file, in_flight).is_ok());
        sent.extend(found.map(|found| found.file));
        let full = found.map(|found| FuseEntry { entry_valid: valid, ..cache_policy.entry(found) });
        fits = listing.push_with_entry(named(entry), &full.unwrap_or_default());
    }
    if !reply.listing(&listing) {
        for file in sent {
            kernel.forget_lookups(file, 1);
        }
    }
}

fn named(entry: &DirEntry) -> FuseDirent<'_> {
    let mode = translate::kind_bits(entry.kind);
    FuseDirent { inode: entry.file.0, next: entry.cookie, mode, name: entry.name.as_bytes() }
}

impl<T> ListingPage<T> {
    /// The dots in this piece.
    fn dots(&self) -> impl Iterator<Item = FuseDirent<'static>> + use<T> {
        let (inode, mode) = (self.directory.0, translate::kind_bits(Kind::Directory));
        let offset = self.offset;
        DOTS.iter().filter(move |(at, _)| *at > offset).map(move |&(next, name)| FuseDirent { inode, next, mode, name })
    }
}
