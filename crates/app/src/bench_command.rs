//! `tidemill bench`: the same work on pools and on other storage.

use crate::bench_args::{
    BenchArgs, BenchCommand, ExperimentArg, FilecopyArgs, LayoutArg, LocalityArgs, MeasureArgs, MetadataArgs,
    ObjectsArgs, SweepAxisArg,
};
use crate::console;
use crate::signals;
use base::Problem;
use bench::{
    BenchOptions, BenchReport, BenchTarget, CopyCase, Experiment, FileLayout, Filecopy, Interrupt, Locality, Metadata,
    ObjectsBench, SharedDirectory, SweepAxis,
};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 128 * MIB;
const CHUNK_BYTES: u64 = 32 * MIB;
/// Exit code of a benchmark that started and failed.
const FAILED: u8 = 1;

/// Runs a benchmark.
pub fn bench(command: &BenchCommand) -> Result<u8, Vec<Problem>> {
    let refused = |problem| vec![problem];
    let MeasureArgs { json, plot, .. } = match command {
        BenchCommand::Filecopy(args) => &args.common.measure,
        BenchCommand::Locality(args) => &args.measure,
        BenchCommand::Metadata(args) => &args.common.measure,
        BenchCommand::Objects(args) => &args.common.measure,
    };
    [json, plot].into_iter().flatten().try_for_each(|path| check_directory(path)).map_err(refused)?;
    match command {
        BenchCommand::Filecopy(args) => {
            let wanted = filecopy(args).map_err(refused)?;
            Ok(run(&args.common.measure, |options, on_line| wanted.run(options, on_line)))
        }
        BenchCommand::Locality(args) => {
            let wanted = locality(args).map_err(refused)?;
            Ok(run(&args.measure, |options, on_line| wanted.run(options, on_line)))
        }
        BenchCommand::Metadata(args) => {
            let wanted = metadata(args).map_err(refused)?;
            Ok(run(&args.common.measure, |options, on_line| wanted.run(options, on_line)))
        }
        BenchCommand::Objects(args) => {
            let wanted = objects(args).map_err(refused)?;
            Ok(run(&args.common.measure, |options, on_line| wanted.run(options, on_line)))
        }
    }
}

/// Runs as a worker of a benchmark.
pub fn worker() -> u8 {
    // Errors are reported to the process that leads the worker.
    if bench::worker_main().is_ok() { 0 } else { FAILED }
}

fn run(
    args: &MeasureArgs,
    measure: impl FnOnce(&BenchOptions, &mut dyn FnMut(&str)) -> Result<BenchReport, Problem>,
) -> u8 {
    let done = || -> Result<Option<u8>, Problem> {
        let own = |error| Problem::new(format!("this program's own path is unknown: {error}"));
        let (program, interrupt) = (std::env::current_exe().map_err(own)?, Interrupt::new().map_err(own)?);
        let raised = interrupt.clone();
        let received = signals::watch(move || raised.raise(), || {}).map_err(own)?;
        let options = BenchOptions { program, runs: args.runs, interrupt };
        let measured = measure(&options, &mut |line| console::say(line));
        if let Some(code) = received.exit_code() {
            return Ok(Some(code));
        }
        let report = measured?;
        if let Some(path) = &args.json {
            report.write_json(path)?;
        }
        if let Some(path) = &args.plot {
            report.write_plot(path)?;
        }
        Ok(None)
    };
    match done() {
        Ok(code) => code.unwrap_or(0),
        Err(problem) => {
            console::say(&format!("error: {problem}"));
            FAILED
        }
    }
}

/// Checks that results can be written to `path`, before minutes of measurement are lost.
fn check_directory(path: &Path) -> Result<(), Problem> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if directory.is_dir() && !path.is_dir() {
        return Ok(());
    }
    Err(Problem::new(format!("{}: no file can be written there", path.display()))
        .hint("name a file in a directory that exists"))
}

fn targets(args: &BenchArgs) -> Result<Vec<BenchTarget>, Problem> {
    let pool = args.pool.as_ref().map(std::path::absolute).transpose();
    let pool = pool.map_err(|error| Problem::new(format!("--pool: {error}")))?;
    let target = |text: &String| {
        Ok(match text.parse()? {
            BenchTarget::Pool(_) => BenchTarget::Pool(pool.clone()),
            other => other,
        })
    };
    args.on.iter().map(target).collect()
}

