//! A run on a cluster, from start to cleanup.
//!
//! ```text
//! form a pool -> event loop -> done
//!   ^               | the pool is lost
//!   +-- settle -----+
//! ```
//!
//! The root of the pool is at one node. If that is lost, a pool is formed anew, and lineage decides
//! which tasks run again, as when a run is resumed: only exported files are left.

use crate::cluster::{
    BeforePool, BoardHandle, ClusterExecutor, ClusterProvisioner, FormedCluster, FormerAgents, OwnTools, form, join,
};
use crate::data_places::DataPlaces;
use crate::elastic_run::{ElasticLink, ElasticThread};
use crate::emergency_cleanup::EmergencyCleanup;
use crate::event::RunEvent;
use crate::event_loop::{EventLoop, ExportPlan, LoopContext, LoopEnd, OngoingPlan, PlanGrower};
use crate::preflight;
use crate::prepare_run::{prepare_on_cluster, too_large_tasks};
use crate::recorder::Recorder;
use crate::resume::{Settled, TakenOver, settle_anew, settle_killed};
use crate::run_files::RunFiles;
use crate::spec::{ClusterSpec, RunSpec};
use crate::start::{
    ReportHead, begin_records, ended_event, exports, hash_grown, hash_in_background, keep_failed, tell_start,
};
use crate::usage_refresh::{NodeUsages, keep_usage};
use base::{ByteSize, Problem};
use journal::JournalState;
use placement::NodeId;
use report::RunReport;
use sched::{Scheduler, SchedulerOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// Number of pools that a run loses one after the other without a task that was done, before it
/// gives up.
const LOSSES_MAX: u32 = 3;

/// Executes the run on a cluster. Errors are returned only before any task starts.
pub async fn run_on_cluster(
    (spec, cluster): (RunSpec, ClusterSpec),
    grower: Option<PlanGrower>,
    begun: Instant,
    on_event: &mut dyn FnMut(&RunEvent),
    cancel: CancellationToken,
    emergency_cleanup: &EmergencyCleanup,
) -> Result<RunReport, Vec<Problem>> {
    let own = prepare_on_cluster(&spec)?;
    let mut taken = TakenOver::find(&spec, &own.programs)?;
    let mut run = ClusterDriver { spec, cluster: &cluster, own: &own, cancel: &cancel, emergency_cleanup };
    let pool = run.first_pool(&mut taken, on_event).await?;
    let mut recorder = begin_records(&run.spec, &mut taken, (&pool.head, &own.programs), begun);
    tell_start((&run.spec, &pool.head, &taken), pool.slots, on_event);
    let hashes = hash_in_background(&run.spec, &own.programs, &cancel);
    let mut grower = grower;
    if let Some(grower) = &mut grower {
        grower.former = taken.former.take();
    }
    let plan = OngoingPlan { grower, exports: exports(&run.spec), ..OngoingPlan::default() };
    Box::pin(run.work(pool, (taken.settled, plan), &mut recorder, on_event)).await;
    emergency_cleanup.arm(None);
    let mut hashes = hashes.await.unwrap_or_default();
    hashes.inputs.extend(hash_grown(&run.spec, &run.spec.flow, &cancel).await);
    recorder.hashed(hashes);
    recorder.seal(cancel.is_cancelled());
    on_event(&ended_event(&recorder.run));
    Ok(recorder.run)
}

/// The parts that all pools of a run have in common.
struct ClusterDriver<'a> {
    spec: RunSpec,
    cluster: &'a ClusterSpec,
    own: &'a OwnTools,
    cancel: &'a CancellationToken,
    emergency_cleanup: &'a EmergencyCleanup,
}

/// A pool with the run's files.
struct RunPool {
    executor: ClusterExecutor,
    /// What lets it grow and shrink, if it does.
    elastic: Option<(ElasticThread, ElasticLink)>,
    files: RunFiles,
    usages: NodeUsages,
    refresh: AbortHandle,
    head: ReportHead,
    slots: u32,
    /// False if an earlier process of the run has formed it.
    is_new: bool,
}

