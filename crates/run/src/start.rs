//! Executes a `RunSpec`: prepares it, drives the loop, cleans up, and returns the report.

use crate::attempt::HostContext;
use crate::checked_workflow::CheckedWorkflow;
use crate::cluster_run::run_on_cluster;
use crate::data_places::DataPlaces;
use crate::elastic_run::ElasticLink;
use crate::emergency_cleanup::EmergencyCleanup;
use crate::environment::{RUN_VARIABLE, RunEnvironment, run_env_var};
use crate::event::RunEvent;
use crate::event_loop::{EventLoop, ExportPlan, LoopContext, LoopEnd, PlanGrower};
use crate::executor::{Executor, LocalExecutor};
use crate::host_runner::HostRunner;
use crate::keep_failed::KeepFailed;
use crate::memory::MemoryBudget;
use crate::memory_limits::{MemoryLimits, StandaloneGroups};
use crate::prepare_run::{PreparedRun, prepare};
use crate::provenance::{self, HashTargets, InputHashes, ResolvedTool};
use crate::recorder::{Recorder, outcome_name, wall_clock};
use crate::resume::TakenOver;
use crate::run_files::RunFiles;
use crate::run_journal::{RunJournal, host_name};
use crate::spec::RunSpec;
use crate::tool_versions::ToolVersions;
use crate::workspace::Workspace;
use crate::{export, layout};
use base::{ByteSize, Problem};
use exec::MemoryGroups;
use flow::{DataId, ToolId};
use journal::JournalRecord;
use report::{AccessMode, RunReport};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Executes the run. Errors are returned only before any task starts; later failures are in the
/// report.
///
/// `on_event` is called on the calling thread. When `cancel` fires, nothing new starts, running
/// tasks are ended, and the report says `interrupted`.
pub async fn run(
    mut spec: RunSpec,
    on_event: &mut dyn FnMut(&RunEvent),
    cancel: CancellationToken,
    emergency_cleanup: &EmergencyCleanup,
) -> Result<RunReport, Vec<Problem>> {
    let begun = Instant::now();
    let mut grower = take_grower(&mut spec);
    if let Some(cluster) = spec.cluster.clone() {
        return Box::pin(run_on_cluster((spec, cluster), grower, begun, on_event, cancel, emergency_cleanup)).await;
    }
    let mut prepared = prepare(&spec)?;
    let has_pool = prepared.choice.mode != AccessMode::None;
    let mut environment =
        if has_pool { Some(start_environment(&spec, &mut prepared, emergency_cleanup)?) } else { None };
    let elastic = elastic_link(&mut environment).await;
    let standalone = if has_pool { None } else { StandaloneGroups::prepare(&spec, emergency_cleanup) };
    let workspace = environment.as_ref().map(|environment| environment.workspace(&prepared.choice, cancel.clone()));
    let workspace = workspace.transpose().map_err(|problem| vec![problem])?;
    let files = match &environment {
        Some(environment) => Some(provide_files(&spec, &prepared, environment, &cancel).await?),
        None => None,
    };
    let head = ReportHead::new(&prepared);
    let mut recorder = begin_records(&spec, &mut prepared.taken, (&head, &prepared.programs), begun);
    tell_start((&spec, &head, &prepared.taken), spec.slots, on_event);
    let hashes = hash_in_background(&spec, &prepared.programs, &cancel);
    if let Some(grower) = &mut grower {
        grower.former = prepared.taken.former.take();
    }
    let groups = environment.as_ref().map_or(standalone.as_ref().map(|standalone| &standalone.groups), |environment| {
        environment.memory_groups.as_ref()
    });
    let runner = host_runner(&spec, &prepared, workspace, groups);
    let mut executor = LocalExecutor { runner, environment: Arc::new(task_environment(&spec.run_id)) };
    let context = LoopContext {
        flow: spec.flow.clone(),
        files,
        places: DataPlaces::default(),
        programs: prepared.programs,
        keep: spec.keep,
        keep_failed: keep_failed(&spec),
        settled: prepared.taken.settled,
        grower,
        elastic,
    };
    let driven = (prepared.scheduler, &mut executor as &mut dyn Executor);
    let event_loop = EventLoop::new(context, driven, exports(&spec), &mut recorder, on_event, cancel.clone());
    let LoopEnd { flow, files, .. } = event_loop.run().await;
    if let Some(environment) = &environment {
        if let Some(peak) = environment.peak() {
            recorder.peak(peak);
        }
        recorder.find_least_peak(flow.workflow());
    }
    let mut hashes = hashes.await.unwrap_or_default();
    hashes.inputs.extend(hash_grown(&spec, &flow, &cancel).await);
    recorder.hashed(hashes);
    // A daemon that a tool left behind would keep the mount busy.
    let left = exec::kill_by_env_var(&run_env_var(&spec.run_id));
    if left > 0 {
        recorder.run.warnings.push(format!("{left} processes that tools left behind were ended"));
    }
    close((executor, files), environment, &mut recorder).await;
    drop(standalone);
    emergency_cleanup.arm(None);
    recorder.seal(cancel.is_cancelled());
    on_event(&ended_event(&recorder.run));
    Ok(recorder.run)
}

