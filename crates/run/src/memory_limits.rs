//! Memory limits that tools declare: enforced by control groups where they can be made, else only
//! measured (`exec::ResourceUsage`).
//!
//! The groups belong to the run's registration in the runtime directory. Everything that removes a
//! run's mount and directories removes them too: its end, a panic, a second signal, and the next
//! start after SIGKILL.

use crate::checked_workflow::CheckedWorkflow;
use crate::emergency_cleanup::{CleanupList, EmergencyCleanup};
use crate::environment::remove_stale_runs;
use crate::spec::RunSpec;
use crate::storage_choice::StorageChoice;
use base::Problem;
use exec::{MemoryGroups, MemoryLimit, PlannedGroups};
use mount::{PoolRegistration, RuntimeDir};
use report::AccessMode;
use std::sync::Arc;

/// Enforces the memory that tools declare.
#[derive(Debug)]
pub struct MemoryLimits {
    groups: Arc<MemoryGroups>,
    files: u64,
}

impl MemoryLimits {
    /// Creates limits kept by `groups`. Files in memory that tools write may be charged to the
    /// groups: those of a pool of `pool` bytes, and `copies` bytes on a RAM disk.
    pub fn new(groups: Arc<MemoryGroups>, choice: &StorageChoice, pool: u64, copies: u64) -> Self {
        let pool = if choice.mode == AccessMode::None { 0 } else { pool };
        let copies = if choice.has_copies() { copies } else { 0 };
        Self { groups, files: pool.saturating_add(copies) }
    }

    /// The limit of a tool that declares `own` bytes; `None` if that is 0.
    pub fn limit_of(&self, own: u64) -> Option<MemoryLimit> {
        (own > 0).then(|| MemoryLimit { groups: self.groups.clone(), own, files: self.files })
    }
}

/// The groups of a run without a pool, and the registration that they belong to.
#[derive(Debug)]
pub struct StandaloneGroups {
    /// Control group of the run, which contains the groups of its tasks.
    pub groups: Arc<MemoryGroups>,
    _registration: PoolRegistration,
}

impl StandaloneGroups {
    /// Makes the groups, if a tool of the workflow declares memory and that can be enforced.
    pub fn prepare(spec: &RunSpec, emergency_cleanup: &EmergencyCleanup) -> Option<Self> {
        if !is_declared(&spec.flow) {
            return None;
        }
        let registration = RuntimeDir::of_user().map_err(Problem::from).and_then(|runtime| {
            remove_stale_runs(&runtime)?;
            Ok(runtime.register(&spec.run_id)?)
        });
        let mut registration = registration.map_err(|problem| not_enforced(&problem)).ok()?;
        emergency_cleanup.arm(Some(CleanupList::new(registration.rollback(), &spec.run_id)));
        let groups = prepare(&spec.flow, &mut registration)?;
        Some(Self { groups, _registration: registration })
    }
}

/// Makes the groups of a run, if one of its tools declares memory. If they cannot be made, the
/// reason is logged.
pub fn prepare(flow: &CheckedWorkflow, registration: &mut PoolRegistration) -> Option<Arc<MemoryGroups>> {
    is_declared(flow).then(|| make_groups(registration)).flatten()
}

/// Makes the groups of a run or of an agent. If they cannot be made, the reason is logged.
pub fn make_groups(registration: &mut PoolRegistration) -> Option<Arc<MemoryGroups>> {
    let planned =
        PlannedGroups::find(&format!("tidemill-{}", registration.name())).map_err(|why| not_enforced(&why)).ok()?;
    registration.add_control_group(planned.path()).map_err(|why| not_enforced(&why)).ok()?;
    planned.make().map_err(|why| not_enforced(&why)).ok().map(Arc::new)
}

fn not_enforced(why: &dyn std::fmt::Display) {
    tracing::info!("the `memory` of tools is measured and not enforced: {why}");
}

/// Returns whether a tool that is called declares memory.
fn is_declared(flow: &CheckedWorkflow) -> bool {
    let workflow = flow.workflow();
    workflow.tasks.iter().any(|task| workflow.tool_of(task).resources.memory > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage_choice::ToolSupport;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Makes the group of a registration; `None` if groups cannot be made here.
    fn group_of(registration: &mut PoolRegistration, name: &str) -> Option<MemoryGroups> {
        let planned = PlannedGroups::find(&format!("tidemill-{name}-{}", std::process::id()));
        let made = planned.and_then(|planned| {
            registration.add_control_group(planned.path()).expect("noted");
            planned.make()
        });
        made.inspect_err(|why| eprintln!("skipped: no control groups here: {why}")).ok()
    }

    #[test]
    fn a_control_group_goes_with_its_claim_and_so_do_the_processes_in_it() {
        let root = tempfile::tempdir().expect("made");
        let runtime = RuntimeDir::at(root.path().join("run")).expect("made");
        let mut registration = runtime.register("run-1").expect("claimed");
        let Some(groups) = group_of(&mut registration, "claim-test") else { return };
        let mut inside = Command::new("sleep").arg("3600").spawn().expect("started");
        std::fs::write(groups.path().join("0/cgroup.procs"), inside.id().to_string()).expect("entered");
        drop(registration);
        assert!(!groups.path().exists() && !runtime.path().join("run-1").exists());
        assert_eq!(inside.wait().expect("ended").signal(), Some(9));
    }

    #[test]
    fn the_limit_has_room_for_the_pool_and_for_copies_where_there_are_such() {
        let root = tempfile::tempdir().expect("made");
        let mut registration =
            RuntimeDir::at(root.path().join("run")).and_then(|runtime| runtime.register("run-1")).expect("claimed");
        let Some(groups) = group_of(&mut registration, "room-test").map(Arc::new) else { return };
        let (pool, copies) = (1000, 300);
        let files = |mode| {
            let choice = StorageChoice { mode, ..ToolSupport::staged("a test") };
            MemoryLimits::new(groups.clone(), &choice, pool, copies).files
        };
        assert_eq!((files(AccessMode::None), files(AccessMode::Mount), files(AccessMode::Staging)), (0, 1000, 1300));
    }

    #[test]
    fn only_tools_that_declare_memory_have_a_limit() {
        let root = tempfile::tempdir().expect("made");
        let mut registration =
            RuntimeDir::at(root.path().join("run")).and_then(|runtime| runtime.register("run-1")).expect("claimed");
        let Some(groups) = group_of(&mut registration, "tool-test").map(Arc::new) else { return };
        let limits = MemoryLimits { groups, files: 7 };
        assert!(limits.limit_of(0).is_none());
        assert!(limits.limit_of(5).is_some_and(|limit| (limit.own, limit.files) == (5, 7)));
    }
}
