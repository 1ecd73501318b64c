//! Flags of `tidemill pool` and `tidemill node`, and of pools that grow and shrink by themselves.

use crate::args::PoolArg;
use base::ByteSize;
use clap::{ArgGroup, Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

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
    /// step(90, 2, 50, 1) adds 2 above 90 % and removes 1 below 50 %; or foresight
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
    /// The commands that start machines.
    #[command(flatten)]
    pub machines: MachineArgs,
}

/// The commands that start and end machines of nodes.
#[derive(Debug, Clone, Args)]
pub struct MachineArgs {
    /// Start the machine of a node by this shell command, which has it run `tidemill pool join`
    /// with {pool} as the pool file and {name} as the name
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
