//! Fifos and sockets of the pool. Each is a name in the pool and a fifo or socket of the kernel
//! behind it, through which programs of one host communicate.
//!
//! The kernel's fifos and sockets are in the directory of the first node of this host, named by
//! file id, which is never reused. They disappear with that node. Their data never leaves the host,
//! as on every shared file system.

use crate::access::WRITE;
use crate::resolve::{Destination, LastMode};
use crate::{Caller, Errno, PathArg, PosixProcess};
use placement::FileId;
use pool::PoolFile;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use transport::Address;
use wire::{ExtentRequest, Kind, NewInode, NewKind};

/// Mode of the kernel's fifos: open to everybody who can reach the directory. The pool has checked
/// permissions before.
const MODE_ALL: Mode =
    Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::WGRP).union(Mode::ROTH).union(Mode::WOTH);

/// Prefix of the socket paths that are passed to the kernel.
const FD_DIRECTORY: &str = "/proc/self/fd/";
/// Length of the name of a kernel fifo or socket, bytes.
const NAME_BYTES: usize = 16;

/// Address at which a socket of the pool is bound or connected to.
#[derive(Debug)]
pub struct SocketEndpoint {
    /// Path for the kernel, short enough for `sun_path`.
    pub path: CString,
    /// Directory that the path leads through; to be closed after the kernel has used the path.
    pub directory: Option<OwnedFd>,
}

impl SocketEndpoint {
    /// Records the pool name that a socket is bound to, for programs that are given the kernel's
    /// path of it.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn record_name(&self, name: &CStr) -> Result<(), Errno> {
        match &self.directory {
            Some(directory) => rustix::fs::symlinkat(name, directory, name_record(self.path.to_bytes())),
            None => Ok(()),
        }
    }

    /// Returns whether a socket path that the kernel reports may be of a socket of a pool.
    pub fn is_kernel_path(path: &[u8]) -> bool {
        let Some(rest) = path.strip_prefix(FD_DIRECTORY.as_bytes()) else { return false };
        let mut names = rest.split(|byte| *byte == b'/');
        let (directory, name) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
        directory.iter().all(u8::is_ascii_digit) && name.len() == NAME_BYTES && name.iter().all(u8::is_ascii_hexdigit)
    }
}

/// Returns the name of the symlink that records a socket's pool name.
fn name_record(path: &[u8]) -> Vec<u8> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    [name, b".said"].concat()
}

impl PosixProcess {
    /// Returns the pool name that a socket was bound to, by the kernel's path of it.
    ///
    /// # Errors
    /// `ENOENT` if no name was recorded, `ENXIO` if no node is on this host.
    pub fn bound_name(&self, path: &[u8]) -> Result<CString, Errno> {
        rustix::fs::readlink(self.endpoint_directory()?.join(OsStr::from_bytes(&name_record(path))), Vec::new())
    }

    /// Returns the kernel's fifo behind one of the pool, and creates it on first use.
    ///
    /// # Errors
    /// `ENXIO` if no node is on this host, and those of mkfifo(3).
    pub(crate) fn fifo(&self, file: FileId) -> Result<CString, Errno> {
        let path = self.endpoint_directory()?.join(name(file));
        match rustix::fs::mknodat(CWD, &path, FileType::Fifo, MODE_ALL, 0) {
            // Restores the bits that umask(2) removed.
            Ok(()) => rustix::fs::chmodat(CWD, &path, MODE_ALL, rustix::fs::AtFlags::empty())?,
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
    pub fn socket(&self, arg: PathArg<'_>) -> Result<SocketEndpoint, Errno> {
        let caller = Caller::effective();
        let made = self.wait(async {
            let resolved = match self.resolve(&caller, arg, self.name_mode(&caller)).await? {
                Destination::Pool(resolved) => resolved,
                Destination::Host(path) => return Ok(Err(path)),
            };
            let name = self.new_file_name(&caller, &resolved).await?;
            let inode = NewInode::new(NewKind::Node(Kind::Socket), self.mode(0o777), crate::open::owner(&caller));
            let made = self.client.create(resolved.directory.file, name, inode, false, ExtentRequest::None).await;
            made.map(|made| Ok(made.attributes.file)).map_err(|refusal| crate::errno(&refusal))
        });
        self.endpoint(made.map_err(|errno| if errno == Errno::EXIST { Errno::ADDRINUSE } else { errno })?)
    }

    /// Finds a socket by name, for connect(2).
    ///
    /// # Errors
    /// As connect(2): `ECONNREFUSED` if the name is not a socket.
    pub fn listener(&self, arg: PathArg<'_>) -> Result<SocketEndpoint, Errno> {
        let caller = Caller::effective();
        let found = self.wait(async {
            let resolved = match self.resolve(&caller, arg, LastMode::Follow).await? {
                Destination::Pool(resolved) => resolved,
                Destination::Host(path) => return Ok(Err(path)),
            };
            let found = *resolved.existing()?;
            self.resolver(&caller).check_access(&found, WRITE).await?;
            if found.kind == Kind::Socket { Ok(Ok(found.file)) } else { Err(Errno::CONNREFUSED) }
        })?;
        self.endpoint(found).map_err(|errno| if errno == Errno::NXIO { Errno::CONNREFUSED } else { errno })
    }

    /// Makes the address of a socket. The directory's path may exceed the limit for socket paths,
    /// so the address goes through a descriptor of it.
    fn endpoint(&self, target: Result<FileId, CString>) -> Result<SocketEndpoint, Errno> {
        let file = match target {
            Ok(file) => file,
            Err(path) => return Ok(SocketEndpoint { path, directory: None }),
        };
        let directory = rustix::fs::open(
            self.endpoint_directory()?,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let path = format!("{FD_DIRECTORY}{}/{}", directory.as_raw_fd(), name(file));
        Ok(SocketEndpoint { path: CString::new(path).map_err(|_| Errno::INVAL)?, directory: Some(directory) })
    }

    /// Returns the directory of this host's fifos and sockets, and creates it on first use.
    fn endpoint_directory(&self) -> Result<PathBuf, Errno> {
        let file = PoolFile::read(Path::new(OsStr::from_bytes(&self.pool))).map_err(|_| Errno::NXIO)?;
        let socket_directory = file.nodes.iter().find_map(|node| match pool::best_address(node) {
            Some(Address::Unix(path)) => path.parent(),
            _ => None,
        });
        let directory = socket_directory.ok_or(Errno::NXIO)?.join("named");
        match rustix::fs::mkdir(&directory, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(directory),
            Err(errno) => Err(errno),
        }
    }
}

fn name(file: FileId) -> String {
    format!("{:016x}", file.0)
}
