//! File copies as in "Accelerating DMCF with Hercules" (paper 000, section V): workers write files,
//! then read them.

use crate::{
    BenchOptions, BenchReport, BenchTarget,
    copies::Speeds,
    fixture::{Fixture, FixtureSpec, LinkSpec},
    messages::CopySpec,
    plot::{self, Chart},
};
use base::{ByteSize, Problem};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
/// Extra memory of each node: stripes are placed by hashes, so some nodes get more than others.
const SLACK: u64 = 64 * MIB;

/// One case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyCase {
    /// I/O nodes: nodes of the pool that is started for the case.
    pub io_nodes: u32,
    /// Number of hosts with workers.
    pub worker_nodes: u32,
    /// Workers on each host.
    pub workers: u32,
    /// Files of each worker, copied one after the other.
    pub files: u32,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Bytes of one call.
    pub chunk_bytes: u64,
}

impl CopyCase {
    /// Bytes that all workers write, and then read.
    pub fn bytes(&self) -> u64 {
        self.file_bytes * u64::from(self.worker_nodes) * u64::from(self.workers) * u64::from(self.files)
    }

    fn node_memory(&self) -> ByteSize {
        let share = self.bytes().div_ceil(u64::from(self.io_nodes));
        ByteSize(share + share / 4 + SLACK)
    }
}

/// The four experiments of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Figure 4: one file of 128 MB, by chunks of several sizes.
    Chunks,
    /// Figure 5: 1 to 8 I/O nodes, 8 worker nodes with a file of 512 MB each.
    IoNodes,
    /// Figure 6: 1 to 8 I/O nodes, 8 worker nodes with 4 workers each, files of 128 MB.
    Crowded,
    /// Figure 7: 1 to 8 worker nodes share 8 files of 512 MB on 8 I/O nodes.
    WorkerNodes,
}

impl Experiment {
    /// Name in figures and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chunks => "chunks",
            Self::IoNodes => "io-nodes",
            Self::Crowded => "crowded",
            Self::WorkerNodes => "worker-nodes",
        }
    }

    /// The cases of the experiment; `file_bytes` replaces the size of the files.
    pub fn cases(self, file_bytes: Option<u64>) -> Vec<CopyCase> {
        let bytes_each =
            file_bytes.unwrap_or(if matches!(self, Self::Chunks | Self::Crowded) { 128 } else { 512 } * MIB);
        let all = CopyCase {
            io_nodes: 8,
            worker_nodes: 8,
            workers: 1,
            files: 1,
            file_bytes: bytes_each,
            chunk_bytes: bytes_each.min(32 * MIB),
        };
        let counts = [1, 2, 4, 8];
        match self {
            Self::Chunks => {
                let sizes = (0..8).map(|power| MIB << power).take_while(|size| *size <= bytes_each.max(MIB));
                sizes.map(|chunk_bytes| CopyCase { worker_nodes: 1, io_nodes: 1, chunk_bytes, ..all }).collect()
            }
            Self::IoNodes => counts.map(|io_nodes| CopyCase { io_nodes, ..all }).to_vec(),
            Self::Crowded => counts.map(|io_nodes| CopyCase { io_nodes, workers: 4, ..all }).to_vec(),
            Self::WorkerNodes => {
                counts.map(|worker_nodes| CopyCase { worker_nodes, files: 8 / worker_nodes, ..all }).to_vec()
            }
        }
    }

    /// The label of the axis that the cases vary on, and the position of `case` on it.
    #[expect(clippy::cast_precision_loss, reason = "MiB")]
    fn axis(self, case: &CopyCase) -> (&'static str, f64) {
        match self {
            Self::Chunks => ("chunk, MiB", case.chunk_bytes as f64 / MIB as f64),
            Self::IoNodes | Self::Crowded => ("I/O nodes", case.io_nodes.into()),
            Self::WorkerNodes => ("worker nodes", case.worker_nodes.into()),
        }
    }
}

/// A benchmark of copies.
#[derive(Debug)]
pub struct Filecopy {
    /// Targets to measure.
    pub targets: Vec<BenchTarget>,
    /// Cases to measure, each with the experiment that it belongs to.
    pub cases: Vec<(Option<Experiment>, CopyCase)>,
    /// Rates of the hosts' links in Mbit/s, of workers and of nodes, if hosts get their own links.
    pub links: Option<(u32, u32)>,
    /// Encrypts the traffic between hosts by TLS.
    pub tls: bool,
}

impl Filecopy {
    /// Measures all cases; `on_line` is called with a line for each row.
    pub fn run(&self, options: &BenchOptions, on_line: &mut dyn FnMut(&str)) -> Result<BenchReport, Problem> {
        let mut report = BenchReport { rows: Vec::new(), charts: Vec::new() };
        for (experiment, case) in &self.cases {
            for target in &self.targets {
                let speeds = self.measure(case, target, options)?;
                on_line(&line(&speeds, case, target));
                report.rows.push(row(&speeds, *experiment, case, target, self.links));
                draw(&speeds, *experiment, case, target, self.links, &mut report.charts);
            }
        }
        Ok(report)
    }

