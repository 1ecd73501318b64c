//! Cluster executor: attempts run on the hosts of a cluster, through their agents.
//!
//! A host is a worker of the scheduler, and its node is the worker's place. Orders that are made
//! together go together. Every attempt is leased: its agent says regularly that it lives and what
//! it runs, by whatever worker of the host. A host that has not been heard for the time of a lease
//! is lost, and its tasks run again elsewhere. What it may still write changes nothing: each
//! attempt has a directory of its own.
//!
//! While the connection to the Dask scheduler is cut, leases do not end: agents and nodes go on.
//!
//! A host whose last worker has left, or is about to leave, gets no more orders until it has a
//! worker again. Its agent ends what runs there, and keeps the node; lines go through the pool
//! meanwhile.

mod closing;
mod elastic;

use super::beat_clock::RUN_CLOCK;
use super::dask_carrier::{Carrier, CarrierHandle, ClusterHost, DaskConnection, FromCarrier, ToCarrier};
use super::executor_host::{ExecutorHost, RESEND_AFTER, RunningOrder};
use super::first_agent::FirstAgent;
use super::form::{DaskLink, FormedCluster, FormedHost, JoiningHosts, same_inputs};
use super::mailbox::Mailbox;
use super::messages::{BEAT, FromAgent, SILENCE, ToAgent, key_text, line};
use crate::executor::{Executor, ExecutorEvent};
use crate::host_copies::UnusedCopies;
use crate::host_runner::AttemptKey;
use crate::order::AttemptOrder;
use base::Problem;
use elastic::{ElasticHosts, start_agent};
use flow::TaskId;
use journal::AgentTrace;
use mount::PoolRegistration;
use placement::NodeId;
use sched::{MachineCapacity, PlaceId, WorkerId};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Sleep;
use vfs::Vfs;

/// The longest time that orders which are sent ahead wait for more.
const COLLECT_MAX: Duration = Duration::from_millis(20);
/// The least time between two beats, while hosts are asked whether they live.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// First place of hosts without a node; nodes have the numbers below.
const NODELESS: u32 = 1 << 16;

/// Executes attempts on the hosts of a cluster.
#[derive(Debug)]
pub struct ClusterExecutor {
    carrier: Carrier,
    /// Address at which the cluster reaches this machine.
    address: String,
    pool: Vfs,
    first: FirstAgent,
    first_node: NodeId,
    _registration: PoolRegistration,
    joining: JoiningHosts,
    /// A pool that grows and shrinks by itself; `None` if it does not.
    elastic: Option<ElasticHosts>,
    /// Number of workers that a cluster of the run's own is to have.
    wanted: u32,
    hosts: BTreeMap<WorkerId, ExecutorHost>,
    /// Hosts whose agents start now, or could not start.
    not_joined: HashSet<String>,
    /// Hosts that have workers.
    present: Vec<ClusterHost>,
    joined: (UnboundedSender<JoinResult>, UnboundedReceiver<JoinResult>),
    /// Number of agents that start now.
    starting: usize,
    /// Letters that are exchanged now, with the lines of the agents'.
    exchanging: JoinSet<(WorkerId, Mailbox, Vec<String>)>,
    /// Ends the wait of orders that are sent ahead; `None` while none wait.
    collecting: Option<Pin<Box<Sleep>>>,
    events: VecDeque<ExecutorEvent>,
    /// Attempts of an earlier process of the run that may go on, until they are started.
    adopted: HashSet<AttemptKey>,
    lease: Duration,
    next_worker: u32,
    last_beat: Instant,
    /// True if an attempt is in doubt until hosts answer a beat that has not been sent yet.
    asks: bool,
    connection: DaskConnection,
    life: ExecutorLife,
    /// The last message of the carrier before it ended.
    failure: Option<String>,
}

/// The stage of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ExecutorLife {
    Working,
    /// No attempt ends any more.
    Failed,
    /// Agents are told to end, and none starts.
    Closing,
}

/// The end of the start of an agent.
type JoinResult = (ClusterHost, Result<FormedHost, Problem>);

