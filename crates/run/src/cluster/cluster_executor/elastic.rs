//! Hosts of a pool that grows and shrinks by itself: those that join get a node, and those whose
//! nodes are to leave end their tasks and are released.
//!
//! ```text
//!   join:  agent set up -> node joins -> agent serves -> node admitted -> its directory
//!   leave: no more tasks -> (the driver drains the node) -> agent ends -> workers are closed
//! ```
//!
//! Once the pool has changed, its partitions lie anywhere, and so does data: the loss of a node is
//! then the loss of the pool.

use super::{ClusterExecutor, NODELESS};
use crate::cluster::agent_link::{AgentLink, bootstrap_channel};
use crate::cluster::cluster_provisioner::{BoardHandle, HostOrder};
use crate::cluster::dask_carrier::{CarrierHandle, ClusterHost, ToCarrier};
use crate::cluster::executor_host::ExecutorHost;
use crate::cluster::form::{FormedHost, JoiningHosts, JoiningNode, agent_setup};
use crate::cluster::messages::{AgentStart, FromAgent, ToAgent, line};
use crate::executor::ExecutorEvent;
use crate::layout::node_dir;
use crate::run_files::make_node_dir;
use base::Problem;
use client::RetryPolicy;
use placement::NodeId;
use pool::LinkedHost;
use sched::WorkerId;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use vfs::Vfs;

/// Time that the agent of a host that is released gets to end.
const PARTING_WAIT: Duration = Duration::from_secs(20);
/// The plan that a node which joins gets has no other node.
const OWN_PLAN: u32 = 1;

/// What the executor knows of a pool that grows and shrinks by itself.
#[derive(Debug, Default)]
pub struct ElasticHosts {
    board: BoardHandle,
    /// True when a node has joined or left since the pool was formed.
    has_changed: bool,
    /// Number of hosts that are to be started when those that go have gone: they may be the same.
    to_start: u32,
    /// Hosts whose agents end, until when; then their workers are closed.
    parting: HashMap<String, Instant>,
    /// Workers whose agents have ended after their nodes had no more tasks, since when. The driver
    /// is about to see that the nodes have left.
    ended: HashMap<WorkerId, Instant>,
}

impl ClusterExecutor {
    /// Lets hosts that join have a node, and does what is written on the board.
    pub fn set_elastic(&mut self, board: BoardHandle) {
        for node in self.hosts.values().filter_map(ExecutorHost::node) {
            board.add_node(node);
        }
        self.elastic = Some(ElasticHosts { board, ..ElasticHosts::default() });
    }

    /// Does what the provisioner wants.
    pub(super) fn tick_elastic(&mut self) {
        let Some(board) = self.elastic.as_ref().map(|elastic| elastic.board.clone()) else { return };
        for order in board.take_orders() {
            match order {
                HostOrder::Start(hosts) => self.elastic.iter_mut().for_each(|elastic| elastic.to_start += hosts),
                HostOrder::GiveUp(hosts) => self.give_up(hosts),
                HostOrder::Release(nodes) => self.release(&nodes),
            }
        }
        self.quiesce(&board);
        self.close_released();
        self.start_hosts();
        self.lose_ended();
    }

    fn start_hosts(&mut self) {
        let Some(elastic) = self.elastic.as_mut().filter(|elastic| elastic.parting.is_empty()) else { return };
        let hosts = std::mem::take(&mut elastic.to_start);
        if hosts > 0 {
            self.scale(self.wanted.saturating_add(hosts), Vec::new());
        }
    }

    /// Wants fewer hosts than were to come.
    fn give_up(&mut self, hosts: u32) {
        let Some(elastic) = &mut self.elastic else { return };
        let not_begun = elastic.to_start.min(hosts);
        elastic.to_start -= not_begun;
        if hosts > not_begun {
            self.scale(self.wanted.saturating_sub(hosts - not_begun), Vec::new());
        }
    }

    fn scale(&mut self, workers: u32, release: Vec<String>) {
        self.wanted = workers;
        self.handle().send(ToCarrier::Scale { workers, release });
    }

