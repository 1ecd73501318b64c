//! View that one program has of one pool.

use crate::fd_table::{FdTable, FdTableGuard, OpenDescription, RemovedFd, inode_of};
use crate::open::FdKind;
use crate::resolve::{Destination, LastComponent, LastMode, PATH_BYTES_MAX, ResolvedDirectory, ResolvedPath, Resolver};
use crate::{Caller, Errno, PathArg, PathBase};
use base::Problem;
use client::{Client, KnownPaths, PathCache, RetryPolicy};
use placement::FileId;
use pool::ConnectError;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use transport::{Reactor, ReservedFd};
use wire::{Kind, OpenFlags};

/// Id of no file of any pool: the counters in ids start at 1.
const NO_FILE: FileId = FileId::new(FileId::ROOT.partition(), 0);

/// A program's view of a pool; a process has one.
#[derive(Debug)]
pub struct PosixProcess {
    pub(crate) client: Client,
    reactor: Reactor,
    pub(crate) prefix: Vec<u8>,
    /// Path of the pool file.
    pub(crate) pool: Vec<u8>,
    pub(crate) table: FdTable,
    pub(crate) path_cache: PathCache,
    cwd: Mutex<Option<Cwd>>,
    umask: AtomicU32,
}

/// Working directory in the pool.
#[derive(Debug)]
struct Cwd {
    directory: ResolvedDirectory,
    /// The open that keeps the directory alive, and its placeholder descriptor, which is the
    /// kernel's working directory. `None` if the directory could not be opened.
    open: Option<(Arc<OpenDescription>, ReservedFd)>,
}

/// Program for execve(2).
#[derive(Debug)]
pub enum ExecTarget {
    /// Copy of the program's bytes.
    Memory(OwnedFd),
    /// Path of the host that a symlink led to.
    Host(CString),
}

impl PosixProcess {
    /// Makes a view of a pool. `reactor` drives the client's connections, `pool` is the path of the
    /// pool file.
    pub fn new(client: Client, reactor: Reactor, pool: &[u8], prefix: &[u8]) -> Self {
        let (table, path_cache, cwd, umask) =
            (FdTable::default(), PathCache::default(), Mutex::new(None), AtomicU32::new(0o022));
        Self { client, reactor, prefix: prefix.to_vec(), pool: pool.to_vec(), table, path_cache, cwd, umask }
    }

    /// Connects to the pool of a pool file. `cwd` is the working directory that the program was
    /// started in.
    ///
    /// # Errors
    /// A message with a hint: the pool file is missing or invalid, its token may not be read, or no
    /// node answers.
    pub fn connect(pool: &[u8], prefix: &[u8], cwd: Option<&[u8]>) -> Result<Self, (Errno, Problem)> {
        let path = Path::new(OsStr::from_bytes(pool));
        let (client, reactor) =
            pool::connect_short_lived(path, RetryPolicy::default()).map_err(|error| (errno(&error), error.problem))?;
        let process = Self::new(client, reactor, pool, prefix);
        if let Some(cwd) = cwd {
            process.restore_cwd(cwd);
        }
        Ok(process)
    }

