//! Starts a launch, or explains to the user why it cannot be started.

use crate::files;
use crate::group::Group;
use crate::keeper::Record;
use crate::launch::{Ending, Launch};
use crate::memory_group::{MemoryGroup, MemoryLimit};
use crate::stage::{self, Failed, NOTHING, Place, Plan, Spawned, Step};
use crate::sys;
use crate::tool_path::{ToolFile, ToolPath};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::Receiver;

/// A running process and the resources to watch it.
#[derive(Debug)]
pub struct Started {
    pub group: Group,
    /// The control group that limits its memory. Declared after `group`, so that an early drop
    /// kills the processes first.
    pub memory_group: Option<MemoryGroup>,
    /// Readable when the leader has ended.
    pub end: AsyncFd<OwnedFd>,
    pub stdout: Option<Receiver>,
    pub stderr: Option<Receiver>,
}

/// A new process and our ends of its pipes.
struct Born {
    group: Group,
    memory_group: Option<MemoryGroup>,
    leader: rustix::process::Pid,
    stdout: Option<PipeReader>,
    stderr: PipeReader,
}

/// Starts the process. The error is an `Ending::NotStarted`.
pub async fn start(launch: &Launch) -> Result<Started, Ending> {
    // The calling thread waits until the program runs. Opening files may take long (a file in a
    // full pool), and so may entering a control group (the kernel waits for its other processors).
    // So a blocking thread does these.
    let opens = [&launch.stdin, &launch.stdout].iter().any(|file| matches!(file, Some(ToolFile::Path(_))));
    let born = if !opens && launch.memory.is_none() {
        bear(launch)
    } else {
        let launch = launch.clone();
        let borne = tokio::task::spawn_blocking(move || bear(&launch));
        borne.await.unwrap_or_else(|panic| Err(birth(io::Error::other(panic))))
    };
    let watched = born.and_then(|born| watch(born).map_err(birth));
    watched.map_err(|failed| not_started(launch, failed))
}

fn birth(error: io::Error) -> Failed {
    Failed { step: Step::Birth, error }
}

/// Creates the process. Its program runs when this returns.
fn bear(launch: &Launch) -> Result<Born, Failed> {
    let (stderr, stderr_writer) = io::pipe().map_err(birth)?;
    let (stdout, output) = if let Some(file) = &launch.stdout {
        (None, place(file)?)
    } else {
        let (reader, writer) = io::pipe().map_err(birth)?;
        (Some(reader), Place::Open(OwnedFd::from(writer).into()))
    };
    let record = Record::new();
    let mut memory_group = launch.memory.as_ref().and_then(MemoryLimit::group);
    let plan = Plan {
        program: c_string(launch.program.as_os_str())?,
        args: std::iter::once(launch.program.as_os_str())
            .chain(launch.args.iter().map(OsString::as_os_str))
            .map(c_string)
            .collect::<Result<_, _>>()?,
        env: launch.env.iter().map(|(name, value)| variable(name, value)).collect::<Result<_, _>>()?,
        cwd: place(&launch.cwd)?,
        stdin: launch.stdin.as_ref().map_or_else(|| Ok(Place::Path(NOTHING.to_owned())), place)?,
        stdout: output,
        stderr: stderr_writer.into(),
        files_max: files::of_tools(),
        register: record.as_ref().map(Record::register),
        memory_group: memory_group.as_ref().map(MemoryGroup::procs),
    };
    let Spawned { pid: leader, outside } = stage::spawn(&plan)?;
    if let Some(error) = outside {
        tracing::info!(%error, "a tool could not enter its control group; it runs without the limit of its `memory`");
        memory_group = None;
    }
    Ok(Born { group: Group::led_by(leader, record), memory_group, leader, stdout, stderr })
}

fn watch(born: Born) -> io::Result<Started> {
    let Born { group, memory_group, leader, stdout, stderr } = born;
    let end = sys::end_of(leader)?;
    Ok(Started { group, memory_group, end, stdout: stdout.map(receiver).transpose()?, stderr: Some(receiver(stderr)?) })
}

