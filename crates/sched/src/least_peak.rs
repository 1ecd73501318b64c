//! Estimates the least memory that a workflow needs: the least peak of many random orders of its
//! tasks.
//!
//! In a simulated order, all slots work whenever a task is ready. A task's outputs count in full
//! from its start. A temporary is freed when its last reader ends; an output that nobody reads,
//! when its task ends. The report compares a full pool with this estimate. It is not a lower bound,
//! only the best result of many random tries.

use crate::messages::TaskSpec;
use base::SplitMix64;
use flow::DataId;
use std::collections::HashMap;

/// The number of orders that are simulated, unless that is too much work.
pub const ORDERS_MAX: u32 = 10_000;

/// The most tasks and edges that are visited in all orders: about a quarter of a second. For
/// 100,000 tasks that is about thirty orders.
const WORK_MAX: u64 = 10_000_000;

/// A fixed seed, so that the same graph gives the same result.
const SEED: u64 = 0x7469_6465;

/// The least peak that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeastPeak {
    /// The least peak in bytes.
    pub bytes: u64,
    /// The number of orders that were simulated.
    pub orders: u32,
}

/// Simulates random orders of `tasks` in `slots` slots. `bytes` returns the size of each datum that
/// a task writes. Data for which `kept` returns true is never freed.
///
/// Returns `None` if no order can finish: a task is wider than the machine, waits for a task that
/// is not in `tasks`, or is part of a cycle.
pub fn least_peak(
    tasks: &[TaskSpec],
    slots: u32,
    bytes: impl Fn(DataId) -> u64,
    kept: impl Fn(DataId) -> bool,
) -> Option<LeastPeak> {
    least_of_orders(tasks, slots, (bytes, kept), ORDERS_MAX.into())
}

/// As [`least_peak`], with at most `orders_max` orders.
pub fn least_of_orders(
    tasks: &[TaskSpec],
    slots: u32,
    (bytes, kept): (impl Fn(DataId) -> u64, impl Fn(DataId) -> bool),
    orders_max: u64,
) -> Option<LeastPeak> {
    let graph = Graph::new(tasks, bytes, kept);
    let orders = (WORK_MAX / graph.work().max(1)).clamp(1, orders_max);
    let (mut random, mut least) = (SplitMix64::new(SEED), None);
    for _ in 0..orders {
        // An order is abandoned as soon as it is no better than the best so far. If the first order
        // finishes, there is a result.
        match graph.run_order(slots, least.unwrap_or(u64::MAX), &mut random) {
            OrderOutcome::Peak(peak) => least = Some(peak),
            OrderOutcome::NoBetter => {}
            OrderOutcome::Stuck => return None,
        }
    }
    let orders = u32::try_from(orders).expect("at most ORDERS_MAX");
    least.map(|bytes| LeastPeak { bytes, orders })
}

/// The outcome of one order.
enum OrderOutcome {
    Peak(u64),
    NoBetter,
    Stuck,
}

/// The tasks as a graph, by their positions in `tasks`.
struct Graph {
    nodes: Vec<Node>,
    /// The bytes of each temporary, and the number of tasks that read it.
    temporaries: Vec<(u64, u32)>,
}

#[derive(Default)]
struct Node {
    cpus: u32,
    /// The number of inputs and tasks that it waits for.
    missing: u32,
    writes: u64,
    /// The part of `writes` that is freed when the task ends.
    frees: u64,
    /// The temporaries that it reads.
    reads: Vec<u32>,
    /// The tasks that wait for it, once for each datum or task that they wait for.
    next: Vec<u32>,
}

impl Graph {
    fn new(tasks: &[TaskSpec], bytes: impl Fn(DataId) -> u64, kept: impl Fn(DataId) -> bool) -> Self {
        let mut graph = Self { nodes: Vec::new(), temporaries: Vec::new() };
        graph.nodes.resize_with(tasks.len(), Node::default);
        let writers: HashMap<DataId, u32> =
            (0..).zip(tasks).flat_map(|(at, task)| task.outputs.iter().map(move |data| (*data, at))).collect();
        let positions: HashMap<_, u32> = (0..).zip(tasks).map(|(at, task)| (task.id, at)).collect();
        let mut numbers: HashMap<DataId, u32> = HashMap::new();
        for (at, task) in (0_u32..).zip(tasks) {
            let mut inputs = task.inputs.clone();
            inputs.sort_unstable();
            inputs.dedup();
            for data in inputs {
                let Some(writer) = writers.get(&data) else { continue };
                graph.add_edge(at, *writer);
                if !kept(data) {
                    let number = graph.number(&mut numbers, data, &bytes);
                    graph.temporaries[number as usize].1 += 1;
                    graph.nodes[at as usize].reads.push(number);
                }
            }
            let after = task.after.iter().filter_map(|before| positions.get(before));
            after.for_each(|before| graph.add_edge(at, *before));
        }
        for (node, task) in graph.nodes.iter_mut().zip(tasks) {
            node.cpus = task.cpus.max(1);
            node.writes = task.outputs.iter().map(|data| bytes(*data)).sum();
            let frees = task.outputs.iter().filter(|data| !numbers.contains_key(data) && !kept(**data));
            node.frees = frees.map(|data| bytes(*data)).sum();
        }
        graph
    }