    /// Has hosts get no more tasks whose nodes are to leave, and notes which have none.
    fn quiesce(&mut self, board: &BoardHandle) {
        // What was said before has come to the scheduler then.
        let is_told = self.events.is_empty();
        for (worker, host) in &mut self.hosts {
            let Some(node) = host.node() else { continue };
            board.set_tasks(node, host.running.len());
            let is_quiet = board.is_quiet(node);
            if is_quiet != host.is_quiet {
                host.is_quiet = is_quiet;
                let slots = if is_quiet { 0 } else { host.threads };
                self.events.push_back(ExecutorEvent::Resized { worker: *worker, slots });
            } else if is_quiet && is_told && host.running.is_empty() {
                board.set_idle(node);
            }
        }
    }

    /// Lets hosts go whose nodes have left: their agents end first.
    fn release(&mut self, nodes: &[u32]) {
        let is_released = |host: &ExecutorHost| host.node().is_some_and(|node| nodes.contains(&node));
        let workers: Vec<WorkerId> =
            self.hosts.iter().filter(|(_, host)| is_released(host)).map(|(worker, _)| *worker).collect();
        for worker in workers {
            let Some(host) = self.hosts.remove(&worker) else { continue };
            let Some(elastic) = &mut self.elastic else { return };
            elastic.has_changed = true;
            host.node().into_iter().for_each(|node| elastic.board.remove_node(node));
            let has_ended = elastic.ended.remove(&worker).is_some();
            let wait = if has_ended { Duration::ZERO } else { PARTING_WAIT };
            elastic.parting.insert(host.name.clone(), Instant::now() + wait);
            // Its workers are there for a while yet.
            self.not_joined.insert(host.name.clone());
            self.handle().send(ToCarrier::Post { host: host.name, lines: vec![line(&ToAgent::End)] });
            self.events.push_back(ExecutorEvent::Released { worker });
        }
    }

    /// Notes that the agent of a host that is released has ended. True if it is one of those.
    pub(super) fn note_parted(&mut self, name: &str, text: &str) -> bool {
        let Some(until) = self.elastic.as_mut().and_then(|elastic| elastic.parting.get_mut(name)) else {
            return false;
        };
        if matches!(serde_json::from_str(text), Ok(FromAgent::Over | FromAgent::Gone(_))) {
            *until = Instant::now();
        }
        true
    }

    /// Has the cluster close the workers of hosts whose agents have ended.
    fn close_released(&mut self) {
        let Some(elastic) = &mut self.elastic else { return };
        let now = Instant::now();
        let closed: Vec<String> = elastic.parting.extract_if(|_, until| *until <= now).map(|(host, _)| host).collect();
        if !closed.is_empty() {
            let is_closed = |host: &&ClusterHost| closed.contains(&host.host);
            let workers: u32 = self.present.iter().filter(is_closed).map(|host| host.workers).sum();
            self.scale(self.wanted.saturating_sub(workers), closed);
        }
    }

    /// True if the end of a host's agent is none of its node: that was drained, or is about to be
    /// known to have left.
    pub(super) fn is_leaving(&mut self, worker: WorkerId) -> bool {
        let (Some(host), Some(elastic)) = (self.hosts.get(&worker), &mut self.elastic) else { return false };
        let leaves = host.is_quiet && host.running.is_empty();
        if leaves {
            elastic.ended.entry(worker).or_insert_with(Instant::now);
        }
        leaves
    }

    /// Gives hosts up whose nodes should have left, and have not.
    fn lose_ended(&mut self) {
        let Some(elastic) = &mut self.elastic else { return };
        let lease = self.lease;
        let lost: Vec<WorkerId> =
            elastic.ended.extract_if(|_, since| since.elapsed() > lease).map(|(worker, _)| worker).collect();
        for worker in lost {
            self.lose(worker, "its agent has ended before its node had left the pool".to_owned());
        }
    }

