//! Copies of files: files written in chunks, then read and checked. Several experiments use them.

use crate::{
    BenchOptions,
    fixture::Fixture,
    messages::{CopySpec, Work, WorkerCommand},
    report::Median,
    stores::BenchStore,
    worker::WorkerJob,
    worker_pool::PhaseResult,
};
use base::Problem;
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Distance between the stamps by which data is recognised when it is read.
const STAMP_BYTES: usize = 64 << 10;
/// Upper bound of a chunk.
const CHUNK_BYTES_MAX: u64 = 1 << 30;

/// Speeds of writing and reading, of all workers together.
pub struct Speeds {
    pub write: Speed,
    pub read: Speed,
}

impl Speeds {
    /// Measures `workers` workers on each host, which copy `bytes` bytes together in each run.
    pub fn measure(
        fixture: &Fixture,
        workers: u32,
        copies: &CopySpec,
        bytes: u64,
        options: &BenchOptions,
    ) -> Result<Self, Problem> {
        let phases =
            fixture.measure(workers, &Work::Filecopy(copies.clone()), &["write", "read", "remove"], options)?;
        Ok(Self { write: Speed::new(&phases[0], bytes), read: Speed::new(&phases[1], bytes) })
    }
}

/// Speed of one phase, of all workers together.
pub struct Speed {
    /// 10^6 bytes per second.
    pub megabytes: Median,
    /// Processor seconds per GiB.
    workers_cpu: Median,
    nodes_cpu: Median,
}

impl Speed {
    /// The speed of one phase that moved `bytes` bytes in each run.
    #[expect(clippy::cast_precision_loss, reason = "bytes of files")]
    fn new(phases: &[PhaseResult], bytes: u64) -> Self {
        let each = |number: &dyn Fn(&PhaseResult) -> f64| Median::new(phases.iter().map(number).collect());
        let gib = bytes as f64 / f64::from(1 << 30);
        Self {
            megabytes: each(&|phase| bytes as f64 / 1e6 / phase.seconds),
            workers_cpu: each(&|phase| phase.workers_cpu / gib),
            nodes_cpu: each(&|phase| phase.nodes_cpu / gib),
        }
    }

    /// The speed as JSON in a row; with its share of `limit`, the speed of the links in 10^6 bytes
    /// per second, if they limit it.
    pub fn json(&self, limit: Option<f64>) -> Value {
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

/// The copies of one worker.
pub struct CopyJob {
    store: Box<dyn BenchStore>,
    files: Vec<(String, u64)>,
    file_bytes: u64,
    chunk_bytes: u64,
    buffer: Bytes,
    rate: Option<f64>,
}

impl CopyJob {
    /// Creates the job of a command to copy.
    pub fn new(store: Box<dyn BenchStore>, command: &WorkerCommand, copies: &CopySpec) -> Result<Self, Problem> {
        let directory = format!("{}/w{}", command.directory, command.worker);
        store.make_directory(&directory)?;
        if let Some(placement) = copies.placement {
            store.set_placement(&directory, placement)?;
        }
        let tag = |file: u32| u64::from(command.worker) << 48 | u64::from(file) << 32;
        let files = (0..copies.files).map(|file| (format!("{directory}/copy{file}"), tag(file))).collect();
        let (file_bytes, chunk_bytes) = (copies.file_bytes, copies.chunk_bytes.clamp(1, CHUNK_BYTES_MAX));
        let length = usize::try_from(chunk_bytes).expect("a GiB at most");
        Ok(Self { store, files, file_bytes, chunk_bytes, buffer: vec![0x5a; length].into(), rate: copies.rate })
    }

    fn write(&mut self) -> Result<(), Problem> {
        let mut limiter = RateLimiter::new(self.rate);
        for (path, tag) in &self.files {
            let (mut at, buffer, chunk) = (0, &mut self.buffer, self.chunk_bytes);
            let whole = self.file_bytes;
            self.store.write(path, &mut || {
                limiter.wait();
                let length = chunk.min(whole - at);
                limiter.bytes += length;
                if length == 0 {
                    return None;
                }
                // The receiver of the previous chunk has usually dropped it; then no memory is
                // written but the stamps.
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
        let mut limiter = RateLimiter::new(self.rate);
        for (path, tag) in &self.files {
            let mut at = 0;
            self.store.read(path, self.chunk_bytes, &mut |bytes| {
                check(bytes, at, *tag).map_err(|wrong| Problem::new(format!("{path}: wrong bytes at {wrong}")))?;
                at += bytes.len() as u64;
                limiter.bytes += bytes.len() as u64;
                limiter.wait();
                Ok(())
            })?;
            if at != self.file_bytes {
                return Err(Problem::new(format!("{path} has {at} of its {} bytes", self.file_bytes)));
            }
        }
        Ok(())
    }
}

/// Rate limiter: holds a worker to a number of bytes per second.
struct RateLimiter {
    rate: Option<f64>,
    began: Instant,
    bytes: u64,
}

impl RateLimiter {
    fn new(rate: Option<f64>) -> Self {
        Self { rate, began: Instant::now(), bytes: 0 }
    }

    /// Waits until the bytes so far are allowed.
    #[expect(clippy::cast_precision_loss, reason = "bytes of files")]
    fn wait(&self) {
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.bytes as f64 / rate);
            thread::sleep(due.saturating_sub(self.began.elapsed()));
        }
    }
}

impl WorkerJob for CopyJob {
    fn run(&mut self, phase: &str) -> Result<(), Problem> {
        match phase {
            "write" => self.write(),
            "read" => self.read(),
            "remove" => self.files.iter().try_for_each(|(path, _)| self.store.remove(path)),
            other => Err(Problem::new(format!("copying has no phase `{other}`"))),
        }
    }
}

/// The stamps in bytes that begin at `from` in their file, each with its offset in the file.
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

/// Checks the stamps; the error is the offset of the first wrong one.
fn check(bytes: &[u8], from: u64, tag: u64) -> Result<(), u64> {
    let every = STAMP_BYTES as u64;
    let first = from.next_multiple_of(every);
    let places = (first..from + bytes.len() as u64).step_by(STAMP_BYTES);
    for at in places {
        let start = usize::try_from(at - from).expect("within the bytes");
        // A stamp that is cut by the end of the read is not checked.
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
