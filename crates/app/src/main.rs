//! Layer 11: the tidemill binary: command line, progress, exit codes.
//!
//! `args` parses flags, `source` reads the workflow, `run_command`, `mount_command` and the other
//! `*_command` files do the work through the crates below, and `progress` shows it. Only this crate
//! prints. It decides on exit codes (docs/CLI.md), but for a run's 0 or 1 (`run`, `recorder.rs`).
//!
//! Modules for commands:
//! - `run_command`, `flow_command`, `commands`: `run`, `flow`, `flow show --commands`
//! - `mount_command`, `pool_command`, `key_command`: `mount` and `umount`, `pool` and `node`, files
//!   of a pool
//! - `resize_command`, `pins_command`: `pool grow` and `pool shrink`, `pool pins`
//! - `pool_top`, `pool_view`: `pool top`
//! - `exec_command`, `bench_command`: `exec`, `bench`
//! - `explain_command`, `task_account`: `explain`; `top_command`, `top_view`: `top`; both read
//!   `recorded_run`, a run as its journal tells it
//!
//! Modules for input:
//! - `args`, `bench_args`: flags, and their help text; `resume_args`: those that a run began with
//! - `source`, `data_directory`: script, descriptor, tool file; files of the data directory
//! - `export_filter`: `--export`
//! - `signals`: SIGINT, SIGTERM, SIGHUP
//!
//! Modules for output:
//! - `output`, `console`: standard output, standard error
//! - `progress`, `failures`: progress of a run, its failed tasks
//! - `log`, `node_log`: log lines, and the log file of a node
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod agent_command;
mod args;
mod bench_args;
mod bench_command;
mod cluster_args;
mod cluster_target;
mod commands;
mod console;
mod data_directory;
mod elastic_command;
mod exec_command;
mod explain_command;
mod export_filter;
mod failures;
mod flow_command;
mod key_command;
mod log;
mod mount_command;
mod node_log;
mod output;
mod pins_command;
mod pool_command;
mod pool_top;
mod pool_view;
mod progress;
mod recorded_run;
mod resize_command;
mod resume_args;
mod run_command;
mod signals;
mod source;
mod swift_source;
mod task_account;
mod top_command;
mod top_view;

use args::{Cli, CliCommand};
use base::Problem;
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;
use tracing_subscriber::{EnvFilter, fmt::format::FmtSpan};

/// Exit code of a command that was refused before anything started.
pub const REFUSED: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(print_clap_error(&error)),
    };
    start_log();
    // A program started by `exec` must have the limits that it would have without us.
    if !matches!(cli.command, CliCommand::Exec(_))
        && let Err(error) = exec::raise_open_files()
    {
        tracing::warn!(%error, "the limit of open files stays as it is; see `ulimit -n`");
    }
    let outcome = match cli.command {
        CliCommand::Run(args) => run_command::run(&args),
        CliCommand::Explain(args) => explain_command::explain(&args),
        CliCommand::Top(args) => top_command::top(&args),
        CliCommand::Mount(args) => mount_command::mount(&args),
        CliCommand::Umount(args) => mount_command::umount(&args),
        CliCommand::Exec(args) => exec_command::exec(&args),
        CliCommand::Flow(command) => flow_command::flow(&command),
        CliCommand::Pool(command) => pool_command::pool(command),
        CliCommand::Node(args) => pool_command::node(&args),
        CliCommand::Agent => agent_command::agent(),
        CliCommand::Put(args) => key_command::put(&args),
        CliCommand::Get(args) => key_command::get(&args),
        CliCommand::Cat(args) => key_command::cat(&args),
        CliCommand::Ls(args) => key_command::ls(&args),
        CliCommand::Cp(args) => key_command::cp(&args),
        CliCommand::Rm(args) => key_command::rm(&args),
        CliCommand::Stat(args) => key_command::stat(&args),
        CliCommand::Locate(args) => key_command::locate(&args),
        CliCommand::Bench(command) => bench_command::bench(&command),
        CliCommand::BenchWorker => Ok(bench_command::worker()),
    };
    ExitCode::from(outcome.unwrap_or_else(|problems| refuse(&problems)))
}

/// Prints errors in the flags, or the text for --help and --version; returns the exit code.
fn print_clap_error(error: &clap::Error) -> u8 {
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed {
        // If standard error cannot be written, there is no way to report it.
        _ if error.use_stderr() => REFUSED,
        Ok(()) => 0,
        Err(error) => output::PrintError::from(error).conclude(),
    }
}

/// Messages of the log, unless `TIDEMILL_LOG` says otherwise. An election that is overtaken by
/// another is no warning to a user, as it is to `openraft`.
const DEFAULT_LOG: &str = "warn,openraft=error";

/// Sends the log to standard error.
fn start_log() {
    let filter = EnvFilter::try_from_env("TIDEMILL_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE)
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
