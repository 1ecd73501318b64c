//! How many tasks ran and how many waited over time, from the times of the tasks.

use crate::{Run, Seconds, Task};
use serde::{Deserialize, Serialize};

/// More steps than this become means over as many equal spans: a chart is about as many pixels wide.
pub const LOAD_SAMPLES_MAX: usize = 1_000;

/// Tasks that run, and tasks that have all they read and wait for a slot or for space.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The most that ran at once.
    pub running_max: u32,
    /// The most that waited at once.
    pub waiting_max: u32,
    /// In the order of time, at most `LOAD_SAMPLES_MAX`.
    pub samples: Vec<LoadSample>,
}

/// From when on, tasks that ran, tasks that waited; until the next sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadSample(pub Seconds, pub f64, pub f64);

/// From when on, and how many ran and waited.
type Step = (f64, [u32; 2]);

impl Run {
    /// Tasks that ran and waited over a run that took `makespan`.
    pub(crate) fn load(&self, makespan: Seconds) -> Load {
        let steps = steps(changes(&self.tasks, makespan.0));
        let most = |of: usize| steps.iter().map(|(_, counts)| counts[of]).max().unwrap_or(0);
        let samples = if steps.len() > LOAD_SAMPLES_MAX { means(&steps, makespan.0) } else { exact(&steps) };
        Load { running_max: most(0), waiting_max: most(1), samples }
    }
}

/// When a task begins or ends to run (0) or to wait (1).
fn changes(tasks: &[Task], makespan: f64) -> Vec<(f64, usize, bool)> {
    let mut changes = Vec::new();
    let mut span = |of: usize, from: f64, to: f64| {
        if to > from {
            changes.extend([(from, of, true), (to, of, false)]);
        }
    };
    for task in tasks {
        let mut waits_from = task.ready_s.map(|ready| ready.0);
        for (start, end) in task.spans() {
            if let Some(from) = waits_from {
                span(1, from, start);
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

fn exact(steps: &[Step]) -> Vec<LoadSample> {
    let sample = |(time, [running, waiting]): &Step| {
        LoadSample(Seconds::rounded(*time), f64::from(*running), f64::from(*waiting))
    };
    steps.iter().map(sample).collect()
}

/// Means over `LOAD_SAMPLES_MAX` equal spans.
#[expect(clippy::cast_precision_loss, reason = "a few thousand spans")]
fn means(steps: &[Step], makespan: f64) -> Vec<LoadSample> {
    let width = makespan / LOAD_SAMPLES_MAX as f64;
    let mut at = 0;
    let span = |index: usize| {
        let (from, to) = (index as f64 * width, (index + 1) as f64 * width);
        let mut sums = [0.0; 2];
        loop {
            let ends = steps.get(at + 1).map_or(makespan, |next| next.0);
            let length = (ends.min(to) - steps[at].0.max(from)).max(0.0);
            (0..2).for_each(|of| sums[of] += length * f64::from(steps[at].1[of]));
            if ends > to || at + 1 == steps.len() {
                break;
            }
            at += 1;
        }
        let mean = |sum: f64| (sum / width * 1e3).round() / 1e3;
        LoadSample(Seconds::rounded(from), mean(sums[0]), mean(sums[1]))
    };
    (0..LOAD_SAMPLES_MAX).map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attempt;

    fn task(ready: f64, start: f64, end: f64) -> Task {
        let at = |time| Some(Seconds(time));
        Task { attempts: 1, ready_s: at(ready), start_s: at(start), end_s: at(end), ..Task::default() }
    }

    #[test]
    fn a_task_waits_from_when_it_is_ready_and_between_its_attempts() {
        let attempt = Attempt { start_s: Seconds(1.0), end_s: Seconds(2.0), ..Attempt::default() };
        let retried = Task { earlier: vec![attempt], attempts: 2, ..task(0.0, 3.0, 4.0) };
        let never = Task { ready_s: Some(Seconds(4.0)), ..Task::default() };
        let run = Run { tasks: vec![retried, never, Task::default()], ..Run::default() };
        let load = run.load(Seconds(5.0));
        let samples: Vec<(f64, f64, f64)> = load.samples.iter().map(|s| (s.0.0, s.1, s.2)).collect();
        assert_eq!(samples, [(0., 0., 1.), (1., 1., 0.), (2., 0., 1.), (3., 1., 0.), (4., 0., 1.), (5., 0., 0.)]);
        assert_eq!((load.running_max, load.waiting_max), (1, 1));
    }

    #[test]
    fn many_steps_become_means_that_lose_no_time() {
        let tasks: Vec<Task> = (0..10_000).map(f64::from).map(|id| task(0.0, id, id + 0.5)).collect();
        let run = Run { tasks, ..Run::default() };
        let load = run.load(Seconds(10_000.0));
        assert_eq!((load.samples.len(), load.running_max, load.waiting_max), (LOAD_SAMPLES_MAX, 1, 9_999));
        assert!(load.samples.iter().all(|sample| sample.1 == 0.5), "half of the time one runs");
        let waited: f64 = load.samples.iter().map(|sample| sample.2 * 10.0).sum();
        let truth: f64 = (0..10_000).map(f64::from).sum();
        assert!((waited / truth - 1.0).abs() < 1e-3, "{waited} against {truth}");
    }
}
