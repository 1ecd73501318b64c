//! Copies bytes between the pool and the host's disks, in pieces, off the scheduler's thread.

use super::{WorkspaceBase, WorkspaceError};
use crate::export::ChunkSource;
use bytes::Bytes;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::runtime::Handle;
use vfs::{Handle as FileHandle, Vfs};
use wire::{OpenFlags, Refusal};

/// Bytes moved at a time: a stripe.
const CHUNK_BYTES: u32 = 1 << 20;

/// An open file of the pool, read in order.
#[derive(Debug)]
pub struct PoolReader {
    pool: Vfs,
    handle: FileHandle,
    runtime: Handle,
    /// Its permission bits.
    pub mode: u32,
}

impl PoolReader {
    /// Opens the file at `path` below the pool's root.
    pub async fn open(pool: &Vfs, path: &Path) -> Result<Self, WorkspaceError> {
        let attributes = pool.resolve(bytes_of(path)).await.map_err(WorkspaceError::pool(path))?;
        let handle = pool.open(attributes.file, OpenFlags::READ).await.map_err(WorkspaceError::pool(path))?;
        Ok(Self { pool: pool.clone(), handle, runtime: Handle::current(), mode: attributes.mode })
    }
}

impl ChunkSource for PoolReader {
    /// Waits on the calling thread: for blocking threads only.
    fn chunk(&mut self, offset: u64, len: u32) -> io::Result<Bytes> {
        self.runtime.block_on(self.pool.read(self.handle, offset, len)).map_err(io::Error::other)
    }
}

impl Drop for PoolReader {
    fn drop(&mut self) {
        let (pool, handle) = (self.pool.clone(), self.handle);
        self.runtime.spawn(async move {
            let _ = pool.close(handle).await;
        });
    }
}

/// Runs `work` on a thread that may block.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Copies a host file to `place` in the pool, with its permission bits; returns the bytes copied.
pub async fn into_pool(base: &WorkspaceBase, host: PathBuf, place: &Path) -> Result<u64, WorkspaceError> {
    let (base, place, runtime) = (base.clone(), place.to_path_buf(), Handle::current());
    blocking(move || {
        let mode = fs::metadata(&host).map_err(WorkspaceError::host(&host))?.permissions().mode() & 0o777;
        let mut file = open_output(&host, mode).map_err(WorkspaceError::host(&host))?;
        let handle = runtime.block_on(base.create(&place, mode))?;
        let copied = copy_in(&base, &runtime, &mut file, &host, (handle, &place));
        runtime.block_on(base.pool.close(handle)).map_err(WorkspaceError::pool(&place))?;
        copied
    })
    .await
}

/// Copies a directory of the host with its files and directories into the pool. Links, sockets and
/// other special files are left out.
pub async fn directory_into_pool(base: &WorkspaceBase, top: &Path, place: &Path) -> Result<(), WorkspaceError> {
    let mut directories = vec![(top.to_path_buf(), place.to_path_buf())];
    while let Some((directory, place)) = directories.pop() {
        base.make_dir(&place).await?;
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let (path, place) = (entry.path(), place.join(entry.file_name()));
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push((path, place)),
                Ok(kind) if kind.is_file() => drop(into_pool(base, path, &place).await?),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Opens a file for reading, even if its tool made it unreadable and it belongs to this user.
fn open_output(host: &Path, mode: u32) -> io::Result<File> {
    match File::open(host) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(host, fs::Permissions::from_mode(mode | 0o400))?;
            File::open(host)
        }
        outcome => outcome,
    }
}

fn copy_in(
    base: &WorkspaceBase,
    runtime: &Handle,
    file: &mut File,
    host: &Path,
    (handle, place): (FileHandle, &Path),
) -> Result<u64, WorkspaceError> {
    let mut offset = 0;
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES as usize);
        let got = file.take(u64::from(CHUNK_BYTES)).read_to_end(&mut chunk).map_err(WorkspaceError::host(host))?;
        if got == 0 {
            return Ok(offset);
        }
        let mut rest = Bytes::from(chunk);
        while !rest.is_empty() {
            let put =
                runtime.block_on(base.write_some(handle, offset, rest.clone())).map_err(WorkspaceError::pool(place))?;
            offset += u64::from(put);
            rest = rest.slice(put as usize..);
        }
    }
}

/// Copies the file at `place` in the pool to the host, with its permission bits.
pub async fn out_of_pool(base: &WorkspaceBase, place: &Path, host: PathBuf) -> Result<(), WorkspaceError> {
    let mut source = PoolReader::open(&base.pool, place).await?;
    blocking(move || {
        let directory = host.parent().map(Path::to_path_buf).unwrap_or_default();
        fs::create_dir_all(&directory).map_err(WorkspaceError::host(directory))?;
        let copied = copy_out(&mut source, &host);
        if copied.is_err() {
            let _ = fs::remove_file(&host);
        }
        copied.map_err(WorkspaceError::host(host))
    })
    .await
}

