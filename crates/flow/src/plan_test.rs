//! Workflows that the check refuses, and the contents of plans.

use super::*;
use crate::testing::{WorkflowBuilder, builder, config, input, inputs, named, output, outputs};
use crate::tool::{ArrayForm, ConfigType};

fn refused(builder: &WorkflowBuilder) -> Vec<String> {
    let problems = check(&builder.workflow, None).expect_err("the workflow is refused");
    problems.iter().map(ToString::to_string).collect()
}

fn plan(builder: &WorkflowBuilder) -> Plan {
    check(&builder.workflow, None).unwrap_or_else(|problems| panic!("the workflow is refused: {problems:?}"))
}

fn id(builder: &WorkflowBuilder, text: &str) -> DataId {
    builder.data(text, false).iter().next().expect("a member")
}

/// A workflow that splits an input into three, copies each part, and merges the copies.
fn fan() -> WorkflowBuilder {
    builder()
        .input("In", "data/In.csv")
        .define("P", &[3])
        .define("Q", &[3])
        .define("Out", &[])
        .call("Split", "in=In parts=P")
        .call("Copy", "in=P[0] out=Q[0]")
        .call("Copy", "in=P[1] out=Q[1]")
        .call("Copy", "in=P[2] out=Q[2]")
        .call("Merge", "parts=Q out=Out")
}

#[test]
fn a_plan_knows_writers_readers_results_and_an_order() {
    let fan = fan();
    let plan = plan(&fan);
    assert_eq!(plan.writer_of(id(&fan, "In")), None);
    assert_eq!(plan.writer_of(id(&fan, "P[2]")), Some(TaskId(0)));
    assert_eq!(plan.readers(id(&fan, "P[2]")).collect::<Vec<_>>(), [TaskId(3)]);
    assert!(plan.is_unread(id(&fan, "Out")) && plan.readers(id(&fan, "Out")).next().is_none());
    assert_eq!(plan.results(&fan.workflow).collect::<Vec<_>>(), [id(&fan, "Out")]);
    assert_eq!(plan.inputs(&fan.workflow).collect::<Vec<_>>(), [id(&fan, "In")]);
    assert_eq!(plan.order(), [0, 1, 2, 3, 4].map(TaskId));
}

#[test]
fn tasks_may_be_called_before_those_they_wait_for() {
    let builder = builder()
        .input("In", "In")
        .define("A", &[])
        .define("B", &[])
        .call("Copy", "in=A out=B")
        .call("Copy", "in=In out=A");
    assert_eq!(plan(&builder).order(), [TaskId(1), TaskId(0)]);
}

#[test]
fn an_empty_workflow_is_valid() {
    assert_eq!(plan(&WorkflowBuilder::default()).order(), []);
}

#[test]
fn a_cycle_is_shown_with_its_tasks_and_data() {
    let builder = builder()
        .define("A", &[])
        .define("B", &[])
        .define("C", &[])
        .call("Copy", "in=A out=B")
        .call("Copy", "in=B out=A")
        .call("Copy", "in=A out=C");
    assert_eq!(
        refused(&builder),
        ["tasks wait for each other in a cycle: task 0 (`Copy`) -- B -> task 1 (`Copy`) -- A -> task 0\n  \
          hint: a task cannot read what is made from its own outputs"]
    );
}

#[test]
fn a_task_that_waits_for_itself_is_a_cycle() {
    let reads_itself = builder().define("A", &[]).call("Copy", "in=A out=A");
    assert!(refused(&reads_itself)[0].contains("task 0 (`Copy`) -- A -> task 0"));
    let after_itself = builder().input("I", "I").define("A", &[]).call("Copy", "in=I out=A").after(0);
    assert!(refused(&after_itself)[0].contains("task 0 (`Copy`) -- before -> task 0"));
}

#[test]
fn a_long_cycle_shows_its_ends() {
    let mut builder = builder().define("A", &[100]);
    for task in 0..100 {
        builder = builder.call("Copy", &format!("in=A[{task}] out=A[{}]", (task + 1) % 100));
    }
    let message = refused(&builder).remove(0);
    assert!(message.len() < 600, "{message}");
    assert!(message.contains("task 0 (`Copy`) -- A[1] -> task 1"), "{message}");
}

#[test]
fn two_writers_of_one_member_are_both_named_with_their_lines() {
    let builder =
        builder().input("I", "I").define("A", &[2]).call("Copy", "in=I out=A[1]").call("Copy", "in=I out=A[1]");
    assert_eq!(refused(&builder), ["two tasks write `A[1]`: task 0 (`Copy`, line 1) and task 1 (`Copy`, line 2)"]);
    let script = ScriptSource { file: "w.js", source: "first;\nsecond;" };
    let problems = check(&builder.workflow, Some(script)).expect_err("the workflow is refused");
    assert_eq!(
        problems[0].to_string(),
        "w.js:2: two tasks write `A[1]`: task 0 (`Copy`, line 1) and task 1 (`Copy`, line 2)\n    2 | second;"
    );
}

