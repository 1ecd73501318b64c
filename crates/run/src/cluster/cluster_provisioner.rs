//! Provisioner of a run on a cluster: the hosts of the cluster are the machines of the pool.
//!
//! ```text
//!  ElasticDriver (a thread) -> ClusterProvisioner -- HostOrder --> ClusterExecutor -> carrier
//!                                     ^                                  |
//!                                     +------- HostBoard: nodes, --------+
//!                                              hosts without tasks, failures
//! ```
//!
//! Both sides share a board. The executor looks at it with each tick, so nobody waits for anybody
//! but the provisioner for hosts. A host that joins gets a node whether it was asked for or not.

use base::Problem;
use parking_lot::{Condvar, Mutex};
use pool::Provisioner;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time for which a task waits for space while a host may come. Batch systems may take
/// hours, and a task that gives up starts again at a node that has space by then.
const SPACE_WAIT_MAX: Duration = Duration::from_mins(1);

/// Something that the executor is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostOrder {
    /// Have the cluster start this number of hosts.
    Start(u32),
    /// Wait for this number of hosts no longer.
    GiveUp(u32),
    /// Let the hosts of these nodes go, which have left the pool.
    Release(Vec<u32>),
}

/// What provisioner and executor know of each other.
#[derive(Debug, Default)]
struct HostBoard {
    /// What the executor is to do.
    orders: Vec<HostOrder>,
    /// The nodes of hosts, in the order in which they joined.
    nodes: Vec<u32>,
    /// Number of tasks that each node's host has.
    tasks: HashMap<u32, usize>,
    /// Nodes whose hosts get no more tasks, since they are to leave.
    quiet: BTreeSet<u32>,
    /// Those of them whose hosts have no task.
    idle: BTreeSet<u32>,
    /// Why hosts have joined without a node.
    failures: Vec<String>,
    is_cancelled: bool,
}

/// The executor's side of the board.
#[derive(Debug, Clone, Default)]
pub struct BoardHandle(Arc<(Mutex<HostBoard>, Condvar)>);

impl BoardHandle {
    /// Takes what is to be done.
    pub fn take_orders(&self) -> Vec<HostOrder> {
        std::mem::take(&mut self.0.0.lock().orders)
    }

    /// True if the host of a node is to get no more tasks.
    pub fn is_quiet(&self, node: u32) -> bool {
        self.0.0.lock().quiet.contains(&node)
    }

    /// Records how many tasks the host of a node has.
    pub fn set_tasks(&self, node: u32, count: usize) {
        self.0.0.lock().tasks.insert(node, count);
    }

    /// Records that the host of a node has no task, and gets none.
    pub fn set_idle(&self, node: u32) {
        let mut board = self.0.0.lock();
        if board.quiet.contains(&node) {
            board.idle.insert(node);
        }
    }

    /// Records that a host has joined with a node.
    pub fn add_node(&self, node: u32) {
        self.0.0.lock().nodes.push(node);
        self.0.1.notify_all();
    }

    /// Records that a node is gone.
    pub fn remove_node(&self, node: u32) {
        let mut board = self.0.0.lock();
        board.nodes.retain(|known| *known != node);
        board.tasks.remove(&node);
        board.quiet.remove(&node);
        board.idle.remove(&node);
    }

    /// Records why a host has joined without a node.
    pub fn add_failure(&self, why: String) {
        self.0.0.lock().failures.push(why);
        self.0.1.notify_all();
    }
}

/// Has a cluster start hosts, and release those whose nodes have left the pool.
#[derive(Debug)]
pub struct ClusterProvisioner {
    board: BoardHandle,
    /// Time for a host to come, and for its node to join.
    time_out: Duration,
    /// What to do if no host comes.
    hint: String,
}

impl ClusterProvisioner {
    /// For the executor with this board. A host has to come in time `time_out`.
    pub fn new(board: BoardHandle, time_out: Duration, hint: String) -> Self {
        Self { board, time_out, hint }
    }

    fn no_host(&self, why: Option<String>) -> Problem {
        let seconds = self.time_out.as_secs();
        let why = why.unwrap_or_else(|| format!("the cluster has given no other host within {seconds} s"));
        Problem::new(why).hint(self.hint.clone())
    }
}

