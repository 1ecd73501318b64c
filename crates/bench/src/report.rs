//! Results of a benchmark.

use crate::{
    plot::{self, Chart},
    worker_pool::PhaseResult,
};
use base::Problem;
use serde::Serialize;
use serde_json::{Value, json};
use std::{fs, path::Path};

/// Report of a benchmark.
#[derive(Debug)]
pub struct BenchReport {
    /// A JSON object for each case.
    pub rows: Vec<Value>,
    pub(crate) charts: Vec<Chart>,
}

impl BenchReport {
    /// Writes all rows as one JSON array, one row per line.
    pub fn write_json(&self, path: &Path) -> Result<(), Problem> {
        let lines: Vec<String> = self.rows.iter().map(Value::to_string).collect();
        write(path, &format!("[\n{}\n]\n", lines.join(",\n")))
    }

    /// Draws all charts in one SVG file.
    pub fn write_plot(&self, path: &Path) -> Result<(), Problem> {
        write(path, &plot::draw(&self.charts)?)
    }
}

fn write(path: &Path, text: &str) -> Result<(), Problem> {
    fs::write(path, text).map_err(|error| Problem::new(format!("{}: {error}", path.display())))
}

/// Median of some numbers (of an even count the lower middle one), and the number of each run.
#[derive(Clone, Debug, Serialize)]
pub struct Median {
    pub median: f64,
    pub runs: Vec<f64>,
}

impl Median {
    /// The median of at least one number.
    pub fn new(runs: Vec<f64>) -> Self {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        Self { median: sorted[(sorted.len() - 1) / 2], runs }
    }
}

/// Rate of operations.
pub(crate) struct OperationRate {
    pub(crate) per_second: Median,
    /// Processor microseconds per operation.
    workers_cpu: Median,
    nodes_cpu: Median,
}

impl OperationRate {
    /// The rate of one phase that made `operations` operations of all workers in each run.
    pub(crate) fn new(phases: &[PhaseResult], operations: f64) -> Self {
        let each = |number: &dyn Fn(&PhaseResult) -> f64| Median::new(phases.iter().map(number).collect());
        Self {
            per_second: each(&|phase| operations / phase.seconds),
            workers_cpu: each(&|phase| phase.workers_cpu * 1e6 / operations),
            nodes_cpu: each(&|phase| phase.nodes_cpu * 1e6 / operations),
        }
    }

    /// The rate as JSON in a row.
    pub(crate) fn json(&self) -> Value {
        json!({
            "per_second": self.per_second,
            "workers_cpu_microseconds": self.workers_cpu.median,
            "nodes_cpu_microseconds": self.nodes_cpu.median,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_number_that_was_measured() {
        assert_eq!(Median::new(vec![3.0, 1.0, 2.0]).median.to_bits(), 2f64.to_bits());
        assert_eq!(Median::new(vec![4.0, 1.0]).median.to_bits(), 1f64.to_bits());
    }
}
