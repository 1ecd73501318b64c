//! Local and remote files, as in "Swift/T and Hercules" (paper 002, section V, figures 5 to 8):
//! writers and readers on the hosts of the nodes, with every file at the worker's own node, or
//! every file at another.

use crate::{
    BenchOptions, BenchReport, BenchTarget,
    copies::{Speed, Speeds},
    fixture::{Fixture, FixtureSpec, LinkSpec},
    messages::{CopySpec, FilePlacement},
    plot::{self, Chart},
};
use base::{ByteSize, Problem};
use serde_json::{Value, json};
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
/// Number of hosts if the number of workers varies (figures 7 and 8).
const NODES: u32 = 8;
/// Values of the number that varies.
const COUNTS: [u32; 4] = [1, 2, 4, 8];
/// Memory of each node beyond the files that it holds.
const SLACK: u64 = 64 * MIB;

/// The number that varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepAxis {
    /// Figures 5 and 6: 1 to 8 nodes with a worker each.
    Nodes,
    /// Figures 7 and 8: 1 to 8 workers on each of 8 nodes.
    Workers,
}

/// A directory that all workers share, in place of a parallel file system.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedDirectory {
    /// Path of the directory.
    pub path: PathBuf,
    /// Rate in 10^6 bytes per second for all workers together, shared equally.
    pub rate: f64,
}

/// A benchmark of local and remote files.
#[derive(Debug)]
pub struct Locality {
    /// The halves of the experiment to measure.
    pub axes: Vec<SweepAxis>,
    /// Files of all workers together; each worker has at least one.
    pub files: u32,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Bytes of one call.
    pub chunk_bytes: u64,
    /// Rate of each host's link, Mbit/s in each direction.
    pub link: u32,
    /// Encrypts the traffic between hosts by TLS.
    pub tls: bool,
    /// A directory to measure beside the pool.
    pub shared: Option<SharedDirectory>,
}

/// One case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LocalityCase {
    axis: SweepAxis,
    nodes: u32,
    /// Workers on each node.
    workers: u32,
    /// Files of each worker.
    files: u32,
}

/// Location of the files of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FileLocality<'a> {
    InPool(FilePlacement),
    Shared(&'a SharedDirectory),
}

impl FileLocality<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::InPool(FilePlacement::Local) => "local",
            Self::InPool(FilePlacement::Remote) => "remote",
            Self::Shared(_) => "shared directory",
        }
    }
}

impl SweepAxis {
    fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Workers => "workers",
        }
    }

    fn cases(self, files: u32) -> [LocalityCase; 4] {
        COUNTS.map(|count| {
            let (nodes, workers) = match self {
                Self::Nodes => (count, 1),
                Self::Workers => (NODES, count),
            };
            LocalityCase { axis: self, nodes, workers, files: (files / (nodes * workers)).max(1) }
        })
    }
}

impl LocalityCase {
    fn all_workers(&self) -> u32 {
        self.nodes * self.workers
    }

    /// Number of nodes or workers by which the reported speed is divided.
    fn shares(&self) -> f64 {
        match self.axis {
            SweepAxis::Nodes => self.nodes,
            SweepAxis::Workers => self.all_workers(),
        }
        .into()
    }
}

impl Locality {
    /// Measures all cases; `on_line` is called with a line for each row.
    pub fn run(&self, options: &BenchOptions, on_line: &mut dyn FnMut(&str)) -> Result<BenchReport, Problem> {
        let mut report = BenchReport { rows: Vec::new(), charts: Vec::new() };
        for case in self.axes.iter().flat_map(|axis| axis.cases(self.files)) {
            let mut remote = None;
            for locality in self.kinds(&case) {
                let speeds = self.measure(&case, locality, options)?;
                on_line(&self.line(&case, locality, &speeds));
                report.rows.push(self.row(&case, locality, &speeds, remote.as_ref()));
                self.draw(&case, locality, &speeds, &mut report.charts);
                if locality == FileLocality::InPool(FilePlacement::Remote) {
                    remote = Some(speeds);
                }
            }
        }
        Ok(report)
    }

