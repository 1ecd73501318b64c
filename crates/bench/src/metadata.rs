//! Metadata operations, like mdtest (LLNL, part of IOR): creates, stats, reads, renames and removes
//! many files.

use crate::{
    BenchOptions, BenchReport, BenchTarget,
    fixture::{Fixture, FixtureSpec},
    messages::{Work, WorkerCommand},
    plot::{self, Chart},
    report::OperationRate,
    stores::BenchStore,
    worker::WorkerJob,
};
use base::{ByteSize, Problem};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Directories in a directory of the tree, which has two levels.
const BRANCHES: u32 = 10;
/// Content of a small file, which is stored inline with the inode.
const SMALL: &[u8] = &[0x5a; 64];
/// Memory of a pool that is started, for all its nodes: files take a few hundred bytes each.
const MEMORY: ByteSize = ByteSize(1 << 30);

/// Layout of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileLayout {
    /// All files of all workers in one directory.
    OneDirectory,
    /// Each worker has a tree of a hundred directories.
    Tree,
    /// Each worker has a single file.
    OwnFile,
    /// All workers share a single file.
    SharedFile,
}

impl FileLayout {
    /// Name in flags and rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneDirectory => "one-directory",
            Self::Tree => "tree",
            Self::OwnFile => "own-file",
            Self::SharedFile => "shared-file",
        }
    }

    /// The phases, in order.
    pub fn phases(self) -> &'static [&'static str] {
        match self {
            Self::OneDirectory | Self::Tree => &["create", "stat", "read", "rename", "remove"],
            Self::OwnFile | Self::SharedFile => &["stat", "read"],
        }
    }
}

/// A benchmark of metadata.
#[derive(Debug)]
pub struct Metadata {
    /// Targets to measure: file systems.
    pub targets: Vec<BenchTarget>,
    /// Layouts to measure.
    pub layouts: Vec<FileLayout>,
    /// Nodes of a pool that is started for it.
    pub io_nodes: u32,
    /// Numbers of workers to measure.
    pub workers: Vec<u32>,
    /// Operations of each worker in each phase.
    pub files: u32,
}

impl Metadata {
    /// Measures all cases; `on_line` is called with a line for each row.
    pub fn run(&self, options: &BenchOptions, on_line: &mut dyn FnMut(&str)) -> Result<BenchReport, Problem> {
        if let Some(other) = self.targets.iter().find(|target| !target.is_file_system()) {
            return Err(Problem::new(format!("{other} has no metadata to measure")).hint("pool or dir:PATH"));
        }
        let mut report = BenchReport { rows: Vec::new(), charts: Vec::new() };
        for layout in &self.layouts {
            for workers in &self.workers {
                for target in &self.targets {
                    let rates = self.measure(*layout, *workers, target, options)?;
                    on_line(&line(*layout, *workers, target, &rates));
                    report.rows.push(self.row(*layout, *workers, target, &rates));
                    draw(*layout, *workers, target, &rates, &mut report.charts);
                }
            }
        }
        Ok(report)
    }

    fn measure(
        &self,
        layout: FileLayout,
        workers: u32,
        target: &BenchTarget,
        options: &BenchOptions,
    ) -> Result<Vec<(&'static str, OperationRate)>, Problem> {
        let memory = ByteSize(MEMORY.0 / u64::from(self.io_nodes.max(1)));
        let spec = FixtureSpec { nodes: self.io_nodes, memory, links: None, together: false, tls: false };
        let fixture = Fixture::prepare(target, &spec, 1, options)?;
        let phases = layout.phases();
        let measured = fixture.measure(workers, &Work::Metadata { layout, files: self.files }, phases, options)?;
        let operations = f64::from(self.files) * f64::from(workers);
        Ok(phases.iter().zip(measured).map(|(phase, runs)| (*phase, OperationRate::new(&runs, operations))).collect())
    }

