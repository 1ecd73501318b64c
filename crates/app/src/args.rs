//! Command-line flags. The doc comments of flags and commands are their help text. Flags are
//! interpreted by the file of each command.

use crate::bench_args::BenchCommand;
use crate::cluster_args::ClusterArgs;
use crate::data_directory::OUT;
use base::ByteSize;
use clap::builder::{ArgPredicate, OsStringValueParser, TypedValueParser};
use clap::{Arg, ArgGroup, Args, Parser, Subcommand, ValueEnum};
use placement::{Policy, StripeSize};
use std::ffi::OsString;
use std::net::SocketAddr;
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
    /// The command to run.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// Commands of `tidemill`.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run a workflow: a JS4Cloud or Swift script, or a JSON descriptor
    // A changed argument becomes the last one, and that must be `arguments`.
    #[command(mut_arg("workflow", maybe_of_journal), mut_arg("arguments", |argument| argument))]
    Run(Box<RunArgs>),
    /// Explain why a task of a run started where and when it did, or why it still waits
    Explain(ExplainArgs),
    /// Show a run while it goes on: slots, tools, where the time goes
    Top(TopArgs),
    /// Mount an empty pool, or the one of a pool file, at directories, until it is unmounted
    Mount(MountArgs),
    /// Unmount a pool that `tidemill mount` mounted
    Umount(UmountArgs),
    /// Run a program that sees a pool below a prefix, without a mount
    Exec(ExecArgs),
    /// Start, end or inspect a pool of several nodes
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Run one node of a pool; `tidemill pool start` starts this
    Node(NodeArgs),
    /// Run tasks on one host of a cluster; `tidemill run --on` starts this
    #[command(hide = true)]
    Agent,
    /// Put a file or standard input into the pool, completely or not at all
    Put(PutArgs),
    /// Get a file from the pool, to a file or to standard output
    Get(GetArgs),
    /// Write files of the pool to standard output, one after the other
    Cat(KeysArgs),
    /// List a directory of the pool
    Ls(LsArgs),
    /// Copy a file within the pool
    Cp(CpArgs),
    /// Remove files of the pool
    Rm(RmArgs),
    /// Show the attributes of files of the pool
    Stat(StatArgs),
    /// Show the nodes that hold the bytes of files
    Locate(StatArgs),
    /// Inspect a workflow without running it
    #[command(subcommand)]
    Flow(FlowCommand),
    /// Measure pools, and other storage, with the same work
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Run a worker of a benchmark; `tidemill bench` starts this
    #[command(hide = true)]
    BenchWorker,
}

/// With `--resume` the workflow may be left out: the journal has it. It is empty then.
fn maybe_of_journal(workflow: Arg) -> Arg {
    let workflow = workflow.required(false).required_unless_present("resume").value_parser(maybe_empty());
    workflow.default_value_if("resume", ArgPredicate::IsPresent, "")
}

/// Parser of a path that may be empty: an empty environment variable counts as not set.
fn maybe_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Options that name the pool.
#[derive(Debug, Args)]
pub struct PoolArg {
    /// The pool file [default: that of this user's pool]
    #[arg(long, value_name = "FILE", env = "TIDEMILL_POOL", value_parser = maybe_empty())]
    pub pool: Option<PathBuf>,
}

/// `tidemill exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The pool to connect to.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// The path that stands for the pool's root
    #[arg(long, value_name = "DIR", env = "TIDEMILL_PREFIX", default_value = "/tidemill", value_parser = maybe_empty())]
    pub prefix: PathBuf,
    /// Do not start a program that would not see the pool (a static or a privileged one)
    #[arg(long)]
    pub strict: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `tidemill pool`.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Start a pool: nodes on this machine, over SSH, or inside a Slurm allocation
    Start(Box<StartArgs>),
    /// End a pool; its content is lost
    Stop(PoolArg),
    /// Show which nodes of a pool answer, and how full they are
    Status(StatusArgs),
    /// Add nodes to a pool that runs, and move their share of the data to them
    Grow(GrowArgs),
    /// Remove nodes from a pool that runs, after their data has moved to the others
    Shrink(ShrinkArgs),
    /// Have this machine join a pool that runs, as a node that lives as long as this command
    Join(JoinArgs),
    /// Let a pool that runs grow and shrink by itself, as long as this command lives
    Policy(Box<PolicyArgs>),
    /// Show what the managers of a pool have decided lately
    Events(PoolArg),
    /// Show what the hosts of a pool have at their nodes: mounts, open files, locks, bound files
    Pins(PinsArgs),
    /// Show what a pool does, again every second: nodes, moves, throughput
    Top(PoolTopArgs),
}

