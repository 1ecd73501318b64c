//! Prepares a run: collects everything that it needs, or all problems that prevent it.

use crate::checked::Checked;
use crate::choice::{Choice, Tools, choose};
use crate::layout;
use crate::memory::{Limits, PoolSize};
use crate::order::Order;
use crate::overwrites::{Named, overwrites};
use crate::preflight;
use crate::start::exports;
use base::{ByteSize, Problem};
use flow::{DataId, ToolId};
use report::AccessMode;
use sched::{MachineCapacity, Scheduler, SchedulerOptions};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Upper bound of the tasks that are listed as impossible to run here.
const LISTED_MAX: usize = 5;

/// Results of the preparation.
pub struct Prepared {
    /// Programs of the tools that are called.
    pub programs: HashMap<ToolId, PathBuf>,
    /// Scheduler with all tasks.
    pub scheduler: Scheduler,
    /// Storage mode, and the reason for it.
    pub choice: Choice,
    /// Facts about the tools, used to choose another storage mode if the first one fails.
    pub tools: Tools,
    /// Size of the pool; 0 without a pool.
    pub memory: ByteSize,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Checks the inputs and programs of a workflow, as a run does before it starts.
///
/// # Errors
/// All inputs that cannot be read, and all tools that are not installed.
pub fn check_before_start(flow: &Checked, data_dir: &Path) -> Result<(), Vec<Problem>> {
    let mut problems = preflight::inputs(flow, data_dir);
    problems.extend(preflight::programs(flow).err().into_iter().flatten());
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Makes all checks before it returns, so that the user sees all problems at once.
pub fn prepare(order: &Order) -> Result<Prepared, Vec<Problem>> {
    let mut problems = preflight::inputs(&order.flow, &order.data_dir);
    problems.extend(preflight::folder("--out", &order.out_dir));
    problems.extend(lost_files(order));
    let programs = preflight::programs(&order.flow).map_err(|missing| problems.extend(missing)).ok();
    let tools = Tools::look(&order.flow, programs.as_ref().unwrap_or(&HashMap::new()));
    let choice = choose(order.storage, &tools).map_err(|problem| problems.push(problem)).ok();
    let limits = Limits::read();
    let pool = pool_size(order, &limits, choice.as_ref()).map_err(|problem| problems.push(problem)).ok();
    let size = pool.as_ref().map_or(ByteSize(0), |pool| pool.size);
    let scheduler = scheduler(order, &limits, size).map_err(|refused| problems.extend(refused)).ok();
    match (programs, scheduler, choice, pool) {
        (Some(programs), Some(scheduler), Some(choice), Some(pool)) if problems.is_empty() => Ok(Prepared {
            programs,
            scheduler,
            choice,
            tools,
            memory: pool.size,
            warnings: order.warnings.iter().cloned().chain(pool.lowered).collect(),
        }),
        _ => Err(problems),
    }
}

/// Problems with outputs or the report that would overwrite inputs, the script or the tool file.
fn lost_files(order: &Order) -> Vec<Problem> {
    let workflow = order.flow.workflow();
    let inputs = (0..workflow.data_count()).map(DataId).filter_map(|id| {
        let path = layout::host_path(&order.flow, id)?;
        Some(Named::new(format!("input {}", workflow.data_name(id)), order.data_dir.join(path)))
    });
    let script = Some(&order.asked.source).filter(|path| !path.is_empty());
    let script = script.map(|path| Named::new("the workflow", path));
    let tools = order.asked.tools.as_ref().map(|path| Named::new("the tool file", path));
    let report = |name: &str| order.report_dir.as_ref().map(|dir| Named::new("the report", dir.join(name)));
    let mut outputs: Vec<_> = exports(order).places.into_iter().collect();
    outputs.sort();
    let outputs =
        outputs.into_iter().map(|(id, place)| Named::new(format!("output {}", workflow.data_name(id)), place));
    let reports = report("run.json").into_iter().chain(report("report.html"));
    overwrites(inputs.chain(script).chain(tools), reports.chain(outputs))
}

fn pool_size(order: &Order, limits: &Limits, choice: Option<&Choice>) -> Result<PoolSize, Problem> {
    match choice {
        Some(Choice { mode: AccessMode::None, .. }) => Ok(PoolSize { size: ByteSize(0), lowered: None }),
        Some(choice) if choice.has_copies() => limits.beside_copies().pool(order.memory),
        _ => limits.pool(order.memory),
    }
}

/// Makes the scheduler with all tasks; tasks that can never run here are problems.
fn scheduler(order: &Order, limits: &Limits, pool: ByteSize) -> Result<Scheduler, Vec<Problem>> {
    let machine = MachineCapacity { slots: order.slots, memory: limits.free().saturating_sub(pool.0) };
    let options = SchedulerOptions { fail_fast: order.fail_fast };
    let workflow = order.flow.workflow();
    let bytes = |data| preflight::bytes_of_input(&order.flow, &order.data_dir, data);
    Scheduler::from_workflow(workflow, machine, options, |_| order.keep, bytes).map_err(|refused| {
        let told = refused.iter().take(LISTED_MAX).map(|(task, why)| {
            let tool = &workflow.tool_of(&workflow.tasks[task.0 as usize]).name;
            Problem::new(format!("task {} {tool}: {why}", task.0))
        });
        told.collect()
    })
}
