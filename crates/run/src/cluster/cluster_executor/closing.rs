//! The end of the agents of a cluster.

use super::{ClusterExecutor, ExecutorLife};
use crate::cluster::dask_carrier::{DaskConnection, FromCarrier, ToCarrier};
use crate::cluster::form::{BeforePool, DaskLink};
use crate::cluster::former_agents::{END_WAIT, FormerAgents};
use crate::cluster::messages::{ToAgent, line};
use crate::environment::remove_stale_runs;
use base::Problem;
use mount::RuntimeDir;
use sched::WorkerId;
use std::collections::HashSet;
use std::time::Duration;

/// Interval between two letters to an agent that should end.
const LETTER_INTERVAL: Duration = Duration::from_millis(500);
/// Time that agents which start while the run ends get to be there.
const START_WAIT: Duration = Duration::from_secs(5);

impl ClusterExecutor {
    /// Ends all agents with their nodes. Returns what a pool that is formed anew needs: the
    /// carrier, which ends when it is dropped, and the agents that may still be there.
    pub async fn close(mut self) -> BeforePool {
        self.life = ExecutorLife::Closing;
        self.elastic = None;
        let now = tokio::time::Instant::now();
        let (until, starting_until) = (now + END_WAIT, now + START_WAIT);
        let mut told = HashSet::new();
        let mut letters = tokio::time::interval(LETTER_INTERVAL);
        // Without the first node the pool has no letters.
        while self.connection == DaskConnection::Open || !self.first.has_ended() {
            let untold: Vec<WorkerId> = self.hosts.keys().copied().filter(|worker| told.insert(*worker)).collect();
            for worker in untold {
                self.tell_end(worker);
            }
            if self.hosts.is_empty() && (self.starting == 0 || self.connection == DaskConnection::Gone) {
                break;
            }
            // An agent that starts is soon there, or its host is not.
            let until = if self.hosts.is_empty() { starting_until } else { until };
            tokio::select! {
                message = self.carrier.messages.recv(), if self.connection != DaskConnection::Gone => match message {
                    Some(FromCarrier::Hosts(now)) => self.present = now,
                    // An agent that is over is lost, and is not there any more.
                    Some(message) => self.on_message(message),
                    None => self.connection = DaskConnection::Gone,
                },
                Some(joined) = self.joined.1.recv() => self.on_joined(joined),
                Some(exchanged) = self.exchanging.join_next() => {
                    self.on_letter(exchanged.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
                }
                _ = letters.tick() => self.exchange_letters(),
                () = tokio::time::sleep_until(until) => break,
            }
        }
        self.first.end(END_WAIT).await;
        // One that was killed has left its directory.
        let swept = RuntimeDir::of_user().map_err(Problem::from).and_then(|runtime| remove_stale_runs(&runtime));
        if let Err(problem) = swept {
            tracing::warn!("{problem}");
        }
        let is_gone = self.connection == DaskConnection::Gone;
        let left = self.hosts.into_values().map(|host| (host.name, host.socket)).collect();
        // Hosts that are cut off are told again when the scheduler is back.
        let hosts = if self.connection == DaskConnection::Open { self.present } else { Vec::new() };
        BeforePool {
            anew: true,
            link: Some(DaskLink { carrier: self.carrier, address: self.address, hosts, wanted: self.wanted, is_gone }),
            agents: FormerAgents { first: None, hosts: left },
            files: Vec::new(),
        }
    }

    fn tell_end(&mut self, worker: WorkerId) {
        let host = &self.hosts[&worker];
        let lines = vec![line(&ToAgent::Ack(host.acknowledged)), line(&ToAgent::End)];
        self.handle().send(ToCarrier::Post { host: host.name.clone(), lines });
    }
}