/// `tidemill pool pins`.
#[derive(Debug, Args)]
pub struct PinsArgs {
    /// The pool to show.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// Show only this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<u32>,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tidemill pool top`.
#[derive(Debug, Args)]
pub struct PoolTopArgs {
    /// The pool to show.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// Print it once instead of every second
    #[arg(long)]
    pub once: bool,
    /// Print JSON, an object a line
    #[arg(long)]
    pub json: bool,
}

/// `tidemill pool grow`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("new nodes").required(true).args(["nodes", "hosts"])))]
pub struct GrowArgs {
    /// The pool to grow.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// Number of nodes to add on this machine
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub nodes: Option<u32>,
    /// One node on each of these hosts, over SSH; separated by commas
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// The most memory of a new node [default: half of its host's free memory, shared by new nodes]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<ByteSize>,
    /// How many one-processor tasks a new node runs at once [default: the processors it may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub slots: Option<u32>,
    /// Serve metrics of the new nodes over HTTP, as `pool start` does
    #[arg(long, value_name = "IP:PORT")]
    pub metrics: Option<SocketAddr>,
    /// The command that runs another command on a host
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    pub ssh: String,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// `tidemill pool join`.
#[derive(Debug, Args)]
pub struct JoinArgs {
    /// The pool to join.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// The name or address at which the other nodes reach this machine [default: 127.0.0.1 if all
    /// of them are there, else the name of this host]
    #[arg(long, value_name = "HOST")]
    pub address: Option<String>,
    /// The most memory that the node takes [default: half of the free memory of this host]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<ByteSize>,
    /// How many one-processor tasks the node runs at once [default: the processors it may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub slots: Option<u32>,
    /// A name for the node, by which what has started this command knows it
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Time without any other node of the pool after which the node ends, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(10..))]
    pub orphan_wait: u64,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// `tidemill pool policy`.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// The pool.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// The policy: cso, nso or aso adds nodes, csi or asi removes some, two are joined by +;
    /// step(OUT_AT, OUT_BY, IN_AT, IN_BY); or foresight
    #[arg(value_name = "POLICY", default_value = "cso+csi")]
    pub policy: String,
    /// The least and the most nodes [default: those of now, and the pool's --max-nodes]
    #[arg(long, value_name = "MIN:MAX")]
    pub nodes: Option<String>,
    /// Time for which usage must be low before nodes are removed, in seconds [default: 45]
    #[arg(long, value_name = "SECONDS")]
    pub hold: Option<u64>,
    /// What starts the machine of a node [default: nodes are processes of this machine]
    #[command(flatten)]
    pub machines: MachineArgs,
    /// The most memory that a new node of this machine takes [default: that of the pool's last
    /// node]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, conflicts_with = "start_command")]
    pub memory: Option<ByteSize>,
    /// How many one-processor tasks a new node of this machine runs at once [default: that of the
    /// pool's last node]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=4096), conflicts_with = "start_command")]
    pub slots: Option<u32>,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// Flags of `tidemill run` for a pool that grows and shrinks by itself.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "A pool that grows and shrinks by itself")]
pub struct ElasticArgs {
    /// Keep the files in a pool of MIN to MAX nodes with --memory each; nodes are processes of this
    /// machine, or what --start-command starts, or hosts of the cluster that --on starts
    #[arg(long, value_name = "MIN:MAX", conflicts_with = "metrics")]
    pub elastic: Option<String>,
    /// The policy: foresight, which looks at the tasks that are about to run; or one of `tidemill
    /// pool policy`
    #[arg(long, value_name = "POLICY", default_value = "foresight", requires = "elastic")]
    pub elastic_policy: String,
    /// What starts the machine of a node.
    #[command(flatten)]
    pub machines: MachineArgs,
}

/// The commands that start and end machines of nodes.
#[derive(Debug, Clone, Args)]
pub struct MachineArgs {
    /// Start the machine of a node by this shell command, which has it run `tidemill pool join
    /// --pool {pool} --name {name}`
    #[arg(long, value_name = "COMMAND")]
    pub start_command: Option<String>,
    /// End the machine of a node that has left, or that never came, by this shell command, with
    /// {name} and {output}, the first line that the start command printed
    #[arg(long, value_name = "COMMAND", requires = "start_command")]
    pub stop_command: Option<String>,
    /// Time for a node to join after its start command, in seconds
    #[arg(long, value_name = "SECONDS", requires = "start_command", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub start_timeout: u64,
}

/// `tidemill pool shrink`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("leaving nodes").required(true).args(["nodes", "node"])))]
pub struct ShrinkArgs {
    /// The pool to shrink.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// Number of nodes to remove: those that joined last
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub nodes: Option<u32>,
    /// The node to remove, by its number
    #[arg(long, value_name = "NODE")]
    pub node: Option<u32>,
    /// Do not wait for what the hosts of these nodes have there: end it. Files whose bytes are only
    /// there are lost; see `tidemill pool pins`
    #[arg(long)]
    pub force: bool,
    /// Print nothing but errors and warnings
    #[arg(long, short)]
    pub quiet: bool,
}

/// `tidemill pool start`.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// The pool to start.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// Number of nodes on this machine [default: 1, or inside a Slurm allocation one on each of its
    /// hosts]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), conflicts_with = "hosts")]
    pub nodes: Option<u32>,
    /// One node on each of these hosts, over SSH; separated by commas
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// The most memory of a node [default: half of its host's free memory, shared by its nodes]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<ByteSize>,
    /// How many one-processor tasks a node runs at once; 0 for nodes that only store [default: the
    /// processors it may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub slots: Option<u32>,
    /// The most nodes that the pool may have later [default: four times those of the start]
    #[arg(long, value_name = "M")]
    pub max_nodes: Option<u32>,
    /// The first node's port; further nodes of a host take the next ones [default: any free ports]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Serve metrics of the nodes over HTTP, without authentication, as IP:PORT/metrics; further
    /// nodes of a host take the next ports, and port 0 is any free one
    #[arg(long, value_name = "IP:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Number of partitions, fixed for the pool's life: a power of two, up to 65536
    #[arg(long, value_name = "P", default_value_t = 4096)]
    pub partitions: u32,
    /// Do not encrypt traffic between hosts; an eavesdropper learns the data, but not the token
    #[arg(long)]
    pub no_tls: bool,
    /// The command that runs another command on a host
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    pub ssh: String,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// `tidemill pool status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The pool to show.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tidemill node`.
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// The pool file, as the starter named it
    #[arg(long, value_name = "FILE")]
    pub pool: PathBuf,
    /// Number of the node in the pool
    #[arg(long, value_name = "N", required_unless_present = "slurm")]
    pub id: Option<u32>,
    /// Take the node number from the task's rank within a Slurm step
    #[arg(long, conflicts_with = "id")]
    pub slurm: bool,
    /// Detach from the session that started this, once the pool runs
    #[arg(long)]
    pub detach: bool,
    /// End when the process that started this ends
    #[arg(long, conflicts_with = "detach")]
    pub with_parent: bool,
}