fn filecopy(args: &FilecopyArgs) -> Result<Filecopy, Problem> {
    let links = match args.links[..] {
        [] => None,
        [workers, nodes] if workers > 0 && nodes > 0 => Some((workers, nodes)),
        _ => {
            return Err(Problem::new("--links takes two numbers of Mbit/s").hint("as in --links 480,900"));
        }
    };
    let (file_size, chunk_size) = (args.file_size.map(|size| size.0), args.chunk_size.map(|size| size.0));
    if file_size == Some(0) || chunk_size == Some(0) {
        return Err(Problem::new("files and chunks have at least one byte"));
    }
    let cases = match args.experiment {
        None => {
            let file_bytes = file_size.unwrap_or(FILE_BYTES);
            let chunk_bytes = chunk_size.unwrap_or(CHUNK_BYTES).min(file_bytes);
            let (io_nodes, worker_nodes, workers) = (args.common.io_nodes, args.worker_nodes, args.workers);
            vec![(None, CopyCase { io_nodes, worker_nodes, workers, files: 1, file_bytes, chunk_bytes })]
        }
        Some(experiment) => {
            let experiment = match experiment {
                ExperimentArg::Chunks => Experiment::Chunks,
                ExperimentArg::IoNodes => Experiment::IoNodes,
                ExperimentArg::Crowded => Experiment::Crowded,
                ExperimentArg::WorkerNodes => Experiment::WorkerNodes,
            };
            experiment.cases(file_size).into_iter().map(|case| (Some(experiment), case)).collect()
        }
    };
    Ok(Filecopy { targets: targets(&args.common)?, cases, links, tls: !args.no_tls })
}

fn locality(args: &LocalityArgs) -> Result<Locality, Problem> {
    let (file_bytes, chunk_bytes) = (args.file_size.0, args.chunk_size.0.min(args.file_size.0));
    if chunk_bytes == 0 {
        return Err(Problem::new("files and chunks have at least one byte"));
    }
    // Default: the share of one host's link that the paper's file system reached (section V).
    let rate = args.shared_rate.map_or(0.8 * f64::from(args.link) / 8.0, f64::from);
    let shared = |path: &PathBuf| -> Result<SharedDirectory, Problem> {
        let path = std::path::absolute(path).map_err(|error| Problem::new(format!("--shared: {error}")))?;
        if !path.is_dir() {
            return Err(Problem::new(format!("--shared: {}: there is no such directory", path.display())));
        }
        Ok(SharedDirectory { path, rate })
    };
    Ok(Locality {
        axes: args
            .across
            .iter()
            .map(|across| match across {
                SweepAxisArg::Nodes => SweepAxis::Nodes,
                SweepAxisArg::Workers => SweepAxis::Workers,
            })
            .collect(),
        files: args.files,
        file_bytes,
        chunk_bytes,
        link: args.link,
        tls: !args.no_tls,
        shared: args.shared.as_ref().map(shared).transpose()?,
    })
}

fn objects(args: &ObjectsArgs) -> Result<ObjectsBench, Problem> {
    let sizes: Vec<u64> = args.size.iter().map(|size| size.0).collect();
    if sizes.contains(&0) {
        return Err(Problem::new("values have at least one byte"));
    }
    let (under_way, workers, io_nodes) = (args.under_way.clone(), args.workers, args.common.io_nodes);
    Ok(ObjectsBench { targets: targets(&args.common)?, sizes, under_way, workers, objects: args.objects, io_nodes })
}

fn metadata(args: &MetadataArgs) -> Result<Metadata, Problem> {
    let layout = |layout: &LayoutArg| match layout {
        LayoutArg::OneDirectory => FileLayout::OneDirectory,
        LayoutArg::Tree => FileLayout::Tree,
        LayoutArg::OwnFile => FileLayout::OwnFile,
        LayoutArg::SharedFile => FileLayout::SharedFile,
    };
    Ok(Metadata {
        targets: targets(&args.common)?,
        layouts: args.layout.iter().map(layout).collect(),
        io_nodes: args.common.io_nodes,
        workers: args.workers.clone(),
        files: args.files,
    })
}

#[cfg(test)]
#[path = "bench_command_test.rs"]
mod bench_command_test;
