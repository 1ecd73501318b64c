//! Worker pool of one case: starts the workers, leads them through phases, and ends them.

use crate::{
    BenchTarget, Interrupt, cpu,
    hosts::Hosts,
    messages::{Work, WorkerCommand, WorkerMessage, WorkerPhase},
};
use base::Problem;
use serde::Serialize;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// Result of a phase, over all workers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PhaseResult {
    /// Seconds from the first start to the last end.
    pub seconds: f64,
    /// Processor seconds that the workers used.
    pub workers_cpu: f64,
    /// Processor seconds that the nodes used, if they run on this machine.
    pub nodes_cpu: f64,
}

/// Workers that wait for a phase.
pub struct WorkerPool {
    workers: Vec<WorkerProcess>,
    /// Processes of nodes whose processor time is counted.
    nodes: Vec<u32>,
    interrupt: Interrupt,
}

struct WorkerProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Setup of all workers of a case.
pub struct WorkerPoolSpec<'a> {
    pub program: &'a Path,
    pub target: &'a BenchTarget,
    /// Directory in which all workers work.
    pub directory: &'a str,
    pub work: Work,
    /// The host of each worker; without `on` all are on this host.
    pub hosts: &'a [u32],
    pub on: Option<&'a Hosts>,
    pub nodes: Vec<u32>,
    pub interrupt: &'a Interrupt,
}

impl WorkerPool {
    /// Starts a worker for each of `spec.hosts`, and waits until all are ready.
    pub fn start(spec: WorkerPoolSpec<'_>) -> Result<Self, Problem> {
        let mut worker_pool = Self { workers: Vec::new(), nodes: spec.nodes, interrupt: spec.interrupt.clone() };
        for (worker, host) in (0..).zip(spec.hosts) {
            let (target, directory, work) = (spec.target.clone(), spec.directory.to_owned(), spec.work.clone());
            let command_message = WorkerCommand { target, directory, worker, work };
            let command =
                spec.on.map_or_else(|| Command::new(spec.program), |hosts| hosts.command(*host, spec.program));
            worker_pool.workers.push(WorkerProcess::start(command, &command_message)?);
        }
        for worker in &mut worker_pool.workers {
            match worker.receive(&worker_pool.interrupt)? {
                WorkerMessage::Ready => {}
                other => return Err(unexpected_reply(&other)),
            }
        }
        Ok(worker_pool)
    }

    /// Runs one phase in all workers at once.
    pub fn phase(&mut self, name: &str) -> Result<PhaseResult, Problem> {
        let before = cpu::process_seconds(&self.nodes);
        for worker in &mut self.workers {
            worker.send(name)?;
        }
        let done = self
            .workers
            .iter_mut()
            .map(|worker| worker.done(&self.interrupt))
            .collect::<Result<Vec<WorkerPhase>, Problem>>()?;
        let began = done.iter().map(|done| done.began).fold(f64::INFINITY, f64::min);
        let ended = done.iter().map(|done| done.ended).fold(0.0, f64::max);
        let workers_cpu = done.iter().map(|done| done.cpu).sum();
        Ok(PhaseResult { seconds: ended - began, workers_cpu, nodes_cpu: cpu::process_seconds(&self.nodes) - before })
    }
}

impl WorkerProcess {
    fn start(mut command: Command, command_message: &WorkerCommand) -> Result<Self, Problem> {
        let mut child = command
            .arg("bench-worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Problem::new(format!("a worker does not start: {error}")))?;
        let input = child.stdin.take().expect("it is a pipe");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut worker = Self { child, input, output };
        worker.send(&serde_json::to_string(command_message).expect("an order is JSON"))?;
        Ok(worker)
    }

    fn send(&mut self, line: &str) -> Result<(), Problem> {
        // A worker that failed has already sent the reason, which is read next.
        match writeln!(self.input, "{line}") {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Problem::new(format!("a worker has closed its input: {error}")))
            }
            _ => Ok(()),
        }
    }

    fn receive(&mut self, interrupt: &Interrupt) -> Result<WorkerMessage, Problem> {
        if self.output.buffer().is_empty() {
            interrupt.wait(self.output.get_ref())?;
        }
        let mut line = String::new();
        let received = self.output.read_line(&mut line);
        let unexpected_reply =
            || Problem::new(format!("a worker ended without a message (process {})", self.child.id()));
        received.ok().filter(|bytes| *bytes > 0).ok_or_else(unexpected_reply)?;
        serde_json::from_str(&line).map_err(|error| Problem::new(format!("a worker sent `{}`: {error}", line.trim())))
    }

    fn done(&mut self, interrupt: &Interrupt) -> Result<WorkerPhase, Problem> {
        match self.receive(interrupt)? {
            WorkerMessage::Done(done) => Ok(done),
            other => Err(unexpected_reply(&other)),
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // A busy worker must be killed; an idle one would end with its input.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn unexpected_reply(message: &WorkerMessage) -> Problem {
    match message {
        WorkerMessage::Failed(why) => Problem::new(format!("a worker: {why}")),
        other => Problem::new(format!("a worker sent an unexpected message: {other:?}")),
    }
}
