//! The use of the machine's processors and memory over time, by all processes on it.

use crate::Seconds;
use crate::samples::{Sample, Samples};
use serde::{Deserialize, Serialize};

/// The processors and the memory in use over time: of the control group if its limit applies,
/// otherwise of the machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineUse {
    /// The scope in which processors were measured.
    pub cpus_of: MeasurementScope,
    /// The number of processors; a group's limit may be fractional.
    pub cpus: f64,
    /// The mean number of busy processors, used by this run or others.
    pub busy_cpus: f64,
    /// The scope in which memory was measured.
    pub memory_of: MeasurementScope,
    /// The total memory in bytes.
    pub memory_bytes: u64,
    /// The most memory in use at any sample, by this run or others, in bytes; without files that
    /// the system could drop.
    pub peak_memory_bytes: u64,
    /// The samples in the order of time, at most `SAMPLES_MAX`.
    pub samples: Samples<MachineSample>,
    /// The time of the first and of the last sample, with the processor seconds up to each.
    #[serde(skip)]
    last_sample: Option<[(f64, f64); 2]>,
}

/// The scope of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeasurementScope {
    /// The whole machine.
    #[default]
    Machine,
    /// The control group, which has less than the machine.
    Group,
}

/// One sample: the time, the mean number of busy processors since the previous sample, the bytes of
/// memory in use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MachineSample(pub Seconds, pub f64, pub u64, #[serde(skip)] f64);

impl Sample for MachineSample {
    fn time(&self) -> Seconds {
        self.0
    }

    /// Joins two samples: the later time, the mean of the processors over both spans, the higher
    /// memory.
    fn merge(self, later: Self) -> Self {
        let span = self.3 + later.3;
        let cpus = if span > 0.0 { (self.1 * self.3 + later.1 * later.3) / span } else { later.1 };
        Self(later.0, rounded(cpus), self.2.max(later.2), span)
    }
}

impl MachineUse {
    /// The use of so many processors and bytes of memory, without samples yet.
    pub fn new((cpus_of, cpus): (MeasurementScope, f64), (memory_of, memory_bytes): (MeasurementScope, u64)) -> Self {
        Self { cpus_of, cpus, memory_of, memory_bytes, ..Self::default() }
    }

    /// Adds a sample at `time`: the processor seconds spent since any fixed moment before the run,
    /// and the memory in use. Times must not go backwards.
    pub fn push(&mut self, time: Seconds, cpu_s: f64, memory_bytes: u64) {
        self.peak_memory_bytes = self.peak_memory_bytes.max(memory_bytes);
        let [first, (before_s, before_cpu_s)] = self.last_sample.unwrap_or([(time.0, cpu_s); 2]);
        let span = time.0 - before_s;
        let cpus = if span > 0.0 { (cpu_s - before_cpu_s).max(0.0) / span } else { 0.0 };
        self.last_sample = Some([first, (time.0, cpu_s)]);
        self.samples.push(MachineSample(time, rounded(cpus), memory_bytes, span));
    }

    /// Computes the mean, and adds the last sample, so that the curves end with the run.
    pub fn close(&mut self) {
        self.samples.close();
        if let Some([(from_s, from_cpu_s), (to_s, to_cpu_s)]) =
            self.last_sample.take().filter(|[from, to]| to.0 > from.0)
        {
            self.busy_cpus = rounded((to_cpu_s - from_cpu_s).max(0.0) / (to_s - from_s));
        }
    }
}

/// Rounds to a thousandth of a processor, which is finer than the system's clocks.
fn rounded(cpus: f64) -> f64 {
    (cpus * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SAMPLES_MAX;

    #[test]
    fn processors_are_a_mean_and_memory_a_peak_however_many_samples_become_one() {
        let mut used = MachineUse::default();
        for index in 0..20_001_u32 {
            // Three processors in the first half, one in the second.
            let half = f64::from(index.min(10_000));
            let memory = if index == 12_345 { 9 << 30 } else { 1 << 30 };
            used.push(Seconds(f64::from(index)), 500.0 + 3.0 * half + (f64::from(index) - half), memory);
        }
        used.close();
        let list = used.samples.list();
        assert!((SAMPLES_MAX / 3..=SAMPLES_MAX).contains(&list.len()), "{}", list.len());
        assert_eq!((used.busy_cpus, used.peak_memory_bytes), (2.0, 9 << 30));
        assert_eq!(list.iter().map(|sample| sample.2).max(), Some(9 << 30));
        assert!(list[1..list.len() / 3].iter().all(|sample| (sample.1 - 3.0).abs() < 1e-9));
        assert_eq!(list.last().map(|sample| (sample.0, sample.1)), Some((Seconds(20_000.0), 1.0)));
    }
}
