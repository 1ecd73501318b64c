//! Measures the evaluator and the checker, beside the same loop in Python.
//!
//! ```text
//! cargo run --release -p swift --example measure
//! ```
#![expect(clippy::print_stdout, reason = "it prints what it measures")]

use std::process::Command;
use std::time::{Duration, Instant};
use swift::{Evaluator, ScriptFiles, ScriptFolders, ScriptStep, ScriptWorld, Sources, check, load};

/// The members of the array.
const MEMBERS: u64 = 1_000_000;
/// The members of the array whose memory is measured: so many that little else counts.
const MANY_MEMBERS: u64 = 10_000_000;
/// The lines of the script that is checked.
const LINES: u32 = 2_000;
/// Runs of a measurement, of which the shortest counts.
const RUNS: u32 = 5;

struct NoModules;

impl ScriptFiles for NoModules {
    fn read(&self, _: &str) -> Option<Result<String, String>> {
        None
    }
}

fn main() {
    let python = shortest(|| python_loop(MEMBERS));
    let script = shortest(|| run(&loop_script(MEMBERS)));
    let ratio = script.as_secs_f64() / python.as_secs_f64();
    println!("{MEMBERS} members: {script:.1?}; Python: {python:.1?}; ratio {ratio:.2} (at most 5)");
    let before = memory_bytes("VmRSS:");
    run(&loop_script(MANY_MEMBERS));
    // The script gives its array back at its end, so the peak counts.
    let bytes = memory_bytes("VmHWM:").saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "it is printed")]
    let ratio = bytes as f64 / (MANY_MEMBERS * 8) as f64;
    println!("{MANY_MEMBERS} members: {} MiB; {ratio:.2} of 8 bytes each (at most 1.5)", bytes >> 20);
    let text = long_script();
    let checked = shortest(|| {
        let begin = Instant::now();
        evaluator_of(&text);
        begin.elapsed()
    });
    println!("{LINES} lines are checked in {checked:.1?} (at most 50 ms)");
}

fn shortest(mut measure: impl FnMut() -> Duration) -> Duration {
    (0..RUNS).map(|_| measure()).min().unwrap_or_default()
}

fn loop_script(members: u64) -> String {
    let last = members - 1;
    format!("import stats; int A[]; foreach i in [0:{last}] {{ A[i] = i*i %% 7; }} trace(sum(A));")
}

fn python_loop(members: u64) -> Duration {
    let code = format!(
        "import time\ndef run():\n    n = {members}\n    A = [0] * n\n    for i in range(n):\n        A[i] = i*i % 7\n    return sum(A)\n\
         begin = time.perf_counter()\nrun()\nprint(time.perf_counter() - begin)"
    );
    let output = Command::new("python3").args(["-c", &code]).output().expect("python3 is there");
    let text = String::from_utf8(output.stdout).expect("it prints a number");
    Duration::from_secs_f64(text.trim().parse().expect("it prints a number"))
}

fn evaluator_of(text: &str) -> Evaluator {
    let mut sources = Sources::default();
    let folders = ScriptFolders { files: &NoModules, search: Vec::new(), defines: Vec::new() };
    let checked = load("s.swift", text, &folders, &mut sources).and_then(|modules| check(&modules, &sources));
    let checked = checked.unwrap_or_else(|problems| panic!("{}", problems[0]));
    Evaluator::new(checked.program, sources, ScriptWorld::default())
}

/// Runs a script that calls no programs; the time without the check.
fn run(text: &str) -> Duration {
    let mut evaluator = evaluator_of(text);
    let begin = Instant::now();
    while evaluator.has_work() {
        for step in evaluator.advance(1).expect("it is right") {
            assert!(matches!(step, ScriptStep::Print(_)), "it calls nothing");
        }
    }
    begin.elapsed()
}

/// The resident memory of this process: that of now (`VmRSS:`), or its peak (`VmHWM:`).
fn memory_bytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.unwrap_or_default() << 10
}

/// A script with functions, loops and conditions.
fn long_script() -> String {
    let function = |number: u32| {
        format!(
            "app (file o) make{number}(file i, int n) {{ \"make\" \"-n\" n i @stdout=o }}\n\
             (int o[]) f{number}(int n, string s=\"x\") {{\n    foreach i in [0:n-1] {{\n        \
             if (i %% 2 == 0) {{ o[i] = i * n + strlen(s); }} else {{ o[i] = max(i, n) %/ 3; }}\n    }}\n}}\n\
             file a{number}<\"a{number}.txt\"> = make{number}(input(\"in.txt\"), sum(f{number}(3)));\n\
             printf(\"%i %s\", size(f{number}(4, s=\"y\")), filename(a{number}));\n"
        )
    };
    let functions: Vec<String> = (0..LINES / 8).map(function).collect();
    format!("import io;\nimport string;\nimport stats;\nimport files;\n{}", functions.concat())
}