/// `tidemill put`.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// The pool to put into.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// The path in the pool, from its root; missing directories are created
    pub key: String,
    /// The file, or - for standard input
    pub file: PathBuf,
    /// Only if nothing exists there yet
    #[arg(long, conflicts_with = "if_version")]
    pub if_absent: bool,
    /// Only if the existing file has this version, as `stat --json` shows it
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<Version>,
    /// Placement of its bytes: striped, single, here, at(NODE) or balanced [default: as its
    /// directory says]
    #[arg(long, value_name = "POLICY")]
    pub placement: Option<Policy>,
    /// Length of its stripes: a power of two from 64KiB to 64MiB [default: as its directory says]
    #[arg(long, value_name = "SIZE")]
    pub stripe_size: Option<StripeSize>,
}

/// `tidemill get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// The pool to get from.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// The path in the pool, from its root
    pub key: String,
    /// The file, or - for standard output
    pub file: PathBuf,
}

/// `tidemill cat`.
#[derive(Debug, Args)]
pub struct KeysArgs {
    /// The pool to read from.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// Paths in the pool, from its root
    #[arg(value_name = "KEY", required = true)]
    pub keys: Vec<String>,
}

/// `tidemill ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// The pool to list.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// A path in the pool, from its root
    #[arg(default_value = "")]
    pub key: String,
    /// Show kind, mode, length and time of each entry
    #[arg(long, short)]
    pub long: bool,
    /// List all directories below too
    #[arg(long, short)]
    pub recursive: bool,
    /// Print one JSON object per line, as `stat --json` does
    #[arg(long)]
    pub json: bool,
}

