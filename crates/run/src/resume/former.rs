//! Former results: tasks of an earlier plan that stand in for those of a plan that grows.
//!
//! A script is evaluated anew when its run is resumed or results are reused, so tasks have other
//! numbers than before. A task is known by its key ([`TaskKeys`]). One that was done stands in for
//! one that does the same if the files that it is to export are there, unchanged. Data that is gone
//! is made again if a later task reads it.

use super::is_unchanged;
use super::reuse::{TaskKeys, from_directory};
use crate::checked_workflow::CheckedWorkflow;
use crate::event_loop::ExportPlan;
use crate::layout;
use crate::provenance::hash_file;
use crate::spec::RunSpec;
use base::Problem;
use blake3::Hash;
use flow::{DataId, TaskId, ToolId, Workflow};
use journal::{ExportTrace, FileIdentity, FormerPlan, JournalState, TaskPhase};
use sched::RestoredData;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Results of earlier tasks.
#[derive(Debug)]
pub struct FormerResults {
    /// Name of the run that they are from.
    pub run: String,
    /// Number of tasks for which they stand in.
    pub count: usize,
    /// The notes of the script there.
    pub notes: Vec<String>,
    twins: HashMap<Hash, Vec<FormerOutput>>,
    /// The keys of the tasks of this plan so far.
    keys: TaskKeys,
    /// The identities of tools, by name.
    tools: HashMap<String, String>,
    /// The identities of inputs so far.
    inputs: HashMap<DataId, String>,
    data_dir: PathBuf,
    /// True if inputs are known by their content; else by length and time of change.
    by_content: bool,
}

/// A datum that an earlier task wrote.
#[derive(Debug, Clone)]
struct FormerOutput {
    bytes: Option<u64>,
    export: Option<ExportTrace>,
}

/// A task for which an earlier one stands in.
#[derive(Debug)]
pub struct StandIn {
    /// The task.
    pub task: TaskId,
    /// The bytes of its outputs, as far as they are known.
    pub bytes: HashMap<DataId, u64>,
    /// Outputs that are where this run would export them.
    pub in_place: HashMap<DataId, ExportTrace>,
    /// The files that have its outputs.
    pub files: HashMap<DataId, ExportTrace>,
}

impl StandIn {
    /// An output for the scheduler: files take no memory of the pool, and stay.
    pub fn restored(&self, data: DataId) -> Option<RestoredData> {
        let export = self.files.get(&data)?;
        Some(RestoredData { bytes: export.bytes, place: None, kept: true })
    }
}

impl FormerResults {
    /// The results of a run that was killed and goes on.
    ///
    /// # Errors
    /// Its workflow cannot be read.
    pub fn of_killed(
        spec: &RunSpec,
        directory: &Path,
        state: &JournalState,
        programs: &HashMap<ToolId, PathBuf>,
    ) -> Result<Self, Vec<Problem>> {
        let tools = declarations(spec.flow.workflow(), programs);
        let mut found = Self::new(spec, state.header.run.clone(), tools, false);
        for plan in state.former.iter().chain([&state.plan()]) {
            let inputs = plan.inputs.iter().map(|(data, file)| (*data, identity_text(file))).collect();
            let old = from_directory(directory, &plan.growth)?;
            // Programs are unchanged, or the run was refused.
            let tools = declarations_of(old.workflow(), programs, spec.flow.workflow());
            found.add(&old, plan, &tools, &inputs);
        }
        Ok(found)
    }

    /// The results of another run that came to its end.
    ///
    /// # Errors
    /// Its workflow cannot be read.
    pub fn of_other(
        spec: &RunSpec,
        directory: &Path,
        state: &JournalState,
        tools: HashMap<String, String>,
    ) -> Result<Self, Vec<Problem>> {
        let old = from_directory(directory, &state.growth)?;
        let mut found = Self::new(spec, state.header.run.clone(), tools, true);
        let old_tools = state.tool_hashes.clone().into_iter().collect();
        found.add(&old, &state.plan(), &old_tools, &state.input_hashes.clone().into_iter().collect());
        Ok(found)
    }

    fn new(spec: &RunSpec, run: String, tools: HashMap<String, String>, by_content: bool) -> Self {
        Self {
            run,
            count: 0,
            notes: Vec::new(),
            twins: HashMap::new(),
            keys: TaskKeys::default(),
            tools,
            inputs: HashMap::new(),
            data_dir: spec.data_dir.clone(),
            by_content,
        }
    }

