//! What was typed: flags and their help. What it means is worked out elsewhere (`order.rs`), so this file is read by search.

use crate::data_folder::OUT;
use base::ByteSize;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use placement::{Policy, StripeSize};
use std::ffi::OsString;
use std::path::PathBuf;
use wire::Version;

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
    /// Mount an empty pool, or the one of a pool file, at one or more directories, until it is unmounted
    Mount(MountArgs),
    /// Unmount a pool that `tidemill mount` mounted
    Umount(UmountArgs),
    /// Run a program that sees a pool below a prefix, without a mount
    Exec(ExecArgs),
    /// Start, end or look at a pool of several nodes
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Be one node of a pool; `tidemill pool start` runs this
    Node(NodeArgs),
    /// Put a file or standard input into the pool, whole or not at all
    Put(PutArgs),
    /// Get a file of the pool, to a file or to standard output
    Get(GetArgs),
    /// Write files of the pool to standard output, one behind the other
    Cat(KeysArgs),
    /// List a folder of the pool
    Ls(LsArgs),
    /// Copy a file within the pool
    Cp(CpArgs),
    /// Remove files of the pool
    Rm(RmArgs),
    /// Show what is known of files of the pool
    Stat(StatArgs),
    /// Show on which nodes the bytes of files are
    Locate(StatArgs),
    /// Look at a workflow without running it
    #[command(subcommand)]
    Flow(FlowCommand),
    /// Measure pools, and what there is otherwise, at the same work
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Be a worker of a benchmark; `tidemill bench` runs this
    #[command(hide = true)]
    BenchWorker,
}

/// A path that may be empty, as that of a variable that is set to nothing, which counts as not set.
fn maybe_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Which pool is meant.
#[derive(Debug, Args)]
pub struct WhichPool {
    /// The pool file [default: that of this user's pool]
    #[arg(long, value_name = "FILE", env = "TIDEMILL_POOL", value_parser = maybe_empty())]
    pub pool: Option<PathBuf>,
}

/// `tidemill exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Which pool.
    #[command(flatten)]
    pub which: WhichPool,
    /// What paths stand for the pool
    #[arg(long, value_name = "DIR", env = "TIDEMILL_PREFIX", default_value = "/tidemill", value_parser = maybe_empty())]
    pub prefix: PathBuf,
    /// Do not start a program that would not see the pool: a static one, one with rights of its own
    #[arg(long)]
    pub strict: bool,
    /// The program, and what it is given
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `tidemill pool`.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Start a pool: nodes on this machine, over SSH, or inside a Slurm allocation
    Start(Box<StartArgs>),
    /// End a pool; what it holds is gone
    Stop(WhichPool),
    /// Show who of a pool answers, and how full they are
    Status(StatusArgs),
}

/// `tidemill pool start`.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Which pool.
    #[command(flatten)]
    pub which: WhichPool,
    /// So many nodes on this machine [default: 1, or inside a Slurm allocation one on each of its hosts]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), conflicts_with = "hosts")]
    pub nodes: Option<u32>,
    /// One node on each of these hosts, over SSH: a comma between two
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// The most memory that a node takes [default: half of what is free on its host, shared by the nodes there]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<ByteSize>,
    /// How many one-processor tasks a node runs at once; 0 for nodes that only store [default: the processors it may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub slots: Option<u32>,
    /// So many nodes may the pool have later [default: four times those of the start]
    #[arg(long, value_name = "M")]
    pub max_nodes: Option<u32>,
    /// The first node's port; further nodes of a host take the next ones [default: any that are free]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// How many partitions the pool has for its life: a power of two, up to 65536
    #[arg(long, value_name = "P", default_value_t = 4096)]
    pub partitions: u32,
    /// Do not encrypt what nodes of other hosts say; who reads it learns the data, but not the token
    #[arg(long)]
    pub no_tls: bool,
    /// The command that runs another on a host
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    pub ssh: String,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// `tidemill pool status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Which pool.
    #[command(flatten)]
    pub which: WhichPool,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tidemill node`.
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// The pool file of the pool, as its starter named it
    #[arg(long, value_name = "FILE")]
    pub pool: PathBuf,
    /// Which node of the pool
    #[arg(long, value_name = "N", required_unless_present = "slurm")]
    pub id: Option<u32>,
    /// Be the node that the task's rank within a Slurm step says
    #[arg(long, conflicts_with = "id")]
    pub slurm: bool,
    /// Go on without the session that started this, once the pool stands
    #[arg(long)]
    pub detach: bool,
}

/// `tidemill put`.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// Which pool.
    #[command(flatten)]
    pub which: WhichPool,
    /// The path in the pool, from its root; missing folders are made
    pub key: String,
    /// The file, or - for standard input
    pub file: PathBuf,
    /// Only if there is nothing there yet
    #[arg(long, conflicts_with = "if_version")]
    pub if_absent: bool,
    /// Only if what is there has this version, as `stat --json` shows it
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<Version>,
    /// Where its bytes lie: striped, whole, here, at(NODE) or balanced [default: as its folder says]
    #[arg(long, value_name = "POLICY")]
    pub placement: Option<Policy>,
    /// In pieces of this length: a power of two from 64KiB to 64MiB [default: as its folder says]
    #[arg(long, value_name = "SIZE")]
    pub stripe_size: Option<StripeSize>,
}

/// `tidemill get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Which pool.
    #[command(flatten)]
    pub which: WhichPool,
    /// The path in the pool, from its root
    pub key: String,
    /// The file, or - for standard output
    pub file: PathBuf,
}

