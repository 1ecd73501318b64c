//! Joins the pool of a run that was killed, while agents and nodes wait for the run.
//!
//! The journal has the agents' sockets; the agent of the first node has the pool file beside its
//! own. What agents say meanwhile is kept for the executor: outcomes of attempts that ended come at
//! once.

use super::dask_carrier::{FromCarrier, ToCarrier};
use super::first_agent::FirstAgent;
use super::form::{
    BeforePool, DaskLink, FormedCluster, FormedHost, JoiningHosts, OwnTools, agent_names, agent_start, open_link,
};
use super::former_agents::FormerAgents;
use super::messages::{AgentReady, FromAgent};
use crate::emergency_cleanup::{CleanupList, EmergencyCleanup};
use crate::host_runner::AttemptKey;
use crate::spec::{ClusterSpec, RunSpec};
use base::Problem;
use client::RetryPolicy;
use journal::JournalState;
use mount::RuntimeDir;
use placement::NodeId;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use vfs::Vfs;

/// Time in which an agent that lives answers: the plug-in tries its socket for 5 s.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// The answers of agents.
#[derive(Debug, Default)]
struct AgentAnswers {
    serving: BTreeMap<String, AgentReady>,
    attempts: BTreeMap<String, Vec<AttemptKey>>,
    lines: Vec<(String, Vec<String>)>,
}

/// Joins the pool in which an earlier process of the run worked. `before` keeps the open way to the
/// cluster if that fails.
///
/// # Errors
/// The pool is gone, or no host of it answers.
pub async fn join(
    (spec, cluster, own): (&RunSpec, &ClusterSpec, &OwnTools),
    state: &JournalState,
    before: &mut BeforePool,
    emergency_cleanup: &EmergencyCleanup,
) -> Result<FormedCluster, Problem> {
    let gone = || Problem::new("no pool was formed");
    let first_trace = state.first.clone().filter(|_| state.ended.is_none()).ok_or_else(gone)?;
    let first_node = NodeId(first_trace.node.ok_or_else(gone)?);
    let first = FirstAgent::join(first_trace.socket.clone()).await?;
    let runtime = RuntimeDir::of_user()?;
    crate::environment::remove_stale_runs(&runtime)?;
    let registration = runtime.register(&spec.run_id)?;
    let mut cleanup = CleanupList::new(registration.rollback(), &spec.run_id);
    cleanup.agents.push(first.socket.clone());
    let link = open_link(before, (spec, cluster), (&mut cleanup, emergency_cleanup)).await?;
    let mut heard = ask_agents(link, &FormerAgents::of_journal(state)).await?;
    let pool_file = first_trace.socket.with_file_name("pool");
    let pool = Vfs::new(pool::connect(&pool_file, RetryPolicy::default()).await?);
    let trees = own.trees.clone();
    let trees = tokio::task::spawn_blocking(move || trees.hashed()).await;
    let trees = trees.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    let own = OwnTools { trees, programs: own.programs.clone() };
    let start = agent_start(spec, cluster, &own, (&pool_file, Vec::new()))?;
    let node_of = |host: &str| {
        let worker = state.workers.values().rfind(|worker| worker.name == host);
        worker.and_then(|worker| worker.agent.as_ref()).and_then(|agent| agent.node)
    };
    let present = link.hosts.iter().filter_map(|host| {
        let ready = heard.serving.remove(&host.host)?;
        let runs = heard.attempts.remove(&host.host).unwrap_or_default();
        Some(FormedHost { host: host.clone(), node: node_of(&host.host), ready, runs })
    });
    let hosts: Vec<FormedHost> = present.collect();
    if hosts.is_empty() {
        return Err(Problem::new("no host of the pool answers"));
    }
    let link = before.link.take().expect("it was just used");
    let (names, next, orphan_wait) = (agent_names(spec, true), first_node.0 + 1, cluster.orphan_wait);
    // A pool that grows is formed anew.
    let joining = JoiningHosts { names, next, orphan_wait, start, node: None };
    let heard = heard.lines;
    Ok(FormedCluster { link, pool, hosts, joining, first, first_node, registration, heard })
}

/// Connects to the agents, and waits until each has said what it runs or is known to be gone.
async fn ask_agents(link: &mut DaskLink, agents: &FormerAgents) -> Result<AgentAnswers, Problem> {
    let mut heard = AgentAnswers::default();
    let until = Instant::now() + ANSWER_WAIT;
    let is_present = |host: &&String| link.hosts.iter().any(|present| &present.host == *host);
    let mut waiting: HashSet<String> = agents.hosts.keys().filter(is_present).cloned().collect();
    for host in &waiting {
        let (host, socket) = (host.clone(), agents.hosts[host].clone());
        link.carrier.handle.send(ToCarrier::Attach { host, socket });
    }
    while !waiting.is_empty() {
        let Ok(message) = timeout_at(until, link.next()).await else { break };
        let FromCarrier::Lines { host, lines } = message? else { continue };
        for text in &lines {
            match serde_json::from_str(text) {
                Ok(FromAgent::Serves { ready, running }) => {
                    heard.serving.insert(host.clone(), *ready);
                    heard.attempts.entry(host.clone()).or_default().extend(running);
                    waiting.remove(&host);
                }
                Ok(FromAgent::Ended { outcome, .. }) => {
                    heard.attempts.entry(host.clone()).or_default().push((outcome.task, outcome.attempt));
                }
                Ok(FromAgent::Over | FromAgent::Gone(_)) => {
                    heard.serving.remove(&host);
                    waiting.remove(&host);
                }
                Ok(FromAgent::Beat { .. } | FromAgent::Copies(_)) | Err(_) => {}
            }
        }
        heard.lines.push((host, lines));
    }
    Ok(heard)
}
