//! Tasks with the preload library: files and environment that their processes start with.
//!
//! Without a mount nothing exists at the tasks' paths, so a child cannot open its standard files or
//! enter its directory before the library is loaded. It inherits open descriptors of the pool
//! instead, and a variable names its directory. Its working directory for the kernel is a deleted
//! directory, so that relative paths that bypass the library find nothing rather than a wrong file.

use super::copy::bytes_of;
use super::{WorkspaceBase, WorkspaceError};
use exec::{PathOrFd, ToolPath};
use flow::TaskCommand;
use rustix::fs::{Mode, OFlags, fstat, open};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::ProgramFile;
use wire::{OpenFlags, OpenLeaseId};

/// Setup of processes that use the preload library.
#[derive(Debug)]
pub struct PreloadSetup {
    library: PathBuf,
    /// Path of the pool file.
    pool: PathBuf,
    /// The deleted directory.
    nowhere: Arc<OwnedFd>,
    /// Permission bits that are cleared in files that we make for tasks (umask(2)).
    umask: u32,
}

/// Files and environment that a task's process starts with.
#[derive(Debug)]
pub struct TaskIo {
    /// Working directory.
    pub cwd: PathOrFd,
    /// Standard input; `None`: empty.
    pub stdin: Option<PathOrFd>,
    /// Standard output; `None`: captured.
    pub stdout: Option<PathOrFd>,
    /// Standard error; `None`: captured.
    pub stderr: Option<PathOrFd>,
    /// Variables that replace those of its environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The library for `LD_PRELOAD`, if any.
    pub library: Option<PathBuf>,
    /// Leases of the files above that are open in the pool.
    pub opened: Vec<OpenLeaseId>,
}

impl TaskIo {
    /// All files as paths, for a process that needs no library.
    pub fn paths(dir: ToolPath, command: &TaskCommand) -> Self {
        Self {
            cwd: dir.into(),
            stdin: command.stdin.as_ref().map(PathOrFd::from),
            stdout: command.stdout.as_ref().map(PathOrFd::from),
            stderr: command.stderr.as_ref().map(PathOrFd::from),
            variables: Vec::new(),
            library: None,
            opened: Vec::new(),
        }
    }
}

impl PreloadSetup {
    /// Creates the setup from a library and a pool file. It creates and deletes a directory in
    /// `scratch`.
    ///
    /// # Errors
    /// The directory cannot be created or opened.
    pub fn new(library: PathBuf, pool: PathBuf, scratch: &Path) -> io::Result<Self> {
        let nowhere = scratch.join("nowhere");
        fs::create_dir(&nowhere)?;
        let opened = open(&nowhere, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        fs::remove_dir(&nowhere)?;
        Ok(Self { library, pool, nowhere: Arc::new(opened?), umask: umask() })
    }

    /// Files and environment of a process whose directory is `dir` of the pool, which tasks see at
    /// `root`.
    pub async fn task_io(
        &self,
        base: &WorkspaceBase,
        root: &ToolPath,
        dir: &ToolPath,
        command: &TaskCommand,
    ) -> Result<TaskIo, WorkspaceError> {
        let mut io = TaskIo::paths(dir.clone(), command);
        io.cwd = PathOrFd::Open(self.nowhere.clone());
        let mut devices = Vec::new();
        if let Some(place) = pool_path_below(root, command.stdin.as_deref()) {
            io.take(base.open_to_read(place).await?, &mut devices, |io| &mut io.stdin);
        }
        if let Some(place) = pool_path_below(root, command.stdout.as_deref()) {
            io.take(base.open_to_write(place, self.umask).await?, &mut devices, |io| &mut io.stdout);
        }
        if let Some(place) = pool_path_below(root, command.stderr.as_deref()) {
            io.take(base.open_to_write(place, self.umask).await?, &mut devices, |io| &mut io.stderr);
        }
        let variables: [(&str, OsString); 4] = [
            ("TIDEMILL_POOL", self.pool.clone().into()),
            ("TIDEMILL_PREFIX", root.text().into()),
            ("TIDEMILL_CWD", dir.text().into()),
            // Only descriptors on these devices are looked up: a program may inherit others that
            // are not of the pool.
            ("TIDEMILL_DEVICES", devices.join(",").into()),
        ];
        io.variables = variables.map(|(name, value)| (name.into(), value)).into();
        io.library = Some(self.library.clone());
        Ok(io)
    }
}

impl TaskIo {
    fn take(
        &mut self,
        opened: ProgramFile,
        devices: &mut Vec<String>,
        place: impl FnOnce(&mut Self) -> &mut Option<PathOrFd>,
    ) {
        if let Ok(found) = fstat(&opened.descriptor) {
            devices.push(found.st_dev.to_string());
        }
        self.opened.push(opened.lease.id);
        *place(self) = Some(PathOrFd::Open(Arc::new(opened.descriptor)));
    }
}

/// The place in the pool of a path in the command, if it is below `root`.
fn pool_path_below<'a>(root: &ToolPath, path: Option<&'a str>) -> Option<&'a Path> {
    root.below(OsStr::new(path?))
}

impl WorkspaceBase {
    async fn open_to_read(&self, place: &Path) -> Result<ProgramFile, WorkspaceError> {
        let file = self.pool.resolve(bytes_of(place)).await.map_err(WorkspaceError::pool(place))?.file;
        self.pool.open_for_program(file, OpenFlags::READ).await.map_err(WorkspaceError::pool(place))
    }

    async fn open_to_write(&self, place: &Path, umask: u32) -> Result<ProgramFile, WorkspaceError> {
        let (parent, name) = self.parent(place).await?;
        let mode = wire::Mode { bits: 0o666, umask };
        let flags = OpenFlags { truncate: true, ..OpenFlags::WRITE };
        let made = self.pool.create_for_program(parent, &name, mode, self.owner, flags).await;
        made.map_err(WorkspaceError::pool(place))
    }
}

/// The umask of this process, read without changing it; 0o022 if /proc does not show it.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
}
