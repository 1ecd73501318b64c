//! Locations of tasks: ranks, hosts and the places of files.

use crate::TaskLocation;
use crate::eval::fake_world::{evaluator, run};
use crate::eval::{AppCall, ScriptStep};

/// The calls of a script up to the first end of one.
fn calls(text: &str) -> Vec<AppCall> {
    let mut evaluator = evaluator(text, &[]).expect("right");
    let steps = evaluator.advance(100).expect("it goes on");
    steps.into_iter().filter_map(|step| if let ScriptStep::Call(call) = step { Some(call) } else { None }).collect()
}

const APPS: &str = "import location;
    app (file o) make() { \"make\" o }
    app (void o) use(file i) { \"use\" i }
    app (void o) run() { \"run\" }\n";

#[test]
fn a_task_runs_where_a_file_is_or_will_be() {
    let text = "file f = make(); file g = f;
        @location=locationOf(f) run(); @location=locationOf(g, HARD) run(); @soft_location=locationOf(f, HARD) run();";
    let calls = calls(&format!("{APPS}{text}"));
    let made = calls.iter().find_map(|call| match &call.values[..] {
        [crate::AppValue::File(file)] => Some(file.id),
        _ => None,
    });
    let file = made.expect("it is made");
    let mut locations: Vec<TaskLocation> = calls.iter().filter_map(|call| call.location).collect();
    locations.sort_by_key(|location| *location == TaskLocation::File { file, is_hard: true });
    let soft = TaskLocation::File { file, is_hard: false };
    assert_eq!(locations, [soft, soft, TaskLocation::File { file, is_hard: true }]);
}

#[test]
fn a_file_is_kept_as_long_as_a_task_runs_at_its_place() {
    let text = "{ file f = make(); @location=locationOf(f) run(); }";
    let mut evaluator = evaluator(&format!("{APPS}{text}"), &[]).expect("right");
    let steps = evaluator.advance(100).expect("it goes on");
    let ids: Vec<_> = steps
        .iter()
        .filter_map(|step| if let ScriptStep::Call(call) = step { Some((call.id, call.location)) } else { None })
        .collect();
    let (here, away): (Vec<_>, Vec<_>) = ids.into_iter().partition(|(_, location)| location.is_some());
    evaluator.call_ended(away[0].0, true).expect("once");
    assert_eq!(evaluator.advance(1).expect("it goes on"), []);
    evaluator.call_ended(here[0].0, true).expect("once");
    assert!(matches!(evaluator.advance(1).expect("it goes on")[..], [ScriptStep::Sealed(_)]));
}

#[test]
fn ranks_outside_of_the_run_are_refused() {
    let with = |location: &str| {
        run(&format!("import location; app (void o) run() {{ \"run\" }}\n@location={location} run();"))
    };
    assert_eq!(
        with("location(4, HARD, RANK)"),
        ["s.swift:2:35: there is no rank 4: this run has 4 slots, with ranks from 0 on"]
    );
    assert_eq!(
        with("rank2location(-1)"),
        ["s.swift:2:29: there is no rank -1: this run has 4 slots, with ranks from 0 on"]
    );
    assert_eq!(with("rank2location(3)"), ["run"]);
}

#[test]
fn hosts_have_leaders() {
    let text = "import location; foreach rank in hostmapLeaders() { trace(rank); }";
    assert_eq!(run(text), ["trace: 0", "trace: 2"]);
    assert_eq!(run("import location; trace(size(hostmap_leaders()), size(hostmap_list()));"), ["trace: 2,2"]);
}
