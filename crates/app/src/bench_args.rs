//! Flags of `tidemill bench`. The doc comments are their help text.

use base::ByteSize;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `tidemill bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Workers write files, then read them (the benchmark of the Hercules papers)
    Filecopy(Box<FilecopyArgs>),
    /// Workers on the hosts of nodes write and read files at their own and at other nodes (figures
    /// 5 to 8 of Swift/T with Hercules)
    Locality(Box<LocalityArgs>),
    /// Workers create, stat, rename and remove many files
    Metadata(Box<MetadataArgs>),
    /// Workers put values under keys, and get them
    Objects(Box<ObjectsArgs>),
}

/// Options of all benchmarks that use targets.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Targets to measure: `pool`, `dir:PATH`, `redis:HOST:PORT`, `memcached:HOST:PORT`; separated
    /// by commas
    #[arg(long, value_name = "TARGET", value_delimiter = ',', default_value = "pool")]
    pub on: Vec<String>,
    /// Measure this pool as `pool`, instead of starting one for each case
    #[arg(long, value_name = "FILE")]
    pub pool: Option<PathBuf>,
    /// Nodes of a pool that is started
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub io_nodes: u32,
    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// Options for repetitions and results of a benchmark.
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// Measure each case this often; the median is reported
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw the results as SVG
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
    /// The size of each file [default: 128MiB, or that of the experiment]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub file_size: Option<ByteSize>,
    /// Bytes written and read at a time [default: 32MiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, conflicts_with = "experiment")]
    pub chunk_size: Option<ByteSize>,
    /// Workers and nodes on separate hosts (network namespaces: as root) with links of these rates
    /// in Mbit/s: of worker hosts, of node hosts
    #[arg(long, value_name = "W,N", value_delimiter = ',', num_args = 1)]
    pub links: Vec<u32>,
    /// Do not encrypt the traffic between those hosts
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
    /// The number to increase; separated by commas
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',', default_values = ["nodes", "workers"])]
    pub across: Vec<SweepAxisArg>,
    /// Files of all workers together; each worker has at least one
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub files: u32,
    /// The size of each file
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "64MiB")]
    pub file_size: ByteSize,
    /// Bytes written and read at a time
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "1MiB")]
    pub chunk_size: ByteSize,
    /// Rate of the link of each host (a network namespace: as root), Mbit/s
    #[arg(long, value_name = "MBIT", default_value_t = 480, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub link: u32,
    /// Do not encrypt the traffic between hosts
    #[arg(long)]
    pub no_tls: bool,
    /// Measure this directory too, in place of a shared file system
    #[arg(long, value_name = "DIR")]
    pub shared: Option<PathBuf>,
    /// Rate of that directory for all workers together, MB/s [default: 0.8 of one link]
    #[arg(long, value_name = "MB", requires = "shared", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub shared_rate: Option<u32>,
}

/// The number to increase in `bench locality`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SweepAxisArg {
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
    /// Layouts of the files; separated by commas
    #[arg(long, value_name = "LAYOUT", value_enum, value_delimiter = ',', default_values = ["one-directory", "tree", "own-file", "shared-file"])]
    pub layout: Vec<LayoutArg>,
    /// Numbers of workers; separated by commas
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
    /// Lengths of values; separated by commas
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_values = ["64", "1MiB"])]
    pub size: Vec<ByteSize>,
    /// Requests that each worker has in flight; separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_values = ["1", "16"], value_parser = clap::value_parser!(u32).range(1..=256))]
    pub under_way: Vec<u32>,
    /// Values of each worker [default: as many as fit in 256 MiB, at most 40,000 of all workers
    /// together]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub objects: Option<u32>,
    /// Number of workers
    #[arg(long, value_name = "K", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: u32,
}

/// Layouts of `bench metadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayoutArg {
    /// All files of all workers in one directory
    OneDirectory,
    /// Each worker has a tree of a hundred directories
    Tree,
    /// Each worker has a single file
    OwnFile,
    /// All share a single file
    SharedFile,
}
