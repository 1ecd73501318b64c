//! Workflows that grow have the plan of the whole, and refuse what does not fit.

use super::*;
use crate::model::DataId;
use crate::plan::check;
use crate::testing::{WorkflowBuilder, builder};

/// A workflow of `rows` rows: each copies the input, splits the copy, and merges the parts with
/// what the row before merged.
fn rows(rows: usize) -> WorkflowBuilder {
    let mut all = builder().input("In", "data/In.csv");
    for row in 0..rows {
        let above = if row == 0 { "In".to_owned() } else { format!("M{}", row - 1) };
        all = all
            .define(&format!("C{row}"), &[])
            .define(&format!("P{row}"), &[3])
            .define(&format!("M{row}"), &[])
            .call("Copy", &format!("in=In out=C{row}"))
            .call("Split", &format!("in=C{row} parts=P{row}"))
            .call("Merge", &format!("parts=P{row}+{above} out=M{row}"));
    }
    all
}

/// Takes the elements and tasks from these indices on out of a workflow.
fn cut(workflow: &mut Workflow, elements: usize, tasks: usize) -> WorkflowGrowth {
    WorkflowGrowth { elements: workflow.elements.split_off(elements), tasks: workflow.tasks.split_off(tasks) }
}

#[test]
fn a_workflow_that_grew_in_any_steps_has_the_plan_of_the_whole() {
    let whole = rows(4).workflow;
    let expected = check(&whole, None).unwrap();
    // Elements may come long before the tasks that write them.
    for steps in [vec![(1, 0)], vec![(4, 3), (7, 6)], vec![(13, 0), (13, 5), (13, 11)], vec![(7, 4), (10, 8)]] {
        let mut parts = Vec::new();
        let mut grown = whole.clone();
        for (elements, tasks) in steps.iter().rev() {
            parts.push(cut(&mut grown, *elements, *tasks));
        }
        let mut plan = check(&grown, None).unwrap();
        for part in parts.into_iter().rev() {
            plan.grow(&mut grown, part).unwrap();
        }
        assert_eq!(grown, whole);
        let mut order = plan.order().to_vec();
        order.sort_unstable();
        assert_eq!(order, (0..12).map(TaskId).collect::<Vec<_>>());
        for data in (0..whole.data_count()).map(DataId) {
            let known = |plan: &Plan| (plan.writer_of(data), plan.readers(data).collect::<Vec<_>>());
            assert_eq!(known(&plan), known(&expected), "{steps:?}: {}", whole.data_name(data));
            assert_eq!(plan.file_name(data), expected.file_name(data));
        }
    }
}

#[test]
fn a_workflow_that_grew_is_read_from_its_beginning_and_what_was_added() {
    let whole = rows(3).workflow;
    let mut beginning = whole.clone();
    let _ = cut(&mut beginning, 4, 2);
    let mut longer = whole.clone();
    let _ = cut(&mut longer, 7, 6);
    let steps = [crate::growth_to_json(&longer, 4, 2), crate::growth_to_json(&whole, 7, 6)];
    assert!(steps.iter().all(|step| !step.contains('\n')));
    assert_eq!(crate::from_json_grown(&crate::to_json(&beginning), "f", &steps).unwrap(), whole);
    let twice = [steps[0].clone(), steps[0].clone()];
    let problem = crate::from_json_grown(&crate::to_json(&beginning), "f", &twice).unwrap_err();
    assert!(problem.message.contains("two data elements are called"), "{problem}");
}

#[test]
fn growth_that_does_not_fit_is_refused_and_changes_nothing() {
    type Addition = fn(WorkflowBuilder) -> WorkflowBuilder;
    let wrong: [(&str, Addition); 6] = [
        ("reads `Y`, and no task writes it", |all| all.define("Y", &[]).define("Z", &[]).call("Copy", "in=Y out=Z")),
        ("reads `Z`, and no task writes it", |all| all.define("Z", &[]).call("Copy", "in=Z out=Z")),
        ("two tasks write `M0`", |all| all.call("Copy", "in=In out=M0")),
        ("writes `In`, which is an input", |all| all.call("Copy", "in=M0 out=In")),
        ("comes after 7, which is not before it", |all| {
            all.define("Y", &[]).define("Z", &[]).call("Copy", "in=In out=Y").after(7).call("Copy", "in=In out=Z")
        }),
        ("so it holds no `/`", |all| all.define("a/b", &[]).call("Copy", "in=In out=a/b")),
    ];
    let before = rows(2).workflow;
    for (message, add) in wrong {
        let mut workflow = before.clone();
        let growth = beyond(&before, add(builder_of(&before)));
        let mut plan = check(&workflow, None).unwrap();
        let was = plan.clone();
        let problems = plan.grow(&mut workflow, growth).unwrap_err();
        assert!(problems[0].message.contains(message), "{message}: {problems:?}");
        assert_eq!((&workflow, plan.order()), (&before, was.order()), "{message}");
        // Correct parts can still be added.
        let right = beyond(&before, builder_of(&before).define("Y", &[]).call("Copy", "in=M1 out=Y"));
        plan.grow(&mut workflow, right).unwrap();
        assert_eq!(plan.writer_of(DataId(before.data_count())), Some(TaskId(6)));
    }
}

/// The parts of a workflow that `before` does not have.
fn beyond(before: &Workflow, mut after: WorkflowBuilder) -> WorkflowGrowth {
    cut(&mut after.workflow, before.elements.len(), before.tasks.len())
}

fn builder_of(workflow: &Workflow) -> WorkflowBuilder {
    WorkflowBuilder { workflow: workflow.clone() }
}
