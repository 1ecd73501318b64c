//! The reasons of failed tasks that never ran, in words.

use crate::checked_workflow::CheckedWorkflow;
use flow::TaskId;
use report::{FailureReason, ReasonKind};
use sched::FailureCause;

/// Reason for a task that failed without running.
pub fn without_running(flow: &CheckedWorkflow, cause: FailureCause) -> FailureReason {
    let named = |task: TaskId| format!("task {} {}", task.0, flow.tool_of(task).name);
    let (kind, text, root, via) = match cause {
        FailureCause::Input { data, root } => {
            let writer = flow.writer_of(data);
            let name = flow.workflow().data_name(data);
            (ReasonKind::Upstream, format!("{name} was not written, since {} failed", named(root)), Some(root), writer)
        }
        FailureCause::Predecessor { task, root } => (
            ReasonKind::Upstream,
            format!("it comes after {}, and {} failed", named(task), named(root)),
            Some(root),
            Some(task),
        ),
        FailureCause::FailFast { root } => (
            ReasonKind::Cancelled,
            format!("{} failed, and --fail-fast starts nothing after that", named(root)),
            Some(root),
            None,
        ),
        FailureCause::Cancelled => {
            (ReasonKind::Cancelled, "the run was ended before it could start".to_owned(), None, None)
        }
        FailureCause::NoWriter { data } => {
            let name = flow.workflow().data_name(data);
            (ReasonKind::Upstream, format!("no task writes {name}"), None, None)
        }
        FailureCause::NoTask { task } => {
            (ReasonKind::Upstream, format!("it comes after task {}, which does not exist", task.0), None, None)
        }
        FailureCause::NoSuchLocation { .. } => {
            (ReasonKind::NotStarted, "it may run at one location only, and no worker is there".to_owned(), None, None)
        }
        FailureCause::NoWorker => {
            (ReasonKind::NotStarted, "no host that is left is large enough for it".to_owned(), None, None)
        }
        FailureCause::OwnAttempt => (ReasonKind::NotStarted, String::new(), None, None),
    };
    FailureReason { kind, text, root: root.map(|task| task.0), via: via.map(|task| task.0), ..FailureReason::default() }
}
