//! One program's view of one pool.

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

/// A program's view of a pool: one for a process.
#[derive(Debug)]
pub struct Process {
    pub(crate) client: Client,
    hand: Hand,
    pub(crate) prefix: Vec<u8>,
    /// The path of the pool file.
    pub(crate) pool: Vec<u8>,
    pub(crate) table: Table,
    pub(crate) ways: Ways,
    here: Mutex<Option<Here>>,
    umask: AtomicU32,
}

/// The working directory, in the pool.
#[derive(Debug)]
struct Here {
    folder: Folder,
    /// What keeps it open while it is that: the kernel's own working directory is the folder that stands in for it.
    open: Option<(Arc<Open>, Own)>,
}

/// A program that is to be started.
#[derive(Debug)]
pub enum Program {
    /// A copy of its bytes.
    Memory(OwnedFd),
    /// A path of the host, where a link led.
    Host(CString),
}

impl Process {
    /// Over a client of the pool of a pool file, whose connections this hand turns.
    pub fn new(client: Client, hand: Hand, pool: &[u8], prefix: &[u8]) -> Self {
        let (table, ways, here, umask) = (Table::default(), Ways::default(), Mutex::new(None), AtomicU32::new(0o022));
        Self { client, hand, prefix: prefix.to_vec(), pool: pool.to_vec(), table, ways, here, umask }
    }

    /// Connects to the pool of a pool file. `here` is the working directory that the program was started in.
    ///
    /// # Errors
    /// In words, with what to do: the file is not there or not one, the token may not be read, no node answers.
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