async fn elastic_link(environment: &mut Option<RunEnvironment>) -> Option<ElasticLink> {
    environment.as_mut()?.take_elastic_link().await
}

/// Tells the user that the run starts, with the warnings so far, and what it takes over.
pub fn tell_start(
    (spec, head, taken): (&RunSpec, &ReportHead, &TakenOver),
    slots: u32,
    on_event: &mut dyn FnMut(&RunEvent),
) {
    on_event(&RunEvent::Started {
        run: spec.run_id.clone(),
        tasks: spec.flow.workflow().tasks.len(),
        slots,
        storage: mode_name(head.mode),
        storage_line: head.line.clone(),
        memory: head.memory,
    });
    head.warnings.iter().for_each(|warning| on_event(&RunEvent::Warning(warning.clone())));
    let (tasks, again) = (taken.settled.tasks.len(), taken.settled.again.len());
    if spec.resume.is_some() && !spec.flow.grows() {
        on_event(&RunEvent::Resumed { settled: tasks, again });
    }
    if let Some(reused) = &taken.reused {
        on_event(&RunEvent::Reused { from: reused.run.clone(), tasks });
    }
}

/// Starts the pool and the tasks' access to it.
fn start_environment(
    spec: &RunSpec,
    prepared: &mut PreparedRun,
    emergency_cleanup: &EmergencyCleanup,
) -> Result<RunEnvironment, Vec<Problem>> {
    let environment =
        RunEnvironment::prepare(spec, (&mut prepared.choice, &prepared.tools), prepared.memory, emergency_cleanup);
    environment.map_err(|problem| vec![problem])
}

/// Begins the report and the journal of a run, or goes on with those of an earlier process.
pub fn begin_records(
    spec: &RunSpec,
    taken: &mut TakenOver,
    (head, programs): (&ReportHead, &HashMap<ToolId, PathBuf>),
    begun: Instant,
) -> Recorder {
    let (journal, earlier) = match taken.resumed.take() {
        Some((writer, state)) => (RunJournal::new(writer), Some(state)),
        None => (RunJournal::begin(spec, head, programs), None),
    };
    let mut recorder = Recorder::new(blank_report(spec, head), journal, begun);
    if let Some(state) = earlier {
        recorder.journal.write_all(taken.settled.records());
        if spec.cluster.is_some() {
            recorder.restore_workers(&state);
        }
        recorder.restore(&spec.flow, &state, &taken.settled);
        if spec.flow.grows() {
            recorder.journal.write(JournalRecord::PlanBegunAnew);
        }
    }
    if let Some(reused) = &taken.reused {
        recorder.reuse(&spec.flow, &taken.settled, reused);
    }
    if spec.cluster.is_none() {
        recorder.joined_here(host_name());
    }
    recorder
}