    fn measure(&self, case: &CopyCase, target: &BenchTarget, options: &BenchOptions) -> Result<Speeds, Problem> {
        let links = self.links.map(|(workers, nodes)| LinkSpec { workers, nodes });
        let spec =
            FixtureSpec { nodes: case.io_nodes, memory: case.node_memory(), links, together: false, tls: self.tls };
        let fixture = Fixture::prepare(target, &spec, case.worker_nodes, options)?;
        let (files, file_bytes, chunk_bytes) = (case.files, case.file_bytes, case.chunk_bytes);
        let copies = CopySpec { files, file_bytes, chunk_bytes, placement: None, rate: None };
        Speeds::measure(&fixture, case.workers, &copies, case.bytes(), options)
    }
}

/// Limit of the links in MB/s: the smaller of the workers' sum and the nodes' sum.
fn limit(case: &CopyCase, links: Option<(u32, u32)>) -> Option<f64> {
    let (workers, nodes) = links?;
    Some(f64::from(case.worker_nodes * workers).min(f64::from(case.io_nodes * nodes)) / 8.0)
}

fn line(speeds: &Speeds, case: &CopyCase, target: &BenchTarget) -> String {
    let (write, read) = (speeds.write.megabytes.median, speeds.read.megabytes.median);
    let CopyCase { io_nodes, worker_nodes, workers, files, .. } = case;
    let (file, chunk) = (ByteSize(case.file_bytes), ByteSize(case.chunk_bytes));
    let on = if *target == BenchTarget::Pool(None) { format!("pool of {io_nodes}") } else { target.to_string() };
    format!(
        "{on}: {worker_nodes} x {workers} workers, {files} x {file} by {chunk}: write {write:.0} MB/s, read {read:.0} MB/s"
    )
}

fn row(
    speeds: &Speeds,
    experiment: Option<Experiment>,
    case: &CopyCase,
    target: &BenchTarget,
    links: Option<(u32, u32)>,
) -> Value {
    let limit = limit(case, links);
    let io_nodes = (*target == BenchTarget::Pool(None)).then_some(case.io_nodes);
    json!({
        "experiment": experiment.map(Experiment::name), "target": target.to_string(), "io_nodes": io_nodes,
        "worker_nodes": case.worker_nodes, "workers_per_node": case.workers, "files_per_worker": case.files,
        "file_bytes": case.file_bytes, "chunk_bytes": case.chunk_bytes,
        "links_mbit": links.map(|(workers, nodes)| json!({"workers": workers, "io_nodes": nodes})),
        "write": speeds.write.json(limit), "read": speeds.read.json(limit),
    })
}

fn draw(
    speeds: &Speeds,
    experiment: Option<Experiment>,
    case: &CopyCase,
    target: &BenchTarget,
    links: Option<(u32, u32)>,
    charts: &mut Vec<Chart>,
) {
    let Some(experiment) = experiment else { return };
    let (x_label, at) = experiment.axis(case);
    for (verb, speed) in [("write", &speeds.write), ("read", &speeds.read)] {
        let title = format!("Filecopy, {}: {verb}", experiment.name());
        let chart = plot::find_or_add(charts, &title, x_label, "MB/s, all workers");
        chart.add(&target.to_string(), (at, speed.megabytes.median));
        if let Some(limit) = limit(case, links) {
            chart.add("the links", (at, limit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_experiments_are_those_of_the_paper() {
        let gib = |case: &CopyCase| case.bytes() >> 30;
        let io_nodes = Experiment::IoNodes.cases(None);
        assert_eq!(io_nodes.iter().map(|case| case.io_nodes).collect::<Vec<_>>(), [1, 2, 4, 8]);
        for case in io_nodes.iter().chain(&Experiment::Crowded.cases(None)).chain(&Experiment::WorkerNodes.cases(None))
        {
            assert_eq!((gib(case), case.chunk_bytes), (4, 32 * MIB), "{case:?}");
        }
        let crowded = Experiment::Crowded.cases(None)[0];
        assert_eq!((crowded.worker_nodes, crowded.workers, crowded.file_bytes), (8, 4, 128 * MIB));
        let shared = Experiment::WorkerNodes.cases(None);
        assert_eq!(
            shared.iter().map(|case| (case.worker_nodes, case.io_nodes)).collect::<Vec<_>>(),
            [(1, 8), (2, 8), (4, 8), (8, 8)]
        );
        let chunks = Experiment::Chunks.cases(None);
        assert!(chunks.iter().all(|case| case.bytes() == 128 * MIB) && chunks.len() == 8);
        assert!(
            Experiment::IoNodes.cases(Some(MIB)).iter().all(|case| case.bytes() == 8 * MIB && case.chunk_bytes == MIB)
        );
    }
}
