//! File copies as in "Accelerating DMCF with Hercules" (paper 000, section V): workers write files, then read them.

use crate::{
    Manner, Report, Target,
    crew::Phase,
    ground::{Ground, Links, Made},
    order::{Order, Work},
    plot::{self, Chart},
    report::Median,
    stores::Store,
    worker::Job,
};
use base::{ByteSize, Problem};
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
/// What is read is recognised every so many bytes.
const STAMP_BYTES: usize = 64 << 10;
/// Memory of a pool beyond what is copied: stripes are hashed, so that nodes get a little more or less.
const SLACK: u64 = 64 * MIB;

/// One case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copying {
    /// Nodes of the pool that is made for it.
    pub io_nodes: u32,
    /// Hosts of workers.
    pub worker_nodes: u32,
    /// Workers on each.
    pub workers: u32,
    /// Files of each worker, one after the other.
    pub files: u32,
    /// Of each file.
    pub file_bytes: u64,
    /// Of one call.
    pub chunk_bytes: u64,
}

impl Copying {
    /// What all workers write, and read.
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
    /// Figure 4: one file of 128 MB by chunks of several sizes.
    Chunks,
    /// Figure 5: 1 to 8 I/O nodes, 8 worker nodes with a file of 512 MB each.
    IoNodes,
    /// Figure 6: the same with 4 workers a node and files of 128 MB.
    Crowded,
    /// Figure 7: 1 to 8 worker nodes share 8 files of 512 MB on 8 I/O nodes.
    WorkerNodes,
}

impl Experiment {
    /// As figures and flags call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chunks => "chunks",
            Self::IoNodes => "io-nodes",
            Self::Crowded => "crowded",
            Self::WorkerNodes => "worker-nodes",
        }
    }

    /// Its cases, with files of a different size if one is given.
    pub fn cases(self, file_bytes: Option<u64>) -> Vec<Copying> {
        let whole = file_bytes.unwrap_or(if matches!(self, Self::Chunks | Self::Crowded) { 128 } else { 512 } * MIB);
        let all = Copying {
            io_nodes: 8,
            worker_nodes: 8,
            workers: 1,
            files: 1,
            file_bytes: whole,
            chunk_bytes: whole.min(32 * MIB),
        };
        let counts = [1, 2, 4, 8];
        match self {
            Self::Chunks => {
                let sizes = (0..8).map(|power| MIB << power).take_while(|size| *size <= whole.max(MIB));
                sizes.map(|chunk_bytes| Copying { worker_nodes: 1, io_nodes: 1, chunk_bytes, ..all }).collect()
            }
            Self::IoNodes => counts.map(|io_nodes| Copying { io_nodes, ..all }).to_vec(),
            Self::Crowded => counts.map(|io_nodes| Copying { io_nodes, workers: 4, ..all }).to_vec(),
            Self::WorkerNodes => {
                counts.map(|worker_nodes| Copying { worker_nodes, files: 8 / worker_nodes, ..all }).to_vec()
            }
        }
    }

    /// What varies, and where a case stands on that axis.
    #[expect(clippy::cast_precision_loss, reason = "MiB")]
    fn across(self, case: &Copying) -> (&'static str, f64) {
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
    /// What is measured.
    pub targets: Vec<Target>,
    /// Its cases, and the experiment that they are of.
    pub cases: Vec<(Option<Experiment>, Copying)>,
    /// Of the hosts, if they are to have links of their own: workers and nodes, Mbit/s.
    pub links: Option<(u32, u32)>,
    /// Whether hosts speak within TLS.
    pub tls: bool,
}

impl Filecopy {
    /// Measures all; `told` hears of each row as it comes.
    pub fn run(&self, manner: &Manner, told: &mut dyn FnMut(&str)) -> Result<Report, Problem> {
        let mut report = Report { rows: Vec::new(), charts: Vec::new() };
        for (experiment, case) in &self.cases {
            for target in &self.targets {
                let speeds = self.measure(case, target, manner)?;
                told(&speeds.line(case, target));
                report.rows.push(speeds.row(*experiment, case, target, self.links));
                speeds.draw(*experiment, case, target, self.links, &mut report.charts);
            }
        }
        Ok(report)
    }

    fn measure(&self, case: &Copying, target: &Target, manner: &Manner) -> Result<Speeds, Problem> {
        let links = self.links.map(|(workers, nodes)| Links { workers, nodes });
        let made = Made { nodes: case.io_nodes, memory: case.node_memory(), links, together: false, tls: self.tls };
        let ground = Ground::prepare(target, &made, case.worker_nodes, manner)?;
        let (files, file_bytes, chunk_bytes) = (case.files, case.file_bytes, case.chunk_bytes);
        let work = Work::Filecopy { files, file_bytes, chunk_bytes, near: None, rate: None };
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for _ in 0..manner.runs {
            let (write, read) = ground.with_crew(case.workers, work.clone(), manner, |crew| {
                let both = (crew.phase("write")?, crew.phase("read")?);
                crew.phase("remove")?;
                Ok(both)
            })?;
            writes.push(write);
            reads.push(read);
        }
        Ok(Speeds { write: Speed::of(&writes, case.bytes()), read: Speed::of(&reads, case.bytes()) })
    }
}

