//! Operations as futures. Each returns its result, or the refusal with the path that it concerns.

use crate::{
    buffer::OutBuffer,
    contiguous_map::map_contiguous,
    errors::CallError,
    open_pool::PoolSession,
    results::{CallOutcome, CallResult, ViewBytes},
    upload::UploadState,
};
use bytes::{Bytes, BytesMut};
use client::{
    Objects,
    objects::{Condition, ListPage, ListRequest, ObjectMeta, Upload as ObjectUpload, Value, Version},
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
const CONCURRENT_STATS_MAX: usize = 64;
/// Bytes copied at a time.
const COPY_BYTES: u32 = 8 << 20;
/// Keys requested at a time.
const KEYS_MAX: usize = 4096;
/// Permission bits of new files and directories.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// Byte range of an object: path, start, end.
pub type ObjectRange = (Vec<u8>, u64, Option<u64>);

/// Adds the path to a refusal.
fn with_path<T>(path: &[u8], outcome: Outcome<T>) -> Result<T, CallError> {
    outcome.map_err(|refusal| CallError { path: path.to_vec(), refusal })
}

/// A path as a key: slashes at its ends are ignored.
pub fn key_of(path: &[u8]) -> &[u8] {
    let Some(start) = path.iter().position(|byte| *byte != b'/') else { return &[] };
    let last = path.iter().rposition(|byte| *byte != b'/').unwrap_or(start);
    &path[start..=last]
}

/// Splits a path into its directory and last name.
fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    let key = key_of(path);
    match key.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&key[..slash], &key[slash + 1..]),
        None => (&[], key),
    }
}

/// Joins pieces to one view: mapped contiguously if possible, else copied.
fn join_pieces(mut pieces: Vec<Bytes>, head: Option<ObjectMeta>) -> ViewBytes {
    if pieces.len() <= 1 {
        return ViewBytes { bytes: pieces.pop().unwrap_or_default(), head, copied: false };
    }
    if let Some((bytes, copied)) = map_contiguous(&pieces) {
        // The end of a file may have come as a copy; that alone does not count as copied.
        let copied = copied > bytes.len() / 8;
        return ViewBytes { bytes, head, copied };
    }
    let mut joined = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in &pieces {
        joined.extend_from_slice(piece);
    }
    ViewBytes { bytes: joined.freeze(), head, copied: true }
}

fn value_view(Value { head, pieces }: Value) -> ViewBytes {
    join_pieces(pieces, Some(head))
}

fn length_of(start: u64, stop: Option<u64>) -> u64 {
    stop.map_or(u64::MAX, |stop| stop.saturating_sub(start))
}

/// Converts the refusal of a put that requires absence: the object exists.
pub fn changed_to_exists(condition: Condition, refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::VersionMismatch { object, .. } if condition == Condition::Absent => Refusal::Exists(object),
        other => other,
    }
}

pub async fn get(session: PoolSession, (path, start, stop): ObjectRange) -> CallOutcome {
    let got = session.objects.get_range(key_of(&path), start, length_of(start, stop)).await;
    with_path(&path, got).map(|value| CallResult::View(value_view(value)))
}

/// Gets an object and the attributes that describe its array.
pub async fn get_described(session: PoolSession, path: Vec<u8>) -> CallOutcome {
    let got = with_path(&path, session.objects.get_with(key_of(&path), &DESCRIPTIONS.map(Bytes::from_static)).await);
    got.map(|(value, attributes)| CallResult::ViewWith(value_view(value), attributes))
}

pub async fn get_many(session: PoolSession, ranges: Vec<ObjectRange>) -> CallOutcome {
    let requests = ranges.iter().map(|(path, start, stop)| (key_of(path), *start, length_of(*start, *stop)));
    let got = session.objects.get_ranges(&requests.collect::<Vec<_>>()).await;
    let views = ranges.iter().zip(got).map(|((path, ..), value)| with_path(path, value).map(value_view));
    Ok(CallResult::Views(views.collect()))
}

