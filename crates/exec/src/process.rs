//! Runs one process from its start to its end.
//!
//! ```text
//! runs --time-out, cancel: TERM--> asked --grace over: KILL--> killed --`KILL_WAIT`--> given up
//!   \                                \                            \
//!    \--------------------------------\----------------------------\--> ended: rest killed, reaped
//!     \--memory limit exceeded: KILL-----------------------> killed
//! ```

use crate::capture::OutputCapture;
use crate::group::ProcessGroup;
use crate::launch::{ExitReason, Launch, ProcessReport, ResourceUsage};
use crate::memory_group::{MemoryExcess, MemoryGroup};
use crate::memory_use::MemorySampler;
use crate::start::{RunningProcess, start};
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
pub async fn run(launch: Launch, cancel: CancellationToken) -> ProcessReport {
    let (started_at, started) = (SystemTime::now(), Instant::now());
    let (mut stdout, mut stderr) = (OutputCapture::default(), OutputCapture::default());
    let process = tokio::select! {
        biased;
        () = cancel.cancelled() => Err(ExitReason::Cancelled),
        process = start(&launch) => process,
    };
    let (ending, usage) = match process {
        Ok(process) => {
            let memory = MemorySampler::new(process.group.leader(), process.memory_group.is_some());
            Supervisor { process, memory, stdout: &mut stdout, stderr: &mut stderr }.end(&launch, &cancel).await
        }
        Err(ending) => (ending, ResourceUsage::default()),
    };
    let (started, ended) = (started.into_std(), Instant::now().into_std());
    ProcessReport { ending, stdout, stderr, started_at, started, ended, usage }
}

/// A running process and the buffers of its output.
struct Supervisor<'a> {
    process: RunningProcess,
    memory: MemorySampler,
    stdout: &'a mut OutputCapture,
    stderr: &'a mut OutputCapture,
}

/// Progress of ending a process.
enum EndStage {
    /// It runs, without a request to end.
    Running,
    /// It got SIGTERM for this reason.
    Terminating(ExitReason),
    /// It got SIGKILL for this reason.
    Killed(ExitReason),
}

impl Supervisor<'_> {
    async fn end(mut self, launch: &Launch, cancel: &CancellationToken) -> (ExitReason, ResourceUsage) {
        let mut stage = self.wait_for_end(launch, cancel).await;
        let ended = self.process.group.finish().await;
        if let (EndStage::Running, Some(excess)) = (&stage, self.memory_group().and_then(|group| group.excess(None))) {
            stage = EndStage::Killed(over_memory(excess));
        }
        if let (EndStage::Killed(ExitReason::OverMemory { .. }), Some(group)) = (&stage, self.memory_group()) {
            group.kill();
        }
        drain(self.process.stdout.as_ref(), self.stdout);
        drain(self.process.stderr.as_ref(), self.stderr);
        let (ending, usage) = reason_and_usage(stage, ended);
        (ending, ResourceUsage { memory_peak: self.memory.peak().or(usage.rss_max), ..usage })
    }

    /// Waits for the leader's end, or gives up if it does not end after SIGKILL.
    async fn wait_for_end(&mut self, launch: &Launch, cancel: &CancellationToken) -> EndStage {
        let mut stage = EndStage::Running;
        let mut deadline = launch.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let next_sample = Instant::from_std(self.memory.next_sample());
            let (wanted, first) = tokio::select! {
                _ = self.process.end.readable() => return stage,
                () = read_output(&mut self.process.stdout, self.stdout) => continue,
                () = read_output(&mut self.process.stderr, self.stderr) => continue,
                () = tokio::time::sleep_until(next_sample) => match self.sample_memory() {
                    Some(excess) if !matches!(stage, EndStage::Killed(_)) => (over_memory(excess), Signal::KILL),
                    _ => continue,
                },
                () = cancel.cancelled(), if matches!(stage, EndStage::Running) => (ExitReason::Cancelled, Signal::TERM),
                () = sleep_until_deadline(deadline) => (ExitReason::TimedOut, Signal::TERM),
            };
            if matches!(stage, EndStage::Killed(_)) {
                return stage;
            }
            let wait;
            (stage, wait) = escalate(stage, (wanted, first), launch.grace, &self.process.group);
            deadline = Instant::now().checked_add(wait);
        }
    }

    fn memory_group(&self) -> Option<&MemoryGroup> {
        self.process.memory_group.as_ref()
    }

    /// Samples the memory. Returns the excess if it is above the limit.
    fn sample_memory(&mut self) -> Option<MemoryExcess> {
        let group = self.process.memory_group.as_ref();
        let held = self.memory.sample(group);
        group?.excess(held)
    }
}

fn over_memory(MemoryExcess { own, held }: MemoryExcess) -> ExitReason {
    ExitReason::OverMemory { own, held }
}

/// Takes the next, harder step to end the process. Returns the new stage and how long to wait for
/// its effect. `first` is the signal for a process that still runs without a request to end.
fn escalate(
    stage: EndStage,
    (wanted, first): (ExitReason, Signal),
    grace: Duration,
    group: &ProcessGroup,
) -> (EndStage, Duration) {
    match stage {
        EndStage::Running if first == Signal::KILL => {
            group.signal(Signal::KILL);
            (EndStage::Killed(wanted), KILL_WAIT)
        }
        EndStage::Running => {
            group.signal(Signal::TERM);
            (EndStage::Terminating(wanted), grace)
        }
        EndStage::Terminating(reason) | EndStage::Killed(reason) => {
            group.signal(Signal::KILL);
            (EndStage::Killed(reason), KILL_WAIT)
        }
    }
}

async fn sleep_until_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Waits for output and appends it; never returns once the stream has ended.
async fn read_output(stream: &mut Option<Receiver>, capture: &mut OutputCapture) {
    let Some(pipe) = stream else { return std::future::pending().await };
    let open = pipe.readable().await.is_ok() && !matches!(read(pipe, capture), Ok(0));
    if !open {
        *stream = None;
    }
}

/// Reads the bytes left in the pipe, without waiting for its end: a process that left the group may
/// still hold it open.
fn drain(stream: Option<&Receiver>, capture: &mut OutputCapture) {
    let Some(pipe) = stream else { return };
    let mut left = PIPE_BYTES_MAX;
    while let Ok(count @ 1..) = read(pipe, capture) {
        left = left.saturating_sub(count);
        if left == 0 {
            return;
        }
    }
}

/// Reads once, without waiting.
fn read(pipe: &Receiver, capture: &mut OutputCapture) -> io::Result<usize> {
    thread_local!(static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 << 10]));
    SCRATCH.with_borrow_mut(|scratch| {
        let count = pipe.try_read(scratch)?;
        capture.push(&scratch[..count]);
        Ok(count)
    })
}

fn reason_and_usage(
    stage: EndStage,
    ended: io::Result<Option<(ExitStatus, ResourceUsage)>>,
) -> (ExitReason, ResourceUsage) {
    let (own, usage) = match ended {
        Ok(Some((status, usage))) => (reason_of_status(status), usage),
        Ok(None) => (ExitReason::Unknown { error: io::ErrorKind::TimedOut.into() }, ResourceUsage::default()),
        Err(error) => (ExitReason::Unknown { error }, ResourceUsage::default()),
    };
    match stage {
        EndStage::Running => (own, usage),
        EndStage::Terminating(reason) | EndStage::Killed(reason) => (reason, usage),
    }
}

fn reason_of_status(status: ExitStatus) -> ExitReason {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitReason::Exited(code),
        (None, signal) => ExitReason::Signalled(signal.unwrap_or(0)),
    }
}
