//! Runs one process from its start to its end.
//!
//! ```text
//! runs --time-out, cancel: TERM--> asked --grace over: KILL--> killed --`KILL_WAIT`--> given up
//!   \                                \                            \
//!    \--------------------------------\----------------------------\--> ended: rest killed, reaped
//!     \--memory limit exceeded: KILL-----------------------> killed
//! ```

use crate::capture::Captured;
use crate::group::Group;
use crate::launch::{Ending, Launch, Report, Usage};
use crate::memory_group::{Excess, MemoryGroup};
use crate::memory_use::MemoryUse;
use crate::start::{Started, start};
use rustix::process::Signal;
use std::cell::RefCell;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, SystemTime};
use tokio::net::unix::pipe::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum wait for a killed process to end; one that takes longer hangs in the kernel.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// Maximum size of a pipe for an unprivileged user on Linux: at most this much is left in a pipe
/// after its writers are gone.
const PIPE_BYTES_MAX: usize = 1 << 20;

/// Runs a command to its end. Must be called within a tokio runtime with I/O and time. Dropping the
/// future kills the whole process group.
pub async fn run(launch: Launch, cancel: CancellationToken) -> Report {
    let (started_at, started) = (SystemTime::now(), Instant::now());
    let (mut stdout, mut stderr) = (Captured::default(), Captured::default());
    let process = tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Ending::Cancelled),
        process = start(&launch) => process,
    };
    let (ending, usage) = match process {
        Ok(process) => {
            let memory = MemoryUse::of(process.group.leader(), process.memory_group.is_some());
            Watch { process, memory, stdout: &mut stdout, stderr: &mut stderr }.end(&launch, &cancel).await
        }
        Err(ending) => (ending, Usage::default()),
    };
    let (started, ended) = (started.into_std(), Instant::now().into_std());
    Report { ending, stdout, stderr, started_at, started, ended, usage }
}

/// A running process and the buffers of its output.
struct Watch<'a> {
    process: Started,
    memory: MemoryUse,
    stdout: &'a mut Captured,
    stderr: &'a mut Captured,
}

/// Progress of ending a process.
enum Stage {
    /// It runs, without a request to end.
    Runs,
    /// It got SIGTERM for this reason.
    Asked(Ending),
    /// It got SIGKILL for this reason.
    Killed(Ending),
}

impl Watch<'_> {
    async fn end(mut self, launch: &Launch, cancel: &CancellationToken) -> (Ending, Usage) {
        let mut stage = self.until_end(launch, cancel).await;
        let ended = self.process.group.finish().await;
        if let (Stage::Runs, Some(excess)) = (&stage, self.memory_group().and_then(|group| group.excess(None))) {
            stage = Stage::Killed(over(excess));
        }
        if let (Stage::Killed(Ending::OverMemory { .. }), Some(group)) = (&stage, self.memory_group()) {
            group.kill();
        }
        drain(self.process.stdout.as_ref(), self.stdout);
        drain(self.process.stderr.as_ref(), self.stderr);
        let (ending, usage) = told(stage, ended);
        (ending, Usage { memory_peak: self.memory.peak().or(usage.rss_max), ..usage })
    }

    /// Waits for the leader's end, or gives up if it does not end after SIGKILL.
    async fn until_end(&mut self, launch: &Launch, cancel: &CancellationToken) -> Stage {
        let mut stage = Stage::Runs;
        let mut deadline = launch.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let look = Instant::from_std(self.memory.next_look());
            let (wanted, first) = tokio::select! {
                _ = self.process.end.readable() => return stage,
                () = hear(&mut self.process.stdout, self.stdout) => continue,
                () = hear(&mut self.process.stderr, self.stderr) => continue,
                () = tokio::time::sleep_until(look) => match self.look() {
                    Some(excess) if !matches!(stage, Stage::Killed(_)) => (over(excess), Signal::KILL),
                    _ => continue,
                },
                () = cancel.cancelled(), if matches!(stage, Stage::Runs) => (Ending::Cancelled, Signal::TERM),
                () = until(deadline) => (Ending::TimedOut, Signal::TERM),
            };
            if matches!(stage, Stage::Killed(_)) {
                return stage;
            }
            let wait;
            (stage, wait) = press(stage, (wanted, first), launch.grace, &self.process.group);
            deadline = Instant::now().checked_add(wait);
        }
    }

    fn memory_group(&self) -> Option<&MemoryGroup> {
        self.process.memory_group.as_ref()
    }

    /// Samples the memory. Returns the excess if it is above the limit.
    fn look(&mut self) -> Option<Excess> {
        let group = self.process.memory_group.as_ref();
        let held = self.memory.look(group);
        group?.excess(held)
    }
}

fn over(Excess { own, held }: Excess) -> Ending {
    Ending::OverMemory { own, held }
}

/// Takes the next, harder step to end the process. Returns the new stage and how long to wait for
/// its effect. `first` is the signal for a process that still runs without a request to end.
fn press(stage: Stage, (wanted, first): (Ending, Signal), grace: Duration, group: &Group) -> (Stage, Duration) {
    match stage {
        Stage::Runs if first == Signal::KILL => {
            group.signal(Signal::KILL);
            (Stage::Killed(wanted), KILL_WAIT)
        }
        Stage::Runs => {
            group.signal(Signal::TERM);
            (Stage::Asked(wanted), grace)
        }
        Stage::Asked(reason) | Stage::Killed(reason) => {
            group.signal(Signal::KILL);
            (Stage::Killed(reason), KILL_WAIT)
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Waits for output and appends it; never returns once the stream has ended.
async fn hear(stream: &mut Option<Receiver>, heard: &mut Captured) {
    let Some(pipe) = stream else { return std::future::pending().await };
    let open = pipe.readable().await.is_ok() && !matches!(read(pipe, heard), Ok(0));
    if !open {
        *stream = None;
    }
}

/// Reads the bytes left in the pipe, without waiting for its end: a process that left the group may
/// still hold it open.
fn drain(stream: Option<&Receiver>, heard: &mut Captured) {
    let Some(pipe) = stream else { return };
    let mut left = PIPE_BYTES_MAX;
    while let Ok(count @ 1..) = read(pipe, heard) {
        left = left.saturating_sub(count);
        if left == 0 {
            return;
        }
    }
}

/// Reads once, without waiting.
fn read(pipe: &Receiver, heard: &mut Captured) -> io::Result<usize> {
    thread_local!(static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 << 10]));
    SCRATCH.with_borrow_mut(|scratch| {
        let count = pipe.try_read(scratch)?;
        heard.push(&scratch[..count]);
        Ok(count)
    })
}

fn told(stage: Stage, ended: io::Result<Option<(ExitStatus, Usage)>>) -> (Ending, Usage) {
    let (own, usage) = match ended {
        Ok(Some((status, usage))) => (own_ending(status), usage),
        Ok(None) => (Ending::Unknown { error: io::ErrorKind::TimedOut.into() }, Usage::default()),
        Err(error) => (Ending::Unknown { error }, Usage::default()),
    };
    match stage {
        Stage::Runs => (own, usage),
        Stage::Asked(reason) | Stage::Killed(reason) => (reason, usage),
    }
}

fn own_ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, signal) => Ending::Signalled(signal.unwrap_or(0)),
    }
}