fn variable(name: &OsStr, value: &OsStr) -> Result<CString, Failed> {
    let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
    c_string(&OsString::from_vec(text))
}

fn c_string(text: &OsStr) -> Result<CString, Failed> {
    CString::new(text.as_bytes()).map_err(|error| birth(error.into()))
}

fn place(file: &ToolFile) -> Result<Place, Failed> {
    let for_child = |path: &ToolPath| path.for_child().map_err(|error| birth(error.into()));
    Ok(match file {
        ToolFile::Path(path) => Place::Path(for_child(path)?),
        ToolFile::Open(open) => Place::Open(open.clone()),
    })
}

fn receiver(pipe: PipeReader) -> io::Result<Receiver> {
    Receiver::from_owned_fd(pipe.into())
}

fn not_started(launch: &Launch, failed: Failed) -> Ending {
    let hint = hint(launch, &failed);
    let Failed { step, error } = failed;
    let named = |stream: &str, path: &ToolFile| io::Error::new(error.kind(), format!("{stream} `{path}`: {error}"));
    let error = match (step, &launch.stdin, &launch.stdout) {
        (Step::Input, Some(path), _) => named("standard input", path),
        (Step::Output, _, Some(path)) => named("standard output", path),
        _ => error,
    };
    Ending::NotStarted { program: launch.program.clone(), error, hint }
}

/// Returns advice about a start error: the message of the system names neither the file nor the
/// reason.
///
/// Only the program is examined, because it is on the host; the other paths may be in our mount.
fn hint(launch: &Launch, failed: &Failed) -> String {
    let Some(code) = failed.error.raw_os_error() else { return String::new() };
    let program = &launch.program;
    match (failed.step, code) {
        (Step::Directory, libc::ENOENT | libc::ENOTDIR) => {
            return format!("the working directory `{}` is gone", launch.cwd);
        }
        (Step::Directory, _) => return format!("the working directory `{}` cannot be entered", launch.cwd),
        (Step::Input | Step::Output, _) => return String::new(),
        (Step::Birth | Step::Program, _) => {}
    }
    match code {
        libc::ENOENT if !program.exists() => "there is no such file; install it, or correct `command` or `path` of the tool".into(),
        libc::ENOENT => missing_interpreter(program),
        libc::EACCES if !is_executable(program) => format!("it is not executable; try: chmod +x {}", program.display()),
        libc::EACCES => "its interpreter or a folder on the way may not be used, or its file system is mounted noexec".into(),
        libc::ENOEXEC => "it is neither a program for this machine nor a script whose first line names its interpreter, such as `#!/bin/sh`".into(),
        libc::E2BIG => "its arguments and environment are too long; pass arrays by a list: `array = \"list\"`".into(),
        libc::ETXTBSY => "somebody still writes to the program".into(),
        libc::EMFILE | libc::ENFILE => "too many files are open; raise the limit (ulimit -n) or lower --slots".into(),
        libc::EAGAIN => "too many processes run; raise the limit (ulimit -u) or lower --slots".into(),
        libc::ENOSYS => "Linux 5.3 or later is needed".into(),
        _ => String::new(),
    }
}

fn missing_interpreter(program: &Path) -> String {
    let mut start = Vec::new();
    // Read as much of the first line as the kernel does; on failure it stays empty.
    let _ = File::open(program).and_then(|file| file.take(256).read_to_end(&mut start));
    let first = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match first.strip_prefix(b"#!") {
        Some(line) => {
            let line = String::from_utf8_lossy(line);
            let name = line.split_whitespace().next().unwrap_or_default();
            let windows = if line.ends_with('\r') { "; its lines end as on Windows: convert them" } else { "" };
            format!("its first line asks for the interpreter `{name}`, which is not there{windows}")
        }
        None => "the loader (ld.so) that it was linked for is not on this machine; install or build it for this system"
            .into(),
    }
}

fn is_executable(program: &Path) -> bool {
    fs::metadata(program).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
