//! Questions to the world: time, commands and files.

use super::*;
use crate::eval::fake_world::{evaluator, run};

#[test]
fn the_clock_and_sleep_are_questions() {
    let text = "import sys; sleep(0.25) => trace(clock(), clock_seconds());
        trace(clock_format(CLOCK_FMT_ISO8601, 61)); trace(clock_format(CLOCK_FMT_RFC3339, 0.6));";
    assert_eq!(run(text), ["trace: 1970-01-01T00:01:01", "trace: 1970-01-01 00:00:01", "trace: 1.5,1"]);
    let mut evaluator = evaluator("import sys; sleep(0.25); sleep(-1.0); trace(1);", &[]).expect("right");
    let steps = evaluator.advance(1).expect("it goes on");
    let asked: Vec<Duration> = steps
        .iter()
        .filter_map(|step| match step {
            ScriptStep::Ask(_, ScriptQuestion::Sleep(time)) => Some(*time),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [Duration::from_millis(250), Duration::ZERO]);
    assert!(!evaluator.is_over(), "it sleeps");
    assert_eq!(run("sleep_trace(0.1, 1, \"a\"); trace(2);"), ["trace: 2", "trace: 1,a"]);
    assert_eq!(run("import sys; sleep(1e300);"), ["s.swift:1:13: 1e+300 is no number of seconds"]);
}

#[test]
fn commands_give_their_output_and_exit_code() {
    let text = "import sys; string o; int e; (o, e) = system([\"date\", \"-u\"]); trace(o, e);
        string p; int f; (p, f) = system([\"false\"]); trace(f);
        string q; int g; (q, g) = system1(\"echo a | wc\"); trace(q, g);";
    assert_eq!(run(text), ["trace: sh -c echo a | wc,0", "trace: date -u,0", "trace: 1"]);
    assert_eq!(
        run("import sys; string c[] = []; string o; int e; (o, e) = system(c); trace(e);"),
        ["s.swift:1:56: this command has no words"]
    );
}

#[test]
fn files_have_types_and_times() {
    let text = "import files; trace(file_type(input(\"a.txt\")), file_type_string(\"dir\"), file_mtime(\"a.txt\"));
        app (file o) make() { \"make\" o } trace(file_type(make())); file m<\"m\"> = make(); trace(file_type(m));";
    assert_eq!(run(text), ["make #2", "make m", "trace: file", "trace: file,directory,1000000", "trace: file"]);
    assert_eq!(run("import files; trace(file_mtime(\"none\"));"), ["s.swift:1:21: none is not there"]);
}

#[test]
fn chunks_lie_between_delimiters() {
    let text = "a # x\nb\n----\n\n----\nc\n";
    assert_eq!(chunks_of(text, "----", "#"), ["a \nb", "c"]);
    assert_eq!(chunks_of(text, "b", ""), ["a # x", "----\n\n----\nc"]);
}
