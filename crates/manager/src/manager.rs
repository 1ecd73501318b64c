//! The manager of a node.

use crate::{
    leader::Leader,
    message::{self, ManagerAnswer, ManagerRequest, MapVersion, NodeActivity, ReportMessage},
    peers::{LogLink, Peers},
};
use bytes::Bytes;
use client::Connector;
use cluster::{ClusterState, NodeReport, PartitionLoad, PartitionMove};
use cluster_log::{ClusterLog, LogError};
use futures_util::future::BoxFuture;
use node::{LocalLoad, ManagerState, MoveError, MoveLink, Node, ReplyFuture};
use parking_lot::Mutex;
use placement::NodeId;
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    runtime::Handle,
    select,
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep},
};
use wire::{Answer, Failure, Object, Refusal};

/// Interval of reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Least interval of reports.
const REPORT_PAUSE: Duration = Duration::from_millis(50);

/// The manager of a node: its voice in the log, and its hand in moves.
#[derive(Debug)]
pub struct Manager {
    pub(crate) node: Arc<Node>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) log: ClusterLog,
    pub(crate) leader: Leader,
    handle: Handle,
    /// The node that has answered as the leader last.
    last_leader: Mutex<Option<NodeId>>,
    /// True if the leader wants to know the loads of partitions.
    wants_loads: AtomicBool,
    /// Notified when the leader waits for a report.
    report_asked: Notify,
}

/// Why a partition was not moved.
enum SendError {
    /// This node does not know the target, or the partition's entry.
    Behind,
    Move(MoveError),
}

/// A manager whose work goes on until this is dropped.
#[derive(Debug)]
pub struct RunningManager {
    manager: Arc<Manager>,
    tasks: Vec<JoinHandle<()>>,
}

impl Manager {
    /// Starts the manager of a node. With `founds` it is the first that agrees on this state; all
    /// others wait until its leader counts them in. `connector` leads to the nodes that the map
    /// names.
    ///
    /// # Errors
    /// If the log cannot be started.
    pub async fn start(
        handle: &Handle,
        node: &Arc<Node>,
        connector: Arc<dyn Connector>,
        founds: Option<ClusterState>,
    ) -> Result<RunningManager, LogError> {
        let peers = Arc::new(Peers::new(node, connector));
        let link = Arc::new(LogLink(peers.clone()));
        let log = match founds {
            Some(state) => ClusterLog::found(node.id(), state, link).await?,
            None => ClusterLog::follow(node.id(), link).await?,
        };
        let manager = Arc::new(Self {
            node: node.clone(),
            peers,
            log,
            leader: Leader::new(Instant::now()),
            handle: handle.clone(),
            last_leader: Mutex::default(),
            wants_loads: AtomicBool::new(false),
            report_asked: Notify::new(),
        });
        let weak = Arc::downgrade(&manager);
        node.on_manage(Box::new(move |message| match weak.upgrade() {
            Some(manager) => manager.reply(message),
            None => ReplyFuture::ready(Err(Refusal::invalid(Object::Pool, "this node is ending").into())),
        }));
        let weak = Arc::downgrade(&manager);
        node.on_manager_state(Box::new(move || {
            let state =
                |manager: Arc<Self>| ManagerState { leads: manager.log.is_leader(), entries: manager.log.entries() };
            weak.upgrade().map(state).unwrap_or_default()
        }));
        let tasks = vec![
            handle.spawn(manager.clone().report_always()),
            handle.spawn(manager.clone().announce_prepared_always()),
            handle.spawn(manager.clone().lead_always()),
        ];
        Ok(RunningManager { manager, tasks })
    }

    fn reply(self: Arc<Self>, message: Bytes) -> ReplyFuture {
        ReplyFuture::deferred(async move {
            let request = message::decode(&message)?;
            let answer = self.answer(request).await;
            Ok::<_, Failure>(Answer::Bytes(message::encode(&answer)))
        })
    }