    fn row(
        &self,
        layout: FileLayout,
        workers: u32,
        target: &BenchTarget,
        rates: &[(&'static str, OperationRate)],
    ) -> Value {
        let io_nodes = (*target == BenchTarget::Pool(None)).then_some(self.io_nodes);
        let phases: Map<String, Value> = rates.iter().map(|(phase, rate)| ((*phase).to_owned(), rate.json())).collect();
        json!({
            "layout": layout.name(), "target": target.to_string(), "io_nodes": io_nodes, "workers": workers,
            "files_per_worker": self.files, "phases": phases,
        })
    }
}

fn line(layout: FileLayout, workers: u32, target: &BenchTarget, rates: &[(&'static str, OperationRate)]) -> String {
    let shown: Vec<String> =
        rates.iter().map(|(phase, rate)| format!("{phase} {:.0}/s", rate.per_second.median)).collect();
    format!("{target}: {}, {workers} workers: {}", layout.name(), shown.join(", "))
}

fn draw(
    layout: FileLayout,
    workers: u32,
    target: &BenchTarget,
    rates: &[(&'static str, OperationRate)],
    charts: &mut Vec<Chart>,
) {
    let title = format!("Metadata, {}", layout.name());
    let chart = plot::find_or_add(charts, &title, "workers", "operations/s, all workers");
    for (phase, rate) in rates {
        chart.add(&format!("{target}: {phase}"), (workers.into(), rate.per_second.median));
    }
}

/// The operations of one worker.
pub struct MetadataJob {
    store: Box<dyn BenchStore>,
    /// The path for each operation; updated by renaming.
    files: Vec<String>,
}

impl MetadataJob {
    /// Makes the directories, or the single files.
    pub fn new(
        store: Box<dyn BenchStore>,
        command: &WorkerCommand,
        layout: FileLayout,
        files: u32,
    ) -> Result<Self, Problem> {
        let (base, worker) = (&command.directory, command.worker);
        let own = format!("{base}/w{worker}");
        let count = 0..files;
        let files = match layout {
            FileLayout::OneDirectory => count.map(|file| format!("{base}/f{worker}-{file}")).collect(),
            FileLayout::Tree => {
                let leaf = |at: u32| format!("{own}/d{}/d{}", at / BRANCHES, at % BRANCHES);
                store.make_directory(&own)?;
                for upper in 0..BRANCHES {
                    store.make_directory(&format!("{own}/d{upper}"))?;
                }
                for at in 0..BRANCHES * BRANCHES {
                    store.make_directory(&leaf(at))?;
                }
                count.map(|file| format!("{}/f{file}", leaf(file % (BRANCHES * BRANCHES)))).collect()
            }
            FileLayout::OwnFile => {
                write_small(&*store, &own)?;
                count.map(|_| own.clone()).collect()
            }
            FileLayout::SharedFile => {
                let shared = format!("{base}/shared");
                if worker == 0 {
                    write_small(&*store, &shared)?;
                }
                count.map(|_| shared.clone()).collect()
            }
        };
        Ok(Self { store, files })
    }
}

fn write_small(store: &dyn BenchStore, path: &str) -> Result<(), Problem> {
    let mut chunk = Some(Bytes::from_static(SMALL));
    store.write(path, &mut || chunk.take())
}

impl WorkerJob for MetadataJob {
    fn run(&mut self, phase: &str) -> Result<(), Problem> {
        let (store, files) = (&self.store, &mut self.files);
        match phase {
            "create" => files.iter().try_for_each(|path| store.create(path)),
            "stat" => files.iter().try_for_each(|path| store.stat(path).map(drop)),
            "read" => files.iter().try_for_each(|path| store.read(path, SMALL.len() as u64, &mut |_| Ok(()))),
            "remove" => files.iter().try_for_each(|path| store.remove(path)),
            "rename" => files.iter_mut().try_for_each(|path| {
                let to = format!("{path}-renamed");
                store.rename(path, &to)?;
                *path = to;
                Ok(())
            }),
            other => Err(Problem::new(format!("metadata has no phase `{other}`"))),
        }
    }
}