impl Provisioner for ClusterProvisioner {
    fn start(&self, nodes: u32) -> Result<Vec<u32>, Problem> {
        let (board, changed) = &*self.board.0;
        let mut board = board.lock();
        let before = board.nodes.clone();
        let joined = |board: &HostBoard| -> Vec<u32> {
            board.nodes.iter().copied().filter(|node| !before.contains(node)).collect()
        };
        let missing = |board: &HostBoard| nodes.saturating_sub(u32::try_from(joined(board).len()).unwrap_or(u32::MAX));
        board.failures.clear();
        board.orders.push(HostOrder::Start(nodes));
        let until = Instant::now() + self.time_out;
        let is_over = |board: &HostBoard| board.is_cancelled || missing(board) as usize <= board.failures.len();
        while !is_over(&board) && !changed.wait_until(&mut board, until).timed_out() {}
        if missing(&board) > 0 {
            let missing = missing(&board);
            board.orders.push(HostOrder::GiveUp(missing));
        }
        match joined(&board) {
            joined if joined.is_empty() => Err(self.no_host(board.failures.first().cloned())),
            joined => Ok(joined),
        }
    }

    fn quiesce(&self, nodes: &[u32]) -> bool {
        let mut board = self.board.0.0.lock();
        board.quiet.extend(nodes);
        nodes.iter().all(|node| board.idle.contains(node))
    }

    fn readmit(&self, nodes: &[u32]) {
        let mut board = self.board.0.0.lock();
        board.quiet.retain(|node| !nodes.contains(node));
        board.idle.retain(|node| !nodes.contains(node));
    }

    fn release(&self, nodes: &[u32]) {
        self.board.0.0.lock().orders.push(HostOrder::Release(nodes.to_vec()));
    }

    fn started(&self) -> Vec<u32> {
        let board = self.board.0.0.lock();
        let mut nodes: Vec<u32> = board.nodes.iter().rev().copied().collect();
        // Nodes whose hosts have few tasks leave before others, which would have to end theirs.
        nodes.sort_by_key(|node| board.tasks.get(node).copied().unwrap_or(0));
        nodes
    }

    fn time_out(&self) -> Duration {
        self.time_out.min(SPACE_WAIT_MAX)
    }

    fn cancel(&self) {
        self.board.0.0.lock().is_cancelled = true;
        self.board.0.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn provisioner(time_out: Duration) -> (BoardHandle, ClusterProvisioner) {
        let board = BoardHandle::default();
        board.add_node(1);
        (board.clone(), ClusterProvisioner::new(board, time_out, "look at the cluster".into()))
    }

    #[test]
    fn a_start_is_over_when_as_many_hosts_have_joined() {
        let (board, provisioner) = provisioner(Duration::from_mins(1));
        let started = thread::spawn(move || (provisioner.start(2).unwrap(), provisioner.started()));
        while board.take_orders() != [HostOrder::Start(2)] {
            thread::yield_now();
        }
        board.add_node(3);
        board.add_node(4);
        assert_eq!(started.join().unwrap(), (vec![3, 4], vec![4, 3, 1]), "the last one leaves first");
        assert_eq!(board.take_orders(), []);
    }

    #[test]
    fn hosts_that_do_not_come_in_time_are_given_up() {
        let (board, provisioner) = provisioner(Duration::from_millis(1));
        let problem = provisioner.start(2).unwrap_err();
        assert!(problem.to_string().contains("no other host within"), "{problem}");
        assert_eq!(board.take_orders(), [HostOrder::Start(2), HostOrder::GiveUp(2)]);
    }

    #[test]
    fn a_host_without_a_node_is_not_waited_for_and_says_why() {
        let (board, provisioner) = provisioner(Duration::from_mins(1));
        let started = thread::spawn(move || provisioner.start(1));
        while board.take_orders().is_empty() {
            thread::yield_now();
        }
        board.add_failure("h: no tidemill".into());
        assert_eq!(started.join().unwrap().unwrap_err().message, "h: no tidemill");
        assert_eq!(board.take_orders(), [HostOrder::GiveUp(1)]);
    }

    #[test]
    fn hosts_with_fewer_tasks_leave_first() {
        let (board, provisioner) = provisioner(Duration::from_mins(1));
        board.add_node(3);
        board.add_node(4);
        board.set_tasks(4, 2);
        board.set_tasks(1, 1);
        assert_eq!(provisioner.started(), [3, 1, 4]);
    }

    #[test]
    fn a_node_is_idle_only_while_it_is_to_leave() {
        let (board, provisioner) = provisioner(Duration::from_mins(1));
        board.set_idle(1);
        assert!(!provisioner.quiesce(&[1]), "it was not asked before");
        assert!(board.is_quiet(1));
        board.set_idle(1);
        assert!(provisioner.quiesce(&[1]));
        provisioner.readmit(&[1]);
        assert!(!board.is_quiet(1));
        assert!(!provisioner.quiesce(&[1]));
    }
}