    /// True if the loss of a host is that of the pool: data of any task may lie at its node.
    pub(super) fn loses_pool(&mut self, host: &ExecutorHost) -> bool {
        let Some((elastic, node)) = self.elastic.as_mut().zip(host.node()) else { return false };
        elastic.board.remove_node(node);
        elastic.has_changed
    }

    /// Notes that the cluster could not start workers.
    pub(super) fn note_unscaled(&mut self, why: &str) {
        if let Some(elastic) = &self.elastic {
            elastic.board.add_failure(format!("the cluster could not start another worker: {why}"));
        }
    }

    /// Notes that a host has joined, or why it has no node.
    pub(super) fn note_joined(&mut self, formed: Result<&FormedHost, &Problem>) {
        let Some(elastic) = &mut self.elastic else { return };
        match formed {
            Ok(FormedHost { node: Some(node), .. }) => {
                elastic.has_changed = true;
                elastic.board.add_node(*node);
            }
            Ok(_) => {}
            Err(problem) => elastic.board.add_failure(problem.message.clone()),
        }
    }
}

impl ExecutorHost {
    /// The host's node; `None` if it only computes.
    pub fn node(&self) -> Option<u32> {
        Some(self.place.0).filter(|place| *place < NODELESS)
    }
}

/// Starts the agent of a host that joins. In a pool that grows it gets a node.
pub async fn start_agent(
    (carrier, pool): (&CarrierHandle, &Vfs),
    host: &ClusterHost,
    number: u32,
    joining: JoiningHosts,
) -> Result<FormedHost, Problem> {
    let JoiningHosts { names, orphan_wait, start, node, .. } = joining;
    let setup = agent_setup(&names, number, node.as_ref().map(|_| OWN_PLAN), orphan_wait);
    let mut link = AgentLink::start_at(carrier, &host.host).await?;
    let processors = link.set_up(&setup).await?;
    let Some(node) = node else {
        let ready = link.start(&start).await?;
        return Ok(FormedHost { host: host.clone(), node: None, ready, runs: Vec::new() });
    };
    let linked = LinkedHost { address: host.host.clone(), memory: node.memory, slots: Some(processors), name: None };
    let id = join_pool(&mut link, linked, &node).await?;
    let file = std::fs::read_to_string(&node.pool_file)
        .map_err(|error| Problem::new(format!("{}: {error}", node.pool_file.display())))?;
    let ready = link.start(&AgentStart { pool: file, node: Some(id), ..start }).await;
    if ready.is_err() {
        let path = node.pool_file.clone();
        drop(blocking(move || pool::dismiss_linked(&path, id)).await);
    }
    let ready = ready?;
    let path = node.pool_file.clone();
    blocking(move || pool::admit_linked(&path, id)).await?;
    make_directory((&node.pool_file, pool), NodeId(id)).await?;
    Ok(FormedHost { host: host.clone(), node: Some(id), ready, runs: Vec::new() })
}

/// Has the node of an agent that starts join the pool.
async fn join_pool(link: &mut AgentLink, host: LinkedHost, node: &JoiningNode) -> Result<u32, Problem> {
    let (process, starter) =
        bootstrap_channel().map_err(|error| Problem::new(format!("no connection to the agent: {error}")))?;
    let (path, space_wait) = (node.pool_file.clone(), node.space_wait);
    let joining = blocking(move || pool::join_linked(&path, host, space_wait, process));
    let (passed, joined) = tokio::join!(link.bootstrap(starter), joining);
    // What the agent tells is closer to the cause.
    passed.and(joined)
}

/// Makes the directory whose content lies at a node that has just joined. A new client knows that
/// the node serves partitions; the run's learns it with the first of them.
async fn make_directory((pool_file, pool): (&Path, &Vfs), node: NodeId) -> Result<(), Problem> {
    let client = Vfs::new(pool::connect(pool_file, RetryPolicy::default()).await?);
    make_node_dir(&client, node).await.map_err(|error| Problem::new(error.to_string()))?;
    let found = pool.resolve(node_dir(node).as_bytes()).await;
    found.map(drop).map_err(|refusal| Problem::new(refusal.to_string()))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    spawn_blocking(work).await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}
