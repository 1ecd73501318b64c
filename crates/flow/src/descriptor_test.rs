//! Round trips of descriptors, and the errors for invalid ones.

use super::*;
use crate::model::{PlacingTarget, TaskPlacing};
use crate::testing::{builder, config, input, optional, output};
use crate::tool::ConfigType;
use proptest::prelude::*;

/// A workflow with every kind of element, reference and value.
fn full_workflow() -> Workflow {
    let params = vec![
        input("in"),
        optional("mask"),
        output("out", ".o"),
        config("depth", ConfigType::Integer, None),
        config("rate", ConfigType::Number, None),
        config("text", ConfigType::String, Some(ConfigValue::String("a \"b\" \n é".to_owned()))),
        config("fast", ConfigType::Boolean, None),
        config("words", ConfigType::Strings, Some(ConfigValue::Strings(Vec::new()))),
    ];
    let builder = builder()
        .tool("All", "all {in} {mask} {out} {depth} {rate} {text} {fast?-f} {words}", params)
        .input("In", "deep/In \"1\".csv")
        .inputs("U", &["U/1", "U/2", "U/3"])
        .define("M", &[3, 4])
        .define("O", &[8])
        .define("S", &[])
        .call("All", "in=In out=S depth=3 rate=2.0 fast=true text=x words=a,b")
        .call("All", "in=U[1] mask=In out=O[7] depth=-3 rate=1e300 fast=false")
        .after(0)
        .call("Split", "in=S parts=M")
        .call("Merge", "parts=M out=O[0]")
        .call("Merge", "parts=M[1] out=O[1]")
        .call("Merge", "parts=M[0:2] out=O[2]")
        .call("Merge", "parts=M[0][2:4]+M[1]+M[2][0] out=O[3]")
        .call("Merge", "parts=M[2][0]+U+M[0][0:2]+In out=O[4]")
        .call("Merge", "parts=In out=O[5]")
        .call("Merge", "parts=In+U[0] out=O[6]");
    let mut workflow = Workflow { name: "whole".to_owned(), ..builder.workflow };
    workflow.elements.last_mut().expect("S is the last").file = Some("s.txt".into());
    let targets = [PlacingTarget::Worker(1), PlacingTarget::Slot(1, 2), PlacingTarget::Data(DataId(0))];
    for (task, target) in workflow.tasks.iter_mut().zip(targets) {
        task.placing = Some(Box::new(TaskPlacing { priority: -3, location: Some(target), is_hard: true }));
    }
    workflow
}

fn problem_text(text: &str) -> String {
    from_json(text, "f.json").expect_err("is refused").to_string()
}

#[test]
fn what_is_written_reads_back_the_same() {
    let workflow = full_workflow();
    let text = to_json(&workflow);
    let read = from_json(&text, "f.json").unwrap_or_else(|problem| panic!("{problem}\n{text}"));
    assert_eq!(read, workflow);
    assert_eq!(to_json(&read), text);
    assert!(is_descriptor(&text));
    assert!(crate::check(&read, None).is_ok());
}

#[test]
fn references_are_written_as_people_would() {
    let text = to_json(&full_workflow());
    for expected in [
        r#""parts": "M", "out": "O[0]""#,
        r#""parts": "M[1]", "out": "O[1]""#,
        r#""parts": "M[0:2]", "out": "O[2]""#,
        r#""parts": ["M[0][2:4]", "M[1]", "M[2][0:1]"], "out": "O[3]""#,
        r#""parts": ["M[2][0]", "U", "M[0][0:2]", "In"], "out": "O[4]""#,
        r#""parts": ["In"], "out": "O[5]""#,
        r#""parts": ["In", "U[0:1]"], "out": "O[6]""#,
    ] {
        assert!(text.contains(expected), "{expected} in:\n{text}");
    }
}

#[test]
fn an_empty_workflow_is_a_descriptor() {
    let text = to_json(&Workflow::default());
    assert_eq!(from_json(&text, "f.json"), Ok(Workflow::default()));
}