/// What is known of the storage before anything ran.
#[derive(Debug)]
pub struct ReportHead {
    /// How tasks see the pool.
    pub mode: AccessMode,
    /// The reason.
    pub line: String,
    /// Size of the pool.
    pub memory: ByteSize,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

impl ReportHead {
    fn new(prepared: &PreparedRun) -> Self {
        Self {
            mode: prepared.choice.mode,
            line: prepared.choice.line.clone(),
            memory: prepared.memory,
            warnings: prepared.warnings.clone(),
        }
    }
}

/// The report before anything ran.
pub fn blank_report(spec: &RunSpec, head: &ReportHead) -> RunReport {
    let limits = MemoryBudget::read();
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let mut run = RunReport::plan(spec.flow.workflow());
    run.id.clone_from(&spec.run_id);
    env!("CARGO_PKG_VERSION").clone_into(&mut run.version);
    run.started = wall_clock();
    run.workflow.source.clone_from(&spec.requested.source);
    run.workflow.language.clone_from(&spec.requested.language);
    run.workflow.hash = provenance::hash_file(spec.requested.source.as_ref()).ok().map(|(hash, _)| hash);
    run.command_line.clone_from(&spec.requested.command_line);
    run.directory = std::env::current_dir().map(|dir| dir.display().to_string()).unwrap_or_default();
    let json = |value: &flow::ConfigValue| serde_json::to_value(value).unwrap_or_default();
    run.sets = spec.requested.sets.iter().map(|(name, value)| (name.clone(), json(value))).collect();
    run.machine = report::Machine {
        host: host_name(),
        system: format!("{} {} {}", text(uname.sysname()), text(uname.release()), text(uname.machine())),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
        memory_bytes: limits.total,
    };
    run.settings = report::RunSettings {
        slots: spec.slots,
        memory_limit_bytes: head.memory.0,
        mode: head.mode,
        mode_reason: head.line.clone(),
        data: Some(spec.data_dir.display().to_string()),
        tools: spec.requested.tools.clone(),
        out: Some(spec.out_dir.display().to_string()),
        keep: spec.keep,
        stage_in: spec.stage_in,
        fail_fast: spec.fail_fast,
        policy: Some(spec.policy.to_string()),
    };
    run.warnings.clone_from(&head.warnings);
    run.provenance.seeds = provenance::seeds(spec.flow.workflow(), std::env::vars());
    run
}

/// Makes the run's files in the pool.
async fn provide_files(
    spec: &RunSpec,
    prepared: &PreparedRun,
    environment: &RunEnvironment,
    cancel: &CancellationToken,
) -> Result<RunFiles, Vec<Problem>> {
    let inputs = (spec.data_dir.clone(), spec.stage_in);
    let mut files = RunFiles::new(environment.pool.clone(), spec.flow.clone(), inputs, cancel.clone());
    let placed = match spec.elastic {
        None => files.set_local_placement().await,
        Some(_) => files.set_spread_placement().await,
    };
    placed.map_err(|error| vec![Problem::new(format!("the run's files cannot be placed: {error}"))])?;
    let brought = files.provide_inputs().await;
    let unseen = |error| vec![Problem::new(format!("an input cannot be shown to tasks: {error}"))];
    brought.map_err(unseen)?;
    files.bind_exported(prepared.taken.settled.files()).await.map_err(unseen)?;
    Ok(files)
}

fn host_runner(
    spec: &RunSpec,
    prepared: &PreparedRun,
    workspace: Option<Workspace>,
    groups: Option<&Arc<MemoryGroups>>,
) -> HostRunner {
    let copies_max = spec.copies.unwrap_or_else(|| MemoryBudget::read().copies()).0;
    let limits =
        |groups: &Arc<MemoryGroups>| MemoryLimits::new(groups.clone(), &prepared.choice, prepared.memory.0, copies_max);
    let host = HostContext { memory: groups.map(limits), ..host_context(spec, workspace) };
    HostRunner::new(host, copies_max)
}

fn host_context(spec: &RunSpec, workspace: Option<Workspace>) -> HostContext {
    HostContext {
        tools: None,
        copies: None,
        workspace,
        default_cwd: std::env::current_dir().unwrap_or_else(|_| "/".into()),
        grace: spec.grace,
        memory: None,
        keep: spec.keep,
        leave_failed: spec.keep_failed.is_some(),
        filled: AtomicU64::default(),
    }
}

pub fn keep_failed(spec: &RunSpec) -> Option<KeepFailed> {
    let directory = spec.keep_failed.clone()?;
    Some(KeepFailed { directory, data_dir: spec.data_dir.clone() })
}

/// The source of more tasks, with what its steps need.
fn take_grower(spec: &mut RunSpec) -> Option<PlanGrower> {
    let source = spec.source.take()?;
    let (data_dir, fail_fast, on_cluster) = (spec.data_dir.clone(), spec.fail_fast, spec.cluster.is_some());
    Some(PlanGrower { source, data_dir, fail_fast, on_cluster, hosts: Vec::new(), former: None })
}

/// The environment that tasks inherit: our own, and the variable that names the run.
fn task_environment(run_id: &str) -> Vec<(OsString, OsString)> {
    let inherited = std::env::vars_os().filter(|(name, _)| name != RUN_VARIABLE);
    inherited.chain([(RUN_VARIABLE.into(), run_id.into())]).collect()
}

/// Members to export: outputs that nobody reads, members that the user named, all with `--keep`.
pub fn exports(spec: &RunSpec) -> ExportPlan {
    let flow = &spec.flow;
    let written = (0..flow.workflow().data_count()).map(DataId).filter(|id| flow.writer_of(*id).is_some());
    let is_final = |id: &DataId| flow.is_unread(*id);
    let wanted: Vec<DataId> = written.filter(|id| spec.keep || is_final(id) || spec.exports.contains(id)).collect();
    let places = export::places(flow.workflow(), &wanted, |id| flow.file_name(id).to_owned());
    ExportPlan {
        finals: wanted.iter().copied().filter(is_final).collect(),
        places: places.into_iter().map(|(id, place)| (id, spec.out_dir.join(place))).collect(),
    }
}

/// The tools and inputs of a run, to be hashed.
pub fn hash_targets(spec: &RunSpec, programs: &HashMap<ToolId, PathBuf>) -> HashTargets {
    let workflow = spec.flow.workflow();
    let mut programs: Vec<(&ToolId, &PathBuf)> = programs.iter().collect();
    programs.sort();
    let resolved = |(id, program): (&ToolId, &PathBuf)| ResolvedTool {
        tool: workflow.tools[id.0 as usize].clone(),
        program: program.clone(),
    };
    let path_of = |id| layout::host_path(&spec.flow, id).map(|path| (id, spec.data_dir.join(path)));
    HashTargets {
        tools: programs.into_iter().map(resolved).collect(),
        inputs: (0..workflow.data_count()).map(DataId).filter_map(path_of).collect(),
    }
}

/// Hashes of the inputs that were added to a workflow that grew.
pub async fn hash_grown(
    spec: &RunSpec,
    flow: &CheckedWorkflow,
    cancel: &CancellationToken,
) -> Vec<(DataId, String, u64)> {
    if !spec.flow.grows() {
        return Vec::new();
    }
    let path_of = |id| layout::host_path(flow, id).map(|path| (id, spec.data_dir.join(path)));
    let inputs = (0..flow.workflow().data_count()).map(DataId).filter_map(path_of).collect();
    let (targets, cancel) = (HashTargets { tools: Vec::new(), inputs }, cancel.clone());
    let hashing = tokio::task::spawn_blocking(move || targets.hashes(&|| cancel.is_cancelled()));
    hashing.await.unwrap_or_default().inputs
}

/// Hashes tools and inputs in the background while the run goes on. A cancelled run does not wait
/// for the remaining hashes.
pub fn hash_in_background(
    spec: &RunSpec,
    programs: &HashMap<ToolId, PathBuf>,
    cancel: &CancellationToken,
) -> JoinHandle<InputHashes> {
    let of = hash_targets(spec, programs);
    let (cancel, mut versions) = (cancel.clone(), ToolVersions::new(task_environment(&spec.run_id), cancel.clone()));
    tokio::spawn(async move {
        let mut stated = Vec::new();
        for resolved in &of.tools {
            stated.push(versions.version_of(&resolved.tool).await);
        }
        let hashing = tokio::task::spawn_blocking(move || of.hashes(&|| cancel.is_cancelled()));
        let mut hashes = hashing.await.unwrap_or_default();
        hashes.tools.iter_mut().zip(stated).for_each(|(tool, version)| tool.program_version = version);
        hashes
    })
}

/// Waits for pending removals and unmounts. All attempts have ended.
async fn close(
    (mut executor, files): (LocalExecutor, Option<RunFiles>),
    environment: Option<RunEnvironment>,
    recorder: &mut Recorder,
) {
    executor.runner.close();
    if let Some(mut files) = files {
        files.close();
    }
    let Some(environment) = environment else { return };
    if let Err(error) = environment.close().await {
        recorder.run.warnings.push(format!("the mount could not be taken down cleanly: {error}"));
    }
}

pub fn ended_event(run: &RunReport) -> RunEvent {
    RunEvent::Ended {
        outcome: outcome_name(run.outcome),
        seconds: run.makespan().0,
        done: run.totals.tasks_done as usize,
        failed: (run.totals.tasks_failed + run.totals.tasks_cancelled) as usize,
        report: None,
    }
}

pub fn mode_name(mode: AccessMode) -> &'static str {
    match mode {
        AccessMode::Mount => "mount",
        AccessMode::Preload => "preload",
        AccessMode::Staging => "staging",
        AccessMode::None => "none",
    }
}
