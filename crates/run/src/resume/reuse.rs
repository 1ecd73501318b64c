//! Reuse: results of an earlier run stand in for tasks that would do the same.
//!
//! A task does the same if the key is equal: a hash over its tool (declaration, files, program),
//! its parameters, the names of its files, and the keys of its inputs. The key of an input of the
//! workflow is the hash of its content, that of any other datum the key of the task that writes it.
//! So keys are known before anything runs.

use super::former::FormerResults;
use super::settle::{ExistingData, Settled, settle};
use super::{is_in_place, is_unchanged};
use crate::checked_workflow::CheckedWorkflow;
use crate::provenance::InputHashes;
use crate::spec::RunSpec;
use crate::start::{exports, hash_targets};
use base::Problem;
use blake3::{Hash, Hasher};
use flow::{DataId, ParamKind, TaskId, ToolId};
use journal::{ExportTrace, JOURNAL_FILE, JournalState, TaskPhase, WORKFLOW_FILE};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// What a run takes from an earlier one.
#[derive(Debug)]
pub struct Reuse {
    /// Name of the earlier run.
    pub run: String,
    /// Tasks that do not run, and the data that stands in for theirs.
    pub settled: Settled,
    /// Bytes of the members of these tasks, as far as they are known.
    pub bytes: HashMap<DataId, u64>,
    /// Members that the earlier run exported to where this run would export them.
    pub in_place: HashMap<DataId, ExportTrace>,
}

/// Keys of the tasks of a workflow; `None` where a hash is not known.
#[derive(Debug, Default)]
pub(super) struct TaskKeys(Vec<Option<Hash>>);

impl Reuse {
    /// Finds what can be taken from the run of a report's directory.
    ///
    /// # Errors
    /// There is no such run, it is damaged, or its inputs were not hashed.
    pub fn find(spec: &RunSpec, directory: &Path, programs: &HashMap<ToolId, PathBuf>) -> Result<Self, Vec<Problem>> {
        let state = ended_state(directory)?;
        let old = from_directory(directory, &state.growth)?;
        let old_keys = TaskKeys::new(
            &old,
            &state.tool_hashes.clone().into_iter().collect(),
            &state.input_hashes.clone().into_iter().collect(),
        );
        let new_keys = TaskKeys::of(spec, programs);
        Ok(Self::matching(spec, (&old, &state, &old_keys), &new_keys))
    }

    fn matching(
        spec: &RunSpec,
        (old, state, old_keys): (&CheckedWorkflow, &JournalState, &TaskKeys),
        new_keys: &TaskKeys,
    ) -> Self {
        let is_done = |task: &TaskId| state.task(*task).is_some_and(|trace| trace.phase == TaskPhase::Done);
        let known = old.order().iter().filter(|task| is_done(task));
        let by_key: HashMap<Hash, TaskId> = known.filter_map(|task| Some((old_keys.get(*task)?, *task))).collect();
        let flow = &spec.flow;
        let mut same: HashSet<TaskId> = HashSet::new();
        let (mut existing, mut bytes, mut in_place) = (HashMap::new(), HashMap::new(), HashMap::new());
        let plan = exports(spec);
        for task in flow.order().iter().copied() {
            let Some(twin) = new_keys.get(task).and_then(|key| by_key.get(&key)) else { continue };
            same.insert(task);
            for (data, before) in flow.outputs(task).zip(old.outputs(*twin)) {
                bytes.extend(state.data.get(&before).map(|trace| (data, trace.bytes)));
                let Some(export) = state.exported(before).filter(|export| is_unchanged(export)) else { continue };
                if is_in_place(data, export, &plan) {
                    in_place.insert(data, export.clone());
                }
                existing.insert(data, ExistingData::of_file(export.clone()));
            }
        }
        let exported = in_place.keys().copied().collect();
        let mut settled = settle(flow, |task| same.contains(&task), &plan, &exported, existing);
        // This run has done nothing yet that it could do again.
        settled.again.clear();
        Self { run: state.header.run.clone(), settled, bytes, in_place }
    }
}