impl ClusterExecutor {
    /// An executor for a cluster that was just formed, whose workers have numbers from
    /// `next_worker` on. An agent that is not heard for the time `lease` is lost.
    pub fn new(cluster: FormedCluster, lease: Duration, next_worker: u32) -> Self {
        let FormedCluster { link, hosts, joining, first, first_node, registration, heard, pool } = cluster;
        let DaskLink { carrier, address, hosts: present, wanted, .. } = link;
        let mut executor = Self {
            carrier,
            address,
            pool,
            first,
            first_node,
            _registration: registration,
            joining,
            elastic: None,
            wanted,
            hosts: BTreeMap::new(),
            not_joined: HashSet::new(),
            present,
            joined: unbounded_channel(),
            starting: 0,
            exchanging: JoinSet::new(),
            collecting: None,
            events: VecDeque::new(),
            adopted: HashSet::new(),
            lease,
            next_worker,
            last_beat: Instant::now(),
            asks: false,
            connection: DaskConnection::Open,
            life: ExecutorLife::Working,
            failure: None,
        };
        for host in hosts {
            executor.add_host(host);
        }
        if !heard.is_empty() {
            // The pool was there before. Hosts whose agents are gone since get others.
            executor.on_hosts(executor.present.clone());
        }
        for (host, lines) in heard {
            for text in lines {
                executor.on_line(&host, &text);
            }
        }
        executor
    }

    /// The node of the pool that is on this host.
    pub fn first_node(&self) -> NodeId {
        self.first_node
    }

    /// The agent of that node.
    pub fn first_agent(&self) -> AgentTrace {
        AgentTrace { socket: self.first.socket.clone(), node: Some(self.first_node.0) }
    }

    fn handle(&self) -> &CarrierHandle {
        &self.carrier.handle
    }

    fn add_host(&mut self, formed: FormedHost) {
        let worker = WorkerId(self.next_worker);
        self.next_worker += 1;
        let FormedHost { host, node, ready, runs } = formed;
        let place = PlaceId(node.unwrap_or(NODELESS + worker.0));
        let capacity = MachineCapacity { slots: host.threads.max(1), memory: ready.memory };
        let mailbox = Mailbox::of_run(self.pool.clone(), &ready.name);
        let added = ExecutorHost::new(&host, place, ready.socket.clone(), mailbox, &runs);
        self.adopted.extend(&runs);
        self.hosts.insert(worker, added);
        let (inputs, agent) = (same_inputs(&ready), AgentTrace { socket: ready.socket, node });
        let (node, name) = (node.map(NodeId), host.host);
        self.events.push_back(ExecutorEvent::Joined { worker, place, node, capacity, name, agent, runs, inputs });
    }

    fn worker_at(&self, name: &str) -> Option<WorkerId> {
        self.hosts.iter().find(|(_, host)| host.name == name).map(|(worker, _)| *worker)
    }

    fn on_message(&mut self, message: FromCarrier) {
        match message {
            FromCarrier::Hosts(hosts) => self.on_hosts(hosts),
            FromCarrier::Lines { host, lines } => lines.iter().for_each(|text| self.on_line(&host, text)),
            FromCarrier::Undelivered { host, keys, why } => {
                tracing::info!("{host}: orders {} are sent again: {why}", keys.join(", "));
                if let Some(host) = self.hosts.values_mut().find(|other| other.name == host) {
                    host.send_again(&keys);
                }
            }
            FromCarrier::Cut { why } => {
                self.connection = DaskConnection::Cut;
                self.warn(format!("the Dask scheduler cannot be reached: {why}; tasks that run go on"));
            }
            FromCarrier::Opened { address } => {
                (self.connection, self.address) = (DaskConnection::Open, address);
                // Give agents the time of a lease to be heard again.
                self.hosts.values_mut().for_each(|host| host.last_heard = Instant::now());
            }
            FromCarrier::Failed { message, .. } => self.failure = Some(message),
            FromCarrier::Gone(why) => {
                let why = self.failure.take().unwrap_or(why);
                self.on_carrier_gone(&why);
            }
            FromCarrier::Unscaled { why } => self.note_unscaled(&why),
            FromCarrier::Said { .. } => {}
        }
    }

    /// Starts the carrier again: agents are still there. If it cannot be, the run is over.
    fn on_carrier_gone(&mut self, why: &str) {
        // One that cannot connect gives up after the time that the user lets it wait.
        let is_useless = self.life == ExecutorLife::Closing || self.connection == DaskConnection::Restarted;
        if is_useless || !self.carrier.restart() {
            self.connection = DaskConnection::Gone;
            return self.fail(ExecutorEvent::Failed(format!("the connection to Dask has ended: {why}")));
        }
        self.connection = DaskConnection::Restarted;
        self.warn(format!("the connection to Dask has ended: {why}; it is made again, and tasks that run go on"));
        for host in self.hosts.values() {
            let (host, socket) = (host.name.clone(), host.socket.clone());
            self.handle().send(ToCarrier::Attach { host, socket });
        }
    }

