//! Fifos and sockets of the pool: a name there, and behind it one of the system's own, where programs of one host meet.
//!
//! The system's own ones are in the folder of the first node of this host, under the file's number, which is given once. They go
//! with that node; what a program says through them never leaves the host, as on every shared file system.

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

/// Who may reach the folder may use what is in it: the pool has checked the rest.
const ALL: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::WGRP).union(Mode::ROTH).union(Mode::WOTH);

/// What paths of sockets begin with that the system is told.
const WAY: &str = "/proc/self/fd/";
/// Of a name of the system's own, bytes.
const NAME_BYTES: usize = 16;

/// Where a socket of the pool is bound or connected to.
#[derive(Debug)]
pub struct Meeting {
    /// What the system is told, short enough for it.
    pub path: CString,
    /// What the path leads through; to be closed when the system was told.
    pub folder: Option<OwnedFd>,
}

impl Meeting {
    /// Notes by what name a socket is bound here, for whoever is told of the system's own.
    ///
    /// # Errors
    /// Those of symlink(2).
    pub fn say(&self, name: &CStr) -> Result<(), Errno> {
        match &self.folder {
            Some(folder) => rustix::fs::symlinkat(name, folder, said_of(self.path.to_bytes())),
            None => Ok(()),
        }
    }

    /// Whether the system may mean a socket of a pool by a path.
    pub fn is(path: &[u8]) -> bool {
        let Some(rest) = path.strip_prefix(WAY.as_bytes()) else { return false };
        let mut names = rest.split(|byte| *byte == b'/');
        let (folder, name) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
        folder.iter().all(u8::is_ascii_digit) && name.len() == NAME_BYTES && name.iter().all(u8::is_ascii_hexdigit)
    }
}

/// Under what a name is noted.
fn said_of(path: &[u8]) -> Vec<u8> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    [name, b".said"].concat()
}

impl Process {
    /// The name that a socket was bound to, by what the system calls it.
    ///
    /// # Errors
    /// `ENOENT` where nobody noted one, `ENXIO` where no node is on this host.
    pub fn bound(&self, path: &[u8]) -> Result<CString, Errno> {
        rustix::fs::readlink(self.meetings()?.join(OsStr::from_bytes(&said_of(path))), Vec::new())
    }

    /// The system's fifo behind one of the pool's, made if nobody has used it yet.
    ///
    /// # Errors
    /// `ENXIO` where no node is on this host; those of mkfifo(3).
    pub(crate) fn fifo(&self, file: FileId) -> Result<CString, Errno> {
        let path = self.meetings()?.join(name(file));
        match rustix::fs::mknodat(CWD, &path, FileType::Fifo, ALL, 0) {
            // What umask(2) took is given back.
            Ok(()) => rustix::fs::chmodat(CWD, &path, ALL, rustix::fs::AtFlags::empty())?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)
    }

    /// Makes a socket's name, for bind(2). What could not be bound is to be [unlinked](Self::unlink) again.
    ///
    /// # Errors
    /// As bind(2): `EADDRINUSE` where the name is taken.
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
    /// As connect(2): `ECONNREFUSED` where the name is of something else.
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

    /// A folder's path may be longer than a socket's may be: the way there is by its descriptor.
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

    /// The folder in which programs of this host meet.
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
