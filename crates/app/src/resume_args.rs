//! The flags of a run that is resumed without naming its workflow: those that it began with, from
//! its journal, in the directory where it began.

use crate::args::{Cli, CliCommand, RunArgs};
use crate::recorded_run;
use base::Problem;
use clap::Parser;
use journal::{JOURNAL_FILE, JournalReader};
use std::path::{Path, PathBuf};

/// The arguments that the run began with, and its directory as an absolute path. How much is
/// printed, metrics, slots, memory and the cluster are as `now` says. Goes to the directory where
/// the run began.
pub fn as_begun(now: &RunArgs, directory: &Path) -> Result<(Box<RunArgs>, PathBuf), Problem> {
    let reader =
        JournalReader::open(&directory.join(JOURNAL_FILE)).map_err(|error| recorded_run::unreadable(&error))?;
    let header = reader.header();
    let shown = directory.display();
    let absolute = directory.canonicalize().map_err(|error| Problem::new(format!("{shown}: {error}")))?;
    let parsed = Cli::try_parse_from(&header.command_line).map(|cli| cli.command);
    let Ok(CliCommand::Run(mut begun)) = parsed else {
        return Err(Problem::new(format!("{shown}: the command line of its run is not understood"))
            .hint("give the workflow and the flags that it began with"));
    };
    std::env::set_current_dir(&header.directory)
        .map_err(|error| Problem::new(format!("{}: the run began there: {error}", header.directory)))?;
    (begun.quiet, begun.json, begun.report) = (now.quiet, now.json, None);
    begun.metrics = now.metrics;
    begun.slots = now.slots.or(begun.slots);
    begun.memory = now.memory.or(begun.memory);
    if now.cluster.on.is_some() {
        begun.cluster = now.cluster.clone();
    }
    Ok((begun, absolute))
}
