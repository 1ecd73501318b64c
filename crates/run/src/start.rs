//! Runs an order: prepares it, drives the loop, cleans up, and returns the report.

use crate::attempt::Context;
use crate::checked::Checked;
use crate::drive::{Driver, Exports};
use crate::event::Event;
use crate::ground::{Ground, RUN_VARIABLE, mark};
use crate::keep_failed::KeepFailed;
use crate::last_resort::LastResort;
use crate::memory::Limits;
use crate::memory_limits::{Alone, MemoryLimits};
use crate::order::Order;
use crate::prepare::{Prepared, prepare};
use crate::provenance::{self, Hashed, Hashes, Resolved};
use crate::record::{Record, wall_clock};
use crate::version::Versions;
use crate::workspace::Workspace;
use crate::{export, layout};
use base::Problem;
use exec::MemoryGroups;
use flow::{DataId, ToolId};
use report::{AccessMode, Outcome, RunReport};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Runs the order. Errors are returned only before any task starts; later failures are in the
/// report.
///
/// `tell` is called on the calling thread. When `cancel` fires, nothing new starts, running tasks
/// are ended, and the report says `interrupted`.
pub async fn run(
    order: Order,
    tell: &mut dyn FnMut(&Event),
    cancel: CancellationToken,
    last_resort: &LastResort,
) -> Result<RunReport, Vec<Problem>> {
    let begun = Instant::now();
    let mut prepared = prepare(&order)?;
    let has_pool = prepared.choice.mode != AccessMode::None;
    let ground = if has_pool { Some(stand(&order, &mut prepared, last_resort)?) } else { None };
    let alone = if has_pool { None } else { Alone::prepare(&order, last_resort) };
    let flow = order.flow.clone();
    let workspace = ground.as_ref().map(|ground| ground.workspace(&prepared.choice, flow.clone(), cancel.clone()));
    let workspace = workspace.transpose().map_err(|problem| vec![problem])?;
    if let Some(workspace) = &workspace {
        let placed = workspace.lie_here().await;
        placed.map_err(|trouble| vec![Problem::new(format!("the run's files cannot be placed: {trouble}"))])?;
        let brought = workspace.bring_inputs(&order.data_dir, order.stage_in).await;
        brought.map_err(|trouble| vec![Problem::new(format!("an input cannot be shown to tasks: {trouble}"))])?;
    }
    let mut record = Record::new(blank(&order, &prepared), begun);
    tell(&Event::Started {
        run: order.run_id.clone(),
        tasks: flow.workflow().tasks.len(),
        slots: order.slots,
        storage: mode_name(prepared.choice.mode),
        storage_line: prepared.choice.line.clone(),
        memory: prepared.memory,
    });
    prepared.warnings.iter().for_each(|warning| tell(&Event::Warning(warning.clone())));
    let hashes = hash_in_background(&order, &prepared, &cancel);
    let groups =
        ground.as_ref().map_or(alone.as_ref().map(|alone| &alone.groups), |ground| ground.memory_groups.as_ref());
    let mut context = context(&order, flow, workspace, prepared.programs);
    let limits = |groups: &Arc<MemoryGroups>| {
        MemoryLimits::new(groups.clone(), &prepared.choice, prepared.memory.0, context.copies_max)
    };
    context.memory = groups.map(limits);
    let context = Arc::new(context);
    let driver = Driver::new(context.clone(), prepared.scheduler, exports(&order), &mut record, tell, cancel.clone());
    driver.drive().await;
    if let Some(ground) = &ground {
        record.peak(ground.peak());
        record.find_least_peak(order.flow.workflow());
    }
    record.hashed(hashes.await.unwrap_or_default());
    // A daemon that a tool left behind would keep the mount busy.
    let left = exec::kill_marked(&mark(&order.run_id));
    if left > 0 {
        record.run.warnings.push(format!("{left} processes that tools left behind were ended"));
    }
    close(context, ground, &mut record).await;
    drop(alone);
    last_resort.arm(None);
    record.seal(cancel.is_cancelled());
    tell(&ended(&record.run));
    Ok(record.run)
}

/// Starts the pool and the tasks' access to it.
fn stand(order: &Order, prepared: &mut Prepared, last_resort: &LastResort) -> Result<Ground, Vec<Problem>> {
    let ground = Ground::prepare(order, (&mut prepared.choice, &prepared.tools), prepared.memory, last_resort);
    ground.map_err(|problem| vec![problem])
}

/// The report before anything ran.
fn blank(order: &Order, prepared: &Prepared) -> RunReport {
    let limits = Limits::read();
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let mut run = RunReport::plan(order.flow.workflow());
    run.id.clone_from(&order.run_id);
    env!("CARGO_PKG_VERSION").clone_into(&mut run.version);
    run.started = wall_clock();
    run.workflow.source.clone_from(&order.asked.source);
    run.workflow.language.clone_from(&order.asked.language);
    run.workflow.hash = provenance::hash_file(order.asked.source.as_ref()).ok().map(|(hash, _)| hash);
    run.command_line.clone_from(&order.asked.command_line);
    run.directory = std::env::current_dir().map(|dir| dir.display().to_string()).unwrap_or_default();
    let json = |value: &flow::ConfigValue| serde_json::to_value(value).unwrap_or_default();
    run.sets = order.asked.sets.iter().map(|(name, value)| (name.clone(), json(value))).collect();
    run.machine = report::Machine {
        host: text(uname.nodename()),
        system: format!("{} {} {}", text(uname.sysname()), text(uname.release()), text(uname.machine())),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
        memory_bytes: limits.total,
    };
    run.settings = report::RunSettings {
        slots: order.slots,
        memory_limit_bytes: prepared.memory.0,
        mode: prepared.choice.mode,
        mode_reason: prepared.choice.line.clone(),
        data: Some(order.data_dir.display().to_string()),
        tools: order.asked.tools.clone(),
        out: Some(order.out_dir.display().to_string()),
        keep: order.keep,
        stage_in: order.stage_in,
        fail_fast: order.fail_fast,
    };
    run.warnings.clone_from(&prepared.warnings);
    run.provenance.seeds = provenance::seeds(order.flow.workflow(), std::env::vars());
    run
}

