//! Agents of an earlier pool of the run: they hold memory until they hear that it is not needed.

use super::dask_carrier::{ClusterHost, FromCarrier, ToCarrier};
use super::form::DaskLink;
use super::messages::{FromAgent, ToAgent, line};
use base::Problem;
use journal::JournalState;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout, timeout_at};

/// Time that agents get to end.
pub const END_WAIT: Duration = Duration::from_secs(20);

/// The agents of an earlier pool, as far as they may still be there.
#[derive(Debug, Default)]
pub struct FormerAgents {
    /// Socket of the agent of the first node, on this host.
    pub first: Option<PathBuf>,
    /// Sockets of the agents of the hosts, by the hosts' names.
    pub hosts: BTreeMap<String, PathBuf>,
}

impl FormerAgents {
    /// The agents that an earlier process of the run had when it was killed.
    pub fn of_journal(state: &JournalState) -> Self {
        if state.ended.is_some() {
            return Self::default();
        }
        let there = state.workers.values().filter(|worker| worker.lost_ms.is_none());
        let agent = |worker: &journal::WorkerTrace| Some((worker.name.clone(), worker.agent.clone()?.socket));
        Self { first: state.first.as_ref().map(|first| first.socket.clone()), hosts: there.filter_map(agent).collect() }
    }

    /// Ends those that can be reached, and waits until they are gone.
    ///
    /// # Errors
    /// The carrier has ended.
    pub async fn end(self, link: &mut DaskLink) -> Result<(), Problem> {
        let until = Instant::now() + END_WAIT;
        let is_present = |host: &&String| link.hosts.iter().any(|present: &ClusterHost| &present.host == *host);
        let mut left: HashSet<String> = self.hosts.keys().filter(is_present).cloned().collect();
        for (host, socket) in self.hosts.into_iter().filter(|(host, _)| left.contains(host)) {
            let lines = vec![line(&ToAgent::End)];
            link.carrier.handle.send(ToCarrier::Attach { host: host.clone(), socket });
            link.carrier.handle.send(ToCarrier::Post { host, lines });
        }
        if let Some(socket) = self.first {
            // It says no more when it has ended.
            let _ = timeout(END_WAIT, end_here(socket)).await;
        }
        while !left.is_empty() {
            match timeout_at(until, link.next()).await {
                Ok(message) => match message? {
                    FromCarrier::Lines { host, lines } if lines.iter().any(|text| is_end(text)) => {
                        left.remove(&host);
                    }
                    _ => {}
                },
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// True for the line that says that an agent is gone.
fn is_end(text: &str) -> bool {
    matches!(serde_json::from_str(text), Ok(FromAgent::Over | FromAgent::Gone(_)))
}

/// Ends the agent at a socket of this host, if it is there, and waits until it is gone.
async fn end_here(socket: PathBuf) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(format!("{}\n", line(&ToAgent::End)).as_bytes()).await?;
    stream.read_to_end(&mut Vec::new()).await.map(drop)
}