/// What the links let through, MB/s: those of the workers or those of the nodes, whichever are narrower together.
fn limit(case: &Copying, links: Option<(u32, u32)>) -> Option<f64> {
    let (workers, nodes) = links?;
    Some(f64::from(case.worker_nodes * workers).min(f64::from(case.io_nodes * nodes)) / 8.0)
}

struct Speeds {
    write: Speed,
    read: Speed,
}

/// How fast bytes were, of all workers together.
pub(crate) struct Speed {
    /// 10^6 bytes a second.
    pub(crate) megabytes: Median,
    /// Seconds of processors for each GiB.
    workers_cpu: Median,
    nodes_cpu: Median,
}

impl Speed {
    #[expect(clippy::cast_precision_loss, reason = "bytes of files")]
    /// Of one phase in each run, which moved so many bytes.
    pub(crate) fn of(phases: &[Phase], bytes: u64) -> Self {
        let each = |number: &dyn Fn(&Phase) -> f64| Median::of(phases.iter().map(number).collect());
        let gib = bytes as f64 / f64::from(1 << 30);
        Self {
            megabytes: each(&|phase| bytes as f64 / 1e6 / phase.seconds),
            workers_cpu: each(&|phase| phase.workers_cpu / gib),
            nodes_cpu: each(&|phase| phase.nodes_cpu / gib),
        }
    }

    /// As rows have it; beside what a link would let through, 10^6 bytes a second, where one does.
    pub(crate) fn json(&self, limit: Option<f64>) -> Value {
        let mut shown = json!({
            "megabytes_per_second": self.megabytes,
            "workers_cpu_seconds_per_gib": self.workers_cpu.median,
            "nodes_cpu_seconds_per_gib": self.nodes_cpu.median,
        });
        if let Some(limit) = limit {
            shown["of_the_links"] = json!(self.megabytes.median / limit);
        }
        shown
    }
}

impl Speeds {
    fn line(&self, case: &Copying, target: &Target) -> String {
        let (write, read) = (self.write.megabytes.median, self.read.megabytes.median);
        let Copying { io_nodes, worker_nodes, workers, files, .. } = case;
        let (file, chunk) = (ByteSize(case.file_bytes), ByteSize(case.chunk_bytes));
        let on = if *target == Target::Pool(None) { format!("pool of {io_nodes}") } else { target.to_string() };
        format!(
            "{on}: {worker_nodes} x {workers} workers, {files} x {file} by {chunk}: write {write:.0} MB/s, read {read:.0} MB/s"
        )
    }

    fn row(&self, experiment: Option<Experiment>, case: &Copying, target: &Target, links: Option<(u32, u32)>) -> Value {
        let limit = limit(case, links);
        let io_nodes = (*target == Target::Pool(None)).then_some(case.io_nodes);
        json!({
            "experiment": experiment.map(Experiment::name), "target": target.to_string(), "io_nodes": io_nodes,
            "worker_nodes": case.worker_nodes, "workers_per_node": case.workers, "files_per_worker": case.files,
            "file_bytes": case.file_bytes, "chunk_bytes": case.chunk_bytes,
            "links_mbit": links.map(|(workers, nodes)| json!({"workers": workers, "io_nodes": nodes})),
            "write": self.write.json(limit), "read": self.read.json(limit),
        })
    }

    fn draw(
        &self,
        experiment: Option<Experiment>,
        case: &Copying,
        target: &Target,
        links: Option<(u32, u32)>,
        charts: &mut Vec<Chart>,
    ) {
        let Some(experiment) = experiment else { return };
        let (across, at) = experiment.across(case);
        for (verb, speed) in [("write", &self.write), ("read", &self.read)] {
            let title = format!("Filecopy, {}: {verb}", experiment.name());
            let chart = plot::of_title(charts, &title, across, "MB/s, all workers");
            chart.add(&target.to_string(), (at, speed.megabytes.median));
            if let Some(limit) = limit(case, links) {
                chart.add("the links", (at, limit));
            }
        }
    }
}

/// One worker's part.
pub struct CopyJob {
    store: Box<dyn Store>,
    files: Vec<(String, u64)>,
    file_bytes: u64,
    chunk_bytes: u64,
    buffer: Bytes,
    rate: Option<f64>,
}

impl CopyJob {
    /// Of an order to copy.
    pub fn new(store: Box<dyn Store>, order: &Order) -> Result<Self, Problem> {
        let Work::Filecopy { files, file_bytes, chunk_bytes, near, rate } = &order.work else {
            return Err(Problem::new("this is no order to copy"));
        };
        let folder = format!("{}/w{}", order.folder, order.worker);
        store.make_folder(&folder)?;
        if let Some(near) = near {
            store.place(&folder, *near)?;
        }
        let tag = |file: u32| u64::from(order.worker) << 48 | u64::from(file) << 32;
        let files = (0..*files).map(|file| (format!("{folder}/copy{file}"), tag(file))).collect();
        let (file_bytes, chunk_bytes) = (*file_bytes, (*chunk_bytes).clamp(1, MIB << 10));
        let length = usize::try_from(chunk_bytes).expect("a GiB at most");
        Ok(Self { store, files, file_bytes, chunk_bytes, buffer: vec![0x5a; length].into(), rate: *rate })
    }

