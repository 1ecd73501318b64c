//! Tests of `run`: from the arguments to the specification, ids, and the report's directory.

use super::*;
use crate::args::SwiftArgs;
use crate::args::{Cli, CliCommand, SourceArgs};
use clap::Parser;

const DESCRIPTOR: &str = r#"{"tidemill_flow": 1, "name": "my flow",
    "tools": [{"name": "cp", "command": ["cp", "{from}", "{to}"], "params": [
        {"name": "from", "kind": {"input": {}}}, {"name": "to", "kind": {"output": {}}}]}],
    "elements": [{"name": "in", "input": "in.txt"}, {"name": "T"}, {"name": "E"}],
    "tasks": [{"tool": "cp", "files": {"from": "in", "to": "T"}}, {"tool": "cp", "files": {"from": "T", "to": "E"}}]}"#;

/// Makes the specification of `tidemill run f.json FLAGS` in a directory of its own.
fn spec_of(flags: &str) -> Result<(tempfile::TempDir, RunSpec), Vec<Problem>> {
    let directory = tempfile::tempdir().unwrap();
    let workflow = directory.path().join("f.json");
    fs::write(&workflow, DESCRIPTOR).unwrap();
    let report = directory.path().join("report");
    let flags = flags.replace("HERE", directory.path().to_str().unwrap());
    let words = ["tidemill", "run", workflow.to_str().unwrap(), "--report", report.to_str().unwrap()];
    let cli = Cli::try_parse_from(words.into_iter().chain(flags.split_whitespace())).unwrap();
    let CliCommand::Run(args) = cli.command else { panic!("not a run") };
    let source = SourceArgs {
        workflow,
        tools: None,
        data: Some(directory.path().to_owned()),
        sets: Vec::new(),
        swift: SwiftArgs::default(),
    };
    let loaded = source::load(&source, &[]).unwrap();
    spec(&args, loaded, None).map(|spec| (directory, spec))
}

#[test]
fn each_flag_of_a_run_reaches_the_specification() {
    let (directory, spec) = spec_of(
        "--memory 64MiB --slots 7 --storage staging --keep --stage-in --fail-fast --policy fifo --no-passthrough --export T --out HERE/o",
    )
    .unwrap();
    assert_eq!((spec.memory, spec.slots, spec.storage), (Some(base::ByteSize::mib(64)), 7, StorageRequest::Staging));
    assert_eq!((spec.keep, spec.stage_in, spec.fail_fast, spec.passthrough), (true, true, true, false));
    assert_eq!(spec.policy, run::PolicyKind::Fifo);
    let exported: Vec<String> = spec.exports.iter().map(|id| spec.flow.workflow().data_name(*id)).collect();
    assert_eq!(exported, ["T"]);
    assert_eq!(spec.out_dir, directory.path().join("o"));
    assert_eq!(spec.requested.language, "json");
}

#[test]
fn a_run_without_flags_keeps_and_exports_nothing_more() {
    let (directory, spec) = spec_of("").unwrap();
    assert_eq!((spec.memory, spec.keep_failed, spec.exports.len()), (None, None, 0));
    assert_eq!((spec.keep, spec.stage_in, spec.fail_fast, spec.passthrough), (false, false, false, true));
    assert_eq!(spec.policy, run::PolicyKind::Locality);
    assert!(spec.slots >= 1 && spec.out_dir.is_absolute());
    assert_eq!(spec.report_dir, Some(directory.path().join("report")));
    assert!(spec.run_id.starts_with("my-flow-20"), "{}", spec.run_id);
}

#[test]
fn failed_tasks_are_kept_beside_the_report() {
    let (directory, spec) = spec_of("--keep-failed").unwrap();
    assert_eq!(spec.keep_failed, Some(directory.path().join("report/failed")));
}

#[test]
fn an_export_that_selects_nothing_is_refused_with_all_others() {
    let problems = spec_of("--export X --export in --export T").map(drop).unwrap_err();
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("--export X") && texts[1].contains("--export in"), "{texts:?}");
}

#[test]
fn a_report_directory_that_cannot_be_made_is_refused_before_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let line = ["tidemill", "run", "w.js", "--report", file.to_str().unwrap()];
    let CliCommand::Run(args) = Cli::try_parse_from(line).unwrap().command else { panic!("not a run") };
    let problems = report_dir(args.report.as_ref(), "id").unwrap_err();
    assert!(problems[0].to_string().contains("--report"), "{}", problems[0]);
    assert_eq!(report_dir(None, "my-id").unwrap(), Path::new("tidemill-report/my-id"));
}

#[test]
fn a_run_id_has_a_name_a_day_a_time_and_the_process() {
    for (workflow, name) in [("", "run"), ("a.b c", "a-b-c"), ("é", "-"), (&"x".repeat(100), &"x".repeat(40))] {
        let id = run_id(workflow);
        let rest = id.strip_prefix(name).unwrap_or_else(|| panic!("{id}"));
        let parts: Vec<&str> = rest.trim_start_matches('-').split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).take(2).collect::<Vec<_>>(), [8, 6], "{id}");
        assert_eq!(parts[2], std::process::id().to_string(), "{id}");
    }
}