    fn add_edge(&mut self, task: u32, before: u32) {
        self.nodes[task as usize].missing += 1;
        self.nodes[before as usize].next.push(task);
    }

    fn number(&mut self, numbers: &mut HashMap<DataId, u32>, data: DataId, bytes: impl Fn(DataId) -> u64) -> u32 {
        *numbers.entry(data).or_insert_with(|| {
            self.temporaries.push((bytes(data), 0));
            u32::try_from(self.temporaries.len() - 1).expect("data are counted in u32")
        })
    }

    fn work(&self) -> u64 {
        self.nodes.iter().map(|node| 1 + (node.reads.len() + node.next.len()) as u64).sum()
    }

    fn run_order(&self, slots: u32, best: u64, random: &mut SplitMix64) -> OrderOutcome {
        let mut state = OrderState {
            missing: self.nodes.iter().map(|node| node.missing).collect(),
            readers: self.temporaries.iter().map(|(_, readers)| *readers).collect(),
            ready: (0..).zip(&self.nodes).filter(|(_, node)| node.missing == 0).map(|(at, _)| at).collect(),
            running: Vec::new(),
            free: slots,
            used: 0,
        };
        let (mut peak, mut left) = (0, self.nodes.len());
        while left > 0 {
            self.start_random(&mut state, random);
            peak = peak.max(state.used);
            if peak >= best {
                return OrderOutcome::NoBetter;
            }
            if state.running.is_empty() {
                return OrderOutcome::Stuck;
            }
            let ended = state.running.swap_remove(random.index(state.running.len()));
            self.end_task(&mut state, ended);
            left -= 1;
        }
        OrderOutcome::Peak(peak)
    }

    /// Starts ready tasks at random until one does not fit.
    fn start_random(&self, state: &mut OrderState, random: &mut SplitMix64) {
        while state.free > 0 && !state.ready.is_empty() {
            let at = random.index(state.ready.len());
            let node = &self.nodes[state.ready[at] as usize];
            if node.cpus > state.free {
                return;
            }
            state.free -= node.cpus;
            state.used += node.writes;
            let started = state.ready.swap_remove(at);
            state.running.push(started);
        }
    }

    fn end_task(&self, state: &mut OrderState, ended: u32) {
        let node = &self.nodes[ended as usize];
        state.free += node.cpus;
        state.used -= node.frees;
        for read in &node.reads {
            let readers = &mut state.readers[*read as usize];
            *readers -= 1;
            if *readers == 0 {
                state.used -= self.temporaries[*read as usize].0;
            }
        }
        for next in &node.next {
            let missing = &mut state.missing[*next as usize];
            *missing -= 1;
            if *missing == 0 {
                state.ready.push(*next);
            }
        }
    }
}

/// The state of one simulated order.
struct OrderState {
    missing: Vec<u32>,
    readers: Vec<u32>,
    ready: Vec<u32>,
    running: Vec<u32>,
    free: u32,
    used: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::TaskId;

    fn task(id: u32, inputs: &[u32], outputs: &[u32]) -> TaskSpec {
        let data = |ids: &[u32]| ids.iter().copied().map(DataId).collect();
        TaskSpec { inputs: data(inputs), outputs: data(outputs), ..TaskSpec::new(TaskId(id)) }
    }

    #[test]
    fn forty_chains_need_what_two_slots_hold_at_once() {
        let tasks: Vec<_> = (0..40)
            .flat_map(|i| [task(2 * i, &[], &[2 * i]), task(2 * i + 1, &[2 * i, 2 * i], &[2 * i + 1])])
            .collect();
        let bytes = |data: DataId| if data.0.is_multiple_of(2) { 5 } else { 0 };
        let one = least_peak(&tasks[..6], 1, bytes, |_| false).expect("it ends");
        assert_eq!(one, LeastPeak { bytes: 5, orders: ORDERS_MAX });
        let all = least_peak(&tasks, 2, bytes, |_| false).expect("it ends");
        assert!(all.bytes >= 10 && all.bytes < 200, "{all:?}");
        assert_eq!(least_peak(&tasks, 2, bytes, |_| false), Some(all), "the same each time");
        let kept = least_peak(&tasks, 2, bytes, |_| true).expect("it ends");
        assert_eq!(kept.bytes, 200);
    }

    #[test]
    fn of_a_large_graph_fewer_orders_are_played_and_of_a_cycle_none() {
        let tasks: Vec<_> = (0..20_000).map(|id| task(id, &[id], &[id + 1])).collect();
        let found = least_peak(&tasks, 2, |_| 1, |_| false).expect("it ends");
        assert!(found.orders < 500 && found.bytes == 2, "{found:?}");
        assert_eq!(least_peak(&[task(0, &[1], &[2]), task(1, &[2], &[1])], 2, |_| 1, |_| false), None);
    }
}
