//! Tests of `flow show`: the listing, and the commands as a script for a shell.

use super::*;
use crate::args::SourceArgs;
use crate::args::SwiftArgs;
use std::fs;
use std::process::Command;

const TOOLS: &str = r#"
version = 1
[tools.Split]
command = ["split", "--number=l/{count}", "--numeric-suffixes", "--suffix-length=1", "{text}", "{parts}/part"]
inputs.text = {}
outputs.parts = { array = "dir", file = "part{number}" }
config.count = { type = "integer" }

[tools.Upper]
command = ["tr", "a-z", "A-Z"]
stdin = "{text}"
stdout = "{upper}"
inputs.text = {}
outputs.upper = { extension = ".txt" }

[tools.Join]
command = ["sh", "-c", "printf \"$TITLE\\n\"; xargs cat < \"$1\"", "sh", "{parts}"]
stdout = "{joined}"
env = { TITLE = "{title}" }
inputs.parts = { array = "list" }
outputs.joined = { extension = ".txt" }
config.title = { type = "string" }
"#;
const SCRIPT: &str = "var n = 6;
var parts = Data.define('Part', n), uppers = Data.define('Upper', n);
Split({text: Data.get('Poem'), parts: parts, count: n});
for (var i = 0; i < n; i++)
    Upper({text: parts[i], upper: uppers[i]});
Join({parts: uppers, joined: Data.define('Joined'), title: \"it's $HOME\"});
";
const POEM: &str = "one\ntwo\nthree\nfour\nfive\nsix\n";

fn project() -> (tempfile::TempDir, LoadedWorkflow) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [("w.js", SCRIPT), ("tools.toml", TOOLS), ("my Poem.txt", POEM)] {
        fs::write(directory.path().join(name), text.replace("'Poem'", "'my Poem'")).unwrap();
    }
    let path = |name| directory.path().join(name);
    let args = SourceArgs {
        workflow: path("w.js"),
        tools: None,
        data: Some(path("")),
        sets: Vec::new(),
        swift: SwiftArgs::default(),
    };
    let loaded = load(&args).unwrap();
    (directory, loaded)
}

#[test]
fn the_listing_names_every_element_with_its_role_and_every_task_with_its_files() {
    let (_directory, loaded) = project();
    let text = listing(&loaded.flow);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    assert_eq!(lines.iter().filter(|line| line.contains("Upper(Part[")).count(), 6);
    for expected in [
        "data",
        "Part[6]  temporary",
        "Upper[6]  temporary",
        "Joined  output",
        "tasks",
        "0  Split(my Poem.txt) -> Part[0] ... Part[5] (6)",
        "1  Upper(Part[0]) -> Upper[0]",
        "7  Join(Upper[0] ... Upper[5] (6)) -> Joined",
    ] {
        assert!(lines.contains(&expected), "{expected} is not in\n{text}");
    }
    assert!(text.contains("input my Poem.txt"), "{text}");
}

#[test]
fn the_commands_of_a_workflow_run_in_a_shell_and_write_what_a_run_writes() {
    let (directory, loaded) = project();
    let script = commands::listing(&loaded);
    assert!(script.contains("# task 7, line 6: Join("), "{script}");
    // The pool's directory is removed with the test's.
    let script = script.replace("$(mktemp -d)", "$PWD/pool");
    let ended = Command::new("sh").args(["-e", "-c", &script]).current_dir(directory.path()).output().unwrap();
    assert!(ended.status.success(), "{}\n{script}", String::from_utf8_lossy(&ended.stderr));
    let found =
        Command::new("find").args(["pool", "-name", "Joined.txt"]).current_dir(directory.path()).output().unwrap();
    let path = String::from_utf8(found.stdout).unwrap();
    let joined = fs::read_to_string(directory.path().join(path.trim())).unwrap();
    assert_eq!(joined, format!("it's $HOME\n{}", POEM.to_uppercase()));
}

#[test]
fn an_element_is_shown_with_its_dimensions_and_a_long_list_by_its_ends() {
    let descriptor = r#"{"tidemill_flow": 1, "name": "f",
        "tools": [{"name": "Touch", "command": ["touch", "{to}"], "params": [
            {"name": "to", "kind": {"output": {"array": "args"}}}]}],
        "elements": [{"name": "M", "shape": [2, 3]}, {"name": "In", "shape": [3], "input": ["a", "b", "c"]}],
        "tasks": [{"tool": "Touch", "files": {"to": "M[0]"}}, {"tool": "Touch", "files": {"to": "M[1][0]"}},
            {"tool": "Touch", "files": {"to": ["M[1][1]", "M[1][2]"]}}]}"#;
    let flow = CheckedWorkflow::new(flow::from_json(descriptor, "f.json").unwrap(), None).unwrap();
    let text = listing(&flow);
    for expected in ["M[2][3]  output", "In[3]  input a ... c", "Touch() -> M[0][0], M[0][1], M[0][2]\n"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let all: Vec<_> = (0..6).map(flow::DataId).collect();
    assert_eq!(summary(&flow, &all[..5]), "M[0][0] ... M[1][1] (5)");
    assert_eq!(summary(&flow, &[]), "");
}