fn context(
    order: &Order,
    flow: Arc<Checked>,
    workspace: Option<Workspace>,
    programs: HashMap<ToolId, PathBuf>,
) -> Context {
    Context {
        flow,
        workspace,
        programs,
        environment: environment(&order.run_id),
        elsewhere: std::env::current_dir().unwrap_or_else(|_| "/".into()),
        grace: order.grace,
        copies_max: order.copies.unwrap_or_else(|| Limits::read().copies()).0,
        memory: None,
        keep: order.keep,
        keep_failed: order.keep_failed.clone().map(|folder| KeepFailed { folder, data_dir: order.data_dir.clone() }),
        filled: AtomicU64::default(),
    }
}

/// The environment that tasks inherit: our own, and the variable that names the run.
fn environment(run_id: &str) -> Vec<(OsString, OsString)> {
    let inherited = std::env::vars_os().filter(|(name, _)| name != RUN_VARIABLE);
    inherited.chain([(RUN_VARIABLE.into(), run_id.into())]).collect()
}

/// Members to export: outputs that nobody reads, members that the user named, all with `--keep`.
pub fn exports(order: &Order) -> Exports {
    let flow = &order.flow;
    let written = (0..flow.workflow().data_count()).map(DataId).filter(|id| flow.writer_of(*id).is_some());
    let is_final = |id: &DataId| flow.readers(*id).is_empty();
    let wanted: Vec<DataId> = written.filter(|id| order.keep || is_final(id) || order.exports.contains(id)).collect();
    let places = export::places(flow.workflow(), &wanted, |id| flow.file_name(id).to_owned());
    Exports {
        finals: wanted.iter().copied().filter(is_final).collect(),
        places: places.into_iter().map(|(id, place)| (id, order.out_dir.join(place))).collect(),
    }
}

/// Hashes tools and inputs in the background while the run goes on. A cancelled run does not wait
/// for the remaining hashes.
fn hash_in_background(order: &Order, prepared: &Prepared, cancel: &CancellationToken) -> JoinHandle<Hashes> {
    let workflow = order.flow.workflow();
    let mut programs: Vec<(&ToolId, &PathBuf)> = prepared.programs.iter().collect();
    programs.sort();
    let resolved = |(id, program): (&ToolId, &PathBuf)| Resolved {
        tool: workflow.tools[id.0 as usize].clone(),
        program: program.clone(),
    };
    let path_of = |id| layout::host_path(&order.flow, id).map(|path| (id, order.data_dir.join(path)));
    let of = Hashed {
        tools: programs.into_iter().map(resolved).collect(),
        inputs: (0..workflow.data_count()).map(DataId).filter_map(path_of).collect(),
    };
    let (cancel, mut versions) = (cancel.clone(), Versions::new(environment(&order.run_id), cancel.clone()));
    tokio::spawn(async move {
        let mut stated = Vec::new();
        for resolved in &of.tools {
            stated.push(versions.of(&resolved.tool).await);
        }
        let hashing = tokio::task::spawn_blocking(move || of.hashes(&|| cancel.is_cancelled()));
        let mut hashes = hashing.await.unwrap_or_default();
        hashes.tools.iter_mut().zip(stated).for_each(|(tool, version)| tool.program_version = version);
        hashes
    })
}

/// Waits for pending removals and unmounts. All attempts have ended, so no other owner of the
/// context is left.
async fn close(context: Arc<Context>, ground: Option<Ground>, record: &mut Record) {
    if let Some(workspace) = Arc::into_inner(context).and_then(|context| context.workspace) {
        let mut workspace = workspace;
        workspace.close();
    }
    let Some(ground) = ground else { return };
    if let Err(error) = ground.close().await {
        record.run.warnings.push(format!("the mount could not be taken down cleanly: {error}"));
    }
}

fn ended(run: &RunReport) -> Event {
    Event::Ended {
        outcome: match run.outcome {
            Outcome::Done => "done",
            Outcome::Failed => "failed",
            Outcome::Interrupted => "interrupted",
        },
        seconds: run.makespan().0,
        done: run.totals.tasks_done as usize,
        failed: (run.totals.tasks_failed + run.totals.tasks_cancelled) as usize,
        report: None,
    }
}

fn mode_name(mode: AccessMode) -> &'static str {
    match mode {
        AccessMode::Mount => "mount",
        AccessMode::Preload => "preload",
        AccessMode::Staging => "staging",
        AccessMode::None => "none",
    }
}