/// The journal of a run that came to its end.
fn ended_state(directory: &Path) -> Result<JournalState, Vec<Problem>> {
    let state = JournalState::read(&directory.join(JOURNAL_FILE))
        .map_err(|error| vec![Problem::new(format!("--reuse: {error}"))])?;
    if state.tool_hashes.is_empty() && !state.tasks.is_empty() {
        let text =
            format!("--reuse {}: the run did not come to its end, so its inputs are not hashed", directory.display());
        return Err(vec![Problem::new(text).hint("go on with it (--resume), and reuse it then")]);
    }
    Ok(state)
}

/// Finds what a plan that grows can take from the run of a report's directory.
///
/// # Errors
/// There is no such run, it is damaged, or its inputs were not hashed.
pub fn find_former(
    spec: &RunSpec,
    directory: &Path,
    programs: &HashMap<ToolId, PathBuf>,
) -> Result<FormerResults, Vec<Problem>> {
    FormerResults::of_other(spec, directory, &ended_state(directory)?, tool_hashes(spec, programs).0)
}

/// The workflow of an earlier run, with what was added to it.
pub(super) fn from_directory(directory: &Path, growth: &[String]) -> Result<CheckedWorkflow, Vec<Problem>> {
    let path = directory.join(WORKFLOW_FILE);
    let name = path.display().to_string();
    let text = std::fs::read_to_string(&path).map_err(|error| vec![Problem::new(format!("{name}: {error}"))])?;
    CheckedWorkflow::new(flow::from_json_grown(&text, &name, growth).map_err(|problem| vec![problem])?, None)
}

/// Hashes of the tools and inputs of a run that has not begun.
fn tool_hashes(
    spec: &RunSpec,
    programs: &HashMap<ToolId, PathBuf>,
) -> (HashMap<String, String>, HashMap<DataId, String>) {
    let InputHashes { tools, inputs } = hash_targets(spec, programs).hashes(&|| false);
    let tools = tools.into_iter().filter_map(|tool| Some((tool.name, tool.hash?))).collect();
    (tools, inputs.into_iter().map(|(data, hash, _)| (data, hash)).collect())
}

impl TaskKeys {
    /// The keys of the tasks of a run that has not begun: reads its inputs and programs.
    fn of(spec: &RunSpec, programs: &HashMap<ToolId, PathBuf>) -> Self {
        let (tools, inputs) = tool_hashes(spec, programs);
        Self::new(&spec.flow, &tools, &inputs)
    }

    /// The keys of all tasks, by what identifies tools and inputs.
    pub fn new(flow: &CheckedWorkflow, tools: &HashMap<String, String>, inputs: &HashMap<DataId, String>) -> Self {
        let mut keys = Self::default();
        keys.extend(flow, tools, inputs);
        keys
    }

    /// Adds the keys of tasks that were added to the workflow.
    pub fn extend(
        &mut self,
        flow: &CheckedWorkflow,
        tools: &HashMap<String, String>,
        inputs: &HashMap<DataId, String>,
    ) {
        let known = self.0.len();
        self.0.resize(flow.workflow().tasks.len(), None);
        // Tasks that were added come last in the order.
        for task in &flow.order()[known..] {
            self.0[task.0 as usize] = self.key(flow, *task, tools, inputs);
        }
    }

    /// The key of a task.
    pub fn get(&self, task: TaskId) -> Option<Hash> {
        self.0[task.0 as usize]
    }