/// `tidemill cat`.
#[derive(Debug, Args)]
pub struct KeysArgs {
    /// Which pool.
    #[command(flatten)]
    pub which: WhichPool,
    /// Paths in the pool, from its root
    #[arg(value_name = "KEY", required = true)]
    pub keys: Vec<String>,
}

/// `tidemill ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// Which pool.
    #[command(flatten)]
    pub which: WhichPool,
    /// A path in the pool, from its root
    #[arg(default_value = "")]
    pub key: String,
    /// Kind, mode, length and time of each
    #[arg(long, short)]
    pub long: bool,
    /// All that is below too
    #[arg(long, short)]
    pub recursive: bool,
    /// An object a line, as of `stat --json`
    #[arg(long)]
    pub json: bool,
}

/// `tidemill cp`.
#[derive(Debug, Args)]
pub struct CpArgs {
    /// Which pool.
    #[command(flatten)]
    pub which: WhichPool,
    /// A file of the pool
    pub from: String,
    /// Its copy; missing folders are made, what is there is replaced
    pub to: String,
}

/// `tidemill rm`.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// Which pool.
    #[command(flatten)]
    pub which: WhichPool,
    /// Paths in the pool, from its root
    #[arg(value_name = "KEY", required = true)]
    pub keys: Vec<String>,
    /// Folders too, with all that is in them
    #[arg(long, short)]
    pub recursive: bool,
}

/// `tidemill stat` and `tidemill locate`.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Which pool.
    #[command(flatten)]
    pub which: WhichPool,
    /// Paths in the pool, from its root
    #[arg(value_name = "KEY", required = true)]
    pub keys: Vec<String>,
    /// Print it as JSON, one object a line
    #[arg(long)]
    pub json: bool,
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
    #[arg(long, value_name = "DIR", default_value = OUT)]
    pub out: PathBuf,
    /// Where report.html and run.json go [default: tidemill-report/RUN]
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// The most memory the pool takes, never above the control group's limit [default: half of the free memory]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
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
    /// Keep failed tasks beside the report: their folders, and scripts that repeat their commands
    #[arg(long)]
    pub keep_failed: bool,
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
    /// The mount where FUSE is allowed, else the preload library, else staging
    #[default]
    Auto,
    /// The mount, or a refusal
    Mount,
    /// The preload library, with staging for tools that it does not reach, or a refusal
    Preload,
    /// RAM-disk staging
    Staging,
}

/// `tidemill mount`.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// An empty directory; all that are given show the same pool
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,
    /// The most memory an embedded pool takes [default: half of the free memory]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, conflicts_with = "pool")]
    pub memory: Option<ByteSize>,
    /// Show the pool of this pool file, started with `tidemill pool start` [default: an embedded pool, unless the environment names one]
    #[arg(long, value_name = "FILE")]
    pub pool: Option<PathBuf>,
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
    /// List the elements and tasks of a workflow, or the commands that a run would start
    Show(ShowArgs),
    /// Check a workflow, its tools and its inputs; nothing is printed if all is well but one line
    Check(Source),
    /// Print the workflow as a JSON descriptor
    Export(Source),
}

/// `tidemill flow show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The workflow.
    #[command(flatten)]
    pub source: Source,
    /// Print every task's command with all paths and values filled in, as a shell takes it
    #[arg(long)]
    pub commands: bool,
}

/// `tidemill bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Workers write files, then read them (the benchmark of the Hercules papers)
    Filecopy(Box<FilecopyArgs>),
    /// Workers on the hosts of nodes write and read files there, and at other nodes (figures 5 to 8 of Swift/T with Hercules)
    Locality(Box<LocalityArgs>),
    /// Workers make, look at, rename and remove many files
    Metadata(Box<MetadataArgs>),
    /// Workers put values under keys, and get them
    Objects(Box<ObjectsArgs>),
}

