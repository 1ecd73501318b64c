//! The commands that tasks expand to.

use super::*;
use crate::check;
use crate::testing::{WorkflowBuilder, builder, config, input, inputs, optional, output, outputs};
use crate::tool::{ConfigType, ConfigValue};

/// The command of the last task. Members lie in `/pool`; the task's directory is `/task`.
fn command(builder: &WorkflowBuilder) -> TaskCommand {
    let workflow = &builder.workflow;
    let plan = check(workflow, None).unwrap_or_else(|problems| panic!("the workflow is refused: {problems:?}"));
    let last = u32::try_from(workflow.tasks.len() - 1).expect("few tasks");
    plan.command(workflow, TaskId(last), "/task", &|id| match plan.writer_of(id) {
        Some(TaskId(task)) if task == last => format!("/task/{}", plan.path_in_task(workflow, id)),
        _ => format!("/pool/{}", plan.file_name(id)),
    })
}

fn args(builder: &WorkflowBuilder) -> Vec<String> {
    command(builder).args
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn paths_and_values_stand_where_the_template_names_them() {
    let params = vec![
        input("in"),
        output("out", ".model"),
        config("depth", ConfigType::Integer, Some(ConfigValue::Integer(12))),
        config("rate", ConfigType::Number, None),
    ];
    let builder = WorkflowBuilder::default()
        .tool(
            "T",
            "python3 {here}/t.py {in} {in.name}:{in.stem}:{in.ext}:{in.file}:{in.dir} {{{out}}} -d={depth} {rate}",
            params,
        )
        .input("In", "x/In.csv")
        .define("Out", &[])
        .call("T", "in=In out=Out rate=0.5");
    let command = command(&builder);
    assert_eq!(command.program, "python3");
    let expected = ["/here/t.py", "/pool/In.csv", "In:In:.csv:In.csv:/pool", "{/task/Out.model}", "-d=12", "0.5"];
    assert_eq!(command.args, texts(&expected));
}

#[test]
fn a_program_with_a_slash_is_a_path_from_the_tool_file() {
    for (program, expected) in [("./run", "/here/./run"), ("/bin/sh", "/bin/sh"), ("sh", "sh"), ("{here}/r", "/here/r")]
    {
        let builder = WorkflowBuilder::default().tool("T", program, vec![]).call("T", "");
        assert_eq!(command(&builder).program, expected);
    }
}

#[test]
fn flags_and_optional_inputs_vanish_with_their_items() {
    let params = || vec![optional("mask"), config("fast", ConfigType::Boolean, Some(ConfigValue::Boolean(false)))];
    let builder = || {
        WorkflowBuilder::default()
            .tool("T", "t {fast?--fast} x{fast?y} {mask?-m} {mask} --mask={mask} {fast}", params())
            .input("M", "M")
    };
    assert_eq!(args(&builder().call("T", "")), texts(&["x", "false"]));
    assert_eq!(args(&builder().call("T", "fast=true")), texts(&["--fast", "xy", "true"]));
    assert_eq!(args(&builder().call("T", "mask=M")), texts(&["x", "-m", "/pool/M", "--mask=/pool/M", "false"]));
}

#[test]
fn an_empty_config_is_an_empty_argument() {
    let params = vec![config("text", ConfigType::String, Some(ConfigValue::String(String::new())))];
    assert_eq!(args(&WorkflowBuilder::default().tool("T", "t {text}", params).call("T", "")), texts(&[""]));
}

#[test]
fn streams_environment_and_path_are_given() {
    let builder = WorkflowBuilder::default()
        .tool("T", "t", vec![input("in"), output("out", ".txt")])
        .with(|tool| {
            tool.stdin = Some("{in}".to_owned());
            tool.stdout = Some("{out}".to_owned());
            tool.env = vec![("IN".to_owned(), "<{in.name}>".to_owned()), ("X".to_owned(), "1".to_owned())];
            tool.path = texts(&["bin", "/opt/bin"]);
        })
        .input("In", "In.csv")
        .define("Out", &[])
        .call("T", "in=In out=Out");
    let command = command(&builder);
    assert_eq!(command.stdin.as_deref(), Some("/pool/In.csv"));
    assert_eq!(command.stdout.as_deref(), Some("/task/Out.txt"));
    assert_eq!(command.env, [("IN".to_owned(), "<In>".to_owned()), ("X".to_owned(), "1".to_owned())]);
    assert_eq!(command.path, texts(&["/here/bin", "/opt/bin"]));
}

#[test]
fn the_names_of_members_stand_where_an_array_is_named_by_a_part() {
    let builder = |form| {
        WorkflowBuilder::default()
            .tool("T", "t {parts} -n={parts.name} {parts.file}", vec![inputs("parts", form)])
            .inputs("P", &["a/x.csv", "b/y.csv"])
            .call("T", "parts=P")
    };
    let expected = ["/pool/x.csv", "/pool/y.csv", "-n=x", "-n=y", "x.csv", "y.csv"];
    assert_eq!(args(&builder(ArrayForm::Args)), texts(&expected));
    let command = command(&builder(ArrayForm::List));
    assert_eq!(command.args, texts(&["/task/parts.list", "-n=/task/parts.2.list", "/task/parts.3.list"]));
    let lists: Vec<&str> = command.lists.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(lists, ["x\ny\n", "x.csv\ny.csv\n", "/pool/x.csv\n/pool/y.csv\n"]);
}

#[test]
fn an_array_of_arguments_is_one_for_each_member() {
    let params = vec![inputs("parts", ArrayForm::Args)];
    let builder = WorkflowBuilder::default()
        .tool("T", "t -p {parts} --in={parts}:x", params)
        .inputs("P", &["P_2", "P_10"])
        .call("T", "parts=P");
    let command = command(&builder);
    assert_eq!(command.args, texts(&["-p", "/pool/P_2", "/pool/P_10", "--in=/pool/P_2:x", "--in=/pool/P_10:x"]));
    assert_eq!(command.lists, []);
}

#[test]
fn too_many_arguments_become_a_response_file_of_those_arguments() {
    let paths: Vec<String> = (0..3000).map(|index| format!("a-rather-long-name-of-a-file-{index}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let builder = WorkflowBuilder::default()
        .tool("T", "t {parts} -i={parts}", vec![inputs("parts", ArrayForm::Args)])
        .inputs("P", &paths)
        .call("T", "parts=P");
    let command = command(&builder);
    assert_eq!(command.args, texts(&["@/task/parts.list", "@/task/parts.2.list"]));
    let [(first, plain), (second, dressed)] = &command.lists[..] else { panic!("two lists") };
    assert_eq!((first.as_str(), second.as_str()), ("/task/parts.2.list", "/task/parts.list"));
    assert!(plain.starts_with("-i=/pool/a-rather-long-name-of-a-file-0\n"), "{}", &plain[..80]);
    assert_eq!(dressed.lines().count(), 3000);
}

#[test]
fn a_list_is_one_file_however_often_it_is_named() {
    let builder = builder()
        .inputs("P", &["a", "b"])
        .define("O", &[])
        .with(|tool| tool.command.push("--again={parts}".to_owned()))
        .call("Merge", "parts=P out=O");
    let command = command(&builder);
    assert_eq!(command.args, texts(&["/task/parts.list", "/task/O.all", "--again=/task/parts.list"]));
    assert_eq!(command.lists, [("/task/parts.list".to_owned(), "/pool/a\n/pool/b\n".to_owned())]);
}

#[test]
fn directories_hold_links_to_inputs_and_wait_for_outputs() {
    let params = vec![inputs("from", ArrayForm::Dir), outputs("to", ArrayForm::Dir)];
    let builder = WorkflowBuilder::default()
        .tool("T", "t {from} {to}", params)
        .inputs("P", &["x/a.csv", "y/b.csv"])
        .define("Q", &[2])
        .call("T", "from=P to=Q");
    let command = command(&builder);
    assert_eq!(command.args, texts(&["/task/from.dir", "/task/to"]));
    let link = |name: &str| (name.to_owned(), format!("/pool/{name}"));
    let expected = [
        LinkDir { path: "/task/from.dir".to_owned(), links: vec![link("a.csv"), link("b.csv")] },
        LinkDir { path: "/task/to".to_owned(), links: vec![] },
    ];
    assert_eq!(command.dirs, expected);
}

#[test]
fn texts_and_files_become_an_argument_each_however_long_they_are() {
    let paths: Vec<String> = (0..3000).map(|index| format!("a-rather-long-name-of-a-file-{index}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let params = vec![inputs("parts", ArrayForm::Words), config("words", ConfigType::Strings, None)];
    let builder = WorkflowBuilder::default()
        .tool("T", "t {parts} -w={words}", params)
        .inputs("P", &paths)
        .call("T", "parts=P words=a,b,c");
    let command = command(&builder);
    assert_eq!(command.args.len(), 3003);
    assert_eq!(command.args[3000..], texts(&["-w=a", "-w=b", "-w=c"]));
    assert!(command.lists.is_empty());
}

#[test]
fn standard_error_goes_to_a_file_of_its_own() {
    let tool = |stderr: &str| {
        let stderr = stderr.to_owned();
        WorkflowBuilder::default()
            .tool("T", "t", vec![output("out", ".txt"), output("log", ".log")])
            .with(|tool| (tool.stdout, tool.stderr) = (Some("{out}".to_owned()), Some(stderr)))
            .define("O", &[])
            .define("L", &[])
            .call("T", "out=O log=L")
    };
    let command = command(&tool("{log}"));
    assert_eq!(command.stderr.as_deref(), Some("/task/L.log"));
    let problems = check(&tool("{out}").workflow, None).expect_err("one file for both");
    assert!(problems[0].to_string().contains("is the file of standard output"), "{problems:?}");
}
