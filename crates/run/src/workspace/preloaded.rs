//! Tasks that see the pool by the preload library: what their processes are started with.
//!
//! For the system there is nothing at their paths, so a child cannot open its standard files or enter its folder before the library is there. It gets
//! descriptors of the pool instead, as a program hands them on, and is told its folder by a variable: it starts in a folder that was
//! removed, so that what comes past the library finds nothing, and not something else.

use super::transfer::bytes_of;
use super::{Base, Trouble};
use exec::{ToolFile, ToolPath};
use flow::Command;
use rustix::fs::{Mode, OFlags, fstat, open};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::Program;
use wire::{Mark, OpenFlags};

/// How processes see the pool.
#[derive(Debug)]
pub struct Preloaded {
    library: PathBuf,
    /// The pool file.
    pool: PathBuf,
    /// The folder that was removed.
    nowhere: Arc<OwnedFd>,
    /// Bits that files do not get which we make for tasks (umask(2)).
    umask: u32,
}

/// What a process of a task is started with.
#[derive(Debug)]
pub struct Given {
    /// Its working directory.
    pub cwd: ToolFile,
    /// Its standard input, if not empty.
    pub stdin: Option<ToolFile>,
    /// Its standard output, if not captured.
    pub stdout: Option<ToolFile>,
    /// What its environment has, whatever it had.
    pub variables: Vec<(OsString, OsString)>,
    /// The library that the loader is to put before it.
    pub library: Option<PathBuf>,
    /// What of that is open in the pool.
    pub opened: Vec<Mark>,
}

impl Given {
    /// It finds everything by paths.
    pub fn paths(dir: ToolPath, command: &Command) -> Self {
        Self {
            cwd: dir.into(),
            stdin: command.stdin.as_ref().map(ToolFile::from),
            stdout: command.stdout.as_ref().map(ToolFile::from),
            variables: Vec::new(),
            library: None,
            opened: Vec::new(),
        }
    }
}

impl Preloaded {
    /// By a library, from a pool file. A folder in `scratch` is made and removed.
    ///
    /// # Errors
    /// It could not be made there.
    pub fn new(library: PathBuf, pool: PathBuf, scratch: &Path) -> io::Result<Self> {
        let nowhere = scratch.join("nowhere");
        fs::create_dir(&nowhere)?;
        let opened = open(&nowhere, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        fs::remove_dir(&nowhere)?;
        Ok(Self { library, pool, nowhere: Arc::new(opened?), umask: umask() })
    }

    /// What a process that starts in `dir` of the pool, which tasks see at `root`, is to have.
    pub async fn give(
        &self,
        base: &Base,
        root: &ToolPath,
        dir: &ToolPath,
        command: &Command,
    ) -> Result<Given, Trouble> {
        let mut given = Given::paths(dir.clone(), command);
        given.cwd = ToolFile::Open(self.nowhere.clone());
        let mut devices = Vec::new();
        if let Some(place) = place_below(root, command.stdin.as_deref()) {
            given.take(base.open_to_read(place).await?, &mut devices, |given| &mut given.stdin);
        }
        if let Some(place) = place_below(root, command.stdout.as_deref()) {
            given.take(base.open_to_write(place, self.umask).await?, &mut devices, |given| &mut given.stdout);
        }
        let variables: [(&str, OsString); 4] = [
            ("TIDEMILL_POOL", self.pool.clone().into()),
            ("TIDEMILL_PREFIX", root.text().into()),
            ("TIDEMILL_CWD", dir.text().into()),
            // Only what is on these is looked at: what a program was started with need not be of the pool.
            ("TIDEMILL_DEVICES", devices.join(",").into()),
        ];
        given.variables = variables.map(|(name, value)| (name.into(), value)).into();
        given.library = Some(self.library.clone());
        Ok(given)
    }
}

impl Given {
    fn take(
        &mut self,
        opened: Program,
        devices: &mut Vec<String>,
        place: impl FnOnce(&mut Self) -> &mut Option<ToolFile>,
    ) {
        if let Ok(found) = fstat(&opened.descriptor) {
            devices.push(found.st_dev.to_string());
        }
        self.opened.push(opened.marked.mark);
        *place(self) = Some(ToolFile::Open(Arc::new(opened.descriptor)));
    }
}

/// The place in the pool of a path that a command has, if it is there.
fn place_below<'a>(root: &ToolPath, path: Option<&'a str>) -> Option<&'a Path> {
    root.below(OsStr::new(path?))
}

impl Base {
    async fn open_to_read(&self, place: &Path) -> Result<Program, Trouble> {
        let file = self.pool.resolve(bytes_of(place)).await.map_err(Trouble::pool(place))?.file;
        self.pool.open_for_program(file, OpenFlags::READ).await.map_err(Trouble::pool(place))
    }

    async fn open_to_write(&self, place: &Path, umask: u32) -> Result<Program, Trouble> {
        let (parent, name) = self.parent(place).await?;
        let mode = wire::Mode { bits: 0o666, umask };
        let flags = OpenFlags { truncate: true, ..OpenFlags::WRITE };
        let made = self.pool.create_for_program(parent, &name, mode, self.owner, flags).await;
        made.map_err(Trouble::pool(place))
    }
}

/// As the system tells it without changing it; the usual one where it does not.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
}
