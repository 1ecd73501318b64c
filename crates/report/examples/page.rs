//! Rebuilds report.html from a run.json, to work on the page with real runs: `cargo run -p report
//! --example page -- run.json > report.html`.

use std::error::Error;
use std::io::Write;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("name a run.json")?;
    let run: report::RunReport = serde_json::from_slice(&std::fs::read(path)?)?;
    std::io::stdout().write_all(report::html(&run).as_bytes())?;
    Ok(())
}
