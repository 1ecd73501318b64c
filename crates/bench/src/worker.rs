//! A worker: a process that runs phases on command.

use crate::{
    copies::CopyJob,
    cpu,
    metadata::MetadataJob,
    objects::ObjectsJob,
    order::{Done, Order, Said, Work},
    stores::open,
};
use base::Problem;
use std::io::{self, BufRead, Write};

/// Work that is done in phases.
pub trait Job {
    /// Runs one phase completely.
    fn run(&mut self, phase: &str) -> Result<(), Problem>;
}

/// Runs a worker: the first line of standard input is its `Order`, each further line names a phase.
/// It ends with the input.
pub fn attend() -> Result<(), Problem> {
    let mut lines = io::stdin().lock().lines();
    let done = work(&mut lines);
    if let Err(problem) = &done {
        say(&Said::Failed(problem.to_string()))?;
    }
    done
}

fn work(lines: &mut impl Iterator<Item = io::Result<String>>) -> Result<(), Problem> {
    let mut next = || lines.next().transpose().map_err(|error| Problem::new(format!("standard input: {error}")));
    let Some(line) = next()? else { return Ok(()) };
    let order: Order = serde_json::from_str(&line)
        .map_err(|error| Problem::new(format!("standard input: no order of a benchmark: {error}")))?;
    let mut job = job(&order)?;
    say(&Said::Ready)?;
    while let Some(phase) = next()? {
        let (began, before) = (cpu::moment(), cpu::of_this_process());
        job.run(&phase)?;
        let (ended, cpu) = (cpu::moment(), cpu::of_this_process() - before);
        say(&Said::Done(Done { began, ended, cpu }))?;
    }
    Ok(())
}

fn job(order: &Order) -> Result<Box<dyn Job>, Problem> {
    let store = open(&order.target)?;
    Ok(match &order.work {
        Work::Filecopy(copies) => Box::new(CopyJob::new(store, order, copies)?),
        Work::Objects { bytes, count, under_way } => {
            Box::new(ObjectsJob::new(store, order, (*bytes, *count, *under_way))?)
        }
        Work::Metadata { layout, files } => Box::new(MetadataJob::new(store, order, *layout, *files)?),
    })
}

fn say(said: &Said) -> Result<(), Problem> {
    let mut out = io::stdout().lock();
    let text = serde_json::to_string(said).expect("what a worker says is JSON");
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| Problem::new(format!("standard output: {error}")))
}