    /// Locations of the files to measure: with one node none is remote.
    fn kinds(&self, case: &LocalityCase) -> Vec<FileLocality<'_>> {
        let remote = (case.nodes > 1).then_some(FileLocality::InPool(FilePlacement::Remote));
        let shared = self.shared.as_ref().map(FileLocality::Shared);
        remote.into_iter().chain([FileLocality::InPool(FilePlacement::Local)]).chain(shared).collect()
    }

    fn bytes(&self, case: &LocalityCase) -> u64 {
        u64::from(case.files) * u64::from(case.all_workers()) * self.file_bytes
    }

    fn measure(
        &self,
        case: &LocalityCase,
        locality: FileLocality<'_>,
        options: &BenchOptions,
    ) -> Result<Speeds, Problem> {
        let each = self.bytes(case) / u64::from(case.nodes);
        let spec = FixtureSpec {
            nodes: case.nodes,
            memory: ByteSize(each + each / 4 + SLACK),
            links: Some(LinkSpec { workers: self.link, nodes: self.link }),
            together: true,
            tls: self.tls,
        };
        let (target, spec, placement, rate) = match locality {
            FileLocality::InPool(placement) => (BenchTarget::Pool(None), spec, Some(placement), None),
            FileLocality::Shared(SharedDirectory { path, rate }) => {
                let each = rate * 1e6 / f64::from(case.all_workers());
                (BenchTarget::Directory(path.clone()), FixtureSpec { links: None, ..spec }, None, Some(each))
            }
        };
        let fixture = Fixture::prepare(&target, &spec, case.nodes, options)?;
        let (files, file_bytes, chunk_bytes) = (case.files, self.file_bytes, self.chunk_bytes);
        let copies = CopySpec { files, file_bytes, chunk_bytes, placement, rate };
        Speeds::measure(&fixture, case.workers, &copies, self.bytes(case), options)
    }

    fn line(&self, case: &LocalityCase, locality: FileLocality<'_>, speeds: &Speeds) -> String {
        let each = |speed: &Speed| speed.megabytes.median / case.shares();
        let LocalityCase { nodes, workers, files, .. } = case;
        let (write, read, file) = (each(&speeds.write), each(&speeds.read), ByteSize(self.file_bytes));
        let unit = match case.axis {
            SweepAxis::Nodes => "node",
            SweepAxis::Workers => "worker",
        };
        let locality = locality.name();
        format!(
            "{locality}: {nodes} nodes x {workers} workers, {files} x {file}: a {unit} writes {write:.0} MB/s, reads {read:.0} MB/s"
        )
    }

    fn row(&self, case: &LocalityCase, locality: FileLocality<'_>, speeds: &Speeds, remote: Option<&Speeds>) -> Value {
        let shown = |speed: &Speed, far: Option<&Speed>| {
            let mut shown = speed.json(None);
            shown["megabytes_per_second_each"] = json!(speed.megabytes.median / case.shares());
            if let (FileLocality::InPool(FilePlacement::Local), Some(far)) = (locality, far) {
                shown["of_remote"] = json!(speed.megabytes.median / far.megabytes.median);
            }
            shown
        };
        json!({
            "experiment": case.axis.name(), "kept": locality.name(), "nodes": case.nodes, "workers_per_node": case.workers,
            "files_per_worker": case.files, "file_bytes": self.file_bytes, "chunk_bytes": self.chunk_bytes,
            "link_mbit": self.link, "shared_megabytes_per_second": self.shared.as_ref().map(|shared| shared.rate),
            "write": shown(&speeds.write, remote.map(|remote| &remote.write)),
            "read": shown(&speeds.read, remote.map(|remote| &remote.read)),
        })
    }

    fn draw(&self, case: &LocalityCase, locality: FileLocality<'_>, speeds: &Speeds, charts: &mut Vec<Chart>) {
        let (setting, axis, y_label, at) = match case.axis {
            SweepAxis::Nodes => ("a worker a node", "nodes", "MB/s, each node", case.nodes),
            SweepAxis::Workers => ("8 nodes", "workers a node", "MB/s, each worker", case.workers),
        };
        let pool = [FileLocality::InPool(FilePlacement::Local), FileLocality::InPool(FilePlacement::Remote)];
        let all = pool.into_iter().chain(self.shared.as_ref().map(FileLocality::Shared));
        for (verb, speed) in [("write", &speeds.write), ("read", &speeds.read)] {
            let chart = plot::find_or_add(charts, &format!("Raw file {verb}, {setting}"), axis, y_label);
            if chart.lines.is_empty() {
                // Add the lines in a fixed order, so that each has the same colour in all charts.
                chart.lines.extend(all.clone().map(|locality| (locality.name().to_owned(), Vec::new())));
                chart.log_scale_y = true;
            }
            chart.add(locality.name(), (at.into(), speed.megabytes.median / case.shares()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_are_those_of_the_paper() {
        let shown = |axis: SweepAxis| axis.cases(32).map(|case| (case.nodes, case.workers, case.files));
        assert_eq!(shown(SweepAxis::Nodes), [(1, 1, 32), (2, 1, 16), (4, 1, 8), (8, 1, 4)]);
        // 64 workers have one file each, so there are 64 files instead of the paper's 32.
        assert_eq!(shown(SweepAxis::Workers), [(8, 1, 4), (8, 2, 2), (8, 4, 1), (8, 8, 1)]);
        let shares = |axis: SweepAxis| axis.cases(32).map(|case| case.shares());
        assert!(
            shares(SweepAxis::Nodes).iter().zip([1.0, 2.0, 4.0, 8.0]).all(|(share, count)| (share - count).abs() < 0.1)
        );
        assert!((shares(SweepAxis::Workers)[3] - 64.0).abs() < 0.1);
    }

    #[test]
    fn on_one_node_nothing_is_remote() {
        let shared = Some(SharedDirectory { path: "/tmp".into(), rate: 48.0 });
        let bench = Locality {
            axes: vec![SweepAxis::Nodes],
            files: 32,
            file_bytes: 1,
            chunk_bytes: 1,
            link: 480,
            tls: true,
            shared,
        };
        let [one, two, ..] = SweepAxis::Nodes.cases(32);
        let shared = FileLocality::Shared(bench.shared.as_ref().expect("it is given"));
        assert_eq!(bench.kinds(&one), [FileLocality::InPool(FilePlacement::Local), shared]);
        assert_eq!(
            bench.kinds(&two),
            [FileLocality::InPool(FilePlacement::Remote), FileLocality::InPool(FilePlacement::Local), shared]
        );
    }
}
