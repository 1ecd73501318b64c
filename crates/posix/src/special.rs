//! Fifos and sockets of the pool. Each is a name in the pool and a fifo or socket of the kernel
//! behind it, through which programs of one host communicate.
//!
//! The kernel's fifos and sockets are in the directory of the first node of this host, named by
//! file id, which is never reused. They disappear with that node. Their data never leaves the host,
//! as on every shared file system.

use crate::access::WRITE;
use crate::walk::{End, Place};
use crate::{Errno, Process, Said, Who};
use link::Address;
use placement::FileId;
use pool::PoolFile;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wire::{Kind, NewInode, NewKind, Wish};

/// Mode of the kernel's fifos: open to everybody who can reach the directory. The pool has checked
/// permissions before.
const ALL: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::WGRP).union(Mode::ROTH).union(Mode::WOTH);

/// Prefix of the socket paths that are passed to the kernel.
const WAY: &str = "/proc/self/fd/";
/// Length of the name of a kernel fifo or socket, bytes.
const NAME_BYTES: usize = 16;

/// Address at which a socket of the pool is bound or connected to.
#[derive(Debug)]
pub struct Meeting {
    /// Path for the kernel, short enough for `sun_path`.
    pub path: CString,
    /// Directory that the path leads through; to be closed after the kernel has used the path.
    pub folder: Option<OwnedFd>,
}

impl Meeting {
    /// Records the pool name that a socket is bound to, for programs that are given the kernel's
    /// path of it.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn say(&self, name: &CStr) -> Result<(), Errno> {
        match &self.folder {
            Some(folder) => rustix::fs::symlinkat(name, folder, said_of(self.path.to_bytes())),
            None => Ok(()),
        }
    }

    /// Returns whether a socket path that the kernel reports may be of a socket of a pool.
    pub fn is(path: &[u8]) -> bool {
        let Some(rest) = path.strip_prefix(WAY.as_bytes()) else { return false };
        let mut names = rest.split(|byte| *byte == b'/');
        let (folder, name) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
        folder.iter().all(u8::is_ascii_digit) && name.len() == NAME_BYTES && name.iter().all(u8::is_ascii_hexdigit)
    }
}

/// Returns the name of the symlink that records a socket's pool name.
fn said_of(path: &[u8]) -> Vec<u8> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    [name, b".said"].concat()
}

impl Process {
    /// Returns the pool name that a socket was bound to, by the kernel's path of it.
    ///
    /// # Errors
    /// `ENOENT` if no name was recorded, `ENXIO` if no node is on this host.
    pub fn bound(&self, path: &[u8]) -> Result<CString, Errno> {
        rustix::fs::readlink(self.meetings()?.join(OsStr::from_bytes(&said_of(path))), Vec::new())
    }

    /// Returns the kernel's fifo behind one of the pool, and creates it on first use.
    ///
    /// # Errors
    /// `ENXIO` if no node is on this host, and those of mkfifo(3).
    pub(crate) fn fifo(&self, file: FileId) -> Result<CString, Errno> {
        let path = self.meetings()?.join(name(file));
        match rustix::fs::mknodat(CWD, &path, FileType::Fifo, ALL, 0) {
            // Restores the bits that umask(2) removed.
            Ok(()) => rustix::fs::chmodat(CWD, &path, ALL, rustix::fs::AtFlags::empty())?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)
    }

    /// Creates a socket's name, for bind(2). The caller [unlinks](Self::unlink) it if bind(2)
    /// fails.
    ///
    /// # Errors
    /// As bind(2): `EADDRINUSE` if the name exists.
    pub fn socket(&self, said: Said<'_>) -> Result<Meeting, Errno> {
        let who = Who::now();
        let made = self.wait(async {
            let spot = match self.walk(&who, said, self.to_name(&who)).await? {
                Place::Pool(spot) => spot,
                Place::Host(path) => return Ok(Err(path)),
            };
            let name = self.new_file_name(&who, &spot).await?;
            let inode = NewInode::new(NewKind::Node(Kind::Socket), self.mode(0o777), crate::open::owner(&who));
            let made = self.client.create(spot.folder.file, name, inode, false, Wish::No).await;
            made.map(|made| Ok(made.attributes.file)).map_err(|refusal| crate::errno(&refusal))
        });
        self.meeting(made.map_err(|errno| if errno == Errno::EXIST { Errno::ADDRINUSE } else { errno })?)
    }

    /// Finds a socket by name, for connect(2).
    ///
    /// # Errors
    /// As connect(2): `ECONNREFUSED` if the name is not a socket.
    pub fn listener(&self, said: Said<'_>) -> Result<Meeting, Errno> {
        let who = Who::now();
        let found = self.wait(async {
            let spot = match self.walk(&who, said, End::Follow).await? {
                Place::Pool(spot) => spot,
                Place::Host(path) => return Ok(Err(path)),
            };
            let found = *spot.there()?;
            self.walker(&who).may(&found, WRITE).await?;
            if found.kind == Kind::Socket { Ok(Ok(found.file)) } else { Err(Errno::CONNREFUSED) }
        })?;
        self.meeting(found).map_err(|errno| if errno == Errno::NXIO { Errno::CONNREFUSED } else { errno })
    }

    /// Makes the address of a socket. The directory's path may exceed the limit for socket paths,
    /// so the address goes through a descriptor of it.
    fn meeting(&self, what: Result<FileId, CString>) -> Result<Meeting, Errno> {
        let file = match what {
            Ok(file) => file,
            Err(path) => return Ok(Meeting { path, folder: None }),
        };
        let folder =
            rustix::fs::open(self.meetings()?, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = format!("{WAY}{}/{}", folder.as_raw_fd(), name(file));
        Ok(Meeting { path: CString::new(path).map_err(|_| Errno::INVAL)?, folder: Some(folder) })
    }

    /// Returns the directory of this host's fifos and sockets, and creates it on first use.
    fn meetings(&self) -> Result<PathBuf, Errno> {
        let file = PoolFile::read(Path::new(OsStr::from_bytes(&self.pool))).map_err(|_| Errno::NXIO)?;
        let door = file.nodes.iter().find_map(|node| match pool::way(node) {
            Some(Address::Unix(path)) => path.parent(),
            _ => None,
        });
        let folder = door.ok_or(Errno::NXIO)?.join("named");
        match rustix::fs::mkdir(&folder, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(folder),
            Err(errno) => Err(errno),
        }
    }
}

fn name(file: FileId) -> String {
    format!("{:016x}", file.0)
}
