//! Operations as futures. Each returns its result, or the refusal with the path that it concerns.

use crate::{
    buffer::Room,
    done::{Done, Finished, Shown},
    errors::Failed,
    state::Way,
    stitch::stitched,
    upload::Slot,
};
use bytes::{Bytes, BytesMut};
use client::{
    Objects,
    objects::{Condition, ObjectMeta, ListPage, ListRequest, Upload as Pending, Value, Version},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use placement::FileId;
use std::sync::Arc;
use vfs::Handle;
use wire::{
    Attributes, Changes, DESCRIPTIONS, Kind, Name, Object, ObjectAttributes, OpenFlags, Outcome, Refusal, RenameFrom,
    RenameMode, RenameTo, TimeChange,
};

/// Directory entries requested at a time.
const PAGE_ENTRIES: usize = 1024;
/// Concurrent stats of directory entries.
const STATS_UNDER_WAY: usize = 64;
/// Bytes copied at a time.
const COPY_BYTES: u32 = 8 << 20;
/// Keys requested at a time.
const KEYS_MAX: usize = 4096;
/// Permission bits of new files and directories.
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// Byte range of an object: path, start, end.
pub type Range = (Vec<u8>, u64, Option<u64>);

/// Adds the path to a refusal.
fn of<T>(path: &[u8], outcome: Outcome<T>) -> Result<T, Failed> {
    outcome.map_err(|refusal| Failed { path: path.to_vec(), refusal })
}

/// A path as a key: slashes at its ends are ignored.
pub fn key_of(path: &[u8]) -> &[u8] {
    let Some(start) = path.iter().position(|byte| *byte != b'/') else { return &[] };
    let last = path.iter().rposition(|byte| *byte != b'/').unwrap_or(start);
    &path[start..=last]
}

/// Splits a path into its directory and last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let key = key_of(path);
    match key.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&key[..slash], &key[slash + 1..]),
        None => (&[], key),
    }
}

/// Joins pieces to one view: mapped contiguously if possible, else copied.
fn joined(mut pieces: Vec<Bytes>, head: Option<ObjectMeta>) -> Shown {
    if pieces.len() <= 1 {
        return Shown { bytes: pieces.pop().unwrap_or_default(), head, copied: false };
    }
    if let Some((bytes, copied)) = stitched(&pieces) {
        // The end of a file may have come as a copy; that alone does not count as copied.
        let copied = copied > bytes.len() / 8;
        return Shown { bytes, head, copied };
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in &pieces {
        whole.extend_from_slice(piece);
    }
    Shown { bytes: whole.freeze(), head, copied: true }
}

fn shown(Value { head, pieces }: Value) -> Shown {
    joined(pieces, Some(head))
}

fn length_of(start: u64, stop: Option<u64>) -> u64 {
    stop.map_or(u64::MAX, |stop| stop.saturating_sub(start))
}

/// Converts the refusal of a put that requires absence: the object exists.
pub fn refused(condition: Condition, refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::VersionMismatch { object, .. } if condition == Condition::Absent => Refusal::Exists(object),
        other => other,
    }
}

pub async fn get(way: Way, (path, start, stop): Range) -> Finished {
    let got = way.objects.get_range(key_of(&path), start, length_of(start, stop)).await;
    of(&path, got).map(|value| Done::View(shown(value)))
}

/// Gets an object and the attributes that describe its array.
pub async fn get_described(way: Way, path: Vec<u8>) -> Finished {
    let got = of(&path, way.objects.get_with(key_of(&path), &DESCRIPTIONS.map(Bytes::from_static)).await);
    got.map(|(value, attributes)| Done::ViewWith(shown(value), attributes))
}

pub async fn get_many(way: Way, ranges: Vec<Range>) -> Finished {
    let asked = ranges.iter().map(|(path, start, stop)| (key_of(path), *start, length_of(*start, *stop)));
    let got = way.objects.get_ranges(&asked.collect::<Vec<_>>()).await;
    let views = ranges.iter().zip(got).map(|((path, ..), value)| of(path, value).map(shown));
    Ok(Done::Views(views.collect()))
}

pub async fn put(objects: Objects, path: Vec<u8>, data: Bytes, condition: Condition) -> Finished {
    let put = objects.put(key_of(&path), data, condition).await;
    of(&path, put.map_err(|refusal| refused(condition, refusal))).map(Done::Version)
}

pub async fn put_many(puts: Vec<(Objects, Vec<u8>, Bytes)>) -> Finished {
    let asked =
        puts.iter().map(|(objects, path, data)| (objects.clone(), key_of(path), data.clone(), Condition::Always));
    let done = Objects::put_each(&asked.collect::<Vec<_>>()).await;
    let versions = puts.iter().zip(done).map(|((_, path, _), version): (_, Outcome<Version>)| of(path, version));
    Ok(Done::Versions(versions.collect()))
}

/// Appends bytes to an upload.
pub async fn add((slot, mut pending): (Arc<Slot>, Pending), data: Bytes) -> Finished {
    let length = data.len() as u64;
    let added = pending.write(data).await;
    slot.give_back(pending);
    added.map(|()| Done::Count(length)).map_err(|refusal| slot.failed(refusal))
}