    fn warn(&mut self, text: String) {
        self.events.push_back(ExecutorEvent::Warning(text));
    }

    fn fail(&mut self, event: ExecutorEvent) {
        if self.life == ExecutorLife::Working {
            self.life = ExecutorLife::Failed;
            self.events.push_back(event);
        }
    }

    /// Lets agents start at hosts that are new.
    fn on_hosts(&mut self, hosts: Vec<ClusterHost>) {
        let present: HashSet<String> = hosts.iter().map(|host| host.host.clone()).collect();
        // A host that comes back gets another chance.
        self.not_joined.retain(|name| present.contains(name));
        self.present.clone_from(&hosts);
        self.resize(&hosts);
        for host in hosts {
            if self.worker_at(&host.host).is_none() && self.not_joined.insert(host.host.clone()) {
                self.join(host);
            }
        }
    }

    /// Follows the number of threads of hosts. One that is not there has no workers now.
    fn resize(&mut self, hosts: &[ClusterHost]) {
        let mut left = Vec::new();
        for (worker, host) in &mut self.hosts {
            let now = hosts.iter().find(|now| now.host == host.name).map_or(0, |now| now.threads.max(1));
            if now == host.threads {
                continue;
            }
            host.threads = now;
            let slots = if host.is_quiet { 0 } else { now };
            self.events.push_back(ExecutorEvent::Resized { worker: *worker, slots });
            if now == 0 {
                left.push(host.name.clone());
            }
        }
        for name in left {
            self.warn(format!("{name} has no Dask worker any more: it ends its tasks, and gets no new ones"));
        }
    }

    fn join(&mut self, host: ClusterHost) {
        let own = format!("tidemill {}", env!("CARGO_PKG_VERSION"));
        if host.version.as_ref() != Some(&own) {
            let found = host.version.as_deref().unwrap_or("no tidemill");
            return self.warn(format!("the workers that joined at {} have {found}, and get no tasks", host.host));
        }
        let number = self.joining.next;
        self.joining.next += 1;
        self.starting += 1;
        let (joining, done) = (self.joining.clone(), self.joined.0.clone());
        let (carrier, pool) = (self.handle().clone(), self.pool.clone());
        tokio::spawn(async move {
            let formed = start_agent((&carrier, &pool), &host, number, joining).await;
            let _ = done.send((host, formed));
        });
    }

    fn on_joined(&mut self, (host, formed): JoinResult) {
        self.starting -= 1;
        self.note_joined(formed.as_ref());
        match formed {
            Ok(formed) => {
                self.not_joined.remove(&host.host);
                let (host, socket) = (host.host, formed.ready.socket.clone());
                self.handle().send(ToCarrier::Attach { host, socket });
                self.add_host(formed);
                // Its workers may be others than when its agent started.
                let present = self.present.clone();
                self.resize(&present);
            }
            Err(problem) => self.warn(format!("{problem}; this host gets no tasks")),
        }
    }

    fn on_line(&mut self, name: &str, text: &str) {
        if self.note_parted(name, text) {
            return;
        }
        let Some(worker) = self.worker_at(name) else { return };
        match serde_json::from_str(text) {
            Ok(message) => self.on_agent(worker, message),
            Err(error) => tracing::debug!("{name}: not a message: {error}: {text}"),
        }
    }

    fn on_agent(&mut self, worker: WorkerId, message: FromAgent) {
        let Some(host) = self.hosts.get_mut(&worker) else { return };
        host.last_heard = Instant::now();
        match message {
            FromAgent::Ended { number, outcome, .. } => {
                host.acknowledged = host.acknowledged.max(number);
                host.stopped.remove(&(outcome.task, outcome.attempt));
                if host.running.remove(&(outcome.task, outcome.attempt)).is_some() {
                    self.events.push_back(ExecutorEvent::Ended(outcome));
                }
            }
            FromAgent::Beat { running, heard } => {
                let now = Instant::now();
                RUN_CLOCK.advance(&mut host.answered, heard);
                for key in running {
                    if let Some(order) = host.running.get_mut(&key) {
                        order.since = now;
                    }
                }
                let unknown = host.running.iter().filter(|(_, order)| order.since.elapsed() > RESEND_AFTER);
                let keys: Vec<String> = unknown.map(|(key, _)| key_text(*key)).collect();
                host.send_again(&keys);
            }
            FromAgent::Copies(copies) => {
                let place = host.place;
                let copies = copies.into_iter().map(|copy| (copy.data, copy.bytes)).collect();
                self.events.push_back(ExecutorEvent::Copies { place, copies });
            }
            FromAgent::Serves { .. } => {}
            FromAgent::Over | FromAgent::Gone(_) if self.is_leaving(worker) => {}
            FromAgent::Over => self.lose(worker, "its agent has ended".to_owned()),
            FromAgent::Gone(why) => self.lose(worker, format!("its agent is gone: {why}")),
        }
    }