/// `tidemill cp`.
#[derive(Debug, Args)]
pub struct CpArgs {
    /// The pool to copy in.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// A file of the pool
    pub from: String,
    /// The path of the copy; missing directories are created, an existing file is replaced
    pub to: String,
}

/// `tidemill rm`.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// The pool to remove from.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// Paths in the pool, from its root
    #[arg(value_name = "KEY", required = true)]
    pub keys: Vec<String>,
    /// Remove directories too, with all their content
    #[arg(long, short)]
    pub recursive: bool,
}

/// `tidemill stat` and `tidemill locate`.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// The pool to ask.
    #[command(flatten)]
    pub pool_arg: PoolArg,
    /// Paths in the pool, from its root
    #[arg(value_name = "KEY", required = true)]
    pub keys: Vec<String>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

/// Arguments that name a workflow and its parts.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// The script (JavaScript, or Swift in a file *.swift), or a descriptor (JSON with
    /// `tidemill_flow`)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: PathBuf,
    /// The tool file [default: tools.toml beside WORKFLOW; a descriptor brings its own tools]
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
    /// The directory of input data [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Replace the first value given to a top-level `var NAME`: a JSON number, string or boolean;
    /// may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub sets: Vec<String>,
    /// The options of a Swift script.
    #[command(flatten)]
    pub swift: SwiftArgs,
}

/// Options of Swift scripts.
#[derive(Debug, Clone, Default, Args)]
pub struct SwiftArgs {
    /// Search imported and included files of a Swift script here, before its own directory; may be
    /// repeated
    #[arg(short = 'I', long = "import-path", value_name = "DIR")]
    pub search: Vec<PathBuf>,
    /// Define a macro of a Swift script [default value: 1]; may be repeated
    #[arg(short = 'D', long = "define", value_name = "NAME[=VALUE]")]
    pub defines: Vec<String>,
    /// Arguments of a Swift script, which finds them by argv and argp
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub arguments: Vec<String>,
}