    /// The key of a task, after those of the tasks that it needs.
    fn key(
        &self,
        flow: &CheckedWorkflow,
        task: TaskId,
        tools: &HashMap<String, String>,
        inputs: &HashMap<DataId, String>,
    ) -> Option<Hash> {
        let (call, tool) = (flow.task(task), flow.tool_of(task));
        let mut hasher = Hasher::new();
        add(&mut hasher, tools.get(&tool.name)?.as_bytes());
        for config in &call.configs {
            add(&mut hasher, tool.params[usize::from(config.param)].name.as_bytes());
            add(&mut hasher, &serde_json::to_vec(&config.value).ok()?);
        }
        for file in &call.files {
            let param = &tool.params[usize::from(file.param)];
            add(&mut hasher, param.name.as_bytes());
            add(&mut hasher, &[u8::from(file.data.is_array())]);
            add(&mut hasher, &(file.data.len() as u64).to_le_bytes());
            for data in file.data.iter() {
                add(&mut hasher, flow.file_name(data).as_bytes());
                if matches!(param.kind, ParamKind::Input { .. }) {
                    add(&mut hasher, &self.data_key(flow, data, inputs)?);
                }
            }
        }
        Some(hasher.finalize())
    }

    /// What identifies the content of a datum.
    fn data_key(&self, flow: &CheckedWorkflow, data: DataId, inputs: &HashMap<DataId, String>) -> Option<Vec<u8>> {
        let Some(writer) = flow.writer_of(data) else { return Some(inputs.get(&data)?.clone().into_bytes()) };
        let position = flow.outputs(writer).position(|output| output == data)? as u64;
        let mut key = self.get(writer)?.as_bytes().to_vec();
        key.extend(position.to_le_bytes());
        Some(key)
    }
}

/// Adds a part with its length, so that no two lists of parts look alike.
fn add(hasher: &mut Hasher, part: &[u8]) {
    hasher.update(&(part.len() as u64).to_le_bytes());
    hasher.update(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(depth: u32, rows: u32) -> CheckedWorkflow {
        let tool = serde_json::json!({"name": "t", "command": ["t", "{i}", "{o}", "{n}"], "params": [
            {"name": "i", "kind": {"input": {}}}, {"name": "o", "kind": {"output": {}}},
            {"name": "n", "kind": {"config": {"type": "integer"}}}]});
        let task = |from: &str, to: &str, n: u32| serde_json::json!({"tool": "t", "files": {"i": from, "o": to}, "config": {"n": n}});
        let descriptor = serde_json::json!({"tidemill_flow": 1, "name": "f", "tools": [tool],
            "elements": [{"name": "In", "input": "in"}, {"name": "A"}, {"name": "B"}, {"name": "C"}],
            "tasks": [task("In", "A", depth), task("A", "B", 1), task("In", "C", rows)]});
        CheckedWorkflow::new(flow::from_json(&descriptor.to_string(), "f").expect("well formed"), None).expect("valid")
    }

    fn keys(flow: &CheckedWorkflow, tool: &str, input: &str) -> Vec<Option<Hash>> {
        let tools = HashMap::from([("t".to_owned(), tool.to_owned())]);
        TaskKeys::new(flow, &tools, &HashMap::from([(DataId(0), input.to_owned())])).0
    }

    #[test]
    fn a_key_changes_with_all_that_a_task_sees_and_with_nothing_else() {
        let same = keys(&checked(1, 1), "tool", "content");
        assert_eq!(same, keys(&checked(1, 1), "tool", "content"));
        let other = keys(&checked(2, 1), "tool", "content");
        assert!(same[0] != other[0] && same[1] != other[1], "its parameters, and what reads its output");
        assert_eq!(same[2], other[2]);
        for changed in [keys(&checked(1, 1), "tool", "other"), keys(&checked(1, 1), "other", "content")] {
            assert!(same.iter().zip(&changed).all(|(a, b)| a != b));
        }
        assert!(same[0] != same[2], "the names of their outputs differ");
        assert!(keys(&checked(1, 1), "tool", "content").iter().all(Option::is_some));
    }

    #[test]
    fn what_was_not_hashed_has_no_key_and_neither_has_what_needs_it() {
        let tools = HashMap::from([("t".to_owned(), "tool".to_owned())]);
        assert_eq!(TaskKeys::new(&checked(1, 1), &tools, &HashMap::new()).0, [None; 3]);
    }
}
