//! View that one program has of one pool.

use crate::open::Kind;
use crate::table::{Held, Open, Table, TableGuard, inode_of};
use crate::walk::{End, Folder, Last, PATH_BYTES_MAX, Place, Spot, Walker};
use crate::ways::{Ways, WaysGuard};
use crate::{Base, Errno, Said, Who};
use base::Problem;
use client::{Client, Patience};
use link::{Hand, Own};
use placement::FileId;
use pool::NoWay;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use wire::{Kind as Node, OpenFlags};

/// A program's view of a pool; a process has one.
#[derive(Debug)]
pub struct Process {
    pub(crate) client: Client,
    hand: Hand,
    pub(crate) prefix: Vec<u8>,
    /// Path of the pool file.
    pub(crate) pool: Vec<u8>,
    pub(crate) table: Table,
    pub(crate) ways: Ways,
    here: Mutex<Option<Here>>,
    umask: AtomicU32,
}

/// Working directory in the pool.
#[derive(Debug)]
struct Here {
    folder: Folder,
    /// The open that keeps the directory alive, and its placeholder descriptor, which is the
    /// kernel's working directory. `None` if the directory could not be opened.
    open: Option<(Arc<Open>, Own)>,
}

/// Program for execve(2).
#[derive(Debug)]
pub enum Program {
    /// Copy of the program's bytes.
    Memory(OwnedFd),
    /// Path of the host that a symlink led to.
    Host(CString),
}

impl Process {
    /// Makes a view of a pool. `hand` drives the client's connections, `pool` is the path of the
    /// pool file.
    pub fn new(client: Client, hand: Hand, pool: &[u8], prefix: &[u8]) -> Self {
        let (table, ways, here, umask) = (Table::default(), Ways::default(), Mutex::new(None), AtomicU32::new(0o022));
        Self { client, hand, prefix: prefix.to_vec(), pool: pool.to_vec(), table, ways, here, umask }
    }

    /// Connects to the pool of a pool file. `here` is the working directory that the program was
    /// started in.
    ///
    /// # Errors
    /// A message with a hint: the pool file is missing or invalid, its token may not be read, or no
    /// node answers.
    pub fn connect(pool: &[u8], prefix: &[u8], here: Option<&[u8]>) -> Result<Self, (Errno, Problem)> {
        let path = Path::new(OsStr::from_bytes(pool));
        let (client, hand) =
            pool::connect_by_hand(path, Patience::default()).map_err(|no_way| (errno(&no_way), no_way.problem))?;
        let process = Self::new(client, hand, pool, prefix);
        if let Some(here) = here {
            process.begin_in(here);
        }
        Ok(process)
    }