#[test]
fn one_task_that_writes_a_member_twice_is_refused() {
    let builder = WorkflowBuilder::default()
        .tool("Two", "two {a} {b}", vec![output("a", ""), output("b", "")])
        .define("A", &[])
        .call("Two", "a=A b=A");
    assert_eq!(refused(&builder), ["two tasks write `A`: task 0 (`Two`, line 1) and task 0 (`Two`, line 1)"]);
}

#[test]
fn data_that_is_read_and_never_written_is_refused() {
    let builder = builder().define("A", &[2]).define("B", &[]).call("Copy", "in=A[1] out=B");
    assert_eq!(refused(&builder), ["task 0 (`Copy`) reads `A[1]`, and no task writes it"]);
}

#[test]
fn an_input_that_is_written_is_refused() {
    let builder = builder().input("I", "I").input("J", "J").call("Copy", "in=I out=J");
    assert_eq!(
        refused(&builder),
        [
            "task 0 (`Copy`) writes `J`, which is an input of the workflow\n  hint: write to an element made by Data.define"
        ]
    );
}

#[test]
fn a_thousand_problems_are_reported_as_ten() {
    let mut builder = builder().define("A", &[1000]).define("B", &[1000]);
    for task in 0..1000 {
        builder = builder.call("Copy", &format!("in=A[{task}] out=B[{task}]"));
    }
    assert_eq!(refused(&builder).len(), 10);
}

#[test]
fn bindings_that_do_not_fit_the_tool_are_refused() {
    let bind = |change: &dyn Fn(&mut Task)| {
        let mut builder = fan();
        change(&mut builder.workflow.tasks[4]);
        refused(&builder).remove(0)
    };
    let binding = |param, data| crate::FileBinding { param, data };
    let list = |ids: &[u32]| crate::DataRefs::List(ids.iter().map(|id| DataId(*id)).collect());
    for (files, expected) in [
        (vec![binding(0, list(&[]))], "parameter `parts` is bound to an empty array"),
        (vec![binding(0, list(&[99]))], "parameter `parts` is bound to data that there is not"),
        (vec![binding(0, crate::DataRefs::Run { first: DataId(3), count: u32::MAX })], "data that there is not"),
        (vec![binding(0, crate::DataRefs::One(DataId(1)))], "takes arrays: one element is an array of one"),
        (vec![binding(1, list(&[1, 3]))], "parameter `out` takes one data element, not an array"),
        (vec![binding(7, list(&[1]))], "its tool has no parameter 7"),
        (vec![binding(0, list(&[1])), binding(0, list(&[2]))], "parameter `parts` is bound twice"),
        (vec![binding(0, list(&[1]))], "parameter `out` is missing"),
    ] {
        let message = bind(&|task| task.files = files.clone().into());
        assert!(message.starts_with("task 4 (`Merge`): ") && message.contains(expected), "{message}");
    }
    assert_eq!(bind(&|task| task.tool = ToolId(9)), "task 4: there is no tool 9");
    assert!(bind(&|task| task.after = [TaskId(5)].into()).contains("it comes after task 5, which there is not"));
}

#[test]
fn elements_that_do_not_hold_together_are_refused() {
    for change in [
        &(|workflow: &mut Workflow| workflow.elements[1].first = DataId(7)) as &dyn Fn(&mut Workflow),
        &|workflow| workflow.elements[1].count = 2,
        &|workflow| workflow.elements[1].shape = vec![u32::MAX, u32::MAX],
        &|workflow| workflow.elements[1].shape = vec![0],
        &|workflow| workflow.elements[2].name = "P".to_owned(),
        &|workflow| workflow.elements[2].name = "a/b".to_owned(),
        &|workflow| workflow.elements[0].source = Source::Input(vec![]),
        &|workflow| workflow.elements[0].source = Source::Input(vec!["data/..".into()]),
        &|workflow| workflow.elements[0].source = Source::Input(vec!["a\nb".into()]),
        &|workflow| workflow.tools[1].name = "Copy".to_owned(),
        &|workflow| workflow.tools[1].command = vec![],
    ] {
        let mut builder = fan();
        change(&mut builder.workflow);
        assert_eq!(refused(&builder).len(), 1);
    }
}

// --- file names ---

#[test]
fn files_are_named_after_element_index_and_extension() {
    let builder = WorkflowBuilder::default()
        .tool("Train", "train {in} {model}", vec![input("in"), output("model", ".model")])
        .input("In", "deep/directory/In.csv")
        .define("M", &[3, 20])
        .define("B", &[])
        .call("Train", "in=In model=M[0][3]")
        .call("Train", "in=In model=M[2][19]")
        .call("Train", "in=M[0][3] model=B");
    let plan = plan(&builder);
    let name = |text| plan.file_name(id(&builder, text));
    assert_eq!(name("In"), "In.csv");
    assert_eq!(name("M[0][3]"), "M_0_03.model");
    assert_eq!(name("M[2][19]"), "M_2_19.model");
    assert_eq!(name("B"), "B.model");
}

