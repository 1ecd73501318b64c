//! A worker: a process that runs phases on command.

use crate::{
    copies::CopyJob,
    cpu,
    messages::{Work, WorkerCommand, WorkerMessage, WorkerPhase},
    metadata::MetadataJob,
    objects::ObjectsJob,
    stores::open,
};
use base::Problem;
use std::io::{self, BufRead, Write};

/// Work that is done in phases.
pub trait WorkerJob {
    /// Runs one phase completely.
    fn run(&mut self, phase: &str) -> Result<(), Problem>;
}

/// Runs a worker: the first line of standard input is its `WorkerCommand`, each further line names
/// a phase. It ends with the input.
pub fn worker_main() -> Result<(), Problem> {
    let mut lines = io::stdin().lock().lines();
    let done = run_phases(&mut lines);
    if let Err(problem) = &done {
        send(&WorkerMessage::Failed(problem.to_string()))?;
    }
    done
}

fn run_phases(lines: &mut impl Iterator<Item = io::Result<String>>) -> Result<(), Problem> {
    let mut next = || lines.next().transpose().map_err(|error| Problem::new(format!("standard input: {error}")));
    let Some(line) = next()? else { return Ok(()) };
    let command: WorkerCommand = serde_json::from_str(&line)
        .map_err(|error| Problem::new(format!("standard input: not a command of a benchmark: {error}")))?;
    let mut job = open_job(&command)?;
    send(&WorkerMessage::Ready)?;
    while let Some(phase) = next()? {
        let (began, before) = (cpu::monotonic_seconds(), cpu::own_seconds());
        job.run(&phase)?;
        let (ended, cpu) = (cpu::monotonic_seconds(), cpu::own_seconds() - before);
        send(&WorkerMessage::Done(WorkerPhase { began, ended, cpu }))?;
    }
    Ok(())
}

fn open_job(command: &WorkerCommand) -> Result<Box<dyn WorkerJob>, Problem> {
    let store = open(&command.target)?;
    Ok(match &command.work {
        Work::Filecopy(copies) => Box::new(CopyJob::new(store, command, copies)?),
        Work::Objects { bytes, count, under_way } => {
            Box::new(ObjectsJob::new(store, command, (*bytes, *count, *under_way))?)
        }
        Work::Metadata { layout, files } => Box::new(MetadataJob::new(store, command, *layout, *files)?),
    })
}

fn send(message: &WorkerMessage) -> Result<(), Problem> {
    let mut out = io::stdout().lock();
    let text = serde_json::to_string(message).expect("what a worker says is JSON");
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| Problem::new(format!("standard output: {error}")))
}
