//! Measures the time of a script of 100,000 calls and the memory of its tasks: `cargo run --release
//! -p js4cloud --example calls`.

use base::ByteSize;
use flow::{Catalogue, Param, ParamKind, ScriptSource, Tool};
use js4cloud::{Inputs, Script, evaluate};
use std::time::Instant;

const SOURCE: &str = "var n = 100000;\nvar A = Data.define('A', n), B = Data.define('B', n);\n\
                      Make({out: A[0]});\nfor (var i = 1; i < n; i++) {\n  Step({in: A[i - 1], out: A[i]});\n}\n";

fn main() -> Result<(), base::Problem> {
    let before = resident();
    let start = Instant::now();
    let inputs = Inputs {
        tools: vec![tool("Make", false), tool("Step", true)],
        catalogue: Catalogue::default(),
        ..Inputs::default()
    };
    let workflow = evaluate(Script { file: "calls.js".to_owned(), source: SOURCE.to_owned() }, inputs)?;
    let evaluated = start.elapsed();
    let start = Instant::now();
    let plan = flow::check(&workflow, Some(ScriptSource { file: "calls.js", source: SOURCE }));
    let plan = plan.map_err(|mut problems| problems.remove(0))?;
    let checked = start.elapsed();
    let after = resident();
    let text = flow::to_json(&workflow);
    let start = Instant::now();
    let read = flow::from_json(&text, "calls.json")?;
    let loaded = start.elapsed();
    assert_eq!(read, workflow);
    let tasks = plan.order().len();
    let each = after.saturating_sub(before) / tasks as u64;
    eprintln!("{tasks} tasks: script {evaluated:?}, check {checked:?}, {each} B resident a task");
    eprintln!("descriptor: {} read in {loaded:?}", ByteSize(text.len() as u64));
    Ok(())
}

fn tool(name: &str, reads: bool) -> Tool {
    let input = ParamKind::Input { array: None, optional: false, implicit: true };
    let output = ParamKind::Output { array: None, file: None, extension: String::new(), implicit: true };
    let mut params = vec![Param { name: "out".to_owned(), kind: output }];
    if reads {
        params.insert(0, Param { name: "in".to_owned(), kind: input });
    }
    Tool::new(name, vec!["true".to_owned()], params)
}

/// The resident memory of this process in bytes, as reported by the kernel; 0 if unknown.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