    /// Sends the orders that were made since the last call, one batch for each host. Those that
    /// were sent ahead may wait for more, `at_most` this long.
    fn flush(&mut self, at_most: Duration) {
        let handle = self.carrier.handle.clone();
        for host in self.hosts.values_mut() {
            if let Some((lines, keys)) = host.take_batch(at_most) {
                handle.send(ToCarrier::Orders { host: host.name.clone(), lines, keys });
            }
        }
    }

    /// Sends orders that have waited long enough.
    fn poll_collecting(&mut self, context: &mut Context) {
        if self.hosts.values().all(|host| host.to_send.is_empty()) {
            self.collecting = None;
            return;
        }
        let wait = self.collecting.get_or_insert_with(|| Box::pin(tokio::time::sleep(COLLECT_MAX)));
        if wait.as_mut().poll(context).is_ready() {
            self.collecting = None;
            self.flush(Duration::ZERO);
        }
    }

    /// Stops attempts of an earlier process of the run that were not started when their hosts had
    /// joined: their inputs are lost, or their tasks are done.
    fn stop_adopted(&mut self) {
        for key in std::mem::take(&mut self.adopted) {
            for host in self.hosts.values_mut().filter(|host| host.running.contains_key(&key)) {
                host.running.remove(&key);
                let lines = vec![line(&ToAgent::Stop(key))];
                self.carrier.handle.send(ToCarrier::Post { host: host.name.clone(), lines });
            }
        }
    }

    /// Tells all agents that the run lives, and which outcomes have come.
    fn beat(&mut self) {
        self.last_beat = Instant::now();
        self.asks = false;
        let beat = ToAgent::Beat { sent: RUN_CLOCK.now() };
        // Outcomes that the run has not taken yet would be lost with this process.
        let is_taken = self.events.is_empty();
        for host in self.hosts.values() {
            let ack = is_taken.then(|| line(&ToAgent::Ack(host.acknowledged)));
            let lines = ack.into_iter().chain([line(&beat)]).collect();
            self.handle().send(ToCarrier::Post { host: host.name.clone(), lines });
        }
        self.exchange_letters();
        self.first.beat(&beat);
    }

    /// Exchanges letters with the agents from which no worker brings lines.
    fn exchange_letters(&mut self) {
        for (worker, host) in &mut self.hosts {
            let is_silent =
                host.threads == 0 || self.connection == DaskConnection::Gone || host.last_heard.elapsed() > SILENCE;
            if !is_silent {
                continue;
            }
            let Some(mut mailbox) = host.mailbox.take() else { continue };
            let is_closing = self.life == ExecutorLife::Closing;
            let (worker, lines) = (*worker, host.letter(is_closing, self.events.is_empty()));
            self.exchanging.spawn(async move {
                let lines = mailbox.exchange(lines).await;
                (worker, mailbox, lines)
            });
        }
    }

    fn on_letter(&mut self, (worker, mailbox, lines): (WorkerId, Mailbox, Vec<String>)) {
        let Some(host) = self.hosts.get_mut(&worker) else { return };
        host.mailbox = Some(mailbox);
        let name = host.name.clone();
        for text in lines {
            self.on_line(&name, &text);
        }
    }

    fn end_leases(&mut self) {
        if self.connection != DaskConnection::Open {
            return;
        }
        let lease = self.lease;
        let silent = self.hosts.iter().filter(|(_, host)| host.last_heard.elapsed() > lease);
        let silent: Vec<WorkerId> = silent.map(|(worker, _)| *worker).collect();
        for worker in silent {
            if self.is_leaving(worker) {
                continue;
            }
            // It may live: what it runs has no use any more.
            let name = self.hosts[&worker].name.clone();
            self.handle().send(ToCarrier::Post { host: name, lines: vec![line(&ToAgent::End)] });
            self.lose(worker, format!("nothing was heard of it for {} s", lease.as_secs()));
        }
    }

