//! The command to run, and the report of its run.

use crate::capture::OutputCapture;
use crate::memory_group::MemoryLimit;
use crate::tool_path::PathOrFd;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// Default time between SIGTERM and SIGKILL: a value common to batch systems.
pub const GRACE: Duration = Duration::from_secs(2);

/// A command with its whole context.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Absolute path of the program; see `which`.
    pub program: PathBuf,
    /// Arguments, without the program's own name.
    pub args: Vec<OsString>,
    /// The whole environment; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory.
    pub cwd: PathOrFd,
    /// File for standard input; `None` means empty.
    pub stdin: Option<PathOrFd>,
    /// File for standard output, created or truncated if it is a path; `None` means captured.
    pub stdout: Option<PathOrFd>,
    /// File for standard error, likewise.
    pub stderr: Option<PathOrFd>,
    /// Maximum run time.
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Memory limit; `None` means unlimited.
    pub memory: Option<MemoryLimit>,
}

impl Launch {
    /// Creates a launch without arguments, environment or time-out.
    pub fn new(program: impl Into<PathBuf>, cwd: impl Into<PathOrFd>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: cwd.into(),
            stdin: None,
            stdout: None,
            stderr: None,
            timeout: None,
            grace: GRACE,
            memory: None,
        }
    }
}

/// How a process ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExitReason {
    /// It exited with this code.
    Exited(i32),
    /// It was killed by a signal that we did not send.
    Signalled(i32),
    /// It was ended after its time-out.
    TimedOut,
    /// It was killed because it used more memory than its limit.
    OverMemory {
        /// Limit of its own memory in bytes.
        own: u64,
        /// Bytes of its own memory; `None` if the kernel killed it for the total memory of its
        /// control group, files included.
        held: Option<u64>,
    },
    /// It was ended because the caller cancelled it.
    Cancelled,
    /// It could not be started.
    NotStarted {
        /// The program.
        program: PathBuf,
        /// The error of the system.
        error: io::Error,
        /// Advice for the user; empty if there is none beyond the error.
        hint: String,
    },
    /// It ended, but the system does not report how: SIGCHLD is ignored, as inherited from our
    /// parent.
    Unknown {
        /// The error of the system.
        error: io::Error,
    },
}

impl ExitReason {
    /// Returns true if the process exited with 0.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Exited(0))
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(out, "exit {code}"),
            Self::Signalled(signal) => write!(out, "killed by signal {signal} ({})", signal_name(*signal)),
            Self::TimedOut => write!(out, "ended after its time-out"),
            Self::OverMemory { own, .. } => write!(out, "killed: it took more than {own} bytes of memory"),
            Self::Cancelled => write!(out, "cancelled"),
            Self::Unknown { error } => {
                write!(out, "ended in an unknown way ({error})\nhint: start tidemill without ignoring SIGCHLD")
            }
            Self::NotStarted { program, error, hint } => {
                write!(out, "`{}` could not be started: {error}", program.display())?;
                if hint.is_empty() { Ok(()) } else { write!(out, "\nhint: {hint}") }
            }
        }
    }
}

/// Returns the name of a fatal signal, as in `kill -l`.
fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => "HUP",
        libc::SIGINT => "INT",
        libc::SIGQUIT => "QUIT",
        libc::SIGILL => "ILL",
        libc::SIGTRAP => "TRAP",
        libc::SIGABRT => "ABRT",
        libc::SIGBUS => "BUS",
        libc::SIGFPE => "FPE",
        libc::SIGKILL => "KILL: by a person, a batch system or the kernel when memory ran out",
        libc::SIGSEGV => "SEGV",
        libc::SIGPIPE => "PIPE",
        libc::SIGALRM => "ALRM",
        libc::SIGTERM => "TERM",
        libc::SIGXCPU => "XCPU",
        libc::SIGXFSZ => "XFSZ",
        libc::SIGSYS => "SYS",
        _ => "see `kill -l`",
    }
}

/// Resource usage of a process and the descendants that it waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Maximum resident memory of any one of these processes in bytes. `None` if it was below our
    /// own maximum: the kernel's count of a child starts with that of its parent.
    pub rss_max: Option<u64>,
    /// Maximum of their combined own memory (anonymous: neither files nor the pool) in bytes, by
    /// sampling. Falls back to `rss_max` if they ended before the first sample; `None` if that is
    /// unknown too.
    pub memory_peak: Option<u64>,
}

/// The report of a run.
#[derive(Debug)]
pub struct ProcessReport {
    /// How the process ended.
    pub ending: ExitReason,
    /// Captured standard output; empty if that went to a file.
    pub stdout: OutputCapture,
    /// Captured standard error.
    pub stderr: OutputCapture,
    /// Wall-clock time of the start, for display.
    pub started_at: SystemTime,
    /// Time of the start.
    pub started: Instant,
    /// Time at which no process of the group was alive any more.
    pub ended: Instant,
    /// Resource usage; zero if the program never ran.
    pub usage: ResourceUsage,
}

impl ProcessReport {
    /// Total run time.
    pub fn wall(&self) -> Duration {
        self.ended.duration_since(self.started)
    }
}