pub async fn finish((slot, pending): (Arc<Slot>, Pending)) -> Finished {
    pending.finish().await.map(Done::Version).map_err(|refusal| slot.failed(refusal))
}

pub async fn abandon((slot, pending): (Arc<Slot>, Pending)) -> Finished {
    pending.abandon().await.map(|()| Done::Nothing).map_err(|refusal| slot.failed(refusal))
}

pub async fn delete(way: Way, path: Vec<u8>, condition: Condition) -> Finished {
    of(&path, way.objects.delete(key_of(&path), condition).await).map(|()| Done::Nothing)
}

pub async fn delete_many(way: Way, paths: Vec<Vec<u8>>) -> Finished {
    let done = way.objects.delete_many(&paths.iter().map(|path| key_of(path)).collect::<Vec<_>>()).await;
    Ok(Done::Nothings(paths.iter().zip(done).map(|(path, done)| of(path, done)).collect()))
}

pub async fn stat(way: Way, path: Vec<u8>) -> Finished {
    of(&path, way.vfs.find(&path).await).map(Done::Stat)
}

/// Creates an empty file, or sets the time of an existing one to now.
pub async fn touch(way: Way, path: Vec<u8>) -> Finished {
    let touched = async {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let (file, handle) = open(&way, &path, flags, true).await?;
        let now = Changes { modified: Some(TimeChange::Now), ..Changes::default() };
        let changed = way.vfs.change(file, now).await;
        way.vfs.close(handle).await.and(changed)
    };
    of(&path, touched.await).map(|_| Done::Nothing)
}

pub async fn locate(way: Way, path: Vec<u8>) -> Finished {
    of(&path, way.vfs.locate_path(&path).await).map(Done::Located)
}

pub async fn usage(way: Way) -> Finished {
    Ok(Done::Usages(way.client.usages().await))
}

/// Lists keys with a prefix; with `by_folder`, directories are listed by name only.
pub async fn list(way: Way, prefix: Vec<u8>, after: Vec<u8>, by_folder: bool, limit: Option<u64>) -> Finished {
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Done::Page(ListPage { next: Some(after), ..ListPage::default() }));
    }
    let (mut listed, mut after) = (ListPage::default(), after);
    loop {
        let asked = ListRequest { prefix: &prefix, after: &after, by_directory: by_folder };
        let max = limit.saturating_sub(listed.len()).min(KEYS_MAX);
        let page = of(&prefix, way.objects.list(asked, max).await)?;
        listed.keys.extend(page.keys);
        listed.directories.extend(page.directories);
        listed.next = page.next;
        match &listed.next {
            Some(next) if listed.len() < limit => after.clone_from(next),
            _ => return Ok(Done::Page(listed)),
        }
    }
}

/// Lists a directory with the attributes of each entry. Entries that are removed meanwhile are left
/// out.
pub async fn entries(way: Way, path: Vec<u8>) -> Finished {
    of(&path, entries_of(&way, &path).await).map(Done::Entries)
}

