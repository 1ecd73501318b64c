//! The number of tasks that ran and that waited over time, from the times of the tasks.

use crate::{RunReport, Seconds, TaskRecord};
use serde::{Deserialize, Serialize};

/// The most samples. Steps shorter than this fraction of the run are averaged; a chart is about as
/// many pixels wide.
pub const LOAD_SAMPLES_MAX: usize = 1_000;

/// The number of running tasks, and of tasks that have all inputs and wait for a slot or for space.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The most tasks that ran at once.
    pub running_max: u32,
    /// The most tasks that waited at once.
    pub waiting_max: u32,
    /// The samples in the order of time, at most `LOAD_SAMPLES_MAX`.
    pub samples: Vec<LoadSample>,
}

/// The start of the sample, and the numbers of running and of waiting tasks until the next one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadSample(pub Seconds, pub f64, pub f64);

/// The start of a step, and the numbers of running and of waiting tasks.
type Step = (f64, [u32; 2]);

impl RunReport {
    /// The load over a run that took `makespan`.
    pub(crate) fn load(&self, makespan: Seconds) -> Load {
        let steps = steps(changes(&self.tasks, makespan.0));
        let most = |of: usize| steps.iter().map(|(_, counts)| counts[of]).max().unwrap_or(0);
        Load { running_max: most(0), waiting_max: most(1), samples: samples(&steps, makespan.0) }
    }
}

/// The times at which a task begins (`true`) or ends to run (0) or to wait (1).
fn changes(tasks: &[TaskRecord], makespan: f64) -> Vec<(f64, usize, bool)> {
    let mut changes = Vec::new();
    let mut span = |of: usize, from: f64, to: f64| {
        if to > from {
            changes.extend([(from, of, true), (to, of, false)]);
        }
    };
    for task in tasks {
        let mut waits_from = task.ready_s.map(|ready| ready.0);
        for ((start, end), prepared) in task.spans().zip(task.prepared()) {
            if let Some(from) = waits_from {
                span(1, from, start - prepared);
            }
            span(0, start, end);
            waits_from = Some(end);
        }
        if let (Some(from), true) = (waits_from, task.attempts == 0) {
            span(1, from, makespan);
        }
    }
    changes.sort_by(|first, second| first.0.total_cmp(&second.0));
    changes
}

fn steps(changes: Vec<(f64, usize, bool)>) -> Vec<Step> {
    let mut counts = [0_u32; 2];
    let mut steps: Vec<Step> = vec![(0.0, counts)];
    for (time, of, begins) in changes {
        counts[of] = if begins { counts[of] + 1 } else { counts[of].saturating_sub(1) };
        match steps.last_mut() {
            Some(last) if last.0 >= time => last.1 = counts,
            _ => steps.push((time, counts)),
        }
    }
    steps
}

/// One sample for each step, except that steps too short to be visible are averaged over a longer
/// span.
#[expect(clippy::cast_precision_loss, reason = "a thousand spans")]
fn samples(steps: &[Step], makespan: f64) -> Vec<LoadSample> {
    let least = makespan / (LOAD_SAMPLES_MAX - 1) as f64;
    let mut samples = Vec::new();
    let (mut from, mut length, mut sums) = (0.0, 0.0, [0.0; 2]);
    let mut emit = |from: f64, length: f64, sums: [f64; 2]| {
        let [running, waiting] = sums.map(|sum| if length > 0.0 { (sum / length * 1e3).round() / 1e3 } else { 0.0 });
        samples.push(LoadSample(Seconds::rounded(from), running, waiting));
    };
    for (at, (start, counts)) in steps.iter().enumerate() {
        let ends = steps.get(at + 1).map_or(makespan, |next| next.0).max(*start);
        let mut start = *start;
        // If a short step began a span, the next step first fills that span; the rest of a long
        // step is a sample of its own.
        while start < ends {
            if length == 0.0 {
                from = start;
            }
            let part = if length == 0.0 { ends - start } else { (ends - start).min(least - length) };
            (0..2).for_each(|of| sums[of] += part * f64::from(counts[of]));
            (length, start) = (length + part, start + part);
            if length >= least * (1.0 - 1e-9) {
                emit(from, length, sums);
                (length, sums) = (0.0, [0.0; 2]);
            }
        }
    }
    if length > 0.0 {
        emit(from, length, sums);
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attempt;

    fn task(ready: f64, start: f64, end: f64) -> TaskRecord {
        let at = |time| Some(Seconds(time));
        TaskRecord { attempts: 1, ready_s: at(ready), start_s: at(start), end_s: at(end), ..TaskRecord::default() }
    }

    #[test]
    fn a_task_waits_from_when_it_is_ready_and_between_its_attempts() {
        let attempt = Attempt { start_s: Seconds(1.0), end_s: Seconds(2.0), ..Attempt::default() };
        let retried = TaskRecord { earlier: vec![attempt], attempts: 2, ..task(0.0, 3.0, 4.0) };
        let never = TaskRecord { ready_s: Some(Seconds(4.0)), ..TaskRecord::default() };
        let run = RunReport { tasks: vec![retried, never, TaskRecord::default()], ..RunReport::default() };
        let load = run.load(Seconds(5.0));
        let samples: Vec<(f64, f64, f64)> = load.samples.iter().map(|s| (s.0.0, s.1, s.2)).collect();
        assert_eq!(samples, [(0., 0., 1.), (1., 1., 0.), (2., 0., 1.), (3., 1., 0.), (4., 0., 1.)]);
        assert_eq!((load.running_max, load.waiting_max), (1, 1));
    }

    #[test]
    fn many_steps_become_means_that_lose_no_time() {
        let tasks: Vec<TaskRecord> = (0..10_000).map(f64::from).map(|id| task(0.0, id, id + 0.5)).collect();
        let run = RunReport { tasks, ..RunReport::default() };
        let load = run.load(Seconds(10_000.0));
        assert_eq!((load.running_max, load.waiting_max), (1, 9_999));
        assert!((LOAD_SAMPLES_MAX / 2..=LOAD_SAMPLES_MAX).contains(&load.samples.len()), "{}", load.samples.len());
        let ends = load.samples.iter().skip(1).map(|next| next.0.0).chain([10_000.0]);
        let waited: f64 = load.samples.iter().zip(ends).map(|(sample, end)| sample.2 * (end - sample.0.0)).sum();
        let truth: f64 = (0..10_000).map(f64::from).sum();
        assert!((waited / truth - 1.0).abs() < 1e-3, "{waited} against {truth}");
    }

    #[test]
    fn a_moment_between_two_tasks_is_no_gap() {
        let run = RunReport { tasks: vec![task(0.0, 0.0, 50.0), task(50.0, 50.001, 100.0)], ..RunReport::default() };
        let running: Vec<f64> = run.load(Seconds(100.0)).samples.iter().map(|sample| sample.1).collect();
        assert_eq!((running.len(), running[0], running[2]), (3, 1.0, 1.0));
        assert!(running[1] > 0.98, "{running:?}");
    }
}
