//! run.json, its schema and its page in `docs/formats` agree.

#[path = "../examples/sample/generator.rs"]
mod generator;

use generator::SampleKind;
use report::RunReport;
use serde_json::Value;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../docs/formats/run.schema.json")).expect("the schema is JSON")
}

/// The violations of the schema in `json`.
fn faults(json: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(&schema()).expect("the schema is a schema");
    validator.iter_errors(json).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn value(run: &RunReport) -> Value {
    serde_json::from_str(&run.json()).expect("run.json is JSON")
}

#[test]
fn what_is_written_is_what_the_schema_promises() {
    let stories = [SampleKind::Done, SampleKind::Failed, SampleKind::Interrupted, SampleKind::Hostile];
    for story in stories.into_iter().chain([SampleKind::Cluster, SampleKind::LargeCluster]) {
        assert_eq!(faults(&value(&generator::run(223, story))), Vec::<String>::new(), "{story:?}");
    }
}

#[test]
fn only_a_run_on_a_cluster_has_nodes_reads_and_causes() {
    let (alone, cluster) =
        (generator::run(60, SampleKind::Failed).json(), generator::run(60, SampleKind::Cluster).json());
    for field in ["nodes", "node", "prepared_s", "reads", "causes", "lost_s"] {
        let field = format!("\"{field}\":");
        assert_eq!((alone.contains(&field), cluster.contains(&field)), (false, true), "{field}");
    }
}

#[test]
fn the_causes_of_a_task_add_up_to_its_end() {
    let run = generator::run(60, SampleKind::Cluster);
    let sum = |time: report::TimeByCause| time.data_s.0 + time.slot_s.0 + time.moving_s.0 + time.computing_s.0;
    for task in &run.tasks {
        let (time, end) = (task.causes.expect("it ran"), task.end_s.expect("it ran"));
        assert!((sum(time) - end.0).abs() < 1e-5, "task {}", task.id);
        assert_eq!(time.moving_s, task.prepared_s.expect("it ran"), "task {}", task.id);
    }
    let (path, last) = (&run.critical_path, run.critical_path.steps.last().expect("it ran"));
    assert!((sum(path.causes.expect("it ran")) - last.end_s.0).abs() < 1e-3);
    assert!(run.tasks.iter().any(|task| !task.earlier.is_empty()), "tasks are lost with a node");
}

#[test]
fn a_failed_task_that_is_kept_says_where() {
    let mut run = generator::run(24, SampleKind::Failed);
    let reason = run.tasks.iter_mut().find_map(|task| task.reason.as_mut()).expect("one failed");
    reason.kept = Some("/home/ada/out/failed/3".to_owned());
    reason.repeat = Some("/home/ada/out/failed/3/repeat.sh".to_owned());
    assert_eq!(faults(&value(&run)), Vec::<String>::new());
}

#[test]
fn the_schema_refuses_what_is_not_promised() {
    let good = value(&generator::run(24, SampleKind::Failed));
    let spoilt = |spoil: &dyn Fn(&mut Value)| {
        let mut json = good.clone();
        spoil(&mut json);
        faults(&json).len()
    };
    let failed = good["tasks"].as_array().unwrap().iter().position(|task| task["status"] == "failed").unwrap();
    assert_eq!(spoilt(&|_| ()), 0);
    assert_ne!(spoilt(&|json| json["tidemill_run"] = 2.into()), 0);
    assert_ne!(spoilt(&|json| json["surprise"] = 1.into()), 0);
    assert_ne!(spoilt(&|json| json["tasks"][0]["status"] = "maybe".into()), 0);
    assert_ne!(spoilt(&|json| drop(json["tasks"][failed].as_object_mut().unwrap().remove("reason"))), 0);
    assert_ne!(spoilt(&|json| drop(json.as_object_mut().unwrap().remove("totals"))), 0);
    assert_ne!(spoilt(&|json| json["pool"]["samples"][0] = serde_json::json!([1, 2])), 0);
}

#[test]
fn run_json_reads_back_as_it_was_written() {
    let run = generator::run(223, SampleKind::Failed);
    let mut read = RunReport::from_json(&run.json()).expect("what we wrote");
    assert_eq!(read.json(), run.json());
    read.tidemill_run = 2;
    let refused = RunReport::from_json(&read.json()).unwrap_err();
    assert!(refused.contains("has version 2"), "{refused}");
}

#[test]
fn each_task_is_a_line_of_at_most_a_kilobyte() {
    let json = generator::run(2_000, SampleKind::Done).json();
    let lines: Vec<&str> = json.lines().filter(|line| line.starts_with("{\"id\":")).collect();
    assert_eq!(lines.len(), 2_000);
    assert!(json.len() / lines.len() < 1024, "{} bytes a task", json.len() / lines.len());
}

#[test]
fn every_field_of_the_schema_is_described_on_its_page() {
    let page = include_str!("../../../docs/formats/run.md");
    let mut untold = Vec::new();
    fields(&schema(), &mut |name| {
        if !page.contains(&format!("`{name}`")) && !page.contains(&format!("\"{name}\"")) {
            untold.push(name.to_owned());
        }
    });
    // The page describes these settings together, by the flags that set them.
    untold.retain(|name| !["data", "tools", "out", "keep", "stage_in", "fail_fast"].contains(&name.as_str()));
    assert_eq!(untold, Vec::<String>::new());
}

fn fields(schema: &Value, see: &mut dyn FnMut(&str)) {
    let Value::Object(map) = schema else { return };
    for (key, inner) in map {
        if let (true, Value::Object(named)) = (key == "properties", inner) {
            named.keys().for_each(|name| see(name));
        }
        match inner {
            Value::Array(items) => items.iter().for_each(|item| fields(item, see)),
            _ => fields(inner, see),
        }
    }
}