async fn entries_of(way: &Way, path: &[u8]) -> Outcome<Vec<(Vec<u8>, Attributes)>> {
    let folder = way.vfs.find(path).await?;
    if folder.kind != Kind::Directory {
        return Err(Refusal::NotDirectory(Object::text(path)));
    }
    let (mut entries, mut after) = (Vec::new(), 0);
    loop {
        let page = way.vfs.list(folder.file, after, PAGE_ENTRIES).await?;
        let Some(last) = page.last() else { break };
        after = last.cookie;
        entries.extend(page);
    }
    let stats = entries.into_iter().map(|entry| async move {
        match way.vfs.stat(entry.file).await {
            Ok(attributes) => Ok(Some((entry.name.as_bytes().to_vec(), attributes))),
            Err(Refusal::NotFound(_)) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    });
    let found = stream::iter(stats).buffer_unordered(STATS_UNDER_WAY).try_filter_map(|entry| async move { Ok(entry) });
    let mut found: Vec<_> = found.try_collect().await?;
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// Makes a directory and missing ones above it. With `exclusive` it must not exist yet.
pub async fn make_folder(way: Way, path: Vec<u8>, exclusive: bool) -> Finished {
    let made = async {
        if !exclusive {
            return way.vfs.make_directories(&path).await.map(drop);
        }
        let (above, name) = split(&path);
        let above = way.vfs.make_directories(above).await?;
        way.vfs.make_directory(above.file, name, FOLDER_MODE, above.owner).await.map(drop)
    };
    of(&path, made.await).map(|()| Done::Nothing)
}

/// Removes an empty directory.
pub async fn remove_folder(way: Way, path: Vec<u8>) -> Finished {
    let (above, name) = split(&path);
    let removed = async {
        let above = way.vfs.find(above).await?;
        way.vfs.remove_directory(above.file, name).await
    };
    of(&path, removed.await).map(|()| Done::Nothing)
}

/// Removes a file, or a directory with all its content.
pub async fn delete_tree(way: Way, path: Vec<u8>) -> Finished {
    of(&path, way.vfs.remove_tree(&path).await).map(|()| Done::Nothing)
}

/// Renames a file or directory, replacing a file of that name; missing directories are created.
pub async fn rename(way: Way, from: Vec<u8>, to: Vec<u8>) -> Finished {
    let ((above, name), (above_to, name_to)) = (split(&from), split(&to));
    let renamed = async {
        let from = RenameFrom { parent: way.vfs.find(above).await?.file, name: Name::new(name)? };
        let parent = way.vfs.make_directories(above_to).await?.file;
        let to = RenameTo { parent, name: Name::new(name_to)? };
        way.vfs.rename(from, to, RenameMode::Replace).await
    };
    of(&from, renamed.await).map(|()| Done::Nothing)
}

/// Puts a copy of one file under another key, atomically.
pub async fn copy(way: Way, from: Vec<u8>, to: Vec<u8>) -> Finished {
    let found = of(&from, way.vfs.find(&from).await)?;
    if found.kind != Kind::File {
        return Err(Failed { refusal: Refusal::IsDirectory(Object::text(&from)), path: from });
    }
    let handle = of(&from, way.vfs.open(found.file, OpenFlags::READ).await)?;
    let described = of(&from, description(&way, found.file).await)?;
    let copied = copy_open(&way.objects.with_attributes(described), (&way, handle), &to).await;
    let closed = way.vfs.close(handle).await;
    let version = of(&to, copied)?;
    of(&from, closed)?;
    Ok(Done::Version(version))
}

/// The attributes that describe the array of a file.
async fn description(way: &Way, file: FileId) -> Outcome<ObjectAttributes> {
    let names = DESCRIPTIONS.map(Bytes::from_static);
    let found = way.objects.attributes_of(file, &names).await?;
    Ok(names.into_iter().zip(found).filter_map(|(name, value)| Some((name, value?))).collect())
}

async fn copy_open(objects: &Objects, (way, handle): (&Way, Handle), to: &[u8]) -> Outcome<Version> {
    let to = key_of(to);
    let mut chunk = way.vfs.read(handle, 0, COPY_BYTES).await?;
    if chunk.len() < COPY_BYTES as usize {
        return objects.put(to, chunk, Condition::Always).await;
    }
    let (mut upload, mut at) = (objects.upload(to, Condition::Always).await?, 0);
    while !chunk.is_empty() {
        at += chunk.len() as u64;
        upload.write(chunk).await?;
        chunk = way.vfs.read(handle, at, COPY_BYTES).await?;
    }
    upload.finish().await
}

/// Opens a file. With `create` it is created if missing, with the directories above it.
pub async fn open(way: &Way, path: &[u8], flags: OpenFlags, create: bool) -> Outcome<(FileId, Handle)> {
    if !flags.exclusive {
        match way.vfs.find(path).await {
            Err(Refusal::NotFound(_)) if create => {}
            Ok(found) if found.kind == Kind::Directory => return Err(Refusal::IsDirectory(Object::text(path))),
            found => {
                let file = found?.file;
                return Ok((file, way.vfs.open(file, flags).await?));
            }
        }
    }
    let (above, name) = split(path);
    let above = way.vfs.make_directories(above).await?;
    let (made, handle) = way.vfs.create(above.file, name, FILE_MODE, above.owner, flags).await?;
    Ok((made.file, handle))
}

/// Reads bytes of an open file as one view; fewer only at its end.
pub async fn read(way: Way, handle: Handle, path: Arc<[u8]>, (offset, length): (u64, u32)) -> Finished {
    of(&path, way.vfs.read_views(handle, offset, length).await).map(|pieces| Done::View(joined(pieces, None)))
}

/// Reads into an object's memory; returns the bytes read.
pub async fn read_into(way: Way, handle: Handle, path: Arc<[u8]>, (offset, room): (u64, Room)) -> Finished {
    let length = u32::try_from(room.len()).unwrap_or(u32::MAX);
    let pieces = of(&path, way.vfs.read_views(handle, offset, length).await)?;
    Ok(Done::Count(room.fill(&pieces) as u64))
}

/// Writes to an open file. Returns the bytes written, fewer than given only if the pool is full.
pub async fn write(way: Way, handle: Handle, path: Arc<[u8]>, (offset, data): (u64, Bytes)) -> Finished {
    of(&path, way.vfs.write(handle, offset, data).await).map(|written| Done::Count(written.into()))
}

/// The length of an open file in bytes; `becomes` sets it first.
pub async fn size(way: Way, file: FileId, path: Arc<[u8]>, becomes: Option<u64>) -> Finished {
    let attributes = match becomes {
        None => way.vfs.stat(file).await,
        size => way.vfs.change(file, Changes { size, ..Changes::default() }).await,
    };
    of(&path, attributes).map(|attributes| Done::Count(attributes.size))
}

pub async fn close(way: Way, handle: Handle, path: Arc<[u8]>) -> Finished {
    of(&path, way.vfs.close(handle).await).map(|()| Done::Nothing)
}
