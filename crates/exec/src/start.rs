//! Starts a launch, or explains to the user why it cannot be started.

use crate::child::{self, ChildFile, ChildSpec, DEV_NULL, FailedStep, SetupStep, SpawnedChild};
use crate::group::ProcessGroup;
use crate::launch::{ExitReason, Launch};
use crate::memory_group::{MemoryGroup, MemoryLimit};
use crate::reaper::ReaperEntry;
use crate::rlimits;
use crate::sys;
use crate::tool_path::{PathOrFd, ToolPath};
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
pub struct RunningProcess {
    pub group: ProcessGroup,
    /// The control group that limits its memory. Declared after `group`, so that an early drop
    /// kills the processes first.
    pub memory_group: Option<MemoryGroup>,
    /// Readable when the leader has ended.
    pub end: AsyncFd<OwnedFd>,
    pub stdout: Option<Receiver>,
    pub stderr: Option<Receiver>,
}

/// A new process and our ends of its pipes.
struct SpawnedProcess {
    group: ProcessGroup,
    memory_group: Option<MemoryGroup>,
    leader: rustix::process::Pid,
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
}

/// Starts the process. The error is an `ExitReason::NotStarted`.
pub async fn start(launch: &Launch) -> Result<RunningProcess, ExitReason> {
    // The calling thread waits until the program runs. Opening files may take long (a file in a
    // full pool), and so may entering a control group (the kernel waits for its other processors).
    // So a blocking thread does these.
    let opens =
        [&launch.stdin, &launch.stdout, &launch.stderr].iter().any(|file| matches!(file, Some(PathOrFd::Path(_))));
    let spawned = if !opens && launch.memory.is_none() {
        spawn_process(launch)
    } else {
        let launch = launch.clone();
        let joined = tokio::task::spawn_blocking(move || spawn_process(&launch));
        joined.await.unwrap_or_else(|panic| Err(creation_failed(io::Error::other(panic))))
    };
    let watched = spawned.and_then(|spawned| watch(spawned).map_err(creation_failed));
    watched.map_err(|failed| not_started(launch, failed))
}

fn creation_failed(error: io::Error) -> FailedStep {
    FailedStep { step: SetupStep::Create, error }
}

/// Creates the process. Its program runs when this returns.
fn spawn_process(launch: &Launch) -> Result<SpawnedProcess, FailedStep> {
    let (stdout, output) = file_or_pipe(launch.stdout.as_ref())?;
    let (stderr, errors) = file_or_pipe(launch.stderr.as_ref())?;
    let entry = ReaperEntry::new();
    let mut memory_group = launch.memory.as_ref().and_then(MemoryLimit::group);
    let spec = ChildSpec {
        program: c_string(launch.program.as_os_str())?,
        args: std::iter::once(launch.program.as_os_str())
            .chain(launch.args.iter().map(OsString::as_os_str))
            .map(c_string)
            .collect::<Result<_, _>>()?,
        env: launch.env.iter().map(|(name, value)| variable(name, value)).collect::<Result<_, _>>()?,
        cwd: child_file(&launch.cwd)?,
        stdin: launch.stdin.as_ref().map_or_else(|| Ok(ChildFile::Path(DEV_NULL.to_owned())), child_file)?,
        stdout: output,
        stderr: errors,
        files_max: rlimits::for_tools(),
        reaper_slot: entry.as_ref().map(ReaperEntry::slot_position),
        memory_group: memory_group.as_ref().map(MemoryGroup::procs),
    };
    let SpawnedChild { pid: leader, group_error } = child::spawn(&spec)?;
    if let Some(error) = group_error {
        tracing::info!(%error, "a tool could not enter its control group; it runs without the limit of its `memory`");
        memory_group = None;
    }
    Ok(SpawnedProcess { group: ProcessGroup::new(leader, entry), memory_group, leader, stdout, stderr })
}

/// A file that the child writes, or a pipe with our end of it.
fn file_or_pipe(file: Option<&PathOrFd>) -> Result<(Option<PipeReader>, ChildFile), FailedStep> {
    if let Some(file) = file {
        return Ok((None, child_file(file)?));
    }
    let (reader, writer) = io::pipe().map_err(creation_failed)?;
    Ok((Some(reader), ChildFile::Open(OwnedFd::from(writer).into())))
}