    fn write(&mut self) -> Result<(), Problem> {
        let mut pace = Pace::new(self.rate);
        for (path, tag) in &self.files {
            let (mut at, buffer, chunk) = (0, &mut self.buffer, self.chunk_bytes);
            let whole = self.file_bytes;
            self.store.write(path, &mut || {
                pace.wait();
                let length = chunk.min(whole - at);
                pace.bytes += length;
                if length == 0 {
                    return None;
                }
                // Whoever was given the chunk before has let go of it, as a rule: then no memory is touched but the stamps.
                let mut bytes = std::mem::take(buffer).try_into_mut().unwrap_or_else(|held| BytesMut::from(&held[..]));
                stamps(&mut bytes, at).for_each(|(at, stamp)| stamp.copy_from_slice(&(tag | at).to_le_bytes()));
                *buffer = bytes.freeze();
                at += length;
                Some(buffer.slice(..usize::try_from(length).expect("a part of the buffer")))
            })?;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Problem> {
        let mut pace = Pace::new(self.rate);
        for (path, tag) in &self.files {
            let mut at = 0;
            self.store.read(path, self.chunk_bytes, &mut |bytes| {
                check(bytes, at, *tag).map_err(|wrong| Problem::new(format!("{path}: wrong bytes at {wrong}")))?;
                at += bytes.len() as u64;
                pace.bytes += bytes.len() as u64;
                pace.wait();
                Ok(())
            })?;
            if at != self.file_bytes {
                return Err(Problem::new(format!("{path} has {at} of its {} bytes", self.file_bytes)));
            }
        }
        Ok(())
    }
}

/// Holds a worker to so many bytes a second.
struct Pace {
    rate: Option<f64>,
    began: Instant,
    bytes: u64,
}

impl Pace {
    fn new(rate: Option<f64>) -> Self {
        Self { rate, began: Instant::now(), bytes: 0 }
    }

    /// Until the bytes so far have had their time.
    #[expect(clippy::cast_precision_loss, reason = "bytes of files")]
    fn wait(&self) {
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.bytes as f64 / rate);
            thread::sleep(due.saturating_sub(self.began.elapsed()));
        }
    }
}

impl Job for CopyJob {
    fn run(&mut self, phase: &str) -> Result<(), Problem> {
        match phase {
            "write" => self.write(),
            "read" => self.read(),
            "remove" => self.files.iter().try_for_each(|(path, _)| self.store.remove(path)),
            other => Err(Problem::new(format!("copying has no phase `{other}`"))),
        }
    }
}

/// The places of stamps in bytes that begin at `from` in their file, each with its offset there.
fn stamps(bytes: &mut [u8], from: u64) -> impl Iterator<Item = (u64, &mut [u8])> {
    let every = STAMP_BYTES as u64;
    let first = usize::try_from(from.next_multiple_of(every) - from).expect("less than a stamp's distance");
    let rest = bytes.get_mut(first..).unwrap_or_default();
    let base = from + first as u64;
    rest.chunks_mut(STAMP_BYTES)
        .filter(|part| part.len() >= 8)
        .enumerate()
        .map(move |(number, part)| (base + number as u64 * every, &mut part[..8]))
}

/// Where the first stamp is not what it should be.
fn check(bytes: &[u8], from: u64, tag: u64) -> Result<(), u64> {
    let every = STAMP_BYTES as u64;
    let first = from.next_multiple_of(every);
    let places = (first..from + bytes.len() as u64).step_by(STAMP_BYTES);
    for at in places {
        let start = usize::try_from(at - from).expect("within the bytes");
        // One that is cut by the end of what was read at once is not looked at.
        if let Some(stamp) = bytes.get(start..start + 8)
            && stamp != (tag | at).to_le_bytes()
        {
            return Err(at);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_experiments_are_those_of_the_paper() {
        let gib = |case: &Copying| case.bytes() >> 30;
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

    #[test]
    fn bytes_of_another_file_or_place_are_wrong() {
        let mut bytes = vec![0; 3 * STAMP_BYTES + 9];
        let (tag, from) = (7 << 48, 5 * STAMP_BYTES as u64);
        stamps(&mut bytes, from).for_each(|(at, stamp)| stamp.copy_from_slice(&(tag | at).to_le_bytes()));
        assert_eq!(check(&bytes, from, tag), Ok(()));
        assert_eq!(check(&bytes[100..], from + 100, tag), Ok(()), "read from within");
        assert_eq!(check(&bytes, from, 8 << 48), Err(from));
        assert_eq!(check(&bytes, from + STAMP_BYTES as u64, tag), Err(from + STAMP_BYTES as u64));
        bytes[STAMP_BYTES] ^= 1;
        assert_eq!(check(&bytes, from, tag), Err(from + STAMP_BYTES as u64));
    }
}
