//! Layer 5: the tidemill binary: command line, progress, exit codes.
//!
//! `args` parses flags, `source` reads the workflow, `run_command`, `mount_command` and the other
//! `*_command` files do the work through the crates below, and `progress` shows it. Only this crate
//! prints and decides on exit codes (docs/CLI.md).
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod bench_command;
mod commands;
mod console;
mod data_folder;
mod exec_command;
mod failures;
mod flow_command;
mod key_command;
mod log;
mod mount_command;
mod node_log;
mod output;
mod pool_command;
mod progress;
mod run_command;
mod selection;
mod signals;
mod source;

use args::{Cli, Command};
use base::Problem;
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Exit code of a command that was refused before anything started.
pub const REFUSED: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => return ExitCode::from(tell(&told)),
    };
    start_log();
    // A program started by `exec` must have the limits that it would have without us.
    if !matches!(cli.command, Command::Exec(_))
        && let Err(error) = exec::raise_open_files()
    {
        tracing::warn!(%error, "the limit of open files stays as it is; see `ulimit -n`");
    }
    let outcome = match cli.command {
        Command::Run(args) => run_command::run(&args),
        Command::Mount(args) => mount_command::mount(&args),
        Command::Umount(args) => mount_command::umount(&args),
        Command::Exec(args) => exec_command::exec(&args),
        Command::Flow(command) => flow_command::flow(&command),
        Command::Pool(command) => pool_command::pool(command),
        Command::Node(args) => pool_command::node(&args),
        Command::Put(args) => key_command::put(&args),
        Command::Get(args) => key_command::get(&args),
        Command::Cat(args) => key_command::cat(&args),
        Command::Ls(args) => key_command::ls(&args),
        Command::Cp(args) => key_command::cp(&args),
        Command::Rm(args) => key_command::rm(&args),
        Command::Stat(args) => key_command::stat(&args),
        Command::Locate(args) => key_command::locate(&args),
        Command::Bench(command) => bench_command::bench(&command),
        Command::BenchWorker => Ok(bench_command::worker()),
    };
    ExitCode::from(outcome.unwrap_or_else(|problems| refuse(&problems)))
}

/// Prints errors in the flags, or the text for --help and --version; returns the exit code.
fn tell(told: &clap::Error) -> u8 {
    let printed = told.print().and_then(|()| std::io::stdout().flush());
    match printed {
        // If standard error cannot be written, there is no way to report it.
        _ if told.use_stderr() => REFUSED,
        Ok(()) => 0,
        Err(error) => output::PrintError::from(error).conclude(),
    }
}

/// Sends the log to standard error.
fn start_log() {
    let filter = EnvFilter::try_from_env("TIDEMILL_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .event_format(log::PlainLines)
        .with_writer(node_log::writer)
        .init();
}

/// Prints all problems and returns the exit code.
fn refuse(problems: &[Problem]) -> u8 {
    for problem in problems {
        console::say(&format!("error: {problem}"));
    }
    REFUSED
}