    /// Restores the working directory that the program was started in, given as
    /// [`directory`](Self::directory) returns it or as a path alone. Goes to the directory at that
    /// path, or to the directory itself by its id if it was renamed.
    fn begin_in(&self, here: &[u8]) {
        let digits = here.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, path) = here.split_at(digits);
        let file = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok()).map(FileId);
        let Some(rest) = crate::below(&self.prefix, path.strip_prefix(b":").unwrap_or(path)) else { return };
        let gone_to = self.chdir(Said { base: Base::Root, path: rest });
        let is_at = |file| self.here().as_ref().is_some_and(|here| here.folder.file == file);
        if gone_to.is_ok() && file.is_none_or(is_at) {
            return;
        }
        // A directory that was removed meanwhile stays the working directory, and is not found.
        let names = crate::prefix::names(rest).map(<[u8]>::to_vec).collect();
        let folder = Folder { file: file.unwrap_or(FileId(u64::MAX)), attributes: None, names };
        let open = self.wait(self.open_folder(&folder)).ok();
        if let Some((_, descriptor)) = &open {
            // If this fails, the kernel's working directory stays the parent's empty placeholder.
            let _ = rustix::process::fchdir(descriptor);
        }
        self.set_here(folder, open);
    }

    /// Returns the reactor that drives the connections, which must be told of forks.
    pub fn hand(&self) -> &Hand {
        &self.hand
    }

    /// Sets the mode bits that new files do not get (umask(2)).
    pub fn set_umask(&self, umask: u32) {
        self.umask.store(umask & 0o777, Ordering::Relaxed);
    }

    pub(crate) fn umask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }

    /// Blocks until a request to the pool ends.
    pub(crate) fn wait<T>(&self, verb: impl Future<Output = Result<T, Errno>>) -> Result<T, Errno> {
        let since = Instant::now();
        self.hand.block_on_unless(verb, || crate::is_ended(since)).unwrap_or(Err(Errno::INTR))
    }

    /// Returns the directory in which a path starts.
    pub(crate) fn start(&self, base: Base<'_>) -> Result<Folder, Errno> {
        match base {
            Base::Root => Ok(Folder::root()),
            Base::Here => self.here().as_ref().map(|here| here.folder.clone()).ok_or(Errno::NOENT),
            Base::Descriptor(descriptor) | Base::Magic(descriptor) => self.table.get(descriptor)?.folder(),
        }
    }

    /// Resolves a path. An empty path fails with `ENOENT`.
    pub(crate) async fn walk(&self, who: &Who, said: Said<'_>, end: End) -> Result<Place, Errno> {
        if self.is_too_long(said) {
            return Err(Errno::NAMETOOLONG);
        }
        match said.base {
            Base::Magic(descriptor) if crate::prefix::names(said.path).next().is_none() => {
                let open = self.table.get(descriptor)?;
                let folder = Folder { file: open.file, attributes: None, names: open.names.clone() };
                let (found, slash) = (Some(self.stat_of(&open).await?), !said.path.is_empty());
                return Ok(Place::Pool(Spot { folder, last: Last::Dot, found, slash }));
            }
            Base::Descriptor(_) | Base::Here if said.path.is_empty() => return Err(Errno::NOENT),
            _ => {}
        }
        self.walker(who).walk(self.start(said.base)?, said.path, end).await
    }

    /// Returns whether a path exceeds the system's limit. A path from the pool's root counts with
    /// the prefix.
    pub(crate) fn is_too_long(&self, said: Said<'_>) -> bool {
        let more = if matches!(said.base, Base::Root) { self.prefix.len() } else { 0 };
        more + said.path.len() > PATH_BYTES_MAX
    }

    /// Returns how the last component of a path is treated that creates or removes a name: it is
    /// looked up only if the caller's permissions must be checked.
    pub(crate) fn to_name(&self, who: &Who) -> End {
        if self.walker(who).changes_any() { End::Name } else { End::NameThere }
    }

    pub(crate) fn walker<'a>(&'a self, who: &'a Who) -> Walker<'a> {
        Walker { client: &self.client, who, prefix: &self.prefix, ways: &self.ways }
    }

    /// Removes a descriptor that is about to be closed from the table. Returns its open, to be
    /// passed to [`Process::let_go`] after the kernel has closed the descriptor.
    pub fn take(&self, descriptor: RawFd) -> Option<Held> {
        self.table.take(descriptor).map(Held)
    }

    /// Closes an open in the pool if no descriptor refers to it any more.
    ///
    /// # Errors
    /// Those of the connection to the pool. The close is not lost then: the node detects it by
    /// itself.
    pub fn let_go(&self, held: &Held) -> Result<(), Errno> {
        let open = &held.0;
        self.wait(async {
            if open.locked.swap(false, Ordering::Relaxed) {
                self.unlock(open).await;
            }
            if self.table.has(open) || self.is_said_later(open) {
                return Ok(());
            }
            self.client.look(open.mark).await.map(drop).map_err(|refusal| crate::errno(&refusal))
        })
    }

    /// Queues the notice of a close to go with the next request, and returns true if nothing needs
    /// to wait for the node to act on it. The bytes and size that others see are those of the
    /// extent, so they are current anyway. A process that may hold fcntl(2) locks on the file
    /// through another descriptor waits, since the close ends those locks.
    fn is_said_later(&self, open: &Open) -> bool {
        open.kind != Kind::Remote && !self.table.may_lock(open.file) && self.client.closed(open.mark, open.file)
    }

    /// Records that the kernel has duplicated a descriptor.
    pub fn copied(&self, from: BorrowedFd<'_>, to: RawFd) {
        if let Ok(open) = self.table.get(from) {
            self.table.add(to, open);
        }
    }

    /// Identifies a descriptor that this process has not opened itself: it inherited it or received
    /// it. `is_own` returns whether the descriptor's own open file description holds the lock on a
    /// byte of the file, which tells it from other opens of the file.
    ///
    /// # Errors
    /// `EBADF` if the descriptor is not of the pool, and those of the connection to the pool.
    pub fn adopt(&self, descriptor: BorrowedFd<'_>, is_own: impl Fn(u64) -> bool) -> Result<Kind, Errno> {
        let inode = inode_of(descriptor).ok_or(Errno::BADF)?;
        let found = self.wait(async {
            for node in self.client.near_nodes() {
                let opens = self.client.which(node, inode).await.map_err(|refusal| crate::errno(&refusal))?;
                if let Some(own) = opens.into_iter().find(|open| is_own(open.mark.byte())) {
                    return Ok(own);
                }
            }
            Err(Errno::BADF)
        })?;
        let open = Open::new(&found, Vec::new(), inode);
        // A program that ran in this process before exec may have locked the file.
        open.locked.store(true, Ordering::Relaxed);
        let kind = open.shown();
        self.table.add(descriptor.as_raw_fd(), Arc::new(open));
        Ok(kind)
    }

    /// Returns whether the table entry of a descriptor is still valid.
    pub fn knows(&self, descriptor: BorrowedFd<'_>) -> bool {
        self.table.get(descriptor).is_ok()
    }

    /// chdir(2) and fchdir(2). The kernel's working directory becomes an empty removed directory,
    /// so relative paths that bypass this crate find nothing.
    ///
    /// # Errors
    /// As chdir(2).
    pub fn chdir(&self, said: Said<'_>) -> Result<(), Errno> {
        let who = Who::now();
        let (folder, opened) = self.wait(async {
            let walker = self.walker(&who);
            let spot = match (said.base, said.path.is_empty()) {
                (Base::Descriptor(descriptor), true) => {
                    walker.walk(self.table.get(descriptor)?.folder()?, b".", End::Follow).await?
                }
                _ => self.walk(&who, said, End::Follow).await?,
            };
            let spot = match spot {
                Place::Pool(spot) => spot,
                Place::Host(path) => {
                    rustix::process::chdir(path)?;
                    return Ok((None, None));
                }
            };
            let found = *spot.there()?;
            if found.kind != Node::Directory {
                return Err(Errno::NOTDIR);
            }
            walker.may(&found, crate::RUN).await?;
            let folder = Folder { file: found.file, attributes: None, names: spot.names() };
            let opened = self.open_folder(&folder).await?;
            Ok((Some(folder), Some(opened)))
        })?;
        let Some((folder, (open, descriptor))) = folder.zip(opened) else {
            self.left();
            return Ok(());
        };
        rustix::process::fchdir(&descriptor)?;
        self.set_here(folder, Some((open, descriptor)));
        Ok(())
    }

    /// Opens a directory for internal use.
    async fn open_folder(&self, folder: &Folder) -> Result<(Arc<Open>, Own), Errno> {
        let (open, descriptor) = self.obtained(folder.file, OpenFlags::READ, folder.names.clone()).await?;
        Ok((open, Own::new(descriptor)))
    }

    fn set_here(&self, folder: Folder, open: Option<(Arc<Open>, Own)>) {
        let before = self.here().replace(Here { folder, open });
        self.forget(before);
    }

    /// Records that the working directory is outside the pool now.
    pub fn left(&self) {
        let before = self.here().take();
        self.forget(before);
    }

    fn forget(&self, before: Option<Here>) {
        if let Some((open, descriptor)) = before.and_then(|here| here.open) {
            drop(descriptor);
            // If this request is lost, the node detects the close by itself.
            let _ = self.let_go(&Held(open));
        }
    }

    /// Returns the working directory in the form that a started program receives: its file id, a
    /// colon, and its path with the prefix as of the chdir(2). `None` if it is not in the pool.
    pub fn directory(&self) -> Option<Vec<u8>> {
        let here = self.here();
        let folder = &here.as_ref()?.folder;
        Some([format!("{}:", folder.file.0).as_bytes(), &self.text(&folder.names)].concat())
    }

    /// getcwd(3): the path of the working directory.
    ///
    /// # Errors
    /// As getcwd(3): `ENOENT` if the directory was removed or is not in the pool.
    pub fn getcwd(&self) -> Result<Vec<u8>, Errno> {
        let folder = self.here().as_ref().map(|here| here.folder.clone()).ok_or(Errno::NOENT)?;
        let file = folder.file;
        let found = self.wait(async { self.client.stat(file).await.map_err(|refusal| crate::errno(&refusal)) })?;
        if found.links == 0 { Err(Errno::NOENT) } else { Ok(self.text(&folder.names)) }
    }

    /// Checks that a descriptor gives access to its file: one that was opened with `O_PATH` does
    /// not.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn reaches(&self, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.table.get(descriptor)?.is_place() { Err(Errno::BADF) } else { Ok(()) }
    }

    /// realpath(3): the path without symlinks and dots. The file must exist.
    ///
    /// # Errors
    /// As realpath(3).
    pub fn real_path(&self, said: Said<'_>) -> Result<Vec<u8>, Errno> {
        let who = Who::now();
        self.wait(async {
            match self.walk(&who, said, End::Follow).await? {
                Place::Host(path) => {
                    let path = std::fs::canonicalize(OsStr::from_bytes(path.as_bytes()));
                    path.map(|path| path.as_os_str().as_bytes().to_vec())
                        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
                }
                Place::Pool(spot) => {
                    spot.there()?;
                    Ok(self.text(&spot.names()))
                }
            }
        })
    }

    /// Returns the bytes of a program of the pool as a memory file (memfd). The kernel cannot run
    /// the file itself, because its node has it open for writing.
    ///
    /// # Errors
    /// As execve(2): the file must be regular and executable by this user.
    pub fn program(&self, said: Said<'_>, name: &CStr) -> Result<Program, Errno> {
        use rustix::fs::{MemfdFlags, memfd_create};
        const PIECE_BYTES: u32 = 4 << 20;
        let who = Who::now();
        self.wait(async {
            let found = match self.walk(&who, said, End::Follow).await? {
                Place::Pool(spot) => *spot.there()?,
                Place::Host(path) => return Ok(Program::Host(path)),
            };
            if found.kind != Node::File {
                return Err(Errno::ACCESS);
            }
            self.walker(&who).may(&found, crate::RUN).await?;
            let memory = memfd_create(name, MemfdFlags::CLOEXEC)?;
            let mut at = 0;
            loop {
                let bytes =
                    self.client.read(found.file, at, PIECE_BYTES).await.map_err(|refusal| crate::errno(&refusal))?;
                if bytes.is_empty() {
                    return Ok(Program::Memory(memory));
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
    pub(crate) fn text(&self, names: &[Vec<u8>]) -> Vec<u8> {
        let mut text = self.prefix.clone();
        for name in names {
            text.push(b'/');
            text.extend_from_slice(name);
        }
        text
    }

    fn here(&self) -> MutexGuard<'_, Option<Here>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Process in which no operation is under way, so that it can fork.
#[derive(Debug)]
pub struct Paused<'a> {
    process: &'a Process,
    table: TableGuard<'a>,
    ways: WaysGuard<'a>,
    here: MutexGuard<'a, Option<Here>>,
}

impl Process {
    /// Waits until no thread is inside an operation, and blocks new ones until [`Paused::end`].
    pub fn pause(&self) -> Paused<'_> {
        self.hand.before_fork();
        Paused { process: self, table: self.table.guard(), ways: self.ways.guard(), here: self.here() }
    }
}

impl Paused<'_> {
    /// Resumes operations, in the parent or in the child, which makes new connections.
    pub fn end(self, is_child: bool) {
        drop((self.table, self.ways, self.here));
        // A child that cannot open descriptors has no connection to the pool; its next call reports
        // that.
        let _ = self.process.hand.after_fork(is_child);
    }
}

/// Returns the errno for a pool that cannot be reached.
fn errno(no_way: &NoWay) -> Errno {
    // A missing pool must not look like a missing file of the pool.
    if no_way.errno == Errno::NOENT { Errno::NODEV } else { no_way.errno }
}

/// Returns the number of a descriptor, the key of the table.
pub(crate) fn number(descriptor: &OwnedFd) -> RawFd {
    descriptor.as_raw_fd()
}
