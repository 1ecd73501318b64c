//! Prepares a run: collects everything that it needs, or all problems that prevent it.

use crate::checked_workflow::CheckedWorkflow;
use crate::cluster::{OwnTools, ToolTrees};
use crate::layout;
use crate::memory::{MemoryBudget, PoolSize};
use crate::overwrites::{NamedPath, overwrites};
use crate::preflight;
use crate::resume::TakenOver;
use crate::spec::RunSpec;
use crate::start::exports;
use crate::storage_choice::{StorageChoice, ToolSupport, choose};
use base::{ByteSize, Problem};
use flow::{DataId, ToolId};
use journal::{JOURNAL_FILE, WORKFLOW_FILE};
use report::AccessMode;
use sched::{MachineCapacity, Scheduler, SchedulerOptions};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Upper bound of the tasks that are listed as impossible to run here.
const LISTED_MAX: usize = 5;

/// Results of the preparation.
pub struct PreparedRun {
    /// Programs of the tools that are called.
    pub programs: HashMap<ToolId, PathBuf>,
    /// Scheduler with all tasks.
    pub scheduler: Scheduler,
    /// Storage mode, and the reason for it.
    pub choice: StorageChoice,
    /// Facts about the tools, used to choose another storage mode if the first one fails.
    pub tools: ToolSupport,
    /// Size of the pool; 0 without a pool.
    pub memory: ByteSize,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The tasks that are done already; the scheduler knows them.
    pub taken: TakenOver,
}

impl PreparedRun {
    /// Takes over the run that was killed, or results of another one, if the user asked for that.
    fn resume(mut self, spec: &RunSpec) -> Result<Self, Vec<Problem>> {
        self.taken = TakenOver::find(spec, &self.programs)?;
        self.taken.settled.restore(&mut self.scheduler);
        Ok(self)
    }
}