    /// Goes to the working directory that the program was started in, as [`directory`](Self::directory) tells it, or its path alone: to where that leads, or,
    /// where the folder was renamed meanwhile, to the folder itself.
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
        // Removed meanwhile, it is a folder that is not there.
        let names = crate::prefix::names(rest).map(<[u8]>::to_vec).collect();
        let folder = Folder { file: file.unwrap_or(FileId(u64::MAX)), attributes: None, names };
        let open = self.wait(self.open_folder(&folder)).ok();
        if let Some((_, descriptor)) = &open {
            // Where that fails, the kernel's own is the empty one that the parent was in.
            let _ = rustix::process::fchdir(descriptor);
        }
        self.set_here(folder, open);
    }

    /// What turns its connections: to be told of forks.
    pub fn hand(&self) -> &Hand {
        &self.hand
    }

    /// Bits that new files do not get (umask(2)).
    pub fn set_umask(&self, umask: u32) {
        self.umask.store(umask & 0o777, Ordering::Relaxed);
    }

    pub(crate) fn umask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }

    /// Waits for what a verb asks of the pool.
    pub(crate) fn wait<T>(&self, verb: impl Future<Output = Result<T, Errno>>) -> Result<T, Errno> {
        let since = Instant::now();
        self.hand.block_on_unless(verb, || crate::is_ended(since)).unwrap_or(Err(Errno::INTR))
    }

    /// Where a path starts.
    pub(crate) fn start(&self, base: Base<'_>) -> Result<Folder, Errno> {
        match base {
            Base::Root => Ok(Folder::root()),
            Base::Here => self.here().as_ref().map(|here| here.folder.clone()).ok_or(Errno::NOENT),
            Base::Descriptor(descriptor) | Base::Magic(descriptor) => self.table.get(descriptor)?.folder(),
        }
    }

    /// Walks a path. An empty one leads nowhere.
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

    /// Whether a path is longer than the system has them; of one from the root the program has said the prefix, too.
    pub(crate) fn is_too_long(&self, said: Said<'_>) -> bool {
        let more = if matches!(said.base, Base::Root) { self.prefix.len() } else { 0 };
        more + said.path.len() > PATH_BYTES_MAX
    }

    /// How the name of something new is walked to, or of something that goes: it is looked up where something is to be checked.
    pub(crate) fn to_name(&self, who: &Who) -> End {
        if self.walker(who).changes_any() { End::Name } else { End::NameThere }
    }

    pub(crate) fn walker<'a>(&'a self, who: &'a Who) -> Walker<'a> {
        Walker { client: &self.client, who, prefix: &self.prefix, ways: &self.ways }
    }

    /// Notes that a descriptor is about to be closed; gives what it had open, for [`Process::let_go`] when the kernel has closed it.
    pub fn take(&self, descriptor: RawFd) -> Option<Held> {
        self.table.take(descriptor).map(Held)
    }

    /// What is not open any more is closed in the pool.
    ///
    /// # Errors
    /// Of the way to the pool. Nothing is lost then: the node looks by itself.
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

    /// Whether nobody has to wait until the node knows that an open is closed: it is told with what it is asked next. Others see bytes and size as
    /// they are, for both are the extent's. Locks of the process are ended before, wherever it has them from.
    fn is_said_later(&self, open: &Open) -> bool {
        open.kind != Kind::Remote && !self.table.may_lock(open.file) && self.client.closed(open.mark, open.file)
    }

    /// Notes that the kernel has copied a descriptor.
    pub fn copied(&self, from: BorrowedFd<'_>, to: RawFd) {
        if let Ok(open) = self.table.get(from) {
            self.table.add(to, open);
        }
    }

    /// Finds out what a descriptor is of that this process has not opened: one that it was started with, or was sent. `is_own` says whether its
    /// own open holds this byte of the file, which tells it from others of the same file.
    ///
    /// # Errors
    /// `EBADF` where it is none of the pool's, and those of the way to the pool.
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
        // Another program of this process may have.
        open.locked.store(true, Ordering::Relaxed);
        let kind = open.shown();
        self.table.add(descriptor.as_raw_fd(), Arc::new(open));
        Ok(kind)
    }

    /// Whether a descriptor is still what we know of it.
    pub fn knows(&self, descriptor: BorrowedFd<'_>) -> bool {
        self.table.get(descriptor).is_ok()
    }

    /// chdir(2) and fchdir(2): the kernel's own working directory becomes an empty folder that is removed, so that what does not come through us
    /// finds nothing there.
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

    /// Opens a folder for ourselves.
    async fn open_folder(&self, folder: &Folder) -> Result<(Arc<Open>, Own), Errno> {
        let (open, descriptor) = self.obtained(folder.file, OpenFlags::READ, folder.names.clone()).await?;
        Ok((open, Own::new(descriptor)))
    }

    fn set_here(&self, folder: Folder, open: Option<(Arc<Open>, Own)>) {
        let before = self.here().replace(Here { folder, open });
        self.forget(before);
    }

    /// The working directory is elsewhere now.
    pub fn left(&self) {
        let before = self.here().take();
        self.forget(before);
    }

    fn forget(&self, before: Option<Here>) {
        if let Some((open, descriptor)) = before.and_then(|here| here.open) {
            drop(descriptor);
            // The node finds out by itself, if this does not arrive.
            let _ = self.let_go(&Held(open));
        }
    }

    /// The working directory for a program that is started there: its number, a colon, and its path with the prefix, as it was when it was entered; none where it
    /// is not in the pool.
    pub fn directory(&self) -> Option<Vec<u8>> {
        let here = self.here();
        let folder = &here.as_ref()?.folder;
        Some([format!("{}:", folder.file.0).as_bytes(), &self.text(&folder.names)].concat())
    }

    /// getcwd(3): its path, if it is still there.
    ///
    /// # Errors
    /// As getcwd(3): `ENOENT` where it was removed, or is not in the pool.
    pub fn getcwd(&self) -> Result<Vec<u8>, Errno> {
        let folder = self.here().as_ref().map(|here| here.folder.clone()).ok_or(Errno::NOENT)?;
        let file = folder.file;
        let found = self.wait(async { self.client.stat(file).await.map_err(|refusal| crate::errno(&refusal)) })?;
        if found.links == 0 { Err(Errno::NOENT) } else { Ok(self.text(&folder.names)) }
    }

    /// Whether a descriptor reaches what it is of: one that was opened as a place alone (`O_PATH`) does not.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn reaches(&self, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.table.get(descriptor)?.is_place() { Err(Errno::BADF) } else { Ok(()) }
    }

    /// realpath(3): the path without links and dots, of what must be there.
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

    /// The bytes of a program of the pool, as a file that has a name in no folder: the system starts none that its node has open for writing.
    ///
    /// # Errors
    /// As execve(2): it must be a file that this user may run.
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

    /// A path of the pool as programs see it.
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

/// A process in which nothing is under way: it may be copied.
#[derive(Debug)]
pub struct Paused<'a> {
    process: &'a Process,
    table: TableGuard<'a>,
    ways: WaysGuard<'a>,
    here: MutexGuard<'a, Option<Here>>,
}

impl Process {
    /// Waits until no thread is in the middle of something, and lets none go on until it [ends](Paused::end).
    pub fn pause(&self) -> Paused<'_> {
        self.hand.before_fork();
        Paused { process: self, table: self.table.guard(), ways: self.ways.guard(), here: self.here() }
    }
}

impl Paused<'_> {
    /// Goes on, in the process that was copied or in its copy, which makes its own connections.
    pub fn end(self, is_child: bool) {
        drop((self.table, self.ways, self.here));
        // A child without descriptors to spare cannot reach the pool, which its next call says.
        let _ = self.process.hand.after_fork(is_child);
    }
}

/// The error that fits a pool that cannot be reached.
fn errno(no_way: &NoWay) -> Errno {
    // That a pool is not there is not that a file of it is not.
    if no_way.errno == Errno::NOENT { Errno::NODEV } else { no_way.errno }
}

/// The number of a descriptor, as the table has it.
pub(crate) fn number(descriptor: &OwnedFd) -> RawFd {
    descriptor.as_raw_fd()
}