#[test]
fn names_are_made_of_other_names_however_far_back() {
    let params = || {
        vec![
            input("image"),
            named("area", None, "{out.name}_area{out.ext}"),
            named("out", None, "{image.stem}_{step}.fits"),
            config("step", ConfigType::String, None),
        ]
    };
    let builder = WorkflowBuilder::default()
        .tool("Step", "step {image} {out} {area}", params())
        .input("In", "raw/a.b.fits")
        .define("X", &[2])
        .define("Y", &[2])
        .call("Step", "image=X[0] out=X[1] area=Y[1] step=second")
        .call("Step", "image=In out=X[0] area=Y[0] step=first");
    let plan = plan(&builder);
    let name = |text| plan.file_name(id(&builder, text));
    assert_eq!(name("X[0]"), "a.b_first.fits");
    assert_eq!(name("Y[0]"), "a.b_first_area.fits");
    assert_eq!(name("X[1]"), "a.b_first_second.fits");
    assert_eq!(name("Y[1]"), "a.b_first_second_area.fits");
}

#[test]
fn members_are_named_by_index_and_number() {
    let builder = WorkflowBuilder::default()
        .tool("Cut", "cut {p}", vec![named("p", Some(ArrayForm::Dir), "{element}-{index}-{number}.txt")])
        .define("A", &[2, 12])
        .call("Cut", "p=A[1]");
    let plan = plan(&builder);
    assert_eq!(plan.file_name(id(&builder, "A[1][0]")), "A-1_00-00.txt");
    assert_eq!(plan.file_name(id(&builder, "A[1][11]")), "A-1_11-11.txt");
    assert_eq!(plan.path_in_task(&builder.workflow, id(&builder, "A[1][11]")), "p/A-1_11-11.txt");
}

#[test]
fn members_of_an_output_are_named_after_the_members_of_an_input_at_their_places() {
    let builder = |count: u32| {
        WorkflowBuilder::default()
            .tool(
                "All",
                "all {in} {out}",
                vec![inputs("in", ArrayForm::Args), named("out", Some(ArrayForm::Args), "{in.name}.txt")],
            )
            .inputs("I", &["a/x.csv", "b/y.csv"])
            .define("O", &[count])
            .call("All", "in=I out=O")
    };
    let two = builder(2);
    let plan = plan(&two);
    assert_eq!(plan.file_name(id(&two, "O[0]")), "x.txt");
    assert_eq!(plan.file_name(id(&two, "O[1]")), "y.txt");
    let message = refused(&builder(3)).remove(0);
    assert!(
        message
            .ends_with("`O[0]` is named after the member of `in` at its place, and 3 names are made of the 2 of `in`"),
        "{message}"
    );
}

#[test]
fn two_files_of_one_name_in_one_directory_are_refused() {
    let builder = WorkflowBuilder::default()
        .tool("Two", "two {a} {b}", vec![named("a", None, "same"), named("b", None, "same")])
        .define("A", &[2])
        .call("Two", "a=A[0] b=A[1]");
    assert_eq!(refused(&builder), ["task 0 (`Two`): two files in the task's directory would have the name `same`"]);
    let builder = WorkflowBuilder::default()
        .tool("All", "all {in} {out}", vec![inputs("in", ArrayForm::Dir), output("out", "")])
        .inputs("I", &["a/x.csv", "b/x.csv"])
        .define("O", &[])
        .call("All", "in=I out=O");
    assert_eq!(
        refused(&builder),
        ["task 0 (`All`): two files in the directory that `in` gets would have the name `x.csv`"]
    );
    let builder = WorkflowBuilder::default()
        .tool("Cut", "cut {p} {q}", vec![outputs("p", ArrayForm::Dir), named("q", None, "p")])
        .define("A", &[2])
        .define("Q", &[])
        .call("Cut", "p=A q=Q");
    assert_eq!(refused(&builder), ["task 0 (`Cut`): two files in the task's directory would have the name `p`"]);
}

#[test]
fn what_no_file_can_be_called_is_refused() {
    for (value, expected) in [("a/b", "holds a `/` or a line end"), ("..", "is a directory"), ("", "is empty")] {
        let params = vec![named("out", None, "{name}"), config("name", ConfigType::String, None)];
        let mut builder =
            WorkflowBuilder::default().tool("T", "t {out}", params).define("A", &[]).call("T", "out=A name=x");
        builder.workflow.tasks[0].configs[0].value = crate::ConfigValue::String(value.to_owned());
        let message = refused(&builder).remove(0);
        assert!(message.contains(expected), "{message}");
    }
}
