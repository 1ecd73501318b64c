//! What is started, and what is told when it has ended.

use crate::capture::Captured;
use crate::memory_group::MemoryLimit;
use crate::tool_path::ToolFile;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// How long a process that was asked to end may take before it is killed: what batch systems commonly give.
pub const GRACE: Duration = Duration::from_secs(2);

/// A command with everything that it depends on.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program, absolute; see `which`.
    pub program: PathBuf,
    /// Its arguments, without the program's own name.
    pub args: Vec<OsString>,
    /// Its whole environment: nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub cwd: ToolFile,
    /// The file on its standard input; None: empty.
    pub stdin: Option<ToolFile>,
    /// The file that its standard output is written to, made or emptied first where it is a path; None: captured.
    pub stdout: Option<ToolFile>,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// How long it may take to end after SIGTERM.
    pub grace: Duration,
    /// How much memory it may take; None: as much as there is.
    pub memory: Option<MemoryLimit>,
}

impl Launch {
    /// The program alone: no arguments, an empty environment, no time-out.
    pub fn new(program: impl Into<PathBuf>, cwd: impl Into<ToolFile>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: cwd.into(),
            stdin: None,
            stdout: None,
            timeout: None,
            grace: GRACE,
            memory: None,
        }
    }
}

/// How a process ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Ending {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal that we did not send.
    Signalled(i32),
    /// We ended it, since it ran longer than its time-out.
    TimedOut,
    /// It was killed, since it took more memory than its limit.
    OverMemory {
        /// Bytes of its own that it was allowed.
        own: u64,
        /// Bytes that it held; None if the kernel killed it for all that its control group held,
        /// files among it.
        held: Option<u64>,
    },
    /// We ended it, since the caller cancelled it.
    Cancelled,
    /// It never ran.
    NotStarted {
        /// What could not be started.
        program: PathBuf,
        /// What the system said.
        error: io::Error,
        /// What to do about it; empty if we know nothing better than the error.
        hint: String,
    },
    /// It ended, but the system does not tell us how: our own parent made us ignore SIGCHLD.
    Unknown {
        /// What the system said.
        error: io::Error,
    },
}

impl Ending {
    /// Whether it exited with 0.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Exited(0))
    }
}

impl fmt::Display for Ending {
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

/// The name of a signal that ends processes, as `kill -l` writes it.
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

/// What a process and the descendants that it waited for took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user mode.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// The most memory that one of these processes held, in bytes. None if that was less than what we ourselves ever
    /// held: the kernel counts the starting process in, so it cannot be told.
    pub rss_max: Option<u64>,
    /// The most memory of their own (anonymous: not files, nor the pool) that they held together, in bytes, as far as it was
    /// seen by looking now and then. None if they ended before the first look and `rss_max` cannot be told either.
    pub memory_peak: Option<u64>,
}

/// How a launch went.
#[derive(Debug)]
pub struct Report {
    /// How it ended.
    pub ending: Ending,
    /// What it wrote to standard output; empty if that went to a file.
    pub stdout: Captured,
    /// What it wrote to standard error.
    pub stderr: Captured,
    /// When it was started, for people.
    pub started_at: SystemTime,
    /// When it was started.
    pub started: Instant,
    /// When nothing of it was alive any more.
    pub ended: Instant,
    /// What it took; zero if it never ran.
    pub usage: Usage,
}

impl Report {
    /// How long it took in all.
    pub fn wall(&self) -> Duration {
        self.ended.duration_since(self.started)
    }
}
