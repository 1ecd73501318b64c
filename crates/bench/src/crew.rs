//! Worker pool of one case: starts the workers, leads them through phases, and ends them.

use crate::{
    Interrupt, Target, cpu,
    hosts::Hosts,
    order::{Done, Order, Said, Work},
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
pub struct Phase {
    /// Seconds from the first start to the last end.
    pub seconds: f64,
    /// Processor seconds that the workers used.
    pub workers_cpu: f64,
    /// Processor seconds that the nodes used, if they run on this machine.
    pub nodes_cpu: f64,
}

/// Workers that wait for a phase.
pub struct Crew {
    workers: Vec<Worker>,
    /// Processes of nodes whose processor time is counted.
    nodes: Vec<u32>,
    interrupt: Interrupt,
}

struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Setup of all workers of a case.
pub struct Plan<'a> {
    pub program: &'a Path,
    pub target: &'a Target,
    /// Directory in which all workers work.
    pub folder: &'a str,
    pub work: Work,
    /// The host of each worker; without `on` all are on this host.
    pub hosts: &'a [u32],
    pub on: Option<&'a Hosts>,
    pub nodes: Vec<u32>,
    pub interrupt: &'a Interrupt,
}

impl Crew {
    /// Starts a worker for each of `plan.hosts`, and waits until all are ready.
    pub fn start(plan: Plan<'_>) -> Result<Self, Problem> {
        let mut crew = Self { workers: Vec::new(), nodes: plan.nodes, interrupt: plan.interrupt.clone() };
        for (worker, host) in (0..).zip(plan.hosts) {
            let (target, folder, work) = (plan.target.clone(), plan.folder.to_owned(), plan.work.clone());
            let order = Order { target, folder, worker, work };
            let command =
                plan.on.map_or_else(|| Command::new(plan.program), |hosts| hosts.command(*host, plan.program));
            crew.workers.push(Worker::start(command, &order)?);
        }
        for worker in &mut crew.workers {
            match worker.hear(&crew.interrupt)? {
                Said::Ready => {}
                other => return Err(odd(&other)),
            }
        }
        Ok(crew)
    }

    /// Runs one phase in all workers at once.
    pub fn phase(&mut self, name: &str) -> Result<Phase, Problem> {
        let before = cpu::of(&self.nodes);
        for worker in &mut self.workers {
            worker.tell(name)?;
        }
        let done = self
            .workers
            .iter_mut()
            .map(|worker| worker.done(&self.interrupt))
            .collect::<Result<Vec<Done>, Problem>>()?;
        let began = done.iter().map(|done| done.began).fold(f64::INFINITY, f64::min);
        let ended = done.iter().map(|done| done.ended).fold(0.0, f64::max);
        let workers_cpu = done.iter().map(|done| done.cpu).sum();
        Ok(Phase { seconds: ended - began, workers_cpu, nodes_cpu: cpu::of(&self.nodes) - before })
    }
}

impl Worker {
    fn start(mut command: Command, order: &Order) -> Result<Self, Problem> {
        let mut child = command
            .arg("bench-worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Problem::new(format!("a worker does not start: {error}")))?;
        let input = child.stdin.take().expect("it is a pipe");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut worker = Self { child, input, output };
        worker.tell(&serde_json::to_string(order).expect("an order is JSON"))?;
        Ok(worker)
    }

    fn tell(&mut self, line: &str) -> Result<(), Problem> {
        // A worker that failed has already sent the reason, which is read next.
        match writeln!(self.input, "{line}") {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Problem::new(format!("a worker does not listen: {error}")))
            }
            _ => Ok(()),
        }
    }

    fn hear(&mut self, interrupt: &Interrupt) -> Result<Said, Problem> {
        if self.output.buffer().is_empty() {
            interrupt.wait(self.output.get_ref())?;
        }
        let mut line = String::new();
        let heard = self.output.read_line(&mut line);
        let odd = || Problem::new(format!("a worker ended without a word (process {})", self.child.id()));
        heard.ok().filter(|bytes| *bytes > 0).ok_or_else(odd)?;
        serde_json::from_str(&line).map_err(|error| Problem::new(format!("a worker says `{}`: {error}", line.trim())))
    }

    fn done(&mut self, interrupt: &Interrupt) -> Result<Done, Problem> {
        match self.hear(interrupt)? {
            Said::Done(done) => Ok(done),
            other => Err(odd(&other)),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A busy worker must be killed; an idle one would end with its input.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn odd(said: &Said) -> Problem {
    match said {
        Said::Failed(why) => Problem::new(format!("a worker: {why}")),
        other => Problem::new(format!("a worker says {other:?} out of turn")),
    }
}