    /// Gives a host up. If it still has workers, another agent starts there, which also removes
    /// what the first one left. Its node, which the pool counts on, does not come back: the host
    /// only computes from now on.
    fn lose(&mut self, worker: WorkerId, why: String) {
        let Some(host) = self.hosts.remove(&worker) else { return };
        if self.life == ExecutorLife::Working && self.loses_pool(&host) {
            let why = format!("{} is lost ({why}), with a part of a pool that has grown or shrunk", host.name);
            return self.fail(ExecutorEvent::PoolLost(why));
        }
        self.events.push_back(ExecutorEvent::Lost { worker, why });
        let present = self.present.iter().find(|present| present.host == host.name).cloned();
        if self.life == ExecutorLife::Closing {
            return;
        }
        if let Some(present) = present.filter(|present| self.not_joined.insert(present.host.clone())) {
            self.join(present);
        }
        if self.hosts.is_empty() && self.starting == 0 {
            self.warn("no host is left: the run waits for workers to join".to_owned());
        }
    }

    fn poll_sources(&mut self, context: &mut Context) {
        while let Poll::Ready(Some(message)) = self.carrier.messages.poll_recv(context) {
            self.on_message(message);
        }
        while let Poll::Ready(Some(joined)) = self.joined.1.poll_recv(context) {
            self.on_joined(joined);
        }
        while let Poll::Ready(Some(exchanged)) = self.exchanging.poll_join_next(context) {
            self.on_letter(exchanged.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
        }
        if self.life == ExecutorLife::Working && self.first.poll_gone(context).is_ready() {
            let why = "the first node of the pool, beside this run, has ended".to_owned();
            self.fail(ExecutorEvent::PoolLost(why));
        }
    }
}

impl Executor for ClusterExecutor {
    fn start(&mut self, worker: WorkerId, order: AttemptOrder) {
        let key = (order.task, order.attempt);
        let is_outcome = |event: &ExecutorEvent| matches!(event, ExecutorEvent::Ended(outcome) if (outcome.task, outcome.attempt) == key);
        if self.adopted.remove(&key) && self.events.iter().any(is_outcome) {
            return;
        }
        let Some(host) = self.hosts.get_mut(&worker) else { return };
        let waits = order.turn.waits;
        let line = line(&ToAgent::Order(Box::new(order)));
        host.running.insert(key, RunningOrder { line, waits, since: Instant::now() });
        host.to_send.push(key);
    }

    fn stop(&mut self, worker: WorkerId, task: TaskId, attempt: u32) {
        self.flush(Duration::ZERO);
        if let Some(host) = self.hosts.get_mut(&worker) {
            host.stopped.insert((task, attempt));
            let lines = vec![line(&ToAgent::Stop((task, attempt)))];
            let host = host.name.clone();
            self.handle().send(ToCarrier::Post { host, lines });
        }
    }

    fn drop_copies(&mut self, place: PlaceId, unused: UnusedCopies) {
        let at = self.hosts.values().find(|host| host.place == place);
        if let Some(host) = at.filter(|_| unused != UnusedCopies::default()) {
            let lines = vec![line(&ToAgent::DropCopies(unused))];
            self.handle().send(ToCarrier::Post { host: host.name.clone(), lines });
        }
    }

    fn poll_event(&mut self, context: &mut Context) -> Poll<ExecutorEvent> {
        self.flush(COLLECT_MAX);
        self.poll_sources(context);
        self.poll_collecting(context);
        self.events.pop_front().map_or(Poll::Pending, Poll::Ready)
    }

    fn is_silent_since(&mut self, places: &[PlaceId], moment: Instant) -> bool {
        let is_silent = |host: &ExecutorHost| places.contains(&host.place) && host.answered <= moment;
        // A lost place is not there any more, and the run hears of it with a later event.
        let is_loss = |event: &ExecutorEvent| matches!(event, ExecutorEvent::Lost { .. } | ExecutorEvent::PoolLost(_));
        let is_unanswered = self.first.answered <= moment || self.hosts.values().any(is_silent);
        self.asks |= is_unanswered && self.last_beat <= moment;
        is_unanswered || self.events.iter().any(is_loss)
    }

    fn tick(&mut self) {
        self.stop_adopted();
        self.tick_elastic();
        if self.last_beat.elapsed() > if self.asks { ASK_INTERVAL } else { BEAT } {
            self.beat();
        }
        self.end_leases();
    }
}