/// Checks the inputs and programs of a workflow, as a run does before it starts.
///
/// # Errors
/// All inputs that cannot be read, and all tools that are not installed.
pub fn check_before_start(flow: &CheckedWorkflow, data_dir: &Path) -> Result<(), Vec<Problem>> {
    let mut problems = preflight::inputs(flow, data_dir);
    problems.extend(preflight::programs(flow).err().into_iter().flatten());
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Makes all checks before it returns, so that the user sees all problems at once.
pub fn prepare(spec: &RunSpec) -> Result<PreparedRun, Vec<Problem>> {
    let mut problems = preflight::inputs(&spec.flow, &spec.data_dir);
    problems.extend(preflight::check_directory("--out", &spec.out_dir));
    problems.extend(lost_files(spec));
    let programs = preflight::programs(&spec.flow).map_err(|missing| problems.extend(missing)).ok();
    let tools = ToolSupport::inspect(&spec.flow, programs.as_ref().unwrap_or(&HashMap::new()));
    let choice = choose(spec.storage, &tools).map_err(|problem| problems.push(problem)).ok();
    let nodes = spec.elastic.as_ref().map_or(1, |elastic| elastic.limits.max);
    let limits = MemoryBudget::read();
    let pool = pool_size(spec, &limits, choice.as_ref()).map_err(|problem| problems.push(problem)).ok();
    let size = pool.as_ref().map_or(ByteSize(0), |pool| ByteSize(pool.size.0.saturating_mul(u64::from(nodes))));
    let scheduler = scheduler(spec, &limits, size).map_err(|refused| problems.extend(refused)).ok();
    match (programs, scheduler, choice, pool) {
        (Some(programs), Some(scheduler), Some(choice), Some(pool)) if problems.is_empty() => PreparedRun {
            programs,
            scheduler,
            choice,
            tools,
            memory: pool.size,
            warnings: spec.warnings.iter().cloned().chain(pool.lowered).collect(),
            taken: TakenOver::default(),
        }
        .resume(spec),
        _ => Err(problems),
    }
}

/// Makes all checks of a run on a cluster that need no cluster. Returns what this
/// machine has of the tools: agents look for programs themselves.
pub fn prepare_on_cluster(spec: &RunSpec) -> Result<OwnTools, Vec<Problem>> {
    let mut problems = preflight::inputs(&spec.flow, &spec.data_dir);
    problems.extend(preflight::check_directory("--out", &spec.out_dir));
    problems.extend(lost_files(spec));
    let programs = preflight::programs_found(&spec.flow);
    let trees = ToolTrees::scan(&spec.flow, &programs).map_err(|refused| problems.extend(refused));
    match trees {
        Ok(trees) if problems.is_empty() => Ok(OwnTools { programs, trees }),
        _ => Err(problems),
    }
}

/// Problems with tasks that need more processors than the largest host has.
pub fn too_large_tasks(spec: &RunSpec, largest: u32) -> Result<(), Vec<Problem>> {
    let workflow = spec.flow.workflow();
    let too_large = (0..).zip(&workflow.tasks).filter(|(_, task)| workflow.tool_of(task).resources.cpus > largest);
    let describe = |(id, task): (u32, &flow::Task)| {
        let tool = workflow.tool_of(task);
        Problem::new(format!(
            "task {id} {}: the task needs {} cpus, and the largest host of the cluster has {largest}",
            tool.name, tool.resources.cpus
        ))
        .hint("lower `cpus` of its tool, or give workers more threads")
    };
    let problems: Vec<Problem> = too_large.take(LISTED_MAX).map(describe).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Problems with outputs or the report that would overwrite inputs, the script or the tool file.
fn lost_files(spec: &RunSpec) -> Vec<Problem> {
    let workflow = spec.flow.workflow();
    let inputs = (0..workflow.data_count()).map(DataId).filter_map(|id| {
        let path = layout::host_path(&spec.flow, id)?;
        Some(NamedPath::new(format!("input {}", workflow.data_name(id)), spec.data_dir.join(path)))
    });
    let script = Some(&spec.requested.source).filter(|path| !path.is_empty());
    let script = script.map(|path| NamedPath::new("the workflow", path));
    let tools = spec.requested.tools.as_ref().map(|path| NamedPath::new("the tool file", path));
    let report = |name: &str| spec.report_dir.as_ref().map(|dir| NamedPath::new("the report", dir.join(name)));
    let mut outputs: Vec<_> = exports(spec).places.into_iter().collect();
    outputs.sort();
    let outputs =
        outputs.into_iter().map(|(id, place)| NamedPath::new(format!("output {}", workflow.data_name(id)), place));
    let reports = ["run.json", "report.html", JOURNAL_FILE, WORKFLOW_FILE].into_iter().filter_map(report);
    overwrites(inputs.chain(script).chain(tools), reports.chain(outputs))
}

/// The size of the pool, or of each of its nodes if it grows by itself on this machine.
fn pool_size(spec: &RunSpec, limits: &MemoryBudget, choice: Option<&StorageChoice>) -> Result<PoolSize, Problem> {
    let here = spec.elastic.as_ref().filter(|elastic| elastic.machines.is_none());
    let limits = limits.shared_by(here.map_or(1, |elastic| elastic.limits.max));
    match choice {
        Some(StorageChoice { mode: AccessMode::None, .. }) => Ok(PoolSize { size: ByteSize(0), lowered: None }),
        Some(choice) if choice.has_copies() => limits.beside_copies().pool(spec.memory),
        _ => limits.pool(spec.memory),
    }
}

/// Makes the scheduler with all tasks; tasks that can never run here are problems.
fn scheduler(spec: &RunSpec, limits: &MemoryBudget, pool: ByteSize) -> Result<Scheduler, Vec<Problem>> {
    let machine = MachineCapacity { slots: spec.slots, memory: limits.free().saturating_sub(pool.0) };
    let options = SchedulerOptions {
        fail_fast: spec.fail_fast,
        policy: spec.policy,
        grows: spec.flow.grows(),
        ..SchedulerOptions::default()
    };
    let workflow = spec.flow.workflow();
    let bytes = |data| preflight::bytes_of_input(&spec.flow, &spec.data_dir, data);
    Scheduler::from_workflow(workflow, machine, options, |_| spec.keep, bytes).map_err(|refused| {
        let describe = refused.iter().take(LISTED_MAX).map(|(task, why)| {
            let tool = &workflow.tool_of(&workflow.tasks[task.0 as usize]).name;
            Problem::new(format!("task {} {tool}: {why}", task.0))
        });
        describe.collect()
    })
}
