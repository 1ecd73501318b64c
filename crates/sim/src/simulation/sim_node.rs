//! A node of the simulated pool, with what its process does beside requests: workers, reports to
//! the managers, moves that they ask for.
//!
//! The process itself has the same in `transport` (`server/workers.rs`) and `manager`
//! (`manager.rs`), over real sockets and clocks.

use crate::simulation::{
    connection::SimConnector,
    executor::{SimState, sim_sleep},
    managers::{SimManagers, SimReport},
    network::{Host, SimEvent},
    ordered_link::OrderedLink,
};
use client::{Client, RetryPolicy};
use cluster::{NodeReport, PartitionLoad, PartitionMove};
use node::{LocalLoad, MoveError, MoveLink, Node};
use parking_lot::Mutex;
use placement::{Epoch, NodeId, PartitionId};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use store::StripeStore;
use wire::{Outcome, Session};

/// Interval of reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(120);
/// Interval of the turns of workers.
const TURN_INTERVAL: Duration = Duration::from_millis(100);
/// Time that a node takes at its end to tell others what they must know.
const LEAVE_WAIT: Duration = Duration::from_secs(2);

/// A node and its process.
pub struct SimNode {
    pub node: Arc<Node>,
    /// The stripes that its engine has.
    pub stripes: Arc<dyn StripeStore>,
    state: Arc<SimState>,
    managers: Arc<SimManagers>,
    /// The links over which partitions leave.
    links: Mutex<BTreeMap<NodeId, Arc<OrderedLink>>>,
    /// The client that finishes what sessions have left; connected when it is first needed.
    cleanup: OnceLock<Client>,
    wants_loads: AtomicBool,
    is_ending: AtomicBool,
}

impl SimNode {
    /// Starts what the node's process does.
    pub fn start(node: Arc<Node>, stripes: Arc<dyn StripeStore>, managers: &Arc<SimManagers>) -> Arc<Self> {
        let started = Arc::new(Self {
            node,
            stripes,
            state: managers.state.clone(),
            managers: managers.clone(),
            links: Mutex::default(),
            cleanup: OnceLock::new(),
            wants_loads: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
        });
        started.state.network.add_node(started.node.clone());
        started.spawn(started.clone().report_always());
        started.spawn(started.clone().announce_prepared_always());
        started.spawn(started.clone().work_always());
        started
    }

    fn host(&self) -> Host {
        Host::Node(self.node.id())
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.state.spawn(Some(self.host()), task);
    }

    /// Moves a partition away; what fails is told to the leader.
    pub fn start_move(self: &Arc<Self>, step: PartitionMove) {
        let this = self.clone();
        self.spawn(async move {
            let mut moved = this.try_move(step).await;
            if matches!(moved, Err(MoveError::OtherEpoch)) {
                // The answer to a report says what the leader knows.
                this.report().await;
                moved = this.try_move(step).await;
            }
            this.state.trace(|| format!("{step:?}: {moved:?}"));
            match moved {
                // The leader has asked twice, or has given it up.
                Ok(()) | Err(MoveError::Moving | MoveError::Cancelled) => {}
                Err(_) if this.state.carry(this.host(), Host::Managers, 100).await => this.managers.take_failure(step),
                Err(_) => {}
            }
        });
    }

    async fn try_move(&self, step: PartitionMove) -> Result<(), MoveError> {
        if !self.node.known_map().addresses().any(|(node, _)| node == step.to) {
            return Err(MoveError::OtherEpoch);
        }
        let new = || Arc::new(OrderedLink::breaking(self.state.clone(), self.host(), step.to));
        let link = self.links.lock().entry(step.to).or_insert_with(new).clone();
        let link: MoveLink = Arc::new(move |request| link.call(request));
        self.node.send_partition((step.partition, step.epoch), step.to, link).await
    }

    fn prepared(&self) -> Vec<(PartitionId, Epoch)> {
        let mut prepared = self.node.prepared_partitions();
        prepared.sort_unstable();
        prepared
    }

    async fn report_always(self: Arc<Self>) {
        loop {
            self.report().await;
            sim_sleep(REPORT_INTERVAL + self.state.random_time(REPORT_INTERVAL)).await;
        }
    }

    async fn report(&self) {
        let report = self.describe().await;
        let message = SimReport { node: self.node.id(), report, prepared: self.prepared() };
        if !self.state.carry(self.host(), Host::Managers, 500).await {
            self.state.network.count(SimEvent::ReportLost);
            return;
        }
        let (map, wants_loads) = self.managers.take_report(message);
        if self.state.carry(Host::Managers, self.host(), 500).await {
            self.wants_loads.store(wants_loads, Relaxed);
            self.node.learn_map(&map);
        } else {
            self.state.network.count(SimEvent::ReportLost);
        }
    }