    /// Answers a message.
    pub(crate) fn answer(self: &Arc<Self>, request: ManagerRequest) -> BoxFuture<'static, ManagerAnswer> {
        let manager = self.clone();
        Box::pin(async move {
            match request {
                ManagerRequest::Member(message) => match manager.log.handle(message).await {
                    Ok(answer) => ManagerAnswer::Member(answer),
                    Err(error) => ManagerAnswer::Failed(error.to_string()),
                },
                ManagerRequest::Start(step) => {
                    manager.spawn(manager.clone().send_partition(step));
                    ManagerAnswer::Done
                }
                ManagerRequest::ReportLoads => {
                    manager.wants_loads.store(true, Relaxed);
                    manager.report_asked.notify_one();
                    ManagerAnswer::Done
                }
                ManagerRequest::Learn(partition, entry) => {
                    manager.node.learn(partition, &entry);
                    ManagerAnswer::Done
                }
                ManagerRequest::Report(report) => manager.take_report(*report),
                ManagerRequest::Prepared(node, prepared) => manager.take_prepared(node, prepared),
                ManagerRequest::Propose(entry) => manager.propose_for(entry).await,
                ManagerRequest::MoveFailed(step, why) => manager.take_failure(step, &why),
                ManagerRequest::Elastic(report) => manager.take_elastic(report),
                ManagerRequest::Status => manager.status(),
                ManagerRequest::Activity => ManagerAnswer::Activity(manager.activity()),
                ManagerRequest::ListPins => manager.list_pins(false).await,
                ManagerRequest::EndPins => manager.list_pins(true).await,
            }
        })
    }

    /// Moves a partition of this node; what fails is told to the leader.
    async fn send_partition(self: Arc<Self>, step: PartitionMove) {
        let mut moved = self.try_send_partition(step).await;
        if matches!(moved, Err(SendError::Behind)) {
            // The answer to a report says what the leader knows.
            self.report().await;
            moved = self.try_send_partition(step).await;
        }
        let failed = match moved {
            // The leader has asked twice, or has given it up.
            Ok(()) | Err(SendError::Move(MoveError::Moving | MoveError::Cancelled)) => return,
            Err(SendError::Behind) => "this node does not know yet what the managers know".to_owned(),
            Err(SendError::Move(error)) => error.to_string(),
        };
        let PartitionMove { partition, to, .. } = step;
        tracing::debug!(partition = partition.0, to = to.0, "a partition could not be moved: {failed}");
        let _ = self.ask_leader(&ManagerRequest::MoveFailed(step, failed)).await;
    }

    async fn try_send_partition(&self, step: PartitionMove) -> Result<(), SendError> {
        let connection = self.peers.connection(step.to).map_err(|_| SendError::Behind)?;
        let link: MoveLink = Arc::new(move |request| connection.call(request));
        match self.node.send_partition((step.partition, step.epoch), step.to, link).await {
            Err(MoveError::OtherEpoch) => Err(SendError::Behind),
            moved => moved.map_err(SendError::Move),
        }
    }

    /// Asks the leader, whichever node that is; an error says why none has answered.
    pub(crate) async fn ask_leader(self: &Arc<Self>, request: &ManagerRequest) -> Result<ManagerAnswer, String> {
        // The last one is asked first.
        let mut candidates: Vec<NodeId> = self.node.known_map().addresses().map(|(node, _)| node).collect();
        candidates.reverse();
        candidates.extend([*self.last_leader.lock(), self.log.leader()].into_iter().flatten());
        let (mut asked, mut why) = (Vec::new(), "the pool has no node".to_owned());
        while let Some(candidate) = candidates.pop() {
            if asked.contains(&candidate) {
                continue;
            }
            asked.push(candidate);
            let answer = if candidate == self.node.id() {
                Ok(self.answer(request.clone()).await)
            } else {
                self.peers.ask(candidate, request).await
            };
            match answer {
                Ok(ManagerAnswer::NotLeader(known)) => candidates.extend(known),
                Ok(answer) => {
                    *self.last_leader.lock() = Some(candidate);
                    return Ok(answer);
                }
                Err(reason) => why = reason,
            }
        }
        Err(why)
    }

    /// Reports to the leader each second, and soon when it asks for that or when others know more
    /// of the map: the answer has what is new.
    async fn report_always(self: Arc<Self>) {
        loop {
            self.report().await;
            sleep(REPORT_PAUSE).await;
            select! {
                () = sleep(REPORT_INTERVAL.saturating_sub(REPORT_PAUSE)) => {}
                () = self.node.is_behind() => {}
                () = self.report_asked.notified() => {}
            }
        }
    }

    /// Tells the leader at once when partitions have arrived: their requests wait. A leader that
    /// does not hear of it finds them in the next report.
    async fn announce_prepared_always(self: Arc<Self>) {
        loop {
            self.node.partition_prepared().await;
            let prepared = ManagerRequest::Prepared(self.node.id(), self.node.prepared_partitions());
            if let Err(why) = self.ask_leader(&prepared).await {
                tracing::debug!(%why, "no manager hears of a partition that has arrived");
            }
        }
    }

    async fn report(self: &Arc<Self>) {
        let with_loads = self.wants_loads.load(Relaxed);
        let message = ReportMessage {
            node: self.node.id(),
            report: self.describe_node(with_loads).await,
            prepared: self.node.prepared_partitions(),
            known: MapVersion::of(&self.node.known_map()),
        };
        match self.ask_leader(&ManagerRequest::Report(Box::new(message))).await {
            Ok(ManagerAnswer::Reported { map, wants_loads, growth_wait }) => {
                self.node.set_growth_wait(growth_wait);
                self.wants_loads.store(wants_loads, Relaxed);
                if let Some(map) = map {
                    self.node.learn_map(&map);
                }
            }
            Ok(other) => tracing::debug!(?other, "the managers take no report"),
            Err(why) => tracing::debug!(%why, "no manager takes a report"),
        }
    }

    async fn describe_node(&self, with_loads: bool) -> NodeReport {
        let (usage, pins) = (self.node.usage(), self.node.pins());
        let loads = if with_loads { self.node.partition_loads().await.ok() } else { None };
        let load = |LocalLoad { bytes, placed_bytes, pins }| PartitionLoad { bytes, placed_bytes, pins };
        NodeReport {
            loads: loads.map(|loads| loads.into_iter().map(|(id, known)| (id, load(known))).collect()),
            used: usage.used,
            capacity: usage.capacity,
            pins,
            waiting: usage.waiting,
        }
    }

    fn activity(&self) -> NodeActivity {
        NodeActivity { traffic: self.node.client_traffic(), moves: self.node.departing(), pins: self.node.pins() }
    }

    /// Lists what the host has at this node. With `ends` it ends that, if the node serves nothing
    /// any more.
    async fn list_pins(self: Arc<Self>, ends: bool) -> ManagerAnswer {
        let node = self.node.clone();
        if ends && node.serves_any() {
            return ManagerAnswer::Failed("it still serves partitions: its pins are not ended before".to_owned());
        }
        // Reading /proc may take a while.
        let listed = self.handle.spawn_blocking(move || {
            let pins = node.list_pins();
            if ends {
                node.end_pins();
            }
            pins
        });
        match listed.await {
            Ok(pins) => ManagerAnswer::Pins(pins),
            Err(error) => ManagerAnswer::Failed(error.to_string()),
        }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(task));
    }
}

impl RunningManager {
    /// Ends it. Other members go on without it.
    pub async fn stop(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.manager.log.clone().stop().await;
    }
}
