//! A run on a cluster, from start to cleanup.

use crate::cluster::{ClusterExecutor, FormedCluster, form};
use crate::data_places::DataPlaces;
use crate::emergency_cleanup::EmergencyCleanup;
use crate::event::RunEvent;
use crate::event_loop::{EventLoop, LoopContext, PlanGrower};
use crate::preflight;
use crate::prepare_run::{prepare_on_cluster, too_large_tasks};
use crate::recorder::Recorder;
use crate::resume::Settled;
use crate::run_files::RunFiles;
use crate::run_journal::RunJournal;
use crate::spec::{ClusterSpec, RunSpec};
use crate::start::{ReportHead, blank_report, ended_event, exports, hash_in_background, keep_failed, tell_start};
use crate::usage_refresh::keep_usage;
use base::{ByteSize, Problem};
use placement::NodeId;
use report::RunReport;
use sched::{Scheduler, SchedulerOptions};
use std::time::Instant;
use tokio_util::sync::CancellationToken;

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
    let formed = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(vec![Problem::new("the run was ended before its cluster was formed")]),
        formed = form(&spec, &cluster, &own, (on_event, emergency_cleanup)) => formed?,
    };
    let programs = own.programs;
    let usages = keep_usage(formed.pool.clone()).await;
    let nodes: Vec<NodeId> = formed.hosts.iter().filter_map(|host| host.node.map(NodeId)).collect();
    let head = head(&spec, &formed);
    let (pool, slots) = (formed.pool.clone(), formed.hosts.iter().map(|host| host.host.threads).sum());
    let largest = formed.hosts.iter().map(|host| host.host.threads).max().unwrap_or(1);
    let mut executor = ClusterExecutor::new(formed, cluster.lease);
    let flow = spec.flow.clone();
    let first_node = executor.first_node();
    let prepared = async {
        too_large_tasks(&spec, largest)?;
        let inputs = (spec.data_dir.clone(), spec.stage_in);
        let mut files = RunFiles::new(pool, flow.clone(), inputs, cancel.clone());
        let provided = files.provide_inputs_at(first_node, &nodes).await;
        provided.map_err(|error| vec![Problem::new(format!("an input cannot be shown to tasks: {error}"))])?;
        Ok((files, RunJournal::begin(&spec, &head, &programs)))
    };
    let (files, journal) = match prepared.await {
        Ok(prepared) => prepared,
        Err(problems) => {
            executor.close().await;
            return Err(problems);
        }
    };
    let mut recorder = Recorder::new(blank_report(&spec, &head), journal, begun);
    tell_start(&spec, &head, slots, on_event);
    let hashes = hash_in_background(&spec, &programs, &cancel);
    let context = LoopContext {
        flow,
        files: Some(files),
        places: DataPlaces::new(usages),
        programs,
        keep: spec.keep,
        keep_failed: keep_failed(&spec),
        settled: Settled::default(),
        grower,
    };
    let scheduler = scheduler(&spec);
    let event_loop =
        EventLoop::new(context, (scheduler, &mut executor), exports(&spec), &mut recorder, on_event, cancel.clone());
    let (_, files) = event_loop.run().await;
    recorder.hashed(hashes.await.unwrap_or_default());
    if let Some(mut files) = files {
        files.close();
    }
    executor.close().await;
    emergency_cleanup.arm(None);
    recorder.seal(cancel.is_cancelled());
    on_event(&ended_event(&recorder.run));
    Ok(recorder.run)
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
        grows: spec.flow.grows(),
        ..SchedulerOptions::default()
    };
    let bytes = |data| preflight::bytes_of_input(&spec.flow, &spec.data_dir, data);
    Scheduler::without_workers_for(spec.flow.workflow(), options, |_| spec.keep, bytes)
}
