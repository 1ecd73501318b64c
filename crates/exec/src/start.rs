//! From a launch to a running process, or to a reason that tells what to do.

use crate::group::Group;
use crate::launch::{Ending, Launch};
use crate::sys;
use rustix::process::Pid;
use std::fs::{self, File};
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::Receiver;

/// A running process with what we watch of it.
#[derive(Debug)]
pub struct Started {
    pub group: Group,
    /// Readable when the leader has ended.
    pub end: AsyncFd<OwnedFd>,
    pub stdout: Option<Receiver>,
    pub stderr: Option<Receiver>,
}

/// The files that the launch names, open.
#[derive(Debug, Default)]
struct Files {
    stdin: Option<File>,
    stdout: Option<File>,
}

/// Starts it; the error is an `Ending::NotStarted`.
pub async fn start(launch: &Launch) -> Result<Started, Ending> {
    let files = open_files(launch).await.map_err(|error| not_started(launch, error))?;
    spawn(launch, files).map_err(|error| not_started(launch, error))
}

/// Opens on a thread of its own, since a file in a full pool may keep us waiting.
async fn open_files(launch: &Launch) -> io::Result<Files> {
    if launch.stdin.is_none() && launch.stdout.is_none() {
        return Ok(Files::default());
    }
    let (stdin, stdout) = (launch.stdin.clone(), launch.stdout.clone());
    let open = move || {
        let stdin = stdin.map(|path| File::open(&path).map_err(|error| named("standard input", &path, &error)));
        let stdout = stdout.map(|path| File::create(&path).map_err(|error| named("standard output", &path, &error)));
        Ok(Files { stdin: stdin.transpose()?, stdout: stdout.transpose()? })
    };
    tokio::task::spawn_blocking(open).await.map_err(io::Error::other)?
}

fn named(stream: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{stream} `{}`: {error}", path.display()))
}

fn spawn(launch: &Launch, files: Files) -> io::Result<Started> {
    let (stderr, stderr_writer) = io::pipe()?;
    let mut stdout = None;
    let stdout_stdio = match files.stdout {
        Some(file) => Stdio::from(file),
        None => captured(&mut stdout)?,
    };
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).env_clear().envs(launch.env.iter().map(|(name, value)| (name, value)));
    command.current_dir(&launch.cwd).process_group(0);
    command.stdin(files.stdin.map_or_else(Stdio::null, Stdio::from)).stdout(stdout_stdio).stderr(stderr_writer);
    let child = command.spawn()?;
    let leader = Pid::from_child(&child);
    let group = Group::led_by(leader);
    Ok(Started {
        group,
        end: sys::end_of(leader)?,
        stdout: stdout.map(receiver).transpose()?,
        stderr: Some(receiver(stderr)?),
    })
}

/// The writing end of a new pipe; the other end goes to `reader`.
fn captured(reader: &mut Option<PipeReader>) -> io::Result<Stdio> {
    let (ours, theirs) = io::pipe()?;
    *reader = Some(ours);
    Ok(theirs.into())
}

fn receiver(pipe: PipeReader) -> io::Result<Receiver> {
    Receiver::from_owned_fd(pipe.into())
}

fn not_started(launch: &Launch, error: io::Error) -> Ending {
    let hint = hint(launch, &error);
    Ending::NotStarted { program: launch.program.clone(), error, hint }
}

/// What to do about an error of the start: the system's own words name neither the file nor the reason.
fn hint(launch: &Launch, error: &io::Error) -> String {
    let Some(code) = error.raw_os_error() else { return String::new() };
    let program = &launch.program;
    match code {
        libc::ENOENT if !launch.cwd.is_dir() => format!("the working directory `{}` is gone", launch.cwd.display()),
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
    // As much of a first line as the kernel reads itself; a failure leaves it empty.
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