pub async fn put(objects: Objects, path: Vec<u8>, data: Bytes, condition: Condition) -> CallOutcome {
    let put = objects.put(key_of(&path), data, condition).await;
    with_path(&path, put.map_err(|refusal| changed_to_exists(condition, refusal))).map(CallResult::Version)
}

pub async fn put_many(puts: Vec<(Objects, Vec<u8>, Bytes)>) -> CallOutcome {
    let requests =
        puts.iter().map(|(objects, path, data)| (objects.clone(), key_of(path), data.clone(), Condition::Always));
    let done = Objects::put_each(&requests.collect::<Vec<_>>()).await;
    let versions = puts.iter().zip(done).map(|((_, path, _), version): (_, Outcome<Version>)| with_path(path, version));
    Ok(CallResult::Versions(versions.collect()))
}

/// Appends bytes to an upload.
pub async fn append((state, mut upload): (Arc<UploadState>, ObjectUpload), data: Bytes) -> CallOutcome {
    let length = data.len() as u64;
    let added = upload.write(data).await;
    state.release(upload);
    added.map(|()| CallResult::Count(length)).map_err(|refusal| state.error(refusal))
}

pub async fn finish((state, upload): (Arc<UploadState>, ObjectUpload)) -> CallOutcome {
    upload.finish().await.map(CallResult::Version).map_err(|refusal| state.error(refusal))
}

pub async fn abandon((state, upload): (Arc<UploadState>, ObjectUpload)) -> CallOutcome {
    upload.abandon().await.map(|()| CallResult::Unit).map_err(|refusal| state.error(refusal))
}

pub async fn delete(session: PoolSession, path: Vec<u8>, condition: Condition) -> CallOutcome {
    with_path(&path, session.objects.delete(key_of(&path), condition).await).map(|()| CallResult::Unit)
}

pub async fn delete_many(session: PoolSession, paths: Vec<Vec<u8>>) -> CallOutcome {
    let done = session.objects.delete_many(&paths.iter().map(|path| key_of(path)).collect::<Vec<_>>()).await;
    Ok(CallResult::Units(paths.iter().zip(done).map(|(path, done)| with_path(path, done)).collect()))
}

pub async fn stat(session: PoolSession, path: Vec<u8>) -> CallOutcome {
    with_path(&path, session.vfs.find(&path).await).map(CallResult::Stat)
}

/// Creates an empty file, or sets the time of an existing one to now.
pub async fn touch(session: PoolSession, path: Vec<u8>) -> CallOutcome {
    let touched = async {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let (file, handle) = open(&session, &path, flags, true).await?;
        let now = Changes { modified: Some(TimeChange::Now), ..Changes::default() };
        let changed = session.vfs.change(file, now).await;
        session.vfs.close(handle).await.and(changed)
    };
    with_path(&path, touched.await).map(|_| CallResult::Unit)
}

pub async fn locate(session: PoolSession, path: Vec<u8>) -> CallOutcome {
    with_path(&path, session.vfs.locate_path(&path).await).map(CallResult::Location)
}

pub async fn usage(session: PoolSession) -> CallOutcome {
    Ok(CallResult::Usages(session.client.usages().await))
}

/// Lists keys with a prefix; with `by_folder`, directories are listed by name only.
pub async fn list(
    session: PoolSession,
    prefix: Vec<u8>,
    after: Vec<u8>,
    by_folder: bool,
    limit: Option<u64>,
) -> CallOutcome {
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(CallResult::Page(ListPage { next: Some(after), ..ListPage::default() }));
    }
    let (mut listed, mut after) = (ListPage::default(), after);
    loop {
        let query = ListRequest { prefix: &prefix, after: &after, by_directory: by_folder };
        let max = limit.saturating_sub(listed.len()).min(KEYS_MAX);
        let page = with_path(&prefix, session.objects.list(query, max).await)?;
        listed.keys.extend(page.keys);
        listed.directories.extend(page.directories);
        listed.next = page.next;
        match &listed.next {
            Some(next) if listed.len() < limit => after.clone_from(next),
            _ => return Ok(CallResult::Page(listed)),
        }
    }
}

