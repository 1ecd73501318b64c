//! What was typed: flags and their help. What it means is worked out elsewhere (`order.rs`), so this file is read by search.

use base::ByteSize;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Runs workflows of command-line tools with their temporaries in memory.
#[derive(Debug, Parser)]
#[command(name = "tidemill", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 a task failed, 2 refused before anything started, 129/130/143 ended by a signal.\n\
Documentation: README.md, docs/CLI.md"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a workflow: a JS4Cloud script or a JSON descriptor
    Run(Box<RunArgs>),
    /// Mount an empty pool at one or more directories, until it is unmounted
    Mount(MountArgs),
    /// Unmount a pool that `tidemill mount` mounted
    Umount(UmountArgs),
    /// Look at a workflow without running it
    #[command(subcommand)]
    Flow(FlowCommand),
}

/// What a workflow is made of.
#[derive(Debug, Args)]
pub struct Source {
    /// The script (JavaScript), or a descriptor (JSON with `tidemill_flow`)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: PathBuf,
    /// The tool file [default: tools.toml beside WORKFLOW; a descriptor brings its own tools]
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
    /// The folder of input data [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Replace the first value given to a top-level `var NAME`: a JSON number, string or boolean; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub sets: Vec<String>,
}

/// `tidemill run`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct RunArgs {
    /// The workflow.
    #[command(flatten)]
    pub source: Source,
    /// Where outputs go
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
    /// Where report.html and run.json go [default: tidemill-report/RUN]
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// The most memory the pool takes, never above the control group's limit [default: half of the free memory]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
    /// How many one-processor tasks run at once [default: the processors this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub slots: Option<u32>,
    /// Export this element too, or all whose names match /REGEXP/; may be repeated
    #[arg(long, value_name = "NAME|/REGEXP/")]
    pub export: Vec<String>,
    /// Delete no temporary at its last use, and export them all
    #[arg(long)]
    pub keep: bool,
    /// Copy inputs into the pool instead of binding them read-only
    #[arg(long)]
    pub stage_in: bool,
    /// Start nothing more after the first failed task
    #[arg(long)]
    pub fail_fast: bool,
    /// How tasks see the pool
    #[arg(long, value_name = "HOW", value_enum, default_value_t, env = "TIDEMILL_STORAGE")]
    pub storage: StorageArg,
    /// Let all bytes of files go through this process; otherwise the kernel moves those of large files itself, where it may
    #[arg(long)]
    pub no_passthrough: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print events as JSON, one a line, to standard output
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
}

/// `--storage`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum StorageArg {
    /// The mount where FUSE is allowed, else staging
    #[default]
    Auto,
    /// The mount, or a refusal
    Mount,
    /// RAM-disk staging
    Staging,
}

/// `tidemill mount`.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// An empty directory; all that are given show the same pool
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,
    /// The most memory the pool takes [default: half of the free memory]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
    /// Let other users of the machine in, as far as permissions allow
    #[arg(long)]
    pub shared: bool,
    /// Let all bytes of files go through this process; otherwise the kernel moves those of large files itself, where it may
    #[arg(long)]
    pub no_passthrough: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// `tidemill umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The directory that was given to `tidemill mount`
    pub dir: PathBuf,
}

/// `tidemill flow`.
#[derive(Debug, Subcommand)]
pub enum FlowCommand {
    /// List the elements and tasks of a workflow
    Show(Source),
    /// Check a workflow, its tools and its inputs; nothing is printed if all is well but one line
    Check(Source),
    /// Print the workflow as a JSON descriptor
    Export(Source),
}