fn watch(spawned: SpawnedProcess) -> io::Result<RunningProcess> {
    let SpawnedProcess { group, memory_group, leader, stdout, stderr } = spawned;
    let end = sys::exit_fd(leader)?;
    Ok(RunningProcess {
        group,
        memory_group,
        end,
        stdout: stdout.map(receiver).transpose()?,
        stderr: stderr.map(receiver).transpose()?,
    })
}

fn variable(name: &OsStr, value: &OsStr) -> Result<CString, FailedStep> {
    let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
    c_string(&OsString::from_vec(text))
}

fn c_string(text: &OsStr) -> Result<CString, FailedStep> {
    CString::new(text.as_bytes()).map_err(|error| creation_failed(error.into()))
}

fn child_file(file: &PathOrFd) -> Result<ChildFile, FailedStep> {
    let for_child = |path: &ToolPath| path.for_child().map_err(|error| creation_failed(error.into()));
    Ok(match file {
        PathOrFd::Path(path) => ChildFile::Path(for_child(path)?),
        PathOrFd::Open(open) => ChildFile::Open(open.clone()),
    })
}

fn receiver(pipe: PipeReader) -> io::Result<Receiver> {
    Receiver::from_owned_fd(pipe.into())
}

fn not_started(launch: &Launch, failed: FailedStep) -> ExitReason {
    let hint = hint(launch, &failed);
    let FailedStep { step, error } = failed;
    let named = |stream: &str, path: &PathOrFd| io::Error::new(error.kind(), format!("{stream} `{path}`: {error}"));
    let stream = match step {
        SetupStep::Input => launch.stdin.as_ref().map(|path| named("standard input", path)),
        SetupStep::Output => launch.stdout.as_ref().map(|path| named("standard output", path)),
        SetupStep::Errors => launch.stderr.as_ref().map(|path| named("standard error", path)),
        SetupStep::Create | SetupStep::Directory | SetupStep::Program => None,
    };
    let error = stream.unwrap_or(error);
    ExitReason::NotStarted { program: launch.program.clone(), error, hint }
}

/// Returns advice about a start error: the message of the system names neither the file nor the
/// reason.
///
/// Only the program is examined, because it is on the host; the other paths may be in our mount.
fn hint(launch: &Launch, failed: &FailedStep) -> String {
    let Some(code) = failed.error.raw_os_error() else { return String::new() };
    let program = &launch.program;
    match (failed.step, code) {
        (SetupStep::Directory, libc::ENOENT | libc::ENOTDIR) => {
            return format!("the working directory `{}` is gone", launch.cwd);
        }
        (SetupStep::Directory, _) => return format!("the working directory `{}` cannot be entered", launch.cwd),
        (SetupStep::Input | SetupStep::Output | SetupStep::Errors, _) => return String::new(),
        (SetupStep::Create | SetupStep::Program, _) => {}
    }
    match code {
        libc::ENOENT if !program.exists() => "there is no such file; install it, or correct `command` or `path` of the tool".into(),
        libc::ENOENT => missing_interpreter(program),
        libc::EACCES if !is_executable(program) => format!("it is not executable; try: chmod +x {}", program.display()),
        libc::EACCES => "its interpreter or a directory of its path cannot be accessed, or its file system is mounted noexec".into(),
        libc::ENOEXEC => "it is neither a program for this machine nor a script whose first line names its interpreter, such as `#!/bin/sh`".into(),
        libc::E2BIG => "its arguments and environment are too long; pass arrays by a list: `array = \"list\"`".into(),
        libc::ETXTBSY => "the program is still open for writing".into(),
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
            format!("its first line asks for the interpreter `{name}`, which does not exist{windows}")
        }
        None => "the loader (ld.so) that it was linked for is not on this machine; install or build it for this system"
            .into(),
    }
}

fn is_executable(program: &Path) -> bool {
    fs::metadata(program).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