/// Lists a directory with the attributes of each entry. Entries that are removed meanwhile are left
/// out.
pub async fn entries(session: PoolSession, path: Vec<u8>) -> CallOutcome {
    with_path(&path, entries_of(&session, &path).await).map(CallResult::Entries)
}

async fn entries_of(session: &PoolSession, path: &[u8]) -> Outcome<Vec<(Vec<u8>, Attributes)>> {
    let directory = session.vfs.find(path).await?;
    if directory.kind != Kind::Directory {
        return Err(Refusal::NotDirectory(Object::text(path)));
    }
    let (mut entries, mut after) = (Vec::new(), 0);
    loop {
        let page = session.vfs.list(directory.file, after, PAGE_ENTRIES).await?;
        let Some(last) = page.last() else { break };
        after = last.cookie;
        entries.extend(page);
    }
    let stats = entries.into_iter().map(|entry| async move {
        match session.vfs.stat(entry.file).await {
            Ok(attributes) => Ok(Some((entry.name.as_bytes().to_vec(), attributes))),
            Err(Refusal::NotFound(_)) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    });
    let found =
        stream::iter(stats).buffer_unordered(CONCURRENT_STATS_MAX).try_filter_map(|entry| async move { Ok(entry) });
    let mut found: Vec<_> = found.try_collect().await?;
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// Makes a directory and missing ones above it. With `exclusive` it must not exist yet.
pub async fn make_folder(session: PoolSession, path: Vec<u8>, exclusive: bool) -> CallOutcome {
    let made = async {
        if !exclusive {
            return session.vfs.make_directories(&path).await.map(drop);
        }
        let (parent, name) = split_path(&path);
        let parent = session.vfs.make_directories(parent).await?;
        session.vfs.make_directory(parent.file, name, DIRECTORY_MODE, parent.owner).await.map(drop)
    };
    with_path(&path, made.await).map(|()| CallResult::Unit)
}

/// Removes an empty directory.
pub async fn remove_folder(session: PoolSession, path: Vec<u8>) -> CallOutcome {
    let (parent, name) = split_path(&path);
    let removed = async {
        let parent = session.vfs.find(parent).await?;
        session.vfs.remove_directory(parent.file, name).await
    };
    with_path(&path, removed.await).map(|()| CallResult::Unit)
}

/// Removes a file, or a directory with all its content.
pub async fn delete_tree(session: PoolSession, path: Vec<u8>) -> CallOutcome {
    with_path(&path, session.vfs.remove_tree(&path).await).map(|()| CallResult::Unit)
}

/// Renames a file or directory, replacing a file of that name; missing directories are created.
pub async fn rename(session: PoolSession, from: Vec<u8>, to: Vec<u8>) -> CallOutcome {
    let ((parent, name), (parent_to, name_to)) = (split_path(&from), split_path(&to));
    let renamed = async {
        let from = RenameFrom { parent: session.vfs.find(parent).await?.file, name: Name::new(name)? };
        let parent = session.vfs.make_directories(parent_to).await?.file;
        let to = RenameTo { parent, name: Name::new(name_to)? };
        session.vfs.rename(from, to, RenameMode::Replace).await
    };
    with_path(&from, renamed.await).map(|()| CallResult::Unit)
}

/// Puts a copy of one file under another key, atomically.
pub async fn copy(session: PoolSession, from: Vec<u8>, to: Vec<u8>) -> CallOutcome {
    let found = with_path(&from, session.vfs.find(&from).await)?;
    if found.kind != Kind::File {
        return Err(CallError { refusal: Refusal::IsDirectory(Object::text(&from)), path: from });
    }
    let handle = with_path(&from, session.vfs.open(found.file, OpenFlags::READ).await)?;
    let described = with_path(&from, description(&session, found.file).await)?;
    let copied = copy_open(&session.objects.with_attributes(described), (&session, handle), &to).await;
    let closed = session.vfs.close(handle).await;
    let version = with_path(&to, copied)?;
    with_path(&from, closed)?;
    Ok(CallResult::Version(version))
}

/// The attributes that describe the array of a file.
async fn description(session: &PoolSession, file: FileId) -> Outcome<ObjectAttributes> {
    let names = DESCRIPTIONS.map(Bytes::from_static);
    let found = session.objects.attributes_of(file, &names).await?;
    Ok(names.into_iter().zip(found).filter_map(|(name, value)| Some((name, value?))).collect())
}

async fn copy_open(objects: &Objects, (session, handle): (&PoolSession, Handle), to: &[u8]) -> Outcome<Version> {
    let to = key_of(to);
    let mut chunk = session.vfs.read(handle, 0, COPY_BYTES).await?;
    if chunk.len() < COPY_BYTES as usize {
        return objects.put(to, chunk, Condition::Always).await;
    }
    let (mut upload, mut at) = (objects.upload(to, Condition::Always).await?, 0);
    while !chunk.is_empty() {
        at += chunk.len() as u64;
        upload.write(chunk).await?;
        chunk = session.vfs.read(handle, at, COPY_BYTES).await?;
    }
    upload.finish().await
}

/// Opens a file. With `create` it is created if missing, with the directories above it.
pub async fn open(session: &PoolSession, path: &[u8], flags: OpenFlags, create: bool) -> Outcome<(FileId, Handle)> {
    if !flags.exclusive {
        match session.vfs.find(path).await {
            Err(Refusal::NotFound(_)) if create => {}
            Ok(found) if found.kind == Kind::Directory => return Err(Refusal::IsDirectory(Object::text(path))),
            found => {
                let file = found?.file;
                return Ok((file, session.vfs.open(file, flags).await?));
            }
        }
    }
    let (parent, name) = split_path(path);
    let parent = session.vfs.make_directories(parent).await?;
    let (made, handle) = session.vfs.create(parent.file, name, FILE_MODE, parent.owner, flags).await?;
    Ok((made.file, handle))
}

/// Reads bytes of an open file as one view; fewer only at its end.
pub async fn read(session: PoolSession, handle: Handle, path: Arc<[u8]>, (offset, length): (u64, u32)) -> CallOutcome {
    with_path(&path, session.vfs.read_views(handle, offset, length).await)
        .map(|pieces| CallResult::View(join_pieces(pieces, None)))
}

/// Reads into an object's memory; returns the bytes read.
pub async fn read_into(
    session: PoolSession,
    handle: Handle,
    path: Arc<[u8]>,
    (offset, buffer): (u64, OutBuffer),
) -> CallOutcome {
    let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
    let pieces = with_path(&path, session.vfs.read_views(handle, offset, length).await)?;
    Ok(CallResult::Count(buffer.fill(&pieces) as u64))
}

/// Writes to an open file. Returns the bytes written, fewer than given only if the pool is full.
pub async fn write(session: PoolSession, handle: Handle, path: Arc<[u8]>, (offset, data): (u64, Bytes)) -> CallOutcome {
    with_path(&path, session.vfs.write(handle, offset, data).await).map(|written| CallResult::Count(written.into()))
}

/// The length of an open file in bytes; `becomes` sets it first.
pub async fn size(session: PoolSession, file: FileId, path: Arc<[u8]>, becomes: Option<u64>) -> CallOutcome {
    let attributes = match becomes {
        None => session.vfs.stat(file).await,
        size => session.vfs.change(file, Changes { size, ..Changes::default() }).await,
    };
    with_path(&path, attributes).map(|attributes| CallResult::Count(attributes.size))
}

pub async fn close(session: PoolSession, handle: Handle, path: Arc<[u8]>) -> CallOutcome {
    with_path(&path, session.vfs.close(handle).await).map(|()| CallResult::Unit)
}