#[test]
fn the_schema_takes_what_is_written_and_nothing_else() {
    let schema = include_str!("../../../docs/formats/flow.schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).expect("the schema is JSON");
    let schema = jsonschema::validator_for(&schema).expect("the schema is a schema");
    let text = to_json(&full_workflow());
    let value: serde_json::Value = serde_json::from_str(&text).expect("the descriptor is JSON");
    let errors: Vec<String> = schema.iter_errors(&value).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
    for (from, to) in [
        ("\"tidemill_flow\": 1", "\"tidemill_flow\": 2"),
        ("\"elements\"", "\"element\""),
        ("\"shape\": [3]", "\"shape\": [0]"),
        ("\"line\": 4}", "\"line\": -1}"),
        ("\"slot\":[1,2]", "\"slot\":[1]"),
        ("\"config\": {\"depth\": 3", "\"config\": {\"depth\": [3]"),
        ("\"M[0:2]\"", "7"),
        ("{\"tool\": \"All\"", "{\"tol\": \"All\""),
    ] {
        assert!(text.contains(from), "{from}");
        let wrong: serde_json::Value = serde_json::from_str(&text.replacen(from, to, 1)).expect("still JSON");
        assert!(!schema.is_valid(&wrong), "{to}");
        assert!(from_json(&wrong.to_string(), "f.json").is_err(), "{to}");
    }
}

#[test]
fn the_example_of_the_format_page_is_a_descriptor() {
    let page = include_str!("../../../docs/formats/flow.md");
    let example = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let workflow = from_json(example, "flow.md").unwrap_or_else(|problem| panic!("{problem}"));
    assert!(crate::check(&workflow, None).is_ok());
    assert_eq!(from_json(&to_json(&workflow), "again"), Ok(workflow));
}

#[test]
fn what_is_wrong_is_reported_with_its_path_or_line() {
    let with = |elements: &str, tasks: &str| {
        let tool = r#"{"name": "Copy", "command": ["cp", "{in}", "{out}"], "params": [
            {"name": "in", "kind": {"input": {}}}, {"name": "out", "kind": {"output": {}}}]}"#;
        format!(r#"{{"tidemill_flow": 1, "tools": [{tool}], "elements": [{elements}], "tasks": [{tasks}]}}"#)
    };
    let a = r#"{"name": "A", "shape": [2]}"#;
    let file = r#"{"name": "I", "input": "I.csv"}"#;
    let call = |params: &str| with(&format!("{a}, {file}"), &format!(r#"{{"tool": "Copy", "files": {{{params}}}}}"#));
    for (text, expected) in [
        ("{", "f.json:1:1: this is not JSON: EOF while parsing an object"),
        ("{\"tidemill_flow\": 1,\n \"surprise\": 2", "f.json:2:14: this is not JSON: EOF while parsing an object"),
        ("{\"a\": 1}", "f.json:1:4: this is not a workflow descriptor: unknown field `a`"),
        ("", "f.json:1: this is not JSON: EOF while parsing a value"),
        (r#"{"tidemill_flow": 2, "more": 1}"#, "f.json: tidemill_flow: version 2 is not known; this program reads 1"),
        (r#"{"tidemill_flow": 1, "tool": 1}"#, "f.json:1:27: this is not a workflow descriptor: unknown field `tool`"),
        (&with(a, r#"{"tool": "Coppy"}"#), "f.json: tasks[0].tool: unknown tool `Coppy`\n  hint: did you mean `Copy`?"),
        (
            &call(r#""inn": "I""#),
            "f.json: tasks[0].files.inn: tool `Copy` has no parameter `inn`\n  hint: did you mean `in`?",
        ),
        (&call(r#""in": "J""#), "f.json: tasks[0].files.in: unknown data element `J`\n  hint: known: A, I"),
        (
            &call(r#""in": "A[2]""#),
            "f.json: tasks[0].files.in: index 2 of `A` is out of bounds: dimension 0 has 2 members",
        ),
        (&call(r#""in": "A[x]""#), "f.json: tasks[0].files.in: `A[x]`: `[x]` is neither an index nor a slice `[2:5]`"),
        (&call(r#""in": "I", "in": "I""#), "f.json:"),
        (&with(a, r#"{"tool": "Copy", "after": [1]}"#), "f.json: tasks[0].after: there is no task 1"),
        (&with(r#"{"name": "A", "shape": [0]}"#, ""), "f.json: elements[0].shape: a length is 0"),
        (&with(r#"{"name": "A", "shape": [9999999]}"#, ""), "f.json: elements[0]: more than 8000000 members in all"),
        (
            &with(r#"{"name": "A", "shape": [2], "input": "x"}"#, ""),
            "f.json: elements[0].input: `A` needs a list of 2 files",
        ),
        (&with(&format!("{a}, {a}"), ""), "f.json: elements[1].name: two data elements are called `A`"),
        (
            r#"{"tidemill_flow": 1, "tools": [{"name": "T", "command": ["{x}"]}], "elements": [], "tasks": []}"#,
            "f.json: tools[0]: tool `T`, command item 1: unknown name `x`",
        ),
    ] {
        let message = problem_text(text);
        assert!(message.starts_with(expected), "{text}\nhas the message: {message}\ninstead of: {expected}");
    }
}

#[test]
fn a_short_text_cannot_name_millions_again_and_again() {
    let list = vec![r#""A""#; 100].join(",");
    let text = format!(
        r#"{{"tidemill_flow": 1, "tools": [{{"name": "T", "command": ["t", "{{in}}"],
        "params": [{{"name": "in", "kind": {{"input": {{"array": "args"}}}}}}]}}],
        "elements": [{{"name": "A", "shape": [8000000]}}], "tasks": [{{"tool": "T", "files": {{"in": [{list}]}}}}]}}"#
    );
    assert_eq!(problem_text(&text), "f.json: tasks[0].files.in: lists name more than 16000000 members in all");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        let _ = from_json(&text, "f.json");
    }

    /// Cuts, swaps and repeats bytes of a valid descriptor. If the result can still be read, it is
    /// checked, and its plan is expanded.
    #[test]
    fn no_damage_makes_it_panic(at in 0usize..4000, length in 0usize..40, put in "[\\[\\]{}\":,0-9a-zA-Z\\-]{0,6}") {
        let text = to_json(&full_workflow());
        let at = text.floor_char_boundary(at.min(text.len()));
        let end = text.floor_char_boundary((at + length).min(text.len()));
        let damaged = format!("{}{put}{}", &text[..at], &text[end.max(at)..]);
        let Ok(workflow) = from_json(&damaged, "f.json") else { return Ok(()) };
        let Ok(plan) = crate::check(&workflow, None) else { return Ok(()) };
        for task in plan.order() {
            plan.command(&workflow, *task, "/task", &|id| plan.file_name(id).to_owned());
        }
    }
}
