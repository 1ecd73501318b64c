//! `tidemill explain RUN TASK`: why a task started where and when it did, or why it still waits.

use crate::args::ExplainArgs;
use crate::output;
use crate::recorded_run::{self, RecordedRun};
use crate::task_account::TaskAccount;
use base::{Problem, printable};
use flow::{TaskId, Workflow};
use run::CheckedWorkflow;

/// Runs the command; returns the exit code.
pub fn explain(args: &ExplainArgs) -> Result<u8, Vec<Problem>> {
    let directory = recorded_run::directory(&args.run).map_err(|problem| vec![problem])?;
    let run = RecordedRun::read(&directory)?;
    let task = find_task(&run.flow, &args.task).map_err(|problem| vec![problem])?;
    let account = TaskAccount::new(&run, task);
    let text = if args.json {
        format!("{}\n", serde_json::to_string(&account).unwrap_or_default())
    } else {
        printable::lines(&account.text()).into_owned()
    };
    Ok(output::print_all(&text))
}

/// The task that `text` names: its number, or the name of a member or element that it writes.
fn find_task(flow: &CheckedWorkflow, text: &str) -> Result<TaskId, Problem> {
    let workflow = flow.workflow();
    if let Ok(number) = text.parse::<u32>() {
        let last = workflow.tasks.len().saturating_sub(1);
        let exists = (number as usize) < workflow.tasks.len();
        return if exists {
            Ok(TaskId(number))
        } else {
            Err(Problem::new(format!("there is no task {number}: the last one is {last}")))
        };
    }
    let members = members(workflow, text)?;
    let mut writers: Vec<TaskId> = members.filter_map(|data| flow.writer_of(data)).collect();
    writers.dedup();
    match writers[..] {
        [only] => Ok(only),
        [] => Err(Problem::new(format!("no task writes {text}: it is an input of the workflow"))),
        [first, ..] => {
            let data = flow.outputs(first).next().map(|data| workflow.data_name(data)).unwrap_or_default();
            Err(Problem::new(format!("several tasks write {text}")).hint(format!("name a member, such as {data}")))
        }
    }
}

/// The members that a name stands for: all of an element, or one.
fn members(workflow: &Workflow, text: &str) -> Result<impl Iterator<Item = flow::DataId>, Problem> {
    let element_name = text.split_once('[').map_or(text, |(name, _)| name);
    let by_name = |name: &str| workflow.elements.iter().find(|element| element.name == name);
    // An element's name may have brackets of its own.
    let Some(element) = by_name(text).or_else(|| by_name(element_name)) else {
        let known = workflow.elements.iter().map(|element| element.name.as_str());
        return Err(Problem::new(format!("{text}: neither the number of a task nor the name of data"))
            .nearest(element_name, known));
    };
    let is_whole = element.name == text;
    let found: Vec<_> = element.members().filter(|data| is_whole || workflow.data_name(*data) == text).collect();
    if found.is_empty() {
        let lengths: Vec<String> = element.shape.iter().map(|length| format!("[{length}]")).collect();
        return Err(Problem::new(format!("{text}: no such member of {}{}", element.name, lengths.concat())));
    }
    Ok(found.into_iter())
}
