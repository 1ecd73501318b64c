//! Objects: workers put values under keys, and get them.

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
use serde_json::{Value, json};

/// Upper bounds of all values of all workers together, in bytes and in number: large values exceed
/// the processors' caches.
const VALUES_BYTES: u64 = 256 << 20;
const VALUES_MAX: u64 = 40_000;
/// Extra memory of a pool that is started, for all its nodes: inodes, and the copies while a
/// directory splits.
const MEMORY: u64 = 1 << 30;
const PHASES: [&str; 2] = ["put", "get"];

/// A benchmark of objects.
#[derive(Debug)]
pub struct ObjectsBench {
    /// Targets to measure.
    pub targets: Vec<BenchTarget>,
    /// Lengths of values in bytes.
    pub sizes: Vec<u64>,
    /// Numbers of requests that each worker has in flight.
    pub under_way: Vec<u32>,
    /// Number of workers.
    pub workers: u32,
    /// Values of each worker; `None`: as many as fit in 256 MiB, at most 40,000 of all workers
    /// together.
    pub objects: Option<u32>,
    /// Nodes of a pool that is started for it.
    pub io_nodes: u32,
}

impl ObjectsBench {
    /// Measures all cases; `on_line` is called with a line for each row.
    pub fn run(&self, options: &BenchOptions, on_line: &mut dyn FnMut(&str)) -> Result<BenchReport, Problem> {
        let mut report = BenchReport { rows: Vec::new(), charts: Vec::new() };
        for bytes in &self.sizes {
            for under_way in &self.under_way {
                for target in &self.targets {
                    let rates = self.measure(*bytes, *under_way, target, options)?;
                    let [put, get] = [&rates[0], &rates[1]].map(|rate| rate.per_second.median);
                    let size = ByteSize(*bytes);
                    on_line(&format!(
                        "{target}: {} workers, {size}, {under_way} under way: put {put:.0}/s, get {get:.0}/s",
                        self.workers
                    ));
                    report.rows.push(self.row((*bytes, *under_way), target, &rates));
                    draw((*bytes, *under_way), target, &rates, &mut report.charts);
                }
            }
        }
        Ok(report)
    }

    /// Number of values of each worker.
    fn count(&self, bytes: u64, under_way: u32) -> u32 {
        let all = (VALUES_BYTES / bytes.max(1)).min(VALUES_MAX);
        let each = u32::try_from(all / u64::from(self.workers)).unwrap_or(u32::MAX);
        self.objects.unwrap_or(each).max(1).next_multiple_of(under_way)
    }

    fn measure(
        &self,
        bytes: u64,
        under_way: u32,
        target: &BenchTarget,
        options: &BenchOptions,
    ) -> Result<Vec<OperationRate>, Problem> {
        let count = self.count(bytes, under_way);
        let stored = 2 * bytes * u64::from(count) * u64::from(self.workers);
        let memory = ByteSize((stored + MEMORY) / u64::from(self.io_nodes.max(1)));
        let spec = FixtureSpec { nodes: self.io_nodes, memory, links: None, together: false, tls: false };
        let fixture = Fixture::prepare(target, &spec, 1, options)?;
        let phases = ["fill", PHASES[0], PHASES[1], "remove"];
        let measured = fixture.measure(self.workers, &Work::Objects { bytes, count, under_way }, &phases, options)?;
        let operations = f64::from(count) * f64::from(self.workers);
        Ok(measured[1..3].iter().map(|runs| OperationRate::new(runs, operations)).collect())
    }

    fn row(&self, (bytes, under_way): (u64, u32), target: &BenchTarget, rates: &[OperationRate]) -> Value {
        let io_nodes = (*target == BenchTarget::Pool(None)).then_some(self.io_nodes);
        json!({
            "target": target.to_string(), "io_nodes": io_nodes, "workers": self.workers, "bytes": bytes,
            "under_way": under_way, "objects_per_worker": self.count(bytes, under_way),
            "put": rates[0].json(), "get": rates[1].json(),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "lengths of values")]
fn draw((bytes, under_way): (u64, u32), target: &BenchTarget, rates: &[OperationRate], charts: &mut Vec<Chart>) {
    for (phase, rate) in PHASES.iter().zip(rates) {
        let title = format!("Objects, {under_way} under way: {phase}");
        let chart = plot::find_or_add(charts, &title, "bytes", "objects/s, all workers");
        chart.add(&target.to_string(), (bytes as f64, rate.per_second.median));
    }
}

/// The puts and gets of one worker.
pub struct ObjectsJob {
    store: Box<dyn BenchStore>,
    keys: Vec<String>,
    value: Bytes,
    under_way: usize,
}

impl ObjectsJob {
    /// Creates a job of `count` values of `bytes` bytes each, with `under_way` requests in flight.
    pub fn new(
        store: Box<dyn BenchStore>,
        command: &WorkerCommand,
        (bytes, count, under_way): (u64, u32, u32),
    ) -> Result<Self, Problem> {
        let directory = format!("{}/o{}", command.directory, command.worker);
        store.make_directory(&directory)?;
        let keys = (0..count).map(|number| format!("{directory}/{number:06}")).collect();
        let length = usize::try_from(bytes).map_err(|_| Problem::new("a value does not fit into memory"))?;
        let value = vec![u8::try_from(command.worker % 256).expect("below 256"); length].into();
        Ok(Self { store, keys, value, under_way: under_way.max(1) as usize })
    }

    fn batches(&self) -> impl Iterator<Item = &[String]> {
        self.keys.chunks(self.under_way)
    }

    fn get(&self, keys: &[String]) -> Result<(), Problem> {
        self.store.get_values(keys, &mut |bytes| {
            let fits = bytes.len() == self.value.len() && bytes.first() == self.value.first();
            if fits { Ok(()) } else { Err(Problem::new(format!("{}: wrong bytes", keys[0]))) }
        })
    }
}

impl WorkerJob for ObjectsJob {
    fn run(&mut self, phase: &str) -> Result<(), Problem> {
        match phase {
            // Put each value twice, as a new one and as a replacement, so that the measured puts
            // all replace values.
            "fill" => {
                (0..2).try_for_each(|_| self.batches().try_for_each(|keys| self.store.put_values(keys, &self.value)))
            }
            "put" => self.batches().try_for_each(|keys| self.store.put_values(keys, &self.value)),
            "get" => self.batches().try_for_each(|keys| self.get(keys)),
            "remove" => self.store.remove_values(&self.keys),
            other => Err(Problem::new(format!("objects have no phase `{other}`"))),
        }
    }
}