    /// Restores the working directory that the program was started in, given as
    /// [`directory`](Self::directory) returns it or as a path alone. Goes to the directory at that
    /// path, or to the directory itself by its id if it was renamed.
    fn restore_cwd(&self, cwd: &[u8]) {
        let digits = cwd.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, path) = cwd.split_at(digits);
        let file = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok()).map(FileId);
        let Some(rest) = crate::strip_prefix(&self.prefix, path.strip_prefix(b":").unwrap_or(path)) else { return };
        let entered = self.chdir(PathArg { base: PathBase::Root, path: rest });
        let is_at = |file| self.cwd().as_ref().is_some_and(|cwd| cwd.directory.file == file);
        if entered.is_ok() && file.is_none_or(is_at) {
            return;
        }
        // A directory that was removed meanwhile stays the working directory, and is not found.
        let names = wire::path_names(rest).map(<[u8]>::to_vec).collect();
        let directory = ResolvedDirectory { file: file.unwrap_or(NO_FILE), attributes: None, names };
        let open = self.wait(self.open_directory(&directory)).ok();
        if let Some((_, descriptor)) = &open {
            // If this fails, the kernel's working directory stays the parent's empty placeholder.
            let _ = rustix::process::fchdir(descriptor);
        }
        self.set_cwd(directory, open);
    }

    /// Returns the reactor that drives the connections, which must be told of forks.
    pub fn reactor(&self) -> &Reactor {
        &self.reactor
    }

    /// Sets the mode bits that new files do not get (umask(2)).
    pub fn set_umask(&self, umask: u32) {
        self.umask.store(umask & 0o777, Ordering::Relaxed);
    }

    pub(crate) fn umask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }

    /// Blocks until a request to the pool ends.
    pub(crate) fn wait<T>(&self, operation: impl Future<Output = Result<T, Errno>>) -> Result<T, Errno> {
        let since = Instant::now();
        self.reactor.block_on_unless(operation, || crate::is_cancelled(since)).unwrap_or(Err(Errno::INTR))
    }

    /// Returns the directory in which a path starts.
    pub(crate) fn start(&self, base: PathBase<'_>) -> Result<ResolvedDirectory, Errno> {
        match base {
            PathBase::Root => Ok(ResolvedDirectory::root()),
            PathBase::Cwd => self.cwd().as_ref().map(|cwd| cwd.directory.clone()).ok_or(Errno::NOENT),
            PathBase::Descriptor(descriptor) | PathBase::Magic(descriptor) => self.table.get(descriptor)?.directory(),
        }
    }

    /// Resolves a path. An empty path fails with `ENOENT`.
    pub(crate) async fn resolve(
        &self,
        caller: &Caller,
        arg: PathArg<'_>,
        last_mode: LastMode,
    ) -> Result<Destination, Errno> {
        if self.is_too_long(arg) {
            return Err(Errno::NAMETOOLONG);
        }
        match arg.base {
            PathBase::Magic(descriptor) if wire::path_names(arg.path).next().is_none() => {
                let open = self.table.get(descriptor)?;
                let directory = ResolvedDirectory { file: open.file, attributes: None, names: open.names.clone() };
                let (found, slash) = (Some(self.stat_description(&open).await?), !arg.path.is_empty());
                return Ok(Destination::Pool(ResolvedPath { directory, last: LastComponent::Dot, found, slash }));
            }
            PathBase::Descriptor(_) | PathBase::Cwd if arg.path.is_empty() => return Err(Errno::NOENT),
            _ => {}
        }
        self.resolver(caller).resolve(self.start(arg.base)?, arg.path, last_mode).await
    }

    /// Returns whether a path exceeds the system's limit. A path from the pool's root counts with
    /// the prefix.
    pub(crate) fn is_too_long(&self, arg: PathArg<'_>) -> bool {
        let more = if matches!(arg.base, PathBase::Root) { self.prefix.len() } else { 0 };
        more + arg.path.len() > PATH_BYTES_MAX
    }

    /// Returns how the last component of a path is treated that creates or removes a name: it is
    /// looked up only if the caller's permissions must be checked.
    pub(crate) fn name_mode(&self, caller: &Caller) -> LastMode {
        if self.resolver(caller).can_modify_any() { LastMode::Parent } else { LastMode::ParentAndEntry }
    }

    pub(crate) fn resolver<'a>(&'a self, caller: &'a Caller) -> Resolver<'a> {
        Resolver { client: &self.client, caller, prefix: &self.prefix, path_cache: &self.path_cache }
    }

    /// Removes a descriptor that is about to be closed from the table. Returns its open, to be
    /// passed to [`PosixProcess::release`] after the kernel has closed the descriptor.
    pub fn remove(&self, descriptor: RawFd) -> Option<RemovedFd> {
        self.table.remove(descriptor).map(RemovedFd)
    }

    /// Closes an open in the pool if no descriptor refers to it any more.
    ///
    /// # Errors
    /// Those of the connection to the pool. The close is not lost then: the node detects it by
    /// itself.
    pub fn release(&self, removed: &RemovedFd) -> Result<(), Errno> {
        let open = &removed.0;
        self.wait(async {
            if open.locked.swap(false, Ordering::Relaxed) {
                self.unlock(open).await;
            }
            if self.table.contains(open) || self.queue_close(open) {
                return Ok(());
            }
            self.client.probe_lease(open.lease).await.map(drop).map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// Queues the notice of a close to go with the next request, and returns true if nothing needs
    /// to wait for the node to act on it. The bytes and size that others see are those of the
    /// extent, so they are current anyway. A process that may hold fcntl(2) locks on the file
    /// through another descriptor waits, since the close ends those locks.
    fn queue_close(&self, open: &OpenDescription) -> bool {
        open.kind != FdKind::Remote
            && !self.table.may_lock(open.file)
            && self.client.notify_closed(open.lease, open.file)
    }

    /// Records that the kernel has duplicated a descriptor.
    pub fn record_dup(&self, from: BorrowedFd<'_>, to: RawFd) {
        if let Ok(open) = self.table.get(from) {
            self.table.add(to, open);
        }
    }

    /// Identifies a descriptor that this process has not opened itself: it inherited it or received
    /// it. `owns_lock` returns whether the descriptor's own open file description holds the lock on
    /// a byte of the file, which tells it from other opens of the file.
    ///
    /// # Errors
    /// `EBADF` if the descriptor is not of the pool, and those of the connection to the pool.
    pub fn adopt(&self, descriptor: BorrowedFd<'_>, owns_lock: impl Fn(u64) -> bool) -> Result<FdKind, Errno> {
        let inode = inode_of(descriptor).ok_or(Errno::BADF)?;
        let found = self.wait(async {
            for node in self.client.local_nodes() {
                let opens = self.client.find_leases(node, inode).await.map_err(|refusal| crate::errno(&refusal))?;
                if let Some(own) = opens.into_iter().find(|open| owns_lock(open.id.lock_offset())) {
                    return Ok(own);
                }
            }
            Err(Errno::BADF)
        })?;
        let open = OpenDescription::new(&found, Vec::new(), inode);
        // A program that ran in this process before exec may have locked the file.
        open.locked.store(true, Ordering::Relaxed);
        let kind = open.visible_kind();
        self.table.add(descriptor.as_raw_fd(), Arc::new(open));
        Ok(kind)
    }

    /// Returns whether the table entry of a descriptor is still valid.
    pub fn is_recorded(&self, descriptor: BorrowedFd<'_>) -> bool {
        self.table.get(descriptor).is_ok()
    }

    /// chdir(2) and fchdir(2). The kernel's working directory becomes an empty removed directory,
    /// so relative paths that bypass this crate find nothing.
    ///
    /// # Errors
    /// As chdir(2).
    pub fn chdir(&self, arg: PathArg<'_>) -> Result<(), Errno> {
        let caller = Caller::effective();
        let (directory, opened) = self.wait(async {
            let resolver = self.resolver(&caller);
            let resolved = match (arg.base, arg.path.is_empty()) {
                (PathBase::Descriptor(descriptor), true) => {
                    resolver.resolve(self.table.get(descriptor)?.directory()?, b".", LastMode::Follow).await?
                }
                _ => self.resolve(&caller, arg, LastMode::Follow).await?,
            };
            let resolved = match resolved {
                Destination::Pool(resolved) => resolved,
                Destination::Host(path) => {
                    rustix::process::chdir(path)?;
                    return Ok((None, None));
                }
            };
            let found = *resolved.existing()?;
            if found.kind != Kind::Directory {
                return Err(Errno::NOTDIR);
            }
            resolver.check_access(&found, crate::EXECUTE).await?;
            let directory = ResolvedDirectory { file: found.file, attributes: None, names: resolved.names() };
            let opened = self.open_directory(&directory).await?;
            Ok((Some(directory), Some(opened)))
        })?;
        let Some((directory, (open, descriptor))) = directory.zip(opened) else {
            self.leave_pool();
            return Ok(());
        };
        rustix::process::fchdir(&descriptor)?;
        self.set_cwd(directory, Some((open, descriptor)));
        Ok(())
    }

    /// Opens a directory for internal use.
    async fn open_directory(&self, directory: &ResolvedDirectory) -> Result<(Arc<OpenDescription>, ReservedFd), Errno> {
        let (open, descriptor) = self.open_by_id(directory.file, OpenFlags::READ, directory.names.clone()).await?;
        Ok((open, ReservedFd::new(descriptor)))
    }

    fn set_cwd(&self, directory: ResolvedDirectory, open: Option<(Arc<OpenDescription>, ReservedFd)>) {
        let before = self.cwd().replace(Cwd { directory, open });
        self.release_cwd(before);
    }

    /// Records that the working directory is outside the pool now.
    pub fn leave_pool(&self) {
        let before = self.cwd().take();
        self.release_cwd(before);
    }

    fn release_cwd(&self, before: Option<Cwd>) {
        if let Some((open, descriptor)) = before.and_then(|cwd| cwd.open) {
            drop(descriptor);
            // If this request is lost, the node detects the close by itself.
            let _ = self.release(&RemovedFd(open));
        }
    }

    /// Returns the working directory in the form that a started program receives: its file id, a
    /// colon, and its path with the prefix as of the chdir(2). `None` if it is not in the pool.
    pub fn directory(&self) -> Option<Vec<u8>> {
        let cwd = self.cwd();
        let directory = &cwd.as_ref()?.directory;
        Some([format!("{}:", directory.file.0).as_bytes(), &self.path_text(&directory.names)].concat())
    }

    /// getcwd(3): the path of the working directory.
    ///
    /// # Errors
    /// As getcwd(3): `ENOENT` if the directory was removed or is not in the pool.
    pub fn getcwd(&self) -> Result<Vec<u8>, Errno> {
        let directory = self.cwd().as_ref().map(|cwd| cwd.directory.clone()).ok_or(Errno::NOENT)?;
        let file = directory.file;
        let found = self.wait(async { self.client.stat(file).await.map_err(|refusal| crate::errno(&refusal)) })?;
        if found.links == 0 { Err(Errno::NOENT) } else { Ok(self.path_text(&directory.names)) }
    }

    /// Checks that a descriptor gives access to its file: one that was opened with `O_PATH` does
    /// not.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn check_not_path_only(&self, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.table.get(descriptor)?.is_path_only() { Err(Errno::BADF) } else { Ok(()) }
    }

    /// realpath(3): the path without symlinks and dots. The file must exist.
    ///
    /// # Errors
    /// As realpath(3).
    pub fn real_path(&self, arg: PathArg<'_>) -> Result<Vec<u8>, Errno> {
        let caller = Caller::effective();
        self.wait(async {
            match self.resolve(&caller, arg, LastMode::Follow).await? {
                Destination::Host(path) => {
                    let path = std::fs::canonicalize(OsStr::from_bytes(path.as_bytes()));
                    path.map(|path| path.as_os_str().as_bytes().to_vec())
                        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
                }
                Destination::Pool(resolved) => {
                    resolved.existing()?;
                    Ok(self.path_text(&resolved.names()))
                }
            }
        })
    }

    /// Returns the bytes of a program of the pool as a memory file (memfd). The kernel cannot run
    /// the file itself, because its node has it open for writing.
    ///
    /// # Errors
    /// As execve(2): the file must be regular and executable by this user.
    pub fn program(&self, arg: PathArg<'_>, name: &CStr) -> Result<ExecTarget, Errno> {
        use rustix::fs::{MemfdFlags, memfd_create};
        const PIECE_BYTES: u32 = 4 << 20;
        let caller = Caller::effective();
        self.wait(async {
            let found = match self.resolve(&caller, arg, LastMode::Follow).await? {
                Destination::Pool(resolved) => *resolved.existing()?,
                Destination::Host(path) => return Ok(ExecTarget::Host(path)),
            };
            if found.kind != Kind::File {
                return Err(Errno::ACCESS);
            }
            self.resolver(&caller).check_access(&found, crate::EXECUTE).await?;
            let memory = memfd_create(name, MemfdFlags::CLOEXEC)?;
            let mut at = 0;
            loop {
                let bytes =
                    self.client.read(found.file, at, PIECE_BYTES).await.map_err(|refusal| crate::errno(&refusal))?;
                if bytes.is_empty() {
                    return Ok(ExecTarget::Memory(memory));
                }
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let written = rustix::io::write(&memory, rest)?;
                    rest = &rest[written..];
                }
                at += bytes.len() as u64;
            }
        })
    }

    /// Returns the path that programs see for a file of the pool.
    pub(crate) fn path_text(&self, names: &[Vec<u8>]) -> Vec<u8> {
        let mut text = self.prefix.clone();
        for name in names {
            text.push(b'/');
            text.extend_from_slice(name);
        }
        text
    }

    fn cwd(&self) -> MutexGuard<'_, Option<Cwd>> {
        self.cwd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Process in which no operation is under way, so that it can fork.
#[derive(Debug)]
pub struct PausedProcess<'a> {
    process: &'a PosixProcess,
    table: FdTableGuard<'a>,
    path_cache: MutexGuard<'a, KnownPaths>,
    cwd: MutexGuard<'a, Option<Cwd>>,
}

impl PosixProcess {
    /// Waits until no thread is inside an operation, and blocks new ones until
    /// [`PausedProcess::resume`].
    pub fn pause(&self) -> PausedProcess<'_> {
        self.reactor.before_fork();
        PausedProcess { process: self, table: self.table.guard(), path_cache: self.path_cache.lock(), cwd: self.cwd() }
    }
}

impl PausedProcess<'_> {
    /// Resumes operations, in the parent or in the child, which makes new connections.
    pub fn resume(self, is_child: bool) {
        drop((self.table, self.path_cache, self.cwd));
        // A child that cannot open descriptors has no connection to the pool; its next call reports
        // that.
        let _ = self.process.reactor.after_fork(is_child);
    }
}

/// Returns the errno for a pool that cannot be reached.
fn errno(error: &ConnectError) -> Errno {
    // A missing pool must not look like a missing file of the pool.
    if error.errno == Errno::NOENT { Errno::NODEV } else { error.errno }
}

/// Returns the number of a descriptor, the key of the table.
pub(crate) fn number(descriptor: &OwnedFd) -> RawFd {
    descriptor.as_raw_fd()
}