impl ClusterDriver<'_> {
    /// The pool in which the run begins: that of an earlier process of it, if it waits, or a new
    /// one.
    async fn first_pool(
        &self,
        taken: &mut TakenOver,
        on_event: &mut dyn FnMut(&RunEvent),
    ) -> Result<RunPool, Vec<Problem>> {
        let mut before = BeforePool::default();
        let Some((_, state)) = &taken.resumed else {
            return self.form_pool(&mut before, &taken.settled, 0, on_event).await;
        };
        let first_worker = state.workers.last_key_value().map_or(0, |(worker, _)| worker + 1);
        if self.spec.flow.grows() || self.spec.elastic.is_some() {
            // Its plan begins anew, and its tasks have other numbers; or a part of the pool may
            // have ended with the cluster.
            (before.anew, before.agents) = (true, FormerAgents::of_journal(state));
            return self.form_pool(&mut before, &taken.settled, first_worker, on_event).await;
        }
        match self.join_pool(&mut before, state, first_worker).await {
            Ok((pool, settled)) => {
                taken.settled = settled;
                return Ok(pool);
            }
            Err(problems) => tracing::info!("the pool of the run is formed anew: {problems:?}"),
        }
        (before.anew, before.agents) = (true, FormerAgents::of_journal(state));
        self.form_pool(&mut before, &taken.settled, first_worker, on_event).await
    }

    /// Joins the pool that waits for the run. Returns what is not done again.
    async fn join_pool(
        &self,
        before: &mut BeforePool,
        state: &JournalState,
        first_worker: u32,
    ) -> Result<(RunPool, Settled), Vec<Problem>> {
        let what = (&self.spec, self.cluster, self.own);
        let formed = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(vec![ended_early()]),
            formed = join(what, state, before, self.emergency_cleanup) => formed.map_err(|problem| vec![problem])?,
        };
        let nodes = formed.hosts.iter().filter_map(|host| host.node.map(NodeId)).collect();
        let settled = settle_killed(&self.spec, state, &nodes);
        let pool = self.equip((formed, false), &settled, first_worker, before).await?;
        Ok((pool, settled))
    }

    /// Forms a pool, and shows the run's inputs in it, and files that stand in for data.
    async fn form_pool(
        &self,
        before: &mut BeforePool,
        settled: &Settled,
        first_worker: u32,
        on_event: &mut dyn FnMut(&RunEvent),
    ) -> Result<RunPool, Vec<Problem>> {
        let Self { spec, cluster, own, cancel, emergency_cleanup } = self;
        before.files = settled.files().collect();
        let formed = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(vec![ended_early()]),
            formed = form(spec, cluster, own, before, (on_event, emergency_cleanup)) => formed,
        };
        // The agents that have started end with the carrier.
        let formed = formed.inspect_err(|_| before.link = None)?;
        self.equip((formed, true), settled, first_worker, before).await
    }

    /// Makes a pool ready for tasks. One that was joined has the run's inputs.
    async fn equip(
        &self,
        (formed, is_new): (FormedCluster, bool),
        settled: &Settled,
        first_worker: u32,
        before: &mut BeforePool,
    ) -> Result<RunPool, Vec<Problem>> {
        let Self { spec, cluster, cancel, .. } = self;
        let (usages, refresh) = keep_usage(formed.pool.clone(), false).await;
        let nodes: Vec<NodeId> = formed.hosts.iter().filter_map(|host| host.node.map(NodeId)).collect();
        let (head, pool) = (head(spec, &formed), formed.pool.clone());
        let threads = || formed.hosts.iter().map(|host| host.host.threads);
        let (slots, largest) = (threads().sum(), threads().max().unwrap_or(1));
        let pool_file = formed.pool_file();
        let mut executor = ClusterExecutor::new(formed, cluster.lease, first_worker);
        let first_node = executor.first_node();
        let prepared = async {
            too_large_tasks(spec, largest)?;
            let inputs = (spec.data_dir.clone(), spec.stage_in);
            let mut files = RunFiles::new(pool, spec.flow.clone(), inputs, (*cancel).clone());
            let unseen = |error| vec![Problem::new(format!("an input cannot be shown to tasks: {error}"))];
            if is_new {
                files.provide_inputs_at(first_node, &nodes).await.map_err(unseen)?;
            }
            settled.writers.iter().for_each(|(task, place)| files.set_writer(*task, *place));
            files.bind_exported(settled.files()).await.map_err(unseen)?;
            let elastic = self.let_grow(pool_file, (&mut executor, first_node), (&usages, &nodes));
            Ok((files, elastic.map_err(|problem| vec![problem])?))
        };
        match prepared.await {
            Ok((files, elastic)) => Ok(RunPool { executor, elastic, files, usages, refresh, head, slots, is_new }),
            Err(problems) => {
                refresh.abort();
                *before = executor.close().await;
                Err(problems)
            }
        }
    }

    /// Lets a pool grow and shrink by itself, if the run wants that.
    fn let_grow(
        &self,
        pool_file: Option<PathBuf>,
        (executor, first_node): (&mut ClusterExecutor, NodeId),
        (usages, nodes): (&NodeUsages, &[NodeId]),
    ) -> Result<Option<(ElasticThread, ElasticLink)>, Problem> {
        let Some((spec, pool_file)) = self.spec.elastic.as_ref().zip(pool_file) else { return Ok(None) };
        let board = BoardHandle::default();
        executor.set_elastic(board.clone());
        let hint = "`squeue`, or what workers print on their hosts, may say why; raise --wait if hosts take longer";
        let provisioner = Arc::new(ClusterProvisioner::new(board, self.cluster.wait, hint.to_owned()));
        let capacities = || nodes.iter().filter_map(|node| usages.of(*node)).map(|usage| usage.capacity);
        let mean = capacities().sum::<u64>() / u64::try_from(capacities().count()).unwrap_or(u64::MAX).max(1);
        let potential = mean.saturating_mul(spec.limits.max.into());
        ElasticThread::start((&pool_file, spec), provisioner, Some(first_node), potential).map(Some)
    }

    /// Runs all tasks, in further pools if one is lost. The workflow of the specification grows
    /// with the plan.
    async fn work(
        &mut self,
        mut pool: RunPool,
        (mut settled, mut plan): (Settled, OngoingPlan),
        recorder: &mut Recorder,
        on_event: &mut dyn FnMut(&RunEvent),
    ) {
        let mut losses = 0;
        loop {
            let work = self.work_in(pool, (settled.clone(), plan), recorder, on_event);
            let (end, mut before) = Box::pin(work).await;
            self.spec.flow = end.flow;
            plan = end.plan;
            let Some(mut why) = end.lost else { return };
            losses = if end.progressed { 0 } else { losses };
            settled = settle_anew((&self.spec, &plan.exports), &recorder.run, &settled);
            settled.again.iter().for_each(|task| recorder.again(*task));
            pool = loop {
                losses += 1;
                if losses > LOSSES_MAX || self.cancel.is_cancelled() {
                    return recorder.abandon(&why, self.cancel.is_cancelled());
                }
                let text = format!("{why}: the pool is formed anew, and tasks whose data is lost run again");
                on_event(&RunEvent::Warning(text.clone()));
                recorder.warning(text);
                match self.form_pool(&mut before, &settled, recorder.next_worker(), on_event).await {
                    Ok(formed) => break formed,
                    Err(problems) => why = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
                }
            };
        }
    }

    /// Runs tasks until all are done or the pool is lost. Returns the end, and what the next pool
    /// needs.
    async fn work_in(
        &self,
        pool: RunPool,
        (settled, plan): (Settled, OngoingPlan),
        recorder: &mut Recorder,
        on_event: &mut dyn FnMut(&RunEvent),
    ) -> (LoopEnd, BeforePool) {
        let RunPool { mut executor, elastic, files, usages, refresh, is_new, .. } = pool;
        let (thread, link) = elastic.unzip();
        if is_new {
            recorder.pool_formed(executor.first_agent());
        }
        let mut scheduler = scheduler(&self.spec);
        settled.restore(&mut scheduler);
        let context = LoopContext {
            flow: self.spec.flow.clone(),
            files: Some(files),
            places: DataPlaces::new(usages),
            programs: self.own.programs.clone(),
            keep: self.spec.keep,
            keep_failed: keep_failed(&self.spec),
            settled,
            grower: None,
            elastic: link,
        };
        let (exports, cancel) = (ExportPlan::default(), self.cancel.clone());
        let mut event_loop = EventLoop::new(context, (scheduler, &mut executor), exports, recorder, on_event, cancel);
        event_loop.go_on(plan);
        let mut end = Box::pin(event_loop.run()).await;
        // Removals in a pool that is lost wait for this thread.
        let files = end.files.take();
        let _ = tokio::task::spawn_blocking(move || drop((files, thread))).await;
        refresh.abort();
        (end, executor.close().await)
    }
}

fn ended_early() -> Problem {
    Problem::new("the run was ended before its cluster was formed")
}

/// What is known of the storage: the mode of the first host, and the hosts.
fn head(spec: &RunSpec, formed: &FormedCluster) -> ReportHead {
    let (count, first) = (formed.hosts.len(), &formed.hosts[0].ready);
    let plural = if count == 1 { "" } else { "s" };
    let usage = formed.pool.usage();
    ReportHead {
        mode: first.mode,
        line: format!("a pool on {count} host{plural} of the Dask cluster; {}", first.line),
        memory: ByteSize(usage.capacity),
        warnings: spec.warnings.clone(),
    }
}

fn scheduler(spec: &RunSpec) -> Scheduler {
    let options = SchedulerOptions {
        fail_fast: spec.fail_fast,
        policy: spec.policy,
        stragglers: spec.stragglers,
        sends_ahead: true,
        grows: spec.flow.grows(),
        ..SchedulerOptions::default()
    };
    let bytes = |data| preflight::bytes_of_input(&spec.flow, &spec.data_dir, data);
    Scheduler::without_workers_for(spec.flow.workflow(), options, |_| spec.keep, bytes)
}