/// Copies the file at `source` to `target`, both in the pool, without permission to write; returns
/// the bytes copied. What was made is left there if that fails.
pub async fn within_pool(base: &WorkspaceBase, source: &Path, target: &Path) -> Result<u64, WorkspaceError> {
    let from = PoolReader::open(&base.pool, source).await?;
    let to = base.create(target, from.mode & 0o555).await?;
    let mut copied = 0;
    let result = loop {
        match base.pool.copy_range((from.handle, copied), (to, copied), u64::MAX).await {
            Ok(0) => break Ok(copied),
            Ok(more) => copied += more,
            Err(refusal) => break Err(refusal),
        }
    };
    let closed = base.pool.close(to).await;
    result.and_then(|copied| closed.map(|()| copied)).map_err(WorkspaceError::pool(target))
}

fn copy_out(source: &mut PoolReader, host: &Path) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(source.mode).open(host)?;
    let mut offset = 0;
    loop {
        let chunk = source.chunk(offset, CHUNK_BYTES)?;
        if chunk.is_empty() {
            return Ok(());
        }
        file.write_all(&chunk)?;
        offset += chunk.len() as u64;
    }
}

/// A path as the bytes that the pool's calls take.
pub fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Operations on the pool by path that both modes need.
impl WorkspaceBase {
    pub(crate) async fn make_dir(&self, place: &Path) -> Result<placement::FileId, WorkspaceError> {
        let made = self.pool.make_directories(bytes_of(place)).await.map_err(WorkspaceError::pool(place))?;
        Ok(made.file)
    }

    pub(crate) async fn write(&self, place: &Path, bytes: &[u8]) -> Result<(), WorkspaceError> {
        self.pool.write_file(bytes_of(place), bytes).await.map(drop).map_err(WorkspaceError::pool(place))
    }

    /// Writes, unless the run is cancelled while the pool is full.
    async fn write_some(&self, handle: FileHandle, offset: u64, bytes: Bytes) -> Result<u32, Refusal> {
        tokio::select! {
            biased;
            written = self.pool.write(handle, offset, bytes) => written,
            () = self.cancel.cancelled() => Err(Refusal::Interrupted(wire::Object::Pool)),
        }
    }

    /// Attributes of the file at `place`; `None` if nothing exists there.
    pub(crate) async fn find(&self, place: &Path) -> Result<Option<wire::Attributes>, WorkspaceError> {
        match self.pool.resolve(bytes_of(place)).await {
            Ok(attributes) => Ok(Some(attributes)),
            Err(Refusal::NotFound(_) | Refusal::NotDirectory(_)) => Ok(None),
            Err(refusal) => Err(WorkspaceError::pool(place)(refusal)),
        }
    }

    pub(crate) async fn names_in(&self, place: &Path) -> Result<Vec<OsString>, WorkspaceError> {
        const PAGE: usize = 1024;
        let dir = self.pool.resolve(bytes_of(place)).await.map_err(WorkspaceError::pool(place))?.file;
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let page = self.pool.list(dir, after, PAGE).await.map_err(WorkspaceError::pool(place))?;
            let Some(last) = page.last() else { return Ok(names) };
            after = last.cookie;
            names.extend(page.iter().map(|entry| OsString::from_vec(entry.name.as_bytes().to_vec())));
        }
    }

    pub(crate) async fn remove(&self, place: &Path) -> Result<(), WorkspaceError> {
        self.pool.remove_tree(bytes_of(place)).await.map_err(WorkspaceError::pool(place))
    }

    /// The directory of `place`, created if it does not exist, and the last name.
    pub(crate) async fn parent(&self, place: &Path) -> Result<(placement::FileId, Vec<u8>), WorkspaceError> {
        let directory = place.parent().unwrap_or(Path::new(""));
        let parent = self.pool.make_directories(bytes_of(directory)).await.map_err(WorkspaceError::pool(directory))?;
        Ok((parent.file, place.file_name().unwrap_or_default().as_bytes().to_vec()))
    }

    pub(crate) async fn link(&self, place: &Path, target: &Path) -> Result<(), WorkspaceError> {
        let (parent, name) = self.parent(place).await?;
        let target = target.as_os_str().as_bytes();
        self.pool.make_symlink(parent, &name, target, self.owner).await.map(drop).map_err(WorkspaceError::pool(place))
    }

    pub(crate) async fn bind(&self, host: &Path, place: &Path) -> Result<(), WorkspaceError> {
        let (parent, name) = self.parent(place).await?;
        self.pool.bind(parent, &name, host).await.map(drop).map_err(WorkspaceError::pool(place))
    }

    async fn create(&self, place: &Path, mode: u32) -> Result<FileHandle, WorkspaceError> {
        let (parent, name) = self.parent(place).await?;
        let flags = OpenFlags { truncate: true, ..OpenFlags::WRITE };
        let made =
            self.pool.create(parent, &name, mode, self.owner, flags).await.map_err(WorkspaceError::pool(place))?;
        Ok(made.1)
    }
}
