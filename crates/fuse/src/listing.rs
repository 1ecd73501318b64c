//! Directories as the kernel lists them: `.` and `..` first, then the pool's entries by their cookies.

use fuser::{FileAttr, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use placement::FileId;
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    time::{Duration, SystemTime},
};
use vfs::Vfs;
use wire::{Attributes, COOKIE_FIRST, DirEntry, Outcome, Refusal};

use crate::translate;

/// Entries fetched for one request. The C library asks with 32 KiB, which holds at most this many entries of usual names ...
const PLAIN_MAX: usize = 1024;
/// ... or this many with their attributes.
const FULL_MAX: usize = 192;

/// Offsets of the two entries that the pool does not keep; every cookie of the pool is far above.
const DOTS: [(u64, &str); 2] = [(1, "."), (2, "..")];
const _: () = assert!(COOKIE_FIRST > DOTS[1].0);

/// One piece of a listing.
pub(crate) struct Piece<T> {
    directory: FileId,
    /// Where the kernel goes on: the offset of the entry before.
    offset: u64,
    entries: Vec<T>,
}

/// The entries behind `offset`.
pub(crate) async fn plain(vfs: Vfs, directory: FileId, offset: u64) -> Outcome<Piece<DirEntry>> {
    let entries = vfs.list(directory, cookie(offset), PLAIN_MAX).await?;
    Ok(Piece { directory, offset, entries })
}

/// The entries behind `offset`, with their attributes. One that vanishes meanwhile is left out.
pub(crate) async fn full(vfs: Vfs, directory: FileId, offset: u64) -> Outcome<Piece<(DirEntry, Attributes)>> {
    let listed = vfs.list(directory, cookie(offset), FULL_MAX).await?;
    let mut entries = Vec::with_capacity(listed.len());
    for entry in listed {
        match vfs.stat(entry.file).await {
            Ok(found) => entries.push((entry, found)),
            Err(Refusal::NotFound(_)) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(Piece { directory, offset, entries })
}

fn cookie(offset: u64) -> u64 {
    if offset < COOKIE_FIRST { 0 } else { offset }
}

/// Sends as much of a piece as the kernel has room for.
pub(crate) fn send_plain(mut reply: ReplyDirectory, piece: Piece<DirEntry>) {
    let inode = INodeNo(piece.directory.0);
    // The kernel knows the way up by itself; programs only want to see the names.
    let dots = DOTS.iter().filter(|(offset, _)| *offset > piece.offset);
    let mut full = dots.into_iter().any(|(offset, name)| reply.add(inode, *offset, FileType::Directory, name));
    for entry in piece.entries {
        full = full || reply.add(INodeNo(entry.file.0), entry.cookie, translate::kind(entry.kind), os(&entry));
    }
    reply.ok();
}

/// Sends as much of a piece as the kernel has room for; it keeps names and attributes for `ttl`.
pub(crate) fn send_full(mut reply: ReplyDirectoryPlus, piece: Piece<(DirEntry, Attributes)>, ttl: &Duration) {
    let own = dot_attributes(piece.directory);
    let dots = DOTS.iter().filter(|(offset, _)| *offset > piece.offset);
    let mut full =
        dots.into_iter().any(|(offset, name)| reply.add(own.ino, *offset, name, &Duration::ZERO, &own, Generation(0)));
    for (entry, found) in piece.entries {
        let found = translate::attributes(&found);
        full = full || reply.add(found.ino, entry.cookie, os(&entry), ttl, &found, Generation(0));
    }
    reply.ok();
}

/// What comes with `.` and `..`, which the kernel does not keep.
fn dot_attributes(directory: FileId) -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(directory.0),
        size: 0,
        blocks: 0,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind: FileType::Directory,
        perm: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn os(entry: &DirEntry) -> &OsStr {
    OsStr::from_bytes(entry.name.as_bytes())
}