/// `tidemill run`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct RunArgs {
    /// The workflow to run.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Directory for outputs
    #[arg(long, value_name = "DIR", default_value = OUT)]
    pub out: PathBuf,
    /// Directory for report.html, run.json and the journal [default: tidemill-report/RUN]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub report: Option<PathBuf>,
    /// Go on with a run that was killed: RUN is the directory of its report, or its name below
    /// tidemill-report. Without WORKFLOW with the flags that it began with
    #[arg(long, value_name = "RUN")]
    pub resume: Option<PathBuf>,
    /// Let results of an earlier run stand in for tasks with the same tool, parameters and content
    /// of inputs: RUN is the directory of its report, or its name below tidemill-report
    #[arg(long, value_name = "RUN", conflicts_with = "resume")]
    pub reuse: Option<PathBuf>,
    /// The most memory the pool takes, never above the control group's limit [default: half of the
    /// free memory]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<ByteSize>,
    /// How many one-processor tasks run at once [default: the processors this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub slots: Option<u32>,
    /// Export this element too, or all elements and members whose names match /REGEXP/; may be
    /// repeated
    #[arg(long, value_name = "NAME|/REGEXP/")]
    pub export: Vec<String>,
    /// Do not delete temporaries after their last use, and export them all
    #[arg(long)]
    pub keep: bool,
    /// Keep failed tasks beside the report: their directories, and scripts that repeat their
    /// commands
    #[arg(long)]
    pub keep_failed: bool,
    /// Copy inputs into the pool instead of binding them read-only
    #[arg(long)]
    pub stage_in: bool,
    /// Start nothing more after the first failed task
    #[arg(long)]
    pub fail_fast: bool,
    /// Choose among ready tasks by this policy: fifo, algorithm1 or locality
    #[arg(long, value_name = "POLICY", default_value_t)]
    pub policy: run::PolicyKind,
    /// How tasks see the pool
    #[arg(long, value_name = "HOW", value_enum, default_value_t, env = "TIDEMILL_STORAGE")]
    pub storage: StorageArg,
    /// Let all bytes of files go through this process; otherwise the kernel reads and writes large
    /// files itself, where it may
    #[arg(long)]
    pub no_passthrough: bool,
    /// Serve metrics of the embedded pool over HTTP, without authentication, as IP:PORT/metrics
    #[arg(long, value_name = "IP:PORT", conflicts_with = "on")]
    pub metrics: Option<SocketAddr>,
    /// Print nothing but errors and warnings
    #[arg(long, short)]
    pub quiet: bool,
    /// Print events as JSON, one a line, to standard output
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// The cluster to run on.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How the pool grows by itself.
    #[command(flatten)]
    pub elastic: ElasticArgs,
}

/// `tidemill explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The directory of the run's report, or its name below tidemill-report
    pub run: PathBuf,
    /// The task: its number, or the name of data that it writes
    pub task: String,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tidemill top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The directory of the run's report, or its name below tidemill-report [default: the newest
    /// run there that goes on]
    pub run: Option<PathBuf>,
    /// Print it once instead of every second
    #[arg(long)]
    pub once: bool,
}

/// `--storage`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum StorageArg {
    /// The mount where FUSE is allowed, else the preload library, else staging
    #[default]
    Auto,
    /// The mount; refuse to run without it
    Mount,
    /// The preload library, with staging for tools that it cannot reach; refuse to run without it
    Preload,
    /// RAM-disk staging
    Staging,
}

/// `tidemill mount`.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// An empty directory; all given directories show the same pool
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,
    /// The most memory an embedded pool takes [default: half of the free memory]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, conflicts_with = "pool")]
    pub memory: Option<ByteSize>,
    /// Mount the pool of this pool file, started with `tidemill pool start` [default: an embedded
    /// pool, unless the environment names one]
    #[arg(long, value_name = "FILE")]
    pub pool: Option<PathBuf>,
    /// Serve metrics of the embedded pool over HTTP, without authentication, as IP:PORT/metrics
    #[arg(long, value_name = "IP:PORT", conflicts_with = "pool")]
    pub metrics: Option<SocketAddr>,
    /// Admit other users of the machine, as far as permissions allow
    #[arg(long)]
    pub shared: bool,
    /// Let all bytes of files go through this process; otherwise the kernel reads and writes large
    /// files itself, where it may
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
    /// Check a workflow, its tools and its inputs; if all is well, one line is printed
    Check(SourceArgs),
    /// Print the workflow as a JSON descriptor
    Export(SourceArgs),
}

/// `tidemill flow show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The workflow to show.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Print every task's command with all paths and values filled in, quoted for a shell
    #[arg(long)]
    pub commands: bool,
}

#[cfg(test)]
#[path = "args_test.rs"]
mod args_test;