    fn add(
        &mut self,
        old: &CheckedWorkflow,
        plan: &FormerPlan,
        tools: &HashMap<String, String>,
        inputs: &HashMap<DataId, String>,
    ) {
        let keys = TaskKeys::new(old, tools, inputs);
        // A process that was killed early may have fewer than the one before it.
        if plan.notes.len() > self.notes.len() {
            self.notes.clone_from(&plan.notes);
        }
        let output = |data: DataId| {
            let trace = plan.data.get(&data);
            FormerOutput {
                bytes: trace.map(|trace| trace.bytes),
                export: trace.and_then(|trace| trace.exported.clone()),
            }
        };
        for (task, trace) in (0..).map(TaskId).zip(&plan.tasks) {
            if let Some(key) = keys.get(task).filter(|_| trace.phase == TaskPhase::Done) {
                self.twins.insert(key, old.outputs(task).map(output).collect());
            }
        }
    }

    /// The new tasks of the plan for which earlier ones stand in: those from `tasks` on, with
    /// inputs from `data` on.
    pub fn take(&mut self, flow: &CheckedWorkflow, (data, tasks): (u32, usize), exports: &ExportPlan) -> Vec<StandIn> {
        for data in (data..flow.workflow().data_count()).map(DataId) {
            let path = layout::host_path(flow, data).map(|path| self.data_dir.join(path));
            let identity = path.and_then(|path| self.identity(&path));
            self.inputs.extend(identity.map(|identity| (data, identity)));
        }
        self.keys.extend(flow, &self.tools, &self.inputs);
        let new = (0..flow.workflow().tasks.len()).skip(tasks).filter_map(|task| u32::try_from(task).ok());
        let taken: Vec<StandIn> = new.filter_map(|task| self.stand_in(flow, TaskId(task), exports)).collect();
        self.count += taken.len();
        taken
    }

    fn stand_in(&self, flow: &CheckedWorkflow, task: TaskId, exports: &ExportPlan) -> Option<StandIn> {
        let twin = self.twins.get(&self.keys.get(task)?)?;
        let mut found = StandIn { task, bytes: HashMap::new(), in_place: HashMap::new(), files: HashMap::new() };
        for (data, before) in flow.outputs(task).zip(twin) {
            found.bytes.extend(before.bytes.map(|bytes| (data, bytes)));
            let export = before.export.clone().filter(is_unchanged);
            match (exports.places.get(&data), export) {
                // It has to be exported, and is not there.
                (Some(_), None) => return None,
                (place, Some(export)) => {
                    if place.is_some_and(|place| place == Path::new(&export.path)) {
                        found.in_place.insert(data, export.clone());
                    }
                    found.files.insert(data, export);
                }
                (None, None) => {}
            }
        }
        Some(found)
    }

    fn identity(&self, path: &Path) -> Option<String> {
        if self.by_content {
            return hash_file(path).ok().map(|(hash, _)| hash);
        }
        std::fs::metadata(path).ok().map(|about| identity_text(&FileIdentity::of(&about)))
    }
}

fn identity_text(file: &FileIdentity) -> String {
    format!("{} {}", file.bytes, file.changed_ns)
}

/// The identities of the tools of a workflow: declaration and program.
fn declarations(workflow: &Workflow, programs: &HashMap<ToolId, PathBuf>) -> HashMap<String, String> {
    let text = |(id, tool): (ToolId, &flow::Tool)| {
        let declared = serde_json::to_string(tool).ok()?;
        Some((tool.name.clone(), format!("{declared} {}", programs.get(&id)?.display())))
    };
    (0..).map(ToolId).zip(&workflow.tools).filter_map(text).collect()
}

/// The same for the tools of an earlier plan, whose programs are those of tools with the same name
/// now.
fn declarations_of(old: &Workflow, programs: &HashMap<ToolId, PathBuf>, now: &Workflow) -> HashMap<String, String> {
    let by_name: BTreeMap<&str, &PathBuf> = (0..)
        .map(ToolId)
        .zip(&now.tools)
        .filter_map(|(id, tool)| Some((tool.name.as_str(), programs.get(&id)?)))
        .collect();
    let of_old = (0..).map(ToolId).zip(&old.tools);
    let programs = of_old.filter_map(|(id, tool)| Some((id, (*by_name.get(tool.name.as_str())?).clone()))).collect();
    declarations(old, &programs)
}