/// What all benchmarks have in common.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure: `pool`, `dir:PATH`, `redis:HOST:PORT`, `memcached:HOST:PORT`; a comma between two
    #[arg(long, value_name = "TARGET", value_delimiter = ',', default_value = "pool")]
    pub on: Vec<String>,
    /// Measure this pool as `pool`, instead of one that is made for each case
    #[arg(long, value_name = "FILE")]
    pub pool: Option<PathBuf>,
    /// Nodes of a pool that is made
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub io_nodes: u32,
    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// How often a benchmark measures, and what it leaves.
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// Measure each case so often; the median is told
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Write what was measured, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw it, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// `tidemill bench filecopy`.
#[derive(Debug, Args)]
pub struct FilecopyArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// An experiment of the paper, with its own numbers of nodes and workers
    #[arg(long, value_name = "NAME", value_enum, conflicts_with = "io_nodes")]
    pub experiment: Option<ExperimentArg>,
    /// Hosts of workers; without --links they are only counted
    #[arg(long, value_name = "W", default_value_t = 1, conflicts_with = "experiment", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub worker_nodes: u32,
    /// Workers on each of them
    #[arg(long, value_name = "K", default_value_t = 8, conflicts_with = "experiment", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: u32,
    /// The size of each file [default: 128MiB, or what the experiment has]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub file_size: Option<ByteSize>,
    /// How much is written and read at a time [default: 32MiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, conflicts_with = "experiment")]
    pub chunk_size: Option<ByteSize>,
    /// Workers and nodes on hosts of their own (network namespaces: as root), whose links let through so many Mbit/s: of workers, of nodes
    #[arg(long, value_name = "W,N", value_delimiter = ',', num_args = 1)]
    pub links: Vec<u32>,
    /// Do not encrypt what those hosts say
    #[arg(long)]
    pub no_tls: bool,
}

/// Experiments of `bench filecopy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExperimentArg {
    /// Figure 4: chunks of 1 to 128 MiB
    Chunks,
    /// Figure 5: 1 to 8 nodes, 8 workers with 512 MiB each
    IoNodes,
    /// Figure 6: 1 to 8 nodes, 8 times 4 workers with 128 MiB each
    Crowded,
    /// Figure 7: 1 to 8 workers share 4 GiB on 8 nodes
    WorkerNodes,
}

/// `tidemill bench locality`.
#[derive(Debug, Args)]
pub struct LocalityArgs {
    #[command(flatten)]
    pub measure: MeasureArgs,
    /// What grows in number; a comma between two
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',', default_values = ["nodes", "workers"])]
    pub across: Vec<AcrossArg>,
    /// Files of all workers together; each worker has one at least
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub files: u32,
    /// The size of each file
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "64MiB")]
    pub file_size: ByteSize,
    /// How much is written and read at a time
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "1MiB")]
    pub chunk_size: ByteSize,
    /// What the link of each host (a network namespace: as root) lets through, Mbit/s
    #[arg(long, value_name = "MBIT", default_value_t = 480, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub link: u32,
    /// Do not encrypt what hosts say
    #[arg(long)]
    pub no_tls: bool,
    /// Measure this directory too, in the place of a file system that all share
    #[arg(long, value_name = "DIR")]
    pub shared: Option<PathBuf>,
    /// All workers together get so much of it, MB/s [default: 0.8 of one link]
    #[arg(long, value_name = "MB", requires = "shared", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub shared_rate: Option<u32>,
}

/// What grows in number in `bench locality`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AcrossArg {
    /// Figures 5 and 6: 1 to 8 nodes with a worker each
    Nodes,
    /// Figures 7 and 8: 1 to 8 workers on each of 8 nodes
    Workers,
}

/// `tidemill bench metadata`.
#[derive(Debug, Args)]
pub struct MetadataArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// Where the files lie; a comma between two
    #[arg(long, value_name = "LAYOUT", value_enum, value_delimiter = ',', default_values = ["one-folder", "tree", "own-file", "shared-file"])]
    pub layout: Vec<LayoutArg>,
    /// How many at once; a comma between two
    #[arg(long, value_name = "K", value_delimiter = ',', default_values = ["1", "4"], value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Vec<u32>,
    /// Files, or operations, of each worker
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub files: u32,
}

/// `tidemill bench objects`.
#[derive(Debug, Args)]
pub struct ObjectsArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// Lengths of values; a comma between two
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_values = ["64", "1MiB"])]
    pub size: Vec<ByteSize>,
    /// How many each worker has under way at once; a comma between two
    #[arg(long, value_name = "N", value_delimiter = ',', default_values = ["1", "16"], value_parser = clap::value_parser!(u32).range(1..=256))]
    pub under_way: Vec<u32>,
    /// Values of each worker [default: as many as 256 MiB have, at most 40,000 of all workers together]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub objects: Option<u32>,
    /// How many workers
    #[arg(long, value_name = "K", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: u32,
}

/// Layouts of `bench metadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayoutArg {
    /// All files of all workers in one folder
    OneFolder,
    /// Each worker has a tree of a hundred folders
    Tree,
    /// Each worker has a single file
    OwnFile,
    /// All have the same single file
    SharedFile,
}