    async fn describe(&self) -> NodeReport {
        let (usage, pins) = (self.node.usage(), self.node.pins());
        let loads = if self.wants_loads.load(Relaxed) { self.node.partition_loads().await.ok() } else { None };
        let load = |LocalLoad { bytes, placed_bytes, pins }| PartitionLoad { bytes, placed_bytes, pins };
        let loads = loads.map(|loads| loads.into_iter().map(|(id, known)| (id, load(known))).collect());
        NodeReport { loads, used: usage.used, capacity: usage.capacity, pins, waiting: usage.waiting }
    }

    /// Tells the leader at once when partitions have arrived: their requests wait.
    async fn announce_prepared_always(self: Arc<Self>) {
        loop {
            self.node.partition_prepared().await;
            let prepared = self.prepared();
            if self.state.carry(self.host(), Host::Managers, 100).await {
                self.managers.take_prepared(self.node.id(), prepared);
            }
        }
    }

    async fn work_always(self: Arc<Self>) {
        loop {
            sim_sleep(TURN_INTERVAL + self.state.random_time(TURN_INTERVAL)).await;
            // What could not be done is tried again at the next turn.
            if let Err(refusal) = self.work().await {
                self.state.trace(|| format!("node {} has work that waits: {refusal}", self.node.id()));
            }
        }
    }

    /// One turn of all workers.
    pub async fn work(&self) -> Outcome<()> {
        let deleted = self.node.take_pending_deletes();
        if !deleted.is_empty() {
            let client = self.client().await?;
            for deleted in deleted {
                client.purge(Some(deleted)).await;
            }
        }
        if self.node.has_host_work() {
            self.client().await?.do_host_work(&self.node).await?;
        }
        self.end_overdue_sessions().await?;
        let mut arrived = self.node.close_arrived_sessions().await;
        arrived.sort_unstable();
        for (session, partition) in arrived {
            // What is left then is finished by the client that runs into it.
            drop(self.client().await?.recover_in(session, vec![partition]).await);
        }
        self.node.clear_leftovers().await?;
        // What comes from tables without an order gets one, so that the seed decides.
        let mut due = self.node.sessions_with_due_strays();
        due.sort_unstable();
        for session in due {
            self.remove_strays(session).await?;
        }
        Ok(())
    }

    /// Ends the sessions whose clients have not come after a node had left.
    async fn end_overdue_sessions(&self) -> Outcome<()> {
        for session in self.node.take_overdue_sessions() {
            if self.state.network.is_session_live(self.node.id(), session) {
                continue;
            }
            self.state.network.count(SimEvent::SessionOverdue);
            let left = self.node.end_session(session);
            for partition in &left {
                // A failure is that of a partition that has just moved.
                drop(self.node.close_session_in(session, *partition).await);
            }
            drop(self.client().await?.recover_in(session, left).await);
        }
        Ok(())
    }

    /// True if there is work that needs other nodes, or time.
    pub fn is_busy(&self) -> bool {
        self.node.has_host_work() || self.node.awaits_sessions() || !self.node.sessions_with_due_strays().is_empty()
    }

    async fn remove_strays(&self, session: Session) -> Outcome<()> {
        let mut files = self.node.remote_stray_files(session);
        files.sort_unstable();
        for file in files {
            let client = self.client().await?;
            let Some(question) = self.node.stray_query(session, file) else { continue };
            match client.find_unplanned(file, &question.stripes).await {
                Ok(unplanned) => self.node.remove_strays(&question, &unplanned),
                Err(refusal) => {
                    self.node.end_stray_query(&question);
                    return Err(refusal);
                }
            }
        }
        Ok(())
    }

    async fn client(&self) -> Outcome<&Client> {
        if let Some(client) = self.cleanup.get() {
            return Ok(client);
        }
        let connector = SimConnector { state: self.state.clone(), from: self.host() };
        let nodes = connector.nodes(&[self.node.id()]);
        let client = Client::connect_all(nodes, RetryPolicy::default()).await?;
        Ok(self.cleanup.get_or_init(|| client))
    }

    /// Ends the node, which has left the pool.
    pub fn stop(self: &Arc<Self>) {
        if self.is_ending.swap(true, Relaxed) {
            return;
        }
        let this = self.clone();
        self.spawn(async move {
            // All connections end, and others wait for the clients.
            for session in this.state.network.close(this.node.id()) {
                this.node.leave_session(session);
            }
            this.node.pass_on_awaited_sessions();
            this.state.node_left.notify_waiters();
            let end = node::now() + LEAVE_WAIT;
            while this.node.has_host_work() && node::now() < end {
                drop(this.work().await);
                sim_sleep(TURN_INTERVAL).await;
            }
            assert!(!this.node.serves_any(), "a node that has left serves");
            this.state.network.count(SimEvent::NodeLeft);
            this.state.kill(this.host());
        });
    }
}
